"""``jointleaf predict``: predictions for the rows of a table."""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from pathlib import Path
from typing import Any

from jointleaf.cli._models import load_model, read_rows
from jointleaf.cli._output import as_json, check_writable, plural, print_remark, show, write_file

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Read, predict, write."""
    if args.output != "-":
        check_writable(Path(args.output))
    loaded = load_model(args.model)
    table, X, remarks = read_rows(loaded, args, known=args.id)
    columns = {name: table.column(name).values.tolist() for name in args.id}
    for name, values in _predictions(loaded.model, X).items():
        columns[f"predicted {name}" if name in args.id else name] = values
    if args.json:
        rows = zip(*columns.values(), strict=True)
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        text = as_json({"predictions": records, "remarks": remarks}) + "\n"
    else:
        text = _csv(columns)
    if args.output == "-":
        show(text)
        return
    data = text.encode()
    write_file(Path(args.output), gzip.compress(data) if args.output.endswith(".gz") else data)
    print_remark(f"wrote {args.output}: {plural(len(table), 'row')}")


def _predictions(model: Any, X: Any) -> dict[str, list]:
    """Return the prediction and, for classes, the probability of every class."""
    columns: dict[str, list] = {"prediction": model.predict(X).tolist()}
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(X)
        for k, name in enumerate(model.classes_):
            columns[f"probability {name}"] = probabilities[:, k].tolist()
    return columns


def _csv(columns: dict[str, list]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{v:.10g}" if isinstance(v, float) else v for v in row])
    return out.getvalue()
