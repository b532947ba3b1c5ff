"""Trees in rotated spaces: cells against hand-made rotations, exact products, bad parameters."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from jointleaf._data.columns import Columns
from jointleaf.partitions import (
    CatBoostPartitioner,
    ExtraTreesPartitioner,
    FittedEnsemble,
    LightGBMPartitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RotatedPartitioner,
    StepPartitioner,
    UnionPartitioner,
    VoronoiPartitioner,
    XGBoostPartitioner,
)
from jointleaf.partitions import _rotated as rotated_module
from jointleaf.partitions._base import seeded

TREES = RandomTreesPartitioner(12, 5)
GROWERS = [
    RandomTreesPartitioner,
    LightGBMPartitioner,
    ExtraTreesPartitioner,
    XGBoostPartitioner,
    CatBoostPartitioner,
]


def rotated(trees=TREES, n_rotations=4, **options):
    return RotatedPartitioner(trees, n_rotations, **{"random_state": 0, **options})


def standardised(X, weight=None):
    mean = np.average(X, axis=0, weights=weight)
    sd = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    return np.clip((X - mean) / sd, -5, 5)


# -- what it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_codes_are_those_of_the_members_on_rotated_rows(diabetes, weighted):
    X, y, _ = diabetes
    X = X * np.logspace(-3, 3, X.shape[1])  # undone by the standardisation
    weight = np.random.RandomState(1).uniform(size=len(X)) if weighted else None
    partitioner = rotated().fit(X, y, weight)
    z = standardised(X, weight)
    assert np.abs(partitioner.places(X) - z).max() <= 2.0**-21 + 1e-12
    codes = [
        member.apply(partitioner.places(X) @ rotation)
        for member, rotation in zip(partitioner.members_, partitioner.rotations_, strict=True)
    ]
    np.testing.assert_array_equal(partitioner.apply(X), np.concatenate(codes, axis=1))
    assert [len(member.n_cells_) for member in partitioner.members_] == [3, 3, 3, 3]
    np.testing.assert_array_equal(partitioner.n_cells_, partitioner.apply(X).max(axis=0) + 1)
    pairs = zip(partitioner.members_, partitioner.rotations_, strict=True)
    # Without rounding almost all rows lie in the same cells.
    plain = [m.apply(z @ A) for m, A in pairs]
    assert np.mean(np.concatenate(plain, axis=1) == partitioner.apply(X)) > 0.999


def test_a_member_is_grown_on_rotated_rows_alone(diabetes):
    """Each member is what the tree partitioner makes of the projections, with its seed."""
    X, y, _ = diabetes
    partitioner = rotated(LightGBMPartitioner(9, 6)).fit(X, y)
    for member, rotation in zip(partitioner.members_, partitioner.rotations_, strict=True):
        space = partitioner.places(X) @ rotation
        again = clone(member).fit(space, y)
        np.testing.assert_array_equal(again.apply(space), member.apply(space))
    seeds = {member.random_state for member in partitioner.members_}
    assert len(seeds) == 4
    assert [len(member.n_cells_) for member in partitioner.members_] == [3, 2, 2, 2]


def test_directions_are_orthogonal_and_weighted_by_gains(diabetes):
    X, y, _ = diabetes
    partitioner = rotated(power=0.5).fit(X, y)
    fractions = partitioner.split_gains_ / partitioner.split_gains_.sum()
    assert set(np.argsort(fractions)[-2:]) == {2, 8}  # bmi and s5
    weights = np.sqrt(10 * fractions)
    for A in partitioner.rotations_:
        Q = A / weights[:, None]
        np.testing.assert_allclose(Q.T @ Q, np.eye(10), atol=1e-6)
    assert np.abs(partitioner.rotations_[0] - partitioner.rotations_[1]).max() > 0.1
    plain = rotated(power=0, n_directions=4).fit(X, y).rotations_
    assert plain.shape == (4, 10, 4)
    for A in plain:
        np.testing.assert_allclose(A.T @ A, np.eye(4), atol=1e-7)


def test_a_target_along_a_diagonal_needs_few_cells():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 2))
    y = np.sign(X[:, 0] + X[:, 1])

    def explained(partitioner):
        codes = partitioner.fit(X, y).apply(X)
        errors = [y - (np.bincount(c, y) / np.bincount(c))[c] for c in codes.T]
        return 1 - min(np.mean(np.square(e)) for e in errors)

    trees = LightGBMPartitioner(60, 3, random_state=0)
    assert explained(trees) < 0.6
    assert explained(rotated(trees, 30)) > 0.9


@pytest.mark.parametrize("cls", GROWERS)
@pytest.mark.parametrize("target", ["regression", "classification"])
def test_every_kind_of_trees(cls, target, iris):
    X, y = iris
    partitioner = rotated(cls(8, 4), 2).fit(X, y, target_type=target)
    codes = partitioner.apply(X)
    np.testing.assert_array_equal(codes.max(axis=0) + 1, partitioner.n_cells_)
    assert 2 < partitioner.n_cells_.max() <= 4
    assert partitioner.leaf_values_ is None
    single = np.concatenate([partitioner.apply(row[None]) for row in X[::10]])
    np.testing.assert_array_equal(codes[::10], single)


def test_no_more_rotations_than_partitions_and_trees_without_seeds(diabetes):
    X, y, _ = diabetes
    assert len(rotated(RandomTreesPartitioner(3, 4), 10).fit(X, y).members_) == 3
    assert len(rotated(StepPartitioner(40)).fit(X, y).members_) == 4


# -- exact products --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(500, 3), (700, 40), (300, 400)])
def test_products_are_exact_and_codes_do_not_depend_on_the_batch(shape, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, shape) / 3 + 0.1
    y = X[:, 0] + np.sin(5 * X[:, 1]) + 0.1 * rng.standard_normal(len(X))
    partitioner = rotated(LightGBMPartitioner(40, 16)).fit(X, y)
    z = partitioner.places(X)
    for A in partitioner.rotations_:
        extended = z.astype(np.longdouble) @ A.astype(np.longdouble)
        np.testing.assert_array_equal(z @ A, extended)
        np.testing.assert_array_equal(z[:, ::-1] @ A[::-1], z @ A)  # another order of sums
    codes = partitioner.apply(X)
    single = np.concatenate([partitioner.apply(row[None]) for row in X[:200]])
    np.testing.assert_array_equal(codes[:200], single)
    monkeypatch.setattr(rotated_module, "_BLOCK_ELEMENTS", 7 * shape[1])
    np.testing.assert_array_equal(codes, partitioner.apply(X))
    np.testing.assert_array_equal(codes, partitioner.apply(np.asfortranarray(X)))


@given(
    st.integers(1, 60),
    st.integers(1, 30),
    st.floats(0, 3),
    st.integers(0, 2**31),
)
def test_rotations_keep_sums_within_53_bits(m, n_directions, power, seed):
    rng = np.random.default_rng(seed)
    weights = (m * rng.dirichlet(np.full(m, 0.2))) ** power
    rotations = rotated_module._draw_rotations(rng, weights, 2, n_directions)
    assert rotations.shape == (2, m, min(m, n_directions))
    z = np.rint(rng.uniform(-5, 5, (9, m)) * 2**20) / 2**20
    for A in rotations:
        for order in (np.arange(m), rng.permutation(m)):
            exact = z[:, order].astype(np.longdouble) @ A[order].astype(np.longdouble)
            np.testing.assert_array_equal(z[:, order] @ A[order], exact)


# -- odd data --------------------------------------------------------------------------------------


def test_categories_and_missing_values(iris):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal(400), rng.integers(0, 3, 400).astype(float)])
    y = np.where(X[:, 1] == 1, X[:, 0], -X[:, 0])
    X[rng.random(400) < 0.1, 0] = np.nan
    partitioner = rotated().fit(X, y, columns=Columns.read(X, [1]))
    assert partitioner.rotations_.shape == (4, 4, 4)  # a number and three categories
    np.testing.assert_array_equal(partitioner.features_.plan.sources, [0, 1, 1, 1])
    codes = partitioner.apply([[0.3, 0.0], [0.3, 1.0], [0.3, 7.0], [0.3, np.nan]])
    assert (codes[0] != codes[1]).any()
    mean = np.nanmean(X[:, 0])
    missing, filled = partitioner.apply([[np.nan, 1.0]]), partitioner.apply([[mean, 1.0]])
    np.testing.assert_array_equal(missing, filled)
    np.testing.assert_array_equal(partitioner.split_features_, [0, 1])


def test_outliers_are_clipped(diabetes):
    X, y, _ = diabetes
    partitioner = rotated().fit(X, y)
    far, farther = X[:5].copy(), X[:5].copy()
    far[:, 2], farther[:, 2] = 1e3, 1e308
    np.testing.assert_array_equal(partitioner.apply(far), partitioner.apply(farther))
    assert partitioner.places(farther).max() == 5


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.ones((30, 2)), np.arange(30.0)),
        (np.random.default_rng(0).standard_normal((30, 2)), np.ones(30)),
        (np.ones((1, 1)), np.ones(1)),
        (np.full((30, 1), np.nan), np.arange(30.0)),
    ],
)
def test_nothing_to_split(X, y):
    partitioner = rotated(LightGBMPartitioner(4, 5)).fit(X, y)
    np.testing.assert_array_equal(partitioner.n_cells_, np.ones(4))
    assert not partitioner.apply(X).any()


def test_no_linear_features():
    X = np.zeros((30, 1))
    partitioner = rotated().fit(X, np.arange(30.0), columns=Columns.read(X, [0]))
    assert partitioner.rotations_.shape == (4, 0, 1)
    assert not partitioner.apply(X).any()


def test_columns_without_gain_have_no_part(diabetes):
    X, y, _ = diabetes
    wide = np.column_stack([X[:, 2], np.ones(len(X)), X[:, 8]])
    partitioner = rotated().fit(wide, y)
    np.testing.assert_array_equal(partitioner.split_features_, [0, 2])
    moved = wide + np.array([0, 3, 0])
    np.testing.assert_array_equal(partitioner.apply(wide), partitioner.apply(moved))


def test_single_precision_and_rows_of_weight_zero(diabetes):
    X, y, _ = diabetes
    partitioner = rotated().fit(X, y)
    single = X.astype(np.float32)
    np.testing.assert_array_equal(
        partitioner.apply(single), partitioner.apply(single.astype(float))
    )
    weight = (np.arange(len(X)) % 3 > 0).astype(float)
    ours, theirs = rotated().fit(X, y, weight), rotated().fit(X[weight > 0], y[weight > 0])
    np.testing.assert_array_equal(ours.apply(X), theirs.apply(X))
    np.testing.assert_array_equal(ours.apply(X), rotated().fit(X, y, 7 * weight).apply(X))


# -- the protocol ----------------------------------------------------------------------------------


def test_seeds_clones_and_pickles(diabetes):
    X, y, X_new = diabetes
    partitioner = rotated().fit(X, y)
    codes = partitioner.apply(X_new)
    np.testing.assert_array_equal(codes, clone(partitioner).fit(X, y).apply(X_new))
    np.testing.assert_array_equal(codes, partitioner.fresh().fit(X, y).apply(X_new))
    np.testing.assert_array_equal(codes, pickle.loads(pickle.dumps(partitioner)).apply(X_new))
    assert (codes != rotated(random_state=1).fit(X, y).apply(X_new)).any()
    unfilled = RotatedPartitioner(LightGBMPartitioner())
    filled = seeded(unfilled, 3, 2)
    assert filled.random_state is not None
    assert filled.partitioner.n_jobs == 2
    assert unfilled.random_state is None


def test_it_is_one_innermost_partitioner(diabetes):
    X, y, _ = diabetes
    union = UnionPartitioner([TREES, rotated(), VoronoiPartitioner(3, 3)]).fit(X, y)
    starts = [(type(member).__name__, first) for member, first in union.walk()]
    assert starts[1:] == [("RotatedPartitioner", 12), ("VoronoiPartitioner", 24)]
    assert [type(member).__name__ for member in rotated().nested()] == [
        "RotatedPartitioner",
        "RandomTreesPartitioner",
    ]


def test_partitions_are_chosen_and_cells_merged(diabetes):
    X, y, _ = diabetes
    partitioner = rotated().fit(X, y)
    codes = partitioner.apply(X)
    chosen = np.zeros(12, bool)
    chosen[[1, 2, 10]] = True
    few = partitioner.with_partitions(chosen)
    np.testing.assert_array_equal(few.apply(X), codes[:, chosen])
    np.testing.assert_array_equal(few.n_cells_, partitioner.n_cells_[chosen])
    assert few.rotations_.shape == (2, 10, 10)
    pairs = partitioner.siblings()
    assert set(pairs[:, 0]) == set(range(12))
    first = np.arange(len(pairs)) == np.flatnonzero(pairs[:, 0] == 7)[0]
    merged = partitioner.with_merged(first)
    p, a, b = pairs[first][0]
    expected = np.where(codes[:, p] == max(a, b), min(a, b), codes[:, p])
    expected -= expected > max(a, b)
    np.testing.assert_array_equal(merged.apply(X)[:, p], expected)
    others = np.arange(12) != p
    np.testing.assert_array_equal(merged.apply(X)[:, others], codes[:, others])
    np.testing.assert_array_equal(partitioner.apply(X), codes)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_rotations": 0}, "n_rotations=0 must be a whole number"),
        ({"n_directions": 2.5}, "n_directions=2.5 must be a whole number"),
        ({"power": -1}, "power=-1 is not possible"),
        ({"power": np.nan}, "power=nan is not possible"),
        ({"power": "auto"}, "power='auto' is not possible"),
        ({"partitioner": RandomTreesPartitioner(0)}, "n_partitions=0 must be a whole number"),
        ({"partitioner": VoronoiPartitioner()}, "does not grow a number of trees"),
        ({"partitioner": ResidualPartitioner(TREES)}, "does not grow a number of trees"),
        ({"partitioner": FittedEnsemble(None)}, "does not grow a number of trees"),
        ({"partitioner": "lightgbm"}, "partitioner='lightgbm' does not grow a number of trees"),
    ],
)
def test_bad_parameters(options, match, diabetes):
    X, y, _ = diabetes
    with pytest.raises((TypeError, ValueError), match=match):
        RotatedPartitioner(**{"partitioner": TREES, **options}).fit(X, y)


def test_bad_rows(diabetes):
    X, y, _ = diabetes
    with pytest.raises(ValueError, match="pass y"):
        rotated().fit(X)
    with pytest.raises(NotFittedError):
        rotated().apply(X)
    with pytest.raises(ValueError, match="has 9 features, but RotatedPartitioner is expecting 10"):
        rotated().fit(X, y).apply(X[:, :9])
