"""Explanations as tables and as HTML for notebooks."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_friedman1

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor

X, Y = make_friedman1(120, n_features=5, random_state=0)
TABLE = pd.DataFrame(X, columns=["<a>", "b", "c", "d", "e"])
OPTIONS = {"penalty": Frobenius(0.01), "random_state": 0}


@pytest.mark.parametrize("partitioner", ["lightgbm", "voronoi"])
def test_a_row_of_the_table_adds_up_to_the_prediction(partitioner):
    model = JOPLEnRegressor(partitioner, **OPTIONS).fit(TABLE, Y)
    table = model.explain(TABLE.head(7)).to_frame()
    rest = ["cells"] if partitioner == "voronoi" else []
    assert list(table.columns) == ["baseline", *TABLE.columns, *rest, "prediction"]
    assert table.index.equals(pd.RangeIndex(7, name="row"))
    np.testing.assert_allclose(table["prediction"], model.predict(TABLE.head(7)), rtol=1e-10)
    parts = table.drop(columns="prediction")
    np.testing.assert_allclose(parts.sum(axis=1), table["prediction"], rtol=1e-10)


def test_columns_with_the_names_of_parts_are_told_apart():
    named = TABLE.set_axis(["prediction", "baseline", "cells", "d", "e"], axis=1)
    model = JOPLEnRegressor("lightgbm", **OPTIONS).fit(named, Y)
    table = model.explain(named.head(3)).to_frame()
    names = ["baseline", "x: prediction", "x: baseline", "x: cells", "d", "e", "prediction"]
    assert list(table.columns) == names
    np.testing.assert_allclose(table["prediction"], model.predict(named.head(3)), rtol=1e-10)


def test_several_outputs_have_a_second_level():
    labels = np.array(["low", "mid", "top"])[np.digitize(Y, np.quantile(Y, [0.3, 0.6]))]
    model = JOPLEnClassifier("lightgbm", **OPTIONS).fit(TABLE, labels)
    explanation = model.explain(TABLE.head(4))
    table = explanation.to_frame()
    assert table.index.names == ["row", "output"]
    top = table.xs("top", level="output")
    pd.testing.assert_frame_equal(top, explanation.output("top").to_frame())
    raw = model.decision_function(TABLE.head(4))
    np.testing.assert_allclose(table["prediction"].to_numpy().reshape(4, 3), raw, rtol=1e-8)
    assert "of 3 outputs" in explanation._repr_html_()


def test_notebooks_show_the_first_rows():
    model = JOPLEnRegressor("lightgbm", **OPTIONS).fit(TABLE, Y)
    shown = model.explain(TABLE)._repr_html_()
    assert shown.count("<table>") == 3
    assert "&lt;a&gt; = " in shown
    assert "<a>" not in shown
    assert f"{model.predict(TABLE)[2]:.4g}" in shown


def test_pandas_is_asked_for(monkeypatch):
    explanation = JOPLEnRegressor("lightgbm", **OPTIONS).fit(X, Y).explain(X)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas: pip install pandas"):
        explanation.to_frame()
