"""Weights of cells: what a fitted model predicts with, and what solvers found."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.solvers import Solution
from jointleaf._core.solvers.base import Status, TracePoint
from jointleaf._model.cell_model import CellModel
from jointleaf._model.contributions import CellRanges, TrainingMeans
from jointleaf.io._model_file.features import read_features, write_features
from jointleaf.io._model_file.fields import Arrays, Part, number
from jointleaf.io._model_file.partitioners import read_partitioner, write_partitioner

__all__ = [
    "read_cells",
    "read_solution",
    "read_trace",
    "write_cells",
    "write_solution",
    "write_trace",
]

_KINDS = get_args(CellKind)
_FLOATS = "f4 f8"


# -- the model that predicts ---------------------------------------------------------------------


def write_cells(model: CellModel, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for partitions, linear features and weights."""
    ranges = model.ranges
    return {
        "partitioner": write_partitioner(model.partitioner, arrays),
        "features": write_features(model.features, arrays),
        "is_linear": arrays.add(np.array([kind == "linear" for kind in model.layout.kinds])),
        "slopes": arrays.add(model.slopes),
        "biases": arrays.add(model.biases),
        "offset": arrays.add(model.offset),
        "centre": number(model.centre),
        "unit": number(model.unit),
        "low": arrays.maybe(None if ranges is None else ranges.low),
        "high": arrays.maybe(None if ranges is None else ranges.high),
        "means": _write_means(model.means, arrays),
    }


def read_cells(part: Part, n_levels: np.ndarray, n_outputs: int) -> CellModel:
    """Read the model of rows whose columns have n_levels (d,) levels.

    Parameters
    ----------
    part : Part
    n_levels : integers (d,)
    n_outputs : int
        K of the weights (C, q, K); 1 for weights (C, q).
    """
    partitioner = read_partitioner(part.child("partitioner"), len(n_levels))
    features = read_features(part.child("features"), n_levels, len(n_levels))
    m = len(features.plan.names)
    n_cells = tuple(int(k) for k in partitioner.n_cells_)
    layout, slopes, biases = _read_weights(part, n_cells, m, n_outputs)
    offset = part.array("offset", _FLOATS, biases.shape[1:], finite=True)
    ranges = None
    if not part.is_none("low"):
        if not layout.n_slopes:
            part.fail("is for linear cells alone", "low")
        shape = (layout.n_linear_cells + 1, m)
        low, high = (part.array(name, _FLOATS, shape) for name in ("low", "high"))
        if not (low < np.inf).all() or not (high > -np.inf).all():
            part.fail("and high hold infinity or NaN", "low")
        ranges = CellRanges(low, high)
    elif not part.is_none("high"):
        part.fail("stands alone", "high")
    centre, unit = part.number("centre"), part.number("unit")
    means = _read_means(part.maybe_child("means"), layout, n_outputs)
    part.close()
    return CellModel(
        partitioner, features, layout, slopes, biases, offset, centre, unit, ranges, means
    )


def _read_weights(
    part: Part, n_cells: tuple[int, ...], m: int, n_outputs: int
) -> tuple[CellLayout, np.ndarray, np.ndarray]:
    """Read slopes and biases; at first files held both in one array of all cells."""
    outputs = (n_outputs,) if n_outputs > 1 else ()
    if "theta" in part:
        kind: Any = part.choice("kind", _KINDS)
        layout = CellLayout(n_cells, m, kind)
        shape = (layout.n_cells, layout.n_slopes + 1, *outputs)
        theta = part.array("theta", _FLOATS, shape, finite=True)
        slopes = theta[:, :-1] if kind == "linear" else np.zeros((0, m, *outputs), theta.dtype)
        return layout, slopes, theta[:, -1]
    is_linear = part.array("is_linear", "b1", (len(n_cells),))
    layout = CellLayout(n_cells, m, tuple("linear" if own else "constant" for own in is_linear))
    slopes = part.array("slopes", _FLOATS, (layout.n_linear_cells, m, *outputs), finite=True)
    return layout, slopes, part.array("biases", _FLOATS, (layout.n_cells, *outputs), finite=True)


