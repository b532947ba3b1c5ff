"""Target statistics of columns with many categories: numbers that stand for the categories.

A tree that may divide thousands of categories as it likes finds groups that fit the training rows
alone, and a linear model has no indicator for a rare category. Columns with many categories are
therefore replaced by what is known of their categories: the mean of the target, pulled towards the
overall mean where rows are few, and the number of rows. Pairs of such columns whose categories act
together get a mean as well.

**Smoothing.** With n_c rows of weight in category c, their mean t_c and the overall mean t,

    mean_c = (n_c t_c + m t) / (n_c + m),    m = sigma^2 / tau^2,

is the posterior mean of the category if its true mean has variance tau^2 and the target within
categories variance sigma^2. The ratio m of every column is the most likely one for normal
distributions (empirical Bayes). Where categories tell nothing, m is infinite, and so all means are
equal. For classes the mean is a frequency, and its log-odds are used, in which effects add up.

**Honesty.** The mean of a category contains the targets of its rows. Training rows are therefore
dealt out to five parts, and get the means of the other four (cross-fitting): no row sees its own
target. New rows get the means of all training rows. In cross-validation both is done anew with the
training part of every split, so that nothing is known of the validation rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from jointleaf._data.columns import Columns, as_codes
from jointleaf._data.rows import Rows, deal_rows

MANY_CATEGORIES = 50  # from which a column is replaced
_MOST_CLASSES = 10  # that have a mean, the most frequent ones
_PARTS = 5  # of the training rows, for cross-fitting
_SMOOTHING = np.append(np.inf, np.geomspace(1e4, 0.1, 41))  # that is tried, in rows
_PAIR_ROWS = 50_000  # on which pairs are chosen
_PAIR_COLUMNS, _MOST_PAIRS = 12, 8  # that pairs are made of, and that are used
_SURE = 1e-9  # frequencies are at least that far from 0 and 1
_TINY = np.finfo(float).tiny
_CLEARLY = 8.0  # gain in log-likelihood from which a pair acts: chance finds 5 once in 1,500 pairs


@dataclass(frozen=True)
class CategoryTable:
    """Numbers for the categories of a column, or for the pairs of categories of two."""

    columns: tuple[int, ...]
    n_codes: tuple[int, ...]  # of each column: its categories, unseen ones and missing values
    names: tuple[str, ...]  # of the r statistics
    keys: NDArray[np.int64]  # (k,), codes, or numbers of pairs of codes, of training rows, rising
    values: NDArray[np.float64]  # (k + 1, r), of these, and of all others

    @property
    def replaces_codes(self) -> bool:
        """Whether the first statistic is in place of the codes."""
        return len(self.columns) == 1

    def __call__(self, coded: NDArray) -> NDArray[np.float64]:
        """Return the statistics (n, r) of rows (n, d) with codes."""
        key = _keys(coded, self.columns, self.n_codes)
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return self.values[np.where(self.keys[place] == key, place, len(self.keys))]


@dataclass(frozen=True)
class CategoryStatistics:
    """Tables of all columns with many categories, and of pairs of them.

    The matrix of rows has the first statistic of such a column in place of its codes; all further
    statistics are columns behind the d given ones.
    """

    n_columns: int  # d
    classes: tuple[float, ...]  # class numbers that have a mean; none for regression
    tables: tuple[CategoryTable, ...]  # first those of single columns, in rising order

    @property
    def replaced(self) -> list[int]:
        """Columns that have statistics in place of their codes, in rising order."""
        return [table.columns[0] for table in self.tables if table.replaces_codes]

    @property
    def names(self) -> dict[int, str]:
        """Names of statistics by column of the matrix."""
        names, behind = {}, self.n_columns
        for table in self.tables:
            for r, name in enumerate(table.names):
                if r == 0 and table.replaces_codes:
                    names[table.columns[0]] = name
                else:
                    names[behind] = name
                    behind += 1
        return names

    @property
    def sources(self) -> list[tuple[int, ...]]:
        """The given columns that every column of the matrix comes from."""
        sources: list[tuple[int, ...]] = [(j,) for j in range(self.n_columns)]
        for table in self.tables:
            sources += [table.columns] * (len(table.names) - table.replaces_codes)
        return sources

    def matrix(self, coded: NDArray) -> NDArray:
        """Return the matrix of new rows (n, d) with codes."""
        return self._placed(coded, [table(coded) for table in self.tables])

    def codes(self, coded: NDArray) -> NDArray[np.float64]:
        """Return the codes (n, h) of the columns that are replaced."""
        return coded[:, self.replaced].astype(np.float64)

    def coded(self, rows: Rows) -> NDArray:
        """Return rows (n, d) with codes again."""
        coded = rows.X[:, : self.n_columns].copy()
        coded[:, self.replaced] = rows.codes
        return coded

    def fit(self, rows: Rows) -> tuple[CategoryStatistics, Rows]:
        """Learn the tables anew from training rows with codes; return the rows, cross-fitted."""
        parts = deal_rows(rows, _PARTS, by_class=bool(self.classes))
        tables, values = [], []
        for table in self.tables:
            fitted, cross_fitted = _fit_table(table, self.classes, rows.per_unit, parts)
            tables.append(fitted)
            values.append(cross_fitted)
        X = self._placed(rows.X, values)
        fitted_rows = replace(rows, X=X, codes=self.codes(rows.X))
        return replace(self, tables=tuple(tables)), fitted_rows

    def split(self, train: Rows, valid: Rows) -> tuple[Rows, Rows]:
        """Return training and validation rows with the statistics of the training rows alone."""
        fitted, fitted_train = self.fit(replace(train, X=self.coded(train)))
        return fitted_train, replace(valid, X=fitted.matrix(self.coded(valid)))

    def _placed(self, coded: NDArray, values: Sequence[NDArray]) -> NDArray:
        """Return the matrix with the values (n, r) of all tables in their places."""
        matrix, behind = coded.copy(), []
        for table, of_table in zip(self.tables, values, strict=True):
            if table.replaces_codes:
                matrix[:, table.columns[0]] = of_table[:, 0]
                of_table = of_table[:, 1:]
            behind.append(of_table)
        return np.concatenate([matrix, *behind], axis=1, dtype=coded.dtype)


def learn_statistics(
    rows: Rows, columns: Columns, is_regression: bool, chosen: NDArray | None = None
) -> tuple[CategoryStatistics, Rows] | None:
    """Learn the statistics of training rows with codes; None where no column has many categories.

    Which pairs have a table is decided once, on all rows; `chosen` are columns that may be
    replaced, all by default. The rows that are returned have cross-fitted statistics.
    """
    many = np.flatnonzero(columns.n_categories > MANY_CATEGORIES)
    if chosen is not None:
        many = np.intersect1d(many, chosen)
    if not many.size:
        return None
    classes = () if is_regression else _frequent_classes(rows)
    tables = [_empty_table((j,), columns, classes) for j in many.tolist()]
    if len(classes) < 2:
        sample = rows.take(slice(_PAIR_ROWS)).per_unit
        pairs = _find_pairs(sample, many.tolist(), columns, _targets(sample.y, classes)[:, 0])
        tables += [_empty_table(pair, columns, classes) for pair in pairs]
    return CategoryStatistics(len(columns), classes, tuple(tables)).fit(rows)


def _frequent_classes(rows: Rows) -> tuple[float, ...]:
    """Return the classes that have a mean: the second of two, else the most frequent ones."""
    classes, numbers = np.unique(rows.y, return_inverse=True)
    if len(classes) == 2:
        return (float(classes[1]),)
    frequent = np.argsort(-np.bincount(numbers, rows.s), kind="stable")[:_MOST_CLASSES]
    return tuple(classes[np.sort(frequent)].tolist())


def _empty_table(
    pair: tuple[int, ...], columns: Columns, classes: tuple[float, ...]
) -> CategoryTable:
    label = " & ".join(columns[j].label for j in pair)
    names = [f"{label}: target mean"]
    if len(classes) > 1:
        names = [f"{label}: frequency of class {number:.0f}" for number in classes]
    if len(pair) == 1:
        names.append(f"{label}: count")
    n_codes = tuple(int(columns.n_categories[j]) + 2 for j in pair)
    nothing = np.zeros((1, len(names)))
    return CategoryTable(pair, n_codes, tuple(names), np.zeros(0, np.int64), nothing)


def _keys(coded: NDArray, columns: Sequence[int], n_codes: Sequence[int]) -> NDArray[np.int64]:
    """Return one number for the code of a column, or for the codes of two."""
    key = np.zeros(len(coded), np.int64)
    for j, size in zip(columns, n_codes, strict=True):
        key = key * size + as_codes(coded[:, j], size - 2)
    return key


def _targets(y: NDArray, classes: tuple[float, ...]) -> NDArray[np.float64]:
    """Return what means are of, (n, K): the target, or indicators of classes."""
    return (y[:, None] == np.array(classes)).astype(float) if classes else y[:, None]


# -- means of categories ---------------------------------------------------------------------------


def _fit_table(
    table: CategoryTable, classes: tuple[float, ...], rows: Rows, parts: NDArray
) -> tuple[CategoryTable, NDArray[np.float64]]:
    """Return the table of training rows with codes, and their cross-fitted statistics (n, r)."""
    keys, place = np.unique(_keys(rows.X, table.columns, table.n_codes), return_inverse=True)
    weights = rows.s / rows.s.mean()
    targets = _targets(rows.y, classes)
    priors = weights @ targets / len(rows)
    n_parts = int(parts.max()) + 1
    # Sums of every part, with one more category for keys that no row has.
    index, size = place + parts * (len(keys) + 1), (len(keys) + 1) * n_parts
    counts = np.bincount(index, weights, size).reshape(n_parts, -1)
    values = np.empty((len(keys) + 1, len(table.names)))
    cross_fitted = np.empty((len(rows), len(table.names)))
    for k, (target, prior) in enumerate(zip(targets.T, priors, strict=True)):
        sums = np.bincount(index, weights * (target - prior), size).reshape(n_parts, -1)
        m = _Groups.of(place, target - prior, weights, len(keys)).smoothing()[0]
        means = prior + _shrunken(sums.sum(axis=0), counts.sum(axis=0), m)
        of_others = prior + _shrunken(sums.sum(axis=0) - sums, counts.sum(axis=0) - counts, m)
        values[:, k] = _log_odds(means) if classes else means
        cross_fitted[:, k] = (_log_odds(of_others) if classes else of_others)[parts, place]
    if table.replaces_codes:
        part_weights = counts.sum(axis=1)
        fraction = 1 - part_weights / part_weights.sum() if n_parts > 1 else np.ones(1)
        values[:, -1] = np.log1p(counts.sum(axis=0))
        of_others = np.maximum(counts.sum(axis=0) - counts, 0.0) / fraction[:, None]
        cross_fitted[:, -1] = np.log1p(of_others)[parts, place]
    return replace(table, keys=keys, values=values), cross_fitted


def _shrunken(sums: NDArray, counts: NDArray, m: float) -> NDArray[np.float64]:
    """Return the means of groups, pulled towards zero by m rows; zero without rows."""
    has_mean = (counts > 0) & np.isfinite(m)
    return np.divide(sums, counts + m, out=np.zeros_like(sums), where=has_mean)


def _log_odds(frequency: NDArray) -> NDArray[np.float64]:
    return logit(np.clip(frequency, _SURE, 1 - _SURE))


@dataclass(frozen=True)
class _Groups:
    """Counts and sums (L,) of the groups of n rows, and the sum of squares inside them."""

    n_rows: int
    counts: NDArray[np.float64]
    sums: NDArray[np.float64]
    inside: float

    @classmethod
    def of(cls, place: NDArray, values: NDArray, weights: NDArray, n_groups: int) -> _Groups:
        """Return the groups of rows with values (n,) of mean zero and weights (n,) of mean one."""
        counts = np.bincount(place, weights, n_groups).astype(float)
        sums = np.bincount(place, weights * values, n_groups).astype(float)
        means = _shrunken(sums, counts, 0.0)
        inside = float(weights @ np.square(values - means[place]))
        return cls(len(place), counts, sums, inside)

    def smoothing(self) -> tuple[float, float]:
        """Return the most likely m, and the log-likelihood that it gains over equal means.

        With the variance sigma^2 that is most likely for every m, this is twice

            -n log(inside + sum_c n_c mean_c^2 / r_c) - sum_c log r_c,    r_c = 1 + n_c / m.
        """
        has_rows = self.counts > 0
        counts, squares = self.counts[has_rows], (self.sums**2)[has_rows] / self.counts[has_rows]
        if not self.inside + squares.sum() > 0:
            return np.inf, 0.0
        likelihood = []
        for m in _SMOOTHING:
            ratio = 1 + counts / m
            variance = max(self.inside + (squares / ratio).sum(), _TINY)
            likelihood.append(-0.5 * (self.n_rows * np.log(variance) + np.log(ratio).sum()))
        best = int(np.argmax(likelihood))
        return float(_SMOOTHING[best]), float(likelihood[best] - likelihood[0])

    def shrunken(self) -> tuple[NDArray[np.float64], float]:
        """Return smoothed means (L,), and the variance that they explain."""
        means = _shrunken(self.sums, self.counts, self.smoothing()[0])
        return means, float(self.counts @ np.square(means) / self.n_rows)


def _find_pairs(
    rows: Rows, many: Sequence[int], columns: Columns, target: NDArray
) -> list[tuple[int, int]]:
    """Return the pairs of columns whose categories act together, the strongest first.

    From the target the smoothed means of all columns are taken, one after the other. A pair acts
    where groups of equal means are clearly less likely for what is left.
    """
    weights = rows.s / rows.s.mean()
    sizes = columns.n_categories + 2
    codes = {j: as_codes(rows.X[:, j], int(sizes[j]) - 2) for j in many}
    rest = target - weights @ target / len(rows)
    explained: dict[int, float] = {}
    effects = {j: np.zeros(len(rows)) for j in many}
    for _ in range(3):  # backfitting
        for j in many:
            partial = rest + effects[j]
            groups = _Groups.of(codes[j], partial, weights, int(sizes[j]))
            means, explained[j] = groups.shrunken()
            effects[j] = means[codes[j]]
            rest = partial - effects[j]
    strongest = sorted(sorted(many, key=lambda j: -explained[j])[:_PAIR_COLUMNS])
    gains = {}
    for pair in combinations(strongest, 2):
        keys = _keys(rows.X, pair, [int(sizes[j]) for j in pair])
        place = np.unique(keys, return_inverse=True)[1]
        groups = _Groups.of(place, rest, weights, int(place.max()) + 1)
        if groups.smoothing()[1] > _CLEARLY:
            gains[pair] = groups.shrunken()[1]
    return sorted(gains, key=lambda pair: -gains[pair])[:_MOST_PAIRS]
