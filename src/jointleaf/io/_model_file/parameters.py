"""Schemas of penalties, losses and parameters."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from jointleaf import partitions
from jointleaf._core import losses, penalties
from jointleaf._core.arrays import DEVICES, is_whole
from jointleaf._core.penalties import Frobenius, PerTask, Sum, Term
from jointleaf._core.penalties.per_task import Scaled
from jointleaf.estimators._params import Checked, check_values
from jointleaf.io._model_file.schema import (
    Array,
    Arrays,
    Each,
    Field,
    Flag,
    Integer,
    Maybe,
    Number,
    Place,
    Record,
    Scope,
    Text,
    Variants,
    record,
)
from jointleaf.io._model_file.values import Plain
from jointleaf.partitions._base import LeftOut

_MOST_JOBS = 2**10

# -- penalties -----------------------------------------------------------------------------------

PENALTY = Variants({})


def _penalty(cls: Any, **fitted: Field) -> Record:
    """Return the schema of a penalty that is made with its parameters, which its class checks."""
    names = [name for name in inspect.signature(cls).parameters if name != "layout"]

    def make(s: Scope) -> Term:
        values = {name: getattr(s, name) for name in names}
        if cls is Frobenius and s.bias_follows:
            values["bias_strength"] = None
        term = cls(**values)
        for name in ("share", *fitted):
            setattr(term, name, getattr(s, name))
        return term

    return Record(cls, {**dict.fromkeys(names, Plain()), "share": Number(0.0), **fitted}, make)


_DIRTY: dict[str, Any] = {"ratio": Maybe(Number()), "support": Maybe(Array("b1", "? ?"))}
_NORMS = "L1", "L21", "LInf1", "Nuclear", "Lp1", "SchattenP", "KyFan", "GrOWL", "Laplacian", "Free"
PENALTY.add(
    *(_penalty(getattr(penalties, name)) for name in _NORMS),
    _penalty(Frobenius, bias_follows=Flag()),
    _penalty(penalties.DirtyLasso, **_DIRTY),
    _penalty(penalties.DirtyLInf, **_DIRTY),
    record(PerTask, penalty=PENALTY),
    record(Scaled, factor=Number(0.0), penalty=PENALTY),
    record(Sum, terms=Each(PENALTY, least=1), make=lambda s: Sum(*s.terms)),
)

# -- losses --------------------------------------------------------------------------------------

#: Of numbers; losses of the user's own are code, which a file does not hold.
LOSS = Variants(
    {}, "a model with loss={name} cannot be saved: model files hold {known}; use pickle or joblib"
)
LOSS.add(
    record(losses.SquaredError, make=lambda s: losses.SquaredError()),
    record(losses.AbsoluteError, make=lambda s: losses.AbsoluteError()),
    record(losses.Poisson, make=lambda s: losses.Poisson()),
    record(losses.Gamma, make=lambda s: losses.Gamma()),
    record(losses.Huber, delta=Maybe(Number(0.0)).must(lambda s: s.delta != 0, "must be positive")),
    record(
        losses.Quantile,
        quantile=Number(0.0).must(lambda s: 0 < s.quantile < 1, "must be between 0 and 1"),
    ),
    record(
        losses.Tweedie, power=Number(1.0).must(lambda s: 1 < s.power < 2, "must be between 1 and 2")
    ),
)

# -- parameters ----------------------------------------------------------------------------------


def _random_state(s: Scope) -> np.random.RandomState:
    random_state = np.random.RandomState()
    random_state.set_state(("MT19937", s.key, s.pos, s.has_gauss, s.gauss))
    return random_state


_RANDOM_STATE = record(
    np.random.RandomState,
    key=Array("u4", "624").of(lambda state: state.get_state()[1]),
    pos=Integer(0, 624).of(lambda state: state.get_state()[2]),
    has_gauss=Integer(0, 1).of(lambda state: state.get_state()[3]),
    gauss=Number().of(lambda state: state.get_state()[4]),
    make=_random_state,
)
#: Objects that parameters may be, besides plain values.
PARAMETER_KINDS = {
    "penalty": PENALTY,
    "loss": LOSS,
    "random_state": Variants({"RandomState": _RANDOM_STATE}),
}


@dataclass(frozen=True)
class Parameters(Field):
    """The parameters of an estimator or partitioner; those that a file lacks have their default.

    Partitioners, penalties and random states are stored as what they are; of anything else that is
    not plain, such as a trained model or a splitter, only the name of its class.
    """

    cls: type

    def get(self, owner: Any, name: str) -> Any:
        return owner

    def write(self, value: Any, arrays: Arrays) -> dict[str, Any]:
        plain = Plain(PARAMETER_KINDS, leaves_out=True)
        parameters = value.get_params(deep=False)
        return {name: plain.write(parameter, arrays) for name, parameter in parameters.items()}

    def read(self, data: Any, place: Place, scope: Scope) -> dict[str, Any]:
        if not isinstance(data, dict):
            place.fail("is no object")
        unknown = sorted(set(data) - _parameter_names(self.cls))
        if unknown:
            place.fail(f"has the unknown field {unknown[0][:40]!r}")
        plain = Plain(PARAMETER_KINDS)
        parameters = {k: plain.read(value, place.at(k), scope) for k, value in data.items()}
        self._check(parameters, place)
        return parameters

    def _check(self, parameters: dict[str, Any], place: Place) -> None:
        """Check parameters by the rules of `fit`, which a file might break unnoticed until then.

        For what was left out something stands in, and for a device that may not be here the CPU.
        """
        Text(DEVICES).read(parameters.get("device", "cpu"), place.at("device"), Scope())
        n_jobs = parameters.get("n_jobs")
        if n_jobs is not None and not (is_whole(n_jobs) and 0 < abs(int(n_jobs)) <= _MOST_JOBS):
            place.at("n_jobs").fail(f"must be null or a number of threads up to {_MOST_JOBS}")
        if not issubclass(self.cls, Checked):
            return  # partitioners, which check theirs when they are fitted
        values = {name: _stand_in(name, value) for name, value in parameters.items()}
        values = {
            name: value
            for name, value in values.items()
            if name != "device" and not isinstance(value, LeftOut)
        }
        try:
            with np.printoptions(threshold=10, edgeitems=2):  # in messages, of which part is shown
                check_values(self.cls(**values))
        except (TypeError, ValueError) as cause:
            place.fail(f"are not possible: {cause}")


@cache
def _parameter_names(cls: type) -> frozenset[str]:
    return frozenset(inspect.signature(cls).parameters)


def _stand_in(name: str, value: Any) -> Any:
    """Return a parameter with something in the place of penalties and models that were left out."""
    if name == "penalty" and isinstance(value, LeftOut):
        return Frobenius(1.0)
    if isinstance(value, list | tuple):
        return [partitions.RootCell() if isinstance(v, LeftOut) else v for v in value]
    return value
