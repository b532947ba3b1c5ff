"""Target statistics against numbers computed by hand and against simple loops."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit

from jointleaf._data.columns import Column, Columns
from jointleaf._data.rows import Rows, deal_rows
from jointleaf._data.statistics import _SMOOTHING, learn_statistics


def make_rows(X, y, s=None):
    y = np.asarray(y, float)
    s = np.ones(len(y)) if s is None else np.asarray(s, float)
    return Rows(np.asarray(X, float), y, s, np.zeros((len(y), 0), np.int64))


def columns_of(*n_categories):
    names = [np.array([f"v{k:04d}" for k in range(n)]) if n else None for n in n_categories]
    return Columns(tuple(Column(f"c{j}", categories) for j, categories in enumerate(names)))


def effects_of_categories(n=3000, n_categories=80, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_categories, n)
    effects = rng.standard_normal(n_categories)
    y = effects[codes] + noise * rng.standard_normal(n)
    return np.stack([codes, rng.standard_normal(n)], axis=1), y, effects


def most_likely_smoothing(codes, y, s):
    """The m whose covariance matrix of all rows makes the targets most likely, by brute force."""
    values = y - np.average(y, weights=s)
    equal = codes[:, None] == codes
    log_likelihoods = []
    for m in _SMOOTHING:
        covariance = np.diag(1 / s) + equal / m  # in units of sigma^2
        quadratic = values @ np.linalg.solve(covariance, values)
        determinant = np.linalg.slogdet(covariance)[1]
        log_likelihoods.append(-0.5 * (len(y) * np.log(quadratic) + determinant))
    return _SMOOTHING[int(np.argmax(log_likelihoods))]


@pytest.mark.parametrize("weighted", [False, True])
def test_means_are_those_of_the_most_likely_smoothing(weighted):
    X, y, _ = effects_of_categories(400, 60)
    s = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted else np.ones(len(y))
    s /= s.mean()
    statistics, _ = learn_statistics(make_rows(X, y, s), columns_of(60, 0), True)
    m, mean = most_likely_smoothing(X[:, 0], y, s), np.average(y, weights=s)
    assert 0.1 < m < 100
    new_rows = np.array([[0.0, 1.0], [7.0, 1.0], [60.0, 1.0], [np.nan, 1.0]])
    matrix = statistics.matrix(new_rows)
    for row, code in enumerate((0, 7)):
        of_code = X[:, 0] == code
        count, total = s[of_code].sum(), s[of_code] @ y[of_code]
        np.testing.assert_allclose(matrix[row, 0], (total + m * mean) / (count + m))
        np.testing.assert_allclose(matrix[row, 2], np.log1p(count))
    np.testing.assert_allclose(matrix[2:, 0], mean)  # unseen, and missing in no training row
    np.testing.assert_allclose(matrix[:, 1], 1.0)
    np.testing.assert_array_equal(matrix[2:, 2], 0.0)


def test_cross_fitted_means_leave_out_the_part_of_the_row():
    X, y, _ = effects_of_categories(600, 60)
    rows = make_rows(X, y)
    _, fitted = learn_statistics(rows, columns_of(60, 0), True)
    parts, m = deal_rows(rows, 5, by_class=False), most_likely_smoothing(X[:, 0], y, rows.s)
    for i in range(0, 600, 50):
        others = (parts != parts[i]) & (X[:, 0] == X[i, 0])
        expected = (y[others].sum() + m * y.mean()) / (others.sum() + m)
        np.testing.assert_allclose(fitted.X[i, 0], expected)
        np.testing.assert_allclose(fitted.X[i, 2], np.log1p(others.sum() * 5 / 4))


def test_no_training_row_sees_its_own_target():
    X, y, _ = effects_of_categories(600, 60)
    statistics, before = learn_statistics(make_rows(X, y), columns_of(60, 0), True)
    # The same smoothing and prior: the target moves to another row of another category.
    other = int(np.flatnonzero(X[:, 0] != X[0, 0])[0])
    changed = y.copy()
    changed[[0, other]] = changed[[other, 0]]
    _, after = statistics.fit(make_rows(X, changed))
    moved = np.abs(before.X[:, 0] - after.X[:, 0])
    same_category = X[:, 0] == X[0, 0]
    parts = deal_rows(make_rows(X, y), 5, by_class=False)
    seen = moved[same_category & (parts != parts[0])].min()
    assert moved[0] < 0.2 * seen  # only by way of the smoothing


def test_frequencies_of_classes_are_log_odds():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 60, 2000)
    y = np.where(rng.random(2000) < np.linspace(0.1, 0.9, 60)[codes], 1.0, -1.0)
    statistics, _ = learn_statistics(make_rows(codes[:, None], y), columns_of(60), False)
    values = statistics.matrix(np.arange(60.0)[:, None])[:, 0]
    assert np.corrcoef(values, logit(np.linspace(0.1, 0.9, 60)))[0, 1] > 0.9
    unseen = statistics.matrix(np.array([[60.0]]))[0, 0]
    np.testing.assert_allclose(unseen, logit((y > 0).mean()))


def test_several_classes_have_a_frequency_each():
    rng = np.random.default_rng(0)
    codes, y = rng.integers(0, 60, 1000), rng.integers(0, 12, 1000).astype(float)
    statistics, fitted = learn_statistics(make_rows(codes[:, None], y), columns_of(60), False)
    assert fitted.X.shape == (1000, 11)  # ten classes and the count
    assert len(statistics.classes) == 10
    assert statistics.sources == [(0,)] * 11


def test_noise_has_one_value():
    """A category that tells nothing has no statistic that could be fitted to."""
    rng = np.random.default_rng(0)
    for codes in (rng.integers(0, 500, 2000), np.arange(2000)):
        y = rng.standard_normal(2000)
        _, fitted = learn_statistics(make_rows(codes[:, None], y), columns_of(2000), True)
        assert np.ptp(fitted.X[:, 0]) < 0.05


def test_missing_values_are_a_category():
    X, y, _ = effects_of_categories()
    is_missing = np.random.default_rng(1).random(len(y)) < 0.2
    X[is_missing, 0] = np.nan
    y[is_missing] += 5.0
    statistics, _ = learn_statistics(make_rows(X, y), columns_of(80, 0), True)
    of_missing = statistics.matrix(np.array([[np.nan, 0.0]]))[0, 0]
    assert abs(of_missing - y[is_missing].mean()) < 0.1


def test_splits_learn_from_their_training_rows_alone():
    X, y, _ = effects_of_categories()
    statistics, fitted = learn_statistics(make_rows(X, y), columns_of(80, 0), True)
    is_valid = np.arange(len(y)) % 4 == 0
    train, valid = statistics.split(fitted.take(~is_valid), fitted.take(is_valid))
    alone, train_alone = statistics.fit(make_rows(X[~is_valid], y[~is_valid]))
    np.testing.assert_array_equal(train.X, train_alone.X)
    np.testing.assert_array_equal(valid.X, alone.matrix(X[is_valid]))
    # What the targets of validation rows are makes no difference.
    other = replace(fitted.take(is_valid), y=-y[is_valid])
    np.testing.assert_array_equal(statistics.split(fitted.take(~is_valid), other)[1].X, valid.X)


def test_scale_of_weights_makes_no_difference():
    X, y, _ = effects_of_categories()
    s = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    (_, first), (_, second) = (
        learn_statistics(make_rows(X, y, factor * s), columns_of(80, 0), True)
        for factor in (1.0, 1000.0)
    )
    np.testing.assert_allclose(first.X, second.X, rtol=1e-12)


def pair_rows(with_pair, n=6000):
    rng = np.random.default_rng(3)
    X = rng.integers(0, 60, (n, 3)).astype(float)
    y = rng.standard_normal(60)[X[:, 0].astype(int)] + rng.standard_normal(n)
    if with_pair:
        y += rng.standard_normal((60, 60))[X[:, 1].astype(int), X[:, 2].astype(int)]
    return X, y


def test_pairs_that_act_together_have_a_mean():
    X, y = pair_rows(with_pair=True)
    statistics, fitted = learn_statistics(make_rows(X, y), columns_of(60, 60, 60), True)
    assert [table.columns for table in statistics.tables] == [(0,), (1,), (2,), (1, 2)]
    assert fitted.X.shape[1] == 7
    assert statistics.names[6] == "c1 & c2: target mean"
    columns = replace(columns_of(60, 60, 60), statistics=statistics)
    np.testing.assert_array_equal(columns.credited(np.arange(7.0)), [0 + 3, 1 + 4 + 3, 2 + 5 + 3])


def test_pairs_that_do_not_have_none():
    X, y = pair_rows(with_pair=False)
    statistics, _ = learn_statistics(make_rows(X, y), columns_of(60, 60, 60), True)
    assert [table.columns for table in statistics.tables] == [(0,), (1,), (2,)]


def test_few_categories_have_no_statistics():
    X, y, _ = effects_of_categories(500, 9)
    assert learn_statistics(make_rows(X, y), columns_of(9, 0), True) is None
    many = columns_of(200, 0)
    assert learn_statistics(make_rows(X, y), many, True, np.array([1])) is None
