"""The trees of CatBoost models in portable form, read from CatBoost's JSON.

CatBoost splits on three kinds of things: a number against a border, a category against one category
(one-hot), and a statistic of a category, or of a combination of categories and other splits,
against a border. Statistics become `Lookup` columns of the portable form, the others are splits on
the columns themselves.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees, KeyPart, Lookup, NodeTable, flatten

#: Stands for a missing category in models grown on codes; no category of a user should equal it.
MISSING_CODE = -(2**31)
#: A number that no hash of a category is: these are 32-bit integers with their sign extended.
_UNSEEN_HASH = np.uint64(1 << 40)
#: Marks the places of CatBoost's hash tables that are free.
_FREE_KEY = np.uint64(2**64 - 1)


def read_trees(model: Any, columns: Columns) -> FlatTrees:
    """Return the trees of a model with at least one tree; see `EnsembleAdapter.trees`."""
    text = _json(model)
    reader = _Reader(text["features_info"], columns)
    if "oblivious_trees" in text:
        tables = [
            reader.symmetric(tree.get("splits") or [], tree["leaf_values"])
            for tree in text["oblivious_trees"]
        ]
    else:
        tables = [reader.nested(tree) for tree in text["trees"]]
    scale, bias = text.get("scale_and_bias", [1.0, [0.0]])
    tables = [replace(table, value=scale * table.value) for table in tables]
    return flatten(
        tables,
        len(columns),
        columns.n_categories,
        single_precision=True,
        lookups=_lookups(text, reader),
        base=np.atleast_1d(np.asarray(bias, float)),
    )


def _json(model: Any, pool: Any = None) -> dict[str, Any]:
    """Return the JSON of a model; with a pool also the hashes of the categories in the pool."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json", pool=pool)
        return json.loads(path.read_text(encoding="utf-8"))


def _text_hashes(texts: list[str]) -> dict[str, int]:
    """Return CatBoost's hashes of categories as text, in 64 bits.

    CatBoost gives them only along with a model, and only for rows with that model's columns. A
    model with a single column keeps these small.
    """
    import catboost

    def pool(values: list[str], y: list[int] | None = None) -> Any:
        return catboost.Pool(np.array(values, dtype=object)[:, None], y, cat_features=[0])

    params = {"iterations": 1, "thread_count": 1, "allow_writing_files": False}
    model = catboost.CatBoost({**params, "logging_level": "Silent"})
    model.fit(pool(["a", "b"], [0, 1]))
    entries = _json(model, pool(texts))["features_info"]["cat_features_hash"]
    return {entry["value"]: _extended(int(entry["hash"])) for entry in entries}


def _category_hashes(columns: Columns, categorical: list[int]) -> dict[int, NDArray[np.uint64]]:
    """Return hashes (L + 2,) of the categories of every column, of unseen and of missing ones."""
    missing = str(MISSING_CODE)
    texts: dict[int, list[str]] = {}
    for j in categorical:
        if columns[j].categories is None:
            raise ValueError(
                f"column {columns[j].label!r} holds categories for the CatBoost model but numbers "
                "here: name it in categorical_features"
            )
        texts[j] = [str(category) for category in columns[j].categories.tolist()]
    hash_of = _text_hashes(sorted({missing}.union(*texts.values()))) if texts else {}
    unseen = int(_UNSEEN_HASH)
    return {
        j: np.array([*map(hash_of.__getitem__, column), unseen, hash_of[missing]], dtype=np.uint64)
        for j, column in texts.items()
    }


def _extended(hash32: int) -> int:
    """Extend the sign of a 32-bit integer to 64 bits, the way CatBoost's keys are made."""
    low = hash32 & 0xFFFFFFFF
    return low | 0xFFFFFFFF00000000 if low >> 31 else low


