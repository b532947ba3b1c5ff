"""Prediction intervals of the regressor, and prediction sets of the classifier."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.arrays import threads
from jointleaf._data.rows import read_rows
from jointleaf.estimators._checks import check_has_offset, n_rows_of, read_offset
from jointleaf.estimators._docs import CALIBRATE, described
from jointleaf.estimators._fitted import Fitted, read_known_rows

if TYPE_CHECKING:
    from typing_extensions import Self

    from jointleaf._core.losses import Loss
    from jointleaf._data.rows import Rows
    from jointleaf._fit.calibration import Calibration
    from jointleaf._fit.quantiles import JointQuantiles


class _Calibrated(Fitted):
    """What intervals and sets share: an estimator that knows how far targets are from it."""

    calibration_: Calibration | None

    def _calibrate(self, rows: Rows) -> Self:
        from jointleaf._fit.calibration import Calibration, HeldOut

        predictions = self._answers(rows.X, rows.offset)
        numbers = rows.y if predictions.ndim == 1 else np.maximum(rows.y, 0)
        fresh = HeldOut(rows.X, numbers, predictions, rows.s, len(rows))
        if predictions.ndim == 1:
            fresh = replace(fresh, deviations=self._loss.deviation(predictions))
        self.calibration_ = Calibration.of_fresh(fresh, self.calibration_)
        return self

    def _answers(self, matrix: NDArray, offset: NDArray | None = None) -> NDArray:
        """Return predictions (n,), or probabilities (n, K), of rows as the fit sees them."""
        raw = self.cell_model_.predict(matrix, threads(self.n_jobs), self.device)
        return self._loss.link(raw if offset is None or raw.ndim == 2 else raw + offset)

    def _known_calibration(self, purpose: str) -> Calibration:
        check_is_fitted(self)
        if self.calibration_ is None:
            raise ValueError(
                f"{purpose} needs rows that the model has not seen, and this fit (recipe="
                f"{self.report_.recipe!r}) kept no predictions of held-out rows, as one with a "
                "given penalty, of a source, or without splits: call calibrate with fresh rows"
            )
        return self.calibration_


class PredictsIntervals(_Calibrated):
    """Intervals and quantiles of a fitted regressor."""

    loss_: Loss
    quantiles_: JointQuantiles

    @property
    def _has_levels(self) -> bool:
        """Whether the model has several quantiles that were fitted jointly."""
        check_is_fitted(self)
        return hasattr(self, "quantiles_")

    @described(calibrate=CALIBRATE)
    def calibrate(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Measure on fresh rows how far targets are from predictions.

        {calibrate}
        offset, exposure : array-like (n,), optional
            As in ``predict``.

        Returns
        -------
        self

        Notes
        -----
        Several quantiles of one fit are shifted, every level by a residual of these rows, as in
        asymmetric conformalised quantile regression (Romano, Patterson and Candes 2019). If the n
        rows and a new one are exchangeable, the target of the new one is at or below a quantile
        q >= 1/2 with a probability of at least q, and below one of q < 1/2 with at most q, for
        every n and every distribution; so intervals hold it with a probability of at least their
        coverage. They still never cross.
        """
        from jointleaf._fit.calibration import HeldOut

        check_is_fitted(self)
        shift = read_offset(self.loss_, offset, exposure, n_rows_of(X))
        check_has_offset(self.report_.has_offset, shift, "calibrate")
        rows = read_known_rows(self, X, y, sample_weight, shift)
        if not self._has_levels:
            return self._calibrate(rows)
        fresh = HeldOut(rows.X, rows.y, self._answers(rows.X), rows.s, len(rows))
        self.quantiles_ = self.quantiles_.calibrated(fresh)
        return self

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float = 0.9,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Predict intervals that hold the target with a given probability.

        They reach from the quantile (1 - coverage) / 2 of `predict_quantiles` to the quantile
        (1 + coverage) / 2.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        coverage : float in (0, 1)
        offset, exposure : array-like (n,), optional
            As in ``predict``.

        Returns
        -------
        array (n, 2)
            Lower and upper ends; infinite, with a warning, where there are fewer than
            2 / (1 - coverage) - 1 rows to calibrate on.

        Notes
        -----
        After `calibrate` with n fresh rows, P(target in interval) >= coverage for every n and every
        distribution, if these rows and the new one are exchangeable (for example drawn
        independently from one distribution). The probability is over both: it holds on average over
        all rows, not for every x.

        Without `calibrate` residuals are those of the validation rows of the fit, by models that
        were fitted to the other rows (cross-conformal prediction). That has no exact guarantee:
        settings and blend were chosen on these rows, and the model itself has seen more rows than
        those that were validated, so that its errors are smaller: residuals are multiplied by
        (m / n)^(R^2 / 8), m the rows of a fold's fit of n, a rule from other data. How often
        intervals hold the target in practice is measured in docs/intervals.md.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from jointleaf import JOPLEnRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = JOPLEnRegressor(random_state=0).fit(X[:300], y[:300])
        >>> low, high = model.predict_interval(X[300:], coverage=0.8).T
        >>> bool(0.7 < ((low <= y[300:]) & (y[300:] <= high)).mean() < 0.9)
        True
        """
        from jointleaf._fit.calibration import interval_levels

        levels = interval_levels(coverage)
        shift = self._shift(X, offset, exposure)
        return self._quantiles(X, levels, shift, f"coverage={coverage}")

    def predict_quantiles(
        self,
        X: ArrayLike,
        quantiles: ArrayLike,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Predict quantiles of the target, which never cross.

        No model is fitted for a level: the quantile q is f(x) + w(x) r_q, where f(x) is the
        prediction, whatever the loss was, w(x) > 0 the width of the row and r_q a quantile of the
        residuals of rows that the model has not seen, divided by their widths. Widths are equal (of
        counts and amounts, whose variance has the power p of the mean, f(x)^(p/2)), or
        depend on the row if held-out rows have shown that this is better; the shape of the
        distribution is the same for all rows. After a fit by ``loss="absolute_error"``, of the
        median, quantiles are about as good as those of a fit for each by ``loss="quantile"``, which
        may cross (measured in docs/losses.md).

        Of n residuals in rising order r_q is that of rank ceil((n + 1) q), and for q < 1/2 that of
        rank floor((n + 1) q), so that after `calibrate` the target is at or below a quantile q >=
        1/2 with a probability of at least q, and below one of q < 1/2 with at most q. Residuals of
        the held-out rows of the fit are smaller by the factor that `predict_interval` tells of;
        more than 1,000 residuals are thinned out, and ranks rounded away from the middle. Targets
        that cannot be negative ("poisson", "gamma", "tweedie") have no negative quantiles, and
        those of counts below the middle are at most those of a Poisson distribution with mean f(x).

        After a fit by ``loss="quantile"`` with a list of levels these are the ones that there are:
        they were fitted jointly, as distances f(x) + sum_j b_j(x) v_jk from a median f(x) with
        functions b_j >= 0 of the row and values v_jk that rise with the level (docs/intervals.md).

        Parameters
        ----------
        X : array-like or data frame (n, d)
        quantiles : array-like (Q,) of numbers in (0, 1)
        offset, exposure : array-like (n,), optional
            As in ``predict``.

        Returns
        -------
        array (n, Q)
            In the order of `quantiles`; infinite, with a warning, where there are too few rows to
            calibrate on.
        """
        from jointleaf._fit.calibration import check_level

        levels = np.atleast_1d(np.asarray(quantiles))
        if levels.ndim != 1 or not len(levels):
            raise ValueError(f"quantiles={quantiles!r} must be a list of numbers between 0 and 1")
        levels = np.array([check_level("quantiles", level) for level in levels.tolist()])
        shift = self._shift(X, offset, exposure)
        return self._quantiles(X, levels, shift, f"quantiles={levels.tolist()}")

    def _shift(
        self, X: ArrayLike, offset: ArrayLike | None, exposure: ArrayLike | None
    ) -> NDArray[np.float64] | None:
        check_is_fitted(self)
        return read_offset(self.loss_, offset, exposure, n_rows_of(X))

    def _quantiles(
        self, X: ArrayLike, levels: NDArray, shift: NDArray | None, asked: str
    ) -> NDArray[np.float64]:
        if self._has_levels:
            return self._joint_quantiles(X, levels, shift, asked)
        calibration = self._known_calibration("a prediction interval")
        matrix = read_rows(self, X)
        has_log_link = self.loss_.has_log_link
        predictions = self._answers(matrix, shift if has_log_link else None)
        quantiles = calibration.quantiles(matrix, predictions, levels, self.loss_)
        if np.isinf(quantiles).any():
            warn_of_few_rows(calibration, asked, "infinite")
        return quantiles if shift is None or has_log_link else quantiles + shift[:, None]

    def _joint_quantiles(
        self, X: ArrayLike, levels: NDArray, shift: NDArray | None, asked: str
    ) -> NDArray[np.float64]:
        """Return columns of the quantiles that were fitted jointly; those of other levels raise."""
        fitted = self.quantiles_.levels
        # Ends of intervals are differences of numbers, and no level is known to so many digits.
        is_level = np.isclose(levels[:, None], fitted, rtol=0.0, atol=1e-9)
        if not is_level.any(axis=1).all():
            raise ValueError(
                f"{asked} asks for the levels {levels.round(9).tolist()!r}, but quantile="
                f"{fitted.tolist()!r} was fitted: ask for levels of these, or fit with the others"
            )
        matrix = read_rows(self, X)
        quantiles = self.quantiles_.predict(matrix, self._answers(matrix))
        quantiles = quantiles[:, is_level.argmax(axis=1)]
        return quantiles if shift is None else quantiles + shift[:, None]


