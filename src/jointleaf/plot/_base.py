"""What all displays share: the base class, axes, scales and labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from inspect import cleandoc
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.formatting import short_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from typing_extensions import Self

COLORS = (
    "#c1432e", "#4f86b8", "#6a994e", "#e09f3e", "#7a5195",
    "#2a9d8f", "#d1779b", "#8c6d4f", "#3d4450", "#5b6cc9",
)  # fmt: skip
RED, BLUE, DARK, GREY = "#c1432e", "#4f86b8", "#3d4450", "#c9ced6"
Table = dict[str, NDArray]

FONT = 9
LINE_HEIGHT = 1.35 * FONT  # points from one label to the next
_MAX_COUNTS = 8
_LONGEST = 34  # characters of a label
_CHARACTER = 0.56  # mean width of a character, in font sizes

#: What the docstrings of all displays have.
_OWN = "Attributes\n----------\n"
_DRAWN = f"{_OWN}ax_ : Axes\nfigure_ : Figure\n"
_AX = "\nax : Axes, optional\n    See `plot`."


class Display(ABC):
    """A picture of something that was computed before: made once, drawn by `plot`.

    Docstrings of displays leave out what all of them have; it is filled in.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    """

    ax_: Axes
    figure_: Figure | SubFigure

    def __init_subclass__(cls) -> None:
        doc = cleandoc(cls.__doc__ or "")
        cls.__doc__ = doc if "\nax_ :" in doc else doc.replace(_OWN, _DRAWN)
        for name, member in vars(cls).items():
            if name.startswith("from_") and "---" in (member.__doc__ or ""):
                member.__func__.__doc__ = cleandoc(member.__doc__) + _AX

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw in axes, and return the display.

        Parameters
        ----------
        ax : Axes, optional
            To draw in; several panels take its place. Best in a figure with
            ``layout="constrained"``, which leaves room for names and a legend; by default a new
            figure.
        """
        height = self._height()
        if ax is None:
            plt = need_matplotlib(type(self).__name__)
            ax = plt.subplots(figsize=(self._width(), height), layout="constrained")[1]
        self.ax_, self.figure_ = ax, ax.figure
        self._draw(ax)
        return self

    @abstractmethod
    def _height(self) -> float:
        """Check what is drawn, and return the height of a new figure in inches."""

    def _width(self) -> float:
        """Return the width of a new figure in inches."""
        return 8.0

    @abstractmethod
    def _draw(self, ax: Axes) -> None:
        """Draw in axes."""


def need_matplotlib(name: str) -> Any:
    """Return pyplot; raise an error that names the extra where it is not installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as cause:
        message = f"{name} needs matplotlib: pip install 'jointleaf[plot]'"
        raise ImportError(message) from cause
    return plt


def check_fitted(estimator: object, kinds: Any, names: str) -> None:
    """Raise for what is not a fitted estimator of one of some classes."""
    if not isinstance(estimator, kinds):
        raise TypeError(
            f"estimator={estimator!r} must be a {names}: of a Pipeline use the last step, and rows "
            "as that step sees them"
        )
    check_is_fitted(estimator)


def loss_label(name: str, estimator: Any) -> str:
    """Return the label of an estimator's losses, with their unit."""
    unit = "(log-loss)" if is_classifier(estimator) else "(squared error / 2,\ntarget variance = 1)"
    return f"{name}\n{unit}"


def feature_labels(names: Sequence | None, d: int) -> list[str]:
    """Return the names of d features as text; x0, x1, ... where there are none."""
    if names is None:
        return [f"x{j}" for j in range(d)]
    if len(names) != d:
        raise ValueError(f"feature_names has {len(names)} names for {d} features: use one for each")
    return [str(name) for name in names]


def two_panels(frame: Axes, above: float) -> tuple[Axes, Axes]:
    """Put two panels with a common x axis in the place of axes, with points of room above."""
    frame.set_axis_off()
    top = 1.0 - min(0.3, above / height_in_points(frame))
    upper = frame.inset_axes((0.0, 0.42 * top, 1.0, 0.58 * top))
    lower = frame.inset_axes((0.0, 0.0, 1.0, 0.35 * top), sharex=upper)
    upper.xaxis.label.set_visible(False)
    upper.tick_params(labelbottom=False)
    return upper, lower


