"""The picture of how much columns matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.inspection import permutation_importance

from jointleaf.inspection import explain
from jointleaf.inspection._raw import raw_model
from jointleaf.plot._bars import BLUE, column_axis, height_of
from jointleaf.plot._drawing import DARK, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ImportanceDisplay"]

ImportanceKind = Literal["model", "explanation", "permutation"]
_KINDS = {
    "model": "importance in the model (shares add up to 1)",
    "explanation": "mean size of the contributions to predictions",
    "permutation": "loss of score when the column is shuffled",
}


class ImportanceDisplay:
    """How much every column matters, the most important one on top.

    Made by `from_estimator`.

    Parameters
    ----------
    importances : array (d,)
    feature_names : sequence of str, length d
    errors : array (d,), optional
        Standard deviations, drawn as thin lines.
    kind_name : str
        Label of the x axis.
    n_columns : int
        Columns that are drawn.

    Attributes
    ----------
    ax_ : Axes
    figure_ : Figure
    bars_ : BarContainer

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import Frobenius, ImportanceDisplay, JOPLEnRegressor
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> model = JOPLEnRegressor(penalty=Frobenius(0.01), random_state=0).fit(X, X[:, 1])
    >>> display = ImportanceDisplay.from_estimator(model)
    >>> display.ax_.get_yticklabels()[0].get_text()
    'x1'
    """

    def __init__(
        self,
        importances: ArrayLike,
        feature_names: Any,
        *,
        errors: NDArray | None = None,
        kind_name: str = "importance",
        n_columns: int = 15,
    ) -> None:
        self.importances = importances
        self.feature_names = feature_names
        self.errors = errors
        self.kind_name = kind_name
        self.n_columns = n_columns

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        kind: ImportanceKind | None = None,
        output: Any = None,
        n_columns: int = 15,
        ax: Axes | None = None,
        **options: Any,
    ) -> ImportanceDisplay:
        """Draw the importances of a fitted estimator.

        Parameters
        ----------
        estimator : JOPLEnRegressor or JOPLEnClassifier
        X : array-like or data frame (n, d), optional
            For all kinds but "model".
        y : array-like (n,), optional
            For "permutation"; best with rows that the model has not seen.
        kind : {"model", "explanation", "permutation"}, optional
            ``feature_importances_``, mean absolute values of `explain`, or
            `sklearn.inspection.permutation_importance`. By default the last one that the given
            X and y allow.
        output : class, optional
            Of "explanation"; by default the mean over all outputs.
        n_columns : int
        ax : Axes, optional
            See `plot`.
        **options
            Of `sklearn.inspection.permutation_importance`, for example ``n_repeats``.
        """
        if kind is None:
            kind = "model" if X is None else "explanation" if y is None else "permutation"
        if kind not in _KINDS:
            raise ValueError(f"kind={kind!r} is not known: use {', '.join(map(repr, _KINDS))}")
        if (kind != "model" and X is None) or (kind == "permutation" and y is None):
            raise ValueError(f"kind={kind!r} needs {'X and y' if kind == 'permutation' else 'X'}")
        names, errors = raw_model(estimator).names, None
        if kind == "model":
            sizes = estimator.feature_importances_
        elif kind == "explanation":
            found = explain(estimator, X)
            sizes = (found if output is None else found.output(output)).importances
            sizes = sizes.mean(axis=1) if sizes.ndim == 2 else sizes
        else:
            drop = permutation_importance(estimator, X, y, **{"random_state": 0, **options})
            sizes, errors = drop["importances_mean"], drop["importances_std"]
        display = cls(sizes, names, errors=errors, kind_name=_KINDS[kind], n_columns=n_columns)
        return display.plot(ax=ax)

    def plot(self, ax: Axes | None = None) -> ImportanceDisplay:
        """Draw.

        Parameters
        ----------
        ax : Axes, optional
            To draw in, best in a figure with ``layout="constrained"``; by default a new figure.

        Returns
        -------
        self
        """
        sizes = np.asarray(self.importances, float)
        order = np.argsort(-sizes, kind="stable")[: self.n_columns]
        self.ax_ = new_axes(type(self).__name__, height_of(len(order))) if ax is None else ax
        self.figure_ = self.ax_.figure
        errors = None if self.errors is None else np.asarray(self.errors)[order]
        line = {"ecolor": DARK, "elinewidth": 1.0}
        self.bars_ = self.ax_.barh(
            np.arange(len(order)), sizes[order], xerr=errors, height=0.62, color=BLUE, zorder=3,
            error_kw={**line, "zorder": 4},
        )  # fmt: skip
        if sizes[order].min() < 0:
            self.ax_.axvline(0.0, color=DARK, lw=0.8, zorder=2)
        column_axis(self.ax_, [str(self.feature_names[j]) for j in order], self.kind_name)
        return self
