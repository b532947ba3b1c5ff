"""Fitted models as one SELECT statement, for prediction inside a database.

Every tree becomes a CASE expression whose branches end in the linear model of a cell, and a
prediction is their sum. What is used more than once is named, and computed once, in steps:

    rows -> columns x_j -> target statistics s_j -> features z_j -> raw predictions -> outputs
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from jointleaf._data.columns import Column, Columns
from jointleaf._data.preparation import columns_in_words
from jointleaf._data.statistics import CategoryTable
from jointleaf._model.cell_model import CellModel
from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.routing import ZERO
from jointleaf.estimators import JOPLEnRegressor
from jointleaf.io._onnx import check_exportable
from jointleaf.partitions import RootCell
from jointleaf.partitions._base import TreeCells

_NUMBER, _TEXT, _WHOLE = "DOUBLE PRECISION", "VARCHAR", "BIGINT"

_PLAIN = ("", "plain")  # notations that SQL reads


def to_sql(model: Any, table: str = "rows", *, keep: Sequence[str] = ()) -> str:
    """Return a fitted model as one SELECT statement.

    It is standard SQL, tested with SQLite (3.35 or newer, with its functions of mathematics) and
    DuckDB. The result has the columns `keep`, and ``prediction``; for classes also one column for
    every class, ``probability <class>``. Missing values are NULL. Predictions agree with `predict`
    up to rounding. Columns that were read from text in training (yes and no, $1,200, 5 %) must be
    plain numbers in the table; a warning names them.

    Parameters
    ----------
    model : JOPLEnRegressor or JOPLEnClassifier
        Fitted on a data frame, also by `prune`, with partitions that are trees.
    table : str
        What stands behind FROM: the name of a table that has the columns of the model
        (``feature_names_in_``), or a query in parentheses.
    keep : sequence of str
        Columns of the table that the result has too, such as a key.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        Where the model is no such estimator.
    ValueError
        Where the model cannot be expressed: with partitions that are no trees, with
        ``clip="cell"``, or with CatBoost's combinations of categories.

    Examples
    --------
    >>> import sqlite3, pandas
    >>> from sklearn.datasets import load_diabetes
    >>> from jointleaf import Frobenius, JOPLEnRegressor, to_sql
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = JOPLEnRegressor("lightgbm", penalty=Frobenius(0.1), random_state=0).fit(X, y)
    >>> database = sqlite3.connect(":memory:")
    >>> n_rows = X.to_sql("patients", database)
    >>> rows = database.execute(to_sql(model, "patients")).fetchall()
    >>> bool(abs(rows[0][0] - model.predict(X)[0]) < 1e-9)
    True
    """
    _check(model)
    _check_kept(model, keep)
    columns, cells = model.columns_, model.cell_model_
    raw = _raw(cells, columns)
    kept_columns = [f"t.{_name(name)} AS {_name(name)}" for name in keep]
    steps = [f"SELECT {', '.join([*kept_columns, *_columns(columns)])} FROM {table} AS t"]
    names = [f"{text} AS {_raw_name(k)}" for k, text in enumerate(raw)]
    for made in (_statistics(columns), _features(cells, columns), names):
        if made:
            steps.append(f"SELECT *, {', '.join(made)} FROM jointleaf_{len(steps)}")
    # Materialized, because databases would repeat an expression wherever its name stands.
    named = (f"jointleaf_{k + 1} AS MATERIALIZED (\n{step}\n)" for k, step in enumerate(steps))
    outputs = [*(_name(name) for name in keep), *_outputs(model, len(raw))]
    return f"WITH {', '.join(named)}\nSELECT {', '.join(outputs)} FROM jointleaf_{len(steps)}\n"


def _check(model: Any) -> None:
    if isinstance(model, Pipeline):
        raise TypeError(
            "a Pipeline cannot be exported: give its last step, to_sql(pipeline[-1]), and a table "
            "with the columns that the steps before it make"
        )
    known = "trees: fit with recipe='joint', or with some, for example partitioner='lightgbm'"
    check_exportable(model, "to_sql", (TreeCells, RootCell), known)
    if not hasattr(model, "feature_names_in_"):
        raise ValueError("the model was fitted on a matrix without column names: fit a data frame")
    preparation = model.columns_.preparation
    kinds = () if preparation is None else preparation.columns
    names = [k.name for k in kinds if k.kind == "boolean" or k.notation not in _PLAIN]
    names = [name for name in names if name in model.feature_names_in_]  # dates have other names
    if names:
        warnings.warn(
            f"{columns_in_words(names)} held text in training, which SQL does not read: the table "
            "must have plain numbers there, 1 for yes, 5 for 5 %, 1200 for $1,200",
            UserWarning,
            stacklevel=3,
        )


def _check_kept(model: Any, keep: Sequence[str]) -> None:
    if isinstance(keep, str):
        raise TypeError(f"keep={keep!r} must be a list of names: give [{keep!r}]")
    outputs = {*_outputs(model, model.cell_model_.n_outputs), _name("prediction")}
    taken = [name for name in keep if any(text.endswith(_name(name)) for text in outputs)]
    if taken:
        raise ValueError(f"keep names {taken[0]!r}, which a prediction has: rename the column")


# -- words of SQL ----------------------------------------------------------------------------------


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _literal(value: Any) -> str:
    """Return a constant; numbers with an exponent, without which some databases round them."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, int | np.integer):
        return str(int(value))
    number = float(value)
    if math.isinf(number):
        return "9e999" if number > 0 else "-9e999"
    text = repr(number)
    return text if "e" in text else f"{text}e0"


