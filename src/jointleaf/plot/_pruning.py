"""The picture of a pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jointleaf._fit.pruning import Pruning
from jointleaf.plot._drawing import (
    DARK,
    GREY,
    RED,
    UNITS,
    legend_beside,
    log_axis,
    new_axes,
    style_axes,
)
from jointleaf.plot._following import Estimator, check_estimator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PruningDisplay"]


class PruningDisplay:
    """Losses while a model was pruned, from all its cells on the left to few on the right.

    The training loss and, where sizes were judged by it, the validation loss at every step; the
    size that was taken is marked, and the validation loss of all cells is a thin line to compare
    with. Where the training loss falls, the strength of the penalty was changed. Made by
    `from_estimator`.

    Parameters
    ----------
    pruning : Pruning
        ``pruning_`` of an estimator that `jointleaf.prune` gave.
    loss_name : str
        Label of the losses.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    lines_ : list of Line2D
        Training loss and, where there is one, validation loss.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import Frobenius, JOPLEnRegressor
    >>> from jointleaf.plot._pruning import PruningDisplay
    >>> from jointleaf._fit.pruning import prune
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> y = np.abs(X[:, 0])
    >>> model = JOPLEnRegressor(penalty=Frobenius(0.01), random_state=0).fit(X, y)
    >>> display = PruningDisplay.from_estimator(prune(model, X, y, n_cells=20))
    >>> len(display.lines_)  # without a validation loss
    1
    """

    def __init__(self, pruning: Pruning, *, loss_name: str = "mean loss") -> None:
        self.pruning = pruning
        self.loss_name = loss_name

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: Axes | None = None) -> PruningDisplay:
        """Draw how a fitted estimator was pruned.

        Parameters
        ----------
        estimator : JOPLEnRegressor or JOPLEnClassifier
            What `jointleaf.prune` gave.
        ax : Axes, optional
            See `plot`.
        """
        check_estimator(estimator)
        if not hasattr(estimator, "pruning_"):
            raise ValueError(
                "the estimator was not pruned, there is nothing to draw: give what "
                "prune(estimator, X, y) gives"
            )
        name = f"loss\n{UNITS[estimator._target_type]}"
        return cls(estimator.pruning_, loss_name=name).plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> PruningDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            To draw in, best in a figure with ``layout="constrained"``, which leaves room for
            the legend; by default a new figure.

        Returns
        -------
        self
        """
        self.ax_ = new_axes(type(self).__name__, 3.5) if ax is None else ax
        self.figure_ = self.ax_.figure
        record, sizes = self.pruning, self.pruning.n_cells
        style: dict[str, Any] = {"lw": 1.5, "marker": "o", "ms": 2.5, "zorder": 3}
        self.lines_ = self.ax_.plot(sizes, record.train_loss, color=DARK, label="training", **style)
        judged = record.train_loss
        if record.valid_loss is not None:
            judged = record.valid_loss
            self.lines_ += self.ax_.plot(sizes, judged, color=RED, label="validation", **style)
            label = "validation, all cells"
            self.ax_.axhline(judged[0], color=GREY, lw=1, zorder=1, label=label)
        k = record.chosen
        before, after = record.n_cells_before, record.n_cells_after
        label = f"chosen: {after} of {before} cells"
        color = DARK if record.valid_loss is None else RED
        self.ax_.axvline(sizes[k], color=DARK, lw=1, ls="--", zorder=1)
        self.ax_.plot(sizes[k], judged[k], "o", ms=8, color=color, ls="none", zorder=5, label=label)
        self._finish(self.ax_)
        return self

    def _finish(self, ax: Axes) -> None:
        sizes = self.pruning.n_cells
        style_axes(ax, self.loss_name)
        margin = 1.03 if len(sizes) > 1 else 2.0
        log_axis(ax, "x", sizes.max() * margin, sizes.min() / margin)
        size = ax.yaxis.label.get_fontsize()
        ax.set_xlabel("number of cells (fewer to the right)", fontsize=size)
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
        legend_beside(ax)
