"""Displays of explanations: what is drawn are the numbers of the explanation."""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from frame_data import SMALL, make_frame
from jointleaf import (
    EffectDisplay,
    Explanation,
    ExplanationDisplay,
    Frobenius,
    ImportanceDisplay,
    InteractionDisplay,
    JOPLEnClassifier,
    JOPLEnRegressor,
    LocalModelDisplay,
    MultiTaskJOPLEnRegressor,
    TablePreprocessor,
    load,
    save,
)
from jointleaf._data.formatting import number, short_number
from jointleaf.inspection import Effect, Interactions, effect, interactions
from jointleaf.inspection._explanation import REST_NOTE

RIDGE = Frobenius(0.01)
X, Y = make_friedman1(120, n_features=5, noise=0.5, random_state=0)
THREE = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))
FRAME, FRAME_Y = make_frame()


@pytest.fixture(scope="module")
def model():
    return JOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def table():
    return JOPLEnRegressor([SMALL, "voronoi"], penalty=RIDGE, random_state=0).fit(FRAME, FRAME_Y)


@pytest.fixture(scope="module")
def classes():
    return JOPLEnClassifier("lightgbm", penalty=RIDGE, random_state=0).fit(X, THREE)


def labels(display):
    return [text.get_text() for text in display.ax_.get_yticklabels()]


def overlaps(display):
    """Pairs of labels of one axis that lie on each other."""
    display.figure_.canvas.draw()
    boxes = [t.get_window_extent() for t in display.ax_.get_yticklabels() if t.get_text()]
    return [(a, b) for k, a in enumerate(boxes) for b in boxes[:k] if a.overlaps(b)]


def test_bars_lead_from_the_baseline_to_the_prediction(model):
    display = ExplanationDisplay.from_estimator(model, X[:1])
    found = display.explanation
    bars = display.bars_.patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(found.values.sum())
    assert bars[-1].get_x() == pytest.approx(found.baseline)
    assert bars[0].get_x() + bars[0].get_width() == pytest.approx(model.predict(X[:1])[0])
    sizes = [abs(bar.get_width()) for bar in bars]
    assert sizes == sorted(sizes, reverse=True)
    assert labels(display)[0].split(" = ")[0] in ("x0", "x1", "x2", "x3", "x4")
    assert not overlaps(display)


def test_other_columns_and_cells_have_a_bar_of_their_own(table):
    display = ExplanationDisplay.from_estimator(table, FRAME.iloc[[1]], n_columns=2)
    assert labels(display)[2:] == ["3 other columns", "cells"]
    widths = [bar.get_width() for bar in display.bars_.patches]
    found = display.explanation
    assert sum(widths) == pytest.approx(found.values.sum() + found.cells_rest[0])


def test_dots_are_the_values(table):
    display = ExplanationDisplay.from_estimator(table, FRAME)
    found = display.explanation
    order = [found.feature_names[j] for j in np.argsort(-found.importances)]
    assert list(display.dots_) == [*order, "cells"]
    j = found.feature_names.index("size")
    drawn = np.asarray(display.dots_["size"].get_offsets())[:, 0]
    np.testing.assert_allclose(np.sort(drawn), np.sort(found.values[:, j]))
    assert len(display.dots_["city"].get_offsets()) == 0  # categories have no order: they are grey
    assert (
        np.abs(np.asarray(display.dots_["size"].get_offsets())[:, 1] - order.index("size")).max()
        < 0.5
    )
    assert not overlaps(display)


def test_the_predicted_class_is_drawn_by_default(classes):
    predicted = classes.predict(X[:1])[0]
    display = ExplanationDisplay.from_estimator(classes, X[:1])
    assert display.ax_.get_xlabel() == f"raw prediction of class {predicted}"
    local = LocalModelDisplay.from_estimator(classes, X[:1])
    assert local.value_name == f"raw prediction of class {predicted}"
    often = np.bincount(classes.predict(X)).argmax()
    display = InteractionDisplay.from_estimator(classes, X, n_rows=8, columns=[0, 1])
    assert display.value_name == f"raw prediction of class {often}"


