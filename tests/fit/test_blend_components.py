"""recipe="blend": its components, what held-out rows choose, and the weights of the blend."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

from blend_fits import (
    LINEAR_STRENGTHS,
    N_ROUNDS,
    NEW,
    NEW_Y,
    TASKS,
    WEIGHTS,
    X,
    Y,
    blend_pieces,
    blended,
    raw,
    small_fits,
)
from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._core.losses import SquaredError
from jointleaf._data.rows import Rows, canonical_rows
from jointleaf._fit import blend, boosting, default_partitions, grouped_joint, linear, recipes
from jointleaf._fit.blend import Stacking
from jointleaf._fit.boosting import Boosted, BoostedLinear, BoostedRandom, Growth
from jointleaf._fit.component import Blend
from jointleaf._fit.default_partitions import Group, grow_groups
from jointleaf._fit.linear import fit_logistic, fit_ridge
from jointleaf._fit.recipes import RECIPES, n_folds_and_splits
from jointleaf.partitions import (
    LightGBMPartitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    _union,
)

COMPONENTS = {
    "regression": {"boosted", "boosted_random", "boosted_linear", "joint", "linear"},
    "binary": {"boosted", "boosted_random", "joint", "linear"},
    "three": {"boosted", "boosted_random", "joint", "linear"},
}
KEYS = list(itertools.product(TASKS, [False, True]))


@pytest.fixture(scope="module", autouse=True)
def few_rounds():
    with small_fits():
        yield


@pytest.fixture(scope="module")
def fits():
    """Models of every task, with and without weights, in which every component takes part."""
    fitted = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blend, "_STACKING_ROWS", 1e6)  # which agree with equal weights
        patch.setattr(linear, "STRENGTHS", LINEAR_STRENGTHS)  # all of them are compared
        for task, weighted in KEYS:
            estimator, y = TASKS[task]
            with blend_pieces() as pieces:
                model = blended(estimator).fit(X, y, WEIGHTS if weighted else None)
            fitted[task, weighted] = model, pieces
    return fitted


# -- the sum -----------------------------------------------------------------------------------


def raw_boosted(component, frame, new):
    """Raw predictions of LightGBM with the component's rounds, grown on all rows."""
    stage = replace(component._stage, rounds=component.n_rounds)
    growth = Growth(component.context, frame, component.context.rows, stage)
    return growth.raw(growth.train(), SimpleNamespace(X=new))


def raw_joint(component, frame, new):
    """What the joint fit starts from, and the sums over its cells."""
    solve, setting = component.solve, component._setting
    sums = solve.solution.predict(frame.features.transform(new), component.partitioner.apply(new))
    if component.context.is_regression:
        return solve.offset + sums
    return setting.log_odds * sums + setting.constant


def raw_linear(component, frame, new):
    """Predictions of scikit-learn's linear models."""
    rows, Z_new = component.context.rows, frame.features.transform(new)
    Z, y = frame.features.transform(rows.X), frame.target(rows.y)
    if component.context.is_regression:
        ridge = Ridge(alpha=component.strength * rows.s.sum())
        return ridge.fit(Z, y, sample_weight=rows.s).predict(Z_new)
    weights = fit_logistic(Z, y, rows.s, component.strength)
    return Z_new @ weights[:-1] + weights[-1]


@pytest.mark.parametrize("key", KEYS)
def test_the_prediction_is_the_sum_of_its_components(key, fits):
    model, pieces = fits[key]
    weights, components, context = model.blend_.weights, pieces["components"], pieces["context"]
    assert set(weights) == COMPONENTS[key[0]]
    assert min(weights.values()) > 0
    frame, expected = context.standardize(context.rows), 0.0
    for name, weight in weights.items():
        part = {"joint": raw_joint, "linear": raw_linear}.get(name, raw_boosted)
        expected = expected + weight * part(components[name], frame, NEW)
    expected = frame.centre + frame.unit * expected
    np.testing.assert_allclose(raw(model, NEW), expected, rtol=1e-4, atol=1e-4)


# -- boosted trees -----------------------------------------------------------------------------

