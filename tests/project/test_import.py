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
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "lightgbm":
            raise {error}
sys.meta_path.insert(0, Blocker())
import numpy as np
from jointleaf import Frobenius, JOPLEnRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = X[:, 0] + np.abs(X[:, 1])
model = JOPLEnRegressor("gradient_boosting", penalty=Frobenius(0.1)).fit(X, y)
assert model.score(X, y) > 0.9
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


def test_import_loads_no_heavy_package():
    loaded = run("import sys, jointleaf; print(*{m.split('.')[0] for m in sys.modules})").split()
    assert "jointleaf" in loaded
    heavy = {"sklearn", "lightgbm", "pandas", "matplotlib", "scipy", "numpy", "joblib"}
    assert not heavy & set(loaded)


def test_estimators_load_no_tree_library():
    code = (
        "import sys; from jointleaf import JOPLEnRegressor, refine, fit_cells; print(*sys.modules)"
    )
    loaded = {name.split(".")[0] for name in run(code).split()}
    assert "sklearn" in loaded
    assert not {"lightgbm", "xgboost", "catboost", "matplotlib"} & loaded


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


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'jointleaf' has no attribute 'XGBoost'"):
        jointleaf.XGBoost  # noqa: B018
    with pytest.raises(ImportError):
        from jointleaf import XGBoost  # noqa: F401


@pytest.mark.parametrize(
    "error", ["ImportError('no lightgbm here')", "OSError('libgomp.so.1: cannot open')"]
)
def test_without_lightgbm_the_error_names_the_remedy(error):
    messages = run(WITHOUT_LIGHTGBM.format(error=error)).strip().splitlines()
    assert len(messages) == 2
    for message in messages:
        assert message.startswith("LightGBMPartitioner needs LightGBM")
        assert error.split("'")[1] in message
        assert "OpenMP" in message
        assert "gradient_boosting" in message
