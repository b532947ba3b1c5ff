"""The picture of prediction intervals beside the true values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._data.formatting import short_number
from jointleaf.estimators import JOPLEnRegressor
from jointleaf.plot import _base as base

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_ROWS = 400


@dataclass(eq=False, repr=False)
class IntervalDisplay(base.Display):
    """Prediction intervals of rows, by prediction, with true values inside and outside of them.

    Made by `from_estimator`. Of more than 400 rows every so many is drawn; the title counts all.

    Parameters
    ----------
    intervals : array (n, 2)
        From `JOPLEnRegressor.predict_interval`.
    predictions, y : array (n,)
        Predictions and true values.
    coverage : float
        The coverage that was asked for.

    Attributes
    ----------
    bars_ : LineCollection
        The intervals.
    inside_, outside_ : Line2D
        True values in their intervals, and the others.
    line_ : Line2D
        The predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import IntervalDisplay, JOPLEnRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> y = X[:, 0] + 0.1 * rng.standard_normal(200)
    >>> model = JOPLEnRegressor("random_trees", random_state=0).fit(X[:150], y[:150])
    >>> display = IntervalDisplay.from_estimator(model, X[150:], y[150:])
    >>> len(display.inside_.get_xdata()) + len(display.outside_.get_xdata())
    50
    """

    intervals: NDArray
    predictions: NDArray
    y: NDArray
    coverage: float

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        coverage: float = 0.9,
        ax: Axes | None = None,
        **options: Any,
    ) -> IntervalDisplay:
        """Draw the intervals of a fitted regressor for rows that it has not seen.

        Parameters
        ----------
        estimator : fitted JOPLEnRegressor
        X, y : array-like (n, d), (n,)
            Rows and true values.
        coverage : float in (0, 1)
        **options
            Of ``predict_interval`` and ``predict``: offset or exposure.
        """
        base.check_fitted(estimator, JOPLEnRegressor, "JOPLEnRegressor")
        intervals = estimator.predict_interval(X, coverage, **options)
        predictions = estimator.predict(X, **options)
        if predictions.ndim == 2:  # several quantiles: that in the middle
            levels = estimator.quantiles_.levels
            predictions = predictions[:, np.abs(levels - 0.5).argmin()]
        return cls(intervals, predictions, np.asarray(y), coverage).plot(ax=ax)

    def _height(self) -> float:
        if len(self.y) != len(self.intervals):
            raise ValueError(
                f"y has {len(self.y)} values for {len(self.intervals)} intervals: use one for each"
            )
        return 3.8

    def _draw(self, ax: Axes) -> None:
        low, high = np.asarray(self.intervals, float).T
        order = np.argsort(self.predictions, kind="stable")
        order = order[:: -(-len(order) // _MOST_ROWS)]
        places, y = np.arange(len(order)), np.asarray(self.y, float)
        is_in = (low <= y) & (y <= high)
        inside, outside = (np.flatnonzero(flag) for flag in (is_in[order], ~is_in[order]))
        width = float(np.clip(300 / len(order), 0.8, 6.0))
        self.bars_ = ax.vlines(
            places, low[order], high[order], color=base.GREY, lw=width, alpha=0.8, zorder=1,
            label=f"interval of {100 * self.coverage:g} %",
        )  # fmt: skip
        (self.line_,) = ax.plot(
            places, self.predictions[order], "_", color=base.DARK, ms=width + 2, zorder=2,
            label="prediction",
        )  # fmt: skip
        dots: dict[str, Any] = {"ls": "", "marker": "o", "ms": 3.2, "zorder": 3}
        (self.inside_,) = ax.plot(
            inside, y[order][inside], color=base.BLUE, label="true value inside", **dots
        )
        (self.outside_,) = ax.plot(
            outside, y[order][outside], color=base.RED, label="true value outside", **dots
        )
        base.style_axes(ax, "target")
        base.plain_numbers(ax, "y")
        ax.set_xlabel("rows, by prediction", fontsize=base.FONT)
        ax.margins(x=0.01)
        base.title_panel(
            ax,
            f"{100 * is_in.mean():.1f} % of {len(y):,} true values inside, "
            f"mean width {short_number(float(np.mean(high - low)), 3)}",
        )
        base.legend_beside(ax)
