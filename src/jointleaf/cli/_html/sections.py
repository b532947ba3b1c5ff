"""The sections of a report, each from the record of a fit."""

from __future__ import annotations

from html import escape
from typing import Any

from jointleaf.cli._html.drawings import (
    calibration_chart,
    classes_chart,
    cv_chart,
    histogram_chart,
    pairs_chart,
    trace_chart,
)
from jointleaf.cli._html.page import bar_cell, charts, section, table
from jointleaf.cli._output import number, plural, seconds
from jointleaf.cli._peers import JOINTLEAF

__all__ = ["MEASURES", "build_body", "measured"]

Record = dict[str, Any]

#: Names of the measures for people.
MEASURES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "log_loss": "log-loss",
    "error_rate": "error rate",
    "auc": "AUC",
}
_MOST_FEATURES = 30
_MOST_CLASSES = 12
_MOST_COLUMNS = 20


def measured(name: str, value: float) -> str:
    """Write the value of a measure: shares with four places, errors with four digits."""
    return f"{value:.4f}" if name in ("r2", "error_rate", "auc") else number(value)


def build_body(record: Record, fresh: Record | None = None) -> str:
    """Give all sections; `fresh` is the judgement of a further data set."""
    parts = [
        _head(record),
        _data(record),
        _errors(record["judgement"], "errors", "Errors against other models"),
        _quality(record["judgement"], record["target"]),
    ]
    if fresh is not None:
        parts.append(_fresh(fresh, record["target"]))
    parts += [
        _choice(record),
        _importances(record),
        _selected(record),
        _convergence(record),
        _foot(record),
    ]
    return "\n".join(parts)


def _head(record: Record) -> str:
    target, judged = record["target"], record["judgement"]
    ours = next(row for row in judged["table"] if row["model"] == JOINTLEAF)
    facts = [
        (f"{record['n_rows']:,}", "rows"),
        (str(sum(c["used"] for c in record["columns"])), "columns used"),
        (target["task"], f"target {target['name']}"),
    ]
    for name in [key for key in ours if key in MEASURES][:3]:
        facts.append((measured(name, ours[name]), f"{MEASURES[name]}, rows not seen"))
    boxes = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(label)}</span></div>" for value, label in facts
    )
    return (
        f"<h1>{escape(target['name'])}, from {escape(record['source'])}</h1>\n"
        f'<p class="small">A {escape(record["model"]["kind"])} of jointleaf '
        f"{escape(record['version'])}, fitted {escape(record['made'])}</p>\n"
        f'<div class="facts">{boxes}</div>'
    )


def _data(record: Record) -> str:
    columns, target = record["columns"], record["target"]
    n = record["n_rows"]
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
    why = f" The target means {target['task']}: {target['reason']}."
    if "histogram" in target:
        figure = ("Target", histogram_chart(target["histogram"], target["name"]))
    else:
        figure = ("Rows of every class", classes_chart(target))
    header = ["column", "holds", "missing", "different", "values"]
    return section(
        "data",
        "Data",
        f"<p>{escape(text + why)}</p>",
        _folded(table(header, rows, numbers=(2, 3), styles=styles), len(rows)),
        "<p></p>",
        charts(figure),
    )


def _folded(html: str, n_rows: int) -> str:
    """Give a long table as something to open, because on a phone it takes many screens."""
    if n_rows <= _MOST_COLUMNS:
        return html
    return f"<details><summary>All {n_rows:,} columns</summary>{html}</details>"


def _errors(judged: Record, name: str, title: str) -> str:
    measure = judged["measure"]
    rows_of = judged["table"]
    shown = [key for key in rows_of[0] if key in MEASURES]
    largest = max(row[measure] for row in rows_of)
    rows = [
        [
            row["model"],
            bar_cell(row[measure], largest),
            *(measured(key, row[key]) for key in shown),
            seconds(row["seconds"]) if "seconds" in row else "",
        ]
        for row in rows_of
    ]
    styles = ["ours" if row["model"] == JOINTLEAF else "" for row in rows_of]
    header = ["model", "", *(MEASURES[key] for key in shown), "fit and predict"]
    note = (
        f"All models with their defaults, on the same rows: judged {judged['how']}. Bars are the "
        f"{MEASURES[measure]}; shorter is better. "
        "“Boosted trees, not refitted” are the kind of trees whose leaves jointleaf refits, with "
        "the values they were grown with."
    )
    columns = range(2, len(header))
    return section(name, title, f"<p>{escape(note)}</p>", table(
        header, rows, numbers=tuple(columns), bars=(1,), styles=styles
    ))  # fmt: skip


