"""Fitted models as ONNX graphs, for prediction where there is no Python.

A prediction is linear in the weights of the row's cells,

    f(x) = centre + unit (offset + <z, A> + a + <z, sum_p w_p(x)> + sum_p b_p(x)),

with the linear features z, slopes w_p and biases b_p of the row's cell in partition p, and A, a
those of the partitions with a single cell. Partitions of linear and of constant cells are separate
operators, so that constants cost no slopes.

Trees become one `TreeEnsembleRegressor` with a target for every weight of a cell: what its leaves
add up to is the linear model of the row. It compares and adds in double precision; the sums that
it gives are rounded to single precision, as the operator's definition has it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.features import LinearFeatures
from jointleaf._fit.component import LOSS_UNITS, loss_name
from jointleaf._fit.quantiles import check_single
from jointleaf._model.cell_model import CellModel
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.routing import ZERO
from jointleaf.estimators import JOPLEnClassifier, JOPLEnRegressor
from jointleaf.io._model_file.files import write_whole
from jointleaf.io._onnx_graph import ML_DOMAIN, ROWS, Graph, add_inputs, import_onnx, split_pipeline
from jointleaf.partitions import Partitioner, RootCell, RotatedPartitioner, VoronoiPartitioner
from jointleaf.partitions._base import TreeCells
from jointleaf.partitions._rotated import FARTHEST, GRID
from jointleaf.partitions._voronoi import TIE

#: Largest model that the format can hold, and about what one weight takes of it.
_MOST_BYTES, _WEIGHT_BYTES = 2**31, 16


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Return a fitted model as an ONNX model (extra ``onnx``), or write it to a file.

    The graph takes rows ``X`` (n, d), doubles with NaN for missing values. Where a model has
    columns of categories, it takes a value (n, 1) for every column, under its name: text, an empty
    one where it is missing, or doubles; categories that the fit did not see are allowed.

    A regressor returns ``variable`` (n, 1), doubles: for losses with a log link means per unit of
    exposure. A classifier returns ``label`` (n,) of the type of its classes and ``probabilities``
    (n, K), doubles, in the order of ``classes_``.

    Rows reach the same cells as with `predict`. The sums of the weights of trees are rounded to
    single precision by the operator that makes them, so that predictions agree to about 1e-7 of the
    size of the terms that they are the sum of.

    Parameters
    ----------
    model : JOPLEnRegressor or JOPLEnClassifier
        Fitted, also by `refine` and `prune`; or a Pipeline that ends in one, with the steps
        `StandardScaler`, `MinMaxScaler` and `SimpleImputer`, or a `TablePreprocessor`, of which the
        graph takes the columns that it makes (``get_feature_names_out()``).
    path : str or path, optional
        By convention it ends in ``.onnx``. The file is replaced at once or not at all.

    Returns
    -------
    onnx.ModelProto, or None where it is written to a file

    Raises
    ------
    TypeError
        Where the model is no such estimator.
    ValueError
        Where the model cannot be expressed: with CatBoost's combinations of categories, with
        ``clip="cell"``, with partitions of a class of the user, or too large for the format.
    """
    onnx = import_onnx()
    steps, model = split_pipeline(model)
    kinds = TreeCells, RootCell, RotatedPartitioner, VoronoiPartitioner
    known = "trees, rotated trees, Voronoi partitions and the root cell"
    check_exportable(model, "to_onnx", kinds, known)
    cells: CellModel = model.cell_model_
    graph = Graph()
    inputs = add_inputs(graph, model.columns_, steps)
    raw = _add_raw_predictions(graph, cells, len(model.columns_.of_matrix()))
    if isinstance(model, JOPLEnRegressor):
        raw = graph.add("Exp", raw) if model.loss_.has_log_link else raw
        graph.name(raw, "variable")
        outputs: dict[str, Any] = {"variable": (np.float64, (1,))}
    else:
        outputs = _add_classes(graph, raw, _labels(model.classes_))
    proto = graph.model(inputs, outputs, f"jointleaf {type(model).__name__}")
    names = [column.label for column in model.columns_]
    if steps and hasattr(steps[0], "feature_names_in_"):
        names = steps[0].feature_names_in_.tolist()
    onnx.helper.set_model_props(proto, {"columns": json.dumps(names)})
    if path is None:
        return proto
    write_whole(path, proto.SerializeToString())
    return None  # a notebook would show the whole graph


