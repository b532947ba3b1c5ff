"""Rows of Dask collections for a fit of more rows than one process holds."""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.blocks import BlockDesign
from jointleaf._core.problem import Problem
from jointleaf._core.row_vectors import Call
from jointleaf._data.sources import Batch, stacked
from jointleaf._fit import memory
from jointleaf._sources.rows import Draw, FittedSample, Prepared, RowStore, say
from jointleaf.dask._cluster import Cluster
from jointleaf.dask._collections import Partitions, check_looks, look_at, make_batch


class DaskRows(RowStore):
    """Partitions of collections: one block for each, on the worker that has it."""

    def __init__(
        self, name: str, cluster: Cluster, X: Any, y: Any, sample_weight: Any, *, with_labels: bool
    ) -> None:
        self.name, self._cluster, self._with_labels = name, cluster, with_labels
        self._parts = Partitions.of(
            cluster, make_batch, X, y=(y, 1), sample_weight=(sample_weight, 1)
        )
        self._starts: list[int] = []
        self._labels: set[Any] = set()

    def survey(self) -> int:
        looks = self._parts.collect(look_at, self._with_labels)
        n_rows = check_looks(looks)
        self._starts = np.cumsum([0, *(look.n_rows for look in looks)]).tolist()
        self._labels = {label for look in looks for label in look.labels}
        return n_rows

    def _drawn(self, draw: Draw) -> list[tuple[NDArray, NDArray, int]]:
        """Return what was drawn of every partition, and its number of rows."""
        return [(*draw.within(a, b), b - a) for a, b in pairwise(self._starts)]

    def read_drawn(self, draw: Draw, *, with_labels: bool) -> tuple[Batch, Batch, set[Any]]:
        pairs = self._parts.collect(_take, each=self._drawn(draw))
        samples, validations = zip(*(pair for pair in pairs if pair is not None), strict=True)
        return stacked(samples), stacked(validations), self._labels

    def problem(self, model: FittedSample, draw: Draw) -> Problem:
        layout = model.estimator.cell_model_.layout
        row = model.dtype.itemsize * (layout.n_slopes + 1) + 2 * layout.n_partitions
        say(
            model.estimator,
            self,
            f"{layout.n_partitions:,} partitions are corrected by all rows in {len(self._parts)} "
            f"blocks, which take at most {memory.readable_bytes(draw.n_rows * row)} on the workers",
        )
        shared = self._cluster.share(model)
        blocks = self._parts.keep_blocks(_prepare, shared, each=self._drawn(draw))
        design = BlockDesign(Call(itemgetter(0), (blocks,)), self._cluster)
        numbers = np.empty(0, model.dtype)
        raw = np.empty((0, *model.estimator.cell_model_.biases.shape[1:]), model.dtype)
        y, s, offset = (
            design.vector_of(Call(itemgetter(k), (blocks,)), example)
            for k, example in ((1, numbers), (2, np.empty(0)), (3, raw))
        )
        return Problem(design, y, model.loss, model.penalty, s, offset)


def _take(batch: Batch, drawn: tuple[NDArray, NDArray, int]) -> tuple[Batch, Batch] | None:
    """Return the rows of a partition that were drawn; None of one without rows."""
    _check_count(batch, drawn[2])
    return (batch.take(drawn[0]), batch.take(drawn[1])) if len(batch.y) else None


def _prepare(batch: Batch, drawn: tuple[NDArray, NDArray, int], model: FittedSample) -> Prepared:
    """Return the block of a partition, without the rows that are held out."""
    _check_count(batch, drawn[2])
    used = np.setdiff1d(np.arange(len(batch.y)), drawn[1], assume_unique=True)
    prepared = model.prepare(batch, used)
    prepared.design.merge_partitions()
    return prepared


def _check_count(batch: Batch, n_rows: int) -> None:
    if len(batch.y) != n_rows:
        raise ValueError(
            f"a partition had {n_rows} rows at first and has {len(batch.y)} now: persist X, y and "
            "weights, or give a seed to what makes them"
        )
