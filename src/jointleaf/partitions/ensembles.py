"""What jointleaf knows about each tree library: one small adapter class per library.

A new library is one subclass of `EnsembleAdapter` added to `ADAPTERS`. No adapter imports
its library before it is needed: a model of a library can only be there if that library has
been imported already.
"""

from __future__ import annotations

import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

__all__ = [
    "ADAPTERS",
    "EnsembleAdapter",
    "LightGBMAdapter",
    "ScikitLearnAdapter",
    "check_fitted_model",
    "find_adapter",
    "lightgbm_threads",
    "merge_lightgbm_params",
]

#: Rows whose leaf ids are asked for at a time: bounds the libraries' temporary arrays.
_BLOCK_ROWS = 8192


class EnsembleAdapter(ABC):
    """What has to be known about the models of one tree library."""

    #: The model types, as they are named in error messages.
    supported: tuple[str, ...]
    #: Whether leaf ids can be asked for a pandas DataFrame as it is (category columns).
    reads_frames: bool = False

    @abstractmethod
    def matches(self, model: object) -> bool:
        """Tell whether `model` is of this library, without importing the library."""

    @abstractmethod
    def is_fitted(self, model: Any) -> bool:
        """Tell whether `model` has been trained."""

    @abstractmethod
    def is_classifier(self, model: Any) -> bool:
        """Tell whether `model` was trained to tell classes apart."""

    @abstractmethod
    def n_features(self, model: Any) -> int:
        """Give the number of features the model was trained on."""

    @abstractmethod
    def feature_names(self, model: Any) -> list[str] | None:
        """Give the column names the model was trained with, None where it had none."""

    @abstractmethod
    def leaf_ids(self, model: Any, X: Any, n_jobs: int | None) -> NDArray[np.int32]:
        """Give the leaf ids (n, P) of rows `X` (n, d), partitions in the order of the trees.

        ``n_jobs=None`` stands for the model's own setting.
        """

    @abstractmethod
    def split_gains(self, model: Any) -> NDArray:
        """Give the gain of each feature's splits (d,), not negative; zeros without splits."""

    @abstractmethod
    def split_features(self, model: Any) -> NDArray[np.intp]:
        """Give the features on which some tree splits, in rising order."""

    @abstractmethod
    def regrow(
        self,
        model: Any,
        X: NDArray,
        y: NDArray,
        weight: NDArray | None,
        *,
        random_state: int | None,
        n_jobs: int | None,
    ) -> Any:
        """Train a new model the way `model` was trained and leave `model` alone.

        `random_state` is used where the model would otherwise draw without a seed,
        `n_jobs` where the model has no setting of its own.
        """


def _blocks(n_rows: int) -> Iterator[slice]:
    for start in range(0, n_rows, _BLOCK_ROWS):
        yield slice(start, min(start + _BLOCK_ROWS, n_rows))


def _own_labels(model: Any, y: NDArray) -> NDArray:
    """Give class numbers the labels `model` knows, so that its class_weight keeps its meaning."""
    classes = model.classes_  # a list where the model has several outputs
    known = isinstance(classes, np.ndarray) and y.max() < len(classes)
    return classes[y] if known else y


