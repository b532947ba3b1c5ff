"""A limit on the time of a fit: about how long components take, and what is left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

__all__ = ["Budget", "Seconds", "Size"]

_PRIOR = 0.3  # seconds that are as if they had been estimated rightly


class Size(NamedTuple):
    """What the time of a component depends on."""

    n_rows: int
    n_columns: int
    n_outputs: int
    is_regression: bool


class Seconds(NamedTuple):
    """About how long a component takes on one core: for every split, and for all rows.

    They were measured on generated rows (200 to 20,000, 10 and 50 columns, up to 8 classes) and are
    right to a factor of two or so; the pace of a `Budget` makes up for other machines.
    """

    held_out: float = 0.0
    fit: float = 0.0

    def total(self, n_splits: int) -> float:
        """Return the seconds of everything."""
        return n_splits * self.held_out + self.fit


class Budget:
    """Seconds that a fit may take, from now on."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.perf_counter()
        self._expected = self._measured = _PRIOR
        self._reserved = 0.0  # for components that are to be fitted to all rows

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.perf_counter() - self._start)

    def allows(self, seconds: float) -> bool:
        """Whether there is time for something that is expected to take so long."""
        pace = self._measured / self._expected
        return pace * (self._reserved + seconds) <= self.left

    @contextmanager
    def spending(self, seconds: Seconds, n_splits: int) -> Iterator[None]:
        """Measure how long a component takes to predict its splits, and keep time to fit it."""
        start = time.perf_counter()
        yield
        self._measured += time.perf_counter() - start
        self._expected += n_splits * seconds.held_out
        self._reserved += seconds.fit
