"""The report of a fit from its record: one HTML document with everything in it."""

from __future__ import annotations

from html import escape
from typing import Any

from jointleaf.cli import _charts as charts
from jointleaf.cli import _html as html
from jointleaf.cli._output import number, plural, seconds
from jointleaf.cli._scores import (
    JOINTLEAF,
    MEASURES,
    comparison_hint,
    coverage_text,
    error_rows,
    format_measure,
)
from jointleaf.cli._svg import LARGE, PALETTE, SMALL, legend

Record = dict[str, Any]

_MOST_FEATURES = 100
_MOST_OPEN, _FIRST_OPEN = 15, 12  # features that are all shown, and of more the first
_MOST_COLUMNS = 20
_MOST_ALIKE = 3  # effects on one scale


def render_report(record: Record, scores: Record | None = None) -> str:
    """Return the report of the record of a fit, with the errors of its model on further data."""
    target = record["target"]
    parts = [
        _head(record),
        _hints(record),
        html.row(_errors(record["validation"]), _target(target)),
        _quality(record["validation"], target),
        "" if scores is None else _further_data(scores, target),
        _importances(record["features"]),
        _effects(record.get("effects"), target["name"]),  # which older files do not have
        _data(record),
        _fit(record),
        _foot(record),
    ]
    return html.page(f"jointleaf: {target['name']}", "\n".join(part for part in parts if part))


def _head(record: Record) -> str:
    target = record["target"]
    errors = next(row for row in record["validation"]["table"] if row["model"] == JOINTLEAF)
    names = [key for key in errors if key in MEASURES][:3]
    facts = [
        (f"{record['n_rows']:,}", "rows"),
        (str(sum(c["used"] for c in record["columns"])), "columns used"),
        (target["task"], "target" if target["name"] == "target" else f"target {target['name']}"),
        *((format_measure(k, errors[k]), f"{MEASURES[k]} (held out)") for k in names),
    ]
    boxes = "".join(
        f"<div><b>{escape(value)}</b><span>{html.breakable(label)}</span></div>"
        for value, label in facts
    )
    stem, dot, ending = record["source"].rpartition(".")
    source = html.breakable(stem) + escape(dot + ending)  # which stays with its file
    return (
        f"<h1>{html.breakable(target['name'])}, from {source}</h1>\n"
        f'<p class="small">A {escape(record["model"]["kind"])} of jointleaf '
        f"{escape(record['version'])}, fitted "
        f'<span class="whole">{escape(record["created"])}</span></p>\n'
        f'<div class="facts">{boxes}</div>'
    )


def _hints(record: Record) -> str:
    of_table = record.get("hints", [])  # older files have none
    hints = [comparison_hint(record["validation"]), *of_table]
    lines = "".join(f"<li>{escape(hint)}</li>" for hint in hints if hint)
    return html.section("hints", "Hints", "", f"<ul>{lines}</ul>") if lines else ""


def _data(record: Record) -> str:
    columns, n = record["columns"], record["n_rows"]
    rows = [
        [
            column["name"],
            _holds(column),
            f"{column['missing']:,} ({column['missing'] / n:.0%})" if column["missing"] else "",
            f"{column['different']:,}",
            "; ".join(text for text in (column["values"], column["note"]) if text),
        ]
        for column in columns
    ]
    styles = ["out" if _holds(column).startswith("left out") else "" for column in columns]
    text = f"{plural(n, 'row')}, {plural(len(columns), 'column')} and the target."
    if record["n_without_target"]:
        text += f" {plural(record['n_without_target'], 'row')} without a target left out."
    if record.get("n_without_weight"):
        text += f" {plural(record['n_without_weight'], 'row')} of weight 0 left out."
    header = ["column", "holds", "missing", "different", "values"]
    table = html.table(header, rows, numbers=(2, 3), texts=(4,), styles=styles)
    if len(rows) > _MOST_COLUMNS:  # on a phone it takes many screens
        table = html.folded(f"All {len(rows):,} columns", table)
    return html.section("data", "Columns", text, table)


def _target(target: Record) -> str:
    mark = "," if target["reason"] == "as requested" else ":"
    text = f"The task is {target['task']}{mark} {target['reason']}."
    if "histogram" in target:
        text += _clipped_text(target["histogram"])
        figure = "", charts.histogram_chart(target["histogram"], target["name"], SMALL)
    else:
        figure = charts.classes_chart(target)
    return html.section("target", "Target", text, html.figures(figure))


def _clipped_text(histogram: Record) -> str:
    """Return what there is to know of the outer bars; older files do not say it."""
    return " The outer bars hold what is beyond them." if histogram.get("is_clipped") else ""


def _holds(column: Record) -> str:
    """Return what a column holds, also from records of older files, which do not say it."""
    default = column["kind"] if column["used"] else f"left out: {column['kind']}"
    return str(column.get("holds", default))


