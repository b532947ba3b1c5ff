"""penalty="auto": an honest choice, whichever way the splits come."""

import threading
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit

from blend_fits import small_fits
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf._fit import blend, joint, search
from jointleaf._fit.folds import loss_table
from jointleaf._fit.search import Setting, auto_penalty, feature_weights, setting_cells
from jointleaf.partitions import (
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    LightGBMPartitioner,
    RandomForestPartitioner,
)

X, Y = make_friedman1(120, n_features=6, noise=0.5, random_state=0)
BINARY = (np.median(Y) < Y).astype(int)
THREE = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3]))
SMALL = LightGBMPartitioner(12, 4)

#: Grows the same trees from the same rows in any order.
STEADY = GradientBoostingPartitioner(
    12, 4, random_state=0, options={"subsample": 1.0, "max_features": None}
)


class Recording(RandomForestPartitioner):
    """Notes the rows of every fit of any of its clones."""

    fits: list[np.ndarray] = []  # noqa: RUF012
    lock = threading.Lock()

    def fit(self, X, y=None, sample_weight=None, *, target_type="regression"):
        with self.lock:
            self.fits.append(np.array(X))
        return super().fit(X, y, sample_weight, target_type=target_type)


@pytest.fixture
def few_settings():
    """Fits of tests in which it does not matter between how many settings is chosen."""
    with small_fits():
        yield


@pytest.fixture
def recording(few_settings):
    Recording.fits.clear()
    return Recording(5, 4)


def as_set(rows):
    return {tuple(row) for row in rows}


def raw(model, rows):
    return getattr(model, "decision_function", model.predict)(rows)


def best_in(table, among=None):
    losses = np.where(True if among is None else among, table["mean_loss"], np.inf)
    k = int(np.argmin(losses))
    return Setting(*(float(table[name][k]) for name in Setting._fields))


def setting_of(model):
    return Setting(**model.report_.joint.setting)


def fit_with(model, setting, X, y):
    """Fit the same estimator with the penalty of a setting given as an object."""
    fixed = clone(model).set_params(penalty=Frobenius(1.0), cells=setting_cells(setting), cv=None)
    grown = fixed.fit(X, y).partitioner_
    penalty = auto_penalty(setting, grown.split_gains_, len(grown.n_cells_), model.root_cell)
    return fixed.set_params(penalty=penalty).fit(X, y)


# -- what is chosen ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "y"),
    [(JOPLEnRegressor, Y), (JOPLEnClassifier, BINARY), (JOPLEnClassifier, THREE)],
    ids=["regression", "binary", "multiclass"],
)
def test_the_setting_with_the_least_loss_is_used(estimator, y):
    model = estimator(SMALL, cv=3, random_state=0).fit(X, y)
    table = loss_table(model.cv_results_)
    assert {len(column) for column in table.values()} == {len(table["mean_loss"])}
    assert setting_of(model) == best_in(table)
    assert table["is_exact"].all()
    assert {0, 1, 3, 10} <= set(table["slope_scale"]) <= set(search.SLOPE_SCALES)
    assert set(search.STRENGTHS) < set(table["strength"])  # and finer ones around the best
    best = np.argmin(table["mean_loss"])
    assert 0 < table["std_loss"][best] < np.inf
    assert model.penalty_.bias_strength == setting_of(model).strength
    again = fit_with(model, setting_of(model), X, y)
    np.testing.assert_array_equal(again.solution_.theta, model.solution_.theta)
    if estimator is JOPLEnRegressor:  # for classes the joint fit is calibrated
        np.testing.assert_array_equal(raw(again, X), raw(model, X))


def test_large_classification_ends_with_a_line_of_the_loss_itself(monkeypatch):
    monkeypatch.setattr(joint, "_MAX_EXACT", 10)
    model = JOPLEnClassifier(SMALL, cv=3, random_state=0).fit(X, THREE)
    table = loss_table(model.cv_results_)
    exact = table["is_exact"]
    line = set(zip(table["slope_scale"][exact], table["feature_power"][exact], strict=True))
    stand_in = best_in(table, ~exact)
    assert line == {(stand_in.slope_scale, stand_in.feature_power)}
    alone = exact & (table["joint_weight"] == 1)
    assert alone.sum() == len(search._HALF_STEPS)
    assert exact.sum() == alone.sum() + len(blend._JOINT_WEIGHTS) - 1
    assert setting_of(model) == best_in(table, alone)


