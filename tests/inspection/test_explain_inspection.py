"""Local models, effect curves, interactions and summaries, by finite differences and theory."""

from html import escape

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.exceptions import NotFittedError
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from explain_checks import QUIET
from frame_data import NEW, SMALL, make_frame
from frame_data import X as FRAME
from frame_data import Y as FRAME_Y
from jointleaf import (
    BoUTSRegressor,
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    MultiTaskJOPLEnRegressor,
    TablePreprocessor,
    prune,
    refine,
)
from jointleaf.inspection import effect, interactions, local_model
from jointleaf.partitions import (
    LightGBMPartitioner,
    Partitioner,
    RandomForestPartitioner,
    RootCell,
    RotatedPartitioner,
)

RIDGE = Frobenius(0.01)
X, Y = make_friedman1(200, n_features=6, noise=0.5, random_state=0)
THREE = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))


def fit(partitioner="lightgbm", penalty=RIDGE, **options):
    return JOPLEnRegressor(partitioner, penalty=penalty, random_state=0, **options).fit(X, Y)


# -- local models ---------------------------------------------------------------------------------

MODELS = {
    "lightgbm": lambda: fit(),
    "voronoi": lambda: fit("voronoi"),
    "rotated": lambda: fit(RotatedPartitioner(LightGBMPartitioner(12, 4), 4)),
    "rotated, single precision": lambda: fit(RotatedPartitioner(RandomForestPartitioner(6, 6), 3)),
    "steps": lambda: fit("steps"),
    "union": lambda: fit(["voronoi", "random_forest"]),
    "constant": lambda: fit(cells="constant"),
    "no clip": lambda: fit(clip=False),
    "clip cell": lambda: fit(LightGBMPartitioner(20, 4), clip="cell"),
    "recipe": lambda: JOPLEnRegressor(random_state=0).fit(X, Y),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_local_model_is_the_model_within_its_range(name):
    model = MODELS[name]()
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.random((6, 6)), X[[0, 5]], 1.6 * rng.random((4, 6)) - 0.3])
    for row in rows:
        local = model.local_model(row[None])
        assert local.value == pytest.approx(model.predict(row[None])[0], rel=1e-12)
        assert local.predict(local.x) == pytest.approx(local.value, rel=1e-10)
        assert (local.low <= row).all()
        assert (row <= local.high).all()
        for j in range(6):
            low, high = max(local.low[j], row[j] - 1.0), min(local.high[j], row[j] + 1.0)
            places = low + (high - low) * np.array([0.001, 0.3, 0.7, 0.999])
            moved = np.tile(row, (4, 1))
            moved[:, j] = places
            np.testing.assert_allclose(
                model.predict(moved), local.predict(moved), rtol=0, atol=1e-9
            )


def test_ranges_end_where_the_cell_does():
    model = fit()
    row = X[:1]
    local, code = model.local_model(row), model.apply(row)
    for j in range(6):
        for end, step in ((local.low[j], 0.0), (local.high[j], 1e-9)):
            inside_data = X[:, j].min() < end < X[:, j].max()
            moved = row.copy()
            moved[0, j] = end + step
            assert (model.apply(moved) != code).any() == inside_data


def test_slopes_are_derivatives_and_zero_outside_the_range():
    model = fit()
    row = np.full(6, 0.5)
    row[3] = 1.4  # beyond all training rows
    local = model.local_model(row[None])
    assert local.coef[3] == 0
    assert local.high[3] == np.inf
    step = 0.25 * np.minimum(local.high - row, row - local.low).clip(max=1e-3)
    for j in range(6):
        ends = np.stack([row, row])
        ends[0, j] -= step[j]
        ends[1, j] += step[j]
        low, high = model.predict(ends)
        assert (high - low) / (2 * step[j]) == pytest.approx(local.coef[j], abs=1e-6)


def test_local_models_with_text_missing_values_and_classes():
    frame, y = make_frame()
    classes = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    model = JOPLEnClassifier(SMALL, penalty=RIDGE, add_indicator=True, random_state=0)
    model.fit(frame, classes)
    for i in range(20):
        row = NEW.iloc[[i]]
        local = model.local_model(row)
        raw = model.decision_function(row)[0]
        np.testing.assert_allclose(local.value, raw, rtol=1e-12)
        np.testing.assert_allclose(local.predict(local.x), raw, atol=1e-10)
        assert local.coef.shape == (len(model.linear_feature_names_), 3)
        assert local.names == tuple(model.linear_feature_names_)
        gone = np.isnan(local.x)
        assert not local.coef[gone].any()
        assert np.isnan(local.low[gone]).all()
    categories = ["=" in name for name in local.names]
    assert np.isnan(local.low[categories]).all()