class ScikitLearnAdapter(EnsembleAdapter):
    """Gradient boosting, random forests and extra trees of scikit-learn.

    Leaf ids come from the trees themselves (``estimators_[i].tree_.apply``) and not from
    the ensemble's ``apply``: the same single cast to float32, but no float64 or int64
    matrix of all ids, any number of threads without touching the model's ``n_jobs``, and no
    warning about feature names.
    """

    supported = (
        "GradientBoostingRegressor",
        "GradientBoostingClassifier",
        "RandomForestRegressor",
        "RandomForestClassifier",
        "ExtraTreesRegressor",
        "ExtraTreesClassifier",
    )

    def matches(self, model: object) -> bool:
        """Tell whether `model` is one of the supported ensembles or a subclass of one."""
        ensemble = sys.modules.get("sklearn.ensemble")
        return ensemble is not None and isinstance(
            model, tuple(getattr(ensemble, name) for name in self.supported)
        )

    def is_fitted(self, model: Any) -> bool:
        """Tell whether `model` has been trained."""
        return _is_fitted_estimator(model)

    def is_classifier(self, model: Any) -> bool:
        """Tell whether `model` is a classifier."""
        return is_classifier(model)

    def n_features(self, model: Any) -> int:
        """Give the number of features the model was trained on."""
        return int(model.n_features_in_)

    def feature_names(self, model: Any) -> list[str] | None:
        """Give the column names the model was trained with, None where it had none."""
        names = getattr(model, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def leaf_ids(self, model: Any, X: Any, n_jobs: int | None) -> NDArray[np.int32]:
        """Give the leaf ids (n, P); trees of one boosting round lie side by side."""
        from joblib import Parallel, delayed

        trees = [tree.tree_ for tree in np.asarray(model.estimators_, dtype=object).ravel()]
        # A value too large for float32 becomes infinite: it still compares rightly.
        with np.errstate(over="ignore"):
            X = np.ascontiguousarray(X, dtype=np.float32)
        ids = np.empty((X.shape[0], len(trees)), dtype=np.int32)

        def fill(rows: slice) -> None:
            for p, tree in enumerate(trees):
                ids[rows, p] = tree.apply(X[rows])

        if n_jobs is None:
            n_jobs = getattr(model, "n_jobs", None)
        Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(fill)(b) for b in _blocks(len(X)))
        return ids

    def split_gains(self, model: Any) -> NDArray:
        """Give the impurity-based importances (d,)."""
        return model.feature_importances_

    def split_features(self, model: Any) -> NDArray[np.intp]:
        """Give the features of all inner nodes."""
        trees = np.asarray(model.estimators_, dtype=object).ravel()
        used = [tree.tree_.feature for tree in trees]
        features = np.unique(np.concatenate(used)) if used else np.zeros(0)
        return features[features >= 0].astype(np.intp)

    def regrow(
        self,
        model: Any,
        X: NDArray,
        y: NDArray,
        weight: NDArray | None,
        *,
        random_state: int | None,
        n_jobs: int | None,
    ) -> Any:
        """Fit a clone of `model`, seeded where it has no seed of its own."""
        new = clone(model)
        ours = {"random_state": random_state, "n_jobs": n_jobs}
        theirs = new.get_params(deep=False)
        new.set_params(**{k: v for k, v in ours.items() if k in theirs and theirs[k] is None})
        if is_classifier(model):
            y = _own_labels(model, y)
        return new.fit(X, y, sample_weight=weight)


#: Other names that LightGBM knows for the parameters jointleaf sets or takes away.
_LIGHTGBM_ALIASES = {
    "bagging_fraction": ("sub_row", "subsample", "bagging"),
    "bagging_freq": ("subsample_freq",),
    "early_stopping_round": ("early_stopping_rounds", "early_stopping", "n_iter_no_change"),
    "feature_fraction": ("sub_feature", "colsample_bytree"),
    "lambda_l2": ("reg_lambda", "lambda"),
    "learning_rate": ("shrinkage_rate", "eta"),
    "min_data_in_leaf": (
        "min_data_per_leaf",
        "min_data",
        "min_child_samples",
        "min_samples_leaf",
    ),
    "num_class": ("num_classes",),
    "num_iterations": (
        "num_iteration",
        "n_iter",
        "num_tree",
        "num_trees",
        "num_round",
        "num_rounds",
        "nrounds",
        "num_boost_round",
        "n_estimators",
        "max_iter",
    ),
    "num_leaves": ("num_leaf", "max_leaves", "max_leaf", "max_leaf_nodes"),
    "num_threads": ("num_thread", "nthread", "nthreads", "n_jobs"),
    "objective": ("objective_type", "app", "application", "loss"),
    "seed": ("random_seed", "random_state"),
    "verbosity": ("verbose",),
}
_LIGHTGBM_CANONICAL = {
    alias: name for name, aliases in _LIGHTGBM_ALIASES.items() for alias in aliases
}


