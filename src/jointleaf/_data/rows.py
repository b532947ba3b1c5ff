"""The rows of a table: read into a matrix of numbers, and in canonical order.

`read_training_rows` and `read_rows` are the front door of the estimators: they check what users
pass, and return a float matrix (n, d). `canonical_rows` brings training rows into a form that does
not depend on how they were passed: equal rows are merged and their weights added, rows of weight
zero are left out, and the order is made from the rows' contents. A fit therefore returns the same
model whatever the order of the rows, and a weight of 2 is exactly the same as a row that appears
twice, also where partitions are grown by counting rows and where cross-validation deals them out.
Copies of a row never stand on both sides of a split; nor do rows of one group where the user says
which belong together. Rows with the same x and different targets are no copies (`deal_draws`).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data

from jointleaf._core.arrays import as_dense
from jointleaf._data.columns import Columns, as_frame, column_names, declared_columns, is_missing
from jointleaf._data.preparation import Preparation
from jointleaf._data.raw_table import closest_name, listed

_DTYPES = [np.float64, np.float32]
_MOST_HINTS = 8  # missing columns for which similar names are looked for
_COUNT_TOL = 1e-9  # relative, within which a weight is a multiple of another


def read_training_rows(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    categorical: Any = "from_dtype",
    known: Mapping[int, NDArray | None] | None = None,
    sample_weight: ArrayLike | None = None,
    y_numeric: bool = False,
    multi_output: bool = False,
) -> tuple[Columns, NDArray, NDArray]:
    """Check what `fit` was called with, and learn what the columns hold.

    Returns the columns, a matrix (n, d) of numbers and codes, NaN where missing, and targets (n,)
    or, if `multi_output` allows it, (n, T), which are numbers if `y_numeric`. The estimator gets
    ``n_features_in_`` and ``feature_names_in_``. Columns with categories are as for `Columns.read`;
    categories are learned from rows of positive weight.
    """
    X = _readable(X)
    frame = as_frame(X)
    preparation = None if frame is None else Preparation.of_times(frame)
    if preparation is not None:
        _check_names(estimator)
        X = preparation.transform(X)
    columns, matrix, targets = _read_training_rows(
        estimator, X, y, categorical, known, sample_weight, y_numeric, multi_output
    )
    return replace(columns, preparation=preparation), matrix, targets


def _read_training_rows(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    categorical: Any,
    known: Mapping[int, NDArray | None] | None,
    sample_weight: ArrayLike | None,
    y_numeric: bool,
    multi_output: bool,
) -> tuple[Columns, NDArray, NDArray]:
    """Return what `read_training_rows` returns, of a table without times."""
    X, table, is_plain = _as_native(X)
    options: dict[str, Any] = {
        "dtype": _DTYPES,
        "ensure_all_finite": "allow-nan",
        "ensure_min_samples": 2,
        "y_numeric": y_numeric,
        "multi_output": multi_output,
    }
    if is_plain:
        matrix, targets = validate_data(estimator, X, y, **options)
        if not isinstance(table, np.ndarray) and as_frame(table) is None:
            table = matrix  # of lists; of tables not, because floats may round whole numbers
        if not known and not declared_columns(categorical, table):
            return Columns.numbers(matrix.shape[1], column_names(table)), matrix, targets
    else:
        validate_data(estimator, X, skip_check_array=True)
    counts = None
    if sample_weight is not None and np.shape(sample_weight) == np.shape(X)[:1]:
        counts = np.asarray(sample_weight) > 0  # other shapes are an error elsewhere
    columns = Columns.read(table, categorical, known, counts)
    matrix, targets = check_X_y(_encode(columns, table), y, **options)
    return columns, matrix, targets


def read_rows(estimator: Any, X: Any) -> NDArray:
    """Return what a model sees of rows with the same columns as in training."""
    columns: Columns = estimator.columns_
    return columns.matrix(read_coded_rows(estimator, X))


def read_coded_rows(estimator: Any, X: Any) -> NDArray:
    """Return the matrix (n, d), numbers and codes, of rows with the same columns as in training."""
    columns: Columns = estimator.columns_
    X = _readable(X)
    _check_columns(estimator, X)
    X, table, is_plain = _as_native(columns.prepared(X))
    options: dict[str, Any] = {"dtype": _DTYPES, "ensure_all_finite": "allow-nan"}
    if is_plain:
        matrix = validate_data(estimator, X, reset=False, **options)
        if not columns.categorical.size:
            return matrix
        if not isinstance(table, np.ndarray) and as_frame(table) is None:
            table = matrix
    else:
        validate_data(estimator, X, reset=False, skip_check_array=True)
    return check_array(_encode(columns, table), **options)


def check_is_here(name: str, values: Any) -> None:
    """Raise an error for a Dask collection, which would be loaded whole into memory."""
    if type(values).__module__.partition(".")[0] == "dask":
        raise TypeError(
            f"{name} is a Dask {type(values).__name__}, whose rows are on workers: use "
            "DaskJOPLEnRegressor or DaskJOPLEnClassifier of jointleaf.dask, or "
            f"{name}.compute() if it fits into memory"
        )


def _check_names(estimator: Any) -> None:
    """Raise if parameters number columns, of which those of times become several."""
    for parameter in ("categorical_features", "linear_features"):
        value = getattr(estimator, parameter, None)
        if value is None or isinstance(value, str):
            continue
        if not all(isinstance(entry, str) for entry in value):
            raise ValueError(
                f"{parameter}={value!r} must name columns where X has columns of times, as each of "
                "these becomes several"
            )


def _check_columns(estimator: Any, X: Any) -> None:
    """Raise unless a data frame has the columns of the training table, as scikit-learn does.

    Raw tables, of which a preparation picks columns by name, are checked by that.
    """
    frame, preparation = as_frame(X), estimator.columns_.preparation
    if frame is None:
        if preparation is not None and np.shape(X)[1:] != (estimator.n_features_in_,):
            dates = listed([kind.name for kind in preparation.columns if kind.kind == "date"])
            with_dates = f" with dates ({dates})" if dates else ""
            raise ValueError(
                f"the model was fitted to a data frame{with_dates}: give a data frame with the "
                "same columns"
            )
        return
    names = list(frame.columns)
    trained = estimator
    if preparation is not None and not preparation.is_done(names):
        if preparation.is_of_raw_tables:
            return
        trained = copy(estimator)  # whose own columns are those that times have become
        trained.n_features_in_ = len(preparation.names)
        trained.feature_names_in_ = np.array(preparation.names, dtype=object)
    known = list(getattr(trained, "feature_names_in_", []))
    if not all(isinstance(name, str) for name in (*names, *known)):
        return  # scikit-learn knows texts alone
    try:
        validate_data(trained, _as_native(X)[0], reset=False, skip_check_array=True)
    except ValueError as error:
        absent = [name for name in known if name not in set(names)]
        unseen = [name for name in names if name not in set(known)]
        pairs = [(name, closest_name(name, unseen)) for name in absent[:_MOST_HINTS]]
        meant = ", ".join(f"{name!r} by {given!r}" for name, given in pairs if given)
        raise ValueError(f"{error}Did you mean {meant}?" if meant else str(error)) from None


def _readable(X: Any) -> Any:
    """Return a table, a sparse matrix as an array; raise for what is no table in memory."""
    kind = type(X).__name__
    if kind in ("DMatrix", "QuantileDMatrix", "Pool", "Dataset"):
        raise TypeError(
            f"X is a {kind}, which only its own library can read: use the data frame or matrix "
            "that it was made from"
        )
    check_is_here("X", X)
    if type(X) is dict or (isinstance(X, list) and X and isinstance(X[0], dict)):  # no sparse DOK
        raise TypeError(
            "X holds a dict, which is no table. float() argument must be a number: give "
            "pandas.DataFrame(X), or pandas.DataFrame([X]) of one row"
        )
    if len(getattr(X, "shape", (0, 0))) == 1:  # raises before values such as texts are read
        check_array(X, dtype=None, ensure_all_finite=False)
    return as_dense(X)


def _as_native(X: Any) -> tuple[Any, Any, bool]:
    """Return a table as scikit-learn and as `Columns` take it, and whether the former reads it."""
    if isinstance(X, np.ndarray):
        return X, X, not (X.ndim == 2 and X.dtype.kind in "OUS")
    frame = as_frame(X)
    if frame is None:
        return X, X, True
    if frame.implementation.is_pyarrow():  # scikit-learn would make float64 of float32
        return frame.to_native(), frame, False
    is_plain = all(dtype.is_float() or dtype.is_integer() for dtype in frame.schema.dtypes())
    return frame.to_native(), frame, is_plain


def _encode(columns: Columns, X: Any) -> NDArray:
    """Return the matrix of a table; raise for infinity."""
    matrix = columns.encode(X)
    infinite = np.flatnonzero(np.isinf(matrix).any(axis=0))
    if infinite.size:
        raise ValueError(
            f"column {columns[infinite[0]].label!r} contains infinity or a value too large: "
            "replace it or mark it as missing (NaN)"
        )
    return matrix


@dataclass(frozen=True)
class Rows:
    """Rows X (n, d), targets y (n,), positive weights s (n,), and labels (n, m) of any kind.

    `codes` (n, h) are those of columns that have statistics in their place; by default none.
    `offset` (n,) are raw predictions that a model adds to; by default zeros.
    `groups` (n,) are numbers from 0 on of rows that stay on one side of every split; -1, the
    default, where the user names none.
    `places` (n,) are those of the rows in the table that they were taken from.
    """

    X: NDArray
    y: NDArray
    s: NDArray[np.float64]
    labels: NDArray[np.int64]
    codes: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    offset: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    groups: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    places: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))

    def __post_init__(self) -> None:
        if not self.codes.size:
            object.__setattr__(self, "codes", np.zeros((len(self.y), 0)))
        if not self.offset.size:
            object.__setattr__(self, "offset", np.zeros(len(self.y)))
        if not self.groups.size:
            object.__setattr__(self, "groups", np.full(len(self.y), -1, np.int64))
        if not self.places.size:
            object.__setattr__(self, "places", np.arange(len(self.y)))

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: NDArray | slice) -> Rows:
        """Return the rows at an index, mask or slice."""
        return Rows(*(array[index] for array in vars(self).values()))

    @property
    def has_groups(self) -> bool:
        """Whether the user says which rows belong together."""
        return bool(len(self) and self.groups[0] >= 0)

    @property
    def per_unit(self) -> Rows:
        """The rows with targets per unit of exposure, exp(offset), by which weights grow."""
        if not self.offset.any():
            return self
        exposure = np.exp(self.offset)
        return replace(self, y=self.y / exposure, s=self.s * exposure, offset=np.zeros(len(self)))

    def joined(self, other: Rows) -> Rows:
        """Return these rows and those of another table."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Rows(*(np.concatenate(pair) for pair in pairs))