def test_one_of_several_outputs_must_be_chosen(classes):
    with pytest.raises(ValueError, match=r"explanation has the outputs \[0, 1, 2\]"):
        ExplanationDisplay(classes.explain(X)).plot()
    display = ExplanationDisplay.from_estimator(classes, X[:1], output=2)
    ends = display.bars_.patches[0]
    expected = classes.decision_function(X[:1])[0, 2]
    assert ends.get_x() + ends.get_width() == pytest.approx(expected)
    assert display.ax_.get_xlabel() == "raw prediction of class 2"
    with pytest.raises(ValueError, match="no rows"):
        ExplanationDisplay(classes.explain(X)[:0].output(1)).plot()


def test_tasks_are_drawn_by_name():
    tasks = MultiTaskJOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0)
    tasks.fit({"a": (X, Y), "b": (X, -Y)})
    display = ExplanationDisplay.from_estimator(tasks, X[:1], task="b")
    bar = display.bars_.patches[0]
    assert bar.get_x() + bar.get_width() == pytest.approx(tasks.predict(X[:1], task="b")[0])


def test_curves_are_the_effect_with_marks_of_rows(model, classes):
    display = EffectDisplay.from_estimator(model, X, 3, n_grid=12)
    found = effect(model, X, 3, n_grid=12)
    np.testing.assert_array_equal(display.lines_[0].get_xdata(), found.grid)
    np.testing.assert_allclose(display.lines_[0].get_ydata(), found.values)
    assert len(display.rug_.get_segments()) == len(X)
    assert display.ax_.get_xlabel() == "x3"
    several = EffectDisplay.from_estimator(classes, X, 3, kind="partial_dependence")
    assert [line.get_label() for line in several.lines_] == ["class 0", "class 1", "class 2"]
    assert "raw prediction" in several.ax_.get_ylabel()


def test_categories_have_a_mark_each(table):
    display = EffectDisplay.from_estimator(table, FRAME, "city")
    assert labels(display)[-1] == f"missing ({FRAME['city'].isna().sum()} rows)"
    assert "vaduz (1 row)" in labels(display)
    found = effect(table, FRAME, "city")
    np.testing.assert_allclose(display.lines_[0].get_xdata(), found.values)


def test_importances_of_all_kinds(model, classes):
    widths = lambda display: [bar.get_width() for bar in display.bars_.patches]  # noqa: E731
    shares = ImportanceDisplay.from_estimator(model)
    assert sum(widths(shares)) == pytest.approx(1)
    sizes = ImportanceDisplay.from_estimator(model, X)
    expected = np.sort(np.abs(model.explain(X).values).mean(axis=0))[::-1]
    np.testing.assert_allclose(widths(sizes), expected)
    drops = ImportanceDisplay.from_estimator(model, X, Y, n_repeats=2)
    assert labels(drops)[0] == "x3"
    assert "shuffled" in drops.ax_.get_xlabel()
    assert len(widths(ImportanceDisplay.from_estimator(model, n_columns=2))) == 2
    one = ImportanceDisplay.from_estimator(classes, X, output=1)
    expected = np.sort(classes.explain(X).output(1).importances)[::-1]
    np.testing.assert_allclose(widths(one), expected)
    with pytest.raises(ValueError, match="kind='gain' is not known"):
        ImportanceDisplay.from_estimator(model, kind="gain")
    with pytest.raises(ValueError, match="kind='permutation' needs X and y"):
        ImportanceDisplay.from_estimator(model, X, kind="permutation")


def test_local_models_are_drawn_with_their_slopes(model, classes, table):
    local = model.local_model(X[:1])
    display = LocalModelDisplay.from_estimator(model, X[:1])
    widths = [bar.get_width() for bar in display.bars_.patches]
    order = np.argsort(-np.abs(local.coef * local.scale))
    np.testing.assert_allclose(widths, (local.coef * local.scale)[order])
    texts = [text.get_text() for text in display.ax_.texts]
    assert texts == [f"{local.coef[j]:+.3g}" for j in order]
    assert len(LocalModelDisplay.from_estimator(classes, X[:1], output=1).bars_) == 5
    of_class = LocalModelDisplay.from_estimator(classes, X[:1], output=1)
    assert of_class.ax_.get_title(loc="left").startswith("raw prediction of class 1 ")
    named = LocalModelDisplay.from_estimator(table, FRAME.iloc[[0]])
    assert {"city=berlin: no", "city=other: yes"} <= set(labels(named))


