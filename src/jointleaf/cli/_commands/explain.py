"""``jointleaf explain``: what every column adds to the prediction of a row."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jointleaf.cli._commands.options import add_json, add_reading, add_rows, at_least

if TYPE_CHECKING:
    from jointleaf.inspection import Explanation

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the arguments."""
    parser = commands.add_parser(
        "explain",
        help="say what every column adds to a prediction",
        description="Say what every column adds to the prediction of one row. The baseline, the "
        "mean prediction in training, and all contributions add up to the prediction: the target "
        "itself, log-odds for classes.",
    )
    add_rows(parser)
    parser.add_argument(
        "--row", metavar="N", type=at_least(1), default=1,
        help="number of the row; 1, the default, is the first below the header",
    )  # fmt: skip
    parser.add_argument(
        "--top", metavar="N", type=at_least(1), default=10, help="columns to show, 10 by default"
    )
    parser.add_argument(
        "--class", dest="label", metavar="NAME",
        help="explain this class; by default the second of two, the predicted one of more",
    )  # fmt: skip
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw a picture, .png or .svg")
    add_reading(parser)
    add_json(parser, "all contributions")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Explain one row."""
    import numpy as np

    from jointleaf.cli._errors import ShellError
    from jointleaf.cli._models import load_model, read_rows
    from jointleaf.cli._output import check_writable, plural, print_json, said

    if args.plot is not None:
        check_writable(args.plot)
    loaded = load_model(args.model)
    table, X, remarks = read_rows(loaded, args)
    if args.row > len(table):
        raise ShellError(
            f"--row {args.row}: {table.source} has {plural(len(table), 'row')} below the header"
        )
    row = X.iloc[[args.row - 1]]
    explanation, what = _one_output(loaded.model, row, args.label)
    found = {
        "row": args.row,
        "explains": what,
        "baseline": float(np.reshape(explanation.baseline, -1)[0]),
        "contributions": _contributions(explanation),
        "raw_prediction": float(explanation.prediction[0]),
        "prediction": loaded.model.predict(row).tolist()[0],
        "remarks": remarks,
    }
    if hasattr(loaded.model, "predict_proba"):
        shares = loaded.model.predict_proba(row)[0].tolist()
        found["probabilities"] = dict(zip(map(str, loaded.model.classes_), shares, strict=True))
    if args.plot is not None:
        _draw(explanation, what, args)
        said(f"wrote {args.plot}")
    if args.json:
        print_json(found)
    else:
        print(_text(found, args.top))


def _one_output(model: Any, row: Any, label: str | None) -> tuple[Explanation, str]:
    """The explanation of one row and one output, and what is explained."""
    from jointleaf.cli._errors import ShellError

    explanation = model.explain(row)
    if not hasattr(model, "classes_"):
        if label is not None:
            raise ShellError(f"--class {label!r}: the model predicts numbers, not classes")
        return explanation, "the prediction"
    names = [str(name) for name in model.classes_]
    if label is not None and label not in names:
        raise ShellError(f"--class {label!r} is not known; the classes are {', '.join(names)}")
    if explanation.output_names is None:
        # Two classes have one raw prediction, the log-odds of the second.
        sign = -1.0 if label == names[0] else 1.0
        return _times(explanation, sign), f"the log-odds of {names[0] if sign < 0 else names[1]}"
    chosen = model.predict(row)[0] if label is None else model.classes_[names.index(label)]
    return explanation.output(chosen), f"the raw prediction of {chosen}"


def _times(explanation: Explanation, sign: float) -> Explanation:
    from dataclasses import replace

    return replace(
        explanation,
        linear=sign * explanation.linear,
        cells=sign * explanation.cells,
        cells_rest=sign * explanation.cells_rest,
        baseline=sign * explanation.baseline,
    )


def _contributions(explanation: Explanation) -> list[dict[str, Any]]:
    """One record a column, the largest first."""
    values = explanation.values[0]
    found = [
        {
            "feature": name,
            "value": _plain(explanation.data[0, j]),
            "contribution": float(values[j]),
        }
        for j, name in enumerate(explanation.feature_names)
    ]
    return sorted(found, key=lambda record: -abs(record["contribution"]))


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and value != value else value


def _text(found: dict[str, Any], top: int) -> str:
    from jointleaf.cli._output import bar, number, text_table

    everything = found["contributions"]
    shown = everything[:top]
    largest = max(abs(record["contribution"]) for record in everything)
    rows = [["feature", "value", "adds", ""], ["baseline", "", number(found["baseline"]), ""]]
    for record in shown:
        value = record["value"]
        text = "missing" if value is None else f"{value:.6g}" if _is_number(value) else str(value)
        added = record["contribution"]
        sign = "+" if added >= 0 else ""
        rows.append([record["feature"], text, sign + number(added), bar(added, largest)])
    rest = sum(record["contribution"] for record in everything[top:])
    if len(everything) > top:
        label = f"{len(everything) - top} others"
        rows.append([label, "", f"{rest:+.4g}", bar(rest, largest)])
    rows.append(["sum", "", number(found["raw_prediction"]), ""])
    head = f"row {found['row']}: {found['explains']}, from the mean in training"
    lines = [head, text_table(rows, right=(1, 2))]
    if "probabilities" in found:
        best = found["prediction"]
        lines.append(f"prediction: {best}, probability {found['probabilities'][str(best)]:.3f}")
    else:
        lines.append(f"prediction: {number(found['prediction'])}")
    return "\n".join(lines)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _draw(explanation: Explanation, what: str, args: argparse.Namespace) -> None:
    """Draw the contributions with the library's own display."""
    from jointleaf import ExplanationDisplay
    from jointleaf.cli._output import writing
    from jointleaf.plot._drawing import need_matplotlib

    need_matplotlib("--plot").switch_backend("Agg")
    display = ExplanationDisplay(explanation, n_columns=args.top, value_name=what).plot()
    display.ax_.set_title(f"row {args.row}", loc="left", fontsize=10)
    figure: Any = display.figure_
    ending = args.plot.suffix.lstrip(".") or "png"
    with writing(args.plot) as temporary:
        figure.savefig(temporary, format=ending, dpi=120)
