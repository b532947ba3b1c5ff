"""Writing fitted models as ONNX graphs.

A prediction is linear in the weights of the row's cells,

    f(x) = centre + unit (offset + <z, A> + a + <z, sum_p w_p(x)> + sum_p b_p(x)),

with the linear features z, slopes w_p and biases b_p of the row's cell in partition p, and A, a
those of the partitions with a single cell. Partitions of linear and of constant cells are separate
operators, so that constants cost no slopes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import jointleaf
from jointleaf._model.cell_model import CellModel
from jointleaf._trees.flat import FlatTrees
from jointleaf.estimators import JOPLEnClassifier, JOPLEnRegressor
from jointleaf.io._model_file.files import write_whole
from jointleaf.io._onnx.graph import Graph, import_onnx
from jointleaf.io._onnx.operators import add_features, add_rotations, add_trees, add_voronoi
from jointleaf.partitions import Partitioner, RootCell, RotatedPartitioner, VoronoiPartitioner
from jointleaf.partitions._base import TreeCells

__all__ = ["to_onnx"]

_ROWS = "X"


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Return a fitted model as an ONNX model (extra ``onnx``), and write it to a file.

    The graph takes rows ``X`` (n, d), doubles with NaN for missing values. A regressor returns
    ``variable`` (n, 1), doubles. A classifier returns ``label`` (n,) of the type of its classes and
    ``probabilities`` (n, K), doubles, in the order of ``classes_``.

    Rows reach the same cells as with `predict`. The sums of the weights of trees are rounded to
    single precision by the operator that makes them, so that predictions agree to about 1e-7 of the
    size of the terms that they are the sum of.

    Parameters
    ----------
    model : JOPLEnRegressor or JOPLEnClassifier
        Fitted, also by `refine` and `prune`.
    path : str or path, optional
        By convention it ends in ``.onnx``. The file is replaced at once or not at all.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    TypeError
        Where the model is no such estimator.
    ValueError
        Where the model cannot be expressed: with columns of categories, with ``clip="cell"``,
        with partitions of a class of the user, or too large for the format.
    """
    onnx = import_onnx()
    _check(model)
    cells: CellModel = model.cell_model_
    graph = Graph()
    raw = _add_raw_predictions(graph, cells, model.n_features_in_)
    if isinstance(model, JOPLEnRegressor):
        graph.name(raw, "variable")
        outputs: dict[str, Any] = {"variable": (np.float64, (1,))}
    else:
        outputs = _add_classes(graph, raw, _labels(model.classes_))
    proto = graph.model(
        model.n_features_in_,
        outputs,
        producer_version=jointleaf.__version__,
        doc_string=f"jointleaf {type(model).__name__}",
    )
    names = [column.label for column in model.columns_]
    onnx.helper.set_model_props(proto, {"columns": json.dumps(names)})
    if path is not None:
        write_whole(Path(os.path.realpath(path)), proto.SerializeToString())
    return proto


def _check(model: Any) -> None:
    """Raise for what ONNX has no expression for."""
    if isinstance(model, Pipeline):
        raise TypeError(
            "a Pipeline cannot be exported: give its last step, to_onnx(pipeline[-1]), and make "
            "the steps before it with another converter"
        )
    if type(model) not in (JOPLEnRegressor, JOPLEnClassifier):
        raise TypeError(
            f"a {type(model).__name__} cannot be exported: to_onnx takes a fitted "
            "JOPLEnRegressor or JOPLEnClassifier"
        )
    check_is_fitted(model)
    if model.columns_.categorical.size:
        names = [model.columns_[j].label for j in model.columns_.categorical]
        raise ValueError(
            f"column {names[0]!r} holds categories, which the ONNX graph of a model cannot read: "
            "encode them as numbers before fit, or use jointleaf.save"
        )
    if model.cell_model_.ranges is not None:
        raise ValueError(
            "clip='cell' cannot be exported, because every cell has its ranges: fit with "
            "clip=True, or use jointleaf.save"
        )
    for member, _ in model.partitioner_.walk():
        if not isinstance(member, TreeCells | RootCell | RotatedPartitioner | VoronoiPartitioner):
            raise ValueError(
                f"partitions of a {type(member).__name__} cannot be exported: to_onnx knows trees, "
                "rotated trees, Voronoi partitions and the root cell"
            )


# -- raw predictions -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """Partitions on which rows differ, and the numbers of their cells among all."""

    partitions: FlatTrees | VoronoiPartitioner
    cells: NDArray[np.intp]
    is_linear: bool
    rows: str  # what the partitions divide

    def add(self, graph: Graph, weights: NDArray) -> str:
        """Add sums (n, w) of the weights (C', w) of these cells."""
        if isinstance(self.partitions, FlatTrees):
            return add_trees(graph, self.rows, self.partitions, weights)
        return add_voronoi(graph, self.rows, self.partitions, weights)


