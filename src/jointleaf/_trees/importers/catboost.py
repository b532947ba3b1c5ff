"""CatBoost models: the scikit-learn classes and the plain `CatBoost`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.flattening import flatten
from jointleaf._trees.importers.base import EnsembleAdapter, threads
from jointleaf._trees.importers.catboost_trees import MISSING_CODE, read_trees

__all__ = ["CatBoostAdapter", "NoTrees", "code_pool", "fit_quietly", "merge_catboost_params"]

#: Other names that CatBoost knows for its parameters.
_SYNONYMS = {
    "border_count": ("max_bin",),
    "custom_metric": ("custom_loss",),
    "depth": ("max_depth",),
    "iterations": ("n_estimators", "num_boost_round", "num_trees"),
    "l2_leaf_reg": ("reg_lambda",),
    "learning_rate": ("eta",),
    "loss_function": ("objective",),
    "max_leaves": ("num_leaves",),
    "min_data_in_leaf": ("min_child_samples",),
    "od_wait": ("early_stopping_rounds",),
    "random_seed": ("random_state",),
    "rsm": ("colsample_bylevel",),
}
_CANONICAL = {other: name for name, others in _SYNONYMS.items() for other in others}
#: Ways to say how much CatBoost prints, of which it takes one at a time.
_TALK = {"logging_level", "verbose", "verbose_eval", "silent", "metric_period"}
#: Settings of a model that are not about how its trees grow on the rows of a fold.
_NOT_REGROWN = _TALK | {
    "best_model_min_trees",
    "cat_features",
    "early_stopping_rounds",
    "embedding_features",
    "eval_fraction",
    "od_pval",
    "od_type",
    "od_wait",
    "save_snapshot",
    "snapshot_file",
    "snapshot_interval",
    "text_features",
    "train_dir",
    "use_best_model",
}
_CLASS_LOSSES = {
    "CrossEntropy",
    "Focal",
    "Logloss",
    "MultiClass",
    "MultiClassOneVsAll",
    "MultiCrossEntropy",
    "MultiLogloss",
}
_NOTHING_TO_SPLIT = "All features are either constant or ignored"


@dataclass(frozen=True)
class NoTrees:
    """Stands for a CatBoost model where CatBoost refuses to train: nothing is there to split.

    Attributes
    ----------
    n_features : int
    """

    n_features: int


def merge_catboost_params(params: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two sets of CatBoost parameters; those of `over` win under any of their names."""
    merged = {_CANONICAL.get(name, name): value for name, value in params.items()}
    if _TALK & set(over):
        merged = {name: value for name, value in merged.items() if name not in _TALK}
    merged.update({_CANONICAL.get(name, name): value for name, value in over.items()})
    return merged


class CatBoostAdapter(EnsembleAdapter):
    """CatBoost models: the scikit-learn classes and the plain `CatBoost`.

    Trees of any grow policy, with categories. A round for several classes is one tree. Values are
    compared in single precision. Text and embedding features are not supported.
    """

    supported = ("CatBoostRegressor", "CatBoostClassifier", "CatBoost")

    def matches(self, model: object) -> bool:
        """Tell whether `model` is one of the supported models or a subclass of one."""
        if isinstance(model, NoTrees):
            return True
        catboost = sys.modules.get("catboost")
        return catboost is not None and isinstance(
            model, tuple(getattr(catboost, name) for name in self.supported)
        )

    def is_fitted(self, model: Any) -> bool:
        """Tell whether `model` has been trained."""
        return isinstance(model, NoTrees) or bool(model.is_fitted())

    def is_classifier(self, model: Any) -> bool:
        """Tell whether the model is a classifier, or its loss one of classification."""
        if isinstance(model, NoTrees):
            return False
        if hasattr(model, "predict_proba"):
            return True
        return str(_loss(model)).split(":")[0] in _CLASS_LOSSES

    def n_features(self, model: Any) -> int:
        """Give the number of features the model was trained on."""
        return model.n_features if isinstance(model, NoTrees) else len(model.feature_names_)

    def feature_names(self, model: Any) -> list[str] | None:
        """Give the column names the model was trained with, None where it had none."""
        if isinstance(model, NoTrees):
            return None
        names = [str(name) for name in model.feature_names_]
        made_up = [str(j) for j in range(len(names))]
        return None if names == made_up else names

    def classes(self, model: Any) -> NDArray | None:
        """Give the class labels (K,) that a classifier knows."""
        classes = super().classes(model)
        return None if classes is None or not classes.size else classes

    def categories(self, model: Any) -> Mapping[int, NDArray | None]:
        """Give the columns declared categorical; CatBoost keeps hashes of levels, not levels."""
        return {} if isinstance(model, NoTrees) else dict.fromkeys(model.get_cat_feature_indices())

    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        """Give the trees in portable form: all the model has, as its ``predict`` uses them."""
        if isinstance(model, NoTrees) or model.tree_count_ == 0:
            return flatten([], len(columns), columns.n_categories, single_precision=True)
        _refuse_text(model)
        trees = read_trees(model, columns)
        classes = self.classes(model)
        if classes is not None and not np.array_equal(classes, np.sort(classes)):
            trees = replace(trees, leaf_values=None)  # of classes in an order that is not ours
        return trees

    def split_gains(self, model: Any) -> NDArray:
        """Give how much predictions change with each feature (d,)."""
        if isinstance(model, NoTrees) or model.tree_count_ == 0:
            return np.zeros(self.n_features(model))
        gains = model.get_feature_importance(type="PredictionValuesChange")
        return np.maximum(np.nan_to_num(np.asarray(gains, dtype=np.float64)), 0.0)

    def regrow(
        self,
        model: Any,
        X: NDArray,
        y: NDArray,
        weight: NDArray | None,
        *,
        categorical: NDArray[np.intp],
        random_state: int | None,
        n_jobs: int | None,
    ) -> Any:
        """Train with the same parameters for as many rounds as `model` has trees.

        `random_state` is not needed: CatBoost has a fixed seed of its own. Where CatBoost
        chose the learning rate by itself, the one it chose is used again.
        """
        if isinstance(model, NoTrees):
            return model
        _refuse_text(model)
        theirs = merge_catboost_params({}, model.get_params())
        params = {k: v for k, v in theirs.items() if k not in _NOT_REGROWN}
        params["iterations"] = max(1, model.tree_count_)
        params.setdefault("learning_rate", model.learning_rate_)
        params.setdefault("thread_count", threads(n_jobs))
        if np.all(y == y[0]):  # CatBoost refuses
            return NoTrees(X.shape[1])
        if self.is_classifier(model):
            # A fold with two of several classes is still to be told apart the way the model does.
            params.setdefault("loss_function", _loss(model))
            y = _own_labels(self.classes(model), y)
            params = _for_present_classes(params, self.classes(model), y)
        pool = code_pool(X, y, weight, categorical, self.feature_names(model))
        new = type(model)(**params) if hasattr(model, "score") else type(model)(params)
        return fit_quietly(new, pool)