def test_losses_are_those_of_models_fitted_without_the_validation_rows():
    splits = list(KFold(3).split(X))
    model = JOPLEnRegressor(STEADY, cv=splits).fit(X, Y)
    losses = []
    for train, valid in splits:
        fold = fit_with(model, setting_of(model), X[train], Y[train])
        error = fold.predict(X[valid]) - Y[valid]
        losses.append(0.5 * np.mean(error**2) / Y.var())
    table = loss_table(model.cv_results_)
    best = np.argmin(table["mean_loss"])
    assert table["mean_loss"][best] == pytest.approx(np.mean(losses), rel=1e-6)
    # Ten groups of validation rows or more, four in each of the three folds.
    assert table["se_loss"][best] == pytest.approx(table["std_loss"][best] / np.sqrt(12))


@pytest.mark.parametrize(
    ("estimator", "y"),
    [(JOPLEnRegressor, Y), (JOPLEnClassifier, BINARY), (JOPLEnClassifier, THREE)],
    ids=["regression", "binary", "multiclass"],
)
def test_iterative_paths_agree_with_the_kernel(monkeypatch, estimator, y):
    short = replace(search.GIVEN_PLAN, strengths=search._HALF_STEPS[:9])
    monkeypatch.setattr("jointleaf._fit.joint.GIVEN_PLAN", short)
    model = estimator(SMALL, cv=2, random_state=0)
    dense = losses_by_setting(loss_table(model.fit(X, y).cv_results_))
    monkeypatch.setattr(joint, "_MAX_DENSE_ROWS", 0)
    iterative = losses_by_setting(loss_table(model.fit(X, y).cv_results_))
    both = dense.keys() & iterative.keys()
    assert len(both) > 0.5 * len(dense)
    for setting in both:
        assert iterative[setting] == pytest.approx(dense[setting], rel=1e-3)


def losses_by_setting(table):
    names = ("strength", "slope_scale", "feature_power", "joint_weight")
    settings = zip(*(table[name] for name in names), strict=True)
    found = dict(zip(settings, table["mean_loss"], strict=True))
    return {setting: loss for setting, loss in found.items() if setting[3] == 1 and loss < np.inf}


def test_the_choice_beats_extreme_penalties():
    rows, targets = make_friedman1(400, n_features=8, noise=0.5, random_state=1)
    train, test = slice(0, 150), slice(150, None)
    chosen, weak, strong = (
        JOPLEnRegressor(penalty=penalty, random_state=0)
        .fit(rows[train], targets[train])
        .score(rows[test], targets[test])
        for penalty in ("auto", Frobenius(1e-8), Frobenius(10.0))
    )
    assert chosen > 0.85
    assert chosen > max(weak, strong)


def test_noise_features_get_little_weight():
    weights = feature_weights(np.array([4.0, 2.0, 0.0]), 1.0)
    np.testing.assert_allclose(weights.sum(), 1)
    np.testing.assert_allclose(weights[:2], [2 / 3, 1 / 3], rtol=1e-5)
    assert 0 < weights[2] < 1e-5
    np.testing.assert_allclose(feature_weights(np.zeros(4), 2.0), 0.25)
    np.testing.assert_allclose(feature_weights(np.array([5.0, 1.0]), 0.0), 0.5)


# -- where the splits come from ----------------------------------------------------------------


def test_partitions_are_grown_anew_in_every_fold(recording):
    JOPLEnRegressor(recording, cv=3, random_state=0).fit(X, Y)
    *folds, last = recording.fits
    everything = as_set(X)
    assert [len(rows) for rows in folds] == [80, 80, 80]
    assert as_set(last) == everything
    left_out = [everything - as_set(rows) for rows in folds]
    assert set.union(*left_out) == everything
    assert sum(map(len, left_out)) == len(everything)


def test_folds_by_default(recording):
    JOPLEnRegressor(recording, random_state=0).fit(X, Y)
    assert [len(rows) for rows in recording.fits] == [96] * 5 + [120]


def test_a_fixed_penalty_grows_partitions_once(recording):
    JOPLEnRegressor(recording, penalty=Frobenius(0.1)).fit(X, Y)
    assert len(recording.fits) == 1


