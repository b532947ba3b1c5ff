"""The report of a fit as one HTML document, from its record."""

from __future__ import annotations

from html import escape
from typing import Any

from jointleaf.cli._html.charts import (
    calibration_chart,
    classes_chart,
    histogram_chart,
    pairs_chart,
    search_chart,
    trace_chart,
)
from jointleaf.cli._html.page import bar_cell, charts, page, section, table
from jointleaf.cli._output import number, plural, seconds
from jointleaf.cli._peers import JOINTLEAF
from jointleaf.cli._validation import MEASURES, format_measure

__all__ = ["render_report"]

Record = dict[str, Any]

_MOST_FEATURES = 30
_MOST_CLASSES = 12
_MOST_COLUMNS = 20


def render_report(record: Record, scores: Record | None = None) -> str:
    """Return the report.

    Parameters
    ----------
    record : dict
        Of a fit, see `jointleaf.cli._record`.
    scores : dict, optional
        Errors of the same model on further data.
    """
    target = record["target"]
    parts = [
        _head(record),
        _data(record),
        _errors(record["validation"]),
        _quality(record["validation"], target),
        "" if scores is None else _further_data(scores, target),
        _search(record),
        _importances(record["features"]),
        _selected(record["features"]),
        _fit(record["model"]),
        _foot(record),
    ]
    return page(f"jointleaf: {target['name']}", "\n".join(part for part in parts if part))


def _head(record: Record) -> str:
    target = record["target"]
    errors = next(row for row in record["validation"]["table"] if row["model"] == JOINTLEAF)
    facts = [
        (f"{record['n_rows']:,}", "rows"),
        (str(sum(c["used"] for c in record["columns"])), "columns used"),
        (target["task"], f"target {target['name']}"),
    ]
    for name in [key for key in errors if key in MEASURES][:3]:
        facts.append((format_measure(name, errors[name]), f"{MEASURES[name]}, held-out rows"))
    boxes = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in facts
    )
    return (
        f"<h1>{escape(target['name'])}, from {escape(record['source'])}</h1>\n"
        f'<p class="small">A {escape(record["model"]["kind"])} of jointleaf '
        f"{escape(record['version'])}, fitted {escape(record['created'])}</p>\n"
        f'<div class="facts">{boxes}</div>'
    )


def _data(record: Record) -> str:
    columns, target, n = record["columns"], record["target"], record["n_rows"]
    rows = [
        [
            column["name"],
            column["kind"] if column["used"] else f"left out: {column['kind']}",
            f"{column['missing']:,} ({column['missing'] / n:.0%})" if column["missing"] else "",
            f"{column['different']:,}",
            "; ".join(text for text in (column["values"], column["note"]) if text),
        ]
        for column in columns
    ]
    styles = ["" if column["used"] else "out" for column in columns]
    text = f"{plural(n, 'row')}, {plural(len(columns), 'column')} and the target."
    if record["n_without_target"]:
        text += f" {plural(record['n_without_target'], 'row')} without a target left out."
    text += f" The task is {target['task']}: {target['reason']}."
    if "histogram" in target:
        figure = ("Target", histogram_chart(target["histogram"], target["name"]))
    else:
        figure = ("Rows of every class", classes_chart(target))
    header = ["column", "holds", "missing", "different", "values"]
    html = table(header, rows, numbers=(2, 3), styles=styles)
    if len(rows) > _MOST_COLUMNS:  # on a phone it takes many screens
        html = f"<details><summary>All {len(rows):,} columns</summary>{html}</details>"
    return section("data", "Data", f"<p>{escape(text)}</p>", html, "<p></p>", charts(figure))


def _errors(validation: Record) -> str:
    measure, records = validation["measure"], validation["table"]
    names = [name for name in records[0] if name in MEASURES]
    largest = max(record[measure] for record in records)
    rows = [
        [
            record["model"],
            bar_cell(record[measure], largest),
            *(format_measure(name, record[name]) for name in names),
            seconds(record["seconds"]),
        ]
        for record in records
    ]
    styles = ["ours" if record["model"] == JOINTLEAF else "" for record in records]
    header = ["model", "", *(MEASURES[name] for name in names), "fit and predict"]
    text = (
        f"Errors {validation['method']}, the same for all models, which have their defaults where "
        f"their name says no more. Bars are the {MEASURES[measure]}; shorter is better."
    )
    columns = tuple(range(2, len(header)))
    html = table(header, rows, numbers=columns, bars=(1,), styles=styles)
    return section("errors", "Errors against other models", f"<p>{escape(text)}</p>", html)


def _quality(validation: Record, target: Record) -> str:
    title, noun = "Residuals", "Predictions"
    if "classes" in target:
        classes = target["classes"]
        title = "Calibration"
        noun = f"Probabilities of {classes[1] if len(classes) == 2 else 'all classes'}"
    text = f"{noun} for held-out rows, {validation['method']}."
    parts = _quality_parts(validation["summary"], target)
    return section("predictions", title, f"<p>{escape(text)}</p>", *parts)


