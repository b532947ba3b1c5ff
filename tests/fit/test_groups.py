"""Rows of one group are never on both sides of a split, whatever the split is for."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut

from blend_fits import small_fits
from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._data import statistics
from jointleaf._data.rows import canonical_rows, deal_groups
from jointleaf._fit import calibration, component, recipes
from jointleaf._fit.folds import Fold
from jointleaf.partitions import LightGBMPartitioner

N_GROUPS, SIZE = 60, 6


def grouped_rows(seed, n_groups=N_GROUPS, n_columns=8):
    """Return rows that know their group, whose targets share an effect that new groups lack."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), SIZE)
    X = np.c_[rng.uniform(-1, 1, len(groups)), rng.standard_normal((n_groups, n_columns))[groups]]
    effects = rng.standard_normal(n_groups)
    effects = 2 * (effects - effects.mean()) / effects.std()
    y = 2 * X[:, 0] + effects[groups] + 0.3 * rng.standard_normal(len(X))
    return X, y, groups


X, Y, GROUPS = grouped_rows(0)
NEW, NEW_Y, _ = grouped_rows(1)


@pytest.fixture
def probe(monkeypatch):
    """Pairs of groups on both sides, by what the split is for."""
    seen = {}

    def keep(purpose, first, second):
        seen.setdefault(purpose, []).append((set(first.tolist()), set(second.tolist())))

    fit_recipe, fit_table = recipes.fit_recipe, statistics._fit_table
    residuals, logs = component._residuals, calibration.ResidualTrees.predict
    learn = calibration.log_widths

    def see_splits(context, recipe, splits, *args):
        for train, valid in splits:
            keep("folds", train.groups, valid.groups)
        return fit_recipe(context, recipe, splits, *args)

    def see_parts(table, classes, rows, parts):
        for part in np.unique(parts):
            keep("statistics", rows.groups[parts == part], rows.groups[parts != part])
        return fit_table(table, classes, rows, parts)

    def see_halves(train, valid, *args):
        keep("scale", train.groups, valid.groups)
        return residuals(train, valid, *args)

    def see_rows(rows, columns):
        seen["held out"] = rows.groups
        return learn(rows, columns)

    def see_widths(self, is_used, is_predicted):
        keep("widths", seen["held out"][is_used], seen["held out"][is_predicted])
        return logs(self, is_used, is_predicted)

    monkeypatch.setattr(recipes, "fit_recipe", see_splits)
    monkeypatch.setattr(statistics, "_fit_table", see_parts)
    monkeypatch.setattr(component, "_residuals", see_halves)
    monkeypatch.setattr(calibration, "log_widths", see_rows)
    monkeypatch.setattr(calibration.ResidualTrees, "predict", see_widths)
    return seen


@pytest.mark.parametrize("recipe", ["joint", "blend"])
@pytest.mark.parametrize("is_regression", [True, False])
def test_no_split_has_a_group_on_both_sides(probe, recipe, is_regression):
    frame = pd.DataFrame(X, columns=list("abcdefghi")).assign(
        city=[f"city {k % 70}" for k in range(len(X))]
    )
    options = {"random_state": 0, "recipe": recipe}
    with small_fits():
        if is_regression:
            JOPLEnRegressor(loss="huber", **options).fit(frame, Y, groups=GROUPS)
        else:
            y = np.digitize(Y, [-1, 3.5])  # of few rows in the last class, some move to training
            JOPLEnClassifier(**options).fit(frame, y, groups=GROUPS.astype(str))
    purposes = {"folds", "statistics"}
    if is_regression:
        purposes |= {"scale", "widths"}
    probe.pop("held out", None)
    assert set(probe) == purposes
    for pairs in probe.values():
        for first, second in pairs:
            assert first
            assert second
            assert not first & second


def test_groups_that_leak_choose_a_worse_model():
    model = JOPLEnRegressor(cv=3, random_state=0)
    errors, covered = [], []
    for groups in (GROUPS, None):
        model.fit(X, Y, groups=groups)
        errors.append(np.mean((model.predict(NEW) - NEW_Y) ** 2))
        low, high = model.predict_interval(NEW, 0.9).T
        covered.append(np.mean((low <= NEW_Y) & (high >= NEW_Y)))
    errors = np.array(errors) - np.mean((2 * NEW[:, 0] - NEW_Y) ** 2)  # of the effects of groups
    assert errors[0] < 0.5 * errors[1]
    assert covered[0] > 0.85 > 0.6 > covered[1]


