"""One tree over several tasks: the same feature in a node for all, a threshold for each.

A split is made on the feature j with the largest

    min over tasks t of  max over thresholds v of  Delta_t(j, v) / V_t   -   price * [j is new],

where Delta_t is the decrease of task t's impurity (`jointleaf.multitask._bouts.splits`) and V_t its
impurity at the start, so that all tasks count alike whatever their units and numbers of rows. For
one task this is an ordinary tree that pays for new features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import NodeTable
from jointleaf.multitask._bouts.splits import TIE, Bins, Slopes, best_cuts, histogram

__all__ = ["GrownTree", "TaskSlopes", "TreeShape", "grow_tree"]

#: Smaller gains, as shares of V_t, are rounding: nothing is split for them.
_LEAST_GAIN = 1e-12


@dataclass(frozen=True)
class TaskSlopes:
    """What a tree sees of one task.

    Attributes
    ----------
    bins : Bins
    slopes : Slopes
    unit : float
        V_t, in which gains are measured.
    least : int
        Least number of rows of a leaf.
    sampled : bool array (n,), optional
        Rows that the tree is grown on; by default all.
    """

    bins: Bins
    slopes: Slopes
    unit: float
    least: int
    sampled: NDArray[np.bool_] | None = None

    def seen(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return those of the rows that the tree is grown on."""
        return rows if self.sampled is None else rows[self.sampled[rows]]

    def of(self, features: NDArray[np.intp]) -> TaskSlopes:
        """Return only some features."""
        return TaskSlopes(self.bins.of(features), self.slopes, self.unit, self.least, self.sampled)

    def sums(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the `histogram` over those of the rows that are seen."""
        return histogram(self.bins, self.slopes, self.seen(rows))

    def impurity(self, rows: NDArray[np.intp]) -> float:
        """Sum over rows of g^2 / h, in units of V_t: no split of them gains more."""
        seen = self.seen(rows)
        squares = self.slopes.g[:, seen] ** 2
        if self.slopes.h is not None:
            squares /= self.slopes.h[:, seen]
        return float(squares.sum()) / self.unit


class TreeShape(NamedTuple):
    """How large a tree may grow.

    Attributes
    ----------
    depth : int
        Largest number of splits between the root and a leaf.
    leaves : int
        Largest number of leaves.
    """

    depth: int
    leaves: int


@dataclass
class GrownTree:
    """A tree over T tasks: nodes in the order in which they were made, the root first.

    Attributes
    ----------
    feature, left, right : lists (m,)
        The same for all tasks; -1 for leaves.
    threshold, missing_left : lists (T,) of lists (m,)
    leaves : list of pairs
        Number of a leaf, and for every task its rows.
    gains : array (T, d)
        Delta_t / V_t of the splits, summed by feature.
    """

    feature: list[int]
    left: list[int]
    right: list[int]
    threshold: list[list[float]]
    missing_left: list[list[bool]]
    gains: NDArray[np.float64]
    leaves: list[tuple[int, list[NDArray[np.intp]]]] = field(default_factory=list)

    @classmethod
    def root(cls, n_tasks: int, n_features: int) -> GrownTree:
        """Return a tree of one node."""
        gains = np.zeros((n_tasks, n_features))
        tree = cls([], [], [], [[] for _ in range(n_tasks)], [[] for _ in range(n_tasks)], gains)
        tree.add_node()
        return tree

    @property
    def has_split(self) -> bool:
        """Whether it is more than a root."""
        return len(self.feature) > 1

    def add_node(self) -> int:
        """Add a leaf, and return its number."""
        for nodes in (self.feature, self.left, self.right):
            nodes.append(-1)
        for thresholds, ways in zip(self.threshold, self.missing_left, strict=True):
            thresholds.append(0.0)
            ways.append(False)
        return len(self.feature) - 1

    def table(self, t: int, values: NDArray[np.float64]) -> NodeTable:
        """Return the tree of task t; `values` (leaves, K) are those of `leaves`."""
        value = np.zeros((len(self.feature), values.shape[1]))
        value[[node for node, _ in self.leaves]] = values
        return NodeTable(
            feature=np.array(self.feature),
            threshold=np.array(self.threshold[t]),
            left=np.array(self.left),
            right=np.array(self.right),
            missing_left=np.array(self.missing_left[t]),
            value=value,
        )


def grow_tree(
    tasks: Sequence[TaskSlopes], price: float, owned: NDArray[np.bool_], shape: TreeShape
) -> GrownTree:
    """Grow a tree level by level.

    Within a level the most useful split is made first, and what it buys is free for the others.

    Parameters
    ----------
    tasks : sequence of TaskSlopes
    price : float
        What a new feature costs, as a share of V_t.
    owned : bool array (d,)
        Features that are free; those that the tree buys are added to it.
    shape : TreeShape
    """
    return _Grower(tasks, price, owned, shape).grow()


@dataclass
class _Node:
    """A node that may be split.

    Attributes
    ----------
    number : int
    rows : list (T,) of integer arrays
        Its rows in every task.
    features : integers
        Features that may be worth a split, in rising order.
    sums : array (C, len(features), W)
        Of the leading task, as `histogram` gives them.
    """

    number: int
    rows: list[NDArray[np.intp]]
    features: NDArray[np.intp]
    sums: NDArray[np.float64]


@dataclass
class _Offer:
    """What splits of a node are worth: gain (d,) for all tasks together; the rest (T, d) each."""

    gain: NDArray[np.float64]
    gains: NDArray[np.float64]
    cut: NDArray[np.intp]
    missing_left: NDArray[np.bool_]

    @classmethod
    def nothing(cls, n_tasks: int, n_features: int) -> _Offer:
        shape = (n_tasks, n_features)
        cuts = np.zeros(shape, np.intp)
        return cls(np.zeros(n_features), np.zeros(shape), cuts, np.zeros(shape, bool))


class _Grower:
    """Grows one tree; the arguments are those of `grow_tree`.

    Two things save most of the work and change no split. A feature whose gain in one task does
    not pay its price is not looked at in the tasks that follow; the task with the most rows, in
    which noise gains least, leads. And where a node's whole impurity is not worth the price of a
    new feature, only those that are owned are looked at.
    """

    def __init__(
        self,
        tasks: Sequence[TaskSlopes],
        price: float,
        owned: NDArray[np.bool_],
        shape: TreeShape,
    ) -> None:
        self._tasks = tasks
        self._order = sorted(range(len(tasks)), key=lambda t: -tasks[t].bins.n_rows)
        self._lead = tasks[self._order[0]]
        self._price = price
        self._owned = owned
        self._shape = shape
        self._tree = GrownTree.root(len(tasks), len(owned))
        self._n_leaves = 1

    def grow(self) -> GrownTree:
        """Grow the tree."""
        root = self._open(0, [np.arange(task.bins.n_rows) for task in self._tasks])
        self._count(root)
        level = [root]
        for depth in range(1, self._shape.depth + 1):
            pairs = self._split_level(level)
            level = [node for _, *children in pairs for node in children]
            if depth < self._shape.depth:
                for parent, left, right in pairs:
                    self._count_pair(parent, left, right)
        self._tree.leaves += [(node.number, node.rows) for node in level]
        return self._tree

    # -- sums ----------------------------------------------------------------------------------

    def _open(self, number: int, rows: list[NDArray[np.intp]]) -> _Node:
        return _Node(number, rows, np.zeros(0, np.intp), np.zeros((0, 0, 0)))

    def _can_buy(self, node: _Node) -> bool:
        """Whether a feature that is not owned may be worth its price in a node."""
        impurities = (t.impurity(rows) for t, rows in zip(self._tasks, node.rows, strict=True))
        return all(impurity > self._price for impurity in impurities)

    def _count(self, node: _Node) -> None:
        """Find the features to look at in a node, and count their sums in the leading task."""
        node.features = np.flatnonzero(self._owned | self._can_buy(node))
        node.sums = self._lead.of(node.features).sums(node.rows[self._order[0]])

    def _count_pair(self, parent: _Node, left: _Node, right: _Node) -> None:
        """Do the same for two children; if both look at everything, only one is counted."""
        lead = self._order[0]
        few, many = sorted((left, right), key=lambda node: len(node.rows[lead]))
        self._count(few)
        if len(few.features) == len(self._owned) and self._can_buy(many):
            many.features, many.sums = few.features, parent.sums - few.sums
        else:
            self._count(many)

    # -- splits --------------------------------------------------------------------------------

    def _split_level(self, level: list[_Node]) -> list[tuple[_Node, _Node, _Node]]:
        """Split nodes, the most useful split first, and return them with their children."""
        offers = [self._offer(node) for node in level]
        best = [float(self._net(offer).max()) for offer in offers]
        order = np.argsort(np.negative(best), kind="stable").tolist()
        pairs = []
        for place, i in enumerate(order):
            offer, net = offers[i], self._net(offers[i])
            j = int(np.argmax(net >= (1 - TIE) * net.max()))  # the first of those that tie
            if not net[j] > _LEAST_GAIN or self._n_leaves == self._shape.leaves:
                self._tree.leaves.append((level[i].number, level[i].rows))
                continue
            is_new, self._owned[j] = not self._owned[j], True
            pairs.append((level[i], *self._split(level[i], offer, j)))
            for later in order[place + 1 :] if is_new else ():  # to them it is free from now on
                self._bid(offers[later], level[later], np.array([j]), None)
        return pairs

    def _offer(self, node: _Node) -> _Offer:
        offer = _Offer.nothing(len(self._tasks), len(self._owned))
        self._bid(offer, node, node.features, node.sums)
        return offer

    def _bid(
        self,
        offer: _Offer,
        node: _Node,
        features: NDArray[np.intp],
        sums: NDArray[np.float64] | None,
    ) -> None:
        """Put into an offer what some features gain; `sums` are those of the leading task."""
        gain = np.full(len(features), np.inf)
        for t in self._order:
            if not features.size:
                return
            task = self._tasks[t]
            if sums is None:
                sums = task.of(features).sums(node.rows[t])
            cuts = best_cuts(sums, len(task.slopes.g), task.least, task.bins.has_missing)
            offer.gains[t, features] = cuts.gain / task.unit
            offer.cut[t, features] = cuts.cut
            offer.missing_left[t, features] = cuts.missing_left
            gain = np.minimum(gain, offer.gains[t, features])
            pays = gain - self._costs()[features] > _LEAST_GAIN
            features, gain, sums = features[pays], gain[pays], None
        offer.gain[features] = gain

    def _costs(self) -> NDArray[np.float64]:
        return np.where(self._owned, 0.0, self._price)

    def _net(self, offer: _Offer) -> NDArray[np.float64]:
        """What is left of the gains (d,) once new features are paid for."""
        return offer.gain - self._costs()

    def _split(self, node: _Node, offer: _Offer, j: int) -> tuple[_Node, _Node]:
        """Split a node on feature j, and return its children."""
        tree, here = self._tree, node.number
        self._n_leaves += 1
        tree.feature[here] = j
        tree.left[here], tree.right[here] = tree.add_node(), tree.add_node()
        left, right = [], []
        for t, (task, rows) in enumerate(zip(self._tasks, node.rows, strict=True)):
            way = bool(offer.missing_left[t, j])
            cut = task.bins.middle(j, int(offer.cut[t, j]), task.seen(rows))
            tree.threshold[t][here] = float(task.bins.cuts[j, cut])
            tree.missing_left[t][here] = way
            tree.gains[t, j] += offer.gains[t, j]
            goes_left = task.bins.goes_left(j, cut, way, rows)
            left.append(rows[goes_left])
            right.append(rows[~goes_left])
        return self._open(tree.left[here], left), self._open(tree.right[here], right)
