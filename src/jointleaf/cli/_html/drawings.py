"""The charts of a report."""

from __future__ import annotations

from typing import Any

from jointleaf.cli._html.svg import BLUE, DARK, GREY, PALETTE, RED, Axis, Chart

__all__ = [
    "calibration_chart",
    "classes_chart",
    "cv_chart",
    "histogram_chart",
    "pairs_chart",
    "trace_chart",
]

Record = dict[str, Any]
_MOST_NAMES = 8


def histogram_chart(found: Record, label: str) -> str:
    """Bars of a histogram."""
    edges, counts = found["edges"], found["counts"]
    x, y = Axis(edges[0], edges[-1], label), Axis(0, 1.05 * max(counts), "rows")
    chart = Chart(x, y, f"Histogram of {label}")
    chart.bars(edges, counts)
    return chart.render()


def classes_chart(target: Record) -> str:
    """Number of rows of every class."""
    counts, names = target["counts"], target["classes"]
    n = len(counts)
    x = Axis(-0.5, n - 0.5, target["name"])
    y = Axis(0, 1.05 * max(counts), "rows")
    # Many or long names would overlap: numbers then.
    room = 60 // n
    short = [name if len(name) <= room else name[: max(1, room - 1)] + "…" for name in names]
    shown = short if n <= _MOST_NAMES else [""] * n
    chart = Chart(x, y, "Rows of every class", shown)
    for k, count in enumerate(counts):
        chart.bars([k - 0.4, k + 0.4], [count])
    return chart.render()


def pairs_chart(found: Record, name: str) -> str:
    """Targets against predictions, with the diagonal."""
    truth, predicted = found["truth"], found["predicted"]
    low, high = min(*truth, *predicted), max(*truth, *predicted)
    chart = Chart(Axis(low, high, "prediction"), Axis(low, high, name), "Target against prediction")
    chart.line([low, high], [low, high], GREY)
    chart.points(predicted, truth)
    return chart.render()


def calibration_chart(groups: list[Record]) -> str:
    """Shares of hits against mean probabilities."""
    chart = Chart(
        Axis(0, 1, "predicted probability"), Axis(0, 1, "share that happened"), "Calibration"
    )
    chart.line([0, 1], [0, 1], GREY)
    for group in groups:
        p, share, error = group["probability"], group["share"], group["error"]
        chart.line([p, p], [share - 2 * error, share + 2 * error], BLUE, width=1.2)
    x, y = [g["probability"] for g in groups], [g["share"] for g in groups]
    chart.line(x, y, BLUE)
    chart.points(x, y, BLUE, radius=3.5, opacity=1)
    return chart.render()


def cv_chart(lines: list[Record], setting: Record | None, label: str) -> str:
    """Validation losses along the strengths, the chosen line in red with its band, and a dot."""
    best = next((k for k, line in enumerate(lines) if _is_chosen(line, setting)), 0)
    strengths = [s for line in lines for s in line["strength"]]
    # Losses of penalties far too weak may be huge, and are of no interest.
    low = min(min(line["loss"]) for line in lines)
    high = 1.2 * max(line["loss"][0] for line in lines)
    y = Axis(max(low / 1.15, 1e-15), max(high, 1.05 * low), label, log=True)
    x = Axis(max(strengths), min(strengths), "strength of the penalty", log=True)
    chart = Chart(x, y, "Cross-validation")
    for k, line in enumerate(lines):
        if k != best:
            color = PALETTE[k % len(PALETTE)]
            chart.line(line["strength"], line["loss"], color, width=1.2, name=_line_name(line))
    line = lines[best]
    spread = list(zip(line["loss"], line["error"], strict=True))
    chart.band(line["strength"], [a - e for a, e in spread], [a + e for a, e in spread])
    chart.line(line["strength"], line["loss"], RED, width=2.4, name=_line_name(line))
    k = _nearest(line, setting)
    chart.points(
        [line["strength"][k]], [line["loss"][k]], DARK, radius=4.5, opacity=1, name="chosen"
    )
    return chart.render()


def _is_chosen(line: Record, setting: Record | None) -> bool:
    if setting is None:
        return True
    names = [name for name in ("slope_scale", "feature_power") if name in line]
    return all(line[name] == setting[name] for name in names)


def _nearest(line: Record, setting: Record | None) -> int:
    """Place of the chosen strength on a line, or of the smallest loss."""
    if setting is None:
        return line["loss"].index(min(line["loss"]))
    ratios = [max(s / setting["strength"], setting["strength"] / s) for s in line["strength"]]
    return ratios.index(min(ratios))


def _line_name(line: Record) -> str:
    if "slope_scale" not in line:
        return "mean loss"
    if not line["slope_scale"]:
        return "constant cells"
    return f"slope scale {line['slope_scale']:g}, feature power {line['feature_power']:g}"


def trace_chart(found: Record) -> str:
    """Distance from the optimum, iteration by iteration."""
    points = [(p[0], p[3]) for p in found["trace"] if p[3] > 0]
    x, y = [p[0] for p in points], [p[1] for p in points]
    axis = Axis(max(min(y), 1e-16), max(y), "distance", log=True)
    chart = Chart(Axis(min(x), max(x), "iteration"), axis, "Convergence")
    chart.line(x, y, DARK, width=2)
    return chart.render()
