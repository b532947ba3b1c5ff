"""The graph Laplacian: rows that are close to each other get similar predictions."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist, pdist

from jointleaf._core.arrays import check_count, check_number
from jointleaf._core.penalties.base import PredictionPenalty, is_auto

Kind = Literal["standard", "symmetric", "random_walk"]

MAX_DENSE_ROWS = 4000  # "auto": an (n, n) matrix of 128 MB
_MAX_DENSE_BYTES = 2 * 2**30
_SAMPLE = 1000  # rows from which the bandwidth is estimated
_TREE_FEATURES = 15  # up to which a tree finds neighbours faster than products of rows
_BLOCK_ROWS = 512


class Laplacian(PredictionPenalty):
    r"""Smoothness over the graph of training rows.

    .. math::

        R(f) = \frac{\lambda}{2n} f^\top L f, \qquad
        k_{ij} = \exp\!\Big(-\frac{|x_i - x_j|^2}{2 \sigma^2}\Big), \qquad D = \mathrm{diag}(K 1)

    f are the predictions on the n training rows and L is, by `kind`,

    - ``"standard"``: D - K, so that f^T L f = sum_ij k_ij (f_i - f_j)^2 / 2;
    - ``"symmetric"``: I - D^(-1/2) K D^(-1/2);
    - ``"random_walk"``: I - D^(-1) K in the inner product of the walk's stationary
      distribution, n D / tr(D), in which it is symmetric: n (D - K) / tr(D). (In the plain
      inner product f^T L f would not be convex.)

    The degrees of the standard Laplacian grow with the number of rows, and so does its effect: a
    strength found with some rows is too strong for more. The two others do not grow.

    Rows with weights s count as s copies: k_ij becomes s_i s_j k_ij and n their sum.

    Parameters
    ----------
    strength : float > 0
        lambda.
    bandwidth : float > 0 or "median"
        sigma, in the units of X (estimators standardise); "median" is the median distance of
        two rows (of at most 1,000 of them).
    kind : {"standard", "symmetric", "random_walk"}
    graph : {"auto", "dense", "neighbors"}
        All pairs of rows, or only pairs of which one is among the nearest neighbours of the other.
        "auto" is dense up to 4,000 rows.
    n_neighbors : int
        Of the sparse graph.
    """

    def __init__(
        self,
        strength: float,
        bandwidth: float | str = "median",
        kind: Kind = "standard",
        graph: Literal["auto", "dense", "neighbors"] = "auto",
        n_neighbors: int = 10,
    ) -> None:
        if is_auto(strength):
            raise ValueError(
                "strength='auto' is not possible for a Laplacian: give a number, for example from "
                "a GridSearchCV over penalties"
            )
        self.strength = check_number("strength", strength, positive=True)
        self.bandwidth = bandwidth
        if not (isinstance(bandwidth, str) and bandwidth == "median"):
            hint = ", or 'median'"
            self.bandwidth = check_number("bandwidth", bandwidth, positive=True, hint=hint)
        if kind not in get_args(Kind):
            raise ValueError(f"kind={kind!r} is not known: use one of {get_args(Kind)}")
        if graph not in ("auto", "dense", "neighbors"):
            raise ValueError(f"graph={graph!r} is not known: use 'auto', 'dense' or 'neighbors'")
        self.n_neighbors = check_count("n_neighbors", n_neighbors, TypeError)
        self.kind, self.graph = kind, graph

    def __repr__(self) -> str:
        return f"Laplacian({self.strength:.4g}, bandwidth={self.bandwidth!r}, kind={self.kind!r})"

    def at(self, strength: float) -> Laplacian:
        """Raise an error: paths and cross-validation change penalties on weights."""
        raise ValueError(
            "the strength of a Laplacian stays as it is along a path: add a penalty whose strength "
            "is 'auto', such as L21('auto')"
        )

    def check_rows(self, n_rows: int) -> None:
        """Raise an error for a dense graph that is too large for memory."""
        needed = 3 * 8 * n_rows**2  # the kernel, its weighted copy and the Laplacian
        if self._is_dense(n_rows) and needed > _MAX_DENSE_BYTES:
            raise ValueError(
                f"a dense Laplacian of {n_rows} rows takes about {needed / 2**30:.1f} GiB: use "
                "graph='neighbors', a sparse graph of nearest neighbours"
            )

    def _is_dense(self, n_rows: int) -> bool:
        return self.graph == "dense" or (self.graph == "auto" and n_rows <= MAX_DENSE_ROWS)

    def matrix(self, X: NDArray, s: NDArray) -> NDArray | sparse.sparray:
        """Return (lambda / n) L, symmetric, for rows X (n, d) with weights s (n,)."""
        rows = np.asarray(X, float)
        sigma = median_distance(rows) if self.bandwidth == "median" else float(self.bandwidth)
        K = self._kernel(rows, sigma)
        weight = _scaled_both(K, s)
        degree = np.asarray(weight.sum(axis=1)).ravel() / s  # of one copy of every row
        total = float(s.sum())
        if self.kind == "symmetric":
            root = 1.0 / np.sqrt(degree)
            L = _diagonal_minus(s.astype(float), _scaled_both(weight, root))
        else:
            L = _diagonal_minus(degree * s, weight)
            if self.kind == "random_walk":
                L = L * (total / float(degree @ s))
        return L * (self.strength / total)

    def _kernel(self, X: NDArray, sigma: float) -> NDArray | sparse.sparray:
        n = len(X)
        self.check_rows(n)
        gamma = 0.5 / sigma**2
        if self._is_dense(n):
            return np.exp(-gamma * cdist(X, X, "sqeuclidean"))
        k = min(self.n_neighbors, n - 1)
        if k == 0:  # a single row
            return sparse.csr_array(np.ones((1, 1)))
        rows, columns = np.repeat(np.arange(n), k), _nearest(X, k).ravel()
        squares = np.square(X[rows] - X[columns]).sum(axis=1)
        graph = sparse.csr_array((np.exp(-gamma * squares), (rows, columns)), shape=(n, n))
        return sparse.csr_array(graph.maximum(graph.T) + sparse.eye_array(n))


def _nearest(X: NDArray, k: int) -> NDArray[np.intp]:
    n = len(X)
    if X.shape[1] <= _TREE_FEATURES:
        nearest = KDTree(X).query(X, k=k + 1)[1]
        is_self = nearest == np.arange(n)[:, None]
        is_self[~is_self.any(axis=1), -1] = True  # equal rows came before the row itself
        return nearest[~is_self].reshape(n, k)
    nearest, lengths = np.empty((n, k), np.intp), np.square(X).sum(axis=1)
    for start in range(0, n, _BLOCK_ROWS):
        rows = np.arange(start, min(start + _BLOCK_ROWS, n))
        squares = lengths - 2 * X[rows] @ X.T
        squares[np.arange(len(rows)), rows] = np.inf
        nearest[rows] = np.argpartition(squares, k - 1, axis=1)[:, :k]
    return nearest


def median_distance(X: NDArray) -> float:
    """Return the median distance of two different rows; 1 if all rows are equal."""
    step = max(1, len(X) // _SAMPLE)
    distances = pdist(X[::step][:_SAMPLE])
    distances = distances[distances > 0]
    return float(np.median(distances)) if distances.size else 1.0


def _scaled_both(K: Any, root: NDArray) -> Any:
    if isinstance(K, np.ndarray):
        return root[:, None] * K * root
    scale = sparse.diags_array(root)
    return sparse.csr_array(scale @ K @ scale)


def _diagonal_minus(diagonal: NDArray, K: Any) -> Any:
    if isinstance(K, np.ndarray):
        L = -K
        L[np.diag_indices_from(L)] += diagonal
        return L
    return sparse.csr_array(sparse.diags_array(diagonal) - K)
