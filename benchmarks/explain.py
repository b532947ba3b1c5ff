"""Explaining predictions: jointleaf against Shapley values of the same trees, in one run.

    python benchmarks/explain.py [--rows 5000]              needs the extra `bench`

A LightGBM model of several sizes, and the same trees refitted jointly with a linear model in every
leaf. "explain" are the contributions of all columns to all predictions by the refitted model;
"pred_contrib" are LightGBM's own Shapley values, and "TreeExplainer" those of shap with its own
code. One thread each, CPU time, best of up to three runs, and the largest error of the sum of the
parts relative to the largest prediction.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import lightgbm
import numpy as np

from jointleaf import Frobenius, refine

SIZES = ((100, 4), (100, 16), (300, 31))
COLUMNS, TRAIN_ROWS = 20, 5000


def best_seconds(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def shap_values(booster: lightgbm.LGBMRegressor, rows: np.ndarray) -> Callable[[], np.ndarray]:
    """Shap's own code; by default it would call LightGBM's."""
    import shap

    explainer = shap.TreeExplainer(booster)
    explainer.model.model_type = "internal"
    return lambda: explainer.shap_values(rows, check_additivity=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5000)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((max(args.rows, TRAIN_ROWS), COLUMNS))
    train, rows = X[:TRAIN_ROWS], X[: args.rows]
    y = train[:, 0] * train[:, 1] + np.sin(3 * train[:, 2]) + train[:, 3:].sum(axis=1)
    print("| trees x cells | predict | explain | error of the sum | pred_contrib | ratio |", end="")
    print(" TreeExplainer | ratio |\n|---|---|---|---|---|---|---|---|")
    for trees, cells in SIZES:
        booster = lightgbm.LGBMRegressor(
            n_estimators=trees, num_leaves=cells, n_jobs=1, verbose=-1
        ).fit(train, y)
        model = refine(booster, train, y, penalty=Frobenius(0.01, 0.01), tol=1e-2)
        model.explain(rows[:1])  # the table of credits is made once
        found = model.explain(rows)
        prediction = model.predict(rows)
        error = np.abs(found.prediction - prediction).max() / np.abs(prediction).max()
        predict = best_seconds(lambda m=model: m.predict(rows), 3)
        ours = best_seconds(lambda m=model: m.explain(rows), 3)
        own = best_seconds(lambda b=booster: b.predict(rows, pred_contrib=True), 2)
        theirs = best_seconds(shap_values(booster, rows), 1)
        print(
            f"| {trees} x {cells} | {1e3 * predict:.0f} ms | {1e3 * ours:.0f} ms | {error:.0e} "
            f"| {1e3 * own:.0f} ms | {own / ours:.1f}x | {1e3 * theirs:.0f} ms "
            f"| {theirs / ours:.1f}x |",
            flush=True,
        )


if __name__ == "__main__":
    main()
