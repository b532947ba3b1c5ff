"""recipe="blend": boosted trees, a joint fit of groups of partitions, and a linear model."""

import pickle
import subprocess
import sys
import textwrap
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_friedman1
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression

from blend_fits import (
    NEW,
    NEW_Y,
    TASKS,
    WEIGHTS,
    X,
    Y,
    blend_pieces,
    blended,
    few_groups,
    raw,
    small_fits,
    usual_blend,
)
from frame_data import make_frame
from jointleaf import L21, JOPLEnClassifier, JOPLEnRegressor
from jointleaf._core.design import LeafDesign
from jointleaf._core.solvers.krylov import KrylovPath
from jointleaf._data.rows import Rows
from jointleaf._fit import blend, boosting, default_partitions, grouped_joint, recipes
from jointleaf._fit.folds import with_all_classes
from jointleaf.partitions import NO_CELL


@pytest.fixture(autouse=True)
def few_rounds():
    with small_fits():
        yield


@pytest.fixture
def pieces():
    """What the blend of the last fit was fitted to."""
    with blend_pieces() as fitted:
        yield fitted


# -- coefficients and validation ---------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_coefficients_give_the_predictions(task):
    model, (_, y) = usual_blend(task), TASKS[task]
    rows = X[:40]
    assert len(model.coef_) == model.partitioner_.n_cells_.sum()
    found = []
    for x, codes in zip(rows, model.apply(rows), strict=True):
        cells = (model.cell_starts_ + codes)[codes != NO_CELL]
        slopes = np.tensordot(model.coef_[cells].sum(axis=0), x, axes=(0, 0))
        found.append(model.offset_ + slopes + model.intercept_[cells].sum(axis=0))
    np.testing.assert_allclose(raw(model, rows), found, rtol=1e-7, atol=1e-7)
    if task != "regression":
        np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1)
        assert set(model.predict(X)) <= set(y)


def test_noise_ends_boosting_at_once(pieces, monkeypatch):
    monkeypatch.setattr(boosting, "_RATE", 0.9)
    noise = np.random.default_rng(0).normal(size=360)
    blended(JOPLEnRegressor).fit(X, noise)
    assert pieces["components"]["boosted"].n_rounds == 1


def test_the_strength_is_the_best_of_those_tried():
    model = usual_blend()
    table = model.cv_results_
    assert list(table["param_strength"]) == list(grouped_joint._STRENGTHS)
    best = table["param_strength"][np.argmax(table["mean_test_score"])]
    assert model.report_.joint.setting["strength"] == best
    assert model.penalty_.bias_strength == best
    slope_scale = model.report_.joint.setting["slope_scale"]
    assert slope_scale in grouped_joint._SLOPE_SCALES
    assert model.penalty_.strength == pytest.approx(best / slope_scale**2)
    stronger = blended(JOPLEnRegressor, one_se=True).fit(X, Y)
    table = stronger.cv_results_
    k = np.argmax(table["mean_test_score"])
    enough = table["mean_test_score"] >= table["mean_test_score"][k] - table["se_test_score"][k]
    assert stronger.penalty_.bias_strength == table["param_strength"][enough].max()


def test_the_table_of_classes_tells_squared_errors_from_the_log_loss(pieces):
    estimator, y = TASKS["three"]
    model = blended(estimator).fit(X, y)
    table = model.cv_results_
    assert list(table["is_exact"]) == [False] * len(grouped_joint._STRENGTHS) + [True]
    loss, valid = pieces["context"].loss, [valid for _, valid in pieces["splits"]]
    assert len(valid) == 3
    target, s = loss.encode(np.concatenate([v.y for v in valid])), [v.s for v in valid]
    held_out = np.concatenate(pieces["held_out"]["joint"])
    exact = loss.value(target, held_out, np.concatenate(s))
    assert -table["mean_test_score"][-1] == pytest.approx(exact)
    assert model.report_.validation_loss == pytest.approx(exact)


