"""CatBoost: as it is, and with early stopping."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .base import Model, category_columns, hold_out, take_rows

_OPTIONS = {"random_seed": 0, "thread_count": 1, "verbose": False, "allow_writing_files": False}
_EARLY_STOPPING = {"iterations": 3000, "od_type": "Iter", "od_wait": 50}


class _CatBoost:
    """Passes on which columns are categories, and a tenth of the rows for early stopping."""

    def __init__(self, model: Any, *, classes: bool, early_stopping: bool) -> None:
        self.model = model
        self.classes = classes
        self.early_stopping = early_stopping

    def fit(self, X: Any, y: NDArray) -> _CatBoost:
        categories = category_columns(X)
        if not self.early_stopping:
            self.model.fit(X, y, cat_features=categories)
            return self
        fitted, held_out = hold_out(y, classes=self.classes)
        self.model.fit(
            take_rows(X, fitted),
            y[fitted],
            cat_features=categories,
            eval_set=(take_rows(X, held_out), y[held_out]),
        )
        return self

    def predict(self, X: Any) -> NDArray:
        return self.model.predict(X)

    def predict_proba(self, X: Any) -> NDArray:
        return self.model.predict_proba(X)


def _regressor(**options: Any) -> _CatBoost:
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(**_OPTIONS, **options)
    return _CatBoost(model, classes=False, early_stopping=bool(options))


def _classifier(**options: Any) -> _CatBoost:
    from catboost import CatBoostClassifier

    model = CatBoostClassifier(**_OPTIONS, **options)
    return _CatBoost(model, classes=True, early_stopping=bool(options))


MODEL = Model("catboost", "CatBoost", "catboost", _regressor, _classifier, categories=True)
EARLY_STOPPING = Model(
    "catboost_es",
    "CatBoost, early stopping",
    "catboost",
    lambda: _regressor(**_EARLY_STOPPING),
    lambda: _classifier(**_EARLY_STOPPING),
    categories=True,
)
