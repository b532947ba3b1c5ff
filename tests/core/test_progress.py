"""The progress bar: silent unless asked for, lines in files, one line on terminals."""

import sys
import threading
import time
from contextlib import redirect_stderr
from io import StringIO

import pytest

from jointleaf._core.progress import Progress, SolveProgress, tell, ticking
from jointleaf._core.solvers.base import choose_solver


class Terminal(StringIO):
    def isatty(self):
        return True


def _run(stream, total, steps=None, *, enabled=True):
    with redirect_stderr(stream):
        progress = Progress(total, "fitting", enabled=enabled)
    for _ in range(total if steps is None else steps):
        progress.step("fold")
    progress.finish()
    return stream.getvalue()


def test_nothing_is_written_when_disabled():
    assert _run(StringIO(), 20, enabled=False) == ""
    assert _run(Terminal(), 20, 3, enabled=False) == ""


def test_a_file_gets_a_line_for_every_tenth(monkeypatch):
    assert len(_run(StringIO(), 200).splitlines()) == 2  # so quickly: the first and the last
    monkeypatch.setattr("jointleaf._core.progress._LINE_SECONDS", 0.0)
    lines = _run(StringIO(), 200).splitlines()
    assert len(lines) == 11  # the first before any step
    assert " 0/200 " in lines[0]
    assert all(line.startswith("fitting [") for line in lines)
    assert "200/200" in lines[-1]
    assert "#" * 24 in lines[-1]
    assert lines[-1].endswith("fold")


def test_a_terminal_line_is_redrawn_and_ended_once(monkeypatch):
    monkeypatch.setattr("jointleaf._core.progress._DRAW_SECONDS", 0.0)
    text = _run(Terminal(), 5, 9)  # four too many
    assert text.count("\r") == 6
    assert text.count("\n") == 1
    assert text.endswith("\n")


def test_quick_steps_are_not_all_drawn():
    text = _run(Terminal(), 100_000)
    assert 2 <= text.count("\r") < 1000  # twenty in a second
    assert " 100000/100000 " in text.splitlines()[-1]


def test_an_estimate_grows_and_the_bar_is_completed_once(monkeypatch):
    monkeypatch.setattr("jointleaf._core.progress._DRAW_SECONDS", 0.0)
    with redirect_stderr(Terminal()) as stream:
        progress = Progress(2, "choosing", is_estimate=True)
    for _ in range(4):
        progress.step()
    assert " 4/5 " in stream.getvalue()
    assert "\n" not in stream.getvalue()
    progress.finish()
    progress.finish()
    assert stream.getvalue().count(" 5/5 ") == stream.getvalue().count("\n") == 1


def test_it_is_there_before_the_first_step_and_names_what_is_being_done():
    with redirect_stderr(Terminal()) as stream:
        progress = Progress(2, "fitting")
    assert " 0/2 " in stream.getvalue()
    progress.begin("a forest")
    assert stream.getvalue().endswith("s a forest")


class Notebook:
    """Stands in for IPython in a notebook: keeps what is displayed, and how often it is new."""

    def __init__(self):
        self.bundles, self.n_new = [], 0
        self.get_ipython = type("ZMQInteractiveShell", (), {})

    def display(self, bundle, raw, display_id):
        assert raw
        assert display_id
        self.n_new += 1
        return self

    def update(self, bundle, raw):
        self.bundles.append(bundle)


def test_a_notebook_has_one_bar(monkeypatch, capsys):
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    progress = Progress(3, "a <b>")
    progress.step("one")
    progress.finish()
    assert notebook.n_new == 1
    assert [bundle["text/html"].split(">")[0] for bundle in notebook.bundles] == [
        f'<progress value="{k}" max="3"' for k in (0, 1, 3)
    ]
    assert "a &lt;b&gt; 1/3" in notebook.bundles[1]["text/html"]
    assert "1/3" in notebook.bundles[1]["text/plain"]
    assert capsys.readouterr() == ("", "")


def test_finish_completes_the_bar():
    assert "8/8" in _run(StringIO(), 8, 3).splitlines()[-1]
    assert _run(Terminal(), 8, 3).endswith("\n")


def test_finish_writes_nothing_twice():
    assert _run(StringIO(), 3).count("3/3") == 1


def test_no_steps_and_too_many_steps_are_harmless():
    assert "1/1" in _run(StringIO(), 0)
    text = _run(StringIO(), 2, 5)
    assert "3/2" not in text


def test_standard_error_is_the_default(capsys):
    Progress(1, "fitting").step()
    captured = capsys.readouterr()
    assert "1/1" in captured.err
    assert captured.out == ""


def test_a_solve_tells_its_listener(make_case, make_problem, monkeypatch):
    monkeypatch.setattr("jointleaf._core.progress._LINE_SECONDS", 0.0)
    problem = make_problem(make_case())
    with redirect_stderr(StringIO()) as stream:
        solution = choose_solver(problem, "pcg").solve(problem, listener=SolveProgress())
    lines = stream.getvalue().splitlines()
    assert len(lines) == len(solution.trace)
    assert lines[-1].startswith(f"solving: iteration {solution.n_iter}, ")


def test_a_quick_solve_shows_nothing():
    with redirect_stderr(StringIO()) as stream:
        SolveProgress()(1, 0.2, 0.5, 1e-3)
    assert stream.getvalue() == ""


def test_bars_inside_of_another_are_its_note(monkeypatch, capsys):
    for name in ("_DRAW_SECONDS", "_LINE_SECONDS"):
        monkeypatch.setattr(f"jointleaf._core.progress.{name}", 0.0)
    stream = Terminal()
    with redirect_stderr(stream):
        outer = Progress(2, "validating")
    with outer.holding("forest"):
        inner = Progress(3, "growing")
        inner.step("trees")
        tell("not shown")
        SolveProgress()(1, 0.2, 0.5, 1e-3)
    outer.step()
    assert "validating [                        ] 0/2" in stream.getvalue()
    assert "s forest: growing 1/3 trees" in stream.getvalue()
    assert "\n" not in stream.getvalue()
    assert capsys.readouterr() == ("", "")
    with redirect_stderr(stream):
        Progress(1, "alone")
    assert "alone [" in stream.getvalue()


def test_seconds_pass_on_a_terminal_with_and_without_a_bar(monkeypatch):
    monkeypatch.setattr("jointleaf._core.progress._TICK_SECONDS", 0.01)
    with redirect_stderr(Terminal()) as stream, ticking("reading"):
        _wait_for(stream, "reading    0.")  # the first tick may be late
        with ticking("inside"):
            pass
        progress = Progress(2, "growing")
        _wait_for(stream, "growing", 5)
        progress.finish()
        tell("done", stream)
    assert "inside" not in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")  # nothing is left of the line
    n_drawn = len(stream.getvalue())
    time.sleep(0.05)
    assert len(stream.getvalue()) == n_drawn


def _wait_for(stream, text, count=1):
    for _ in range(500):
        if stream.getvalue().count(text) >= count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{text!r} did not come: {stream.getvalue()!r}")


def test_an_error_ends_the_line_and_the_ticks():

    def fail():
        with ticking("reading"):
            Progress(2, "growing")
            raise ValueError("no")

    with redirect_stderr(Terminal()) as stream, pytest.raises(ValueError, match="no"):
        fail()
    assert stream.getvalue().endswith("s\n")
    assert not any(thread.name.endswith("(tick)") for thread in threading.enumerate())


def test_nothing_ticks_in_files():
    with redirect_stderr(StringIO()) as stream, ticking("reading"), ticking("again", enabled=False):
        tell("done", stream)
    assert stream.getvalue() == "done\n"
