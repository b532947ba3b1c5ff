"""Random Voronoi partitions: every row belongs to the nearest of a few training rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._data.features import plan_features
from jointleaf._trees.flat import TrainingRows
from jointleaf.partitions._base import Partitioner, as_seed, check_apply_rows, checked_count

#: Scores held at a time, so that memory does not grow with the number of rows. Much smaller
#: blocks make threads of the BLAS library wait for each other.
_BLOCK_ELEMENTS = 1 << 20
#: Distances that differ by less, relative to the squared lengths, count as a tie.
TIE = 1e-12


class VoronoiPartitioner(Partitioner):
    """Partitions whose cells are the rows nearest to each of a few random training rows.

    Each partition draws `n_cells` different training rows as centres, uniformly over
    rows whatever their weight, and a row belongs to the centre at the least squared Euclidean
    distance, the first of them in a tie. The distance is between linear features
    (`_data.features`): numbers standardised with the weighted mean and standard deviation of
    the training rows (constant ones are only centred), indicators for categories, and the mean for
    missing values. Targets are not used.

    Parameters
    ----------
    n_partitions : int
        Number P of partitions.
    n_cells : int
        Number of centres of a partition; fewer where fewer rows are different.
    random_state : int, RandomState or None
        Seed of the draws.

    Attributes
    ----------
    centres_ : ndarray (P, n_cells, m)
        The linear features of the centres.
    features_ : LinearFeatures
        How rows become linear features.
    n_cells_ : ndarray (P,)
        Number of cells of each partition.
    split_gains_ : ndarray (d,)
        Ones: no feature is preferred.
    n_features_in_ : int
        Number of features d.
    """

    def __init__(self, n_partitions: int = 100, n_cells: int = 8, random_state: Any = None) -> None:
        self.n_partitions = n_partitions
        self.n_cells = n_cells
        self.random_state = random_state

    splits_on_features = False

    def _fit_rows(self, rows: TrainingRows) -> None:
        n_partitions = checked_count(self, "n_partitions", 1)
        n_cells = checked_count(self, "n_cells", 1)
        plan = plan_features(rows.X, rows.weights, rows.columns)
        features = plan.fit(rows.X, rows.weights, clip=False)
        places = features.transform(rows.X.astype(np.float64, copy=False))
        draw = _DistinctRows(places, np.random.default_rng(as_seed(self.random_state)))
        centres = np.stack([draw(n_cells) for _ in range(n_partitions)])
        self.features_ = features
        self.centres_ = centres
        self.n_features_in_ = rows.X.shape[1]
        self.n_cells_ = np.full(n_partitions, centres.shape[1], dtype=np.intp)
        self.split_gains_ = np.ones(self.n_features_in_)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the codes (n, P): the number of the nearest centre in each partition."""
        X = check_apply_rows(self, X)
        n_partitions, n_cells, m = self.centres_.shape
        # Partitions last: the steps below then run along long contiguous stretches.
        centres = self.centres_.swapaxes(0, 1).reshape(n_cells * n_partitions, m)
        # The nearest centre c of x has the largest <x, c> - |c|^2 / 2.
        half_lengths = np.einsum("cd,cd->c", centres, centres) / 2
        # Zeros: distances that overflow are larger than none, and the first centre is as good then.
        codes = np.zeros((X.shape[0], n_partitions), dtype=np.int32)
        step = max(1, _BLOCK_ELEMENTS // len(centres))
        for start in range(0, X.shape[0], step):
            block = self.features_.transform(X[start : start + step].astype(np.float64, copy=False))
            scores = block @ centres.T
            scores -= half_lengths
            scores = scores.reshape(-1, n_cells, n_partitions)
            # The product's rounding depends on the number of rows; without a margin it would
            # decide between equidistant centres, and a row alone could get another code.
            lengths = np.einsum("nd,nd->n", block, block) + half_lengths.max()
            least = scores.max(axis=1) - (TIE * lengths)[:, None]
            for cell in reversed(range(n_cells)):  # The first centre in a tie has the last word.
                np.putmask(codes[start : start + step], scores[:, cell] >= least, cell)
        return codes


class _DistinctRows:
    """Draws of k different rows of `X` (n, d), uniform over rows."""

    def __init__(self, X: NDArray, rng: np.random.Generator) -> None:
        self._X = X
        self._rng = rng
        self._distinct: tuple[NDArray, NDArray] | None = None

    def __call__(self, k: int) -> NDArray[np.float64]:
        """Return min(k, number of different rows) rows."""
        n = self._X.shape[0]
        if self._distinct is None:
            rows = self._X[self._rng.choice(n, size=min(n, 4 * k), replace=False)]
            first = np.sort(np.unique(rows, axis=0, return_index=True)[1])
            if len(first) >= k:
                return rows[first[:k]]
            # Many duplicates: sort them out once for all draws.
            self._distinct = np.unique(self._X, axis=0, return_counts=True)
        values, counts = self._distinct
        k = min(k, len(values))
        # A value as likely as its rows together: the same law as above.
        return values[self._rng.choice(len(values), size=k, replace=False, p=counts / n)]
