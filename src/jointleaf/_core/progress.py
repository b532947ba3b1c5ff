"""A progress bar for long work: silent unless asked for."""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_LINE_SECONDS = 1.0  # between two lines of a bar in a file, or of a solve
_DRAW_SECONDS = 0.05  # between two drawings of a bar
_TICK_SECONDS = 1.0  # between two drawings of a line on which nothing moves
_NEW_LINE = "\r\x1b[K"  # of a terminal: begins the line anew
_lock = threading.RLock()  # of what is drawn
_is_ticking = False


class Progress:
    """Shows how much of `total` steps is done, on the standard error stream if enabled.

    It shows itself at once, before the first step. On a terminal one line is redrawn, in a notebook
    one bar, both at most twenty times a second; elsewhere a line is written for every tenth, at
    most one a second. Where the total `is_estimate`, it grows with the steps that turn out to be
    needed, and only `finish` completes the bar.
    """

    #: The bar that shows all others as its note, and the one that was drawn last on a terminal.
    _holder: Progress | None = None
    _latest: Progress | None = None

    def __init__(
        self,
        total: int,
        label: str,
        *,
        enabled: bool = True,
        is_estimate: bool = False,
    ) -> None:
        self.total = max(1, total)
        self.label = label
        self._is_estimate = is_estimate
        self._stream = sys.stderr
        self._enabled = enabled
        self._held_by = Progress._holder
        self._done = 0
        self._start = time.perf_counter()
        self._shown, self._shown_at, self._shown_done = -1, -_LINE_SECONDS, -1  # tenth, time, step
        self._drawn_at, self._note, self._inner = -_DRAW_SECONDS, "", ""
        self._fit_start = self._fit_steps = 0  # of a fit that moves the bar
        self._expected = self._spent = 0.0  # seconds of it
        self._display = _notebook_display() if enabled and self._held_by is None else None
        self._show()

    def begin(self, note: str) -> None:
        """Show what is being done now."""
        self._note, self._drawn_at = note, -_DRAW_SECONDS  # at once
        self._show()

    @contextmanager
    def holding(self, note: str, n_steps: int = 0) -> Iterator[None]:
        """Show what is being done now, and bars that are made meanwhile behind it.

        A fit meanwhile moves this bar by `n_steps`: see `expect` and `spent`.
        """
        self.begin(note)
        before, Progress._holder = Progress._holder, self
        self._fit_start, self._fit_steps = self._done, n_steps
        self._expected, self._spent = 0.0, 0.0
        try:
            yield
        finally:
            Progress._holder = before
        self.step_to(self._fit_start + n_steps, note)

    @classmethod
    def expect(cls, seconds: float) -> None:
        """Announce to the bar of the whole fit how long this is expected to take."""
        if cls._holder is not None:
            cls._holder._expected = seconds

    @classmethod
    def spent(cls, seconds: float) -> None:
        """Move the bar of the whole fit by what was expected of something that is done."""
        bar = cls._holder
        if bar is not None and bar._expected > 0:
            bar._spent += seconds
            steps = int(bar._fit_steps * min(bar._spent / bar._expected, 0.99))
            bar.step_to(bar._fit_start + steps, bar._note)

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

    def _show(self, inner: str = "") -> None:
        if not self._enabled:
            return
        if self._held_by is not None:
            counted = f": {self.label} {self._done}/{self.total} {self._note}"
            self._held_by._show(counted.rstrip())
            return
        fraction = self._done / self.total
        seconds = time.perf_counter() - self._start
        is_drawn = self._display is not None or self._stream.isatty()
        if is_drawn and fraction < 1 and seconds - self._drawn_at < _DRAW_SECONDS:
            return
        self._drawn_at, note = seconds, (self._note + inner).removeprefix(": ")
        bar = "#" * round(24 * fraction)
        is_due = int(10 * fraction) > self._shown and seconds - self._shown_at >= _LINE_SECONDS
        line = f"{self.label} [{bar:<24}] {self._done}/{self.total} {seconds:6.1f} s {note}"
        if self._display is not None:
            words = html.escape(f"{self.label} {self._done}/{self.total}, {seconds:.1f} s")
            meter = f'<progress value="{self._done}" max="{self.total}"></progress>'
            form = f"{meter} {words} {html.escape(note)}"
            self._display({"text/html": form, "text/plain": line.rstrip()})
        elif is_drawn:
            self._inner, Progress._latest = inner, self if fraction < 1 else None
            _write(self._stream, _NEW_LINE + line.rstrip() + ("" if fraction < 1 else "\n"))
        elif self._done == self.total > self._shown_done or is_due:
            self._shown, self._shown_at, self._shown_done = int(10 * fraction), seconds, self._done
            _write(self._stream, line.rstrip() + "\n")

    def draw_again(self) -> None:
        """Draw the bar of a terminal with the time that has passed."""
        if time.perf_counter() - self._start - self._drawn_at >= _TICK_SECONDS:
            self._show(self._inner)


def _notebook_display() -> Callable[[dict[str, str]], None] | None:
    """Return what shows a bundle of forms in place of the last one; None outside of notebooks."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

    handle = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda bundle: handle.update(bundle, raw=True)


@contextmanager
def ticking(label: str, *, enabled: bool = True) -> Iterator[None]:
    """Let a line of a terminal show the seconds that pass, also where no bar is drawn.

    Inside of another one it does nothing.
    """
    global _is_ticking
    stream = sys.stderr
    if _is_ticking or not (enabled and stream.isatty()):
        yield
        return
    start, is_over = time.perf_counter(), threading.Event()
    Progress._latest, _is_ticking = None, True

    def tick() -> None:
        while not is_over.wait(_TICK_SECONDS):
            with _lock:
                if Progress._latest is not None:
                    Progress._latest.draw_again()
                elif not is_over.is_set():
                    _write(stream, f"{_NEW_LINE}{label} {time.perf_counter() - start:6.1f} s")

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        _write(stream, _NEW_LINE if Progress._latest is None else "\n")
        Progress._latest, _is_ticking = None, False


def tell(text: str, stream: TextIO | None = None) -> None:
    """Write a line of its own, unless a bar stands for all that is done."""
    stream = stream or sys.stdout
    if Progress._holder is None:
        _write(stream, f"{_NEW_LINE if stream.isatty() else ''}{text}\n")


def _write(stream: TextIO, text: str) -> None:
    with _lock:
        stream.write(text)
        stream.flush()


class SolveProgress:
    """A listener of `solve` that shows on the standard error stream how it goes on."""

    def __init__(self) -> None:
        self._next = _LINE_SECONDS

    def __call__(self, iteration: int, seconds: float, objective: float, optimality: float) -> None:
        """Write a line if the last one is old enough."""
        if seconds < self._next:
            return
        self._next = seconds + _LINE_SECONDS
        tell(
            f"solving: iteration {iteration}, {seconds:.1f} s, objective {objective:.6g}, "
            f"optimality {optimality:.1e}",
            sys.stderr,
        )


def iterations(count: int) -> str:
    """Return "1 iteration" or "20 iterations"."""
    return f"{count} iteration{'' if count == 1 else 's'}"
