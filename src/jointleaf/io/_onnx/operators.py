"""Linear features and partitions as ONNX operators.

Trees become one `TreeEnsembleRegressor` with a target for every weight of a cell: what its leaves
add up to is the linear model of the row. It compares and adds in double precision; the sums that
it gives are rounded to single precision, as the operator's definition has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.features import LinearFeatures
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.routing import ZERO
from jointleaf.io._onnx.graph import ML_DOMAIN, Graph
from jointleaf.partitions import RotatedPartitioner, VoronoiPartitioner
from jointleaf.partitions._rotated import FARTHEST, GRID
from jointleaf.partitions._voronoi import TIE

__all__ = ["add_features", "add_rotations", "add_trees", "add_voronoi"]

#: Largest model that the format can hold, and about what one weight takes of it.
_MOST_BYTES, _WEIGHT_BYTES = 2**31, 16


def add_features(graph: Graph, rows: str, features: LinearFeatures, n_columns: int) -> str:
    """Add the standardised linear features (n, m) of rows (n, d); see `Standardizer`.

    There are no indicators of categories among them: models with categories are not exported.
    """
    plan, scaler = features.plan, features.scaler
    raw = rows
    if len(plan.numbers) != n_columns:
        raw = graph.add("Gather", rows, graph.constant(plan.numbers, np.int64), axis=1)
    if len(plan.missing_indicators):
        columns = graph.constant(plan.missing_indicators, np.int64)
        is_missing = graph.add("IsNaN", graph.add("Gather", rows, columns, axis=1))
        raw = graph.add("Concat", raw, graph.cast(is_missing, np.float64), axis=1)
    missing = graph.add("IsNaN", raw)
    z = raw
    if scaler.clip:
        z = graph.add("Max", z, graph.constant(scaler.low))
        z = graph.add("Min", z, graph.constant(scaler.high))
    z = graph.add("Sub", z, graph.constant(scaler.mean))
    factor = 1.0 / np.maximum(scaler.scale, np.finfo(np.float64).tiny)
    z = graph.add("Mul", z, graph.constant(factor))
    return graph.add("Where", missing, graph.constant(0.0), z)


def add_rotations(graph: Graph, rows: str, partitioner: RotatedPartitioner) -> list[str]:
    """Add what the trees of each rotation see, (n, q), of rows (n, d).

    The steps are those of `RotatedPartitioner.apply`, and none but the standardisation is rounded.
    """
    z = add_features(graph, rows, partitioner.features_, partitioner.n_features_in_)
    z = graph.add("Clip", z, graph.constant(-FARTHEST), graph.constant(FARTHEST))
    z = graph.add("Round", graph.add("Mul", z, graph.constant(GRID)))
    z = graph.add("Mul", z, graph.constant(1 / GRID))
    return [graph.add("MatMul", z, graph.constant(A)) for A in partitioner.rotations_]


def add_trees(graph: Graph, rows: str, trees: FlatTrees, weights: NDArray) -> str:
    """Add sums (n, w) of the weights (C, w) of the leaves that rows (n, d) reach.

    Every tree has a split.
    """
    sums = graph.add(
        "TreeEnsembleRegressor",
        _as_compared(graph, rows, trees),
        domain=ML_DOMAIN,
        n_targets=weights.shape[1],
        **_nodes(graph, trees),
        **_targets(graph, trees, weights),
    )
    return graph.cast(sums, np.float64)


def _as_compared(graph: Graph, rows: str, trees: FlatTrees) -> str:
    """Add rows in the form in which trees compare them with their thresholds."""
    if trees.single_precision:
        rows = graph.cast(graph.cast(rows, np.float32), np.float64)
    if trees.zero_is_missing:
        small = graph.add("LessOrEqual", graph.add("Abs", rows), graph.constant(ZERO))
        rows = graph.add("Where", small, graph.constant(np.nan), rows)
    return rows


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


def add_voronoi(graph: Graph, rows: str, partitioner: VoronoiPartitioner, weights: NDArray) -> str:
    """Add sums (n, w) of the weights (C, w) of the cells with the nearest centres.

    The steps are those of `VoronoiPartitioner.apply`, ties included.
    """
    n_partitions, n_cells, m = partitioner.centres_.shape
    centres = partitioner.centres_.swapaxes(0, 1).reshape(-1, m)
    half = np.einsum("cd,cd->c", centres, centres) / 2
    z = add_features(graph, rows, partitioner.features_, partitioner.n_features_in_)
    scores = graph.add("MatMul", z, graph.constant(centres.T))
    scores = graph.add("Sub", scores, graph.constant(half))
    shape = graph.constant([-1, n_cells, n_partitions], np.int64)
    scores = graph.add("Reshape", scores, shape)
    axis = graph.constant([1], np.int64)
    lengths = graph.add("ReduceSum", graph.add("Mul", z, z), axis)
    lengths = graph.add("Add", lengths, graph.constant(half.max()))
    margin = graph.add("Unsqueeze", graph.add("Mul", lengths, graph.constant(TIE)), axis)
    least = graph.add("Sub", graph.add("ReduceMax", scores, axis), margin)
    near = graph.cast(graph.add("GreaterOrEqual", scores, least), np.int32)
    first = graph.add("ArgMax", near, axis=1)  # (n, 1, P)
    numbers = graph.constant(np.arange(n_cells)[:, None], np.int64)
    is_cell = graph.cast(graph.add("Equal", first, numbers), np.float64)
    flat = graph.add("Reshape", is_cell, graph.constant([-1, len(centres)], np.int64))
    by_cell = weights.reshape(n_partitions, n_cells, -1).swapaxes(0, 1).reshape(len(centres), -1)
    return graph.add("MatMul", flat, graph.constant(by_cell))
