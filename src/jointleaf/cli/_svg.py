"""Charts as SVG written by hand: small, without scripts, sharp at any size.

The space around the frame is what the labels need, measured by `text_width`: nothing is cut, and
titles of axes stay clear of the numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, timedelta
from html import escape

from jointleaf._data.formatting import day_text, short_number

Numbers = Sequence[float]

RED, DARK, GREY, BLUE = "#c1432e", "#3d4450", "#c9ced6", "#4f86b8"
PALETTE = ("#4f86b8", "#6a994e", "#e09f3e", "#7a5195", "#2a9d8f", "#d1779b", "#8c6d4f", "#5b6cc9")

#: Width and height of charts of which two fit beside each other, and of smaller ones.
LARGE, SMALL = (420, 270), (340, 230)
_FONT = 11  # as in the style of the page
_MOST_TICKS = 7
_MOST_DATES = 4
_SLACK = 5
_TITLE = 20  # room for the title of an axis
_LINE = 11.0  # from one line of a label to the next
_GAP = 7  # between a frame and the labels beside it
_NARROW, _WIDE = ",.:;'|!il()[] ", "mwMW@%"


def text_width(text: str) -> float:
    """Return about how wide a text is; rather too much than too little."""
    return _FONT * sum(0.38 if c in _NARROW else 0.98 if c in _WIDE else 0.64 for c in text)


def shortened(text: str, room: float) -> str:
    """Return a text that is cut where it is wider than its room."""
    if text_width(text) <= room:
        return text
    while text and text_width(text + "…") > room:
        text = text[:-1]
    return text.rstrip() + "…"


def wrapped(text: str, room: float, n_lines: int) -> list[str]:
    """Return a text in at most so many lines; what does not fit into the last one is cut."""
    if n_lines == 1 or text_width(text) <= room:
        return [shortened(text, room)]
    words = re.findall(r"[^\s_/-]+[\s_/-]*|[\s_/-]+", text)
    fits = [k for k in range(1, len(words)) if text_width("".join(words[:k]).rstrip()) <= room]
    if not fits:
        return [shortened(text, room)]
    head, rest = ("".join(part) for part in (words[: fits[-1]], words[fits[-1] :]))
    return [head.rstrip(), *wrapped(rest.rstrip(), room, n_lines - 1)]


class Axis:
    """An axis: from values to places, and its ticks; it runs backwards if `low` is larger.

    Values are numbers, whole ones, days since 1970-01-01, or 0, 1, ... for `names`.
    """

    def __init__(
        self, low: float, high: float, label: str, *, log: bool = False, whole: bool = False,
        days: bool = False, names: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        if low == high:
            low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
        self.low, self.high, self.label = low, high, label
        self._log, self._whole, self._days, self.names = log, whole, days, names

    @classmethod
    def of_names(cls, names: Sequence[str]) -> Axis:
        """Return an axis with names, the first one on top where it is the y axis."""
        return cls(len(names) - 0.5, -0.5, "", names=names)

    def place(self, value: float) -> float:
        """Return the place of a value: 0 at the start, 1 at the end."""
        if self._log:
            start, end = math.log(self.low), math.log(self.high)
            return (math.log(max(value, 1e-300)) - start) / (end - start)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return round values, about five."""
        low, high = sorted((self.low, self.high))
        if self.names is not None:
            return list(range(len(self.names)))
        if self._log:
            return _log_ticks(low, high)
        if self._days:
            return _date_ticks(low, high)
        return _round_ticks(low, high, 1.0 if self._whole else 0.0)

    def texts(self) -> list[str]:
        """Return the labels of the ticks."""
        if self.names is not None:
            return list(self.names)
        if not self._days:
            return [tick_text(value) for value in self.ticks()]
        texts = [day_text(value) for value in self.ticks()]
        for ending in ("-01", "-01"):  # first days of months, and first months of years
            if all(text.endswith(ending) for text in texts):
                texts = [text.removesuffix(ending) for text in texts]
        return texts


def _round_ticks(low: float, high: float, smallest: float = 0.0) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten, and of at least the smallest step."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next((m for m in (1, 2, 5) if (high - low) / (step * m) <= 6), 10)
    step = max(step, smallest)
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
    return ticks if len(ticks) > 1 else _round_ticks(low, high)


