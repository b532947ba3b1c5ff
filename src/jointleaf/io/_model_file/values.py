"""Plain values, as parameters and labels hold them: numbers, text, lists, dicts, arrays.

JSON's own null, true, false, numbers, text and lists stand for themselves; everything else is an
object with one key that says what it is: ``float`` (infinities and NaN), ``tuple``, ``dict`` (a
list of pairs), ``scalar`` (of NumPy: type and value), ``array``, ``texts`` (an array of text),
``objects`` (an array of Python objects), ``left_out`` (the name of a class that is not saved), and
in parameters also ``partitioner``, ``penalty`` and ``random_state``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.io._model_file.errors import ModelFileError
from jointleaf.io._model_file.fields import Arrays, Part
from jointleaf.partitions._fitted import LeftOut

__all__ = ["MOST_DEPTH", "is_plain", "read_labels", "read_plain", "write_labels", "write_plain"]

_SCALARS = {
    t.__name__: t
    for t in (
        *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32),
        *(np.uint64, np.float16, np.float32, np.float64),
    )
}
#: Objects that are not plain, which callers read and write.
OBJECTS = ("partitioner", "penalty", "random_state")
#: Lists and objects inside each other.
MOST_DEPTH = 40
_MOST_INT = 2**128


def write_plain(
    value: Any, arrays: Arrays, other: Callable[[Any], Any] | None = None, depth: int = 0
) -> Any:
    """Give JSON for a value; `other` does so for objects that are not plain, by default refused.

    Types are compared exactly: subclasses may mean anything.
    """
    if depth > MOST_DEPTH:
        raise ModelFileError("a parameter is nested too deeply to be saved")
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int and abs(value) < _MOST_INT:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) in (list, tuple):
        found = [write_plain(v, arrays, other, depth + 1) for v in value]
        return found if type(value) is list else {"tuple": found}
    if type(value) is dict:
        pairs = [
            [write_plain(part, arrays, other, depth + 1) for part in pair] for pair in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, np.generic) and type(value).__name__ in _SCALARS:
        return {"scalar": [type(value).__name__, write_plain(value.item(), arrays)]}
    if isinstance(value, np.str_):
        return str(value)
    if type(value) is np.ndarray:
        return write_labels(value, arrays)
    if isinstance(value, LeftOut):
        return {"left_out": value.name}
    if other is not None:
        return other(value)
    raise ModelFileError(f"a value of type {type(value).__name__} cannot be saved")


def is_plain(value: Any) -> bool:
    """Whether `write_plain` can write a value."""
    try:
        write_plain(value, Arrays())
    except ModelFileError:
        return False
    return True


def write_labels(array: NDArray, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for an array of numbers, text or objects that are plain."""
    if array.dtype.kind == "U" and array.ndim == 1:
        return {"texts": array.tolist()}
    if array.dtype.kind == "O" and array.ndim == 1:
        return {"objects": [write_plain(value, arrays) for value in array.tolist()]}
    return arrays.add(array)


def read_plain(
    part: Part,
    name: str,
    other: Callable[[str, Any, str], Any] | None = None,
) -> Any:
    """Give the value of a field; `other` reads objects that are not plain."""
    return _Reader(part, other).read(part.get(name), f"{part.path}.{name}", 0)


class _Reader:
    """Reads values of one part."""

    def __init__(self, part: Part, other: Callable[[str, Any, str], Any] | None) -> None:
        self._arrays = part.arrays
        self._other = other

    def read(self, value: Any, path: str, depth: int) -> Any:
        if depth > MOST_DEPTH:
            raise ModelFileError(f"{path} is nested too deeply")
        if value is None or isinstance(value, bool | str | float):
            return value
        if isinstance(value, int):
            if abs(value) >= _MOST_INT:
                raise ModelFileError(f"{path} is too large a number")
            return value
        if isinstance(value, list):
            return [self.read(v, path, depth + 1) for v in value]
        if not isinstance(value, dict) or len(value) != 1:
            raise ModelFileError(f"{path} holds an object of no known kind")
        ((kind, content),) = value.items()
        return self._object(kind, content, path, depth)

    def _object(self, kind: str, content: Any, path: str, depth: int) -> Any:
        if kind == "array":
            part = Part({"value": {"array": content}}, self._arrays, path)
            return part.array("value", "b1 i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8")
        if kind == "float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if kind == "left_out" and isinstance(content, str):
            return LeftOut(content[:100])
        if kind in OBJECTS and self._other is not None:
            return self._other(kind, content, path)
        if not isinstance(content, list):
            raise ModelFileError(f"{path} holds an object of no known kind")
        if kind == "tuple":
            return tuple(self.read(v, path, depth + 1) for v in content)
        if kind == "texts" and all(isinstance(v, str) for v in content):
            return np.array(content, dtype=str)
        if kind == "objects":
            return _objects([self.read(v, path, depth + 1) for v in content])
        if kind == "dict" and all(isinstance(v, list) and len(v) == 2 for v in content):
            return self._dict(content, path, depth)
        if kind == "scalar" and len(content) == 2 and content[0] in _SCALARS:
            return self._scalar(content[0], self.read(content[1], path, depth + 1), path)
        raise ModelFileError(f"{path} holds an object of no known kind")

    def _dict(self, pairs: list, path: str, depth: int) -> dict:
        found = {}
        for pair in pairs:
            key, value = (self.read(v, path, depth + 1) for v in pair)
            try:
                found[key] = value
            except TypeError:
                raise ModelFileError(f"{path} has a key that cannot be one") from None
        return found

    def _scalar(self, kind: str, value: Any, path: str) -> np.generic:
        if not isinstance(value, bool | int | float):
            raise ModelFileError(f"{path} is no number")
        try:
            return _SCALARS[kind](value)
        except (OverflowError, ValueError):
            raise ModelFileError(f"{path} is no {kind}") from None


def _objects(values: list) -> NDArray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def read_labels(part: Part, name: str, length: int | None = None) -> NDArray:
    """Give an array (length,) of labels, no two alike: numbers, text, or objects of one kind."""
    labels = read_plain(part, name)
    if not isinstance(labels, np.ndarray) or labels.ndim != 1:
        part.fail("must be an array of labels", name)
    if length is not None and len(labels) != length:
        part.fail(f"has {len(labels)} labels, but must have {length}", name)
    if labels.dtype.kind == "O" and not all(
        isinstance(v, str | int | float | np.generic) for v in labels.tolist()
    ):
        part.fail("holds labels of a strange kind", name)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        part.fail("holds infinity or NaN", name)
    if len(set(labels.tolist())) < len(labels):
        part.fail("holds a label twice", name)
    return labels
