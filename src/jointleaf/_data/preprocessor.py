"""The preparation of tables as a transformer of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from jointleaf._data.columns import as_frame
from jointleaf._data.kinds import ColumnKind
from jointleaf._data.preparation import Preparation
from jointleaf._data.raw_table import MISSING_WORDS, RawTable, object_column, raw_table


class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Raw tables as they come from files, made ready for a model.

    It does what ``jointleaf fit`` does with the columns of a file: numbers written as text are read
    (1,234.5 or 1.234,5, with currencies and percent signs), text becomes categories, yes and no
    become 1 and 0, dates become numbers (days since 1970, year, month, day, weekday, hour), and
    words such as "NA" count as missing.

    Columns from which nothing can be learned are left out: empty and constant ones,
    those that name or count the rows, and copies of the target.

    Parameters
    ----------
    categorical : sequence of str
        Columns whose numbers are names.
    drop : sequence of str
        Columns that are left out.
    keep : sequence of str
        Columns that are used although they count the rows, differ in every row, or are equal to the
        target.
    missing_values : sequence of str, optional
        Texts that count as missing, besides empty ones; by default "NA", "n/a", "NaN", "null",
        "None", "?" and the like.

    Attributes
    ----------
    kinds_ : tuple of ColumnKind
        What every column holds: its `name`, `kind`, `parts` of a date, and a `note`.
    preparation_ : Preparation
        How columns are read.
    n_features_in_ : int
    feature_names_in_ : array of str
        Columns of a data frame.

    Examples
    --------
    >>> import pandas
    >>> from jointleaf import TablePreprocessor
    >>> houses = pandas.DataFrame({
    ...     "row": [1, 2, 3, 4], "price": ["$1,200", "$900", "n/a", "$2,100"],
    ...     "sold": ["2024-01-31", "2024-02-01", "2024-02-29", "2024-05-01"],
    ... })
    >>> preprocessor = TablePreprocessor().fit(houses)
    >>> preprocessor.get_feature_names_out().tolist()
    ['price', 'sold: day number', 'sold: month', 'sold: day', 'sold: weekday']
    >>> preprocessor.transform(houses)["price"].tolist()
    [1200.0, 900.0, nan, 2100.0]
    """

    def __init__(
        self,
        *,
        categorical: Sequence[str] = (),
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        missing_values: Sequence[str] | None = None,
    ) -> None:
        self.categorical = categorical
        self.drop = drop
        self.keep = keep
        self.missing_values = missing_values

    def fit(self, X: Any, y: ArrayLike | None = None) -> TablePreprocessor:
        """Detect what the columns of a table hold.

        Parameters
        ----------
        X : data frame or array (n, d)
            Columns of an array are x0, x1, ...
        y : array-like (n,), optional
            Targets: columns that are equal to them are left out.

        Returns
        -------
        self
        """
        for name in ("categorical", "drop", "keep", "missing_values"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name}={getattr(self, name)!r} must be a list of names")
        given = MISSING_WORDS if self.missing_values is None else tuple(self.missing_values)
        table = self._read(X, given, reset=True)
        target = None
        targets = np.asarray(y)
        if targets.shape == (len(table),):
            target = object_column("", targets.tolist(), given)
        self.preparation_ = Preparation.learn(
            table,
            categorical=self.categorical,
            drop=self.drop,
            keep=self.keep,
            target=target,
            missing=given,
        )
        return self

    def transform(self, X: Any) -> Any:
        """Return the table that a model sees.

        Parameters
        ----------
        X : data frame or array (n, d)
            Data frames may have further columns, in any order.

        Returns
        -------
        data frame or array (n, m)
            Floats and categories, in a data frame of the library of X. An array for an array: of
            floats, or of objects if there are categories.
        """
        check_is_fitted(self)
        preparation, frame = self.preparation_, as_frame(X)
        if frame is not None and hasattr(self, "feature_names_in_"):
            return preparation.transform(X)
        table = self._read(X, preparation.missing, reset=False)
        columns, _ = preparation.apply(table)
        return np.stack(list(columns.values()), axis=1)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray:
        """Return the names of the columns that `transform` returns."""
        check_is_fitted(self)
        return np.array(self.preparation_.outputs, dtype=object)

    @property
    def kinds_(self) -> tuple[ColumnKind, ...]:
        """What every column holds."""
        check_is_fitted(self)
        return self.preparation_.columns

    def _read(self, X: Any, missing: tuple[str, ...], *, reset: bool) -> RawTable:
        """Return a table whose number and names of columns are those of training."""
        if issparse(X):
            raise TypeError(
                f"Sparse data was passed for X, of shape {X.shape}, but dense data is required: "
                "estimators take sparse matrices, which hold numbers alone, without preparation"
            )
        if as_frame(X) is not None:
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = raw_table(X, missing)
            if reset and len(table) < 2:
                raise ValueError(f"Found a table with {len(table)} sample(s): 2 are needed")
            return table
        options = {"dtype": None, "ensure_all_finite": False, "ensure_min_samples": 1 + reset}
        return raw_table(validate_data(self, X, reset=reset, **options), missing)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []
        return tags
