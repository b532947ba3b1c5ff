"""``jointleaf explain``: what every column adds to the prediction of a row."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

from jointleaf.cli._models import load_model, read_rows
from jointleaf.cli._output import (
    CliError,
    bar,
    check_writable,
    finite,
    number,
    plural,
    print_json,
    print_remark,
    text_table,
    writing,
)
from jointleaf.inspection import Explanation

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Explain one row."""
    if args.plot is not None:
        check_writable(args.plot)
    loaded = load_model(args.model)
    table, X, remarks = read_rows(loaded, args)
    if args.row > len(table):
        raise CliError(
            f"--row {args.row}: {table.source} has {plural(len(table), 'row')} below the header"
        )
    row = X.iloc[[args.row - 1]]
    explanation, output = _one_output(loaded.model, row, args.label)
    contents = {
        "row": args.row,
        "explains": output,
        "baseline": float(np.reshape(explanation.baseline, -1)[0]),
        "contributions": _contributions(explanation),
        "raw_prediction": float(explanation.prediction[0]),
        "prediction": loaded.model.predict(row).tolist()[0],
        "remarks": remarks,
    }
    if hasattr(loaded.model, "predict_proba"):
        probabilities = loaded.model.predict_proba(row)[0].tolist()
        names = map(str, loaded.model.classes_)
        contents["probabilities"] = dict(zip(names, probabilities, strict=True))
    if args.plot is not None:
        _draw(explanation, output, args)
        print_remark(f"wrote {args.plot}")
    if args.json:
        print_json(contents)
    else:
        print(_text(contents, args.top))


def _one_output(model: Any, row: Any, label: str | None) -> tuple[Explanation, str]:
    """Return the explanation of one row and one output, and the name of the output."""
    explanation = model.explain(row)
    if not hasattr(model, "classes_"):
        if label is not None:
            raise CliError(f"--class {label!r}: the model predicts numbers, not classes")
        return explanation, "the prediction"
    names = [str(name) for name in model.classes_]
    if label is not None and label not in names:
        raise CliError(f"--class {label!r} is not known: the classes are {', '.join(names)}")
    if explanation.output_names is not None:
        chosen = model.predict(row)[0] if label is None else model.classes_[names.index(label)]
        return explanation.output(chosen), f"the raw prediction of {chosen}"
    # Two classes have one raw prediction, the log-odds of the second.
    if label != names[0]:
        return explanation, f"the log-odds of {names[1]}"
    return _negated(explanation), f"the log-odds of {names[0]}"


def _negated(explanation: Explanation) -> Explanation:
    names = ("linear", "cells", "cells_rest", "baseline")
    return replace(explanation, **{name: -getattr(explanation, name) for name in names})


def _contributions(explanation: Explanation) -> list[dict[str, Any]]:
    """Return one record for each column, the largest first."""
    columns = zip(
        explanation.feature_names, explanation.data[0], explanation.values[0], strict=True
    )
    records = [
        {"feature": name, "value": finite(value), "contribution": float(contribution)}
        for name, value, contribution in columns
    ]
    return sorted(records, key=lambda record: -abs(record["contribution"]))


def _text(contents: dict[str, Any], top: int) -> str:
    records = contents["contributions"]
    largest = max(abs(record["contribution"]) for record in records)
    rows = [["feature", "value", "adds", ""], ["baseline", "", number(contents["baseline"]), ""]]
    for record in records[:top]:
        value, added = record["value"], record["contribution"]
        text = "missing" if value is None else str(value)
        if isinstance(value, int | float):
            text = f"{value:.6g}"
        sign = "+" if added >= 0 else ""
        rows.append([record["feature"], text, sign + number(added), bar(added, largest)])
    if len(records) > top:
        added = sum(record["contribution"] for record in records[top:])
        rows.append([f"{len(records) - top} others", "", f"{added:+.4g}", bar(added, largest)])
    rows.append(["sum", "", number(contents["raw_prediction"]), ""])
    lines = [
        f"row {contents['row']}: {contents['explains']}, from the mean in training",
        text_table(rows, right=(1, 2)),
    ]
    prediction = contents["prediction"]
    if "probabilities" in contents:
        probability = contents["probabilities"][str(prediction)]
        lines.append(f"prediction: {prediction}, probability {probability:.3f}")
    else:
        lines.append(f"prediction: {number(prediction)}")
    return "\n".join(lines)


def _draw(explanation: Explanation, output: str, args: argparse.Namespace) -> None:
    """Draw the contributions with the display of the library."""
    from jointleaf.plot import ExplanationDisplay
    from jointleaf.plot._base import need_matplotlib

    need_matplotlib("--plot").switch_backend("Agg")
    display = ExplanationDisplay(explanation, n_columns=args.top, value_name=output).plot()
    display.ax_.set_title(f"row {args.row}", loc="left", fontsize=10)
    figure: Any = display.figure_
    ending = args.plot.suffix.lstrip(".") or "png"
    with writing(args.plot) as temporary:
        figure.savefig(temporary, format=ending, dpi=120)
