"""A first accuracy check, everything out of the box, on ten of the paper's regression sets.

    python benchmarks/accuracy_first.py --data FOLDER

The sets are every ninth of the paper's 90 in alphabetical order; one 80/20 split each
(`random_state=0`), all columns, defaults only. NMSE is the test mean squared error divided by that
of predicting the training mean: lower is better.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from jointleaf.datasets import load_pmlb

SETS = (
    "1030_ERA", "4544_GeographicalOriginalofMusic", "560_bodyfat", "589_fri_c2_1000_25",
    "599_fri_c2_1000_5", "609_fri_c0_1000_5", "621_fri_c0_100_10", "635_fri_c0_250_10",
    "649_fri_c0_500_5", "663_rabe_266",
)  # fmt: skip


def jointleaf_model():
    from jointleaf import JOPLEnRegressor

    return JOPLEnRegressor(random_state=0)


def ensemble_model():
    """LightGBM with the 100 x 4 trees that the default partitioner grows."""
    from lightgbm import LGBMRegressor

    return LGBMRegressor(
        n_estimators=100, num_leaves=4, min_child_samples=5, subsample=0.7, subsample_freq=1,
        colsample_bytree=0.7, random_state=0, verbose=-1, n_jobs=1,
    )  # fmt: skip


def lightgbm_model():
    from lightgbm import LGBMRegressor

    return LGBMRegressor(random_state=0, verbose=-1, n_jobs=1)


def catboost_model():
    from catboost import CatBoostRegressor

    return CatBoostRegressor(
        random_seed=0, verbose=False, thread_count=1, allow_writing_files=False
    )


def cubist_model():
    from cubist import Cubist

    return Cubist(n_committees=10, random_state=0)


MODELS: dict[str, Callable] = {
    "jointleaf": jointleaf_model,
    "the same trees, not refitted": ensemble_model,
    "LightGBM": lightgbm_model,
    "CatBoost": catboost_model,
    "Cubist, 10 committees": cubist_model,
}


def evaluate(make: Callable, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    """NMSE on the test fifth and seconds of the fit."""
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=seed)
    start = time.perf_counter()
    model = make().fit(X_train, y_train)
    seconds = time.perf_counter() - start
    error = np.mean((np.ravel(model.predict(X_test)) - y_test) ** 2)
    return float(error / np.mean((y_train.mean() - y_test) ** 2)), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="local folder with PMLB data; else downloaded")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("| data set | " + " | ".join(args.models) + " |")
    print("|---" * (len(args.models) + 1) + "|")
    errors, seconds = [], []
    for name in args.sets:
        X, y = load_pmlb(name, folder=args.data, return_X_y=True)
        scores = [evaluate(MODELS[m], X, y, args.seed) for m in args.models]
        errors.append([e for e, _ in scores])
        seconds.append([s for _, s in scores])
        print(f"| {name} | " + " | ".join(f"{e:.4f}" for e, _ in scores) + " |", flush=True)
    means = np.exp(np.mean(np.log(errors), axis=0))
    print("| **geometric mean** | " + " | ".join(f"{m:.4f}" for m in means) + " |")
    print("| fit, seconds in all | " + " | ".join(f"{s:.1f}" for s in np.sum(seconds, 0)) + " |")


if __name__ == "__main__":
    main()
