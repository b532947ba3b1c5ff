"""Several related tasks: which features matter for all of them, and which for one alone.

    python examples/multitask.py [--output FOLDER]           needs the extra `plot`, and pandas

Four nonlinear regression tasks with rows of their own and 15 features: two matter in every task,
one or two more in each, all others are noise. Feature 1 acts by its absolute value, which no linear
model sees. Fits the Dirty LASSO in the cells of Voronoi partitions, prints what it selected, and
draws four pictures: the slopes, the numbers of selected features and the errors beside those of
other methods, and how the two strengths were chosen. Random cells and a penalty that shrinks are
for selection: for prediction every task is fitted once more with its selected features alone.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

from jointleaf import (
    BoUTSRegressor,
    DirtyLasso,
    JOPLEnRegressor,
    MultiTaskJOPLEnRegressor,
    SelectionDisplay,
    TaskErrorDisplay,
    TaskPathDisplay,
    TaskWeightsDisplay,
)
from jointleaf.partitions import VoronoiPartitioner

Tasks = dict[str, tuple[NDArray, NDArray]]

N_TRAIN, N_TEST, N_FEATURES, NOISE = 300, 1000, 15, 0.5
#: features of each task besides 0 and 1, which all of them have
OWN = {"task A": (2,), "task B": (3, 4), "task C": (5,), "task D": (6, 7)}


def make_tasks(n: int, seed: int) -> Tasks:
    """Rows and targets of every task."""
    rng = np.random.default_rng(seed)
    tasks = {}
    for name, own in OWN.items():
        X = rng.standard_normal((n, N_FEATURES))
        y = 2 * np.sin(1.5 * X[:, 0]) + 2 * np.abs(X[:, 1])
        for j in own:
            y = y + 1.5 * np.tanh(2 * X[:, j]) + 0.5 * X[:, j] ** 2
        tasks[name] = X, y + NOISE * rng.standard_normal(n)
    return tasks


def fit_methods(tasks: Tasks) -> dict[str, Any]:
    """JOPLEn, the Dirty LASSO of linear models (a single cell for each task), and BoUTS."""
    options: dict[str, Any] = {"random_state": 0, "n_jobs": 2}
    methods = {
        "JOPLEn": MultiTaskJOPLEnRegressor(
            VoronoiPartitioner(12, 5), penalty=DirtyLasso(), **options
        ),
        "linear Dirty LASSO": MultiTaskJOPLEnRegressor(
            VoronoiPartitioner(1, 1), root_cell=False, penalty=DirtyLasso(relax=1.0), **options
        ),
        "BoUTS": BoUTSRegressor(n_universal=100, n_task=100),
    }
    for name, model in methods.items():
        start = time.perf_counter()
        model.fit(tasks)
        print(f"{name}: fitted in {time.perf_counter() - start:.1f} s")
    return methods


def refit(model: MultiTaskJOPLEnRegressor, tasks: Tasks) -> dict[str, Any]:
    """A model for prediction of every task, on the features that were selected for it."""
    fitted = {}
    for name, (X, y) in tasks.items():
        columns = np.union1d(model.common_features_, model.task_features_[name])
        selected = ColumnTransformer([("selected", "passthrough", columns)])
        fitted[name] = make_pipeline(selected, JOPLEnRegressor(random_state=0, n_jobs=2)).fit(X, y)
    return fitted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    train, test = make_tasks(N_TRAIN, seed=0), make_tasks(N_TEST, seed=1)
    methods = fit_methods(train)
    model = methods["JOPLEn"]
    print(f"chosen: {model.penalty_}")
    print(f"common features: {model.common_features_.tolist()}, truly 0 and 1")
    for name, own in model.task_features_.items():
        print(f"{name}: besides {own.tolist()}, truly {list(OWN[name])}")
    print(model.selection_report().round(3))
    pictures = {
        "weights": TaskWeightsDisplay.from_estimator(model),
        "selection": SelectionDisplay.from_estimators(methods),
        "errors": TaskErrorDisplay.from_estimators(
            {**methods, "JOPLEn, refitted": refit(model, train)}, test
        ),
        "path": TaskPathDisplay.from_estimator(model),
    }
    for name, display in pictures.items():
        path = args.output / f"tasks_{name}.png"
        display.figure_.savefig(path, dpi=110)
        print(f"picture: {path}")


if __name__ == "__main__":
    main()