def _quality_parts(summary: Record, target: Record) -> list[str]:
    """Return charts and tables of predictions against the truth."""
    if "truth" in summary:
        drawn, n_all = len(summary["truth"]), summary["n_all"]
        text = f"<p>{drawn:,} of {n_all:,} rows are drawn.</p>" if drawn < n_all else ""
        pairs = "Target against prediction", pairs_chart(summary, target["name"])
        residuals = histogram_chart(summary["residuals"], "residual")
        return [text, charts(pairs, ("Residuals: target minus prediction", residuals))]
    text = (
        "Rows in groups of equal size: on the diagonal events are as frequent as predicted. The "
        "vertical bars are two standard errors of chance alone."
    )
    return [
        f"<p>{text}</p>",
        charts(("Calibration", calibration_chart(summary["calibration"]))),
        _confusion(summary["confusion"], target["classes"]),
    ]


def _confusion(counts: list[list[int]], classes: list[str]) -> str:
    if len(classes) > _MOST_CLASSES:
        return ""
    header = ["true class", *(f"predicted {name}" for name in classes)]
    rows = [
        [name, *(f"{count:,}" for count in line)]
        for name, line in zip(classes, counts, strict=True)
    ]
    return "<p></p>" + table(header, rows, numbers=tuple(range(1, len(header))))


def _further_data(scores: Record, target: Record) -> str:
    values = ", ".join(
        f"{MEASURES[name]} {format_measure(name, value)}"
        for name, value in scores["errors"].items()
    )
    text = (
        f"The model of the file on the {scores['rows']:,} rows of {scores['source']} "
        f"that have a target: {values}. On the rows it was fitted to, errors are smaller than on "
        "others."
    )
    parts = _quality_parts(scores["summary"], target)
    return section("further", f"On {scores['source']}", f"<p>{escape(text)}</p>", *parts)


def _search(record: Record) -> str:
    lines, joint = record["search"], record["model"]["joint"]
    if not lines or joint is None:
        return section("search", "Penalty", "<p>No strengths of a penalty were compared.</p>")
    text = (
        "The strength of the penalty of the joint fit is the one with the smallest loss on "
        "held-out rows, for which trees are grown anew. Every line is one way to divide the "
        "penalty between slopes and biases; the band is one standard error."
    )
    if joint["setting"]:
        values = ", ".join(
            f"{name.replace('_', ' ')} {value:.3g}" for name, value in joint["setting"].items()
        )
        text += f" Chosen: {values}."
    figures = []
    for exact, caption, label in (
        (True, "Validation loss, weaker penalties to the right", "validation loss"),
        (False, "Search, by the squared error for speed", "squared error / 2"),
    ):
        group = [line for line in lines if line["exact"] is exact]
        if group:
            figures.append((caption, search_chart(group, joint["setting"], label)))
    return section("search", "Penalty", f"<p>{escape(text)}</p>", charts(*figures))


def _importances(features: list[Record]) -> str:
    largest = max((f["importance"] for f in features), default=0.0)
    rows = [
        [f["name"], bar_cell(f["importance"], largest), f"{f['importance']:.1%}"]
        for f in features[:_MOST_FEATURES]
    ]
    text = "Half the share in the gain of all splits, half that in the spread of the linear models."
    if len(features) > _MOST_FEATURES:
        text += f" The first {_MOST_FEATURES} of {len(features)}."
    html = table(["feature", "", "share"], rows, numbers=(2,), bars=(1,))
    return section("importances", "Importances", f"<p>{escape(text)}</p>", html)


def _selected(features: list[Record]) -> str:
    both = sum(f["in_splits"] and f["in_linear_models"] for f in features)
    text = f"In splits and in linear models: {both} of {plural(len(features), 'feature')}."
    rows = [
        [
            f["name"],
            "yes" if f["in_splits"] else "no",
            "yes" if f["in_linear_models"] else "no",
            number(f["slope_norm"], 3),
        ]
        for f in features[:_MOST_FEATURES]
    ]
    html = table(
        ["feature", "in splits", "in linear models", "norm of all slopes"], rows, numbers=(3,)
    )
    hint = "For a sparse selection run <code>jointleaf select</code>."
    return section("selected", "Selected features", f"<p>{escape(text)} {hint}</p>", html)


def _fit(model: Record) -> str:
    joint = model["joint"]
    parts = [table(["", ""], model["lines"])]
    if joint is not None:
        text = (
            f"The joint problem: objective {joint['objective']:.6g}, distance from the optimality "
            f"conditions {joint['optimality']:.1e}."
        )
        parts.append(f"<p></p><p>{escape(text)}</p>")
        if len(joint["trace"]) > 2:
            figure = "Distance from the optimality conditions", trace_chart(joint["trace"])
            parts.append(charts(figure))
    return section("fit", "Fit", *parts)


def _foot(record: Record) -> str:
    spent = record["seconds"]
    text = f"Fit {seconds(spent['fit'])}, validation {seconds(spent['validation'])}."
    return f"<footer><p>{escape(text)}</p><p><code>{escape(record['command'])}</code></p></footer>"
