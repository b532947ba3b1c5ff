"""XGBoost models: the scikit-learn classes and the plain Booster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.flattening import NodeTable, flatten
from jointleaf._trees.importers.base import (
    EnsembleAdapter,
    is_fitted_estimator,
    native_codes,
    threads,
)

__all__ = ["XGBoostAdapter", "feature_types", "merge_xgboost_params"]

_CLASSES = (
    "XGBRegressor",
    "XGBClassifier",
    "XGBRFRegressor",
    "XGBRFClassifier",
    "XGBRanker",
    "Booster",
)

#: Names that XGBoost knows besides the one it is given here.
_CANONICAL = {
    "eta": "learning_rate",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "gamma": "min_split_loss",
    "n_jobs": "nthread",
    "random_state": "seed",
    "n_estimators": "num_boost_round",
}


def merge_xgboost_params(params: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two sets of XGBoost parameters; those of `over` win under any of their names."""
    merged = {_CANONICAL.get(name, name): value for name, value in params.items()}
    merged.update({_CANONICAL.get(name, name): value for name, value in over.items()})
    return merged


def feature_types(n_features: int, categorical: NDArray[np.intp]) -> list[str]:
    """Give XGBoost's word for what every column holds: "q" for numbers, "c" for categories."""
    types = np.full(n_features, "q")
    types[categorical] = "c"
    return types.tolist()


#: Objectives whose raw predictions start from the base score itself, and from its log-odds.
_PLAIN = ("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror")
_LOGISTIC = ("binary:logistic", "reg:logistic", "binary:logitraw")


class XGBoostAdapter(EnsembleAdapter):
    """XGBoost models: the scikit-learn classes and the plain ``xgboost.Booster``.

    A scikit-learn style model that stopped early is used up to its best round; a Booster is used
    as a whole. Both is what their own ``predict`` does. A level that the model does not know goes
    left, which is where XGBoost sends category numbers it has not met.
    """

    supported = tuple(name.replace("Booster", "xgboost.Booster") for name in _CLASSES)

    def matches(self, model: object) -> bool:
        """Tell whether `model` is one of the supported models or a subclass of one."""
        xgboost = sys.modules.get("xgboost")
        return xgboost is not None and isinstance(
            model, tuple(getattr(xgboost, name) for name in _CLASSES)
        )

    def is_fitted(self, model: Any) -> bool:
        """Tell whether `model` has been trained; a Booster is once it has a round."""
        if not _is_booster(model):
            return is_fitted_estimator(model)
        try:
            return model.num_boosted_rounds() > 0
        except sys.modules["xgboost"].core.XGBoostError:  # it has not seen any data
            return False

    def is_classifier(self, model: Any) -> bool:
        """Tell whether the objective is one of classification."""
        if not _is_booster(model):
            return is_classifier(model)
        return _config(model)["objective"]["name"].startswith(("binary:", "multi:"))

    def n_features(self, model: Any) -> int:
        """Give the number of features the model was trained on."""
        return int(_booster(model).num_features())

    def feature_names(self, model: Any) -> list[str] | None:
        """Give the column names the model was trained with, None where it had none."""
        names = _booster(model).feature_names
        return None if names is None else list(names)

    def categories(self, model: Any) -> Mapping[int, NDArray | None]:
        """Give the columns declared categorical; their levels where a data frame said them."""
        if "c" not in (_booster(model).feature_types or ()):  # spares reading a large model
            return {}
        return _ModelJson(model).categories

    def trees(self, model: Any, columns: Columns) -> FlatTrees:
        """Give the trees in portable form, up to the best round."""
        _check_missing(model)
        read = _ModelJson(model)
        codes = read.native_codes(columns)
        outputs, base = read.outputs()
        return flatten(
            [
                _node_table(tree, codes, None if outputs is None else outputs[k])
                for k, tree in enumerate(read.trees())
            ],
            self.n_features(model),
            columns.n_categories,
            single_precision=True,
            base=base,
        )

    def split_gains(self, model: Any) -> NDArray:
        """Give the total gain of each feature's splits (d,)."""
        gains = np.zeros(self.n_features(model))
        for tree in _ModelJson(model).trees():
            is_split = np.array(tree["left_children"]) >= 0
            feature = np.array(tree["split_indices"])[is_split]
            np.add.at(gains, feature, np.array(tree["loss_changes"])[is_split])
        return np.maximum(gains, 0.0)

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
        """Train with the same parameters for as many rounds as `model` uses.

        `random_state` is not needed: XGBoost has a fixed seed of its own.
        """
        _check_missing(model)
        if _config(_booster(model))["objective"]["name"].startswith("rank:"):
            raise ValueError(
                f"This {type(model).__name__} ranks rows within groups, and the groups are not "
                "known any more, so it cannot be grown again."
            )
        types = feature_types(X.shape[1], categorical)
        if _is_booster(model):
            return _retrain_booster(model, X, y, weight, types, n_jobs)
        new = clone(model)
        theirs = new.get_params()
        ours: dict[str, Any] = {
            "feature_types": types,
            "enable_categorical": True,
            # Nothing is left to stop early on: the rounds are those the model stopped at.
            "early_stopping_rounds": None,
            "callbacks": None,
            **_numbered_constraints(theirs, self.feature_names(model)),
        }
        xgboost = sys.modules["xgboost"]
        if not isinstance(model, xgboost.XGBRFRegressor | xgboost.XGBRFClassifier):
            ours["n_estimators"] = _n_rounds(model)
        if theirs["verbosity"] is None:
            ours["verbosity"] = 0
        if theirs["n_jobs"] is None and n_jobs is not None:
            ours["n_jobs"] = threads(n_jobs)
        if is_classifier(model):
            # XGBoost wants class numbers without gaps, and `fit` has changed the objective.
            classes, y = np.unique(y, return_inverse=True)
            if len(classes) <= 2 and str(theirs["objective"]).startswith("multi:"):
                ours |= {"objective": "binary:logistic"}
        return new.set_params(**ours).fit(X, y, sample_weight=weight, verbose=False)


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
    """Refuse a value other than NaN that counts as missing: a split cannot single it out."""
    missing = getattr(model, "missing", None)
    if missing is not None and not np.isnan(missing):
        raise ValueError(
            f"This {type(model).__name__} counts the value {missing:g} as missing, which its trees "
            "in jointleaf cannot. Put NaN in its place in X and call "
            "model.set_params(missing=numpy.nan): the trees stay what they are."
        )