def _sum(terms: Sequence[str]) -> str:
    """Return a sum in nested halves: databases limit how deep an expression is."""
    if len(terms) <= 2:
        return " + ".join(terms) if terms else "0e0"
    middle = len(terms) // 2
    return f"({_sum(terms[:middle])}) + ({_sum(terms[middle:])})"


def _in(column: str, values: Sequence[Any]) -> str:
    listed = ", ".join(map(_literal, values))
    return f"{column} IN ({listed})" if listed else "1 = 0"


def _among(column: str, categories: list, is_chosen: NDArray) -> str:
    """Return whether a category is among those marked in (L + 2,): all, unseen ones, missing."""
    n = len(categories)
    if is_chosen[n]:
        others = [categories[k] for k in np.flatnonzero(~is_chosen[:n])]
        text = f"NOT {_in(column, others)}" if others else f"{column} IS NOT NULL"
    else:
        text = _in(column, [categories[k] for k in np.flatnonzero(is_chosen[:n])])
    return f"({text} OR {column} IS NULL)" if is_chosen[n + 1] else f"({text})"


# -- columns ---------------------------------------------------------------------------------------


def _columns(columns: Columns) -> list[str]:
    """Return the columns x_j in the types that are compared with."""
    cast = []
    for j, column in enumerate(columns):
        kind = _NUMBER
        if column.categories is not None:
            kind = _WHOLE if column.categories.dtype.kind in "iu" else _TEXT
        cast.append(f"CAST(t.{_name(column.label)} AS {kind}) AS x{j}")
    return cast


def _statistics(columns: Columns) -> list[str]:
    """Return the target statistics s_j, where the model sees some."""
    if columns.statistics is None:
        return []
    made, behind = [], len(columns)
    for table in columns.statistics.tables:
        for r in range(len(table.names)):
            place = table.columns[0] if r == 0 and table.replaces_codes else behind
            behind += place == behind
            made.append(f"{_looked_up(table, r, columns)} AS s{place}")
    return made


def _looked_up(table: CategoryTable, r: int, columns: Columns) -> str:
    """Return the statistic number r of the categories of a row."""
    cases = []
    for key, value in zip(table.keys.tolist(), table.values[:-1, r], strict=True):
        codes = np.unravel_index(key, table.n_codes)
        is_code = (
            _is_code(f"x{j}", columns[j], int(code))
            for j, code in zip(table.columns, codes, strict=True)
        )
        cases.append(f"WHEN {' AND '.join(is_code)} THEN {_literal(value)}")
    return f"CASE {' '.join(cases)} ELSE {_literal(table.values[-1, r])} END"


def _is_code(name: str, column: Column, code: int) -> str:
    assert column.categories is not None
    is_chosen = np.arange(len(column.categories) + 2) == code
    return _among(name, column.categories.tolist(), is_chosen)