class _Reader:
    """Reads the splits of a model: rows for which a condition holds go right.

    A condition is a `KeyPart` that is 1 where it holds, 0 elsewhere.
    """

    def __init__(self, info: Mapping[str, Any], columns: Columns) -> None:
        self.columns = columns
        self.floats = {f["feature_index"]: f for f in info.get("float_features") or []}
        cats = info.get("categorical_features") or []
        self.cats = {f["feature_index"]: int(f["flat_feature_index"]) for f in cats}
        self.hashes = _category_hashes(columns, list(self.cats.values()))
        # CatBoost numbers its splits: borders, then one-hot categories, then borders of statistics.
        first = sum(len(f.get("borders") or []) for f in self.floats.values())
        first += sum(len(f.get("values") or []) for f in cats)
        borders = [len(c["borders"]) for c in info.get("ctrs") or []]
        self._lookup_of_split = dict(
            enumerate(np.repeat(np.arange(len(borders)), borders).tolist(), first)
        )

    def condition(self, split: Mapping[str, Any]) -> KeyPart:
        """Read one split of a tree."""
        kind = split["split_type"]
        if kind == "FloatFeature":
            return self.above(split["float_feature_index"], split["border"])
        if kind == "OneHotFeature":
            return self.equal(split["cat_feature_index"], split["value"])
        lookup = self._lookup_of_split[split["split_index"]]
        return KeyPart(len(self.columns) + lookup, None, float(split["border"]))

    def above(self, feature: int, border: float) -> KeyPart:
        """Return the condition that a number is above a border; missing ones as in the model."""
        info = self.floats[feature]
        j = int(info["flat_feature_index"])
        missing_holds = info["nan_value_treatment"] == "AsTrue"
        categories = self.columns[j].categories
        if categories is None:
            return KeyPart(j, None, float(border), missing_holds)
        if categories.dtype.kind not in "iu":
            raise ValueError(
                f"column {self.columns[j].label!r} holds text, but the CatBoost model was trained "
                "on numbers there: use these numbers"
            )
        # Categories here, numbers for the model.
        holds = categories.astype(np.float32) > np.float32(border)
        return KeyPart(j, np.append(holds, [missing_holds] * 2).astype(np.uint64))

    def equal(self, feature: int, value: int) -> KeyPart:
        """Return the condition that a category has the hash `value`."""
        j = self.cats[feature]
        holds = self.hashes[j] == np.uint64(_extended(int(value)))
        return KeyPart(j, holds.astype(np.uint64))

    def symmetric(self, splits: list[Mapping[str, Any]], values: list[float]) -> NodeTable:
        """Read a tree that has the same split everywhere on a level.

        CatBoost's number of a leaf has the answer to condition k as bit k: with the last condition
        at the root, leaves from left to right have CatBoost's numbers.
        """
        levels = [self.condition(split) for split in reversed(splits)]
        n_splits = 2 ** len(levels) - 1
        conditions = [c for k, c in enumerate(levels) for _ in range(2**k)]
        left = np.arange(n_splits) * 2 + 1
        return _node_table(conditions, left, left + 1, np.reshape(values, (n_splits + 1, -1)))

    def nested(self, tree: Mapping[str, Any]) -> NodeTable:
        """Read a tree of nodes within nodes."""
        # Splits are numbered as they are met; leaves follow behind all of them.
        conditions: list[KeyPart] = []
        children: list[list[int]] = []
        values: Any = []
        stack: list[tuple[Mapping[str, Any], int, int]] = [(tree, -1, 0)]
        while stack:
            node, parent, side = stack.pop()
            if "split" in node:
                number = len(conditions)
                conditions.append(self.condition(node["split"]))
                children.append([0, 0])
                stack += [(node["right"], number, 1), (node["left"], number, 0)]
            else:
                number = ~len(values)
                values.append(node["value"])
            if parent >= 0:
                children[parent][side] = number
        both = np.array(children, dtype=np.int64).reshape(-1, 2)
        both = np.where(both < 0, len(conditions) + ~both, both)
        values = np.reshape(values, (len(values), -1))
        return _node_table(conditions, both[:, 0], both[:, 1], values)


