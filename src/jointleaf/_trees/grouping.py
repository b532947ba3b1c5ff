"""Small trees that are looked up together in tables of their summed weights.

A tree is a function of the answers to its conditions, and so is a sum of trees. Those on one column
are nested, x > t_1 follows from x > t_2 where t_1 < t_2, so that k of them have k + 1 different
answers and not 2^k: they are one *digit*, the number of conditions that hold. A group of trees is a
function of a few digits, and a table with one entry for every combination of them holds
the sum of the weights of all its trees: one look-up instead of one per tree, and no leaf is
searched for. Groups are formed so that trees with conditions in common, or on the same columns,
come together, as long as the table stays small.

`GroupIndex` computes the entries of a block of rows in three steps, each a few vector instructions
for all groups together:

1. every different condition is evaluated once, all thresholds of a column in one comparison: a
   matrix of bytes 0 and 1, conditions by rows;
2. a byte of mixed-radix digits is a sum over its conditions, sum_t stride_t answer_t, at most 255.
   All bytes are added up side by side, their first conditions, then their second ones and so on;
   eight rows are one 64-bit word here, as no sum leaves its byte;
3. the entry in the table is the sum of the group's bytes, each times the states before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.routing import Router

BYTE = 256  # states of the digits that one byte holds
_MOST_STATES = 1 << 16
_WINDOW = 128  # trees among which the next member of a group is looked for


@dataclass(frozen=True)
class Condition:
    """The condition of a split on one column.

    It is ``x > threshold``, or ``x <= threshold`` where missing values go right (NaN makes both
    false). With `categories` (L + 2,) it is the entry of the code, of unseen categories or of
    missing values, true for left.
    """

    column: int
    threshold: float
    missing_right: bool
    categories: NDArray[np.bool_] | None = None

    @property
    def yes_is_left(self) -> bool:
        """Whether rows for which the answer is yes go left."""
        return self.missing_right or self.categories is not None


def _condition(trees: FlatTrees, node: int) -> tuple[tuple, Condition]:
    """Return a key that equal conditions share, and the condition of a split."""
    column, missing_left = int(trees.feature[node]), bool(trees.missing_left[node])
    begin = int(trees.table[node])
    if begin < 0:
        threshold = float(trees.threshold[node])
        return (column, threshold, missing_left), Condition(column, threshold, not missing_left)
    n_categories = int(trees.n_categories[column])
    left = np.append(trees.categories_left[begin : begin + n_categories + 1], missing_left)
    return (column, left.tobytes()), Condition(column, 0.0, False, left)


#: Numbers in `Grouping.conditions` of k conditions on one column, of which every one implies those
#: before it. The digit of a row is the number of them that hold, 0..k.
Digit = tuple[int, ...]


def _n_states(digits: Iterable[Collection[int]]) -> int:
    """Return the combinations of answers that there are: the product of k + 1 over digits."""
    return math.prod(len(digit) + 1 for digit in digits)


@dataclass(frozen=True)
class Group:
    """Trees with a common table.

    Digits are dealt out to bytes: the states of the digits of a byte have a product of at most 256.
    The entry of a row is the number with these digits in mixed radix, the first one counting 1.
    """

    trees: tuple[int, ...]
    packed: tuple[tuple[Digit, ...], ...]

    @property
    def digits(self) -> tuple[Digit, ...]:
        """All digits, the one that counts least first."""
        return tuple(digit for byte in self.packed for digit in byte)

    @property
    def n_states(self) -> int:
        """Entries of the table."""
        return _n_states(self.digits)


@dataclass(frozen=True)
class Grouping:
    """Groups of trees, and the trees that are in none because their tables would be too large."""

    router: Router  # of all trees
    conditions: list[Condition]  # the different ones of all trees in groups
    condition_of_node: NDArray[np.intp]  # (N,) their number for every split; -1 without a group
    groups: list[Group]  # those of more bytes first
    ungrouped: NDArray[np.bool_]  # (P,) trees without a group


class _Conditions:
    """Numbers the conditions of trees, and finds those that are nested."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._numbers: dict[tuple, int] = {}
        self.conditions: list[Condition] = []
        self.of_node = np.full(len(router.trees.feature), -1, np.intp)

    def of_tree(self, p: int) -> dict[tuple, set[int]]:
        """Return the different conditions of a tree by family: those of one family are nested."""
        by_family: dict[tuple, set[int]] = {}
        starts = self._router.trees.starts
        for node in range(int(starts[p]), int(starts[p + 1])):
            key, condition = _condition(self._router.trees, node)
            number = self._numbers.setdefault(key, len(self.conditions))
            if number == len(self.conditions):
                self.conditions.append(condition)
            self.of_node[node] = number
            is_nested = condition.categories is None and not math.isnan(condition.threshold)
            family = (condition.column, condition.missing_right) if is_nested else key
            by_family.setdefault(family, set()).add(number)
        return by_family

    def digit(self, numbers: set[int]) -> Digit:
        """Order nested conditions so that every one implies those before it."""
        falling = self.conditions[min(numbers)].missing_right  # x <= t: the largest t is first
        thresholds = {k: self.conditions[k].threshold for k in numbers}
        return tuple(sorted(numbers, key=thresholds.__getitem__, reverse=falling))


