"""`adult` with its categories declared: jointleaf against CatBoost and LightGBM, in one run.

    python benchmarks/adult.py --data FOLDER

48,842 rows, 14 columns of which 7 hold categories (`workclass`, `marital-status`, ...); 80/20
splits, stratified, seeds 0 and 1, one core. CatBoost and LightGBM have their default
parameters and handle categories themselves. jointleaf puts the cells of both libraries into one
fit: CatBoost's trees on the categories, with a fifth of its rounds, and LightGBM's.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split

from jointleaf import JOPLEnClassifier
from jointleaf.datasets import load_pmlb
from jointleaf.partitions import CatBoostPartitioner, LightGBMPartitioner

CATEGORIES = (
    "workclass", "marital-status", "occupation", "relationship", "race", "sex", "native-country",
)  # fmt: skip


def jointleaf():
    """Cells of CatBoost and LightGBM in one fit."""
    catboost = {"learning_rate": 0.2, "bootstrap_type": "MVS", "subsample": 0.8, "rsm": 1.0}
    lightgbm = {
        "learning_rate": 0.05, "min_data_in_leaf": 20, "bagging_fraction": 1.0,
        "feature_fraction": 1.0,
    }  # fmt: skip
    cells = [
        CatBoostPartitioner(200, 64, options=catboost),
        LightGBMPartitioner(300, 15, options=lightgbm),
    ]
    return JOPLEnClassifier(cells, cells="constant", random_state=0, n_jobs=1)


def jointleaf_default():
    """As it comes."""
    return JOPLEnClassifier(random_state=0, n_jobs=1)


def catboost():
    """CatBoost's defaults."""
    from catboost import CatBoostClassifier

    return CatBoostClassifier(
        cat_features=list(CATEGORIES), random_seed=0, thread_count=1, verbose=False,
        allow_writing_files=False,
    )  # fmt: skip


def lightgbm():
    """LightGBM's defaults."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=0, n_jobs=1, verbose=-1)


MODELS = {
    "jointleaf, cells of both": jointleaf,
    "jointleaf, defaults": jointleaf_default,
    "CatBoost": catboost,
    "LightGBM": lightgbm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="local folder with PMLB data; else downloaded")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    args = parser.parse_args()
    bunch = load_pmlb("adult", folder=args.data)
    X = pd.DataFrame(bunch.data, columns=bunch.feature_names)
    for name in CATEGORIES:
        X[name] = X[name].astype(int).astype("category")
    print("| seed | model | accuracy | log-loss | fit, seconds |")
    print("|---|---|---|---|---|")
    for seed in args.seeds:
        X_train, X_test, y_train, y_test = train_test_split(
            X, bunch.target, test_size=0.2, random_state=seed, stratify=bunch.target
        )
        for name in args.models:
            start = time.perf_counter()
            model = MODELS[name]().fit(X_train, y_train)
            seconds = time.perf_counter() - start
            shares = model.predict_proba(X_test)
            accuracy = accuracy_score(y_test, model.classes_[np.argmax(shares, axis=1)])
            print(
                f"| {seed} | {name} | {accuracy:.4f} | {log_loss(y_test, shares):.4f} "
                f"| {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
