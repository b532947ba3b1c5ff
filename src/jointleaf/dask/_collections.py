"""Dask collections: batches of rows on the workers, whether they can be fitted, and their store.

Partitions of X, y and weights that belong together become one `Batch`, made by a task. Nothing is
kept of it: a pass that needs rows asks for the task, and collections that are persisted give them
at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import dask.array as da
import narwhals.stable.v2 as nw
import numpy as np
from dask.core import get_dependencies
from numpy.typing import NDArray

import dask
from jointleaf._core import arrays
from jointleaf._core.blocks import BlockDesign
from jointleaf._core.problem import Problem
from jointleaf._core.row_vectors import Call, Kept
from jointleaf._data.sources import Batch, fraction_in, missing_target, stacked
from jointleaf._sources.rows import Draw, FittedSample, Prepared, RowStore
from jointleaf.dask._cluster import Cluster


def is_frame(X: Any) -> bool:
    """Whether this is a data frame of Dask."""
    return _is_of_frames(X) and X.ndim == 2


def _is_of_frames(X: Any) -> bool:
    """Whether this is a data frame or a series of Dask."""
    return type(X).__module__.startswith("dask.dataframe") and hasattr(X, "npartitions")


def check_rows(X: Any) -> None:
    """Raise an error for anything but an array (n, d) or data frame of Dask in blocks of rows."""
    if not isinstance(X, da.Array) and not is_frame(X):
        remedy = "dask.array.from_array(X, chunks=(100_000, -1))"
        if hasattr(X, "columns"):
            remedy = "dask.dataframe.from_pandas(X, chunksize=100_000)"
        raise TypeError(
            f"X is a {type(X).__name__}, not a Dask array or data frame: use {remedy}, or the "
            "estimators of jointleaf itself"
        )
    if isinstance(X, da.Array):
        if X.ndim != 2:
            raise ValueError(f"X has {X.ndim} dimensions: give an array (n, d)")
        if X.numblocks[1] > 1:
            raise ValueError(
                f"X has {X.numblocks[1]} chunks along its columns: use X.rechunk({{1: -1}})"
            )


def _parts_of(name: str, values: Any, X: Any, n_dims: int) -> list[Any]:
    """Return the partitions of what goes with X, with the same rows as those of X."""
    if not isinstance(values, da.Array) and not _is_of_frames(values):
        remedy = f"dask.array.from_array({name}, chunks=X.chunks[0])"
        if is_frame(X):
            remedy = f"a column of the data frame from which X was taken, as {name}"
        raise TypeError(
            f"{name} is a {type(values).__name__}, not a Dask array or series: use {remedy}"
        )
    if is_frame(values):
        raise ValueError(f"{name} is a data frame: give one of its columns")
    if isinstance(values, da.Array):
        if values.ndim != n_dims:
            raise ValueError(f"{name} has shape {values.shape}: give {n_dims} dimension(s)")
        if n_dims == 2 and values.numblocks[1] > 1:
            values = values.rechunk({1: -1})
        known = isinstance(X, da.Array) and not np.isnan([*X.shape, *values.shape]).any()
        if known and len(values) == len(X) and values.chunks[0] != X.chunks[0]:
            values = values.rechunk({0: X.chunks[0]})
    parts = _delayed(values)
    if len(parts) != _n_parts(X):
        raise ValueError(
            f"X has {_n_parts(X)} partitions and {name} has {len(parts)}: make both from one "
            "collection, or give them the same partitions by rechunk or repartition"
        )
    return parts


def _n_parts(X: Any) -> int:
    return X.numblocks[0] if isinstance(X, da.Array) else X.npartitions


def _delayed(values: Any) -> list[Any]:
    parts = values.to_delayed()
    return parts.ravel().tolist() if isinstance(values, da.Array) else list(parts)


class Partitions:
    """The rows of collections, partition by partition."""

    def __init__(self, cluster: Cluster, parts: list[Any]) -> None:
        self._cluster, self._parts = cluster, parts

    @classmethod
    def of(
        cls, cluster: Cluster, make: Callable[..., Any], X: Any, **others: tuple[Any, int]
    ) -> Partitions:
        """Make a value of every partition of X and of others, given with their dimensions.

        `make` gets the columns of X, its partition, and those of the others or None.
        """
        check_rows(X)
        columns = list(X.columns) if is_frame(X) else None
        n_parts = _n_parts(X)
        lists = [
            [None] * n_parts if values is None else _parts_of(name, values, X, n_dims)
            for name, (values, n_dims) in others.items()
        ]
        build = dask.delayed(make, pure=False)
        return cls(cluster, [build(columns, *p) for p in zip(_delayed(X), *lists, strict=True)])

    def __len__(self) -> int:
        return len(self._parts)

    def keep(self, function: Callable[..., Any], *args: Any, each: list[Any] | None = None) -> Kept:
        """Start a task for every partition, which stays there.

        The function gets the partition, a value of its own where there is one in `each`, and
        arguments that are the same for all.
        """
        return Kept(self._cluster.client.compute(self._tasks(function, args, each)))

    def keep_blocks(self, function: Callable[..., Any], *args: Any, each: list[Any]) -> Kept:
        """Do the same for tasks that make blocks, in turns where partitions share no task."""
        if not self._are_apart():  # what they share would be computed in every turn
            blocks = self.keep(function, *args, each=each)
            self._cluster.settle(blocks.values)
            return blocks
        compute = self._cluster.client.compute
        starts = [partial(compute, task) for task in self._tasks(function, args, each)]
        return Kept(self._cluster.in_turns(starts))

    def _tasks(
        self, function: Callable[..., Any], args: tuple[Any, ...], each: list[Any] | None
    ) -> list[Any]:
        task = dask.delayed(function, pure=False)
        values: Any = [()] * len(self) if each is None else [(value,) for value in each]
        return [task(part, *v, *args) for part, v in zip(self._parts, values, strict=True)]

    def _are_apart(self) -> bool:
        """Whether no two partitions are computed from the same task."""
        layers = {id(layer): layer for part in self._parts for layer in part.dask.layers.values()}
        graph: dict[Any, Any] = {}
        for layer in layers.values():
            graph.update(layer)
        owner: dict[Any, int] = {}
        for number, part in enumerate(self._parts):
            keys = {part.key}
            while keys:
                key = keys.pop()
                if owner.setdefault(key, number) != number:
                    return False
                below = get_dependencies(graph, key)
                keys |= {k for k in below if owner.get(k) != number}
        return True

    def collect(
        self, function: Callable[..., Any], *args: Any, each: list[Any] | None = None
    ) -> list[Any]:
        """Return a small value of every partition."""
        return self._cluster.gather(self.keep(function, *args, each=each).values)


def make_batch(columns: list[Any] | None, X: Any, y: Any, sample_weight: Any) -> Batch:
    """Return the rows of a partition; columns are put into the order of all others."""
    if columns is not None and list(X.columns) != columns and set(X.columns) == set(columns):
        X = X[columns]
    weights = None if sample_weight is None else np.asarray(sample_weight, float)
    return Batch(X, np.asarray(y), weights)


class Look(NamedTuple):
    """What a survey finds in a partition."""

    n_rows: int
    columns: Any  # names and types
    labels: list[Any]
    problem: str | None


def look_at(batch: Batch, with_labels: bool) -> Look:
    """Return what must be known of a partition before anything is fitted."""
    n, problem = len(batch.y), None
    others = {
        "y": n,
        **({} if batch.sample_weight is None else {"weight": len(batch.sample_weight)}),
    }
    for name, length in others.items():
        if length != len(batch.X):
            problem = f"X has {len(batch.X)} rows and {name} has {length}: give both the same rows"
    missing = missing_target(batch.y)
    if missing is not None:
        problem = f"the target is missing in row {missing} of it: leave out rows without a target"
    no_class = fraction_in(batch.y) if with_labels and problem is None else None
    if no_class is not None:
        problem = (
            f"the target is {batch.y[no_class]} in row {no_class} of it, which is no class: use "
            "DaskJOPLEnRegressor"
        )
    labels = np.unique(batch.y).tolist() if with_labels and problem is None else []
    return Look(n, kinds_of_columns(batch.X), labels, problem)


def kinds_of_columns(X: Any) -> Any:
    """Return what must be equal in all partitions: names and types of columns."""
    if isinstance(X, np.ndarray):
        return f"{X.shape[1]} of {X.dtype}"
    return [f"{name}: {dtype}" for name, dtype in nw.from_native(X).schema.items()]


def check_looks(looks: list[Look]) -> int:
    """Return the number of rows; raise ValueError where partitions cannot be fitted."""
    first: tuple[int, Any] | None = None
    for number, look in enumerate(looks):
        if look.problem is not None:
            raise ValueError(f"partition {number}: {look.problem}")
        if not look.n_rows:  # their types say nothing
            continue
        if first is None:
            first = number, look.columns
        if look.columns != first[1]:
            here, there = _difference(look.columns, first[1])
            raise ValueError(
                f"partition {number} has the columns {here} where partition {first[0]} has "
                f"{there}: give all partitions the same columns and types, by X.astype(...)"
            )
    n_rows = sum(look.n_rows for look in looks)
    if not n_rows:
        raise ValueError("X has no rows: nothing to fit")
    return n_rows


def _difference(here: Any, there: Any) -> tuple[Any, Any]:
    if isinstance(here, str) or isinstance(there, str):
        return here, there
    return [c for c in here if c not in there], [c for c in there if c not in here]


# -- a fit of more rows than one process holds -----------------------------------------------------


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

    def read_drawn(self, draw: Draw) -> tuple[Batch, Batch, set[Any]]:
        pairs = self._parts.collect(_take, each=self._drawn(draw))
        samples, validations = zip(*(pair for pair in pairs if pair is not None), strict=True)
        return stacked(samples), stacked(validations), self._labels

    def problem(self, model: FittedSample, draw: Draw) -> Problem:
        layout = model.estimator.cell_model_.layout
        row = model.dtype.itemsize * (layout.n_slopes + 1) + 2 * layout.n_partitions
        self.print_status(
            model.estimator,
            f"{layout.n_partitions:,} partitions are corrected by all rows in {len(self._parts)} "
            f"blocks, which take at most {arrays.readable_bytes(draw.n_rows * row)} on the workers",
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
