"""Sources: tables that are read batch by batch, as often as is needed, and never at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import check_count
from jointleaf._data.columns import as_frame, is_missing


class Batch(NamedTuple):
    """Some rows X (n, d), an array or a data frame, their targets y (n,), and weights or None."""

    X: Any
    y: NDArray
    sample_weight: NDArray | None

    def take(self, rows: NDArray[np.intp]) -> Batch:
        """Return some of the rows."""
        X = self.X[rows] if isinstance(self.X, np.ndarray) else _frame(self.X)[rows].to_native()
        weights = None if self.sample_weight is None else self.sample_weight[rows]
        return Batch(X, self.y[rows], weights)


def stacked(batches: Sequence[Batch]) -> Batch:
    """Return all rows of some batches as one."""
    parts = [batch.X for batch in batches]
    if isinstance(parts[0], np.ndarray):
        X = np.concatenate(parts)
    else:
        X = nw.concat([_frame(part) for part in parts]).to_native()
    weights = [batch.sample_weight for batch in batches if batch.sample_weight is not None]
    y = np.concatenate([batch.y for batch in batches])
    return Batch(X, y, np.concatenate(weights) if weights else None)


class RowSource(ABC):
    """Rows that can be read again and again, always in the same order."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Yield all rows from the start."""

    @abstractmethod
    def survey(self) -> int:
        """Return the number of rows; raise ValueError for what cannot be fitted."""


class ParquetRows(RowSource):
    """Rows of a Parquet file, or of all Parquet files of a folder.

    Parameters
    ----------
    path : str or Path
        A file, or a folder whose files have the same columns with the same types.
    target : str
        Column with the targets.
    sample_weight : str, optional
        Column with the weights.
    columns : sequence of str, optional
        Columns of X; by default all others.
    batch_rows : int
        Most rows that are read at a time.

    Examples
    --------
    >>> from jointleaf import JOPLEnRegressor, ParquetRows, fit_source
    >>> rows = ParquetRows("trips/", target="fare")  # doctest: +SKIP
    >>> model = fit_source(JOPLEnRegressor(random_state=0), rows)  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | Path,
        target: str,
        *,
        sample_weight: str | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int = 65_536,
    ) -> None:
        try:
            import pyarrow.dataset as dataset
        except ImportError as cause:
            raise ImportError("ParquetRows needs pyarrow: pip install pyarrow") from cause
        if not Path(path).exists():
            raise ValueError(f"path={str(path)!r} does not exist: give a Parquet file or a folder")
        check_count("batch_rows", batch_rows)
        try:
            self._dataset = dataset.dataset(str(path), format="parquet")
        except ValueError as cause:  # pyarrow.ArrowInvalid
            raise ValueError(
                f"path={str(path)!r} holds a file that is not Parquet: {cause}; leave it out"
            ) from None
        if not self._dataset.files:
            raise ValueError(f"path={str(path)!r} holds no Parquet files: nothing to fit")
        self._path, self._batch_rows = str(path), batch_rows
        self._target, self._weight = target, sample_weight
        known = self._dataset.schema.names
        others = [name for name in known if name not in (target, sample_weight)]
        self._columns = others if columns is None else list(columns)
        for name in (target, *([] if sample_weight is None else [sample_weight]), *self._columns):
            if name not in known:
                raise ValueError(f"path={self._path!r} has no column {name!r}: it has {known}")

    def survey(self) -> int:
        """Return the number of rows, after a look at the columns of all files and at the target."""
        self.check_files()
        n_rows = 0
        for batch in self.read([self._target]):
            _check_target(_numpy(batch.column(0)), n_rows)
            n_rows += batch.num_rows
        if not n_rows:
            raise ValueError(f"path={self._path!r} holds no rows: nothing to fit")
        return n_rows

    def check_files(self) -> None:
        """Raise ValueError where files disagree on columns or types."""
        first: tuple[str, dict[str, Any]] | None = None
        for fragment in self._dataset.get_fragments():
            schema = fragment.physical_schema
            types = {name: schema.field(name).type for name in schema.names}
            if first is None:
                first = fragment.path, types
            for name in sorted({*types, *first[1]}):
                here, there = types.get(name, "missing"), first[1].get(name, "missing")
                if here != there:
                    raise ValueError(
                        f"column {name!r} is {here} in {fragment.path} and {there} in {first[0]}: "
                        "write all files with the same columns and types"
                    )

    def count(self) -> int:
        """Return the number of rows, without reading them."""
        return self._dataset.count_rows()

    def read(self, names: list[str] | None = None) -> Iterator[Any]:
        """Yield Arrow's batches of all rows, with some columns or all."""
        return self._dataset.scanner(
            columns=names, batch_size=self._batch_rows, batch_readahead=1, fragment_readahead=1
        ).to_batches()

    def batches(self) -> Iterator[Batch]:
        """Yield all rows from the start."""
        import pyarrow

        names = [*self._columns, self._target, *([self._weight] if self._weight else [])]
        for batch in self.read(names):
            X = pyarrow.Table.from_batches([batch.select(self._columns)])
            weights = _numpy(batch.column(self._weight)) if self._weight else None
            yield Batch(X, _numpy(batch.column(self._target)), weights)


