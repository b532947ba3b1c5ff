"""The picture of a path of strengths, and the path of a fitted estimator on its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_regressor
from sklearn.utils import check_X_y

from jointleaf._core.losses import Logistic, Loss, Multinomial, SquaredError
from jointleaf._core.path import N_STRENGTHS, StrengthPath, strength_path
from jointleaf._core.penalties import Penalty
from jointleaf._core.penalties.base import on_weights
from jointleaf._data.rows import read_rows
from jointleaf._fit.component import JointSolve
from jointleaf.estimators import JOPLEnClassifier, JOPLEnRegressor
from jointleaf.plot._base import (
    COLORS,
    DARK,
    GREY,
    RED,
    Display,
    check_fitted,
    count_axis,
    feature_labels,
    label_ends,
    label_room,
    legend_beside,
    loss_unit,
    need_matplotlib,
    strength_axis,
    style_axes,
    two_panels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Estimator", "PathDisplay", "check_estimator", "fitted_strength", "follow"]

Estimator = JOPLEnRegressor | JOPLEnClassifier

_ENTERED = 0.01


@dataclass(eq=False, repr=False)
class PathDisplay(Display):
    """Slopes and losses along a path of strengths, from strong on the left to weak on the right.

    The upper panel shows the norm of every feature's slopes; the features that enter first, and
    stay, are colored and named (at most ten), all others grey. The number of features with
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

    path: StrengthPath
    feature_names: Sequence[str] | None = None
    _: KW_ONLY
    chosen: float | None = None
    loss_name: str = "mean loss"

    @classmethod
    def from_path(
        cls, path: StrengthPath, *, ax: Axes | None = None, **options: Any
    ) -> PathDisplay:
        """Draw a path of `jointleaf.strength_path`; options as of the class."""
        return cls(path, **options).plot(ax=ax)

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
        unit, chosen = f"loss\n{loss_unit(estimator)}", fitted_strength(estimator)
        return cls(path, names, chosen=chosen, loss_name=unit).plot(ax=ax)

    def _height(self) -> float:
        self._names = feature_labels(self.feature_names, self.path.feature_norms.shape[1])
        return 5.5

    def _draw(self, ax: Axes) -> None:
        self.ax_, self.loss_ax_ = two_panels(ax, above=30)
        self._draw_norms(self.ax_, self._names)
        self._draw_losses(self.loss_ax_)

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
        strengths, validation = self.path.strengths, self.path.validation_error
        self.loss_lines_ = ax.plot(strengths, self.path.error, color=DARK, label="training")
        if validation is not None:
            self.loss_lines_ += ax.plot(strengths, validation, color=RED, label="validation")
            k = int(np.argmin(validation))
            label = f"smallest: {strengths[k]:.2g}"
            ax.plot(strengths[k], validation[k], "o", color=RED, ls="none", label=label)
        style_axes(ax, self.loss_name)
        strength_axis(ax, strengths)
        self._mark_chosen(ax)
        legend_beside(ax)

    def _mark_chosen(self, ax: Axes) -> None:
        if self.chosen is not None:
            label = f"fit: {self.chosen:.2g}"
            ax.axvline(self.chosen, color=DARK, lw=1, ls="--", zorder=1, label=label)


def _entry_order(norms: NDArray) -> NDArray[np.intp]:
    """Return the features with slopes at the end, those that get them first in front.

    Ties are broken by the last norm. A feature has entered from where on its norm stays above 1 %
    of the largest: iterative solves leave tiny slopes that come and go.
    """
    is_out = norms <= _ENTERED * norms.max(initial=0.0)
    first = np.where(is_out.any(axis=0), len(norms) - is_out[::-1].argmax(axis=0), 0)
    order = np.lexsort((-norms[-1], first))
    return order[first[order] < len(norms)]


# -- the path of an estimator ------------------------------------------------------------------


def check_estimator(estimator: object) -> None:
    """Raise for what is not a fitted estimator of a single task."""
    check_fitted(estimator, Estimator, "JOPLEnRegressor or JOPLEnClassifier")


def _joint(estimator: Estimator) -> JointSolve:
    return estimator.report_.joint_or_raise("a path of strengths")


def fitted_strength(estimator: Estimator) -> float:
    """Return the strength of a fit: what `at` was or would be called with."""
    terms = _unfitted_penalty(estimator).terms
    k = next((k for k, term in enumerate(terms) if term.is_auto), 0)
    return float(_joint(estimator).penalty.terms[k].strength / terms[k].share)