def _errors(validation: Record) -> str:
    measure, records = validation["measure"], validation["table"]
    largest = max(record[measure] for record in records)
    bars = ["", *(html.bar(record[measure], largest) for record in records)]
    cells = zip(error_rows(validation, "fit and predict"), bars, strict=True)
    header, *rows = [[name, bar, *values] for (name, *values), bar in cells]
    styles = ["ours" if record["model"] == JOINTLEAF else "" for record in records]
    text = (
        f"Errors {validation['method']}, the same for all models, all with default settings "
        f"unless the name says otherwise. Bars are the {MEASURES[measure]}; shorter is better."
    )
    if len(records) == 1:
        text = f"Errors {validation['method']}."
    table = html.table(header, rows, numbers=range(2, len(header)), bars=(1,), styles=styles)
    return html.section("errors", "Errors against other models", text, table)


def _quality(validation: Record, target: Record) -> str:
    noun = "Predictions"
    if "classes" in target:
        classes = target["classes"]
        of = validation["summary"].get("calibration_of", "all classes")  # of older files
        noun = f"Probabilities of {classes[1] if len(classes) == 2 else of}"
    method = validation["method"]
    rows = method.removeprefix("on ") if method.startswith("on ") else f"held-out rows, {method}"
    text = f"{noun} for {rows}."
    words, pictures = _quality_parts(validation["summary"], target)
    return html.section("predictions", "Predictions", f"{text} {words}", html.figures(*pictures))


def _quality_parts(summary: Record, target: Record) -> tuple[str, list[tuple[str, str]]]:
    """Return what there is to say of predictions, and captions and charts."""
    sentence = coverage_text(summary.get("intervals"))
    text = f"{sentence[:1].upper()}{sentence[1:]}. " if sentence else ""
    if "truth" not in summary:
        text += (
            "Calibration has rows in groups of equal size: on the diagonal events are as frequent "
            "as predicted. The error bars show two standard errors."
        )
        pictures = charts.class_charts(summary, target["classes"])
        if len(pictures) > 1:
            text += " Shades of classes are fractions of the rows of a true class."
        return text, pictures
    drawn, n_all = len(summary["truth"]), summary["n_all"]
    if drawn < n_all:
        text += f"{drawn:,} of {n_all:,} rows are drawn."
    text += _clipped_text(summary["residuals"]).replace("bars", "bars of residuals")
    name, intervals = target["name"], summary.get("intervals")
    size = SMALL if intervals else LARGE
    residuals = charts.histogram_chart(summary["residuals"], "residual", size)
    means = summary.get("means")  # where most targets are the same
    if means:
        text += " Groups are of rows with similar predictions; the bars show two standard errors."
    pictures = [
        ("Mean target by prediction", charts.means_chart(means, name, size))
        if means
        else ("Target against prediction", charts.pairs_chart(summary, name, size)),
        ("Residuals: target minus prediction", residuals),
    ]
    if intervals:
        shown = len(range(drawn)[charts.spans(drawn)])
        of = f", {shown:,} of {n_all:,} rows" if shown < n_all else ""
        title = f"Intervals of {100 * intervals['coverage']:.4g} %{of}"
        pictures.append((title, charts.intervals_chart(summary, name, size)))
    return text, pictures


def _further_data(scores: Record, target: Record) -> str:
    errors = scores["errors"].items()
    values = ", ".join(f"{MEASURES[name]} {format_measure(name, value)}" for name, value in errors)
    text = (
        f"The model of the file on the {scores['rows']:,} rows of {scores['source']} "
        f"that have a target: {values}. On the rows it was fitted to, errors are smaller than on "
        "others."
    )
    words, pictures = _quality_parts(scores["summary"], target)
    title = f"On {scores['source']}"
    return html.section("further", title, f"{text} {words}", html.figures(*pictures))


def _importances(features: list[Record]) -> str:
    largest = max((f["importance"] for f in features), default=0.0)
    text = (
        "Importance is the average of two fractions: split gain and spread of the linear terms. "
        "The norm of slopes is the size of all slopes of a column in linear cells, in standard "
        "units: 0 where it has none. "
        f"In splits and in linear models: {sum(map(_is_everywhere, features))} of "
        f"{plural(len(features), 'feature')}."
    )
    if len(features) > _MOST_FEATURES:
        text += f" The first {_MOST_FEATURES} are shown."
    shown = features[:_MOST_FEATURES]
    header = ["feature", "", "share", "norm of slopes"]
    rows = [
        [f["name"], html.bar(f["importance"], largest), f"{f['importance']:.1%}",
         number(f["slope_norm"], 3)]
        for f in shown
    ]  # fmt: skip
    if not all(map(_is_everywhere, shown)):
        header.append("used in")
        rows = [[*line, _used_in(f)] for line, f in zip(rows, shown, strict=True)]
    hint = "<p>For a sparse selection run <code>jointleaf select</code>.</p>"
    n_first = len(rows) if len(rows) <= _MOST_OPEN else _FIRST_OPEN
    parts = [
        html.table(header, some, numbers=(2, 3), bars=(1,))
        for some in (rows[:n_first], rows[n_first:])
    ]
    if n_first < len(rows):  # on a phone they take many screens
        parts[1] = html.folded(f"{len(rows) - n_first} more", parts[1])
    else:
        parts.pop()
    return html.section("importances", "Importances", text, *parts, hint)


