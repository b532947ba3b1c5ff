"""Peers for multitask learning: ridge and LightGBM task by task, and linear Dirty LASSO.

    python -m experiments.multitask_peers --data FOLDER [--set sarcos|sarcos-test|chem]

Ridge and LightGBM have the settings of the paper. Linear Dirty LASSO is that of the package mutar,
whose penalties are the same as those of jointleaf for a single cell. mutar 0.0.1 does not name
what it is built with, so that it is not part of the extra ``experiments``::

    pip install cython numba setuptools && pip install --no-build-isolation mutar
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from experiments.multitask_data import PARTS, MultitaskData, chem_data, sarcos_data

__all__ = [
    "Peer",
    "choose_dirty_lasso",
    "fit_dirty_lasso",
    "fit_lightgbm",
    "fit_on_selected",
    "fit_ridge",
]

#: Strengths (common, task) of the paper's Dirty LASSO; its chemical data are others.
PAPER_STRENGTHS = {"sarcos": (0.1, 0.0442), "sarcos-test": (0.1, 0.0442), "chem": (0.03, 0.02)}
#: A coefficient counts as selected above this, as in the paper.
THRESHOLD = 1e-4

Arrays = Sequence[NDArray[np.float64]]


@dataclass(frozen=True)
class Peer:
    """A fitted peer: mse[part][t] on standardised targets, seconds, and what it selected.

    `common` are the features that all tasks share, `specific` those of one task only; None where
    a method does not select. `coef` (tasks, d) are slopes of linear peers.
    """

    name: str
    mse: dict[str, list[float]]
    seconds: float
    common: list[int] | None = None
    specific: list[list[int]] | None = None
    coef: NDArray[np.float64] | None = None
    about: dict[str, float] = field(default_factory=dict)


def errors(
    predict: Callable[[int, NDArray[np.float64]], NDArray[np.float64]], data: MultitaskData
) -> dict[str, list[float]]:
    """Mean squared errors of all parts and tasks."""
    return {
        part: [
            float(np.mean((predict(t, task.X[part]) - task.y[part]) ** 2))
            for t, task in enumerate(data.tasks)
        ]
        for part in PARTS
    }


def fit_each(name: str, make: Callable[[], Any], data: MultitaskData) -> Peer:
    """Fit one estimator of scikit-learn's kind on every task by itself."""
    start = time.perf_counter()
    models = [make().fit(X, y) for X, y in zip(*data.part("train"), strict=True)]
    seconds = time.perf_counter() - start
    with warnings.catch_warnings():  # LightGBM's remark on feature names
        warnings.simplefilter("ignore", UserWarning)
        return Peer(name, errors(lambda t, X: models[t].predict(X), data), seconds)


def fit_ridge(data: MultitaskData, alpha: float = 1.0) -> Peer:
    """Ridge regression with the paper's strength."""
    return fit_each("ridge", lambda: Ridge(alpha), data)


def boosted_trees(seed: int) -> lightgbm.LGBMRegressor:
    """The paper's 100 trees of depth 3, on one thread."""
    return lightgbm.LGBMRegressor(
        n_estimators=100, max_depth=3, random_state=seed, n_jobs=1, verbose=-1
    )


def fit_lightgbm(data: MultitaskData, seed: int = 0) -> Peer:
    """LightGBM with the paper's settings."""
    return fit_each("LightGBM 100 x depth 3", lambda: boosted_trees(seed), data)


def fit_on_selected(
    data: MultitaskData, selected: Sequence[Sequence[int]], seed: int = 0
) -> list[float]:
    """Test errors of LightGBM on the features that a method selected for every task, alone.

    Without any feature the training mean is predicted, which is zero.
    """
    out = []
    for task, features in zip(data.tasks, selected, strict=True):
        use = np.asarray(features, dtype=int)
        predicted: NDArray[np.float64] = np.zeros(len(task.y["test"]))
        if use.size:
            with warnings.catch_warnings():  # LightGBM's remark on feature names
                warnings.simplefilter("ignore", UserWarning)
                model = boosted_trees(seed).fit(task.X["train"][:, use], task.y["train"])
                predicted = model.predict(task.X["test"][:, use])
        out.append(float(np.mean((predicted - task.y["test"]) ** 2)))
    return out