def check_exportable(model: Any, function: str, kinds: tuple[type, ...], known: str) -> None:
    """Raise for what an export, by the function of this name, has no expression for.

    `kinds` are the partitioners that it can express, `known` the same in words.
    """
    language = {"to_onnx": "ONNX", "to_sql": "SQL"}[function]
    if type(model) not in (JOPLEnRegressor, JOPLEnClassifier):
        raise TypeError(
            f"a {type(model).__name__} cannot be exported: {function} takes a fitted "
            "JOPLEnRegressor or JOPLEnClassifier"
        )
    check_is_fitted(model)
    check_single(model, function)
    loss = getattr(model, "loss_", None)
    if loss is not None and loss_name("regression", loss) not in LOSS_UNITS:
        raise ValueError(
            f"loss={loss!r} is code of one's own, and its link cannot be exported to {language}: "
            "use one of the losses by name, or pickle"
        )
    if model.cell_model_.ranges is not None:
        raise ValueError(
            f"clip='cell' cannot be exported to {language}, because every cell has its ranges: fit "
            "with clip=True, or use jointleaf.save"
        )
    for member, _ in model.partitioner_.walk():
        if not isinstance(member, kinds):
            raise ValueError(
                f"partitions of a {type(member).__name__} cannot be exported to {language}: "
                f"{function} knows {known}"
            )
        if isinstance(member, TreeCells) and member.trees_.lookups:
            raise ValueError(
                "trees that look up combinations of categories, as CatBoost's do, cannot be "
                f"exported to {language}: use jointleaf.save"
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
            return _add_trees(graph, self.rows, self.partitions, weights)
        return _add_voronoi(graph, self.partitions, weights)


def _add_raw_predictions(graph: Graph, model: CellModel, n_columns: int) -> str:
    biases = model.biases.astype(np.float64).reshape(model.layout.n_cells, -1)
    slopes = model.slopes.astype(np.float64).reshape(*model.slopes.shape[:2], biases.shape[1])
    slopes = np.concatenate([slopes, np.zeros((1, *slopes.shape[1:]))])  # for constant cells
    slope_rows = model.layout.slope_rows
    shared, parts = _parts(graph, model)
    common = slopes[slope_rows[shared]].sum(axis=0)
    terms = [part.add(graph, biases[part.cells]) for part in parts if not part.is_linear]
    linear = [part for part in parts if part.is_linear]
    if linear or common.any() or not terms:
        z = _add_features(graph, model.features, n_columns)
        if linear:
            tables = [(slopes[slope_rows[part.cells]], biases[part.cells]) for part in linear]
            terms.append(_add_linear(graph, z, linear, tables))
        if common.any() or not terms:  # with no term at all, one constant for every row
            terms.append(graph.add("MatMul", z, common))
    total = terms[0]
    for term in terms[1:]:
        total = graph.add("Add", total, term)
    total = graph.add("Mul", total, model.unit)
    constant = model.centre + model.unit * (model.offset + biases[shared].sum(axis=0))
    return graph.add("Add", total, constant)


def _members(graph: Graph, model: CellModel) -> Iterator[tuple[Partitioner, int, str]]:
    """Yield innermost partitioners, the numbers of their first partitions, and what they divide."""
    for member, first in model.partitioner.walk():
        if not isinstance(member, RotatedPartitioner):
            yield member, first, ROWS
            continue
        spaces = _add_rotations(graph, member)
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
                trees, seen = _without_categories(graph, rows, member.trees_.only(chosen))
                parts.append(_Part(trees, cells, kind, seen))
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
        z = graph.add("Gather", z, active, axis=1)
    weights_of_rows = graph.add("Reshape", sums, [-1, len(active) + 1, n_outputs])
    row_slopes, row_biases = graph.split(weights_of_rows, [len(active), 1], axis=1)
    terms = graph.add("Mul", graph.add("Unsqueeze", z, [2]), row_slopes)
    products = graph.add("ReduceSum", terms, [1], keepdims=0)
    return graph.add("Add", products, graph.add("Squeeze", row_biases, [1]))


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
        positive = graph.add("Greater", raw, 0.0)
        number = graph.cast(graph.add("Squeeze", positive, [1]), np.int64)
        both = graph.add("Concat", graph.add("Neg", raw), raw, axis=1)
        probabilities = graph.add("Sigmoid", both)
    else:
        number = graph.add("ArgMax", raw, axis=1, keepdims=0)
        probabilities = graph.add("Softmax", raw, axis=1)
    graph.name(graph.add("Gather", labels, number), "label")
    graph.name(probabilities, "probabilities")
    return {"label": (labels.dtype, ()), "probabilities": (np.float64, (len(labels),))}


# -- partitions and features as operators ---------------------------------------------------------


def _without_categories(graph: Graph, rows: str, trees: FlatTrees) -> tuple[FlatTrees, str]:
    """Return trees that split numbers alone, and what they see of rows.

    Behind the columns of rows there is one for every set of categories that a split sends left: 1
    for these, 2 for the others.
    """
    splits = np.flatnonzero(trees.table >= 0)
    if not splits.size:
        return trees, rows
    feature, threshold = trees.feature.copy(), trees.threshold.copy()
    missing_left, width, seen = trees.missing_left.copy(), trees.n_features, [rows]
    for j in np.unique(trees.feature[splits]):
        on_column = splits[trees.feature[splits] == j]
        entries = trees.table[on_column][:, None] + np.arange(trees.n_categories[j] + 1)
        is_left = np.c_[trees.categories_left[entries], trees.missing_left[on_column]]
        tables, which = np.unique(is_left, axis=0, return_inverse=True)
        feature[on_column] = width + which.reshape(-1)
        width += len(tables)
        seen.append(graph.add("Gather", np.where(tables.T, 1.0, 2.0), graph.codes[j], axis=0))
    threshold[splits], missing_left[splits] = 1.5, False
    numbers = replace(
        trees,
        n_features=width,
        feature=feature,
        threshold=threshold,
        missing_left=missing_left,
        table=np.full_like(trees.table, -1),
        n_categories=np.zeros(width, np.intp),
    )
    return numbers, graph.add("Concat", *seen, axis=1)


def _add_features(graph: Graph, features: LinearFeatures, n_columns: int) -> str:
    """Add the standardised linear features (n, m) of rows (n, d); see `Standardizer`."""
    plan, scaler = features.plan, features.scaler
    n_numbers, n_missing = len(plan.numbers), len(plan.missing_indicators)
    parts = []
    if n_numbers:
        is_all = n_numbers == n_columns
        z = ROWS if is_all else graph.add("Gather", ROWS, plan.numbers, axis=1)
        parts.append(_add_standard(graph, z, features, slice(n_numbers)))
    for part in plan.indicators:
        if part.names:
            # What the standardiser makes of every category, of unseen ones and of missing values.
            n_categories = len(part.place) - 2
            rows = np.zeros((n_categories + 2, n_columns))
            rows[:, part.column] = [*range(n_categories + 1), np.nan]
            start = n_numbers + sum(len(p.names) for p in plan.indicators if p.column < part.column)
            table = features.transform(rows)[:, start : start + len(part.names)]
            parts.append(graph.add("Gather", table, graph.codes[part.column], axis=0))
    if n_missing:
        columns = graph.add("Gather", ROWS, plan.missing_indicators, axis=1)
        indicators = graph.cast(graph.add("IsNaN", columns), np.float64)
        last = slice(len(scaler.mean) - n_missing, None)
        parts.append(_add_standard(graph, indicators, features, last))
    return parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)


