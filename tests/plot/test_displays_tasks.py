"""Displays of several tasks: what is drawn are the slopes, counts, errors and losses of the fit."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

from jointleaf import (
    L21,
    BoUTSRegressor,
    DirtyLasso,
    MultiTaskJOPLEnClassifier,
    MultiTaskJOPLEnRegressor,
    SelectionDisplay,
    TaskErrorDisplay,
    TaskPathDisplay,
    TaskWeightsDisplay,
)
from jointleaf.partitions import VoronoiPartitioner
from task_displays import TASKS, TEST, assert_drawn_inside, fit, legend, words

COUNTS = {"A": (2, {"a": 1, "b": 0, "c": 4}), "B": (0, {"a": 3, "b": 0, "c": 1})}
ERRORS = {"A": {"a": 0.2, "b": 0.9}, "B": {"b": 0.5, "a": 0.3}}


@pytest.fixture(scope="module")
def model():
    return fit()


@pytest.fixture(scope="module")
def automatic():
    tasks = {name: (X[:40, :3], y[:40]) for name, (X, y) in TASKS.items() if name != "c"}
    return fit("auto", tasks=tasks, cells=VoronoiPartitioner(2, 2), cv=2)


@pytest.fixture(scope="module")
def bouts():
    return BoUTSRegressor(n_universal=20, n_task=20).fit(TASKS)


def slopes(model):
    """(d, C) of all tasks."""
    return model.solution_.coef.T


def without_slopes(solution):
    """What constant cells have."""
    return replace(solution, coef=solution.coef[:, :0], common_coef=None)


# -- TaskWeightsDisplay ----------------------------------------------------------------------------


def test_the_slopes_are_drawn_with_common_features_first_and_tasks_in_blocks(model):
    assert model.common_features_.tolist() == [0]
    display = TaskWeightsDisplay.from_estimator(model)
    assert display.features_.tolist() == [0, 5, 3, 1]
    np.testing.assert_array_equal(display.image_.get_array(), slopes(model)[[0, 5, 3, 1]])
    assert words(display.ax_.get_yticklabels()) == ["x0", "x5", "x3", "x1"]
    assert {"common", "task"} == set(words(display.ax_.texts))
    cells = len(model.solution_.tasks[0].coef)
    assert words(display.ax_.get_xticklabels()) == ["a", "b", "c"]
    np.testing.assert_allclose(display.ax_.get_xticks(), cells * np.array([0.5, 1.5, 2.5]) - 0.5)
    assert display.ax_.xaxis.get_ticks_position() == "top"
    upright = [line.get_xdata() for line in display.ax_.lines if len(set(line.get_xdata())) == 1]
    ends = [x[0] for x in upright if x[0] > 2]
    assert ends == [cells - 0.5, 2 * cells - 0.5]
    assert f"{cells} cells" in display.ax_.get_xlabel()


def test_zero_is_white_and_signs_have_their_colours_in_a_symmetric_range(model):
    image = TaskWeightsDisplay.from_estimator(model).image_
    low, high = image.get_clim()
    assert -low == high == np.abs(image.get_array()).max()
    assert image.cmap(image.norm(0.0)) == (1, 1, 1, 1)
    for share in (0.2, 0.5, 1.0):
        red, _, blue, _ = image.cmap(image.norm(share * high))
        assert red > blue
        red, _, blue, _ = image.cmap(image.norm(share * low))
        assert blue > red


def test_few_of_many_features_can_be_drawn(model):
    few = TaskWeightsDisplay.from_estimator(model, max_features=2)
    sizes = np.linalg.norm(model.slope_norms_, axis=1)
    assert set(few.features_) == set(np.argsort(-sizes)[:2])
    assert "(2 features with smaller slopes not shown)" in few.ax_.get_xlabel()
    every = TaskWeightsDisplay.from_estimator(model, max_features=None)
    assert "not shown" not in every.ax_.get_xlabel()
    alone = TaskWeightsDisplay.from_estimator(fit(DirtyLasso(None, 0.1)))
    assert set(words(alone.ax_.texts)) == {"task"}  # nothing is common


def test_a_solution_is_drawn_with_given_names_and_axes(model):
    figure, (left, right) = plt.subplots(1, 2, layout="constrained", figsize=(12, 4))
    names = [f"feature {j}" for j in range(7)]
    display = TaskWeightsDisplay(
        model.solution_, ["a very long name of a task", "second", "third"], names
    ).plot(ax=left)
    figure.draw_without_rendering()
    assert display.ax_ is left
    assert display.figure_ is figure
    assert words(left.get_yticklabels()) == [f"feature {j}" for j in (0, 5, 3, 1)]
    assert all(label.get_rotation() > 0 for label in left.get_xticklabels())  # too long
    bar = display.colorbar_.ax.get_tightbbox()
    assert bar.x1 < right.get_window_extent().x0
    assert not any(text.get_window_extent().overlaps(bar) for text in left.texts)
    plain = TaskWeightsDisplay(model.solution_).plot()
    assert words(plain.ax_.get_xticklabels()) == ["0", "1", "2"]
    assert words(plain.ax_.get_yticklabels()) == ["x0", "x5", "x3", "x1"]


def test_categories_of_a_column_are_rows():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    tasks = {}
    for name in "ab":
        frame = pandas.DataFrame({"size": rng.standard_normal(60)})
        frame["kind"] = pandas.Categorical(rng.choice(list("uvwx"), 60))
        tasks[name] = frame, frame["size"] + 2.0 * frame["kind"].cat.codes
    model = fit(L21(1e-4), tasks=tasks)
    display = TaskWeightsDisplay.from_estimator(model)
    shown = words(display.ax_.get_yticklabels())
    assert sorted(shown) == sorted(map(str, model.linear_feature_names_))


def test_estimators_without_common_slopes_are_rejected(model, automatic):
    with pytest.raises(NotFittedError):
        TaskWeightsDisplay.from_estimator(MultiTaskJOPLEnRegressor())
    with pytest.raises(ValueError, match=r"penalty='auto' fits every task alone.*DirtyLasso\(\)"):
        TaskWeightsDisplay.from_estimator(automatic)
    with pytest.raises(ValueError, match="penalty='auto' chooses a penalty for every task alone"):
        TaskPathDisplay.from_estimator(automatic)
    with pytest.raises(TypeError, match="must be a MultiTaskJOPLEnRegressor"):
        TaskWeightsDisplay.from_estimator(LinearRegression())
    with pytest.raises(TypeError, match="must be a Solution"):
        TaskWeightsDisplay(automatic.solution_).plot()
    with pytest.raises(ValueError, match="constant cells have no slopes"):
        TaskWeightsDisplay(without_slopes(model.solution_)).plot()
    empty = fit(DirtyLasso(50.0, 40.0))
    with pytest.raises(ValueError, match=r"no feature has a slope.*weaker penalty"):
        TaskWeightsDisplay.from_estimator(empty)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_features": 0}, "max_features=0 must be at least 1"),
        ({"task_names": ["a"]}, "task_names has 1 names for 3 tasks"),
        ({"feature_names": ["a"]}, "feature_names has 1 names for 7 features"),
    ],
)
def test_wrong_options_of_the_slopes_are_rejected(model, options, message):
    with pytest.raises(ValueError, match=message):
        TaskWeightsDisplay(model.solution_, **options).plot()


# -- SelectionDisplay ------------------------------------------------------------------------------


def test_bars_are_stacked_to_the_number_of_all_features():
    display = SelectionDisplay(COUNTS).plot()
    for name, (n_common, own) in COUNTS.items():
        common, specific = display.common_bars_[name], display.specific_bars_[name]
        assert [bar.get_y() for bar in common] == [0, 0, 0]
        assert [bar.get_height() for bar in common] == [n_common] * 3
        assert [bar.get_y() for bar in specific] == [n_common] * 3
        assert [bar.get_height() for bar in specific] == list(own.values())
        for below, above in zip(common, specific, strict=True):
            assert below.get_x() == above.get_x()
    totals = [n + own[t] for n, own in COUNTS.values() for t in own]
    assert words(display.ax_.texts) == [str(total) for total in totals]
    assert display.ax_.get_ylim()[1] > max(totals)
    assert words(display.ax_.get_xticklabels()) == ["a", "b", "c"]
    assert [text for text in legend(display.ax_) if text] == ["A", "B", "task-specific", "common"]


def test_bars_of_methods_stand_side_by_side_around_their_task():
    display = SelectionDisplay(COUNTS).plot()
    spans = [
        [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars]
        for bars in display.common_bars_.values()
    ]
    for task, ((a0, a1), (b0, b1)) in enumerate(zip(*spans, strict=True)):
        assert task - 0.5 < a0 < a1 <= b0 < b1 < task + 0.5
    colors = {tuple(bars[0].get_facecolor()) for bars in display.common_bars_.values()}
    assert len(colors) == 2


def test_tasks_of_another_order_belong_to_their_names():
    display = SelectionDisplay({"A": (1, {"a": 2, "b": 5}), "B": (1, {"b": 7, "a": 3})}).plot()
    assert [bar.get_height() for bar in display.specific_bars_["B"]] == [3, 7]


def test_the_counts_of_estimators(model, bouts):
    display = SelectionDisplay.from_estimators({"JOPLEn": model, "BoUTS": bouts})
    n_common = {"JOPLEn": len(model.common_features_), "BoUTS": len(bouts.universal_features_)}
    assert min(n_common.values()) > 0
    for name, fitted in (("JOPLEn", model), ("BoUTS", bouts)):
        for k, task in enumerate("abc"):
            bar = display.specific_bars_[name][k]
            own = len(fitted.task_features_[task])
            assert bar.get_y() + bar.get_height() == n_common[name] + own
    # Of an estimator of this package the height is the number of features with slopes.
    heights = [bar.get_y() + bar.get_height() for bar in display.specific_bars_["JOPLEn"]]
    assert heights == (model.slope_norms_ > 0).sum(axis=0).tolist()


def test_totals_are_left_out_where_they_would_overlap():
    many = {f"task {t}": 1000 + t for t in range(40)}
    display = SelectionDisplay({"A": (1, many), "B": (2, many)}).plot()
    assert not display.ax_.texts
    assert all(label.get_rotation() > 0 for label in display.ax_.get_xticklabels())


def test_wrong_counts_are_rejected(automatic):
    with pytest.raises(ValueError, match=r"counts={} has no method to draw"):
        SelectionDisplay({}).plot()
    with pytest.raises(ValueError, match=r"estimators={} has no method to draw"):
        SelectionDisplay.from_estimators({})
    with pytest.raises(TypeError, match="must be a dict with the methods' names"):
        SelectionDisplay.from_estimators([automatic])
    with pytest.raises(ValueError, match=r"counts\['A'\] has no task to draw"):
        SelectionDisplay({"A": (1, {})}).plot()
    with pytest.raises(ValueError, match=r"counts\['B'\] has no task 'a', but counts\['A'\] has"):
        SelectionDisplay({"A": (1, {"a": 1}), "B": (1, {})}).plot()
    with pytest.raises(ValueError, match=r"counts\['A'\] has no task 'z', but counts\['B'\] has"):
        SelectionDisplay({"A": (1, {"a": 1}), "B": (1, {"a": 1, "z": 1})}).plot()
    with pytest.raises(TypeError, match=r"counts\['A'\]=3 must be a pair"):
        SelectionDisplay({"A": 3}).plot()
    with pytest.raises(ValueError, match=r"counts\['A'\] holds -1: use numbers of features"):
        SelectionDisplay({"A": (1, {"a": -1})}).plot()
    with pytest.raises(NotFittedError):
        SelectionDisplay.from_estimators({"A": BoUTSRegressor()})
    with pytest.raises(
        TypeError, match=r"does not name what it selected.*SelectionDisplay\(counts\)"
    ):
        SelectionDisplay.from_estimators({"A": LinearRegression().fit([[0.0], [1.0]], [0, 1])})


# -- TaskErrorDisplay ------------------------------------------------------------------------------


def test_errors_are_drawn_in_the_row_of_their_task():
    display = TaskErrorDisplay(ERRORS, reference=1.0).plot()
    assert display.dots_["A"].get_xdata().tolist() == [0.2, 0.9]
    assert display.dots_["B"].get_xdata().tolist() == [0.3, 0.5]
    for dots in display.dots_.values():
        assert np.round(dots.get_ydata()).tolist() == [0, 1]
    assert not np.intersect1d(*(dots.get_ydata() for dots in display.dots_.values())).size
    assert words(display.ax_.get_yticklabels()) == ["a", "b"]
    low, high = display.ax_.get_ylim()
    assert low > high  # the first on top
    assert display.ax_.get_xlim()[0] == 0
    assert display.ax_.get_xlim()[1] > 1
    assert legend(display.ax_) == ["A (mean 0.55)", "B (mean 0.4)", "reference: 1"]
    styles = [(dots.get_color(), dots.get_marker()) for dots in display.dots_.values()]
    assert styles[0][0] != styles[1][0]
    assert styles[0][1] != styles[1][1]
    assert "lower is better" in display.ax_.get_xlabel()


def test_a_reference_far_away_is_left_out():
    display = TaskErrorDisplay({"A": {"a": 0.1, "b": 0.2}}, reference=1.0).plot()
    assert legend(display.ax_) == ["A (mean 0.15)"]
    assert display.ax_.get_xlim()[1] < 0.3


def test_errors_of_estimators_are_normalized_by_the_test_targets(model, bouts):
    single = {name: LinearRegression().fit(X, y) for name, (X, y) in TASKS.items()}
    methods = {"JOPLEn": model, "BoUTS": bouts, "linear": single}
    display = TaskErrorDisplay.from_estimators(methods, TEST)
    for k, (task, (X, y)) in enumerate(TEST.items()):
        found = {
            "JOPLEn": model.predict(X, task=task),
            "BoUTS": bouts.predict(X, task=task),
            "linear": single[task].predict(X),
        }
        for name, f in found.items():
            expected = np.mean((y - f) ** 2) / np.var(y)
            assert display.dots_[name].get_xdata()[k] == pytest.approx(expected)
    assert "variance of the test targets" in display.ax_.get_xlabel()


def test_tasks_may_be_a_list_and_a_part_of_those_of_the_fit():
    model = fit(tasks=list(TASKS.values()))
    display = TaskErrorDisplay.from_estimators({"A": model}, list(TEST.values())[:2])
    assert words(display.ax_.get_yticklabels()) == ["0", "1"]


def test_errors_of_classifiers_are_shares_of_wrong_classes(model):
    classes = {name: (X, np.where(y > 0, "yes", "no")) for name, (X, y) in TASKS.items()}
    classifier = fit(DirtyLasso(0.02, 0.015), MultiTaskJOPLEnClassifier, classes)
    display = TaskErrorDisplay.from_estimators({"A": classifier}, classes)
    for k, (task, (X, y)) in enumerate(classes.items()):
        wrong = np.mean(classifier.predict(X, task=task) != y)
        assert display.dots_["A"].get_xdata()[k] == pytest.approx(wrong)
    assert "wrong classes" in display.ax_.get_xlabel()
    with pytest.raises(ValueError, match=r"classifiers and regressors.*draw them apart"):
        TaskErrorDisplay.from_estimators({"A": classifier, "B": model}, TEST)


def test_wrong_errors_are_rejected(model):
    with pytest.raises(ValueError, match=r"errors={} has no method"):
        TaskErrorDisplay({}).plot()
    with pytest.raises(TypeError, match=r"errors\['A'\]=0.3 must be a dict"):
        TaskErrorDisplay({"A": 0.3}).plot()
    with pytest.raises(ValueError, match=r"errors\['A'\]\['a'\]=nan must be a finite number"):
        TaskErrorDisplay({"A": {"a": np.nan}}).plot()
    with pytest.raises(ValueError, match=r"estimators={} has no method"):
        TaskErrorDisplay.from_estimators({}, TEST)
    with pytest.raises(ValueError, match="tasks has no test rows"):
        TaskErrorDisplay.from_estimators({"A": model}, {})
    with pytest.raises(TypeError, match=r"tasks\['a'\] must be a pair"):
        TaskErrorDisplay.from_estimators({"A": model}, {"a": 3})
    with pytest.raises(
        ValueError, match=r"task 'z' that estimators\['A'\] does not know.*'a', 'b'"
    ):
        TaskErrorDisplay.from_estimators({"A": model}, {"z": TEST["a"]})
    with pytest.raises(TypeError, match=r"estimators\['A'\]=3 has no predict"):
        TaskErrorDisplay.from_estimators({"A": 3}, TEST)
    with pytest.raises(NotFittedError):
        TaskErrorDisplay.from_estimators({"A": MultiTaskJOPLEnRegressor()}, TEST)
    X, y = TEST["a"]
    with pytest.raises(
        ValueError, match=r"task 'a': all test targets are 1\.0.*TaskErrorDisplay\(errors\)"
    ):
        TaskErrorDisplay.from_estimators({"A": model}, {"a": (X, np.ones(len(X)))})
    with pytest.raises(ValueError, match=r"task 'a': predictions have shape \(90,\), test targets"):
        TaskErrorDisplay.from_estimators({"A": model}, {"a": (X, y[:5])})


# -- all -------------------------------------------------------------------------------------------


def test_nothing_is_drawn_outside_the_figure(model):
    displays = [
        TaskWeightsDisplay.from_estimator(model),
        TaskWeightsDisplay.from_estimator(model),
        SelectionDisplay(COUNTS).plot(),
        TaskErrorDisplay(ERRORS).plot(),
    ]
    for display in displays:
        assert_drawn_inside(display.figure_)


def test_without_matplotlib_it_is_asked_for(ask_for_matplotlib, model):
    ask_for_matplotlib(TaskWeightsDisplay, "from_estimator", model)
    ask_for_matplotlib(SelectionDisplay, "plot", COUNTS)
    ask_for_matplotlib(TaskErrorDisplay, "plot", ERRORS)
    ask_for_matplotlib(TaskErrorDisplay, "from_estimators", {"A": model}, TEST)
