"""How much memory a fit takes, told before it begins, and how much there is.

The numbers are those of the arrays that live at the same time at the peak of a fit, with factors
that were measured (`tests/test_memory.py` holds them to a factor of two). For n rows with d
features of b bytes, P partitions with C cells, q = d + 1 weights a cell and K outputs:

============  ===========================================================================
rows          3 n d b: the rows in their own order, and standardised
codes         4 n P
design        2 n d b + 8 n P; once more with FISTA, which works on few features at a time
solver        dual: 2.5 n x n matrices, or 2.8 for the training part of every fold at once;
              PCG and Newton: 3 slope blocks C q^2 and two C x C matrices of biases;
              all: 12 times the weights C q K, and 10 n K
model         4 times the weights, and the trees
============  ===========================================================================
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.penalties import Frobenius, Term
from jointleaf._core.solvers.auto import MAX_DUAL_ROWS, MAX_DUAL_ROWS_NEWTON, WIDE
from jointleaf._core.solvers.biases import MAX_JOINT_BIASES
from jointleaf._core.solvers.preconditioner import MAX_BLOCK_ENTRIES
from jointleaf.partitions import (
    LightGBMPartitioner,
    Partitioner,
    ResidualPartitioner,
    RootCell,
    StepPartitioner,
    UnionPartitioner,
    default_partitioner,
    make_partitioner,
    recipe_partitioner,
)
from jointleaf.partitions import (
    _levels as levels,
)

if TYPE_CHECKING:
    from jointleaf.estimators._params import JOPLEnParameters

__all__ = ["MemoryEstimate", "available_memory", "check_memory", "estimate_memory"]

#: Bytes that may be used, where the system's own word is not to be taken.
VARIABLE = "JOINTLEAF_MAX_MEMORY"

_FIXED = 30 * 2**20  # buffers of blocks of rows, whatever the shape
_SPLIT_BYTES = 60  # of a split and a leaf
_DUAL, _FOLD_DUAL = 2.5, 2.8  # n x n matrices alive
_MAX_FOLD_ROWS = 2500  # up to here penalties are chosen on several folds side by side
_USUAL = (100, 31)  # trees and leaves of a trained model that does not say
#: Files with the limit of the group of processes and what it uses, in two generations of Linux, and
#: the name of what of that is a copy of files and can be given up.
_LIMITS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
)


@dataclass(frozen=True, repr=False)
class MemoryEstimate:
    """Bytes that a fit needs besides the rows that it is given, by part.

    Attributes
    ----------
    rows, codes, design, solver, model, other : int
        Copies of the rows; codes; the design; what the solver works with; the fitted model;
        buffers.
    """

    rows: int
    codes: int
    design: int
    solver: int
    model: int
    other: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(getattr(self, part.name) for part in fields(self))

    def __repr__(self) -> str:
        parts = ", ".join(f"{p.name} {readable(getattr(self, p.name))}" for p in fields(self))
        return f"MemoryEstimate({readable(self.total)}: {parts})"


def readable(n_bytes: float) -> str:
    """Give bytes in MB or GB."""
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"


def estimate_memory(
    estimator: JOPLEnParameters,
    X: Any,
    *,
    n_classes: int = 2,
    n_tasks: int = 1,
    itemsize: int | None = None,
) -> MemoryEstimate:
    """Estimate the memory that a fit takes at its peak, to a factor of two or so.

    Parameters
    ----------
    estimator : JOPLEnRegressor, JOPLEnClassifier, MultiTaskJOPLEnRegressor or -Classifier
        Unfitted or fitted; only its parameters count.
    X : array-like or data frame (n, d), or (n, d) itself
        The rows of all tasks together. Of columns with categories every linear feature counts: give
        (n, m) with their number m where there are many.
    n_classes : int
        Of a `JOPLEnClassifier`.
    n_tasks : int
        Of an estimator of several tasks.
    itemsize : int, optional
        Bytes of a number: 4 for float32 rows, 8 else; by default taken from X.

    Returns
    -------
    MemoryEstimate

    Examples
    --------
    >>> from jointleaf import Frobenius, JOPLEnRegressor, estimate_memory
    >>> model = JOPLEnRegressor("lightgbm", penalty=Frobenius(0.1))
    >>> estimate_memory(model, (1_000_000, 20)).total > 2e9
    True
    """
    from jointleaf.estimators._params import JOPLEnParameters

    if not isinstance(estimator, JOPLEnParameters):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}: give a JOPLEnRegressor, a "
            "JOPLEnClassifier, or one of several tasks"
        )
    n, d = _shape(X)
    if itemsize is None:
        itemsize = 4 if str(getattr(X, "dtype", "")) == "float32" else 8
    return _Shape.of(estimator, n, d, n_classes, n_tasks, itemsize).estimate()


def _shape(X: Any) -> tuple[int, int]:
    shape = X if isinstance(X, tuple) else np.shape(X)
    if len(shape) != 2 or not all(isinstance(k, int | np.integer) and k > 0 for k in shape):
        raise ValueError(f"X={X!r} must be rows (n, d), or the pair (n, d) of positive numbers")
    return int(shape[0]), int(shape[1])


# -- what is fitted ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shape:
    """Numbers of rows n, features d, partitions P, cells C and outputs K of a fit."""

    n: int
    d: int
    P: int
    C: int
    K: int
    itemsize: int
    solver: str
    n_folds: int  # whose training parts are held at the same time
    n_joint: int  # rows of the joint fit
    n_more: int = 0  # cells that keep their own values

    @classmethod
    def of(
        cls,
        estimator: JOPLEnParameters,
        n: int,
        d: int,
        n_classes: int,
        n_tasks: int,
        itemsize: int,
    ) -> _Shape:
        from jointleaf._fit import many_rows
        from jointleaf._fit.boosted import MOST_CELLS, VERY_MANY_ROWS
        from jointleaf.estimators._base import MANY_ROWS

        is_classes = estimator._target_type == "classification"
        is_single = not hasattr(estimator, "task_weights")
        K = n_classes if is_classes and is_single and n_classes > 2 else 1
        n_joint, n_more = n, 0
        usual = estimator.cells == "linear" and estimator.root_cell and estimator.clip != "cell"
        is_boosted = estimator._is_recipe and n > VERY_MANY_ROWS and usual
        if is_boosted and isinstance(default_partitioner(), LightGBMPartitioner):
            # Boosted trees keep their own values: only the root cell is fitted by a solver.
            partitioner: Any = RootCell()
            n_more = K * MOST_CELLS
        elif estimator._is_recipe and n > MANY_ROWS and usual:
            partitioner = many_rows._small_partitions()
            n_joint = min(n, many_rows._JOINT_ROWS[estimator._target_type])
            n_more = 2 * many_rows._ROUNDS * many_rows._CELLS
        elif estimator._is_recipe:
            partitioner = recipe_partitioner(estimator._target_type)
            n_more = levels.MOST_CELLS if is_classes else 0
        else:
            partitioner = make_partitioner(estimator.partitioner)
        sizes = [size for member in partitioner.nested() for size in _sizes(member)]
        if estimator.root_cell:
            sizes = [*sizes, (1, 1)]
        P = sum(p for p, _ in sizes)
        C = n_tasks * sum(p * min(k, n_joint) for p, k in sizes)  # every task has its own
        q = d + 1 if estimator.cells == "linear" else 1
        solver = _solver(estimator, n_joint, d, C * q, not is_classes)
        n_folds = 0
        if estimator._chooses:
            n_folds = 5 if n <= _MAX_FOLD_ROWS or isinstance(estimator.cv, int) else 1
            n_folds = 3 if estimator._is_recipe and 400 < n <= MANY_ROWS else n_folds
        width = d if estimator.cells == "linear" else 0
        return cls(n, width, P, C, K, itemsize, solver, n_folds, n_joint, n_more)

    def estimate(self) -> MemoryEstimate:
        n, P, K, b = self.n_joint, self.P, self.K, self.itemsize
        weights = self.C * (self.d + 1) * K * 8
        twice = 2 if self.solver == "fista" else 1
        folds = max(self.n_folds - 1, 0) if self.n <= _MAX_FOLD_ROWS else 0
        copies = 1 + folds  # training parts of all folds are (n_folds - 1) times the rows
        return MemoryEstimate(
            rows=3 * self.n * max(self.d, 1) * b,
            codes=4 * n * P * copies,
            design=twice * (2 * n * max(self.d, 1) * b + 8 * n * P) * copies,
            solver=self._solver_bytes() + 12 * weights + 10 * n * K * 8,
            model=4 * weights + _SPLIT_BYTES * self.C + self.n_more * (8 * self.d + _SPLIT_BYTES),
            other=_FIXED,
        )

    def _solver_bytes(self) -> int:
        if self.solver == "dual":
            f = self.n_folds
            in_folds = _FOLD_DUAL * f * (1 - 1 / f) ** 2 if f > 1 else 0.0
            return int(max(_DUAL, in_folds) * 8 * self.n_joint**2)
        biases = 16 * self.C**2 if self.C <= MAX_JOINT_BIASES else 0
        has_blocks = self.C * self.d**2 <= MAX_BLOCK_ENTRIES and self.solver != "fista"
        return biases + (24 * self.C * (self.d + 1) ** 2 if has_blocks else 0)


def _solver(estimator: JOPLEnParameters, n: int, d: int, n_weights: int, is_squared: bool) -> str:
    """The solver that a fit will choose, as far as that can be said before it."""
    if estimator.solver != "auto":
        return getattr(estimator.solver, "name", str(estimator.solver))
    if isinstance(estimator.penalty, Term) and not all(
        type(term) is Frobenius for term in estimator.penalty.terms
    ):
        return "fista"
    limit = MAX_DUAL_ROWS * (2 if d > WIDE else 1) if is_squared else MAX_DUAL_ROWS_NEWTON
    if n <= limit and not (is_squared and n_weights < n):
        return "dual"
    return "pcg" if is_squared else "newton"


def _sizes(partitioner: Any) -> list[tuple[int, int]]:
    """Numbers of partitions, and of the most cells that each of them can have."""
    if isinstance(partitioner, UnionPartitioner | ResidualPartitioner):
        return []  # those nested in them count
    if isinstance(partitioner, RootCell):
        return [(1, 1)]
    if isinstance(partitioner, StepPartitioner):
        return [(_count(partitioner.n_partitions, _USUAL[0]), 2)]
    if hasattr(partitioner, "n_universal"):  # BoUTS
        counts = [_count(k, 50) for k in (partitioner.n_universal, partitioner.n_task)]
        return [(sum(counts), _count(partitioner.n_cells, 8))]
    if hasattr(partitioner, "model"):
        return [_model_size(partitioner.model)]
    return [_asked_size(partitioner)]


def _asked_size(partitioner: Partitioner) -> tuple[int, int]:
    asked = partitioner.get_params(deep=False)
    return _count(asked.get("n_partitions"), _USUAL[0]), _count(asked.get("n_cells"), _USUAL[1])


def _count(value: Any, usual: int) -> int:
    """Give a whole number as it is; wrong ones are told about where they are used."""
    return int(value) if isinstance(value, int | np.integer) and value > 0 else usual


def _model_size(model: Any) -> tuple[int, int]:
    """Trees and mean number of leaves of a trained model, from what its library says."""
    if hasattr(model, "estimators_"):
        trees = np.asarray(model.estimators_, dtype=object).ravel()
        leaves = [tree.get_n_leaves() for tree in trees]
        return len(leaves), int(np.ceil(np.mean(leaves)))
    if hasattr(model, "get_tree_leaf_counts"):  # CatBoost
        counts = model.get_tree_leaf_counts()
        return len(counts), int(np.ceil(np.mean(counts)))
    booster = getattr(model, "booster_", model)
    if hasattr(booster, "num_trees"):  # LightGBM
        return booster.num_trees(), int(booster.params.get("num_leaves", _USUAL[1]))
    if hasattr(booster, "get_booster"):
        booster = booster.get_booster()
    if hasattr(booster, "num_boosted_rounds"):  # XGBoost
        return int(booster.num_boosted_rounds()), 2 ** _depth(model)
    return int(getattr(model, "n_iter_", _USUAL[0])), _USUAL[1]


def _depth(model: Any) -> int:
    depth = getattr(model, "max_depth", None)
    return depth if isinstance(depth, int) and 0 < depth <= 16 else 6


# -- what there is -------------------------------------------------------------------------------


def available_memory() -> int | None:
    """Bytes that this process can still use; None where that is not known.

    The environment variable JOINTLEAF_MAX_MEMORY (bytes) is believed where it is set, else the
    system (Linux) and the limit of the group of processes (containers).
    """
    given = os.environ.get(VARIABLE, "")
    if given:
        try:
            return int(float(given))
        except (ValueError, OverflowError):
            raise ValueError(f"{VARIABLE}={given!r} must be a number of bytes") from None
    found = [_system_memory(), *(_group_memory(*paths) for paths in _LIMITS)]
    known = [n for n in found if n is not None]
    return min(known) if known else None


def _system_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if "MemAvailable:" in line)
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _group_memory(place: str, limit: str, used: str, cached: str) -> int | None:
    try:
        most, now = (int((Path(place) / name).read_text()) for name in (limit, used))
        lines = (Path(place) / "memory.stat").read_text().splitlines()
        freed = next(int(line.split()[1]) for line in lines if line.startswith(f"{cached} "))
    except (OSError, ValueError, IndexError, StopIteration):  # there is no limit: "max"
        return None
    return max(0, most - now + freed)


def check_memory(estimator: Any, X: NDArray, y: NDArray) -> None:
    """Refuse a fit to rows X (n, d) that does not fit into memory, before it begins.

    Estimators without cells of their own are not looked at, nor are systems that do not say what
    is available.
    """
    there = available_memory() if hasattr(estimator, "_is_recipe") else None
    if there is None:
        return
    n, d = X.shape
    n_classes = len(set(y.tolist())) if y.ndim == 1 else 2  # of no account in regression
    n_tasks = y.shape[1] if y.ndim == 2 else 1
    needed = _Shape.of(estimator, n, d, n_classes, n_tasks, X.dtype.itemsize).estimate()
    if needed.total > there:
        raise MemoryError(
            f"fitting {n} rows with {d} columns needs about {readable(needed.total)} of memory and "
            f"{readable(there)} are available; {needed}. Give fewer rows or float32, fewer or "
            f"smaller partitions, or solver='fista'; {VARIABLE} (bytes) overrules what the system "
            "says is available"
        )
