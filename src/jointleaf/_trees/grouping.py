"""Which small trees are looked up together, and the tables of their summed weights.

A tree is a function of the answers to its tests, and so is a sum of trees. Tests on one column
are nested, x > t_1 follows from x > t_2 where t_1 < t_2, so that k of them have k + 1 different
answers and not 2^k: they are one *digit*, the number of tests that say yes. A group of trees is a
function of a few digits, and a table with one entry for every combination of them holds
the sum of the weights of all its trees: one look-up instead of one per tree, and no leaf is
searched for. Groups are formed so that trees with tests in common, or on the same columns, come
together, as long as the table stays small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.routing import Router, Test

__all__ = ["Digit", "Group", "Grouping", "group_trees", "group_weights"]

BYTE = 256  # states of the digits that one byte holds
_MOST_STATES = 1 << 16
_WINDOW = 128  # trees among which the next member of a group is looked for


@dataclass(frozen=True)
class Digit:
    """Tests of one column of which every one implies those before it.

    The digit of a row is the number of its tests that say yes, 0..k; `tests` are numbers in
    `Grouping.tests`.
    """

    tests: tuple[int, ...]

    @property
    def n_states(self) -> int:
        """Values of the digit: k + 1."""
        return len(self.tests) + 1


@dataclass(frozen=True)
class Group:
    """Trees with a common table.

    Attributes
    ----------
    trees : tuple of int
    packed : tuple of tuples of Digit
        The digits, dealt out to bytes: the states of the digits of a byte have a product of at
        most 256. The entry of a row is the number with these digits in mixed radix, the first
        digit counting 1.
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
        return math.prod(digit.n_states for digit in self.digits)


@dataclass(frozen=True)
class Grouping:
    """Groups of trees, and the trees that are in none because they ask too much.

    Attributes
    ----------
    router : Router
        Of all trees.
    tests : list of Test
        The different tests of all trees in groups.
    test_of_node : integers (N,)
        Number in `tests` of every split; -1 for those of trees without a group.
    groups : list of Group
        Those of more bytes first.
    rest : bool array (P,)
        Trees without a group.
    """

    router: Router
    tests: list[Test]
    test_of_node: NDArray[np.intp]
    groups: list[Group]
    rest: NDArray[np.bool_]


class _Tests:
    """Numbers the tests of trees, and says which of them are nested."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._numbers: dict[tuple, int] = {}
        self.tests: list[Test] = []
        self.family: list[tuple] = []  # tests of the same family are nested
        self.of_node = np.full(len(router.trees.feature), -1, np.intp)

    def of_tree(self, p: int) -> dict[tuple, set[int]]:
        """Give the different tests of a tree by family."""
        found: dict[tuple, set[int]] = {}
        starts = self._router.trees.starts
        for node in range(int(starts[p]), int(starts[p + 1])):
            key, test = self._router.test(node)
            number = self._numbers.setdefault(key, len(self.tests))
            if number == len(self.tests):
                self.tests.append(test)
                is_nested = test.levels is None and not math.isnan(test.threshold)
                self.family.append((test.column, test.missing_right) if is_nested else key)
            self.of_node[node] = number
            found.setdefault(self.family[number], set()).add(number)
        return found

    def digit(self, numbers: set[int]) -> Digit:
        """Order nested tests so that every one implies those before it."""
        tests = self.tests
        falling = tests[next(iter(numbers))].missing_right  # x <= t: the largest t comes first
        return Digit(
            tuple(sorted(numbers, key=lambda k: tests[k].threshold, reverse=bool(falling)))
        )


def group_trees(router: Router, most_states: int, room: int) -> Grouping:
    """Put trees into groups whose tables are small.

    A group begins with the first tree left and takes, again and again, the one of the next 128
    that makes its table grow least, while the table has at most `most_states` entries.

    Parameters
    ----------
    router : Router
    most_states : int
        Entries of a table, at most 65,536.
    room : int
        Entries of all tables together; trees that would need more are left without a group.
    """
    most_states = min(most_states, _MOST_STATES)
    tests = _Tests(router)
    n_trees = router.trees.n_trees
    left: list[_Asking] = []
    for p in np.flatnonzero(router.trees.n_leaves <= most_states).tolist():
        tree = _Asking([p], tests.of_tree(p))  # it has at least as many states as leaves
        if tree.n_states <= most_states and all(len(t) < BYTE for t in tree.asked.values()):
            left.append(tree)
    groups: list[Group] = []
    rest = np.ones(n_trees, bool)
    while left:
        found = _next_group(left, most_states)
        room -= found.n_states
        if room < 0:
            break
        digits = [tests.digit(numbers) for numbers in found.asked.values()]
        groups.append(Group(tuple(found.trees), _packed(digits)))
        rest[found.trees] = False
    groups.sort(key=lambda group: -len(group.packed))
    return Grouping(router, tests.tests, tests.of_node, groups, rest)


def _next_group(left: list[_Asking], most_states: int) -> _Asking:
    """Take the trees of one group out of those left."""
    group = left.pop(0)
    while left:
        growth = [group.growth(tree) for tree in left[:_WINDOW]]
        best = int(np.argmin(growth))
        if group.n_states * growth[best] > most_states + 0.5:
            break
        group.take(left.pop(best))
    return group


class _Asking:
    """Trees and the tests that they ask for, by family."""

    def __init__(self, trees: list[int], asked: dict[tuple, set[int]]) -> None:
        self.trees = trees
        self.asked = asked

    @property
    def n_states(self) -> int:
        """Combinations of answers that there are: the product of k + 1 over families."""
        return math.prod(len(numbers) + 1 for numbers in self.asked.values())

    def growth(self, other: _Asking) -> float:
        """How many times more states there are with the other's tests."""
        factor = 1.0
        for family, numbers in other.asked.items():
            mine = self.asked.get(family)
            if mine is None:
                factor *= len(numbers) + 1
                continue
            together = len(mine | numbers) + 1
            if together > BYTE:
                return math.inf
            factor *= together / (len(mine) + 1)
        return factor

    def take(self, other: _Asking) -> None:
        """Take the other's trees and tests."""
        self.trees = self.trees + other.trees
        for family, numbers in other.asked.items():
            self.asked[family] = self.asked.get(family, set()) | numbers


