"""Numbers of rows that are in blocks: arrays for solvers, wherever the blocks are.

A solver adds up, scales and reduces vectors with a number for every row. A `RowVector` has the
same operators, with one array for every block of rows that stays where the block is. Element by
element nothing is computed at once: a vector is an expression of values that are kept with the
blocks, and whoever passes over the blocks computes it there, block by block. A `Place` does so: in
this process, or on the workers of a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

FAN = 8  # terms that are added one after the other, before their sums are
_MOST_KEPT = 4  # values that an expression is computed from; beyond, it is computed and kept


@dataclass(frozen=True, eq=False)
class Call:
    """A function of one block's values: arguments are calls, `Kept`, or the same for all blocks."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


class Kept:
    """One value for every block, where the block is: an array, a design, or how to find them."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values


class Shared:
    """A value that all blocks need; arrays count as such."""

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(frozen=True)
class Slot:
    """Where a value goes into an expression."""

    number: int


def with_slots(call: Call) -> tuple[Call, list[Kept | Shared]]:
    """Return an expression with slots in place of what it is computed from, and these values."""
    leaves: list[Kept | Shared] = []
    return _slotted(call, leaves, {}), leaves


# Not as closures, which hold themselves: values would stay until garbage is collected.


def _slotted(node: Any, leaves: list[Any], seen: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(node, RowVector):
        node = node.expression
    if not isinstance(node, Call | Kept | Shared | np.ndarray):
        return node
    if id(node) not in seen:
        slotted: Any = Slot(len(leaves))
        if isinstance(node, Call):
            slotted = Call(node.function, tuple(_slotted(arg, leaves, seen) for arg in node.args))
        else:
            leaves.append(Shared(node) if isinstance(node, np.ndarray) else node)
        seen[id(node)] = slotted, node  # the node, because an id is free when its object is gone
    return seen[id(node)][0]


def computed(call: Call, values: list[Any]) -> Any:
    """Return what an expression is with values in its slots; equal parts are computed once."""
    return _computed(call, values, {})


def _computed(node: Any, values: list[Any], done: dict[int, Any]) -> Any:
    if isinstance(node, Slot):
        return values[node.number]
    if not isinstance(node, Call):
        return node
    if id(node) not in done:
        done[id(node)] = node.function(*(_computed(arg, values, done) for arg in node.args))
    return done[id(node)]


def add_in_order(terms: Iterable[NDArray]) -> NDArray[np.float64]:
    """Return a sum in float64, by a tree over the numbers of the terms: `FAN` at a time."""
    levels: list[tuple[int, Any]] = []  # of sums that are not complete: their terms and themselves
    for term in terms:
        _add(np.asarray(term, float), 0, levels)
    level = 0
    while level < len(levels) - 1:  # the last sum of a level may complete one of the next
        _add(levels[level][1], level + 1, levels)
        level += 1
    return levels[-1][1]


def _add(term: NDArray, level: int, levels: list[tuple[int, Any]]) -> None:
    if level == len(levels):
        levels.append((0, 0.0))
    count, total = levels[level]
    if count == FAN:
        _add(total, level + 1, levels)
        count = 0
    levels[level] = count + 1, total + term if count else term


class Place(ABC):
    """Where blocks are, and who computes with them.

    Functions get values of one block: arguments that are a `RowVector`, a `Kept` or a `Call` are
    computed there, others are the same for all blocks.
    """

    #: most cells of which pairs are counted together: the counts of every block are added up
    most_joint_cells: float = np.inf

    @abstractmethod
    def keep(self, function: Callable[..., Any], *args: Any) -> Kept:
        """Compute one value for every block, which stays there."""

    @abstractmethod
    def collect(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Return a small value of every block."""

    @abstractmethod
    def sum(self, function: Callable[..., Any], *args: Any) -> NDArray[np.float64]:
        """Return the sum of an array of every block, as `add_in_order` adds them."""


