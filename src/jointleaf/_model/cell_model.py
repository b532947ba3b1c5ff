"""The fitted model of all cells: what predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.device import place
from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.losses import Loss
from jointleaf._data.columns import Columns
from jointleaf._data.features import LinearFeatures
from jointleaf._model.bulk_predict import LEAST_ROWS, GroupedSums
from jointleaf._model.contributions import LinearContributions, TrainingMeans, training_means
from jointleaf._model.ranges import CellRanges
from jointleaf.partitions import Partitioner

__all__ = ["CellModel", "CellWeights", "Frame"]

_PREDICT_ROWS = 16384  # rows predicted at a time: bounds the memory of their codes
_MEANS_ROWS = 4096


@dataclass(frozen=True)
class Frame:
    """What the cells are fitted in: how rows and targets become standardised numbers."""

    columns: Columns
    features: LinearFeatures
    loss: Loss
    offset: NDArray
    centre: float
    unit: float
    n_jobs: int

    def design(self, X: NDArray, partitioner: Partitioner, kind: CellKind) -> LeafDesign:
        """The design of rows X (n, d) and all cells of a fitted partitioner."""
        features, codes = self.features.transform(X), partitioner.apply(X)
        n_cells, n_jobs = partitioner.n_cells_, self.n_jobs
        return LeafDesign(features, codes, n_cells, cells=kind, n_jobs=n_jobs)

    def target(self, y: NDArray) -> NDArray:
        """Targets (n,) in standard units."""
        return (y - self.centre) / self.unit


@dataclass(frozen=True)
class CellWeights:
    """Weights theta (C, q[, K]) of all cells in standard units, and what they add to."""

    theta: NDArray
    offset: NDArray

    @property
    def slopes(self) -> NDArray:
        """Slopes (C, m[, K]); m is 0 for constant cells."""
        return self.theta[:, :-1]

    @property
    def biases(self) -> NDArray:
        """Biases (C[, K])."""
        return self.theta[:, -1]


@dataclass(frozen=True)
class CellModel:
    """Partitions, how rows become linear features, and the weights of all cells.

    Attributes
    ----------
    partitioner : Partitioner
    features : LinearFeatures
    layout : CellLayout
    weights : CellWeights
    centre, unit : float
        Of the target.
    ranges : CellRanges or None
        What the cells saw, where their linear models are limited to that.
    means : TrainingMeans or None
        What explanations measure from (`jointleaf.inspection`).
    """

    partitioner: Partitioner
    features: LinearFeatures
    layout: CellLayout
    weights: CellWeights
    centre: float
    unit: float
    ranges: CellRanges | None = None
    means: TrainingMeans | None = None

    def with_means(self, X: NDArray, s: NDArray) -> CellModel:
        """Give the model with the means of training rows X (n, d) with weights s (n,)."""
        linear = LinearContributions(self.layout, self.weights.theta, self.ranges)

        def blocks() -> Iterator[tuple[NDArray, NDArray, NDArray]]:
            for start in range(0, len(X), _MEANS_ROWS):
                rows = X[start : start + _MEANS_ROWS]
                own = s[start : start + _MEANS_ROWS]
                yield self.features.transform(rows), self.partitioner.apply(rows), own

        return replace(self, means=training_means(linear, self.layout, blocks()))

    def predict(self, X: NDArray, n_jobs: int, device: str = "cpu") -> NDArray:
        """Predictions on the scale of the loss, (n,) or (n, K), of rows X (n, d).

        From `LEAST_ROWS` rows on small trees are looked up in tables, several at a time
        (`GroupedSums`); the numbers are the same up to rounding. On other devices than the CPU
        all cells are gathered.
        """
        work = len(X) * self.layout.n_partitions * self.weights.theta[0].size
        if self.ranges is None and (chosen := place(device, work)) != "cpu":
            return self.centre + self.unit * (self._on_device(X, chosen) + self.weights.offset)
        tables = self._tables(X.dtype) if len(X) >= LEAST_ROWS and self.ranges is None else None
        if tables is None or tables.n_groups == 0:
            sums = self._plain(X, self.partitioner.apply, self.layout, self.weights.theta, n_jobs)
        else:
            sums = tables(X, self.features, n_jobs)
            if tables.rest is not None:
                rest = tables.rest
                sums += self._plain(X, rest.codes, rest.layout, rest.theta, n_jobs)
        return self.centre + self.unit * (sums + self.weights.offset)

    def _on_device(self, X: NDArray, device: str) -> NDArray:
        """Sums over partitions, (n,) or (n, K), computed on a device."""
        from jointleaf._core.jax.problem import predict

        features, codes = self.features.transform(X), self.partitioner.apply(X)
        theta = self.weights.theta.astype(features.dtype, copy=False)
        return predict(features, codes, theta, self.layout, device)

    def _plain(
        self,
        X: NDArray,
        apply: Callable[[NDArray], NDArray],
        layout: CellLayout,
        theta: NDArray,
        n_jobs: int,
    ) -> NDArray:
        """Sums over partitions, (n,) or (n, K), from the codes that `apply` gives."""
        parts = []
        for start in range(0, len(X), _PREDICT_ROWS):
            rows = X[start : start + _PREDICT_ROWS]
            features, codes = self.features.transform(rows), apply(rows)
            if self.ranges is not None:
                parts.append(self.ranges.predict(features, codes, theta, layout))
                continue
            n_cells, kind = layout.cells_per_partition, layout.kind
            design = LeafDesign(features, codes, n_cells, cells=kind, n_jobs=n_jobs)
            parts.append(design.matvec(theta))
        return np.concatenate(parts)

    def _tables(self, dtype: np.dtype) -> GroupedSums:
        """The tables, made when they are needed for the first time."""
        kept: dict[np.dtype, GroupedSums] = self.__dict__.setdefault("_kept", {})
        if dtype not in kept:
            kept[dtype] = GroupedSums(self.partitioner, self.layout, self.weights.theta, dtype)
        return kept[dtype]

    def __getstate__(self) -> dict[str, Any]:
        # Tables are made anew from the rest: they would only make pickles larger.
        made = ("_kept", "_explainer")
        return {name: value for name, value in self.__dict__.items() if name not in made}
