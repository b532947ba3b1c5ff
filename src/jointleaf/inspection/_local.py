"""The linear model in force around one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.inspection._cells import explainer_of
from jointleaf.inspection._raw import last_step, output_number, raw_model
from jointleaf.inspection._reach import reach

__all__ = ["LocalModel", "local_model"]


@dataclass(frozen=True, repr=False)
class LocalModel:
    """The linear model that a fitted model is, around one row.

    With the linear features u of the row in the units of the data (numbers as they are, ones and
    zeros for levels and gaps), the raw prediction is ``intercept + sum of coef * u`` as long as
    no column of numbers leaves its range alone.

    Attributes
    ----------
    names : tuple of str, length m
        Of the linear features: columns of numbers, then levels ("city=Rome"), then gaps.
    coef : array (m,) or (m, K)
        Slopes. Zero where the row's value is missing, or outside the range that the linear
        models see: there the prediction does not depend on it.
    intercept : float or array (K,)
    value : float or array (K,)
        The raw prediction of the row.
    x : array (m,)
        The linear features of the row, NaN where they are missing.
    low, high : arrays (m,)
        How far each column of numbers can be moved, the others fixed, before the row enters
        another cell or a slope changes: the model holds for low < x < high. NaN for levels,
        gaps, missing values, and where cells are of a kind whose limits are not known.
    scale : array (m,)
        Standard deviations over the training rows: ``coef * scale`` are comparable. Indicators of
        one column share a scale.
    is_number : bool array (m,)
        Which linear features are columns of numbers; the others are ones and zeros.
    output_names : tuple or None

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import Frobenius, JOPLEnRegressor
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> y = np.where(X[:, 0] > 0, 3 * X[:, 1], -X[:, 1])
    >>> model = JOPLEnRegressor("lightgbm", penalty=Frobenius(1e-4), random_state=0).fit(X, y)
    >>> bool(abs(model.local_model([[1.0, 0.2]]).coef[1] - 3) < 0.5)
    True
    """

    names: tuple[str, ...]
    coef: NDArray[np.float64]
    intercept: Any
    value: Any
    x: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    scale: NDArray[np.float64]
    is_number: NDArray[np.bool_]
    output_names: tuple | None = None

    def predict(self, x: NDArray) -> Any:
        """Raw prediction of linear features x (m,) or (n, m); NaN counts as in the row."""
        u = np.where(np.isnan(x), np.nan_to_num(self.x), x)
        return self.intercept + u @ self.coef

    def of_output(self, output: Any = None) -> tuple[NDArray[np.float64], float]:
        """Slopes (m,) and prediction of one output, which is a class where there are several."""
        if self.output_names is None:
            return self.coef, float(self.value)
        k = output_number(self.output_names, output)
        return self.coef[:, k], float(self.value[k])

    def __repr__(self) -> str:
        one = self.output_names is None
        value = f", prediction {float(self.value):.4g}" if one else ""
        return f"LocalModel with {np.count_nonzero(self.coef)} slopes{value}"


def local_model(model: Any, X: Any, *, task: Any = None) -> LocalModel:
    """Give the linear model in force around a row.

    Parameters
    ----------
    model : fitted estimator of jointleaf, or a Pipeline that ends in one
    X : array-like or data frame (1, d)
        One row.
    task : name of a task
        Needed where there are several.

    Returns
    -------
    LocalModel
    """
    model, X = last_step(model, X)
    raw = raw_model(model, task)
    rows = raw.read(X)
    if len(rows) != 1:
        raise ValueError(f"X has {len(rows)} rows: give one, for example X[:1] or X.iloc[[0]]")
    fitted = raw.fitted
    if fitted is None:
        raise TypeError(f"{type(model).__name__} has no linear models in its cells, only constants")
    features = fitted.features
    u = features.plan.raw(rows.astype(np.float64))[0]
    z, codes = features.transform(rows), fitted.partitioner.apply(rows)
    scaler = features.scaler
    slopes = explainer_of(fitted).linear.slopes(z, codes)[0]  # (m, K)
    moves = ~np.isnan(u)
    if scaler.clip:
        moves &= (scaler.low <= u) & (u <= scaler.high) & (scaler.low < scaler.high)
    coef = np.where(moves[:, None], fitted.unit * slopes / scaler.scale[:, None], 0.0)
    value = np.reshape(raw.predict(rows), -1).astype(np.float64)
    intercept = value - np.nan_to_num(u) @ coef
    low, high = reach(fitted, rows, u, codes)
    if raw.outputs is None:
        parts: tuple[Any, Any, Any] = coef[:, 0], float(intercept[0]), float(value[0])
    else:
        parts = coef, intercept, value
    is_number = np.arange(len(u)) < len(features.plan.numbers)
    names, scale = features.plan.names, scaler.scale
    return LocalModel(names, *parts, u, low, high, scale, is_number, raw.outputs)
