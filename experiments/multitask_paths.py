"""Paths of the methods that select features for several tasks: errors against features.

Every method has two strengths or prices. All points of its grid are kept with their errors and the
numbers of features that every task uses, so that methods can be compared at the same error.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.multitask_data import MultitaskData
from jointleaf import DirtyLasso, MultiTaskJOPLEnRegressor
from jointleaf._core.design import LeafDesign
from jointleaf._core.losses import SquaredError
from jointleaf._core.path import follow_path, largest_strength, strength_grid
from jointleaf._core.tasks import split_slopes, task_problem
from jointleaf._fit.strengths import path_has_ended, ratio_grid
from jointleaf.multitask import BoUTSRegressor
from jointleaf.partitions import RootCell, VoronoiPartitioner

__all__ = [
    "BOUTS",
    "DL",
    "JOPLEN",
    "JUDGED",
    "Point",
    "dirty_path",
    "fit_point",
    "joint_model",
    "price_path",
    "selected_features",
]

#: The parts on which points are judged. Choices look at the first alone.
JUDGED = ("validation", "test")
#: Steps along a path, and the last strength over the first.
N_STRENGTHS, STRENGTH_RATIO = 25, 3e-3
TOLERANCE, FINAL_TOLERANCE, MAX_ITER = 3e-3, 1e-4, 5000
N_PARTITIONS, N_CELLS = 100, 8
#: Trees of BoUTS, of all tasks and of each.
N_TREES, DEPTH = 50, 3

JOPLEN, DL, BOUTS = "JOPLEn DL", "DL", "BoUTS"

Errors = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Point:
    """One setting of a method: errors mse[part] (T,), and numbers of features.

    `n_common` counts those that all tasks share, `n_specific` (T,) what each has besides.
    """

    method: str
    settings: dict[str, float]
    mse: Errors
    n_common: int
    n_specific: NDArray[np.int64]
    seconds: float

    @property
    def features(self) -> float:
        """Features of a task, mean over tasks; common ones count in each."""
        return self.n_common + float(np.mean(self.n_specific))

    @property
    def per_task(self) -> NDArray[np.int64]:
        """Features of every task, (T,)."""
        return self.n_common + self.n_specific

    def error(self, part: str = "validation") -> float:
        """Mean error over tasks."""
        return float(np.mean(self.mse[part]))


def as_tasks(data: MultitaskData) -> dict[str, tuple[NDArray, NDArray]]:
    """Give the training part as the estimators want it."""
    return {task.name: (task.X["train"], task.y["train"]) for task in data.tasks}


def model_errors(model: Any, data: MultitaskData) -> Errors:
    """Errors of a fitted estimator of all tasks."""
    return {
        part: np.array(
            [
                np.mean((model.predict(task.X[part], task=task.name) - task.y[part]) ** 2)
                for task in data.tasks
            ]
        )
        for part in JUDGED
    }


# -- Dirty LASSO, linear and in cells ------------------------------------------------------------


def joint_model(
    method: str, penalty: DirtyLasso, size: tuple[int, int] = (N_PARTITIONS, N_CELLS), **more: Any
) -> MultiTaskJOPLEnRegressor:
    """JOPLEn DL in Voronoi cells, without a root cell as in the paper; or DL, one cell per task."""
    cells = RootCell() if method == DL else VoronoiPartitioner(*size)
    return MultiTaskJOPLEnRegressor(cells, penalty=penalty, root_cell=False, random_state=0, **more)


class DirtyProblem:
    """The joint problem of all tasks, and designs of the rows on which answers are judged.

    Its cells are those that `joint_model` gets from the same data.
    """

    def __init__(self, method: str, data: MultitaskData, **more: Any) -> None:
        # Strengths that leave biases only: the fit makes the cells and costs next to nothing.
        empty = DirtyLasso(common=1e6, task=1e6, bias_strength=1.0)
        model = joint_model(method, empty, **more).fit(as_tasks(data))
        self.task_weights, self._data, self._models = model.task_weights_, data, model.cell_models_
        Xs, ys = data.part("train")
        self.problem = task_problem(
            self._designs(Xs),
            ys,
            SquaredError(),
            empty,
            [np.ones(len(y)) for y in ys],
            self.task_weights.tolist(),
            [0.0] * len(ys),  # targets are standardised
        )
        self._judged = {part: self._designs(data.part(part)[0]) for part in JUDGED}

    def _designs(self, Xs: Sequence[NDArray]) -> list[LeafDesign]:
        return [
            LeafDesign(
                own.features.transform(X), own.partitioner.apply(X), own.partitioner.n_cells_
            )
            for own, X in zip(self._models, Xs, strict=True)
        ]

    def path(self, method: str, penalty: DirtyLasso, most: float) -> Iterator[Point]:
        """Follow the strengths of a penalty with a known ratio, from no slopes on.

        The path ends where tasks have more than `most` features, or errors hardly fall any more.
        """
        unit = penalty.at(1.0)
        start = self.problem.with_penalty(unit)
        bound = unit.bind(start.layout)
        grid = strength_grid(largest_strength(start, penalty), N_STRENGTHS, STRENGTH_RATIO)
        errors: list[float] = []
        clock = time.perf_counter()
        for strength, solution in zip(
            grid,
            follow_path(start, penalty, grid, tol=TOLERANCE, max_iter=MAX_ITER),
            strict=True,
        ):
            common, specific = split_slopes(bound, self.problem.layout, solution.theta)
            point = Point(
                method,
                {
                    "common": float(penalty.at(strength).common),
                    "task": float(strength),
                    "bias_strength": float(penalty.bias_strength),
                },
                self.errors(solution.theta),
                *self.counts(common, specific),
                time.perf_counter() - clock,
            )
            yield point
            clock = time.perf_counter()
            errors.append(point.error())
            if point.features > most or path_has_ended(errors):
                break

    def errors(self, theta: NDArray) -> Errors:
        """Mean squared errors of all tasks with weights theta (N,)."""
        layout = self.problem.layout
        parts = [layout.part_of(theta, t) for t in range(len(layout.tasks))]
        return {
            part: np.array(
                [
                    np.mean((design.matvec(own) - task.y[part]) ** 2)
                    for design, own, task in zip(designs, parts, self._data.tasks, strict=True)
                ]
            )
            for part, designs in self._judged.items()
        }

    def counts(self, common: NDArray, specific: NDArray) -> tuple[int, NDArray[np.int64]]:
        """Numbers of common features and of further ones of every task."""
        is_common = np.any(common != 0, axis=0)
        parts = np.split(specific, self.problem.layout.task_starts[1:-1])
        alone = [np.sum(np.any(part != 0, axis=0) & ~is_common) for part in parts]
        return int(is_common.sum()), np.array(alone)


def dirty_path(
    method: str,
    data: MultitaskData,
    bias_strengths: Sequence[float] = (0.0,),
    n_ratios: int = 4,
    most: float = np.inf,
    **more: Any,
) -> Iterator[list[Point]]:
    """Paths of strengths of a Dirty LASSO, one for every ratio and strength on biases."""
    problem = DirtyProblem(method, data, **more)
    ratios = ratio_grid(problem.task_weights, n_ratios)
    for bias_strength, ratio in product(bias_strengths, ratios):
        # Without a second fit of what was selected, which the paper does not have.
        penalty = DirtyLasso(bias_strength=bias_strength, relax=1.0).with_ratio(float(ratio))
        yield list(problem.path(method, penalty, most))


# -- BoUTS ---------------------------------------------------------------------------------------


def price_path(
    data: MultitaskData, universal_prices: Iterable[float], task_prices: Sequence[float]
) -> Iterator[list[Point]]:
    """The points of a grid of prices of BoUTS, one by one."""
    for universal, task in product(universal_prices, task_prices):
        yield [fit_bouts(data, {"universal_price": universal, "task_price": task})[1]]


def fit_bouts(data: MultitaskData, settings: dict[str, float]) -> tuple[BoUTSRegressor, Point]:
    """Fit BoUTS with these prices."""
    clock = time.perf_counter()
    model = BoUTSRegressor(N_TREES, N_TREES, DEPTH, **settings).fit(as_tasks(data))
    seconds = time.perf_counter() - clock
    alone = np.array([len(model.task_features_[task.name]) for task in data.tasks])
    universal = len(model.universal_features_)
    errors = model_errors(model, data)
    return model, Point(BOUTS, settings, errors, universal, alone, seconds)


# -- what was selected ---------------------------------------------------------------------------


def selected_features(model: Any) -> list[list[int]]:
    """Features of every task that a fitted model selected, common ones first."""
    shared = model.universal_features_ if hasattr(model, "trees_") else model.common_features_
    return [[*shared.tolist(), *model.task_features_[name].tolist()] for name in model.task_names_]


# -- one point again -----------------------------------------------------------------------------


def fit_point(point: Point, data: MultitaskData, **more: Any) -> tuple[Any, Point]:
    """Fit a point of a path by itself and to a close tolerance; gives the estimator too."""
    if point.method == BOUTS:
        return fit_bouts(data, point.settings)
    clock = time.perf_counter()
    model = joint_model(
        point.method,
        DirtyLasso(**point.settings),
        tol=FINAL_TOLERANCE,
        max_iter=MAX_ITER,
        **more,
    ).fit(as_tasks(data))
    seconds = time.perf_counter() - clock
    alone = np.array([len(model.task_features_[task.name]) for task in data.tasks])
    errors = model_errors(model, data)
    common = len(model.common_features_)
    return model, Point(point.method, point.settings, errors, common, alone, seconds)
