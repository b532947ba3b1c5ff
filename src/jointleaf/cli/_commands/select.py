"""``jointleaf select``: which columns matter, by a sparse penalty along a path of strengths."""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from typing import Any

import numpy as np

from jointleaf import L21, JOPLEnClassifier, JOPLEnRegressor
from jointleaf._fit.report import loss_table
from jointleaf.cli._output import number, plural, print_json, text_table
from jointleaf.cli._training import TrainingData, read_training_data
from jointleaf.plot._path import follow

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Select and print the path."""
    data = read_training_data(args)
    kind = JOPLEnRegressor if data.target.task == "regression" else JOPLEnClassifier
    # Cells that do not depend on the target leave all effects to the linear models.
    model = kind(
        "voronoi", penalty=L21("auto"), random_state=args.seed, n_jobs=args.jobs, verbose=1
    )
    # Progress goes to the standard error stream, all of it: the result alone is for pipes.
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore", UserWarning)  # no feature selected: the table shows it
        model.fit(data.X, data.y)
    contents = {
        "target": data.target.name,
        "task": data.target.task,
        "selected": _selected(model, data.preparation.outputs),
        "strength": float(model.report_.joint_or_raise("a selection").penalty.strength),
        "path": _path(model, data),
        "n_features": len(data.preparation.outputs),
    }
    if args.json:
        print_json(contents)
    else:
        print(_text(contents))


def _selected(model: Any, names: list[str]) -> list[dict[str, Any]]:
    """Return the selected features, most important first."""
    records = [
        {"feature": names[j], "importance": float(model.feature_importances_[j])}
        for j in model.selected_features_.tolist()
    ]
    return sorted(records, key=lambda record: -record["importance"])


def _path(model: Any, data: TrainingData) -> list[dict[str, Any]]:
    """Return the path that cross-validation followed last, from strong to weak.

    Losses are those of cross-validation, features those of the same strengths on all rows.
    """
    names = data.preparation.outputs
    table = loss_table(model.cv_results_)
    rows = np.flatnonzero(table["on_path"] & np.isfinite(table["mean_loss"]))
    breaks = np.flatnonzero(np.diff(table["strength"][rows]) >= 0)
    rows = rows[breaks[-1] + 1 :] if breaks.size else rows
    strengths = table["strength"][rows]
    norms = follow(model, data.X, data.y, None, None, {"strengths": strengths}).feature_norms
    return [
        {
            "strength": float(strengths[i]),
            "features": [
                names[j] for j in sorted(set(model.linear_feature_columns_[norms[i] > 0]))
            ],
            "loss": float(table["mean_loss"][k]),
            "error": float(table["se_loss"][k]),
        }
        for i, k in enumerate(rows)
    ]


def _text(contents: dict[str, Any]) -> str:
    path = contents["path"]
    best = min(path, key=lambda point: point["loss"])
    chosen = min(path, key=lambda point: abs(point["strength"] - contents["strength"]))
    rows = [["strength", "features", "CV loss", "std. error", "", "enters"]]
    entered: set[str] = set()
    for point in path:
        marks = ["chosen"] * (point is chosen) + ["smallest loss"] * (point is best)
        rows.append(
            [
                f"{point['strength']:.3g}",
                str(len(point["features"])),
                number(point["loss"]),
                number(point["error"], 2),
                ", ".join(marks),
                ", ".join(name for name in point["features"] if name not in entered),
            ]
        )
        entered |= set(point["features"])
    unit = (
        "squared error / 2, target variance 1" if contents["task"] == "regression" else "log-loss"
    )
    selected = [[r["feature"], f"{r['importance']:.1%}"] for r in contents["selected"]]
    lines = [
        f"path (loss: {unit}):",
        text_table(rows, right=(0, 1, 2, 3)),
        f"selected {len(selected)} of {plural(contents['n_features'], 'feature')}:",
        text_table([["feature", "importance"], *selected], right=(1,)) if selected else "  none",
    ]
    return "\n".join(lines)