def test_local_models_of_refined_models_with_zeros_and_lookups():
    catboost = pytest.importorskip("catboost")
    frame = FRAME.fillna({"age": 0.0, "city": "none"})
    trained = catboost.CatBoostRegressor(iterations=20, depth=3, **QUIET, random_seed=0)
    trained.fit(frame, FRAME_Y, cat_features=["city", "kind"])
    model = refine(trained, frame, FRAME_Y, penalty=RIDGE)
    for i in range(5):
        row = frame.iloc[[i]]
        local = model.local_model(row)
        for j, name in enumerate(["size", "age", "noise"]):
            low, high = max(local.low[j], -1000), min(local.high[j], 1000)
            moved = row.assign(**{name: low + 0.9 * (high - low)})
            x = local.x.copy()
            x[j] = moved[name].iloc[0]
            assert model.predict(moved)[0] == pytest.approx(local.predict(x), abs=1e-9)


class Halves(Partitioner):
    """Partitions of a user."""

    def fit(self, X, y=None, sample_weight=None, *, target_type="regression", columns=None):
        self.n_features_in_ = X.shape[1]
        self.n_cells_ = np.array([2])
        self.split_gains_ = np.ones(X.shape[1])
        return self

    def apply(self, X):
        return (X[:, :1] > 0.5).astype(np.int32)


def test_ranges_that_are_not_known_are_nan():
    local = fit(Halves()).local_model(X[:1])
    assert np.isnan(local.low).all()
    assert np.isnan(local.high).all()


def test_local_models_of_tasks_and_pipelines():
    tasks = MultiTaskJOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0)
    tasks.fit(X, np.column_stack([Y, -Y]))
    local = tasks.local_model(X[:1], task=1)
    assert local.value == pytest.approx(tasks.predict(X[:1], task=1)[0])
    with pytest.raises(ValueError, match=r"several tasks: give one of \[0, 1\] as task"):
        tasks.local_model(X[:1])
    trained = make_pipeline(StandardScaler(), ExtraTreesRegressor(5, max_depth=3)).fit(X, Y)
    pipeline = refine(trained, X, Y, penalty=RIDGE)
    assert local_model(pipeline, X[:1]).value == pytest.approx(pipeline.predict(X[:1])[0])


def test_local_models_need_one_row_and_linear_cells():
    with pytest.raises(ValueError, match="X has 2 rows: give one"):
        fit().local_model(X[:2])
    with pytest.raises(TypeError, match="BoUTSRegressor has no linear models"):
        BoUTSRegressor(n_universal=2, n_task=2).fit(X, Y).local_model(X[:1])


# -- effects --------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", range(6))
def test_partial_dependence_is_that_of_scikit_learn(column):
    model = fit()
    found = effect(model, X, column, kind="partial_dependence", n_grid=8)
    # At every value that the column has: scikit-learn before 1.7 takes no places.
    expected = partial_dependence(model, X, [column], grid_resolution=len(X) + 1, kind="average")
    is_place = np.isin(expected["grid_values"][0], found.grid)
    assert is_place.sum() == len(found.grid)
    np.testing.assert_allclose(found.values, expected["average"][0][is_place], rtol=1e-12)


def test_scikit_learn_inspects_models_of_data_frames():
    frame, y = make_frame()
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0).fit(frame, y)
    expected = partial_dependence(model, frame, ["size"], grid_resolution=5)
    assert np.ptp(expected["average"]) > 1  # the size has a slope of one
    city = partial_dependence(model, frame.dropna(), ["city"], categorical_features=["city"])
    ours = effect(model, frame.dropna(), "city")
    assert ours.grid.tolist() == city["grid_values"][0].tolist()
    np.testing.assert_allclose(ours.values, city["average"][0], rtol=1e-12)
    drop = permutation_importance(model, frame, y, n_repeats=3, random_state=0)
    names = np.array(frame.columns)[np.argsort(-drop["importances_mean"])]
    assert set(names[:2]) == {"size", "city"}


def test_effects_of_an_additive_model_are_its_terms():
    """Without interactions both curves are the function of the column, up to a constant."""
    model = fit("steps", cells="constant")
    for column in range(6):
        ale = effect(model, X, column, n_grid=len(X))
        pdp = effect(model, X, column, kind="partial_dependence", n_grid=len(X))
        assert np.ptp(pdp.values) > 0
        np.testing.assert_allclose(ale.values - pdp.values, (ale.values - pdp.values)[0], atol=1e-9)