def canonical_rows(
    X: NDArray,
    y: NDArray,
    s: NDArray,
    labels: NDArray[np.int64] | None = None,
    offset: NDArray[np.float64] | None = None,
    groups: NDArray[np.int64] | None = None,
) -> Rows:
    """Merge equal rows (same x, y, offset, group and labels), ordered by a hash of their contents.

    y (n,) are numbers; labels (n, m) are what else must be equal, for example the folds of a row,
    offset (n,) raw predictions that a model adds to, and groups (n,) those of `Rows`.
    """
    labels = np.zeros((len(y), 0), np.int64) if labels is None else labels
    if groups is not None:  # one more label
        rows = canonical_rows(X, y, s, np.c_[labels, groups], offset)
        return replace(rows, labels=rows.labels[:, :-1], groups=rows.labels[:, -1])
    if offset is not None and offset.any():  # by whose rank rows are told apart
        values, rank = np.unique(offset, return_inverse=True)
        rows = canonical_rows(X, y, s, np.c_[labels, rank.reshape(-1)])
        return replace(rows, labels=rows.labels[:, :-1], offset=values[rows.labels[:, -1]])
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


class Deal(NamedTuple):
    """Rows dealt out to parts: the part (n,) of every row, or of the first of its draws.

    Row i holds `draws[i]` equal draws of weight s_i / draws[i], of which draw j is in part
    (part[i] + j) mod `n_parts`.
    """

    part: NDArray[np.intp]
    draws: NDArray[np.intp]
    n_parts: int

    def split(self, rows: Rows, part: int) -> tuple[Rows, Rows]:
        """Return the rows, with their weights, outside and inside a part."""
        place = (part - self.part) % self.n_parts
        n_inside = self.draws // self.n_parts + (place < self.draws % self.n_parts)
        inside = rows.s * (n_inside / self.draws)
        outside = rows.s * ((self.draws - n_inside) / self.draws)
        train, valid = (replace(rows, s=s).take(s > 0) for s in (outside, inside))
        return train, valid


