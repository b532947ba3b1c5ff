"""Fits of tables that are larger than memory: rows are read from a source and kept in files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from jointleaf._core import arrays
from jointleaf._core.blocks import BlockDesign, StoredDesigns
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._core.row_vectors import Kept
from jointleaf._data.sources import Batch, RowSource, fraction_in, stacked
from jointleaf._sources.rows import (
    Draw,
    Estimator,
    FittedSample,
    RowStore,
    Settings,
    check_settings,
    fit_rows,
)
from jointleaf.estimators._base import BaseJOPLEn

_MIN_BLOCK_ROWS = 1000
_ROW_BYTES = 80  # of targets, weights, predictions and derivatives of a row, in double precision


def fit_source(
    estimator: Estimator,
    source: RowSource,
    *,
    sample_rows: int = 100_000,
    validation_rows: int = 20_000,
    max_passes: int = 20,
    memory_limit: float | None = None,
    cache_dir: str | Path | None = None,
    checkpoint: str | Path | None = None,
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
        Rows that partitions are grown on. If there are no more than that, the estimator is fitted
        to all of them, and nothing is corrected.
    validation_rows : int
        Held-out rows, at most a fifth of all.
    max_passes : int
        Most passes over all rows.
    memory_limit : float, optional
        Bytes that the fit may take, besides what the process has taken before; by default half of
        what is available.
    cache_dir : str or Path, optional
        Folder for files, which are removed in the end; by default that of the system.
    checkpoint : str or Path, optional
        Folder in which the model of the sample and, every two minutes, the state of the correction
        are kept until the fit is over. A fit that was interrupted goes on from there, when it is
        called again with the same rows and parameters, to the same model; with others it refuses.

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
    _check_arguments(estimator, source)
    check_settings(estimator, sample_rows, validation_rows, max_passes)
    limit = memory_limit
    if limit is None:
        limit = 0.5 * (arrays.available_memory() or 2**32)
    settings = Settings(sample_rows, validation_rows, max_passes, limit, checkpoint)
    files = _Files(source, limit, cache_dir, with_labels=is_classifier(estimator))
    return fit_rows(estimator, files, settings)


def _check_arguments(estimator: object, source: object) -> None:
    if not isinstance(estimator, BaseJOPLEn):
        raise TypeError(f"estimator={estimator!r} must be a JOPLEnRegressor or a JOPLEnClassifier")
    if not isinstance(source, RowSource):
        raise TypeError(
            f"source={source!r} must be ParquetRows or BatchRows: give tables that fit into memory "
            "to estimator.fit"
        )


class _Files(RowStore):
    """Rows of a source, which become blocks in the files of a temporary folder."""

    name = "fit_source"

    def __init__(
        self,
        source: RowSource,
        limit: float,
        cache_dir: str | Path | None,
        *,
        with_labels: bool,
    ) -> None:
        self._source, self._limit, self._cache_dir = source, limit, cache_dir
        self._with_labels = with_labels
        self._folder: tempfile.TemporaryDirectory | None = None

    def survey(self) -> int:
        n_rows = self._source.survey()
        needed = _ROW_BYTES * n_rows
        if needed > self._limit:
            total, given = arrays.readable_bytes(needed), arrays.readable_bytes(self._limit)
            raise MemoryError(
                f"memory_limit={given} is too little for {n_rows} rows, whose targets and "
                f"predictions alone take about {total}: raise it"
            )
        return n_rows

    def _numbered(self, draw: Draw) -> Iterator[tuple[Batch, NDArray, NDArray]]:
        """Yield all batches with their rows that are drawn for the sample, and to be held out."""
        start = 0
        for batch in self._source.batches():
            yield batch, *draw.within(start, start + len(batch.y))
            start += len(batch.y)
        if start != draw.n_rows:
            raise ValueError(
                f"source gave {draw.n_rows} rows at first and {start} now: it must not change"
            )

    def read_drawn(self, draw: Draw) -> tuple[Batch, Batch, set[Any]]:
        samples: list[Batch] = []
        validations: list[Batch] = []
        labels: set[Any] = set()
        for batch, sample, validation in self._numbered(draw):
            samples.append(batch.take(sample))
            validations.append(batch.take(validation))
            if self._with_labels:
                row = fraction_in(batch.y)
                if row is not None:
                    raise ValueError(
                        f"the target has numbers with fractions, such as {batch.y[row]}, which are "
                        "no classes: use a regressor"
                    )
                labels.update(np.unique(batch.y).tolist())
        return stacked(samples), stacked(validations), labels

    def problem(self, model: FittedSample, draw: Draw) -> Problem:
        estimator, layout = model.estimator, model.estimator.cell_model_.layout
        disk = draw.n_rows * (8 * (layout.n_slopes + 1) + 2 * layout.n_partitions)
        self.print_status(
            estimator,
            f"{layout.n_partitions:,} partitions are corrected by all rows, at most "
            f"{arrays.readable_bytes(disk)} in files, within "
            f"{arrays.readable_bytes(self._limit)} of memory",
        )
        self._folder = tempfile.TemporaryDirectory(prefix="jointleaf-", dir=self._cache_dir)
        stored = StoredDesigns(self._folder.name)
        row_bytes = 32 * layout.n_features + 8 * layout.n_partitions  # while a block is made
        block_rows = max(_MIN_BLOCK_ROWS, int(self._limit / 8 / row_bytes))
        progress = Progress(100, "percent of rows prepared", enabled=bool(estimator.verbose))
        numbers: list[tuple[NDArray, ...]] = []
        n_done = 0
        for batch, _, validation in self._numbered(draw):
            used = np.setdiff1d(np.arange(len(batch.y)), validation, assume_unique=True)
            for first in range(0, len(used), block_rows):
                part = model.prepare(batch, used[first : first + block_rows])
                stored.append(part.design)
                numbers.append(part[1:])
            n_done += len(batch.y)
            progress.step_to(100 * n_done // draw.n_rows)
        design = BlockDesign(stored)
        y, s, raw = (
            design.vector_of(Kept(list(column)), column[0][:0])
            for column in zip(*numbers, strict=True)
        )
        return Problem(design, y, model.loss, model.penalty, s, raw)

    def release(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