def merge_lightgbm_params(params: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two sets of LightGBM parameters; those of `over` win under any of their names."""
    merged = {_LIGHTGBM_CANONICAL.get(name, name): value for name, value in params.items()}
    merged.update({_LIGHTGBM_CANONICAL.get(name, name): value for name, value in over.items()})
    return merged


class LightGBMAdapter(EnsembleAdapter):
    """LightGBM models: the scikit-learn classes and the plain `Booster`.

    A model that stopped early is used up to its best round, as its own ``predict`` does.
    """

    supported = ("LGBMRegressor", "LGBMClassifier", "Booster")
    reads_frames = True

    def matches(self, model: object) -> bool:
        """Tell whether `model` is one of the supported models or a subclass of one."""
        lightgbm = sys.modules.get("lightgbm")
        return lightgbm is not None and isinstance(
            model, tuple(getattr(lightgbm, name) for name in self.supported)
        )

    def is_fitted(self, model: Any) -> bool:
        """Tell whether `model` has been trained; a Booster is once it has a tree."""
        if hasattr(model, "num_trees"):
            return model.num_trees() > 0
        return _is_fitted_estimator(model)

    def is_classifier(self, model: Any) -> bool:
        """Tell whether the objective is one of classification."""
        if not hasattr(model, "num_trees"):
            return is_classifier(model)
        return _booster_objective(model).startswith(("binary", "multiclass"))

    def n_features(self, model: Any) -> int:
        """Give the number of features the model was trained on."""
        return int(_booster(model).num_feature())

    def feature_names(self, model: Any) -> list[str] | None:
        """Give the column names the model was trained with, None where it had none."""
        names = _booster(model).feature_name()
        made_up = [f"Column_{j}" for j in range(len(names))]
        return None if names == made_up else names

    def leaf_ids(self, model: Any, X: Any, n_jobs: int | None) -> NDArray[np.int32]:
        """Give the leaf ids (n, P); trees of one boosting round lie side by side."""
        booster = _booster(model)
        if n_jobs is None and booster is not model:
            n_jobs = model.n_jobs
        threads = {} if n_jobs is None else {"num_threads": lightgbm_threads(n_jobs)}
        n_rows = X.shape[0]
        ids: NDArray[np.int32] | None = None
        for rows in _blocks(n_rows):
            block = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
            found = booster.predict(block, pred_leaf=True, **threads).reshape(len(block), -1)
            if ids is None:
                ids = np.empty((n_rows, found.shape[1]), dtype=np.int32)
            ids[rows] = found
        return np.zeros((n_rows, 0), dtype=np.int32) if ids is None else ids

    def split_gains(self, model: Any) -> NDArray:
        """Give the total gain of each feature's splits (d,)."""
        return _booster(model).feature_importance(importance_type="gain")

    def split_features(self, model: Any) -> NDArray[np.intp]:
        """Give the features that are split on at least once."""
        return np.flatnonzero(_booster(model).feature_importance(importance_type="split"))

    def regrow(
        self,
        model: Any,
        X: NDArray,
        y: NDArray,
        weight: NDArray | None,
        *,
        random_state: int | None,
        n_jobs: int | None,
    ) -> Any:
        """Train with the same parameters for as many rounds as `model` uses.

        `random_state` is not needed: LightGBM has fixed seeds of its own. Training is made
        quiet and independent of the number of threads.
        """
        booster = _booster(model)
        rounds = booster.best_iteration
        if rounds <= 0:
            rounds = booster.current_iteration()
        if booster is model:
            return _retrain_booster(model, rounds, X, y, weight, n_jobs)
        new = clone(model)
        theirs = new.get_params()
        ours: dict[str, Any] = {"n_estimators": rounds, "deterministic": True}
        if not theirs.get("force_col_wise"):
            ours["force_row_wise"] = True
        if not {"verbose", "verbosity"} & set(theirs):
            ours["verbose"] = -1
        if theirs.get("n_jobs") is None:
            ours["n_jobs"] = n_jobs
        # Nothing is left to stop early on: the rounds are those the model stopped at.
        stopping = {n for n in theirs if _LIGHTGBM_CANONICAL.get(n, n) == "early_stopping_round"}
        new.set_params(**ours, **dict.fromkeys(stopping))
        if is_classifier(model):
            y = _own_labels(model, y)
            weights = theirs.get("class_weight")
            if isinstance(weights, Mapping):  # LightGBM refuses weights of absent classes.
                present = set(y.tolist())
                new.set_params(class_weight={k: v for k, v in weights.items() if k in present})
        return new.fit(X, y, sample_weight=weight)


def _booster(model: Any) -> Any:
    return model if hasattr(model, "num_trees") else model.booster_


def lightgbm_threads(n_jobs: int) -> int:
    """Give LightGBM's number of threads for `n_jobs`; -1 is all cores this process may use."""
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))


