"""XGBoost models: the scikit-learn classes and the plain Booster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from jointleaf._core.arrays import threads
from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees, NodeTable, TrainingRows, flatten
from jointleaf._trees.importers import base

#: Names of the parameters that jointleaf sets.
XGBOOST_PARAMS = base.ParamAliases(
    {
        "learning_rate": ("eta",),
        "min_split_loss": ("gamma",),
        "nthread": ("n_jobs",),
        "num_boost_round": ("n_estimators",),
        "reg_alpha": ("alpha",),
        "reg_lambda": ("lambda",),
        "seed": ("random_state",),
    }
)


#: Objectives whose raw predictions start from the base score itself, and from its log-odds.
_PLAIN = ("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror")
_LOGISTIC = ("binary:logistic", "reg:logistic", "binary:logitraw")


def train(params: Mapping[str, Any], rows: TrainingRows, n_rounds: int) -> Any:
    """Train a Booster on rows."""
    import xgboost

    data = xgboost.DMatrix(
        rows.X,
        rows.y,
        weight=rows.weight,
        feature_types=_feature_types(rows.columns),
        enable_categorical=True,
        nthread=int(params.get("nthread", 0)),
    )
    return xgboost.train(params, data, num_boost_round=n_rounds)


def _feature_types(columns: Columns) -> list[str]:
    """Return XGBoost's types of the columns: "q" for numbers, "c" for categories."""
    return np.where(columns.n_categories > 0, "c", "q").tolist()


class XGBoostAdapter(base.EnsembleAdapter):
    """XGBoost models: the scikit-learn classes and the plain ``xgboost.Booster``.

    A scikit-learn style model that stopped early is used up to its best round; a Booster is used
    as a whole. Both is what their own ``predict`` does. A category that the model has not met goes
    left, as in XGBoost.
    """

    library = "xgboost"
    sparse_is_missing = True
    model_classes = (
        *("XGBRegressor", "XGBClassifier", "XGBRFRegressor", "XGBRFClassifier", "XGBRanker"),
        "Booster",
    )

    @property
    def supported(self) -> tuple[str, ...]:
        """The model types, with a Booster that cannot be taken for LightGBM's."""
        return (*self.model_classes[:-1], "xgboost.Booster")

    def is_fitted(self, model: Any) -> bool:
        """Return whether `model` has been trained; a Booster is once it has a round."""
        if not _is_booster(model):
            return super().is_fitted(model)
        try:
            return model.num_boosted_rounds() > 0
        except sys.modules["xgboost"].core.XGBoostError:  # it has not seen any data
            return False

    def is_classifier(self, model: Any) -> bool:
        if not _is_booster(model):
            return is_classifier(model)
        return _config(model)["objective"]["name"].startswith(("binary:", "multi:"))

    def n_features(self, model: Any) -> int:
        return int(_booster(model).num_features())

    def feature_names(self, model: Any) -> list[str] | None:
        names = _booster(model).feature_names
        return None if names is None else list(names)

    def categories(self, model: Any) -> Mapping[int, NDArray | None]:
        """Return the columns declared categorical; their categories where a data frame had them."""
        if "c" not in (_booster(model).feature_types or ()):  # spares reading a large model
            return {}
        return _ModelJson(model).categories

    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        _check_missing(model)
        read = _ModelJson(model)
        codes = read.native_codes(columns)
        outputs, start = read.outputs()
        return flatten(
            [
                _node_table(tree, codes, None if outputs is None else outputs[k])
                for k, tree in enumerate(read.trees())
            ],
            self.n_features(model),
            columns.n_categories,
            single_precision=True,
            base=start,
        )

    def split_gains(self, model: Any) -> NDArray:
        gains = np.zeros(self.n_features(model))
        for tree in _ModelJson(model).trees():
            is_split = np.array(tree["left_children"]) >= 0
            feature = np.array(tree["split_indices"])[is_split]
            np.add.at(gains, feature, np.array(tree["loss_changes"])[is_split])
        return np.maximum(gains, 0.0)

    def regrow(
        self, model: Any, rows: TrainingRows, *, random_state: int | None, n_jobs: int | None
    ) -> Any:
        _check_missing(model)  # XGBoost has a fixed seed of its own
        if _config(_booster(model))["objective"]["name"].startswith("rank:"):
            raise ValueError(
                f"This {type(model).__name__} ranks rows within groups, which it does not hold, so "
                "that it cannot be trained again: use a fixed penalty, which needs no new trees"
            )
        if _is_booster(model):
            return _retrain_booster(model, rows, n_jobs)
        model_params = model.get_params()
        params: dict[str, Any] = {
            "feature_types": _feature_types(rows.columns),
            "enable_categorical": True,
            # Nothing is left to stop early on: the rounds are those the model stopped at.
            "early_stopping_rounds": None,
            "callbacks": None,
            **_numbered_constraints(model_params, self.feature_names(model)),
        }
        xgboost = sys.modules["xgboost"]
        if not isinstance(model, xgboost.XGBRFRegressor | xgboost.XGBRFClassifier):
            params["n_estimators"] = _n_rounds(model)
        if model_params["verbosity"] is None:
            params["verbosity"] = 0
        if model_params["n_jobs"] is None and n_jobs is not None:
            params["n_jobs"] = threads(n_jobs)
        if is_classifier(model):
            # XGBoost takes class numbers 0, 1, ... only, and `fit` has changed the objective.
            rows = rows._replace(y=rows.class_numbers)
            if rows.y.max() < 2 and str(model_params["objective"]).startswith("multi:"):
                params["objective"] = "binary:logistic"
        return base.fit_clone(model, params, rows, verbose=False)


