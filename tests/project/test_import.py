"""Importing: quick, lazy, and possible without LightGBM."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import jointleaf

WITHOUT_LIGHTGBM = """
import sys
class Blocker:
    error = ImportError("too early")
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "lightgbm":
            raise self.error
sys.meta_path.insert(0, Blocker())
import numpy as np
from jointleaf import Frobenius, JOPLEnRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = X[:, 0] + np.abs(X[:, 1])
model = JOPLEnRegressor("gradient_boosting", penalty=Frobenius(0.1)).fit(X, y)
assert model.score(X, y) > 0.9
for Blocker.error in (ImportError("no lightgbm here"), OSError("libgomp.so.1: cannot open")):
    for model in (JOPLEnRegressor(), JOPLEnRegressor("lightgbm", penalty=Frobenius(0.1))):
        try:
            model.fit(X, y)
        except ImportError as error:
            print(error)
"""


def run(code):
    """Run code in a new interpreter and give what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(*imports):
    """Return the modules that are there after each of some imports, one after the other."""
    code = "".join(f"{line}; print(*sys.modules)\n" for line in imports)
    return [set(line.split()) for line in run(f"import sys\n{code}").splitlines()]


def test_nothing_is_loaded_before_it_is_needed():
    package, partitions = loaded(
        "import jointleaf", "import jointleaf.partitions, jointleaf.datasets"
    )
    heavy = {"sklearn", "lightgbm", "pandas", "matplotlib", "scipy", "numpy", "joblib"}
    assert "jointleaf" in package
    assert not heavy & package
    assert "jointleaf.partitions" in partitions
    assert not {"lightgbm", "sklearn.ensemble"} & partitions


def test_an_estimator_takes_little_more_than_scikit_learn():
    (names,) = loaded("from jointleaf import JOPLEnRegressor")
    assert "sklearn" in names
    assert not {"lightgbm", "xgboost", "catboost", "matplotlib"} & names
    assert not {"sklearn.model_selection", "sklearn.metrics", "sklearn.linear_model"} & names
    # What fits and predictions need is loaded by them.
    of_fits = tuple(f"jointleaf.{name}" for name in ("_fit", "_model", "_trees", "partitions"))
    assert not [name for name in names if name.startswith(of_fits)]
    assert sum(name.startswith("jointleaf.") for name in names) < 45


def test_public_names_resolve():
    for name in jointleaf.__all__:
        assert getattr(jointleaf, name) is not None
        assert name in dir(jointleaf)
    assert {"JOPLEnRegressor", "JOPLEnClassifier", "refine", "fit_cells", "Frobenius"} <= set(
        jointleaf.__all__
    )
    assert len(set(jointleaf.__all__)) == len(jointleaf.__all__)


def test_type_checkers_see_the_public_names():
    tree = ast.parse(Path(jointleaf.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = ["__version__"]
    for node in block.body:
        if node.names[0].name == "*":
            seen += importlib.import_module(node.module).__all__
        else:
            assert node.names[0].asname == node.names[0].name  # re-exported
            seen.append(node.names[0].name)
    assert sorted(seen) == sorted(jointleaf.__all__)


def test_names_are_listed_once():
    names = dir(jointleaf)
    assert len(names) == len(set(names))
    assert set(jointleaf.__all__) <= set(names)
    assert not {"annotations", "import_module", "TYPE_CHECKING"} & set(names)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'jointleaf' has no attribute 'XGBoost'"):
        jointleaf.XGBoost  # noqa: B018
    with pytest.raises(ImportError):
        from jointleaf import XGBoost  # noqa: F401


def test_without_lightgbm_the_error_names_the_remedy():
    messages = run(WITHOUT_LIGHTGBM).strip().splitlines()
    causes = [*["no lightgbm here"] * 2, *["libgomp.so.1: cannot open"] * 2]
    for cause, message in zip(causes, messages, strict=True):
        assert message.startswith("LightGBMPartitioner needs LightGBM")
        assert cause in message
        assert "OpenMP" in message
        assert "gradient_boosting" in message