def _add_standard(graph: Graph, z: str, features: LinearFeatures, which: slice) -> str:
    """Add numbers (n, k), clipped and standardised as some of the features, 0 where missing."""
    scaler = features.scaler
    is_missing = graph.add("IsNaN", z)
    if scaler.clip:
        z = graph.add("Min", graph.add("Max", z, scaler.low[which]), scaler.high[which])
    factor = 1.0 / np.maximum(scaler.scale[which], np.finfo(np.float64).tiny)
    z = graph.add("Mul", graph.add("Sub", z, scaler.mean[which]), factor)
    return graph.add("Where", is_missing, 0.0, z)


def _add_rotations(graph: Graph, partitioner: RotatedPartitioner) -> list[str]:
    """Add what the trees of each rotation see, (n, q), of rows (n, d).

    The steps are those of `RotatedPartitioner.apply`, and none but the standardisation is rounded.
    """
    z = _add_features(graph, partitioner.features_, partitioner.n_features_in_)
    z = graph.add("Clip", z, -FARTHEST, FARTHEST)
    z = graph.add("Mul", graph.add("Round", graph.add("Mul", z, GRID)), 1 / GRID)
    return [graph.add("MatMul", z, rotation) for rotation in partitioner.rotations_]


def _add_trees(graph: Graph, rows: str, trees: FlatTrees, weights: NDArray) -> str:
    """Add sums (n, w) of the weights (C, w) of the leaves of trees, each of which has a split."""
    if trees.single_precision:
        rows = graph.cast(graph.cast(rows, np.float32), np.float64)
    if trees.zero_is_missing:
        small = graph.add("LessOrEqual", graph.add("Abs", rows), ZERO)
        rows = graph.add("Where", small, np.nan, rows)
    sums = graph.add(
        "TreeEnsembleRegressor",
        rows,
        domain=ML_DOMAIN,
        n_targets=weights.shape[1],
        **_nodes(graph, trees),
        **_targets(graph, trees, weights),
    )
    return graph.cast(sums, np.float64)


