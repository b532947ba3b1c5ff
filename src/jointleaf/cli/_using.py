"""Commands that use a model from a file: ``predict``, ``explain``, ``export`` and the like."""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import warnings
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.formatting import day_text, natural_key, signed, term
from jointleaf._data.raw_table import RawTable
from jointleaf._data.texts import are_floats
from jointleaf.cli import _output as out
from jointleaf.cli._preparation import Rows, check_columns, prepared, read_file, role_numbers
from jointleaf.cli._record import LoadedModel, load_model, model_summary, without_charts
from jointleaf.cli._report import render_report
from jointleaf.cli._scores import (
    COVERAGE,
    error_table,
    intervals_or_sets,
    measures,
    prediction_summary,
    with_exposure,
)
from jointleaf.inspection import Explanation
from jointleaf.inspection._explanation import REST, REST_NOTE
from jointleaf.io import to_onnx, to_sql

_MOST_SHOWN = 3
_OTHER_FORMATS = (".parquet", ".pq", ".jsonl", ".xlsx", ".xls", ".html", ".jleaf")
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def _read(
    loaded: LoadedModel, args: argparse.Namespace, known: Collection[str] = ()
) -> tuple[RawTable, Any, list[str]]:
    """Read rows for a model, as its training rows were read.

    Return the table, the data frame that the model sees, and remarks on values that are not as in
    training, which are also printed to the standard error stream. `known` are names of further
    columns that may be there.
    """
    table = read_file(args, loaded.preparation.missing)
    for name in known:
        table.column(name, "--id")
    familiar = {*known, *(table.names if args.ignore_extra else ())}
    if loaded.target is not None:
        familiar.add(loaded.target.name)
    nameless = " (a file saved from Python does not name its target)" * (loaded.target is None)
    check_columns(loaded.preparation, table, familiar, nameless)
    X, remarks = prepared(loaded.preparation, table)
    if loaded.record is None and loaded.model.report_.has_offset:
        remarks.append(
            "the model was fitted with exposure or an offset, which a file saved from Python does "
            "not name: predictions are without it"
        )
    remarks += _unseen_categories(loaded.model, X) + _far_numbers(loaded, X)
    for remark in remarks:
        out.print_remark(f"{table.source}: {remark}")
    return table, X, remarks


def _unseen_categories(model: Any, X: Any) -> list[str]:
    """Return remarks on categories not seen in training: the model takes them for one more."""
    remarks = []
    for column in model.columns_:
        if column.categories is None:
            continue
        values = X[column.label].dropna()
        unseen = values[~values.isin(column.categories.tolist())]
        if len(unseen):
            different = unseen.astype(object).unique().tolist()
            shown = ", ".join(map(repr, different[:_MOST_SHOWN]))
            dots = ", ..." if len(different) > _MOST_SHOWN else ""
            remarks.append(
                f"column {column.label!r}: {len(unseen):,} of {out.plural(len(values), 'value')} "
                f"{'was' if len(unseen) == 1 else 'were'} not seen in training ({shown}{dots})"
            )
    return remarks


def _far_numbers(loaded: LoadedModel, X: Any) -> list[str]:
    """Return remarks on numbers farther from those of training than these are from each other."""
    features = loaded.model.cell_model_.features
    ranges = zip(features.plan.names, features.scaler.low, features.scaler.high, strict=True)
    remarks = []
    for name, low, high in list(ranges)[: len(features.plan.numbers)]:
        if name not in X.columns or low == high:
            continue
        values = X[name].to_numpy(float)
        far = np.flatnonzero((values < 2 * low - high) | (values > 2 * high - low))
        if far.size:
            as_text = day_text if name in loaded.preparation.days else out.number
            verb = "is" if far.size == 1 else "are"
            remarks.append(
                f"column {name!r}: {far.size:,} of {out.plural(len(values), 'value')} {verb} far "
                f"outside training ({as_text(low)} to {as_text(high)}), such as "
                f"{as_text(values[far[0]])} in row {far[0] + 1:,}"
            )
    return remarks


# -- predict -----------------------------------------------------------------------------------