def _is_booster(model: Any) -> bool:
    return not hasattr(model, "get_booster")


def _booster(model: Any) -> Any:
    return model if _is_booster(model) else model.get_booster()


def _config(booster: Any) -> dict[str, Any]:
    return json.loads(booster.save_config())["learner"]


def _n_rounds(model: Any) -> int:
    """Rounds that the model's own ``predict`` uses."""
    if not _is_booster(model):
        best = model.get_booster().attr("best_iteration")
        if best is not None:
            return int(best) + 1
    return int(_booster(model).num_boosted_rounds())


def _check_missing(model: Any) -> None:
    """Raise an error if a value other than NaN counts as missing: no split can single it out."""
    missing = getattr(model, "missing", None)
    if missing is not None and not np.isnan(missing):
        raise ValueError(
            f"This {type(model).__name__} counts the value {missing:g} as missing, which its trees "
            "in jointleaf cannot: put NaN in its place in X and call "
            "model.set_params(missing=numpy.nan), which leaves the trees as they are"
        )


def _numbered_constraints(params: Mapping[str, Any], names: list[str] | None) -> dict[str, Any]:
    """Return constraints by column number: the new model is trained on columns without names."""
    number = {name: j for j, name in enumerate(names or [])}
    constraints: dict[str, Any] = {}
    monotone = params.get("monotone_constraints")
    if isinstance(monotone, Mapping):
        constraints["monotone_constraints"] = tuple(monotone.get(name, 0) for name in number)
    groups = params.get("interaction_constraints")
    if groups is not None and not isinstance(groups, str):
        numbered = [[number.get(j, j) for j in group] for group in groups]
        # A list would have to hold names.
        constraints["interaction_constraints"] = json.dumps(numbered)
    return constraints


# -- reading a model ---------------------------------------------------------------------------