def _nodes(graph: Graph, trees: FlatTrees) -> dict[str, Any]:
    """Return the attributes of the nodes: of every tree its splits, then its leaves."""
    sizes, tree = np.diff(trees.starts), trees.tree_of_split
    n_nodes = sizes + trees.n_leaves
    owner = np.repeat(np.arange(trees.n_trees), n_nodes)
    start = np.cumsum(n_nodes) - n_nodes
    number = np.arange(len(owner)) - start[owner]
    place = start[tree] + np.arange(len(tree)) - trees.starts[tree]

    def at_splits(values: NDArray) -> NDArray:
        of_nodes = np.zeros(len(owner), values.dtype)
        of_nodes[place] = values
        return of_nodes

    def children(child: NDArray) -> NDArray:
        split = child.astype(np.int64) - trees.starts[tree]
        return at_splits(np.where(child >= 0, split, sizes[tree] + ~child.astype(np.int64)))

    is_split = at_splits(np.ones(len(tree), bool))
    return {
        "nodes_treeids": owner.tolist(),
        "nodes_nodeids": number.tolist(),
        "nodes_modes": np.where(is_split, "BRANCH_LEQ", "LEAF").tolist(),
        "nodes_featureids": at_splits(trees.feature).tolist(),
        "nodes_values_as_tensor": graph.tensor(at_splits(trees.threshold)),
        "nodes_truenodeids": children(trees.left).tolist(),
        "nodes_falsenodeids": children(trees.right).tolist(),
        "nodes_missing_value_tracks_true": at_splits(trees.missing_left).astype(int).tolist(),
    }


def _targets(graph: Graph, trees: FlatTrees, weights: NDArray) -> dict[str, Any]:
    """Return the attributes of the weights; zeros are left out, but every leaf has at least one."""
    tree = np.repeat(np.arange(trees.n_trees), trees.n_leaves)
    # Leaves that no training row reached add nothing: an entry of zeros behind all cells.
    of_leaf = np.concatenate([weights, np.zeros_like(weights[:1])])[trees.leaf_cells]
    is_written = of_leaf != 0
    is_written[~is_written.any(axis=1), 0] = True
    if np.count_nonzero(is_written) * _WEIGHT_BYTES > _MOST_BYTES:
        raise ValueError(
            f"the model has {np.count_nonzero(is_written)} weights, too many for a file of 2 GiB: "
            "make it smaller with jointleaf.prune"
        )
    leaf, target = np.nonzero(is_written)
    number = np.diff(trees.starts)[tree] + trees.leaf_numbers
    return {
        "target_treeids": tree[leaf].tolist(),
        "target_nodeids": number[leaf].tolist(),
        "target_ids": target.tolist(),
        "target_weights_as_tensor": graph.tensor(of_leaf[is_written]),
    }


def _add_voronoi(graph: Graph, partitioner: VoronoiPartitioner, weights: NDArray) -> str:
    """Add sums (n, w) of the weights (C, w) of the cells with the nearest centres.

    The steps are those of `VoronoiPartitioner.apply`, ties included.
    """
    n_partitions, n_cells, m = partitioner.centres_.shape
    centres = partitioner.centres_.swapaxes(0, 1).reshape(-1, m)
    half = np.einsum("cd,cd->c", centres, centres) / 2
    z = _add_features(graph, partitioner.features_, partitioner.n_features_in_)
    scores = graph.add("Sub", graph.add("MatMul", z, centres.T), half)
    scores = graph.add("Reshape", scores, [-1, n_cells, n_partitions])
    lengths = graph.add("ReduceSum", graph.add("Mul", z, z), [1])
    lengths = graph.add("Add", lengths, half.max())
    margin = graph.add("Unsqueeze", graph.add("Mul", lengths, TIE), [1])
    least = graph.add("Sub", graph.add("ReduceMax", scores, [1]), margin)
    near = graph.cast(graph.add("GreaterOrEqual", scores, least), np.int32)
    first = graph.add("ArgMax", near, axis=1)  # (n, 1, P)
    is_cell = graph.cast(graph.add("Equal", first, np.arange(n_cells)[:, None]), np.float64)
    flat = graph.add("Reshape", is_cell, [-1, len(centres)])
    by_cell = weights.reshape(n_partitions, n_cells, -1).swapaxes(0, 1).reshape(len(centres), -1)
    return graph.add("MatMul", flat, by_cell)
