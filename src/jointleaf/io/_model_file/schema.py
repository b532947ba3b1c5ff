"""Schemas: the fields of a class, and the one walker that writes and reads objects by them.

`record(cls, name=field, ...)` lists what is stored of an object. Writing takes the attributes of
the object; reading takes the fields in the same order, checks each, and makes the object. What was
read so far, also of the objects around, is the scope that shapes, bounds and conditions refer to;
`Let` adds to it what follows from the fields before.

All that is read may be damaged: nothing is used before it was checked, and every failure is a
`ModelFileError` that names the field.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from jointleaf.io._model_file.container import TYPES, Budget, ModelFileError, in_order, order_of

F = TypeVar("F", bound="Field")
#: What was read so far, by name.
Scope = SimpleNamespace
#: A number, the name of one in the scope, or a function of the scope.
Size = int | float | str | Callable[[Scope], Any] | None

_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_MOST_INT = 2**63 - 1
_MOST_FLOAT = sys.float_info.max
_MOST_DEPTH = 160  # objects and lists inside each other
_MOST_PATH = 160  # characters of a place in a message
_OBJECT_BYTES = 512  # of an object with its attributes, about


class Arrays:
    """Arrays of a file that is written; equal ones are stored once."""

    def __init__(self) -> None:
        self.stored: list[NDArray] = []
        self._numbers: dict[tuple, int] = {}

    def add(self, array: Any) -> dict[str, int]:
        """Store an array of numbers or truth values, and return the reference to it."""
        array = np.asarray(array)
        if array.dtype.newbyteorder("<").str not in TYPES:
            raise ModelFileError(
                f"arrays of type {array.dtype} cannot be saved: model files hold numbers, truth "
                "values and text"
            )
        # A digest instead of the numbers: memory for a second copy of a model is not needed.
        digest = hashlib.blake2b(in_order(array).data).digest()
        key = (array.dtype.str, array.shape, order_of(array), digest)
        number = self._numbers.setdefault(key, len(self.stored))
        if number == len(self.stored):
            self.stored.append(array)
        return {"array": number}

    def forget(self, start: int) -> None:
        """Remove the arrays from number `start` on, which nothing refers to."""
        del self.stored[start:]
        self._numbers = {key: n for key, n in self._numbers.items() if n < start}


@dataclass(frozen=True)
class Place:
    """Where a value is in a file that is read, the arrays of that file, and its budget."""

    path: str
    arrays: list[NDArray]
    budget: Budget
    converted: dict[tuple[int, Any], NDArray] = field(default_factory=dict)
    depth: int = 0

    def at(self, name: str) -> Place:
        """Return the place of a field; of the object itself where the name is empty."""
        return self._inside(f"{self.path}.{name}") if name else self

    def items(self, values: list) -> Iterator[tuple[Any, Place]]:
        """Yield the values of a list with their places."""
        for i, value in enumerate(values):
            yield value, self._inside(f"{self.path}[{i}]")

    def _inside(self, path: str) -> Place:
        if self.depth > _MOST_DEPTH:
            self.fail("is nested too deeply")
        return Place(path, self.arrays, self.budget, self.converted, self.depth + 1)

    def array(self, number: int, dtype: Any = None) -> NDArray:
        """Return an array of the file, converted once for all that refer to it."""
        array = self.arrays[number]
        if dtype is None or array.dtype == dtype:
            return array
        if (number, dtype) not in self.converted:
            self.budget.spend(array.size * np.dtype(dtype).itemsize)
            self.converted[number, dtype] = array.astype(dtype)
        return self.converted[number, dtype]

    def fail(self, problem: str) -> NoReturn:
        """Raise the error of a file that is not valid here."""
        path = self.path
        if len(path) > _MOST_PATH:  # so that the problem is in the message
            path = f"{path[: _MOST_PATH // 2]}...{path[-_MOST_PATH // 2 :]}"
        raise ModelFileError(f"{path} {problem}")


def _resolve(size: Size, scope: Scope) -> Any:
    if isinstance(size, str):
        return getattr(scope, size)
    return size(scope) if callable(size) else size


# -- single values -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Field:
    """How one value is written to JSON, and read with every check."""

    json_type: ClassVar[type[Any]]  # of fields that are a single value
    attribute: str | Callable[[Any], Any] | None = None
    optional: bool = False
    checks: tuple[tuple[Callable[[Scope], Any], str], ...] = ()

    def of(self: F, attribute: str | Callable[[Any], Any], *, optional: bool = False) -> F:
        """Return the field for another attribute than its name; objects may lack optional ones."""
        return replace(self, attribute=attribute, optional=optional)

    def must(self: F, condition: Callable[[Scope], Any], problem: str) -> F:
        """Return the field with a condition, of all that was read up to it."""
        return replace(self, checks=(*self.checks, (condition, problem)))

    def get(self, owner: Any, name: str) -> Any:
        """Return the value of the field `name` in an object that is written."""
        attribute = self.attribute or name
        if callable(attribute):
            return attribute(owner)
        return getattr(owner, attribute, None) if self.optional else getattr(owner, attribute)

    def write(self, value: Any, arrays: Arrays) -> Any:
        """Return the JSON of a value, adding its arrays."""
        return self.json_type(value)

    def read(self, data: Any, place: Place, scope: Scope) -> Any:
        """Return the value that JSON holds."""
        raise NotImplementedError


@dataclass(frozen=True)
class Flag(Field):
    """A truth value."""

    json_type = bool

    def read(self, data: Any, place: Place, scope: Scope) -> bool:
        if not isinstance(data, bool):
            place.fail("must be true or false")
        return data


@dataclass(frozen=True)
class Integer(Field):
    """A whole number from low to high."""

    json_type = int
    low: Size = 0
    high: Size = _MOST_INT

    def read(self, data: Any, place: Place, scope: Scope) -> int:
        low, high = _resolve(self.low, scope), _resolve(self.high, scope)
        if type(data) is not int or not low <= data <= high:
            place.fail(f"must be a whole number from {low} to {high}")
        return data


@dataclass(frozen=True)
class Number(Field):
    """A number from low on; infinities and NaN, as text, only where it need not be finite."""

    low: float = -math.inf
    finite: bool = True

    def write(self, value: Any, arrays: Arrays) -> float | str:
        number = float(value)
        return number if math.isfinite(number) else str(number)

    def read(self, data: Any, place: Place, scope: Scope) -> float:
        if isinstance(data, str) and not self.finite and data in _NOT_FINITE:
            return _NOT_FINITE[data]
        is_number = type(data) in (int, float)
        if not is_number or not max(self.low, -_MOST_FLOAT) <= data <= _MOST_FLOAT:
            place.fail(f"must be a finite number from {self.low} on")
        return float(data)


@dataclass(frozen=True)
class Text(Field):
    """A text, one of `choices` if there are some."""

    json_type = str
    choices: Sequence[str] = ()

    def read(self, data: Any, place: Place, scope: Scope) -> str:
        if not isinstance(data, str):
            place.fail("must be text")
        if self.choices and data not in self.choices:
            place.fail(f"is {data[:40]!r}, which is not known")
        return data


@dataclass(frozen=True)
class Array(Field):
    """An array of numbers or truth values.

    Its shape is that of lengths, as numbers or names in the scope, ``#name`` for the length of what
    has that name, ``*name`` for a tuple of lengths, and ``?`` where they are free.
    """

    types: str = "f8"  # allowed, as NumPy writes them, for example "f4 f8"
    shape: str | None = "?"  # None for any
    finite: bool = False  # whether infinities and NaN are errors
    low: Size = None  # bounds of the numbers
    stop: Size = None
    rising: bool = False  # strictly
    dtype: Any = None  # in which it is written, and given to the object that is made
    cost: float = 0.25  # per byte: of checks, or of what is made of it

    def write(self, value: Any, arrays: Arrays) -> dict[str, int]:
        return arrays.add(np.asarray(value, self.dtype))

    def read(self, data: Any, place: Place, scope: Scope) -> NDArray:
        number = data.get("array") if isinstance(data, dict) and len(data) == 1 else None
        if type(number) is not int or not 0 <= number < len(place.arrays):
            place.fail("must be a reference to an array")
        array = place.arrays[number]
        place.budget.spend(self.cost * array.nbytes)
        if array.dtype.str[1:] not in self.types.split():
            place.fail(f"has type {array.dtype}, but must have one of {self.types}")
        if self.shape is not None:
            shape = self._lengths(scope)
            free = tuple(n if m is None else m for n, m in zip(array.shape, shape, strict=False))
            if len(shape) != array.ndim or free != array.shape:
                expected = str(shape).replace("None", "any")
                place.fail(f"has shape {array.shape}, but must have {expected}")
        if self.finite and not np.isfinite(array).all():
            place.fail("holds infinity or NaN")
        low, stop = _resolve(self.low, scope), _resolve(self.stop, scope)
        if array.size and low is not None and array.min() < low:
            place.fail(f"holds numbers below {low}")
        if array.size and stop is not None and array.max() >= stop:
            place.fail(f"holds numbers above {stop - 1}")
        if self.rising and (array[1:] <= array[:-1]).any():
            place.fail("must rise")
        return place.array(number, self.dtype)

    def _lengths(self, scope: Scope) -> tuple[int | None, ...]:
        lengths: list[int | None] = []
        for name in (self.shape or "").split():
            if name[0] == "*":
                lengths += getattr(scope, name[1:])
            elif name[0] == "#":
                lengths.append(len(getattr(scope, name[1:])))
            elif name == "?":
                lengths.append(None)
            else:
                lengths.append(int(name) if name.isdigit() else getattr(scope, name))
        return tuple(lengths)


def indices(stop: Size = 2**31, shape: str = "?", low: Size = 0, *, rising: bool = False) -> Array:
    """Return the field of whole numbers from low to stop - 1."""
    return Array("i4 i8", shape, low=low, stop=stop, rising=rising, dtype=np.intp)


# -- values made of others -----------------------------------------------------------------------


@dataclass(frozen=True)
class Maybe(Field):
    """A value, or null for None."""

    field: Field

    def write(self, value: Any, arrays: Arrays) -> Any:
        return None if value is None else self.field.write(value, arrays)

    def read(self, data: Any, place: Place, scope: Scope) -> Any:
        return None if data is None else self.field.read(data, place, scope)


@dataclass(frozen=True)
class Each(Field):
    """A list of values of one kind, of a given length or not empty where `least` is 1."""

    field: Field
    length: Size = None
    least: int = 0

    def write(self, value: Any, arrays: Arrays) -> list:
        return [self.field.write(item, arrays) for item in value]

    def read(self, data: Any, place: Place, scope: Scope) -> tuple:
        if not isinstance(data, list):
            place.fail("must be a list")
        length = _resolve(self.length, scope)
        if length is not None and len(data) != length:
            place.fail(f"has {len(data)} entries, but must have {length}")
        if len(data) < self.least:
            place.fail("is empty")
        return tuple(self.field.read(item, inner, scope) for item, inner in place.items(data))


@dataclass(frozen=True)
class Made(Field):
    """A value that is written as another one, `take(value)`, and made from it again."""

    field: Field
    make: Callable[[Any], Any]
    take: Callable[[Any], Any] | None = None

    def write(self, value: Any, arrays: Arrays) -> Any:
        return self.field.write(value if self.take is None else self.take(value), arrays)

    def read(self, data: Any, place: Place, scope: Scope) -> Any:
        return self.make(self.field.read(data, place, scope))


@dataclass(frozen=True)
class ByTask(Field):
    """A dict with a value for every task, in a list in the order of ``task_names`` of the scope."""

    field: Field

    def write(self, value: Any, arrays: Arrays) -> list:
        return Each(self.field).write(value.values(), arrays)

    def read(self, data: Any, place: Place, scope: Scope) -> dict:
        values = Each(self.field, len(scope.task_names)).read(data, place, scope)
        return dict(zip(scope.task_names, values, strict=True))


# -- objects -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Let:
    """A value that follows from what was read before; it is not in the file."""

    function: Callable[[Scope], Any]


@dataclass(frozen=True)
class Record(Field):
    """An object; see the module's description.

    `make` makes it of the scope; by default `cls` is called with all fields by their attributes.
    Rules are the name of a field, a condition of the object, and the problem where it fails.
    `cost` is how many bytes the object takes that are not those of arrays of the file.
    """

    cls: type
    steps: dict[str, Field | Let]
    make: Callable[[Scope], Any] | None = None
    rules: tuple[tuple[str, Callable[[Any], Any], str], ...] = ()
    cost: Size = 0

    @property
    def fields(self) -> dict[str, Field]:
        """What is in the file, by name."""
        return {name: step for name, step in self.steps.items() if isinstance(step, Field)}

    def write(self, value: Any, arrays: Arrays) -> dict[str, Any]:
        return {k: field.write(field.get(value, k), arrays) for k, field in self.fields.items()}

    def read(self, data: Any, place: Place, scope: Scope) -> Any:
        if not isinstance(data, dict):
            place.fail("is no object")
        try:
            made = self._read_fields(data, place, Scope(**vars(scope)))
        except ModelFileError:
            raise
        except (TypeError, ValueError, OverflowError) as cause:
            place.fail(f"is no {self.cls.__name__} that can be: {cause}")
        for name, condition, problem in self.rules:
            if not condition(made):
                place.at(name).fail(problem)
        return made

    def _read_fields(self, data: dict[str, Any], place: Place, scope: Scope) -> Any:
        for name, step in self.steps.items():
            if isinstance(step, Let):
                setattr(scope, name, step.function(scope))
                continue
            inner = place.at(name)
            if name not in data:
                inner.fail("is missing")
            setattr(scope, name, step.read(data[name], inner, scope))
            for condition, problem in step.checks:
                if not condition(scope):
                    inner.fail(problem)
        unknown = sorted(set(data) - set(self.fields))
        if unknown:
            place.fail(f"has the unknown field {unknown[0][:40]!r}")
        place.budget.spend(_OBJECT_BYTES + _resolve(self.cost, scope))
        if self.make is not None:
            return self.make(scope)
        names = {name: field.attribute or name for name, field in self.fields.items()}
        return self.cls(**{str(names[name]): getattr(scope, name) for name in names})


def record(
    cls: type,
    make: Callable[[Scope], Any] | None = None,
    rules: tuple[tuple[str, Callable[[Any], Any], str], ...] = (),
    cost: Size = 0,
    **steps: Field | Let,
) -> Record:
    """Return the field of objects of a class; see `Record`."""
    return Record(cls, steps, make, rules, cost)


@dataclass(frozen=True)
class Variants(Field):
    """An object of one of several classes, whose name is the field ``class``.

    Classes are looked up in a fixed list: no name in a file is ever imported.
    """

    records: dict[str, Record]
    refusal: str = "a {name} cannot be saved: model files hold {known}"

    def add(self, *records: Record) -> None:
        """Add classes."""
        self.records.update({record.cls.__name__: record for record in records})

    def knows(self, value: Any) -> bool:
        """Whether an object is of one of the classes."""
        known = self.records.get(type(value).__name__)
        return known is not None and known.cls is type(value)

    def write(self, value: Any, arrays: Arrays) -> dict[str, Any]:
        name = type(value).__name__
        if not self.knows(value):
            raise ModelFileError(self.refusal.format(name=name, known=", ".join(self.records)))
        return {"class": name, **self.records[name].write(value, arrays)}

    def read(self, data: Any, place: Place, scope: Scope) -> Any:
        if not isinstance(data, dict):
            place.fail("is no object")
        known = Text(tuple(self.records))
        name = known.read(data.get("class"), place.at("class"), scope)
        fields = {key: value for key, value in data.items() if key != "class"}
        return self.records[name].read(fields, place, scope)
