"""The charts of a report, as SVG written by hand: small, without scripts, sharp at any size.

A chart is 420 wide, so that its text stays readable on a phone, where it is shown at 340 or so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from jointleaf.cli._output import number

Record = dict[str, Any]
Numbers = Sequence[float]

_RED, _DARK, _GREY, _BLUE = "#c1432e", "#3d4450", "#c9ced6", "#4f86b8"
_PALETTE = ("#4f86b8", "#6a994e", "#e09f3e", "#7a5195", "#2a9d8f", "#d1779b", "#8c6d4f", "#5b6cc9")

_WIDTH, _HEIGHT = 420, 270
_MOST_TICKS = 7
_MOST_NAMES = 8
_MOST_SPANS = 150
_SLACK = 5
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 12, 42


class Axis:
    """An axis: from values to places, and its ticks; it runs backwards if `low` is larger."""

    def __init__(self, low: float, high: float, label: str, *, log: bool = False) -> None:
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
        self.low, self.high, self.label, self.log = low, high, label, log

    def share(self, value: float) -> float:
        """Return the place of a value: 0 at the start, 1 at the end."""
        if self.log:
            start, end = math.log(self.low), math.log(self.high)
            return (math.log(max(value, 1e-300)) - start) / (end - start)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return round values, about five."""
        low, high = sorted((self.low, self.high))
        if self.log:
            return _log_ticks(low, high)
        step = 10 ** math.floor(math.log10((high - low) / 4))
        step *= next((m for m in (1, 2, 5) if (high - low) / (step * m) <= 6), 10)
        first = math.ceil(low / step - 1e-9)
        return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    span = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for factors in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 3), (1,)):
        ticks = [f * 10.0**k for k in span for f in factors if low <= f * 10.0**k <= high]
        if len(ticks) <= _MOST_TICKS:
            break
    while len(ticks) > _MOST_TICKS:
        ticks = ticks[::2]
    return ticks if len(ticks) > 1 else [low, high]


