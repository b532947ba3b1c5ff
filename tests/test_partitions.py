"""Every partitioner: its cells, its determinism, what it refuses."""

import pickle
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError

import jointleaf.partitions.factory as factory
from jointleaf.partitions import (
    NO_CELL,
    PARTITIONERS,
    CellNumbering,
    ExtraTreesPartitioner,
    FittedEnsemble,
    GradientBoostingPartitioner,
    LightGBMPartitioner,
    RandomForestPartitioner,
    RootCell,
    UnionPartitioner,
    VoronoiPartitioner,
    default_partitioner,
    make_partitioner,
    seeded,
)

TREES = [
    LightGBMPartitioner,
    GradientBoostingPartitioner,
    RandomForestPartitioner,
    ExtraTreesPartitioner,
]
ALL = [*TREES, VoronoiPartitioner]


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X[:300], y[:300], X[300:]


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def native_leaves(model, X):
    """Leaf ids from the library's own public call, (n, P)."""
    if type(model).__name__ == "Booster":
        return model.predict(X, pred_leaf=True).reshape(len(X), -1)
    return model.apply(X).reshape(len(X), -1).astype(int)


def assert_same_cells(codes, leaves, new_codes=None, new_leaves=None):
    """Codes are leaf ids in other words; unmet ids, and only those, are NO_CELL."""
    assert codes.dtype == np.int32
    assert codes.shape == leaves.shape
    for p in range(codes.shape[1]):
        met, number = np.unique(leaves[:, p], return_inverse=True)
        np.testing.assert_array_equal(codes[:, p], number)
        if new_codes is not None:
            words = dict(zip(met, range(len(met)), strict=True))
            expected = [words.get(leaf, NO_CELL) for leaf in new_leaves[:, p]]
            np.testing.assert_array_equal(new_codes[:, p], expected)


def small(cls, **kwargs):
    return cls(n_partitions=12, n_cells=5, random_state=0, **kwargs)


# ------------------------------------------------------------------ numbering


def test_numbering_is_compact_and_forgives_every_id():
    ids = np.array([[3, 0], [7, 0], [3, 2]])
    numbering = CellNumbering(ids)
    np.testing.assert_array_equal(numbering.n_cells, [2, 2])
    np.testing.assert_array_equal(numbering.encode(ids), [[0, 0], [1, 0], [0, 1]])
    other = np.array([[0, 1], [8, 3], [-1, -5], [2**31 - 1, 7], [7, 2]])
    expected = [[-1, -1], [-1, -1], [-1, -1], [-1, -1], [1, 1]]
    for dtype in (np.int32, np.int64):
        codes = numbering.encode(other.astype(dtype))
        assert codes.dtype == np.int32
        np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(numbering.encode(np.array([[3, -1]], dtype=np.int8)), [[0, -1]])


def test_numbering_matches_unique_over_blocks_and_in_place():
    rng = np.random.RandomState(0)
    ids = (rng.randint(0, 40, (20000, 30)) * 3).astype(np.int32)
    numbering = CellNumbering(ids)
    expected = np.stack([np.unique(c, return_inverse=True)[1] for c in ids.T], axis=1)
    np.testing.assert_array_equal(numbering.encode(ids), expected)
    fortran = np.asfortranarray(ids)
    np.testing.assert_array_equal(numbering.encode(fortran), expected)
    assert numbering.encode(ids, out=ids) is ids
    np.testing.assert_array_equal(ids, expected)


def test_numbering_refuses_what_is_no_leaf_id():
    with pytest.raises(ValueError, match="negative"):
        CellNumbering(np.array([[-1]]))
    with pytest.raises(ValueError, match="at least one row"):
        CellNumbering(np.zeros((0, 3), dtype=int))


# ------------------------------------------------------------------ trees


