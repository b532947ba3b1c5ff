"""The entries of rows in the tables of grouped trees, computed for a block of rows at once.

Three steps, each a few vector instructions for all groups together:

1. every different test is answered once, all thresholds of a column in one comparison: a matrix
   of bytes 0 and 1, tests by rows;
2. a byte of mixed-radix digits is a sum over its tests, sum_t stride_t answer_t, at most 255.
   All bytes are added up side by side, their first tests, then their second tests and so on; eight
   rows are one 64-bit word here, as no sum leaves its byte;
3. the entry in the table is the sum of the group's bytes, each times the states before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.grouping import Digit, Grouping
from jointleaf._trees.routing import Test

__all__ = ["GroupIndex"]

_WORD = 8  # rows whose bytes are added up as one number


@dataclass(frozen=True)
class _Comparison:
    """Tests ``x > t`` (or ``x <= t``) of one column for several thresholds (k,)."""

    column: int
    thresholds: NDArray
    at_most: bool
    answers: NDArray[np.bool_]  # (k, B)


class _LayeredSum:
    """Sums of some rows of a matrix, each times a number: sum_i stride_ki values[row_ki].

    The sums are added up side by side, layer by layer: first terms, second terms and so on.

    Parameters
    ----------
    terms : list of lists of (row, stride)
        Of every sum, those with the most terms first.
    values : array (any, b)
    out : array (number of sums, b)
    """

    def __init__(self, terms: list[list[tuple[int, int]]], values: NDArray, out: NDArray) -> None:
        self._values = values
        later, narrow = np.empty_like(out), np.empty(out.shape, values.dtype)
        self._layers = []
        for i in range(len(terms[0]) if terms else 0):
            ith = [found[i] for found in terms if len(found) > i]
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

    One object is for one thread: it holds the arrays that a block is worked on in.

    Parameters
    ----------
    grouping : Grouping
    starts : integers (G,)
        First entry of every group where the tables lie one after the other.
    out : int32 array (B, G)
        Where the entries are written, again for every block; B, a multiple of 8, is the most
        rows of a block.
    """

    def __init__(
        self, grouping: Grouping, starts: NDArray[np.intp], out: NDArray[np.int32]
    ) -> None:
        self._router = grouping.router
        block_rows, n_groups = out.shape
        self._answers = np.zeros((len(grouping.tests), block_rows), np.uint8)
        self._entries = np.zeros((n_groups, block_rows), np.uint16)
        self._ask(grouping)
        self._lay_out(grouping)
        # Views are made here, once: with blocks this small their making would be felt.
        self._written = [
            (self._entries[g], np.int32(start), out[:, g]) for g, start in enumerate(starts)
        ]

    # -- what is done, in its order ------------------------------------------------------------

    def _ask(self, grouping: Grouping) -> None:
        """Sort the tests by column, so that one comparison answers all tests of a column."""
        dtype = np.float32 if grouping.router.trees.single_precision else np.float64
        by_column: dict[tuple[int, bool], list[int]] = {}
        self._levels: list[tuple[Test, NDArray[np.bool_]]] = []
        for number, test in enumerate(grouping.tests):
            if test.levels is None:
                by_column.setdefault((test.column, test.missing_right), []).append(number)
        order: list[int] = []
        self._comparisons: list[_Comparison] = []
        for (column, at_most), numbers in sorted(by_column.items()):
            thresholds = np.array([[grouping.tests[k].threshold] for k in numbers], dtype)
            answers = self._answers[len(order) : len(order) + len(numbers)].view(bool)
            self._comparisons.append(_Comparison(column, thresholds, at_most, answers))
            order += numbers
        for number, test in enumerate(grouping.tests):
            if test.levels is not None:
                self._levels.append((test, self._answers[len(order)].view(bool)))
                order.append(number)
        self._place = np.empty(len(order), np.intp)  # of every test among the answers
        self._place[order] = np.arange(len(order))

    def _lay_out(self, grouping: Grouping) -> None:
        """Make bytes of the answers, and entries of the bytes."""
        n_rows = self._entries.shape[1]
        terms = {
            (g, k): [(int(self._place[test]), stride) for test, stride in _terms(digits)]
            for g, group in enumerate(grouping.groups)
            for k, digits in enumerate(group.packed)
        }
        keys = sorted(terms, key=lambda key: -len(terms[key]))
        row = {key: i for i, key in enumerate(keys)}
        found = np.empty((len(keys), n_rows), np.uint8)
        words = self._answers.view(np.uint64), found.view(np.uint64)
        self._bytes = _LayeredSum([terms[key] for key in keys], *words)
        parts: list[list[tuple[int, int]]] = []
        for g, group in enumerate(grouping.groups):
            sizes = [math.prod(digit.n_states for digit in digits) for digits in group.packed]
            strides = [math.prod(sizes[:k]) for k in range(len(sizes))]
            parts.append([(row[g, k], stride) for k, stride in enumerate(strides)])
        self._whole = _LayeredSum(parts, found, self._entries)

    # -- a block -------------------------------------------------------------------------------

    def __call__(self, X: NDArray) -> None:
        """Write the entries of rows X (b, d) to the first b rows of `out`."""
        columns, n_rows = self._router.columns(X), len(X)
        for part in self._comparisons:
            compare = np.less_equal if part.at_most else np.greater
            compare(columns[part.column], part.thresholds, out=part.answers[:, :n_rows])
        for test, answers in self._levels:
            assert test.levels is not None
            np.take(test.levels, columns[test.column], 0, answers[:n_rows], "clip")
        self._bytes()
        self._whole()
        for entries, start, out in self._written:  # read in one go, written column by column
            np.add(entries, start, out=out)


def _terms(digits: tuple[Digit, ...]) -> list[tuple[int, int]]:
    """Tests of the digits of a byte and what a yes to each of them adds."""
    terms, stride = [], 1
    for digit in digits:
        terms += [(test, stride) for test in digit.tests]
        stride *= digit.n_states
    return terms
