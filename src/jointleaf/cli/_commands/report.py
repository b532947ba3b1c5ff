"""``jointleaf report``: the report of a model file, with further data if wanted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from jointleaf.cli._html.report import render_report
from jointleaf.cli._models import LoadedModel, load_model, read_rows
from jointleaf.cli._output import CliError, check_writable, print_json, write_file
from jointleaf.cli._tables.targets import Target
from jointleaf.cli._validation import measures, prediction_summary

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Load, score, write."""
    path = args.output or Path(args.model).with_suffix(".html")
    check_writable(path)
    loaded = load_model(args.model)
    record = loaded.need_record("report")
    scores = None if args.data is None else _score(loaded, record, args)
    write_file(path, render_report(record, scores))
    if args.json:
        shown = {"rows": None, "errors": None} if scores is None else scores
        print_json({"report": str(path), "rows": shown["rows"], "errors": shown["errors"]})
    else:
        print(f"wrote {path}")


def _score(loaded: LoadedModel, record: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return the errors of a model on the rows of a file that have a target."""
    model, target = loaded.model, Target.from_dict(record["target"])
    table, X, _ = read_rows(loaded, args)
    truth, present = target.read(table.column(target.name, "the target"), table.source)
    if target.task == "classification":
        unknown = np.setdiff1d(truth, model.classes_)
        if unknown.size:
            raise CliError(
                f"{table.source}: the target {target.name!r} holds {str(unknown[0])!r}, which is "
                "none of the model's classes"
            )
        truth, predicted = np.searchsorted(model.classes_, truth), model.predict_proba(X[present])
    else:
        predicted = model.predict(X[present])
    return {
        "source": Path(table.source).name,
        "rows": len(truth),
        "errors": measures(truth, predicted),
        "summary": prediction_summary(truth, predicted),
    }
