"""``jointleaf predict``: predictions for the rows of a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from jointleaf.cli._commands.options import add_json, add_model, add_reading

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the arguments."""
    parser = commands.add_parser(
        "predict",
        help="predict the target of new rows",
        description="Write one prediction for every row, in the order of the rows; for classes "
        "also the probabilities of all.",
    )
    add_model(parser)
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

    from jointleaf.cli import _output as output
    from jointleaf.cli._models import load_model, read_rows

    if args.output != "-":
        output.check_writable(Path(args.output))
    loaded = load_model(args.model)
    table, X, remarks = read_rows(loaded, args, known=args.id)
    columns = {name: table.column(name).values.tolist() for name in args.id}
    for name, values in _predictions(loaded.model, X).items():
        columns[f"predicted {name}" if name in args.id else name] = values
    if args.json:
        rows = zip(*columns.values(), strict=True)
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        text = output.as_json({"predictions": records, "remarks": remarks}) + "\n"
    else:
        text = _csv(columns)
    if args.output == "-":
        output.show(text)
        return
    data = text.encode()
    packed = gzip.compress(data) if args.output.endswith(".gz") else data
    output.write_file(Path(args.output), packed)
    output.print_remark(f"wrote {args.output}: {output.plural(len(table), 'row')}")


def _predictions(model: Any, X: Any) -> dict[str, list]:
    """Return the prediction and, for classes, the probability of every class."""
    columns: dict[str, list] = {"prediction": model.predict(X).tolist()}
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(X)
        for k, name in enumerate(model.classes_):
            columns[f"probability {name}"] = probabilities[:, k].tolist()
    return columns


def _csv(columns: dict[str, list]) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{v:.10g}" if isinstance(v, float) else v for v in row])
    return out.getvalue()
