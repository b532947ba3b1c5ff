"""Checks of parameters, targets, weights and offsets, before any work is done."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.multiclass import check_classification_targets

from jointleaf._core.arrays import check_device, is_whole
from jointleaf._core.layout import CellKind, CellLayout
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import PerTask, PredictionPenalty, SlopeNorm, TaskNorm, Term
from jointleaf._data.columns import Column, Columns, column_names
from jointleaf._data.kinds import MANY_CATEGORIES, MOST_DIFFERENT, counts_rows
from jointleaf._data.rows import check_is_here
from jointleaf._data.texts import detect_format

if TYPE_CHECKING:
    from jointleaf._fit.component import CellKinds

_FEWEST_COUNTED = 20  # rows
_FEWEST_DATES = 5  # different ones, of a column of text

_MOST_NAMED = 3  # columns in a message


def check_parameters(estimator: Any) -> None:
    """Check the values of an estimator's parameters, before any work is done."""
    from jointleaf._core.solvers.base import check_limits, check_solver_name
    from jointleaf._fit import recipes
    from jointleaf.partitions._base import LeftOut

    for value in estimator.get_params(deep=False).values():
        if isinstance(value, LeftOut):
            value.raise_error()
    if isinstance(estimator.penalty, str) and estimator.penalty != "auto":
        raise ValueError(f"penalty={estimator.penalty!r} is not known: use 'auto' or a Penalty")
    if not isinstance(estimator.penalty, str | Term):
        raise TypeError(
            f"penalty={estimator.penalty!r} must be 'auto' or a Penalty such as Frobenius(0.1)"
        )
    if estimator.recipe not in ("auto", *recipes.RECIPES):
        names = ", ".join(map(repr, recipes.RECIPES))
        raise ValueError(f"recipe={estimator.recipe!r} is not known: use 'auto', {names}")
    check_cells(estimator)
    if isinstance(estimator.cv, int | np.integer) and estimator.cv < 2:
        raise ValueError(f"cv={estimator.cv!r} must be at least 2 folds, or None")
    if not (isinstance(estimator.one_se, bool | np.bool_) or estimator.one_se == "auto"):
        raise TypeError(f"one_se={estimator.one_se!r} must be True, False or 'auto'")
    if not (isinstance(estimator.clip, bool | np.bool_) or estimator.clip == "cell"):
        raise TypeError(f"clip={estimator.clip!r} must be True, False or 'cell'")
    for name in ("root_cell", "add_indicator", "warm_start"):
        value = getattr(estimator, name, False)
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name}={value!r} must be True or False")
    if estimator.n_jobs is not None and not is_whole(estimator.n_jobs):
        raise TypeError(f"n_jobs={estimator.n_jobs!r} must be a whole number or None")
    seconds = estimator.time_budget
    is_number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and 0 < seconds < np.inf):
        raise ValueError(f"time_budget={seconds!r} must be a positive number of seconds, or None")
    check_limits(estimator.tol, estimator.max_iter)
    check_solver_name(estimator.solver)
    check_device(estimator.device)


def check_cells(estimator: Any) -> None:
    """Check the kinds of cells: one word, or one for every member of a union of partitions."""
    cells, partitioner = estimator.cells, estimator.partitioner
    for kind in cells if isinstance(cells, list | tuple) else [cells]:
        if kind not in ("linear", "constant"):
            raise ValueError(f"cells={cells!r} is not known: use 'linear' or 'constant'")
    if isinstance(cells, str):
        return
    members = getattr(partitioner, "partitioners", partitioner)
    if not isinstance(members, list | tuple) or not isinstance(estimator.penalty, Term):
        raise ValueError(
            f"cells={cells!r} are kinds for the members of a union of partitions with a penalty: "
            "give partitioner a list, and a penalty such as Frobenius('auto'), or one word"
        )
    if len(members) != len(cells):
        raise ValueError(
            f"cells={cells!r} has {len(cells)} words for the {len(members)} members of "
            "partitioner: give one for each"
        )


