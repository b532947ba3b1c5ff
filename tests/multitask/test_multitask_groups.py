"""Groups of rows in fits of several tasks."""

import numpy as np
import pytest

from jointleaf import DirtyLasso, MultiTaskJOPLEnRegressor
from jointleaf._fit import recipes
from jointleaf.multitask import _fitting
from jointleaf.partitions import VoronoiPartitioner

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4))
Y = np.c_[X[:, 0] + X[:, 1], X[:, 0] - X[:, 2]] + 0.1 * RNG.standard_normal((120, 2))
GROUPS = np.arange(120) // 4
PAIRS = {"a": (X, Y[:, 0]), "b": (X[:60], Y[:60, 1])}
CELLS = VoronoiPartitioner(4, 3)


class Seen(Exception):
    """What was to be seen is seen."""


@pytest.fixture
def tied(monkeypatch):
    """Groups in training and in validation of every split, over all tasks."""
    seen = []

    def see(makers, *args, **options):
        for make in makers:
            folds = make()
            assert len({fold.n_groups for fold in folds}) == 1
            parts = [[fold.train.groups for fold in folds], [fold.valid.groups for fold in folds]]
            seen.append([set(np.concatenate(part).tolist()) for part in parts])
        raise Seen

    monkeypatch.setattr(_fitting, "choose_strengths", see)
    return seen


@pytest.mark.parametrize("form", ["outputs", "pairs", "dict"])
@pytest.mark.parametrize("cv", [None, 3])
def test_no_group_is_on_both_sides_of_any_task(tied, form, cv):
    model = MultiTaskJOPLEnRegressor(CELLS, penalty=DirtyLasso(), cv=cv, random_state=0)
    pairs = {"a": GROUPS, "b": GROUPS[:60]}
    rows = (X, Y) if form == "outputs" else (PAIRS,)
    groups = {"outputs": GROUPS, "pairs": list(pairs.values()), "dict": pairs}[form]
    with pytest.raises(Seen):
        model.fit(*rows, groups=groups)
    assert len(tied) == (cv or 5)
    for train, valid in tied:
        assert not train & valid
    assert set.union(*(valid for _, valid in tied)) == set(range(30))


def test_tasks_that_are_fitted_alone(monkeypatch):
    seen, fit_recipe = [], recipes.fit_recipe

    def see(context, recipe, splits, *args):
        seen.extend(splits)
        return fit_recipe(context, recipe, splits, *args)

    monkeypatch.setattr(recipes, "fit_recipe", see)
    MultiTaskJOPLEnRegressor(CELLS, cv=2, random_state=0).fit(X, Y, groups=GROUPS)
    assert len(seen) == 2 * 2
    for train, valid in seen:
        assert not set(train.groups) & set(valid.groups)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": GROUPS}, r"task 'b': groups has shape \(0,\), expected \(60,\)"),
        ([GROUPS], "groups must be a list or dict with the groups of each of the 2 tasks"),
        ([GROUPS > 14, GROUPS[:60] > 14], "groups leaves every split without training or valid"),
        ([np.ones(120), np.ones(60)], "groups puts all rows of positive weight into one group"),
    ],
)
def test_groups_that_cannot_be(groups, message):
    with pytest.raises(ValueError, match=message):
        MultiTaskJOPLEnRegressor(CELLS, penalty=DirtyLasso()).fit(PAIRS, groups=groups)
