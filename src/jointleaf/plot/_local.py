"""The picture of the linear model around one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jointleaf.inspection._local import LocalModel, local_model
from jointleaf.plot._bars import BLUE, column_axis, height_of, label_values
from jointleaf.plot._drawing import DARK, RED, new_axes, title_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LocalModelDisplay"]


class LocalModelDisplay:
    """The slopes in force around one row, the largest on top.

    Bars are slopes times the standard deviation of the feature over the training rows, so that
    features in different units compare; the slopes themselves, in the units of the data, are
    written beside them. Made by `from_estimator`.

    Parameters
    ----------
    local : LocalModel
        Of one output, or of several with `output`.
    output : class, optional
    n_columns : int
        Linear features that are drawn.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    bars_ : BarContainer

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import Frobenius, JOPLEnRegressor, LocalModelDisplay
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> model = JOPLEnRegressor(penalty=Frobenius(0.01), random_state=0).fit(X, X[:, 1])
    >>> len(LocalModelDisplay.from_estimator(model, X[:1]).bars_)
    3
    """

    def __init__(self, local: LocalModel, *, output: Any = None, n_columns: int = 12) -> None:
        self.local = local
        self.output = output
        self.n_columns = n_columns

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        task: Any = None,
        output: Any = None,
        n_columns: int = 12,
        ax: Axes | None = None,
    ) -> LocalModelDisplay:
        """Draw the linear model of a fitted estimator around one row.

        Parameters
        ----------
        estimator : fitted estimator of jointleaf, or a Pipeline that ends in one
        X : array-like or data frame (1, d)
        task : name of a task, optional
        output : class, optional
            Needed for more than two classes.
        n_columns : int
        ax : Axes, optional
            See `plot`.
        """
        local = local_model(estimator, X, task=task)
        return cls(local, output=output, n_columns=n_columns).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> LocalModelDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            To draw in, best in a figure with ``layout="constrained"``; by default a new figure.

        Returns
        -------
        self
        """
        coef, value = self.local.of_output(self.output)
        sizes = coef * self.local.scale
        order = np.argsort(-np.abs(sizes), kind="stable")[: self.n_columns]
        self.ax_ = new_axes(type(self).__name__, height_of(len(order))) if ax is None else ax
        self.figure_ = self.ax_.figure
        shown = sizes[order]
        self.bars_ = self.ax_.barh(
            np.arange(len(order)), shown, height=0.62, zorder=3,
            color=np.where(shown >= 0, RED, BLUE),
        )  # fmt: skip
        self.ax_.axvline(0.0, color=DARK, lw=0.8, zorder=2)
        x_label = "slope times the standard deviation of the feature"
        column_axis(self.ax_, [self._label(int(j)) for j in order], x_label)
        label_values(
            self.ax_,
            [(size, size, f"{coef[j]:+.3g}") for size, j in zip(shown, order, strict=True)],
        )
        title_panel(self.ax_, f"around a prediction of {value:.4g}; slopes beside the bars")
        return self

    def _label(self, j: int) -> str:
        local = self.local
        x = local.x[j]
        if local.is_number[j]:
            return f"{local.names[j]} = {'missing' if np.isnan(x) else format(x, '.3g')}"
        return f"{local.names[j]}: {'unknown' if np.isnan(x) else 'yes' if x else 'no'}"
