"""CatBoost models: the scikit-learn classes and the plain `CatBoost`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import threads
from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees, TrainingRows, flatten
from jointleaf._trees.importers.base import EnsembleAdapter, ParamAliases
from jointleaf._trees.importers.catboost_trees import MISSING_CODE, read_trees

#: Ways to set how much CatBoost prints, of which it takes one at a time.
_PRINTING = {"logging_level", "verbose", "verbose_eval", "silent", "metric_period"}
#: Names of CatBoost's parameters.
CATBOOST_PARAMS = ParamAliases(
    {
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
    },
    exclusive=_PRINTING,
)
#: Settings of a model that are not about how its trees grow on the rows of a fold.
_NOT_REGROWN = _PRINTING | {
    *("best_model_min_trees", "early_stopping_rounds", "eval_fraction", "use_best_model"),
    *("od_pval", "od_type", "od_wait"),
    *("cat_features", "embedding_features", "text_features"),
    *("save_snapshot", "snapshot_file", "snapshot_interval", "train_dir"),
}
_CLASS_LOSSES = {
    *("CrossEntropy", "Focal", "Logloss", "MultiClass", "MultiClassOneVsAll"),
    *("MultiCrossEntropy", "MultiLogloss"),
}
_NOTHING_TO_SPLIT = "All features are either constant or ignored"


class NoTrees:
    """Stands for a CatBoost model where CatBoost does not train: there is nothing to split.

    It has what is asked of a CatBoost model here.
    """

    tree_count_ = 0

    def __init__(self, n_features: int) -> None:
        self.feature_names_ = [str(j) for j in range(n_features)]

    def is_fitted(self) -> bool:
        return True

    def get_all_params(self) -> dict[str, Any]:
        return {}

    def get_cat_feature_indices(self) -> list[int]:
        return []


class CatBoostAdapter(EnsembleAdapter):
    """CatBoost models: the scikit-learn classes and the plain `CatBoost`.

    Trees of any grow policy, with categories. A round for several classes is one tree. Values are
    compared in single precision. Text and embedding features are not supported.
    """

    library = "catboost"
    model_classes = ("CatBoostRegressor", "CatBoostClassifier", "CatBoost")
    stand_ins = (NoTrees,)

    def is_fitted(self, model: Any) -> bool:
        return bool(model.is_fitted())

    def is_classifier(self, model: Any) -> bool:
        return hasattr(model, "predict_proba") or str(_loss(model)).split(":")[0] in _CLASS_LOSSES

    def n_features(self, model: Any) -> int:
        return len(model.feature_names_)

    def feature_names(self, model: Any) -> list[str] | None:
        names = [str(name) for name in model.feature_names_]
        made_up = [str(j) for j in range(len(names))]
        return None if names == made_up else names

    def classes(self, model: Any) -> NDArray | None:
        classes = super().classes(model)
        return None if classes is None or not classes.size else classes

    def categories(self, model: Any) -> Mapping[int, NDArray | None]:
        """Return the columns declared categorical; CatBoost holds hashes of categories alone."""
        return dict.fromkeys(model.get_cat_feature_indices())

    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        if model.tree_count_ == 0:
            return flatten([], len(columns), columns.n_categories, single_precision=True)
        _check_features(model)
        trees = read_trees(model, columns)
        classes = self.classes(model)
        if classes is not None and not np.array_equal(classes, np.sort(classes)):
            trees = replace(trees, leaf_values=None)  # of classes in an order that is not ours
        return trees

    def split_gains(self, model: Any) -> NDArray:
        if model.tree_count_ == 0:
            return np.zeros(self.n_features(model))
        gains = model.get_feature_importance(type="PredictionValuesChange")
        return np.maximum(np.nan_to_num(np.asarray(gains, dtype=np.float64)), 0.0)

    def regrow(
        self, model: Any, rows: TrainingRows, *, random_state: int | None, n_jobs: int | None
    ) -> Any:
        # CatBoost has a fixed seed of its own. Where it chose the learning rate by itself, the one
        # it chose is used again.
        if isinstance(model, NoTrees):
            return model
        _check_features(model)
        params = CATBOOST_PARAMS.merge(model.get_params())
        params = {k: v for k, v in params.items() if k not in _NOT_REGROWN}
        params["iterations"] = max(1, model.tree_count_)
        params.setdefault("learning_rate", model.learning_rate_)
        params.setdefault("thread_count", threads(n_jobs))
        if np.all(rows.y == rows.y[0]):  # on which CatBoost does not train
            return NoTrees(rows.X.shape[1])
        if self.is_classifier(model):
            # A fold with two of several classes is still to be told apart the way the model does.
            params.setdefault("loss_function", _loss(model))
            rows = rows._replace(y=_labels(self.classes(model), rows.y))
            params = _for_present_classes(params, self.classes(model), rows.y)
        pool = code_pool(rows, self.feature_names(model))
        new = type(model)(**params) if hasattr(model, "score") else type(model)(params)
        return fit_quietly(new, pool)


def code_pool(rows: TrainingRows, names: list[str] | None = None) -> Any:
    """Return rows in the form of CatBoost.

    A missing code is a category of its own: CatBoost takes no missing categories.
    """
    import catboost

    X = rows.X
    table: Any = X
    categorical = rows.columns.categorical.tolist()
    if categorical:
        import pandas as pd  # CatBoost needs it as well

        columns: dict[int, Any] = {j: X[:, j] for j in range(X.shape[1])}
        for j in categorical:
            codes = np.nan_to_num(X[:, j], nan=-1.0).astype(np.int64)
            categories = [*range(int(codes.max()) + 1), MISSING_CODE]
            columns[j] = pd.Categorical.from_codes(codes % len(categories), categories)
        table = pd.DataFrame(columns)
        table.columns = names or [str(j) for j in range(X.shape[1])]
        names = None
    return catboost.Pool(
        table, label=rows.y, weight=rows.weight, cat_features=categorical, feature_names=names
    )


def fit_quietly(model: Any, pool: Any) -> Any:
    """Train `model` without files and messages; `NoTrees` where there is nothing to split."""
    import catboost

    params: dict[str, Any] = {"allow_writing_files": False}
    if not _PRINTING & set(model.get_params()):
        params["logging_level"] = "Silent"
    model.set_params(**params)
    try:
        return model.fit(pool)
    except catboost.CatBoostError as error:
        if _NOTHING_TO_SPLIT in str(error):
            return NoTrees(pool.num_col())
        raise


def _loss(model: Any) -> Any:
    """Return the loss a model was trained with, or is to be trained with."""
    if model.is_fitted():
        return model.get_all_params().get("loss_function", "")
    return CATBOOST_PARAMS.merge(model.get_params()).get("loss_function", "")


def _labels(classes: NDArray | None, y: NDArray) -> NDArray:
    """Return the labels of class numbers; CatBoost may list its labels in any order."""
    if classes is None or y.max() >= len(classes):
        return y
    return np.sort(classes)[y]


def _for_present_classes(
    params: dict[str, Any], classes: NDArray | None, y: NDArray
) -> dict[str, Any]:
    """Return the parameters without absent classes, which CatBoost does not take."""
    if classes is None:
        return params
    present = np.isin(classes, y)
    params = {k: v for k, v in params.items() if k != "classes_count"}
    labels = set(map(str, classes[present].tolist()))
    for name in ("class_names", "class_weights"):
        values = params.get(name)
        if isinstance(values, Mapping):
            params[name] = {k: v for k, v in values.items() if str(k) in labels}
        elif values is not None:  # in the order of `classes`
            params[name] = [v for v, there in zip(values, present, strict=True) if there]
    return params


def _check_features(model: Any) -> None:
    """Raise an error if the model has features that are not supported."""
    for kind in ("text", "embedding"):
        indices = getattr(model, f"get_{kind}_feature_indices")()
        if indices:
            name = model.feature_names_[indices[0]]
            raise ValueError(
                f"The {type(model).__name__} uses column {name!r} as {kind} feature, which "
                "jointleaf does not support: train it without this column"
            )