def check_effect(estimator: Any) -> None:
    """Raise an error for a parameter that would have no effect, before any work is done."""
    is_default = estimator.penalty == "auto" and estimator.partitioner == "auto"
    if estimator.recipe not in ("auto", "joint") and not is_default:
        raise ValueError(
            f"recipe={estimator.recipe!r} chooses partitions and penalty itself: leave partitioner "
            "and penalty at 'auto', or use recipe='joint'"
        )
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(type(estimator)).parameters.items()
    }

    def check_default(name: str, why: str) -> None:
        value, default = getattr(estimator, name), defaults[name]
        if not (value is default or (np.isscalar(value) and value == default)):
            raise ValueError(f"{name}={value!r} has no effect {why}")

    if estimator.time_budget is not None and not (
        is_default and estimator.recipe in ("auto", "blend")
    ):
        raise ValueError(
            f"time_budget={estimator.time_budget!r} chooses among the components of the default "
            "recipes: leave partitioner and penalty at 'auto', with recipe='auto' or 'blend', or "
            "leave it out"
        )
    if isinstance(estimator.penalty, Term) and not estimator.penalty.is_auto:
        # scikit-learn's checks set splits on every estimator that has a parameter cv.
        for name in ("cv", "one_se") if is_whole(estimator.cv) else ("one_se",):
            check_default(
                name,
                f"with penalty={estimator.penalty!r}, which leaves nothing to choose: leave it "
                "out, or use a strength of 'auto'",
            )
    if not has_linear_cells(estimator.cells):
        for name in ("linear_features", "add_indicator"):
            check_default(name, "with cells='constant': leave it out, or use cells='linear'")


def check_penalty(penalty: Term, n_rows: int, n_features: int, *, is_linear: bool) -> None:
    """Check a penalty against the data, before any work is done."""
    cells: CellKind = "linear" if is_linear else "constant"
    for part in penalty.terms:
        term = part.penalty if isinstance(part, PerTask) else part
        if isinstance(term, SlopeNorm):
            if term.is_auto and cells == "constant":
                raise ValueError(
                    f"penalty={penalty!r} with cells='constant' has no slopes to penalise: use "
                    "cells='linear' or Frobenius"
                )
            term.bind(CellLayout((1,), n_features, cells))
        elif isinstance(term, PredictionPenalty):
            term.check_rows(n_rows)


def check_single_task(penalty: Any) -> None:
    """Raise an error for penalties that tell tasks apart, where there is only one."""
    for term in penalty.terms if isinstance(penalty, Term) else ():
        if isinstance(term, TaskNorm | PerTask):
            raise ValueError(
                f"penalty={penalty!r} is for several tasks: use L21 here, or "
                "MultiTaskJOPLEnRegressor, which also takes a single task"
            )


def has_linear_cells(cells: CellKinds) -> bool:
    """Whether cells of some partitions have slopes."""
    return "linear" in ((cells,) if isinstance(cells, str) else cells)


def warn_of_preparation(estimator: Any) -> None:
    """Warn where a model that reads raw tables is fitted again, which takes X as it is."""
    preparation = getattr(getattr(estimator, "columns_", None), "preparation", None)
    is_raw = preparation is not None and preparation.is_of_raw_tables
    if is_raw:
        warnings.warn(
            "the model was loaded with the preparation of raw tables, and fit takes X as it is: to "
            "prepare tables again, fit make_pipeline(TablePreprocessor(), model)",
            UserWarning,
            stacklevel=4,  # where fit is called
        )


def used_part(is_used: NDArray[np.bool_]) -> str:
    """Return of which rows a message is, where some are left out by their weight; else ""."""
    return "" if is_used.all() else " in rows of positive weight"