@pytest.mark.parametrize("cls", TREES)
def test_codes_are_the_librarys_leaves(cls, diabetes):
    X, y, X_new = diabetes
    partitioner = small(cls).fit(X, y)
    codes, new = partitioner.apply(X), partitioner.apply(X_new)
    leaves, new_leaves = (native_leaves(partitioner.model_, A) for A in (X, X_new))
    assert_same_cells(codes, leaves, new, new_leaves)
    assert codes.shape[1] == 12 == len(partitioner.n_cells_)
    np.testing.assert_array_equal(partitioner.n_cells_, codes.max(axis=0) + 1)
    assert partitioner.n_cells_.max() == 5
    assert partitioner.split_gains_.shape == (X.shape[1],)
    assert partitioner.split_gains_.dtype == np.float64
    assert partitioner.split_gains_.min() >= 0
    # bmi and s5 are what diabetes progression depends on most.
    assert set(np.argsort(partitioner.split_gains_)[-2:]) == {2, 8}


@pytest.mark.parametrize("cls", TREES)
def test_classification_with_three_classes(cls, iris):
    X, y = iris
    partitioner = small(cls).fit(X, y, task="classification")
    assert_same_cells(partitioner.apply(X), native_leaves(partitioner.model_, X))
    assert len(partitioner.n_cells_) == 12  # 4 rounds of 3 trees, or 12 trees
    few = cls(n_partitions=1, n_cells=3, random_state=0).fit(X, y, task="classification")
    boosting = cls in (LightGBMPartitioner, GradientBoostingPartitioner)
    assert len(few.n_cells_) == (3 if boosting else 1)


@pytest.mark.parametrize("cls", TREES)
def test_classification_with_two_or_one_class_and_gaps_in_numbers(cls, iris):
    X, y = iris
    two = y != 1  # classes 0 and 2: class 1 has no rows, as in an unlucky fold
    partitioner = small(cls).fit(X[two], y[two], task="classification")
    assert len(partitioner.n_cells_) == 12
    assert partitioner.n_cells_.max() > 1
    one = small(cls).fit(X[:50], y[:50], task="classification")
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
    codes = small(cls).fit(X[:n], labels, task="classification").apply(X_new)
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
    X = rng.normal(size=(9000, 5))  # more than one block of rows
    y = X[:, 0] * X[:, 1] + rng.normal(size=9000)
    weight = rng.uniform(0.5, 2, size=9000)
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
        for target, task in ((y, "regression"), (y > 150, "classification")):
            small(cls).fit(X[:9], target[:9], task=task).apply(X_new)
            small(cls).fit(np.ones_like(X), target, task=task).apply(X_new)
            small(cls).fit(X, target, task=task).apply(X_new)
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


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("value", [0, -3, 2.5, "many", None, True])
def test_numbers_out_of_range(cls, value, diabetes):
    X, y, _ = diabetes
    for name in ("n_partitions", "n_cells"):
        bad = cls(**{name: value})  # the constructor does not complain
        with pytest.raises(ValueError, match=rf"{cls.__name__}: {name}={value!r}.*integer"):
            bad.fit(X, y)
        assert not hasattr(bad, "n_cells_")


@pytest.mark.parametrize("cls", TREES)
def test_a_tree_of_one_leaf_is_refused(cls, diabetes):
    X, y, _ = diabetes
    with pytest.raises(ValueError, match="n_cells=1 .*at least 2"):
        cls(n_cells=1).fit(X, y)


@pytest.mark.parametrize("partitioner", [small(c) for c in ALL] + [RootCell()])
def test_bad_rows_and_weights(partitioner, diabetes):
    X, y, _ = diabetes
    with pytest.raises(NotFittedError):
        clone(partitioner).apply(X)
    fitted = clone(partitioner).fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features.*expecting 10"):
        fitted.apply(X[:, :3])
    with pytest.raises(ValueError, match="0 sample"):
        clone(partitioner).fit(X[:0], y[:0])
    with pytest.raises(ValueError, match=r"shape \(3,\).*300 rows"):
        clone(partitioner).fit(X, y, np.ones(3))
    for weight in (np.zeros(len(y)), -np.ones(len(y)), np.full(len(y), np.nan)):
        with pytest.raises(ValueError, match="finite, not negative and not all zero"):
            clone(partitioner).fit(X, y, weight)
    with pytest.raises(ValueError, match='task=.guess. is unknown; use "regression"'):
        clone(partitioner).fit(X, y, task="guess")


