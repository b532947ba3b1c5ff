"""The loss that a trained ensemble was trained with, read from the model."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import numpy as np

from jointleaf._core.losses import Huber

#: The losses of regression models, by the names that libraries have for them.
_NAMES = {
    "squared_error": ("squared_error", "friedman_mse", "regression", "l2", "RMSE", "reg:linear",
                      "reg:squarederror", "ls"),
    "absolute_error": ("absolute_error", "regression_l1", "MAE", "reg:absoluteerror"),
    "huber": ("huber", "Huber"),
    "quantile": ("quantile", "Quantile", "reg:quantileerror"),
    "poisson": ("poisson", "Poisson", "count:poisson"),
    "gamma": ("gamma", "reg:gamma"),
    "tweedie": ("tweedie", "Tweedie", "reg:tweedie"),
}  # fmt: skip
_LOSSES = {theirs: ours for ours, names in _NAMES.items() for theirs in names}


class Objective(NamedTuple):
    """What a model minimises, and whether its predictions are monotone in some column."""

    name: str  # in the words of its library
    numbers: dict[str, float]  # "quantile", "power" or "delta"
    is_monotone: bool

    def loss_parameters(self) -> dict[str, Any]:
        """Return the parameters of a `JOPLEnRegressor` with this loss."""
        loss = _LOSSES.get(self.name)
        if loss is None:
            raise ValueError(
                f"the model was trained with the objective {self.name!r}, which has no loss here: "
                f"give loss= as well, one of {tuple(_NAMES)} or a Loss, to refine it with another"
            )
        if loss == "huber" and "delta" in self.numbers:
            return {"loss": Huber(self.numbers["delta"])}
        wanted = {"quantile": "quantile", "tweedie": "power"}.get(loss)
        return {"loss": loss} | {k: v for k, v in self.numbers.items() if k == wanted}


def read_objective(model: Any, library: str) -> Objective:
    """Return the objective of a trained model of a library."""
    readers = {"lightgbm": _of_lightgbm, "xgboost": _of_xgboost, "catboost": _of_catboost}
    return readers.get(library, _of_sklearn)(model)


def _of_lightgbm(model: Any) -> Objective:
    text = getattr(model, "booster_", model).model_to_string(num_iteration=1)

    def entry(name: str) -> str:
        match = re.search(rf"^\[{name}: (.*)\]$", text, re.MULTILINE)
        return "" if match is None else match[1]

    match = re.search(r"^objective=(\S+)", text, re.MULTILINE)
    name = "none" if match is None else match[1]
    if re.search(r"^objective=\S+ sqrt", text, re.MULTILINE):  # the square root is the target
        name += ", reg_sqrt=True"
    level, power = float(entry("alpha") or "nan"), float(entry("tweedie_variance_power") or "nan")
    numbers = {"quantile": level, "delta": level, "power": power}
    return Objective(name, numbers, _has_signs(entry("monotone_constraints")))


def _of_xgboost(model: Any) -> Objective:
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    text = booster.save_config()
    objective = json.loads(text)["learner"]["objective"]
    name, numbers = objective["name"], {}
    if callable(getattr(model, "objective", None)):  # the booster does not know it
        name = getattr(model.objective, "__name__", "a function")
    level = objective.get("quantile_loss_param", {}).get("quantile_alpha")
    if level is not None:
        name, numbers["quantile"] = _with_level(name, str(level).strip("[]"))
    power = objective.get("tweedie_regression_param", {}).get("tweedie_variance_power")
    if power is not None:
        numbers["power"] = float(f"{float(power):.6g}")  # it is stored in single precision
    constraints = re.findall(r'"monotone_constraints":\s*"([^"]*)"', text)
    return Objective(name, numbers, any(map(_has_signs, constraints)))


def _of_catboost(model: Any) -> Objective:
    params = model.get_all_params()
    name, _, options = str(params.get("loss_function", "RMSE")).partition(":")
    pairs = (option.partition("=") for option in options.split(";") if option)
    values = {key: value for key, _, value in pairs}
    names = {"alpha": "quantile", "delta": "delta", "variance_power": "power"}
    numbers = {}
    for key in names.keys() & values.keys():
        name, numbers[names[key]] = _with_level(name, values[key])
    return Objective(name, numbers, bool(params.get("monotone_constraints")))


def _of_sklearn(model: Any) -> Objective:
    params = model.get_params(deep=False)
    name = params.get("loss") or params.get("criterion") or "squared_error"
    level = params.get("quantile", params.get("alpha"))
    numbers = {} if level is None else {"quantile": float(level)}
    constraints = params.get("monotonic_cst")
    values = constraints.values() if isinstance(constraints, dict) else constraints
    is_monotone = constraints is not None and any(int(value) != 0 for value in values)
    return Objective(str(name), numbers, is_monotone)


def _with_level(name: str, text: str) -> tuple[str, float]:
    """Return the name of an objective and its number; several of them are part of the name."""
    levels = [float(level) for level in text.split(",")]
    if len(levels) == 1:
        return name, levels[0]
    return f"{name} of {', '.join(f'{level:g}' for level in levels)}", np.nan


def _has_signs(constraints: str) -> bool:
    """Whether a text such as "(1,0,-1)" holds a sign."""
    return any(int(number) != 0 for number in re.findall(r"-?\d+", constraints))
