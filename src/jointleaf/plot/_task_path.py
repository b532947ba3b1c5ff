"""The picture of the strengths that were tried for several tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.penalties import TaskNorm
from jointleaf._fit.report import loss_table
from jointleaf.multitask._estimators import BaseMultiTaskJOPLEn
from jointleaf.plot._base import (
    DARK,
    FONT,
    GREY,
    RED,
    Display,
    Table,
    check_fitted,
    legend_beside,
    loss_unit,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["TaskPathDisplay"]

_MARKERS = ("o", "s", "^", "D", "v")


@dataclass(eq=False, repr=False)
class TaskPathDisplay(Display):
    """Validation loss against the number of features, along all paths of strengths.

    A Dirty LASSO has two strengths. For every ratio common / task there is a line along which both
    fall together, from no features on the left to many on the right. A ratio of
    min_t gamma_t makes every feature common, and one of |gamma| none beyond those that all tasks
    need: with T tasks of equal weight, 1 and sqrt(T). Where features were also scored with relaxed
    strengths, every point has the smallest of its losses, and a dotted line shows those of the
    chosen ratio without relaxing. The chosen strengths and the smallest loss are marked; with
    ``one_se`` the chosen point has the fewest features of all below the dashed line, one standard
    error above the smallest loss. Made by `from_estimator`.

    Parameters
    ----------
    table : dict of arrays
        ``cv_results_`` of an estimator of several tasks.
    chosen : pair of float
        The strengths ``common`` and ``task`` of the fit; NaN where the penalty has none. The
        best of their relaxations is meant.
    loss_name : str
        Label of the losses.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    ratios_ : list of float
        common / task of every line; NaN where the penalty has a single strength.
    lines_ : list of Line2D
        Mean validation loss (y), the smallest of all relaxations, against the mean number of
        selected features of a task (x).
    unrelaxed_ : Line2D or None
        The losses of the chosen ratio without relaxing, where some are relaxed.
    chosen_ : Line2D
        The point of the fit.
    band_ : PolyCollection
        One standard error on both sides of the chosen line.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import DirtyLasso, MultiTaskJOPLEnRegressor, TaskPathDisplay
    >>> from jointleaf.partitions import VoronoiPartitioner
    >>> X = np.random.default_rng(0).standard_normal((40, 3))
    >>> Y = np.stack([np.abs(X[:, 0]), X[:, 0] + X[:, 1]], axis=1)
    >>> cells = VoronoiPartitioner(2, 2, random_state=0)
    >>> penalty = DirtyLasso(bias_strength=1.0, relax=1.0)
    >>> model = MultiTaskJOPLEnRegressor(cells, penalty=penalty, cv=2).fit(X, Y)
    >>> TaskPathDisplay.from_estimator(model).ratios_[0]
    1.0
    """

    table: Mapping[str, Any]
    chosen: tuple[float, float]
    _: KW_ONLY
    loss_name: str = "validation loss"

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> TaskPathDisplay:
        """Draw how the strengths of a fitted estimator were chosen.

        Parameters
        ----------
        estimator : MultiTaskJOPLEnRegressor or MultiTaskJOPLEnClassifier
            Fitted with a penalty whose strengths are "auto", such as ``DirtyLasso()`` or
            ``L21("auto")``.
        ax : Axes, optional
            See `plot`.
        """
        check_fitted(
            estimator, BaseMultiTaskJOPLEn, "MultiTaskJOPLEnRegressor or MultiTaskJOPLEnClassifier"
        )
        if isinstance(estimator.cv_results_, list):
            raise ValueError(
                f"penalty={estimator.penalty!r} chooses a penalty for every task alone, there is "
                "no common path to draw: fit with DirtyLasso()"
            )
        if estimator.cv_results_ is None:
            raise ValueError(
                f"penalty={estimator.penalty!r} has fixed strengths, there is no choice to draw: "
                "fit with DirtyLasso() or another strength that is 'auto'"
            )
        name = f"validation loss\n{loss_unit(estimator)}"
        chosen = _strengths(estimator.penalty_)
        return cls(estimator.cv_results_, chosen, loss_name=name).plot(ax=ax)

    def _height(self) -> float:
        self._lines = _lines(loss_table(self.table))
        if all(np.ptp(line["mean_selected"]) == 0 for line in self._lines):
            raise ValueError(
                "every strength has the same number of features, there is no path to draw: fit "
                "with a penalty that makes features vanish, such as DirtyLasso() or L21('auto')"
            )
        return 4.0

    def _draw(self, ax: Axes) -> None:
        lines = self._lines
        self.ratios_ = [_ratio(line) for line in lines]
        best = self._chosen_line(lines)
        self.lines_ = [
            _draw_line(ax, line, k, len(lines), is_chosen=line is best)
            for k, line in enumerate(lines)
        ]
        self.unrelaxed_ = self._draw_unrelaxed(best)
        self._mark(lines, best)
        self._finish(lines)

    def _chosen_line(self, lines: list[Table]) -> Table:
        distances = [np.min(self._distances(line)) for line in lines]
        return lines[int(np.argmin(distances))]

    def _distances(self, line: Table) -> NDArray[np.float64]:
        """Return the distance of every point of a line from the chosen strengths, in logarithms."""
        total = np.zeros(len(line["common"]))
        for name, value in zip(("common", "task"), self.chosen, strict=True):
            if np.isfinite(value):
                total += np.abs(np.log(line[name] / value))
        return total

    def _draw_unrelaxed(self, best: Table) -> Line2D | None:
        """Draw what shrinkage costs along the chosen line."""
        if np.all(best["relax"] == 1):
            return None
        plain = next(
            line
            for line in _lines(loss_table(self.table), relaxed=False)
            if np.isclose(_ratio(line), _ratio(best))
        )
        style: dict[str, Any] = {"color": DARK, "lw": 1.2, "ls": ":", "zorder": 2}
        label = f"{_ratio(best):.3g}, not relaxed"
        return self.ax_.plot(plain["mean_selected"], plain["mean_loss"], label=label, **style)[0]

    def _mark(self, lines: list[Table], best: Table) -> None:
        """Draw the band, the smallest loss, one standard error above it, and the choice."""
        x, mean, error = best["mean_selected"], best["mean_loss"], best["se_loss"]
        order = np.argsort(x, kind="stable")
        self.band_ = self.ax_.fill_between(
            x[order], (mean - error)[order], (mean + error)[order], color=DARK, alpha=0.13, lw=0,
            zorder=1, label="± 1 std. error",
        )  # fmt: skip
        joined = {name: np.concatenate([line[name] for line in lines]) for name in best}
        k = int(np.argmin(joined["mean_loss"]))
        low, se = joined["mean_loss"][k], joined["se_loss"][k]
        self.ax_.axhline(
            low + se, color=DARK, lw=1, ls="--", zorder=1, label="smallest + 1 std. error"
        )
        self.ax_.plot(
            joined["mean_selected"][k], low, "o", ms=13, mfc="none", mec=DARK, mew=1.5, ls="none",
            zorder=5, label="smallest loss",
        )  # fmt: skip
        at = int(np.argmin(self._distances(best)))
        (self.chosen_,) = self.ax_.plot(
            x[at], mean[at], "*", ms=15, color=RED, mec="white", mew=0.8, ls="none", zorder=6,
            label=f"chosen: {self._words(best['relax'][at])}",
        )  # fmt: skip

    def _words(self, relax: float) -> str:
        pairs = zip(("common", "task"), self.chosen, strict=True)
        words = [f"{name} {value:.2g}" for name, value in pairs if np.isfinite(value)]
        if len(words) == 1:
            words = words[0].split()[1:]
        return ", ".join(words) + (f",\nrelax {relax:.2g}" if relax != 1 else "")

    def _finish(self, lines: list[Table]) -> None:
        ax = self.ax_
        style_axes(ax, self.loss_name)
        ax.set_xlabel(
            "selected features of a task, common and its own (mean over tasks and folds)",
            fontsize=FONT,
        )
        ax.grid(color=GREY, lw=0.5, alpha=0.5)
        ax.set_axisbelow(True)
        ax.set_xlim(left=-0.015 * max(line["mean_selected"].max() for line in lines))
        has_ratios = np.isfinite(self.ratios_).all()
        legend_beside(ax, title="common / task\n(small: more is common)" if has_ratios else None,
                      title_fontsize=FONT, alignment="left")  # fmt: skip


def _strengths(penalty: Any) -> tuple[float, float]:
    """Return the strengths of a fitted penalty as the table has them; NaN where there is none."""
    term = next((t for t in penalty.terms if isinstance(t, TaskNorm)), penalty.terms[0])
    pair = (term.common, term.task) if isinstance(term, TaskNorm) else (term.strength, None)
    common, task = (np.nan if value is None else float(value) for value in pair)
    return common, task


def _lines(table: Table, *, relaxed: bool = True) -> list[Table]:
    """Return the path of every ratio, strong to weak, with the best relaxation of every point."""
    is_drawn = table["on_path"] & np.isfinite(table["mean_loss"])
    if not relaxed:
        is_drawn &= table["relax"] == 1
    drawn = {name: column[is_drawn] for name, column in table.items()}
    # A path has one ratio, which rounding may blur; rows of one point follow each other.
    ratio = np.nan_to_num(drawn["common"] / drawn["task"], nan=1.0)
    strength = np.where(np.isnan(drawn["common"]), drawn["task"], drawn["common"])
    is_new_path = np.abs(np.diff(np.log(ratio))) > 1e-9
    is_new = np.concatenate([[True], is_new_path | (np.diff(strength) != 0)])
    points = np.cumsum(is_new) - 1
    order = np.lexsort((drawn["mean_loss"], points))
    best = order[np.searchsorted(points[order], np.arange(points[-1] + 1))]
    ends = np.flatnonzero(np.diff(np.cumsum([0, *is_new_path])[best])) + 1
    return [{name: column[part] for name, column in drawn.items()} for part in np.split(best, ends)]


def _ratio(line: Table) -> float:
    return float(line["common"][0] / line["task"][0])


def _draw_line(ax: Axes, line: Table, k: int, n_lines: int, *, is_chosen: bool) -> Line2D:
    """Draw a path; ratios in order have colors in order, from light to dark."""
    from matplotlib import colormaps

    color = colormaps["viridis_r"](0.12 + 0.85 * k / max(n_lines - 1, 1))
    ratio = _ratio(line)
    return ax.plot(
        line["mean_selected"],
        line["mean_loss"],
        color=color,
        marker=_MARKERS[k % len(_MARKERS)],
        ms=4.5 if is_chosen else 3.5,
        lw=2.2 if is_chosen else 1.2,
        zorder=4 if is_chosen else 3,
        label=f"{ratio:.3g}" if np.isfinite(ratio) else "mean loss",
    )[0]
