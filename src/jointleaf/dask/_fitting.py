"""The joint fit of given cells as a function, on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.blocks import BlockDesign
from jointleaf._core.design import LeafDesign
from jointleaf._core.fitting import check_cell_rows, check_penalty_term
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Kinked, Loss, Multinomial, make_loss
from jointleaf._core.penalties import Frobenius, Term
from jointleaf._core.problem import Problem
from jointleaf._core.row_vectors import Call
from jointleaf._core.solvers.base import Solver, check_limits, solve
from jointleaf._core.solvers.solution import Solution
from jointleaf._data.sources import Batch
from jointleaf.dask._cluster import Cluster, find_client
from jointleaf.dask._collections import Look, Partitions, check_looks, look_at


def dask_fit_cells(
    X: Any,
    codes: Any,
    y: Any,
    *,
    loss: str | Loss = "squared_error",
    penalty: Term | None = None,
    cells: CellKind | Sequence[CellKind] = "linear",
    solver: str | Solver = "auto",
    tol: float = 1e-6,
    max_iter: int = 1000,
    sample_weight: Any = None,
    offset: Any = None,
    n_cells: ArrayLike | None = None,
    client: Any = None,
) -> Solution:
    """Fit the models of all cells of all partitions jointly, on the workers of a cluster.

    The problem, and the solution but for rounding, are those of `jointleaf.fit_cells`; rows stay on
    the workers. The solution depends on the chunks of X, not on the workers.

    Parameters
    ----------
    X : dask array (n, d)
        Rows, in chunks of rows of any sizes. float32 is computed in float32, everything else in
        float64.
    codes : dask array (n, P) of integers
        Cell of each partition in which each row falls, numbered from 0 in every partition.
    y : dask array (n,)
        Targets, as for `jointleaf.fit_cells`.
    loss : str or Loss
        One with a derivative, and without a scale that is to be found: not "absolute_error",
        "quantile", or "huber" without its ``delta``.
    penalty : Penalty or a sum of these, optional
        On weights; by default ``Frobenius(0.01)``.
    cells, solver, tol, max_iter, n_cells
        As for `jointleaf.fit_cells`; solvers are "pcg", "newton" and "fista".
    sample_weight, offset : dask array (n,), optional
        Weights; raw predictions that the cells add to.
    client : dask.distributed.Client, optional
        By default the one that was started last.

    Returns
    -------
    Solution
    """
    check_limits(tol, max_iter)
    penalty = Frobenius(0.01) if penalty is None else penalty
    check_penalty_term(penalty)
    wanted = make_loss(loss)
    if isinstance(wanted, Kinked) or wanted.needs_scale:
        raise ValueError(
            f"loss={loss!r} needs all rows at once: use one with a derivative, such as "
            "'squared_error', or Huber with its delta"
        )
    cluster = Cluster(find_client(client))
    parts = Partitions.of(
        cluster, _make_rows, X, codes=(codes, 2), y=(y, 1), sample_weight=(sample_weight, 1),
        offset=(offset, 1),
    )  # fmt: skip
    looks = parts.collect(_look)
    check_looks([look.rows for look in looks])
    n_cells = np.max([look.n_cells for look in looks], axis=0) if n_cells is None else n_cells
    if isinstance(wanted, Multinomial) and wanted.n_classes is None:
        wanted = Multinomial(int(max(look.largest_target for look in looks)) + 1)
    dtype = next(look.dtype for look in looks if look.rows.n_rows)
    blocks = parts.keep(_make_block, np.asarray(n_cells), cells, dtype)
    design = BlockDesign(Call(itemgetter(0), (blocks,)), cluster)
    targets, weights, offsets = (
        design.vector_of(Call(itemgetter(k), (blocks,)), np.empty(0)) for k in (1, 2, 3)
    )
    given = 0.0 if offset is None else offsets
    problem = Problem(design, targets, wanted, penalty, weights, given)
    return solve(problem, solver, tol=tol, max_iter=max_iter)


class _Rows(NamedTuple):
    """The rows of a partition."""

    X: NDArray
    codes: NDArray
    y: NDArray
    sample_weight: NDArray | None
    offset: NDArray | None


class _Look(NamedTuple):
    """What must be known of a partition before blocks are made."""

    rows: Look
    dtype: np.dtype
    n_cells: NDArray
    largest_target: float


def _make_rows(columns: None, X: Any, codes: Any, y: Any, *others: Any) -> _Rows:
    arrays: list[Any] = [None if values is None else np.asarray(values) for values in others]
    return _Rows(np.asarray(X), np.asarray(codes), np.asarray(y), *arrays)


def _look(rows: _Rows) -> _Look:
    return _Look(
        look_at(Batch(rows.X, rows.y, rows.sample_weight), False),
        np.dtype(np.float32 if rows.X.dtype == np.float32 else np.float64),
        rows.codes.max(axis=0, initial=0) + 1,
        float(np.max(rows.y, initial=0.0)),
    )


def _make_block(
    rows: _Rows, n_cells: NDArray, cells: Any, dtype: np.dtype
) -> tuple[LeafDesign, NDArray, NDArray, NDArray]:
    """Return the design of rows with positive weights, targets, weights and offsets."""
    n = len(rows.X)
    s = np.ones(n) if rows.sample_weight is None else rows.sample_weight
    offset = np.zeros(n) if rows.offset is None else rows.offset
    X, codes, y = rows[:3]
    if np.any(s != 0):  # else there is nothing to check
        X, codes, _, y, s, offset = check_cell_rows(X, codes, y, s, n_cells, offset)
    else:
        X, codes, y, s, offset = X[:0], codes[:0], y[:0], s[:0], offset[:0]
    design = LeafDesign(X, codes, n_cells, cells=cells, dtype=dtype)
    return design.merge_partitions(), y.astype(float), s, offset