def follow(
    estimator: Estimator,
    X: ArrayLike,
    y: ArrayLike,
    X_val: ArrayLike | None,
    y_val: ArrayLike | None,
    options: dict[str, Any],
) -> StrengthPath:
    """Follow the strengths of a fitted estimator's penalty, with options of `strength_path`."""
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val belong together: pass both or none")
    penalty, layout = _family(estimator), _joint(estimator).solution.layout
    settings = {"n_jobs": effective_n_jobs(estimator.n_jobs), **options}
    if on_weights(_joint(estimator).penalty).bind(layout).curvature() is not None:
        # No strength sets all slopes to zero: three decades on both sides of the fit.
        steps = np.geomspace(1e3, 1e-3, settings.pop("n_strengths", N_STRENGTHS))
        settings.setdefault("strengths", fitted_strength(estimator) * steps)
    validation = None if X_val is None else _prepared(estimator, X_val, y_val)
    return strength_path(
        *_prepared(estimator, X, y),
        penalty=penalty,
        loss=_loss(estimator),
        cells=layout.kinds,
        n_cells=layout.cells_per_partition,
        validation=validation,
        **settings,
    )


def _unfitted_penalty(estimator: Estimator) -> Penalty:
    """Return the penalty parameter; raise where it has no strength to change."""
    penalty = estimator.penalty
    if not isinstance(penalty, Penalty):
        raise ValueError(
            f"penalty={penalty!r} has no single strength on slopes to change: fit with a Penalty "
            "such as L21('auto')"
        )
    return penalty


def _family(estimator: Estimator) -> Penalty:
    """Return the penalty whose strength is to change, with biases as in the fit."""
    penalty = _unfitted_penalty(estimator)
    auto = [k for k, term in enumerate(penalty.terms) if term.is_bias_auto]
    return (
        penalty.with_bias(_joint(estimator).penalty.terms[auto[0]].bias_strength)
        if auto
        else penalty
    )


def _prepared(
    estimator: Estimator, X: ArrayLike, y: ArrayLike | None
) -> tuple[NDArray, NDArray, NDArray]:
    """Return rows, codes and targets as the fit of the estimator saw them."""
    is_regression = is_regressor(estimator)
    rows, targets = check_X_y(
        read_rows(estimator, X), y, ensure_all_finite="allow-nan", y_numeric=is_regression
    )
    model = estimator.cell_model_
    target = (estimator.encode_known_target(targets) - model.centre) / model.unit
    if is_regression:
        target = target - _joint(estimator).offset
    return model.features.transform(rows), model.partitioner.apply(rows), target


def _loss(estimator: Estimator) -> Loss:
    if not isinstance(estimator, JOPLEnClassifier):
        return SquaredError()
    n_classes = len(estimator.classes_)
    loss = Logistic() if n_classes == 2 else Multinomial(n_classes)
    return _ShiftedLoss(loss, _joint(estimator).offset)


class _ShiftedLoss(Loss):
    """A loss of what cells add to an offset, which `strength_path` does not know."""

    def __init__(self, loss: Loss, offset: NDArray) -> None:
        self._loss, self._offset = loss, offset
        self.max_curvature = loss.max_curvature

    def _raw(self, f: NDArray) -> NDArray:
        return f + self._offset.astype(f.dtype)

    def encode(self, y: ArrayLike) -> NDArray[np.float64]:
        """Encode targets."""
        return self._loss.encode(y)

    def row_loss(self, y: NDArray, f: NDArray) -> NDArray:
        """Return the loss at f + offset."""
        return self._loss.row_loss(y, self._raw(f))

    def row_gradient(self, y: NDArray, f: NDArray) -> NDArray:
        """Return its first derivative."""
        return self._loss.row_gradient(y, self._raw(f))

    def row_curvature(self, y: NDArray, f: NDArray) -> NDArray:
        """Return its second derivatives."""
        return self._loss.row_curvature(y, self._raw(f))

    def row_hessian_product(self, y: NDArray, f: NDArray, v: NDArray) -> NDArray:
        """Return its Hessian times v."""
        return self._loss.row_hessian_product(y, self._raw(f), v)

    def best_constant(self, y: NDArray, s: NDArray) -> NDArray:
        """What the cells add in the best constant model."""
        return self._loss.best_constant(y, s) - self._offset
