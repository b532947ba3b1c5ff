"""Predicting with portable trees against the library that grew them, in one run.

    python benchmarks/speed_predict.py [--rows 100000] [--threads 1]

100 trees of 16 cells, 20 columns, every library; float64 rows, best of several runs. "cells"
finds the cells of all rows, "predict" is the whole prediction with a linear model in every cell,
"constant" the same with constant cells, which is what the library itself computes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from jointleaf import Frobenius, refine

TREES, CELLS, COLUMNS, TRAIN_ROWS = 100, 16, 20, 10_000


def models(threads: int) -> dict[str, object]:
    """Unfitted models of 100 trees with 16 leaves."""
    import catboost
    import lightgbm
    import xgboost
    from sklearn import ensemble

    return {
        "LightGBM": lightgbm.LGBMRegressor(
            n_estimators=TREES, num_leaves=CELLS, n_jobs=threads, verbose=-1
        ),
        "XGBoost": xgboost.XGBRegressor(
            n_estimators=TREES, max_leaves=CELLS, max_depth=0, grow_policy="lossguide",
            n_jobs=threads,
        ),
        "CatBoost": catboost.CatBoostRegressor(
            iterations=TREES, depth=4, thread_count=threads, verbose=False,
            allow_writing_files=False,
        ),
        "histogram gradient boosting": ensemble.HistGradientBoostingRegressor(
            max_iter=TREES, max_leaf_nodes=CELLS, early_stopping=False
        ),
        "gradient boosting": ensemble.GradientBoostingRegressor(
            n_estimators=TREES, max_leaf_nodes=CELLS, subsample=0.3
        ),
        "random forest": ensemble.RandomForestRegressor(
            TREES, max_leaf_nodes=CELLS, n_jobs=threads, max_features=0.3
        ),
    }  # fmt: skip


def best_seconds(call: Callable[[], object], repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="*")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((args.rows, COLUMNS))
    rows = X[:TRAIN_ROWS]
    y = rows[:, 0] * rows[:, 1] + np.sin(3 * rows[:, 2]) + rows[:, 3:].sum(axis=1)
    print("| library | its own predict | cells | predict | ratio | constant cells | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name, model in models(args.threads).items():
        if args.models and name not in args.models:
            continue
        model.fit(rows, y)
        fit = {"penalty": Frobenius(0.01, 0.01), "n_jobs": args.threads, "tol": 1e-2}
        linear = refine(model, rows, y, **fit)
        constant = refine(model, rows, y, cells="constant", **fit)
        own, cells, whole, plain = (
            best_seconds(lambda call=call: call(X))
            for call in (model.predict, linear.apply, linear.predict, constant.predict)
        )
        print(
            f"| {name} | {1e3 * own:.0f} ms | {1e3 * cells:.0f} ms | {1e3 * whole:.0f} ms "
            f"| {whole / own:.1f}x | {1e3 * plain:.0f} ms | {plain / own:.1f}x |",
            flush=True,
        )


if __name__ == "__main__":
    main()