def _numbered_constraints(params: Mapping[str, Any], names: list[str] | None) -> dict[str, Any]:
    """Give constraints by column number: the model is grown again on columns without names."""
    number = {name: j for j, name in enumerate(names or [])}
    found: dict[str, Any] = {}
    monotone = params.get("monotone_constraints")
    if isinstance(monotone, Mapping):
        found["monotone_constraints"] = tuple(monotone.get(name, 0) for name in number)
    groups = params.get("interaction_constraints")
    if groups is not None and not isinstance(groups, str):
        numbered = [[number.get(j, j) for j in group] for group in groups]
        found["interaction_constraints"] = json.dumps(numbered)  # a list would have to hold names
    return found


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
                f"This {self._name} was trained with booster={booster['name']!r} and has no trees; "
                'give a model with booster="gbtree" or "dart".'
            )
        self._model = booster.get("gbtree", booster)["model"]
        self._drops = booster.get("weight_drop")  # of dart's trees

    def trees(self) -> Iterator[dict[str, Any]]:
        """Trees of the rounds that are used."""
        yield from self._model["trees"][: self._model["iteration_indptr"][self._n_rounds]]

    def outputs(self) -> tuple[NDArray | None, NDArray | float]:
        """To which raw prediction every tree adds, (P, K), and what these start from.

        None where trees have vectors in their leaves, or the objective is one whose start is not
        known here.
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
        """Columns with categories, and their levels in the order of the model's codes."""
        types = self._learner.get("feature_types", [])
        # One entry for every column of a data frame, none at all for a matrix.
        known = self._model.get("cats", {}).get("enc", [])
        return {
            j: _levels(known[j]) if known else None for j, kind in enumerate(types) if kind == "c"
        }

    def native_codes(self, columns: Columns) -> dict[int, NDArray[np.int64]]:
        """Give the model's codes of our levels, then of unseen ones, column by column."""
        found = {}
        known = self.categories
        for j, column in enumerate(columns):
            if (column.categories is None) == (j in known):
                kind = "categories" if j in known else "numbers"
                raise ValueError(
                    f"The {self._name} was trained with {kind} in column "
                    f"{column.label}: give them again."
                )
            if column.categories is not None:
                levels = known[j]
                if levels is None:
                    self._check_own_numbers(column.label, column.categories)
                found[j] = native_codes(
                    column.categories, None if levels is None else levels.tolist()
                )
        return found

    def _check_own_numbers(self, label: str, levels: NDArray) -> None:
        """Refuse levels whose codes are not known.

        A model without levels comes from a matrix, where a level is its own code, or from a data
        frame in the days before XGBoost 3.1: then it has names.
        """
        from_frame = bool(self._learner.get("feature_names"))
        if levels.dtype.kind == "U" or (from_frame and levels.tolist() != list(range(len(levels)))):
            raise ValueError(
                f"The {self._name} does not hold the levels of column {label}: train it again on "
                "a data frame with XGBoost 3.1 or later."
            )


