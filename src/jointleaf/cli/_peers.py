"""The models that jointleaf is compared with, with their defaults where their name says no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

__all__ = ["BENCH_MODELS", "FIT_MODELS", "JOINTLEAF", "Model", "Options", "jointleaf_estimator"]

JOINTLEAF = "jointleaf"


class Options(NamedTuple):
    """What all models get; `recipe` is for jointleaf alone."""

    task: str
    seed: int
    n_jobs: int
    recipe: str = "auto"

    @property
    def is_regression(self) -> bool:
        """Whether the target is a number."""
        return self.task == "regression"


class Model(NamedTuple):
    """A model to compare.

    Attributes
    ----------
    name : str
    package : str
        That must be installed.
    make : function (X, options) -> estimator
        X is a data frame of floats and categories, which the estimator takes.
    """

    name: str
    package: str
    make: Callable[[Any, Options], Any]

    def fit_predict(self, X: Any, y: NDArray, X_test: Any, options: Options) -> tuple[NDArray, Any]:
        """Return predictions (m,) and None, or probabilities (m, K) and the numbers of classes."""
        model = self.make(X, options).fit(X, y)
        if options.is_regression:
            return np.asarray(model.predict(X_test), float), None
        return np.asarray(model.predict_proba(X_test), float), np.asarray(model.classes_, int)


def jointleaf_estimator(X: Any, options: Options) -> Any:
    """Return the estimator that ``jointleaf fit`` fits."""
    from jointleaf import JOPLEnClassifier, JOPLEnRegressor

    kind = JOPLEnRegressor if options.is_regression else JOPLEnClassifier
    return kind(recipe=options.recipe, random_state=options.seed, n_jobs=options.n_jobs)


def _constant(X: Any, options: Options) -> Any:
    return DummyRegressor() if options.is_regression else DummyClassifier(strategy="prior")


def _linear(X: Any, options: Options) -> Any:
    """Return ridge regression, its strength by leave-one-out, or logistic regression."""
    categorical = _categorical(X)
    numbers = [name for name in X.columns if name not in categorical]
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=20)
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers), (encoder, categorical)
    )
    if options.is_regression:
        return make_pipeline(columns, RidgeCV(np.logspace(-3, 4, 15)))
    return make_pipeline(columns, LogisticRegression(max_iter=2000))


def _lightgbm(X: Any, options: Options, **parameters: Any) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    kind = LGBMRegressor if options.is_regression else LGBMClassifier
    model = kind(random_state=options.seed, n_jobs=options.n_jobs, verbose=-1, **parameters)
    # LightGBM raises on names with brackets, quotes and commas.
    return make_pipeline(FunctionTransformer(_numbered), model)


def _numbered(X: Any) -> Any:
    return X.set_axis([f"f{j}" for j in range(X.shape[1])], axis=1)


def _small_lightgbm(X: Any, options: Options) -> Any:
    return _lightgbm(
        X, options, n_estimators=100, num_leaves=4, min_child_samples=5, subsample=0.7,
        subsample_freq=1, colsample_bytree=0.7,
    )  # fmt: skip


def _xgboost(X: Any, options: Options) -> Any:
    from xgboost import XGBClassifier, XGBRegressor

    categories = {name: list(X[name].cat.categories) for name in _categorical(X)}

    def encode(X: Any) -> Any:
        # Codes of the categories of training; others are missing, as XGBoost raises on them.
        X = X.copy()
        for name, known in categories.items():
            X[name] = X[name].cat.set_categories(known).cat.codes.replace(-1, np.nan)
        return X.to_numpy(dtype=float)

    kind = XGBRegressor if options.is_regression else XGBClassifier
    model = kind(
        random_state=options.seed, n_jobs=options.n_jobs, enable_categorical=True,
        feature_types=["c" if name in categories else "q" for name in X.columns],
    )  # fmt: skip
    return make_pipeline(FunctionTransformer(encode), model)


def _catboost(X: Any, options: Options) -> Any:
    from catboost import CatBoostClassifier, CatBoostRegressor

    categorical = _categorical(X)

    def encode(X: Any) -> Any:
        X = X.copy()
        for name in categorical:
            X[name] = X[name].astype(object).where(X[name].notna(), "missing").astype(str)
        return X

    kind = CatBoostRegressor if options.is_regression else CatBoostClassifier
    model = kind(
        random_seed=options.seed, thread_count=options.n_jobs, verbose=False,
        allow_writing_files=False, cat_features=categorical,
    )  # fmt: skip
    return make_pipeline(FunctionTransformer(encode), model)


def _categorical(X: Any) -> list[str]:
    return [name for name in X.columns if str(X[name].dtype) == "category"]


_COMMON = (
    Model(JOINTLEAF, "sklearn", jointleaf_estimator),
    Model("LightGBM", "lightgbm", _lightgbm),
    Model("linear model", "sklearn", _linear),
    Model("constant", "sklearn", _constant),
)
#: Models that ``jointleaf fit`` compares, where they are installed.
FIT_MODELS = (*_COMMON, Model("LightGBM, 100 trees of 4 leaves", "lightgbm", _small_lightgbm))
#: Models that ``jointleaf bench`` compares, where they are installed.
BENCH_MODELS = (
    *_COMMON,
    Model("CatBoost", "catboost", _catboost),
    Model("XGBoost", "xgboost", _xgboost),
)
