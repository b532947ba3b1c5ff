"""What the columns of a table mean: numbers or categories, and their coding as one float matrix.

Everything behind the estimators' front door works on a float matrix (n, d). A column of numbers
is in it as it is, with NaN where a value is missing. A column with categories is in it as
codes: 0..L-1 for the L levels met in training, in sorted order, L for every other level, NaN for
missing. `Columns` learns the levels and does the coding.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Complex, Number, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Column", "Columns", "as_codes", "column_names", "column_numbers", "is_table"]

_MOST_EXACT = 2.0**53  # up to here floats hold every whole number
_MOST_WHOLE = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes
    ----------
    label : str
        Its name, or "x3" for column 3 of a table without names.
    categories : array (L,) of int or str, or None
        The sorted levels of a column with categories; None for numbers.
    """

    label: str
    categories: NDArray | None = None

    def encode(self, values: _Values) -> NDArray[np.float64]:
        """Give numbers, or the codes of levels; NaN where missing."""
        if self.categories is None:
            return values.as_numbers()
        codes = np.full(len(values.missing), np.nan)
        codes[~values.missing] = self._codes(values)
        return codes

    def _codes(self, values: _Values) -> NDArray[np.float64]:
        assert self.categories is not None
        found = values.levels()
        known = {level: float(k) for k, level in enumerate(self.categories.tolist())}
        other = float(len(known))
        kinds = {isinstance(level, str) for level in known}
        if kinds and found.kinds and found.kinds != kinds:
            had, has = ("text", "numbers") if True in kinds else ("numbers", "text")
            raise ValueError(
                f"{values.name} held {had} as categories in training and holds {has} now: give "
                "it as it was in training"
            )
        table = np.array([known.get(level, other) for level in found.values], dtype=float)
        return table[found.index]


@dataclass(frozen=True)
class Columns(Sequence[Column]):
    """The columns of a table.

    Attributes
    ----------
    columns : tuple of Column, length d
    """

    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, j: Any) -> Any:
        return self.columns[j]

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    @classmethod
    def numbers(cls, n_features: int, names: Sequence | None = None) -> Columns:
        """Give columns that all hold numbers."""
        labels = range(n_features) if names is None else names
        return cls(tuple(Column(f"x{x}" if names is None else str(x)) for x in labels))

    @classmethod
    def read(
        cls,
        X: Any,
        categorical: Any = None,
        known: Mapping[int, ArrayLike | None] | None = None,
        counts: NDArray[np.bool_] | None = None,
    ) -> Columns:
        """Learn what the columns of a table hold.

        Parameters
        ----------
        X : data frame or array (n, d)
            A data frame of pandas or polars; columns of text or of a category type hold
            categories, the others numbers.
        categorical : sequence of names or numbers, or bool array (d,), optional
            Columns that hold categories besides.
        known : mapping from column number to levels, optional
            Further columns with categories, and levels besides those in `X`: what a model that
            was fitted before knows.
        counts : bool array (n,), optional
            Rows whose levels are learnt; all by default.
        """
        names = column_names(X)
        declared = set(known or {})
        if categorical is not None:
            declared |= column_numbers(categorical, names, np.shape(X)[1], "categorical_features")
        columns = []
        for j in range(np.shape(X)[1]):
            values = _values(X, j, names).take(counts)
            label = f"x{j}" if names is None else str(names[j])
            if j not in declared and not values.is_text and not values.is_category:
                columns.append(Column(label))
                continue
            if values.missing.all():
                raise ValueError(f"{values.name} has no values at all: leave it out")
            levels = set(values.levels().values)
            if j not in declared and not values.is_category:
                _refuse_numbers(values.name, levels)
            more = (known or {}).get(j)
            if more is not None:
                levels |= set(np.asarray(more).tolist())
            if len({isinstance(level, str) for level in levels}) > 1:
                raise ValueError(
                    f"{values.name} mixes text and numbers as categories, for example "
                    f"{sorted(map(repr, levels))[:4]}: make them all text"
                )
            columns.append(Column(label, np.array(sorted(levels))))
        return cls(tuple(columns))

    def encode(self, X: Any, dtype: Any = np.float64) -> NDArray:
        """Give the float matrix (n, d) of a table with the same columns."""
        names = column_names(X)
        matrix = np.empty(np.shape(X), dtype=dtype)
        for j, column in enumerate(self.columns):
            with np.errstate(over="ignore"):  # infinities are found and named by who uses them
                matrix[:, j] = column.encode(_values(X, j, names))
        return matrix

    def coded(self) -> Columns:
        """Give the columns of the float matrix itself: levels are the codes."""
        return Columns(
            tuple(
                Column(c.label, None if c.categories is None else np.arange(len(c.categories)))
                for c in self.columns
            )
        )

    @property
    def n_categories(self) -> NDArray[np.intp]:
        """Number of categories of every column, (d,); 0 for numbers."""
        return np.array(
            [0 if c.categories is None else len(c.categories) for c in self.columns], np.intp
        )

    @property
    def categorical(self) -> NDArray[np.intp]:
        """Columns with categories, in rising order."""
        return np.flatnonzero(self.n_categories)


