"""Fields of a model file: how they are written, and how they are read with every check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from jointleaf.io._model_file.container import TYPES
from jointleaf.io._model_file.errors import ModelFileError

__all__ = ["Arrays", "Part", "number"]

_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_MOST_INT = 2**63 - 1


def number(value: Any) -> float | str:
    """Give a float as JSON has it: infinities and NaN as text."""
    found = float(value)
    return found if math.isfinite(found) else str(found)


class Arrays:
    """Arrays of a file that is written; equal ones are kept once."""

    def __init__(self) -> None:
        self.kept: list[NDArray] = []
        self._place: dict[tuple, int] = {}

    def add(self, array: Any) -> dict[str, int]:
        """Keep an array of numbers or truth values; gives the reference to it."""
        array = np.asarray(array)
        if array.dtype.newbyteorder("<").str not in TYPES:
            raise ModelFileError(
                f"arrays of type {array.dtype} cannot be saved: model files hold numbers, truth "
                "values and text"
            )
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        key = (array.dtype.str, array.shape, order, array.tobytes())
        place = self._place.setdefault(key, len(self.kept))
        if place == len(self.kept):
            self.kept.append(array)
        return {"array": place}

    def maybe(self, array: Any) -> dict[str, int] | None:
        """The same; None for None."""
        return None if array is None else self.add(array)


class Part:
    """One object of a file that is read: fields by name, each checked when it is taken.

    Parameters
    ----------
    data : Any
        What JSON holds; an object, or it is refused.
    arrays : list of arrays
        Of the file.
    path : str
        Where the object is in the file, for errors.
    """

    def __init__(self, data: Any, arrays: list[NDArray], path: str) -> None:
        self.path = path
        self.arrays = arrays
        if not isinstance(data, dict):
            self.fail("is no object")
        self._data: dict[str, Any] = data
        self._taken: set[str] = set()

    def fail(self, problem: str, name: str | None = None) -> NoReturn:
        """Refuse the file."""
        where = self.path if name is None else f"{self.path}.{name}"
        raise ModelFileError(f"{where} {problem}")

    def close(self) -> None:
        """Refuse fields that nobody asked for."""
        unknown = sorted(set(self._data) - self._taken)
        if unknown:
            self.fail(f"has the unknown field {unknown[0][:40]!r}")

    def get(self, name: str) -> Any:
        """Give a field as JSON has it."""
        if name not in self._data:
            self.fail("is missing", name)
        self._taken.add(name)
        return self._data[name]

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def is_none(self, name: str) -> bool:
        """Whether a field is null."""
        return self.get(name) is None

    # -- single values -------------------------------------------------------------------------

    def flag(self, name: str) -> bool:
        """Give a truth value."""
        value = self.get(name)
        if not isinstance(value, bool):
            self.fail("must be true or false", name)
        return value

    def integer(self, name: str, low: int = 0, high: int = _MOST_INT) -> int:
        """Give a whole number from low to high."""
        value = self.get(name)
        if type(value) is not int or not low <= value <= high:
            self.fail(f"must be a whole number from {low} to {high}", name)
        return value

    def number(
        self, name: str, low: float = -math.inf, high: float = math.inf, *, finite: bool = True
    ) -> float:
        """Give a number from low to high; with finite=False also infinities and NaN."""
        value = self.get(name)
        if isinstance(value, str) and not finite and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if type(value) not in (int, float):
            self.fail("must be a number", name)
        try:
            found = float(value)
        except OverflowError:
            self.fail("must be a number", name)
        if not math.isfinite(found) or not low <= found <= high:
            self.fail(f"must be a finite number from {low} to {high}", name)
        return found

    def text(self, name: str) -> str:
        """Give a text."""
        value = self.get(name)
        if not isinstance(value, str):
            self.fail("must be text", name)
        return value

    def choice(self, name: str, options: Sequence[str]) -> str:
        """Give one of these texts."""
        value = self.text(name)
        if value not in options:
            self.fail(f"is {value[:40]!r}, which is not known", name)
        return value

    def texts(self, name: str) -> list[str]:
        """Give a list of texts."""
        value = self.get(name)
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            self.fail("must be a list of texts", name)
        return list(value)

    # -- parts ---------------------------------------------------------------------------------

    def child(self, name: str) -> Part:
        """Give an object."""
        return Part(self.get(name), self.arrays, f"{self.path}.{name}")

    def maybe_child(self, name: str) -> Part | None:
        """Give an object, or None for null."""
        return None if self.is_none(name) else self.child(name)

    def children(self, name: str) -> list[Part]:
        """Give the objects of a list."""
        value = self.get(name)
        if not isinstance(value, list):
            self.fail("must be a list", name)
        return [Part(v, self.arrays, f"{self.path}.{name}[{i}]") for i, v in enumerate(value)]

    # -- arrays --------------------------------------------------------------------------------

    def array(
        self,
        name: str,
        types: str,
        shape: tuple[int | None, ...] | None = None,
        *,
        finite: bool = False,
    ) -> NDArray:
        """Give an array.

        Parameters
        ----------
        name : str
        types : str
            Which are allowed, as NumPy writes them, for example "f4 f8".
        shape : tuple, optional
            None for lengths that are free.
        finite : bool
            Whether infinities and NaN are refused.
        """
        value = self.get(name)
        place = value.get("array") if isinstance(value, dict) and len(value) == 1 else None
        if type(place) is not int or not 0 <= place < len(self.arrays):
            self.fail("must be a reference to an array", name)
        found = self.arrays[place]
        if found.dtype.str[1:] not in types.split():
            self.fail(f"has type {found.dtype}, but must have one of {types}", name)
        if shape is not None:
            fits = len(shape) == found.ndim and all(
                n is None or n == m for n, m in zip(shape, found.shape, strict=True)
            )
            if not fits:
                wanted = str(shape).replace("None", "any")
                self.fail(f"has shape {found.shape}, but must have {wanted}", name)
        if finite and not np.isfinite(found).all():
            self.fail("holds infinity or NaN", name)
        return found

    def maybe_array(
        self,
        name: str,
        types: str,
        shape: tuple[int | None, ...] | None = None,
        *,
        finite: bool = False,
    ) -> NDArray | None:
        """Give an array, or None for null."""
        return None if self.is_none(name) else self.array(name, types, shape, finite=finite)

    def indices(
        self, name: str, stop: int, *, low: int = 0, rising: bool = False, length: int | None = None
    ) -> NDArray[np.intp]:
        """Give whole numbers from low to stop - 1, one axis, rising strictly if asked for."""
        found = self.array(name, "i4 i8", (length,)).astype(np.intp)
        if found.size and (found.min() < low or found.max() >= stop):
            self.fail(f"holds numbers that are not from {low} to {stop - 1}", name)
        if rising and (np.diff(found) <= 0).any():
            self.fail("must rise", name)
        return found
