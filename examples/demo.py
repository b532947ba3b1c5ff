"""jointleaf on data that scikit-learn ships: regression and classification against peers.

    python examples/demo.py [--picture output/demo.png] [--splits 5]

Every model runs with its defaults on the same random 80/20 splits. The table shows the mean test
error and the time of a fit; the picture shows the same and, for one feature, trees before and after
joint refitting.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_friedman1
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from jointleaf import JOPLEnClassifier, JOPLEnRegressor, refine
from jointleaf._core.progress import Progress

# Small trees, as `LightGBMPartitioner()` grows them, with LightGBM's leaf values.
TREES = {
    "n_estimators": 100, "num_leaves": 4, "min_child_samples": 5, "subsample": 0.7,
    "subsample_freq": 1, "colsample_bytree": 0.7, "random_state": 0, "verbose": -1, "n_jobs": 1,
}  # fmt: skip


MODELS: dict[str, dict[str, Callable]] = {
    "jointleaf": {
        "regression": lambda: JOPLEnRegressor(random_state=0),
        "classification": lambda: JOPLEnClassifier(random_state=0),
    },
    "LightGBM, 100 trees of 4 leaves": {
        "regression": lambda: LGBMRegressor(**TREES),
        "classification": lambda: LGBMClassifier(**TREES),
    },
    "random forest": {
        "regression": lambda: RandomForestRegressor(random_state=0),
        "classification": lambda: RandomForestClassifier(random_state=0),
    },
    "histogram boosting": {
        "regression": lambda: HistGradientBoostingRegressor(random_state=0),
        "classification": lambda: HistGradientBoostingClassifier(random_state=0),
    },
}
COLORS = ("#c1432e", "#3d4450", "#4f86b8", "#8cb369")


def data_sets() -> dict[str, tuple[str, np.ndarray, np.ndarray]]:
    """Name -> (task, X, y)."""
    return {
        "diabetes": ("regression", *load_diabetes(return_X_y=True)),
        "friedman": ("regression", *make_friedman1(500, noise=1.0, random_state=0)),
        "breast cancer": ("classification", *load_breast_cancer(return_X_y=True)),
        "wine": ("classification", *load_wine(return_X_y=True)),
    }


def error(model, task: str, X: np.ndarray, y: np.ndarray, baseline: float) -> float:
    """Test error over that of a constant: squared error, or log-loss for classes."""
    if task == "regression":
        return float(np.mean((model.predict(X) - y) ** 2)) / baseline
    return log_loss(y, model.predict_proba(X), labels=model.classes_) / baseline


def constant_error(task: str, y_train: np.ndarray, y_test: np.ndarray) -> float:
    """Error of the best constant of the training rows."""
    if task == "regression":
        return float(np.mean((y_train.mean() - y_test) ** 2))
    classes, counts = np.unique(y_train, return_counts=True)
    shares = np.tile(counts / counts.sum(), (len(y_test), 1))
    return log_loss(y_test, shares, labels=classes)


def compare(n_splits: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Data set -> model -> (mean error, mean seconds of a fit)."""
    sets = data_sets()
    progress = Progress(len(sets) * len(MODELS) * n_splits, "fitting")
    results: dict[str, dict[str, tuple[float, float]]] = {}
    for name, (task, X, y) in sets.items():
        scores: dict[str, list[tuple[float, float]]] = {model: [] for model in MODELS}
        for seed in range(n_splits):
            stratify = y if task == "classification" else None
            X_train, X_test, y_train, y_test = train_test_split(
                X, y, test_size=0.2, random_state=seed, stratify=stratify
            )
            baseline = constant_error(task, y_train, y_test)
            for model, makers in MODELS.items():
                start = time.perf_counter()
                with warnings.catch_warnings():  # LightGBM's remark on feature names
                    warnings.simplefilter("ignore", UserWarning)
                    fitted = makers[task]().fit(X_train, y_train)
                    seconds = time.perf_counter() - start
                    scores[model].append((error(fitted, task, X_test, y_test, baseline), seconds))
                progress.step(f"{name}, {model}")
        results[name] = {m: tuple(np.mean(s, axis=0)) for m, s in scores.items()}
    return results


def print_table(results: dict[str, dict[str, tuple[float, float]]]) -> None:
    width = max(len(m) for m in MODELS) + 2
    print("\nTest error relative to a constant prediction (squared error; log-loss for classes)\n")
    print(f"{'':<{width}}" + "".join(f"{name:>16}" for name in results) + f"{'seconds a fit':>16}")
    for model in MODELS:
        row = "".join(f"{results[name][model][0]:>16.3f}" for name in results)
        seconds = np.mean([results[name][model][1] for name in results])
        print(f"{model:<{width}}" + row + f"{seconds:>16.2f}")
    print("\nOf wine 36 rows are tested in every split: a single one may decide who is ahead.")


def draw_curve(axes) -> None:
    """One feature: the same trees before and after joint refitting."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-3, 3, 200))
    truth = np.sin(2 * x) + 0.3 * x
    y = truth + 0.2 * rng.standard_normal(len(x))
    trees = LGBMRegressor(n_estimators=50, num_leaves=4, min_child_samples=10, verbose=-1)
    trees.fit(x[:, None], y)
    refined = refine(trees, x[:, None], y)
    grid = np.linspace(-3, 3, 600)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        before, after = trees.predict(grid[:, None]), refined.predict(grid[:, None])
    axes.plot(x, y, "o", ms=3, color="#c9ced6", label="data", zorder=1)
    axes.plot(grid, np.sin(2 * grid) + 0.3 * grid, ":", color="black", lw=1, label="truth")
    axes.plot(grid, before, color=COLORS[1], lw=1.5, label="50 LightGBM trees")
    axes.plot(grid, after, color=COLORS[0], lw=2, label="the same trees, refined")
    axes.set_title("refine(model, X, y)", loc="left", fontsize=11, family="monospace")
    axes.set_xlabel("x")
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def draw_errors(axes, results: dict[str, dict[str, tuple[float, float]]]) -> None:
    """Error of every model on every data set, relative to a constant prediction."""
    names = list(results)
    for row, name in enumerate(names):
        values = [results[name][model][0] for model in MODELS]
        axes.plot([min(values), max(values)], [row, row], color="#e3e6ea", lw=6, zorder=1)
        axes.text(
            values[0], row - 0.22, f"{values[0]:.3f}", color=COLORS[0], fontsize=8, ha="center"
        )
    for model, color, marker in zip(MODELS, COLORS, "oDs^", strict=True):
        values = [results[name][model][0] for name in names]
        axes.scatter(
            values, range(len(names)), s=55, color=color, marker=marker, label=model, zorder=3
        )
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    steps = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    ticks = [tick for tick in steps if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -1.2)
    axes.set_xlabel("test error relative to a constant prediction (left is better)")
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")


def draw(results: dict[str, dict[str, tuple[float, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=(1, 1.25))
    draw_curve(left)
    draw_errors(right, results)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path("output/demo.png"))
    parser.add_argument("--splits", type=int, default=5)
    args = parser.parse_args()
    results = compare(args.splits)
    print_table(results)
    draw(results, args.picture)
    print(f"\npicture: {args.picture}")


if __name__ == "__main__":
    main()
