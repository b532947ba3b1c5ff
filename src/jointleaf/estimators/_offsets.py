"""Offsets and exposure of rows, as users give them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointleaf._core.losses import Loss
from jointleaf._core.problem import as_numbers
from jointleaf._data.columns import column_names
from jointleaf._data.rows import check_is_here


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
