"""Tables of what a file of results holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from experiments.pmlb.methods import METHODS
from experiments.pmlb.records import Record
from experiments.pmlb.scores import (
    Scores,
    common_sets,
    compare,
    errors_by_method,
    with_enough_sets,
)
from experiments.pmlb.sets import PAPER_SETS
from experiments.pmlb.side_by_side import side_by_side, side_table

__all__ = ["GOAL", "HEADLINE", "report_text"]

GOAL = 0.01  # of p, for every kind of ensemble, in regression
#: What the paper compares JOPLEn of CatBoost's cells with a Laplacian with, and its p-values.
HEADLINE = {
    "cb": 7.2e-5,
    "cb_gr_nc": 5.6e-3,
    "cb_gr": 4.9e-3,
    "gb_l": 8.0e-2,
    "tabnet": 3.3e-4,
    "nn": 1.5e-1,
}
_TITLES = {"regression": "Regression", "binary": "Two classes"}
_MEASURES = {
    "regression": "RMSE / RMSE of the training mean (square it for a ratio of MSEs)",
    "binary": "0/1 loss",
}


def report_text(records: Sequence[Record], paper: Path | None) -> str:
    """All tables, as Markdown."""
    lines: list[str] = []
    beside = [] if paper is None else side_by_side(records, paper)
    for task, title in _TITLES.items():
        found = errors_by_method(records, task)
        if not found:
            continue
        scores = with_enough_sets(found)
        n_sets = len({record.set for record in records if record.task == task})
        n_all = sum(info.task == task for info in PAPER_SETS.values())
        lines += [
            f"## {title}: {records[0].setting}, {n_sets} of the paper's {n_all} sets",
            "",
            f"Error: {_MEASURES[task]}. Lower is better." + _left_out(found, scores),
            "",
            *median_table(scores),
            "",
            *test_table(scores),
            "",
        ]
        if task == "regression":
            parts = (goal_lines(scores), headline_lines(scores), stopped_lines(scores))
            lines += [line for part in parts if part for line in [*part, ""]]
        if paper is not None:
            lines += [*side_table(beside, task), ""]
    return "\n".join(lines)


def _left_out(found: Scores, kept: Scores) -> str:
    """Which methods have too few sets for these tables."""
    few = [
        f"{METHODS[name].label} ({len(found[name])})"
        for name in METHODS
        if name in found and name not in kept
    ]
    return f" Left out, with few sets: {', '.join(few)}." if few else ""


def median_table(scores: Scores) -> list[str]:
    """Medians over a method's own sets, and over those that all methods have."""
    shared = common_sets(scores)
    lines = [
        f"| method | sets | median | median of {len(shared)} common sets | mean rank there |",
        "|---|---|---|---|---|",
    ]
    names = [name for name in METHODS if name in scores]
    ranks = dict.fromkeys(names, float("nan"))
    if shared:
        table = np.array([[scores[name][s] for s in shared] for name in names])
        ranks = dict(zip(names, stats.rankdata(table, axis=0).mean(axis=1), strict=True))
    medians = {name: np.median(list(scores[name].values())) for name in names}
    for name in sorted(names, key=lambda name: medians[name]):
        inside = np.median([scores[name][s] for s in shared]) if shared else float("nan")
        lines.append(
            f"| {METHODS[name].label} | {len(scores[name])} | {medians[name]:.4f} "
            f"| {inside:.4f} | {ranks[name]:.1f} |"
        )
    return lines


def test_table(scores: Scores) -> list[str]:
    """Every refit against its base ensemble."""
    lines = [
        "| refit | against | sets | better | worse | error / base, geometric mean | one-sided p |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, method in METHODS.items():
        base = method.base
        if base is None or base not in scores or name not in scores:
            continue
        found = compare(scores[name], scores[base])
        lines.append(
            f"| {method.label} | {METHODS[base].label} | {found.n} | {found.better} "
            f"| {found.worse} | {found.ratio:.3f} | {found.p:.1e} |"
        )
    return lines


def goal_lines(scores: Scores) -> list[str]:
    """Whether joint refitting improves every kind of ensemble."""
    lines = [f"Does joint refitting improve the ensemble? One-sided Wilcoxon, goal p < {GOAL}:"]
    for base in ("gb", "rf", "lf", "cb_nc"):
        refits = [
            name
            for name, method in METHODS.items()
            if method.base == base and name in scores and not name.endswith("_fr")
        ]
        if base not in scores or not refits:
            continue
        tests = {METHODS[name].label: compare(scores[name], scores[base]).p for name in refits}
        texts = [f"{label} p = {p:.1e} ({_verdict(p)})" for label, p in tests.items()]
        lines.append(f"- {METHODS[base].label}: " + ", ".join(texts))
    return lines


def headline_lines(scores: Scores) -> list[str]:
    """The paper's headline: JOPLEn CB with a Laplacian against all others that it names."""
    lines = [
        "| one-sided p | against | sets | better | p | p in the paper |",
        "|---|---|---|---|---|---|",
    ]
    for name in ("cb_l_stop", "cb_l"):
        for rival, recorded in HEADLINE.items():
            # Global refinement and GB in the same variant, where there is one.
            other = rival
            if name.endswith("_stop"):
                other = {"cb_gr_nc": "cb_gr_stop", "gb_l": "gb_l_stop"}.get(rival, rival)
            if name not in scores or other not in scores:
                continue
            found = compare(scores[name], scores[other])
            if found.n:
                lines.append(
                    f"| {METHODS[name].label} | {METHODS[other].label} | {found.n} "
                    f"| {found.better} | {found.p:.1e} | {recorded:.1e} |"
                )
    return lines if len(lines) > 2 else []


def stopped_lines(scores: Scores) -> list[str]:
    """Fits that were stopped early beside those solved to the optimum, on the same sets."""
    lines = [
        "| refit | sets | solved: wins, p | stopped: wins, p | stopped against solved: wins, p |",
        "|---|---|---|---|---|",
    ]
    for name, method in METHODS.items():
        stopped = f"{name.removesuffix('_nc')}_stop"
        base = method.base
        if base is None or any(n not in scores for n in (name, stopped, base)):
            continue
        sets = set.intersection(*(set(scores[n]) for n in (name, stopped, base)))
        if method.categories or not sets:
            continue
        own = {n: {s: scores[n][s] for s in sets} for n in (name, stopped, base)}
        tests = [
            compare(own[a], own[b]) for a, b in ((name, base), (stopped, base), (stopped, name))
        ]
        texts = [f"{found.better}, {found.p:.1e}" for found in tests]
        lines.append(f"| {method.label} | {len(sets)} | {' | '.join(texts)} |")
    return lines if len(lines) > 2 else []


def _verdict(p: float) -> str:
    return "yes" if p < GOAL else "no"