def group_trees(router: Router, most_states: int, room: int) -> Grouping:
    """Put trees into groups whose tables are small.

    A group begins with the first tree left and takes, again and again, the one of the next 128
    that makes its table grow least, while the table has at most `most_states` entries (and 65,536).
    Trees for which all tables together would have more than `room` are left without a group.
    """
    most_states = min(most_states, _MOST_STATES)
    conditions = _Conditions(router)
    n_trees = router.trees.n_trees
    left: list[_TreeSet] = []
    for p in np.flatnonzero(_least_states(router.trees) <= most_states + 0.5).tolist():
        tree = _TreeSet([p], conditions.of_tree(p))
        if tree.n_states <= most_states and all(len(t) < BYTE for t in tree.families.values()):
            left.append(tree)
    groups: list[Group] = []
    ungrouped = np.ones(n_trees, bool)
    while left:
        members = _next_group(left, most_states)
        room -= members.n_states
        if room < 0:
            break
        digits = [conditions.digit(numbers) for numbers in members.families.values()]
        groups.append(Group(tuple(members.trees), _packed(digits)))
        ungrouped[members.trees] = False
    groups.sort(key=lambda group: -len(group.packed))
    return Grouping(router, conditions.conditions, conditions.of_node, groups, ungrouped)


def _least_states(trees: FlatTrees) -> NDArray[np.float64]:
    """Return how many states every tree has at least (P,): its splits on numbers, all at once."""
    splits = np.flatnonzero(trees.table < 0)
    tree = trees.tree_of_split[splits]
    keys = [trees.threshold[splits], trees.missing_left[splits], trees.feature[splits], tree]
    order = np.lexsort(keys)
    is_new = [np.append(True, key[order][1:] != key[order][:-1])[: len(order)] for key in keys]
    is_condition = np.logical_or.reduce(is_new)
    is_family = np.logical_or.reduce(is_new[1:])
    first = np.flatnonzero(is_family)
    sizes = np.add.reduceat(is_condition, first, dtype=np.intp) if len(first) else first
    logs = np.bincount(tree[order][first], np.log(sizes + 1), minlength=trees.n_trees)
    return np.maximum(np.exp(np.minimum(logs, 700.0)), trees.n_leaves)


def _next_group(left: list[_TreeSet], most_states: int) -> _TreeSet:
    """Take the trees of one group out of those left."""
    group = left.pop(0)
    while left:
        growth = [group.growth(tree) for tree in left[:_WINDOW]]
        best = int(np.argmin(growth))
        if group.n_states * growth[best] > most_states + 0.5:
            break
        group.take(left.pop(best))
    return group


@dataclass
class _TreeSet:
    """Trees and their different conditions, by family."""

    trees: list[int]
    families: dict[tuple, set[int]]

    @property
    def n_states(self) -> int:
        return _n_states(self.families.values())

    def growth(self, other: _TreeSet) -> float:
        """How many times more states there are with the other's conditions."""
        factor = 1.0
        for family, numbers in other.families.items():
            known = self.families.get(family, set())
            together = len(known | numbers) + 1
            if together > BYTE:
                return math.inf
            factor *= together / (len(known) + 1)
        return factor

    def take(self, other: _TreeSet) -> None:
        """Take the other's trees and conditions."""
        self.trees = self.trees + other.trees
        for family, numbers in other.families.items():
            self.families[family] = self.families.get(family, set()) | numbers


