"""One tree over several tasks: the same feature in a node for all, a threshold for each.

With gradients g (the negative derivatives of the loss) and curvatures h, the decrease of the
impurity by a split of a node's rows into L and R is

    Delta = sum over outputs k of  G_Lk^2 / H_Lk + G_Rk^2 / H_Rk - G_k^2 / H_k
          = sum over outputs k of  (G_Lk - H_Lk G_k / H_k)^2 H_k / (H_Lk H_Rk),

where G and H are sums of g and h over rows: for squared error the decrease of the residual sum of
squares, for other losses that of their second-order expansion. The second form takes fewer steps
and no difference of large numbers. Values are replaced by the numbers of their bins, so that the
sums behind every split are counted at once. A split is made on the feature j with the largest

    min over tasks t of  max over thresholds v of  Delta_t(j, v) / V_t   -   price * [j is new],

where V_t is the impurity of task t at the start, so that all tasks count alike whatever their units
and numbers of rows. For one task this is an ordinary tree that pays for new features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import NodeTable

#: Values worked on at a time, so that what is made in between stays in the cache.
_BLOCK_VALUES = 1 << 18
_SCAN_VALUES = 1 << 14
#: Gains that differ relatively by less than this are equal: rounding must not choose for them.
_TIE = 1e-10
#: Smaller gains, as shares of V_t, are rounding: nothing is split for them.
_LEAST_GAIN = 1e-12
#: Largest number of bins of a column: with one more for missing values, codes fill one byte.
_MOST_BINS = 255


# -- rows in bins --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bins:
    """The rows of one task, every value replaced by the number of its bin.

    Bin b of column j holds the values x with cuts[j, b - 1] < x <= cuts[j, b], so that the split
    "code <= b" is the split "x <= cuts[j, b]".
    """

    codes: NDArray[np.uint8]  # (d, n): the sums of one column stay in the cache while made
    cuts: NDArray[np.float64]  # (d, B), upper ends; infinity for the last bin and beyond
    has_missing: bool  # whether some value is NaN; such values have code B in every column

    @property
    def width(self) -> int:
        """W, how many codes there are: B, and one more where values are missing."""
        return self.cuts.shape[1] + self.has_missing

    @property
    def n_rows(self) -> int:
        """n, the number of rows."""
        return self.codes.shape[1]

    def of(self, features: NDArray[np.intp]) -> Bins:
        """Return only some of the columns, in rising order."""
        if len(features) == len(self.codes):
            return self
        return replace(self, codes=self.codes[features], cuts=self.cuts[features])

    def middle(self, feature: int, cut: int, rows: NDArray[np.intp]) -> int:
        """Return the middle one of the cuts that divide rows as `cut` does.

        Where bins next to a cut hold none of the rows there are several. If all values are on the
        left, and missing ones alone on the right, the cut is at infinity.
        """
        n_bins = self.cuts.shape[1]
        codes = self.codes[feature][rows]
        low = int(codes.max(where=codes <= cut, initial=0))
        high = int(codes.min(where=codes > cut, initial=n_bins))
        return n_bins - 1 if high == n_bins else (low + high - 1) // 2

    def goes_left(
        self, feature: int, cut: int, missing_left: bool, rows: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Whether rows, given by their numbers, go left at a split."""
        codes = self.codes[feature][rows]
        left = codes <= cut
        if self.has_missing and missing_left:
            left |= codes == self.cuts.shape[1]
        return left


def bin_columns(X: NDArray) -> Bins:
    """Put the values of every column of rows (n, d) into bins.

    A column of at most 255 different values has one bin for each, and every split of it that
    is possible at all can be made, half-way between two values. One with more has 255 bins
    with nearly equal numbers of rows.
    """
    n_rows, n_features = X.shape
    columns = [np.asarray(X[:, j], dtype=np.float64) for j in range(n_features)]
    missing = [np.isnan(column) for column in columns]
    ends = [_ends(x[~is_missing]) for x, is_missing in zip(columns, missing, strict=True)]
    n_bins = 1 + max((len(e) for e in ends), default=0)
    cuts = np.full((n_features, n_bins), np.inf)
    codes = np.empty((n_features, n_rows), np.uint8)
    for j, (column, is_missing, end) in enumerate(zip(columns, missing, ends, strict=True)):
        cuts[j, : len(end)] = end
        codes[j] = np.searchsorted(end, column, side="left")
        codes[j, is_missing] = n_bins
    return Bins(codes, cuts, any(bool(is_missing.any()) for is_missing in missing))


