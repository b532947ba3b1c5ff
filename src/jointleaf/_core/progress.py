"""A progress bar for long work: silent unless asked for."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from typing import TextIO

_LINE_SECONDS = 1.0  # between two lines of a bar in a file
_DRAW_SECONDS = 0.05  # between two drawings of a bar


class Progress:
    """Shows how much of `total` steps is done, on the standard error stream if enabled.

    It shows itself at once, before the first step. On a terminal one line is redrawn, in a notebook
    one bar, both at most twenty times a second; elsewhere a line is written for every tenth, at
    most one a second. Where the total `is_estimate`, it grows with the steps that turn out to be
    needed, and only `finish` completes the bar.
    """

    def __init__(
        self,
        total: int,
        label: str,
        *,
        enabled: bool = True,
        is_estimate: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self.total = max(1, total)
        self.label = label
        self._is_estimate = is_estimate
        self._stream = stream or sys.stderr
        self._enabled = enabled
        self._done = 0
        self._start = time.perf_counter()
        self._shown, self._shown_at, self._shown_done = -1, -_LINE_SECONDS, -1  # tenth, time, step
        self._drawn_at, self._note = -_DRAW_SECONDS, ""
        self._display = _notebook_display() if enabled and stream is None else None
        self._show()

    def begin(self, note: str) -> None:
        """Show what is being done now."""
        self._note, self._drawn_at = note, -_DRAW_SECONDS  # at once
        self._show()

    def step(self, note: str = "") -> None:
        """Count one step; the note says what is being done from now on."""
        if self._done == self.total:
            return
        self._done += 1
        if self._is_estimate and self._done == self.total:
            self.total += 1
        if note != self._note:
            self.begin(note)
        else:
            self._show()

    def step_to(self, done: int, note: str = "") -> None:
        """Count steps until so many are done."""
        while self._done < min(done, self.total):
            self.step(note)

    def finish(self) -> None:
        """Count what is left as done."""
        self._is_estimate = False
        if self._done < self.total:
            self._done = self.total - 1
            self.step()

    def _show(self) -> None:
        if not self._enabled:
            return
        share = self._done / self.total
        seconds = time.perf_counter() - self._start
        is_drawn = self._display is not None or self._stream.isatty()
        if is_drawn and share < 1 and seconds - self._drawn_at < _DRAW_SECONDS:
            return
        self._drawn_at = seconds
        bar = "#" * round(24 * share)
        line = f"{self.label} [{bar:<24}] {self._done}/{self.total} {seconds:6.1f} s {self._note}"
        if self._display is not None:
            words = html.escape(f"{self.label} {self._done}/{self.total}, {seconds:.1f} s")
            note = html.escape(self._note)
            meter = f'<progress value="{self._done}" max="{self.total}"></progress>'
            self._display({"text/html": f"{meter} {words} {note}", "text/plain": line.rstrip()})
        elif is_drawn:
            end = "\n" if self._done == self.total else ""
            self._stream.write("\r\x1b[K" + line.rstrip() + end)
        elif self._done == self.total > self._shown_done or self._is_due(share, seconds):
            self._shown, self._shown_at, self._shown_done = int(10 * share), seconds, self._done
            self._stream.write(line.rstrip() + "\n")
        self._stream.flush()

    def _is_due(self, share: float, seconds: float) -> bool:
        """Whether a tenth has passed since the last line, and some time."""
        return int(10 * share) > self._shown and seconds - self._shown_at >= _LINE_SECONDS


def _notebook_display() -> Callable[[dict[str, str]], None] | None:
    """Return what shows a bundle of forms in place of the last one; None outside of notebooks."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

    handle = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda bundle: handle.update(bundle, raw=True)


class SolveProgress:
    """Shows how a solve goes on, with at least `every` seconds between lines, to `solve`."""

    def __init__(self, stream: TextIO | None = None, *, every: float = 1.0) -> None:
        self._stream = stream or sys.stderr
        self._every = every
        self._next = every

    def __call__(self, iteration: int, seconds: float, objective: float, optimality: float) -> None:
        """Write a line if the last one is old enough."""
        if seconds < self._next:
            return
        self._next = seconds + self._every
        self._stream.write(
            f"solving: iteration {iteration}, {seconds:.1f} s, objective {objective:.6g}, "
            f"optimality {optimality:.1e}\n"
        )
        self._stream.flush()