def _booster_objective(booster: Any) -> str:
    """Give the objective's name, "" for a custom one, from the head of the model text."""
    head = booster.model_to_string(num_iteration=1).split("\nTree=", 1)[0]
    for line in head.splitlines():
        if line.startswith("objective="):
            return line.removeprefix("objective=").split(" ")[0]
    return ""


def _booster_params(booster: Any) -> dict[str, Any]:
    """Give the parameters a Booster was trained with.

    LightGBM up to 4.6 reads them back from a model file only, not from a model text.
    """
    if booster.params:
        return booster.params
    import lightgbm

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.txt"
        booster.save_model(path, num_iteration=1)
        return lightgbm.Booster(model_file=path).params


def _retrain_booster(
    booster: Any, rounds: int, X: NDArray, y: NDArray, weight: NDArray | None, n_jobs: int | None
) -> Any:
    import lightgbm

    if _booster_objective(booster) in ("", "custom", "none"):
        raise ValueError(
            "This LightGBM Booster was trained with an objective of its own, which it does "
            "not carry along, so it cannot be grown again. Hand over an LGBMRegressor or "
            "LGBMClassifier with that objective instead."
        )
    theirs = _booster_params(booster)
    ours: dict[str, Any] = {"verbosity": -1, "deterministic": True}
    if not theirs.get("force_col_wise"):
        ours["force_row_wise"] = True
    if n_jobs is not None:
        ours["num_threads"] = lightgbm_threads(n_jobs)
    params = merge_lightgbm_params(theirs, ours)
    params.pop("num_iterations", None)
    params.pop("early_stopping_round", None)
    data = lightgbm.Dataset(X, label=y, weight=weight, params=params)
    return lightgbm.train(params, data, num_boost_round=rounds)


#: One adapter per library; the first that matches is used.
ADAPTERS: list[EnsembleAdapter] = [ScikitLearnAdapter(), LightGBMAdapter()]


def _is_fitted_estimator(model: Any) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


def find_adapter(model: object) -> EnsembleAdapter:
    """Give the adapter of the library that `model` comes from, or say which are supported."""
    for adapter in ADAPTERS:
        if adapter.matches(model):
            return adapter
    names = ", ".join(name for adapter in ADAPTERS for name in adapter.supported)
    raise TypeError(
        f"model is of type {type(model).__name__}, whose cells jointleaf cannot read; "
        f"give a fitted model of one of these types: {names}."
    )


def check_fitted_model(model: object, X: ArrayLike | None = None) -> EnsembleAdapter:
    """Give the adapter of a supported, fitted model that knows the columns of `X` (n, d).

    Raises
    ------
    TypeError
        Where the type of `model` is not supported.
    sklearn.exceptions.NotFittedError
        Where it has not been fitted (a kind of ValueError).
    ValueError
        Where `X` has another number of columns, or other column names.
    """
    adapter = find_adapter(model)
    if not adapter.is_fitted(model):
        name = type(model).__name__
        raise NotFittedError(f"model is a {name} that is not fitted; call its fit first.")
    if X is None:
        return adapter
    shape = np.shape(X)
    d = adapter.n_features(model)
    if len(shape) == 2 and shape[1] != d:
        raise ValueError(
            f"X has {shape[1]} features, but the {type(model).__name__} was fitted on {d} "
            "features; give the columns it was fitted on."
        )
    names = adapter.feature_names(model)
    if names is not None and hasattr(X, "columns"):
        # LightGBM stores a blank in a name as an underscore.
        given = [str(name).replace(" ", "_") for name in X.columns]
        if given != [name.replace(" ", "_") for name in names]:
            raise ValueError(
                f"The columns of X are {given}, but the {type(model).__name__} was fitted on "
                f"{names}; give the same columns in the same order."
            )
    return adapter
