"""The picture of a path of strengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.path import StrengthPath
from jointleaf.plot._drawing import (
    COLORS,
    DARK,
    GREY,
    RED,
    UNITS,
    count_axis,
    label_ends,
    label_room,
    legend_beside,
    need_matplotlib,
    new_axes,
    strength_axis,
    style_axes,
    two_panels,
)
from jointleaf.plot._following import Estimator, check_estimator, fitted_strength, follow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PathDisplay"]

_ENTERED = 0.01


class PathDisplay:
    """Slopes and losses along a path of strengths, from strong on the left to weak on the right.

    The upper panel shows the norm of every feature's slopes; the features that enter first, and
    stay, are coloured and named (at most ten), all others grey. The number of features with
    slopes is on the upper edge, training and validation loss are in the lower panel. Made by
    `from_path` or `from_estimator`.

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
    >>> import numpy as np
    >>> from jointleaf import L21, PathDisplay, strength_path
    >>> X = np.random.default_rng(0).standard_normal((200, 5))
    >>> codes = (X[:, :1] > 0).astype(int)
    >>> path = strength_path(X, codes, np.abs(X[:, 0]), penalty=L21("auto"))
    >>> display = PathDisplay.from_path(path)
    >>> len(display.lines_)
    5
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
            Of the linear features; by default those of the estimator.
        ax : Axes, optional
            See `plot`.
        **options
            Of `jointleaf.strength_path`: strengths, n_strengths, ratio, solver, tol, max_iter,
            sample_weight, n_jobs, verbose. Where no strength sets all slopes to zero
            (Frobenius), strengths are three decades on both sides of that of the fit.
        """
        need_matplotlib(cls.__name__)  # before the work
        check_estimator(estimator)
        path = follow(estimator, X, y, X_val, y_val, options)
        names = list(estimator.linear_feature_names_) if feature_names is None else feature_names
        unit, chosen = f"loss\n{UNITS[estimator._target_type]}", fitted_strength(estimator)
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
        frame = new_axes(type(self).__name__, 5.5) if ax is None else ax
        self.figure_ = frame.figure
        self.ax_, self.loss_ax_ = two_panels(frame, above=30)
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
        named = _entry_order(norms)[: label_room(ax)]
        color = dict(zip(named, COLORS, strict=False))
        self.lines_ = []
        for j, name in enumerate(names):
            look = (color[j], 1.8, 3) if j in color else (GREY, 0.9, 2)
            style = dict(zip(("color", "lw", "zorder"), look, strict=True))
            self.lines_ += ax.plot(strengths, norms[:, j], label=name, **style)
        ax.set_ylim(0, 1.05 * norms.max(initial=0.0) or 1.0)
        style_axes(ax, "norm of a feature's slopes\nover all cells")
        strength_axis(ax, strengths)
        count_axis(ax, strengths, self.path.n_selected, "features with slopes")
        self._mark_chosen(ax)
        label_ends(ax, [(norms[-1, j], names[j], color[j]) for j in color])

    def _draw_losses(self, ax: Axes) -> None:
        strengths, fresh = self.path.strengths, self.path.validation_error
        self.loss_lines_ = ax.plot(strengths, self.path.error, color=DARK, label="training")
        if fresh is not None:
            self.loss_lines_ += ax.plot(strengths, fresh, color=RED, label="validation")
            k = int(np.argmin(fresh))
            label = f"smallest: {strengths[k]:.2g}"
            ax.plot(strengths[k], fresh[k], "o", color=RED, ls="none", label=label)
        style_axes(ax, self.loss_name)
        strength_axis(ax, strengths)
        self._mark_chosen(ax)
        legend_beside(ax)

    def _mark_chosen(self, ax: Axes) -> None:
        if self.chosen is not None:
            label = f"fit: {self.chosen:.2g}"
            ax.axvline(self.chosen, color=DARK, lw=1, ls="--", zorder=1, label=label)


def _entry_order(norms: NDArray) -> NDArray[np.intp]:
    """Features that get slopes to stay, those that get them first in front; ties by the last norm.

    A feature has entered from where on its norm stays above 1 % of the largest: iterative solves
    leave tiny slopes that come and go.
    """
    is_out = norms <= _ENTERED * norms.max(initial=0.0)
    first = np.where(is_out.any(axis=0), len(norms) - is_out[::-1].argmax(axis=0), 0)
    order = np.lexsort((-norms[-1], first))
    return order[first[order] < len(norms)]