def deal_draws(rows: Rows, n_parts: int, *, by_class: bool) -> Deal:
    """Deal rows out to parts in turn, class by class if asked, and draws of one x one by one.

    Rows with the same x and different y are draws of their own, as new rows will be: they are dealt
    out like others, each as often as it was drawn. Rows with the same x and the same y may be
    copies, which tell nothing of new rows, and stay together; so do rows of one group.
    """
    n_parts = max(n_parts, 1)
    if rows.has_groups:
        return Deal(deal_rows(rows, n_parts, by_class=by_class), np.ones(len(rows), int), n_parts)
    first = _first_of_equal(rows)
    draws = _n_draws(rows, first)
    part = _deal_in_turn(rows, n_parts, first, draws, by_class)
    return Deal(part, np.maximum(draws, 1), n_parts)


def _n_draws(rows: Rows, first: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return how often every row that another one with its x contradicts was drawn, else 0.

    Weights that are multiples of the smallest count draws. Others say nothing of that, and their
    rows stay with those of the same x. Where all have one x there is nothing to validate.
    """
    if not first.any():
        return np.zeros_like(first)
    ratio = rows.s / rows.s.min(initial=np.inf)
    draws = np.rint(ratio).astype(np.intp)
    is_contradicted, is_counted = np.zeros(len(rows), bool), np.ones(len(rows), bool)
    is_contradicted[first[rows.y != rows.y[first]]] = True
    is_counted[first[np.abs(ratio - draws) > _COUNT_TOL * ratio]] = False
    return np.where((is_contradicted & is_counted)[first], draws, 0)


def deal_rows(rows: Rows, n_parts: int, *, by_class: bool) -> NDArray[np.intp]:
    """Deal rows out to parts in turn, class by class if asked; return the part of every row.

    Rows of one group stay together or, where there are none, rows with the same x.
    """
    if rows.has_groups:
        return deal_groups(rows.groups, n_parts, rows.y if by_class else None)
    no_draws = np.zeros(len(rows), np.intp)
    return _deal_in_turn(rows, max(n_parts, 1), _first_of_equal(rows), no_draws, by_class)


def _deal_in_turn(
    rows: Rows, n_parts: int, first: NDArray[np.intp], draws: NDArray[np.intp], by_class: bool
) -> NDArray[np.intp]:
    """Deal out rows with draws of their own, and the first of each x with all that follow it.

    The order of canonical rows is random already.
    """
    order = np.argsort(rows.y, kind="stable") if by_class else np.arange(len(rows))
    leads = order[(first[order] == order) | (draws[order] > 0)]
    taken = np.maximum(draws[leads], 1)
    part = np.zeros(len(rows), np.intp)
    part[leads] = (np.cumsum(taken) - taken) % n_parts
    return np.where(draws > 0, part, part[first])


def deal_groups(
    groups: NDArray[np.int64], n_parts: int, classes: NDArray | None = None
) -> NDArray[np.intp]:
    """Deal groups (n,) of rows out to parts; return the part of every row.

    The largest group comes first, and each goes where its rows are rarest, counted in parts of all
    rows of their class: parts become about equal, and so do the proportions of classes.
    """
    _, number = np.unique(groups, return_inverse=True)
    labels = np.zeros(len(groups), np.intp)
    if classes is not None:
        labels = np.unique(classes, return_inverse=True)[1]
    counts = np.zeros((int(number.max(initial=0)) + 1, int(labels.max(initial=0)) + 1))
    np.add.at(counts, (number, labels), 1.0)
    fractions = counts / counts.sum(axis=0)
    filled, part = np.zeros((max(n_parts, 1), counts.shape[1])), np.zeros(len(counts), np.intp)
    for group in np.argsort(-counts.sum(axis=1), kind="stable"):
        part[group] = np.argmin(filled @ counts[group])
        filled[part[group]] += fractions[group]
    return part[number]


def read_groups(groups: ArrayLike | None, is_used: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Return numbers of the groups (n,) of rows, of which at least two are used; None for None."""
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.shape != is_used.shape:
        raise ValueError(
            f"groups has shape {values.shape}, expected ({len(is_used)},): one for each row of X"
        )
    labels = values.tolist()
    missing = next((i for i, label in enumerate(labels) if is_missing(label)), None)
    if missing is not None:
        raise ValueError(f"groups is missing in row {missing}: name the group of every row")
    number_of = {label: k for k, label in enumerate(sorted(set(labels), key=_by_type))}
    numbers = np.array([number_of[label] for label in labels], np.int64)
    if len(np.unique(numbers[is_used])) < 2:
        raise ValueError(
            "groups puts all rows of positive weight into one group, so that none is left to "
            "validate on: give at least two groups, or leave groups out"
        )
    return numbers


def _by_type(label: Any) -> tuple[str, Any]:
    return "" if isinstance(label, int | float) else type(label).__name__, label


def _first_of_equal(rows: Rows) -> NDArray[np.intp]:
    """Return for every row the first one with the same x; NaN equals NaN, and -0.0 equals 0.0."""
    X = np.concatenate([rows.X, rows.codes], axis=1) if rows.codes.size else rows.X
    X = np.ascontiguousarray(X) + 0.0
    X[np.isnan(X)] = np.nan
    as_bytes = X.view(np.dtype((np.void, X.dtype.itemsize * X.shape[1]))).ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return first[inverse.ravel()]