def warn_of_no_values(X: NDArray, columns: Columns, part: str) -> None:
    """Warn of columns of X (n, d) without any value: no model sees what they may hold later.

    `part` says of which rows, as of `used_part`.
    """
    empty = np.flatnonzero(np.isnan(X).all(axis=0))
    if not empty.size:
        return
    named = ", ".join(repr(columns[j].label) for j in empty[:_MOST_NAMED])
    n_more = empty.size - _MOST_NAMED
    named += f" and {n_more} other{'s' * (n_more > 1)}" if n_more > 0 else ""
    noun, verb = ("column", "has") if empty.size == 1 else ("columns", "have")
    warnings.warn(
        f"{noun} {named} {verb} no values at all{part}, and nothing is "
        "learned from what is not there: leave out what stays empty",
        UserWarning,
        stacklevel=5,
    )


def warn_of_columns(columns: Columns, X: NDArray, y: NDArray) -> None:
    """Warn of columns of X (n, d) that count or name the rows, or are equal to y (n,).

    In few rows, and where there is no other column, they may well be meant.
    """
    n, d = X.shape
    if n < _FEWEST_COUNTED or d < 2:
        return
    remarks = [
        f"{columns[j].label!r} has {columns.n_categories[j]:,} categories in {n:,} rows, as a name "
        "or an address has: leave it out unless they come again in new rows"
        for j in np.flatnonzero(columns.n_categories > max(MANY_CATEGORIES, MOST_DIFFERENT * n))
        if not _look_like_dates(columns[j])
    ]
    remarks += [
        f"{column.label!r} looks like dates, but holds texts, which are categories: use "
        "pandas.to_datetime, or TablePreprocessor() before the model"
        for column in columns
        if _look_like_dates(column)
    ]
    for j in np.flatnonzero(columns.n_categories == 0):
        if X[0, j] in (0, 1) and X[1, j] == X[0, j] + 1 and counts_rows(X[:, j]):
            remarks.append(
                f"{columns[j].label!r} counts the rows, {X[0, j]:g}, {X[1, j]:g}, ...: leave it "
                "out unless their order means something"
            )
        if y.dtype.kind in "biuf" and X[0, j] == y[0] and np.array_equal(X[:, j], y):
            remarks.append(
                f"{columns[j].label!r} is equal to y in every row: leave it out unless new rows "
                "have it too"
            )
    for remark in remarks:
        warnings.warn(f"column {remark}", UserWarning, stacklevel=5)  # where fit is called


def _look_like_dates(column: Column) -> bool:
    """Whether a column holds texts that are dates, more than a few."""
    values = [] if column.categories is None else column.categories.tolist()
    return len(values) >= _FEWEST_DATES and detect_format(list(map(str, values))) is not None


def check_is_number(y: Any, remedy: str) -> None:
    """Raise an error for targets (n,) of numbers that hold text, with what can be done."""
    values = np.asarray(y)
    if values.dtype.kind not in "OUS" or values.ndim != 1:
        return
    text = next((value for value in values.tolist() if _is_text(value)), None)
    if text is not None:
        raise ValueError(f"y holds {text!r}, which is no number: {remedy}")


def check_targets(estimator: Any, y: Any) -> None:
    """Raise an error for several targets, and for labels that are missing."""
    from jointleaf._data.sources import missing_target

    check_is_here("y", y)
    kind = "Classifier" if is_classifier(estimator) else "Regressor"
    values = _single_target(y, type(estimator).__name__, kind)
    if kind == "Regressor":
        check_is_number(values, "use JOPLEnClassifier for classes, or convert y to numbers")
    is_label = values.dtype == object or (kind == "Classifier" and values.dtype.kind == "f")
    row = missing_target(values) if is_label and values.ndim == 1 else None
    if row is not None:
        raise ValueError(f"y is {values[row]} in row {row}: leave out rows without a target")
    if kind == "Regressor" and values.dtype.kind == "f" and np.isnan(values).any():
        row = int(np.flatnonzero(np.isnan(values))[0])
        # scikit-learn's words, which its checks of estimators ask for.
        raise ValueError(f"Input y contains NaN in row {row}: leave out rows without a target")


