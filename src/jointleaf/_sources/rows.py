"""Fits of more rows than one process holds: a model of a sample, corrected by all rows.

Where rows are, in files or on the workers of a cluster, is the business of a `RowStore`: it draws
rows, and makes the problem of all others, which stay where they are.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from jointleaf._core import arrays
from jointleaf._core.arrays import check_count, threads
from jointleaf._core.design import LeafDesign
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Frobenius
from jointleaf._core.problem import Problem
from jointleaf._data.rows import Rows
from jointleaf._data.sources import Batch
from jointleaf._fit.component import NARROW, smooth
from jointleaf._fit.correction import Correction, fit_correction, move_penalty
from jointleaf._sources.checkpoint import Checkpoint
from jointleaf.estimators._base import BaseJOPLEn, store_model
from jointleaf.estimators._checks import check_parameters, class_factors, restored_on_error
from jointleaf.estimators._fitted import (
    class_weights_of,
    fitted_loss,
    read_fit_rows,
    read_known_rows,
)
from jointleaf.estimators._memory import estimate_memory

Estimator = TypeVar("Estimator", bound=BaseJOPLEn)
_MOST_CLASSES = 50  # beyond, numbers may be no classes
_PIECE_ROWS = 2**12  # that are read and routed at a time: what this takes comes on top of the block


@dataclass(frozen=True)
class SourceFit:
    """How a model was fitted to a source.

    Attributes
    ----------
    n_rows : int
        Rows of the source.
    n_sample, n_validation : int
        Rows that the model was fitted to before the correction, and rows that were held out. Where
        the sample is all rows, there is no correction.
    n_passes : int
        Passes of the correction over all rows that were not held out, each of them forth and back.
    strengths : list of float
        Of the correction, one for every round; empty where held-out rows were against any.
    loss_before, loss_after : float or None
        Of the held-out rows, without and with the correction; None without held-out rows.
    """

    n_rows: int
    n_sample: int
    n_validation: int
    n_passes: int
    strengths: list[float]
    loss_before: float | None = None
    loss_after: float | None = None

    @classmethod
    def of(
        cls, n_rows: int, sample: Batch, validation: Batch, correction: Correction | None
    ) -> SourceFit:
        """Return the record of a fit."""
        sizes = n_rows, len(sample.y), len(validation.y)
        if correction is None:
            return cls(*sizes, 0, [])
        losses = correction.loss_before, correction.loss_after
        return cls(*sizes, correction.n_passes, correction.strengths, *losses)

    def line(self) -> tuple[str, str]:
        """Return a line of a summary, of which all others are about the sample."""
        if not self.n_validation:
            return "source", f"{self.n_rows:,} rows, all of them fitted at once"
        text = f"{self.n_rows:,} rows, of which a sample of {self.n_sample:,} was fitted as above"
        if not self.strengths:
            return "source", f"{text}; {self.n_validation:,} held-out rows were against correcting"
        return "source", (
            f"{text}, and corrected by {self.n_rows - self.n_validation:,}: {self.n_passes} "
            f"passes, held-out loss {self.loss_before:.4g} before and {self.loss_after:.4g} after"
        )


@dataclass(frozen=True)
class Draw:
    """Rows that were drawn: numbers, in rising order, of the sample and of the held-out rows."""

    n_rows: int
    sample: NDArray[np.int64]
    validation: NDArray[np.int64]

    @classmethod
    def of(cls, estimator: BaseJOPLEn, n_rows: int, n_sample: int, n_validation: int) -> Draw:
        """Draw rows at random, at most a fifth of all to be held out; all rows if they are few."""
        if n_rows <= n_sample:
            return cls(n_rows, np.arange(n_rows), np.empty(0, np.int64))
        n_validation = min(n_validation, n_rows // 5)
        n_sample = min(n_sample, n_rows - n_validation)
        rng = np.random.default_rng(check_random_state(estimator.random_state).randint(2**31))
        drawn = rng.choice(n_rows, n_sample + n_validation, replace=False)
        return cls(n_rows, np.sort(drawn[:n_sample]), np.sort(drawn[n_sample:]))

    def within(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what was drawn of the rows from start to stop, counted from start."""
        sample, validation = (
            rows[slice(*np.searchsorted(rows, [start, stop]))] - start
            for rows in (self.sample, self.validation)
        )
        return sample, validation


class RowStore(ABC):
    """Rows that are never in one array."""

    #: what messages begin with
    name: str

    @abstractmethod
    def survey(self) -> int:
        """Return the number of rows; raise ValueError for what cannot be fitted."""

    @abstractmethod
    def read_drawn(self, draw: Draw) -> tuple[Batch, Batch, set[Any]]:
        """Return the sample, the held-out rows, and of classes the labels of all rows."""

    @abstractmethod
    def problem(self, model: FittedSample, draw: Draw) -> Problem:
        """Return the problem of the correction by all rows that are not held out."""

    def release(self) -> None:  # noqa: B027
        """Free what the problem has taken."""

    def print_status(self, estimator: BaseJOPLEn, text: str) -> None:
        """Print what is to come, with ``verbose``."""
        if estimator.verbose:
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)


