"""Plain values, as parameters and labels hold them: numbers, text, lists, dicts, arrays.

JSON's own null, true, false, numbers, text and lists stand for themselves; everything else is an
object with one key that says what it is: ``float`` (infinities and NaN), ``tuple``, ``dict`` (a
list of pairs), ``scalar`` (of NumPy: type and value), ``array``, ``texts`` (an array of text),
``objects`` (an array of Python objects), ``left_out`` (the name of a class that is not saved), and
in parameters also ``partitioner``, ``penalty`` and ``random_state``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf.io._model_file.container import TYPES, ModelFileError
from jointleaf.io._model_file.schema import Array, Arrays, Field, Place, Scope
from jointleaf.partitions._base import LeftOut

_SCALARS = {t.__name__: t for t in (np.dtype(name).type for name in TYPES)}
_MOST_INT = 2**63
_MOST_COLLISIONS = 8  # keys of one hash: more are made so that dicts are slow
_MOST_KEYS = 2**14  # that are no text: whoever knows their hashes can make dicts slow with others
_PAIR_BYTES = 0.15  # of two such keys: a price of the time if each is met on the way to the other
_ITEM_BYTES = 64  # of a value in a list, and as a price of the time that it takes
_VALUE_BYTES = 2**14  # of an array or object among parameters, with its text in an error message
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
            number = value.item()
            is_largest = kind is np.uint64  # beyond whole numbers of Python that are taken
            return {
                "scalar": [kind.__name__, number if is_largest else self._write(number, arrays)]
            }
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
            place.budget.spend(_VALUE_BYTES if self.objects else 0)
            return _ANY_ARRAY.read(data, place, scope)
        if kind == "float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if kind == "left_out" and isinstance(content, str):
            return LeftOut(content[:100])
        if kind in self.objects:
            place.budget.spend(_VALUE_BYTES)
            return self.objects[kind].read(content, place, scope)
        if isinstance(content, list):
            return self._read_object(kind, content, place, scope)
        place.fail("holds an object of no known kind")

    def _read_all(self, data: list, place: Place, scope: Scope) -> list:
        place.budget.spend(_ITEM_BYTES * len(data))
        return [self.read(item, inner, scope) for item, inner in place.items(data)]

    def _read_object(self, kind: str, content: list, place: Place, scope: Scope) -> Any:
        if kind == "tuple":
            return tuple(self._read_all(content, place, scope))
        if kind == "texts" and all(isinstance(item, str) for item in content):
            # All are as long as the longest.
            place.budget.spend(4 * len(content) * max(map(len, content), default=0))
            return np.array(content, dtype=str)
        if kind == "objects":
            array = np.empty(len(content), dtype=object)
            for i, value in enumerate(self._read_all(content, place, scope)):
                array[i] = value  # one by one: NumPy would look into lists
            return array
        if kind == "dict" and all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            pairs = [self._read_all(pair, place, scope) for pair in content]
            check_keys([pair[0] for pair in pairs], place)
            return dict(pairs)
        if kind == "scalar" and len(content) == 2 and content[0] in list(_SCALARS):
            value = content[1]
            if type(value) is not int or value >= 2**64:  # which uint64 needs
                value = self.read(value, place, scope)
            if not isinstance(value, bool | int | float):
                place.fail("is no number")
            try:
                return _SCALARS[content[0]](value)
            except (OverflowError, ValueError):
                place.fail(f"is no {content[0]}")
        place.fail("holds an object of no known kind")


def check_keys(keys: list, place: Place) -> None:
    """Check that values can be keys of a dict, and were not chosen to be slow to look up."""
    n_known = sum(not isinstance(key, str) for key in keys)
    if n_known > _MOST_KEYS:
        place.fail(f"has more than {_MOST_KEYS} keys that are no text")
    place.budget.spend(_PAIR_BYTES * n_known**2)
    try:
        hashes = [hash(key) for key in keys]
    except TypeError:
        place.fail("has a key that cannot be one")
    if max(Counter(hashes).values(), default=0) > _MOST_COLLISIONS:
        place.fail("has keys that were chosen to be slow to look up")


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
        place.budget.spend(labels.nbytes)
        kind = labels.dtype.kind
        if (self.types and kind not in self.types) or not self._are_plain(labels):
            place.fail("holds labels of a kind that is not allowed here")
        if kind == "f" and not np.isfinite(labels).all():
            place.fail("holds infinity or NaN")
        if kind == "O":
            check_keys(labels.tolist(), place)
        distinct: Any = set(labels.tolist()) if kind in "OU" else np.unique(labels)
        if len(distinct) < len(labels):
            place.fail("holds a label twice")
        if self.rising and (labels[1:] <= labels[:-1]).any():
            place.fail("must rise")
        return labels

    def _are_plain(self, labels: NDArray) -> bool:
        """Whether objects are numbers or text; those in the place of texts text alone."""
        plain = (str,) if self.types else (str, int, float, np.generic)
        return labels.dtype != object or all(isinstance(label, plain) for label in labels.tolist())