def _add_raw_predictions(graph: Graph, model: CellModel, n_columns: int) -> str:
    """Add raw predictions (n, K)."""
    biases = model.biases.astype(np.float64).reshape(model.layout.n_cells, -1)
    slopes = model.slopes.astype(np.float64).reshape(*model.slopes.shape[:2], biases.shape[1])
    slopes = np.concatenate([slopes, np.zeros((1, *slopes.shape[1:]))])  # for constant cells
    slope_rows = model.layout.slope_rows
    shared, parts = _parts(graph, model)
    common = slopes[slope_rows[shared]].sum(axis=0)
    terms = [part.add(graph, biases[part.cells]) for part in parts if not part.is_linear]
    linear = [part for part in parts if part.is_linear]
    if linear or common.any() or not terms:
        z = add_features(graph, _ROWS, model.features, n_columns)
        if linear:
            tables = [(slopes[slope_rows[part.cells]], biases[part.cells]) for part in linear]
            terms.append(_add_linear(graph, z, linear, tables))
        if common.any() or not terms:  # with no term at all, one constant for every row
            terms.append(graph.add("MatMul", z, graph.constant(common)))
    total = terms[0]
    for term in terms[1:]:
        total = graph.add("Add", total, term)
    total = graph.add("Mul", total, graph.constant(model.unit))
    constant = model.centre + model.unit * (model.offset + biases[shared].sum(axis=0))
    return graph.add("Add", total, graph.constant(constant))


def _members(graph: Graph, model: CellModel) -> Iterator[tuple[Partitioner, int, str]]:
    """Yield innermost partitioners, the numbers of their first partitions, and what they divide."""
    for member, first in model.partitioner.walk():
        if not isinstance(member, RotatedPartitioner):
            yield member, first, _ROWS
            continue
        spaces = add_rotations(graph, _ROWS, member)
        for trees, space in zip(member.members_, spaces, strict=True):
            yield trees, first, space
            first += len(trees.n_cells_)


def _parts(graph: Graph, model: CellModel) -> tuple[NDArray[np.intp], list[_Part]]:
    """The cells that hold every row, and the partitions that divide rows."""
    offsets, shared, parts = model.layout.offsets, [np.zeros(0, np.intp)], []
    is_linear = np.array(model.layout.kinds) == "linear"
    for member, first, rows in _members(graph, model):
        numbers = first + np.arange(len(member.n_cells_))
        cells_of = [np.arange(*offsets[[p, p + 1]]) for p in numbers]
        if isinstance(member, VoronoiPartitioner):
            has_slopes = bool(is_linear[numbers].any())
            parts.append(_Part(member, np.concatenate(cells_of), has_slopes, rows))
            continue
        divides = np.zeros(len(numbers), bool)
        if isinstance(member, TreeCells):
            divides = np.diff(member.trees_.starts) > 0
        shared += [cells_of[i] for i in np.flatnonzero(~divides)]
        for kind in (True, False):
            chosen = divides & (is_linear[numbers] == kind)
            if chosen.any():
                cells = np.concatenate([cells_of[i] for i in np.flatnonzero(chosen)])
                parts.append(_Part(member.trees_.only(chosen), cells, kind, rows))
    return np.concatenate(shared), parts


def _add_linear(
    graph: Graph, z: str, parts: list[_Part], tables: list[tuple[NDArray, NDArray]]
) -> str:
    """Add <z, sum of slopes> + sum of biases, (n, K), over linear partitions that divide rows.

    `tables` are slopes (C', m, K) and biases (C', K) of every part. Only features that some cell
    has a slope for take part.
    """
    active = np.flatnonzero(np.any([slopes.any(axis=(0, 2)) for slopes, _ in tables], axis=0))
    n_slopes, n_outputs = tables[0][0].shape[1:]
    sums = ""
    for part, (slopes, biases) in zip(parts, tables, strict=True):
        weights = np.concatenate([slopes[:, active], biases[:, None]], axis=1)
        term = part.add(graph, weights.reshape(len(weights), -1))
        sums = graph.add("Add", sums, term) if sums else term
    if not len(active):
        return sums
    if len(active) < n_slopes:
        z = graph.add("Gather", z, graph.constant(active, np.int64), axis=1)
    shape = graph.constant([-1, len(active) + 1, n_outputs], np.int64)
    row_slopes, row_biases = graph.split(
        graph.add("Reshape", sums, shape), [len(active), 1], axis=1
    )
    z = graph.add("Unsqueeze", z, graph.constant([2], np.int64))
    axis = graph.constant([1], np.int64)
    products = graph.add("ReduceSum", graph.add("Mul", z, row_slopes), axis, keepdims=0)
    return graph.add("Add", products, graph.add("Squeeze", row_biases, axis))


# -- classes -------------------------------------------------------------------------------------


def _labels(classes: NDArray) -> NDArray:
    """Return classes in a type that ONNX has: truth values, whole numbers, doubles or text."""
    labels = np.array(classes.tolist()) if classes.dtype.kind == "O" else classes
    types = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64, "U": np.object_}
    if labels.dtype.kind not in types:
        raise ValueError(
            f"class {classes[0]!r} is neither a number nor text, and ONNX has no other labels: "
            "rename the classes before fit"
        )
    return labels.astype(types[labels.dtype.kind])


def _add_classes(graph: Graph, raw: str, labels: NDArray) -> dict[str, Any]:
    """Add labels and probabilities; return the outputs."""
    if len(labels) == 2:
        positive = graph.add("Greater", raw, graph.constant(0.0))
        number = graph.cast(graph.add("Squeeze", positive, graph.constant([1], np.int64)), np.int64)
        both = graph.add("Concat", graph.add("Neg", raw), raw, axis=1)
        probabilities = graph.add("Sigmoid", both)
    else:
        number = graph.add("ArgMax", raw, axis=1, keepdims=0)
        probabilities = graph.add("Softmax", raw, axis=1)
    graph.name(graph.add("Gather", graph.constant(labels, None), number), "label")
    graph.name(probabilities, "probabilities")
    return {"label": (labels.dtype, ()), "probabilities": (np.float64, (len(labels),))}
