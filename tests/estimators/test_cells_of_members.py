"""Kinds of cells for every member of a union of partitions."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_friedman1

from jointleaf import L21, Frobenius, JOPLEnRegressor, MultiTaskJOPLEnRegressor, fit_cells
from jointleaf.io import load, save
from jointleaf.partitions import LightGBMPartitioner, UnionPartitioner

X, Y = make_friedman1(150, n_features=5, noise=0.5, random_state=0)
LARGE, SMALL = LightGBMPartitioner(6, 12), LightGBMPartitioner(4, 4)
KINDS = ["constant", "linear"]


@pytest.mark.parametrize("partitioner", [[LARGE, SMALL], UnionPartitioner([LARGE, SMALL])])
@pytest.mark.parametrize("root_cell", [True, False])
def test_the_same_as_fit_cells(partitioner, root_cell):
    penalty = Frobenius(0.01, bias_strength=0.01)
    model = JOPLEnRegressor(
        partitioner, penalty=penalty, cells=KINDS, root_cell=root_cell, tol=1e-10, random_state=0
    ).fit(X, Y)
    kinds = ["constant"] * 6 + ["linear"] * (4 + root_cell)
    assert list(model.solution_.layout.kinds) == kinds
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    target = (Y - Y.mean()) / Y.std()
    expected = fit_cells(Z, model.apply(X), target, penalty=penalty, cells=kinds, tol=1e-10)
    np.testing.assert_allclose(model.solution_.objective, expected.objective, rtol=1e-6)


@pytest.mark.parametrize("penalty", [Frobenius("auto"), L21("auto", bias_strength=0.1)])
def test_strengths_are_chosen_with_these_cells(penalty, tmp_path):
    model = JOPLEnRegressor([LARGE, SMALL], penalty=penalty, cells=KINDS, cv=2, random_state=0)
    other = clone(model).set_params(cells="linear").fit(X, Y)
    model.fit(X, Y)
    scores = [m.cv_results_["mean_test_score"].max() for m in (model, other)]
    assert scores[0] != scores[1]
    assert model.solution_.layout.n_linear_cells < other.solution_.layout.n_linear_cells
    save(model, tmp_path / "model.jleaf")
    loaded = load(tmp_path / "model.jleaf")
    assert loaded.cells == KINDS
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cells": ["linear"]}, r"cells=\['linear'\] has 1 words for the 2 members of partitioner"),
        ({"cells": ["linear", "cubic"]}, "is not known: use 'linear' or 'constant'"),
        ({"partitioner": LARGE}, "are kinds for the members of a union of partitions"),
        ({"partitioner": "auto"}, "are kinds for the members of a union of partitions"),
        ({"penalty": "auto"}, r"with a penalty: give partitioner a list, and a penalty"),
        ({"cells": ["constant"] * 2, "add_indicator": True}, "add_indicator=True has no effect"),
    ],
)
def test_kinds_that_cannot_be(options, message):
    model = JOPLEnRegressor([LARGE, SMALL], penalty=Frobenius(0.1), cells=KINDS)
    with pytest.raises(ValueError, match=message):
        model.set_params(**options).fit(X, Y)


def test_tasks_take_one_word():
    model = MultiTaskJOPLEnRegressor([LARGE, SMALL], penalty=Frobenius(0.1), cells=KINDS)
    with pytest.raises(ValueError, match="must be 'linear' or 'constant' here"):
        model.fit(X, np.c_[Y, Y])