def _refuse_numbers(name: str, levels: set[str]) -> None:
    """Refuse text that is all numbers with fractions: such a column was meant to be numbers."""
    try:
        numbers = {level: float(level) for level in levels}
    except ValueError:
        return
    broken = sorted(level for level, number in numbers.items() if number % 1)
    if broken:
        raise ValueError(
            f"{name} holds numbers as text, for example {broken[0]!r}: convert it with "
            "astype(float), or name it in categorical_features if categories are meant"
        )


def is_table(X: Any) -> bool:
    """Whether columns are looked at one by one: a data frame, or an array of objects or text."""
    if column_names(X) is not None:
        return True
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUS"


@dataclass(frozen=True)
class _Levels:
    """Different values of a column, and for every value that is there its place among them."""

    values: list
    index: NDArray[np.intp]

    @property
    def kinds(self) -> set[bool]:
        return {isinstance(value, str) for value in self.values}


@dataclass(frozen=True)
class _Values:
    """The values (n,) of one column, with the missing ones marked."""

    name: str
    values: NDArray
    missing: NDArray[np.bool_]
    is_text: bool
    is_category: bool = False  # by its type, whatever the levels are

    def take(self, counts: NDArray[np.bool_] | None) -> _Values:
        """Give the values of rows that count; all for None."""
        if counts is None:
            return self
        return replace(self, values=self.values[counts], missing=self.missing[counts])

    def as_numbers(self) -> NDArray:
        if self.is_text:
            example = self.values[~self.missing][0] if not self.missing.all() else ""
            raise ValueError(f"{self.name} held numbers in training and holds {example!r} now")
        if self.values.dtype != object:
            return self.values
        numbers = np.full(len(self.values), np.nan)
        numbers[~self.missing] = self.values[~self.missing].astype(float)
        return numbers

    def levels(self) -> _Levels:
        """Different values, whole numbers as int; floats with a fraction are refused."""
        present = self.values[~self.missing]
        if self.is_text:
            number: dict[str, int] = {}
            index = [number.setdefault(value, len(number)) for value in present.tolist()]
            return _Levels(list(number), np.array(index, dtype=np.intp))
        if present.dtype == object and not all(isinstance(v, int | np.integer) for v in present):
            present = present.astype(float)  # but whole numbers stay as they are, however large
        values, inverse = np.unique(present, return_inverse=True)
        if values.dtype.kind == "f":
            broken = values[(values != np.floor(values)) | (np.abs(values) > _MOST_EXACT)]
        else:
            broken = values[(values > _MOST_WHOLE) | (values < -_MOST_WHOLE)]
        if broken.size:
            raise ValueError(
                f"{self.name} is declared categorical but holds {broken[0]:.10g}: categories must "
                "be text or whole numbers of at most 2^53 as float, 2^63 as int, so convert it, "
                "for example with astype(str)"
            )
        return _Levels(values.astype(np.int64).tolist(), inverse.reshape(-1))


def column_names(X: Any) -> list | None:
    """Give the column names of a data frame, None for anything else."""
    return list(X.columns) if hasattr(X, "columns") and hasattr(X, "dtypes") else None