@pytest.mark.parametrize("task", TASKS)
def test_partitions_of_a_split_never_see_its_validation_rows(task, monkeypatch):
    estimator, y = TASKS[task]
    train, valid = np.arange(260), np.arange(260, 360)
    seen = []
    grow = default_partitions.grow

    def keep(partitioner, rows, *args):
        seen.append(rows)
        return grow(partitioner, rows, *args)

    monkeypatch.setattr(default_partitions, "grow", keep)
    blended(estimator, cv=[(train, valid)]).fit(X, y)
    assert len(seen) == len(few_groups(260, 6, is_linear=True, root=True))  # grown once
    for rows in seen:
        assert {tuple(x) for x in rows.X} == {tuple(x) for x in X[train]}


@pytest.mark.parametrize("task", TASKS)
def test_the_blend_is_no_worse_than_its_parts_on_held_out_rows(task, pieces, monkeypatch):
    monkeypatch.setattr(blend, "_STACKING_ROWS", 1e-6)  # which agree with equal weights
    estimator, y = TASKS[task]
    model = blended(estimator).fit(X, y)
    context, splits = pieces["context"], pieces["splits"]
    target = np.concatenate([context.standardize(train).target(valid.y) for train, valid in splits])
    target, s = context.loss.encode(target), np.concatenate([valid.s for _, valid in splits])
    parts = {name: np.concatenate(part) for name, part in pieces["held_out"].items()}
    losses = {name: context.loss.value(target, f, s) for name, f in parts.items()}
    blended_raw = sum(model.blend_.weights[name] * f for name, f in parts.items())
    assert context.loss.value(target, blended_raw, s) <= (1 + 1e-6) * min(losses.values())
    shown = {part.name: part.weight for part in model.report_.components}
    assert shown == {name: w for name, w in model.blend_.weights.items() if w > 0}


def test_splits_of_the_user_s_that_overlap(pieces):
    """As many rows in both parts as there are: the cells are still fitted to all."""
    splits = [(np.arange(180), np.arange(90, 270))]
    model = blended(JOPLEnRegressor, cv=splits).fit(X, Y)
    component = pieces["components"]["joint"]
    rows, _ = component._rows_and_codes()
    assert {tuple(x) for x in rows.X} == {tuple(x) for x in X}
    assert model.score(X[270:], Y[270:]) > 0.9


def test_folds_whose_boosting_stops_at_different_rounds(pieces, monkeypatch):
    monkeypatch.setattr(boosting, "_ROUNDS", 60)
    monkeypatch.setattr(boosting, "_RATE", 0.3)
    blended(JOPLEnRegressor, cv=4).fit(X[:120], Y[:120])
    component = pieces["components"]["joint"]
    assert len({len(fold.n_cells) for fold in component._folds}) > 1


def test_validation_rows_that_are_given_choose(pieces):
    rows = np.r_[0:300]
    blended(JOPLEnRegressor).fit(X[rows], Y[rows], X_val=X[300:], y_val=Y[300:])
    ((train, valid),) = pieces["splits"]
    np.testing.assert_array_equal(valid.X, X[300:])
    assert {tuple(x) for x in train.X} == {tuple(x) for x in X[rows]}
    split = np.r_[0:250], np.r_[250:360]
    blended(JOPLEnRegressor, cv=[split]).fit(X, Y)
    ((train, valid),) = pieces["splits"]
    assert {tuple(x) for x in valid.X} == {tuple(x) for x in X[250:]}
    assert {tuple(x) for x in train.X} == {tuple(x) for x in X[:250]}


def test_every_split_that_is_given_counts(pieces):
    model = blended(JOPLEnRegressor, cv=3).fit(X, Y)
    assert len(pieces["splits"]) == 3
    assert {len(parts) for parts in pieces["held_out"].values()} == {3}
    assert model.blend_ != usual_blend().blend_


