"""Pictures of strength paths and of strengths chosen by cross-validation (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from jointleaf.estimators import JOPLEnClassifier, JOPLEnRegressor
from jointleaf.losses import Logistic, Loss, Multinomial
from jointleaf.path import N_STRENGTHS, StrengthPath, strength_path
from jointleaf.penalties import Term
from jointleaf.penalties.sums import on_weights
from jointleaf.tuning import Setting
from jointleaf.tuning.folds import Table, choose

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CVDisplay", "PathDisplay"]

_COLORS = (
    "#c1432e", "#4f86b8", "#6a994e", "#e09f3e", "#7a5195",
    "#2a9d8f", "#d1779b", "#8c6d4f", "#3d4450", "#5b6cc9",
)  # fmt: skip
_RED, _DARK, _GREY = "#c1432e", "#3d4450", "#c9ced6"
_FONT = 9
_POWER_STYLES = {0.0: ":", 1.0: "-", 2.0: "--"}
_UNITS = {"regression": "squared error / 2\n(target variance = 1)", "classification": "log-loss"}

Estimator = JOPLEnRegressor | JOPLEnClassifier


class PathDisplay:
    """Slopes and losses along a path of strengths, from strong on the left to weak on the right.

    The upper panel shows the norm of every feature's slopes; the features that enter first, at
    most ten, are coloured and named, all others grey. The number of features with slopes is on
    the upper edge, training and validation loss are in the lower panel. Made by `from_path` or
    `from_estimator`.

    Parameters
    ----------
    path : StrengthPath
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
    >>> from jointleaf import PathDisplay, strength_path  # doctest: +SKIP
    >>> path = strength_path(X, codes, y, penalty=L21("auto"))  # doctest: +SKIP
    >>> PathDisplay.from_path(path).figure_.savefig("path.png")  # doctest: +SKIP
    """

    def __init__(
        self,
        path: StrengthPath,
        feature_names: Sequence[str] | None = None,
        *,
        chosen: float | None = None,
        loss_name: str = "mean loss",
    ) -> None:
        self.path = path
        self.feature_names = feature_names
        self.chosen = chosen
        self.loss_name = loss_name

    @classmethod
    def from_path(
        cls,
        path: StrengthPath,
        *,
        feature_names: Sequence[str] | None = None,
        chosen: float | None = None,
        ax: Axes | None = None,
    ) -> PathDisplay:
        """Draw a path of `jointleaf.strength_path`; parameters as of the class and of `plot`."""
        return cls(path, feature_names, chosen=chosen).plot(ax=ax)

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

        Partitions, standardisation and the strength on biases are those of the fit; only the
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
            By default the names that the estimator saw, or x0, x1, ...
        ax : Axes, optional
            See `plot`.
        **options
            Of `jointleaf.strength_path`: strengths, n_strengths, ratio, solver, tol, max_iter,
            sample_weight, n_jobs, verbose. Where no strength sets all slopes to zero
            (Frobenius), strengths are three decades on both sides of that of the fit.
        """
        _need_matplotlib(cls)  # before the work
        _check_estimator(estimator)
        path = _follow(estimator, X, y, X_val, y_val, options)
        names = getattr(estimator, "feature_names_in_", None)
        names = names if feature_names is None else feature_names
        unit, chosen = _UNITS[estimator._task], _fitted_strength(estimator)
        return cls(path, names, chosen=chosen, loss_name=unit).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> PathDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            Whose place the two panels take, best in a figure with ``layout="constrained"``,
            which leaves room for names on the right; by default a new figure.

        Returns
        -------
        self
        """
        names = self._names()
        frame = _new_axes(self, 5.5) if ax is None else ax
        self.figure_ = frame.figure
        self.ax_, self.loss_ax_ = _two_panels(frame)
        self._draw_norms(self.ax_, names)
        self._draw_losses(self.loss_ax_)
        return self

    def _names(self) -> list[str]:
        d = self.path.feature_norms.shape[1]
        if self.feature_names is None:
            return [f"x{j}" for j in range(d)]
        if len(self.feature_names) != d:
            raise ValueError(f"feature_names has {len(self.feature_names)} names for {d} features")
        return [str(name) for name in self.feature_names]

    def _draw_norms(self, ax: Axes, names: list[str]) -> None:
        strengths, norms = self.path.strengths, self.path.feature_norms
        named = _entry_order(norms)[: _label_room(ax)]
        color = dict(zip(named, _COLORS, strict=False))
        self.lines_ = []
        for j, name in enumerate(names):
            look = (color[j], 1.8, 3) if j in color else (_GREY, 0.9, 2)
            style = dict(zip(("color", "lw", "zorder"), look, strict=True))
            self.lines_ += ax.plot(strengths, norms[:, j], label=name, **style)
        ax.set_ylim(0, 1.05 * norms.max(initial=0.0) or 1.0)
        _style(ax, "norm of a feature's slopes\nover all cells")
        _strength_axis(ax, strengths)
        _count_axis(ax, strengths, self.path.n_selected, "features with slopes")
        self._mark_chosen(ax)
        _label_ends(ax, {names[j]: (norms[-1, j], color[j]) for j in color})

    def _draw_losses(self, ax: Axes) -> None:
        strengths, fresh = self.path.strengths, self.path.validation_error
        self.loss_lines_ = ax.plot(strengths, self.path.error, color=_DARK, label="training")
        if fresh is not None:
            self.loss_lines_ += ax.plot(strengths, fresh, color=_RED, label="validation")
            k = int(np.argmin(fresh))
            label = f"smallest: {strengths[k]:.2g}"
            ax.plot(strengths[k], fresh[k], "o", color=_RED, ls="none", label=label)
        _style(ax, self.loss_name)
        _strength_axis(ax, strengths)
        self._mark_chosen(ax)
        _legend_beside(ax)

    def _mark_chosen(self, ax: Axes) -> None:
        if self.chosen is not None:
            label = f"fit: {self.chosen:.2g}"
            ax.axvline(self.chosen, color=_DARK, lw=1, ls="--", zorder=1, label=label)


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
    >>> from jointleaf import CVDisplay, JOPLEnRegressor  # doctest: +SKIP
    >>> CVDisplay.from_estimator(JOPLEnRegressor().fit(X, y))  # doctest: +SKIP
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
        _check_estimator(estimator)
        if estimator.cv_results_ is None:
            raise ValueError(
                f"the estimator was fitted with a fixed penalty, {estimator.penalty_!r}, so there "
                "is no cross-validation to draw: fit with penalty='auto' or L21('auto')"
            )
        chosen = estimator.setting_ or _fitted_strength(estimator)
        name = f"validation loss: {_UNITS[estimator._task]}"
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
        frame = _new_axes(self, 5.5 if again else 4.0) if ax is None else ax
        self.figure_ = frame.figure
        self.search_ax_, self.ax_ = _two_panels(frame) if again else (None, frame)
        self.lines_ = []
        for j, line in enumerate(lines):
            panel = self.search_ax_ if again and j != k else self.ax_
            self.lines_.append(_draw_line(panel, line, lw=2.2 if j == k else 1.2))
        self._mark_best(self.ax_, lines[k])
        self._finish(self.ax_, [lines[k]] if again else lines)
        if self.search_ax_ is not None:
            self._finish(self.search_ax_, lines[:k] + lines[k + 1 :])
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
        style: dict[str, Any] = {"color": _DARK, "zorder": 1}
        self.band_ = ax.fill_between(
            strengths, mean - error, mean + error, alpha=0.15, lw=0, label="± 1 std. error", **style
        )
        smallest, one_se = (float(strengths[choose(line, one_se=rule)]) for rule in (False, True))
        ax.axvline(smallest, lw=1, label=f"smallest loss: {smallest:.2g}", **style)
        ax.axvline(one_se, lw=1, ls="--", label=f"1 std. error rule: {one_se:.2g}", **style)
        chosen = self.chosen.strength if isinstance(self.chosen, Setting) else self.chosen
        k = int(np.argmin(np.abs(np.log(strengths / chosen))))
        label = f"chosen: {chosen:.2g}"
        ax.plot(chosen, mean[k], "o", ms=8, color=_RED, ls="none", zorder=5, label=label)

    def _finish(self, ax: Axes, lines: list[Table]) -> None:
        """Scale and label the axes of a panel with these lines."""
        strengths = np.concatenate([line["strength"] for line in lines])
        is_own = all(line["own_loss"].all() for line in lines if "own_loss" in line)
        _style(ax, self.loss_name if is_own else "squared error / 2\nof encoded classes")
        _strength_axis(ax, strengths)
        if "on_path" not in self.table:
            losses = np.concatenate([line["mean_loss"] for line in lines])
            # Losses of penalties far too weak may be huge, and are of no interest.
            high = min(losses.max(), 1.5 * max(line["mean_loss"][0] for line in lines))
            _log_axis(ax, "y", losses.min() / 1.15, high * 1.15)
        elif np.ptp(lines[0]["mean_selected"]) > 0:
            label = "features with slopes (mean over folds)"
            _count_axis(ax, strengths, lines[0]["mean_selected"], label)
        _legend_beside(ax)


# -- data ------------------------------------------------------------------------------------------


class _ShiftedLoss(Loss):
    """A loss of raw predictions that add to an offset, which `strength_path` does not know."""

    def __init__(self, loss: Loss, offset: NDArray) -> None:
        self._loss, self._offset = loss, offset
        self.max_curvature = loss.max_curvature

    def _raw(self, f: NDArray) -> NDArray:
        return f + self._offset.astype(f.dtype)

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        return self._loss.encode(y)

    def value(self, y: NDArray, f: NDArray, s: NDArray) -> float:
        return self._loss.value(y, self._raw(f), s)

    def gradient(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        return self._loss.gradient(y, self._raw(f), s)

    def curvature(self, y: NDArray, f: NDArray, s: NDArray) -> NDArray:
        return self._loss.curvature(y, self._raw(f), s)

    def hessian_product(self, y: NDArray, f: NDArray, s: NDArray, v: NDArray) -> NDArray:
        return self._loss.hessian_product(y, self._raw(f), s, v)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        return self._loss.best_constant(y, s) - self._offset