class _ModelJson:
    """A model in XGBoost's JSON form, which is documented and the same for all its languages."""

    def __init__(self, model: Any) -> None:
        self._name = type(model).__name__
        self._n_rounds = _n_rounds(model)
        content = json.loads(bytes(_booster(model).save_raw(raw_format="json")))
        self._learner = content["learner"]
        booster = self._learner["gradient_booster"]
        if booster["name"] not in ("gbtree", "dart"):
            raise ValueError(
                f"This {self._name} was trained with booster={booster['name']!r} and has no trees: "
                "use a model with booster='gbtree' or 'dart'"
            )
        self._model = booster.get("gbtree", booster)["model"]
        # Of dart's trees; XGBoost 3.4 keeps them beside the trees, and has no booster of that name.
        self._drops = booster.get("weight_drop", self._model.get("weight_drop"))

    def trees(self) -> Iterator[dict[str, Any]]:
        """Trees of the rounds that are used."""
        yield from self._model["trees"][: self._model["iteration_indptr"][self._n_rounds]]

    def outputs(self) -> tuple[NDArray | None, NDArray | float]:
        """Return the raw prediction to which every tree adds, (P, K), and what these start from.

        None where trees have vectors in their leaves, or the start of the objective is not among
        those listed here.
        """
        param, objective = self._learner["learner_model_param"], self._learner["objective"]["name"]
        is_plain = objective in _PLAIN or objective.startswith("multi:")
        if int(param.get("num_target", "1")) > 1 or not (is_plain or objective in _LOGISTIC):
            return None, 0.0
        start = np.array(json.loads(f"[{param['base_score'].strip('[]')}]"), dtype=float)
        if objective in _LOGISTIC:
            start = np.clip(start, 1e-7, 1 - 1e-7)  # 0 or 1 where rows had a single class
            start = np.log(start / (1 - start))
        n_outputs = max(1, int(param.get("num_class", "0")))
        groups = np.array(self._model["tree_info"], dtype=np.intp)
        outputs = np.eye(n_outputs)[groups]
        if self._drops is not None:
            outputs *= np.array(self._drops, dtype=float)[:, None]
        return outputs, start

    @property
    def categories(self) -> dict[int, NDArray | None]:
        """Columns with categories, and their categories in the order of the model's codes."""
        types = self._learner.get("feature_types", [])
        # One entry for every column of a data frame, none at all for a matrix.
        entries = self._model.get("cats", {}).get("enc", [])
        return {
            j: _categories(entries[j]) if entries else None
            for j, kind in enumerate(types)
            if kind == "c"
        }

    def native_codes(self, columns: Columns) -> dict[int, NDArray[np.int64]]:
        """Return the model's codes of our categories, then of unseen ones, column by column."""
        model_categories = self.categories
        for j, categories in model_categories.items():
            if categories is None and columns[j].categories is not None:
                self._check_codes(columns[j].label, columns[j].categories)
        return base.column_codes(self._name, columns, model_categories)

    def _check_codes(self, label: str, categories: NDArray) -> None:
        """Raise an error if the codes of these categories cannot be told.

        A model that does not hold categories was trained on a matrix, where a category is its
        own code, or on a data frame with XGBoost before 3.1: then it has names.
        """
        from_frame = bool(self._learner.get("feature_names"))
        is_range = categories.tolist() == list(range(len(categories)))
        if categories.dtype.kind in "UO" or (from_frame and not is_range):
            raise ValueError(
                f"The {self._name} does not hold the categories of column {label}: train it again "
                "on a data frame with XGBoost 3.1 or later"
            )


def _categories(entry: Mapping[str, Any]) -> NDArray:
    """Categories of one column: numbers, or text as bytes one after the other."""
    if "offsets" not in entry:
        return np.array(entry["values"], dtype=np.int64)
    text = np.array(entry["values"], dtype=np.int8).tobytes()
    if not text.isascii():
        # XGBoost 3.1 to 3.3 counts characters where it means bytes and cuts the categories of
        # pandas in wrong places (dmlc/xgboost#12371): its own predictions are wrong then.
        raise ValueError(
            "XGBoost up to 3.3 mixes up categories of text with letters beyond ASCII: rename them, "
            "or use whole numbers, and train again"
        )
    return np.array([text[a:b].decode() for a, b in pairwise(entry["offsets"])], dtype=str)


