"""The models that are compared: jointleaf and others, all with the same loss.

The others have default settings unless their name says otherwise.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    HuberRegressor,
    LogisticRegression,
    QuantileRegressor,
    RidgeCV,
    TweedieRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from jointleaf import JOPLEnClassifier, JOPLEnRegressor
from jointleaf._core.losses import Gamma, Loss, Poisson, Quantile, Tweedie
from jointleaf._fit.boosting import objective_params
from jointleaf.cli._preparation import Rows
from jointleaf.cli._scores import JOINTLEAF, exposure_weights, intervals_or_sets, with_exposure
from jointleaf.cli._splits import time_splits

_TIME_SPLITS = 3, 6  # of the rows of a fit, each with a sixth of them held out
_LIGHT = 1e-3  # penalty of linear models whose strength is not chosen, on standardised columns
_INDICATORS, _FEWEST_INDICATORS = 1000, 20  # of linear models: of all columns, of one at least


class Options(NamedTuple):
    """What all models get; `recipe` is for jointleaf alone."""

    task: str
    seed: int
    n_jobs: int
    recipe: str = "auto"
    loss: Loss | None = None  # of numbers; None is the squared error
    time_budget: float | None = None  # for jointleaf alone

    def choose(self, regressor: Any, classifier: Any) -> Any:
        """Return the one for the task."""
        return regressor if self.task == "regression" else classifier


class Model(NamedTuple):
    """A model to compare."""

    name: str
    package: str  # that must be installed
    make: Callable[[Any, Options], Any]  # an estimator for data frames of floats and categories
    lacks: tuple[str, ...] = ()  # losses that it does not have

    @property
    def is_installed(self) -> bool:
        """Whether the package of the model is there."""
        return importlib.util.find_spec(self.package) is not None

    def has_loss(self, loss: Loss | None) -> bool:
        """Whether the model can minimise a loss."""
        return loss is None or loss.name not in self.lacks

    def takes_part(self, loss: Loss | None) -> bool:
        """Whether the model is installed and has a loss."""
        return self.has_loss(loss) and self.is_installed

    def fit(self, rows: Rows, options: Options) -> Fitted:
        """Return the model fitted to rows."""
        estimator = self.make(rows.X, options)
        if self.name == JOINTLEAF:
            is_regressor = options.task == "regression"
            return Fitted(fit_jointleaf(estimator, rows), takes_exposure=is_regressor)
        y, weight = rows.y, rows.weight
        if rows.exposure is not None:
            # Rates with these weights have the deviance of the counts.
            factor = exposure_weights(options.loss, rows.exposure)
            y, weight = y / rows.exposure, factor if weight is None else weight * factor
        if weight is None:
            return Fitted(estimator.fit(rows.X, y))
        steps = getattr(estimator, "steps", None)
        name = f"{steps[-1][0]}__sample_weight" if steps else "sample_weight"
        return Fitted(estimator.fit(rows.X, y, **{name: weight}))


class Fitted(NamedTuple):
    """A fitted model; one that takes no exposure predicts per unit of it, or there is none."""

    estimator: Any
    takes_exposure: bool = False

    def predict(self, X: Any, exposure: NDArray | None, n_classes: int = 0) -> NDArray[np.float64]:
        """Return numbers (n,), or probabilities (n, K) of classes.

        All of these, also those that the training rows did not have.
        """
        if n_classes:
            predicted = np.zeros((len(X), n_classes))
            predicted[:, np.asarray(self.estimator.classes_, int)] = self.estimator.predict_proba(X)
            return predicted
        if self.takes_exposure:
            return self.estimator.predict(X, **with_exposure(exposure))
        rates = np.asarray(self.estimator.predict(X), float)
        return rates if exposure is None else exposure * rates

    def intervals(self, X: Any, exposure: NDArray | None, n_classes: int = 0) -> NDArray | None:
        """Return intervals (n, 2), or sets (n, K) of all classes, of jointleaf's estimators."""
        ends = intervals_or_sets(self.estimator, X, exposure)
        if ends is None or not n_classes:
            return ends
        sets = np.zeros((len(X), n_classes), bool)
        sets[:, np.asarray(self.estimator.classes_, int)] = ends
        return sets


def fit_jointleaf(estimator: Any, rows: Rows) -> Any:
    """Fit an estimator of jointleaf to rows, by their groups or in the order of time."""
    options: dict[str, Any] = with_exposure(rows.exposure)
    if rows.groups is not None and np.ptp(rows.groups) > 0:  # training rows may be of one
        options["groups"] = rows.groups
    if rows.times is not None and np.ptp(rows.times) > 0:
        estimator.set_params(cv=time_splits(rows.times, *_TIME_SPLITS))
    with warnings.catch_warnings():
        # Columns that are left out by themselves are used because --keep asks for it.
        warnings.filterwarnings("ignore", "column .* (leave it out unless|looks like)", UserWarning)
        estimator.fit(rows.X, rows.y, rows.weight, **options)
    return estimator.set_params(cv=None)  # numbers of rows say nothing in a file


