"""The picture of a cross-validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jointleaf._fit import Setting
from jointleaf._fit.folds import Table, choose
from jointleaf._fit.recipe import SLOPE_SCALES
from jointleaf.plot._drawing import (
    COLORS,
    DARK,
    RED,
    UNITS,
    count_axis,
    legend_beside,
    log_axis,
    new_axes,
    strength_axis,
    style_axes,
    title_panel,
    two_panels,
)
from jointleaf.plot._following import Estimator, check_estimator, fitted_strength

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CVDisplay"]

_POWER_STYLES = {0.0: ":", 1.0: "-", 2.0: "--"}


class CVDisplay:
    """Validation loss of all strengths that cross-validation tried, strong ones on the left.

    For a Penalty whose strength was "auto": the mean loss with a band of one standard error, and
    the mean number of features with slopes on the upper edge. For ``penalty="auto"``: one line
    for every slope scale and feature power, with the band around the best. Where lines were
    compared more cheaply (with fewer rows, or by the squared error for classes) and the best was
    judged once more, that one has a panel of its own. Made by `from_estimator`.

    Parameters
    ----------
    table : dict of arrays
        ``cv_results_`` of an estimator.
    chosen : float or Setting
        The strength, or the setting, of the fit.
    loss_name : str
        Label of the losses.

    Attributes
    ----------
    ax_ : Axes
        The panel with the best line.
    search_ax_ : Axes or None
        The panel of the lines that were compared before, where there is one.
    figure_ : Figure
    lines_ : list of Line2D
        Mean validation losses, in the order of the table.
    band_ : PolyCollection
        One standard error on both sides of the best line.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import CVDisplay, JOPLEnRegressor
    >>> X = np.random.default_rng(0).standard_normal((60, 3))
    >>> model = JOPLEnRegressor(cv=2, random_state=0).fit(X, np.abs(X[:, 0]))
    >>> display = CVDisplay.from_estimator(model)
    >>> len(display.lines_)  # slope scales and feature powers that were compared
    6
    """

    def __init__(
        self, table: Table, chosen: float | Setting, *, loss_name: str = "validation loss"
    ) -> None:
        self.table = table
        self.chosen = chosen
        self.loss_name = loss_name

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: Axes | None = None) -> CVDisplay:
        """Draw what the cross-validation of a fitted estimator found.

        Parameters
        ----------
        estimator : JOPLEnRegressor or JOPLEnClassifier
            Fitted with ``penalty="auto"`` or a strength that is "auto".
        ax : Axes, optional
            See `plot`.
        """
        check_estimator(estimator)
        if estimator.cv_results_ is None:
            raise ValueError(
                f"the estimator was fitted with a fixed penalty, {estimator.penalty_!r}, or with "
                "too few rows for a choice to draw: fit with penalty='auto' or L21('auto')"
            )
        chosen = estimator.setting_ or fitted_strength(estimator)
        name = f"validation loss\n{UNITS[estimator._target_type]}"
        return cls(estimator.cv_results_, chosen, loss_name=name).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> CVDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            To draw in, best in a figure with ``layout="constrained"``, which leaves room for
            the legend; two panels take its place. By default a new figure.

        Returns
        -------
        self
        """
        lines = _lines(self.table)
        k = self._best_line(lines)
        again = any(_is_same(line, lines[k]) for line in lines[:k])
        frame = new_axes(type(self).__name__, 5.5 if again else 4.0) if ax is None else ax
        self.figure_ = frame.figure
        search, self.ax_ = two_panels(frame, above=14) if again else (frame, frame)
        self.search_ax_ = search if again else None
        self.lines_ = [
            _draw_line(self.ax_ if j == k else search, line, is_best=_is_same(line, lines[k]))
            for j, line in enumerate(lines)
        ]
        self._mark_best(self.ax_, lines[k])
        self._finish(self.ax_, [lines[k]] if again else lines)
        if again:
            self._finish(search, lines[:k] + lines[k + 1 :])
            title_panel(self.ax_, "the best line once more")
        return self

    def _best_line(self, lines: list[Table]) -> int:
        """The last line with the chosen slope scale and feature power."""
        if not isinstance(self.chosen, Setting):
            return len(lines) - 1
        wanted = {name: np.array([value]) for name, value in self.chosen._asdict().items()}
        return max(k for k, line in enumerate(lines) if _is_same(line, wanted))

    def _mark_best(self, ax: Axes, line: Table) -> None:
        """Draw the band, and where the loss is smallest, within one error of it, and chosen."""
        strengths, mean, error = line["strength"], line["mean_loss"], line["se_loss"]
        style: dict[str, Any] = {"color": DARK, "zorder": 1}
        self.band_ = ax.fill_between(
            strengths, mean - error, mean + error, alpha=0.15, lw=0, label="± 1 std. error", **style
        )
        smallest, one_se = (float(strengths[choose(line, one_se=rule)]) for rule in (False, True))
        ax.axvline(smallest, lw=1, label=f"smallest loss: {smallest:.2g}", **style)
        ax.axvline(one_se, lw=1, ls="--", label=f"1 std. error rule: {one_se:.2g}", **style)
        chosen = self.chosen.strength if isinstance(self.chosen, Setting) else self.chosen
        k = int(np.argmin(np.abs(np.log(strengths / chosen))))
        label = f"chosen: {chosen:.2g}"
        if isinstance(self.chosen, Setting) and self.chosen.share < 1:
            label += f", share {self.chosen.share:g}"
        ax.plot(chosen, mean[k], "o", ms=8, color=RED, ls="none", zorder=5, label=label)

    def _finish(self, ax: Axes, lines: list[Table]) -> None:
        """Scale and label the axes of a panel with these lines."""
        strengths = np.concatenate([line["strength"] for line in lines])
        is_own = all(line["own_loss"].all() for line in lines if "own_loss" in line)
        style_axes(ax, self.loss_name if is_own else "squared error / 2\nof encoded classes")
        if ax is self.search_ax_:
            cheap = "with fewer rows" if is_own else "by the squared error"
            title_panel(ax, f"search, {cheap} for speed")
        strength_axis(ax, strengths)
        if "on_path" not in self.table:
            log_axis(ax, "y", *_loss_limits(lines))
        else:
            label = "features with slopes (mean over folds)"
            count_axis(ax, strengths, lines[0]["mean_selected"], label)
        legend_beside(ax)