class Here(Place):
    """In this process, one block after the other."""

    def collect(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return list(self._each(function, args))

    def keep(self, function: Callable[..., Any], *args: Any) -> Kept:
        return Kept(self.collect(function, *args))

    def sum(self, function: Callable[..., Any], *args: Any) -> NDArray[np.float64]:
        return add_in_order(self._each(function, args))

    def _each(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Iterable[Any]:
        call, leaves = with_slots(Call(function, args))
        n_blocks = max(len(leaf.values) for leaf in leaves if isinstance(leaf, Kept))
        for number in range(n_blocks):
            yield computed(
                call,
                [leaf.values[number] if isinstance(leaf, Kept) else leaf.value for leaf in leaves],
            )


class RowVector(NDArrayOperatorsMixin):
    """Numbers (n,) or (n, K) of rows in blocks.

    `expression` has those of every block, `example` (0,) or (0, K) their type and shape, and
    `counts` are the rows of every block.
    """

    def __init__(
        self, place: Place, expression: Call | Kept, example: NDArray, counts: Iterable[int]
    ) -> None:
        self.place, self.expression, self.counts = place, expression, tuple(counts)
        self.shape = (sum(self.counts), *example.shape[1:])
        self.dtype, self.ndim, self.size = example.dtype, example.ndim, int(np.prod(self.shape))
        self._example = example

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *args: Any, **kwargs: Any) -> NDArray:
        raise TypeError("numbers of rows stay with their blocks: use gather()")

    def gather(self) -> NDArray:
        """Return all numbers as one array in this process."""
        return np.concatenate(self.place.collect(np.asarray, self))

    def kept(self) -> RowVector:
        """Return the vector, computed and kept with the blocks."""
        if isinstance(self.expression, Kept):
            return self
        return RowVector(self.place, self.place.keep(np.asarray, self), self._example, self.counts)

    # -- element by element, and row by row ----------------------------------------------------

    def apply(self, function: Callable[..., Any], *args: Any) -> RowVector:
        """Return function(*args), row by row; this vector, and others, are among the arguments."""
        examples = [arg._example if isinstance(arg, RowVector) else arg for arg in args]
        result = RowVector(self.place, Call(function, args), function(*examples), self.counts)
        n_kept = sum(isinstance(leaf, Kept) for leaf in with_slots(Call(function, args))[1])
        return result.kept() if n_kept > _MOST_KEPT else result

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            return NotImplemented
        return self.apply(ufunc, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in (np.where, np.zeros_like) or kwargs:
            return NotImplemented
        return self.apply(function, *args)

    def astype(self, dtype: DTypeLike) -> RowVector:
        return self if self.dtype == dtype else self.apply(np.ndarray.astype, self, np.dtype(dtype))

    def reshape(self, n: int, *shape: int) -> RowVector:
        """Return the rows' numbers in another shape (n, ...)."""
        assert n in (-1, len(self))
        if shape == self.shape[1:]:
            return self
        return self.apply(_reshaped, self, shape)

    def __getitem__(self, index: Any) -> RowVector:
        if index in (slice(None), slice(0, len(self))):
            return self
        everything, column = index
        assert everything == slice(None)
        return self.apply(_column, self, column)

    def mean(self, axis: int) -> RowVector:
        assert axis == 1
        return self.apply(partial(np.mean, axis=1), self)

    # -- numbers of all rows -------------------------------------------------------------------

    def sum(self) -> float:
        """Return the sum in float64."""
        return float(add_in_order(self.place.collect(_sum, self)))

    def dot(self, other: Any) -> float:
        """Return the inner product with another vector, in float64."""
        return float(add_in_order(self.place.collect(_dot, self, other)))

    def max(self, axis: int | None = None) -> Any:
        """Return the largest number of all, or of every row."""
        if axis is not None:
            return self.apply(partial(np.max, axis=1), self)
        return self.dtype.type(max(self.place.collect(_max, self)))

    def min(self) -> Any:
        """Return the smallest number."""
        return -(-self).max()

    def all(self) -> bool:
        """Whether no number is zero."""
        return all(self.place.collect(np.all, self))


# Functions of one block, with names, so that they can be sent to workers. A block may have no rows.


def _reshaped(values: NDArray, shape: tuple[int, ...]) -> NDArray:
    if -1 in shape:  # what is left is not known of no rows
        shape = (int(np.prod(values.shape[1:])),)
    return values.reshape(len(values), *shape)


def _column(values: NDArray, column: int) -> NDArray:
    return values[:, column]


def _sum(values: NDArray) -> NDArray[np.float64]:
    return np.asarray(values.sum(dtype=float))


def _dot(a: NDArray, b: NDArray) -> NDArray[np.float64]:
    return np.asarray(np.einsum("i,i->", a.ravel(), b.ravel(), dtype=float))


def _max(values: NDArray) -> float:
    return float(values.max(initial=-np.inf))
