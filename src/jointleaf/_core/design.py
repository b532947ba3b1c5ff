"""The design: the linear operator from all cell weights to predictions, never a dense matrix.

With the codes one-hot in a sparse Z (n x C, one entry per row and partition), the rows X
with a column of ones behind them, and the weights of linear cells as a table (C, d + 1),

    forward   f = rowsum((Z @ table) * X)          adjoint   G = Z.T @ (r[:, None] * X).

Both cost O(n P d) and run in SciPy's compiled sparse products, block of rows by block of rows.
Partitions with constant cells are passed over on their own, with a table (C, 1), in O(n P).

Partitions can be merged, which makes passes cheaper (`_core.cell_sums`).

**Small problems.** Where the whole of Phi has a hundred thousand entries at most, iterative solvers
spend their time on calls, not on arithmetic: `merge_partitions` then makes it a dense matrix.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from jointleaf._core.arrays import shaped
from jointleaf._core.cell_sums import CellSums
from jointleaf._core.layout import CellKind, CellLayout, TaskLayout, check_codes

_COUNTS = 2**15  # entries of a table of counts that stays in the cache
_DENSE_ENTRIES = 2**17  # of Phi, up to which it is dense for iterative solvers


class Block(NamedTuple):
    """A task: rows and cells that have nothing to do with any others, and their design.

    The design is a `LeafDesign`, or a `BlockDesign` for rows that are not in memory at once.
    """

    rows: slice
    cells: slice
    design: Any


class LeafDesign:
    """Maps all cell weights to predictions and back.

    Parameters
    ----------
    X : array (n, d)
        Rows, used as given (standardise before).
    codes : integer array (n, P)
        Cell of every partition in which each row falls; -1 for none (zero contribution).
    n_cells : integers (P,), optional
        Cells of every partition; by default the largest code plus one.
    cells : {"linear", "constant"} or sequence of these, length P
        Linear cells have d slopes and a bias, constant cells a bias only: one word for all
        partitions, or one for each.
    dtype : float32 or float64, optional
        Of all products; by default that of X (float64 unless X is float32).
    n_jobs : int
        Threads over blocks of rows. The results are bit-identical for every value.
    is_owned : bool
        Whether X ends with a column of ones already, (n, d + 1), has the dtype of products, and is
        given away together with the codes: neither is copied where that can be avoided.

    Attributes
    ----------
    layout : CellLayout
        Of the weights theta (N,) or (N, K).
    n_rows : int
    X : array (n, d + 1)
        Rows with a column of ones behind them; (n, 1) where all cells are constant.
    """

    def __init__(
        self,
        X: ArrayLike,
        codes: ArrayLike,
        n_cells: ArrayLike | None = None,
        *,
        cells: CellKind | Sequence[CellKind] = "linear",
        dtype: DTypeLike | None = None,
        n_jobs: int = 1,
        is_owned: bool = False,
    ) -> None:
        X = np.asarray(X)
        self.dtype = np.dtype(dtype or (np.float32 if X.dtype == np.float32 else np.float64))
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"dtype={self.dtype} is not supported: use float32 or float64")
        checked, counts = check_codes(codes, X.shape[0], n_cells, allow_no_cell=True)
        self.layout = CellLayout(counts, X.shape[1] - is_owned, cells)
        self.n_rows = X.shape[0]
        self.n_jobs = max(1, n_jobs)
        self._set_rows(X, is_owned)
        self._is_merged = False
        self._dense: NDArray | None = None
        kinds = np.array(self.layout.kinds)
        self._parts = [
            CellSums.of_codes(
                checked,
                self.layout,
                np.flatnonzero(kinds == kind),
                X,
                self.dtype,
                self.n_jobs,
                is_owned=is_owned,
            )
            for kind, X in (("linear", self.X), ("constant", None))
            if kind in kinds
        ]

    def _set_rows(self, X: NDArray, is_owned: bool) -> None:
        d = self.layout.n_slopes
        is_held = bool(self.layout.n_linear_cells) and X.dtype == self.dtype
        if is_held and is_owned:
            self.X = X
        else:
            self.X = np.ones((self.n_rows, d + 1), self.dtype)
            self.X[:, :d] = X[:, :d]
        self._rows = None if is_held else X[:, :-1] if is_owned else X

    #: cells of which pairs may be counted: no limit of its own
    most_joint_cells = np.inf

    @property
    def rows(self) -> NDArray:
        """X as given, with all features."""
        return self.X[:, :-1] if self._rows is None else self._rows

    def __sizeof__(self) -> int:
        arrays = [a for a in (self.X, self._rows, self._dense) if a is not None]
        held = sum(a.nbytes for a in arrays) + sum(part.__sizeof__() for part in self._parts)
        return object.__sizeof__(self) + held

    def blocks(self) -> list[Block]:
        """Return the parts of the map, with no row and no cell in common: one per task."""
        return [Block(slice(0, self.n_rows), slice(0, self.layout.n_cells), self)]

    @property
    def largest_value(self) -> float:
        """Largest absolute value of a row, the one for the bias among them."""
        return float(np.abs(self.X).max(initial=1.0))

    @property
    def n_row_features(self) -> int:
        """Features of the rows, those that linear cells do not see among them."""
        return self.rows.shape[1]

    def squared_norms(self) -> NDArray[np.float64]:
        """Return |x_n|^2 of the rows that linear cells see, the one for the bias among them."""
        return np.einsum("ij,ij->i", self.X, self.X, dtype=float)

    def cells(self) -> NDArray[np.int32]:
        """Cell of every row in every partition, (n, P), numbered over all of them; C for none."""
        if len(self._parts) == 1:
            return self._parts[0].cells()
        cells = np.empty((self.n_rows, self.layout.n_partitions), np.int32)
        for part in self._parts:
            cells[:, part.partitions] = part.numbers[part.cells()]
        return cells

    # -- related designs -----------------------------------------------------------------------

    def merge_partitions(self) -> LeafDesign:
        """Merge neighbouring partitions where that makes passes cheaper; return the design."""
        if not self._is_merged:
            self._is_merged = True
            if self._is_small:
                self._dense = self._dense_matrix()
            self.merge_cells()
        return self

    @property
    def _is_small(self) -> bool:
        return self.n_rows * self.layout.n_weights <= _DENSE_ENTRIES

    def merge_cells(self) -> None:
        """Do what `merge_partitions` does without looking at X, which may be filled later."""
        if not self._is_small:
            for part in self._parts:
                part.merge()

    def _dense_matrix(self) -> NDArray:
        layout, each = self.layout, np.arange(self.n_rows)
        slopes = np.zeros((self.n_rows, layout.n_linear_cells + 1, layout.n_features), self.dtype)
        biases = np.zeros((self.n_rows, layout.n_cells + 1), self.dtype)
        rows = np.append(layout.slope_rows, layout.n_linear_cells)
        for column in self.cells().T:
            if layout.n_linear_cells:
                slopes[each, rows[column]] = self.X[:, :-1]
            biases[each, column] = 1.0
        flat = slopes[:, :-1].reshape(self.n_rows, layout.n_weights - layout.n_cells)
        return np.concatenate([flat, biases[:, :-1]], axis=1)

    def in_double(self) -> LeafDesign:
        """Return the same design in float64."""
        cells = self.cells()
        codes = np.where(cells == self.layout.n_cells, -1, cells - self.layout.offsets[:-1])
        return LeafDesign(
            self.X[:, :-1] if self.layout.n_linear_cells else self.rows,
            codes,
            self.layout.cells_per_partition,
            cells=self.layout.kinds,
            dtype=np.float64,
            n_jobs=self.n_jobs,
        )

    def with_features(self, features: NDArray[np.intp], *, merge_anew: bool = True) -> LeafDesign:
        """Return the design whose linear cells see only some features.

        Fewer columns make it worth to merge more partitions; without `merge_anew` they stay as they
        are.
        """
        narrowed = copy.copy(self)
        narrowed.layout = self.layout.with_features(len(features))
        narrowed._rows = self.rows
        if self.layout.n_linear_cells:
            narrowed.X = np.ascontiguousarray(self.X[:, np.append(features, -1)])
        narrowed._parts = [
            part
            if part.X is None
            else (part.with_rows if merge_anew else part.narrowed)(narrowed.X)
            for part in self._parts
        ]
        narrowed._dense = None
        narrowed._is_merged = not merge_anew
        return narrowed

    def linear_partitions(self) -> LeafDesign:
        """Return the design of the linear partitions alone."""
        chosen = np.array(self.layout.kinds) == "linear"
        if chosen.all():
            return self
        narrowed = copy.copy(self)
        narrowed.layout = self.layout.only(chosen)
        narrowed._parts = [self._parts[0].alone()]
        narrowed._dense, narrowed._is_merged = None, False
        return narrowed

    # -- products ------------------------------------------------------------------------------

    def matvec(self, theta: NDArray) -> NDArray:
        """Return the predictions Phi theta, (n,) or (n, K), of weights theta (N,) or (N, K)."""
        if self._dense is not None:
            return self._dense @ theta.astype(self.dtype, copy=False)
        slopes, biases = self._split(theta)
        f = _added([part.forward(part.table(slopes, biases)) for part in self._parts])
        return f[:, 0] if theta.ndim == 1 else f

    def rmatvec(self, r: NDArray) -> NDArray:
        """Return the adjoint product Phi^T r, (N,) or (N, K), of r (n,) or (n, K)."""
        r = np.asarray(r, dtype=self.dtype)
        if self._dense is not None:
            return self._dense.T @ r
        flat = r[:, None] if r.ndim == 1 else r
        sums = self._flat([part.scatter(flat, part.X) for part in self._parts])
        return sums[:, 0] if r.ndim == 1 else sums

    def gram_product(self, h: NDArray, theta: NDArray) -> NDArray:
        """Return Phi^T diag(h) Phi theta, (N,) or (N, K), of h (n,): forth and back in one."""
        image = self.matvec(theta)
        image *= shaped(h.astype(self.dtype, copy=False), image)
        return self.rmatvec(image)

    def bias_matvec(self, biases: NDArray) -> NDArray:
        """Return the predictions Z b of biases (C,) or (C, K) alone."""
        if self._dense is not None:
            return self._dense[:, -self.layout.n_cells :] @ biases.astype(self.dtype, copy=False)
        flat = biases.reshape(len(biases), -1)
        f = _added([part.row_sums(part.table(None, flat)) for part in self._parts])
        return f[:, 0] if biases.ndim == 1 else f

    def bias_rmatvec(self, r: NDArray) -> NDArray:
        """Return the sums Z^T r, (C,) or (C, K), of r (n,) or (n, K) over every cell's rows."""
        r = np.asarray(r, dtype=self.dtype)
        if self._dense is not None:
            return self._dense[:, -self.layout.n_cells :].T @ r
        flat = r[:, None] if r.ndim == 1 else r
        sums = np.empty((self.layout.n_cells, flat.shape[1]), self.dtype)
        for part in self._parts:
            sums[part.numbers[:-1]] = part.scatter(flat, None)[:, 0]
        return sums[:, 0] if r.ndim == 1 else sums

    def _split(self, theta: NDArray) -> tuple[NDArray, NDArray]:
        """Return slopes (L, d, K) and biases (C, K), with K = 1 for one output."""
        return self.layout.split(theta.reshape(len(theta), -1))

    def _flat(self, tables: list[NDArray]) -> NDArray:
        """Put the parts' sums (C, q, K) into weights (N, K)."""
        flat = np.empty((self.layout.n_weights, tables[0].shape[2]), self.dtype)
        slopes, biases = self.layout.split(flat)
        for part, table in zip(self._parts, tables, strict=True):
            if table.shape[1] > 1:
                slopes[:] = table[:, :-1]
            biases[part.numbers[:-1]] = table[:, -1]
        return flat

    # -- second-order pieces -------------------------------------------------------------------

    def cell_grams(self, h: NDArray) -> NDArray[np.float64]:
        """Return sum_n h_n x_n x_n^T over the rows of every linear cell, (L, d + 1, d + 1)."""
        q = self.layout.n_features + 1
        grams = np.empty((self.layout.n_linear_cells, q, q))
        if len(grams):
            for i in range(q):  # one triangle, a row of it at a time: memory stays O(L q)
                weights = (h * self.X[:, i])[:, None].astype(self.dtype)
                part = self._parts[0].scatter(weights, self.X[:, i:])[:, :, 0]
                grams[:, i, i:] = part
                grams[:, i:, i] = part
        return grams

    def cell_mass(self, h: NDArray) -> NDArray[np.float64]:
        """Return the sum of h over the rows of every cell, (C,)."""
        mass = np.zeros(self.layout.n_cells + 1)
        for column in self.cells().T:
            mass += np.bincount(column, h, minlength=len(mass))
        return mass[:-1]

    def cell_diagonals(self, h: NDArray) -> NDArray[np.float64]:
        """Return the diagonal of Phi^T diag(h) Phi, (N,)."""
        weights = np.asarray(h, self.dtype)[:, None]
        sums = [
            part.scatter(weights, None if part.X is None else np.square(part.X))
            for part in self._parts
        ]
        return self._flat(sums)[:, 0].astype(float)

    def bias_gram(self, h: NDArray | None = None) -> NDArray[np.float64]:
        """Return Z^T diag(h) Z, (C, C): weight of the rows two cells share; h = 1 if None.

        The matrix is symmetric and large: its upper triangle is filled, the rest is not.
        """
        cells, offsets, C = self.cells(), self.layout.offsets, self.layout.n_cells
        gram = np.empty((C, C))  # empty, then filled: huge pages, with far fewer page faults
        gram.fill(0.0)
        if not self.n_rows:
            return gram
        exact = np.float32 if h is None and self.n_rows < 2**24 else np.float64
        for label, table, members in (group for part in self._parts for group in part.labels()):
            begin, end = offsets[members.start], offsets[members.stop]
            rows = np.minimum(table - begin, end - begin)  # the last collects "no cell"
            adder = sparse.csc_array(
                (
                    np.ones(rows.size, exact),
                    rows.ravel(),
                    np.arange(0, rows.size + 1, rows.shape[1]),
                ),
                shape=(int(end - begin) + 1, len(table)),
            )
            # Against the cells of its own and of later partitions, as many at a time as have
            # counts that fit into the cache.
            low = members.start
            while low < self.layout.n_partitions:
                most = offsets[low] + _COUNTS // len(table)
                high = max(low + 1, int(np.searchsorted(offsets, most, side="right")) - 1)
                width = int(offsets[high] - offsets[low]) + 1
                local = np.minimum(cells[:, low:high] - offsets[low], width - 1)
                keys = (label.astype(np.int64) * width)[:, None] + local
                weights = None if h is None else np.repeat(np.asarray(h, float), high - low)
                counts = np.bincount(keys.ravel(), weights, minlength=len(table) * width)
                products = adder @ counts.reshape(len(table), width).astype(exact)
                gram[begin:end, offsets[low] : offsets[high]] = products[:-1, :-1]
                low = high
        return gram