class Prepared(NamedTuple):
    """Some rows as the correction sees them: targets and predictions in standard units."""

    design: LeafDesign
    y: NDArray
    s: NDArray
    raw: NDArray


@dataclass(frozen=True)
class FittedSample:
    """The model of a sample, the weights of classes in it, and the precision of all blocks."""

    estimator: BaseJOPLEn
    class_weights: Mapping[Any, float] | None
    dtype: np.dtype

    @classmethod
    def of(cls, estimator: BaseJOPLEn, sample: Batch) -> FittedSample:
        """Return it for the sample that an estimator was fitted to."""
        s = np.ones(len(sample.y)) if sample.sample_weight is None else sample.sample_weight
        first = sample.take(np.arange(1))
        dtype = read_known_rows(estimator, first.X, first.y).X.dtype
        return cls(estimator, class_weights_of(estimator, sample.y, s), dtype)

    @property
    def loss(self) -> Loss:
        """The loss of the correction."""
        return smooth(fitted_loss(self.estimator), NARROW)

    @property
    def penalty(self) -> Frobenius:
        """The penalty on moves of weights."""
        return move_penalty(self.estimator.cell_model_.layout.n_partitions)

    def prepare(self, batch: Batch, used: NDArray[np.intp] | None = None) -> Prepared:
        """Return rows with a positive weight, of all or those used, for the correction.

        There may be none.
        """
        model = self.estimator.cell_model_
        s = class_factors(self.class_weights, batch.y)
        s = s if batch.sample_weight is None else s * batch.sample_weight
        used = np.arange(len(s)) if used is None else used
        used = used[s[used] > 0]
        s = s[used]
        pieces = [slice(k, k + _PIECE_ROWS) for k in range(0, len(s), _PIECE_ROWS)]
        codes, y, raw = self._room(len(s))
        for k in pieces:
            rows = self._read(batch, used[k], s[k])
            codes[k] = model.partitioner.apply(rows.X)
            y[k] = (rows.y - model.centre) / model.unit
            raw[k] = (model.predict(rows.X) - model.centre) / model.unit
        X = np.empty((len(s), model.layout.n_features + 1), self.dtype)
        design = LeafDesign(
            X,
            codes,
            model.partitioner.n_cells_,
            cells=model.layout.kinds,
            n_jobs=threads(self.estimator.n_jobs),
            is_owned=True,
        )
        del codes
        design.merge_cells()  # before X takes memory: merging takes as much
        X[:, -1] = 1.0
        for k in pieces:
            X[k, :-1] = model.features.transform(self._read(batch, used[k], s[k]).X)
        return Prepared(design, y, s, raw)

    def _room(self, n: int) -> tuple[NDArray, NDArray, NDArray]:
        """Return arrays for codes, targets and predictions of n rows, as small as can be."""
        model = self.estimator.cell_model_
        small = np.min_scalar_type(-int(max(model.partitioner.n_cells_)))
        codes = np.empty((n, model.layout.n_partitions), small)
        return codes, np.empty(n, self.dtype), np.empty((n, *model.biases.shape[1:]), self.dtype)

    def _read(self, batch: Batch, used: NDArray[np.intp], s: NDArray) -> Rows:
        part = batch.take(used)
        return read_known_rows(self.estimator, part.X, part.y, s)


@dataclass(frozen=True)
class Settings:
    """Sizes of a fit, and where its checkpoint is.

    The sample may take `limit` bytes.
    """

    sample_rows: int
    validation_rows: int
    max_passes: int
    limit: float
    checkpoint: str | Path | None = None

    def open_checkpoint(self, estimator: BaseJOPLEn, n_rows: int) -> Checkpoint | None:
        """Return the checkpoint of a fit of some rows."""
        if self.checkpoint is None:
            return None
        sizes = (self.sample_rows, self.validation_rows, self.max_passes, n_rows)
        return Checkpoint(self.checkpoint, estimator, sizes=sizes)


def fit_rows(estimator: Estimator, store: RowStore, settings: Settings) -> Estimator:
    """Fit an estimator to all rows of a store."""
    with restored_on_error(estimator):
        n_rows = store.survey()
        checkpoint = settings.open_checkpoint(estimator, n_rows)
        draw, sample, validation = _fit_sample(estimator, store, settings, checkpoint, n_rows)
        correction = None
        if len(validation.y):
            correction = _correct(estimator, store, settings, checkpoint, draw, sample, validation)
        estimator.source_fit_ = SourceFit.of(n_rows, sample, validation, correction)
        if checkpoint is not None:
            checkpoint.remove()
    return estimator


def _correct(
    estimator: BaseJOPLEn,
    store: RowStore,
    settings: Settings,
    checkpoint: Checkpoint | None,
    draw: Draw,
    sample: Batch,
    validation: Batch,
) -> Correction:
    """Correct the model of the sample by all rows."""
    model = FittedSample.of(estimator, sample)
    held_out = model.prepare(validation)
    try:
        correction = fit_correction(
            store.problem(model, draw),
            Problem(held_out.design, held_out.y, model.loss, model.penalty, *held_out[2:]),
            settings.max_passes,
            verbose=bool(estimator.verbose),
            state=checkpoint.state() if checkpoint else None,
            keep=checkpoint.keep if checkpoint else None,
        )
    finally:
        store.release()
    _store(estimator, correction, sample)
    return correction