def _levels(entry: Mapping[str, Any]) -> NDArray:
    """Levels of one column: numbers, or text as bytes one after the other."""
    if "offsets" not in entry:
        return np.array(entry["values"], dtype=np.int64)
    text = np.array(entry["values"], dtype=np.int8).tobytes()
    if not text.isascii():
        # XGBoost 3.1 to 3.3 counts characters where it means bytes and cuts pandas' levels in wrong
        # places (dmlc/xgboost#12371): its own predictions are wrong then.
        raise ValueError(
            "XGBoost up to 3.3 mixes up levels of text with letters beyond ASCII; rename them, or "
            "give them as whole numbers, and train again."
        )
    return np.array([text[a:b].decode() for a, b in pairwise(entry["offsets"])], dtype=str)


def _node_table(
    tree: Mapping[str, Any], codes: Mapping[int, NDArray[np.int64]], output: NDArray | None
) -> NodeTable:
    """Read one tree; `codes` are the model's codes of our levels, column by column.

    `output` (K,) says to which raw prediction the tree adds, and by how much of its values.

    On numbers, rows with x < t go left; on categories the listed ones go right and all others,
    unknown ones among them, left.
    """
    left = np.array(tree["left_children"], dtype=np.int64)
    feature = np.where(left < 0, -1, np.array(tree["split_indices"], dtype=np.int64))
    with np.errstate(over="ignore"):
        split = np.array(tree["split_conditions"], dtype=np.float64).astype(np.float32)
    levels_left = {}
    nodes = zip(
        tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True
    )
    for node, begin, size in nodes:
        goes_right = tree["categories"][begin : begin + size]
        levels_left[node] = ~np.isin(codes[int(feature[node])], goes_right)
    return NodeTable(
        feature=feature,
        # x < t and x <= (the float32 before t) are the same for float32 x.
        threshold=np.nextafter(split, np.float32(-np.inf)).astype(np.float64),
        left=left,
        right=np.array(tree["right_children"], dtype=np.int64),
        missing_left=np.array(tree["default_left"], dtype=bool),
        levels_left=levels_left,
        # In leaves the "condition" is the value.
        value=None if output is None else split.astype(np.float64)[:, None] * output,
    )


# -- training a Booster again ------------------------------------------------------------------


def _retrain_booster(
    booster: Any,
    X: NDArray,
    y: NDArray,
    weight: NDArray | None,
    types: list[str],
    n_jobs: int | None,
) -> Any:
    xgboost = sys.modules["xgboost"]
    params = _booster_params(booster)
    if n_jobs is not None:
        params["nthread"] = threads(n_jobs)
    if int(params.get("num_class", 0)) > 0:
        params["num_class"] = max(int(params["num_class"]), int(y.max()) + 1)
    data = xgboost.DMatrix(X, y, weight=weight, feature_types=types, enable_categorical=True)
    return xgboost.train(params, data, num_boost_round=_n_rounds(booster))


def _booster_params(booster: Any) -> dict[str, Any]:
    """Give the parameters a Booster was trained with, from its configuration."""
    config = _config(booster)
    _check_own_parameters(booster, config)
    _check_own_objective(config)
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
    params: dict[str, Any] = {}
    for part in parts:
        params = merge_xgboost_params(params, part)
    params["verbosity"] = 0
    return {name: value for name, value in params.items() if value not in ("", "()")}


def _check_own_parameters(booster: Any, config: Mapping[str, Any]) -> None:
    """Refuse a Booster read from a model file: XGBoost does not write parameters there."""
    if config["metrics"]:
        return
    bare = _config(sys.modules["xgboost"].Booster(model_file=booster.save_raw()))
    if config["gradient_booster"] == bare["gradient_booster"]:
        raise ValueError(
            "This XGBoost Booster does not hold the parameters it was trained with, as always when "
            "it was read from a model file, so it cannot be grown again. Hand over an XGBRegressor "
            "or XGBClassifier with these parameters, or tell it them with its set_param."
        )


def _check_own_objective(config: Mapping[str, Any]) -> None:
    """Refuse a Booster with an objective of the user's.

    XGBoost does not say so; but then it neither estimates the base score, which stays at 0.5, nor
    has it been given.
    """
    model = config["learner_model_param"]
    estimated = model["boost_from_average"] == "1"
    scores = np.atleast_1d(json.loads(model["base_score"]))
    if config["objective"]["name"] == "reg:squarederror" and estimated and np.all(scores == 0.5):
        raise ValueError(
            "This XGBoost Booster was trained with an objective of its own, which it does not "
            "carry along, so it cannot be grown again. Hand over an XGBRegressor or XGBClassifier "
            "with that objective instead."
        )