OWN_PARAMS = {
    "boosted": {
        "num_leaves": 8, "learning_rate": 0.08, "min_data_in_leaf": 5, "lambda_l2": 1.0,
        "feature_fraction_bynode": 0.7,
    },
    "boosted_random": {
        "num_leaves": 8, "learning_rate": 0.08, "min_data_in_leaf": 5, "lambda_l2": 1.0,
        "extra_trees": True,
    },
    "boosted_linear": {
        "num_leaves": 4, "learning_rate": 0.2, "min_data_in_leaf": 40, "lambda_l2": 5.0,
        "extra_trees": True, "path_smooth": 10.0, "linear_tree": True, "linear_lambda": 0.1,
    },
}  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", OWN_PARAMS)
def test_boosted_components_are_models_of_lightgbm(name, weighted, fits):
    _, pieces = fits["regression", weighted]
    context, component = pieces["context"], pieces["components"][name]
    frame, rows = context.standardize(context.rows), context.rows
    # Linear leaves are fitted to standardised columns.
    see = frame.features.transform if name == "boosted_linear" else np.asarray
    params = {
        "objective": "regression", "seed": context.seed, "num_threads": 1, "deterministic": True,
        "force_row_wise": True, "verbosity": -1, "max_bin": 127, **OWN_PARAMS[name],
    }  # fmt: skip
    data = lightgbm.Dataset(
        see(rows.X), frame.target(rows.y), weight=rows.s / rows.s.mean(), params=params
    )
    booster = lightgbm.train(params, data, num_boost_round=component.n_rounds)
    expected = frame.centre + frame.unit * booster.predict(see(NEW))
    found = component.fit(frame)
    np.testing.assert_allclose(found.predict(NEW), expected, rtol=1e-6)
    assert bool(found.layout.n_linear_cells) == (name == "boosted_linear")


