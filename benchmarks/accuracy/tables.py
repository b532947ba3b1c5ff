"""Markdown tables of a comparison."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .comparison import LEAST_NMSE, Comparison
from .models import MODELS
from .ranking import count_wins, mean_ranks, wilcoxon_p

OURS = "jointleaf"
YARDSTICK = "catboost"

_CLEARLY = 1.05
_BANDS = (0, 500, 2_000, 10_000, 100_000, np.inf)  # of rows: each from one to below the next


def markdown(comparison: Comparison) -> str:
    """Give one table, best mean rank first, and above it what it is over."""
    ranks = mean_ranks(comparison.scores)
    lines = [_caption(comparison), "", *_header(comparison)]
    lines += [_row(comparison, k, ranks[k]) for k in np.argsort(ranks, kind="stable")]
    hindsight = _hindsight(comparison)
    return "\n".join(lines + ([hindsight] if hindsight else []))


def markdown_per_set(comparison: Comparison) -> str:
    """Give the score of every model on every data set."""
    labels = [MODELS[name].label for name in comparison.models]
    scores = np.exp(comparison.scores) if comparison.task == "regression" else comparison.scores
    lines = ["| data set | " + " | ".join(labels) + " |", "|---" * (len(labels) + 1) + "|"]
    for name, values in zip(comparison.sets, scores, strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{value:.4f}" for value in values) + " |")
    return "\n".join(lines)


def markdown_seconds(comparison: Comparison) -> str:
    """Return the processor seconds of all fits by bands of rows."""
    bands = [
        (low, high, (low <= comparison.rows) & (comparison.rows < high))
        for low, high in pairwise(_BANDS)
    ]
    bands = [band for band in bands if band[2].any()]
    heads = [f"{_band_name(low, high)}, {inside.sum()} sets" for low, high, inside in bands]
    lines = ["| fit, seconds in all | " + " | ".join(heads) + " |", "|---" * (len(bands) + 1) + "|"]
    for name, seconds in zip(comparison.models, comparison.fit_seconds.T, strict=True):
        cells = [f"{seconds[inside].sum():.1f}" for _, _, inside in bands]
        lines.append(f"| {MODELS[name].label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _band_name(low: float, high: float) -> str:
    if low == 0:
        return f"under {high:,.0f} rows"
    return f"{low:,.0f} rows and more" if high == np.inf else f"{low:,.0f} to {high:,.0f} rows"


def _caption(comparison: Comparison) -> str:
    text = (
        f"{comparison.task.capitalize()}: {len(comparison.sets)} data sets, {comparison.n_pairs} "
        f"pairs of set and seed that all {len(comparison.models)} models have; lower is better."
    )
    if comparison.task == "regression" and (comparison.scores <= np.log(LEAST_NMSE)).any():
        text += f" Errors below {LEAST_NMSE:g} count as {LEAST_NMSE:g}."
    if comparison.incomplete:
        lacking = ", ".join(f"{MODELS[m].label} {n}" for m, n in comparison.incomplete.items())
        text += f" Pairs missing: {lacking}."
    return text


def _header(comparison: Comparison) -> list[str]:
    means = ["geometric mean NMSE", "median NMSE"]
    if comparison.task != "regression":
        means = ["mean log-loss", "mean error", "median log-loss"]
    names = ["model", *means, "mean rank", "wins", "p, jointleaf better"]
    if YARDSTICK in comparison.models:
        names.append(f"sets more than 5 % above {MODELS[YARDSTICK].label}")
    names.append("fit, seconds in all")
    return ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]


def _means(scores: NDArray, errors: NDArray | None) -> list[str]:
    """Cells of one model's (or of the best models') mean, error and median over the sets."""
    if errors is None:
        return [f"{np.exp(scores.mean()):.4f}", f"{np.exp(np.median(scores)):.4f}"]
    return [f"{scores.mean():.4f}", f"{errors.mean():.4f}", f"{np.median(scores):.4f}"]


def _row(comparison: Comparison, k: int, rank: float) -> str:
    name, scores = comparison.models[k], comparison.scores
    label = MODELS[name].label
    cells = [f"**{label}**" if name == OURS else label]
    errors = None if comparison.errors is None else comparison.errors[:, k]
    cells += _means(scores[:, k], errors)
    cells += [f"{rank:.2f}", str(count_wins(scores)[k])]
    cells += [_p_value(comparison, scores[:, k]) if name != OURS else ""]
    if YARDSTICK in comparison.models:
        cells += [str(_count_above(comparison, k)) if name != YARDSTICK else ""]
    cells += [f"{comparison.fit_seconds[:, k].sum():.1f}"]
    return "| " + " | ".join(cells) + " |"


def _hindsight(comparison: Comparison) -> str | None:
    """The best of all peers per data set, by the score: what no choice beforehand can know."""
    peers = [k for k, name in enumerate(comparison.models) if name != OURS]
    if len(peers) < 2:
        return None
    best = np.array(peers)[comparison.scores[:, peers].argmin(axis=1)]
    rows = np.arange(len(best))
    scores = comparison.scores[rows, best]
    errors = None if comparison.errors is None else comparison.errors[rows, best]
    cells = ["best of all peers per data set with hindsight", *_means(scores, errors)]
    cells += ["", "", _p_value(comparison, scores), ""]
    return "| " + " | ".join(cells + [""] * (YARDSTICK in comparison.models)) + " |"


def _count_above(comparison: Comparison, k: int) -> int:
    """Number of sets on which a model's NMSE or log-loss is clearly above CatBoost's."""
    scores = comparison.scores
    if comparison.task == "regression":
        scores = np.exp(scores)
    return int(np.sum(scores[:, k] > _CLEARLY * scores[:, comparison.models.index(YARDSTICK)]))


def _p_value(comparison: Comparison, theirs: NDArray) -> str:
    if OURS not in comparison.models:
        return ""
    ours = comparison.scores[:, comparison.models.index(OURS)]
    return f"{wilcoxon_p(ours, theirs):.2g}"
