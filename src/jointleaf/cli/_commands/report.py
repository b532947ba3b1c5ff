"""``jointleaf report``: the report of a model file, with further data if wanted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from jointleaf.cli._commands.options import add_json, add_reading

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the arguments."""
    parser = commands.add_parser(
        "report",
        help="write the HTML report of a model, also on further data",
        description="Write the report of a fit once more, as one HTML file. With DATA, which must "
        "have the target, it also shows how good the model is there.",
    )
    parser.add_argument("model", metavar="MODEL", help="a file of `jointleaf fit`")
    parser.add_argument("data", metavar="DATA", nargs="?", help="rows with the target")
    parser.add_argument(
        "--output", "-o", metavar="FILE", type=Path, help="by default beside the model, .html"
    )
    parser.add_argument(
        "--ignore-extra", action="store_true", help="allow columns that the model does not know"
    )
    add_reading(parser)
    add_json(parser, "the errors on DATA")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Load, judge, write."""
    from jointleaf.cli._html.report import render_report
    from jointleaf.cli._models import load_model
    from jointleaf.cli._output import check_writable, print_json, write_file

    path = args.output or Path(args.model).with_suffix(".html")
    check_writable(path)
    loaded = load_model(args.model)
    record = loaded.need_record("report")
    fresh = None if args.data is None else judge_data(loaded, args)
    write_file(path, render_report(record, fresh))
    if args.json:
        errors = None if fresh is None else fresh["table"][0]
        print_json({"report": str(path), "rows": fresh and fresh["n_rows"], "errors": errors})
    else:
        print(f"wrote {path}")


def judge_data(loaded: Any, args: argparse.Namespace) -> dict[str, Any]:
    """How good a model is on the rows of a file that have a target."""
    import numpy as np

    from jointleaf.cli._errors import ShellError
    from jointleaf.cli._judging import Judgement, measures
    from jointleaf.cli._models import read_rows
    from jointleaf.cli._peers import JOINTLEAF
    from jointleaf.cli._summaries import prediction_summary
    from jointleaf.cli._tables.targets import Target

    record, model = loaded.record, loaded.model
    table, X, _ = read_rows(loaded, args)
    fields = {name: record["target"][name] for name in ("name", "task", "notation", "reason")}
    target = Target(**fields, labels=tuple(record["target"].get("labels", ())))
    column = table.column(target.name, "the target")
    y, has = target.read(column, table.source)
    X = X[has]
    if target.task == "classification":
        unknown = np.setdiff1d(y, model.classes_)
        if unknown.size:
            raise ShellError(
                f"{table.source}: the target {target.name!r} holds {str(unknown[0])!r}, which is "
                "none of the model's classes"
            )
        truth, predicted = np.searchsorted(model.classes_, y), model.predict_proba(X)
    else:
        truth, predicted = y, model.predict(X)
    judgement = Judgement(np.arange(len(y)), truth, {JOINTLEAF: predicted}, {JOINTLEAF: 0.0}, "", 1)
    return {
        "source": Path(table.source).name,
        "n_rows": len(y),
        "table": [measures(truth, predicted)],
        "summary": prediction_summary(judgement),
    }
