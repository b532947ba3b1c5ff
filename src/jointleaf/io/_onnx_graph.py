"""ONNX graphs, and what they take: a matrix of numbers, or a value for every column.

Categories become codes, target statistics stand in their place where the model has some, and the
scalers and imputers of a pipeline are done first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import jointleaf
from jointleaf._data.columns import Column, Columns
from jointleaf._data.preprocessor import TablePreprocessor
from jointleaf._data.statistics import CategoryStatistics

#: The matrix (n, d) that a model sees.
ROWS = "_rows"
ML_DOMAIN = "ai.onnx.ml"
# Old enough for runtimes of 2022 on, new enough for reductions over axes that are inputs.
_OPSET, _ML_OPSET, _IR_VERSION = 18, 3, 8
#: The matrix of a model without categories, and names that columns cannot have.
_MATRIX = "X"
_OUTPUTS = ("variable", "label", "probabilities")
#: Type and shape of what a graph takes or returns.
Value = tuple[Any, tuple[int, ...]]


def import_onnx() -> Any:
    """Return the package onnx with what is used of it, or raise with how to install it."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as cause:
        raise ImportError("to_onnx needs onnx: pip install 'jointleaf[onnx]'") from cause
    return onnx


class Graph:
    """Operators in the order in which they run, and the constants that they use.

    Values are known by their names, which the methods return.
    """

    def __init__(self) -> None:
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        #: by column: indices (n,) of categories, L for unseen ones, L + 1 for missing values
        self.codes: dict[int, str] = {}

    def add(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Append an operator with one output; inputs that are no names are constants."""
        return self._append(operator, inputs, [f"_v{len(self._nodes)}"], **attributes)[0]

    def split(self, value: str, sizes: list[int], axis: int) -> list[str]:
        """Split a value into parts of these sizes."""
        names = [f"_v{len(self._nodes)}_{i}" for i in range(len(sizes))]
        return self._append("Split", (value, sizes), names, axis=axis)

    def name(self, value: str, name: str) -> None:
        """Name a value as an output."""
        self._append("Identity", (value,), [name])

    def cast(self, value: str, dtype: Any) -> str:
        """Cast a value to another type."""
        return self.add("Cast", value, to=self._type(dtype))

    def tensor(self, values: Any, name: str | None = None) -> Any:
        """Return an array in the form of ONNX, numbers in 64 bits."""
        array = np.asarray(values)
        wide = {"i": np.int64, "u": np.int64, "f": np.float64}.get(array.dtype.kind, array.dtype)
        return self._onnx.numpy_helper.from_array(array.astype(wide), name)

    def model(self, inputs: dict[str, Value], outputs: dict[str, Value], about: str) -> Any:
        """Return the checked model with inputs and outputs by name, as type and shape.

        Shapes are those of one row; the number of rows is left open.
        """
        helper = self._onnx.helper
        given, results = (
            [
                helper.make_tensor_value_info(name, self._type(dtype), ["n", *shape])
                for name, (dtype, shape) in values.items()
            ]
            for values in (inputs, outputs)
        )
        graph = helper.make_graph(self._nodes, "jointleaf", given, results, self._constants)
        versions = {"": _OPSET, ML_DOMAIN: _ML_OPSET}
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*version) for version in versions.items()],
            ir_version=_IR_VERSION,
            producer_name="jointleaf",
            producer_version=jointleaf.__version__,
            doc_string=about,
        )
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _append(
        self, operator: str, inputs: Sequence[Any], outputs: list[str], **attributes: Any
    ) -> list[str]:
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self._nodes.append(self._onnx.helper.make_node(operator, names, outputs, **attributes))
        return outputs

    def _constant(self, values: Any) -> str:
        name = f"_c{len(self._constants)}"
        self._constants.append(self.tensor(values, name))
        return name

    def _type(self, dtype: Any) -> int:
        if np.dtype(dtype).kind in "OU":
            return int(self._onnx.TensorProto.STRING)
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


# -- inputs ----------------------------------------------------------------------------------------


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


def add_inputs(graph: Graph, columns: Columns, steps: list[Any]) -> dict[str, Value]:
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
    inputs: dict[str, Value] = {}
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