def _ends(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Upper ends of all bins of a column but the last."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < 2:
        return np.zeros(0)
    last = np.arange(len(distinct) - 1)
    if len(distinct) > _MOST_BINS:
        up_to = np.cumsum(counts)
        starts = np.arange(1, _MOST_BINS) * (len(values) / _MOST_BINS)
        last = np.unique(np.searchsorted(up_to, starts))
        last = last[last < len(distinct) - 1]
    below, above = distinct[last], distinct[last + 1]
    with np.errstate(invalid="ignore"):  # the middle of -inf and inf
        middle = below / 2 + above / 2  # not their sum, which may overflow
    return np.where((below <= middle) & (middle < above), middle, below)


class Slopes(NamedTuple):
    """Derivatives of the loss of one task in its n rows and K outputs."""

    g: NDArray[np.float64]  # (K, n), negative gradients: residuals, for squared error
    h: NDArray[np.float64] | None  # (K, n), curvatures; None where all are one

    @property
    def channels(self) -> list[NDArray[np.float64]]:
        """What is summed besides the rows themselves."""
        return [*self.g] if self.h is None else [*self.g, *self.h]


@dataclass(frozen=True)
class TaskSlopes:
    """What a tree sees of one task."""

    bins: Bins
    slopes: Slopes
    unit: float  # V_t, in which gains are measured
    least: int  # least number of rows of a leaf
    sampled: NDArray[np.bool_] | None = None  # (n,), rows that the tree is grown on; None is all

    def seen(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return those of the rows that the tree is grown on."""
        return rows if self.sampled is None else rows[self.sampled[rows]]

    def of(self, features: NDArray[np.intp]) -> TaskSlopes:
        """Return only some features."""
        return replace(self, bins=self.bins.of(features))

    def sums(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the `_histogram` over those of the rows that are seen."""
        return _histogram(self.bins, self.slopes, self.seen(rows))

    def impurity(self, rows: NDArray[np.intp]) -> float:
        """Sum over rows of g^2 / h, in units of V_t: no split of them gains more."""
        seen = self.seen(rows)
        squares = self.slopes.g[:, seen] ** 2
        if self.slopes.h is not None:
            squares /= self.slopes.h[:, seen]
        return float(squares.sum()) / self.unit


# -- the best threshold of every feature -----------------------------------------------------------


class _Cuts(NamedTuple):
    """What every feature offers in a node, arrays (d,)."""

    gain: NDArray[np.float64]  # largest Delta; 0 where no split leaves enough rows on both sides
    cut: NDArray[np.intp]  # number of the last bin that goes left
    #: Where missing values go: to the side with the larger Delta, or with more rows where the node
    #: has no missing values.
    missing_left: NDArray[np.bool_]


def _histogram(bins: Bins, slopes: Slopes, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return sums over rows, given by their rising numbers, in every bin and below, (C, d, W).

    They are the sums of g_1..g_K, of h_1..h_K unless all are one, and the number of rows, each over
    all rows whose code is at most 0, 1, ..., W - 1.
    """
    n_features, width = len(bins.codes), bins.width
    channels = [channel[rows] for channel in slopes.channels]
    sums = np.empty((len(channels) + 1, n_features, width))
    size = max(1, _BLOCK_VALUES // max(1, len(rows)))
    first = np.arange(min(size, n_features), dtype=np.intp)[:, None] * width
    for start in range(0, n_features, size):
        codes = bins.codes[start : start + size]
        if len(rows) < bins.n_rows:
            codes = codes.take(rows, axis=1)
        place = (codes + first[: len(codes)]).ravel()
        block, shape = slice(start, start + len(codes)), (len(codes), width)
        for c, channel in enumerate(channels):
            repeated = np.broadcast_to(channel, (len(codes), len(rows))).ravel()
            counted = np.bincount(place, repeated, len(codes) * width).reshape(shape)
            np.cumsum(counted, axis=1, out=sums[c, block])
        counted = np.bincount(place, minlength=len(codes) * width).reshape(shape)
        np.cumsum(counted, axis=1, out=sums[-1, block])
    return sums


def _best_cuts(sums: NDArray[np.float64], n_outputs: int, least: int, has_missing: bool) -> _Cuts:
    """Find the best threshold of every feature.

    `sums` (C, d, W) are as `_histogram` gives them, for K = `n_outputs` gradients, with missing
    values in the last bin if there are any; at least `least` rows are on either side.
    """
    n_features, width = sums.shape[1:]
    size = max(1, _SCAN_VALUES // width)
    parts = [
        _best_of_block(sums[:, start : start + size], n_outputs, least, has_missing)
        for start in range(0, n_features, size)
    ]
    return _Cuts(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _best_of_block(sums: NDArray, n_outputs: int, least: int, has_missing: bool) -> _Cuts:
    left = sums[..., :-1] if has_missing else sums
    total = sums[..., -1:]
    gain, cut = _scan(left, total, n_outputs, least)
    on_left = np.take_along_axis(left[-1], cut[:, None], axis=1)
    missing_left = (2 * on_left > total[-1])[:, 0]
    if has_missing:
        missing = total - left[..., -1:]
        other, other_cut = _scan(left + missing, total, n_outputs, least)
        better = other > (1 + _TIE) * gain
        gain, cut = np.where(better, other, gain), np.where(better, other_cut, cut)
        missing_left = np.where(missing[-1, :, 0] > 0, better, missing_left)
    return _Cuts(gain, cut, missing_left)


def _scan(
    left: NDArray, total: NDArray, n_outputs: int, least: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Largest Delta of every feature and its place, for the sums of all left sides (C, d, B)."""
    n_rows = total[-1, 0, 0]  # the same for all features
    if n_rows < 2 * least:
        return np.zeros(left.shape[1]), np.zeros(left.shape[1], np.intp)
    rows = left[-1]
    is_unit = len(left) == n_outputs + 1
    is_bad = None if is_unit else (rows < least) | (n_rows - rows < least)
    gain: NDArray | None = None
    for k in range(n_outputs):
        h = -1 if is_unit else n_outputs + k
        below = total[h] - left[h]
        below *= left[h]
        if is_bad is None:  # m (N - m) is large enough exactly where both sides are
            is_bad = below < least * (n_rows - least)
        np.putmask(below, is_bad, np.inf)
        above = left[h] * (total[k] / total[h])
        np.subtract(left[k], above, out=above)
        above *= above
        above /= below
        above *= total[h]
        gain = above if gain is None else gain + above
    assert gain is not None
    cut = gain.argmax(axis=1)
    return np.take_along_axis(gain, cut[:, None], axis=1)[:, 0], cut


# -- trees ---------------------------------------------------------------------------------------


class TreeShape(NamedTuple):
    """How large a tree may grow."""

    depth: int  # largest number of splits between the root and a leaf
    leaves: int


@dataclass
class GrownTree:
    """A tree over T tasks: m nodes in the order in which they were made, the root first."""

    feature: list[int]  # (m,), the same for all tasks, as left and right; -1 for leaves
    left: list[int]
    right: list[int]
    threshold: list[list[float]]  # of every task
    missing_left: list[list[bool]]
    gains: NDArray[np.float64]  # (T, d), Delta_t / V_t of the splits, summed by feature
    leaves: list[tuple[int, list[NDArray[np.intp]]]] = field(default_factory=list)  # rows by task

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
    A new feature costs `price`, as a share of V_t; `owned` (d,) are free, and those that the tree
    buys are added to them.
    """
    return _Grower(tasks, price, owned, shape).grow()


@dataclass
class _Node:
    """A node that may be split."""

    number: int
    rows: list[NDArray[np.intp]]  # of every task
    features: NDArray[np.intp] = field(init=False)  # that may be worth a split, in rising order
    sums: NDArray[np.float64] = field(init=False)  # the `_histogram` of the leading task


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
        self, tasks: Sequence[TaskSlopes], price: float, owned: NDArray[np.bool_], shape: TreeShape
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
        root = _Node(0, [np.arange(task.bins.n_rows) for task in self._tasks])
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
            j = int(np.argmax(net >= (1 - _TIE) * net.max()))  # the first of those that tie
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
            cuts = _best_cuts(sums, len(task.slopes.g), task.least, task.bins.has_missing)
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
        return _Node(tree.left[here], left), _Node(tree.right[here], right)
