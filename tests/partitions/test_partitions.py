"""Every partitioner: its cells, its determinism, what it rejects."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from jointleaf.partitions import (
    NO_CELL,
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    LightGBMPartitioner,
    RandomForestPartitioner,
    RootCell,
    VoronoiPartitioner,
)
from jointleaf.partitions._growers.base import TreePartitioner

TREES = [
    LightGBMPartitioner,
    GradientBoostingPartitioner,
    RandomForestPartitioner,
    ExtraTreesPartitioner,
]
ALL = [*TREES, VoronoiPartitioner]


def native_leaves(model, X):
    """Leaf ids from the library's own public call, (n, P)."""
    if type(model).__name__ == "Booster":
        return model.predict(X, pred_leaf=True).reshape(len(X), -1)
    return model.apply(X).reshape(len(X), -1).astype(int)


def assert_same_cells(codes, leaves, new_codes=None, new_leaves=None):
    """Codes are leaf ids in other words, 0, 1, ...; unmet ids, and only those, are NO_CELL."""
    assert codes.dtype == np.int32
    assert codes.shape == leaves.shape
    for p in range(codes.shape[1]):
        words = dict(zip(leaves[:, p], codes[:, p], strict=True))
        assert sorted(words.values()) == list(range(len(words)))
        np.testing.assert_array_equal(codes[:, p], [words[leaf] for leaf in leaves[:, p]])
        if new_codes is not None:
            expected = [words.get(leaf, NO_CELL) for leaf in new_leaves[:, p]]
            np.testing.assert_array_equal(new_codes[:, p], expected)


@pytest.fixture
def grown(monkeypatch):
    """Models that partitioners grow from here on; they do not keep them."""
    models = []
    grow_trees = TreePartitioner._grow_trees

    def keep(self, rows):
        grow = self._grow
        self._grow = lambda rows: models.append(grow(rows)) or models[-1]
        try:
            return grow_trees(self, rows)
        finally:
            del self._grow

    monkeypatch.setattr(TreePartitioner, "_grow_trees", keep)
    return models


def small(cls, **kwargs):
    return cls(n_partitions=12, n_cells=5, random_state=0, **kwargs)


# ------------------------------------------------------------------ trees


@pytest.mark.parametrize("cls", TREES)
def test_codes_are_the_librarys_leaves(cls, diabetes, grown):
    X, y, X_new = diabetes
    partitioner = small(cls).fit(X, y)
    codes, new = partitioner.apply(X), partitioner.apply(X_new)
    leaves, new_leaves = (native_leaves(grown[0], A) for A in (X, X_new))
    assert_same_cells(codes, leaves, new, new_leaves)
    assert not any(value is grown[0] for value in vars(partitioner).values())
    assert codes.shape[1] == 12 == len(partitioner.n_cells_) == partitioner.trees_.n_trees
    np.testing.assert_array_equal(partitioner.n_cells_, codes.max(axis=0) + 1)
    assert partitioner.n_cells_.max() == 5
    assert partitioner.split_gains_.shape == (X.shape[1],)
    assert partitioner.split_gains_.dtype == np.float64
    assert partitioner.split_gains_.min() >= 0
    # bmi and s5 are what diabetes progression depends on most.
    assert set(np.argsort(partitioner.split_gains_)[-2:]) == {2, 8}


@pytest.mark.parametrize("cls", TREES)
def test_classification_with_three_classes(cls, iris, grown):
    X, y = iris
    partitioner = small(cls).fit(X, y, target_type="classification")
    assert_same_cells(partitioner.apply(X), native_leaves(grown[0], X))
    assert len(partitioner.n_cells_) == 12  # 4 rounds of 3 trees, or 12 trees
    few = cls(n_partitions=1, n_cells=3, random_state=0).fit(X, y, target_type="classification")
    boosting = cls in (LightGBMPartitioner, GradientBoostingPartitioner)
    assert len(few.n_cells_) == (3 if boosting else 1)