def test_logarithms_are_called_so():
    counts = JOPLEnRegressor("lightgbm", penalty=RIDGE, loss="poisson", random_state=0)
    counts.fit(X, np.round(Y))
    curve = EffectDisplay.from_estimator(counts, X, 0, kind="partial_dependence")
    assert curve.ax_.get_ylabel() == "mean log of the prediction\n(partial dependence)"
    local = LocalModelDisplay.from_estimator(counts, X[:1])
    assert local.ax_.get_title(loc="left").startswith("log of the prediction ")
    pairs = InteractionDisplay.from_estimator(counts, X, n_rows=5)
    assert pairs.ax_.get_title(loc="left").startswith("spread of the log of the prediction: ")


@pytest.mark.parametrize("largest", [1.3e3, 9.8e5, 1.2e8])
def test_strengths_stay_in_their_cells(largest):
    strengths = np.full((10, 10), largest)
    found = Interactions(tuple(f"column {j}" for j in range(10)), strengths, 2 * largest)
    display = InteractionDisplay(found).plot()
    display.figure_.canvas.draw()
    left, right = display.ax_.get_window_extent().intervalx
    texts = display.ax_.texts
    assert {text.get_text() for text in texts} == {short_number(largest)}
    assert max(text.get_window_extent().width for text in texts) < (right - left) / 9


@pytest.mark.parametrize("n_columns", [2, 3, 12, 24])
def test_maps_of_any_number_of_columns_fill_their_figure(n_columns):
    name = "raw prediction of class versicolor"
    strengths = np.full((n_columns, n_columns), 0.5)
    found = Interactions(tuple(f"column number {j}" for j in range(n_columns)), strengths, 2.0)
    display = InteractionDisplay(found, value_name=name).plot()
    figure = display.figure_
    figure.canvas.draw()
    assert display.ax_.get_window_extent().width > 0.35 * figure.bbox.width
    title = display.ax_.get_title(loc="left")
    assert title.replace("\n", " ") == f"spread of the {name}: 2"
    drawn = figure.get_tightbbox()  # in inches
    assert min(drawn.x0, drawn.y0) > 0
    assert drawn.x1 < figure.get_figwidth()
    assert drawn.y1 < figure.get_figheight()


@pytest.mark.parametrize("n_columns", [1, 2, 3, 4, 5, 9])
def test_the_label_of_the_colors_is_clear_of_low_and_high(n_columns):
    table = np.random.default_rng(0).normal(size=(60, n_columns))
    model = JOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0).fit(table, table.sum(axis=1))
    display = ExplanationDisplay.from_estimator(model, table)
    display.figure_.canvas.draw()
    axis = display.figure_.axes[-1].yaxis
    label = axis.label.get_window_extent()
    assert not any(label.overlaps(text.get_window_extent()) for text in axis.get_ticklabels())


def test_the_map_holds_the_strengths(model):
    display = InteractionDisplay.from_estimator(model, X, n_rows=30)
    found = interactions(model, X, n_rows=30)
    drawn = display.image_.get_array()
    lower = np.tril_indices(5, -1)
    np.testing.assert_allclose(drawn.filled(0)[lower[0] - 1, lower[1]], found.strengths[lower])
    assert drawn.count() == 10
    assert len(display.ax_.texts) == 10
    assert labels(display) == ["x1", "x2", "x3", "x4"]


def test_given_axes_are_used(model):
    _, axes = plt.subplots(3, 2, layout="constrained")
    given = iter(axes.reshape(-1))
    for make in (
        lambda ax: ExplanationDisplay.from_estimator(model, X[:1], ax=ax),
        lambda ax: ExplanationDisplay.from_estimator(model, X, ax=ax),
        lambda ax: EffectDisplay.from_estimator(model, X, 0, ax=ax),
        lambda ax: ImportanceDisplay.from_estimator(model, ax=ax),
        lambda ax: LocalModelDisplay.from_estimator(model, X[:1], ax=ax),
        lambda ax: InteractionDisplay.from_estimator(model, X, n_rows=5, ax=ax),
    ):
        ax = next(given)
        assert make(ax).ax_ is ax


