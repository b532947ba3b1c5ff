"""Large randomised trees grown from histograms: their leaves, seeds, classes and errors."""

import numpy as np
import pytest
from sklearn.base import clone

from jointleaf._data.columns import Column, Columns
from jointleaf._trees.flat import concatenate
from jointleaf._trees.routing import Router
from jointleaf.partitions import NO_CELL, LargeTreesPartitioner, make_partitioner
from jointleaf.partitions._growers import large_trees

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 5))
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * RNG.normal(size=600)
CLASSES = np.digitize(Y, np.quantile(Y, [0.25, 0.5, 0.75]))
KINDS = Columns((*(Column(f"x{j}", None) for j in range(4)), Column("kind", np.arange(6))))
MIXED = np.column_stack([np.where(RNG.random((600, 4)) < 0.1, np.nan, X[:, :4]), CLASSES])
MIXED[::50, 4] = np.nan
THRESHOLDS = pytest.mark.parametrize("thresholds", ["best", "random"])


def grown(rows=X, y=Y, weight=None, n_partitions=12, n_cells=32, random_state=0, **options):
    parameters = {k: options.pop(k) for k in ("thresholds", "n_jobs", "options") if k in options}
    cells = LargeTreesPartitioner(n_partitions, n_cells, random_state, **parameters)
    return cells.fit(rows, y, weight, **options)


@THRESHOLDS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["numbers", "mixed", "classes"])
def test_rows_reach_all_leaves(thresholds, weighted, kind):
    s = RNG.integers(1, 4, 600).astype(float) if weighted else None
    rows, options = (MIXED, {"columns": KINDS}) if kind == "mixed" else (X, {})
    y = CLASSES if kind == "classes" else Y
    target_type = "classification" if kind == "classes" else "regression"
    cells = grown(rows, y, s, thresholds=thresholds, target_type=target_type, **options)
    codes = cells.apply(rows)
    assert codes.shape == (600, 12)
    np.testing.assert_array_equal(cells.n_cells_, cells.trees_.n_leaves)
    for column, n_cells in zip(codes.T, cells.n_cells_, strict=True):
        counts = np.bincount(column, minlength=n_cells)
        assert len(counts) == n_cells <= 32
        assert counts.min() >= (1 if weighted else 5)
    assert np.median(cells.n_cells_) > 16
    assert cells.apply(rows + 100.0).min() > NO_CELL
    assert cells.leaf_values_ is None
    assert (cells.split_gains_ >= 0).all()


def test_random_thresholds_differ_and_best_ones_find_the_steps():
    y = np.where(X[:, 0] > 0.3, 1.0, -1.0)
    best, random = (
        grown(y=y, n_cells=2, n_partitions=30, thresholds=t) for t in ("best", "random")
    )
    thresholds = [c.trees_.threshold[c.trees_.feature == 0] for c in (best, random)]
    below, above = X[X[:, 0] <= 0.3, 0].max(), X[X[:, 0] > 0.3, 0].min()
    near = np.abs(thresholds[0] - (below + above) / 2) < 0.1
    assert near.mean() > 0.9
    assert np.std(thresholds[1]) > 3 * np.std(thresholds[0])
    assert np.argmax(best.split_gains_) == np.argmax(random.split_gains_) == 0


@THRESHOLDS
def test_seeds_and_threads(thresholds):
    first = grown(thresholds=thresholds).apply(X)
    np.testing.assert_array_equal(first, grown(thresholds=thresholds, n_jobs=2).apply(X))
    assert (first != grown(thresholds=thresholds, random_state=1).apply(X)).any()
    same = clone(LargeTreesPartitioner(12, 32, 0, thresholds=thresholds)).fit(X, Y)
    np.testing.assert_array_equal(first, same.apply(X))


def test_neither_unit_of_targets_nor_of_weights_matters():
    s = RNG.integers(1, 4, 600).astype(float)
    first = grown(weight=s).apply(X)
    np.testing.assert_array_equal(first, grown(y=1024 * Y, weight=s).apply(X))
    np.testing.assert_array_equal(first, grown(weight=1024 * s).apply(X))


def test_codings_of_classes(monkeypatch):
    codings = []
    make = large_trees._codings

    def keep(*args):
        codings[:] = make(*args)
        return codings

    monkeypatch.setattr(large_trees, "_codings", keep)
    cells = grown(y=CLASSES, target_type="classification", n_partitions=25)
    assert len(cells.n_cells_) == 25
    assert len(codings) == 10
    for coding in codings:
        assert set(coding) == {-1.0, 1.0}
        by_class = [set(coding[k == CLASSES]) for k in range(4)]
        assert all(len(values) == 1 for values in by_class)
        assert sum(values == {1.0} for values in by_class) == 2
    assert len({tuple(coding) for coding in codings}) > 1
    grown(y=CLASSES > 1, target_type="classification")
    np.testing.assert_array_equal(codings, [np.where(CLASSES > 1, 1.0, -1.0)])
    assert len(grown(y=CLASSES, target_type="classification", n_partitions=3).n_cells_) == 3


@pytest.mark.parametrize("n", [1, 2, 3, 9])
@THRESHOLDS
def test_too_few_rows_are_one_cell(n, thresholds):
    cells = grown(X[:n], Y[:n], thresholds=thresholds)
    assert set(cells.n_cells_) == {1}
    assert not cells.apply(X).any()


def test_options_reach_lightgbm():
    few = grown(options={"min_child_samples": 100})
    counts = [np.bincount(column).min() for column in few.apply(X).T]
    assert min(counts) >= 100
    assert len(grown(options={"num_iterations": 3}).n_cells_) == 12


def test_errors():
    with pytest.raises(
        ValueError, match=r"thresholds='worst' is not known: use 'best' or 'random'"
    ):
        grown(thresholds="worst")
    with pytest.raises(ValueError, match="n_cells"):
        grown(n_cells=1)
    with pytest.raises(ValueError, match="n_partitions"):
        grown(n_partitions=0)
    assert isinstance(make_partitioner("large_trees"), LargeTreesPartitioner)


# -- trees of several models -------------------------------------------------------------------


def test_concatenated_trees_route_as_their_parts():
    parts = [
        grown(MIXED, Y, columns=KINDS, n_partitions=n, random_state=seed, n_cells=12).trees_
        for seed, n in enumerate((3, 1, 5))
    ]
    assert all(len(part.categories_left) for part in parts), "tables of categories take part"
    single = grown(MIXED[:1], Y[:1], columns=KINDS).trees_  # a tree without splits
    new = MIXED[RNG.permutation(600)]
    new[:20, 4] = 17  # unseen categories
    for chosen in (parts, [parts[0]], [single, *parts, single]):
        whole = concatenate(chosen)
        side_by_side = np.concatenate([Router(part)(new) for part in chosen], axis=1)
        np.testing.assert_array_equal(Router(whole)(new), side_by_side)
        np.testing.assert_array_equal(whole.n_cells, np.concatenate([p.n_cells for p in chosen]))
        assert whole.n_trees == sum(part.n_trees for part in chosen)
        assert whole.leaf_values is None
