"""Training rows in a form that does not depend on how they were given.

Equal rows are merged and their weights added, rows of weight zero are left out, and the order
is made from the rows' contents. A fit therefore gives the same model whatever the order of the
rows, and a weight of 2 is exactly the same as giving a row twice, also where partitions are
grown by counting rows and where cross-validation deals them out. Copies of a row never
stand on both sides of a split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows", "canonical_rows"]


@dataclass(frozen=True)
class Rows:
    """Rows X (n, d), targets y (n,), positive weights s (n,), and labels (n, m) of any kind."""

    X: NDArray
    y: NDArray
    s: NDArray[np.float64]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: NDArray | slice) -> Rows:
        """Give the rows at an index, mask or slice."""
        return Rows(self.X[index], self.y[index], self.s[index], self.labels[index])


def canonical_rows(
    X: NDArray, y: NDArray, s: NDArray, labels: NDArray[np.int64] | None = None
) -> Rows:
    """Merge equal rows (same x, y and labels) and order them by a hash of their contents.

    Parameters
    ----------
    X, y, s : arrays (n, d), (n,), (n,)
        y must be numbers.
    labels : integers (n, m), optional
        What else must be equal for rows to be merged, for example the folds of a row.
    """
    if labels is None:
        labels = np.zeros((len(y), 0), np.int64)
    keep = s > 0
    if not keep.all():
        X, y, s, labels = X[keep], y[keep], s[keep], labels[keep]
    key = _hash_rows(X, y, labels)
    order = np.argsort(key, kind="stable")
    X, y, s, labels, key = X[order], y[order], s[order], labels[order], key[order]
    is_new = np.ones(len(y), bool)
    same = np.flatnonzero(key[1:] == key[:-1]) + 1
    if same.size:
        this, other = X[same], X[same - 1]
        equal = ((this == other) | (np.isnan(this) & np.isnan(other))).all(axis=1)
        equal &= y[same] == y[same - 1]
        equal &= (labels[same] == labels[same - 1]).all(axis=1)
        is_new[same[equal]] = False
    if is_new.all():
        return Rows(X, y, s, labels)
    weights = np.bincount(np.cumsum(is_new) - 1, s).astype(float)
    return Rows(X[is_new], y[is_new], weights, labels[is_new])


def _hash_rows(X: NDArray, y: NDArray, labels: NDArray) -> NDArray[np.uint64]:
    """One 64-bit number per row, mixed from the bits of its values.

    -0.0 counts as 0.0, and every NaN as the same.

    The target enters by its rank, so that its unit makes no difference to the order.
    """
    key = np.full(len(y), 0x9E3779B97F4A7C15, np.uint64)
    rank = np.unique(y, return_inverse=True)[1].reshape(-1)
    columns = [*X.T, rank, *labels.T]
    for column in columns:
        bits = np.ascontiguousarray(column, dtype=float) + 0.0
        bits[np.isnan(bits)] = np.nan
        key ^= bits.view(np.uint64)
        key *= np.uint64(0xBF58476D1CE4E5B9)
        key ^= key >> np.uint64(29)
        key *= np.uint64(0x94D049BB133111EB)
        key ^= key >> np.uint64(32)
    return key