def _node_table(
    tree: Mapping[str, Any], codes: Mapping[int, NDArray[np.int64]], output: NDArray | None
) -> NodeTable:
    """Read one tree; `codes` are the model's codes of our categories, column by column.

    `output` (K,) has the weight of its values in every raw prediction.

    On numbers, rows with x < t go left; on categories the listed ones go right and all others,
    unknown ones among them, left.
    """
    left = np.array(tree["left_children"], dtype=np.int64)
    feature = np.where(left < 0, -1, np.array(tree["split_indices"], dtype=np.int64))
    with np.errstate(over="ignore"):
        split = np.array(tree["split_conditions"], dtype=np.float64).astype(np.float32)
    categories_left = {}
    nodes = zip(
        tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True
    )
    for node, begin, size in nodes:
        goes_right = tree["categories"][begin : begin + size]
        categories_left[node] = ~np.isin(codes[int(feature[node])], goes_right)
    return NodeTable(
        feature=feature,
        # x < t and x <= (the float32 before t) are the same for float32 x.
        threshold=np.nextafter(split, np.float32(-np.inf)).astype(np.float64),
        left=left,
        right=np.array(tree["right_children"], dtype=np.int64),
        missing_left=np.array(tree["default_left"], dtype=bool),
        categories_left=categories_left,
        # In leaves the "condition" is the value.
        value=None if output is None else split.astype(np.float64)[:, None] * output,
    )


# -- training a Booster again ------------------------------------------------------------------


def _retrain_booster(booster: Any, rows: TrainingRows, n_jobs: int | None) -> Any:
    params = _booster_params(booster)
    if n_jobs is not None:
        params["nthread"] = threads(n_jobs)
    if int(params.get("num_class", 0)) > 0:
        params["num_class"] = max(int(params["num_class"]), int(rows.y.max()) + 1)
    return train(params, rows, _n_rounds(booster))


def _booster_params(booster: Any) -> dict[str, Any]:
    """Return the parameters a Booster was trained with, from its configuration."""
    config = _config(booster)
    _check_has_params(booster, config)
    _check_objective(config)
    gradient_booster = config["gradient_booster"]
    trees = gradient_booster.get("gbtree", gradient_booster)
    parts = [
        trees["tree_train_param"],
        gradient_booster.get("dart_train_param", {}),
        {"num_parallel_tree": trees["gbtree_model_param"]["num_parallel_tree"]},
        {"tree_method": trees["gbtree_train_param"]["tree_method"]},
        {name: config["learner_train_param"][name] for name in ("booster", "multi_strategy")},
        {name: config["generic_param"][name] for name in ("seed", "device", "nthread")},
        {"objective": config["objective"]["name"]},
        *(part for part in config["objective"].values() if isinstance(part, Mapping)),
    ]
    if config["learner_model_param"]["boost_from_average"] == "0":  # it was given, not estimated
        parts.append({"base_score": config["learner_model_param"]["base_score"]})
    params = XGBOOST_PARAMS.merge({}, *parts)
    params["verbosity"] = 0
    return {name: value for name, value in params.items() if value not in ("", "()")}


def _check_has_params(booster: Any, config: Mapping[str, Any]) -> None:
    """Raise an error for a Booster of a model file: XGBoost does not write parameters there."""
    if config["metrics"]:
        return
    bare = _config(sys.modules["xgboost"].Booster(model_file=booster.save_raw()))
    if config["gradient_booster"] == bare["gradient_booster"]:
        raise ValueError(
            "This XGBoost Booster does not hold the parameters it was trained with, as always when "
            "it was read from a model file, so that it cannot be trained again: use an "
            "XGBRegressor or XGBClassifier with these parameters, or set them with its set_param"
        )


def _check_objective(config: Mapping[str, Any]) -> None:
    """Raise an error for a Booster with a custom objective.

    XGBoost does not mark it; but then it neither estimates the base score, which stays at 0.5, nor
    has it been given.
    """
    model = config["learner_model_param"]
    estimated = model["boost_from_average"] == "1"
    scores = np.atleast_1d(json.loads(model["base_score"]))
    if config["objective"]["name"] == "reg:squarederror" and estimated and np.all(scores == 0.5):
        raise ValueError(
            "This XGBoost Booster was trained with a custom objective, which it does not hold, so "
            "that it cannot be trained again: use an XGBRegressor or XGBClassifier with that "
            "objective"
        )
