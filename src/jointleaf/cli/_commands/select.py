"""``jointleaf select``: which columns matter, by a sparse penalty along a path of strengths."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from jointleaf.cli._commands.options import add_json, add_reading, add_seed, add_target

if TYPE_CHECKING:
    from jointleaf.cli._training import TrainingData

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the arguments."""
    parser = commands.add_parser(
        "select",
        help="find the columns that matter, with the whole path",
        description="Fit piecewise linear models under the l2,1 penalty, with which whole columns "
        "vanish, at many strengths; choose the strength by cross-validation (the sparsest model "
        "within one standard error of the best) and show the path.",
    )
    add_target(parser)
    add_seed(parser)
    add_reading(parser)
    add_json(parser, "the path and the selected columns")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Select and show."""
    import contextlib
    import sys
    import warnings

    from jointleaf import L21, JOPLEnClassifier, JOPLEnRegressor
    from jointleaf.cli._output import print_json
    from jointleaf.cli._training import read_training_data

    data = read_training_data(args)
    if not args.json:
        print(data.describe(), flush=True)
    kind = JOPLEnRegressor if data.target.task == "regression" else JOPLEnClassifier
    # Cells that know nothing of the target leave everything that matters to the linear models.
    model = kind(
        "voronoi", penalty=L21("auto"), random_state=args.seed, n_jobs=args.jobs, verbose=1
    )
    # Progress goes to the standard error stream, all of it: the result alone is for pipes.
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore", UserWarning)  # no feature selected: the table says so
        model.fit(data.X, data.y)
    found = {
        "target": data.target.name,
        "task": data.target.task,
        "selected": _selected(model, data.preparation.outputs),
        "strength": float(model.penalty_.strength),
        "path": _path(model, data),
        "n_features": len(data.preparation.outputs),
    }
    if args.json:
        print_json(found)
    else:
        print(_text(found))


def _selected(model: Any, names: list[str]) -> list[dict[str, Any]]:
    """The selected features, most important first."""
    chosen = model.selected_features_.tolist()
    found = [
        {"feature": names[j], "importance": float(model.feature_importances_[j])} for j in chosen
    ]
    return sorted(found, key=lambda record: -record["importance"])


def _path(model: Any, data: TrainingData) -> list[dict[str, Any]]:
    """The path that cross-validation followed last, from strong to weak.

    Losses are those of cross-validation, features those of the same strengths on all rows.
    """
    import numpy as np

    from jointleaf.plot._following import follow

    names = data.preparation.outputs
    table = model.cv_results_
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


def _text(found: dict[str, Any]) -> str:
    from jointleaf.cli._output import number, plural, text_table

    path = found["path"]
    best = min(path, key=lambda point: point["loss"])
    chosen = min(path, key=lambda point: abs(point["strength"] - found["strength"]))
    rows = [["strength", "features", "CV loss", "std. error", "", "enters"]]
    before: set[str] = set()
    for point in path:
        marks = [
            text for mark, text in ((chosen, "chosen"), (best, "smallest loss")) if mark is point
        ]
        rows.append(
            [
                f"{point['strength']:.3g}",
                str(len(point["features"])),
                number(point["loss"]),
                number(point["error"], 2),
                ", ".join(marks),
                ", ".join(name for name in point["features"] if name not in before),
            ]
        )
        before |= set(point["features"])
    unit = "squared error / 2, target variance 1" if found["task"] == "regression" else "log-loss"
    picked = [[r["feature"], f"{r['importance']:.1%}"] for r in found["selected"]]
    head = f"selected {len(picked)} of {plural(found['n_features'], 'feature')}:"
    lines = [
        f"path (loss: {unit}):",
        text_table(rows, right=(0, 1, 2, 3)),
        head,
        text_table([["feature", "importance"], *picked], right=(1,)) if picked else "  none",
    ]
    return "\n".join(lines)