def stacked(Xs: Arrays, ys: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bring tasks of different sizes into the equal ones that mutar needs.

    It minimises sum_t ||y_t - X_t w_t||^2 / 2 N over tasks of N rows each. Rows are scaled with
    sqrt(N / n_t) and filled up with zeros, so that every task counts with its own mean.
    """
    size = max(map(len, ys))
    X, y = np.zeros((len(ys), size, Xs[0].shape[1])), np.zeros((len(ys), size))
    for t, (rows, target) in enumerate(zip(Xs, ys, strict=True)):
        unit = np.sqrt(size / len(target))
        X[t, : len(target)], y[t, : len(target)] = unit * rows, unit * target
    return X, y


def fit_dirty_lasso(
    data: MultitaskData, common: float, task: float, tol: float = 1e-6, max_iter: int = 100_000
) -> Peer:
    """Linear Dirty LASSO: 1/2 MSE + common ||C||_{2,1} + task ||T||_1, slopes C + T."""
    mutar = require_mutar()
    Xs, ys = data.part("train")
    centres, levels = [X.mean(axis=0) for X in Xs], [float(y.mean()) for y in ys]
    X, y = stacked(
        [X - centre for X, centre in zip(Xs, centres, strict=True)],
        [y - level for y, level in zip(ys, levels, strict=True)],
    )
    start = time.perf_counter()
    model = mutar.DirtyModel(common, task, fit_intercept=False, tol=tol, max_iter=max_iter)
    model.fit(X, y)
    seconds = time.perf_counter() - start
    shared, specific = model.coef_shared_, model.coef_specific_  # (d, tasks)
    coef = (shared + specific).T
    is_common = np.linalg.norm(shared, axis=1) > THRESHOLD
    return Peer(
        "Dirty LASSO (mutar)",
        errors(lambda t, X: (X - centres[t]) @ coef[t] + levels[t], data),
        seconds,
        np.flatnonzero(is_common).tolist(),
        [np.flatnonzero((np.abs(w) > THRESHOLD) & ~is_common).tolist() for w in specific.T],
        coef,
        {"common": common, "task": task, "iterations": float(model.n_iter_)},
    )


def choose_dirty_lasso(data: MultitaskData, strengths: Iterable[tuple[float, float]]) -> Peer:
    """Give the Dirty LASSO whose mean error on the validation parts is the lowest."""
    peers = [fit_dirty_lasso(data, common, task) for common, task in strengths]
    return min(peers, key=lambda peer: float(np.mean(peer.mse["validation"])))


def require_mutar() -> Any:
    """Import mutar, or end the program and say how to install it."""
    try:
        return importlib.import_module("mutar")
    except ImportError as cause:
        raise SystemExit(
            f"Dirty LASSO needs mutar, which cannot be imported ({cause}): "
            "pip install cython numba setuptools && pip install --no-build-isolation mutar"
        ) from cause


def load(name: str, folder: Path | None) -> MultitaskData:
    """Give the split data of one of the sets of the command line."""
    if name == "chem":
        return chem_data(folder)
    return sarcos_data(folder, "test" if name == "sarcos-test" else "all")


def report(peers: Sequence[Peer], data: MultitaskData) -> str:
    """Table of test errors and of the numbers of features, common + of the task only."""
    names = [task.name for task in data.tasks]
    lines = [
        f"| test MSE | {' | '.join(names)} | mean | seconds |",
        "|---" * (len(names) + 3) + "|",
    ]
    constant = {part: [float(np.mean(t.y[part] ** 2)) for t in data.tasks] for part in PARTS}
    for peer in (Peer("training mean", constant, 0.0), *peers):
        mse = peer.mse["test"]
        numbers = " | ".join(f"{value:.4f}" for value in (*mse, float(np.mean(mse))))
        lines.append(f"| {peer.name} | {numbers} | {peer.seconds:.1f} |")
        if peer.common is not None and peer.specific is not None:
            counts = " | ".join(f"{len(peer.common)} + {len(own)}" for own in peer.specific)
            lines.append(f"| {peer.name}, features | {counts} | | |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit the peers and print their test errors."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.multitask_peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, help="folder with the data; SARCOS can be downloaded")
    add("--set", choices=PAPER_STRENGTHS, default="sarcos", help="the tasks (sarcos)")
    add("--common", type=float, help="strength of Dirty LASSO on common slopes (the paper's)")
    add("--task", type=float, help="its strength on slopes of one task (the paper's)")
    options = parser.parse_args(arguments)
    given = zip((options.common, options.task), PAPER_STRENGTHS[options.set], strict=True)
    strengths = [paper if value is None else value for value, paper in given]
    data = load(options.set, options.data)
    peers = [fit_ridge(data), fit_lightgbm(data), fit_dirty_lasso(data, *strengths)]
    print(report(peers, data))


if __name__ == "__main__":
    main()
