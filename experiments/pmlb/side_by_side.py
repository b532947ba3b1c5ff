"""Our results next to the scores that the paper's authors recorded: a table and a scatter plot."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from experiments import require
from experiments.pmlb.methods import METHODS
from experiments.pmlb.paper import log_losses, read_paper
from experiments.pmlb.plot import COLORS
from experiments.pmlb.records import Record
from experiments.pmlb.scores import Scores, compare, errors_by_method, with_enough_sets

__all__ = ["Row", "both_scores", "draw_scatter", "side_by_side", "side_table", "write_rows"]

TASKS = ("regression", "binary")
_LIMIT = {"regression": (0.02, 2.0), "binary": (0.005, 3.0)}
_NAMES = {"regression": "RMSE / RMSE of the training mean", "binary": "log-loss"}


@dataclass(frozen=True)
class Row:
    """One method, ours and theirs, on the sets that both have.

    Attributes
    ----------
    sets : int
        That both have a score of, for the method and, if there is one, for its base.
    median, paper_median : float
        Of RMSE / RMSE of the training mean, or of log-losses.
    wins, paper_wins : int or None
        Sets on which the refit has a lower error than its base.
    p, paper_p : float or None
        One-sided Wilcoxon signed-rank tests of that.
    lower : int
        Sets on which our error is lower than theirs.
    correlation : float
        Spearman's, of our scores and theirs.
    """

    task: str
    method: str
    base: str
    sets: int
    median: float
    paper_median: float
    wins: int | None
    paper_wins: int | None
    p: float | None
    paper_p: float | None
    lower: int
    correlation: float


def both_scores(records: Sequence[Record], paper: Path, task: str) -> tuple[Scores, Scores]:
    """Our scores and theirs, in the measure that was recorded."""
    ours = errors_by_method(records, task) if task == "regression" else log_losses(records)
    return with_enough_sets(ours), read_paper(paper, task)


def side_by_side(records: Sequence[Record], paper: Path) -> list[Row]:
    """One row for every task and method that both have."""
    found = []
    for task in TASKS:
        ours, theirs = both_scores(records, paper, task)
        for name in METHODS:
            if name in ours and name in theirs:
                row = _row(task, name, ours, theirs)
                found += [] if row is None else [row]
    return found


def _row(task: str, name: str, ours: Scores, theirs: Scores) -> Row | None:
    base = METHODS[name].base
    if base is not None and not (base in ours and base in theirs):
        base = None
    sets = ours[name].keys() & theirs[name].keys()
    if base is not None:
        sets &= ours[base].keys() & theirs[base].keys()
    if not sets:
        return None
    mine, other = (_only(scores[name], sets) for scores in (ours, theirs))
    a, b = (np.array([scores[s] for s in sorted(sets)]) for scores in (mine, other))
    wins: tuple[int | None, int | None] = (None, None)
    p: tuple[float | None, float | None] = (None, None)
    if base is not None:
        tests = compare(mine, ours[base]), compare(other, theirs[base])
        wins = tests[0].better, tests[1].better
        p = tests[0].p, tests[1].p
    return Row(
        task,
        name,
        base or "",
        len(sets),
        float(np.median(a)),
        float(np.median(b)),
        *wins,
        *p,
        int(np.sum(a < b)),
        _spearman(a, b),
    )


def _only(scores: Mapping[str, float], sets: set[str]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if name in sets}


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(require("scipy.stats").spearmanr(a, b).statistic)


def side_table(rows: Sequence[Row], task: str) -> list[str]:
    """The rows of a task as Markdown, or what is to be said where there are none."""
    own = [row for row in rows if row.task == task]
    if not own:
        return ["The paper recorded no scores of these methods."]
    lines = [
        f"Beside the paper's recorded scores: {_NAMES[task]}, ours / the paper's, on the sets that "
        "both have (other splits). Wins and p: the refit against its base.",
        "",
        "| method | sets | median | wins | one-sided p | ours is lower on | rank correlation |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in own:
        wins = "" if row.wins is None else f"{row.wins} / {row.paper_wins}"
        p = "" if row.p is None else f"{row.p:.1e} / {row.paper_p:.1e}"
        lines.append(
            f"| {METHODS[row.method].label} | {row.sets} | {row.median:.4f} / "
            f"{row.paper_median:.4f} | {wins} | {p} | {row.lower} | {row.correlation:.2f} |"
        )
    return lines


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write the table as CSV, with four digits."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        for row in rows:
            writer.writerow([_text(value) for value in asdict(row).values()])


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def draw_scatter(records: Sequence[Record], paper: Path, path: Path) -> None:
    """One point per set and method: our score against theirs, by kind of ensemble."""
    figure = require("matplotlib.figure").Figure(figsize=(11, 6), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, task in zip(panels, TASKS, strict=True):
        ours, theirs = both_scores(records, paper, task)
        _draw_panel(axes, ours, theirs, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _draw_panel(axes: Any, ours: Scores, theirs: Scores, task: str) -> None:
    low, high = _LIMIT[task]
    n = 0
    for group, color in COLORS.items():
        points = [
            (theirs[name][s], ours[name][s])
            for name in METHODS
            if METHODS[name].group == group and name in ours and name in theirs
            for s in ours[name].keys() & theirs[name].keys()
        ]
        if points:
            n += len(points)
            x, y = np.clip(np.array(points), low, high).T
            axes.scatter(x, y, s=8, alpha=0.5, linewidths=0, color=color, label=group)
    axes.plot([low, high], [low, high], color="#3d4450", lw=1, ls=":")
    title = {"regression": "(a) regression", "binary": "(b) two classes"}[task]
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set_title(f"{title}, {n} (set, method) pairs", loc="left", fontsize=11)
    axes.set_xlabel(f"{_NAMES[task]}, the paper")
    axes.set_ylabel(f"{_NAMES[task]}, here")
    axes.spines[["top", "right"]].set_visible(False)
    if n:
        legend = axes.legend(frameon=False, fontsize=9, loc="upper left", markerscale=2)
        for handle in legend.legend_handles:
            handle.set_alpha(1)
