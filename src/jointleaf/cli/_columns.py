"""What the target holds, and the columns with the exposure or weight of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from jointleaf._data import texts
from jointleaf._data.kinds import ColumnKind
from jointleaf._data.raw_table import RawColumn, listed, similar_texts
from jointleaf.cli._output import CliError


def row_numbers(
    column: RawColumn, kind: ColumnKind, source: str, is_used: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the exposure or weight of used rows; raise where it is missing or cannot be one."""
    role, numbers = kind.kind, column.numbers(kind.notation)
    is_valid = np.isfinite(numbers) & (numbers > 0 if role == "exposure" else numbers >= 0)
    wrong = np.flatnonzero(is_used & ~is_valid)
    if wrong.size:
        row, must = wrong[0], "a positive number" if role == "exposure" else "zero or positive"
        value = "is missing" if column.missing[row] else f"is {column.values[row]!s}"
        raise CliError(
            f"{source}: the {role} {column.name!r} {value} in row {row + 1:,}: it must be {must} "
            "in every row, so correct such rows or leave them out"
        )
    if role == "weight" and not numbers[is_used].any():
        raise CliError(f"{source}: the weight {column.name!r} is zero in every row: nothing counts")
    return numbers[is_used]


def detect_role(column: RawColumn, role: str, source: str) -> ColumnKind:
    """Return the kind of a column with the exposure or weight of rows, which must be numbers."""
    notation: str | None = "plain"
    if column.is_text:
        notation = texts.detect_notation(column.values)
    if notation is None or column.values.dtype.kind == "M":
        raise CliError(
            f"{source}: --{role} {column.name!r} needs a column of numbers, but it holds "
            f"{column.values[~column.missing][:1].tolist()}: name another column"
        )
    return ColumnKind(column.name, role, notation, note="as requested")


# -- the target ----------------------------------------------------------------------------------

Task = Literal["regression", "classification"]

_FEW = 10  # whole numbers with at most so many different values are classes
_MAYBE_CLASSES = 50  # with so many they may be
_MOST_CLASSES = 100
_FEWEST_ROWS = 5  # a class needs, on average, at least so many rows
_REQUESTED = "as requested"
_WHOLE = "whole numbers"  # few enough that their task is a guess


@dataclass(frozen=True)
class Target:
    """What the target column holds."""

    name: str
    task: Task
    notation: str  # how numbers are written; "" for classes that are text
    reason: str  # why it is this task, in a few words
    labels: Sequence[str] = ()  # names of false and true where the classes are these two

    @property
    def advice(self) -> str:
        """How to overrule a task that was detected and may be wrong; empty where it was not."""
        if not self.reason.startswith(_WHOLE):
            return ""
        if self.task == "regression":
            return "; --task classification predicts classes instead"
        return "; --task regression predicts numbers instead"

    def read(self, column: RawColumn, source: str) -> tuple[NDArray, NDArray[np.bool_]]:
        """Return targets (m,), floats, whole numbers or text, and a mask (n,) of their rows."""
        has_target = ~column.missing
        if self.labels or not self.notation:
            values = column.values[has_target]
            return np.array([self._label(str(value)) for value in values]), has_target
        numbers = column.numbers(self.notation)
        unread = np.flatnonzero(has_target & ~np.isfinite(numbers))
        if unread.size:
            text = column.values[unread[0]]
            means_missing = "" if any(map(str.isdigit, text)) else f", or use --na {text!r}"
            is_guess = self.reason != _REQUESTED and not means_missing
            raise CliError(
                f"{source}: the target {self.name!r} holds {text!r} in row {unread[0] + 1:,}, "
                f"which is not a number: correct it{means_missing}"
                f"{', or use --task classification' if is_guess else ''}"
            )
        kind = np.int64 if self.task == "classification" else float
        return numbers[has_target].astype(kind), has_target

    def _label(self, text: str) -> str:
        boolean = texts.parse_boolean(text) if self.labels else None
        return text if boolean is None else self.labels[int(boolean)]


