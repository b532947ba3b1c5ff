"""Multi-target regression on ten sets of Mulan: average relative RMSE, everything out of the box.

    python benchmarks/mulan.py --data FOLDER [--folds 5] [--output mulan.csv]

For every target the RMSE on the held-out rows of all folds, divided by that of the training mean;
then the mean over targets (1 is as good as nothing). Folds are shuffled with seed 0 and the same
for all models, on one core each. Values that are missing (only in scpf) are the training median
for all models. LightGBM's defaults cannot split fewer than 40 rows, so that on andro, the smallest
set, it is little or no better than the mean. Results are appended to the output file, and what is
in it already is not run again.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from scipy.stats import rankdata  # noqa: E402
from sklearn.exceptions import ConvergenceWarning  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.model_selection import KFold  # noqa: E402

from jointleaf.datasets import MULAN_TARGETS, load_mulan  # noqa: E402

FIELDS = ("set", "model", "folds", "arrmse", "fit_s")


def jointleaf() -> Any:
    from jointleaf import MultiTaskJOPLEnRegressor

    return MultiTaskJOPLEnRegressor(random_state=0)


def lightgbm() -> Any:
    from lightgbm import LGBMRegressor
    from sklearn.multioutput import MultiOutputRegressor

    return MultiOutputRegressor(LGBMRegressor(random_state=0, n_jobs=1, verbose=-1))


def catboost() -> Any:
    from catboost import CatBoostRegressor

    return CatBoostRegressor(
        loss_function="MultiRMSE",
        random_seed=0,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
    )


def elastic_net() -> Any:
    """The penalty is shared, so that targets are standardised too: the largest would rule it.

    Its folds are shuffled like ours. Rows of some sets are in the order of time, and with folds of
    neighbours it extrapolates and takes the strongest penalty (andro: 1.00 instead of 0.90).
    """
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import MultiTaskElasticNetCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folds = KFold(5, shuffle=True, random_state=0)
    model = make_pipeline(StandardScaler(), MultiTaskElasticNetCV(cv=folds, max_iter=5000))
    return TransformedTargetRegressor(model, transformer=StandardScaler())


MODELS: dict[str, Callable[[], Any]] = {
    "jointleaf": jointleaf,
    "LightGBM": lightgbm,
    "CatBoost": catboost,
    "MultiTaskElasticNetCV": elastic_net,
}


def evaluate(make: Callable[[], Any], X: np.ndarray, Y: np.ndarray, n_folds: int) -> dict:
    """Average relative RMSE over all folds, and the seconds of all fits."""
    squares, base, seconds = np.zeros(Y.shape[1]), np.zeros(Y.shape[1]), 0.0
    for train, test in KFold(n_folds, shuffle=True, random_state=0).split(X):
        filler = SimpleImputer(strategy="median").fit(X[train])
        X_train, X_test = filler.transform(X[train]), filler.transform(X[test])
        model, start = make(), time.perf_counter()
        model.fit(X_train, Y[train])
        seconds += time.perf_counter() - start
        squares += ((model.predict(X_test) - Y[test]) ** 2).sum(axis=0)
        base += ((Y[train].mean(axis=0) - Y[test]) ** 2).sum(axis=0)
    return {"arrmse": float(np.sqrt(squares / base).mean()), "fit_s": round(seconds, 2)}


def report(rows: list[dict], sets: list[str], models: list[str]) -> str:
    """Markdown table of errors, with means, mean ranks and seconds over complete sets."""
    found = {(row["set"], row["model"]): row for row in rows}
    lines = [f"| set | {' | '.join(models)} |", "|---" * (len(models) + 1) + "|"]
    for name in sets:
        values = [found.get((name, model)) for model in models]
        cells = ["" if row is None else f"{float(row['arrmse']):.4f}" for row in values]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    complete = [name for name in sets if all((name, model) in found for model in models)]
    if complete:
        errors = np.array(
            [[float(found[name, model]["arrmse"]) for model in models] for name in complete]
        )
        seconds = [sum(float(found[name, m]["fit_s"]) for name in complete) for m in models]
        ranks = rankdata(errors, axis=1).mean(axis=0)
        for title, values, digits in (
            (f"**mean of {len(complete)}**", errors.mean(axis=0), ".4f"),
            ("mean rank", ranks, ".2f"),
            ("fit, seconds in all", seconds, ".1f"),
        ):
            lines.append(f"| {title} | {' | '.join(format(v, digits) for v in values)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="local folder with the sets; else downloaded")
    parser.add_argument("--sets", nargs="*", choices=MULAN_TARGETS, default=list(MULAN_TARGETS))
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("mulan.csv"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    # Of the weakest penalties on the elastic net's path, which are seldom those chosen.
    warnings.filterwarnings("ignore", category=ConvergenceWarning, module="sklearn.linear_model")
    rows = list(csv.DictReader(args.output.open())) if args.output.exists() else []
    rows = [row for row in rows if int(row["folds"]) == args.folds]
    done = {(row["set"], row["model"]) for row in rows}
    with args.output.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if file.tell() == 0:
            writer.writeheader()
        for name in args.sets:
            X, Y = load_mulan(name, folder=args.data, return_X_y=True)
            for model in args.models:
                if (name, model) in done:
                    continue
                result = evaluate(MODELS[model], X, Y, args.folds)
                rows.append({"set": name, "model": model, "folds": args.folds, **result})
                writer.writerow(rows[-1])
                file.flush()
                print(f"{name}, {model}: {result['arrmse']:.4f} in {result['fit_s']} s", flush=True)
    print(report(rows, args.sets, args.models))


if __name__ == "__main__":
    main()