@pytest.mark.parametrize("cls", TREES)
def test_trees_need_fitting_targets(cls, diabetes):
    X, y, _ = diabetes
    with pytest.raises(ValueError, match="give y"):
        small(cls).fit(X)
    with pytest.raises(ValueError, match=r"y has shape \(4,\), but X has 300 rows"):
        small(cls).fit(X, y[:4])


# ------------------------------------------------------------------ Voronoi


def test_voronoi_takes_the_nearest_centre(diabetes):
    X, y, X_new = diabetes
    scaled = X * np.logspace(-3, 3, X.shape[1])  # undone by the standardisation
    weight = np.random.RandomState(1).uniform(size=len(X))
    partitioner = VoronoiPartitioner(7, 6, random_state=0).fit(scaled, y, weight)
    mean = np.average(scaled, axis=0, weights=weight)
    sd = np.sqrt(np.average((scaled - mean) ** 2, axis=0, weights=weight))
    new = X_new * np.logspace(-3, 3, X.shape[1])
    codes = partitioner.apply(new)
    for p, centres in enumerate(partitioner.centres_):
        assert all((scaled == centre).all(axis=1).any() for centre in centres)
        assert len(np.unique(centres, axis=0)) == 6
        gaps = ((new[:, None] - centres) / sd) ** 2
        np.testing.assert_array_equal(codes[:, p], gaps.sum(axis=2).argmin(axis=1))
    np.testing.assert_array_equal(partitioner.n_cells_, np.full(7, 6))
    np.testing.assert_array_equal(partitioner.split_gains_, np.ones(10))


def test_voronoi_ties_go_to_the_first_centre_in_any_batch():
    X = np.repeat(np.array([[0.0, 1.0], [2.0, 1.0], [0.1, 1.0]])[:2], 20, axis=0)
    partitioner = VoronoiPartitioner(40, 9, random_state=0).fit(X)
    np.testing.assert_array_equal(partitioner.n_cells_, np.full(40, 2))  # two different rows
    middle = np.array([[1.0, 5.0]])
    assert not partitioner.apply(middle).any()
    rng = np.random.RandomState(0)
    grid = rng.randint(0, 3, size=(500, 4)) / 3 + 0.1  # many equidistant centres
    partitioner = VoronoiPartitioner(30, 8, random_state=0).fit(grid)
    codes = partitioner.apply(grid)
    single = np.concatenate([partitioner.apply(row[None]) for row in grid])
    np.testing.assert_array_equal(codes, single)


def test_voronoi_blocks_constant_columns_and_one_row():
    rng = np.random.RandomState(0)
    X = np.column_stack([rng.normal(size=3000), np.full(3000, 0.1), rng.normal(size=3000) * 1e200])
    partitioner = VoronoiPartitioner(100, 8, random_state=0).fit(X)
    assert partitioner.scale_[1] == 1.0
    codes = partitioner.apply(X)  # more rows than a block holds
    np.testing.assert_array_equal(codes[-5:], partitioner.apply(X[-5:]))
    assert set(np.unique(codes)) == set(range(8))
    one = VoronoiPartitioner(3, 8, random_state=0).fit(X[:1])
    np.testing.assert_array_equal(one.n_cells_, np.ones(3))


def test_voronoi_draws_rows_uniformly_also_among_duplicates():
    X = np.repeat([0.0, 1.0, 2.0], [80, 10, 10])[:, None]
    centres = VoronoiPartitioner(2000, 1, random_state=0).fit(X).centres_.ravel()
    assert np.mean(centres == 0) == pytest.approx(0.8, abs=0.03)
    # With two cells the first of three values to be left out is mostly a rare one.
    pairs = VoronoiPartitioner(2000, 2, random_state=0).fit(X).centres_[:, :, 0]
    assert np.mean((pairs == 0).any(axis=1)) > 0.9


# ------------------------------------------------------------------ root and union


