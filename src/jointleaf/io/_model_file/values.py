"""Plain values, as parameters and labels hold them: numbers, text, lists, dicts, arrays.

JSON's own null, true, false, numbers, text and lists stand for themselves; everything else is an
object with one key that says what it is: ``float`` (infinities and NaN), ``tuple``, ``dict`` (a
list of pairs), ``scalar`` (of NumPy: type and value), ``array``, ``texts`` (an array of text),
``objects`` (an array of Python objects), ``left_out`` (the name of a class that is not saved), and
in parameters also ``partitioner``, ``penalty`` and ``random_state``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.io._model_file.container import TYPES, ModelFileError
from jointleaf.io._model_file.schema import Array, Arrays, Field, Place, Scope
from jointleaf.partitions._base import LeftOut

_SCALARS = {t.__name__: t for t in (np.dtype(name).type for name in TYPES)}
_MOST_INT = 2**128
_ANY_ARRAY = Array(" ".join(name[1:] for name in TYPES), None)


@dataclass(frozen=True)
class Plain(Field):
    """A plain value, or an object of one of the allowed kinds.

    With `leaves_out`, of what cannot be saved the name of its class is written without an error.
    """

    objects: Mapping[str, Any] = field(default_factory=dict)  # of Variants, by their key
    leaves_out: bool = False

    def write(self, value: Any, arrays: Arrays) -> Any:
        n_arrays = len(arrays.stored)
        try:
            return self._write(value, arrays)
        except (ModelFileError, RecursionError):
            if not self.leaves_out:
                raise
            arrays.forget(n_arrays)
            return {"left_out": type(value).__name__}

    def _write(self, value: Any, arrays: Arrays) -> Any:
        # Types are compared exactly: subclasses may mean anything.
        kind = type(value)
        if value is None or kind in (bool, str) or (kind is int and abs(value) < _MOST_INT):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind in (list, tuple):
            items = [self._write(item, arrays) for item in value]
            return items if kind is list else {"tuple": items}
        if kind is dict:
            return {"dict": [[self._write(x, arrays) for x in pair] for pair in value.items()]}
        if isinstance(value, np.generic) and kind.__name__ in _SCALARS:
            return {"scalar": [kind.__name__, self._write(value.item(), arrays)]}
        if isinstance(value, np.str_):
            return str(value)
        if kind is np.ndarray and value.dtype.kind == "U" and value.ndim == 1:
            return {"texts": value.tolist()}
        if kind is np.ndarray and value.dtype.kind == "O" and value.ndim == 1:
            return {"objects": [self._write(item, arrays) for item in value.tolist()]}
        if kind is np.ndarray:
            return arrays.add(value)
        if isinstance(value, LeftOut):
            return {"left_out": value.name}
        for name, known in self.objects.items():
            if known.knows(value):
                return {name: known.write(value, arrays)}
        if self.leaves_out:
            return {"left_out": type(value).__name__}
        raise ModelFileError(f"a value of type {type(value).__name__} cannot be saved")

    def read(self, data: Any, place: Place, scope: Scope) -> Any:
        if data is None or isinstance(data, bool | str | float):
            return data
        if isinstance(data, int):
            if abs(data) >= _MOST_INT:
                place.fail("is too large a number")
            return data
        if isinstance(data, list):
            return self._read_all(data, place, scope)
        if not isinstance(data, dict) or len(data) != 1:
            place.fail("holds an object of no known kind")
        ((kind, content),) = data.items()
        if kind == "array":
            return _ANY_ARRAY.read(data, place, scope)
        if kind == "float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if kind == "left_out" and isinstance(content, str):
            return LeftOut(content[:100])
        if kind in self.objects:
            return self.objects[kind].read(content, place, scope)
        if isinstance(content, list):
            return self._read_object(kind, content, place, scope)
        place.fail("holds an object of no known kind")

    def _read_all(self, data: list, place: Place, scope: Scope) -> list:
        return [self.read(item, inner, scope) for item, inner in place.items(data)]

    def _read_object(self, kind: str, content: list, place: Place, scope: Scope) -> Any:
        if kind == "tuple":
            return tuple(self._read_all(content, place, scope))
        if kind == "texts" and all(isinstance(item, str) for item in content):
            return np.array(content, dtype=str)
        if kind == "objects":
            array = np.empty(len(content), dtype=object)
            array[:] = self._read_all(content, place, scope)
            return array
        if kind == "dict" and all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            pairs = [self._read_all(pair, place, scope) for pair in content]
            try:
                return dict(pairs)
            except TypeError:
                place.fail("has a key that cannot be one")
        if kind == "scalar" and len(content) == 2 and content[0] in _SCALARS:
            value = self.read(content[1], place, scope)
            if not isinstance(value, bool | int | float):
                place.fail("is no number")
            try:
                return _SCALARS[content[0]](value)
            except (OverflowError, ValueError):
                place.fail(f"is no {content[0]}")
        place.fail("holds an object of no known kind")


@dataclass(frozen=True)
class Labels(Field):
    """An array (n,) of labels, no two alike: numbers, text, or objects of these kinds."""

    least: int = 1  # of the labels
    types: str = ""  # kinds of the array, as NumPy names them; any by default
    rising: bool = False

    def write(self, value: Any, arrays: Arrays) -> dict[str, Any]:
        return Plain().write(np.asarray(value), arrays)

    def read(self, data: Any, place: Place, scope: Scope) -> NDArray:
        labels = Plain().read(data, place, scope)
        if not isinstance(labels, np.ndarray) or labels.ndim != 1:
            place.fail("must be an array of labels")
        if len(labels) < self.least:
            place.fail(f"has less than {self.least} labels")
        kind, items = labels.dtype.kind, labels.tolist()
        is_plain = all(isinstance(v, str | int | float | np.generic) for v in items)
        if kind == "O" and self.rising:  # others may have no order
            is_plain = all(isinstance(v, str) for v in items)
        if (self.types and kind not in self.types) or not is_plain:
            place.fail("holds labels of a kind that is not allowed here")
        if kind == "f" and not np.isfinite(labels).all():
            place.fail("holds infinity or NaN")
        if len(set(items)) < len(items):
            place.fail("holds a label twice")
        if self.rising and (labels[1:] <= labels[:-1]).any():
            place.fail("must rise")
        return labels