def predict(args: argparse.Namespace) -> None:
    """Write predictions for the rows of a table."""
    path = None if args.output == "-" else Path(args.output)
    out.check_outputs({"--output": path}, args.model, args.data)
    if path is not None and path.suffix.lower() in _OTHER_FORMATS:
        raise out.CliError(
            f"--output {args.output}: predictions are written as CSV, or as JSON: name a file that "
            "ends in .csv, .csv.gz or .json"
        )
    loaded = load_model(args.model)
    table, X, remarks = _read(loaded, args, args.id)
    columns = {name: table.column(name).values.tolist() for name in args.id}
    exposure = role_numbers(loaded.preparation, table, "exposure")
    predictions = _predictions(loaded.model, X, exposure)
    if args.interval is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            predictions |= _intervals(loaded.model, X, exposure, args.interval)
        for warning in caught:
            remarks.append(str(warning.message))
            out.print_remark(remarks[-1])
    for name, values in predictions.items():
        columns[f"predicted {name}" if name in args.id else name] = values
    if args.json or (path is not None and path.suffix.lower() == ".json"):
        rows = zip(*columns.values(), strict=True)
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        text = out.as_json({"predictions": records, "remarks": remarks}) + "\n"
    else:
        text = _csv(columns, escapes_formulas=args.escape_formulas)
    if path is None:
        out.show_data(text)
        return
    data = text.encode(errors="backslashreplace")
    out.write_file(path, gzip.compress(data) if path.suffix == ".gz" else data)
    out.print_remark(f"wrote {args.output}: {out.plural(len(table), 'row')}")


def _predictions(model: Any, X: Any, exposure: NDArray | None) -> dict[str, list]:
    """Return the prediction, or several quantiles; for classes the probability of every class."""
    predicted = model.predict(X, **with_exposure(exposure))
    if predicted.ndim == 2:
        names = (f"quantile {level:g}" for level in model.quantiles_.levels)
        return dict(zip(names, predicted.T.tolist(), strict=True))
    columns: dict[str, list] = {"prediction": predicted.tolist()}
    if hasattr(model, "predict_proba"):
        names = (f"probability {name}" for name in model.classes_)
        columns |= zip(names, model.predict_proba(X).T.tolist(), strict=True)
    return columns


def _intervals(model: Any, X: Any, exposure: NDArray | None, coverage: float) -> dict[str, list]:
    """Return the ends of the intervals; for classes the names of those in the set."""
    if not hasattr(model, "predict_proba"):
        ends = model.predict_interval(X, coverage, **with_exposure(exposure)).T.tolist()
        return dict(zip(("lower", "upper"), ends, strict=True))
    names = np.array([str(name) for name in model.classes_], dtype=object)
    return {"set": ["|".join(names[is_in]) for is_in in model.predict_set(X, coverage)]}


def _csv(columns: dict[str, list], *, escapes_formulas: bool = False) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for row in [tuple(columns), *zip(*columns.values(), strict=True)]:
        cells = [f"{v:.10g}" if isinstance(v, float) else v for v in row]
        writer.writerow(map(_without_formula, cells) if escapes_formulas else cells)
    return lines.getvalue()


def _without_formula(cell: Any) -> Any:
    """Return a cell that a spreadsheet shows as it is, and does not run."""
    is_formula = isinstance(cell, str) and cell.startswith(_FORMULAS) and not are_floats([cell])
    return f"'{cell}" if is_formula else cell


# -- explain -----------------------------------------------------------------------------------


def explain(args: argparse.Namespace) -> None:
    """Show what every column adds to the prediction of a row."""
    out.check_outputs({"--plot": args.plot}, args.model, args.data)
    loaded = load_model(args.model)
    table, X, remarks = _read(loaded, args)
    if args.row > len(table):
        raise out.CliError(
            f"--row {args.row}: {table.source} has {out.plural(len(table), 'row')} below the header"
        )
    row = X.iloc[[args.row - 1]]
    one_row = table.take(np.array([args.row - 1]))
    exposure = role_numbers(loaded.preparation, one_row, "exposure")
    explanation, output = _one_output(loaded.model, row, args.label)
    contents: dict[str, Any] = {
        "row": args.row,
        "explains": output,
        "baseline": float(np.reshape(explanation.baseline, -1)[0]),
        "contributions": _contributions(explanation),
        "raw_prediction": float(explanation.prediction[0]),
        "prediction": loaded.model.predict(row, **with_exposure(exposure)).tolist()[0],
        "remarks": remarks,
    }
    if exposure is not None:
        contents["exposure"] = float(exposure[0])
    contents |= _certainty(loaded.model, row, exposure, args.interval)
    if explanation.has_rest:
        contents[REST] = float(explanation.cells_rest[0])
    if hasattr(loaded.model, "predict_proba"):
        probabilities = loaded.model.predict_proba(row)[0].tolist()
        names = map(str, loaded.model.classes_)
        contents["probabilities"] = dict(zip(names, probabilities, strict=True))
    if args.plot is not None:
        interval = contents.get("interval")  # also of the exposure
        ends = interval and np.array([[interval["lower"], interval["upper"]]])
        shown = replace(explanation, interval=ends, coverage=args.interval or COVERAGE)
        _draw(replace(shown, is_per_exposure=False), output, args)
        out.print_remark(f"wrote {args.plot}")
    values = {
        name: explanation.value_text(0, j, digits=6)
        for j, name in enumerate(explanation.feature_names)
    }
    text = _explanation_text(contents, values, args.top, args.label)
    out.print_result(contents, text, is_json=args.json)


