"""Schemas of what a fit leaves: cell models, solutions, reports, intervals."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.layout import CellKind, CellLayout, TaskLayout
from jointleaf._core.penalties import Term
from jointleaf._core.solvers.solution import Solution, Status, TracePoint
from jointleaf._fit.calibration import Calibration
from jointleaf._fit.component import Blend, JointSolve
from jointleaf._fit.quantiles import JointQuantiles
from jointleaf._fit.recipes import RECIPES
from jointleaf._fit.report import ComponentReport, FitReport
from jointleaf._model.cell_model import CellModel
from jointleaf._model.contributions import CellRanges, TrainingMeans
from jointleaf._trees.flat import FlatTrees
from jointleaf.estimators._pruning import Pruning
from jointleaf.io._model_file.objects import FEATURES, PARTITIONER, TREES
from jointleaf.io._model_file.parameters import PENALTY
from jointleaf.io._model_file.schema import (
    Array,
    Arrays,
    Each,
    Field,
    Flag,
    Integer,
    Let,
    Made,
    Maybe,
    Number,
    Place,
    Scope,
    Text,
    indices,
    record,
)
from jointleaf.io._model_file.values import Plain
from jointleaf.partitions._base import LeftOut

FLOATS = "f4 f8"
_LIST = "must hold columns of one length"


# -- cells and solutions -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kinds(Field):
    """Which partitions have slopes: one word for all of them, or truth values (P,)."""

    def write(self, value: Any, arrays: Arrays) -> Any:
        if len(set(value)) == 1:
            return value[0]
        return arrays.add(np.array([kind == "linear" for kind in value]))

    def read(self, data: Any, place: Place, scope: Scope) -> Any:
        if isinstance(data, str):
            return Text(get_args(CellKind)).read(data, place, scope)
        is_linear = Array("b1", "n_partitions", cost=16).read(data, place, scope)
        return tuple("linear" if flag else "constant" for flag in is_linear.tolist())


def _layout_bytes(n_cells: NDArray) -> int:
    """Return how many bytes a layout of partitions with so many cells takes."""
    return 64 * len(n_cells) + 8 * int(n_cells.sum())


_LIMITS = Array(FLOATS, "n_limits m")
_RANGES = record(
    CellRanges,
    n_limits=Let(lambda s: s.n_linear + 1),
    low=_LIMITS.must(lambda s: (s.low < np.inf).all(), "holds infinity or NaN"),
    high=_LIMITS.must(lambda s: (s.high > -np.inf).all(), "holds infinity or NaN"),
)
_MEANS = record(
    TrainingMeans,
    cell_weights=Array("f8", "n_cells", finite=True, low=0),
    linear=Array("f8", "m n_outputs", finite=True),
    n_rows=Integer(1),
)
#: The scope says how many outputs there are.
CELL_MODEL = record(
    CellModel,
    partitioner=PARTITIONER,
    features=FEATURES,
    m=Let(lambda s: len(s.features.plan.names)),
    n_partitions=Let(lambda s: len(s.partitioner.n_cells_)),
    kinds=_Kinds().of(lambda model: model.layout.kinds),
    layout=Let(lambda s: CellLayout(tuple(s.partitioner.n_cells_.tolist()), s.m, s.kinds)),
    n_cells=Let(lambda s: s.layout.n_cells),
    n_linear=Let(lambda s: s.layout.n_linear_cells),
    slopes=Array(FLOATS, "n_linear m *outputs", finite=True),
    biases=Array(FLOATS, "n_cells *outputs", finite=True),
    offset=Array(FLOATS, "*outputs", finite=True),
    centre=Number(),
    unit=Number(),
    ranges=Maybe(_RANGES).must(
        lambda s: s.ranges is None or s.n_linear, "is for linear cells alone"
    ),
    means=Maybe(_MEANS),
    cost=lambda s: _layout_bytes(s.partitioner.n_cells_),
    make=lambda s: CellModel(**{f.name: getattr(s, f.name) for f in fields(CellModel)}),
)

_LAYOUT = record(
    CellLayout,
    cells_per_partition=indices(low=1),
    n_partitions=Let(lambda s: len(s.cells_per_partition)),
    n_features=Integer(0, 2**31),
    kinds=_Kinds(),
    cost=lambda s: _layout_bytes(s.cells_per_partition),
    make=lambda s: CellLayout(tuple(s.cells_per_partition.tolist()), s.n_features, s.kinds),
)
_TRACE = Made(
    Array("f8", "? 4", cost=12),
    lambda rows: [TracePoint(int(row[0]), *row[1:]) for row in rows.tolist()],
    lambda trace: np.array(trace, dtype=np.float64).reshape(-1, 4),
)
_SOLVE: dict[str, Any] = {
    "status": Text(get_args(Status)),
    "message": Text(),
    "solver": Text(),
    "n_iter": Integer(),
    "objective": Number(finite=False),
    "optimality": Number(finite=False),
    "trace": _TRACE,
}
_SOLUTION = record(
    Solution,
    layout=_LAYOUT,
    biases=Array(FLOATS, None)
    .of("intercept")
    .must(
        lambda s: s.biases.ndim in (1, 2) and len(s.biases) == s.layout.n_cells,
        "does not fit the cells",
    ),
    shape=Let(lambda s: (s.layout.n_linear_cells, s.layout.n_features, *s.biases.shape[1:])),
    slopes=Array(FLOATS, "*shape").of("coef"),
    **_SOLVE,
    gap=Number(finite=False),
)


def _slopes_by_task(part: str) -> Field:
    """Return the field of a part of the slopes of every task."""
    return (
        Each(Array(FLOATS, "? ?"), "n_tasks")
        .of(lambda solution: [getattr(task, part) for task in solution.tasks])
        .must(lambda s: None not in s.task_solutions, "is of a joint fit, but a task has none")
        .must(
            lambda s: all(
                task.coef.shape == slopes.shape
                for task, slopes in zip(s.task_solutions, getattr(s, part), strict=True)
            ),
            "does not fit the cells of the tasks",
        )
    )


def _joint_solution(s: Scope) -> Solution:
    tasks = s.task_solutions
    return Solution(
        np.concatenate([task.coef for task in tasks]),
        np.concatenate([task.intercept for task in tasks]),
        gap=tasks[0].gap,
        layout=TaskLayout([task.layout for task in tasks], s.task_weights),
        common_coef=np.concatenate(s.common),
        **{name: getattr(s, name) for name in _SOLVE},
    )


#: The scope holds the solutions of all tasks, which have the weights.
JOINT_SOLUTION = record(
    Solution,
    common=_slopes_by_task("common"),
    specific=_slopes_by_task("specific"),
    **_SOLVE,
    cost=lambda s: 2 * sum(task.coef.nbytes + task.intercept.nbytes for task in s.task_solutions),
    make=_joint_solution,
)


# -- reports, pruning, intervals -----------------------------------------------------------------


def has_leaf_values(trees: FlatTrees, n_outputs: int) -> bool:
    """Whether trees have leaf values of every output, and every leaf is a cell."""
    values = trees.leaf_values
    if values is None or values.shape[1] != n_outputs:
        return False
    return bool((trees.cell_of_leaf == trees.leaf_numbers).all())


def _is_table(table: Any) -> bool:
    """Whether a value has named columns of one length, or is None."""
    if table is None:
        return True
    if not isinstance(table, dict) or not all(isinstance(key, str) for key in table):
        return False
    # Nothing is made an array to see its shape: NumPy pads all texts to the longest.
    is_flat = all(
        isinstance(column, list) or (isinstance(column, np.ndarray) and column.ndim == 1)
        for column in table.values()
    )
    return is_flat and len({len(column) for column in table.values()}) <= 1


def _is_constant(value: Any, outputs: tuple[int, ...]) -> bool:
    """Whether a value is a finite number, or an array with one for every output."""
    if isinstance(value, np.ndarray):
        is_number = value.dtype.kind in "iuf" and value.shape in ((), outputs)
    else:
        is_number = isinstance(value, int | float | np.number)
    return is_number and bool(np.isfinite(value).all())


def _are_numbers(values: Any) -> bool:
    """Whether a value is a dict of finite numbers by name."""
    return isinstance(values, dict) and all(
        isinstance(name, str) and isinstance(value, float | np.floating) and np.isfinite(value)
        for name, value in values.items()
    )


_BLEND = record(
    Blend,
    weights=Plain().must(
        lambda s: _are_numbers(s.weights) and s.weights and min(s.weights.values()) >= 0,
        "must be weights of components by name",
    ),
    constant=Plain().must(
        lambda s: _is_constant(s.constant, s.outputs), "must be a number or one for every class"
    ),
)
_JOINT = record(
    JointSolve,
    solution=_SOLUTION,
    penalty=Plain({"penalty": PENALTY}, leaves_out=True).must(
        lambda s: isinstance(s.penalty, Term | LeftOut), "is no penalty"
    ),
    offset=Array(FLOATS, "*outputs", finite=True),
    setting=Plain().must(lambda s: _are_numbers(s.setting), "must be numbers by name"),
)
_COMPONENT = record(ComponentReport, name=Text(), weight=Number(0.0), description=Text())
REPORT = record(
    FitReport,
    recipe=Text((*RECIPES, "boosting")),  # which older versions had
    target_type=Text(("regression", "classification")),
    components=Each(_COMPONENT, least=1),
    blend=_BLEND,
    joint=Maybe(_JOINT),
    cv_results=Plain().must(lambda s: _is_table(s.cv_results), _LIST),
    n_rounds=Integer(),
    loss=Text(),
    has_offset=Flag(),
    left_out=Each(Text()),
)
_OF_STEPS = Array("f8", "#n_cells", dtype=np.float64)
PRUNING = record(
    Pruning,
    n_cells=indices(low=1).must(lambda s: len(s.n_cells), "has no steps"),
    train_loss=_OF_STEPS,
    valid_loss=Maybe(_OF_STEPS),
    chosen=Integer(0, lambda s: len(s.n_cells) - 1),
    strength_factor=_OF_STEPS,
    n_cells_before=Integer(1),
    n_cells_after=Integer(1),
)
_SORTED = Array("f8", finite=True).must(lambda s: len(s.scores), "is empty")
CALIBRATION = record(
    Calibration,
    scores=_SORTED.must(lambda s: (np.diff(s.scores) >= 0).all(), "must rise"),
    ranks=Array("f8", "#scores", finite=True, low=0, rising=True),
    total=Number(0.0),
    n_rows=Integer(1),
    is_fresh=Flag(),
    # One more column than the model has: the prediction.
    d=Let(lambda s: s.d + 1),
    widths=Maybe(TREES).must(
        lambda s: s.widths is None or has_leaf_values(s.widths, 1), "must have leaf values"
    ),
)
_RISING = "must rise with the level"
QUANTILES = record(
    JointQuantiles,
    levels=Array("f8", finite=True, rising=True).must(
        lambda s: len(s.levels) and s.levels[0] > 0 and s.levels[-1] < 1, "must be from 0 to 1"
    ),
    n_levels=Let(lambda s: len(s.levels)),
    coefficients=Array("f8", "? n_levels", finite=True).must(
        lambda s: _rises(s.coefficients), _RISING
    ),
    n_rows=Integer(1),
    d=Let(lambda s: s.d + 1),
    widths=Maybe(TREES)
    .must(lambda s: s.widths is None or has_leaf_values(s.widths, 1), "must have leaf values")
    .must(
        lambda s: len(s.coefficients) == (1 if s.widths is None else 3),
        "does not fit the coefficients",
    ),
    cells=Made(Each(TREES), tuple).must(
        lambda s: all(
            has_leaf_values(trees, s.n_levels) and _rises(trees.leaf_values) for trees in s.cells
        ),
        _RISING,
    ),
    make=lambda s: JointQuantiles(**{f.name: getattr(s, f.name) for f in fields(JointQuantiles)}),
)


def _rises(values: NDArray) -> bool:
    return bool((np.diff(values, axis=1) >= 0).all())
