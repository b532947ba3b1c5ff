"""Parameters: of penalties by name, as scikit-learn wants them, and checks of numbers."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np


class HasParams:
    """What is made of the parameters of its signature, which are attributes of their names."""

    share: float

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with `deep` also those of penalties inside as ``name__inner``."""
        names = [p for p in inspect.signature(type(self)).parameters if p != "layout"]
        params = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return with_inner(params, deep)

    def set_params(self, **params: Any) -> Any:
        """Change parameters in place, checked as those of a new penalty; return the penalty."""
        vars(self).update(vars(type(self)(**self.changed_params(params))), share=self.share)
        return self

    def changed_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return all parameters with some changed, also those of penalties inside."""
        changed = self.get_params(deep=False)
        inner: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, is_inner, rest = key.partition("__")
            if name not in changed or (is_inner and not isinstance(changed[name], HasParams)):
                raise ValueError(
                    f"{name!r} is no parameter of {self!r} that can be set: the parameters are "
                    f"{sorted(changed)}"
                )
            if is_inner:
                inner.setdefault(name, {})[rest] = value
            else:
                changed[name] = value
        for name, values in inner.items():
            changed[name] = changed[name].set_params(**values)
        return changed

    def __sklearn_clone__(self) -> Any:
        return copy.deepcopy(self)


def with_inner(params: dict[str, Any], deep: bool) -> dict[str, Any]:
    """Return parameters, with `deep` also those of penalties among them as ``name__inner``."""
    if not deep:
        return params
    inner = {
        f"{name}__{key}": value
        for name, term in params.items()
        if isinstance(term, HasParams)
        for key, value in term.get_params().items()
    }
    return {**params, **inner}


def check_number(name: str, value: Any, *, positive: bool, hint: str = "") -> float:
    """Return a finite number that is positive, or not negative; `hint` ends the message."""
    kind = "a positive number" if positive else "a number that is not negative"
    message = f"{name}={value!r} must be {kind}{hint}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(message) from None
    if isinstance(value, bool):
        raise TypeError(message)
    if not np.isfinite(number) or number < 0 or (positive and number == 0):
        raise ValueError(message)
    return number


def is_whole(value: Any) -> bool:
    """Whether this is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_count(
    name: str, value: Any, wrong_type: type[Exception] = ValueError, *, least: int = 1
) -> int:
    """Return a whole number that is at least `least`; raise `wrong_type` for what is none."""
    if is_whole(value) and value >= least:
        return int(value)
    error = ValueError if is_whole(value) else wrong_type
    raise error(f"{name}={value!r} must be a whole number, at least {least}")
