"""The charts of a report."""

from __future__ import annotations

from typing import Any

from jointleaf._data.formatting import natural_key
from jointleaf.cli._svg import BLUE, DARK, GREY, LARGE, PALETTE, RED, SMALL, Axis, Chart, Matrix

Record = dict[str, Any]
Size = tuple[int, int]

_MOST_SPANS = 150
_MOST_CLASSES = 20  # that have a bar of their own
_FEW = 10  # places of a curve, each of which is marked
_MOST_SQUARES = 40  # classes of a confusion matrix


def histogram_chart(histogram: Record, label: str, size: Size) -> str:
    """Return the bars of a histogram."""
    edges, counts = histogram["edges"], histogram["counts"]
    is_whole = all(edge % 1 == 0.5 for edge in edges)  # a bar for every whole number
    x = Axis(edges[0], edges[-1], label, whole=is_whole)
    y = Axis(0, 1.05 * max(counts), "rows", whole=True)
    chart = Chart(x, y, f"Histogram of {label}", size)
    chart.bars(edges, counts)
    return chart.render()


def classes_chart(target: Record) -> tuple[str, str]:
    """Return a caption and bars of the rows of every class, or of the most frequent ones."""
    counts, names = target["counts"], target["classes"]
    order = sorted(range(len(counts)), key=lambda k: -counts[k])[:_MOST_CLASSES]
    shown = sorted(order, key=lambda k: natural_key(names[k]))
    title = "Rows of every class"
    if len(shown) < len(counts):
        title = f"Rows of the {len(shown)} most frequent of {len(counts)} classes"
    x, y = Axis(0, 1.05 * max(counts), "rows", whole=True), [names[k] for k in shown]
    size = SMALL[0], 60 + 21 * max(len(shown), 7)
    chart = Chart(x, Axis.of_names(y), title, size, grid="x")
    chart.flat_bars([counts[k] for k in shown])
    return title, chart.render()


def pairs_chart(summary: Record, name: str, size: Size) -> str:
    """Return targets against predictions, with the diagonal."""
    truth, predicted = summary["truth"], summary["predicted"]
    low, high = min(*truth, *predicted), max(*truth, *predicted)
    x, y = Axis(low, high, "prediction"), Axis(low, high, name)
    chart = Chart(x, y, "Target against prediction", size)
    chart.line([low, high], [low, high], GREY)
    chart.points(predicted, truth)
    return chart.render()


def means_chart(groups: list[Record], name: str, size: Size) -> str:
    """Return mean targets against mean predictions of groups, with the diagonal."""
    x, y, errors = ([group[key] for group in groups] for key in ("prediction", "mean", "error"))
    ends = [(mean - 2 * error, mean + 2 * error) for mean, error in zip(y, errors, strict=True)]
    values = [*x, *(end for pair in ends for end in pair)]
    low, high = min(values), max(values)
    axes = Axis(low, high, "mean prediction"), Axis(low, high, f"mean {name}")
    chart = Chart(*axes, "Mean target against mean prediction", size)
    chart.line([low, high], [low, high], GREY)
    for place, pair in zip(x, ends, strict=True):
        chart.line([place, place], pair, BLUE, width=1.2)
    chart.points(x, y, BLUE, radius=3.5)
    return chart.render()


