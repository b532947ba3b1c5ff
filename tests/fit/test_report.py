"""What a model says of its fit is what was done, at every size."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from blend_fits import small_fits
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf._fit import recipes
from jointleaf._fit.component import Blend, Component
from jointleaf._fit.folds import cv_results, loss_table
from jointleaf._model.cell_model import CellModel

X, Y = make_friedman1(400, n_features=5, noise=1.0, random_state=0)
LABELS = np.digitize(Y, [12.0, 17.0])


TASKS = {"regression": (JOPLEnRegressor, Y), "classification": (JOPLEnClassifier, LABELS)}


def only_boosted(self, context, components, held_out, splits):
    """A blend in which the joint fit has no weight."""
    return Blend({"joint": 0.0, "boosted": 1.0})


@pytest.fixture(scope="module", params=TASKS)
def boosted(request):
    estimator, y = TASKS[request.param]
    with small_fits(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes.Stacking, "fit", only_boosted)
        return estimator(random_state=0, recipe="blend").fit(X, y)


def test_no_joint_problem_is_claimed_where_none_was_solved(boosted):
    assert boosted.report_.recipe == "blend"
    assert boosted.solution_ is None
    assert boosted.penalty_ is None
    assert boosted.report_.joint is None
    assert boosted.cv_results_ is None
    weights = boosted.blend_.weights
    assert (weights["boosted"], weights["joint"], sum(weights.values())) == (1.0, 0.0, 1.0)
    assert boosted.n_iter_ == boosted.report_.n_rounds > 0
    text = boosted.summary()
    for word in ("solver", "converged", "penalty", "strength"):
        assert word not in text
    (of_joint,) = [line for line in text.splitlines() if "joint" in line]
    assert of_joint.startswith("left out")
    assert "joint (weight zero)" in of_joint
    assert f"{len(boosted.partitioner_.n_cells_):,}" in text
    with pytest.raises(ValueError, match=r"no joint problem was solved.*recipe='joint'"):
        boosted.report_.joint_or_raise("this test")


def test_every_component_is_named_with_its_weight():
    with small_fits():
        model = JOPLEnRegressor(random_state=0, recipe="blend").fit(X, Y)
    names = {part.name: part.weight for part in model.report_.components}
    assert names == {name: w for name, w in model.blend_.weights.items() if w > 0}
    text = model.summary()
    for part in model.report_.components:
        assert part.description in text
    assert model.solution_.solver in text


def test_a_component_of_weight_zero_is_not_fitted(boosted):
    assert [part.name for part in boosted.report_.components] == ["boosted"]
    assert set(boosted.cell_model_.layout.kinds) == {"constant"}


def test_a_given_penalty_is_reported_as_given():
    model = JOPLEnRegressor("voronoi", penalty=Frobenius(0.1), random_state=0).fit(X[:100], Y[:100])
    assert repr(model.penalty_) == repr(Frobenius(0.1))
    assert model.report_.joint.setting == {}
    assert model.cv_results_ is None
    assert model.report_.validation_loss is None


# -- scikit-learn's table ----------------------------------------------------------------------


def test_cv_results_have_the_keys_and_the_sign_of_scikit_learn():
    model = JOPLEnRegressor("lightgbm", cv=2, random_state=0).fit(X[:150], Y[:150])
    results = model.cv_results_
    n = len(results["params"])
    assert {"mean_test_score", "std_test_score", "rank_test_score"} <= set(results)
    assert {len(column) for column in results.values()} == {n}
    best = int(np.argmin(results["rank_test_score"]))
    assert results["mean_test_score"][best] == max(results["mean_test_score"])
    assert max(results["mean_test_score"]) < 0
    for k, params in enumerate(results["params"]):
        assert {name: results[f"param_{name}"][k] for name in params} == params
    assert -max(results["mean_test_score"]) == model.report_.validation_loss


def test_tables_go_both_ways():
    table = {
        "strength": np.array([1.0, 0.1]),
        "mean_loss": np.array([0.5, np.inf]),
        "std_loss": np.array([0.1, 0.2]),
        "se_loss": np.array([0.01, 0.02]),
        "is_exact": np.array([True, False]),
        "converged": np.array([True, True]),
    }
    results = cv_results(table)
    assert results["rank_test_score"].tolist() == [1, 2]
    again = loss_table(results)
    assert again.keys() == table.keys()
    for name, column in table.items():
        np.testing.assert_array_equal(again[name], column)


# -- a component is one class and one line ------------------------------------------------------


class Mean(Component):
    """The mean of the training rows."""

    name = "mean"

    def held_out(self, splits):
        return [np.zeros(len(valid)) + 0.1 for _, valid in splits]

    def fit(self, frame):
        return CellModel.linear(frame, np.zeros(len(frame.features.plan.names)), 0.1)

    def describe(self):
        return "a tenth of a standard deviation"


def test_a_component_is_one_class_and_one_line_in_a_recipe(monkeypatch):
    recipe = recipes.RECIPES["blend"]
    parts = {"regression": (*recipe.components["regression"], Mean)}
    changed = {**recipes.RECIPES, "blend": replace(recipe, components=parts)}
    monkeypatch.setattr(recipes, "RECIPES", changed)
    with small_fits():
        model = JOPLEnRegressor(recipe="blend", random_state=0).fit(X, Y + 3)
    assert "mean" in model.blend_.weights
    weight = model.blend_.weights["mean"]
    assert ("a tenth" in model.summary()) == (weight > 0)
    monkeypatch.setattr(recipes.Stacking, "fit", lambda *_: Blend({"mean": 2.0}))
    with small_fits():
        model = JOPLEnRegressor(recipe="blend", random_state=0).fit(X, Y)
    np.testing.assert_allclose(model.predict(X[:5]), Y.mean() + 0.2 * Y.std())
    assert model.explain(X[:3]).values.shape == (3, 5)