def _single_target(y: Any, name: str, kind: str) -> NDArray:
    """Return y as an array; raise an error for several columns, and for lists of labels."""
    try:
        values = np.asarray(y)
    except ValueError:  # lists of several lengths
        values = np.array([*y], dtype=object)
    shape = y.shape if hasattr(y, "shape") else values.shape  # also of sparse matrices
    has_lists = values.dtype == object and values.ndim == 1
    if has_lists and any(isinstance(label, list | tuple | set) for label in values):
        content, first = "holds lists", "make columns of them (MultiLabelBinarizer), and "
    elif len(shape) == 2 and shape[1] != 1:
        content, first = f"has shape {tuple(shape)}", ""
    else:
        return values
    raise ValueError(
        f"y {content}, but {name} predicts one target: {first}use MultiTaskJOPLEn{kind} for tasks "
        f"that are fitted together, or sklearn.multioutput.MultiOutput{kind} with this estimator "
        "for one model per column"
    )


def _is_text(value: Any) -> bool:
    """Whether a value is a text that does not say a number."""
    if not isinstance(value, str | bytes):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def class_weights(given: Any, y: NDArray, s: NDArray) -> dict[Any, float] | None:
    """Return the weights of the classes of rows (n,) with weights s, in rising order of classes."""
    if given is None:
        return None
    check_labels(y)
    classes, numbers = np.unique(y[s > 0], return_inverse=True)
    labels = classes.tolist()
    if isinstance(given, str) and given == "balanced":
        sums = np.bincount(numbers, s[s > 0])
        return dict(zip(labels, (s.sum() / (len(labels) * sums)).tolist(), strict=True))
    if not isinstance(given, Mapping):
        raise ValueError(
            f"class_weight={given!r} is not known: use None, 'balanced' or a dict of weights by "
            "class"
        )
    for label, weight in given.items():
        if label not in labels:
            raise ValueError(
                f"class_weight has a weight for {label!r}, which is no class of y: the classes are "
                f"{labels}"
            )
        is_number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
        if not is_number or not 0 <= weight < np.inf:
            raise ValueError(
                f"class_weight has {weight!r} for class {label!r}: give a number that is not "
                "negative"
            )
    return {label: float(given.get(label, 1.0)) for label in labels}


def class_factors(weights: Mapping[Any, float] | None, y: NDArray) -> NDArray[np.float64]:
    """Return the weights of the classes of rows (n,); 1 without any."""
    if weights is None:
        return np.ones(len(y))
    classes, numbers = np.unique(y, return_inverse=True)
    return np.array([weights.get(label, 1.0) for label in classes.tolist()])[numbers]


def number_classes(y: NDArray, part: str = "") -> tuple[NDArray, NDArray[np.float64]]:
    """Return the classes of targets (n,), at least two, and the class number of every row.

    `part` says of which rows these are, as of `used_part`.
    """
    check_labels(y)
    classes, numbers = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes[0]}{part and ','}{part}): at least two classes are "
            "needed"
        )
    return classes, numbers.astype(float)


def check_labels(y: NDArray) -> None:
    """Raise for targets (n,) that are no classes: numbers with fractions, or text and numbers."""
    from jointleaf.partitions._union import MANY_CLASSES

    if y.dtype == object and len({isinstance(label, str) for label in y.tolist()}) > 1:
        text = next(label for label in y.tolist() if isinstance(label, str))
        other = next(label for label in y.tolist() if not isinstance(label, str))
        raise TypeError(
            f"y mixes text and other labels, for example {text!r} and {other!r}: make them all "
            "text, for example with astype(str)"
        )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", MANY_CLASSES)
            check_classification_targets(y)
    except ValueError as cause:
        if "continuous" not in str(cause):
            raise
        raise ValueError(f"{cause} JOPLEnRegressor predicts numbers.") from None
    n_classes = len(np.unique(y))
    if len(y) >= _FEWEST_COUNTED and 2 * n_classes > len(y):
        warnings.warn(
            f"y has {n_classes:,} classes in {len(y):,} rows: for numbers use JOPLEnRegressor",
            UserWarning,
            stacklevel=7,  # where fit is called
        )