def _node_table(
    conditions: list[KeyPart], left: NDArray, right: NDArray, values: NDArray
) -> NodeTable:
    """Return a table of splits, then leaves with their values (n_leaves, K)."""
    n_leaves = len(values)
    leaves = np.full(n_leaves, -1)
    none = [False] * n_leaves
    return NodeTable(
        feature=np.concatenate([[c.column for c in conditions], leaves]).astype(np.int64),
        threshold=np.concatenate([[c.threshold for c in conditions], np.zeros(n_leaves)]),
        left=np.concatenate([left, leaves]),
        right=np.concatenate([right, leaves]),
        missing_left=np.array(
            [not (c.missing_above if c.hashes is None else c.hashes[-1]) for c in conditions] + none
        ),
        categories_left={
            k: c.hashes[:-1] == 0 for k, c in enumerate(conditions) if c.hashes is not None
        },
        value=np.concatenate([np.zeros((len(conditions), values.shape[1])), values]),
    )


# -- statistics of categories -------------------------------------------------------------------


def _lookups(text: Mapping[str, Any], reader: _Reader) -> tuple[Lookup, ...]:
    """Turn CatBoost's statistics of categories into columns that are looked up."""
    statistics = text["features_info"].get("ctrs") or []
    data = text.get("ctr_data") or {}
    tables: dict[str, _Counts] = {}
    parts: dict[str, tuple[KeyPart, ...]] = {}
    lookups = []
    for info in statistics:
        name = info["identifier"]
        if name not in data:
            raise ValueError(
                "The CatBoost model has no statistics of its categories, so that it cannot be "
                "used: train it with final_ctr_computation_mode='Default'"
            )
        if name not in tables:
            tables[name] = _Counts.read(data[name])
            parts[name] = tuple(_key_part(element, reader) for element in info["elements"])
        values, default = tables[name].statistic(info)
        lookups.append(Lookup(parts[name], tables[name].keys, values, default))
    return tuple(lookups)


def _key_part(element: Mapping[str, Any], reader: _Reader) -> KeyPart:
    kind = element["combination_element"]
    if kind == "cat_feature_value":
        j = reader.cats[element["cat_feature_index"]]
        return KeyPart(j, reader.hashes[j])
    if kind == "cat_feature_exact_value":
        return reader.equal(element["cat_feature_index"], element["value"])
    return reader.above(element["float_feature_index"], element["border"])


@dataclass(frozen=True)
class _Counts:
    """What CatBoost counted for every combination of categories.

    Counts are the rows of every class of the (binned) target; the sum and the number of targets; or
    rows, to be divided by `total`.
    """

    keys: NDArray[np.uint64]  # (m,), rising
    counts: NDArray[np.float64]  # (m, k)
    total: int

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> _Counts:
        stride, entries = int(table["hash_stride"]), table["hash_map"]
        keys = np.array([int(key) for key in entries[::stride]], dtype=np.uint64)
        counts = np.array([entries[k::stride] for k in range(1, stride)], dtype=np.float64).T
        order = np.argsort(keys)
        order = order[keys[order] != _FREE_KEY]
        return cls(keys[order], counts[order], int(table.get("counter_denominator") or 0))

    def statistic(self, info: Mapping[str, Any]) -> tuple[NDArray[np.float64], float]:
        """Return the statistic of every key, and that of keys not met in training.

        ``((good + prior) / (all + prior's denominator) + shift) * scale``, in single precision.
        """
        single = np.float32
        kind, border = info["ctr_type"], int(info["target_border_idx"])
        unmet = 0.0  # CatBoost divides counts of rows by the same number everywhere
        if kind in ("BinarizedTargetMeanValue", "FloatTargetMeanValue"):
            good, rows = self.counts[:, 0], self.counts[:, 1]
        elif kind in ("Counter", "FeatureFreq"):
            good, rows = self.counts[:, 0], np.full(len(self.keys), float(self.total))
            unmet = float(self.total)
        else:
            rows = self.counts.sum(axis=1)
            above = self.counts[:, border + 1 :].sum(axis=1)
            good = self.counts[:, border] if kind == "Buckets" else above

        def value(good: Any, rows: Any) -> Any:
            prior, weight = single(info["prior_numerator"]), single(info["prior_denomerator"])
            frequency = (single(good) + prior) / (single(rows) + weight)
            return (frequency + single(info["shift"])) * single(info["scale"])

        return value(good, rows).astype(np.float64), float(value(0.0, unmet))
