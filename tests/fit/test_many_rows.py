"""Fits of very many rows: a sample tells what takes part, and trees see some of the rows."""

import numpy as np
import pytest

from blend_fits import TASKS, X, Y, blend_pieces, blended, small_fits
from jointleaf import JOPLEnRegressor
from jointleaf._fit import budget, group_fold, recipes
from jointleaf._fit.boosting import Boosted
from jointleaf._fit.default_partitions import Group, grow_groups, small_groups
from jointleaf._fit.grouped_joint import GroupedJoint, SmallJoint
from jointleaf.partitions import LargeTreesPartitioner, UnionPartitioner


@pytest.fixture(scope="module")
def fits():
    """Models of 360 rows, which count as very many, and what was chosen for them."""
    fitted = {}
    with small_fits(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "MANY_ROWS", 300)
        patch.setattr(budget, "SAMPLE_ROWS", 150)
        for task, (estimator, y) in TASKS.items():
            samples = []
            tried = budget.tried_on_sample

            def keep(context, recipe, split, tried=tried, samples=samples):
                samples.append(tried(context, recipe, split))
                return samples[-1]

            patch.setattr(budget, "tried_on_sample", keep)
            with blend_pieces() as pieces:
                fitted[task] = blended(estimator).fit(X, y), pieces, *samples
            patch.setattr(budget, "tried_on_sample", tried)
    return fitted


@pytest.fixture(scope="module")
def regression():
    """What an ordinary fit chose."""
    with small_fits(), blend_pieces() as pieces:
        blended(JOPLEnRegressor).fit(X, Y)
    return pieces


@pytest.mark.parametrize("task", TASKS)
def test_one_of_every_family_takes_part(task, fits):
    model, pieces, sample = fits[task]
    components = pieces["components"].values()
    assert {type(c) for c in components} == {type(c) for c in sample.values()}
    for family in (Boosted, GroupedJoint):
        assert sum(isinstance(component, family) for component in components) <= 1
    assert set(model.blend_.weights) <= set(sample)


@pytest.mark.parametrize("task", TASKS)
def test_the_sample_has_all_classes_and_nothing_that_is_held_out_of_it(task, fits):
    _, pieces, sample = fits[task]
    ((train, valid),) = pieces["splits"][:1]
    for component in sample.values():
        rows = component.context.rows
        assert len(rows) <= 150 + 37 + 3
        if task != "regression":
            assert len(np.unique(rows.y)) == len(np.unique(train.y))
        assert np.isin(rows.X[:, 0], np.append(train.X[:, 0], valid.X[:, 0])).all()


def test_groups_that_the_sample_has_no_use_for_are_not_grown(regression):
    context, splits = regression["context"], regression["splits"]
    sample, joint = GroupedJoint(context, {}), GroupedJoint(context, {})
    sample._names = ["random_trees", "root"]
    joint.follow(sample)
    fold = joint._make_fold(joint._set_groups(1), splits[:1], 0)
    assert joint._names == sample._names
    assert len(fold.partitioner.partitioners_) == 2


def test_trees_are_grown_on_some_of_the_rows(regression):
    sizes = []

    class Recorded(LargeTreesPartitioner):
        def fit(self, X, y=None, *arguments, **options):
            sizes.append(len(X))
            return super().fit(X, y, *arguments, **options)

    joint, (train, _) = regression["components"]["joint"], regression["splits"][0]
    groups = [Group("large_trees", Recorded(3, 8), "constant", n) for n in (100, 10_000)]
    union, again = (
        UnionPartitioner.of_fitted(grow_groups(groups, train, joint.context)) for _ in range(2)
    )
    assert sizes == 2 * [100, len(train)]
    assert len(union.n_cells_) == 6
    np.testing.assert_array_equal(union.apply(X), again.apply(X))


@pytest.mark.parametrize(("n_rows", "n_trees"), [(100, 10), (5_000, 100), (10**6, 1000)])
def test_small_trees_are_as_many_as_rows_ask_for(n_rows, n_trees):
    group, root = small_groups(n_rows, root=True)
    assert (group.partitioner.n_partitions, group.kind, root.kind) == (
        n_trees,
        "constant",
        "linear",
    )
    assert len(small_groups(n_rows, root=False)) == 1


def test_codes_take_few_bytes_and_are_those_of_the_partitions(regression, monkeypatch):
    monkeypatch.setattr(group_fold, "_BLOCK_CODES", 1000)
    fold = regression["components"]["joint"]._folds[0]
    codes = fold._apply(fold.train.X)
    assert codes.dtype == np.int8
    np.testing.assert_array_equal(codes, fold.partitioner.apply(fold.train.X))


def test_a_joint_fit_of_many_small_trees_finds_additive_effects(monkeypatch):
    """Better than the boosted trees whose cells it has."""
    rng = np.random.default_rng(0)
    rows = rng.random((3000, 4))
    truth = np.sin(6 * rows[:, 0]) + 3 * rows[:, 1] ** 2
    y = truth + 0.3 * rng.normal(size=3000)
    monkeypatch.setattr(recipes, "MANY_ROWS", 1000)
    monkeypatch.setitem(recipes.FAMILIES, "regression", ((SmallJoint,),))
    model = JOPLEnRegressor(random_state=0, recipe="blend").fit(rows[:2500], y[:2500])
    assert list(model.blend_.weights) == ["small_joint"]
    assert model.solution_ is not None
    error = np.mean((model.predict(rows[2500:]) - truth[2500:]) ** 2)
    trees = small_groups(2500, root=False)[0].partitioner
    trees.fit(rows[:2500], y[:2500])
    starts = np.cumsum(trees.n_cells_) - trees.n_cells_
    boosted = trees.leaf_values_[trees.apply(rows[2500:]) + starts, 0].sum(axis=1)
    assert error < 0.5 * np.mean((boosted - truth[2500:]) ** 2)
    assert error < 0.01