def test_a_class_that_training_lacks(pieces):
    y = np.where(np.median(Y) < Y, 2, 0)
    y[5] = 1
    train, valid = np.setdiff1d(np.arange(250), [5]), np.append(np.arange(250, 360), 5)
    model = blended(JOPLEnClassifier, cv=[(train, valid)]).fit(X, y)
    ((used, held_out),) = pieces["splits"]
    assert set(used.y) == {0, 1, 2}
    assert set(held_out.y) == {0, 2}
    for (predictions,) in pieces["held_out"].values():
        assert np.ptp(predictions, axis=1).min() > 0
    assert model.score(NEW, np.where(np.median(Y) < NEW_Y, 2, 0)) > 0.8


# -- how good ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_better_than_a_constant_and_a_linear_model(weighted):
    s = WEIGHTS if weighted else None
    model = blended(JOPLEnRegressor).fit(X, Y, s) if weighted else usual_blend()
    error = np.mean((model.predict(NEW) - NEW_Y) ** 2)
    for other in (DummyRegressor(), LinearRegression()):
        assert error < 0.6 * np.mean((other.fit(X, Y, s).predict(NEW) - NEW_Y) ** 2)
    shifted = blended(JOPLEnRegressor).fit(X, 1e6 + 100 * Y, s).predict(NEW)
    np.testing.assert_allclose((shifted - 1e6) / 100, model.predict(NEW), atol=0.1)


def test_weights_count_as_rows():
    whole = blended(JOPLEnRegressor).fit(X, Y, WEIGHTS).predict(NEW)
    kept = np.repeat(np.arange(360), WEIGHTS.astype(int))
    order = np.random.default_rng(0).permutation(kept)
    again = blended(JOPLEnRegressor).fit(X[order], Y[order]).predict(NEW)
    np.testing.assert_array_equal(whole, again)


def test_same_seed_same_model_whatever_the_threads():
    one = usual_blend().predict(NEW)
    two = blended(JOPLEnRegressor, n_jobs=2).fit(X, Y).predict(NEW)
    np.testing.assert_array_equal(one, two)
    other = JOPLEnRegressor(recipe="blend", random_state=1).fit(X, Y).predict(NEW)
    assert (one != other).any()


def test_a_frame_with_categories_and_missing_values():
    frame, y = make_frame(300)
    new, new_y = make_frame(200, seed=1)
    model = blended(JOPLEnRegressor).fit(frame, y)
    known = new["city"].notna().to_numpy()
    assert model.score(new[known], new_y[known]) > 0.9
    classes = blended(JOPLEnClassifier).fit(frame, np.median(y) < y)
    assert classes.score(new, np.median(y) < new_y) > 0.85
    odd = new.assign(city="atlantis")
    assert np.isfinite(model.predict(odd)).all()


@pytest.mark.parametrize("y", [np.ones(360), 1e6 + np.zeros(360)])
def test_a_constant_target(y):
    np.testing.assert_allclose(blended(JOPLEnRegressor).fit(X, y).predict(NEW), y[0])


# -- when it is used ---------------------------------------------------------------------------


def test_rows_decide_by_default(pieces, monkeypatch):
    names = [recipes.recipe_for(n) for n in (2, 2000, 2001, 10_000, 10_001, 10**9)]
    assert names == ["joint", "joint", "blend", "blend", "blend", "blend"]
    fewer = {**recipes.RECIPES, "joint": replace(recipes.RECIPES["joint"], max_rows=100)}
    monkeypatch.setattr(recipes, "RECIPES", fewer)
    assert JOPLEnRegressor(random_state=0, cv=2).fit(X[:100], Y[:100]).report_.recipe == "joint"
    assert JOPLEnRegressor(random_state=0).fit(X[:101], Y[:101]).report_.recipe == "blend"
    assert JOPLEnRegressor("lightgbm", cv=2).fit(X[:110], Y[:110]).report_.recipe == "joint"


@pytest.mark.parametrize("task", TASKS)
def test_other_cells_are_no_other_recipe(task):
    estimator, y = TASKS[task]
    usual, far = usual_blend(task), NEW + 3.0
    names, linear = set(usual.blend_.weights), {"boosted_linear", "linear"}
    assert names == {"boosted", "boosted_random", "joint", "linear"} | (
        linear if task == "regression" else set()
    )
    for options, without in (
        ({"cells": "constant"}, linear),
        ({"root_cell": False}, {"linear"}),
        ({"clip": "cell"}, set()),
    ):
        model = blended(estimator, **options).fit(X, y)
        assert model.report_.recipe == "blend"
        assert set(model.blend_.weights) == names - without
        assert not np.allclose(raw(model, far), raw(usual, far), rtol=1e-7), options
        assert "cells" not in options or not model.coef_.any()


