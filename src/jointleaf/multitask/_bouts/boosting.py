"""The two stages of BoUTS: trees for all tasks together, then trees for each task alone.

Raymond et al., "Universal feature selection for simultaneous interpretability of multitask
datasets" (arXiv 2403.14466).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Logistic, Loss, Multinomial, SquaredError
from jointleaf._data.features import mean_and_scale
from jointleaf._trees.flat import FlatTrees, NodeTable, flatten
from jointleaf.multitask._bouts.splits import Slopes, bin_columns
from jointleaf.multitask._bouts.trees import GrownTree, TaskSlopes, TreeShape, grow_tree
from jointleaf.partitions._base import as_seed, check_count

__all__ = ["Boosted", "BoostedTask", "BoostingPlan", "BoostingRows", "boost"]

#: Least curvature of a row, per unit of weight. Confident predictions of classes have a curvature
#: next to nothing, and steps of Newton's method would be as long as one likes.
_LEAST_CURVATURE = 1e-3
#: A target that varies by no more than this, relative to its size, is constant but for rounding.
_ROUNDING = 1e-10
#: Rows of a task for one row of its smallest leaf: small tasks can still be split.
_ROWS_PER_LEAST = 4


class BoostingRows(NamedTuple):
    """The rows of one task.

    Attributes
    ----------
    X : array (n, d)
        Numbers, NaN where missing.
    y : array (n,)
        Numbers, or class numbers 0..K-1.
    s : array (n,)
        Positive weights, of which only ratios matter.
    n_classes : int
        K; 0 for regression.
    """

    X: NDArray
    y: NDArray
    s: NDArray[np.float64]
    n_classes: int = 0


@dataclass(frozen=True)
class BoostingPlan:
    """How to boost; see `BoUTSRegressor`."""

    n_universal: int
    n_task: int
    shape: TreeShape
    learning_rate: float
    universal_price: float
    task_price: float
    min_samples_leaf: int
    subsample: float = 1.0
    seed: int = 0

    @classmethod
    def of(cls, owner: Any, shape: TreeShape) -> BoostingPlan:
        """Check the parameters of an estimator or partitioner, and return them as a plan."""
        n_universal = check_count(owner, "n_universal", owner.n_universal, 0)
        n_task = check_count(owner, "n_task", owner.n_task, 0)
        if n_universal + n_task == 0:
            raise ValueError("n_universal=0 and n_task=0 leave no trees: give a positive number")
        check_count(owner, "min_samples_leaf", owner.min_samples_leaf, 1)
        for name in ("universal_price", "task_price"):
            _check_number(owner, name, 0.0, np.inf, "at least 0, a share of the target's variance")
        for name in ("learning_rate", "subsample"):
            _check_number(owner, name, 1e-6, 1.0, "above 0 and at most 1")
        parameters = {part.name for part in fields(cls)} - {"shape", "seed"}
        values = {name: getattr(owner, name) for name in parameters}
        return cls(shape=shape, seed=as_seed(owner.random_state), **values)


def _check_number(owner: Any, name: str, low: float, high: float, bounds: str) -> None:
    value = getattr(owner, name)
    is_number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not is_number or not np.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{name}={value!r} must be a number {bounds}")


@dataclass(frozen=True)
class BoostedTask:
    """What was grown for one task.

    Attributes
    ----------
    trees : FlatTrees
        Universal trees first. The values of a row's leaves add up to its raw prediction.
    n_universal : int
        How many of the trees are universal.
    gains : array (d,)
        Sum of Delta / V over the splits on every feature: shares of the task's variance.
    features : integers
        Features that only the stage of this task chose, in rising order.
    """

    trees: FlatTrees
    n_universal: int
    gains: NDArray[np.float64]
    features: NDArray[np.intp]


@dataclass(frozen=True)
class Boosted:
    """What both stages grew.

    Attributes
    ----------
    tasks : list of BoostedTask
    universal : integers
        Features that the universal stage chose, in rising order.
    """

    tasks: list[BoostedTask]
    universal: NDArray[np.intp]


def boost(tasks: Sequence[BoostingRows], plan: BoostingPlan) -> Boosted:
    """Run both stages.

    A task with a constant target has nothing to explain: it has no say in the universal stage
    and gets a tree of a single leaf.
    """
    rng = np.random.RandomState(plan.seed)
    learners = [_Learner(task, plan) for task in tasks]
    varied = [learner for learner in learners if learner.unit > 0]
    n_features = tasks[0].X.shape[1]
    universal = np.zeros(n_features, bool)
    if varied:
        _run_stage(varied, plan.n_universal, plan.universal_price, universal, plan, rng)
    n_trees = [len(learner.tables) for learner in learners]
    grown = []
    for learner, n_universal in zip(learners, n_trees, strict=True):
        owned = universal.copy()
        if learner.unit > 0:
            _run_stage([learner], plan.n_task, plan.task_price, owned, plan, rng)
        features = np.flatnonzero(owned & ~universal)
        grown.append(BoostedTask(learner.trees(n_features), n_universal, learner.gains, features))
    return Boosted(grown, np.flatnonzero(universal))


def _run_stage(
    learners: Sequence[_Learner],
    n_trees: int,
    price: float,
    owned: NDArray[np.bool_],
    plan: BoostingPlan,
    rng: np.random.RandomState,
) -> None:
    """Grow trees for some tasks at once; features that they buy are marked in `owned` (d,)."""
    for _ in range(n_trees):
        tree = grow_tree([learner.slopes(rng) for learner in learners], price, owned, plan.shape)
        if tree.has_split:
            for t, learner in enumerate(learners):
                learner.add(tree, t)
        elif plan.subsample == 1.0:
            break  # the next tree would be the same


class _Learner:
    """One task while its trees are grown: its raw predictions f and the trees so far."""

    _now: TaskSlopes  # what the tree under way sees

    def __init__(self, rows: BoostingRows, plan: BoostingPlan) -> None:
        self._plan = plan
        self._bins = bin_columns(rows.X)
        self._weights = rows.s / rows.s.mean()
        self._is_equal = bool(rows.s.min() == rows.s.max())
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
        n, share = len(self._weights), self._plan.subsample
        sampled = None
        if share < 1.0:
            sampled = np.zeros(n, bool)
            sampled[rng.permutation(n)[: max(1, round(share * n))]] = True
        self._now = TaskSlopes(self._bins, self._derivatives(), self.unit, self._least, sampled)
        return self._now

    def add(self, tree: GrownTree, t: int) -> None:
        """Take a tree in which this task is number t: a step of Newton's method in every leaf."""
        g, h = self._now.slopes
        values = np.empty((len(tree.leaves), len(g)))
        for i, (_, rows_of) in enumerate(tree.leaves):
            seen = self._now.seen(rows_of[t])
            weight = len(seen) if h is None else h[:, seen].sum(axis=1)
            values[i] = self._plan.learning_rate * g[:, seen].sum(axis=1) / weight
            self._f[rows_of[t]] += values[i] if self._f.ndim > 1 else values[i, 0]
        self.tables.append(tree.table(t, values))
        self.gains += tree.gains[t]

    def trees(self, n_features: int) -> FlatTrees:
        """Return the trees so far, with values in the unit of the target."""
        tables = self.tables or [_single_leaf(np.size(self._start))]
        trees = flatten(tables, n_features, base=self._start)
        return trees.scaled(self._scale, self._centre)


def _target(rows: BoostingRows) -> tuple[Loss, NDArray[np.float64], float, float]:
    """Loss, encoded target, and the centre and scale that were taken out of it."""
    if rows.n_classes == 0:
        y = np.asarray(rows.y, dtype=np.float64)
        mean, scale = (float(a[0]) for a in mean_and_scale(y[:, None], rows.s))
        if np.ptp(y) <= _ROUNDING * np.abs(y).max():
            return SquaredError(), np.zeros(len(y)), mean, 1.0
        return SquaredError(), (y - mean) / scale, mean, scale
    loss: Loss = Multinomial(rows.n_classes) if rows.n_classes > 2 else Logistic()
    y = rows.y if rows.n_classes > 2 else 2.0 * rows.y - 1.0
    return loss, loss.encode(y), 0.0, 1.0


def _single_leaf(n_outputs: int) -> NodeTable:
    """A tree of one leaf that adds nothing."""
    nothing = np.full(1, -1)
    return NodeTable(
        nothing, np.zeros(1), nothing, nothing, np.zeros(1, bool), value=np.zeros((1, n_outputs))
    )