def code_pool(
    X: NDArray,
    y: NDArray,
    weight: NDArray | None,
    categorical: Iterable[int],
    names: list[str] | None = None,
) -> Any:
    """Give CatBoost's form of a float matrix (n, d) with codes in the columns `categorical`.

    A missing code is a level of its own: CatBoost takes no missing levels.
    """
    import catboost

    table: Any = X
    chosen = sorted(int(j) for j in categorical)
    if chosen:
        import pandas as pd  # CatBoost needs it as well

        columns: dict[int, Any] = {j: X[:, j] for j in range(X.shape[1])}
        for j in chosen:
            codes = np.nan_to_num(X[:, j], nan=-1.0).astype(np.int64)
            levels = [*range(int(codes.max()) + 1), MISSING_CODE]
            columns[j] = pd.Categorical.from_codes(codes % len(levels), levels)
        table = pd.DataFrame(columns)
        table.columns = names or [str(j) for j in range(X.shape[1])]
        names = None
    return catboost.Pool(table, label=y, weight=weight, cat_features=chosen, feature_names=names)


def fit_quietly(model: Any, pool: Any) -> Any:
    """Train `model` without files and messages; `NoTrees` where there is nothing to split."""
    import catboost

    ours: dict[str, Any] = {"allow_writing_files": False}
    if not _TALK & set(model.get_params()):
        ours["logging_level"] = "Silent"
    model.set_params(**ours)
    try:
        return model.fit(pool)
    except catboost.CatBoostError as error:
        if _NOTHING_TO_SPLIT in str(error):
            return NoTrees(pool.num_col())
        raise


def _loss(model: Any) -> Any:
    """Give the loss a model was trained with, or is to be trained with."""
    if model.is_fitted():
        return model.get_all_params().get("loss_function", "")
    return merge_catboost_params({}, model.get_params()).get("loss_function", "")


def _own_labels(classes: NDArray | None, y: NDArray) -> NDArray:
    """Give class numbers the labels they stand for; CatBoost may list its labels in any order."""
    if classes is None or y.max() >= len(classes):
        return y
    return np.sort(classes)[y]


def _for_present_classes(
    params: dict[str, Any], classes: NDArray | None, y: NDArray
) -> dict[str, Any]:
    """Keep what is said about classes that `y` holds: CatBoost refuses or minds absent ones."""
    if classes is None:
        return params
    present = np.isin(classes, y)
    kept = {k: v for k, v in params.items() if k != "classes_count"}
    labels = set(map(str, classes[present].tolist()))
    for name in ("class_names", "class_weights"):
        told = kept.get(name)
        if isinstance(told, Mapping):
            kept[name] = {k: v for k, v in told.items() if str(k) in labels}
        elif told is not None:  # in the order of `classes`
            kept[name] = [v for v, there in zip(told, present, strict=True) if there]
    return kept


def _refuse_text(model: Any) -> None:
    for kind in ("text", "embedding"):
        found = getattr(model, f"get_{kind}_feature_indices")()
        if found:
            name = model.feature_names_[found[0]]
            raise ValueError(
                f"The {type(model).__name__} uses column {name!r} as {kind} feature, which "
                "jointleaf does not support; train it without this column."
            )
