"""Predicting with portable trees against the library that grew them, in one run.

    python benchmarks/speed_predict.py [--rows 100000] [--threads 1]
    python benchmarks/speed_predict.py --default [--train 3000] [--columns 5 20] [--classes 0 2]

100 trees of 16 cells, 20 columns, every library; float64 rows, best of several runs. "cells"
finds the cells of all rows, "predict" is the whole prediction with a linear model in every cell,
"constant" the same with constant cells, which is what the library itself computes.

With `--default` the default model predicts 1 to 10,000 rows: CPU milliseconds of the best of
several calls and, in brackets, the ratios to LightGBM's defaults (100 trees of 31 leaves a class)
and to LightGBM that stops early on a tenth of the rows. "first" is the first call, with 1,000
rows, of a loaded model. Its file is compared with that of CatBoost's defaults.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import jointleaf
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor, refine

TREES, CELLS, COLUMNS, TRAIN_ROWS = 100, 16, 20, 10_000
PREDICTED_ROWS = (1, 20, 1000, 10_000)


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


def cpu_times(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """CPU seconds of the first call, and the least of the others."""
    times = []
    for _ in range(repeats + 1):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return times[0], min(times[1:])


def default_models(X: np.ndarray, y: np.ndarray, n_classes: int) -> list:
    """Return the default model, LightGBM, LightGBM with early stopping, and CatBoost, fitted."""
    import catboost
    import lightgbm

    kind = "Classifier" if n_classes else "Regressor"
    model = JOPLEnClassifier if n_classes else JOPLEnRegressor
    peer, cat = getattr(lightgbm, f"LGBM{kind}"), getattr(catboost, f"CatBoost{kind}")
    options = {"n_jobs": 1, "verbose": -1, "random_state": 0}
    n_valid = len(X) // 10
    return [
        model(random_state=0).fit(X, y),
        peer(**options).fit(X, y),
        peer(n_estimators=3000, **options).fit(
            X[n_valid:], y[n_valid:], eval_set=[(X[:n_valid], y[:n_valid])],
            callbacks=[lightgbm.early_stopping(50, verbose=False)],
        ),
        cat(verbose=0, thread_count=1, allow_writing_files=False, random_seed=0).fit(X, y),
    ]  # fmt: skip


def compare_default(n_train: int, n_columns: int, n_classes: int) -> None:
    """Print the line of one model."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_train + PREDICTED_ROWS[-1], n_columns))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + X[:, 3:8].sum(axis=1)
    y += 0.3 * rng.standard_normal(len(y))
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model, *peers, cat = default_models(X[:n_train], y[:n_train], n_classes)
    method = "predict_proba" if n_classes else "predict"
    cells, first = [], 0.0
    with tempfile.TemporaryDirectory() as place:
        path, other = Path(place) / "model.jleaf", Path(place) / "model.cbm"
        jointleaf.save(model, path)
        cat.save_model(str(other))
        sizes = path.stat().st_size / 1e6, other.stat().st_size / 1e6
        for n in PREDICTED_ROWS:
            rows, loaded = X[n_train : n_train + n], jointleaf.load(path)
            repeats = 200 if n <= 20 else 20 if n <= 1000 else 3
            once, best = cpu_times(partial(getattr(loaded, method), rows), repeats)
            first = once if n == 1000 else first
            times = [cpu_times(partial(getattr(p, method), rows), repeats)[1] for p in peers]
            ratios = ", ".join(f"{best / seconds:.1f}x" for seconds in times)
            cells.append(f"{1e3 * best:.3g} ({ratios})")
    size = f"{sizes[0]:.2f} ({sizes[1]:.2f})"
    line = [
        f"{n_train:,}",
        n_columns,
        n_classes or "regression",
        *cells,
        f"{1e3 * first:.0f}",
        size,
    ]
    print(f"| {' | '.join(map(str, line))} |", flush=True)


def compare_defaults(args: argparse.Namespace) -> None:
    titles = ["training rows", "columns", "classes", *(f"{n:,} rows" for n in PREDICTED_ROWS)]
    print(f"| {' | '.join([*titles, 'first', 'MB (CatBoost)'])} |")
    print("|---" * (len(titles) + 2) + "|")
    for n_train in args.train:
        for n_columns in args.columns:
            for n_classes in args.classes:
                compare_default(n_train, n_columns, n_classes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--default", action="store_true")
    parser.add_argument("--train", type=int, nargs="+", default=[500, 3000, 10_000])
    parser.add_argument("--columns", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--classes", type=int, nargs="+", default=[0, 2, 10])
    args = parser.parse_args()
    if args.default:
        compare_defaults(args)
        return
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
