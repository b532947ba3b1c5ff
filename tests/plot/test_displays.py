"""Displays: what is drawn are the numbers of the path or the table, and every line has a name."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import make_classification, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from jointleaf import (
    L1,
    L21,
    CVDisplay,
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    Laplacian,
    PathDisplay,
    strength_path,
)
from jointleaf._fit.folds import loss_table
from jointleaf.partitions import LightGBMPartitioner
from jointleaf.plot._base import _spread

X, Y = make_friedman1(120, n_features=12, noise=0.5, random_state=0)
BINARY = (np.quantile(Y, 0.75) < Y).astype(int)
THREE = np.array(list("abc"))[np.digitize(Y, np.quantile(Y, [0.2, 0.6]))]
SMALL = LightGBMPartitioner(4, 3)


def fit(penalty, y=Y, estimator=JOPLEnRegressor, **options):
    if isinstance(penalty, str) or penalty.is_auto:
        options["cv"] = 2
    return estimator(SMALL, penalty=penalty, random_state=0, **options).fit(X, y)


@pytest.fixture(scope="module")
def path():
    codes = np.column_stack([X[:, 0] > 0.5, X[:, 3] > 0.3]).astype(int)
    validation = (X[80:], codes[80:], Y[80:])
    return strength_path(
        X[:80], codes[:80], Y[:80], penalty=L21(1.0), n_strengths=8, validation=validation
    )


@pytest.fixture(scope="module")
def sparse():
    return fit(L21("auto"), one_se=False)


@pytest.fixture(scope="module")
def automatic():
    return fit("auto")


def labels(ax):
    """Texts beside the lines."""
    return [text.get_text() for text in ax.texts]


def top_axis(ax):
    return next(child for child in ax.child_axes if child.get_xlabel().startswith("features"))


def boxes_overlap(texts):
    boxes = [plt.Text.get_window_extent(text) for text in texts]  # without their arrows
    return any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


# -- PathDisplay -----------------------------------------------------------------------------------


def test_a_path_is_drawn_as_it_is(path):
    display = PathDisplay(path).plot()
    assert len(display.lines_) == X.shape[1]
    for j, line in enumerate(display.lines_):
        np.testing.assert_array_equal(line.get_xdata(), path.strengths)
        np.testing.assert_array_equal(line.get_ydata(), path.feature_norms[:, j])
    training, validation = display.loss_lines_
    np.testing.assert_array_equal(training.get_ydata(), path.error)
    np.testing.assert_array_equal(validation.get_ydata(), path.validation_error)
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_xscale() == display.loss_ax_.get_xscale() == "log"
    for ax in (display.ax_, display.loss_ax_):
        left, right = ax.get_xlim()
        assert left > path.strengths.max() > path.strengths.min() > right
        assert ax.get_ylabel()
    assert "strength" in display.loss_ax_.get_xlabel()


def test_the_features_that_enter_first_are_named_and_all_others_grey(path):
    names = [f"feature {j}" for j in range(X.shape[1])]
    display = PathDisplay(path, feature_names=names).plot()
    shown = labels(display.ax_)
    assert 3 < len(shown) <= 10
    is_out = path.feature_norms <= 0.01 * path.feature_norms.max()
    entry = np.array([np.flatnonzero(out).max(initial=-1) + 1 for out in is_out.T])
    is_named = np.isin(names, shown)
    assert entry[is_named].max() <= entry[~is_named].min()
    assert entry[is_named].max() < len(path.strengths)
    colors = np.array([line.get_color() for line in display.lines_])
    assert len(set(colors[is_named])) == len(shown)
    assert len(set(colors[~is_named])) <= 1
    assert not set(colors[is_named]) & set(colors[~is_named])


def test_names_do_not_overlap_and_stay_in_the_figure(path):
    display = PathDisplay(path).plot()
    display.figure_.draw_without_rendering()
    assert not boxes_overlap(display.ax_.texts)
    whole = display.figure_.bbox
    for text in [*display.ax_.texts, *display.loss_ax_.get_legend().get_texts()]:
        box = text.get_window_extent()
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1


def test_the_number_of_features_is_on_the_upper_edge(path):
    display = PathDisplay(path).plot()
    top = top_axis(display.ax_)
    np.testing.assert_allclose(top.get_xticks(), path.strengths)
    assert [t.get_text() for t in top.get_xticklabels()] == [str(n) for n in path.n_selected]


def test_a_path_takes_the_place_of_given_axes(path):
    figure, (left, right) = plt.subplots(1, 2, layout="constrained")
    display = PathDisplay(path).plot(ax=left)
    figure.draw_without_rendering()
    assert display.figure_ is figure
    assert display.ax_ in left.child_axes
    assert display.loss_ax_ in left.child_axes
    for panel in (display.ax_, display.loss_ax_):
        assert panel.get_window_extent().x1 < right.get_window_extent().x0
    assert len(labels(display.ax_)) >= 1


def test_without_validation_rows_there_is_the_training_loss_alone():
    codes = (X[:, :1] > 0.5).astype(int)
    plain = strength_path(X, codes, Y, penalty=L21(1.0), strengths=[0.5])
    display = PathDisplay(plain, chosen=0.5).plot()
    display.figure_.draw_without_rendering()
    assert len(display.loss_lines_) == 1
    legend = [text.get_text() for text in display.loss_ax_.get_legend().get_texts()]
    assert legend == ["training", "fit: 0.5"]


def test_a_wrong_number_of_names_is_rejected(path):
    with pytest.raises(ValueError, match="feature_names has 2 names for 12 features"):
        PathDisplay(path, feature_names=["a", "b"]).plot()


@pytest.mark.parametrize(
    ("penalty", "y", "estimator"),
    [
        (L21("auto"), Y, JOPLEnRegressor),
        (Frobenius(0.3), Y, JOPLEnRegressor),
        (2 * L1("auto") + Frobenius(0.01), Y, JOPLEnRegressor),
        (L21(0.02, bias_strength=0.5), BINARY, JOPLEnClassifier),
        (L21(0.02, bias_strength=0.5), THREE, JOPLEnClassifier),
    ],
    ids=["chosen", "quadratic", "sum", "two classes", "three classes"],
)
def test_the_path_of_an_estimator_goes_through_its_fit(penalty, y, estimator):
    model = fit(penalty, y, estimator, tol=1e-8, max_iter=5000)
    display = PathDisplay.from_estimator(model, X, y, n_strengths=3)
    options = {"tol": 1e-8, "max_iter": 5000}
    again = PathDisplay.from_estimator(model, X, y, strengths=[display.chosen], **options)
    norms = again.path.feature_norms[0]
    np.testing.assert_allclose(norms, model.slope_norms_, rtol=1e-3, atol=1e-5)
    assert again.path.objective[0] == pytest.approx(model.solution_.objective, rel=1e-6)
    marked = [line for line in display.ax_.lines if line not in display.lines_]
    assert [line.get_xdata()[0] for line in marked] == [display.chosen]


def test_validation_rows_and_names_of_an_estimator():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"column {j}" for j in range(X.shape[1])])
    model = JOPLEnRegressor(SMALL, penalty=L21(0.05), tol=1e-8).fit(frame[:80], Y[:80])
    display = PathDisplay.from_estimator(
        model, frame[:80], Y[:80], X_val=frame[80:], y_val=Y[80:], strengths=[0.05], tol=1e-8
    )
    assert all(name.startswith("column") for name in labels(display.ax_))
    variance = Y[:80].var()
    found = (display.path.error, display.path.validation_error)
    for rows, losses in zip((slice(80), slice(80, None)), found, strict=True):
        expected = 0.5 * np.mean((model.predict(frame[rows]) - Y[rows]) ** 2) / variance
        assert losses[0] == pytest.approx(expected, rel=1e-4)
    assert "variance" in display.loss_ax_.get_ylabel()


def test_estimators_without_a_path_are_rejected(automatic):
    with pytest.raises(NotFittedError):
        PathDisplay.from_estimator(JOPLEnRegressor(penalty=L21(0.1)), X, Y)
    with pytest.raises(ValueError, match=r"penalty='auto' has no single strength .* L21\('auto'\)"):
        PathDisplay.from_estimator(automatic, X, Y)
    with pytest.raises(ValueError, match="no single strength on slopes"):
        PathDisplay.from_estimator(fit(Laplacian(0.1)), X, Y)
    with pytest.raises(ValueError, match="mark the strengths to change with 'auto'"):
        PathDisplay.from_estimator(fit(L21(0.1) + L1(0.1)), X, Y)
    with pytest.raises(TypeError, match="must be a JOPLEnRegressor or JOPLEnClassifier"):
        PathDisplay.from_estimator(Ridge().fit(X, Y), X, Y)
    with pytest.raises(ValueError, match="belong together"):
        PathDisplay.from_estimator(fit(L21(0.1)), X, Y, X_val=X)


# -- CVDisplay -------------------------------------------------------------------------------------


def on_path(table):
    return {k: v[table["on_path"] & np.isfinite(table["mean_loss"])] for k, v in table.items()}


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("one_se", [False, True])
def test_the_losses_of_a_strength_are_those_of_the_table(sparse, one_se):
    model = sparse if not one_se else fit(L21("auto"), one_se=True)
    rows = on_path(loss_table(model.cv_results_))
    display = CVDisplay.from_estimator(model)
    (line,) = display.lines_
    np.testing.assert_array_equal(line.get_xdata(), rows["strength"])
    np.testing.assert_array_equal(line.get_ydata(), rows["mean_loss"])
    corners = display.band_.get_paths()[0].vertices
    upper = rows["mean_loss"] + rows["se_loss"]
    assert corners[:, 1].max() == pytest.approx(upper.max())
    marked = {m.get_label().split(":")[0]: m.get_xdata()[0] for m in display.ax_.lines}
    best = int(np.argmin(rows["mean_loss"]))
    assert marked["smallest loss"] == rows["strength"][best]
    within = rows["mean_loss"] <= upper[best]
    assert marked["1 std. error rule"] == rows["strength"][within].max()
    assert marked["chosen"] == pytest.approx(model.penalty_.strength)
    assert marked["chosen"] == pytest.approx(
        marked["1 std. error rule" if one_se else "smallest loss"]
    )
    assert display.search_ax_ is None
    assert "variance" in display.ax_.get_ylabel()
    assert "strength" in display.ax_.get_xlabel()


def test_the_mean_number_of_features_is_on_the_upper_edge(sparse):
    rows = on_path(loss_table(sparse.cv_results_))
    top = top_axis(CVDisplay.from_estimator(sparse).ax_)
    counts = dict(zip(rows["strength"], rows["mean_selected"], strict=True))
    for strength, label in zip(top.get_xticks(), top.get_xticklabels(), strict=True):
        assert label.get_text() == f"{counts[strength]:.0f}"


def test_given_axes_are_drawn_in(sparse):
    _, ax = plt.subplots()
    display = CVDisplay.from_estimator(sparse, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert display.lines_[0] in ax.lines


def test_a_quadratic_penalty_has_no_numbers_of_features():
    display = CVDisplay.from_estimator(fit(Frobenius("auto"), BINARY, JOPLEnClassifier))
    assert not display.ax_.child_axes
    assert "log-loss" in display.ax_.get_ylabel()


def test_the_recipe_has_a_line_for_every_slope_scale_and_feature_power(automatic):
    table, chosen = loss_table(automatic.cv_results_), automatic.report_.joint.setting
    alone = table["joint_weight"] == 1  # blends with leaf values are not drawn
    assert alone.sum() == len(alone) - 4
    table = {name: column[alone] for name, column in table.items()}
    display = CVDisplay.from_estimator(automatic)
    drawn = np.concatenate([line.get_xydata() for line in display.lines_])
    np.testing.assert_array_equal(drawn, np.c_[table["strength"], table["mean_loss"]])
    kinds = set(zip(table["slope_scale"], table["feature_power"], strict=True))
    assert len(display.lines_) == len(kinds)
    named = [line.get_label() for line in display.lines_]
    assert len(set(named)) == len(named)
    assert set(named) < set(legend(display.ax_))
    best = "slope scale {slope_scale:g}, feature power {feature_power:g}".format(**chosen)
    dot = display.ax_.lines[-1]
    k = named.index(best if chosen["slope_scale"] else "constant cells")
    assert dot.get_xydata().tolist() == [[chosen["strength"], min(table["mean_loss"])]]
    assert dot.get_xydata()[0].tolist() in display.lines_[k].get_xydata().tolist()


@pytest.mark.parametrize("cheaper", ["rows", "loss"])
def test_a_line_that_was_validated_once_more_has_its_own_panel(cheaper):
    if cheaper == "rows":
        rows, y = make_friedman1(1620, n_features=5, random_state=0)
        model = JOPLEnRegressor(SMALL, random_state=0, cv=2).fit(rows, y)
    else:
        rows, y = make_classification(
            360, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=0
        )
        model = JOPLEnClassifier(SMALL, random_state=0, cv=2).fit(rows, y)
    display = CVDisplay.from_estimator(model)
    search, last = display.search_ax_, display.ax_
    assert [line.axes for line in display.lines_] == [search] * (len(display.lines_) - 1) + [last]
    drawn = np.concatenate([line.get_xydata() for line in display.lines_])
    table = loss_table(model.cv_results_)
    finite = np.isfinite(table["mean_loss"]) & (table["joint_weight"] == 1)
    np.testing.assert_array_equal(drawn[:, 1], table["mean_loss"][finite])
    assert last.lines[-1].get_xydata()[0].tolist() in display.lines_[-1].get_xydata().tolist()
    assert ("encoded classes" in search.get_ylabel()) == (cheaper == "loss")
    assert "validation loss" in last.get_ylabel()


def test_estimators_without_cross_validation_are_rejected():
    with pytest.raises(ValueError, match=r"fitted with a fixed penalty, L21\(0\.1\)"):
        CVDisplay.from_estimator(fit(L21(0.1)))
    with pytest.raises(NotFittedError):
        CVDisplay.from_estimator(JOPLEnRegressor())
    with pytest.raises(TypeError, match="must be a JOPLEnRegressor"):
        CVDisplay.from_estimator(Ridge().fit(X, Y))


def test_a_constant_target_can_be_drawn():
    display = CVDisplay.from_estimator(fit("auto", np.ones(len(X))))
    display.figure_.draw_without_rendering()
    assert all((line.get_ydata() == 0).all() for line in display.lines_)


# -- both ------------------------------------------------------------------------------------------


def test_without_matplotlib_it_is_asked_for(ask_for_matplotlib, path, sparse):
    ask_for_matplotlib(PathDisplay, "plot", path)
    ask_for_matplotlib(PathDisplay, "from_estimator", sparse, X, Y)
    ask_for_matplotlib(CVDisplay, "from_estimator", sparse)


@pytest.mark.parametrize("values", [[0.5], [0.0, 0.0, 0.0], [1.0, 0.99, 0.2], [0.3, 0.1, 0.32]])
def test_labels_are_moved_apart(values):
    places = _spread(np.array(values), 0.1)
    order = np.argsort(values, kind="stable")
    assert (np.diff(places[order]) >= 0.1 - 1e-12).all()
    assert places.min() >= 0
    assert places.max() <= 1 + 1e-12
    assert _spread(np.array([0.2, 0.7]), 0.1).tolist() == pytest.approx([0.2, 0.7])