def test_union_puts_members_side_by_side(diabetes):
    X, y, X_new = diabetes
    members = [small(LightGBMPartitioner), small(ExtraTreesPartitioner), RootCell()]
    union = UnionPartitioner(members).fit(X, y)
    assert not any(hasattr(member, "n_cells_") for member in members)  # clones are fitted
    parts = [clone(member).fit(X, y) for member in members]
    expected = np.hstack([part.apply(X_new) for part in parts])
    np.testing.assert_array_equal(union.apply(X_new), expected)
    np.testing.assert_array_equal(union.n_cells_, np.concatenate([p.n_cells_ for p in parts]))
    gains = sum(p.split_gains_ / p.split_gains_.sum() for p in parts[:2])
    np.testing.assert_allclose(union.split_gains_, gains)
    assert union.splits_on_features
    root = parts[2]
    np.testing.assert_array_equal(root.n_cells_, [1])
    np.testing.assert_array_equal(root.apply(X_new), np.zeros((len(X_new), 1)))


def test_union_without_splits_counts_features_alike(diabetes):
    X, y, _ = diabetes
    union = UnionPartitioner([RootCell(), VoronoiPartitioner(3)]).fit(X, y)
    np.testing.assert_array_equal(union.split_gains_, np.ones(10))
    assert not union.splits_on_features
    stump = small(LightGBMPartitioner)
    nested = UnionPartitioner([union, stump]).fit(X, y)
    alone = clone(stump).fit(X, y).split_gains_
    np.testing.assert_allclose(nested.split_gains_, alone / alone.sum())


def test_union_refuses_what_is_no_partitioner(diabetes):
    X, y, _ = diabetes
    for empty in ([], "lightgbm", None):
        with pytest.raises(ValueError, match="list of at least one"):
            UnionPartitioner(empty).fit(X, y)
    with pytest.raises(TypeError, match="'lightgbm'.*make_partitioner"):
        UnionPartitioner(["lightgbm"]).fit(X, y)
    with pytest.raises(ValueError, match="X has 2 features"):
        UnionPartitioner([RootCell()]).fit(X, y).apply(X[:, :2])


def test_clone_of_a_union_is_deep_and_fresh_is_unfitted(diabetes):
    X, y, X_new = diabetes
    inner = UnionPartitioner([RootCell(), small(RandomForestPartitioner)])
    union = UnionPartitioner([inner, small(VoronoiPartitioner)]).fit(X, y)
    for copy in (clone(union), union.fresh()):
        assert copy.partitioners[0] is not inner
        assert copy.partitioners[0].partitioners[1] is not inner.partitioners[1]
        assert not hasattr(copy, "n_cells_")
        np.testing.assert_array_equal(copy.fit(X, y).apply(X_new), union.apply(X_new))


@pytest.mark.parametrize("cls", ALL)
def test_clone_pickle_and_fresh(cls, diabetes):
    X, y, X_new = diabetes
    partitioner = small(cls).fit(X, y)
    codes = partitioner.apply(X_new)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(partitioner)).apply(X_new), codes)
    for copy in (clone(partitioner), partitioner.fresh()):
        assert copy.get_params() == partitioner.get_params()
        assert not hasattr(copy, "n_cells_")
        np.testing.assert_array_equal(copy.fit(X, y).apply(X_new), codes)


# ------------------------------------------------------------------ seeded


def test_seeded_fills_every_gap_with_its_own_seed():
    inner = UnionPartitioner([LightGBMPartitioner(), VoronoiPartitioner(), RootCell()])
    fixed = ExtraTreesPartitioner(random_state=7, n_jobs=3)
    union = UnionPartitioner([inner, fixed, RandomForestPartitioner()])
    filled = seeded(union, 5, n_jobs=2)
    first, voronoi, _ = filled.partitioners[0].partitioners
    forest = filled.partitioners[2]
    seeds = [first.random_state, voronoi.random_state, forest.random_state]
    assert len(set(seeds)) == 3
    assert all(isinstance(seed, int) for seed in seeds)
    assert (filled.partitioners[1].random_state, filled.partitioners[1].n_jobs) == (7, 3)
    assert (first.n_jobs, forest.n_jobs) == (2, 2)
    again = seeded(union, 5).partitioners[0].partitioners[0]
    assert again.random_state == seeds[0]
    assert again.n_jobs is None
    assert seeded(union, 6).partitioners[2].random_state != seeds[2]
    assert inner.partitioners[0].random_state is None  # the original is left alone
    assert inner.partitioners[0].n_jobs is None


