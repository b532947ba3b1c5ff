"""Fits of tables that are larger than memory: a model of a sample, corrected by all rows."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from jointleaf._core.blocks import BlockDesign, StoredDesigns
from jointleaf._core.design import LeafDesign
from jointleaf._core.penalties.base import check_count
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._data.rows import Rows
from jointleaf._data.sources import Batch, RowSource, stacked
from jointleaf._fit import memory
from jointleaf._fit.component import NARROW, smooth
from jointleaf._fit.correction import Correction, fit_correction, move_penalty
from jointleaf.estimators._base import BaseJOPLEn
from jointleaf.estimators._checks import check_parameters, restored_on_error

_REST, _SAMPLE, _VALIDATION = 0, 1, 2
_MIN_BLOCK_ROWS = 1000
_ROW_BYTES = 80  # of targets, weights, predictions and derivatives of a row, in double precision

Estimator = TypeVar("Estimator", bound=BaseJOPLEn)


@dataclass(frozen=True)
class SourceFit:
    """How a model was fitted to a source.

    Attributes
    ----------
    n_rows : int
        Rows of the source.
    n_sample, n_validation : int
        Rows that the model was fitted to before the correction, and rows that were held out.
    n_passes : int
        Passes of the correction over all rows that were not held out, each of them forth and back.
    strengths : list of float
        Of the correction, one for every round; empty where held-out rows were against any.
    loss_before, loss_after : float
        Of the held-out rows, without and with the correction.
    """

    n_rows: int
    n_sample: int
    n_validation: int
    n_passes: int
    strengths: list[float]
    loss_before: float
    loss_after: float


def fit_source(
    estimator: Estimator,
    source: RowSource,
    *,
    sample_rows: int = 100_000,
    validation_rows: int = 20_000,
    max_passes: int = 20,
    memory_limit: float | None = None,
    cache_dir: str | Path | None = None,
) -> Estimator:
    """Fit an estimator to more rows than fit into memory.

    Rows are drawn across the source, and the estimator is fitted to them as ever. All cells of this
    model then get new weights: their moves are fitted jointly to all rows of the source, which are
    kept in files, in a form that is quick to pass over. Held-out rows, drawn across the source too,
    choose how strongly moves are penalised and after how many passes to stop; if they are against
    any correction, there is none.

    Parameters
    ----------
    estimator : JOPLEnRegressor or JOPLEnClassifier
        Fitted in place. With ``verbose=1`` it says what is to come and how far it is. Moves of
        weights are fitted on the CPU, whatever its `device` is.
    source : ParquetRows or BatchRows
        float32 is computed and kept in float32, everything else in float64.
    sample_rows : int
        Rows that partitions are grown on.
    validation_rows : int
        Held-out rows, at most a fifth of all.
    max_passes : int
        Most passes over all rows.
    memory_limit : float, optional
        Bytes that the fit may take, besides what the process has taken before; by default half of
        what is available.
    cache_dir : str or Path, optional
        Folder for files, which are removed in the end; by default that of the system.

    Returns
    -------
    estimator
        Fitted; `source_fit_` says how. Intervals and sets need `calibrate` with fresh rows.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import BatchRows, JOPLEnRegressor, fit_source
    >>> def batches():
    ...     for seed in range(4):
    ...         X = np.random.default_rng(seed).uniform(-1, 1, (500, 2))
    ...         yield X, np.abs(X[:, 0]) + X[:, 1]
    >>> model = JOPLEnRegressor("lightgbm", random_state=0)
    >>> model = fit_source(model, BatchRows(batches), sample_rows=500)
    >>> model.source_fit_.n_rows
    2000
    """
    _check_arguments(estimator, source, sample_rows, validation_rows, max_passes)
    with restored_on_error(estimator):
        n_rows = source.survey()
        limit = _limit(memory_limit, n_rows)
        marks = _draw(estimator, n_rows, sample_rows, validation_rows)
        sample, validation = _read_drawn(estimator, source, marks)
        _check_sample(estimator, sample, limit)
        _say(
            estimator,
            f"{n_rows:,} rows within {memory.readable_bytes(limit)} of memory; "
            f"a sample of {len(sample.y):,} rows is fitted first",
        )
        estimator.fit(sample.X, sample.y, sample.sample_weight)
        with tempfile.TemporaryDirectory(prefix="jointleaf-", dir=cache_dir) as folder:
            correction = _correct(
                estimator, source, marks, validation, StoredDesigns(folder), max_passes, limit
            )
        _store(estimator, correction, sample)
        estimator.source_fit_ = SourceFit(
            n_rows, len(sample.y), len(validation.y), correction.n_passes, correction.strengths,
            correction.loss_before, correction.loss_after,
        )  # fmt: skip
    return estimator


# -- before the fit --------------------------------------------------------------------------------


def _check_arguments(
    estimator: object, source: object, sample_rows: int, validation_rows: int, max_passes: int
) -> None:
    if not isinstance(estimator, BaseJOPLEn):
        raise TypeError(f"estimator={estimator!r} must be a JOPLEnRegressor or a JOPLEnClassifier")
    if not isinstance(source, RowSource):
        raise TypeError(
            f"source={source!r} must be ParquetRows or BatchRows: give tables that fit into memory "
            "to estimator.fit"
        )
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


def _limit(memory_limit: float | None, n_rows: int) -> float:
    """Return the bytes that may be taken; raise MemoryError if row vectors alone exceed them."""
    limit = memory_limit
    if limit is None:
        limit = 0.5 * (memory.available_memory() or 2**32)
    needed = _ROW_BYTES * n_rows
    if needed > limit:
        total, given = memory.readable_bytes(needed), memory.readable_bytes(limit)
        raise MemoryError(
            f"memory_limit={given} is too little for {n_rows} rows, whose targets and predictions "
            f"alone take about {total}: raise it"
        )
    return limit


def _draw(
    estimator: BaseJOPLEn, n_rows: int, sample_rows: int, validation_rows: int
) -> NDArray[np.uint8]:
    """Return what every row is for, (n,)."""
    n_validation = min(validation_rows, n_rows // 5)
    n_sample = min(sample_rows, n_rows - n_validation)
    if not n_validation:
        raise ValueError(f"source has only {n_rows} rows: read them, and use estimator.fit")
    rng = np.random.default_rng(check_random_state(estimator.random_state).randint(2**31))
    drawn = rng.choice(n_rows, n_sample + n_validation, replace=False)
    marks = np.full(n_rows, _REST, np.uint8)
    marks[drawn[:n_sample]], marks[drawn[n_sample:]] = _SAMPLE, _VALIDATION
    return marks


def _numbered(source: RowSource, marks: NDArray[np.uint8]) -> Iterator[tuple[Batch, NDArray]]:
    """Yield all batches with what their rows are for."""
    start = 0
    for batch in source.batches():
        yield batch, marks[start : start + len(batch.y)]
        start += len(batch.y)
    if start != len(marks):
        raise ValueError(
            f"source gave {len(marks)} rows at first and {start} now: it must not change"
        )


def _read_drawn(
    estimator: BaseJOPLEn, source: RowSource, marks: NDArray[np.uint8]
) -> tuple[Batch, Batch]:
    """Return the sample and the held-out rows."""
    drawn: dict[int, list[Batch]] = {_SAMPLE: [], _VALIDATION: []}
    labels: set[object] = set()
    for batch, purpose in _numbered(source, marks):
        for mark, batches in drawn.items():
            batches.append(batch.take(np.flatnonzero(purpose == mark)))
        if is_classifier(estimator):
            labels.update(np.unique(batch.y).tolist())
    sample = stacked(drawn[_SAMPLE])
    lost = labels.difference(np.unique(sample.y).tolist()) if labels else set()
    if lost:
        raise ValueError(
            f"the class {min(lost, key=str)!r} is not among the sample_rows={len(sample.y)} rows "
            "that were drawn: raise sample_rows, or leave out rare classes"
        )
    return sample, stacked(drawn[_VALIDATION])


def _check_sample(estimator: BaseJOPLEn, sample: Batch, limit: float) -> None:
    """Raise MemoryError where the fit of the sample would take too much."""
    n, d = sample.X.shape
    n_classes = len(np.unique(sample.y)) if is_classifier(estimator) else 2
    needed = estimator.memory_of(n, d, n_classes, 1, 8).total
    if needed > limit:
        total, given = memory.readable_bytes(needed), memory.readable_bytes(limit)
        raise MemoryError(
            f"memory_limit={given} is too little for a fit of sample_rows={n} rows, which takes "
            f"about {total}: lower sample_rows, or raise memory_limit"
        )


def _say(estimator: BaseJOPLEn, text: str) -> None:
    if estimator.verbose:
        print(f"fit_source: {text}", file=sys.stderr, flush=True)


# -- the correction --------------------------------------------------------------------------------


class _Prepared(NamedTuple):
    """Some rows as the correction sees them: targets and predictions in standard units."""

    design: LeafDesign
    y: NDArray
    s: NDArray
    raw: NDArray


def _prepare(estimator: BaseJOPLEn, batch: Batch) -> _Prepared:
    model = estimator.cell_model_
    rows: Rows = estimator.read_known_rows(batch.X, batch.y, batch.sample_weight)
    design = LeafDesign(
        model.features.transform(rows.X).astype(rows.X.dtype, copy=False),
        model.partitioner.apply(rows.X),
        model.partitioner.n_cells_,
        cells=model.layout.kinds,
        n_jobs=effective_n_jobs(estimator.n_jobs),
    )
    raw = (model.predict(rows.X) - model.centre) / model.unit
    y = (rows.y - model.centre) / model.unit
    return _Prepared(design, y.astype(design.dtype), rows.s, raw.astype(design.dtype))


def _correct(
    estimator: BaseJOPLEn,
    source: RowSource,
    marks: NDArray[np.uint8],
    validation: Batch,
    stored: StoredDesigns,
    max_passes: int,
    limit: float,
) -> Correction:
    """Fit the correction to all rows that are not held out."""
    layout = estimator.cell_model_.layout
    disk = len(marks) * (8 * (layout.n_slopes + 1) + 2 * layout.n_partitions)
    _say(
        estimator,
        f"{layout.n_partitions:,} partitions are corrected by all rows, at most "
        f"{memory.readable_bytes(disk)} in files and {max_passes} passes",
    )
    y, s, raw = _write(estimator, source, marks, stored, limit)
    held_out = _prepare(estimator, validation)
    loss = smooth(estimator.fitted_loss(), NARROW)
    penalty = move_penalty(layout.n_partitions)
    return fit_correction(
        Problem(BlockDesign(stored), y, loss, penalty, s, raw),
        Problem(held_out.design, held_out.y, loss, penalty, held_out.s, held_out.raw),
        max_passes,
        verbose=bool(estimator.verbose),
    )


def _write(
    estimator: BaseJOPLEn,
    source: RowSource,
    marks: NDArray[np.uint8],
    stored: StoredDesigns,
    limit: float,
) -> list[NDArray]:
    """Write the blocks of all rows that are not held out; return their targets, s and raw."""
    layout = estimator.cell_model_.layout
    row_bytes = 32 * layout.n_features + 8 * layout.n_partitions  # while a block is made
    block_rows = max(_MIN_BLOCK_ROWS, int(limit / 8 / row_bytes))
    progress = Progress(100, "percent of rows prepared", enabled=bool(estimator.verbose))
    numbers: list[tuple[NDArray, ...]] = []
    n_done = 0
    for batch, purpose in _numbered(source, marks):
        used = np.flatnonzero(purpose != _VALIDATION)
        if batch.sample_weight is not None:  # a block must have a positive weight
            used = used[batch.sample_weight[used] > 0]
        for first in range(0, len(used), block_rows):
            part = _prepare(estimator, batch.take(used[first : first + block_rows]))
            stored.append(part.design)
            numbers.append(part[1:])
        n_done += len(batch.y)
        progress.step_to(100 * n_done // len(marks))
    return [np.concatenate(column) for column in zip(*numbers, strict=True)]


def _store(estimator: BaseJOPLEn, correction: Correction, sample: Batch) -> None:
    """Put the corrected model on the estimator."""
    if not correction.strengths:
        return
    model = estimator.cell_model_
    slopes, biases = model.layout.split(correction.theta)
    model = replace(model, slopes=model.slopes + slopes, biases=model.biases + biases, means=None)
    rows = estimator.read_fit_rows(sample.X, sample.y, sample.sample_weight)
    estimator.store_model(*model.described(rows.X, rows.s), rows)
    estimator.calibration_ = None  # held-out predictions of the sample's model were not corrected