def style_axes(ax: Axes, y_label: str) -> None:
    """Thin frame, small font, the label of the y axis."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=FONT)
    ax.set_ylabel(y_label, fontsize=FONT)


def strength_axis(ax: Axes, strengths: NDArray) -> None:
    """Logarithmic x axis from the strongest strength to the weakest."""
    margin = 1.02 if len(np.unique(strengths)) > 1 else 2.0
    log_axis(ax, "x", strengths.max() * margin, strengths.min() / margin)
    ax.set_xlabel("strength of the penalty (weaker to the right)", fontsize=FONT)


def log_axis(ax: Axes, which: str, first: float, last: float) -> None:
    """Logarithmic axis between two limits, with plain numbers where it spans few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    getattr(ax, f"set_{which}lim")(first, last)
    getattr(ax, f"set_{which}scale")("log")
    axis = getattr(ax, f"{which}axis")
    decades = abs(np.log10(last / first))
    if decades < 2.5:
        subs = (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
        axis.set_major_locator(LogLocator(subs=subs, numticks=20))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())


def count_axis(ax: Axes, strengths: NDArray, counts: ArrayLike, label: str) -> None:
    """Write numbers of features on the upper edge, at a few strengths; not where all are equal."""
    if np.ptp(counts) == 0:
        return
    picked = np.linspace(0, len(strengths) - 1, min(_MAX_COUNTS, len(strengths))).round()
    index = picked.astype(int)
    top = ax.secondary_xaxis("top")
    top.set_xticks(strengths[index], [f"{count:.0f}" for count in np.asarray(counts)[index]])
    top.minorticks_off()
    top.tick_params(labelsize=FONT, length=3, color=DARK)
    top.spines["top"].set_visible(False)
    top.set_xlabel(label, fontsize=FONT, labelpad=5)


def title_panel(ax: Axes, text: str) -> None:
    """Write in a few words what a panel shows."""
    ax.set_title(text, loc="left", fontsize=FONT)


def legend_beside(ax: Axes, **options: Any) -> None:
    """A legend on the right of the axes, where it hides nothing, with options of `Axes.legend`."""
    settings: dict[str, Any] = {"fontsize": FONT, "handlelength": 1.8, **options}
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.03), frameon=False, **settings)


