"""LightGBM with constant leaves: as it is, and with larger trees and early stopping."""

from __future__ import annotations

import inspect
from typing import Any

from numpy.typing import NDArray

from .base import Model, hold_out, take_rows

_OPTIONS = {"random_state": 0, "n_jobs": 1, "verbose": -1}
_EARLY_STOPPING = {"n_estimators": 3000, "learning_rate": 0.05, "num_leaves": 63}
_PATIENCE = 50


class _EarlyStopping:
    """Stops on a tenth of the rows."""

    def __init__(self, model: Any, *, classes: bool) -> None:
        self.model = model
        self.classes = classes

    def fit(self, X: Any, y: NDArray) -> _EarlyStopping:
        from lightgbm import early_stopping

        fitted, held_out = hold_out(y, classes=self.classes)
        self.model.fit(
            take_rows(X, fitted),
            y[fitted],
            **self._validation(take_rows(X, held_out), y[held_out]),
            callbacks=[early_stopping(_PATIENCE, verbose=False)],
        )
        return self

    def _validation(self, X: Any, y: NDArray) -> dict[str, Any]:
        """Name the validation rows as this version of LightGBM does."""
        if "eval_X" in inspect.signature(self.model.fit).parameters:
            return {"eval_X": X, "eval_y": y}
        return {"eval_set": [(X, y)]}

    def predict(self, X: Any) -> NDArray:
        return self.model.predict(X)

    def predict_proba(self, X: Any) -> NDArray:
        return self.model.predict_proba(X)


def _regressor(**options: Any) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(**_OPTIONS, **options)


def _classifier(**options: Any) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(**_OPTIONS, **options)


MODEL = Model("lightgbm", "LightGBM", "lightgbm", _regressor, _classifier, categories=True)
EARLY_STOPPING = Model(
    "lightgbm_es",
    "LightGBM, early stopping",
    "lightgbm",
    lambda: _EarlyStopping(_regressor(**_EARLY_STOPPING), classes=False),
    lambda: _EarlyStopping(_classifier(**_EARLY_STOPPING), classes=True),
    categories=True,
)