def _fit_sample(
    estimator: BaseJOPLEn,
    store: RowStore,
    settings: Settings,
    checkpoint: Checkpoint | None,
    n_rows: int,
) -> tuple[Draw, Batch, Batch]:
    """Fit the estimator to a sample, or take its model from a checkpoint; return what was drawn."""
    is_begun = checkpoint is not None and checkpoint.is_begun()
    if checkpoint is not None and is_begun:
        draw = Draw(n_rows, **checkpoint.draw())
    else:
        draw = Draw.of(estimator, n_rows, settings.sample_rows, settings.validation_rows)
    sample, validation = _read_drawn(estimator, store, draw)
    if checkpoint is not None and is_begun:
        checkpoint.restore(estimator, sample)
        store.print_status(
            estimator, f"{n_rows:,} rows; the fit goes on from {settings.checkpoint}"
        )
        return draw, sample, validation
    _check_sample(estimator, sample, settings.limit)
    store.print_status(estimator, f"{n_rows:,} rows; a sample of {len(sample.y):,} is fitted first")
    estimator.fit(sample.X, sample.y, sample.sample_weight)
    if checkpoint is not None:
        checkpoint.start(estimator, sample, {"sample": draw.sample, "validation": draw.validation})
    return draw, sample, validation


def check_settings(
    estimator: BaseJOPLEn, sample_rows: int, validation_rows: int, max_passes: int
) -> None:
    """Check what a fit of many rows is asked for."""
    check_parameters(estimator)
    check_count("sample_rows", sample_rows)
    check_count("validation_rows", validation_rows)
    check_count("max_passes", max_passes)
    if estimator.clip == "cell":
        raise ValueError(
            "clip='cell' limits linear models to what cells of the sample hold, which other rows "
            "exceed: use clip=True"
        )
    for name, instead in (("monotonic_cst", "leave it out"), ("time_budget", "use max_passes")):
        value = getattr(estimator, name)
        if value is not None:
            raise ValueError(f"{name}={value!r} is not possible with a source: {instead}")
    if estimator.warm_start:
        raise ValueError("warm_start=True is not possible with a source: leave it out")
    level: Any = getattr(estimator, "quantile", None)
    if np.ndim(level):
        raise ValueError(f"quantile={level!r} is not possible with a source: give one level")


def _read_drawn(estimator: BaseJOPLEn, store: RowStore, draw: Draw) -> tuple[Batch, Batch]:
    """Return the sample and the held-out rows; raise where a class is not in the sample."""
    sample, validation, labels = store.read_drawn(draw)
    if is_classifier(estimator):
        _check_classes(sample.y, labels)
    return sample, validation


def _check_classes(y: NDArray, labels: set[Any]) -> None:
    """Raise ValueError where targets are not classes, or a class is not in the sample."""
    is_number = np.asarray(y).dtype.kind in "iuf"
    in_sample = set(np.unique(y).tolist())
    if is_number and len(in_sample) > max(_MOST_CLASSES, len(y) // 2):
        raise ValueError(
            f"the target has {len(in_sample):,} different numbers in {len(y):,} rows, which are "
            "no classes: use a regressor"
        )
    check_classification_targets(y)
    lost = labels - in_sample
    if lost:
        remedy = "raise sample_rows, or leave out rare classes"
        if is_number and len(labels) > _MOST_CLASSES:
            remedy += f"; if {len(labels):,} different numbers are no classes, use a regressor"
        raise ValueError(
            f"the class {min(lost, key=str)!r} is not among the sample_rows={len(y)} rows "
            f"that were drawn: {remedy}"
        )


def _check_sample(estimator: BaseJOPLEn, sample: Batch, limit: float) -> None:
    """Raise MemoryError where the fit of the sample would take too much."""
    n, d = sample.X.shape
    n_classes = len(np.unique(sample.y)) if is_classifier(estimator) else 2
    needed = estimate_memory(estimator, (n, d), n_classes=n_classes, itemsize=8).total
    if needed > limit:
        total, given = arrays.readable_bytes(needed), arrays.readable_bytes(limit)
        raise MemoryError(
            f"memory_limit={given} is too little for a fit of sample_rows={n} rows, which takes "
            f"about {total}: lower sample_rows, or raise memory_limit"
        )


def _store(estimator: BaseJOPLEn, correction: Correction, sample: Batch) -> None:
    """Put the corrected model on the estimator."""
    if not correction.strengths:
        return
    model = estimator.cell_model_
    slopes, biases = model.layout.split(correction.theta)
    model = replace(model, slopes=model.slopes + slopes, biases=model.biases + biases, means=None)
    rows = read_fit_rows(estimator, sample.X, sample.y, sample.sample_weight)
    store_model(estimator, *model.described(rows.X, rows.s), rows)
    estimator.calibration_ = None  # held-out predictions of the sample's model were not corrected