def _packed(digits: list[Digit]) -> tuple[tuple[Digit, ...], ...]:
    """Deal digits out to bytes, each one to the first that has room, the largest first."""
    packed: list[list[Digit]] = []
    for digit in sorted(digits, key=lambda digit: -digit.n_states):
        for byte in packed:
            if math.prod(d.n_states for d in byte) * digit.n_states <= BYTE:
                byte.append(digit)
                break
        else:
            packed.append([digit])
    return tuple(tuple(byte) for byte in packed)


# -- tables ------------------------------------------------------------------------------------


def group_weights(grouping: Grouping, group: Group, weights: NDArray) -> NDArray:
    """Sum the weights of a group's trees for every combination of answers.

    Parameters
    ----------
    grouping : Grouping
    group : Group
    weights : array (C, w)
        Of the cells of all trees, tree after tree.

    Returns
    -------
    array (number of states, w)
    """
    trees = grouping.router.trees
    first_cell = np.cumsum(trees.n_cells) - trees.n_cells
    digits = group.digits[::-1]  # the first axis of an array counts most
    shape = tuple(digit.n_states for digit in digits)
    table = np.zeros((*shape, weights.shape[1]), weights.dtype)
    for p in group.trees:
        nodes = slice(int(trees.starts[p]), int(trees.starts[p + 1]))
        asked = set(grouping.test_of_node[nodes].tolist())
        own = [i for i, digit in enumerate(digits) if not asked.isdisjoint(digit.tests)]
        cells = _cells_of_states(grouping, p, [digits[i] for i in own])
        found = weights[first_cell[p] + np.maximum(cells, 0)]
        found[cells < 0] = 0.0  # leaves that no training row reached
        table += found.reshape(*(shape[i] if i in own else 1 for i in range(len(shape))), -1)
    return table.reshape(-1, weights.shape[1])


def _cells_of_states(grouping: Grouping, p: int, digits: list[Digit]) -> NDArray[np.int32]:
    """Cell of tree p for every combination of these digits, in C order: walk the tree with all."""
    trees = grouping.router.trees
    shape = tuple(digit.n_states for digit in digits)
    values = np.indices(shape).reshape(len(shape), math.prod(shape))
    answers = {
        test: values[i] > rank
        for i, digit in enumerate(digits)
        for rank, test in enumerate(digit.tests)
    }
    first = int(trees.starts[p])
    leaf_cells = trees.cell_of_leaf[trees.leaf_starts[p] : trees.leaf_starts[p + 1]]
    cells = np.empty(math.prod(shape), np.int32)
    if trees.starts[p + 1] == first:  # a single leaf
        cells.fill(leaf_cells[0])
        return cells
    stack = [(first, np.arange(len(cells)))]
    while stack:
        child, states = stack.pop()
        if child < 0:
            cells[states] = leaf_cells[~child]
            continue
        number = int(grouping.test_of_node[child])
        yes = answers[number][states]
        goes_left = yes if grouping.tests[number].yes_is_left else ~yes
        stack.append((int(trees.left[child]), states[goes_left]))
        stack.append((int(trees.right[child]), states[~goes_left]))
    return cells
