"""Splits in the order of time, and validation rows of the user's: what is held out chooses all."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_friedman1
from sklearn.model_selection import TimeSeriesSplit

from blend_fits import blend_pieces, small_fits
from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._data import statistics
from jointleaf._fit import recipes
from jointleaf._fit.boosting import Growth

N = 300
X, Y = make_friedman1(N, n_features=5, noise=0.5, random_state=0)
TIME = np.arange(N)
CLASSES = (np.median(Y) < Y).astype(int)
RECIPES = ["joint", "blend"]


@pytest.fixture
def splits(monkeypatch):
    """Training and validation rows of the last fit."""
    seen, fit_recipe = [], recipes.fit_recipe

    def see(context, recipe, splits, *args):
        seen[:] = splits
        return fit_recipe(context, recipe, splits, *args)

    monkeypatch.setattr(recipes, "fit_recipe", see)
    return seen


@pytest.fixture
def stops(monkeypatch):
    """Rows on which boosting was trained, and on which it stopped."""
    seen, train = [], Growth.train

    def see(self, valid=None, *args, **options):
        if valid is not None:
            seen.append((self._rows, valid))
        return train(self, valid, *args, **options)

    monkeypatch.setattr(Growth, "train", see)
    return seen


# -- time --------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("is_regression", [True, False])
def test_training_is_before_validation(splits, stops, recipe, is_regression):
    cv, table = TimeSeriesSplit(3, test_size=40), np.c_[X, TIME]
    kind, y = (JOPLEnRegressor, Y) if is_regression else (JOPLEnClassifier, CLASSES)
    with small_fits():
        model = kind(cv=cv, recipe=recipe, random_state=0).fit(table, y)
    ends = [(int(t.X[:, -1].max()), int(v.X[:, -1].min()), len(t), len(v)) for t, v in splits]
    # The split that is most like the rows to come is the first.
    assert ends == [(259, 260, 260, 40), (219, 220, 220, 40), (179, 180, 180, 40)]
    assert (len(stops) > 0) == (recipe == "blend")
    for train, valid in stops:
        assert train.X[:, -1].max() < valid.X[:, -1].min()
    assert model.calibration_.n_rows == 3 * 40


def test_statistics_know_nothing_of_what_comes_later(monkeypatch):
    """Categories whose means change with time: validation rows have those of the rows before."""
    city = np.array([f"city {k % 60}" for k in range(N)])
    frame, split_rows = pd.DataFrame({"city": city, "time": TIME}), []
    split = statistics.CategoryStatistics.split

    def see(self, train, valid):
        split_rows.append((split(self, train, valid), self))
        return split_rows[-1][0]

    monkeypatch.setattr(statistics.CategoryStatistics, "split", see)
    y = np.where(TIME < 200, 0.0, 100.0)
    JOPLEnRegressor(cv=[(TIME[:200], TIME[200:])], random_state=0).fit(frame, y)
    assert split_rows  # one for every recipe that was tried
    for (train, valid), _ in split_rows:
        assert train.X[:, 1].max() == 199
        np.testing.assert_array_equal(valid.X[:, 0], np.zeros(100))


def test_a_class_that_comes_later_leaves_early_splits_out():
    """Boosting could not name it; test_rows_of_lacking_classes_move has what else there is."""
    y, cv = CLASSES.copy(), TimeSeriesSplit(3, test_size=60)
    y[160:230] = 2
    with small_fits(), blend_pieces() as pieces:
        JOPLEnClassifier(cv=cv, recipe="blend", random_state=0).fit(np.c_[X, TIME], y)
    ends = [(train.X[:, -1].max(), valid.X[:, -1].min()) for train, valid in pieces["splits"]]
    assert ends == [(239, 240), (179, 180)]


# -- validation rows of the user's -----------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_validation_rows_serve_every_choice(splits, stops, recipe):
    """They are the only rows that anything is validated on."""
    valid_X, valid_y = make_friedman1(90, n_features=5, noise=0.5, random_state=1)
    s = np.arange(1.0, 91)
    with small_fits():
        model = JOPLEnRegressor(recipe=recipe, random_state=0)
        model.fit(X, Y, X_val=valid_X, y_val=valid_y, sample_weight_val=s)
    ((train, valid),) = splits
    assert len(train) == N
    np.testing.assert_array_equal(valid.X, valid_X)
    np.testing.assert_array_equal(valid.s, s)
    assert all(set(rows.y) <= set(valid_y) for _, rows in stops)
    assert model.calibration_.n_rows == 90
    np.testing.assert_allclose(model.calibration_.total, s.sum() ** 2 / np.square(s).sum())


@pytest.mark.parametrize("recipe", ["joint", "blend"])
def test_rows_that_say_otherwise_choose_otherwise(recipe):
    """Validation rows without any effect: everything is chosen to predict a constant."""
    rng = np.random.default_rng(0)
    noise = rng.permutation(Y)
    with small_fits():
        model = JOPLEnRegressor(recipe=recipe, random_state=0)
        same = np.std(model.fit(X, Y, X_val=X[::2], y_val=Y[::2]).predict(X))
        none = np.std(model.fit(X, Y, X_val=X[::2], y_val=noise[::2]).predict(X))
    assert none < 0.35 * same


def test_weights_of_validation_rows_choose():
    """A weight of zero equals leaving the row out."""
    noise, half = np.random.default_rng(0).permutation(Y), TIME % 2 == 0
    model = JOPLEnRegressor(random_state=0)
    known = {"X_val": X, "y_val": np.where(half, Y, noise)}
    found = model.fit(X, Y, **known, sample_weight_val=half).predict(X)
    expected = model.fit(X, Y, X_val=X[half], y_val=Y[half]).predict(X)
    np.testing.assert_array_equal(found, expected)
    assert not np.allclose(model.fit(X, Y, **known).predict(X), expected)


def test_weights_without_validation_rows():
    with pytest.raises(ValueError, match="X_val and y_val belong together"):
        JOPLEnRegressor().fit(X, Y, sample_weight_val=np.ones(3))


def test_splits_beside_validation_rows():
    with pytest.raises(ValueError, match="cv=3 has no effect with X_val and y_val"):
        JOPLEnRegressor(cv=3).fit(X, Y, X_val=X[:9], y_val=Y[:9])