@pytest.mark.parametrize("n_train", [len(X) * 8 // 10, len(X) * 19 // 20])
@pytest.mark.parametrize("task", TASKS)
def test_models_of_nearly_all_rows_are_those_of_the_fit(task, n_train):
    """Then held-out rows are rows that the model has not seen."""
    estimator, y = TASKS[task]
    order = np.random.default_rng(0).permutation(len(X))
    with blend_pieces() as pieces:
        blended(estimator, cv=[(order[:n_train], order[n_train:])]).fit(X, y)
    context, ((train, valid),) = pieces["context"], pieces["splits"]
    centre, unit = context.target_units(train)
    for name in ("boosted", "boosted_random", "joint"):
        alone = Blend.alone(name)
        model, _ = recipes._fit_components(context, pieces["components"], alone)
        expected = centre + unit * pieces["held_out"][name][0]
        gap = np.abs(model.predict(valid.X) - expected).max()
        rounding = 1e-5 * unit if name == "joint" else 1e-6  # single precision, or double
        assert (gap < rounding) == (n_train > 0.9 * len(X)), gap


@pytest.mark.parametrize("task", TASKS)
def test_components_of_little_weight_are_those_of_the_one_split(task):
    """Their held-out predictions are those of the model, but for the units."""
    estimator, y = TASKS[task]
    order = np.random.default_rng(0).permutation(len(X))
    with blend_pieces() as pieces:
        blended(estimator, cv=[(order[:250], order[250:])]).fit(X, y)
    context, components = pieces["context"], pieces["components"]
    ((train, valid),) = pieces["splits"]
    frame, (centre, unit) = context.standardize(context.rows), context.target_units(train)
    assert (frame.unit != unit) == context.is_regression
    refitted = components["boosted_random"].fit(frame).predict(valid.X)
    held_out = centre + unit * pieces["held_out"]["boosted"][0]
    for weight in (0.14, 0.16):
        weights = Blend({"boosted": weight, "boosted_random": 1 - weight})
        model, _ = recipes._fit_components(context, components, weights)
        expected = weight * held_out + (1 - weight) * refitted
        gap = np.abs(model.predict(valid.X) - expected).max()
        assert (gap < 1e-9 * max(unit, 1.0)) == (weight < 0.15), (weight, gap)


def test_trees_that_are_far_behind_take_no_part():
    """Borders at random find a few steps late; those in the best places find them at once."""
    rng = np.random.default_rng(0)
    steps = rng.uniform(size=(600, 4))
    y = (steps > 0.37).astype(float) @ [8.0, 4.0, 2.0, 1.0]
    with blend_pieces() as pieces, pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosting, "_RACE", {5: 1.15})
        in_time = blended(JOPLEnRegressor, time_budget=1000).fit(steps, y)
        model = blended(JOPLEnRegressor).fit(steps, y)
    components, held_out = pieces["components"], pieces["held_out"]
    slow, first = components["boosted_random"], components["boosted"]
    assert len(slow._losses) == 5
    assert min(slow._losses) > 1.15 * min(first._losses[:5])
    assert "boosted_random" not in held_out
    assert slow.is_left_out
    assert model.blend_.weights["boosted_random"] == 0
    assert "boosted_random (no help on held-out rows)" in in_time.report_.left_out


@pytest.mark.parametrize("key", KEYS)
def test_boosting_ends_at_the_best_round(key, fits):
    """Every split predicts with its own best; the model has the mean of them."""
    _, pieces = fits[key]
    context = pieces["context"]
    for name in COMPONENTS[key[0]] - {"joint", "linear"}:
        component, rounds = pieces["components"][name], []
        held_out = zip(pieces["splits"], pieces["held_out"][name], strict=True)
        for (train, valid), predictions in held_out:
            frame = context.standardize(train)
            growth = Growth(context, frame, train, component._stage)
            booster, table, target = growth.train(), growth._table(valid.X), frame.target(valid.y)
            by_round = [
                booster.predict(table, raw_score=True, num_iteration=n + 1) for n in range(N_ROUNDS)
            ]
            losses = [context.loss.value(context.loss.encode(target), f, valid.s) for f in by_round]
            rounds.append(np.argmin(losses) + 1)
            np.testing.assert_allclose(predictions, by_round[rounds[-1] - 1], atol=1e-6)
        assert len(rounds) == 3
        assert component.n_rounds == round(np.mean(rounds))


class FewColumns:
    """What a component asks its context for before it is fitted."""

    def __init__(self, n_outputs, n_rows):
        X = np.zeros((n_rows, 3))
        self.n_outputs, self.rows = n_outputs, canonical_rows(X, np.arange(n_rows), np.ones(n_rows))


def test_many_classes_have_fewer_rounds_with_larger_steps():
    for n_outputs, part in ((1, 1), (5, 1), (6, 5 / 6), (30, 1 / 6)):
        context = FewColumns(n_outputs, 100)
        for kind in (Boosted, BoostedRandom):
            stage = kind(context, {})._stage
            assert stage.rounds == round(part * N_ROUNDS)
            assert stage.rate == pytest.approx(0.08 / part**0.5)
            assert stage.is_random == (kind is BoostedRandom)
            assert stage.n_cells == 8
        assert Boosted(FewColumns(n_outputs, 8001), {})._stage.n_cells == 63


def test_many_classes_have_no_trees_with_the_best_thresholds():
    edges = np.quantile(Y, np.arange(1, 6) / 6)
    model = blended(JOPLEnClassifier).fit(X, np.digitize(Y, edges))
    assert set(model.blend_.weights) == {"boosted_random", "joint", "linear"}
    assert model.score(NEW, np.digitize(NEW_Y, edges)) > 0.4  # by chance 1 / 6
    few = blended(JOPLEnClassifier).fit(X[:7], np.arange(7))  # with nothing to hold out
    np.testing.assert_allclose(few.predict_proba(NEW).sum(axis=1), 1)


# -- the linear model --------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [1e-6, 0.1, 3.0])
def test_ridge_regression_is_that_of_scikit_learn(strength):
    Z, y = 5 + X, 100 + Y  # neither is centred
    for s in (np.ones(360), WEIGHTS):
        expected = Ridge(alpha=strength * s.sum()).fit(Z, y, sample_weight=s)
        found = fit_ridge(Z, y, s, strength)
        np.testing.assert_allclose(found[:-1], expected.coef_, rtol=1e-8)
        assert found[-1] == pytest.approx(expected.intercept_)
        np.testing.assert_allclose(found, fit_ridge(Z, y, 7 * s, strength), rtol=1e-9)


@pytest.mark.parametrize("key", KEYS)
def test_the_linear_model_has_the_best_strength(key, fits):
    _, pieces = fits[key]
    component, splits = pieces["components"]["linear"], pieces["splits"]
    tables = [component._tables(*split) for split in splits]

    def loss(strength):
        raws = [component._raw(table, strength) for table in tables]
        losses = [component._loss(*pair) for pair in zip(raws, splits, strict=True)]
        return np.average(losses, weights=[valid.s.sum() for _, valid in splits])

    best = loss(component.strength)
    assert all(best <= loss(10.0**k) for k in range(-6, 1))
    for table, predictions in zip(tables, pieces["held_out"]["linear"], strict=True):
        np.testing.assert_array_equal(component._raw(table, component.strength), predictions)


# -- the joint fit -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
def test_scales_follow_the_weights_of_their_groups(key, fits):
    model, pieces = fits[key]
    (_, _, screen), (first, _, choice), (scales, slope_scale, _) = pieces["choices"][-3:]
    assert np.ptp(first) == 0
    assert (screen.n_folds, choice.n_folds) == (1, 3)
    weights = (choice.group_weights / choice.group_weights.max()) ** 4
    is_used = weights >= 1e-3  # groups of smaller scales are left out
    np.testing.assert_allclose(scales, weights[is_used] / weights[is_used].sum())
    setting, joint = model.report_.joint.setting, pieces["components"]["joint"]
    names = ["large_trees", "random_trees", "linear_rotated", "root"]
    names += ["boosted_trees"] if key[0] == "regression" else []
    # The first split leaves out those with a weight below a twentieth of the largest.
    is_left = screen.group_weights >= 0.05 * screen.group_weights.max()
    names = [name for name, left in zip(names, is_left, strict=True) if left]
    names = [name for name, used in zip(names, is_used, strict=True) if used]
    assert setting.keys() == {
        "strength", "slope_scale", "n_steps", *(f"{name}_scale" for name in names)
    }  # fmt: skip
    np.testing.assert_array_equal([setting[f"{name}_scale"] for name in names], scales)
    assert setting["slope_scale"] == slope_scale
    kinds, group_of = joint._partition_kinds(joint.partitioner)
    np.testing.assert_allclose(np.bincount(group_of, model.penalty_.partition_weights), scales)
    assert list(model.solution_.layout.kinds) == kinds


@pytest.mark.parametrize("key", KEYS)
def test_the_scale_of_slopes_is_better_than_its_neighbours(key, fits):
    _, pieces = fits[key]
    *tried, _, (_, slope_scale, _), _ = pieces["choices"]
    losses, scales = {s: choice.loss for _, s, choice in tried}, grouped_joint._SLOPE_SCALES
    assert losses[slope_scale] == min(losses.values())
    at = scales.index(slope_scale)
    assert set(scales[max(at - 1, 0) : at + 2]) <= losses.keys() <= set(scales)


def test_without_linear_cells_no_scale_of_slopes_is_tried():
    estimator, y = TASKS["binary"]
    with blend_pieces() as pieces:
        blended(estimator, cells="constant").fit(X, y)
    assert [slope_scale for _, slope_scale, _ in pieces["choices"]] == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("task", TASKS)
def test_rivals_are_fitted_to_all_splits_if_the_first_has_a_use_for_them(task):
    estimator, y = TASKS[task]
    with blend_pieces() as pieces:
        model = blended(estimator).fit(X, y)
    components, held_out, splits = (pieces[name] for name in ("components", "held_out", "splits"))
    rivals = {name: c for name, c in components.items() if c.has_rivals}
    assert rivals.keys() == components.keys() & {"boosted_random", "boosted_linear"}
    first = {
        name: (c._predictions if name in rivals else held_out[name])[:1]
        for name, c in components.items()
    }
    active = Stacking().fit(pieces["context"], components, first, splits[:1]).active
    for name, component in rivals.items():
        assert (name in held_out) == (name in active) == (not component.is_left_out)
        assert len(component._rounds) == (len(splits) if name in active else 1)
    assert model.blend_.weights.keys() == COMPONENTS[task]
    assert all(model.blend_.weights[name] == 0 for name in rivals.keys() - set(active))


def test_partitions_on_residuals_share_their_linear_model(fits, monkeypatch):
    _, pieces = fits[KEYS[0]]
    train, _ = pieces["splits"][0]
    inner = RandomTreesPartitioner(3, 4, random_state=0), LightGBMPartitioner(2, 4, random_state=0)
    groups = [Group("root", RootCell(), "linear")]
    groups += [Group(f"{k}", ResidualPartitioner(p), "linear") for k, p in enumerate(inner)]
    n_fits, fit = [], _union.fit_linear_part
    monkeypatch.setattr(_union, "fit_linear_part", lambda rows: n_fits.append(1) or fit(rows))
    monkeypatch.setattr(default_partitions, "seeded", lambda union, *_: union)
    root, *members = grow_groups(groups, train, pieces["context"])
    assert (len(n_fits), type(root)) == (1, RootCell)
    for member, partitioner in zip(members, inner, strict=True):
        alone = ResidualPartitioner(clone(partitioner)).fit(train.X, train.y, train.s)
        np.testing.assert_array_equal(member.apply(X), alone.apply(X))


@pytest.mark.parametrize("key", KEYS)
def test_constants_have_the_trees_of_all_splits(key, fits):
    """Linear cells and boosted trees are those of the first split."""
    _, pieces = fits[key]
    joint, n_members = pieces["components"]["joint"], []
    assert len(joint._folds) == 3
    for g, (name, kind) in enumerate(zip(joint._names, joint._kinds, strict=True)):
        folds = joint._folds if kind == "constant" and name != "boosted_trees" else joint._folds[:1]
        expected = [fold.partitioner.partitioners_[g] for fold in folds]
        is_member = np.array(joint._group_of_member) == g
        found = [joint.partitioner.partitioners_[k] for k in np.flatnonzero(is_member)]
        assert [id(member) for member in found] == [id(member) for member in expected]
        n_members.append(len(found))
    assert set(n_members) == {1, 3}


def test_a_fold_with_some_of_its_groups(fits):
    _, pieces = fits["regression", False]
    joint = pieces["components"]["joint"]
    fold, n_groups = joint._folds[1], len(joint._names)
    before, chosen = fold.codes.shape, np.arange(n_groups)[1::2]
    some = fold.with_groups(chosen)
    assert 0 < some.codes.shape[1] < before[1] == fold.codes.shape[1]
    members = [fold.partitioner.partitioners_[g] for g in chosen]
    assert some.partitioner.partitioners_ == members
    for rows, codes in ((fold.train, some.codes), (fold.valid, some.codes_valid)):
        expected = np.concatenate([member.apply(rows.X) for member in members], axis=1)
        np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(some.n_cells, some.partitioner.n_cells_)
    np.testing.assert_array_equal(some.gains, some.partitioner.split_gains_)


# -- weights of the blend ----------------------------------------------------------------------


def stacking_case():
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(3, 6000))
    y = 0.6 * parts[0] + 0.4 * parts[1] + 0.02 * parts[2]
    y = (y - y.mean()) / y.std()
    rows = Rows(np.zeros((6000, 1)), y, np.ones(6000), np.zeros((6000, 0), np.int64))
    context = SimpleNamespace(
        is_regression=True,
        has_own_link=False,
        loss=SquaredError(),
        target=lambda rows, units_of: rows.y,  # standard numbers already
    )
    held_out = {name: [part] for name, part in zip("abc", parts, strict=True)}
    return context, held_out, [(rows, rows)]