def test_standard_errors_are_over_groups():
    """Rows of one group say less than as many others: means are over parts of whole groups."""
    fold = Fold.__new__(Fold)
    fold.valid = canonical_rows(X, Y, np.ones(len(X)), groups=GROUPS)
    fold.set_groups(7)
    parts = [set(fold.valid.groups[index].tolist()) for index in fold._groups]
    assert len(parts) == 7
    assert sum(map(len, parts)) == len(set.union(*parts)) == N_GROUPS
    np.testing.assert_allclose(fold.group_weights.sum(), len(X))
    fold.set_groups(1000)
    assert fold.n_groups == N_GROUPS


# -- dealing -----------------------------------------------------------------------------------


def test_parts_are_about_equal_and_so_are_classes():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 40, 1000) ** 2 % 61
    classes = (rng.random(1000) < 0.2) | (groups % 5 == 0)
    part = deal_groups(groups, 5, classes)
    for label in (False, True):
        counts = np.bincount(part[classes == label], minlength=5)
        assert counts.max() < 1.6 * counts.min()
    sizes = np.bincount(deal_groups(groups, 5))
    assert sizes.max() - sizes.min() <= np.bincount(groups).max()
    np.testing.assert_array_equal(deal_groups(np.arange(7), 3), np.arange(7) % 3)


def test_order_of_rows_and_names_of_groups_do_not_matter():
    model = JOPLEnRegressor(LightGBMPartitioner(8, 4), cv=3, random_state=0)
    expected = model.fit(X, Y, groups=GROUPS).predict(NEW)
    order = np.random.default_rng(0).permutation(len(X))
    names = np.array([f"{g:03d}" for g in GROUPS])
    found = model.fit(X[order], Y[order], groups=names[order]).predict(NEW)
    np.testing.assert_array_equal(found, expected)


def test_splitters_get_the_groups(probe):
    for cv in (GroupKFold(3), LeaveOneGroupOut()):
        model = JOPLEnRegressor(LightGBMPartitioner(4, 4), cv=cv, random_state=0)
        model.fit(X[:30], Y[:30], groups=GROUPS[:30])
    assert len(probe["folds"]) == 3 + 5
    assert not any(first & second for first, second in probe["folds"])


def test_fewer_groups_than_folds(probe):
    JOPLEnRegressor(LightGBMPartitioner(4, 4), random_state=0).fit(X, Y, groups=GROUPS < 40)
    assert probe["folds"] == [({1}, {0}), ({0}, {1})]


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "cv", "message"),
    [
        (np.ones(len(X)), None, "groups puts all rows of positive weight into one group"),
        (GROUPS[:-1], None, r"groups has shape \(359,\), expected \(360,\)"),
        ([None, *GROUPS[1:]], None, "groups is missing in row 0"),
        ([pd.NA, *GROUPS[1:]], None, "groups is missing in row 0"),
        (GROUPS // 20, 5, r"cv=5 asks for more folds than there are groups \(3\)"),
        (
            GROUPS,
            KFold(3, shuffle=True),
            r"cv=KFold.* rows of one group into training and validation",
        ),
    ],
)
def test_groups_that_cannot_be(groups, cv, message):
    with pytest.raises(ValueError, match=message):
        JOPLEnRegressor(cv=cv).fit(X, Y, groups=groups)


def test_a_group_with_all_rows_of_positive_weight():
    with pytest.raises(ValueError, match="into one group"):
        JOPLEnRegressor().fit(X, Y, GROUPS == 3, groups=GROUPS)


def test_splitter_of_groups_without_groups():
    with pytest.raises(ValueError, match=r"^cv=GroupKFold.* but there are none: give fit groups"):
        JOPLEnRegressor("lightgbm", cv=GroupKFold(3)).fit(X, Y)


def test_groups_that_are_classes_leave_nothing_to_validate_on():
    labels = (Y[:40] > 0).astype(int)
    model = JOPLEnClassifier("lightgbm", random_state=0)
    with pytest.warns(UserWarning, match="groups leave no split with two classes"):
        model.fit(X[:40], labels, groups=labels)
    assert model.calibration_ is None