def _lines(table: Table) -> list[Table]:
    """The lines of a table, each from strong to weak; of paths of one penalty the last.

    Mixes of the best setting with the partitions' own model are points, not lines, and left out.
    """
    rows = np.isfinite(table["mean_loss"]) & table.get("on_path", True)
    rows &= table.get("share", 1.0) == 1.0
    kept = {name: column[rows] for name, column in table.items()}
    is_new = np.diff(kept["strength"]) >= 0
    for name in ("slope_scale", "feature_power"):
        if name in kept:
            is_new |= np.diff(kept[name]) != 0
    parts = np.split(np.arange(rows.sum()), np.flatnonzero(is_new) + 1)
    lines = [{name: column[part] for name, column in kept.items()} for part in parts]
    return lines[-1:] if "on_path" in table else lines


def _is_same(line: Table, other: Table) -> bool:
    """Whether two lines have the same slope scale and feature power."""
    names = ("slope_scale", "feature_power")
    return all(line[name][0] == other[name][0] for name in names if name in line)


def _loss_limits(lines: list[Table]) -> tuple[float, float]:
    """Limits of a logarithmic axis of losses."""
    losses = np.concatenate([line["mean_loss"] for line in lines])
    errors = np.concatenate([line["se_loss"] for line in lines])
    k = int(np.argmin(losses))
    low = max(losses[k] - errors[k], 0.5 * losses[k], 1e-15)
    # Losses of penalties far too weak may be huge, and are of no interest.
    strong = max(line["mean_loss"][0] + line["se_loss"][0] for line in lines)
    return low / 1.1, 1.1 * max(low, min((losses + errors).max(), 1.5 * strong))


def _draw_line(ax: Axes, line: Table, is_best: bool) -> Any:
    x, y = line["strength"], line["mean_loss"]
    if "slope_scale" not in line:
        return ax.plot(x, y, color=DARK, marker="o", ms=3, lw=1.5, label="mean loss")[0]
    scale, power = line["slope_scale"][0], line["feature_power"][0]
    color = COLORS[SLOPE_SCALES.index(scale)] if scale in SLOPE_SCALES else DARK
    style: dict[str, Any] = {
        "color": color,
        "lw": 2.2 if is_best else 1.2,
        "zorder": 4 if is_best else 3,
    }
    label = f"slope scale {scale:g}, feature power {power:g}" if scale else "constant cells"
    return ax.plot(x, y, _POWER_STYLES.get(power, "-."), label=label, **style)[0]