def _packed(digits: list[Digit]) -> tuple[tuple[Digit, ...], ...]:
    """Deal digits out to bytes, each one to the first that has room, the largest first."""
    packed: list[list[Digit]] = []
    for digit in sorted(digits, key=len, reverse=True):
        for byte in packed:
            if _n_states([*byte, digit]) <= BYTE:
                byte.append(digit)
                break
        else:
            packed.append([digit])
    return tuple(tuple(byte) for byte in packed)


# -- tables ------------------------------------------------------------------------------------


def group_weights(grouping: Grouping, group: Group, weights: NDArray) -> NDArray:
    """Return the sums (number of states, w) of the weights of a group's trees for all answers.

    `weights` (C, w) are those of the cells of all trees, tree after tree.
    """
    trees = grouping.router.trees
    digits = group.digits[::-1]  # the first axis of an array counts most
    shape = tuple(len(digit) + 1 for digit in digits)
    table = np.zeros((*shape, weights.shape[1]), weights.dtype)
    leaf_cells, first_leaf = trees.leaf_cells, trees.leaf_starts
    for p in group.trees:
        nodes = slice(int(trees.starts[p]), int(trees.starts[p + 1]))
        numbers = set(grouping.condition_of_node[nodes].tolist())
        axes = [i for i, digit in enumerate(digits) if not numbers.isdisjoint(digit)]
        leaves = _leaves_of_states(grouping, p, [digits[i] for i in axes])
        cells = leaf_cells[first_leaf[p] + leaves]
        entries = weights[np.minimum(cells, len(weights) - 1)]
        entries[cells == len(weights)] = 0.0  # leaves that no training row reached
        table += entries.reshape(*(shape[i] if i in axes else 1 for i in range(len(shape))), -1)
    return table.reshape(-1, weights.shape[1])


def _leaves_of_states(grouping: Grouping, p: int, digits: list[Digit]) -> NDArray[np.intp]:
    """Return the leaf of tree p for every combination of these digits, in C order."""
    trees = grouping.router.trees
    shape = tuple(len(digit) + 1 for digit in digits)
    values = np.indices(shape).reshape(len(shape), math.prod(shape))
    answers = {
        condition: values[i] > rank
        for i, digit in enumerate(digits)
        for rank, condition in enumerate(digit)
    }
    leaves = np.zeros(math.prod(shape), np.intp)
    first = int(trees.starts[p])
    stack = [(first, np.arange(len(leaves)))] if trees.starts[p + 1] > first else []
    while stack:
        child, states = stack.pop()
        if child < 0:
            leaves[states] = ~child
            continue
        number = int(grouping.condition_of_node[child])
        yes = answers[number][states]
        goes_left = yes if grouping.conditions[number].yes_is_left else ~yes
        stack.append((int(trees.left[child]), states[goes_left]))
        stack.append((int(trees.right[child]), states[~goes_left]))
    return leaves


# -- entries of rows ------------------------------------------------------------------------------


class _LayeredSum:
    """Sums of some rows of a matrix, each times a number: sum_i stride_ki values[row_ki].

    The sums are added up side by side, layer by layer: first terms, second terms and so on. `terms`
    are the (row, stride) of every sum, those with the most terms first.
    """

    def __init__(self, terms: list[list[tuple[int, int]]], values: NDArray, out: NDArray) -> None:
        self._values = values
        later, narrow = np.empty_like(out), np.empty(out.shape, values.dtype)
        self._layers = []
        for i in range(len(terms[0]) if terms else 0):
            ith = [sum_terms[i] for sum_terms in terms if len(sum_terms) > i]
            m, strides = len(ith), np.array([[stride] for _, stride in ith], out.dtype)
            rows = np.array([row for row, _ in ith], np.intp)
            term = out[:m] if i == 0 else later[:m]  # the first ones are where the sum begins
            taken = term if out.dtype == values.dtype else narrow[:m]
            is_plain = bool((strides == 1).all())
            self._layers.append((rows, taken, term, None if is_plain else strides, out[:m]))

    def __call__(self) -> None:
        for i, (rows, taken, term, strides, out) in enumerate(self._layers):
            self._values.take(rows, 0, taken, "clip")
            if taken is not term:  # to wider numbers
                term[:] = taken
            if strides is not None:
                np.multiply(term, strides, out=term)
            if i > 0:
                np.add(out, term, out=out)


