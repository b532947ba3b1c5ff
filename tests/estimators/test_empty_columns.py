"""Columns without values in the training rows: one warning, and nothing is learned from them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

import jointleaf as jl
from blend_fits import small_fits
from jointleaf.partitions import RandomTreesPartitioner

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.standard_normal((120, 3)), columns=list("abc"))
Y = X["a"].to_numpy() + 0.1 * RNG.standard_normal(120)
EMPTY = X.assign(late=np.nan, text=None)
LATER = X.assign(late=7.0, text="new")
SMALL = RandomTreesPartitioner(5, 4)


def same_predictions(model):
    """Whether predictions do not depend on what the columns hold later."""
    np.testing.assert_array_equal(model.predict(LATER), model.predict(EMPTY))


def one_warning(fit):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit()
    (message,) = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    assert message.startswith("columns 'late', 'text' have no values at all, and nothing")
    return model


@pytest.mark.parametrize("options", [{"cv": 2}, {"recipe": "blend", "clip": False}])
def test_default_fits(options):
    with small_fits():
        model = one_warning(lambda: jl.JOPLEnRegressor(random_state=0, **options).fit(EMPTY, Y))
        is_above = np.where(Y > 0, "yes", "no")
        classes = one_warning(
            lambda: jl.JOPLEnClassifier(random_state=0, **options).fit(EMPTY, is_above)
        )
    same_predictions(model)
    same_predictions(classes)
    assert model.score(EMPTY, Y) > 0.8
    assert not model.feature_importances_[3:].any()


def test_a_file_and_missing_indicators(tmp_path):
    model = jl.JOPLEnRegressor(SMALL, penalty=jl.Frobenius(0.01), add_indicator=True)
    one_warning(lambda: model.fit(EMPTY, Y))
    jl.save(model, tmp_path / "m.jleaf")
    loaded = jl.load(tmp_path / "m.jleaf")
    np.testing.assert_array_equal(loaded.predict(LATER), model.predict(LATER))


@pytest.mark.parametrize("forest", [jl.LinearForestRegressor])
def test_linear_forests(forest):
    same_predictions(one_warning(lambda: forest(10, random_state=0).fit(EMPTY, Y)))


def test_a_column_that_is_empty_in_one_fold_or_task_alone():
    first = X.assign(d=np.where(np.arange(120) < 40, 1.0 * np.arange(120), np.nan))
    model = jl.JOPLEnRegressor(SMALL, penalty=jl.Frobenius(0.01), random_state=0)
    folds = [(np.arange(40, 120), np.arange(40)), (np.arange(80), np.arange(80, 120))]
    with pytest.warns(UserWarning, match="column 'd' has no values"):
        assert cross_val_score(model, first, Y, cv=folds).min() > 0.5
    tasks = jl.MultiTaskJOPLEnRegressor(SMALL, penalty=jl.DirtyLasso(0.01, 0.01), random_state=0)
    data = [(EMPTY[:60], Y[:60]), (EMPTY[60:], Y[60:])]
    fitted = one_warning(lambda: tasks.fit(data))
    np.testing.assert_array_equal(fitted.predict(LATER, 0), fitted.predict(EMPTY, 0))


def test_rows_in_files(tmp_path):
    for k, part in enumerate((EMPTY[:60], EMPTY[60:])):
        part.drop(columns="text").assign(y=Y[part.index]).to_parquet(tmp_path / f"{k}.parquet")
    model = jl.JOPLEnRegressor(SMALL, penalty=jl.Frobenius(0.01), random_state=0)
    source = jl.ParquetRows(tmp_path, "y")
    with pytest.warns(UserWarning, match="column 'late' has no values"):
        jl.fit_source(model, source, sample_rows=60, validation_rows=20)
    rows = X.assign(late=np.nan)
    np.testing.assert_array_equal(model.predict(rows), model.predict(rows.assign(late=7.0)))