def _values(X: Any, j: int, names: list | None) -> _Values:
    """Read column j; `names` are those of a data frame."""
    name = f"column {j}" if names is None else f"column {names[j]!r}"
    if names is None:
        series: Any = X[:, j]
    else:
        series = X.iloc[:, j] if hasattr(X, "iloc") else X[:, j]
    kind = str(series.dtype).lower()
    if kind.startswith(("datetime", "timedelta", "date", "time", "duration", "period")):
        raise ValueError(
            f"{name} holds times ({series.dtype}): turn it into numbers or categories first, for "
            "example year, month and weekday"
        )
    if kind.startswith("complex"):
        raise ValueError(f"Complex data not supported: {name}")
    is_category = kind.startswith(("categor", "enum"))
    if is_category:
        series = series.astype(object) if hasattr(series, "astype") else series.cast(str)
    values = series.to_numpy() if hasattr(series, "to_numpy") else np.asarray(series)
    if values.ndim != 1 or values.dtype.kind == "V":
        raise TypeError(f"{name} holds {series.dtype}: float() argument must be a real number")
    if values.dtype.kind in "biuf" and not kind.startswith(("boolean", "object")):
        return _Values(name, values, np.isnan(values), False)
    return _objects(name, np.asarray(values, dtype=object), is_category)


def _objects(name: str, values: NDArray, is_category: bool) -> _Values:
    """Read a column of Python objects: all text, or all numbers, with gaps."""
    missing = np.array([_is_missing(value) for value in values.tolist()], dtype=bool)
    kinds = {type(value) for value in values[~missing].tolist()}
    text = {kind for kind in kinds if issubclass(kind, str)}
    if text and text != kinds:
        other = next(v for v in values[~missing].tolist() if not isinstance(v, str))
        raise ValueError(
            f"{name} mixes text and other values, for example "
            f"{next(v for v in values[~missing].tolist() if isinstance(v, str))!r} and {other!r}: "
            "make them all text or all numbers"
        )
    if not text:
        for kind in kinds:
            if issubclass(kind, Complex) and not issubclass(kind, Real):
                raise ValueError(f"Complex data not supported: {name}")
            if not issubclass(kind, Number | np.bool_):
                example = next(v for v in values[~missing].tolist() if isinstance(v, kind))
                if isinstance(example, datetime.date):
                    raise ValueError(
                        f"{name} holds times ({example!r}): turn it into numbers or categories "
                        "first"
                    )
                # The words are those of NumPy, which scikit-learn's own checks look for.
                raise TypeError(
                    f"{name} holds {example!r}: float() argument must be a string or a real number"
                )
        if any(not issubclass(kind, Real | np.bool_) for kind in kinds):
            values = values.copy()
            values[~missing] = values[~missing].astype(float)
    return _Values(name, values, missing, bool(text), is_category)


def _is_missing(value: Any) -> bool:
    """None, NaN, and pandas' NA and NaT, which are unequal to themselves or not comparable."""
    if value is None:
        return True
    if isinstance(value, str):
        return False
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA
        return True
    except ValueError:  # arrays
        return False


def column_numbers(given: Any, names: list | None, d: int, parameter: str) -> set[int]:
    """Give the numbers of columns that are named or numbered, or marked in a mask (d,)."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"{parameter}={given!r} must be a list of column names or numbers")
    entries = list(given)
    if entries and all(isinstance(entry, bool | np.bool_) for entry in entries):
        if len(entries) != d:
            raise ValueError(
                f"{parameter} is a mask of shape ({len(entries)},), but X has {d} columns"
            )
        return set(np.flatnonzero(entries).tolist())
    return {_column_number(entry, names, d, parameter) for entry in entries}


def _column_number(entry: Any, names: list | None, d: int, parameter: str) -> int:
    """Give the number of a column that is named or numbered."""
    if isinstance(entry, str):
        if names is None or entry not in names:
            known = "X has no column names" if names is None else f"the columns are {names}"
            raise ValueError(f"{parameter} names {entry!r}, but {known}")
        return names.index(entry)
    is_number = isinstance(entry, int | np.integer) and not isinstance(entry, bool)
    if is_number and -d <= entry < d:
        return int(entry) % d
    raise ValueError(f"{parameter} holds {entry!r}: give column names or numbers below {d}")


def as_codes(column: NDArray, n_categories: int) -> NDArray[np.intp]:
    """Give codes as indices: 0..L-1, L for anything else and L + 1 for missing values."""
    is_missing = np.isnan(column)
    known = (column >= 0) & (column < n_categories)
    codes = np.full(len(column), n_categories, dtype=np.intp)
    codes[known] = column[known].astype(np.intp)
    codes[is_missing] = n_categories + 1
    return codes
