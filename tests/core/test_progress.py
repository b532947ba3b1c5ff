"""The progress bar: silent unless asked for, lines in files, one line on terminals."""

from io import StringIO

from jointleaf._core.progress import Progress, SolveProgress
from jointleaf._core.solvers import choose_solver


class Terminal(StringIO):
    def isatty(self):
        return True


def _run(stream, total, steps=None, *, enabled=True):
    progress = Progress(total, "fitting", enabled=enabled, stream=stream)
    for _ in range(total if steps is None else steps):
        progress.step("fold")
    progress.finish()
    return stream.getvalue()


def test_nothing_is_written_when_disabled():
    assert _run(StringIO(), 20, enabled=False) == ""
    assert _run(Terminal(), 20, 3, enabled=False) == ""


def test_a_file_gets_a_line_for_every_tenth():
    lines = _run(StringIO(), 200).splitlines()
    assert len(lines) == 11
    assert all(line.startswith("fitting [") for line in lines)
    assert "200/200" in lines[-1]
    assert "#" * 24 in lines[-1]
    assert lines[-1].endswith("fold")


def test_a_terminal_line_is_redrawn_and_ended_once():
    text = _run(Terminal(), 5)
    assert text.count("\r") == 5
    assert text.count("\n") == 1
    assert text.endswith("\n")


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


def test_a_solve_tells_its_listener(make_case, make_problem):
    stream = StringIO()
    problem = make_problem(make_case())
    listener = SolveProgress(stream, every=0.0)
    solution = choose_solver(problem, "pcg").solve(problem, listener=listener)
    lines = stream.getvalue().splitlines()
    assert len(lines) == len(solution.trace)
    assert lines[-1].startswith(f"solving: iteration {solution.n_iter}, ")


def test_a_quick_solve_shows_nothing():
    stream = StringIO()
    SolveProgress(stream)(1, 0.2, 0.5, 1e-3)
    assert stream.getvalue() == ""
