"""Data frames with text and missing values: the estimators take them as they are."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from frame_data import (
    FORMS,
    NAMES,
    NEW,
    NEW_Y,
    RIDGE,
    SHIFTS,
    SMALL,
    TASKS,
    X,
    Y,
    make_frame,
    raw,
)
from jointleaf import (
    Frobenius,
    JOPLEnRegressor,
    LinearForestRegressor,
)
from jointleaf._data.rows import read_rows, read_training_rows
from jointleaf.partitions import (
    NO_CELL,
    RandomForestPartitioner,
    RootCell,
    VoronoiPartitioner,
)


@pytest.fixture(scope="module")
def fitted():
    """One fitted model per task, with a fixed penalty."""
    return {
        task: estimator(SMALL, penalty=RIDGE, random_state=0).fit(X, y)
        for task, (estimator, y) in TASKS.items()
    }


@pytest.fixture(scope="module")
def regressor(fitted):
    return fitted["regression"]


# -- fitting and predicting --------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_text_and_missing_values_are_fitted_and_predicted(fitted, task):
    model, y = fitted[task], TASKS[task][1]
    assert model.score(X, y) > 0.9
    assert np.isfinite(raw(model, NEW)).all()
    codes = model.apply(NEW)
    assert codes.shape == (len(NEW), len(model.partitioner_.n_cells_))
    np.testing.assert_array_equal(model.feature_names_in_, X.columns)
    assert model.n_features_in_ == 5
    if task != "regression":
        shares = model.predict_proba(NEW)
        np.testing.assert_allclose(shares.sum(axis=1), 1)
        np.testing.assert_array_equal(model.classes_[shares.argmax(axis=1)], model.predict(NEW))


@pytest.mark.parametrize("task", TASKS)
def test_the_penalty_is_chosen_on_frames(task):
    estimator, y = TASKS[task]
    cells = "constant" if task == "multiclass" else "linear"  # which takes its time
    model = estimator(SMALL, cv=2, cells=cells, random_state=0).fit(X, y)
    assert model.report_.joint.setting
    assert model.score(X, y) > 0.75
    if task == "regression":
        assert model.score(NEW, NEW_Y) > 0.8


def test_what_was_learned_about_the_columns(regressor):
    columns = regressor.columns_
    assert [c.label for c in columns] == list(X.columns)
    assert columns[1].categories.tolist() == sorted(SHIFTS)
    assert columns[2].categories.tolist() == ["new", "old"]
    assert [c.categories is None for c in columns] == [True, False, False, True, True]


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_frame_does_not_matter(fitted, form):
    for task in ("regression", "multiclass"):
        expected = raw(fitted[task], NEW)
        np.testing.assert_array_equal(raw(fitted[task], FORMS[form](NEW)), expected)
        model = clone(fitted[task]).fit(FORMS[form](X), TASKS[task][1])
        np.testing.assert_array_equal(raw(model, FORMS[form](NEW)), expected)
        np.testing.assert_array_equal(raw(model, NEW), expected)
        assert model.linear_feature_names_.tolist() == fitted[task].linear_feature_names_.tolist()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_arrays_of_objects(regressor):
    model = clone(regressor).fit(X.to_numpy(), Y)
    expected = regressor.predict(NEW)
    np.testing.assert_array_equal(model.predict(NEW.to_numpy()), expected)
    np.testing.assert_array_equal(regressor.predict(NEW.to_numpy()), expected)
    assert model.linear_feature_names_[0] == "x0"
    assert "x1=oslo" in model.linear_feature_names_


def test_declared_categories_are_like_text(regressor):
    numbers = {name: float(k) for k, name in enumerate(sorted(SHIFTS))}  # in the same order
    coded, new = (F.assign(city=F["city"].map(numbers)) for F in (X, NEW))
    model = clone(regressor).set_params(categorical_features=["city"]).fit(coded, Y)
    np.testing.assert_array_equal(model.predict(new), regressor.predict(NEW))
    plain = clone(regressor).fit(coded, Y)
    assert not np.allclose(plain.predict(new), regressor.predict(NEW))


def test_declared_categories_in_arrays():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=90).astype(np.float32), rng.integers(0, 3, 90)])
    y = rows[:, 0] + np.array([0.0, 5.0, -5.0])[rows[:, 1].astype(int)]
    found = []
    for declared in ([1], [-1], [False, True]):
        model = JOPLEnRegressor(SMALL, penalty=RIDGE, categorical_features=declared, random_state=0)
        found.append(model.fit(rows, y).predict(rows))
        assert model.linear_feature_names_.tolist() == ["x0", "x1=0", "x1=1", "x1=2"]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(model.predict(rows.tolist()), found[0])
    single = clone(model).fit(rows.astype(np.float32), y)
    for form in (rows.astype(np.float32), pd.DataFrame(rows.astype(np.float32))):
        assert read_rows(single, form).dtype == np.float32
    np.testing.assert_allclose(single.predict(rows.astype(np.float32)), found[0], atol=1e-3)


def test_numbers_too_large_for_floats_are_told_apart_as_categories():
    ids = 2**53 + np.arange(90) % 3
    y = np.array([0.0, 5.0, -5.0])[ids - 2**53]
    model = JOPLEnRegressor(RootCell(), penalty=Frobenius(1e-6), categorical_features=[0])
    for rows in (ids[:, None], pd.DataFrame({"id": ids})):
        assert model.fit(rows, y).score(rows, y) > 0.99


def test_the_categories_are_really_used():
    new, y = make_frame(seed=2)
    for estimator in (JOPLEnRegressor(SMALL, cv=2), LinearForestRegressor(20)):
        model = estimator.set_params(random_state=0)
        with_city = model.fit(X, Y).score(new, y)
        without = model.fit(X.drop(columns="city"), Y).score(new.drop(columns="city"), y)
        assert with_city > 0.85
        assert without < 0.6


def test_missing_values_are_really_used():
    # Whether a value is missing tells the target, and what it would be does not.
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
    gone = rng.random(200) < 0.5
    rows.loc[gone, "a"] = np.nan
    y = np.where(gone, 3.0, -3.0) + 0.1 * rng.normal(size=200)
    for partitioner in (SMALL, "xgboost", "hist_gradient_boosting"):
        trees = JOPLEnRegressor(partitioner, cells="constant", penalty=RIDGE, random_state=0)
        assert trees.fit(rows, y).score(rows, y) > 0.95
    linear = JOPLEnRegressor(RootCell(), penalty=RIDGE)
    assert linear.fit(rows, y).score(rows, y) < 0.2
    linear.set_params(add_indicator=True).fit(rows, y)
    assert linear.linear_feature_names_.tolist() == ["a", "b", "a is missing"]
    assert linear.score(rows, y) > 0.95


def test_categories_are_learned_from_rows_that_count(regressor):
    weights = np.where(X["city"] == "vaduz", 0, 1)
    columns, matrix, _ = read_training_rows(clone(regressor), X, Y, sample_weight=weights)
    assert columns[1].categories.tolist() == ["berlin", "oslo", "paris", "rome"]
    np.testing.assert_array_equal(matrix[weights == 0, 1], 4)
    columns, _, _ = read_training_rows(clone(regressor), X, Y)
    assert len(columns[1].categories) == 5


# -- unseen and missing ------------------------------------------------------------------------


def test_unseen_categories_are_like_rare_ones(regressor):
    rows = NEW.assign(city="atlantis")
    found = regressor.predict(rows)
    np.testing.assert_array_equal(found, regressor.predict(NEW.assign(city="a brand new place")))
    np.testing.assert_array_equal(found, regressor.predict(NEW.assign(city="")))
    linear = JOPLEnRegressor(RootCell(), penalty=RIDGE).fit(X, Y)
    assert "city=other" in linear.linear_feature_names_
    np.testing.assert_array_equal(
        linear.predict(rows), linear.predict(NEW.assign(city="vaduz")), "both are 'other'"
    )


def test_unseen_categories_lie_between_the_others():
    common, y = X[X["city"] != "vaduz"], Y[X["city"] != "vaduz"]
    for partitioner in (RootCell(), SMALL, RandomForestPartitioner(10, 8)):
        model = JOPLEnRegressor(partitioner, penalty=RIDGE, random_state=0).fit(common, y)
        cities = [model.predict(NEW.assign(city=name)) for name in ("berlin", "oslo", "rome")]
        for name in ("atlantis", None):
            found = model.predict(NEW.assign(city=pd.Series([name] * len(NEW), dtype=object)))
            assert np.isfinite(found).all()
            assert np.mean(found) < np.mean(cities[2]) - 1
            assert np.mean(found) > np.mean(cities[1]) + 1
    linear = JOPLEnRegressor(RootCell(), penalty=RIDGE).fit(common, y)
    cities = [model.predict(NEW.assign(city=name)) for name in ("berlin", "oslo", "paris", "rome")]
    found = linear.predict(NEW.assign(city="atlantis"))
    lows, highs = np.min(cities, axis=0), np.max(cities, axis=0)
    assert ((found > lows) & (found < highs)).all()


def test_rows_with_nothing_but_missing_values_are_predicted(fitted):
    nothing = pd.DataFrame(None, index=range(3), columns=X.columns, dtype=object)
    found = fitted["regression"].predict(nothing)
    assert (found > Y.min()).all()
    assert (found < Y.max()).all()
    np.testing.assert_allclose(fitted["multiclass"].predict_proba(nothing).sum(axis=1), 1)


def test_a_missing_value_in_a_number_counts_as_its_mean_in_linear_cells():
    model = JOPLEnRegressor(RootCell(), penalty=RIDGE).fit(X, Y)
    gone, mean = NEW.assign(age=np.nan), NEW.assign(age=X["age"].mean())
    np.testing.assert_allclose(model.predict(gone), model.predict(mean))


# -- the same rows, the same model -------------------------------------------------------------

PARTS = {
    "lightgbm": SMALL,
    "forest": RandomForestPartitioner(8, 6),
    "voronoi": VoronoiPartitioner(8, 4),
}


@pytest.mark.parametrize("part", PARTS)
def test_the_order_of_rows_does_not_matter(part):
    model = JOPLEnRegressor(PARTS[part], penalty=RIDGE, add_indicator=True, random_state=0)
    expected = model.fit(X, Y).predict(NEW)
    order = np.random.default_rng(0).permutation(len(Y))
    np.testing.assert_array_equal(model.fit(X.iloc[order], Y[order]).predict(NEW), expected)


@pytest.mark.parametrize("part", PARTS)
def test_weight_two_is_the_row_twice(part):
    model = JOPLEnRegressor(PARTS[part], penalty=RIDGE, add_indicator=True, random_state=0)
    copies = np.arange(len(Y)) % 2 + 1
    index = np.repeat(np.arange(len(Y)), copies)
    expected = model.fit(X.iloc[index], Y[index]).predict(NEW)
    np.testing.assert_allclose(model.fit(X, Y, copies).predict(NEW), expected, rtol=1e-9)
    assert not np.allclose(model.fit(X, Y).predict(NEW), expected)


@pytest.mark.parametrize("estimator", [JOPLEnRegressor(SMALL, cv=2), LinearForestRegressor(5)])
def test_weight_zero_is_no_row(estimator):
    # A category that only rows of weight zero have is an unseen one.
    rows = X.assign(city=X["city"].mask(np.arange(len(X)) < 9, "aachen"))
    weights = np.r_[np.zeros(9), np.ones(len(X) - 9)]
    model = estimator.set_params(random_state=0)
    expected = model.fit(rows[9:], Y[9:]).predict(rows)
    np.testing.assert_array_equal(model.fit(rows, Y, weights).predict(rows), expected)
    assert "aachen" not in model.columns_[1].categories


def test_the_choice_of_the_penalty_does_not_depend_on_the_form():
    model = JOPLEnRegressor(SMALL, cv=2, random_state=0)
    order = np.random.default_rng(0).permutation(len(Y))
    first = model.fit(X, Y).cv_results_
    other = model.fit(FORMS["polars"](X.iloc[order]), Y[order]).cv_results_
    np.testing.assert_array_equal(first["mean_test_score"], other["mean_test_score"])


# -- linear features ---------------------------------------------------------------------------


def by_hand(model, F):
    """offset_ + sum over partitions of coef_[cell] @ features + intercept_[cell]."""
    matrix = []
    for name, source in zip(
        model.linear_feature_names_, model.linear_feature_columns_, strict=True
    ):
        label = model.columns_[source].label
        assert name.startswith(label)
        column = F[label]
        if name == label:
            seen = X[label]
            matrix.append(column.fillna(seen.mean()).clip(seen.min(), seen.max()).astype(float))
        elif name == f"{label} is missing" or name == f"{label}=missing":
            matrix.append(column.isna().astype(float))
        elif name == f"{label}=other":
            own = [
                n.split("=")[1] for n in model.linear_feature_names_ if n.startswith(f"{label}=")
            ]
            matrix.append((column.notna() & ~column.isin(own)).astype(float))
        else:
            matrix.append((column == name.split("=")[1]).astype(float))
    rows = np.column_stack(matrix)
    answers = []
    for x, codes in zip(rows, model.apply(F), strict=True):
        cells = (model.cell_starts_ + codes)[codes != NO_CELL]
        slopes = np.tensordot(model.coef_[cells].sum(axis=0), x, axes=(0, 0))
        answers.append(model.offset_ + slopes + model.intercept_[cells].sum(axis=0))
    return np.array(answers)


@pytest.mark.parametrize("indicator", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_coefficients_give_the_predictions(task, indicator):
    estimator, y = TASKS[task]
    model = estimator(SMALL, penalty=RIDGE, add_indicator=indicator, random_state=0).fit(X, y)
    expected = ["size", "age", "noise"]
    expected += [f"city={name}" for name in ("berlin", "oslo", "paris", "rome", "missing", "other")]
    expected += ["kind=new"] + ["age is missing"] * indicator
    assert model.linear_feature_names_.tolist() == expected
    m = len(expected)
    np.testing.assert_array_equal(
        model.linear_feature_columns_, [0, 3, 4, *[1] * 6, 2, *[3] * indicator]
    )
    shape = (3,) if task == "multiclass" else ()
    assert model.coef_.shape == (model.partitioner_.n_cells_.sum(), m, *shape)
    assert model.slope_norms_.shape == model.feature_importances_.shape == (5,)
    np.testing.assert_allclose(raw(model, NEW), by_hand(model, NEW), rtol=1e-7, atol=1e-7)


def test_norms_and_importances_are_those_of_columns(regressor):
    norms = regressor.solution_.slope_norms
    assert len(norms) == 10
    expected = [
        np.sqrt((norms[regressor.linear_feature_columns_ == j] ** 2).sum()) for j in range(5)
    ]
    np.testing.assert_allclose(regressor.slope_norms_, expected)
    np.testing.assert_array_equal(regressor.selected_features_, range(5))
    assert regressor.feature_importances_.sum() == pytest.approx(1)
    assert set(np.argsort(regressor.feature_importances_)[-2:]) == {0, 1}


@pytest.mark.parametrize(
    ("chosen", "columns"),
    [
        ("numeric", [0, 3, 4]),
        (["size", "kind"], [0, 2]),
        ([3, "size"], [0, 3]),
        ([-1], [4]),
        ([False, True, False, False, True], [1, 4]),
        (np.array([True] * 5), [0, 1, 2, 3, 4]),
    ],
)
def test_linear_features_can_be_chosen(chosen, columns):
    model = JOPLEnRegressor(PARTS["forest"], penalty=RIDGE, linear_features=chosen, random_state=0)
    model.fit(X, Y)
    np.testing.assert_array_equal(np.unique(model.linear_feature_columns_), columns)
    np.testing.assert_array_equal(model.selected_features_, columns)
    others = np.setdiff1d(range(5), columns)
    np.testing.assert_array_equal(model.slope_norms_[others], 0)
    assert 1 in model.split_features_, "partitions see all columns"
    assert model.score(X, Y) > 0.8


def test_columns_that_are_not_chosen_do_not_enter_the_linear_model():
    model = JOPLEnRegressor(RootCell(), penalty=RIDGE, linear_features=["size"]).fit(X, Y)
    same = JOPLEnRegressor(RootCell(), penalty=RIDGE).fit(X[["size"]], Y)
    np.testing.assert_allclose(model.predict(NEW), same.predict(NEW[["size"]]))


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("linear_features", "size", "'size' is not known: use 'numeric'"),
        ("linear_features", ["zzz"], "linear_features names 'zzz', but the columns are"),
        ("linear_features", [9], "linear_features holds 9"),
        ("linear_features", [], "leaves no column to the linear models"),
        ("linear_features", [False] * 5, "leaves no column"),
        ("linear_features", 5, "linear_features=5 must be a list"),
        ("linear_features", [True], r"mask of shape \(1,\), but X has 5 columns"),
        ("categorical_features", ["zzz"], "categorical_features names 'zzz'"),
        ("categorical_features", ["age"], r"'age' is declared categorical but holds \d+\.\d+"),
        ("categorical_features", "city", "must be a list of column names"),
        ("penalty", Frobenius(1, feature_weights=np.ones(5)), "5 entries.* 10 features"),
    ],
)
def test_parameters_that_do_not_fit_the_frame(parameter, value, message):
    model = JOPLEnRegressor(SMALL, penalty=RIDGE).set_params(**{parameter: value})
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y)
    assert not hasattr(model, "columns_")
    assert not hasattr(model, "n_features_in_")


def test_no_numbers_for_numeric():
    with pytest.raises(ValueError, match="leaves no column"):
        JOPLEnRegressor(SMALL, linear_features="numeric").fit(X[["city", "kind"]], Y)
    model = JOPLEnRegressor(SMALL, penalty=RIDGE).fit(X[["city", "kind"]], Y)
    assert model.score(X[["city", "kind"]], Y) > 0.5


def test_a_column_with_one_category():
    rows = pd.DataFrame({"same": ["u"] * len(Y)})
    for options in ({"penalty": RIDGE}, {"cv": 2}):
        model = JOPLEnRegressor(SMALL, **options).fit(rows, Y)
        assert model.coef_.shape[1] == 0
        np.testing.assert_allclose(model.predict(rows), Y.mean())
        np.testing.assert_allclose(model.predict(rows.assign(same="v")), Y.mean())
    for name in NAMES:
        model = JOPLEnRegressor(name, penalty=RIDGE).fit(rows, Y)
        np.testing.assert_allclose(model.predict(rows), Y.mean())
    wide = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0).fit(X.assign(same="u"), Y)
    np.testing.assert_array_equal(wide.slope_norms_[5:], 0)
    assert wide.score(X.assign(same="v"), Y) > 0.9