def test_accumulated_effects_of_a_linear_model_are_lines_with_mean_zero():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((300, 3))
    y = 2 * Z[:, 0] - Z[:, 1]
    model = JOPLEnRegressor(RootCell(), penalty=Frobenius(1e-8), root_cell=False).fit(Z, y)
    found = effect(model, Z, 0, n_grid=30)
    slopes = np.diff(found.values) / np.diff(found.grid)
    np.testing.assert_allclose(slopes, 2, atol=1e-3)
    at_rows = np.interp(Z[:, 0], found.grid, found.values)
    assert abs(at_rows.mean()) < 0.05
    assert abs(np.interp(0.0, found.grid, found.values) + 2 * Z[:, 0].mean()) < 0.05


def test_effects_with_missing_values_classes_and_constant_columns():
    frame, y = make_frame()
    frame["same"] = 1.0
    model = JOPLEnClassifier(SMALL, penalty=RIDGE, random_state=0).fit(frame, y > y.mean())
    assert effect(model, frame, "same").values.tolist() == [0.0]
    age = effect(model, frame, "age", n_grid=10)
    assert np.isfinite(age.values).all()
    assert len(age.rows) == frame["age"].notna().sum()
    city = effect(model, frame, "city")
    assert city.grid[-1] is None  # missing
    many = JOPLEnClassifier(SMALL, penalty=RIDGE, random_state=0).fit(X, THREE)
    assert effect(many, X, 3, n_grid=7).values.shape == (7, 3)


@pytest.mark.parametrize("hours", [2, 24])
def test_the_effect_of_a_date_moves_all_that_was_made_of_it(hours):
    """Of an additive model both curves are, up to a constant, predictions for the other dates."""
    pd = pytest.importorskip("pandas")
    rng, n = np.random.default_rng(0), 120
    dates = pd.Timestamp("2021-12-01 05:00") + pd.to_timedelta(hours * rng.permutation(n), "h")
    y = dates.month.to_numpy() + 3.0 * (dates.day_of_week > 4) + np.sin(dates.hour)
    frame = pd.DataFrame({"a": rng.standard_normal(n), "sold": dates})
    texts = frame.assign(sold=dates.strftime("%Y-%m-%d %H:%M:%S"))
    steps = JOPLEnRegressor("steps", cells="constant", penalty=RIDGE, random_state=0)
    for model, X, n_grid in (
        (clone(steps).fit(frame, y), frame, n),
        (make_pipeline(TablePreprocessor(), clone(steps)).fit(texts, y), texts, 12),
    ):
        for kind in ("partial_dependence", "ale"):
            curve = effect(model, X, "sold", kind=kind, n_grid=n_grid)
            assert (curve.column, curve.is_day) == ("sold", True)
            assert curve.grid.dtype == curve.rows.dtype == "datetime64[s]"
            assert set(curve.rows) == set(dates.to_numpy().astype("datetime64[s]"))
            moments = pd.to_datetime(curve.grid)
            at = moments if X is frame else moments.strftime("%Y-%m-%d %H:%M:%S")
            moved = pd.concat([X.assign(sold=moment) for moment in at])
            expected = model.predict(moved).reshape(len(at), n).mean(axis=1)
            assert np.ptp(expected) > 0.5
            constant = (curve.values - expected)[0] if kind == "ale" else 0.0
            np.testing.assert_allclose(curve.values - constant, expected, atol=1e-9)
            assert n_grid < n or len(curve.grid) == n
    # Few places have all one hour, and one weekday where the dates span months.
    distances = np.diff(curve.grid) / np.timedelta64(7 if hours == 24 else 1, "D")
    assert 7 <= len(distances) <= 11
    np.testing.assert_allclose(distances, np.round(distances), atol=1e-9)


def test_unknown_columns_of_effects_are_told_those_of_dates_too():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"mass": X[:, 0], "sold": pd.date_range("2024", periods=len(X))})
    model = clone(JOPLEnRegressor("steps", penalty=RIDGE)).fit(frame, Y)
    with pytest.raises(ValueError, match=r"'Sold' is not known: did you mean 'sold'\?"):
        effect(model, frame, "Sold")
    with pytest.raises(ValueError, match=r"the columns are \['mass', .*'sold: month', .*'sold'\]"):
        effect(model, frame, "quite another")


def test_wrong_arguments_of_effects():
    model = fit()
    with pytest.raises(ValueError, match="column 'age' is not known: the columns are"):
        effect(model, X, "age")
    with pytest.raises(ValueError, match="column=6 must be a name or a number from 0 to 5"):
        effect(model, X, 6)
    with pytest.raises(ValueError, match="kind='pdp' is not known"):
        effect(model, X, 0, kind="pdp")
    with pytest.raises(ValueError, match="n_grid=1 must be"):
        effect(model, X, 0, n_grid=1)


