"""What the columns of a table mean: numbers or categories, and their coding as one float matrix.

Everything behind the estimators' front door works on a float matrix (n, d). A column of numbers
is in it as it is, with NaN where a value is missing. A column with categories is in it as
codes: 0..L-1 for the L categories met in training, in sorted order, L for every other category,
NaN for missing. `Columns` learns the categories and does the coding.

Data frames of every library are read through narwhals; arrays of objects or text column by column.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Complex, Number, Real
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.arrays import is_whole

if TYPE_CHECKING:
    from jointleaf._data.preparation import Preparation
    from jointleaf._data.statistics import CategoryStatistics


_MOST_EXACT = 2.0**53  # up to here floats hold every whole number
_MOST_WHOLE = int(np.iinfo(np.int64).max)


#: Characters of texts, of all categories together, that may be there for nothing.
_MOST_PADDED = 10**5


@dataclass(frozen=True)
class Column:
    """One column."""

    label: str  # its name, or "x3" for column 3 of a table without names
    categories: NDArray | None = None  # (L,), int or text, sorted; None for a column of numbers

    def encode(self, values: _Values) -> NDArray:
        """Return numbers, or the codes of categories; NaN where missing."""
        if self.categories is None:
            return values.as_numbers()
        codes = np.full(len(values.missing), np.nan)
        codes[~values.missing] = self._codes(values)
        return codes

    def _codes(self, values: _Values) -> NDArray[np.float64]:
        assert self.categories is not None
        distinct, categories = values.distinct(), self.categories
        kinds = {isinstance(category, str) for category in categories.tolist()}
        if kinds and distinct.kinds and distinct.kinds != kinds:
            before, now = ("text", "numbers") if True in kinds else ("numbers", "text")
            raise ValueError(
                f"{values.name} held {before} as categories in training and holds {now} now: use "
                "the type that it had in training"
            )
        if categories.dtype.kind == "i":
            # Not by a dict: numbers can be chosen so that one takes very long to look them up.
            numbers = np.array(distinct.values, np.int64)
            place = np.minimum(np.searchsorted(categories, numbers), len(categories) - 1)
            codes = np.where(categories[place] == numbers, place, len(categories)).astype(float)
        else:
            code_of = {category: float(k) for k, category in enumerate(categories.tolist())}
            unseen = float(len(categories))
            codes = np.array([code_of.get(value, unseen) for value in distinct.values], float)
        return codes[distinct.index]


@dataclass(frozen=True)
class Columns(Sequence[Column]):
    """The columns of a table."""

    columns: tuple[Column, ...]
    #: Numbers in place of the codes of columns with many categories, where a model has some.
    statistics: CategoryStatistics | None = None
    #: How a raw table becomes the one with these columns, where a model takes such tables.
    preparation: Preparation | None = None

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, j: Any) -> Any:
        return self.columns[j]

    @classmethod
    def numbers(cls, n_features: int, names: Sequence | None = None) -> Columns:
        """Return columns that all hold numbers."""
        if names is None:
            return _numbers(n_features)
        return cls(tuple(Column(str(name)) for name in names))

    @classmethod
    def read(
        cls,
        X: Any,
        categorical: Any = "from_dtype",
        known: Mapping[int, ArrayLike | None] | None = None,
        counts: NDArray[np.bool_] | None = None,
    ) -> Columns:
        """Learn what the columns of a table, a data frame or array (n, d), hold.

        Columns of text or of a category type hold categories, the others numbers. `categorical` are
        those that hold categories besides: names or numbers, a bool array (d,), or none for
        "from_dtype". `known` are further ones by number, with categories besides those in `X`:
        those of a model that was fitted before. `counts` (n,) are rows whose categories are
        learned; all by default.
        """
        declared = set(known or {}) | declared_columns(categorical, X)
        names = column_names(X)
        columns = []
        for j in range(np.shape(X)[1]):
            label = f"x{j}" if names is None else str(names[j])
            values = _read_column(X if names is None else as_frame(X), j).take(counts)
            columns.append(_learn(values, label, j in declared, (known or {}).get(j)))
        return cls(tuple(columns))

    def encode(self, X: Any) -> NDArray:
        """Return the float matrix (n, d) of a table with the same columns.

        It is float32 where every column is, else float64.
        """
        frame = as_frame(X)
        together: list[int] = []  # columns that a data frame converts faster than one by one
        if frame is None:
            is_single = X.dtype == np.float32
        else:
            dtypes = frame.schema.dtypes()
            is_single = all(dtype == nw.Float32 for dtype in dtypes)
            is_number = [dtype.is_float() or dtype.is_integer() for dtype in dtypes]
            together = [j for j, c in enumerate(self) if c.categories is None and is_number[j]]
        matrix = np.empty(np.shape(X), dtype=np.float32 if is_single else np.float64)
        with np.errstate(over="ignore"):  # infinities are found and named by the caller
            if frame is not None and together:
                matrix[:, together] = frame[:, together].to_numpy()
            for j in sorted(set(range(len(self))) - set(together)):
                matrix[:, j] = self[j].encode(_read_column(X if frame is None else frame, j))
        return matrix

    def prepared(self, X: Any) -> Any:
        """Return the table with these columns that a raw table becomes."""
        return X if self.preparation is None else self.preparation.transform(X)

    def matrix(self, coded: NDArray) -> NDArray:
        """Return what a model sees of rows (n, d) with codes: statistics instead of some."""
        return coded if self.statistics is None else self.statistics.matrix(coded)

    def of_matrix(self) -> Columns:
        """Return the columns of what a model sees; statistics are columns of numbers."""
        if self.statistics is None:
            return self
        names = self.statistics.names
        in_place = [Column(names[j]) if j in names else c for j, c in enumerate(self.columns)]
        return Columns((*in_place, *(Column(name) for j, name in names.items() if j >= len(self))))

    def credited(self, values: NDArray, axis: int = 0) -> NDArray:
        """Sum values of the columns of what a model sees by given columns, (d,) along an axis.

        Those of a pair of columns are credited to both in equal parts.
        """
        if self.statistics is None:
            return values
        moved = np.moveaxis(values, axis, 0)
        credits = moved[: len(self)].copy()
        behind = self.statistics.sources[len(self) :]
        for value, sources in zip(moved[len(self) :], behind, strict=True):
            for j in sources:
                credits[j] += value / len(sources)
        return np.moveaxis(credits, 0, axis)

    def coded(self) -> Columns:
        """Return the columns of the float matrix itself: the categories are the codes."""
        counts = zip(self.columns, self.n_categories.tolist(), strict=True)
        return Columns(tuple(Column(c.label, np.arange(n) if n else None) for c, n in counts))

    @property
    def n_categories(self) -> NDArray[np.intp]:
        """Number of categories of every column, (d,); 0 for numbers."""
        counts = [0 if c.categories is None else len(c.categories) for c in self.columns]
        return np.array(counts, np.intp)

    @property
    def categorical(self) -> NDArray[np.intp]:
        """Columns with categories, in rising order."""
        return np.flatnonzero(self.n_categories)


@lru_cache(maxsize=16)  # of wide tables, whose columns are named at every turn
def _numbers(n_features: int) -> Columns:
    return Columns(tuple(Column(f"x{j}") for j in range(n_features)))


def _learn(values: _Values, label: str, is_declared: bool, known: ArrayLike | None) -> Column:
    """Return the column of some values, with its categories where it has any."""
    is_typed = is_declared or values.is_category or values.values.dtype == object
    if is_typed and values.missing.all() and known is None:
        return Column(label, np.array([], dtype=str))  # whatever it may hold later is unseen
    if not is_declared and not values.is_text and not values.is_category:
        return Column(label)
    categories = set(values.distinct().values)
    if not is_declared and not values.is_category:
        _check_not_numbers(values.name, categories)
    if known is not None:
        categories |= set(np.asarray(known).tolist())
    if len({isinstance(category, str) for category in categories}) > 1:
        raise ValueError(
            f"{values.name} mixes text and numbers as categories, for example "
            f"{sorted(map(repr, categories))[:4]}: make them all text"
        )
    return Column(label, category_array(sorted(categories)))


def category_array(categories: Sequence[Any]) -> NDArray:
    """Return categories (L,), int or str; texts as objects where the longest would be a burden.

    NumPy's own texts are all as long as the longest, and end before NUL characters.
    """
    lengths = [len(text) for text in categories if isinstance(text, str)]
    is_long = len(lengths) * max(lengths, default=0) > _MOST_PADDED + 2 * sum(lengths)
    is_cut = any(isinstance(text, str) and text.endswith("\0") for text in categories)
    return np.array(categories, dtype=object if is_long or is_cut else None)


def _check_not_numbers(name: str, texts: set[str]) -> None:
    """Raise for text that is all numbers with fractions: such a column was meant to be numbers."""
    try:
        numbers = {text: float(text) for text in texts}
    except ValueError:
        return
    fractions = sorted(text for text, number in numbers.items() if number % 1)
    if fractions:
        raise ValueError(
            f"{name} holds numbers as text, for example {fractions[0]!r}: convert it with "
            "astype(float), or name it in categorical_features if categories are meant"
        )


# -- tables of every kind ----------------------------------------------------------------------


def as_frame(X: Any) -> nw.DataFrame | None:
    """Return a data frame of any library as narwhals sees it, None for anything else.

    Raises for a lazy frame, whose rows are not there yet, and for columns of the same name.
    """
    if isinstance(X, np.ndarray):
        return None
    if isinstance(X, nw.DataFrame):
        return X
    try:
        # Frames of other API versions of narwhals are not known to all of its releases.
        native = X.to_native() if hasattr(X, "to_native") else X
        frame = nw.from_native(native, pass_through=True)
        if hasattr(X, "__arrow_c_array__") and hasattr(X, "num_columns"):  # a record batch
            frame = nw.from_arrow(X, backend="pyarrow")
    except DuplicateError:
        names = list(X.column_names if hasattr(X, "column_names") else X.columns)
        twice = next(name for name in names if names.count(name) > 1)
        message = f"there are several columns with the name {twice!r}: rename them"
        raise ValueError(message) from None
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(
            f"X is a {type(X).__name__}, whose rows are not computed yet: use X.collect(), or "
            "X.compute() for Dask"
        )
    return frame if isinstance(frame, nw.DataFrame) else None


def is_table(X: Any) -> bool:
    """Whether columns are looked at one by one: a data frame, or an array of objects or text."""
    if isinstance(X, np.ndarray):
        return X.ndim == 2 and X.dtype.kind in "OUS"
    return as_frame(X) is not None


def column_names(X: Any) -> list | None:
    """Return the column names of a data frame, None for anything else."""
    frame = as_frame(X)
    return None if frame is None else list(frame.columns)


def declared_columns(categorical: Any, X: Any) -> set[int]:
    """Return the numbers of the columns that a parameter `categorical_features` names."""
    if isinstance(categorical, str) and categorical == "from_dtype":
        return set()
    return column_numbers(
        categorical, column_names(X), np.shape(X)[1], "categorical_features", "'from_dtype'"
    )


def column_numbers(
    selection: Any, names: list | None, d: int, parameter: str, option: str = "None"
) -> set[int]:
    """Return the numbers of columns that are named or numbered, or marked in a mask (d,).

    `option` is what the parameter may be besides, for the error message.
    """
    if isinstance(selection, str) or not isinstance(selection, Iterable):
        raise ValueError(
            f"{parameter}={selection!r} must be a list of column names or numbers, a mask, or "
            f"{option}"
        )
    entries = list(selection)
    if entries and all(isinstance(entry, bool | np.bool_) for entry in entries):
        if len(entries) != d:
            raise ValueError(
                f"{parameter} is a mask of shape ({len(entries)},), but X has {d} columns: use one "
                "entry per column"
            )
        return set(np.flatnonzero(entries).tolist())
    return {_column_number(entry, names, d, parameter) for entry in entries}


def _column_number(entry: Any, names: list | None, d: int, parameter: str) -> int:
    if isinstance(entry, str):
        if names is None or entry not in names:
            remedy = "X has no column names" if names is None else f"the columns are {names}"
            raise ValueError(f"{parameter} names {entry!r}, but {remedy}")
        return names.index(entry)
    if is_whole(entry) and -d <= entry < d:
        return int(entry) % d
    raise ValueError(f"{parameter} holds {entry!r}: use column names or numbers below {d}")


def as_codes(column: NDArray, n_categories: int) -> NDArray[np.intp]:
    """Return codes as indices: 0..L-1, L for anything else and L + 1 for missing values."""
    is_missing = np.isnan(column)
    is_known = (column >= 0) & (column < n_categories)
    codes = np.full(len(column), n_categories, dtype=np.intp)
    codes[is_known] = column[is_known].astype(np.intp)
    codes[is_missing] = n_categories + 1
    return codes


# -- the values of one column ------------------------------------------------------------------


@dataclass(frozen=True)
class _Distinct:
    """Distinct values of a column, and for every value that is there its place among them."""

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
    is_text: bool = False
    is_category: bool = False  # by its type, whatever the values are

    def take(self, counts: NDArray[np.bool_] | None) -> _Values:
        """Return the values of rows that count; all for None."""
        if counts is None:
            return self
        return replace(self, values=self.values[counts], missing=self.missing[counts])

    def as_numbers(self) -> NDArray:
        if self.is_text:
            example = self.values[~self.missing][0] if not self.missing.all() else ""
            raise ValueError(f"{self.name} held numbers in training and holds {example!r} now")
        if self.values.dtype != object and not self.missing.any():
            return self.values
        if self.values.dtype.kind == "f":
            return self.values  # NaN where missing
        numbers = np.full(len(self.values), np.nan)
        numbers[~self.missing] = self.values[~self.missing].astype(float)
        return numbers

    def distinct(self) -> _Distinct:
        """Return the distinct values, whole numbers as int; raise for others numbers."""
        present = self.values[~self.missing]
        if self.is_text:
            number: dict[str, int] = {}
            index = [number.setdefault(value, len(number)) for value in present.tolist()]
            return _Distinct(list(number), np.array(index, dtype=np.intp))
        if present.dtype == object and not all(isinstance(v, int | np.integer) for v in present):
            present = present.astype(float)  # but whole numbers stay as they are, however large
        values, inverse = np.unique(present, return_inverse=True)
        if values.dtype.kind == "f":
            inexact = values[(values != np.floor(values)) | (np.abs(values) > _MOST_EXACT)]
        else:
            inexact = values[(values > _MOST_WHOLE) | (values < -_MOST_WHOLE)]
        if inexact.size:
            raise ValueError(
                f"{self.name} is declared categorical but holds {inexact[0]:.10g}: categories must "
                "be text or whole numbers of at most 2^53 as float, 2^63 as int, so convert it, "
                "for example with astype(str)"
            )
        return _Distinct(values.astype(np.int64).tolist(), inverse.reshape(-1))


def _read_column(X: Any, j: int) -> _Values:
    """Return the values of column j of an array (n, d), or a data frame as narwhals sees it."""
    if isinstance(X, np.ndarray):
        return _array_values(f"column {j}", X[:, j])
    series = X[:, j]
    name, dtype = f"column {series.name!r}", series.dtype
    if dtype.is_temporal():
        raise ValueError(_times(name, dtype))
    if dtype.is_integer() or dtype == nw.Boolean:
        missing = series.is_null().to_numpy()  # filled, whole numbers stay exact
        filled = series.fill_null(0 if dtype.is_integer() else False) if missing.any() else series
        return _Values(name, filled.to_numpy(), np.asarray(missing, bool))
    is_category = isinstance(dtype, nw.Categorical | nw.Enum)
    if is_category:  # of text, or of whatever pandas and Arrow have as categories
        values = np.empty(len(series), dtype=object)
        values[:] = series.to_list()
    else:
        values = series.to_numpy()
    if values.ndim != 1:
        raise TypeError(f"{name} holds {dtype}: float() argument must be a real number")
    return _array_values(name, values, is_category)


def _array_values(name: str, values: NDArray, is_category: bool = False) -> _Values:
    kind = values.dtype.kind
    if kind in "mM":
        raise ValueError(_times(name, values.dtype))
    if kind == "c":
        raise ValueError(f"Complex data not supported: {name}")
    if kind == "V":
        raise TypeError(f"{name} holds {values.dtype}: float() argument must be a real number")
    if kind in "biuf":
        return _Values(name, values, np.isnan(values))
    return _object_values(name, np.asarray(values, dtype=object), is_category)


def _object_values(name: str, values: NDArray, is_category: bool) -> _Values:
    """Read a column of Python objects: all text, or all numbers, or missing."""
    missing = np.array([is_missing(value) for value in values.tolist()], dtype=bool)
    present = values[~missing].tolist()
    kinds = {type(value) for value in present}
    text = {kind for kind in kinds if issubclass(kind, str)}
    if text and text != kinds:
        raise ValueError(
            f"{name} mixes text and other values, for example "
            f"{next(v for v in present if isinstance(v, str))!r} and "
            f"{next(v for v in present if not isinstance(v, str))!r}: make them all text or all "
            "numbers"
        )
    if not text:
        for kind in kinds:
            _check_number(name, kind, next(v for v in present if isinstance(v, kind)))
        if any(not issubclass(kind, Real | np.bool_) for kind in kinds):
            values = values.copy()
            values[~missing] = values[~missing].astype(float)
    return _Values(name, values, missing, bool(text), is_category)


def _check_number(name: str, kind: type, example: Any) -> None:
    """Raise for a type of values, of which there is an example, that are no real numbers."""
    if issubclass(kind, Complex) and not issubclass(kind, Real):
        raise ValueError(f"Complex data not supported: {name}")
    if issubclass(kind, Number | np.bool_):
        return
    if isinstance(example, datetime.date) or kind.__name__ == "Period":
        raise ValueError(_times(name, repr(example)))
    # The words are those of NumPy, which scikit-learn's own checks look for.
    raise TypeError(f"{name} holds {example!r}: float() argument must be a string or a real number")


def _times(name: str, what: Any) -> str:
    shown = str(what).lower()
    for kind, method in (("timedelta", "dt.total_seconds()"), ("period", "dt.to_timestamp()")):
        if kind in shown or (kind == "timedelta" and "duration" in shown):
            return f"{name} holds times ({what}): convert it, in pandas with {method}"
    return (
        f"{name} holds times ({what}): give a data frame with a column of dates, of which numbers "
        "are made, or turn it into numbers first, for example year, month and weekday"
    )


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT, which are not equal to themselves."""
    if value is None or isinstance(value, str):
        return value is None
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # of pandas.NA; of arrays
        return type(value).__name__ == "NAType"