def _added(predictions: list[NDArray]) -> NDArray:
    """Return the sum of what one or two kinds of partitions predict."""
    return predictions[0] if len(predictions) == 1 else predictions[0] + predictions[1]


class TaskDesign:
    """Block-diagonal: the rows and the cells of several tasks follow each other.

    Its methods are those of `LeafDesign`. The designs of the tasks have the same features and
    dtype; penalties look up the weights gamma_t in the layout. `n_jobs` threads work on tasks, with
    results that are bit-identical for every number.
    """

    def __init__(
        self, designs: Sequence[LeafDesign], weights: Sequence[float], n_jobs: int = 1
    ) -> None:
        self._designs = list(designs)
        self.layout = TaskLayout([design.layout for design in designs], weights)
        self.dtype = designs[0].dtype
        self.n_jobs = max(1, n_jobs)
        self._pool: ThreadPoolExecutor | None = None
        self._row_starts = np.concatenate([[0], np.cumsum([d.n_rows for d in designs])])
        self.n_rows = int(self._row_starts[-1])

    def blocks(self) -> list[Block]:
        """Return one block per task."""
        rows, cells = self._row_starts.tolist(), self.layout.task_starts.tolist()
        return [
            Block(slice(rows[t], rows[t + 1]), slice(cells[t], cells[t + 1]), design)
            for t, design in enumerate(self._designs)
        ]

    @property
    def largest_value(self) -> float:
        return max(design.largest_value for design in self._designs)

    def merge_partitions(self) -> TaskDesign:
        for design in self._designs:
            design.merge_partitions()
        return self

    def in_double(self) -> TaskDesign:
        return self._with([design.in_double() for design in self._designs])

    def with_features(self, features: NDArray[np.intp]) -> TaskDesign:
        return self._with([design.with_features(features) for design in self._designs])

    def _with(self, designs: list[LeafDesign]) -> TaskDesign:
        return TaskDesign(designs, self.layout.task_weights.tolist(), self.n_jobs)

    def _map(self, product: Callable[[int, Block], NDArray]) -> list[NDArray]:
        """Return the product of every task, given its number and block."""
        blocks = self.blocks()
        if self.n_jobs == 1:
            return [product(t, block) for t, block in enumerate(blocks)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_jobs)
        return list(self._pool.map(product, range(len(blocks)), blocks))

    def matvec(self, theta: NDArray) -> NDArray:
        part_of = self.layout.part_of
        return np.concatenate(self._map(lambda t, block: block.design.matvec(part_of(theta, t))))

    def rmatvec(self, r: NDArray) -> NDArray:
        return self.layout.join_tasks(self._map(lambda _, b: b.design.rmatvec(r[b.rows])))

    def bias_matvec(self, biases: NDArray) -> NDArray:
        products = self._map(lambda _, block: block.design.bias_matvec(biases[block.cells]))
        return np.concatenate(products)

    def bias_rmatvec(self, r: NDArray) -> NDArray:
        return np.concatenate(self._map(lambda _, b: b.design.bias_rmatvec(r[b.rows])))

    def cell_grams(self, h: NDArray) -> NDArray[np.float64]:
        return np.concatenate(self._map(lambda _, b: b.design.cell_grams(h[b.rows])))

    def cell_mass(self, h: NDArray) -> NDArray[np.float64]:
        return np.concatenate(self._map(lambda _, b: b.design.cell_mass(h[b.rows])))

    def cell_diagonals(self, h: NDArray) -> NDArray[np.float64]:
        return self.layout.join_tasks(self._map(lambda _, b: b.design.cell_diagonals(h[b.rows])))


def lipschitz(design: Any, h: NDArray, *, max_iter: int = 50, tol: float = 1e-3) -> float:
    """Return the largest eigenvalue of Phi^T diag(h) Phi."""
    start = design.layout.random_weights().astype(design.dtype)
    return largest_eigenvalue(lambda v: design.rmatvec(h * design.matvec(v)), start, max_iter, tol)


def largest_eigenvalue(
    product: Callable[[NDArray], NDArray], start: NDArray, max_iter: int, tol: float = 0.0
) -> float:
    """Return the largest eigenvalue of the matrix behind a product, by power iteration."""
    v, value = start, 0.0
    for _ in range(max_iter):
        norm = float(np.linalg.norm(v))
        if norm == 0.0:
            return 0.0
        v = product(v / v.dtype.type(norm))
        previous, value = value, float(np.linalg.norm(v))
        if abs(value - previous) <= tol * value:
            break
    return value
