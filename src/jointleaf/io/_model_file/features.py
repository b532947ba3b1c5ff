"""Columns, and the linear features that are made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from jointleaf._data.columns import Column, Columns
from jointleaf._data.features import FeaturePlan, Indicators, LinearFeatures, Standardizer
from jointleaf.io._model_file.fields import Arrays, Part
from jointleaf.io._model_file.values import read_plain, write_labels

__all__ = [
    "read_columns",
    "read_features",
    "read_plan",
    "write_columns",
    "write_features",
    "write_plan",
]


def write_columns(columns: Columns, arrays: Arrays) -> list[dict[str, Any]]:
    """Give JSON for columns."""
    return [
        {
            "label": str(column.label),
            "levels": None
            if column.categories is None
            else write_labels(column.categories, arrays),
        }
        for column in columns
    ]


def read_columns(part: Part, name: str) -> Columns:
    """Read columns; levels are whole numbers or text, in rising order."""
    columns = []
    for own in part.children(name):
        levels = None if own.is_none("levels") else read_plain(own, "levels")
        if levels is not None:
            if not isinstance(levels, np.ndarray) or levels.ndim != 1 or not len(levels):
                own.fail("must be an array of levels", "levels")
            if levels.dtype.kind not in "iU":
                own.fail("must hold whole numbers or text", "levels")
            if (levels[1:] <= levels[:-1]).any():
                own.fail("must rise", "levels")
        columns.append(Column(own.text("label"), levels))
        own.close()
    if not columns:
        part.fail("is empty", name)
    return Columns(tuple(columns))


def write_plan(plan: FeaturePlan, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for a plan of linear features."""
    return {
        "numbers": arrays.add(plan.numbers.astype(np.int64)),
        "gaps": arrays.add(plan.missing_indicators.astype(np.int64)),
        "indicators": [
            {
                "column": int(own.column),
                "place": arrays.add(own.place.astype(np.int64)),
                "names": list(own.names),
            }
            for own in plan.indicators
        ],
        "names": list(plan.names),
    }


def read_plan(part: Part, n_levels: np.ndarray | None, n_columns: int) -> FeaturePlan:
    """Read a plan for rows of n_columns columns.

    `n_levels` are those of the columns; None where only the plan itself knows them.
    """
    numbers = part.indices("numbers", n_columns, rising=True)
    gaps = part.indices("gaps", n_columns, rising=True)
    indicators = tuple(_read_indicators(own, n_columns) for own in part.children("indicators"))
    if n_levels is not None:
        if n_levels[numbers].any():
            part.fail("holds a column with categories", "numbers")
        if any(n_levels[own.column] != len(own.place) - 2 for own in indicators):
            part.fail("do not fit the levels of their columns", "indicators")
    names = tuple(part.texts("names"))
    sources = np.concatenate(
        [numbers, *(np.full(len(own.names), own.column) for own in indicators), gaps]
    ).astype(np.intp)
    if len(names) != len(sources):
        part.fail(f"has {len(names)} entries for {len(sources)} linear features", "names")
    part.close()
    return FeaturePlan(numbers, indicators, gaps, names, sources)


def _read_indicators(part: Part, n_columns: int) -> Indicators:
    column, names = part.integer("column", 0, n_columns - 1), tuple(part.texts("names"))
    place = part.indices("place", len(names) + 1, low=-1)
    if len(place) < 3:
        part.fail("has no levels", "place")
    part.close()
    return Indicators(column, place, names)


def write_features(features: LinearFeatures, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for linear features."""
    scaler = features.scaler
    return {
        "plan": write_plan(features.plan, arrays),
        **{name: arrays.add(getattr(scaler, name)) for name in ("mean", "scale", "low", "high")},
        "clip": bool(scaler.clip),
    }


def read_features(part: Part, n_levels: np.ndarray | None, n_columns: int) -> LinearFeatures:
    """Read linear features; see `read_plan`."""
    plan = read_plan(part.child("plan"), n_levels, n_columns)
    shape = (len(plan.names),)
    mean, scale, low, high = (
        part.array(name, "f8", shape, finite=True) for name in ("mean", "scale", "low", "high")
    )
    if (scale <= 0).any():
        part.fail("must be positive", "scale")
    if (low > high).any():
        part.fail("is above high", "low")
    scaler = Standardizer(mean, scale, low, high, part.flag("clip"))
    part.close()
    return LinearFeatures(plan, scaler)