def label_ends(ax: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Name lines beside their right ends: (y, name, color)."""
    right = ax.get_xlim()[1]
    low, high = ax.get_ylim()
    heights = np.array([(y - low) / (high - low) for y, _, _ in ends])
    places = _spread(heights, LINE_HEIGHT / height_in_points(ax))
    for (y, name, color), place in zip(ends, places, strict=True):
        ax.annotate(
            name, (right, y), (1.04, place), textcoords="axes fraction", va="center", color=color,
            fontsize=FONT, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.6, "relpos": (0.0, 0.5),
                        "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip


def height_in_points(ax: Axes) -> float:
    """Height of axes in points."""
    return float(ax.get_window_extent().height) * 72.0 / ax.figure.dpi


def width_in_points(ax: Axes) -> float:
    """Width of axes in points."""
    return float(ax.get_window_extent().width) * 72.0 / ax.figure.dpi


def _spread(values: NDArray, distance: float) -> NDArray:
    """Move values in [0, 1] apart until neighbors differ by a distance; keep their order."""
    order = np.argsort(values, kind="stable")
    steps = distance * np.arange(len(values))
    sunk = values[order] - steps
    # The least that pushes up, and the least that pushes down: their mean keeps the distances.
    up = np.maximum.accumulate(sunk)
    down = np.minimum.accumulate(sunk[::-1])[::-1]
    places = np.clip((up + down) / 2, 0.0, max(0.0, 1.0 - steps[-1:].sum())) + steps
    out = np.empty_like(places)
    out[order] = places
    return out


def write_names(
    ax: Axes, places: NDArray, names: Sequence[Hashable], room: NDArray | float
) -> None:
    """Write names at the ticks of the x axis, slanted where one is wider than its room.

    `room` is in units of the x axis, one for all names or one for each.
    """
    low, high = ax.get_xlim()
    points = np.broadcast_to(room, len(names)) / abs(high - low) * width_in_points(ax)
    texts = [str(name) for name in names]
    widths = np.array([text_points(f"{text} ") for text in texts])
    is_slanted = bool(np.any(widths > points))
    ax.set_xticks(places, texts)
    ax.tick_params(axis="x", length=0, labelsize=FONT)
    if is_slanted:
        on_top = ax.xaxis.get_ticks_position() == "top"
        for label in ax.get_xticklabels():
            label.set(rotation=35, rotation_mode="anchor", ha="left" if on_top else "right")


# -- pictures with one line per column ---------------------------------------------------------


def height_of(n_lines: int) -> float:
    """Height in inches of a picture with so many lines."""
    return float(min(12.0, 1.3 + 0.32 * n_lines))


def shortened(text: str) -> str:
    """A label of bounded length."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def wrapped(text: str) -> str:
    """A label of bounded width; of a long "name = value" the value is in a second line."""
    name, sign, value = text.rpartition(" = ")
    if len(text) <= _LONGEST or not sign:
        return shortened(text)
    return f"{shortened(name)}\n{shortened(f'= {value}')}"


def column_axis(ax: Axes, labels: list[str], x_label: str) -> None:
    """Labels on the left, the first one on top, and a light grid."""
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_yticks(np.arange(len(labels)), [wrapped(label) for label in labels])
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.tick_params(labelsize=FONT)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=GREY, lw=0.5, alpha=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(x_label, fontsize=FONT)
    plain_numbers(ax, "x")


def plain_numbers(ax: Axes, which: str) -> None:
    """Write the numbers of a linear axis as texts have them: 200,000 and not 2e5."""
    from matplotlib.ticker import FuncFormatter

    def text(value: float, _: Any) -> str:
        return short_number(value, 6).replace("-", "\N{MINUS SIGN}")

    getattr(ax, f"{which}axis").set_major_formatter(FuncFormatter(text))


def date_axis(ax: Axes) -> None:
    """Write dates on an x axis of days since 1970-01-01."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    # From three ticks on larger units are taken: with five, none of its steps suits four years.
    locator = AutoDateLocator(minticks=3, maxticks=8)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def label_values(ax: Axes, ends: list[tuple[float, float, str]]) -> None:
    """Write texts beside the ends of bars, (place, direction, text), and make room for them."""
    low, high = ax.get_xlim()
    for y, (x, direction, text) in enumerate(ends):
        side = 1 if direction >= 0 else -1
        ax.annotate(
            text, (x, y), (4 * side, 0), textcoords="offset points", va="center",
            ha="left" if side > 0 else "right", fontsize=FONT - 1, color=DARK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
            zorder=5,
        )  # fmt: skip
    # Fractions of the width that texts take; a layout gives the axes what the names leave.
    names = max((text_points(label.get_text()) for label in ax.get_yticklabels()), default=0.0)
    width = min(width_in_points(ax), ax.figure.bbox.width * 72.0 / ax.figure.dpi - names - 30)
    parts = [((text_points(text) + 8) / max(width, 100.0), x, side) for x, side, text in ends]
    # A text at x has its room where the limits are wider than x by its part of their distance.
    for _ in range(4):
        room = high - low
        high = max([high, *(x + part * room for part, x, side in parts if side >= 0)])
        low = min([low, *(x - part * room for part, x, side in parts if side < 0)])
    ax.set_xlim(low, high)


def cell_points(ax: Axes, names: list[str]) -> float:
    """Return about how wide a cell of a square map is, in points, beside and above its names."""
    figure, longest = ax.figure, max(map(text_points, names), default=0.0)
    width, height = (72.0 * side / figure.dpi for side in figure.bbox.size)
    width = min(width_in_points(ax), width - longest - 90)  # beside a color bar
    height = min(height_in_points(ax), height - 0.75 * longest - 40)  # above slanted names
    return max(min(width, height), 0.0) / max(1, len(names) - 1)


def fitting_font(texts: list[str], room: float) -> float:
    """Return the size of the font in which every text has so many points; at least 4."""
    longest = max(map(len, texts), default=1)
    return float(min(FONT - 1, max(4.0, (room - 4) / (0.64 * longest))))


def filled(text: str, points: float) -> str:
    """Return a text in lines that are about so many points wide at most."""
    return fill(text, max(12, int(points / (_CHARACTER * FONT))), break_long_words=False)


def text_points(text: str) -> float:
    """Return about how wide a label is, in points."""
    return _CHARACTER * FONT * len(text)