def test_partitions_for_a_penalty_that_is_given():
    rows, y = make_friedman1(2100, n_features=5, random_state=0)
    fit = JOPLEnRegressor(penalty=L21(10.0), random_state=0, max_iter=3, tol=0.1).fit(rows, y)
    assert fit.solution_.layout.n_partitions == 76
    fit = JOPLEnRegressor(penalty=L21(10.0), random_state=0, max_iter=3, tol=0.1).fit(X, Y)
    assert fit.solution_.layout.n_partitions == 401


@pytest.mark.parametrize("task", TASKS)
def test_cells_limit_their_linear_models(task):
    """With clip="cell" far rows see slopes at the borders of their cells alone."""
    estimator, y = TASKS[task]
    model = blended(estimator, clip="cell").fit(X, y)
    ranges = model.cell_model_.ranges
    assert len(ranges.low) == model.cell_model_.layout.n_linear_cells + 1
    far, farther = (raw(model, NEW + shift) for shift in (1e3, 1e6))
    np.testing.assert_allclose(far, farther, rtol=1e-6)
    np.testing.assert_allclose(raw(model, X), raw(usual_blend(task), X), rtol=1e-3, atol=1e-3)


# -- parameters --------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
def test_solvers_that_are_named_are_used(task, solver):
    estimator, y = TASKS[task]
    model = blended(estimator, solver=solver, tol=1e-3, max_iter=5000).fit(X, y)
    assert model.solution_.solver == solver
    assert model.solution_.status == "converged"


def test_iterations_and_tolerance_act():
    usual = usual_blend()
    assert usual.solution_.solver == "krylov"
    assert usual.solution_.status in ("stopped", "converged")
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        short = blended(JOPLEnRegressor, max_iter=2).fit(X, Y)
    assert (short.solution_.status, short.n_iter_) == ("max_iter", 2)
    loose = blended(JOPLEnRegressor, tol=5.0).fit(X, Y)
    assert loose.solution_.status == "converged"
    assert loose.n_iter_ < usual.n_iter_


def test_devices_act_or_raise():
    with pytest.raises(ValueError, match="device='abacus'"):
        blended(JOPLEnRegressor, device="abacus").fit(X, Y)
    model = blended(JOPLEnRegressor, device="auto").fit(X, Y)
    np.testing.assert_allclose(model.predict(NEW), usual_blend().predict(NEW))


def test_progress_is_shown_when_asked_for(capsys):
    blended(JOPLEnRegressor).fit(X, Y)
    assert capsys.readouterr() == ("", "")
    blended(JOPLEnRegressor, verbose=1).fit(X, Y)
    out, err = capsys.readouterr()
    assert "krylov" in out
    assert "joint fit [" in err
    assert "boosted, held-out rows [" in err


def test_an_interrupted_fit_leaves_the_estimator_as_it_was(monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    for owner, name in ((boosting.Growth, "train"), (KrylovPath, "_step"), (LeafDesign, "matvec")):
        fresh, fitted = blended(JOPLEnRegressor), deepcopy(usual_blend())
        before, predictions = dict(vars(fresh)), fitted.predict(NEW)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupt)
            for model in (fresh, fitted):
                with pytest.raises(KeyboardInterrupt):
                    model.fit(X[:300], -Y[:300])
        assert vars(fresh) == before
        np.testing.assert_array_equal(fitted.predict(NEW), predictions)


# -- unusual rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_the_scale_of_weights_does_not_matter(task):
    estimator, y = TASKS[task]
    one, scaled = (raw(blended(estimator).fit(X, y, c * WEIGHTS), NEW) for c in (1.0, 7e-9))
    np.testing.assert_allclose(one, scaled, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 10, 12, 20])