# -- interactions ---------------------------------------------------------------------------------


def test_interactions_find_the_pair_and_its_size():
    """x0 x1 with independent columns of variance 1 has an interaction of standard deviation 1."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((1500, 4))
    y = Z[:, 0] * Z[:, 1] + 2 * Z[:, 2]
    model = JOPLEnRegressor(penalty=Frobenius(1e-4), random_state=0).fit(Z, y)
    found = interactions(model, Z, n_rows=1000)
    first, second = found.pairs()[:2]
    assert first[:2] == ("x0", "x1")
    assert first[2] == pytest.approx(1.0, abs=0.25)
    assert second[2] < 0.25
    assert found.spread == pytest.approx(np.std(model.predict(Z)))
    np.testing.assert_array_equal(found.strengths, found.strengths.T)


def test_an_additive_model_has_no_interactions():
    model = fit("steps", cells="constant")
    found = interactions(model, X, n_rows=50)
    assert not found.strengths.any()
    assert found.spread > 1


def test_interactions_are_mixed_differences():
    model = fit()
    found = interactions(model, X[:2], n_rows=8, columns=[3, 0])
    assert found.feature_names == ("x3", "x0")
    a, b = X[0], X[1]

    def swapped(x, other, columns):
        row = x.copy()
        row[columns] = other[columns]
        return model.predict(row[None])[0]

    mixed = [
        swapped(x, o, []) - swapped(x, o, [0]) - swapped(x, o, [3]) + swapped(x, o, [0, 3])
        for x, o in ((a, b), (b, a))
    ]
    assert found.strengths[0, 1] == pytest.approx(0.5 * np.sqrt(np.mean(np.square(mixed))))


def test_interactions_of_classes_and_wrong_arguments():
    model = JOPLEnClassifier("lightgbm", penalty=RIDGE, random_state=0).fit(X, THREE)
    assert interactions(model, X, output=2, n_rows=20).strengths.shape == (6, 6)
    by_default, often = interactions(model, X), np.bincount(model.predict(X)).argmax()
    assert by_default.output_name == often
    np.testing.assert_array_equal(
        by_default.strengths, interactions(model, X, output=often).strengths
    )
    with pytest.raises(ValueError, match="output=7 is not known"):
        interactions(model, X, output=7)
    with pytest.raises(ValueError, match="at least 2 different columns"):
        interactions(model, X, output=1, columns=[0, 0])
    with pytest.raises(ValueError, match="X has 1 row"):
        interactions(model, X[:1], output=1)
    with pytest.raises(ValueError, match="n_rows=0"):
        interactions(model, X, output=1, n_rows=0)


# -- summaries ------------------------------------------------------------------------------------


def test_summaries_say_what_the_fit_found():
    model = JOPLEnRegressor("lightgbm", random_state=0, cv=2).fit(X, Y)
    text = model.summary()
    cells = int(model.partitioner_.n_cells_.sum())
    assert "200 different, 6 columns" in text
    assert f"101 with {cells} cells" in text
    assert f"{-max(model.cv_results_['mean_test_score']):.4g}" in text
    assert f"strength {model.report_.joint.setting['strength']:.3g}" in text
    assert "converged" in text
    assert f"from {cells} cells" in prune(model, X, Y, n_cells=100).summary()
    tasks = MultiTaskJOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0)
    assert "2: a, b" in tasks.fit({"a": (X, Y), "b": (X, -Y)}).summary()
    assert "universal" in BoUTSRegressor(n_universal=2, n_task=2).fit(X, Y).summary()
    with pytest.raises(NotFittedError):
        JOPLEnRegressor().summary()


def test_notebooks_show_the_diagram_and_the_summary():
    model = fit()
    html = model._repr_html_()
    assert "sk-container-id" in html
    assert "jointleaf-summary" in html
    assert escape(repr(model.penalty_)) in html
    assert "200 different" in model._repr_mimebundle_()["text/html"]
    assert "jointleaf-summary" not in JOPLEnRegressor()._repr_html_()
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert "text/html" not in model._repr_mimebundle_()


def test_names_are_escaped_in_notebooks():
    tasks = MultiTaskJOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0)
    tasks.fit({"<script>": (X, Y), "b": (X, -Y)})
    assert "<script>, b" not in tasks._repr_html_()
    assert "&lt;script&gt;, b" in tasks._repr_html_()