def test_negligible_components_are_left_out_and_the_others_fitted_again():
    context, held_out, splits = stacking_case()
    found = Stacking().fit(context, held_out, held_out, splits)
    assert found.weights["c"] == 0
    assert found.active == ["a", "b"]
    two = {name: held_out[name] for name in "ab"}
    expected = Stacking().fit(context, two, two, splits).weights
    assert found.weights == expected | {"c": 0.0}
    # A twentieth is by the spread of predictions: a large weight of small ones is as negligible.
    small = held_out | {"c": [held_out["c"][0] / 1000]}
    assert Stacking().fit(context, small, small, splits).weights == found.weights


def test_components_of_a_twentieth_stay(monkeypatch):
    context, held_out, splits = stacking_case()
    for share, is_left_out in ((0.01, False), (0.1, True)):
        monkeypatch.setattr(blend, "_NEGLIGIBLE", share)
        weights = Stacking().fit(context, held_out, held_out, splits).weights
        assert (weights["c"] == 0) == is_left_out, share


def test_splits_by_rows():
    rows = (100, 2000, 2001, 13_333, 13_334, 200_000, 10**6)
    found = [n_folds_and_splits(RECIPES["blend"], n) for n in rows]
    assert found == [(5, 3), (5, 3), (5, 2), (5, 2), (5, 1), (10, 1), (50, 1)]
    rows = (2001, 11_999, 12_001, 20_000, 20_001)
    found = [n_folds_and_splits(RECIPES["blend"], n, "classification") for n in rows]
    assert found == [(5, 3), (5, 3), (5, 2), (5, 2), (5, 1)]


def test_linear_leaves_need_slopes_for_all_numbers():
    estimator, y = TASKS["regression"]
    with blend_pieces() as pieces:
        blended(estimator, cells="constant").fit(X, y)
    component = pieces["components"]["boosted_linear"]
    assert isinstance(component, BoostedLinear)
    assert component.held_out(pieces["splits"]) is None
