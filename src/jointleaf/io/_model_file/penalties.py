"""Penalties: the class, from a fixed list, and what it was made with."""

from __future__ import annotations

from typing import Any

from jointleaf._core.penalties import (
    L1,
    L21,
    DirtyLasso,
    DirtyLInf,
    Free,
    Frobenius,
    GrOWL,
    KyFan,
    Laplacian,
    LInf1,
    Lp1,
    Nuclear,
    PerTask,
    SchattenP,
    Sum,
    TaskNorm,
    Term,
)
from jointleaf._core.penalties.per_task import Scaled
from jointleaf.io._model_file.errors import ModelFileError
from jointleaf.io._model_file.fields import Arrays, Part
from jointleaf.io._model_file.values import MOST_DEPTH, read_plain, write_plain

__all__ = ["knows_penalty", "read_penalty", "write_penalty"]

#: What each penalty is made with, besides its share of a common strength.
_MADE_WITH: dict[type[Term], tuple[str, ...]] = {
    **dict.fromkeys((L1, L21, LInf1, Nuclear), ("strength", "bias_strength")),
    **dict.fromkeys((Lp1, SchattenP), ("strength", "p", "bias_strength")),
    KyFan: ("strength", "k", "bias_strength"),
    GrOWL: ("strength", "weights", "bias_strength"),
    Frobenius: ("strength", "bias_strength", "feature_weights", "partition_weights"),
    Laplacian: ("strength", "bandwidth", "kind", "graph", "n_neighbors"),
    **dict.fromkeys((DirtyLasso, DirtyLInf), ("common", "task", "bias_strength", "relax")),
    Free: (),
}
_AROUND: tuple[type[Term], ...] = (PerTask, Scaled, Sum)
_CLASSES: dict[str, type[Term]] = {cls.__name__: cls for cls in (*_MADE_WITH, *_AROUND)}


def knows_penalty(term: Any) -> bool:
    """Whether a penalty, with all that it is made of, can be saved."""
    if isinstance(term, Sum) and type(term) is Sum:
        return all(knows_penalty(own) for own in term.terms)
    if type(term) in (PerTask, Scaled):
        return knows_penalty(term.penalty)
    return type(term) in _MADE_WITH


def write_penalty(term: Any, arrays: Arrays) -> dict[str, Any]:
    """Give JSON for a penalty that `knows_penalty`."""
    data: dict[str, Any] = {"class": type(term).__name__}
    if isinstance(term, Sum):
        data["terms"] = [write_penalty(own, arrays) for own in term.terms]
        return data
    if isinstance(term, PerTask | Scaled):
        data["penalty"] = write_penalty(term.penalty, arrays)
        if isinstance(term, Scaled):
            data["factor"] = float(term.factor)
        return data
    for name in _MADE_WITH[type(term)]:
        data[name] = write_plain(getattr(term, name), arrays)
    data["share"] = float(term.share)
    if isinstance(term, Frobenius):
        data["bias_follows"] = bool(term.bias_follows)
    if isinstance(term, TaskNorm):
        data["ratio"] = write_plain(term.ratio, arrays)
        data["support"] = arrays.maybe(term.support)
    return data


def read_penalty(part: Part, depth: int = 0) -> Term:
    """Read a penalty; its class checks what it is made with."""
    if depth > MOST_DEPTH:
        part.fail("is nested too deeply")
    cls = _CLASSES[part.choice("class", tuple(_CLASSES))]
    try:
        term = _read(part, cls, depth)
    except ModelFileError:
        raise
    except (TypeError, ValueError, OverflowError) as cause:
        part.fail(f"is no {cls.__name__} that can be: {cause}")
    part.close()
    return term


def _read(part: Part, cls: Any, depth: int) -> Term:
    if cls is Sum:
        terms = [read_penalty(own, depth + 1) for own in part.children("terms")]
        if not terms:
            part.fail("is empty", "terms")
        return Sum(*terms)
    if cls in (PerTask, Scaled):
        inner: Any = read_penalty(part.child("penalty"), depth + 1)
        return PerTask(inner) if cls is PerTask else Scaled(part.number("factor", 0.0), inner)
    values = {name: read_plain(part, name) for name in _MADE_WITH[cls]}
    if cls is Frobenius and part.flag("bias_follows"):
        values["bias_strength"] = None
    term = cls(**values)
    term.share = part.number("share", 0.0)
    if isinstance(term, TaskNorm):
        ratio = read_plain(part, "ratio")
        if ratio is not None and type(ratio) is not float:
            part.fail("must be a number", "ratio")
        term.ratio = ratio
        term.support = part.maybe_array("support", "b1", (None, None))
    return term