# -- shap -----------------------------------------------------------------------------------------


def test_shap_takes_explanations(model, classes, table):
    shap = pytest.importorskip("shap")
    given = model.explain(X).to_shap()
    assert isinstance(given, shap.Explanation)
    np.testing.assert_allclose(given.values.sum(axis=1) + given.base_values, model.predict(X))
    shap.plots.waterfall(given[0], show=False)
    shap.plots.bar(given, show=False)
    several = classes.explain(X).to_shap()
    assert several.shape == (120, 5, 3)
    np.testing.assert_allclose(
        several.values.sum(axis=1) + several.base_values, classes.decision_function(X)
    )
    text = table.explain(FRAME).to_shap()
    assert text.feature_names[-1] == "cells"
    np.testing.assert_allclose(text.values.sum(axis=1) + text.base_values, table.predict(FRAME))


def test_without_shap_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "shap", None)
    zeros = np.zeros((1, 1))
    with pytest.raises(ImportError, match=r"^to_shap needs shap: pip install 'jointleaf\[shap\]'$"):
        Explanation(zeros, zeros, zeros[0], 0.0, ("a",), zeros).to_shap()


def test_texts_and_parts_of_explanations(table, classes):
    found = table.explain(FRAME)
    lines = found.describe(1, n_columns=2).splitlines()
    assert lines[0].split()[0] == "baseline"
    assert lines[-2].split()[-1] == number(table.predict(FRAME)[1])
    assert lines[-1] == REST_NOTE
    assert "missing" in found[FRAME["age"].isna().to_numpy()].describe()
    np.testing.assert_array_equal(found[3].values, found.values[3:4])
    with pytest.raises(IndexError, match="row 160 is not there"):
        found[160]
    with pytest.raises(ValueError, match="has one output"):
        found.output("a")
    assert "3 outputs" in repr(classes.explain(X))


def test_explanations_of_classes_end_with_what_is_predicted(classes):
    """The predicted class by default, with its probability; for two classes the log-odds too."""
    explanation = classes.explain(X)
    for row in (0, 5):
        k = classes.predict(X)[row]
        *_, raw, last = explanation.describe(row).splitlines()
        assert raw.startswith(f"raw prediction of {k} ")
        assert raw.split()[-1] == number(classes.decision_function(X)[row, k])
        assert last == f"prediction: {k}, probability {classes.predict_proba(X)[row, k]:.3f}"
    other = explanation.describe(0, output=2)
    assert other.splitlines()[-2].startswith("raw prediction of 2 ")
    names = np.where(THREE > 0, "yes", "no")
    two = JOPLEnClassifier("lightgbm", penalty=RIDGE, random_state=0).fit(X, names)
    *_, raw, last = two.explain(X).describe(1).splitlines()
    name, probability = two.predict(X)[1], two.predict_proba(X)[1].max()
    assert raw.split()[-1] == number(two.decision_function(X)[1])
    assert raw.startswith("log-odds of yes")
    assert last == f"prediction: {name}, probability {probability:.3f}"


# -- pipelines, dates and large numbers ------------------------------------------------------------

NAMES = ["mass", "age", "dose", "height", "pulse"]


@pytest.fixture(scope="module")
def pipeline():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=NAMES)
    model = JOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0)
    return make_pipeline(StandardScaler(), model).fit(frame, Y), frame


@pytest.mark.parametrize("kind", ["model", "explanation", "permutation"])
def test_importances_of_a_pipeline_have_its_names(pipeline, kind):
    model, frame = pipeline
    options = {"n_repeats": 2} if kind == "permutation" else {}
    display = ImportanceDisplay.from_estimator(model, frame, Y, kind=kind, **options)
    assert sorted(labels(display)) == sorted(NAMES)
    if kind == "model":
        np.testing.assert_array_equal(display.importances, model[-1].feature_importances_)