def test_many_rows_use_one_validation_split(recording, monkeypatch):
    name = "jointleaf._fit.recipes.n_folds_and_splits"
    monkeypatch.setattr(name, lambda recipe, n_rows, *_, **__: (5, 1 if n_rows > 100 else 5))
    model = JOPLEnRegressor(recording, random_state=0).fit(X, Y)
    assert [len(rows) for rows in recording.fits] == [96, 120]
    assert setting_of(model) == best_in(loss_table(model.cv_results_))
    recording.fits.clear()
    JOPLEnRegressor(recording, cv=2, random_state=0).fit(X, Y)
    assert [len(rows) for rows in recording.fits] == [60, 60, 120]


def test_validation_rows_take_the_place_of_folds(recording):
    train, valid = slice(0, 80), slice(80, None)
    model = JOPLEnRegressor(recording, random_state=0)
    model.fit(X[train], Y[train], X_val=X[valid], y_val=Y[valid])
    assert [len(rows) for rows in recording.fits] == [80, 80]
    assert setting_of(model) == best_in(loss_table(model.cv_results_))
    error = model.predict(X[valid]) - Y[valid]
    expected = 0.5 * np.mean(error**2) / Y[train].var()
    assert loss_table(model.cv_results_)["mean_loss"].min() == pytest.approx(expected, rel=1e-6)


def test_validation_classes_are_encoded_as_the_training_classes(monkeypatch, few_settings):
    monkeypatch.setattr(blend, "_CALIBRATION_ROWS", 1e12)  # no calibration
    labels = np.array(["low", "middle", "high"])[THREE]
    train, valid = slice(0, 80), np.flatnonzero(THREE[80:] != 2) + 80
    model = JOPLEnClassifier(SMALL, random_state=0)
    model.fit(X[train], labels[train], X_val=X[valid], y_val=labels[valid])
    at = np.searchsorted(model.classes_, labels[valid])
    shares = model.predict_proba(X[valid])[np.arange(len(valid)), at]
    expected = -np.log(shares).mean()
    assert loss_table(model.cv_results_)["mean_loss"].min() == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("form", ["splitter", "list", "generator", "masks"])
def test_given_splits_are_kept(recording, form):
    splitter = KFold(4, shuffle=True, random_state=3)
    splits = list(splitter.split(X))
    masks = [tuple(np.isin(np.arange(len(X)), part) for part in pair) for pair in splits]
    forms = {"splitter": splitter, "list": splits, "generator": iter(splits), "masks": masks}
    JOPLEnRegressor(recording, cv=forms[form], random_state=0).fit(X, Y)
    *folds, last = recording.fits
    assert [as_set(rows) for rows in folds] == [as_set(X[train]) for train, _ in splits]
    assert as_set(last) == as_set(X)


def test_groups_stay_together(recording):
    groups = np.arange(len(X)) // 10
    splits = list(GroupKFold(3).split(X, Y, groups))
    JOPLEnRegressor(recording, cv=splits, random_state=0).fit(X, Y)
    where = {tuple(row): group for row, group in zip(X, groups, strict=True)}
    for rows in recording.fits[:-1]:
        inside = {where[row] for row in as_set(rows)}
        assert len(rows) == 10 * len(inside)


def test_rows_outside_of_all_splits_are_used_at_the_end(recording):
    splits = ShuffleSplit(2, train_size=0.3, test_size=0.3, random_state=0)
    JOPLEnRegressor(recording, cv=splits, random_state=0).fit(X, Y)
    assert [len(rows) for rows in recording.fits] == [36, 36, 120]


def test_copies_of_a_row_never_stand_on_both_sides(recording):
    JOPLEnRegressor(recording, cv=3, random_state=0).fit(np.tile(X, (3, 1)), np.tile(Y, 3))
    assert [len(rows) for rows in recording.fits] == [80, 80, 80, 120]


def test_classes_are_dealt_out_evenly(recording):
    y = np.repeat([0, 1, 2], [100, 14, 6])
    JOPLEnClassifier(recording, cv=2, random_state=0).fit(X, y)
    label = {tuple(row): number for row, number in zip(X, y, strict=True)}
    for rows in recording.fits[:-1]:
        counts = np.bincount([label[row] for row in as_set(rows)], minlength=3)
        np.testing.assert_array_equal(counts, [50, 7, 3])


