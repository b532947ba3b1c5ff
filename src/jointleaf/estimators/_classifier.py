"""The classifier."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.losses import Logistic, Loss, Multinomial
from jointleaf.estimators._base import BaseJOPLEn
from jointleaf.estimators._docs import describe_parameters

__all__ = ["JOPLEnClassifier"]


@describe_parameters
class JOPLEnClassifier(ClassifierMixin, BaseJOPLEn):
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

    _target_type = "classification"

    def _encode_target(self, y: NDArray) -> tuple[NDArray, Loss]:
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        n_classes = len(self.classes_)
        if n_classes < 2:
            raise ValueError(
                f"y holds one class only ({self.classes_[0]}, in rows of positive weight): "
                "at least two classes are needed"
            )
        if n_classes == 2:
            return 2.0 * numbers - 1.0, Logistic()
        return numbers.astype(float), Multinomial(n_classes)

    def _encode_known_target(self, y: NDArray) -> NDArray:
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
