"""What trees are grown on, and how trees of libraries without categories get them.

Categories become numbers, the trees are grown on these, and their thresholds are then turned back
into tables of categories: afterwards nothing tells such trees from those of a library that splits
on categories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import Columns, as_codes
from jointleaf._data.features import mean_and_scale
from jointleaf._trees.flat import FlatTrees

#: Rows' worth of the overall mean that every category's mean is pulled by.
_PRIOR_ROWS = 10.0
_BLOCK = 2**18  # numbers of which means are taken at a time


class TrainingRows(NamedTuple):
    """What partitions are made from: rows with a positive weight only."""

    X: NDArray  # (n, d) float32 or float64; NaN for missing values, codes for categories
    y: NDArray  # (n,) targets; class numbers in classification
    weight: NDArray[np.float64] | None  # (n,) with mean 1, or None where all weights are equal
    n_classes: int  # number of classes present; 0 in regression
    columns: Columns  # what the columns of X hold

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights (n,), ones where all are equal."""
        return np.ones(len(self.X)) if self.weight is None else self.weight

    @property
    def class_numbers(self) -> NDArray[np.intp]:
        """Classes (n,) as 0, 1, ... without numbers that no row has."""
        return np.unique(self.y, return_inverse=True)[1]


class Encoding:
    """Numbers for the categories of a table, and for missing values.

    The score of a category is the mean of the standardised target in its rows, pulled towards the
    overall mean by ten rows' worth of it: sum s_i z_i / (sum s_i + 10) over the rows i of the
    category. The order of the means is the one in which a split of the categories into two groups
    is best for squared error (Fisher 1958). With K > 2 classes it is the first principal component
    of the class frequencies of the categories (Coppersmith et al. 1999). Unseen categories have the
    overall mean, which is 0; missing ones are a category of their own. Missing numbers get the
    mean of the column.

    `categories` says whether categories are replaced, `missing` whether missing numbers are filled.
    """

    def __init__(self, rows: TrainingRows, *, categories: bool, missing: bool) -> None:
        s, n_categories = rows.weights, rows.columns.n_categories
        targets = centred_targets(rows, s)
        self._scores = {
            int(j): _category_scores(rows.X[:, j], int(n_categories[j]), targets, s)
            for j in (rows.columns.categorical if categories else ())
        }
        self._fills = {}
        if missing:
            numbers = np.flatnonzero(n_categories == 0)
            fills = _column_means(rows.X, s, numbers)
            with np.errstate(over="ignore"):
                rounded = fills.astype(np.float32)  # in which trees compare them, if they can
            fills = np.where(np.isfinite(rounded), rounded, fills)
            self._fills = dict(zip(numbers.tolist(), fills.tolist(), strict=True))

    @classmethod
    def of(cls, scores: Mapping[int, NDArray], fills: Mapping[int, float]) -> Encoding:
        """Return the encoding with these scores (L + 2,) and fills of columns."""
        encoding = cls.__new__(cls)
        encoding._scores, encoding._fills = dict(scores), dict(fills)
        return encoding

    def parts(self) -> tuple[dict[int, NDArray[np.float64]], dict[int, float]]:
        """Scores (L + 2,) and fills, by column."""
        return self._scores, self._fills

    def transform(self, rows: TrainingRows) -> TrainingRows:
        """Replace codes by scores and fill missing numbers."""
        X = self.numbers(rows.X)
        if X is rows.X:
            return rows
        columns = Columns.numbers(len(rows.columns)) if self._scores else rows.columns
        return rows._replace(X=X, columns=columns)

    def numbers(self, X: NDArray) -> NDArray:
        """Return rows X (n, d) with scores and fills; X itself where it has nothing to replace."""
        has_missing = np.isnan(X).any(axis=0)
        incomplete = [j for j in np.flatnonzero(has_missing).tolist() if j in self._fills]
        if not self._scores and not incomplete:
            return X
        X = X.copy()
        for j, scores in self._scores.items():
            X[:, j] = scores[as_codes(X[:, j], len(scores) - 2)]
        for j in incomplete:
            X[np.isnan(X[:, j]), j] = self._fills[j]
        return X

    def translate(self, trees: FlatTrees) -> FlatTrees:
        """Turn thresholds on scores into tables of categories, and fills into directions."""
        fills = np.full(trees.n_features, np.nan)
        fills[list(self._fills)] = list(self._fills.values())
        fill = fills[trees.feature]
        missing_left = np.where(np.isnan(fill), trees.missing_left, fill <= trees.threshold)
        return tables_from_scores(replace(trees, missing_left=missing_left), self._scores)