@contextmanager
def restored_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Leave an estimator as it was after an error or Ctrl-C, never half fitted."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


# -- offsets and exposure, as users give them -----------------------------------------------------


def n_rows_of(X: Any) -> int | None:
    """Return the number of rows of a table; None where that is found out later."""
    check_is_here("X", X)
    shape = getattr(X, "shape", None)
    if shape:
        return int(shape[0])
    return len(X) if hasattr(X, "__len__") else None


def read_offset(
    loss: Loss,
    offset: ArrayLike | None,
    exposure: ArrayLike | None,
    n_rows: int | None,
    suffix: str = "",
) -> NDArray[np.float64] | None:
    """Return offsets (n,) of rows on the scale of the loss; None where there are none."""
    from jointleaf._core.problem import as_numbers

    if offset is None and exposure is None:
        return None
    names = f"offset{suffix}", f"exposure{suffix}"
    if offset is not None and exposure is not None:
        raise ValueError(f"{names[0]} and {names[1]} are both given: give one of them")
    if exposure is not None and not loss.has_log_link:
        raise ValueError(
            f"{names[1]} needs a loss whose predictions it multiplies, 'poisson', 'gamma' or "
            f"'tweedie', and not {loss!r}: divide y by it, or give it as sample_weight"
        )
    if not (loss.has_log_link or loss.is_of_residuals):
        raise ValueError(
            f"{names[0]} is not possible with loss={loss!r}, which is neither of residuals "
            "(is_of_residuals) nor of exp(f) (has_log_link): set one of these where it is"
        )
    name, given = (names[0], offset) if exposure is None else (names[1], exposure)
    column = _named_column(given)
    if column is not None:
        what = "a name" if isinstance(given, str) else "names or a table"
        shown = f"={given!r}" if isinstance(given, str) else ""
        raise ValueError(
            f"{name}{shown} must be numbers and not {what}: give the column itself, such as "
            f"X[{column!r}]"
        )
    values = as_numbers(name, np.asarray(given))
    if n_rows is not None and values.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {values.shape}, but there are {n_rows} rows: give one number for "
            "every row"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{name} holds NaN or infinity: give a number for every row")
    if exposure is None:
        return values
    if (values <= 0).any():
        raise ValueError(f"{name} holds {values.min():g}: it must be positive, leave such rows out")
    return np.log(values)


def _named_column(given: Any) -> str | None:
    """Return the name of a column that is named, or is a table of its own; None for numbers."""
    if isinstance(given, str):
        return given
    names = column_names(given) if hasattr(given, "shape") else given
    if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str):
        return names[0]
    return None


def check_has_offset(has_offset: bool, shift: NDArray | None, purpose: str) -> None:
    """Raise an error where targets are compared with predictions without their exposure."""
    if has_offset and shift is None:
        raise ValueError(
            f"the model was fitted with exposure or an offset, without which predictions are not "
            f"those of the targets: give {purpose} the exposure (or offset) of its rows"
        )


def check_offset_val(shift: NDArray | None, shift_val: NDArray | None, X_val: Any) -> None:
    """Raise an error where training and validation rows have not both exposure, or an offset."""
    if X_val is None and shift_val is not None:
        raise ValueError(
            "offset_val and exposure_val are of the rows of X_val, which is not given: give X_val "
            "and y_val as well, or leave them out"
        )
    if X_val is None or (shift is None) == (shift_val is None):
        return
    has, lacks = ("y", "y_val") if shift_val is None else ("y_val", "y")
    names = "exposure_val (or offset_val)" if shift_val is None else "exposure (or offset)"
    raise ValueError(
        f"{has} has exposure or an offset and {lacks} has none, so that they cannot be compared: "
        f"give {names} as well"
    )
