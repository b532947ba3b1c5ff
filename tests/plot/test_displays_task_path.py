"""The display of losses along strengths of several tasks."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from jointleaf import (
    L21,
    DirtyLasso,
    Frobenius,
    JOPLEnRegressor,
    MultiTaskJOPLEnRegressor,
    TaskPathDisplay,
)
from jointleaf._fit.folds import loss_table
from jointleaf._fit.strengths import ratio_grid
from task_displays import FEW, assert_drawn_inside, fit, legend


@pytest.fixture(scope="module")
def tuned():
    """The smallest loss is chosen, and strengths are relaxed."""
    return fit(DirtyLasso(bias_strength=1.0), cv=2, one_se=False, tasks=FEW)


@pytest.fixture(scope="module")
def plain():
    """The fewest features within one standard error are chosen, and nothing is relaxed."""
    return fit(DirtyLasso(bias_strength=1.0, relax=1.0), cv=2, tasks=FEW)


def on_path(model):
    """Rows of the paths with a loss."""
    table = loss_table(model.cv_results_)
    kept = table["on_path"] & np.isfinite(table["mean_loss"])
    return {name: column[kept] for name, column in table.items()}


@pytest.mark.parametrize("name", ["tuned", "plain"])
def test_every_ratio_has_a_line_with_the_smallest_losses_of_the_table(request, name):
    model = request.getfixturevalue(name)
    rows, ratios = on_path(model), ratio_grid(model.task_weights_)
    display = TaskPathDisplay.from_estimator(model)
    np.testing.assert_allclose(display.ratios_, ratios)
    assert len(display.lines_) == len(ratios) > 2
    for ratio, line in zip(ratios, display.lines_, strict=True):
        own = np.isclose(rows["common"] / rows["task"], ratio)
        strengths = np.unique(rows["common"][own])[::-1]
        points = [np.flatnonzero(own & (rows["common"] == strength)) for strength in strengths]
        losses = [rows["mean_loss"][point].min() for point in points]
        np.testing.assert_array_equal(line.get_ydata(), losses)
        counts = [rows["mean_selected"][point[0]] for point in points]
        np.testing.assert_array_equal(line.get_xdata(), counts)


@pytest.mark.parametrize("name", ["tuned", "plain"])
def test_the_choice_and_the_smallest_loss_are_marked(request, name):
    model = request.getfixturevalue(name)
    rows, display = on_path(model), TaskPathDisplay.from_estimator(model)
    best = int(np.argmin(rows["mean_loss"]))
    limit = rows["mean_loss"][best] + rows["se_loss"][best]
    marked = {line.get_label(): line for line in display.ax_.lines}
    smallest = [rows["mean_selected"][best], rows["mean_loss"][best]]
    assert marked["smallest loss"].get_xydata().tolist() == [smallest]
    assert marked["smallest + 1 std. error"].get_ydata()[0] == pytest.approx(limit)
    ((n_features, loss),) = display.chosen_.get_xydata()
    is_fit = np.isclose(rows["common"], model.penalty_.common)
    is_fit &= np.isclose(rows["task"], model.penalty_.task)
    is_fit &= np.isclose(rows["relax"], model.penalty_.relax)
    (k,) = np.flatnonzero(is_fit)
    assert [n_features, loss] == [rows["mean_selected"][k], rows["mean_loss"][k]]
    if name == "plain":
        assert n_features == rows["mean_selected"][rows["mean_loss"] <= limit].min()
        assert [n_features, loss] != smallest
    else:
        assert [n_features, loss] == smallest


def test_losses_without_relaxing_are_drawn_for_the_chosen_ratio(tuned, plain):
    assert TaskPathDisplay.from_estimator(plain).unrelaxed_ is None
    rows, line = on_path(tuned), TaskPathDisplay.from_estimator(tuned).unrelaxed_
    chosen = tuned.penalty_.common / tuned.penalty_.task
    own = np.isclose(rows["common"] / rows["task"], chosen) & (rows["relax"] == 1)
    np.testing.assert_array_equal(line.get_ydata(), rows["mean_loss"][own])
    assert line.get_label() == f"{chosen:.3g}, not relaxed"


def test_names_of_the_path(plain):
    display = TaskPathDisplay.from_estimator(plain)
    shown, ax = legend(display.ax_), display.ax_
    assert shown[: len(display.ratios_)] == [f"{ratio:.3g}" for ratio in display.ratios_]
    chosen = f"chosen: common {plain.penalty_.common:.2g}, task {plain.penalty_.task:.2g}"
    assert shown[-1] == chosen
    assert "common / task" in ax.get_legend().get_title().get_text()
    assert "variance" in ax.get_ylabel()
    assert "selected features" in ax.get_xlabel()


@pytest.mark.parametrize(
    "penalty",
    [
        L21("auto", bias_strength=1.0),
        DirtyLasso("auto", None, bias_strength=1.0, relax=1.0),
        DirtyLasso(None, "auto", bias_strength=1.0, relax=1.0),
    ],
    ids=["L21", "common", "task"],
)
def test_a_penalty_with_a_single_strength_has_one_line(penalty):
    model = fit(penalty, cv=2, tasks=FEW)
    _, ax = plt.subplots()
    display = TaskPathDisplay.from_estimator(model, ax=ax)
    assert display.ax_ is ax
    (line,) = display.lines_
    np.testing.assert_array_equal(line.get_ydata(), on_path(model)["mean_loss"])
    assert display.chosen_.get_xydata()[0].tolist() in line.get_xydata().tolist()
    assert legend(ax)[0] == "mean loss"
    assert legend(ax)[-1] == f"chosen: {model.penalty_.strength:.2g}"


def test_estimators_without_a_path_are_rejected():
    with pytest.raises(ValueError, match=r"fixed strengths, there is no choice.*DirtyLasso\(\)"):
        TaskPathDisplay.from_estimator(fit(tasks=FEW))
    with pytest.raises(NotFittedError):
        TaskPathDisplay.from_estimator(MultiTaskJOPLEnRegressor())
    with pytest.raises(TypeError, match="must be a MultiTaskJOPLEnRegressor"):
        TaskPathDisplay.from_estimator(JOPLEnRegressor())
    with pytest.raises(ValueError, match=r"same number of features.*makes features vanish"):
        TaskPathDisplay.from_estimator(fit(Frobenius("auto", bias_strength=1.0), cv=2, tasks=FEW))


def test_nothing_is_drawn_outside_the_figure(tuned):
    assert_drawn_inside(TaskPathDisplay.from_estimator(tuned).figure_)


def test_without_matplotlib_it_is_asked_for(ask_for_matplotlib, tuned):
    ask_for_matplotlib(TaskPathDisplay, "from_estimator", tuned)
