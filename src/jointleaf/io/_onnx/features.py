"""The linear features as ONNX operators."""

from __future__ import annotations

import numpy as np

from jointleaf._data.features import LinearFeatures
from jointleaf.io._onnx.graph import Graph

__all__ = ["add_features"]


def add_features(graph: Graph, rows: str, features: LinearFeatures, n_columns: int) -> str:
    """Give the standardised linear features (n, m) of rows (n, d); see `Standardizer`.

    There are no indicators of levels among them: models with categories are refused before.
    """
    plan, scaler = features.plan, features.scaler
    raw = rows
    if len(plan.numbers) != n_columns:
        raw = graph.add("Gather", rows, graph.constant(plan.numbers, np.int64), axis=1)
    if len(plan.missing_indicators):
        gaps = graph.add("Gather", rows, graph.constant(plan.missing_indicators, np.int64), axis=1)
        gaps = graph.cast(graph.add("IsNaN", gaps), np.float64)
        raw = graph.add("Concat", raw, gaps, axis=1)
    missing = graph.add("IsNaN", raw)
    z = raw
    if scaler.clip:
        z = graph.add("Max", z, graph.constant(scaler.low))
        z = graph.add("Min", z, graph.constant(scaler.high))
    z = graph.add("Sub", z, graph.constant(scaler.mean))
    factor = 1.0 / np.maximum(scaler.scale, np.finfo(np.float64).tiny)
    z = graph.add("Mul", z, graph.constant(factor))
    return graph.add("Where", missing, graph.constant(0.0), z)