class GroupIndex:
    """Finds the entries of rows in the tables of a `Grouping`, a block of rows at a time.

    One object is for one thread: it holds the arrays that a block is worked on in. The tables lie
    one after the other, with the first entries `starts` (G,). The entries are written to `out`
    (B, G), again for every block; B, a multiple of 8, is the most rows of a block.
    """

    def __init__(
        self, grouping: Grouping, starts: NDArray[np.intp], out: NDArray[np.int32]
    ) -> None:
        self._router = grouping.router
        block_rows, n_groups = out.shape
        self._answers = np.zeros((len(grouping.conditions), block_rows), np.uint8)
        self._entries = np.zeros((n_groups, block_rows), np.uint16)
        self._sort_conditions(grouping)
        self._lay_out(grouping)
        # Views are made here, once: with blocks this small their making would be felt.
        self._written = [
            (self._entries[g], np.int32(start), out[:, g]) for g, start in enumerate(starts)
        ]

    # -- what is done, in its order ------------------------------------------------------------

    def _sort_conditions(self, grouping: Grouping) -> None:
        """Sort the conditions by column, so that one comparison evaluates all of a column."""
        dtype = np.float32 if grouping.router.trees.single_precision else np.float64
        by_column: dict[tuple[int, bool], list[int]] = {}
        self._categories: list[tuple[Condition, NDArray[np.bool_]]] = []
        for number, condition in enumerate(grouping.conditions):
            if condition.categories is None:
                by_column.setdefault((condition.column, condition.missing_right), []).append(number)
        order: list[int] = []
        self._comparisons = []  # x > t (or x <= t) of one column for several thresholds
        for (column, at_most), numbers in sorted(by_column.items()):
            thresholds = np.array([[grouping.conditions[k].threshold] for k in numbers], dtype)
            answers = self._answers[len(order) : len(order) + len(numbers)].view(bool)
            compare = np.less_equal if at_most else np.greater
            self._comparisons.append((compare, column, thresholds, answers))
            order += numbers
        for number, condition in enumerate(grouping.conditions):
            if condition.categories is not None:
                self._categories.append((condition, self._answers[len(order)].view(bool)))
                order.append(number)
        self._place = np.empty(len(order), np.intp)  # of every condition among the answers
        self._place[order] = np.arange(len(order))

    def _lay_out(self, grouping: Grouping) -> None:
        """Make bytes of the answers, and entries of the bytes."""
        n_rows = self._entries.shape[1]
        terms = {
            (g, k): [(int(self._place[condition]), stride) for condition, stride in _terms(digits)]
            for g, group in enumerate(grouping.groups)
            for k, digits in enumerate(group.packed)
        }
        keys = sorted(terms, key=lambda key: -len(terms[key]))
        row = {key: i for i, key in enumerate(keys)}
        byte_sums = np.empty((len(keys), n_rows), np.uint8)
        words = self._answers.view(np.uint64), byte_sums.view(np.uint64)
        self._bytes = _LayeredSum([terms[key] for key in keys], *words)
        parts: list[list[tuple[int, int]]] = []
        for g, group in enumerate(grouping.groups):
            sizes = [_n_states(digits) for digits in group.packed]
            parts.append([(row[g, k], math.prod(sizes[:k])) for k in range(len(sizes))])
        self._whole = _LayeredSum(parts, byte_sums, self._entries)

    # -- a block -------------------------------------------------------------------------------

    def __call__(self, X: NDArray) -> None:
        """Write the entries of rows X (b, d) to the first b rows of `out`."""
        columns, n_rows = self._router.columns(X), len(X)
        for compare, column, thresholds, comparisons in self._comparisons:
            compare(columns[column], thresholds, out=comparisons[:, :n_rows])
        for condition, answers in self._categories:
            assert condition.categories is not None
            codes = columns[condition.column].astype(np.intp)
            np.take(condition.categories, codes, 0, answers[:n_rows], "clip")
        self._bytes()
        self._whole()
        for entries, start, out in self._written:  # read in one go, written column by column
            np.add(entries, start, out=out, dtype=np.int32)  # NumPy 1 would add in 16 bits


def _terms(digits: tuple[Digit, ...]) -> list[tuple[int, int]]:
    """Return the conditions of the digits of a byte, and what each of them adds where it holds."""
    terms, stride = [], 1
    for digit in digits:
        terms += [(condition, stride) for condition in digit]
        stride *= len(digit) + 1
    return terms