class Chart:
    """A chart to which marks are added one by one, with a title for screen readers.

    Names, if there are any, take the place of numbers below the x axis, at 0, 1, ...
    """

    def __init__(self, x: Axis, y: Axis, title: str, x_names: Sequence[str] | None = None) -> None:
        self.x, self.y, self.title = x, y, title
        self._names = x_names
        self._marks: list[str] = []
        self._legend: list[tuple[str, str, str]] = []  # name, color, class of the mark

    def line(
        self, x: Numbers, y: Numbers, color: str = _DARK, *, width: float = 1.5, name: str = ""
    ) -> None:
        """Draw a line through points; with a name it is in the legend."""
        points = _points(self._places(x, y))
        self._marks.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{width}"/>'
        )
        self._legend.append((name, color, "stroke"))

    def band(self, x: Numbers, low: Numbers, high: Numbers) -> None:
        """Shade the area between two lines."""
        points = _points(self._places(x, low) + self._places(x, high)[::-1])
        self._marks.append(f'<polygon points="{points}" fill="{_DARK}" opacity="0.13"/>')

    def spans(self, x: Numbers, low: Numbers, high: Numbers, width: float, name: str) -> None:
        """Draw a vertical line from low to high at every place."""
        ends = zip(self._places(x, low), self._places(x, high), strict=True)
        lines = "".join(f'<path d="M{a:.1f} {b:.1f}V{c:.1f}"/>' for (a, b), (_, c) in ends)
        self._marks.append(f'<g stroke="{_GREY}" stroke-width="{width:.1f}">{lines}</g>')
        self._legend.append((name, _GREY, "stroke"))

    def points(
        self, x: Numbers, y: Numbers, color: str = _BLUE, *, radius: float = 2.0, name: str = ""
    ) -> None:
        """Draw a dot for every pair; small ones are transparent."""
        opacity = 0.55 if radius <= 2.0 else 1.0
        dots = "".join(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}"/>' for a, b in self._places(x, y)
        )
        self._marks.append(f'<g fill="{color}" opacity="{opacity}">{dots}</g>')
        self._legend.append((name, color, "dot"))

    def bars(self, edges: Numbers, heights: Numbers) -> None:
        """Draw a histogram: bars between neighbouring edges."""
        base = self._places([edges[0]], [0.0])[0][1]
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
            (a, top), (b, _) = self._places([left, right], [height, height])
            self._marks.append(
                f'<rect x="{a:.1f}" y="{top:.1f}" width="{max(b - a - 0.7, 0.5):.1f}" '
                f'height="{max(base - top, 0):.1f}" fill="{_BLUE}"/>'
            )

    def render(self) -> str:
        """Return the SVG element and its legend."""
        return (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{escape(self.title, quote=True)}">'
            f"<title>{escape(self.title)}</title>{self._frame()}{self._inside()}</svg>"
            f"{self._legend_html()}"
        )

    def _places(self, x: Numbers, y: Numbers) -> list[tuple[float, float]]:
        """Return pixels of values; those far outside are moved nearer, still outside."""
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        across = [_LEFT + width * min(max(self.x.share(a), -1.0), 2.0) for a in x]
        down = [_TOP + height * (1 - min(max(self.y.share(b), -1.0), 2.0)) for b in y]
        return list(zip(across, down, strict=True))

    def _inside(self) -> str:
        """Return the marks, cut off just outside the frame, so that dots on its edge stay whole."""
        left, top = _LEFT - _SLACK, _TOP - _SLACK
        width, height = _WIDTH - _RIGHT + _SLACK - left, _HEIGHT - _BOTTOM + _SLACK - top
        return (
            f'<svg x="{left}" y="{top}" width="{width}" height="{height}" '
            f'viewBox="{left} {top} {width} {height}">{"".join(self._marks)}</svg>'
        )

    def _frame(self) -> str:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        parts = []
        for value in self.y.ticks():
            place = self._places([self.x.low], [value])[0][1]
            parts.append(
                f'<line x1="{_LEFT}" x2="{right}" y1="{place:.1f}" y2="{place:.1f}" class="grid"/>'
                f'<text x="{_LEFT - 6}" y="{place + 3.5:.1f}" text-anchor="end">'
                f"{_tick(value)}</text>"
            )
        ticks = [(value, _tick(value)) for value in self.x.ticks()]
        if self._names is not None:
            ticks = [(k, escape(name)) for k, name in enumerate(self._names)]
        for value, text in ticks:
            place = self._places([value], [self.y.low])[0][0]
            parts.append(
                f'<text x="{place:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>'
            )
        middle, centre = (_LEFT + right) / 2, (_TOP + bottom) / 2
        parts.append(
            f'<line x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}" class="axis"/>'
            f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">'
            f"{escape(self.x.label)}</text>"
            f'<text transform="translate(11 {centre}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y.label)}</text>"
        )
        return "".join(parts)

    def _legend_html(self) -> str:
        items = "".join(
            f'<span><i class="{mark}" style="background:{color}"></i>{escape(name)}</span>'
            for name, color, mark in self._legend
            if name
        )
        return f'<p class="legend">{items}</p>' if items else ""


def _points(places: list[tuple[float, float]]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in places)


def _tick(value: float) -> str:
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        is_round = math.isclose(float(f"{value:.0e}"), value)
        head, power = f"{value:.{0 if is_round else 1}e}".split("e")
        return f"{head}e{int(power)}"
    return number(value) if abs(value) >= 10_000 else f"{value:.4g}"


# -- the charts ----------------------------------------------------------------------------------


def histogram_chart(histogram: Record, label: str) -> str:
    """Return the bars of a histogram."""
    edges, counts = histogram["edges"], histogram["counts"]
    x, y = Axis(edges[0], edges[-1], label), Axis(0, 1.05 * max(counts), "rows")
    chart = Chart(x, y, f"Histogram of {label}")
    chart.bars(edges, counts)
    return chart.render()


def classes_chart(target: Record) -> str:
    """Return bars of the number of rows of every class."""
    counts, names = target["counts"], target["classes"]
    n = len(counts)
    # Long names would overlap and are cut; many are left out.
    room = 60 // n
    short = [name if len(name) <= room else name[: max(1, room - 1)] + "…" for name in names]
    x, y = Axis(-0.5, n - 0.5, target["name"]), Axis(0, 1.05 * max(counts), "rows")
    chart = Chart(x, y, "Rows of every class", short if n <= _MOST_NAMES else [""] * n)
    for k, count in enumerate(counts):
        chart.bars([k - 0.4, k + 0.4], [count])
    return chart.render()


