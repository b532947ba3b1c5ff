"""Voronoi partitions, the root cell, unions, seeds, and making a partitioner from a name."""

import pickle
import sys

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from jointleaf._data.columns import Columns
from jointleaf.partitions import (
    PARTITIONERS,
    ExtraTreesPartitioner,
    FittedEnsemble,
    GradientBoostingPartitioner,
    LightGBMPartitioner,
    RandomForestPartitioner,
    ResidualPartitioner,
    RootCell,
    RotatedPartitioner,
    UnionPartitioner,
    VoronoiPartitioner,
    make_partitioner,
)
from jointleaf.partitions._base import seeded
from jointleaf.partitions._factory import known_categories

TREES = [
    LightGBMPartitioner,
    GradientBoostingPartitioner,
    RandomForestPartitioner,
    ExtraTreesPartitioner,
]
ALL = [*TREES, VoronoiPartitioner]


def small(cls, **kwargs):
    return cls(n_partitions=12, n_cells=5, random_state=0, **kwargs)


# ------------------------------------------------------------------ Voronoi


def test_voronoi_takes_the_nearest_centre(diabetes):
    X, y, X_new = diabetes
    scaled = X * np.logspace(-3, 3, X.shape[1])  # undone by the standardisation
    weight = np.random.RandomState(1).uniform(size=len(X))
    partitioner = VoronoiPartitioner(7, 6, random_state=0).fit(scaled, y, weight)
    mean = np.average(scaled, axis=0, weights=weight)
    sd = np.sqrt(np.average((scaled - mean) ** 2, axis=0, weights=weight))
    places = (scaled - mean) / sd  # what centres are given in
    new = X_new * np.logspace(-3, 3, X.shape[1])
    codes = partitioner.apply(new)
    for p, centres in enumerate(partitioner.centres_):
        for centre in centres:
            assert np.abs(places - centre).max(axis=1).min() < 1e-9
        assert len(np.unique(centres, axis=0)) == 6
        distances = ((new - mean) / sd - centres[:, None]) ** 2
        np.testing.assert_array_equal(codes[:, p], distances.sum(axis=2).argmin(axis=0))
    np.testing.assert_array_equal(partitioner.n_cells_, np.full(7, 6))
    np.testing.assert_array_equal(partitioner.split_gains_, np.ones(10))


def test_voronoi_ties_go_to_the_first_centre_in_any_batch():
    X = np.repeat([[0.0, 1.0], [2.0, 1.0]], 20, axis=0)
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
    assert not partitioner.centres_[:, :, 1].any()
    codes = partitioner.apply(X)  # more rows than a block holds
    np.testing.assert_array_equal(codes[-5:], partitioner.apply(X[-5:]))
    assert set(np.unique(codes)) == set(range(8))
    one = VoronoiPartitioner(3, 8, random_state=0).fit(X[:1])
    np.testing.assert_array_equal(one.n_cells_, np.ones(3))


def test_voronoi_draws_rows_uniformly_also_among_duplicates():
    X = np.repeat([0.0, 1.0, 2.0], [80, 10, 10])[:, None]
    frequent = -0.3 / np.sqrt(np.mean((X - 0.3) ** 2))  # 0 in standardised units
    centres = VoronoiPartitioner(2000, 1, random_state=0).fit(X).centres_.ravel()
    assert np.mean(np.isclose(centres, frequent)) == pytest.approx(0.8, abs=0.03)
    # With two cells the first of three values to be left out is mostly a rare one.
    pairs = VoronoiPartitioner(2000, 2, random_state=0).fit(X).centres_[:, :, 0]
    assert np.mean(np.isclose(pairs, frequent).any(axis=1)) > 0.9