def test_a_class_that_a_fold_lacks_is_no_problem(few_settings):
    y = np.array([2] + [0, 1] * 59 + [0])
    model = JOPLEnClassifier(SMALL, cv=3, random_state=0).fit(X, y)
    assert model.report_.joint.setting
    shares = model.predict_proba(X)
    assert shares.shape == (120, 3)
    assert np.isfinite(shares).all()


# -- the same data, the same choice ------------------------------------------------------------

MODELS = {
    "regression": (JOPLEnRegressor(SMALL, cv=3, random_state=0), Y),
    "union": (
        JOPLEnRegressor([SMALL, ExtraTreesPartitioner(6, 6)], cv=3, random_state=0),
        Y,
    ),
    "binary": (JOPLEnClassifier(SMALL, cv=3, random_state=0), BINARY),
    "multiclass": (JOPLEnClassifier(RandomForestPartitioner(9, 4), cv=3, random_state=0), THREE),
}


@cache
def fitted(name):
    model, y = MODELS[name]
    return clone(model).fit(X, y)


@pytest.fixture(params=MODELS)
def case(request, few_settings):
    """An estimator, its targets, and the same estimator fitted."""
    model, y = MODELS[request.param]
    return clone(model), y, fitted(request.param)


def test_threads_do_not_matter(case):
    model, y, fitted = case
    n_jobs = 2 if isinstance(model, JOPLEnRegressor) else -1
    again = clone(model).set_params(n_jobs=n_jobs).fit(X, y)
    np.testing.assert_array_equal(raw(again, X), raw(fitted, X))
    table, expected = (m.cv_results_["mean_test_score"] for m in (again, fitted))
    np.testing.assert_array_equal(table, expected)


def test_the_order_of_rows_does_not_matter(case):
    model, y, fitted = case
    order = np.random.default_rng(0).permutation(len(y))
    again = clone(model).fit(X[order], y[order])
    np.testing.assert_array_equal(raw(again, X), raw(fitted, X))


def test_weights_stand_for_repeated_and_removed_rows(case):
    model, y = clone(case[0]), case[1]
    weights = np.ones(len(y))
    weights[:20], weights[20:40] = 2, 0
    index = np.concatenate([np.arange(20), np.arange(20), np.arange(40, 120)])
    expected = raw(model.fit(X[index], y[index]), X)
    setting = setting_of(model)
    np.testing.assert_array_equal(raw(model.fit(X, y, weights), X), expected)
    assert setting_of(model) == setting


def test_removed_rows_are_removed_from_given_splits_too(few_settings):
    splits = list(KFold(3).split(X))
    weights = np.ones(len(Y))
    weights[::4] = 0
    junk = np.where(weights > 0, Y, 1e6)
    model = JOPLEnRegressor(SMALL, cv=splits, random_state=0)
    expected = model.fit(X, Y, weights).predict(X)
    np.testing.assert_array_equal(model.fit(X, junk, weights).predict(X), expected)


def test_the_seed_decides(case):
    model, y, fitted = case
    again = clone(model).set_params(random_state=1).fit(X, y)
    assert not np.array_equal(raw(again, X), raw(fitted, X))


def test_validation_loss_of_weighted_rows_counts_their_weight(few_settings):
    rows, labels = make_classification(120, n_features=4, flip_y=0.2, random_state=0)
    train, valid = np.arange(80), np.arange(80, 120)
    weights = np.ones(120)
    weights[100:] = 1e-9  # as good as absent from the validation part
    full = JOPLEnClassifier(SMALL, cv=[(train, valid)], random_state=0).fit(rows, labels, weights)
    less = JOPLEnClassifier(SMALL, cv=[(train, valid[:20])], random_state=0)
    less.fit(rows[:100], labels[:100])
    np.testing.assert_allclose(
        full.report_.validation_loss, less.report_.validation_loss, rtol=0.05
    )


def test_constant_cells_are_tuned_as_constant_cells():
    model = JOPLEnRegressor(SMALL, cells="constant", cv=2, random_state=0).fit(X, Y)
    assert set(model.cv_results_["param_slope_scale"]) == {0.0}
    assert not model.coef_.any()


@pytest.mark.parametrize(
    "cv", [[], [(np.arange(9), [])], [(np.arange(9), [10**6])], [([0.5], [1])], [1, 2]]
)
def test_splits_that_cannot_be_used_are_an_error(cv):
    with pytest.raises(ValueError, match="cv="):
        JOPLEnRegressor(SMALL, cv=cv).fit(X, Y)
