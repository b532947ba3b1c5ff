"""The public names of an estimator are its parameters and what is documented, and no others."""

import inspect
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jointleaf
from jointleaf import L21, Frobenius, JOPLEnRegressor, prune

API = "\n".join(page.read_text() for page in Path(__file__).parents[2].glob("docs/api/*.md"))
LISTED = dict(re.findall(r"autoclass:: jointleaf\.([\w.]+)\n   :members: (.+)\n", API))
X = pd.DataFrame(np.random.default_rng(0).standard_normal((60, 3)), columns=["a", "b", "c"])
NUMBERS = X["a"] + X["b"] ** 2
CLASSES = (NUMBERS > 1).astype(int)
#: Parameters of small fits.
SMALL = {
    "JOPLEn": {"partitioner": "lightgbm", "penalty": Frobenius(0.1)},
    "MultiTaskJOPLEn": {"partitioner": "lightgbm", "penalty": L21(0.1)},
    "LinearForest": {"n_estimators": 2},
    "BoUTS": {"n_universal": 2, "n_task": 2},
}
#: Attributes that only some fits leave; the last two are those of fits on a cluster.
OF_SOME = {"pruning_", "quantiles_", "source_fit_", "model_", "n_features_in_"}


def estimator_class(name):
    module, _, name = f"jointleaf.{name}".rpartition(".")
    return getattr(pytest.importorskip(module), name)


def fit(cls, **more):
    """A fitted estimator; one of Dask is not fitted, which takes a cluster."""
    family = cls.__name__.removesuffix("Classifier").removesuffix("Regressor")
    if family.startswith("Dask"):
        return cls()
    y = CLASSES if cls.__name__.endswith("Classifier") else NUMBERS
    y = pd.concat([y, y], axis=1, keys=["s", "t"]) if family in ("MultiTaskJOPLEn", "BoUTS") else y
    return cls(**SMALL.get(family, {}), **more).fit(X, y)


def public_names(estimator):
    """Public names, without those that scikit-learn gives to every estimator."""
    names = set()
    for name in {*dir(type(estimator)), *vars(estimator)}:
        value = getattr(type(estimator), name, None)
        home = getattr(getattr(value, "fget", value), "__module__", None) or ""
        if not name.startswith("_") and not home.startswith("sklearn"):
            names.add(name)
    return names


def documented_attributes(cls):
    """The names in the section of attributes of a class, in lines such as ``a_, b_ : type``."""
    section = re.split(r"\n\w+\n-+\n", inspect.getdoc(cls).split("Attributes\n---")[1])[0]
    lines = re.findall(r"^(\w.*)$", section, re.MULTILINE)
    return {name for line in lines for name in line.split(" : ")[0].split(", ")}


def test_all_estimators_are_listed():
    kinds = ("Regressor", "Classifier", "Preprocessor")
    assert {name for name in jointleaf.__all__ if name.endswith(kinds)} <= set(LISTED)


@pytest.mark.parametrize("name", LISTED)
def test_public_names_are_those_that_are_documented(name):
    cls = estimator_class(name)
    documented = documented_attributes(cls) | set(LISTED[name].split(", "))
    names = public_names(fit(cls)) - set(cls._get_param_names())
    assert names - documented == set()
    assert documented - names - OF_SOME == set()


@pytest.mark.parametrize("name", [*LISTED, "L21", "DirtyLasso", "plot.EffectDisplay"])
def test_shared_sections_are_indented_as_their_docstrings(name):
    """Whatever the version of Python: from 3.13 on docstrings lose their own indentation."""
    documented = estimator_class(name)
    for text in (documented, getattr(documented, "from_estimator", documented)):
        doc = inspect.getdoc(text)
        sections = re.findall(r"^( *)(?:Parameters|Attributes)\n( *)-+\n( *)\w", doc, re.MULTILINE)
        assert set(sections) == {("", "", "")}, doc


def test_names_that_only_some_fits_leave():
    pruned = prune(fit(JOPLEnRegressor), X, NUMBERS, n_cells=20)
    levels = JOPLEnRegressor(loss="quantile", quantile=[0.2, 0.8]).fit(X, NUMBERS)
    left = (public_names(pruned) | public_names(levels)) - public_names(fit(JOPLEnRegressor))
    assert left == {"pruning_", "quantiles_"}