def test_few_rows(n):
    rows, y = X[:n], Y[:n]
    predictions = blended(JOPLEnRegressor).fit(rows, y).predict(NEW)
    assert np.abs(predictions - y.mean()).max() < 10 * np.ptp(y)
    labels = np.arange(n) % min(n, 3)
    probabilities = blended(JOPLEnClassifier).fit(rows, labels).predict_proba(NEW)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_extreme_weights():
    s = 10.0 ** np.random.default_rng(0).uniform(-8, 8, 360)
    for estimator, y in TASKS.values():
        assert np.isfinite(raw(blended(estimator).fit(X, y, s), NEW)).all()


def test_columns_of_every_kind():
    rng = np.random.default_rng(0)
    assert blended(JOPLEnRegressor).fit(X[:, 3:4], Y).score(NEW[:, 3:4], NEW_Y) > 0.2
    constant = blended(JOPLEnRegressor).fit(np.ones((360, 1)), Y)
    np.testing.assert_allclose(constant.predict(np.ones((3, 1))), Y.mean())
    missing = X.copy()
    missing[:, 2] = np.nan
    with pytest.warns(UserWarning, match="column 'x2' has no values at all") as warned:
        model = blended(JOPLEnRegressor).fit(missing, Y)
    assert len(warned) == 1
    without = NEW.copy()
    without[:, 2] = np.nan
    np.testing.assert_array_equal(model.predict(NEW), model.predict(without))
    missing[0, 2] = 1.0
    assert blended(JOPLEnRegressor).fit(missing, Y).score(missing, Y) > 0.8
    wide = np.concatenate([X, rng.normal(size=(360, 300))], axis=1)
    assert blended(JOPLEnRegressor).fit(wide[:80], Y[:80]).score(wide[80:], Y[80:]) > 0.1
    # Equal rows are held out together: with few kinds of them a fold lacks whole categories.
    names = [f"k{i}" for i in range(40)]
    kinds = pd.DataFrame({"a": rng.choice(list("abc"), 360), "b": rng.choice(names, 360)})
    y = np.where(kinds["a"] == "a", 2.0, 0.0) + rng.normal(0, 0.1, 360)
    for cells in ("linear", "constant"):
        assert blended(JOPLEnRegressor, cells=cells).fit(kinds, y).score(kinds, y) > 0.95
    assert blended(JOPLEnClassifier).fit(kinds, y > 1).score(kinds, y > 1) == 1


ELSEWHERE = """
    import pickle, sys
    sys.modules.update({"lightgbm": None, "xgboost": None, "catboost": None})
    models, rows = pickle.load(open(sys.argv[1], "rb"))
    answers = [getattr(m, "predict_proba", m.predict)(rows) for m in models]
    pickle.dump(answers, open(sys.argv[2], "wb"))
"""


def test_pickles_predict_without_lightgbm(tmp_path):
    models = [usual_blend(task) for task in TASKS]
    (tmp_path / "models").write_bytes(pickle.dumps((models, NEW)))
    names = tmp_path / "models", tmp_path / "answers"
    command = [sys.executable, "-c", textwrap.dedent(ELSEWHERE), *names]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    for model, answer in zip(models, pickle.loads(names[1].read_bytes()), strict=True):
        np.testing.assert_array_equal(answer, getattr(model, "predict_proba", model.predict)(NEW))


def test_rows_of_lacking_classes_move():
    y = np.array([0.0, 1, 2, 0, 1])
    rows = Rows(np.arange(5.0)[:, None], y, np.arange(1.0, 6), np.zeros((5, 0), np.int64))
    train, valid = rows.take(slice(2)), rows.take(slice(2, 5))
    ((moved, left),) = with_all_classes(rows, [(train, valid)])
    np.testing.assert_array_equal(moved.X[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(moved.s, [1, 2, 3])
    np.testing.assert_array_equal(left.X[:, 0], [3, 4])
    assert with_all_classes(rows, [(rows, valid)]) == [(rows, valid)]
