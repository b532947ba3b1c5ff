"""How many files a default fit runs through: the fewer, the sooner newcomers find their way."""

import importlib
from functools import partial
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def trace_fit(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return importlib.import_module("benchmarks.trace_fit")


def test_a_default_fit_runs_through_few_files(trace_fit):
    X, y = trace_fit.data(500, "numbers")
    model = trace_fit.estimator("numbers").fit(X, y)  # imports
    found = trace_fit.traced(partial(model.fit, X, y))
    assert 20 < found.files <= 36
    assert found.packages <= 12
