"""Writes the model files that this version and all later ones must load.

    PYTHONPATH=src:tests python tests/io/make_model_files.py

Run once for every format, into a directory of its own, after its last change: files of a format
that was released are never written again.
"""

import json
from pathlib import Path

import numpy as np

import jointleaf
from jointleaf.io._model_file.container import FORMAT
from model_kinds import make, rows_for

KINDS = (
    *("lightgbm", "catboost", "xgboost", "forest", "pruned", "voronoi, table", "steps", "union"),
    "rotated, table",
    *("recipe, small", "blend", "constant", "laplacian", "nested"),
    *("linear forest", "linear forest, three", "tasks", "tasks, long", "tasks, alone"),
    *("tasks, classes", "bouts", "bouts, classes"),
)


def main():
    place = Path(__file__).parent / "model_files" / f"format-{FORMAT}"
    place.mkdir(parents=True, exist_ok=True)
    for name in KINDS:
        model = make(name)
        rows = rows_for(model)[:12]
        path = place / f"{name.replace(', ', '_').replace(' ', '_')}.jleaf"
        jointleaf.save(model, path)
        answers = {
            method: _listed(getattr(model, method)(rows))
            for method in ("predict", "predict_proba")
            if hasattr(model, method)
        }
        path.with_suffix(".json").write_text(json.dumps({"rows": _listed(rows), **answers}))
        print(path.name, path.stat().st_size)


def _listed(value):
    """Values as JSON has them; NaN as null."""
    if isinstance(value, list):
        return [_listed(item) for item in value]
    if hasattr(value, "columns"):
        return {name: _listed(value[name].to_numpy(dtype=object)) for name in value.columns}
    flat = [
        None if v is None or v != v else v.item() if isinstance(v, np.generic) else v
        for v in np.asarray(value).reshape(-1).tolist()
    ]
    return np.array(flat, dtype=object).reshape(np.shape(value)).tolist()


if __name__ == "__main__":
    main()
