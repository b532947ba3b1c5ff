"""What the benchmark of components replaces is still there, and takes effect."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from jointleaf import JOPLEnClassifier, JOPLEnRegressor

RNG = np.random.default_rng(0)
X = RNG.integers(0, 4, (90, 3)).astype(float)
Y = X[:, 0] + np.abs(X[:, 1] - 2) + 0.3 * RNG.standard_normal(90)


@pytest.fixture
def ablation(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return importlib.import_module("benchmarks.ablation")


def test_what_is_replaced_exists(ablation):
    for pieces in [*ablation.REGRESSION.values(), *ablation.BINARY.values()]:
        with ablation.replaced(pieces):
            pass


@pytest.mark.parametrize(
    ("variant", "parameter"),
    [
        ("no feature weights (q = 0)", "param_feature_power"),
        ("constant cells (s = 0)", "param_slope_scale"),
    ],
)
def test_settings_that_are_left_out_are_not_tried(ablation, variant, parameter):
    assert JOPLEnRegressor(random_state=0, cv=2).fit(X, Y).cv_results_[parameter].max() > 0
    with ablation.replaced(ablation.REGRESSION[variant]) as params:
        model = JOPLEnRegressor(random_state=0, cv=2, **params).fit(X, Y)
    assert set(model.cv_results_[parameter]) == {0.0}


def test_components_that_are_left_out_are_not_fitted(ablation):
    classes = (np.median(Y) < Y).astype(int)
    for variant, kept in (
        ("the joint fit alone, no other components", {"joint"}),
        ("no constants for values", {"joint", "linear", "leaf_values"}),
    ):
        with ablation.replaced(ablation.BINARY[variant]) as params:
            model = JOPLEnClassifier(random_state=0, cv=2, **params).fit(X, classes)
        assert set(model.blend_.weights) <= kept