def test_columns_that_a_model_does_not_read_have_no_importance(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X[:, 2:], columns=NAMES[2:]).assign(constant=1, target=Y)
    model = JOPLEnRegressor("lightgbm", penalty=RIDGE, random_state=0)
    pipe = make_pipeline(TablePreprocessor(), model).fit(frame.drop(columns="target"), Y)
    save(pipe, tmp_path / "model.jleaf")
    for fitted in (pipe, load(tmp_path / "model.jleaf")):
        display = ImportanceDisplay.from_estimator(fitted, frame, Y, n_repeats=1)
        assert sorted(labels(display)) == sorted(NAMES[2:])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("days", [0.0, 0.1, 3.0, 149.0, 1500.0, 1800.0, 40_000.0])
def test_axes_of_dates_find_their_ticks(days):
    values = 15_000 + np.array([0.0, days])
    grid = np.round(86_400 * values).astype("datetime64[s]")
    display = EffectDisplay(Effect("day", "ale", grid, values, grid)).plot()
    display.figure_.canvas.draw()
    ticks = [tick.get_text() for tick in display.ax_.get_xticklabels()]
    assert 2 <= len(ticks) <= 9


def test_effects_and_rows_of_a_pipeline_have_its_names(pipeline):
    model, frame = pipeline
    display = EffectDisplay.from_estimator(model, frame, "dose")
    assert display.effect.column == display.ax_.get_xlabel() == "dose"
    np.testing.assert_array_equal(display.effect.values, effect(model, frame, 2).values)
    explained = ExplanationDisplay.from_estimator(model, frame[:1]).explanation
    assert explained.feature_names == tuple(NAMES)
    local = LocalModelDisplay.from_estimator(model, frame[:1]).local
    assert local.names == tuple(NAMES)
    with pytest.raises(ValueError, match="the columns are \\['mass'"):
        effect(model, frame, "x2")


def test_the_most_frequent_categories_of_an_effect(table):
    whole = effect(table, FRAME, "city")
    few = effect(table, FRAME, "city", n_categories=2)
    counts = {name: list(whole.rows).count(name) for name in whole.grid}
    assert set(few.grid) == set(sorted(counts, key=counts.get)[-2:])
    by_name = dict(zip(whole.grid, whole.values, strict=True))
    np.testing.assert_allclose(few.values, [by_name[name] for name in few.grid])
    with pytest.raises(ValueError, match="n_categories=0 must be"):
        effect(table, FRAME, "city", n_categories=0)


def test_large_numbers_are_written_out_beside_the_labels_and_dates_are_dates():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2006-03-15") + pd.to_timedelta(rng.permutation(120), "D")
    frame = pd.DataFrame({"sold on this day": days, "number": rng.standard_normal(120)})
    y = 3e5 * frame["number"] + 1e6 * (days.month == 5)
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, random_state=0).fit(frame, y)
    lowest = frame.iloc[[int(frame["number"].argmin())]]
    display = ExplanationDisplay.from_estimator(model, lowest)
    display.figure_.canvas.draw()
    text = " ".join(labels(display))
    day = f"{lowest['sold on this day'].iloc[0]:%Y-%m-%d}"
    assert f"sold on this day: day number\n= {day}" in text  # of a long label in two lines
    written = [t for t in display.ax_.texts if t.get_text()]
    assert any("," in t.get_text() for t in written)
    assert not any("e+" in t.get_text() for t in [*written, *display.ax_.get_xticklabels()])
    left, right = display.ax_.get_window_extent().intervalx
    boxes = [t.get_window_extent() for t in written]
    assert all(left - 1 <= box.x0 and box.x1 <= right + 1 for box in boxes)
    for column in ("sold on this day: day number", "sold on this day"):
        drawn = EffectDisplay.from_estimator(model, frame, column)
        drawn.figure_.canvas.draw()
        ticks = [t.get_text() for t in drawn.ax_.get_xticklabels()]
        assert drawn.effect.is_day
        assert drawn.ax_.get_xlabel() == column
        assert any("Apr" in tick or "May" in tick or "2006" in tick for tick in ticks)