def _write_means(means: TrainingMeans | None, arrays: Arrays) -> dict[str, Any] | None:
    if means is None:
        return None
    return {
        "cell_weights": arrays.add(means.cell_weights),
        "linear": arrays.add(means.linear),
        "n_rows": int(means.n_rows),
    }


def _read_means(part: Part | None, layout: CellLayout, n_outputs: int) -> TrainingMeans | None:
    """Read what explanations measure from."""
    if part is None:
        return None
    cell_weights = part.array("cell_weights", "f8", (layout.n_cells,), finite=True)
    if (cell_weights < 0).any():
        part.fail("must not be negative", "cell_weights")
    linear = part.array("linear", "f8", (layout.n_features, n_outputs), finite=True)
    means = TrainingMeans(cell_weights, linear, part.integer("n_rows", 1))
    part.close()
    return means


# -- solutions -----------------------------------------------------------------------------------


def write_trace(trace: list[TracePoint], arrays: Arrays) -> dict[str, int]:
    """Give JSON for the trace of a solver: an array (k, 4)."""
    return arrays.add(np.array(trace, dtype=np.float64).reshape(-1, 4))


def read_trace(part: Part, name: str) -> list[TracePoint]:
    """Read the trace of a solver."""
    rows = part.array(name, "f8", (None, 4))
    if not np.isfinite(rows[:, 0]).all():
        part.fail("holds iterations that are no numbers", name)
    return [TracePoint(int(row[0]), *row[1:]) for row in rows.tolist()]


def write_solution(solution: Solution, arrays: Arrays) -> dict[str, Any]:
    """Return JSON for what a solver found."""
    layout = solution.layout
    return {
        "slopes": arrays.add(solution.coef),
        "biases": arrays.add(solution.intercept),
        "n_cells": arrays.add(np.array(layout.cells_per_partition, np.int64)),
        "n_features": int(layout.n_features),
        "is_linear": arrays.add(np.array([kind == "linear" for kind in layout.kinds])),
        **{name: getattr(solution, name) for name in ("status", "message", "solver")},
        "n_iter": int(solution.n_iter),
        **{name: number(getattr(solution, name)) for name in ("objective", "optimality", "gap")},
        "trace": write_trace(solution.trace, arrays),
    }


def _read_solved(part: Part) -> tuple[CellLayout, np.ndarray, np.ndarray]:
    """Read slopes and biases; at first files held both in one array of all cells."""
    n_cells = tuple(part.indices("n_cells", 2**31, low=1).tolist())
    d = part.integer("n_features", 0, 2**31)
    if "theta" in part:
        kind: Any = part.choice("kind", _KINDS)
        layout = CellLayout(n_cells, d, kind)
        theta = part.array("theta", _FLOATS)
        if theta.ndim not in (2, 3) or theta.shape[:2] != (layout.n_cells, layout.n_slopes + 1):
            part.fail(f"has shape {theta.shape}, which does not fit n_cells", "theta")
        slopes, biases = layout.split(layout.from_cells(theta))
        return layout, slopes, biases
    is_linear = part.array("is_linear", "b1", (len(n_cells),))
    layout = CellLayout(n_cells, d, tuple("linear" if own else "constant" for own in is_linear))
    biases = part.array("biases", _FLOATS)
    if biases.ndim not in (1, 2) or len(biases) != layout.n_cells:
        part.fail(f"has shape {biases.shape}, which does not fit n_cells", "biases")
    shape = (layout.n_linear_cells, d, *biases.shape[1:])
    return layout, part.array("slopes", _FLOATS, shape), biases


def read_solution(part: Part) -> Solution:
    """Read what a solver found."""
    layout, coef, intercept = _read_solved(part)
    status: Any = part.choice("status", get_args(Status))
    solution = Solution(
        coef=np.ascontiguousarray(coef),
        intercept=np.ascontiguousarray(intercept),
        status=status,
        message=part.text("message"),
        solver=part.text("solver"),
        n_iter=part.integer("n_iter"),
        objective=part.number("objective", finite=False),
        optimality=part.number("optimality", finite=False),
        gap=part.number("gap", finite=False),
        layout=layout,
        trace=read_trace(part, "trace"),
    )
    part.close()
    return solution