class PredictsSets(_Calibrated):
    """Sets of classes of a fitted classifier."""

    classes_: NDArray

    @described(calibrate=CALIBRATE)
    def calibrate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Measure on fresh rows how far targets are from predictions.

        {calibrate}

        Returns
        -------
        self
        """
        check_is_fitted(self)
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise ValueError(
                f"y holds the class {unknown[0]}, which the model does not know: leave these rows "
                "out, or fit with them"
            )
        return self._calibrate(read_known_rows(self, X, y, sample_weight))

    def predict_set(self, X: ArrayLike, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Predict sets of classes that hold the true one with a given probability.

        A set has all classes whose probability is at least a threshold, the same for all rows
        (Sadinle, Lei and Wasserman 2019): of all sets with that coverage they are the smallest on
        average, if the probabilities are right. The most likely class is always in.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        coverage : float in (0, 1)

        Returns
        -------
        bool array (n, K)
            Whether a class is in the set, in the order of ``classes_``; all are, with a warning,
            where there are fewer than 1 / (1 - coverage) - 1 rows to calibrate on.

        Notes
        -----
        After `calibrate` with n fresh rows, P(true class in set) >= coverage for every n and every
        distribution, if these rows and the new one are exchangeable; the probability is over both,
        and over all classes. Without `calibrate` the threshold is from the validation rows of the
        fit, which has no exact guarantee: see `JOPLEnRegressor.predict_interval`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from jointleaf import JOPLEnClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = JOPLEnClassifier(random_state=0).fit(X[::2], y[::2])
        >>> bool(model.predict_set(X[1::2], coverage=0.9)[range(75), y[1::2]].mean() > 0.85)
        True
        """
        from jointleaf._fit.calibration import check_level

        level = check_level("coverage", coverage)
        calibration = self._known_calibration("a prediction set")
        probabilities = self._answers(read_rows(self, X))
        threshold = calibration.upper(level)
        if np.isinf(threshold):
            warn_of_few_rows(calibration, f"coverage={coverage}", "all classes")
        is_in = 1.0 - probabilities <= threshold
        is_in[np.arange(len(is_in)), probabilities.argmax(axis=1)] = True
        return is_in


def warn_of_few_rows(calibration: Calibration, asked: str, result: str) -> None:
    """Warn that there are too few rows to calibrate on."""
    warnings.warn(
        f"{asked} needs more rows to calibrate on than {calibration.n_rows}, so that the result is "
        f"{result}: call calibrate with more rows, or ask for less",
        UserWarning,
        stacklevel=4,
    )