def _one_output(model: Any, row: Any, label: str | None) -> tuple[Explanation, str]:
    """Return the explanation of one row and one output, and the name of the output."""
    explanation = model.explain(row)
    if not hasattr(model, "classes_"):
        if label is not None:
            raise out.CliError(f"--class {label!r}: the model predicts numbers, not classes")
        if hasattr(model, "quantiles_"):
            return explanation, "the median that the quantiles are measured from"
        has_log_link = model.loss_.has_log_link
        return explanation, "the logarithm of the prediction" if has_log_link else "the prediction"
    names = [str(name) for name in model.classes_]
    if label is not None and label not in names:
        raise out.CliError(f"--class {label!r} is not known: the classes are {', '.join(names)}")
    if explanation.output_names is not None:
        chosen = model.predict(row)[0] if label is None else model.classes_[names.index(label)]
        return explanation.output(chosen), f"the raw prediction of {chosen}"
    # Two classes have one raw prediction, the log-odds of the second.
    if label != names[0]:
        return explanation, f"the log-odds of {names[1]}"
    parts = ("linear", "cells", "cells_rest", "baseline")
    negated = {part: -getattr(explanation, part) for part in parts}
    return replace(explanation, **negated), f"the log-odds of {names[0]}"


def _certainty(
    model: Any, row: Any, exposure: NDArray | None, coverage: float | None
) -> dict[str, Any]:
    """Return the interval, or the set of classes, of a row, if the model knows how sure it is."""
    ends = intervals_or_sets(model, row, exposure, coverage)
    coverage = coverage or COVERAGE
    if ends is None:
        return {}
    if ends.dtype == bool:
        classes = sorted(map(str, model.classes_[ends[0]]), key=natural_key)
        return {"set": {"coverage": coverage, "classes": classes}}
    low, high = ends[0].tolist()
    return {"interval": {"coverage": coverage, "lower": low, "upper": high}}


def _contributions(explanation: Explanation) -> list[dict[str, Any]]:
    names, data = explanation.feature_names, explanation.data[0]
    records = [
        {"feature": name, "value": out.finite(value), "contribution": float(contribution)}
        for name, value, contribution in zip(names, data, explanation.values[0], strict=True)
    ]
    return sorted(records, key=lambda record: -abs(record["contribution"]))


def _explanation_text(
    contents: dict[str, Any], values: dict[str, str], top: int, label: str | None = None
) -> str:
    """Return the contributions as text; `values` are those of the columns, as text."""
    records = contents["contributions"]
    rest = contents.get(REST, 0.0)
    largest = max(abs(rest), *(abs(record["contribution"]) for record in records))
    sums = contents["baseline"], contents["raw_prediction"]
    largest_term = max(largest, *map(abs, sums))
    baseline, whole = (term(value, largest_term) for value in sums)
    rows = [["feature", "value", "adds", ""], ["baseline", "", baseline, ""]]
    added = [(r["feature"], values[r["feature"]], r["contribution"]) for r in records[:top]]
    if len(records) > top:
        others = sum(record["contribution"] for record in records[top:])
        added.append((out.plural(len(records) - top, "other"), "", others))
    if rest:
        added.append((REST, "", rest))
    for name, text, change in added:
        rows.append([name, text, signed(term(change, largest_term)), out.bar(change, largest)])
    rows.append(["sum", "", whole, ""])
    prediction = contents["prediction"]
    if "probabilities" in contents:
        probability = contents["probabilities"][str(prediction)]
        shown = f"{prediction}, probability {probability:.3f}"
    elif isinstance(prediction, list):
        shown = ", ".join(map(out.number, prediction)) + " (quantiles)"
    else:
        shown = out.number(prediction)
    if "exposure" in contents:
        shown += f", for an exposure of {out.number(contents['exposure'])}"
    title = f"row {contents['row']}: {contents['explains']}, from the mean in training"
    lines = [title, out.text_table(rows, right=(1, 2)), *([REST_NOTE] if rest else [])]
    lines.append(f"prediction: {shown}")
    if label not in (None, str(prediction)):
        lines.append(f"probability of {label}: {out.number(contents['probabilities'][label], 3)}")
    if "interval" in contents:
        interval = contents["interval"]
        ends = f"{out.number(interval['lower'])} to {out.number(interval['upper'])}"
        lines.append(f"interval of {100 * interval['coverage']:.4g} %: {ends}")
    if "set" in contents:
        classes = ", ".join(contents["set"]["classes"])
        lines.append(f"set of {100 * contents['set']['coverage']:.4g} %: {classes}")
    return "\n".join(lines)