def tables_from_scores(trees: FlatTrees, scores: Mapping[int, NDArray]) -> FlatTrees:
    """Turn splits ``score <= threshold`` into tables of categories.

    `scores` has for every column with categories the numbers (L + 2,) of its categories, of
    unseen categories and of missing values. Where the last is NaN, missing values keep their way,
    and so do categories whose number is NaN.
    """
    if not scores:
        return trees
    table, missing_left = trees.table.copy(), trees.missing_left.copy()
    n_categories = trees.n_categories.copy()
    parts = [trees.categories_left]
    length = len(trees.categories_left)
    for j, score in scores.items():
        n_categories[j] = len(score) - 2
        for node in np.flatnonzero(trees.feature == j):
            left = np.where(np.isnan(score), missing_left[node], score <= trees.threshold[node])
            table[node] = length
            parts.append(left[:-1])
            length += len(left) - 1
            missing_left[node] = left[-1]
    return replace(
        trees,
        table=table,
        missing_left=missing_left,
        categories_left=np.concatenate(parts),
        n_categories=n_categories,
    )


def centred_targets(rows: TrainingRows, s: NDArray) -> NDArray:
    """Return targets (n, K), numbers or indicators of the classes, with weighted mean zero.

    Numbers also get variance one: scores are float32, in which targets of 1e-50 or 1e50 would be
    lost.
    """
    if rows.n_classes > 2:
        indicators = (rows.y[:, None] == np.unique(rows.y)).astype(float)
        return indicators - s @ indicators / s.sum()
    y = rows.y[:, None].astype(np.float64)
    mean, scale = mean_and_scale(y, s)
    return (y - mean) / scale


def _column_means(X: NDArray, s: NDArray, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the weighted means of some columns without their missing values; 0 if all are."""
    means = np.zeros(len(columns))
    step = max(1, _BLOCK // max(1, len(X)))  # of columns at a time
    for start in range(0, len(columns), step):
        block = np.ascontiguousarray(X[:, columns[start : start + step]].T)
        missing = np.isnan(block)
        means[start : start + step] = np.multiply(block, s, dtype=np.float64).sum(axis=1) / s.sum()
        for k in np.flatnonzero(missing.any(axis=1)).tolist():
            seen = ~missing[k]
            mean = np.average(block[k, seen], weights=s[seen]) if seen.any() else 0.0
            means[start + k] = mean
    return means


def _category_scores(
    column: NDArray, n_categories: int, targets: NDArray, s: NDArray
) -> NDArray[np.float64]:
    """Return the scores (L + 2,) of categories, rounded to float32, in which trees compare them."""
    codes, size = as_codes(column, n_categories), n_categories + 2
    counts = np.bincount(codes, s, minlength=size)
    sums = np.stack([np.bincount(codes, s * t, minlength=size) for t in targets.T], axis=1)
    means = sums / (counts + _PRIOR_ROWS)[:, None]
    if means.shape[1] == 1:
        scores = means[:, 0]
    else:
        spread = (means * counts[:, None]).T @ means
        scores = means @ np.linalg.eigh(spread)[1][:, -1]
    return scores.astype(np.float32).astype(float)
