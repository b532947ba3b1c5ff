"""Joint quantiles of held-out rows: what they learn, and that they never cross."""

import numpy as np
import pytest
from sklearn.metrics import mean_pinball_loss

from jointleaf._core.losses import AbsoluteError
from jointleaf._data.columns import Column, Columns
from jointleaf._fit import quantiles
from jointleaf._fit.calibration import Calibration, HeldOut
from jointleaf._fit.quantiles import JointQuantiles

LEVELS = np.array([0.1, 0.5, 0.9])
COLUMNS = Columns(tuple(Column(name) for name in "abc"))


def make_rows(kind, n=600, seed=0):
    """Rows whose median 2 a is known, with noise of a `kind`."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    noise = rng.exponential(size=n) - np.log(2)
    if kind == "skew":  # of which widths know nothing
        noise = np.where(X[:, 1] > 0, noise, -noise)
    elif kind == "width":
        noise = rng.standard_normal(n) * np.exp(1.5 * X[:, 1])
    return HeldOut(X, 2 * X[:, 0] + noise, 2 * X[:, 0], np.ones(n), n)


def loss_of(rows, predicted):
    pairs = zip(LEVELS, predicted.T, strict=True)
    return sum(mean_pinball_loss(rows.y, column, alpha=level) for level, column in pairs)


@pytest.mark.parametrize(("kind", "n_forests"), [("same", 0), ("width", 0), ("skew", 2)])
def test_cells_take_part_where_the_shape_depends_on_the_row(kind, n_forests):
    rows, new = make_rows(kind), make_rows(kind, 4000, seed=1)
    joint = JointQuantiles.of_fit(rows, COLUMNS, LEVELS)
    assert len(joint.cells) == n_forests
    predicted = joint.predict(new.X, new.predictions)
    calibration = Calibration.of_fit(rows, COLUMNS)
    of_widths = calibration.quantiles(new.X, new.predictions, LEVELS, AbsoluteError())
    ratio = loss_of(new, predicted) / loss_of(new, of_widths)
    assert ratio < (0.97 if kind == "skew" else 1.01)
    below = (new.y[:, None] <= predicted).mean(axis=0)
    np.testing.assert_allclose(below, LEVELS, atol=0.06)


def test_quantiles_never_cross_near_rows_and_far_from_them(monkeypatch):
    monkeypatch.setattr(quantiles._LevelFit, "choose_strength", lambda self: 1e-4)  # nearly free
    levels = np.array([0.05, 0.1, 0.4, 0.45, 0.5, 0.95])
    joint = JointQuantiles.of_fit(make_rows("skew"), COLUMNS, levels)
    assert joint.cells
    # In every leaf, so that it holds for every row.
    values = [joint.coefficients, *(trees.leaf_values for trees in joint.cells)]
    for part in values:
        assert (np.diff(part, axis=1) >= 0).all()
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.uniform(-1, 1, (5000, 3)), 100 * rng.standard_normal((5000, 3))])
    X[::50, 1] = np.nan
    predicted = joint.predict(X, 1e3 * rng.standard_normal(len(X)))
    assert (np.diff(predicted, axis=1) >= 0).all()


def test_they_move_with_targets_and_their_units():
    rows = make_rows("skew", 300)
    scaled = HeldOut(rows.X, 7 + 1e4 * rows.y, 7 + 1e4 * rows.predictions, rows.s, rows.n_rows)
    plain, large = (JointQuantiles.of_fit(part, COLUMNS, LEVELS) for part in (rows, scaled))
    expected = 7 + 1e4 * plain.predict(rows.X, rows.predictions)
    found = large.predict(scaled.X, scaled.predictions)
    assert plain.cells
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=100)


def test_few_rows_have_constant_distances():
    rows = make_rows("width", 60)
    joint = JointQuantiles.of_fit(rows, COLUMNS, LEVELS)
    assert joint.widths is None
    distances = joint.predict(rows.X, rows.predictions) - rows.predictions[:, None]
    factor = rows.shrinkage()
    ranks = np.sort(factor * rows.residuals)
    np.testing.assert_allclose(distances, np.tile(distances[0], (60, 1)))
    for level, distance in zip(LEVELS, distances[0], strict=True):
        place = int(level * 60)  # the loss is flat between the two targets beside it
        assert ranks[place - 1] - 1e-3 <= distance <= ranks[place] + 1e-3


def test_without_residuals_all_quantiles_are_the_prediction():
    rows = make_rows("same")
    exact = HeldOut(rows.X, rows.predictions, rows.predictions, rows.s, rows.n_rows)
    joint = JointQuantiles.of_fit(exact, COLUMNS, LEVELS)
    expected = np.tile(rows.predictions[:, None], (1, 3))
    np.testing.assert_array_equal(joint.predict(rows.X, rows.predictions), expected)


def test_too_many_rows_are_thinned(monkeypatch):
    monkeypatch.setattr(quantiles, "_MOST_ROWS", 200)
    rows = make_rows("width")
    joint = JointQuantiles.of_fit(rows, COLUMNS, LEVELS)
    every_third = HeldOut(rows.X[::3], rows.y[::3], rows.predictions[::3], rows.s[::3], 600)
    expected = JointQuantiles.of_fit(every_third, COLUMNS, LEVELS)
    np.testing.assert_array_equal(joint.coefficients, expected.coefficients)


def test_parts_keep_groups_together():
    rows = make_rows("width")
    together = HeldOut(rows.X, rows.y, rows.predictions, rows.s, 600, groups=np.arange(600) % 5)
    assert JointQuantiles.of_fit(together, COLUMNS, LEVELS).widths is not None
    alone = HeldOut(rows.X, rows.y, rows.predictions, rows.s, 600, groups=np.zeros(600, np.int64))
    assert JointQuantiles.of_fit(alone, COLUMNS, LEVELS).widths is None
