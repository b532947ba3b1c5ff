"""What an ONNX graph takes: one matrix of numbers, or a value for every column where some are text.

Categories become codes, target statistics stand in their place where the model has some, and the
scalers and imputers of a pipeline are done first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from jointleaf._data.columns import Column, Columns
from jointleaf._data.preprocessor import TablePreprocessor
from jointleaf._data.statistics import CategoryStatistics
from jointleaf.io._onnx_graph import ML_DOMAIN, ROWS, Graph

#: The matrix of a model without categories, and names that columns cannot have.
_MATRIX = "X"
_OUTPUTS = ("variable", "label", "probabilities")


def split_pipeline(model: Any) -> tuple[list[Any], Any]:
    """Return the steps before a model that a graph can do, and the model."""
    if not isinstance(model, Pipeline):
        return [], model
    *steps, last = [step for _, step in model.steps]
    steps = [step for step in steps if step is not None and step != "passthrough"]
    for step in steps:
        if type(step) not in (StandardScaler, MinMaxScaler, SimpleImputer, TablePreprocessor):
            raise TypeError(
                f"a Pipeline with a {type(step).__name__} cannot be exported: to_onnx knows "
                "StandardScaler, MinMaxScaler, SimpleImputer and TablePreprocessor; give the last "
                "step, to_onnx(pipeline[-1]), and make the others with another converter"
            )
    if any(isinstance(step, TablePreprocessor) for step in steps):
        if len(steps) > 1:
            raise TypeError("a TablePreprocessor must be the only step before the model")
        return [], last  # the graph takes the columns that it makes
    return steps, last


def add_inputs(graph: Graph, columns: Columns, steps: list[Any]) -> dict[str, tuple[Any, tuple]]:
    """Add the matrix that the model sees, under the name `ROWS`; return the inputs.

    Those are name, type and shape of one row.
    """
    if not columns.categorical.size:
        rows = _MATRIX
        for step in steps:
            rows = _add_step(graph, rows, step)
        graph.name(rows, ROWS)
        width = steps[0].n_features_in_ if steps else len(columns)
        return {_MATRIX: (np.float64, (width,))}
    if steps:
        raise TypeError(
            f"a Pipeline with a {type(steps[0]).__name__} before a model with categories cannot be "
            "exported: give its last step, to_onnx(pipeline[-1])"
        )
    inputs: dict[str, tuple[Any, tuple]] = {}
    parts = []
    for j, column in enumerate(columns):
        name = column.label
        if name in _OUTPUTS or name in inputs or name.startswith("_"):
            raise ValueError(f"column {name!r} has a name that the graph needs itself: rename it")
        is_text = column.categories is not None and column.categories.dtype.kind not in "iu"
        inputs[name] = (np.object_ if is_text else np.float64, (1,))
        parts.append(name if column.categories is None else _add_codes(graph, j, column))
    rows = graph.add("Concat", *parts, axis=1)
    if columns.statistics is not None:
        rows = _add_statistics(graph, rows, columns.statistics)
    graph.name(rows, ROWS)
    return inputs


def _add_codes(graph: Graph, j: int, column: Column) -> str:
    """Add the codes (n, 1) of a column, and those as indices (n,), L + 1 where missing."""
    assert column.categories is not None
    categories, name = column.categories.tolist(), column.label
    n = len(categories)
    values = [float(k) for k in range(n)]
    if column.categories.dtype.kind in "iu":
        is_missing = graph.add("IsNaN", name)
        whole = graph.cast(graph.add("Where", is_missing, 0.0, name), np.int64)
        codes = _add_lookup(graph, whole, "keys_int64s", categories, values, float(n))
        codes = graph.add("Where", is_missing, np.nan, codes)
    else:
        empty = [] if "" in categories else [""]  # how a missing value is written
        codes = _add_lookup(
            graph, name, "keys_strings", categories + empty, values + [np.nan] * len(empty), n
        )
    numbers = graph.add("Where", graph.add("IsNaN", codes), float(n + 1), codes)
    graph.codes[j] = graph.cast(graph.add("Squeeze", numbers, [1]), np.int64)
    return codes


def _add_lookup(
    graph: Graph, keys: str, kind: str, known: list, values: list[float], default: float
) -> str:
    encoder = {kind: known, "values_floats": values, "default_float": float(default)}
    return graph.cast(graph.add("LabelEncoder", keys, domain=ML_DOMAIN, **encoder), np.float64)


def _add_statistics(graph: Graph, coded: str, statistics: CategoryStatistics) -> str:
    """Add the matrix with statistics in place of codes, and behind all columns."""
    in_place: dict[int, str] = {}
    behind = []
    for table in statistics.tables:
        key = graph.codes[table.columns[0]]
        for j, n_codes in zip(table.columns[1:], table.n_codes[1:], strict=True):
            key = graph.add("Add", graph.add("Mul", key, n_codes), graph.codes[j])
        numbers = [float(k) for k in range(len(table.keys))]
        place = _add_lookup(
            graph, key, "keys_int64s", table.keys.tolist(), numbers, len(table.keys)
        )
        values = graph.add("Gather", table.values, graph.cast(place, np.int64), axis=0)
        if not table.replaces_codes:
            behind.append(values)
            continue
        parts = graph.split(values, [1] * len(table.names), axis=1)
        in_place[table.columns[0]] = parts[0]
        behind += parts[1:]
    columns = graph.split(coded, [1] * statistics.n_columns, axis=1)
    first = [in_place.get(j, column) for j, column in enumerate(columns)]
    return graph.add("Concat", *first, *behind, axis=1)


def _add_step(graph: Graph, rows: str, step: Any) -> str:
    """Add a step of a pipeline, with the arithmetic of scikit-learn."""
    if isinstance(step, StandardScaler):
        rows = graph.add("Sub", rows, step.mean_) if step.with_mean else rows
        return graph.add("Div", rows, step.scale_) if step.with_std else rows
    if isinstance(step, MinMaxScaler):
        rows = graph.add("Add", graph.add("Mul", rows, step.scale_), step.min_)
        low, high = map(float, step.feature_range)
        return graph.add("Min", graph.add("Max", rows, low), high) if step.clip else rows
    fills: NDArray = np.asarray(step.statistics_)
    is_plain = fills.dtype.kind == "f" and np.isfinite(fills).all()
    if not is_plain or step.add_indicator or step.missing_values is not np.nan:
        raise ValueError(
            f"{step!r} cannot be exported: to_onnx knows imputers that put a number in place of NaN"
        )
    return graph.add("Where", graph.add("IsNaN", rows), fills, rows)
