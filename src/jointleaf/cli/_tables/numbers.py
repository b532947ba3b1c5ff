"""Numbers written as text: 1.5, 1,5, 1,234.5, 1.234,5, $5 and 5 %, yes and no."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "are_floats", "detect_notation", "look_like_numbers", "notation_remarks", "parse_boolean",
    "parse_booleans", "parse_numbers", "without_percent",
]  # fmt: skip

# Words for true and false, in lower case.
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "t", "y"), 1.0),
    **dict.fromkeys(("false", "no", "f", "n"), 0.0),
}

_CURRENCY = r"(?:[$€£¥₹₽₩₺₴₦₫฿¢]|EUR|USD|GBP|CHF)"
_MARKED = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:{_CURRENCY}\s*)?(?P<number>[+-]?[.,]?\d[\d.,]*(?:[eE][+-]?\d+)?)"
    rf"\s*(?:{_CURRENCY}|%)?"
)
_SIGN = re.compile(_CURRENCY)
_PATTERNS = {
    "comma": re.compile(r"[+-]?\d*(,\d+)?([eE][+-]?\d+)?"),
    "thousands": re.compile(r"[+-]?\d{1,3}(,\d{3})*(\.\d*)?|[+-]?\d*(\.\d*)?"),
    "points": re.compile(r"[+-]?\d{1,3}(\.\d{3})*(,\d*)?|[+-]?\d*(,\d*)?"),
}
# In groups of three digits throughout, as whole numbers with thousands are.
_GROUPS = {mark: re.compile(rf"[+-]?[1-9]\d{{0,2}}([{mark}]\d{{3}})+") for mark in ",."}
_SMALL = re.compile(r"[+-]?\d{1,3}")
# Digits with marks between them, and perhaps a sign before and a short unit behind.
_NUMBER_LIKE = re.compile(r"[^\w\s]{0,2}\s*\d[\d.,'’\s]*[^\W\d]{0,3}[^\w\s]{0,2}")
_MOST_BOOLEANS = 3 * len(_BOOLEANS)  # in small, large and mixed letters
_MOST_OTHERS = 0.05  # share of values that may be something else, and then count as missing


def detect_notation(values: NDArray) -> str | None:
    """Detect how numbers are written.

    Returns
    -------
    str or None
        "plain" (1.5), "comma" (1,5), "thousands" (1,234.5) or "points" (1.234,5), whichever reads
        most values, followed by "%" where most values have a percent sign. None if more than a
        twentieth of the values are not numbers. Signs of currencies are allowed everywhere.
    """
    present = [value for value in values.tolist() if value is not None]
    if not present:
        return None
    if are_floats(present):
        return "plain"
    percent = "%" if 2 * sum(value.endswith("%") for value in present) > len(present) else ""
    best, fewest = "", len(present)
    for notation in _likely_notations(present):
        others = sum(math.isnan(_parse(value, notation + percent)) for value in present)
        if others < fewest:
            best, fewest = notation + percent, others
        if not others:
            break
    return best if best and fewest <= _MOST_OTHERS * len(present) else None


def _likely_notations(present: list[str]) -> list[str]:
    """Return the notations that the marks in the values allow, the likelier ones first."""
    bare = [_bare(value) for value in present if _MARKED.fullmatch(value)]
    commas, points = [v for v in bare if "," in v], [v for v in bare if "." in v]
    priced = any(_SIGN.search(value) for value in present)
    if not commas:
        several = any(v.count(".") > 1 for v in points)
        # Prices in euros have no three decimals: € 1.234 has thousands. Fuel in dollars has.
        euros = any("€" in v or "EUR" in v for v in present) and _grouped(points, ".")
        return ["points", "plain"] if several or euros else ["plain"]
    # 1,234 alone may be either. Thousands have a point or several commas somewhere, or small
    # numbers without any comma beside them.
    small = [v for v in bare if "," not in v]
    both = any("." in v or v.count(",") > 1 for v in commas) or bool(points)
    alone = _grouped(commas, ",") and (
        priced or (bool(small) and all(map(_SMALL.fullmatch, small)))
    )
    order = ["thousands", "comma"] if both or alone else ["comma", "thousands"]
    return ["plain", *order, "points"]


def _grouped(bare: list[str], mark: str) -> bool:
    return bool(bare) and all(map(_GROUPS[mark].fullmatch, bare))


def notation_remarks(values: NDArray, notation: str) -> list[str]:
    """Return how numbers (n,) of text are read, where that is not evident."""
    if notation == "plain" and are_floats([v for v in values.tolist() if v is not None]):
        return []
    read = [v for v in values.tolist() if not math.isnan(_parse(v, notation))]
    remarks = []
    if notation.endswith("%"):
        example = next(v for v in read if "%" in v)
        remarks.append(f"percent: {example!r} is {_parse(example, notation):g}")
        bare = without_percent(values, notation)
        if bare:
            remarks.append(f"{len(bare):,} without the sign, such as {bare[0]!r}, are percent too")
    signs = sorted({match[0] for v in read if (match := _SIGN.search(v))})
    if signs:
        remarks.append(
            f"the sign {signs[0]} is left out"
            if len(signs) == 1
            else f"several currencies, {' and '.join(signs)}, read as if they were one"
        )
    marked = [v for v in read if "," in v or "." in v]
    bare = [_bare(v) for v in marked]
    if any(_grouped(bare, mark) and all(v.count(mark) == 1 for v in bare) for mark in ",."):
        remarks.append(f"{marked[0]!r} is {_parse(marked[0], notation):g}")  # might be otherwise
    return remarks


def without_percent(values: NDArray, notation: str) -> list[str]:
    """Return the numbers without a percent sign in a column whose numbers have one."""
    if not notation.endswith("%"):
        return []
    return [
        v
        for v in values.tolist()
        if v is not None and "%" not in v and not math.isnan(_parse(v, notation))
    ]


def look_like_numbers(values: NDArray) -> bool:
    """Whether most texts look like numbers, with unknown marks or units."""
    present = [value for value in values.tolist() if value is not None]
    return 2 * sum(_NUMBER_LIKE.fullmatch(value) is not None for value in present) > len(present)


def parse_numbers(values: NDArray, notation: str) -> NDArray[np.float64]:
    """Return floats of texts (n,), NaN for None and what is not a finite number."""
    try:
        if notation == "plain":  # the usual case, in one go
            numbers = np.array([np.nan if v is None else v for v in values.tolist()], dtype=float)
            numbers[~np.isfinite(numbers)] = np.nan
            return numbers
    except ValueError:
        pass
    return np.array([_parse(v, notation) for v in values.tolist()], dtype=float)


def parse_booleans(values: NDArray) -> NDArray[np.float64] | None:
    """Return 1 and 0 of texts (n,) for true and false, NaN for None; None for other texts."""
    different = set(values.tolist()) - {None}
    if len(different) > _MOST_BOOLEANS:
        return None
    numbers = {v: _BOOLEANS.get(v.lower()) for v in different}
    if not numbers or None in numbers.values():
        return None
    return np.array([np.nan if v is None else numbers[v] for v in values.tolist()], dtype=float)


def parse_boolean(text: str) -> float | None:
    """Return 1 or 0 of a text in a column of booleans, where 1 and 0 are accepted too, or None."""
    if are_floats([text]) and float(text) in (0.0, 1.0):
        return float(text)
    return _BOOLEANS.get(text.lower())


def are_floats(texts: list[str]) -> bool:
    """Whether all texts are plain finite numbers: the usual case, detected quickly."""
    try:
        return all(map(math.isfinite, map(float, texts)))
    except ValueError:
        return False


def _bare(value: str) -> str:
    """Return a number without signs of currency and percent around it, other texts unchanged."""
    match = _MARKED.fullmatch(value)
    return value if match is None else match["sign"] + match["number"]


def _parse(value: str | None, notation: str) -> float:
    # A percent sign where training had none, or in the middle, is not a number of this column.
    if value is None or ("%" in value and not notation.endswith("%")):
        return math.nan
    value, notation = _bare(value), notation.removesuffix("%")
    pattern = _PATTERNS.get(notation)
    if pattern is not None:
        decimal, group = (".", ",") if notation == "thousands" else (",", ".")
        is_fine = pattern.fullmatch(value) is not None
        value = value.replace(group, "").replace(decimal, ".") if is_fine else ""
    try:
        number = float(value)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
