"""The regressor and the classifier."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.losses import AbsoluteError, Logistic, Loss, Multinomial
from jointleaf._data.columns import Columns
from jointleaf._data.rows import Rows
from jointleaf.estimators._base import BaseJOPLEn
from jointleaf.estimators._checks import (
    check_has_offset,
    check_is_number,
    check_offset_val,
    class_weights,
    n_rows_of,
    number_classes,
    read_offset,
)
from jointleaf.estimators._docs import (
    ATTRIBUTES,
    CLASS_PARAMETERS,
    LOSS_ATTRIBUTE,
    LOSS_PARAMETERS,
    MONOTONE_PARAMETERS,
    PARAMETERS,
    WARM_PARAMETERS,
    described,
)
from jointleaf.estimators._intervals import PredictsIntervals, PredictsSets
from jointleaf.estimators._params import LossParameters

if TYPE_CHECKING:
    from jointleaf._fit.calibration import HeldOut
    from jointleaf.inspection._explanation import Explanation


@described(
    parameters=PARAMETERS + MONOTONE_PARAMETERS + WARM_PARAMETERS + LOSS_PARAMETERS,
    attributes=ATTRIBUTES + LOSS_ATTRIBUTE,
)
@dataclass(eq=False, repr=False)
class JOPLEnRegressor(RegressorMixin, PredictsIntervals, LossParameters, BaseJOPLEn):
    """Piecewise linear ensemble for regression, all cells fitted jointly.

    The partitions of a tree ensemble are kept, a linear model is put into every cell, and all of
    them are fitted together as one convex problem, by default with the squared error (f - y)^2 / 2.

    {parameters}

    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import train_test_split
    >>> from jointleaf import JOPLEnRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> model = JOPLEnRegressor(random_state=0).fit(X_train, y_train)
    >>> model.score(X_test, y_test) > 0.3
    True

    Counts per unit of exposure, never negative:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, exposure = rng.uniform(-1, 1, (200, 2)), rng.uniform(0.5, 1, 200)
    >>> counts = rng.poisson(exposure * np.exp(X[:, 0]))
    >>> model = JOPLEnRegressor("lightgbm", loss="poisson", random_state=0)
    >>> rates = model.fit(X, counts, exposure=exposure).predict(X)
    >>> bool(rates.min() > 0)
    True
    """

    _target_type = "regression"

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
        offset_val: ArrayLike | None = None,
        exposure_val: ArrayLike | None = None,
    ) -> JOPLEnRegressor:
        """Grow partitions and fit the models of all their cells.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame (n, d)
            Numbers, missing values (NaN, None), and text or category columns of data frames.
            Sparse matrices are made dense, if memory allows.
            float32 is computed in float32, everything else in float64.
        y : array-like (n,)
            Not negative for the losses "poisson" and "tweedie", positive for "gamma".
        sample_weight : array-like (n,), optional
            Zero equals leaving the row out, 2 equals giving it twice.
        offset : array-like (n,), optional
            What the model adds to, on the scale of the loss: for "poisson", "gamma" and "tweedie"
            the logarithm of a factor, for others a prediction.
        exposure : array-like (n,), optional
            For "poisson", "gamma" and "tweedie": the time or amount in which y was counted, by
            which predictions are multiplied. The same as ``offset=np.log(exposure)``.
        groups : array-like (n,), optional
            Rows that belong together, such as those of one person: they are never on both sides of
            any split that the fit makes.
        X_val, y_val : array-like (m, d), (m,), optional
            Held-out rows on which everything is chosen that cross-validation would choose.
        sample_weight_val, offset_val, exposure_val : array-like (m,), optional
            Theirs.

        Returns
        -------
        self
        """
        given = self._given_loss()
        if self._levels is not None:
            _check_joint_levels(self)
        n_rows = None if X_val is None else n_rows_of(X_val)
        shift = read_offset(given, offset, exposure, n_rows_of(X))
        shift_val = read_offset(given, offset_val, exposure_val, n_rows, "_val")
        check_offset_val(shift, shift_val, X_val)
        return self._fit(
            X, y, sample_weight, groups, X_val, y_val, sample_weight_val, shift, shift_val
        )

    @property
    def _levels(self) -> NDArray[np.float64] | None:
        return _read_levels(self.loss, self.quantile)

    def _given_loss(self) -> Loss:
        # Several levels are distances from a median.
        return super()._given_loss() if self._levels is None else AbsoluteError()

    def _learn_residuals(self, rows: HeldOut | None) -> None:
        from jointleaf._fit.quantiles import JointQuantiles

        levels = self._levels
        if levels is None:
            super()._learn_residuals(rows)
            return
        if rows is None:
            raise ValueError(
                f"quantile={levels.tolist()!r}: several levels are fitted to held-out rows, and "
                "there are too few to hold out any: give more rows"
            )
        self.calibration_ = None
        self.quantiles_ = JointQuantiles.of_fit(rows, self.columns_.of_matrix(), levels)

    def _without_offset(self, y: NDArray, offset: NDArray) -> tuple[NDArray, NDArray]:
        return (y - offset, 0.0 * offset) if self._given_loss().is_of_residuals else (y, offset)

    def _find_loss(
        self, rows: Rows, columns: Columns, seed: int
    ) -> tuple[Loss, tuple[float, float] | None]:
        self.loss_, loss, units = self._scaled_loss(rows, columns, seed)
        return loss, units

    @property
    def _loss(self) -> Loss:
        return self.loss_.in_units(self.cell_model_.unit)

    def predict(
        self, X: ArrayLike, *, offset: ArrayLike | None = None, exposure: ArrayLike | None = None
    ) -> NDArray:
        """Predict targets (n,) of rows X (n, d).

        With the losses "poisson", "gamma" and "tweedie" these are means, exp(raw + offset) or
        exposure times exp(raw); without exposure they are per unit of it. After a fit with a list
        of K levels in `quantile` predictions are (n, K), a column for every level, and rise from
        column to column.
        """
        if self._has_levels:
            levels = self.quantiles_.levels
            return self.predict_quantiles(X, levels, offset=offset, exposure=exposure)
        raw = self._raw_predictions(X)
        shift = read_offset(self.loss_, offset, exposure, len(raw))
        return self.loss_.link(raw if shift is None else raw + shift)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> float:
        """Return the coefficient of determination R^2 of predictions for rows X (n, d).

        After a fit with a list of levels in `quantile` it is minus the mean of the quantile losses
        of all levels: the higher the better. A model that was fitted with exposure or an offset
        needs those of the rows.
        """
        from sklearn.metrics import r2_score

        check_is_fitted(self)
        check_is_number(y, "convert y to numbers; `jointleaf report` reads files as the fit did")
        shift = read_offset(self.loss_, offset, exposure, n_rows_of(X))
        check_has_offset(self.report_.has_offset, shift, "score")
        predictions = self.predict(X, offset=shift)
        if self._has_levels:
            return -_mean_quantile_loss(y, predictions, self.quantiles_.levels, sample_weight)
        return float(r2_score(y, predictions, sample_weight=sample_weight))

    def explain(
        self,
        X: ArrayLike,
        *,
        coverage: float | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Explanation:
        """Return what every column adds to the predictions of rows X (n, d).

        The baseline, which is the mean prediction over the training rows (4,000 of them where
        there are more), and the values of all columns add up to the prediction exactly: to
        ``predict``, with a log link to its logarithm. An `offset`, or the logarithm of the
        `exposure`, is part of the baseline of its row. Intervals beside the predictions hold the
        target with a probability of `coverage` (0.9), where the fit held out rows. Of several
        quantiles in one fit the median is explained from which all levels are distances; the level
        0.5 itself may differ from it by such a distance. See `jointleaf.inspection.explain`.
        """
        from jointleaf.inspection import explain

        return explain(self, X, coverage=coverage, offset=offset, exposure=exposure)


@described(
    parameters=PARAMETERS + MONOTONE_PARAMETERS + WARM_PARAMETERS + CLASS_PARAMETERS,
    attributes=ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class JOPLEnClassifier(ClassifierMixin, PredictsSets, BaseJOPLEn):
    """Piecewise linear ensemble for classification, all cells fitted jointly.

    Two classes use the logistic loss with one raw prediction per row, more the multinomial
    loss with one per class and row.

    {parameters}

    {attributes}
    classes_ : array (K,)
        The class labels.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.model_selection import train_test_split
    >>> from jointleaf import JOPLEnClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> model = JOPLEnClassifier(random_state=0).fit(X_train, y_train)
    >>> model.score(X_test, y_test) > 0.95
    True
    """

    _: KW_ONLY
    class_weight: Any = None

    _target_type = "classification"

    def _class_weights(self, y: NDArray, weights: NDArray) -> dict[Any, float] | None:
        """Return the weight of every class of targets (n,); None where all are 1."""
        return class_weights(self.class_weight, y, weights)

    def _encode_target(self, y: NDArray, part: str = "") -> NDArray:
        self.classes_, numbers = number_classes(y, part)
        return 2.0 * numbers - 1.0 if len(self.classes_) == 2 else numbers

    def _find_loss(
        self, rows: Rows, columns: Columns, seed: int
    ) -> tuple[Loss, tuple[float, float] | None]:
        return self._loss, None

    @property
    def _loss(self) -> Loss:
        n_classes = len(self.classes_)
        return Logistic() if n_classes == 2 else Multinomial(n_classes)

    def _encode_known(self, y: NDArray) -> NDArray:
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(f"y_val holds class {unknown[0]}, which y does not have")
        numbers = np.searchsorted(self.classes_, y).astype(float)
        return 2.0 * numbers - 1.0 if len(self.classes_) == 2 else numbers

    def decision_function(self, X: ArrayLike) -> NDArray:
        """Raw predictions: (n,) for two classes (positive means the second), else (n, K)."""
        return self._raw_predictions(X)

    def predict_proba(self, X: ArrayLike) -> NDArray:
        """Class probabilities (n, K), in the order of ``classes_``."""
        raw = self._raw_predictions(X)
        loss = Logistic() if raw.ndim == 1 else Multinomial(raw.shape[1])
        return loss.link(raw)

    def predict_log_proba(self, X: ArrayLike) -> NDArray:
        """Logarithms of the class probabilities (n, K), accurate also where these are tiny."""
        raw = self._raw_predictions(X)
        if raw.ndim == 1:
            return np.stack([log_expit(-raw), log_expit(raw)], axis=1)
        return log_softmax(raw, axis=1)

    def predict(self, X: ArrayLike) -> NDArray:
        """Predict the class labels (n,) of rows X (n, d)."""
        check_is_fitted(self)
        raw = self._raw_predictions(X)
        numbers = (raw > 0).astype(int) if raw.ndim == 1 else raw.argmax(axis=1)
        return self.classes_[numbers]


# -- several levels of quantiles in one fit -------------------------------------------------------


def _read_levels(loss: Any, quantile: Any) -> NDArray[np.float64] | None:
    """Return the rising levels (K,) that a fit shall have; None where it has one or none."""
    from jointleaf._fit.calibration import check_level
    from jointleaf._fit.quantiles import MOST_LEVELS

    if not (isinstance(loss, str) and loss == "quantile") or not np.ndim(quantile):
        return None
    given = np.asarray(quantile)
    text = f"quantile={given.tolist()!r}"
    if given.ndim != 1 or not len(given):
        raise ValueError(f"{text} must be a level, or a list of levels such as [0.1, 0.5, 0.9]")
    if len(given) > MOST_LEVELS:
        raise ValueError(
            f"quantile has {len(given)} levels, more than {MOST_LEVELS}: leave some of them out"
        )
    levels = np.array([check_level("quantile", level) for level in given.tolist()])
    if (np.diff(levels) <= 0).any():
        raise ValueError(
            f"{text} must rise: give every level once, the smallest first, as in "
            f"{np.unique(levels).tolist()!r}"
        )
    return levels


def _check_joint_levels(estimator: Any) -> None:
    """Raise for parameters with which several levels cannot be fitted, before any work is done."""
    if not isinstance(estimator.penalty, str) and not estimator.penalty.is_auto:
        reason = (
            f"penalty={estimator.penalty!r}, which holds out no rows to see residuals of: use "
            "'auto', or a strength of 'auto'"
        )
    elif estimator.monotonic_cst is not None:
        reason = (
            f"monotonic_cst={estimator.monotonic_cst!r}, which distances between quantiles would "
            "not keep: leave it out, or fit one level"
        )
    elif _has_trained_trees(estimator.partitioner):
        reason = (
            "the trees of a trained model, which have seen every row: give partitioner a name such "
            "as 'lightgbm', or refine a model of one level"
        )
    else:
        return
    raise ValueError(f"several levels in quantile are not possible with {reason}")


def _has_trained_trees(partitioner: Any) -> bool:
    from jointleaf._trees.importers.base import is_ensemble
    from jointleaf.partitions import FittedEnsemble

    members = partitioner if isinstance(partitioner, list | tuple) else [partitioner]
    return any(is_ensemble(member) or isinstance(member, FittedEnsemble) for member in members)


def _mean_quantile_loss(
    y: ArrayLike, quantiles: NDArray, levels: NDArray, sample_weight: ArrayLike | None
) -> float:
    """Return the mean of the quantile losses of all levels, of predictions (n, K)."""
    from sklearn.metrics import mean_pinball_loss

    losses = [
        mean_pinball_loss(y, column, alpha=level, sample_weight=sample_weight)
        for column, level in zip(quantiles.T, levels.tolist(), strict=True)
    ]
    return float(np.mean(losses))
