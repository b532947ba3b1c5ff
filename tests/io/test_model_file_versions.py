"""Files of every version are loaded, and predict what they predicted when they were written."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jointleaf as jl

FILES = sorted((Path(__file__).parent / "model_files").glob("*/*.jl*"))


def table(rows):
    """Rows as they were given: an array, or a data frame."""
    if isinstance(rows, dict):
        return pd.DataFrame(rows)
    return np.array(rows, dtype=float)


def check(found, expected):
    if isinstance(found, list):
        for own, other in zip(found, expected, strict=True):
            check(own, other)
    elif found.dtype.kind == "f":
        np.testing.assert_allclose(found, np.array(expected, float), rtol=1e-9, atol=1e-12)
    else:
        assert found.tolist() == expected


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_old_files(path):
    model = jl.load(path)
    said = json.loads(path.with_suffix(".json").read_text())
    rows = table(said.pop("rows"))
    assert said
    for method, expected in said.items():
        check(getattr(model, method)(rows), expected)


def test_files_are_there_and_small():
    assert len(FILES) >= 12
    assert all(path.stat().st_size < 100_000 for path in FILES)
    assert {path.parent.name for path in FILES} >= {"0.1.0"}