@pytest.mark.parametrize("cls", TREES)
def test_classification_with_two_or_one_class_and_missing_values_in_numbers(cls, iris):
    X, y = iris
    two = y != 1  # classes 0 and 2: class 1 has no rows, as in an unlucky fold
    partitioner = small(cls).fit(X[two], y[two], target_type="classification")
    assert len(partitioner.n_cells_) == 12
    assert partitioner.n_cells_.max() > 1
    one = small(cls).fit(X[:50], y[:50], target_type="classification")
    assert set(one.n_cells_) == {1}
    assert not one.split_gains_.any()
    assert not one.apply(X).any()


@pytest.mark.parametrize("cls", TREES)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_rows(cls, n, diabetes):
    X, y, X_new = diabetes
    partitioner = small(cls).fit(X[:n], y[:n])
    codes = partitioner.apply(X_new)
    assert codes.shape == (len(X_new), len(partitioner.n_cells_))
    assert len(partitioner.n_cells_) >= 1
    if n >= 3:
        assert partitioner.n_cells_.max() > 1
    labels = np.arange(n) % 2
    codes = small(cls).fit(X[:n], labels, target_type="classification").apply(X_new)
    assert codes.min() >= NO_CELL


@pytest.mark.parametrize("cls", TREES)
@pytest.mark.parametrize("what", ["X", "y"])
def test_nothing_to_split_gives_one_cell(cls, what, diabetes):
    X, y, _ = diabetes
    X, y = (np.ones_like(X), y) if what == "X" else (X, np.ones_like(y))
    partitioner = small(cls).fit(X, y)
    assert set(partitioner.n_cells_) == {1}
    np.testing.assert_array_equal(partitioner.split_gains_, np.zeros(X.shape[1]))
    assert not partitioner.apply(X).any()


@pytest.mark.parametrize("cls", ALL)
def test_same_seed_same_cells_other_seed_other_cells(cls, diabetes):
    X, y, X_new = diabetes
    one, again = (small(cls).fit(X, y).apply(X_new) for _ in range(2))
    other = small(cls).set_params(random_state=1).fit(X, y).apply(X_new)
    np.testing.assert_array_equal(one, again)
    assert one.shape != other.shape or (one != other).any()
    state = small(cls).set_params(random_state=np.random.RandomState(3)).fit(X, y)
    assert len(state.n_cells_) == 12


@pytest.mark.parametrize("cls", TREES)
def test_number_of_threads_changes_nothing(cls):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(17000, 5))  # more than one block of rows
    y = X[:, 0] * X[:, 1] + rng.normal(size=17000)
    weight = rng.uniform(0.5, 2, size=17000)
    codes, gains = [], []
    for n_jobs in (None, 1, 2, -1):
        partitioner = small(cls, n_jobs=n_jobs).fit(X, y, weight)
        codes.append(partitioner.apply(X))
        gains.append(partitioner.split_gains_)
    for k in range(1, 4):
        np.testing.assert_array_equal(codes[0], codes[k])
        np.testing.assert_array_equal(gains[0], gains[k])


@pytest.mark.parametrize("cls", ALL)
def test_weights(cls, diabetes):
    X, y, X_new = diabetes
    weight = np.random.RandomState(0).randint(0, 3, size=len(y)).astype(float)
    whole = small(cls).fit(X, y, weight).apply(X_new)
    kept = weight > 0
    removed = small(cls).fit(X[kept], y[kept], weight[kept]).apply(X_new)
    np.testing.assert_array_equal(whole, removed)
    # A power of two leaves the digits alone; the size is below LightGBM's least Hessian.
    scaled = small(cls).fit(X, y, weight * 2.0**-30).apply(X_new)
    np.testing.assert_array_equal(whole, scaled)
    plain, equal = (small(cls).fit(X, y, w).apply(X_new) for w in (None, np.full(len(y), 0.3)))
    np.testing.assert_array_equal(plain, equal)
    skewed = small(cls).fit(X, y, np.where(y > 150, 50.0, 1.0)).apply(X_new)
    assert skewed.shape != plain.shape or (skewed != plain).any()


def test_lightgbm_sees_small_differences_on_a_large_mean(diabetes):
    X, y, X_new = diabetes
    plain = small(LightGBMPartitioner).fit(X, y).apply(X_new)
    shifted = small(LightGBMPartitioner).fit(X, y * 2.0**-10 + 2.0**20).apply(X_new)
    assert np.mean(plain == shifted) > 0.99