def detect_target(
    column: RawColumn, source: str, task: Task | None = None, option: str = "--task regression"
) -> Target:
    """Detect the task of a target, or check the one that the user requests by an option."""
    name, missing = column.name, column.missing
    if missing.all():
        raise CliError(f"{source}: the target {name!r} has no values, so no rows are left")
    notation, is_date = "plain", column.values.dtype.kind == "M"
    if column.is_text:
        is_boolean = texts.parse_booleans(column.values) is not None
        notation = "" if is_boolean else texts.detect_notation(column.values) or ""
        is_date = not notation and texts.detect_format(texts.present(column.values)) is not None
    if is_date:
        raise CliError(f"{source}: the target {name!r} holds dates: use numbers or classes")
    if not notation:
        return _text_target(column, source, task, option)
    numbers = column.numbers(notation)
    different = np.unique(numbers[np.isfinite(numbers)])
    _check_varies(different, name, source)
    whole = bool((different == np.floor(different)).all() and (np.abs(different) < 2**53).all())
    n_present = int((~missing).sum())
    if task == "classification" and 2 * len(different) > n_present:
        raise CliError(
            f"{source}: the target {name!r} has {len(different):,} different numbers in "
            f"{n_present:,} rows, too many to be classes: use --task regression"
        )
    if task is not None:
        is_text = task == "classification" and not whole
        return Target(name, task, "" if is_text else notation, _REQUESTED)
    repeat = whole and n_present >= _FEWEST_ROWS * len(different)
    kind = _WHOLE if repeat and len(different) <= _MAYBE_CLASSES else "numbers"
    reason = f"{kind} with {len(different):,} different values"
    if repeat and len(different) <= _FEW:
        return Target(name, "classification", notation, reason)
    remarks = texts.notation_remarks(column.values, notation) if column.is_text else []
    reason = "; ".join([reason, *remarks])
    return Target(name, "regression", notation, reason)


def _text_target(column: RawColumn, source: str, task: Task | None, option: str) -> Target:
    name = column.name
    if task == "regression":
        raise CliError(
            f"{source}: {option} needs numbers, but the target {name!r} holds "
            f"{texts.present(column.values)[0]!r}: write numbers, or leave {option} out"
        )
    classes = sorted(set(texts.present(column.values)))
    labels = _boolean_labels(column)
    _check_varies(labels or classes, name, source)
    reason = f"text with {len(classes)} different values"
    if labels:
        if len(classes) > 2:
            reason = f"yes or no, written {listed(classes)}; called {listed(labels)}"
        return Target(name, "classification", "", reason, labels)
    n_present = int((~column.missing).sum())
    if len(classes) > _MOST_CLASSES or (len(classes) > 2 and 2 * len(classes) > n_present):
        remark = ""
        if texts.look_like_numbers(column.values):
            remark = f"; it {texts.number_like_remark(column.values)}"
        raise CliError(
            f"{source}: the target {name!r} has {len(classes):,} different texts in {n_present:,} "
            f"rows, too many to be classes{remark}"
        )
    return Target(name, "classification", "", "; ".join([reason, *similar_texts(classes)]))


def _boolean_labels(column: RawColumn) -> tuple[str, ...]:
    """Return the most frequent words for false and true, where a column holds nothing else."""
    numbers = texts.parse_booleans(column.values)
    if numbers is None:
        return ()
    counts = [Counter(column.values[numbers == value].tolist()) for value in (0.0, 1.0)]
    # Ties go to the first in the alphabet, so that the order of the rows does not matter.
    return tuple(min(c, key=lambda text: (-c[text], text)) for c in counts if c)


def _check_varies(different: Any, name: str, source: str) -> None:
    if len(different) == 1:
        value = different[0]
        is_large = not isinstance(value, str) and abs(value) >= 2**53
        shown = value if isinstance(value, str) else f"{value:.16g}"
        digits = " (as far as 16 digits tell: subtract a constant)" if is_large else ""
        raise CliError(f"{source}: the target {name!r} is always {shown}{digits}: nothing to learn")
