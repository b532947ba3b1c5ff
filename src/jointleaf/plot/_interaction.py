"""The picture of interactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jointleaf.inspection._interactions import Interactions, interactions
from jointleaf.plot._bars import shortened
from jointleaf.plot._drawing import DARK, FONT, RED, new_axes, title_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["InteractionDisplay"]

_MOST_NUMBERS = 12  # columns up to which strengths are written into the map


class InteractionDisplay:
    """How strongly pairs of columns act together, as a heat map.

    Made by `from_estimator`.

    Parameters
    ----------
    interactions : Interactions
        From `jointleaf.inspection._interactions`.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    image_ : AxesImage
        The lower half of the strengths.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import Frobenius, InteractionDisplay, JOPLEnRegressor
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> y = X[:, 0] * X[:, 1]
    >>> model = JOPLEnRegressor(penalty=Frobenius(0.01), random_state=0).fit(X, y)
    >>> InteractionDisplay.from_estimator(model, X).interactions.pairs()[0][:2]
    ('x0', 'x1')
    """

    def __init__(self, interactions: Interactions) -> None:
        self.interactions = interactions

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, ax: Axes | None = None, **options: Any
    ) -> InteractionDisplay:
        """Draw the interactions in a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator of jointleaf, or a Pipeline that ends in one
        X : array-like or data frame (n, d)
        ax : Axes, optional
            See `plot`.
        **options
            Of `jointleaf.inspection._interactions`: columns, n_rows, output, task, random_state.
        """
        return cls(interactions(estimator, X, **options)).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> InteractionDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            To draw in, best in a figure with ``layout="constrained"``; by default a new figure.

        Returns
        -------
        self
        """
        from matplotlib.colors import LinearSegmentedColormap

        found = self.interactions
        c = len(found.feature_names)
        height = min(9.0, 1.8 + 0.42 * c)
        self.ax_ = new_axes(type(self).__name__, height) if ax is None else ax
        self.figure_ = self.ax_.figure
        lower = np.tril(np.ones((c, c), bool), -1)
        shown = np.ma.masked_where(~lower, found.strengths)[1:, :-1]
        colors = LinearSegmentedColormap.from_list("strength", ["#f4f1ee", RED])
        largest = float(found.strengths.max()) or 1.0
        self.image_ = self.ax_.imshow(shown, cmap=colors, vmin=0, vmax=largest)
        if c <= _MOST_NUMBERS:
            self._write(shown, largest)
        names = [shortened(name) for name in found.feature_names]
        self.ax_.set_yticks(np.arange(c - 1), names[1:], fontsize=FONT)
        self.ax_.set_xticks(np.arange(c - 1), names[:-1], fontsize=FONT, rotation=45, ha="right")
        self.ax_.tick_params(length=0)
        self.ax_.spines[:].set_visible(False)
        bar = self.figure_.colorbar(self.image_, ax=self.ax_, shrink=0.8, pad=0.02)
        bar.ax.tick_params(labelsize=FONT)
        bar.outline.set_visible(False)
        bar.set_label("strength, in units of the prediction", fontsize=FONT)
        title_panel(self.ax_, f"spread of the predictions: {found.spread:.3g}")
        return self

    def _write(self, shown: np.ma.MaskedArray, largest: float) -> None:
        for row, column in np.argwhere(~np.ma.getmaskarray(shown)):
            value = float(shown[row, column])
            color = "white" if value > 0.6 * largest else DARK
            self.ax_.text(
                column, row, f"{value:.2g}", ha="center", va="center", fontsize=FONT - 1,
                color=color,
            )  # fmt: skip