def _date_ticks(low: float, high: float) -> list[float]:
    """Return first days of years or months, or days, at most `_MOST_DATES`."""
    epoch = date(1970, 1, 1)
    try:
        first, last = epoch + timedelta(days=low), epoch + timedelta(days=high)
    except OverflowError:  # no dates
        return [low, high]
    start = 12 * first.year + first.month - 1
    for step in (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200):  # months
        months = range(start // step * step, 12 * last.year + last.month, step)
        days = [float((date(m // 12, m % 12 + 1, 1) - epoch).days) for m in months if m >= 12]
        ticks = [day for day in days if low <= day <= high]
        if len(ticks) <= _MOST_DATES:
            break
    return ticks if len(ticks) > 1 else [math.ceil(low), math.floor(high)]


def tick_text(value: float) -> str:
    """Return the label of a round number."""
    if value != 0 and not 1e-3 <= abs(value) < 1e7:
        is_round = math.isclose(float(f"{value:.0e}"), value)
        head, power = f"{value:.{0 if is_round else 1}e}".split("e")
        return f"{head}e{int(power)}"
    return short_number(value)


class Chart:
    """A chart to which marks are added one by one, with a title for screen readers."""

    def __init__(
        self, x: Axis, y: Axis, title: str, size: tuple[int, int] = LARGE, grid: str = "y"
    ) -> None:
        self.x, self.y, self.title = x, y, title
        self._grid = grid
        self._marks: list[str] = []
        self._legend: list[tuple[str, str, str]] = []  # name, color, class of the mark
        self._width, self._height = size
        most = 0.36 * self._width  # for names on the left
        texts = y.texts()
        n_lines = 2 if y.names is not None and (self._height - 54) / len(texts) > 1.9 * _LINE else 1
        self._y_texts = [wrapped(text, most, n_lines) for text in texts]
        longest = _longest(self._y_texts)
        self._left = (_TITLE if y.label else 4) + longest + _GAP
        self._right = self._width - 12.0
        if x.ticks():  # half of the label of the last one is beyond the frame, if that is there
            _, last = max(zip(map(x.place, x.ticks()), x.texts(), strict=True))
            self._right = min(self._right, self._width - text_width(last) / 2 - 2)
        self._top, self._bottom = 12.0, self._height - (24.0 + _TITLE if x.label else 24.0)

    def line(
        self, x: Numbers, y: Numbers, color: str = DARK, *, width: float = 1.5, name: str = ""
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
        self._marks.append(f'<polygon points="{points}" fill="{DARK}" opacity="0.13"/>')

    def spans(self, x: Numbers, low: Numbers, high: Numbers, name: str) -> None:
        """Draw a vertical line from low to high at every place."""
        width = min(6.0, 0.6 * (self._right - self._left) / len(x))
        ends = zip(self._places(x, low), self._places(x, high), strict=True)
        lines = "".join(f'<path d="M{a:.1f} {b:.1f}V{c:.1f}"/>' for (a, b), (_, c) in ends)
        self._marks.append(f'<g stroke="{GREY}" stroke-width="{width:.1f}">{lines}</g>')
        self._legend.append((name, GREY, "stroke"))

    def points(
        self, x: Numbers, y: Numbers, color: str = BLUE, *, radius: float = 2.0, name: str = ""
    ) -> None:
        """Draw a dot for every pair; small ones are transparent."""
        opacity = 0.55 if radius <= 2.0 else 1.0
        dots = "".join(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}"/>' for a, b in self._places(x, y)
        )
        self._marks.append(f'<g fill="{color}" opacity="{opacity}">{dots}</g>')
        self._legend.append((name, color, "dot"))

    def rug(self, x: Numbers) -> None:
        """Mark places on the x axis."""
        places = (place for place, _ in self._places(x, [self.y.low] * len(x)))
        lines = "".join(f'<path d="M{place:.1f} {self._bottom:.1f}v-5"/>' for place in places)
        self._marks.append(f'<g stroke="{DARK}" opacity="0.45">{lines}</g>')

    def bars(self, edges: Numbers, heights: Numbers) -> None:
        """Draw a histogram: bars between neighbouring edges."""
        base = self._places([edges[0]], [0.0])[0][1]
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
            (a, top), (b, _) = self._places([left, right], [height, height])
            self._marks.append(
                f'<rect x="{a:.1f}" y="{top:.1f}" width="{max(b - a - 0.7, 0.5):.1f}" '
                f'height="{max(base - top, 0):.1f}" fill="{BLUE}"/>'
            )

    def flat_bars(self, lengths: Numbers) -> None:
        """Draw horizontal bars from zero, one for every name of the y axis."""
        for k, length in enumerate(lengths):
            (a, top), (b, bottom) = self._places([0.0, length], [k - 0.35, k + 0.35])
            self._marks.append(
                f'<rect x="{min(a, b):.1f}" y="{top:.1f}" width="{max(abs(b - a), 0.5):.1f}" '
                f'height="{bottom - top:.1f}" fill="{BLUE}"/>'
            )

    def render(self) -> str:
        """Return the SVG element and its legend."""
        inside = svg_open((self._width, self._height), self.title)
        return f"{inside}{self._frame()}{self._inside()}</svg>{legend(self._legend)}"

    def _places(self, x: Numbers, y: Numbers) -> list[tuple[float, float]]:
        """Return pixels of values; those far outside are moved nearer, still outside."""
        width, height = self._right - self._left, self._bottom - self._top
        across = [self._left + width * min(max(self.x.place(a), -1.0), 2.0) for a in x]
        down = [self._top + height * (1 - min(max(self.y.place(b), -1.0), 2.0)) for b in y]
        return list(zip(across, down, strict=True))

    def _inside(self) -> str:
        """Return the marks, cut off just outside the frame, so that dots on its edge stay whole."""
        left, top = self._left - _SLACK, self._top - _SLACK
        width, height = self._right + _SLACK - left, self._bottom + _SLACK - top
        size = f"{left:.1f} {top:.1f} {width:.1f} {height:.1f}"
        x, y, wide, high = size.split()
        return (
            f'<svg x="{x}" y="{y}" width="{wide}" height="{high}" viewBox="{size}">'
            f"{''.join(self._marks)}</svg>"
        )

    def _frame(self) -> str:
        left, right, top, bottom = self._left, self._right, self._top, self._bottom
        parts = []
        for value, lines in zip(self.y.ticks(), self._y_texts, strict=True):
            place = self._places([self.x.low], [value])[0][1]
            if self._grid == "y":
                parts.append(_line(left, place, right, place, "grid"))
            parts.append(_lines(lines, left - _GAP + 1, place + 3.5, "end"))
        for place, text in self._x_ticks():
            if self._grid == "x":
                parts.append(_line(place, top, place, bottom, "grid"))
            parts.append(_line(place, bottom, place, bottom + 3, "axis"))
            parts.append(_text(text, place, bottom + 15, "middle"))
        parts.append(_line(left, bottom, right, bottom, "axis"))
        x_label = shortened(self.x.label, self._width - 10)
        half = text_width(x_label) / 2  # a long one is moved, so that it is not cut
        middle = min(max((left + right) / 2, half + 2), self._width - half - 2)
        parts.append(_text(x_label, middle, self._height - 8, "middle"))
        parts.append(_upright(shortened(self.y.label, self._height - 10), top, bottom))
        return "".join(parts)

    def _x_ticks(self) -> list[tuple[float, str]]:
        """Return places and labels of as many ticks as there is room for."""
        ticks, texts = self.x.ticks(), self.x.texts()
        places = [place for place, _ in self._places(ticks, [self.y.low] * len(ticks))]
        step = 1
        while step < len(ticks) and _overlap(places[::step], texts[::step]):
            step += 1
        return list(zip(places, texts, strict=True))[::step]


def _overlap(places: list[float], texts: list[str]) -> bool:
    """Whether labels below an axis, in the order of their places, touch each other."""
    halves = [text_width(text) / 2 + 3 for text in texts]
    ends = zip(places, places[1:], halves, halves[1:], strict=False)
    return any(abs(b - a) < first + second for a, b, first, second in ends)


def _text(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _lines(texts: Sequence[str], x: float, y: float, anchor: str, place: str = "") -> str:
    """Return lines below each other around a place, which may be moved and turned."""
    start = y - _LINE * (len(texts) - 1) / 2
    if not place and len(texts) == 1:
        return _text(texts[0], x, y, anchor)
    spans = "".join(
        f'<tspan x="{x:.1f}" y="{start + k * _LINE:.1f}">{escape(text)}</tspan>'
        for k, text in enumerate(texts)
    )
    turn = f' transform="{place}"' if place else ""
    return f'<text{turn} text-anchor="{anchor}">{spans}</text>'


def _longest(labels: Sequence[Sequence[str]]) -> float:
    """Return the width of the longest line of some labels."""
    return max((text_width(line) for label in labels for line in label), default=0.0)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>'


def _upright(text: str, top: float, bottom: float) -> str:
    """Return the title of a y axis."""
    half = text_width(text) / 2
    middle = max((top + bottom) / 2, half + 2)
    return (
        f'<text transform="translate(12 {middle:.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(text)}</text>"
    )


def svg_open(size: tuple[float, float], title: str) -> str:
    """Return the start of an SVG element with a title for screen readers."""
    return (
        f'<svg viewBox="0 0 {size[0]:g} {size[1]:g}" role="img" '
        f'aria-label="{escape(title, quote=True)}"><title>{escape(title)}</title>'
    )


def legend(entries: Sequence[tuple[str, str, str]]) -> str:
    """Return a legend of names, colors and classes of marks; those without a name are left out."""
    items = "".join(
        f'<span><i class="{mark}" style="background:{color}"></i>{escape(name)}</span>'
        for name, color, mark in entries
        if name
    )
    return f'<p class="legend">{items}</p>' if items else ""


def _points(places: list[tuple[float, float]]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in places)


class Matrix:
    """A table of counts as a picture: rows are true classes, columns predicted ones.

    The fraction of a row is the depth of the color, blue on the diagonal and red elsewhere.
    """

    def __init__(self, counts: list[list[int]], names: Sequence[str]) -> None:
        self._counts, self._names, self._width = counts, names, LARGE[0]
        n = len(names)
        n_lines = 2 if 0.7 * self._width / n > 2 * _LINE else 1
        self._labels = [wrapped(name, 0.22 * self._width, n_lines) for name in names]
        longest = _longest(self._labels)
        self._left = _TITLE + longest + _GAP
        self._cell = (self._width - self._left - 4) / n
        self._row = min(self._cell, max(48.0, 200.0 / n))
        self._is_flat = longest <= self._cell - 4  # names fit below their columns
        self._bottom = 4 + n * self._row
        below = 18 + _LINE * (max(map(len, self._labels)) - 1) if self._is_flat else longest + 10
        self.height = math.ceil(self._bottom + below + _TITLE)

    def render(self) -> str:
        """Return the SVG element."""
        total = sum(map(sum, self._counts))
        right = sum(line[k] for k, line in enumerate(self._counts))
        title = f"Confusion matrix: {right:,} of {total:,} rows are predicted right"
        middle = (self._left + self._width) / 2
        parts = [svg_open((self._width, self.height), title)]
        for k, label in enumerate(self._labels):
            y, x = 4 + (k + 0.5) * self._row, self._left + (k + 0.5) * self._cell
            parts.append(_lines(label, self._left - _GAP + 1, y + 3.5, "end"))
            if self._is_flat:
                below = self._bottom + 14 + _LINE * (len(label) - 1) / 2
                parts.append(_lines(label, x, below, "middle"))
            else:
                place = f"translate({x:.1f} {self._bottom + 6:.1f}) rotate(-90)"
                parts.append(_lines(label, 0.0, 3.5, "end", place))
        for i, line in enumerate(self._counts):
            parts += [self._square(i, k, count, sum(line)) for k, count in enumerate(line)]
        parts.append(_text("predicted class", middle, self.height - 6, "middle"))
        parts.append(_upright("true class", 4, self._bottom))
        return "".join(parts) + "</svg>"

    def _square(self, i: int, k: int, count: int, total: int) -> str:
        """Return one cell, with its number where there is room."""
        x, y = self._left + k * self._cell, 4 + i * self._row
        fraction = count / total if total else 0.0
        color = BLUE if i == k else RED
        opacity = 0.08 + 0.92 * fraction if count else 0.0
        words = f"true {self._names[i]}, predicted {self._names[k]}: {count:,}"
        square = (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{self._cell:.1f}" height="{self._row:.1f}" '
            f'fill="{color}" fill-opacity="{opacity:.2f}" class="cell">'
            f"<title>{escape(words)}</title></rect>"
        )
        text = f"{count:,}"
        size = min(_FONT, _FONT * (self._cell - 4) / text_width(text), 0.8 * self._row)
        if not count or size < 6.5:
            return square
        style = f"font-size:{size:.1f}px" + (";fill:#fff" if fraction > 0.65 else "")
        middle, centre = x + self._cell / 2, y + self._row / 2 + 0.35 * size
        return square + (
            f'<text x="{middle:.1f}" y="{centre:.1f}" text-anchor="middle" class="count" '
            f'style="{style}">{text}</text>'
        )
