"""Folders of Parquet files: a sample tells what columns hold, all rows are fitted in batches."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jointleaf import BatchRows, ParquetRows, fit_source
from jointleaf._data.raw_table import RawTable
from jointleaf.cli._output import CliError
from jointleaf.cli._preparation import TrainingData, missing_words, prepared, role_numbers
from jointleaf.cli._tables import arrow_table, stacked_tables

_SAMPLE = 100_000  # rows that tell what columns hold, and that partitions are grown on


class Folder:
    """The Parquet files of a folder."""

    def __init__(
        self,
        path: str,
        target: str,
        missing: tuple[str, ...],
        sample_rows: int | None = None,
        checkpoint: str | None = None,
    ) -> None:
        self.path = path
        self._sample_rows, self._checkpoint = sample_rows or _SAMPLE, checkpoint
        self._missing = missing
        try:
            self._rows = ParquetRows(path, target)
            self._rows.check_files()
        except ImportError:
            remedy = "pip install 'jointleaf[cli]'"
            raise CliError(f"{path}: Parquet files need pyarrow: {remedy}") from None
        except ValueError as cause:
            raise CliError(str(cause)) from None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Folder | None:
        """Return the folder that a command is given; None if it is given a file."""
        if args.data == "-" or not Path(args.data).is_dir():
            for option in ("sample_rows", "checkpoint"):
                if getattr(args, option) is not None:
                    name = option.replace("_", "-")
                    raise CliError(
                        f"--{name} {getattr(args, option)} is for folders of Parquet files, and "
                        f"{args.data} is none: leave it out"
                    )
            return None
        for option in ("group", "time", "exposure", "time_budget"):
            if getattr(args, option) is not None:
                raise CliError(
                    f"{args.data}: a folder is fitted in batches, for which "
                    f"--{option.replace('_', '-')} is not written: leave it out, or give one file"
                )
        if not any(path.is_file() for path in Path(args.data).rglob("*")):
            raise CliError(f"{args.data} is a folder without files: give a file, or Parquet files")
        return cls(args.data, args.target, missing_words(args), args.sample_rows, args.checkpoint)

    def _tables(self) -> Iterator[RawTable]:
        for batch in self._rows.read():
            yield arrow_table(batch, self.path, self._missing)

    def sample(self, seed: int) -> RawTable:
        """Return some rows, drawn across all files."""
        n_rows = self._rows.count()
        if not n_rows:
            raise CliError(f"{self.path}: the files have no rows")
        rng = np.random.default_rng(seed)
        drawn = np.sort(rng.choice(n_rows, min(self._sample_rows, n_rows), replace=False))
        parts, start = [], 0
        for table in self._tables():
            stop = start + len(table)
            parts.append(table.take(drawn[slice(*np.searchsorted(drawn, [start, stop]))] - start))
            start = stop
        note = f"{len(drawn):,} of {n_rows:,} rows tell what columns hold; all are fitted"
        return stacked_tables(parts, note)

    def fit(self, estimator: Any, data: TrainingData) -> Any:
        """Fit an estimator to all rows, prepared as the sample was."""
        preparation, target = data.preparation, data.target

        def batches() -> Iterator[tuple[Any, ...]]:
            for table in self._tables():
                y, present = target.read(table.column(target.name), self.path)
                weights = role_numbers(preparation, table, "weight", present)
                yield prepared(preparation, table.take(present))[0], y, weights

        # Progress goes to the standard error stream, all of it: the result alone is for pipes.
        try:
            with contextlib.redirect_stdout(sys.stderr):
                return fit_source(
                    estimator,
                    BatchRows(batches),
                    sample_rows=self._sample_rows,
                    checkpoint=self._checkpoint,
                )
        except (ValueError, MemoryError) as cause:
            raise CliError(f"{self.path}: {cause}") from None
