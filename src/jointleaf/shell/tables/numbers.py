"""Numbers written as text: 1.5, 1,5 and 1,234.5, yes and no."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

__all__ = ["BOOLEANS", "find_notation", "parse_booleans", "parse_numbers"]

#: What stands for true and false, in small letters.
BOOLEANS = {
    "true": 1.0,
    "yes": 1.0,
    "t": 1.0,
    "y": 1.0,
    "false": 0.0,
    "no": 0.0,
    "f": 0.0,
    "n": 0.0,
}

_COMMA = re.compile(r"[+-]?\d+(,\d+)?([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})*(\.\d*)?")
_MOST_BOOLEANS = 3 * len(BOOLEANS)  # in small, large and mixed letters
_MOST_OTHERS = 0.05  # share of values that may be something else, and then count as missing


def find_notation(values: NDArray) -> str | None:
    """Find how numbers are written: "plain", "comma" (1,5), "thousands" (1,234.5), or None.

    Up to a twentieth of the values may be no numbers.
    """
    present = [value for value in values.tolist() if value is not None]
    if not present:
        return None
    allowed = _MOST_OTHERS * len(present)
    if _are_floats(present) or _count_others(present, "plain") <= allowed:
        return "plain"
    if not any("," in value for value in present):
        return None
    # 1,234 alone may be either; a table with thousands has a point or several commas somewhere.
    several = any("." in value or value.count(",") > 1 for value in present)
    for notation in ("thousands", "comma") if several else ("comma", "thousands"):
        if _count_others(present, notation) <= allowed:
            return notation
    return None


def parse_numbers(values: NDArray, notation: str) -> NDArray[np.float64]:
    """Floats of texts (n,), NaN for None and what is no finite number."""
    try:
        if notation == "plain":  # the usual case, in one go
            numbers = np.array([np.nan if v is None else v for v in values.tolist()], dtype=float)
            numbers[~np.isfinite(numbers)] = np.nan
            return numbers
    except ValueError:
        pass
    return np.array([_parse(v, notation) for v in values.tolist()], dtype=float)


def parse_booleans(values: NDArray) -> NDArray[np.float64] | None:
    """1 and 0 of texts (n,) that mean true and false, NaN for None; None for other texts."""
    different = set(values.tolist()) - {None}
    if len(different) > _MOST_BOOLEANS:
        return None
    found = {v: BOOLEANS.get(v.lower()) for v in different}
    if not found or None in found.values():
        return None
    return np.array([np.nan if v is None else found[v] for v in values.tolist()], dtype=float)


def _are_floats(present: list[str]) -> bool:
    """Whether all values are plain finite numbers: the usual case, found quickly."""
    try:
        return all(map(math.isfinite, map(float, present)))
    except ValueError:
        return False


def _count_others(present: list[str], notation: str) -> int:
    return sum(math.isnan(_parse(value, notation)) for value in present)


def _parse(value: str | None, notation: str) -> float:
    if value is None:
        return math.nan
    if notation == "comma":
        value = value.replace(",", ".") if _COMMA.fullmatch(value) else ""
    elif notation == "thousands":
        value = value.replace(",", "") if _THOUSANDS.fullmatch(value) else ""
    try:
        number = float(value)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