def _seen(columns: Columns) -> list[str]:
    """Return the names of what a model sees: columns, or statistics in their place and behind."""
    statistics = columns.statistics
    replaced = {} if statistics is None else statistics.names
    return [f"s{j}" if j in replaced else f"x{j}" for j in range(len(columns.of_matrix()))]


def _features(model: CellModel, columns: Columns) -> list[str]:
    """Return the standardised linear features z_k that have slopes.

    Those of categories and of missing values are tables, made by the standardiser itself.
    """
    used = set(np.flatnonzero(model.slope_norms()).tolist())
    plan, scaler, names = model.features.plan, model.features.scaler, _seen(columns)
    width, of_matrix = len(names), columns.of_matrix()
    made = []
    for k, j in enumerate(plan.sources.tolist()):
        if k not in used:
            continue
        if k < len(plan.numbers):
            scaled = f"({names[j]} - {_literal(scaler.mean[k])}) / {_literal(scaler.scale[k])}"
            cases = [f"WHEN {names[j]} IS NULL THEN 0e0"]
            if scaler.clip:
                ends = (scaler.low[k], scaler.high[k])
                at = [(end - scaler.mean[k]) / scaler.scale[k] for end in ends]
                cases.append(f"WHEN {names[j]} < {_literal(ends[0])} THEN {_literal(at[0])}")
                cases.append(f"WHEN {names[j]} > {_literal(ends[1])} THEN {_literal(at[1])}")
            made.append(f"CASE {' '.join(cases)} ELSE {scaled} END AS z{k}")
            continue
        categories = of_matrix[j].categories
        known = [] if categories is None else categories.tolist()
        rows = np.zeros((len(known) + 2, width))
        rows[:, j] = [*range(len(known) + 1), np.nan]
        values = model.features.transform(rows)[:, k]
        made.append(f"{_by_code(names[j], known, values)} AS z{k}")
    return made


def _by_code(name: str, categories: list, values: NDArray) -> str:
    """Return the values (L + 2,) of categories, unseen ones and missing values."""
    cases = [f"WHEN {name} IS NULL THEN {_literal(values[-1])}"]
    for value in np.unique(values[:-2]):
        if value != values[-2]:
            members = [categories[k] for k in np.flatnonzero(values[:-2] == value)]
            cases.append(f"WHEN {_in(name, members)} THEN {_literal(value)}")
    return f"CASE {' '.join(cases)} ELSE {_literal(values[-2])} END"


# -- predictions -----------------------------------------------------------------------------------


def _raw_name(k: int) -> str:
    return f"raw{k}"


def _raw(model: CellModel, columns: Columns) -> list[str]:
    """Return the raw prediction of every output."""
    biases = model.biases.astype(float).reshape(model.layout.n_cells, -1)
    slopes = model.slopes.astype(float).reshape(*model.slopes.shape[:2], biases.shape[1])
    offset = np.broadcast_to(np.asarray(model.offset, float), (biases.shape[1],))
    rows = model.layout.slope_rows

    def cell(start: int, k: int, code: int) -> str:
        """Return the linear model of a cell, in standard units."""
        number = start + code
        terms = [] if biases[number, k] == 0 else [_literal(biases[number, k])]
        if rows[number] < len(slopes):
            slope = slopes[rows[number], :, k]
            terms += [f"{_literal(slope[j])} * z{j}" for j in np.flatnonzero(slope).tolist()]
        return _sum(terms)

    outputs = []
    for k in range(biases.shape[1]):
        terms = [_literal(offset[k])]
        for member, first in model.partitioner.walk():
            starts = model.layout.offsets[first : first + len(member.n_cells_)]
            if not isinstance(member, TreeCells):
                terms += [cell(int(start), k, 0) for start in starts]
                continue
            trees = _Trees(member.trees_, columns)
            for p, start in enumerate(starts.tolist()):
                terms.append(trees.expression(p, partial(cell, start, k)))
        terms = [term for term in terms if term != "0e0"]
        standard = _sum([f"({term})" for term in terms])
        outputs.append(f"{_literal(model.centre)} + {_literal(model.unit)} * ({standard})")
    return outputs


