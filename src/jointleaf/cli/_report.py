"""The report of a fit from its record: one HTML document with everything in it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from jointleaf.cli import _charts as charts
from jointleaf.cli._intervals import coverage_text
from jointleaf.cli._output import number, plural, seconds
from jointleaf.cli._scores import JOINTLEAF, MEASURES, error_rows, format_measure

Record = dict[str, Any]

_MOST_FEATURES = 30
_MOST_CLASSES = 12
_MOST_COLUMNS = 20


def render_report(record: Record, scores: Record | None = None) -> str:
    """Return the report of the record of a fit, with the errors of its model on further data."""
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
    return _page(f"jointleaf: {target['name']}", "\n".join(part for part in parts if part))


def _head(record: Record) -> str:
    target = record["target"]
    errors = next(row for row in record["validation"]["table"] if row["model"] == JOINTLEAF)
    names = [key for key in errors if key in MEASURES][:3]
    facts = [
        (f"{record['n_rows']:,}", "rows"),
        (str(sum(c["used"] for c in record["columns"])), "columns used"),
        (target["task"], f"target {target['name']}"),
        *((format_measure(k, errors[k]), f"{MEASURES[k]}, held-out rows") for k in names),
    ]
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
    text += f" The task is {target['task']}: {target['reason']}."
    if "histogram" in target:
        figure = ("Target", charts.histogram_chart(target["histogram"], target["name"]))
    else:
        figure = ("Rows of every class", charts.classes_chart(target))
    header = ["column", "holds", "missing", "different", "values"]
    html = _table(header, rows, numbers=(2, 3), styles=styles)
    if len(rows) > _MOST_COLUMNS:  # on a phone it takes many screens
        html = f"<details><summary>All {len(rows):,} columns</summary>{html}</details>"
    return _section("data", "Data", text, html, "<p></p>", _figures(figure))


def _holds(column: Record) -> str:
    """Return what a column holds, also from records of older files, which do not say it."""
    default = column["kind"] if column["used"] else f"left out: {column['kind']}"
    return str(column.get("holds", default))


def _errors(validation: Record) -> str:
    measure, records = validation["measure"], validation["table"]
    largest = max(record[measure] for record in records)
    bars = ["", *(_bar_cell(record[measure], largest) for record in records)]
    cells = zip(error_rows(validation, "fit and predict"), bars, strict=True)
    header, *rows = [[name, bar, *values] for (name, *values), bar in cells]
    styles = ["ours" if record["model"] == JOINTLEAF else "" for record in records]
    text = (
        f"Errors {validation['method']}, the same for all models, which have their defaults where "
        f"their name says no more. Bars are the {MEASURES[measure]}; shorter is better."
    )
    html = _table(header, rows, numbers=range(2, len(header)), bars=(1,), styles=styles)
    return _section("errors", "Errors against other models", text, html)


def _quality(validation: Record, target: Record) -> str:
    title, noun = "Residuals", "Predictions"
    if "classes" in target:
        classes = target["classes"]
        title = "Calibration"
        noun = f"Probabilities of {classes[1] if len(classes) == 2 else 'all classes'}"
    text = f"{noun} for held-out rows, {validation['method']}."
    return _section("predictions", title, text, *_quality_parts(validation["summary"], target))


def _quality_parts(summary: Record, target: Record) -> list[str]:
    if "truth" in summary:
        drawn, n_all = len(summary["truth"]), summary["n_all"]
        text = f"<p>{drawn:,} of {n_all:,} rows are drawn.</p>" if drawn < n_all else ""
        pairs = "Target against prediction", charts.pairs_chart(summary, target["name"])
        residuals = charts.histogram_chart(summary["residuals"], "residual")
        figures = [pairs, ("Residuals: target minus prediction", residuals)]
        if summary.get("intervals"):
            chart = charts.intervals_chart(summary, target["name"])
            figures.append((f"Intervals of {100 * summary['intervals']['coverage']:.4g} %", chart))
        return [text, _coverage(summary), _figures(*figures)]
    text = (
        "Rows in groups of equal size: on the diagonal events are as frequent as predicted. The "
        "error bars show two standard errors."
    )
    return [
        f"<p>{text}</p>",
        _coverage(summary),
        _figures(("Calibration", charts.calibration_chart(summary["calibration"]))),
        _confusion(summary["confusion"], target["classes"]),
    ]


def _coverage(summary: Record) -> str:
    sentence = coverage_text(summary.get("intervals"))
    return f"<p>{sentence[:1].upper()}{sentence[1:]}.</p>" if sentence else ""


def _confusion(counts: list[list[int]], classes: list[str]) -> str:
    if len(classes) > _MOST_CLASSES:
        return ""
    header = ["true class", *(f"predicted {name}" for name in classes)]
    pairs = zip(classes, counts, strict=True)
    rows = [[name, *(f"{count:,}" for count in line)] for name, line in pairs]
    return "<p></p>" + _table(header, rows, numbers=range(1, len(header)))


def _further_data(scores: Record, target: Record) -> str:
    errors = scores["errors"].items()
    values = ", ".join(f"{MEASURES[name]} {format_measure(name, value)}" for name, value in errors)
    text = (
        f"The model of the file on the {scores['rows']:,} rows of {scores['source']} "
        f"that have a target: {values}. On the rows it was fitted to, errors are smaller than on "
        "others."
    )
    parts = _quality_parts(scores["summary"], target)
    return _section("further", f"On {scores['source']}", text, *parts)


def _search(record: Record) -> str:
    lines, joint = record["search"], record["model"]["joint"]
    if not lines or joint is None:
        return _section("search", "Penalty", "No strengths of a penalty were compared.")
    text = (
        "The strength of the penalty of the joint fit is the one with the smallest loss on "
        "held-out rows, for which trees are grown anew. Every line is one way to divide the "
        "penalty between slopes and biases; the band is one standard error."
    )
    if joint["setting"]:
        setting = joint["setting"].items()
        values = (f"{name.replace('_', ' ')} {value:.3g}" for name, value in setting)
        text += f" Chosen: {', '.join(values)}."
    figures = []
    for exact, caption, label in (
        (True, "Validation loss, weaker penalties to the right", "validation loss"),
        (False, "Search, by the squared error for speed", "squared error / 2"),
    ):
        group = [line for line in lines if line["exact"] is exact]
        if group:
            figures.append((caption, charts.search_chart(group, joint["setting"], label)))
    return _section("search", "Penalty", text, _figures(*figures))


def _importances(features: list[Record]) -> str:
    largest = max((f["importance"] for f in features), default=0.0)
    rows = [
        [f["name"], _bar_cell(f["importance"], largest), f"{f['importance']:.1%}"]
        for f in features[:_MOST_FEATURES]
    ]
    text = "Importance is the average of two fractions: split gain and spread of the linear terms."
    if len(features) > _MOST_FEATURES:
        text += f" The first {_MOST_FEATURES} of {len(features)}."
    html = _table(["feature", "", "share"], rows, numbers=(2,), bars=(1,))
    return _section("importances", "Importances", text, html)


def _selected(features: list[Record]) -> str:
    both = sum(f["in_splits"] and f["in_linear_models"] for f in features)
    text = f"In splits and in linear models: {both} of {plural(len(features), 'feature')}."
    words = ("no", "yes")
    rows = [
        [f["name"], words[f["in_splits"]], words[f["in_linear_models"]], number(f["slope_norm"], 3)]
        for f in features[:_MOST_FEATURES]
    ]
    header = ["feature", "in splits", "in linear models", "norm of all slopes"]
    html = _table(header, rows, numbers=(3,))
    hint = "For a sparse selection run <code>jointleaf select</code>."
    return _section("selected", "Selected features", "", f"<p>{text} {hint}</p>", html)


def _fit(model: Record) -> str:
    joint = model["joint"]
    parts = [_table(["", ""], model["lines"])]
    if joint is not None:
        parts.append(
            f"<p></p><p>The joint problem: objective {joint['objective']:.6g}, distance from the "
            f"optimality conditions {joint['optimality']:.1e}.</p>"
        )
        if len(joint["trace"]) > 2:
            figure = "Distance from the optimality conditions", charts.trace_chart(joint["trace"])
            parts.append(_figures(figure))
    return _section("fit", "Fit", "", *parts)


def _foot(record: Record) -> str:
    spent = record["seconds"]
    text = f"Fit {seconds(spent['fit'])}, validation {seconds(spent['validation'])}."
    return f"<footer><p>{escape(text)}</p><p><code>{escape(record['command'])}</code></p></footer>"


# -- elements of HTML --------------------------------------------------------------------------

_STYLE = """
*{box-sizing:border-box}
body{margin:0;font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:#20242b;
background:#f6f7f9}
main{max-width:1060px;margin:0 auto;padding:20px 16px 60px}
h1{font-size:1.55rem;margin:.2em 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:0 0 .5em;overflow-wrap:anywhere}
p{margin:.4em 0 .8em;overflow-wrap:anywhere}
section{background:#fff;border:1px solid #e3e6ea;border-radius:8px;padding:18px;margin:16px 0}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,150px),1fr));gap:10px;
margin:14px 0}
.facts div{background:#fff;border:1px solid #e3e6ea;border-radius:8px;padding:10px 12px}
.facts b{display:block;font-size:1.2rem;overflow-wrap:anywhere}
.facts span,.small{color:#59616e;font-size:.86rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,360px),1fr));gap:18px}
figure{margin:0;min-width:0;max-width:520px}
figcaption{font-size:.9rem;font-weight:600;margin-bottom:4px}
figure>svg{width:100%;height:auto;display:block}
summary{cursor:pointer;padding:4px 0}
svg text{font:11px system-ui,sans-serif;fill:#3d4450}
.grid{stroke:#eceef1}.axis{stroke:#8b93a0}
.legend{font-size:.82rem;margin:.2em 0;display:flex;flex-wrap:wrap;gap:2px 14px}
.legend i{display:inline-block;width:14px;height:4px;margin-right:5px;vertical-align:middle}
.legend .dot{width:10px;height:10px;border-radius:50%}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid #eceef1;vertical-align:top;
overflow-wrap:anywhere}
th{color:#59616e;font-weight:600}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.ours td{font-weight:700}
.out td{color:#8b93a0}
.barcell{width:34%;min-width:60px}
.bar{height:13px;border-radius:2px;background:#4f86b8;margin-top:5px}
.ours .bar{background:#c1432e}
code{font:.85rem ui-monospace,monospace;overflow-wrap:anywhere}
footer{color:#59616e;font-size:.86rem}
@media(max-width:600px){
body{font-size:15px}main{padding:12px 10px 40px}section{padding:13px 12px}
.facts b{font-size:.95rem}
.cards thead{display:none}
.cards tr{display:block;border-bottom:1px solid #e3e6ea;padding:7px 0}
.cards td{display:flex;justify-content:space-between;gap:14px;border:0;padding:1px 0;
text-align:right;white-space:normal}
.cards td:before{content:attr(data-name);color:#59616e;text-align:left;flex:none}
.cards td:first-child{font-weight:700;text-align:left}
.cards td:first-child:before{display:none}
.cards td:empty{display:none}
.cards .barcell{width:auto;display:block}.cards .barcell:before{display:none}
}
"""


def _page(title: str, body: str) -> str:
    """Return a whole document that loads nothing."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _section(name: str, title: str, text: str, *parts: str) -> str:
    """Return a section that can be linked to by its name, with a text before all else."""
    body = (f"<p>{escape(text)}</p>" if text else "") + "".join(parts)
    return f'<section id="{name}">\n<h2>{escape(title)}</h2>\n{body}\n</section>'


def _figures(*figures: tuple[str, str]) -> str:
    """Return charts (caption, SVG) side by side where there is room."""
    cells = "".join(
        f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"
        for caption, svg in figures
    )
    return f'<div class="charts">{cells}</div>'


def _bar_cell(value: float, largest: float) -> str:
    share = 100 * max(value, 0.0) / largest if largest > 0 else 0.0
    return f'<div class="bar" style="width:{share:.1f}%"></div>'


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (),
    bars: Sequence[int] = (), styles: Sequence[str] = (),
) -> str:  # fmt: skip
    """Return a table that becomes a list of cards on a phone.

    Cells are text, which is escaped, except in the columns `bars` of `_bar_cell`; `numbers` are
    columns of numbers, `styles` the class of every row.
    """

    def cell(k: int, text: str) -> str:
        kind = "num" if k in numbers else "barcell" if k in bars else ""
        mark = f' class="{kind}"' if kind else ""
        name = escape(header[k], quote=True)
        return f'<td{mark} data-name="{name}">{text if k in bars else escape(text)}</td>'

    head = "".join(
        f'<th class="num">{escape(name)}</th>' if k in numbers else f"<th>{escape(name)}</th>"
        for k, name in enumerate(header)
    )
    lines = []
    for i, row in enumerate(rows):
        style = f' class="{styles[i]}"' if styles and styles[i] else ""
        lines.append(f"<tr{style}>{''.join(cell(k, text) for k, text in enumerate(row))}</tr>")
    return (
        f'<table class="cards"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{chr(10).join(lines)}</tbody></table>"
    )
