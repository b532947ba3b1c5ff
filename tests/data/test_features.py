"""Linear features: indicators with one scale, pooled categories; and missing values."""

import numpy as np
import pytest

from jointleaf._data.columns import Column, Columns
from jointleaf._data.features import Standardizer, mean_and_scale, plan_features
from jointleaf._data.rows import canonical_rows

NAN = np.nan


def columns_of(*categories, names="abcdefgh"):
    """Columns with so many categories each ("l0", "l1", ...), 0 for numbers."""
    return Columns(
        tuple(
            Column(name, np.array([f"l{k}" for k in range(n)]) if n else None)
            for name, n in zip(names, categories, strict=False)
        )
    )


def coded(*counts, missing=0):
    """One column (n, 1) with code k so many times."""
    codes = np.repeat(np.arange(len(counts), dtype=float), counts)
    return np.append(codes, np.full(missing, NAN))[:, None]


def transformed(X, columns, s=None, rows=None, **options):
    s = np.ones(len(X)) if s is None else s
    plan = plan_features(X, s, columns, **options)
    return plan, plan.fit(X, s).transform(X if rows is None else rows)


@pytest.fixture
def mixed():
    """A number and a category with missing values, a number without, and weights."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(3, 2, 60), rng.integers(0, 4, 60), rng.uniform(size=60)], axis=1)
    X[rng.random(60) < 0.2, 0] = NAN
    X[rng.random(60) < 0.2, 1] = NAN
    return X, columns_of(0, 4, 0), rng.integers(1, 4, 60).astype(float)


# -- indicators --------------------------------------------------------------------------------


def test_indicators_are_centred_and_share_one_scale():
    X = coded(50, 30, 20)
    plan, Z = transformed(X, columns_of(3))
    assert plan.names == ("a=l0", "a=l1", "a=l2")
    shares = np.array([0.5, 0.3, 0.2])
    scale = np.sqrt((shares * (1 - shares)).sum())
    np.testing.assert_allclose(Z, (np.eye(3)[X[:, 0].astype(int)] - shares) / scale, rtol=1e-12)
    np.testing.assert_allclose(Z.var(axis=0).sum(), 1)


def test_weights_count_in_the_shares():
    X = coded(2, 2, 2)
    s = np.array([1.0, 4.0, 2.0, 1.0, 1.0, 1.0])
    _, Z = transformed(X, columns_of(3), s)
    shares = np.array([0.5, 0.3, 0.2])
    scale = np.sqrt((shares * (1 - shares)).sum())
    np.testing.assert_allclose(Z, (np.eye(3)[X[:, 0].astype(int)] - shares) / scale, rtol=1e-12)
    np.testing.assert_allclose(np.average(Z**2, axis=0, weights=s).sum(), 1)


def test_every_column_with_categories_has_its_own_scale(mixed):
    X, _, s = mixed
    X = np.column_stack([X[:, 1], np.arange(60) % 3, X[:, 0]])
    plan, Z = transformed(X, columns_of(4, 3, 0), s)
    assert plan.names[0] == "c", "numbers come first"
    np.testing.assert_array_equal(plan.sources, [2] + [0] * 5 + [1] * 3)
    squares = np.average(Z**2, axis=0, weights=s)
    for j in (0, 1):
        np.testing.assert_allclose(squares[plan.sources == j].sum(), 1)


def test_two_categories_are_one_indicator_of_variance_one():
    plan, Z = transformed(coded(30, 70), columns_of(2))
    assert plan.names == ("a=l0",)
    np.testing.assert_allclose(np.unique(Z[:, 0]), np.array([-0.3, 0.7]) / np.sqrt(0.21))
    assert Z[0, 0] > 0


def test_a_category_and_missing_values_are_one_indicator():
    plan, Z = transformed(coded(30, missing=10), columns_of(1))
    assert plan.names == ("a=l0",)
    np.testing.assert_allclose(Z[:, 0], np.r_[[0.25] * 30, [-0.75] * 10] / np.sqrt(0.1875))


def test_one_category_needs_no_indicator():
    plan, Z = transformed(coded(30), columns_of(1), rows=np.array([[0.0], [1.0], [NAN]]))
    assert plan.names == ()
    assert Z.shape == (3, 0)


def test_missing_values_are_a_category():
    plan, Z = transformed(coded(30, 50, missing=20), columns_of(2))
    assert plan.names == ("a=l0", "a=l1", "a=missing")
    assert len(np.unique(Z, axis=0)) == 3
    np.testing.assert_allclose(Z.var(axis=0).sum(), 1)


def test_missing_values_that_training_did_not_have_count_as_the_mean():
    plan, Z = transformed(coded(30, 50, 20), columns_of(3), rows=np.array([[NAN], [0.0]]))
    assert "a=missing" not in plan.names
    np.testing.assert_array_equal(Z[0], 0)
    assert Z[1].all()


# -- rare and unseen categories ----------------------------------------------------------------


def test_categories_below_one_percent_are_pooled():
    plan, Z = transformed(coded(500, 488, 10, 2), columns_of(4))
    assert plan.names == ("a=l0", "a=l1", "a=l2", "a=other"), "1 % is not rare"
    shares = np.array([0.5, 0.488, 0.01, 0.002])
    np.testing.assert_allclose(
        Z[-1] - Z[0], np.array([-1, 0, 0, 1]) / np.sqrt((shares * (1 - shares)).sum())
    )


def test_rare_categories_share_one_indicator():
    plan, Z = transformed(coded(500, 490, 4, 6), columns_of(4))
    assert plan.names == ("a=l0", "a=l1", "a=other")
    np.testing.assert_array_equal(Z[995], Z[990])
    _, scaled = transformed(coded(500, 490, 10), columns_of(3))
    np.testing.assert_allclose(Z, scaled)


def test_rarity_is_a_matter_of_weight():
    s = np.r_[np.ones(99), 1e-3]
    X = coded(50, 49, 1)
    assert transformed(X, columns_of(3))[0].names[-1] == "a=l2"
    assert transformed(X, columns_of(3), s)[0].names[-1] == "a=other"


def test_rare_missing_values_are_pooled_too():
    plan, Z = transformed(coded(600, 395, missing=5), columns_of(2))
    assert plan.names == ("a=l0", "a=l1", "a=other")
    _, new = transformed(
        coded(600, 395, missing=5), columns_of(2), rows=np.array([[NAN], [2.0], [0.0]])
    )
    np.testing.assert_array_equal(new[:2], [Z[-1], Z[-1]])


def test_at_most_twenty_categories_have_their_own_indicator():
    counts = np.arange(30, 55)  # categories l0..l24, the later the more frequent
    plan, _ = transformed(coded(*counts), columns_of(25))
    assert plan.names == (*(f"a=l{k}" for k in range(5, 25)), "a=other")
    even, _ = transformed(coded(*[20] * 22), columns_of(22))
    assert even.names == (*(f"a=l{k}" for k in range(20)), "a=other"), "ties by their order"
    twenty, _ = transformed(coded(*[20] * 20), columns_of(20))
    assert len(twenty.names) == 20


def test_unseen_categories_are_other_ones():
    X = coded(500, 490, 4, 6)
    _, Z = transformed(X, columns_of(4), rows=np.array([[4.0], [77.0], [-1.0], [2.0]]))
    for row in Z[:3]:
        np.testing.assert_array_equal(row, Z[3])
    assert Z[3, 2] > 0


@pytest.mark.parametrize("counts", [(50, 30, 20), (50, 50), (700, 300)])
def test_unseen_categories_count_as_the_mean_where_nothing_is_pooled(counts):
    _, Z = transformed(coded(*counts), columns_of(len(counts)), rows=np.array([[9.0], [0.0]]))
    np.testing.assert_array_equal(Z[0], 0)
    assert Z[1].all()


def test_one_frequent_category_and_rare_ones():
    plan, Z = transformed(
        coded(995, 2, 3), columns_of(3), rows=np.array([[0.0], [1.0], [2.0], [3.0], [NAN]])
    )
    assert plan.names == ("a=l0",)
    assert Z[0, 0] > 0 > Z[1, 0] == Z[2, 0] == Z[3, 0], "unseen is other, as rare categories are"
    assert Z[4, 0] == 0


def test_categories_without_rows_are_like_unseen_ones():
    # They are known from a fitted model.
    rows = np.array([[3.0], [4.0]])
    _, Z = transformed(coded(30, 30, 40), columns_of(4), rows=rows)
    np.testing.assert_array_equal(Z, 0)
    _, pooled = transformed(
        coded(500, 490, 4), columns_of(4), rows=np.append(rows, [[2.0]], axis=0)
    )
    np.testing.assert_array_equal(pooled, pooled[[2, 2, 2]])
    assert pooled[0, 2] > 0


# -- numbers and missing values ----------------------------------------------------------------


def test_numbers_are_standardized_over_what_is_there(mixed):
    X, columns, s = mixed
    plan, Z = transformed(X, columns, s)
    assert plan.names == ("a", "c", "b=l0", "b=l1", "b=l2", "b=l3", "b=missing")
    np.testing.assert_array_equal(plan.sources, [0, 2, 1, 1, 1, 1, 1])
    there = ~np.isnan(X[:, 0])
    mean = np.average(X[there, 0], weights=s[there])
    spread = np.sqrt(np.average((X[there, 0] - mean) ** 2, weights=s[there]))
    np.testing.assert_allclose(Z[there, 0], (X[there, 0] - mean) / spread)
    np.testing.assert_array_equal(Z[~there, 0], 0)
    assert np.isfinite(Z).all()


def test_indicators_of_missing_values(mixed):
    X, columns, s = mixed
    plan, Z = transformed(X, columns, s, missing_indicators=True)
    assert plan.names[-1] == "a is missing", "only numbers with missing values have one"
    assert len(plan.names) == 8
    assert plan.sources[-1] == 0
    gone = np.isnan(X[:, 0])
    share = np.average(gone, weights=s)
    np.testing.assert_allclose(Z[:, -1], (gone - share) / np.sqrt(share * (1 - share)))
    without = transformed(X, columns, s)[1]
    np.testing.assert_array_equal(Z[:, :-1], without)


def test_missing_values_that_training_did_not_have_need_no_indicator():
    X = np.arange(12.0).reshape(6, 2)
    plan, Z = transformed(X, columns_of(0, 0), missing_indicators=True, rows=X + np.array([0, NAN]))
    assert plan.names == ("a", "b")
    np.testing.assert_array_equal(Z[:, 1], 0)


def test_chosen_columns(mixed):
    X, columns, s = mixed
    plan, Z = transformed(X, columns, s, chosen=np.array([2, 0]))
    full = transformed(X, columns, s)[1]
    assert plan.names == ("a", "c")
    # Means are matrix products, which round differently in matrices of different widths.
    np.testing.assert_allclose(Z, full[:, :2], rtol=1e-14)
    plan, Z = transformed(X, columns, s, chosen=np.array([1]), missing_indicators=True)
    np.testing.assert_array_equal(plan.sources, 1)
    np.testing.assert_allclose(Z, full[:, 2:], rtol=1e-14)


def test_numbers_alone_pass_through():
    X = np.random.default_rng(0).normal(size=(20, 3))
    s = np.ones(20)
    plan = plan_features(X, s, Columns.numbers(3))
    assert plan.raw(X) is X
    expected = Standardizer.fit(X, s).transform(X)
    np.testing.assert_array_equal(plan.fit(X, s).transform(X), expected)


def test_only_numbers_are_clipped_to_their_range(mixed):
    X, columns, s = mixed
    plan = plan_features(X, s, columns)
    far = X.copy()
    far[:, 2] += 100
    edge = X.copy()
    edge[:, 2] = X[:, 2].max()
    np.testing.assert_array_equal(plan.fit(X, s).transform(far), plan.fit(X, s).transform(edge))
    free = plan.fit(X, s, clip=False)
    np.testing.assert_allclose(
        (free.transform(far) - free.transform(X))[:, 1], 100 / free.scaler.scale[1]
    )


@pytest.mark.parametrize("missing_indicators", [False, True])
def test_weight_two_is_the_row_twice(mixed, missing_indicators):
    X, columns, s = mixed
    copies = s.astype(int)
    twice = np.repeat(X, copies, axis=0)
    one, Z = transformed(X, columns, s, missing_indicators=missing_indicators)
    other, repeated = transformed(twice, columns, missing_indicators=missing_indicators)
    assert one.names == other.names
    np.testing.assert_allclose(np.repeat(Z, copies, axis=0), repeated, atol=1e-13)


def test_float32_is_kept(mixed):
    X, columns, s = mixed
    _, Z = transformed(X, columns, s, missing_indicators=True)
    _, single = transformed(X.astype(np.float32), columns, s, missing_indicators=True)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, Z, atol=1e-5)


def test_rows_are_not_changed(mixed):
    X, columns, s = mixed
    kept = X.copy()
    transformed(X, columns, s, missing_indicators=True)
    transformed(X[:, [0, 2]], columns_of(0, 0), s)
    np.testing.assert_array_equal(X, kept)


def test_a_fold_without_some_category_has_finite_features(mixed):
    X, columns, s = mixed
    plan = plan_features(X, s, columns, missing_indicators=True)
    part = (X[:, 1] != 2) & ~np.isnan(X[:, 0])
    fold = plan.fit(X[part], s[part])
    Z = fold.transform(X)
    assert np.isfinite(Z).all()
    inside = np.average(fold.transform(X[part]) ** 2, axis=0, weights=s[part])
    np.testing.assert_allclose(inside[plan.sources == 1].sum(), 1)
    np.testing.assert_array_equal(Z[:, plan.names.index("a is missing")], 0)
    np.testing.assert_array_equal(Z[:, plan.names.index("b=l2")], 0)


def test_a_fold_with_one_category_only():
    X = coded(5, 5, 5)
    plan = plan_features(X, np.ones(15), columns_of(3))
    np.testing.assert_array_equal(plan.fit(X[:5], np.ones(5)).transform(X), 0)


# -- moments with missing values ---------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_moments_leave_missing_values_out(unit):
    rng = np.random.default_rng(1)
    X = rng.normal([0, 5, -1], [1, 2, 0.1], (80, 3))
    X[rng.random((80, 3)) < 0.3] = NAN
    s = rng.uniform(0.1, 3, 80)
    mean, scale = mean_and_scale(unit * X, s)
    for j, column in enumerate(X.T):
        there = ~np.isnan(column)
        expected = np.average(column[there], weights=s[there])
        variance = np.average((column[there] - expected) ** 2, weights=s[there])
        assert mean[j] / unit == pytest.approx(expected, rel=1e-10)
        assert scale[j] / unit == pytest.approx(np.sqrt(variance), rel=1e-10)


def test_columns_without_missing_values_do_not_notice_those_of_others():
    X = np.random.default_rng(2).normal(size=(30, 2))
    s = np.linspace(1, 2, 30)
    expected = mean_and_scale(X, s)
    X[4, 1] = NAN
    for found, full in zip(mean_and_scale(X, s), expected, strict=True):
        assert found[0] == pytest.approx(full[0], rel=1e-14)
        assert found[1] != full[1]


def test_constant_and_empty_columns_with_missing_values():
    X = np.array([[7.0, NAN], [NAN, NAN], [7.0, NAN]])
    mean, scale = mean_and_scale(X, np.ones(3))
    np.testing.assert_array_equal(mean, [7, 0])
    np.testing.assert_array_equal(scale, [1, 1])
    np.testing.assert_array_equal(Standardizer.fit(X, np.ones(3)).transform(X), 0)


def test_clipping_leaves_missing_values_alone():
    X = np.array([[0.0], [2.0], [NAN]])
    Z = Standardizer.fit(X, np.ones(3)).transform(np.array([[NAN], [9.0], [1.0]]))
    np.testing.assert_allclose(Z[:, 0], [0, 1, 0])


# -- canonical rows with missing values --------------------------------------------------------


def test_equal_rows_with_missing_values_are_merged():
    X = np.array([[NAN, 1.0], [NAN, 1.0], [NAN, 2.0], [1.0, NAN], [1.0, NAN], [NAN, NAN]])
    merged = canonical_rows(X, np.zeros(6), np.arange(1.0, 7.0))
    assert sorted(merged.s) == [3, 3, 6, 9]
    by_weight = merged.X[np.argsort(merged.s, kind="stable")]
    np.testing.assert_array_equal(by_weight[2:], [[NAN, NAN], [1, NAN]])


def test_every_nan_is_the_same():
    other = np.array([0xFFF8000000000123], np.uint64).view(float)[0]
    assert np.isnan(other)
    merged = canonical_rows(np.array([[NAN], [-NAN], [other]]), np.zeros(3), np.ones(3))
    np.testing.assert_array_equal(merged.s, [3])


def test_a_missing_value_is_no_number():
    merged = canonical_rows(np.array([[NAN], [0.0], [1.0]]), np.zeros(3), np.ones(3))
    assert len(merged) == 3


def test_the_order_with_missing_values_does_not_depend_on_that_of_rows(mixed):
    X, _, s = mixed
    y = np.arange(60.0) % 7
    one = canonical_rows(X, y, s)
    order = np.random.default_rng(0).permutation(60)
    other = canonical_rows(X[order], y[order], s[order])
    for name in ("X", "y", "s"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
