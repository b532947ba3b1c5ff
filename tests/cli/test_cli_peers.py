"""The models that jointleaf is compared with, against scikit-learn by hand."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeCV

from jointleaf.cli._models import FIT_MODELS, Options
from jointleaf.cli._preparation import Rows

LINEAR = next(model for model in FIT_MODELS if model.name == "linear model")


def some_rows(n, n_categories):
    """Rows whose target depends on a number and on the category."""
    rng = np.random.default_rng(0)
    g, x = rng.permutation(np.arange(n) % n_categories), rng.normal(size=n)
    y = rng.normal(0, 3, n_categories)[g] + x + rng.normal(0, 0.5, n)
    return Rows(pd.DataFrame({"g": pd.Categorical([f"c{k}" for k in g]), "x": x}), y)


def test_the_linear_model_has_an_indicator_of_every_category():
    rows, new = some_rows(800, 40), some_rows(800, 40).take(np.arange(0, 800, 7))
    found = LINEAR.fit(rows, Options("regression", 0, 1)).predict(new.X, None)
    x = rows.X["x"]

    def by_hand(X):
        indicators = pd.get_dummies(X["g"]).to_numpy(float)
        return np.column_stack([(X["x"] - x.mean()) / x.std(ddof=0), indicators])

    ridge = RidgeCV(np.logspace(-3, 4, 15)).fit(by_hand(rows.X), rows.y)
    np.testing.assert_allclose(found, ridge.predict(by_hand(new.X)), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("counts", [(5, 700), (900, 1200, 3), (60,) * 20])
def test_indicators_of_the_linear_model_are_bounded(counts):
    """A thousand, shared so that no column goes without what another one does not need."""
    codes = np.arange(1200)
    X = pd.DataFrame(
        {f"g{j}": pd.Categorical((codes % k).astype(str)) for j, k in enumerate(counts)}
    )
    fitted = LINEAR.fit(Rows(X, codes % 7.0), Options("regression", 0, 1)).estimator
    n_indicators = fitted[:-1].transform(X[:1]).shape[1]
    most = max(m for m in range(1, 1201) if sum(min(k, m) for k in counts) <= 1000)
    assert n_indicators == sum(min(k, most) for k in counts)
