"""Numbers in place of categories and missing values, and tables of categories from thresholds."""

import numpy as np
import pytest
from sklearn import ensemble

from jointleaf._data.columns import Columns
from jointleaf._trees.flat import NodeTable, flatten, tables_from_scores
from jointleaf._trees.importers.base import find_adapter
from jointleaf._trees.routing import Router
from jointleaf.partitions import (
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    LightGBMPartitioner,
    RandomForestPartitioner,
)
from jointleaf.partitions._base import check_fit_rows
from jointleaf.partitions._growers.base import Encoding

SKLEARN = [RandomForestPartitioner, ExtraTreesPartitioner, GradientBoostingPartitioner]


def table(n=600, n_categories=6, seed=0, missing=0.1):
    """Codes in column 1, numbers beside them; missing values in both."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.integers(0, n_categories, n), rng.normal(size=n)])
    y = np.cos(2.5 * X[:, 1]) + X[:, 0] * (X[:, 1] > 2) + 0.1 * rng.normal(size=n)
    X[rng.random(X.shape) < missing] = np.nan
    return X, y, Columns.read(np.where(np.isnan(X), 0, X), [1])


def training(X, y, columns, weight=None, target_type="regression"):
    return check_fit_rows(X, y, weight, target_type, columns)


def scores_of(rows, n_categories):
    """What becomes of categories, of an unseen one and of a missing one."""
    encoding = Encoding(rows, categories=True, missing=False)
    codes = np.array([*range(n_categories), n_categories, np.nan])
    X = np.zeros((len(codes), 3), rows.X.dtype)
    X[:, 1] = codes
    return encoding.transform(rows._replace(X=X, y=np.zeros(len(X)), weight=None)).X[:, 1]


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_shrunken_means(weighted):
    X, y, columns = table()
    s = np.random.default_rng(1).uniform(0.1, 3, len(y)) if weighted else np.ones(len(y))
    scores = scores_of(training(X, y, columns, s if weighted else None), 6)
    s = s / s.mean()
    mean = np.average(y, weights=s)
    z = (y - mean) / np.sqrt(np.average((y - mean) ** 2, weights=s))
    for k in range(6):
        mine = X[:, 1] == k
        assert scores[k] == pytest.approx(s[mine] @ z[mine] / (s[mine].sum() + 10), rel=1e-6)
    gone = np.isnan(X[:, 1])
    assert scores[6] == 0.0  # unseen: the overall mean
    assert scores[7] == pytest.approx(s[gone] @ z[gone] / (s[gone].sum() + 10), rel=1e-6)
    assert scores[7] != 0.0
    np.testing.assert_array_equal(scores, scores.astype(np.float32))


def test_scores_order_categories_by_mean_target_in_every_unit():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(7), 100)
    effect = rng.permutation(7)
    X = np.column_stack([codes, codes, codes]).astype(float)
    columns = Columns.read(X, [1])
    for scale, shift in ((1.0, 0.0), (1e-60, 0.0), (1e60, 0.0), (-1.0, 1e6)):
        y = effect[codes] * scale + shift
        scores = scores_of(training(X, y, columns), 7)
        order = np.argsort(np.sign(scale) * effect)
        assert (np.diff(scores[:7][order]) > 0).all()
        assert scores[7] == scores[8] == pytest.approx(0.0, abs=1e-6)  # neither was met
    labels = effect[codes] > 3
    scores = scores_of(training(X, labels, columns, target_type="classification"), 7)
    assert scores[:7][effect > 3].min() > scores[:7][effect <= 3].max()


def test_several_classes_are_ordered_along_their_principal_component():
    """Class shares on a line in the simplex: the component is that line."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(5), 1000)
    position = np.array([0.8, 0.1, 0.5, 0.3, 1.0])
    start, stop = np.array([0.7, 0.2, 0.1, 0.0]), np.array([0.1, 0.1, 0.3, 0.5])
    shares = start + position[:, None] * (stop - start)
    y = np.concatenate([np.repeat(np.arange(4), np.round(1000 * p).astype(int)) for p in shares])
    X = np.column_stack([rng.normal(size=5000), codes, codes])
    columns = Columns.read(X, [1])
    scores = scores_of(training(X, y * 2, columns, target_type="classification"), 5)
    assert abs(np.corrcoef(scores[:5], position)[0, 1]) == pytest.approx(1.0, abs=1e-6)
    step = np.linalg.norm(stop - start) * 1000 / 1010  # unit vectors: lengths stay
    assert np.ptp(scores[:5]) == pytest.approx(0.9 * step, rel=1e-5)
    # The mean of the 5 positions is where unseen categories are.
    line = np.polyfit(position, scores[:5], 1)
    assert np.polyval(line, position.mean()) == pytest.approx(scores[5], abs=1e-6)