class BatchRows(RowSource):
    """Rows of batches that a function makes.

    Parameters
    ----------
    make_batches : callable
        Called without arguments, returns an iterable of pairs (X, y) or triples
        (X, y, sample_weight), the same rows at every call; X is an array or a data frame.
    """

    def __init__(self, make_batches: Callable[[], Iterable[tuple[Any, ...]]]) -> None:
        if not callable(make_batches):
            raise TypeError(
                f"make_batches is a {type(make_batches).__name__} and must be a function that "
                "returns a fresh iterator, such as lambda: iter(batches): batches are read several "
                "times"
            )
        self._make_batches = make_batches

    def survey(self) -> int:
        """Return the number of rows, after a look at all of them."""
        n_rows, columns = 0, None
        for batch in self.batches():
            if columns is not None and _columns(batch.X) != columns:
                raise ValueError(
                    f"the batch that begins with row {n_rows} has the columns {_columns(batch.X)} "
                    f"and those before {columns}: give all batches the same columns and types"
                )
            columns = _columns(batch.X)
            _check_target(batch.y, n_rows)
            n_rows += len(batch.y)
        if not n_rows:
            raise ValueError("make_batches gave no rows: nothing to fit")
        return n_rows

    def batches(self) -> Iterator[Batch]:
        """Yield all rows from the start."""
        for X, y, *rest in self._make_batches():
            rows: ArrayLike = np.asarray(X) if as_frame(X) is None else X
            weights = np.asarray(rest[0], float) if rest and rest[0] is not None else None
            yield Batch(rows, np.asarray(y), weights)


def _frame(X: Any) -> Any:
    return nw.from_native(X, eager_only=True)


def _columns(X: Any) -> object:
    """Return what must be equal in all batches: names and types, or the number of columns."""
    if isinstance(X, np.ndarray):
        return X.shape[1:]
    return [f"{name}: {dtype}" for name, dtype in _frame(X).schema.items()]


def _numpy(column: Any) -> NDArray:
    return column.to_numpy(zero_copy_only=False)


def missing_target(y: NDArray) -> int | None:
    """Return the number of the first row without a target; None if all have one."""
    missing = np.array([is_missing(v) for v in y], bool) if y.dtype == object else y != y
    return int(np.argmax(missing)) if np.any(missing) else None


def fraction_in(y: NDArray) -> int | None:
    """Return the number of the first row whose target has a fraction and is no class, or None."""
    if y.dtype.kind != "f":
        return None
    has_fraction = y != np.floor(y)
    return int(np.argmax(has_fraction)) if np.any(has_fraction) else None


def _check_target(y: NDArray, first: int) -> None:
    """Raise an error for a missing target; `first` is the number of the first row."""
    row = missing_target(y)
    if row is not None:
        raise ValueError(
            f"the target is missing in row {first + row}: leave out rows without a target"
        )