def pairs_chart(summary: Record, name: str) -> str:
    """Return targets against predictions, with the diagonal."""
    truth, predicted = summary["truth"], summary["predicted"]
    low, high = min(*truth, *predicted), max(*truth, *predicted)
    chart = Chart(Axis(low, high, "prediction"), Axis(low, high, name), "Target against prediction")
    chart.line([low, high], [low, high], _GREY)
    chart.points(predicted, truth)
    return chart.render()


def intervals_chart(summary: Record, name: str) -> str:
    """Return intervals in the order of predictions, and targets inside and outside of them."""
    ends, predicted = summary["intervals"], summary["predicted"]
    order = sorted(range(len(predicted)), key=predicted.__getitem__)
    order = order[:: -(-len(order) // _MOST_SPANS)]
    low, high, truth = (
        [values[k] for k in order] for values in (ends["low"], ends["high"], summary["truth"])
    )
    places = range(len(order))
    axis = Axis(min(*low, *truth), max(*high, *truth), name)
    chart = Chart(Axis(-0.5, len(order) - 0.5, "rows, by prediction"), axis, "Intervals")
    width = min(6.0, 0.6 * (_WIDTH - _LEFT - _RIGHT) / len(order))
    chart.spans(places, low, high, width, "interval")
    for is_inside, color, label in ((True, _BLUE, "target inside"), (False, _RED, "outside")):
        shown = [k for k in places if (low[k] <= truth[k] <= high[k]) is is_inside]
        values = [truth[k] for k in shown]
        chart.points(shown, values, color, radius=2.2, name=label)
    return chart.render()


def calibration_chart(groups: list[Record]) -> str:
    """Return relative frequencies against mean probabilities."""
    chart = Chart(Axis(0, 1, "predicted probability"), Axis(0, 1, "frequency"), "Calibration")
    chart.line([0, 1], [0, 1], _GREY)
    for group in groups:
        p, frequency, error = group["probability"], group["frequency"], group["error"]
        chart.line([p, p], [frequency - 2 * error, frequency + 2 * error], _BLUE, width=1.2)
    x, y = [g["probability"] for g in groups], [g["frequency"] for g in groups]
    chart.line(x, y, _BLUE)
    chart.points(x, y, _BLUE, radius=3.5)
    return chart.render()


def search_chart(lines: list[Record], setting: Record, label: str) -> str:
    """Return losses along the strengths, the chosen line in red with its band, and a dot."""
    best = next((k for k, line in enumerate(lines) if _is_chosen(line, setting)), 0)
    strengths = [s for line in lines for s in line["strength"]]
    # Losses of penalties far too weak may be huge: they are cut off.
    low = min(min(line["loss"]) for line in lines)
    high = 1.2 * max(line["loss"][0] for line in lines)
    losses = Axis(max(low / 1.15, 1e-15), max(high, 1.05 * low), label, log=True)
    axis = Axis(max(strengths), min(strengths), "strength of the penalty", log=True)
    chart = Chart(axis, losses, "Validation losses")
    for k, line in enumerate(lines):
        if k != best:
            color = _PALETTE[k % len(_PALETTE)]
            chart.line(line["strength"], line["loss"], color, width=1.2, name=_line_name(line))
    line = lines[best]
    x, y, errors = line["strength"], line["loss"], line["error"]
    spread = list(zip(y, errors, strict=True))
    chart.band(x, [a - e for a, e in spread], [a + e for a, e in spread])
    chart.line(x, y, _RED, width=2.4, name=_line_name(line))
    chosen = setting.get("strength")
    distances = y if chosen is None else [max(s / chosen, chosen / s) for s in x]
    k = distances.index(min(distances))
    chart.points([x[k]], [y[k]], _DARK, radius=4.5, name="chosen")
    return chart.render()


def _is_chosen(line: Record, setting: Record) -> bool:
    names = {"slope_scale", "feature_power"} & line.keys() & setting.keys()
    return all(line[name] == setting[name] for name in names)


def _line_name(line: Record) -> str:
    if "slope_scale" not in line:
        return "mean loss"
    if not line["slope_scale"]:
        return "constant cells"
    return f"slope scale {line['slope_scale']:g}, feature power {line['feature_power']:g}"


def trace_chart(trace: list[list[float]]) -> str:
    """Return the distance from the optimality conditions, iteration by iteration."""
    x, y = zip(*trace, strict=True)
    axis = Axis(max(min(y), 1e-16), max(y), "distance", log=True)
    chart = Chart(Axis(min(x), max(x), "iteration"), axis, "Convergence")
    chart.line(x, y, _DARK, width=2)
    return chart.render()