@pytest.mark.parametrize("classes", [0, 2, 4])
def test_tables_route_codes_as_the_trees_route_scores(classes):
    X, y, columns = table(n=1500, n_categories=9)
    if classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    kind = "classification" if classes else "regression"
    rows = training(X, y, columns, target_type=kind)
    encoding = Encoding(rows, categories=True, missing=True)
    numbers = encoding.transform(rows)
    assert not np.isnan(numbers.X).any()
    assert numbers.columns.categorical.size == 0
    name = "RandomForestClassifier" if classes else "RandomForestRegressor"
    for n_leaves in (5, 40, 100):
        model = getattr(ensemble, name)(6, max_leaf_nodes=n_leaves, random_state=0)
        model.fit(numbers.X, numbers.y)
        trees = encoding.translate(find_adapter(model).trees(model, numbers.columns))
        new = np.vstack([table(n=1500, n_categories=12, seed=3)[0], np.full((1, 3), np.nan)])
        scored = encoding.transform(rows._replace(X=new, y=np.zeros(len(new)))).X
        codes, leaves = Router(trees)(new), model.apply(scored)
        for code, leaf in zip(codes.T, leaves.T, strict=True):
            pairs = np.unique(np.stack([code, leaf]), axis=1).shape[1]
            assert pairs == len(np.unique(code)) == len(np.unique(leaf))
    assert (trees.n_categories == [0, 9, 0]).all()
    assert (trees.table[trees.feature == 1] >= 0).all()
    assert (trees.table[trees.feature != 1] == -1).all()


def test_missing_values_get_the_weighted_mean_and_categories_can_stay():
    X, y, columns = table()
    s = np.random.default_rng(1).uniform(0.1, 3, len(y))
    rows = training(X, y, columns, s)
    filled = Encoding(rows, categories=False, missing=True).transform(rows)
    np.testing.assert_array_equal(filled.X[:, 1], X[:, 1])
    assert filled.columns is rows.columns
    for j in (0, 2):
        gone = np.isnan(X[:, j])
        expected = np.float32(np.average(X[~gone, j], weights=s[~gone]))
        np.testing.assert_array_equal(filled.X[gone, j], np.full(gone.sum(), expected))
        np.testing.assert_array_equal(filled.X[~gone, j], X[~gone, j])
    whole = training(np.nan_to_num(X), y, columns)
    assert Encoding(whole, categories=False, missing=True).transform(whole) is whole
    empty = training(np.column_stack([X[:, 0] * np.nan, X[:, 1:]]), y, columns)
    assert not Encoding(empty, categories=False, missing=True).transform(empty).X[:, 0].any()


def test_categories_without_a_number_go_the_way_of_missing_ones():
    for missing_left in (True, False):
        split = NodeTable([0, -1, -1], [0.5, 0, 0], [1, 0, 0], [2, 0, 0], [missing_left, 0, 0])
        X = np.array([[0.0], [1.0], [2.0], [3.0], [np.nan]])
        scores = np.array([0.2, np.nan, 0.7, np.nan, np.nan])
        trees = tables_from_scores(flatten([split], 1), {0: scores})
        other = int(not missing_left)
        np.testing.assert_array_equal(Router(trees)(X).ravel(), [0, other, 1, other, other])
        own = tables_from_scores(flatten([split], 1), {0: np.append(scores[:4], 0.1)})
        assert Router(own)(X)[-1, 0] == 0


@pytest.mark.parametrize("cls", [*SKLEARN, LightGBMPartitioner])
def test_partitioners_with_categories_and_missing_values(cls):
    """Categories with equal means stay together, others come apart, whatever their codes."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, 1200).astype(float)
    X = np.column_stack([rng.normal(size=1200), codes])
    columns = Columns.read(X, [1])
    y = np.isin(codes, [0, 2, 5]) * 5.0
    partitioner = cls(4, 2, random_state=0).fit(X, y, columns=columns)
    rows = np.column_stack([np.zeros(6), np.arange(6)])
    found = partitioner.apply(rows)
    on_categories = found[:, (found != found[0]).any(axis=0)]
    assert on_categories.shape[1] >= 1
    for p in range(on_categories.shape[1]):
        assert len(set(on_categories[[0, 2, 5], p])) == len(set(on_categories[[1, 3, 4], p])) == 1
    odd = partitioner.apply([[np.nan, np.nan], [np.nan, 6.0], [0.0, -4.0]])
    assert odd.shape == (3, 4)
    np.testing.assert_array_equal(partitioner.split_features_[-1:], [1])
    assert partitioner.split_gains_[1] > partitioner.split_gains_[0]


def test_missing_numbers_where_the_library_rejects_them():
    X, y, _ = table(missing=0.2)
    partitioner = GradientBoostingPartitioner(8, 6, random_state=0).fit(X, y)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0).astype(np.float32), X)
    np.testing.assert_array_equal(partitioner.apply(X), partitioner.apply(filled))
    same = GradientBoostingPartitioner(8, 6, random_state=0).fit(filled, y)
    np.testing.assert_array_equal(partitioner.apply(X), same.apply(filled))