def _draw(explanation: Explanation, output: str, args: argparse.Namespace) -> None:
    from jointleaf.plot import ExplanationDisplay
    from jointleaf.plot._base import need_matplotlib

    need_matplotlib("--plot").switch_backend("Agg")
    display = ExplanationDisplay(explanation, n_columns=args.top, value_name=output).plot()
    title = f"row {args.row}: {display.ax_.get_title(loc='left')}"
    display.ax_.set_title(title, loc="left", fontsize=10)
    figure: Any = display.figure_
    picture = io.BytesIO()
    # "tight": names of columns may leave less room than the title needs.
    form = args.plot.suffix.lstrip(".") or "png"
    figure.savefig(picture, format=form, dpi=120, bbox_inches="tight")
    out.write_file(args.plot, picture.getvalue())


def report(args: argparse.Namespace) -> None:
    """Write the report of a model file, with the errors on further data if there are any."""
    path = args.output or Path(args.model).with_suffix(".html")
    out.check_outputs({"--output": path}, args.model, args.data)
    loaded = load_model(args.model)
    record = loaded.record
    if record is None:
        raise out.CliError(
            f"{args.model}: was saved from Python and holds no record of its fit: "
            "`jointleaf report` needs a model of `jointleaf fit`"
        )
    scores = None if args.data is None else _score(loaded, args)
    with loaded.shown():
        page = render_report(record, scores)
    out.write_file(path, page)
    errors = {name: scores and scores[name] for name in ("rows", "errors")}
    out.print_result({"report": str(path), **errors}, f"wrote {path}", is_json=args.json)


def _score(loaded: LoadedModel, args: argparse.Namespace) -> dict[str, Any]:
    """Return the errors of a model on the rows of a file that have a target."""
    model, target = loaded.model, loaded.target
    assert target is not None
    table, X, _ = _read(loaded, args)
    truth, present = target.read(table.column(target.name, "the target"), table.source)
    exposure, weight = (
        role_numbers(loaded.preparation, table, role, present) for role in ("exposure", "weight")
    )
    X = X[present]
    if target.task == "classification":
        unknown = np.setdiff1d(truth, model.classes_)
        if unknown.size:
            raise out.CliError(
                f"{table.source}: the target {target.name!r} holds {str(unknown[0])!r}, which is "
                "none of the model's classes"
            )
        truth, predicted = np.searchsorted(model.classes_, truth), model.predict_proba(X)
    else:
        predicted = model.predict(X, **with_exposure(exposure))
    rows, ends = Rows(X, truth, exposure, weight), intervals_or_sets(model, X, exposure)
    return {
        "source": Path(table.source).name,
        "rows": len(truth),
        "errors": measures(rows, predicted, getattr(model, "loss_", None)),
        "summary": prediction_summary(rows, predicted, ends),
    }


def export(args: argparse.Namespace) -> None:
    """Write a model as an ONNX graph or as SQL."""
    out.check_outputs({"OUT": args.output}, args.model)
    form = args.output.suffix.lower()
    if form not in (".onnx", ".sql"):
        raise out.CliError(f"{args.output}: name a file that ends in .onnx or .sql")
    model = load_model(args.model).model
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if form == ".sql":
            out.write_file(args.output, to_sql(model, args.table))
        else:
            to_onnx(model, args.output)
    for warning in caught:
        out.print_remark(str(warning.message))
    print(f"wrote {args.output}, which takes {', '.join(model.feature_names_in_)}")


def info(args: argparse.Namespace) -> None:
    """Show what a model file holds."""
    loaded = load_model(args.model)
    if loaded.record is None:
        contents: dict[str, Any] = {"model": model_summary(loaded.model)}
    else:
        with loaded.shown():
            contents = without_charts(loaded.record)
    contents["file"] = args.model
    contents["columns"] = asdict(loaded.preparation)["columns"]
    with loaded.shown():
        text = _info_text(contents, loaded.preparation.names)
    out.print_result(contents, text, is_json=args.json)


def _info_text(contents: dict[str, Any], columns: list[str]) -> str:
    model = contents["model"]
    facts = [["file", contents["file"]], ["kind", model["kind"]]]
    if "target" in contents:
        target = contents["target"]
        facts += [
            ["version", f"jointleaf {contents['version']}, fitted {contents['created']}"],
            ["data", f"{contents['source']}, {out.plural(contents['n_rows'], 'row')}"],
            ["target", f"{target['name']} ({target['task']}: {target['reason']})"],
        ]
        if "classes" in target:
            facts.append(["classes", ", ".join(target["classes"])])
    facts += [["columns", ", ".join(columns)], *model["lines"]]
    text = out.text_table(facts, indent=0)
    return f"{text}\n{error_table(contents['validation'])}" if "validation" in contents else text
