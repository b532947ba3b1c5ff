"""``jointleaf predict``: predictions for the rows of a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from jointleaf.cli._commands.options import add_json, add_reading, add_rows

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the arguments."""
    parser = commands.add_parser(
        "predict",
        help="predict the target of new rows",
        description="Write one prediction for every row, in the order of the rows; for classes "
        "also the probabilities of all.",
    )
    add_rows(parser)
    parser.add_argument(
        "--output", "-o", metavar="FILE", default="-",
        help='CSV, with gzip if its name ends in .gz; "-", the standard output, by default',
    )  # fmt: skip
    parser.add_argument(
        "--id", metavar="COLUMN", action="append", default=[],
        help="a column of DATA to write along; repeatable",
    )  # fmt: skip
    add_reading(parser)
    add_json(parser, "predictions")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Read, predict, write."""
    import gzip

    from jointleaf.cli._models import load_model, read_rows
    from jointleaf.cli._output import as_json, check_writable, plural, said, show, write_file

    if args.output != "-":
        check_writable(Path(args.output))
    loaded = load_model(args.model)
    table, X, remarks = read_rows(loaded, args, known=args.id)
    columns = predicted_columns(loaded.model, X)
    kept = {name: table.column(name, "--id").values.tolist() for name in args.id}
    clash = [name for name in kept if name in columns]
    if clash:
        columns = {f"predicted {k}" if k in clash else k: v for k, v in columns.items()}
    everything = kept | columns
    if args.json:
        text = as_json({"predictions": _records(everything), "remarks": remarks}) + "\n"
    else:
        text = _csv(everything)
    if args.output == "-":
        show(text)
        return
    data = text.encode()
    write_file(Path(args.output), gzip.compress(data) if args.output.endswith(".gz") else data)
    said(f"wrote {args.output}: {plural(len(table), 'row')}")


def predicted_columns(model: Any, X: Any) -> dict[str, list]:
    """The prediction and, for classes, the probability of every class."""
    predicted = model.predict(X).tolist()
    columns: dict[str, list] = {"prediction": predicted}
    if hasattr(model, "predict_proba"):
        shares = model.predict_proba(X)
        for k, name in enumerate(model.classes_):
            columns[f"probability {name}"] = shares[:, k].tolist()
    return columns


def _records(columns: dict[str, list]) -> list[dict[str, Any]]:
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _csv(columns: dict[str, list]) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{v:.10g}" if isinstance(v, float) else v for v in row])
    return out.getvalue()
