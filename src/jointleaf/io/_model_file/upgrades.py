"""Upgrades of files in older formats: the one place that knows how models were written before.

An upgrade rewrites the JSON of a model from one format to the next, before any field is read.
It checks only what it needs itself: what it returns is read with every check, as a new file is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["upgrade"]

#: Fields that were renamed in format 2, in parameters and penalties.
_RENAMED = {"missing_indicator": "add_indicator", "n_neighbours": "n_neighbors"}
#: Values that were renamed in format 2, by field.
_RENAMED_VALUES = {("graph", "neighbours"): "neighbors", ("kind", "neighbours"): "neighbors"}


def upgrade(model: Any, version: int) -> Any:
    """Return the JSON of a model of format `version` as the newest format has it."""
    if version < 2:
        for item in _objects(model):
            _rename(item)
    return model


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all JSON objects inside a value, outer ones first."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _rename(item: dict[str, Any]) -> None:
    for old, new in _RENAMED.items():
        if old in item and new not in item:
            item[new] = item.pop(old)
    for (name, old), new in _RENAMED_VALUES.items():
        if item.get(name) == old:
            item[name] = new