def spans(n: int) -> slice:
    """Return which of n rows, in the order of predictions, have their intervals drawn."""
    return slice(None, None, -(-n // _MOST_SPANS))


def intervals_chart(summary: Record, name: str, size: Size) -> str:
    """Return intervals in the order of predictions, and targets inside and outside of them."""
    ends, predicted = summary["intervals"], summary["predicted"]
    order = sorted(range(len(predicted)), key=predicted.__getitem__)[spans(len(predicted))]
    low, high, truth = (
        [values[k] for k in order] for values in (ends["low"], ends["high"], summary["truth"])
    )
    places = range(len(order))
    axis = Axis(min(*low, *truth), max(*high, *truth), name)
    chart = Chart(Axis(-0.5, len(order) - 0.5, "rows, by prediction"), axis, "Intervals", size)
    chart.spans(places, low, high, "interval")
    for is_inside, color, label in ((True, BLUE, "target inside"), (False, RED, "outside")):
        shown = [k for k in places if (low[k] <= truth[k] <= high[k]) is is_inside]
        values = [truth[k] for k in shown]
        chart.points(shown, values, color, radius=2.2, name=label)
    return chart.render()


def class_charts(summary: Record, classes: list[str]) -> list[tuple[str, str]]:
    """Return captions and charts: calibration and, unless classes are very many, confusion."""
    groups, counts = summary["calibration"], summary["confusion"]
    if len(classes) > _MOST_SQUARES:
        return [("Calibration", calibration_chart(groups))]
    order = sorted(range(len(classes)), key=lambda k: natural_key(classes[k]))
    matrix = Matrix([[counts[j][k] for k in order] for j in order], [classes[k] for k in order])
    height = min(max(matrix.height, LARGE[1]), LARGE[0])  # beside each other they are as high
    return [
        ("Calibration", calibration_chart(groups, (LARGE[0], height))),
        ("Rows by true and predicted class", matrix.render()),
    ]


def calibration_chart(groups: list[Record], size: Size = LARGE) -> str:
    """Return relative frequencies against mean probabilities."""
    x, y = Axis(0, 1, "predicted probability"), Axis(0, 1, "frequency")
    chart = Chart(x, y, "Calibration", size)
    chart.line([0, 1], [0, 1], GREY)
    for group in groups:
        p, frequency, error = group["probability"], group["frequency"], group["error"]
        chart.line([p, p], [frequency - 2 * error, frequency + 2 * error], BLUE, width=1.2)
    means, frequencies = [g["probability"] for g in groups], [g["frequency"] for g in groups]
    chart.line(means, frequencies, BLUE)
    chart.points(means, frequencies, BLUE, radius=3.5)
    return chart.render()


# -- effects ---------------------------------------------------------------------------------------


def effect_limits(curves: list[Record]) -> tuple[float, float]:
    """Return the limits of the values of all curves, which have the same scale, with a margin."""
    values = [v for curve in curves for line in curve["values"] for v in line]
    low, high = min([0.0, *values]), max([0.0, *values])
    margin = 0.05 * (high - low) or 1.0
    return low - margin, high + margin


def effect_chart(curve: Record, limits: tuple[float, float], label: str) -> str:
    """Return the effect of one column: a line of numbers or dates, bars or dots of categories."""
    title = f"Effect of {curve['name']}"
    if "names" in curve:
        return _category_chart(curve, limits, label, title)
    grid, lines = curve["grid"], curve["values"]
    is_whole = all(value == int(value) for value in grid)
    x = Axis(grid[0], grid[-1], "", whole=is_whole and len(grid) <= _FEW, days=curve["days"])
    chart = Chart(x, Axis(*limits, label), title, SMALL)
    chart.line([grid[0], grid[-1]], [0.0, 0.0], GREY, width=1.2)
    chart.rug(grid)
    for k, line in enumerate(lines):
        color = PALETTE[k % len(PALETTE)] if len(lines) > 1 else RED
        chart.line(grid, line, color, width=2)
        if len(grid) <= _FEW:
            chart.points(grid, line, color, radius=3)
    return chart.render()


def _category_chart(curve: Record, limits: tuple[float, float], label: str, title: str) -> str:
    names, lines = curve["names"], curve["values"]
    chart = Chart(Axis(*limits, label), Axis.of_names(names), title, SMALL, grid="x")
    chart.line([0.0, 0.0], [-0.5, len(names) - 0.5], GREY, width=1.2)
    if len(lines) == 1:
        chart.flat_bars(lines[0])
    for k, line in enumerate(lines):
        if len(lines) > 1:
            chart.points(line, range(len(names)), PALETTE[k % len(PALETTE)], radius=3.5)
    return chart.render()


# -- the fit ---------------------------------------------------------------------------------------


def search_chart(lines: list[Record], setting: Record, label: str, size: Size = LARGE) -> str:
    """Return losses along the strengths, the chosen line in red with its band, and a dot."""
    best = next((k for k, line in enumerate(lines) if _is_chosen(line, setting)), 0)
    # Losses of penalties far too weak may be huge: they are cut off, and so are their strengths.
    low = min(min(line["loss"]) for line in lines)
    high = max(1.2 * max(line["loss"][0] for line in lines), 1.05 * low)
    losses = Axis(max(low / 1.15, 1e-15), high, label, log=True)
    places = [place for line in lines for place in zip(line["strength"], line["loss"], strict=True)]
    shown = [strength for strength, loss in places if loss <= high]
    axis = Axis(max(shown), min(shown), "strength of the penalty", log=True)
    lines = [_without_weaker(line, min(shown)) for line in lines]
    chart = Chart(axis, losses, "Validation losses", size)
    for k, line in enumerate(lines):
        if k != best:
            color = PALETTE[k % len(PALETTE)]
            chart.line(line["strength"], line["loss"], color, width=1.2, name=line_name(line))
    line = lines[best]
    x, y, errors = line["strength"], line["loss"], line["error"]
    spread = list(zip(y, errors, strict=True))
    chart.band(x, [a - e for a, e in spread], [a + e for a, e in spread])
    chart.line(x, y, RED, width=2.4, name=line_name(line))
    chosen = setting.get("strength")
    distances = y if chosen is None else [max(s / chosen, chosen / s) for s in x]
    k = distances.index(min(distances))
    chart.points([x[k]], [y[k]], DARK, radius=4.5, name="chosen")
    return chart.render()


def _without_weaker(line: Record, weakest: float) -> Record:
    """Return a line without the strengths below one, or the first of them where all are."""
    places = [k for k, strength in enumerate(line["strength"]) if strength >= weakest] or [0]
    columns = {name: [line[name][k] for k in places] for name in ("strength", "loss", "error")}
    return {**line, **columns}


def _is_chosen(line: Record, setting: Record) -> bool:
    names = {"slope_scale", "feature_power"} & line.keys() & setting.keys()
    return all(line[name] == setting[name] for name in names)


def line_name(line: Record) -> str:
    """Return what is said of a line of losses in the legend."""
    if "slope_scale" not in line:
        return "mean loss"
    if not line["slope_scale"]:
        return "constant cells"
    return f"slope scale {line['slope_scale']:g}, feature power {line['feature_power']:g}"


def trace_chart(trace: list[list[float]], size: Size) -> str:
    """Return the distance from the optimality conditions, iteration by iteration."""
    x, y = zip(*trace, strict=True)
    axis = Axis(max(min(y), 1e-16), max(y), "distance", log=True)
    chart = Chart(Axis(min(x), max(x), "iteration", whole=True), axis, "Convergence", size)
    chart.line(x, y, DARK, width=2)
    return chart.render()
