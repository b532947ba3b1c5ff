"""The two stages of BoUTS: trees for all tasks together, then trees for each task alone.

Raymond et al., "Universal feature selection for simultaneous interpretability of multitask
datasets" (arXiv 2403.14466).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Logistic, Loss, Multinomial, SquaredError
from jointleaf._data.features import mean_and_scale
from jointleaf._trees.flat import FlatTrees, NodeTable, TrainingRows, flatten
from jointleaf.multitask._bouts.trees import (
    GrownTree,
    Slopes,
    TaskSlopes,
    TreeShape,
    bin_columns,
    grow_tree,
)
from jointleaf.partitions._base import as_seed, checked_count

#: Least curvature of a row, per unit of weight. Confident predictions of classes have a curvature
#: next to nothing, and steps of Newton's method would be as long as one likes.
_LEAST_CURVATURE = 1e-3
#: A target that varies by no more than this, relative to its size, is constant but for rounding.
_ROUNDING = 1e-10
#: Rows of a task for one row of its smallest leaf: small tasks can still be split.
_ROWS_PER_LEAST = 4


@dataclass(eq=False, repr=False)
class BoUTSParameters:
    """Parameters that the estimators and the partitioner share; see `BoUTSRegressor`."""

    n_universal: int = 50
    n_task: int = 50
    _: KW_ONLY
    learning_rate: float = 0.1
    universal_price: float = 0.02
    task_price: float = 0.01
    min_samples_leaf: int = 5
    subsample: float = 1.0
    random_state: Any = None


def check_boosting(given: BoUTSParameters) -> None:
    """Raise for values that are not possible."""
    n_universal = checked_count(given, "n_universal", 0)
    if n_universal + checked_count(given, "n_task", 0) == 0:
        raise ValueError("n_universal=0 and n_task=0 leave no trees: give a positive number")
    checked_count(given, "min_samples_leaf", 1)
    for name in ("universal_price", "task_price"):
        bounds = "at least 0, a fraction of the target's variance"
        _check_number(given, name, 0.0, np.inf, bounds)
    for name in ("learning_rate", "subsample"):
        _check_number(given, name, 1e-6, 1.0, "above 0 and at most 1")


def _check_number(owner: Any, name: str, low: float, high: float, bounds: str) -> None:
    value = getattr(owner, name)
    is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not is_number or not np.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{name}={value!r} must be a number {bounds}")


class BoostedTask(NamedTuple):
    """What was grown for one task."""

    trees: FlatTrees  # universal ones first; the values of a row's leaves add up to its prediction
    n_universal: int  # how many of the trees are universal
    gains: NDArray[np.float64]  # (d,), sums of Delta / V over splits: shares of the task's variance
    features: NDArray[np.intp]  # that only the stage of this task chose, in rising order


def boost(
    tasks: Sequence[TrainingRows], plan: BoUTSParameters, shape: TreeShape
) -> tuple[list[BoostedTask], NDArray[np.intp]]:
    """Run both stages, and return what grew and the features that the universal stage chose.

    Rows are numbers, NaN where missing, and targets numbers or class numbers 0..K-1. A task with a
    constant target has nothing to explain: it has no say in the universal stage and gets a tree of
    a single leaf.
    """
    rng = np.random.RandomState(as_seed(plan.random_state))
    learners = [_Learner(task, plan) for task in tasks]
    varied = [learner for learner in learners if learner.unit > 0]
    n_features = tasks[0].X.shape[1]
    universal = np.zeros(n_features, bool)
    if varied:
        _run_stage(varied, plan.n_universal, plan.universal_price, universal, shape, rng)
    n_trees = [len(learner.tables) for learner in learners]
    grown = []
    for learner, n_universal in zip(learners, n_trees, strict=True):
        owned = universal.copy()
        if learner.unit > 0:
            _run_stage([learner], plan.n_task, plan.task_price, owned, shape, rng)
        features = np.flatnonzero(owned & ~universal)
        grown.append(BoostedTask(learner.trees(n_features), n_universal, learner.gains, features))
    return grown, np.flatnonzero(universal)


def _run_stage(
    learners: Sequence[_Learner],
    n_trees: int,
    price: float,
    owned: NDArray[np.bool_],
    shape: TreeShape,
    rng: np.random.RandomState,
) -> None:
    """Grow trees for some tasks at once; features that they buy are marked in `owned` (d,)."""
    for _ in range(n_trees):
        tree = grow_tree([learner.slopes(rng) for learner in learners], price, owned, shape)
        if tree.has_split:
            for t, learner in enumerate(learners):
                learner.add(tree, t)
        elif learners[0].subsample == 1.0:
            break  # the next tree would be the same


class _Learner:
    """One task while its trees are grown: its raw predictions f and the trees so far."""

    _now: TaskSlopes  # what the tree under way sees

    def __init__(self, rows: TrainingRows, plan: BoUTSParameters) -> None:
        self.subsample, self._rate = plan.subsample, plan.learning_rate
        self._bins = bin_columns(rows.X)
        self._weights = rows.weights / rows.weights.mean()
        self._is_equal = bool(rows.weights.min() == rows.weights.max())
        self._loss, self._y, self._centre, self._scale = _target(rows)
        self._start = self._loss.best_constant(self._y, self._weights)
        self._f = np.zeros(self._y.shape) + self._start
        least = len(rows.y) // _ROWS_PER_LEAST
        self._least = max(1, min(plan.min_samples_leaf, least))
        self.tables: list[NodeTable] = []
        self.gains = np.zeros(rows.X.shape[1])
        self.unit = 0.0
        if rows.y.min() < rows.y.max():
            g, h = self._derivatives()
            self.unit = float((g**2 if h is None else g**2 / h).sum())

    def _derivatives(self) -> Slopes:
        """Negative gradients and curvatures (K, n), summed over rows and not averaged."""
        n = len(self._weights)
        g = np.atleast_2d(-n * self._loss.gradient(self._y, self._f, self._weights).T)
        if self._loss.is_quadratic and self._is_equal:
            return Slopes(g, None)
        h = np.atleast_2d(n * self._loss.curvature(self._y, self._f, self._weights).T)
        return Slopes(g, np.maximum(h, _LEAST_CURVATURE * self._weights))

    def slopes(self, rng: np.random.RandomState) -> TaskSlopes:
        """Return what the next tree sees."""
        n, sampled = len(self._weights), None
        if self.subsample < 1.0:
            sampled = np.zeros(n, bool)
            sampled[rng.permutation(n)[: max(1, round(self.subsample * n))]] = True
        self._now = TaskSlopes(self._bins, self._derivatives(), self.unit, self._least, sampled)
        return self._now

    def add(self, tree: GrownTree, t: int) -> None:
        """Take a tree in which this task is number t: a step of Newton's method in every leaf."""
        g, h = self._now.slopes
        values = np.empty((len(tree.leaves), len(g)))
        for i, (_, rows_of) in enumerate(tree.leaves):
            seen = self._now.seen(rows_of[t])
            weight = len(seen) if h is None else h[:, seen].sum(axis=1)
            values[i] = self._rate * g[:, seen].sum(axis=1) / weight
            self._f[rows_of[t]] += values[i] if self._f.ndim > 1 else values[i, 0]
        self.tables.append(tree.table(t, values))
        self.gains += tree.gains[t]

    def trees(self, n_features: int) -> FlatTrees:
        """Return the trees so far, with values in the unit of the target."""
        tables = self.tables or [_single_leaf(np.size(self._start))]
        trees = flatten(tables, n_features, base=self._start)
        return trees.scaled(self._scale, self._centre)


def _target(rows: TrainingRows) -> tuple[Loss, NDArray[np.float64], float, float]:
    """Loss, encoded target, and the centre and scale that were taken out of it."""
    if rows.n_classes == 0:
        y = np.asarray(rows.y, dtype=np.float64)
        mean, scale = (float(a[0]) for a in mean_and_scale(y[:, None], rows.weights))
        if np.ptp(y) <= _ROUNDING * np.abs(y).max():
            return SquaredError(), np.zeros(len(y)), mean, 1.0
        return SquaredError(), (y - mean) / scale, mean, scale
    loss: Loss = Multinomial(rows.n_classes) if rows.n_classes > 2 else Logistic()
    y = rows.y if rows.n_classes > 2 else 2.0 * rows.y - 1.0
    return loss, loss.encode(y), 0.0, 1.0


def _single_leaf(n_outputs: int) -> NodeTable:
    nothing = np.full(1, -1)
    return NodeTable(
        nothing, np.zeros(1), nothing, nothing, np.zeros(1, bool), value=np.zeros((1, n_outputs))
    )
