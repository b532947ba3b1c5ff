"""The pictures of strengths: their path, their cross-validation; and that of a pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.path import StrengthPath
from jointleaf._fit.folds import LINE_PARAMETERS, split_lines
from jointleaf.estimators import JOPLEnClassifier, JOPLEnRegressor
from jointleaf.estimators._path import fitted_strength, follow_strengths
from jointleaf.estimators._pruning import Pruning
from jointleaf.plot import _base as base

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Estimator = JOPLEnRegressor | JOPLEnClassifier

_ENTERED = 0.01
_POWER_STYLES = {0.0: ":", 1.0: "-", 2.0: "--"}
_SCALE_COLORS = dict(zip((0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0), base.COLORS, strict=False))


@dataclass(eq=False, repr=False)
class PathDisplay(base.Display):
    """Slopes and losses along a path of strengths, from strong on the left to weak on the right.

    The upper panel shows the norm of every feature's slopes; the features that enter first, and
    stay, are colored and named (at most ten), all others grey. The number of features with
    slopes is on the upper edge, training and validation loss are in the lower panel.
    `from_estimator` follows the path of a fitted estimator.

    Parameters
    ----------
    path : StrengthPath
        From `jointleaf.strength_path`.
    feature_names : sequence of d strings, optional
        By default x0, x1, ...
    chosen : float, optional
        A strength to mark: that of a fit.
    loss_name : str
        Label of the losses.

    Attributes
    ----------
    ax_ : Axes
        The panel of the norms.
    loss_ax_ : Axes
        The panel of the losses.
    figure_ : Figure
    lines_ : list of d Line2D
        Norm of the slopes of every feature.
    loss_lines_ : list of Line2D
        Training loss and, where there is one, validation loss.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import L21, PathDisplay, strength_path
    >>> X = np.random.default_rng(0).standard_normal((200, 5))
    >>> codes = (X[:, :1] > 0).astype(int)
    >>> path = strength_path(X, codes, np.abs(X[:, 0]), penalty=L21("auto"))
    >>> display = PathDisplay(path).plot()
    >>> len(display.lines_)
    5
    """

    path: StrengthPath
    feature_names: Sequence[str] | None = None
    _: KW_ONLY
    chosen: float | None = None
    loss_name: str = "mean loss"

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        ax: Axes | None = None,
        **options: Any,
    ) -> PathDisplay:
        """Follow the path of a fitted estimator's penalty on its partitions, and draw it.

        Partitions, standardization and the strength on biases are those of the fit; only the
        strength on slopes changes. The strength of the fit is marked.

        Parameters
        ----------
        estimator : JOPLEnRegressor or JOPLEnClassifier
            Fitted with a Penalty such as ``L21("auto")``; of a sum the strengths that are
            "auto" change.
        X, y : array-like (n, d), (n,)
            Rows to fit along the path, usually those of the fit.
        X_val, y_val : array-like (m, d), (m,), optional
            Rows whose loss is drawn besides.
        feature_names : sequence of d strings, optional
            Of the linear features; by default those of the estimator.
        **options
            Of `jointleaf.strength_path`: strengths, n_strengths, ratio, solver, tol, max_iter,
            sample_weight, n_jobs, verbose. Where no strength sets all slopes to zero
            (Frobenius), strengths are three decades on both sides of that of the fit.
        """
        base.need_matplotlib(cls.__name__)  # before the work
        _check_estimator(estimator)
        path = follow_strengths(estimator, X, y, X_val, y_val, **options)
        names = list(estimator.linear_feature_names_) if feature_names is None else feature_names
        name, chosen = base.loss_label("loss", estimator), fitted_strength(estimator)
        return cls(path, names, chosen=chosen, loss_name=name).plot(ax=ax)

    def _height(self) -> float:
        self._names = base.feature_labels(self.feature_names, self.path.feature_norms.shape[1])
        return 5.5

    def _draw(self, ax: Axes) -> None:
        self.ax_, self.loss_ax_ = base.two_panels(ax, above=30)
        self._draw_norms(self.ax_, self._names)
        self._draw_losses(self.loss_ax_)

    def _draw_norms(self, ax: Axes, names: list[str]) -> None:
        strengths, norms = self.path.strengths, self.path.feature_norms
        room = max(1, int(base.height_in_points(ax) / base.LINE_HEIGHT))
        named = _entry_order(norms)[: min(room, len(base.COLORS))]
        color = dict(zip(named, base.COLORS, strict=False))
        self.lines_ = []
        for j, name in enumerate(names):
            look = (color[j], 1.8, 3) if j in color else (base.GREY, 0.9, 2)
            style = dict(zip(("color", "lw", "zorder"), look, strict=True))
            self.lines_ += ax.plot(strengths, norms[:, j], label=name, **style)
        ax.set_ylim(0, 1.05 * norms.max(initial=0.0) or 1.0)
        base.style_axes(ax, "norm of a feature's slopes\nover all cells")
        base.strength_axis(ax, strengths)
        base.count_axis(ax, strengths, self.path.n_selected, "features with slopes")
        self._mark_chosen(ax)
        base.label_ends(ax, [(norms[-1, j], names[j], color[j]) for j in color])

    def _draw_losses(self, ax: Axes) -> None:
        strengths, validation = self.path.strengths, self.path.validation_error
        self.loss_lines_ = ax.plot(strengths, self.path.error, color=base.DARK, label="training")
        if validation is not None:
            self.loss_lines_ += ax.plot(strengths, validation, color=base.RED, label="validation")
            k = int(np.argmin(validation))
            label = f"smallest: {strengths[k]:.2g}"
            ax.plot(strengths[k], validation[k], "o", color=base.RED, ls="none", label=label)
        base.style_axes(ax, self.loss_name)
        base.strength_axis(ax, strengths)
        self._mark_chosen(ax)
        base.legend_beside(ax)

    def _mark_chosen(self, ax: Axes) -> None:
        if self.chosen is not None:
            label = f"fit: {self.chosen:.2g}"
            ax.axvline(self.chosen, color=base.DARK, lw=1, ls="--", zorder=1, label=label)


def _entry_order(norms: NDArray) -> NDArray[np.intp]:
    """Return the features with slopes at the end, those that get them first in front.

    Ties are broken by the last norm. A feature has entered from where on its norm stays above 1 %
    of the largest: iterative solves leave tiny slopes that come and go.
    """
    is_out = norms <= _ENTERED * norms.max(initial=0.0)
    first = np.where(is_out.any(axis=0), len(norms) - is_out[::-1].argmax(axis=0), 0)
    order = np.lexsort((-norms[-1], first))
    return order[first[order] < len(norms)]


@dataclass(eq=False, repr=False)
class CVDisplay(base.Display):
    """Validation loss of all strengths that cross-validation tried, strong ones on the left.

    For a Penalty whose strength was "auto": the mean loss with a band of one standard error, and
    the mean number of features with slopes on the upper edge. For ``penalty="auto"``: one line
    for every slope scale and feature power, with the band around the best. Where lines were
    compared more cheaply (with fewer rows, or by the squared error for classes) and the best was
    validated once more, that one has a panel of its own. Made by `from_estimator`.

    Parameters
    ----------
    table : dict of arrays
        ``cv_results_`` of an estimator.
    chosen : float or dict from name to float
        The strength of the fit, or all numbers of its setting: strength, slope_scale and
        feature_power.
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
    """

    table: Mapping[str, Any]
    chosen: float | Mapping[str, float]
    _: KW_ONLY
    loss_name: str = "validation loss"

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: Axes | None = None) -> CVDisplay:
        """Draw the validation losses of a fitted estimator.

        Parameters
        ----------
        estimator : JOPLEnRegressor or JOPLEnClassifier
            Fitted with ``penalty="auto"`` or a strength that is "auto".
        """
        _check_estimator(estimator)
        setting = estimator.report_.joint_or_raise("CVDisplay").setting
        if estimator.cv_results_ is None:
            raise ValueError(
                f"the estimator was fitted with a fixed penalty, {estimator.penalty_!r}, or with "
                "too few rows for a choice to draw: fit with penalty='auto' or L21('auto')"
            )
        chosen = setting or fitted_strength(estimator)
        name = base.loss_label("validation loss", estimator)
        return cls(estimator.cv_results_, chosen, loss_name=name).plot(ax=ax)

    def _height(self) -> float:
        self._lines = split_lines(self.table)
        self._best = self._best_line(self._lines)
        best = self._lines[self._best]
        self._is_repeated = any(_is_same(line, best) for line in self._lines[: self._best])
        return 5.5 if self._is_repeated else 4.0

    def _draw(self, ax: Axes) -> None:
        lines, best = self._lines, self._lines[self._best]
        search, self.ax_ = base.two_panels(ax, above=14) if self._is_repeated else (ax, ax)
        self.search_ax_ = search if self._is_repeated else None
        self.lines_ = [
            _draw_line(self.ax_ if line is best else search, line, is_best=_is_same(line, best))
            for line in lines
        ]
        self._mark_best(self.ax_, best)
        self._finish(self.ax_, [best] if self._is_repeated else lines)
        if self._is_repeated:
            self._finish(search, [line for line in lines if line is not best])
            base.title_panel(self.ax_, "the best line once more")

    def _best_line(self, lines: list[base.Table]) -> int:
        """Return the last line with the chosen slope scale and feature power."""
        if not isinstance(self.chosen, Mapping):
            return len(lines) - 1
        wanted = {name: np.array([value]) for name, value in self.chosen.items()}
        return max(k for k, line in enumerate(lines) if _is_same(line, wanted))

    def _mark_best(self, ax: Axes, line: base.Table) -> None:
        """Draw the band, and where the loss is smallest, within one error of it, and chosen."""
        strengths, mean, error = line["strength"], line["mean_loss"], line["se_loss"]
        style: dict[str, Any] = {"color": base.DARK, "zorder": 1}
        self.band_ = ax.fill_between(
            strengths, mean - error, mean + error, alpha=0.15, lw=0, label="± 1 std. error", **style
        )
        k = int(np.argmin(mean))
        one_se = strengths[np.flatnonzero(mean <= mean[k] + error[k])[0]]  # the strongest
        ax.axvline(strengths[k], lw=1, label=f"smallest loss: {strengths[k]:.2g}", **style)
        ax.axvline(one_se, lw=1, ls="--", label=f"1 std. error rule: {one_se:.2g}", **style)
        setting = self.chosen if isinstance(self.chosen, Mapping) else {"strength": self.chosen}
        chosen = setting["strength"]
        label = f"chosen: {chosen:.2g}"
        loss = mean[np.argmin(np.abs(np.log(strengths / chosen)))]
        ax.plot(chosen, loss, "o", ms=8, color=base.RED, ls="none", zorder=5, label=label)

    def _finish(self, ax: Axes, lines: list[base.Table]) -> None:
        """Scale and label the axes of a panel with these lines."""
        strengths = np.concatenate([line["strength"] for line in lines])
        is_exact = all(line["is_exact"].all() for line in lines)
        base.style_axes(ax, self.loss_name if is_exact else "squared error / 2\nof encoded classes")
        if ax is self.search_ax_:
            cheap = "with fewer rows" if is_exact else "by the squared error"
            base.title_panel(ax, f"search, {cheap} for speed")
        base.strength_axis(ax, strengths)
        if "mean_selected" in lines[0]:
            label = "features with slopes (mean over folds)"
            base.count_axis(ax, strengths, lines[0]["mean_selected"], label)
        else:
            base.log_axis(ax, "y", *_loss_limits(lines))
        base.legend_beside(ax)


def _is_same(line: base.Table, reference: Mapping[str, NDArray]) -> bool:
    """Whether two lines have the same slope scale and feature power."""
    return all(line[name][0] == reference[name][0] for name in LINE_PARAMETERS if name in line)


def _loss_limits(lines: list[base.Table]) -> tuple[float, float]:
    losses = np.concatenate([line["mean_loss"] for line in lines])
    errors = np.concatenate([line["se_loss"] for line in lines])
    k = int(np.argmin(losses))
    low = max(losses[k] - errors[k], 0.5 * losses[k], 1e-15)
    # Losses of penalties far too weak may be huge, and are of no interest.
    strong = max(line["mean_loss"][0] + line["se_loss"][0] for line in lines)
    return low / 1.1, 1.1 * max(low, min((losses + errors).max(), 1.5 * strong))


def _draw_line(ax: Axes, line: base.Table, is_best: bool) -> Any:
    x, y = line["strength"], line["mean_loss"]
    if "slope_scale" not in line:
        return ax.plot(x, y, color=base.DARK, marker="o", ms=3, lw=1.5, label="mean loss")[0]
    scale, power = line["slope_scale"][0], line["feature_power"][0]
    style: dict[str, Any] = {
        "color": _SCALE_COLORS.get(scale, base.DARK),
        "lw": 2.2 if is_best else 1.2,
        "zorder": 4 if is_best else 3,
    }
    label = f"slope scale {scale:g}, feature power {power:g}" if scale else "constant cells"
    return ax.plot(x, y, _POWER_STYLES.get(power, "-."), label=label, **style)[0]


@dataclass(eq=False, repr=False)
class PruningDisplay(base.Display):
    """Losses while a model was pruned, from all its cells on the left to few on the right.

    The training loss and, where sizes were chosen by it, the validation loss at every step; the
    size that was taken is marked, and the validation loss of all cells is a thin line to compare
    with. Where the training loss falls, the strength of the penalty was changed. Made by
    `from_estimator`.

    Parameters
    ----------
    pruning : Pruning
        ``pruning_`` of an estimator that `jointleaf.prune` returned.
    loss_name : str
        Label of the losses.

    Attributes
    ----------
    lines_ : list of Line2D
        Training loss and, where there is one, validation loss.
    """

    pruning: Pruning
    _: KW_ONLY
    loss_name: str = "mean loss"

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: Axes | None = None) -> PruningDisplay:
        """Draw how a fitted estimator was pruned.

        Parameters
        ----------
        estimator : JOPLEnRegressor or JOPLEnClassifier
            That `jointleaf.prune` returned.
        """
        _check_estimator(estimator)
        if not hasattr(estimator, "pruning_"):
            raise ValueError(
                "the estimator was not pruned, there is nothing to draw: use what "
                "prune(estimator, X, y) returns"
            )
        name = base.loss_label("loss", estimator)
        return cls(estimator.pruning_, loss_name=name).plot(ax=ax)

    def _height(self) -> float:
        return 3.5

    def _draw(self, ax: Axes) -> None:
        record, sizes, k = self.pruning, self.pruning.n_cells, self.pruning.chosen
        style: dict[str, Any] = {"lw": 1.5, "marker": "o", "ms": 2.5, "zorder": 3}
        self.lines_ = ax.plot(sizes, record.train_loss, color=base.DARK, label="training", **style)
        loss, color = record.train_loss, base.DARK
        if record.valid_loss is not None:
            loss, color = record.valid_loss, base.RED
            self.lines_ += ax.plot(sizes, loss, color=color, label="validation", **style)
            ax.axhline(loss[0], color=base.GREY, lw=1, zorder=1, label="validation, all cells")
        ax.axvline(sizes[k], color=base.DARK, lw=1, ls="--", zorder=1)
        label = f"chosen: {record.n_cells_after} of {record.n_cells_before} cells"
        ax.plot(sizes[k], loss[k], "o", ms=8, color=color, ls="none", zorder=5, label=label)
        base.style_axes(ax, self.loss_name)
        margin = 1.03 if len(sizes) > 1 else 2.0
        base.log_axis(ax, "x", sizes.max() * margin, sizes.min() / margin)
        ax.set_xlabel("number of cells (fewer to the right)", fontsize=base.FONT)
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
        base.legend_beside(ax)


def _check_estimator(estimator: object) -> None:
    base.check_fitted(estimator, Estimator, "JOPLEnRegressor or JOPLEnClassifier")