def test_options_override_ours_under_any_name(diabetes):
    X, y, _ = diabetes
    options = {"n_estimators": 7, "max_leaves": 3, "min_child_samples": 40, "subsample": 1.0}
    partitioner = LightGBMPartitioner(random_state=0, options=options).fit(X, y)
    assert len(partitioner.n_cells_) == 7
    assert partitioner.n_cells_.max() == 3
    counts = [np.bincount(c).min() for c in partitioner.apply(X).T]
    assert min(counts) >= 40
    stump = GradientBoostingPartitioner(options={"max_depth": 1, "n_estimators": 5}).fit(X, y)
    assert len(stump.n_cells_) == 5
    assert stump.n_cells_.max() == 2


@pytest.mark.parametrize("cls", TREES)
def test_quiet(cls, diabetes, capfd):
    X, y, X_new = diabetes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for target, target_type in ((y, "regression"), (y > 150, "classification")):
            small(cls).fit(X[:9], target[:9], target_type=target_type).apply(X_new)
            small(cls).fit(np.ones_like(X), target, target_type=target_type).apply(X_new)
            small(cls).fit(X, target, target_type=target_type).apply(X_new)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_float32_integers_lists_and_frames(diabetes):
    pd = pytest.importorskip("pandas")
    X, y, _ = diabetes
    for cls in (LightGBMPartitioner, ExtraTreesPartitioner):
        expected = small(cls).fit(X, y).apply(X)
        frame = pd.DataFrame(X, columns=[f"a b{j}" for j in range(X.shape[1])])
        fitted = small(cls).fit(frame, pd.Series(y))
        np.testing.assert_array_equal(fitted.apply(frame), expected)
        np.testing.assert_array_equal(fitted.apply(X.tolist()), expected)
        codes = small(cls).fit(X.astype(np.float32), y).apply(X.astype(np.float32))
        assert codes.shape == expected.shape
        huge = np.full((1, X.shape[1]), 1e200)  # infinite in float32
        assert fitted.apply(huge).shape == (1, 12)


# ------------------------------------------------------------------ what is rejected


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("value", [0, -3, 2.5, "many", None, True])
def test_numbers_out_of_range(cls, value, diabetes):
    X, y, _ = diabetes
    for name in ("n_partitions", "n_cells"):
        bad = cls(**{name: value})  # the constructor does not complain
        with pytest.raises(ValueError, match=rf"{cls.__name__}: {name}={value!r} must be a whole"):
            bad.fit(X, y)
        assert not hasattr(bad, "n_cells_")


@pytest.mark.parametrize("cls", TREES)
def test_a_tree_of_one_leaf_is_rejected(cls, diabetes):
    X, y, _ = diabetes
    with pytest.raises(ValueError, match=r"n_cells=1 .*at least 2"):
        cls(n_cells=1).fit(X, y)


@pytest.mark.parametrize("partitioner", [small(c) for c in ALL] + [RootCell()])
def test_bad_rows_and_weights(partitioner, diabetes):
    X, y, _ = diabetes
    with pytest.raises(NotFittedError):
        clone(partitioner).apply(X)
    fitted = clone(partitioner).fit(X, y)
    with pytest.raises(ValueError, match=r"X has 3 features.*expecting 10"):
        fitted.apply(X[:, :3])
    with pytest.raises(ValueError, match="0 sample"):
        clone(partitioner).fit(X[:0], y[:0])
    with pytest.raises(ValueError, match=r"shape \(3,\).*300 rows"):
        clone(partitioner).fit(X, y, np.ones(3))
    for weight, problem in ((0.0, "zero for every row"), (-1.0, "negative"), (np.nan, "holds NaN")):
        with pytest.raises(ValueError, match=f"sample_weight .*{problem}"):
            clone(partitioner).fit(X, y, np.full(len(y), weight))
    with pytest.raises(ValueError, match=r"target_type=.guess. is not known: use 'regression'"):
        clone(partitioner).fit(X, y, target_type="guess")


@pytest.mark.parametrize("cls", TREES)
def test_trees_need_fitting_targets(cls, diabetes):
    X, y, _ = diabetes
    with pytest.raises(ValueError, match="pass y"):
        small(cls).fit(X)
    with pytest.raises(ValueError, match=r"y has shape \(4,\), but X has 300 rows"):
        small(cls).fit(X, y[:4])
