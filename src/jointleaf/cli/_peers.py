"""The models that jointleaf is compared with, each as its users would take it: with defaults."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BENCH_MODELS", "FIT_MODELS", "JOINTLEAF", "Model", "installed"]

JOINTLEAF = "jointleaf"
# The boosted trees that jointleaf's default recipe grows, with their own leaf values.
_TREES = {
    "n_estimators": 100, "num_leaves": 4, "min_child_samples": 5, "subsample": 0.7,
    "subsample_freq": 1, "colsample_bytree": 0.7,
}  # fmt: skip


class Options(NamedTuple):
    """What all models get."""

    task: str
    seed: int
    n_jobs: int


class Model(NamedTuple):
    """A model to compare.

    Attributes
    ----------
    name : str
    package : str
        That must be installed.
    fit : function (X, y, options) -> function from X to predictions
        X is a data frame of floats and categories, y floats or the numbers of classes;
        predictions are (n,), or for classes probabilities (n, K) and the numbers of the K classes.
    """

    name: str
    package: str
    fit: Callable[[Any, NDArray, Options], Callable[[Any], Any]]


def installed(models: tuple[Model, ...]) -> list[Model]:
    """Those models whose package is installed."""
    return [model for model in models if importlib.util.find_spec(model.package)]


def jointleaf_estimator(options: Options) -> Any:
    """The estimator that ``jointleaf fit`` fits."""
    from jointleaf import JOPLEnClassifier, JOPLEnRegressor

    kind = JOPLEnRegressor if options.task == "regression" else JOPLEnClassifier
    return kind(random_state=options.seed, n_jobs=options.n_jobs)


def _predictor(model: Any, options: Options, ready: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function from a data frame to predictions; `ready` makes the frame what a model takes."""
    if options.task == "regression":
        return lambda X: np.asarray(model.predict(ready(X)), float)
    return lambda X: (np.asarray(model.predict_proba(ready(X)), float), model.classes_)


def _fit_jointleaf(X: Any, y: NDArray, options: Options) -> Callable[[Any], Any]:
    model = jointleaf_estimator(options).fit(X, y)
    return _predictor(model, options, lambda X: X)


def _fit_constant(X: Any, y: NDArray, options: Options) -> Callable[[Any], Any]:
    if options.task == "regression":
        return lambda X: np.full(len(X), y.mean())
    classes, counts = np.unique(y, return_counts=True)
    return lambda X: (np.tile(counts / counts.sum(), (len(X), 1)), classes)


def _fit_linear(X: Any, y: NDArray, options: Options) -> Callable[[Any], Any]:
    """Ridge regression, its strength by leave-one-out, or logistic regression."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    is_number = np.array([str(dtype) == "float64" for dtype in X.dtypes])
    levels = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=20)
    ready = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), list(X.columns[is_number])),
        (levels, list(X.columns[~is_number])),
    )
    if options.task == "regression":
        last: Any = RidgeCV(np.logspace(-3, 4, 15))
    else:
        last = LogisticRegression(max_iter=2000)
    model = make_pipeline(ready, last).fit(X, y)
    return _predictor(model, options, lambda X: X)


def _fit_lightgbm(X: Any, y: NDArray, options: Options, **given: Any) -> Callable[[Any], Any]:
    from lightgbm import LGBMClassifier, LGBMRegressor

    kind = LGBMRegressor if options.task == "regression" else LGBMClassifier
    model = kind(random_state=options.seed, n_jobs=options.n_jobs, verbose=-1, **given)
    # LightGBM refuses names with brackets, quotes and commas.
    ready = lambda X: X.set_axis([f"f{j}" for j in range(X.shape[1])], axis=1)  # noqa: E731
    return _predictor(model.fit(ready(X), y), options, ready)


def _fit_trees(X: Any, y: NDArray, options: Options) -> Callable[[Any], Any]:
    return _fit_lightgbm(X, y, options, **_TREES)


def _fit_xgboost(X: Any, y: NDArray, options: Options) -> Callable[[Any], Any]:
    from xgboost import XGBClassifier, XGBRegressor

    levels = {c: list(X[c].cat.categories) for c in X.columns if str(X[c].dtype) == "category"}

    def ready(X: Any) -> Any:
        # Codes of the levels met in training; others are missing, as XGBoost refuses them.
        X = X.copy()
        for name, known in levels.items():
            X[name] = X[name].cat.set_categories(known).cat.codes.replace(-1, np.nan)
        return X.to_numpy(dtype=float)

    kinds = ["c" if name in levels else "q" for name in X.columns]
    kind = XGBRegressor if options.task == "regression" else XGBClassifier
    model = kind(
        random_state=options.seed, n_jobs=options.n_jobs, enable_categorical=True,
        feature_types=kinds,
    )  # fmt: skip
    return _predictor(model.fit(ready(X), y), options, ready)


def _fit_catboost(X: Any, y: NDArray, options: Options) -> Callable[[Any], Any]:
    from catboost import CatBoostClassifier, CatBoostRegressor

    texts = [name for name in X.columns if str(X[name].dtype) == "category"]

    def ready(X: Any) -> Any:
        X = X.copy()
        for name in texts:
            X[name] = X[name].astype(object).where(X[name].notna(), "missing").astype(str)
        return X

    kind = CatBoostRegressor if options.task == "regression" else CatBoostClassifier
    model = kind(
        random_seed=options.seed, thread_count=options.n_jobs, verbose=False,
        allow_writing_files=False, cat_features=texts,
    )  # fmt: skip
    return _predictor(model.fit(ready(X), y), options, ready)


_OURS = Model(JOINTLEAF, "sklearn", _fit_jointleaf)
_LIGHTGBM = Model("LightGBM", "lightgbm", _fit_lightgbm)
_LINEAR = Model("linear model", "sklearn", _fit_linear)
_CONSTANT = Model("constant", "sklearn", _fit_constant)

#: What ``jointleaf fit`` compares with.
FIT_MODELS = (
    _OURS, Model("boosted trees, not refitted", "lightgbm", _fit_trees), _LIGHTGBM, _LINEAR,
    _CONSTANT,
)  # fmt: skip
#: What ``jointleaf bench`` compares, where it is installed.
BENCH_MODELS = (
    _OURS, Model("CatBoost", "catboost", _fit_catboost), _LIGHTGBM,
    Model("XGBoost", "xgboost", _fit_xgboost), _LINEAR, _CONSTANT,
)  # fmt: skip