def test_voronoi_with_categories_and_missing_values():
    """A category is a place of its own; a missing value is the mean."""
    X = np.column_stack([np.tile([-1.0, 0.0, 1.0], 40), np.repeat([0.0, 1.0], 60)])
    columns = Columns.read(X, [1])
    partitioner = VoronoiPartitioner(30, 6, random_state=0).fit(X, columns=columns)
    np.testing.assert_array_equal(partitioner.n_cells_, np.full(30, 6))  # all different rows
    rows = np.unique(X, axis=0)
    codes = partitioner.apply(rows)
    assert all(len(set(c)) == 6 for c in codes.T)
    missing = partitioner.apply([[np.nan, 0.0], [np.nan, 1.0]])
    np.testing.assert_array_equal(rows[[2, 3]], [[0.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(missing, codes[[2, 3]])


# ------------------------------------------------------------------ nested partitioners


def deep_union():
    trees = [small(LightGBMPartitioner), small(ExtraTreesPartitioner), small(LightGBMPartitioner)]
    inner = UnionPartitioner([trees[1], RootCell(), trees[2]])
    parts = [trees[0], ResidualPartitioner(inner), RootCell(), small(VoronoiPartitioner)]
    return UnionPartitioner([UnionPartitioner(parts[:2]), *parts[2:]])


def test_walk_opens_unions_and_residuals(diabetes):
    X, y, X_new = diabetes
    union = deep_union().fit(X, y)
    kinds = [type(member).__name__ for member, _ in union.walk()]
    assert kinds == [
        "LightGBMPartitioner",
        "ExtraTreesPartitioner",
        "RootCell",
        "LightGBMPartitioner",
        "RootCell",
        "VoronoiPartitioner",
    ]
    codes = union.apply(X_new)
    stop = 0
    for member, first in union.walk():
        assert first == stop
        stop = first + len(member.n_cells_)
        np.testing.assert_array_equal(codes[:, first:stop], member.apply(X_new))
        np.testing.assert_array_equal(union.n_cells_[first:stop], member.n_cells_)
    assert stop == len(union.n_cells_)
    assert [first for _, first in union.walk(5)] == [first + 5 for _, first in union.walk()]


def test_walk_of_a_single_partitioner(diabetes):
    X, y, _ = diabetes
    for partitioner in (RootCell(), small(LightGBMPartitioner)):
        assert list(partitioner.fit(X, y).walk()) == [(partitioner, 0)]


def test_walk_needs_a_fitted_partitioner():
    for partitioner in (RootCell(), deep_union(), ResidualPartitioner(RootCell())):
        with pytest.raises(NotFittedError):
            list(partitioner.walk())


def test_nested_partitioners_are_found_before_any_fit():
    union = deep_union()
    members = list(union.nested())
    assert members[0] is union
    assert members[1] is union.partitioners[0]
    innermost = [m for m in members if not isinstance(m, UnionPartitioner | ResidualPartitioner)]
    assert len(members) == 10
    assert len(innermost) == 6


def test_categories_of_models_within_nested_partitioners():
    X = np.column_stack([np.arange(60.0), np.arange(60) % 3])
    model = lightgbm.LGBMRegressor(n_estimators=2, verbosity=-1, min_child_samples=1)
    model.fit(X, X[:, 1], categorical_feature=[1])
    for spec in (model, [model, "lightgbm"], ResidualPartitioner(FittedEnsemble(model))):
        assert list(known_categories(spec)) == [1]
    for spec in ("voronoi", deep_union()):
        assert known_categories(spec) == {}


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


def test_union_rejects_what_is_no_partitioner(diabetes):
    X, y, _ = diabetes
    for empty in ([], "lightgbm", None):
        with pytest.raises(ValueError, match="list of at least one"):
            UnionPartitioner(empty).fit(X, y)
    with pytest.raises(TypeError, match=r"'lightgbm'.*make_partitioner"):
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
    np.testing.assert_array_equal(partitioner.apply(X_new), codes)  # pickling leaves it whole
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
    for name, make in PARTITIONERS.items():
        assert type(make_partitioner(name)) is type(make())
    assert isinstance(make_partitioner("rotated_trees"), RotatedPartitioner)
    assert set(PARTITIONERS) == {
        "lightgbm",
        "catboost",
        "xgboost",
        "gradient_boosting",
        "hist_gradient_boosting",
        "random_forest",
        "extra_trees",
        "random_trees",
        "large_trees",
        "rotated_trees",
        "linear_forest",
        "steps",
        "voronoi",
    }
    with pytest.raises(ValueError, match="'lightgbm', 'catboost'") as error:
        make_partitioner("xgb")
    assert "partitioner='xgb'" in str(error.value)


def test_other_specifications(diabetes):
    from sklearn.ensemble import AdaBoostRegressor, ExtraTreesRegressor

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
    with pytest.raises(NotFittedError, match=r"ExtraTreesRegressor.*call its fit first"):
        make_partitioner(ExtraTreesRegressor())
    for odd in (AdaBoostRegressor(), 3):
        with pytest.raises(TypeError, match=f"{type(odd).__name__}.*'lightgbm'.*RandomForest"):
            make_partitioner(odd)


class _Broken:
    """Finds lightgbm and fails to load it, as a missing OpenMP runtime does."""

    def find_spec(self, name, path=None, target=None):
        if name == "lightgbm":
            raise OSError("libgomp.so.1: cannot open shared object file")


@pytest.mark.parametrize("how", ["missing", "broken"])
def test_lightgbm_that_cannot_be_loaded(how, monkeypatch, diabetes):
    X, y, _ = diabetes
    if how == "missing":
        monkeypatch.setitem(sys.modules, "lightgbm", None)
    else:
        monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
        monkeypatch.setattr(sys, "meta_path", [_Broken(), *sys.meta_path])
    with pytest.raises(ImportError, match=r"LightGBMPartitioner needs.*OpenMP.*gradient_boosting"):
        LightGBMPartitioner().fit(X, y)