def test_seeded_keeps_a_fitted_model_and_seeds_what_regrows_it(diabetes):
    from sklearn.ensemble import RandomForestRegressor

    X, y, _ = diabetes
    model = RandomForestRegressor(3).fit(X, y)
    filled = seeded(UnionPartitioner([FittedEnsemble(model)]), 0, n_jobs=2)
    assert filled.partitioners[0].model is model
    one, two = (filled.fresh().fit(X, y).apply(X) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert model.random_state is None


# ------------------------------------------------------------------ make_partitioner


def test_names():
    for name, cls in PARTITIONERS.items():
        assert type(make_partitioner(name)) is cls
    assert set(PARTITIONERS) == {
        "lightgbm",
        "gradient_boosting",
        "random_forest",
        "extra_trees",
        "voronoi",
    }
    with pytest.raises(ValueError, match='"lightgbm", "gradient_boosting"') as error:
        make_partitioner("xgb")
    assert "partitioner='xgb'" in str(error.value)


def test_other_specifications(diabetes):
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

    X, y, _ = diabetes
    partitioner = VoronoiPartitioner(3)
    assert make_partitioner(partitioner) is partitioner
    model = ExtraTreesRegressor(2).fit(X, y)
    assert make_partitioner(model).model is model
    union = make_partitioner(["extra_trees", RootCell(), model])
    assert [type(m) for m in union.partitioners] == [
        ExtraTreesPartitioner,
        RootCell,
        FittedEnsemble,
    ]
    with pytest.raises(NotFittedError, match="ExtraTreesRegressor.*call its fit first"):
        make_partitioner(ExtraTreesRegressor())
    for odd in (HistGradientBoostingRegressor(), 3):
        with pytest.raises(TypeError, match=f'{type(odd).__name__}.*"lightgbm".*RandomForest'):
            make_partitioner(odd)


def test_default_is_lightgbm():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partitioner = make_partitioner(None)
    assert type(partitioner) is LightGBMPartitioner
    assert (partitioner.n_partitions, partitioner.n_cells) == (100, 4)


class _Broken:
    """Finds lightgbm and fails to load it, as a missing OpenMP runtime does."""

    def find_spec(self, name, path=None, target=None):
        if name == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file")


@pytest.mark.parametrize("how", ["missing", "broken"])
def test_fallback_is_told_once(how, monkeypatch, diabetes):
    X, y, _ = diabetes
    monkeypatch.setattr(factory, "_fallback_told", False)
    if how == "missing":
        monkeypatch.setitem(sys.modules, "lightgbm", None)
    else:
        monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
        monkeypatch.setattr(sys, "meta_path", [_Broken(), *sys.meta_path])
    cause = "ModuleNotFoundError" if how == "missing" else "OSError: libgomp"
    with pytest.warns(UserWarning, match=rf"{cause}.*Install .*OpenMP") as caught:
        partitioner = make_partitioner(None)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert type(partitioner) is GradientBoostingPartitioner
    assert (partitioner.n_partitions, partitioner.n_cells) == (100, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(default_partitioner()) is GradientBoostingPartitioner
    with pytest.raises(ImportError, match=r"LightGBMPartitioner needs.*gradient_boosting"):
        LightGBMPartitioner().fit(X, y)


def test_import_is_light():
    import subprocess

    code = (
        "import sys, jointleaf.partitions, jointleaf.datasets;"
        "print([m for m in ('lightgbm', 'sklearn.ensemble') if m in sys.modules])"
    )
    path = [p for p in sys.path if p]
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "[]"
