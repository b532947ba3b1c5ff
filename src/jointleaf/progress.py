"""A progress bar for long work: silent unless asked for."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["Progress"]


class Progress:
    """Shows how much of `total` steps is done, on the standard error stream.

    On a terminal one line is redrawn; elsewhere a line is written for every tenth.

    Parameters
    ----------
    total : int
    label : str
    enabled : bool
        Nothing is ever written if False.
    """

    def __init__(
        self, total: int, label: str, *, enabled: bool = True, stream: TextIO | None = None
    ) -> None:
        self.total = max(1, total)
        self.label = label
        self._stream = stream or sys.stderr
        self._enabled = enabled
        self._done = 0
        self._start = time.perf_counter()
        self._shown = -1

    def step(self, note: str = "") -> None:
        """Count one step."""
        self._done = min(self._done + 1, self.total)
        if not self._enabled:
            return
        share = self._done / self.total
        seconds = time.perf_counter() - self._start
        bar = "#" * round(24 * share)
        line = f"{self.label} [{bar:<24}] {self._done}/{self.total} {seconds:6.1f} s {note}"
        if self._stream.isatty():
            end = "\n" if self._done == self.total else ""
            self._stream.write("\r\x1b[K" + line.rstrip() + end)
        elif int(10 * share) > self._shown or self._done == self.total:
            self._shown = int(10 * share)
            self._stream.write(line.rstrip() + "\n")
        self._stream.flush()

    def finish(self) -> None:
        """Count what is left as done."""
        if self._done < self.total:
            self._done = self.total - 1
            self.step()