def jointleaf_estimator(X: Any, options: Options) -> Any:
    """Return the estimator that ``jointleaf fit`` fits, with bars for those who look on."""
    kind = options.choose(JOPLEnRegressor, JOPLEnClassifier)
    loss = {} if options.loss is None else {"loss": options.loss}
    has_choice = options.recipe != "joint"  # for which there was time on more rows
    return kind(
        recipe=options.recipe,
        time_budget=options.time_budget if has_choice else None,
        random_state=options.seed,
        n_jobs=options.n_jobs,
        verbose=int(sys.stderr.isatty()),
        **loss,
    )


def _constant(X: Any, options: Options) -> Any:
    level = _level(options.loss)
    if level is not None:
        return DummyRegressor(strategy="quantile", quantile=level)
    return options.choose(DummyRegressor(), DummyClassifier(strategy="prior"))


def _level(loss: Loss | None) -> float | None:
    """Return the level of the quantile that a loss is of; None where it is of none."""
    if isinstance(loss, Quantile):
        return loss.quantile
    return 0.5 if loss is not None and loss.name in ("absolute_error", "huber") else None


def _linear_regressor(loss: Loss | None) -> Any:
    """Return a linear model of numbers; of the squared error, with a strength that it chooses."""
    if loss is None or loss.is_quadratic:
        return RidgeCV(np.logspace(-3, 4, 15))
    if isinstance(loss, Poisson | Gamma | Tweedie):
        return TweedieRegressor(power=loss.power, alpha=_LIGHT, link="log", max_iter=1000)
    if loss.name == "huber":
        return HuberRegressor(max_iter=1000)
    # Interior points: the simplex method takes minutes on 30,000 rows.
    return QuantileRegressor(quantile=_level(loss), alpha=_LIGHT, solver="highs-ipm")


def _linear(X: Any, options: Options) -> Any:
    """Return a linear model with the loss, or logistic regression."""
    categorical = _categorical(X)
    numbers = [name for name in X.columns if name not in categorical]
    counts = [X[name].nunique() for name in categorical]
    fitting = (
        most
        for most in range(_INDICATORS, _FEWEST_INDICATORS, -1)
        if sum(min(count, most) for count in counts) <= _INDICATORS
    )
    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=next(fitting, _FEWEST_INDICATORS)
    )
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers), (encoder, categorical)
    )
    logistic = LogisticRegression(max_iter=2000)
    return make_pipeline(columns, options.choose(_linear_regressor(options.loss), logistic))


def _lightgbm(X: Any, options: Options, **parameters: Any) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    def rename(X: Any) -> Any:
        # LightGBM raises on names with brackets, quotes and commas.
        return X.set_axis([f"f{j}" for j in range(X.shape[1])], axis=1)

    kind = options.choose(LGBMRegressor, LGBMClassifier)
    parameters |= {} if options.loss is None else objective_params(options.loss)
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
        **_xgboost_objective(options.loss),
    )  # fmt: skip
    return make_pipeline(FunctionTransformer(encode), model)


def _xgboost_objective(loss: Loss | None) -> dict[str, Any]:
    if loss is None:
        return {}
    if isinstance(loss, Quantile):
        return {"objective": "reg:quantileerror", "quantile_alpha": loss.quantile}
    if isinstance(loss, Tweedie):
        return {"objective": "reg:tweedie", "tweedie_variance_power": loss.power}
    names = {
        "squared_error": "reg:squarederror", "absolute_error": "reg:absoluteerror",
        "poisson": "count:poisson", "gamma": "reg:gamma",
    }  # fmt: skip
    return {"objective": names[loss.name]}


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
        **({} if options.loss is None else {"loss_function": _catboost_objective(options.loss)}),
    )  # fmt: skip
    return make_pipeline(FunctionTransformer(encode), model)


def _catboost_objective(loss: Loss) -> str:
    names = {
        "squared_error": "RMSE", "absolute_error": "MAE", "poisson": "Poisson",
        "huber": f"Huber:delta={getattr(loss, 'delta', None)}",
        "quantile": f"Quantile:alpha={getattr(loss, 'quantile', None)}",
        "tweedie": f"Tweedie:variance_power={getattr(loss, 'power', None)}",
    }  # fmt: skip
    return names[loss.name]


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
    *FIT_MODELS,
    Model("CatBoost", "catboost", _catboost, lacks=("gamma",)),
    Model("XGBoost", "xgboost", _xgboost, lacks=("huber",)),
)


def absent_peers(loss: Loss | None) -> str:
    """Return which models of ``jointleaf bench`` are not installed, and how to install them."""
    absent = [model for model in BENCH_MODELS if model.has_loss(loss) and not model.is_installed]
    if not absent:
        return ""
    names = " and ".join(model.name for model in absent)
    packages = " ".join(model.package for model in absent)
    verb = "is" if len(absent) == 1 else "are"
    return f"{names} {verb} not installed, and not compared: pip install {packages}"