def _quality(judged: Record, target: Record) -> str:
    is_numbers = "truth" in judged["summary"]
    where = f"for rows that the model had not seen ({judged['how']})"
    what = "Predictions" if is_numbers else f"Probabilities {_whose(target)}"
    return section(
        "predictions",
        "Residuals" if is_numbers else "Calibration",
        f"<p>{escape(f'{what} {where}.')}</p>",
        *_quality_parts(judged["summary"], target),
    )


def _whose(target: Record) -> str:
    classes = target["classes"]
    return f"of {classes[1]}" if len(classes) == 2 else "of all classes"


def _quality_parts(summary: Record, target: Record) -> list[str]:
    """Charts and tables of how good predictions are."""
    if "truth" in summary:
        shown, n_all = len(summary["truth"]), summary["n_all"]
        few = f"<p>{shown:,} of {n_all:,} rows are drawn.</p>" if shown < n_all else ""
        pairs = "Target against prediction", pairs_chart(summary, target["name"])
        residuals = histogram_chart(summary["residuals"], "residual")
        return [few, charts(pairs, ("Residuals: target minus prediction", residuals))]
    text = (
        "Rows in groups of equal size: on the diagonal events happen as often as predicted. The "
        "vertical bars are twice the error that chance alone makes."
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


def _fresh(fresh: Record, target: Record) -> str:
    ours = fresh["table"][0]
    values = ", ".join(
        f"{MEASURES[key]} {measured(key, ours[key])}" for key in ours if key in MEASURES
    )
    text = (
        f"The model as it is in the file, on the {fresh['n_rows']:,} rows of {fresh['source']} "
        f"that have a target: {values}. If these are the rows it was fitted on, this is too good "
        "to be true for others."
    )
    parts = _quality_parts(fresh["summary"], target)
    return section("fresh", f"On {fresh['source']}", f"<p>{escape(text)}</p>", *parts)


def _choice(record: Record) -> str:
    lines, setting = record["cv"], record["model"]["setting"]
    if not lines:
        text = "Too few rows for cross-validation, or a given penalty: nothing was chosen."
        return section("cv", "Cross-validation", f"<p>{escape(text)}</p>")
    text = (
        "The strength of the penalty is chosen by cross-validation with trees grown anew in every "
        "fold. Every line is one way to share the penalty between slopes and biases; the band is "
        "one standard error."
    )
    if setting is not None:
        text += (
            f" Chosen: strength {setting['strength']:.2g}, slope scale "
            f"{setting['slope_scale']:g}, feature power {setting['feature_power']:g}."
        )
    figures = []
    for own, caption, label in (
        (True, "Validation loss, weaker penalties to the right", "validation loss"),
        (False, "Search, by the squared error for speed", "squared error / 2"),
    ):
        shown = [line for line in lines if line["own"] is own]
        if shown:
            figures.append((caption, cv_chart(shown, setting, label)))
    return section("cv", "Cross-validation", f"<p>{escape(text)}</p>", charts(*figures))


def _importances(record: Record) -> str:
    features = record["features"]
    largest = max((f["importance"] for f in features), default=0.0)
    rows = [
        [f["name"], bar_cell(f["importance"], largest), f"{f['importance']:.1%}"]
        for f in features[:_MOST_FEATURES]
    ]
    text = "Half the share in the gain of all splits, half that in the spread of the linear models."
    if len(features) > _MOST_FEATURES:
        text += f" The first {_MOST_FEATURES} of {len(features)}."
    return section(
        "importances",
        "Importances",
        f"<p>{escape(text)}</p>",
        table(["feature", "", "share"], rows, numbers=(2,), bars=(1,)),
    )


def _selected(record: Record) -> str:
    features = record["features"]
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
    header = ["feature", "in splits", "in linear models", "norm of all slopes"]
    more = " For a sparse selection run <code>jointleaf select</code>."
    return section(
        "selected",
        "Selected features",
        f"<p>{escape(text)}{more}</p>",
        table(header, rows, numbers=(3,)),
    )


def _convergence(record: Record) -> str:
    found, model = record["convergence"], record["model"]
    text = (
        f"{plural(model['partitions'], 'partition')} with {model['cells']:,} cells and "
        f"{plural(model['linear_features'], 'linear feature')}, fitted jointly. "
        f"Solver: {found['message']}; objective {found['objective']:.6g}, "
        f"distance from the optimality conditions {found['optimality']:.1e}."
    )
    parts = [f"<p>{escape(text)}</p>"]
    if len(found["trace"]) > 2:
        parts.append(charts(("Distance from the optimality conditions", trace_chart(found))))
    return section("convergence", "Convergence", *parts)


def _foot(record: Record) -> str:
    spent = record["seconds"]
    text = (
        f"Fit {seconds(spent['fit'])}, comparison {seconds(spent['comparison'])}. "
        f"Penalty: {record['model']['penalty']}."
    )
    return f"<footer><p>{escape(text)}</p><p><code>{escape(record['command'])}</code></p></footer>"