def _is_everywhere(feature: Record) -> bool:
    return bool(feature["in_splits"] and feature["in_linear_models"])


def _used_in(feature: Record) -> str:
    places = {"in_splits": "splits", "in_linear_models": "linear models"}
    return ", ".join(name for key, name in places.items() if feature[key]) or "nothing"


def _effects(effects: Record | None, name: str) -> str:
    if effects is None or not effects["curves"]:
        return ""
    curves, outputs, of = effects["curves"], effects["outputs"], effects["of"]
    subject = of if of == name else f"the {of}"
    text = (
        f"How {subject} moves with the columns that matter most, all others as they are: "
        "accumulated local effects of numbers, partial dependences of categories, both less their "
        "mean. Marks on the axis are quantiles of the rows. "
        f"The first {_MOST_ALIKE} charts have one scale, the others another."
    )
    if outputs:
        text += " Lines are the most frequent classes, in the same colors in all charts."
    pictures: list[tuple[str, str]] = []
    for group in (curves[:_MOST_ALIKE], curves[_MOST_ALIKE:]):
        limits = charts.effect_limits(group)
        charted = (charts.effect_chart(c, limits, f"change of {of}") for c in group)
        pictures += zip((c["name"] for c in group), charted, strict=True)
    names = legend([(name, PALETTE[k % len(PALETTE)], "stroke") for k, name in enumerate(outputs)])
    columns = 2 if len(curves) in (1, 2, 4) else 3
    # On a phone charts are below each other: the names once more beside the last ones.
    again = names.replace('class="legend"', 'class="legend again"')
    figures = html.figures(*pictures, columns=columns)
    return html.section("effects", "Effects", text, names, figures, again)


def _fit(record: Record) -> str:
    model, joint = record["model"], record["model"]["joint"]
    lines = html.table(["", ""], model["lines"], texts=(1,))
    text = "No strengths of a penalty were compared."
    if record["search"] and joint is not None:
        is_one = len(set(map(charts.line_name, record["search"]))) == 1
        lines_are = (
            "The line is this loss"
            if is_one
            else "Every line is one way to divide the penalty between slopes and biases"
        )
        text = (
            "The strength of the penalty of the joint fit is the one with the smallest loss on "
            f"held-out rows, for which trees are grown anew. {lines_are}; the band is one standard "
            "error."
        )
    if any(not line["exact"] for line in record["search"]) and joint is not None:
        text += (
            " The search is by squared errors that stand for the loss, which are quicker and in "
            "a unit of their own: they do not compare with the validation loss."
        )
    if len(model["components"]) > 1:
        text += " Weights of a blend are fitted to held-out predictions and need not add up to 1."
    if joint is not None:
        text += (
            f" The joint problem: objective {joint['objective']:.6g}, distance from the optimality "
            f"conditions {joint['optimality']:.1e}."
        )
    words = f"{lines}<p></p><p>{html.prose(text)}</p>"
    pictures = [] if joint is None else _fit_pictures(record["search"], joint)
    if len(pictures) == 1:
        return html.section("fit", "Fit", "", html.beside(words, html.figures(*pictures)))
    return html.section("fit", "Fit", "", words, html.figures(*pictures) if pictures else "")


def _fit_pictures(lines: list[Record], joint: Record) -> list[tuple[str, str]]:
    """Return charts of how the strength of the penalty was found, and of the solve."""
    exact, cheap = ([line for line in lines if line["exact"] is kind] for kind in (True, False))
    groups = [
        ("Validation loss, weaker penalties to the right", "validation loss", exact),
        ("Search by squared errors, weaker penalties to the right", "squared error / 2", cheap),
    ]
    groups = [g for g in groups if any(len(line["strength"]) > 1 for line in g[2])]
    has_trace = len(joint["trace"]) > 2
    size = SMALL if len(groups) + has_trace > 2 else LARGE
    pictures = [
        (caption, charts.search_chart(group, joint["setting"], label, size))
        for caption, label, group in groups
    ]
    if has_trace:
        caption = "Distance from the optimality conditions"
        pictures.append((caption, charts.trace_chart(joint["trace"], size)))
    return pictures


def _foot(record: Record) -> str:
    spent = record["seconds"]
    text = f"Fit {seconds(spent['fit'])}, validation {seconds(spent['validation'])}."
    return f"<footer><p>{escape(text)}</p><p><code>{escape(record['command'])}</code></p></footer>"
