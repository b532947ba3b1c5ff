"""Validation: jointleaf and other models on the same held-out rows.

The others have their defaults where their name says no more.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._core.progress import Progress
from jointleaf.cli._scores import JOINTLEAF, measures, prediction_summary

#: Up to so many rows all are held out once, in five folds; of more, one fifth is held out.
_SMALL = 1000
_FOLDS = 5


class Options(NamedTuple):
    """What all models get; `recipe` is for jointleaf alone."""

    task: str
    seed: int
    n_jobs: int
    recipe: str = "auto"

    def choose(self, regressor: Any, classifier: Any) -> Any:
        """Return the one for the task."""
        return regressor if self.task == "regression" else classifier


class Model(NamedTuple):
    """A model to compare."""

    name: str
    package: str  # that must be installed
    make: Callable[[Any, Options], Any]  # an estimator for data frames of floats and categories


def jointleaf_estimator(X: Any, options: Options) -> Any:
    """Return the estimator that ``jointleaf fit`` fits."""
    kind = options.choose(JOPLEnRegressor, JOPLEnClassifier)
    return kind(recipe=options.recipe, random_state=options.seed, n_jobs=options.n_jobs)


def _constant(X: Any, options: Options) -> Any:
    return options.choose(DummyRegressor(), DummyClassifier(strategy="prior"))


def _linear(X: Any, options: Options) -> Any:
    """Return ridge regression, its strength by leave-one-out, or logistic regression."""
    categorical = _categorical(X)
    numbers = [name for name in X.columns if name not in categorical]
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=20)
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers), (encoder, categorical)
    )
    ridge, logistic = RidgeCV(np.logspace(-3, 4, 15)), LogisticRegression(max_iter=2000)
    return make_pipeline(columns, options.choose(ridge, logistic))


def _lightgbm(X: Any, options: Options, **parameters: Any) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    def rename(X: Any) -> Any:
        # LightGBM raises on names with brackets, quotes and commas.
        return X.set_axis([f"f{j}" for j in range(X.shape[1])], axis=1)

    kind = options.choose(LGBMRegressor, LGBMClassifier)
    model = kind(random_state=options.seed, n_jobs=options.n_jobs, verbose=-1, **parameters)
    return make_pipeline(FunctionTransformer(rename), model)


def _xgboost(X: Any, options: Options) -> Any:
    from xgboost import XGBClassifier, XGBRegressor

    categories = {name: list(X[name].cat.categories) for name in _categorical(X)}

    def encode(X: Any) -> Any:
        # Codes of the categories of training; others are missing, as XGBoost raises on them.
        X = X.copy()
        for name, known in categories.items():
            X[name] = X[name].cat.set_categories(known).cat.codes.replace(-1, np.nan)
        return X.to_numpy(dtype=float)

    kind = options.choose(XGBRegressor, XGBClassifier)
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

    kind = options.choose(CatBoostRegressor, CatBoostClassifier)
    model = kind(
        random_seed=options.seed, thread_count=options.n_jobs, verbose=False,
        allow_writing_files=False, cat_features=categorical,
    )  # fmt: skip
    return make_pipeline(FunctionTransformer(encode), model)


def _categorical(X: Any) -> list[str]:
    return X.select_dtypes("category").columns.tolist()


_COMMON = (
    Model(JOINTLEAF, "sklearn", jointleaf_estimator),
    Model("LightGBM", "lightgbm", _lightgbm),
    Model("linear model", "sklearn", _linear),
    Model("constant", "sklearn", _constant),
)
_small_lightgbm = partial(
    _lightgbm, n_estimators=100, num_leaves=4, min_child_samples=5, subsample=0.7,
    subsample_freq=1, colsample_bytree=0.7,
)  # fmt: skip
#: Models that ``jointleaf fit`` compares, where they are installed.
FIT_MODELS = (*_COMMON, Model("LightGBM, 100 trees of 4 leaves", "lightgbm", _small_lightgbm))
#: Models that ``jointleaf bench`` compares, where they are installed.
BENCH_MODELS = (
    *_COMMON,
    Model("CatBoost", "catboost", _catboost),
    Model("XGBoost", "xgboost", _xgboost),
)


def make_splits(
    y: NDArray, task: str, seed: int, n_folds: int | None = None
) -> tuple[list[tuple[NDArray, NDArray]], str]:
    """Return pairs of training and held-out rows, and a description.

    The proportions of classes, of which y (n,) holds numbers, are kept. By default these are five
    folds up to `_SMALL` rows, and the first of five with more.
    """
    n = len(y)
    k = min(n_folds or _FOLDS, n)
    kind: Any = KFold
    if task == "classification" and np.bincount(y).max() >= k:
        kind = StratifiedKFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes with fewer rows than folds
        splits = list(kind(k, shuffle=True, random_state=seed).split(np.zeros(n), y))
    if n_folds is None and n > _SMALL:
        m = len(splits[0][1])
        return splits[:1], f"on {m:,} held-out rows ({m / n:.0%})"
    return splits, f"by {k}-fold cross-validation over all {n:,} rows"


def validate(
    X: Any, y: NDArray, models: Sequence[Model], options: Options, n_folds: int | None = None
) -> dict[str, Any]:
    """Fit all models that are installed on all splits, and score them on the held-out rows.

    X is a data frame (n, d), y holds targets (n,) or numbers 0..K-1 of classes. The result has
    "method", which rows were held out; "measure", by which models are ordered; "table", one record
    for each model with its errors and the seconds of a fit, best first; "summary", of the
    predictions of jointleaf.
    """
    models = [model for model in models if importlib.util.find_spec(model.package)]
    splits, method = make_splits(y, options.task, options.seed, n_folds)
    progress = Progress(len(splits) * len(models), "validating")
    n_classes = int(y.max()) + 1 if options.task == "classification" else 0
    predictions: dict[str, list[NDArray]] = {model.name: [] for model in models}
    spent = {model.name: 0.0 for model in models}
    for train, test in splits:
        # A column without any value in the training rows of a split is an error for some models.
        has_values = X.iloc[train].notna().any().to_numpy()
        X_train, X_test = X.iloc[train].loc[:, has_values], X.iloc[test].loc[:, has_values]
        for model in models:
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of peers, on feature names and iterations
                fitted = model.make(X_train, options).fit(X_train, y[train])
                if n_classes:  # also those that the training rows of a split did not have
                    predicted = np.zeros((len(test), n_classes))
                    predicted[:, np.asarray(fitted.classes_, int)] = fitted.predict_proba(X_test)
                else:
                    predicted = np.asarray(fitted.predict(X_test), float)
            spent[model.name] += time.perf_counter() - start
            predictions[model.name].append(predicted)
            progress.step(model.name)
    truth = np.concatenate([y[test] for _, test in splits])
    joined = {name: np.concatenate(parts) for name, parts in predictions.items()}
    table = [
        {"model": name, **measures(truth, predicted), "seconds": spent[name] / len(splits)}
        for name, predicted in joined.items()
    ]
    measure = "log_loss" if n_classes else "rmse"
    return {
        "method": method,
        "measure": measure,
        "table": sorted(table, key=lambda record: record[measure]),
        "summary": prediction_summary(truth, joined[JOINTLEAF]),
    }