class _Trees:
    """Trees as CASE expressions."""

    def __init__(self, trees: FlatTrees, columns: Columns) -> None:
        self._trees, self._columns = trees, columns.of_matrix()
        self._names = _seen(columns)
        self._leaf_starts = trees.leaf_starts

    def expression(self, p: int, cell: Callable[[int], str]) -> str:
        """Return what tree p says of a row, with `cell` for the model of one of its cells."""
        trees = self._trees
        start = int(trees.starts[p])

        def node(number: int) -> str:
            if number < 0:
                code = int(trees.cell_of_leaf[self._leaf_starts[p] + ~number])
                return "0e0" if code < 0 else cell(code)
            left, right = node(int(trees.left[number])), node(int(trees.right[number]))
            if left == right:
                return left
            return f"CASE WHEN {self._goes_left(number)} THEN {left} ELSE {right} END"

        return node(start if trees.starts[p + 1] > start else -1)

    def _goes_left(self, split: int) -> str:
        trees, j = self._trees, int(self._trees.feature[split])
        name, missing_left = self._names[j], bool(trees.missing_left[split])
        categories = self._columns[j].categories
        if categories is not None:
            first = int(trees.table[split])
            is_left = trees.categories_left[first : first + len(categories) + 1]
            return _among(name, categories.tolist(), np.append(is_left, missing_left))
        threshold = float(trees.threshold[split])
        if trees.single_precision:
            threshold = _before_rounding(threshold)
        below = f"{name} <= {_literal(threshold)}"
        is_missing = f"{name} IS NULL"
        if trees.zero_is_missing:
            is_missing = f"({is_missing} OR ABS({name}) <= {_literal(ZERO)})"
            return f"{is_missing} OR {below}" if missing_left else f"NOT {is_missing} AND {below}"
        return f"{below} OR {is_missing}" if missing_left else below


def _before_rounding(threshold: float) -> float:
    """Return the largest double that is at most a threshold when rounded to single precision."""
    with np.errstate(over="ignore"):
        single = np.float32(threshold)
        if float(single) > threshold:
            single = np.nextafter(single, np.float32(-np.inf))
        following = np.nextafter(single, np.float32(np.inf))
    if not np.isfinite(single) or not np.isfinite(following):
        return threshold
    middle = (float(single) + float(following)) / 2
    is_even = np.float32(middle) == single  # to which the middle is rounded
    return middle if is_even else float(np.nextafter(middle, -np.inf))


def _outputs(model: Any, n_outputs: int) -> list[str]:
    if isinstance(model, JOPLEnRegressor):
        raw = _raw_name(0)
        return [f"{f'EXP({raw})' if model.loss_.has_log_link else raw} AS prediction"]
    labels = model.classes_.tolist()
    if n_outputs == 1:
        raw = _raw_name(0)
        # Neither exponential overflows.
        high, low = f"1e0 / (1e0 + EXP(-{raw}))", f"EXP({raw}) / (1e0 + EXP({raw}))"
        second = f"CASE WHEN {raw} >= 0 THEN {high} ELSE {low} END"
        high, low = f"EXP(-{raw}) / (1e0 + EXP(-{raw}))", f"1e0 / (1e0 + EXP({raw}))"
        first = f"CASE WHEN {raw} >= 0 THEN {high} ELSE {low} END"
        probabilities = [first, second]
        cases = f"WHEN {raw} > 0 THEN {_label(labels[1])} ELSE {_label(labels[0])}"
    else:
        names = [_raw_name(k) for k in range(n_outputs)]
        probabilities = [
            "1e0 / (" + _sum([f"EXP({other} - {name})" for other in names]) + ")" for name in names
        ]
        largest = [
            " AND ".join(f"{name} >= {other}" for other in names if other != name) for name in names
        ]
        cases = " ".join(
            f"WHEN {is_largest} THEN {_label(label)}"
            for is_largest, label in zip(largest, labels, strict=True)
        )
    named = zip(probabilities, labels, strict=True)
    return [
        f"CASE {cases} END AS prediction",
        *(f"{text} AS {_name(f'probability {label}')}" for text, label in named),
    ]


def _label(label: Any) -> str:
    return _literal(label if isinstance(label, str | int | float) else str(label))
