"""Ranks, wins and tests of paired scores; lower scores are better throughout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, wilcoxon


def mean_ranks(scores: NDArray) -> NDArray:
    """Mean rank of each column over the rows; ties get the mean of their ranks."""
    return rankdata(scores, axis=1).mean(axis=0)


def count_wins(scores: NDArray) -> NDArray:
    """In how many rows each column has the smallest score; all that tie have won."""
    return (scores == scores.min(axis=1, keepdims=True)).sum(axis=0)


def wilcoxon_p(ours: NDArray, theirs: NDArray, alternative: str = "less") -> float:
    """Signed-rank test of paired scores, by default of `ours` being smaller; 1 if all are equal."""
    if np.array_equal(ours, theirs):
        return 1.0
    return float(wilcoxon(ours, theirs, alternative=alternative).pvalue)


def holm_different(scores: NDArray, level: float = 0.05) -> NDArray:
    """Which pairs of columns differ: Wilcoxon's two-sided test of all pairs, Holm's correction.

    Unlike Nemenyi's test, a pair's verdict hardly depends on which other models are shown.

    Returns
    -------
    (n_models, n_models) bool array, symmetric
    """
    k = scores.shape[1]
    pairs = [(i, j) for i in range(k) for j in range(i + 1, k)]
    p = [wilcoxon_p(scores[:, i], scores[:, j], "two-sided") for i, j in pairs]
    different = np.zeros((k, k), dtype=bool)
    for position, index in enumerate(np.argsort(p)):
        if p[index] > level / (len(pairs) - position):
            break
        i, j = pairs[index]
        different[i, j] = different[j, i] = True
    return different


def alike_groups(ranks: NDArray, different: NDArray) -> list[tuple[int, int]]:
    """Longest runs in the order of ranks in which no pair differs, as (first, last) positions."""
    order = np.argsort(ranks, kind="stable")
    sorted_different = different[np.ix_(order, order)]
    groups: list[tuple[int, int]] = []
    for first in range(len(order)):
        last = first
        while last + 1 < len(order) and not sorted_different[first : last + 2, last + 1].any():
            last += 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups
