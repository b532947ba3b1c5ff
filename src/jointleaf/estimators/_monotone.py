"""Monotone constraints of the estimators: the parameter, what it refuses, and the certificate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.penalties import Frobenius
from jointleaf._data.columns import Columns
from jointleaf.estimators._params import JOPLEnParameters

if TYPE_CHECKING:
    from jointleaf._model.cell_model import CellModel
    from jointleaf._model.monotone import MonotoneCertificate

#: Names of monotone constraints in LightGBM (with its aliases), XGBoost, CatBoost, scikit-learn.
_TREE_CONSTRAINTS = (
    "monotone_constraints", "monotonic_cst", "mc", "monotone_constraint", "monotonic_constraints",
)  # fmt: skip


@dataclass(eq=False, repr=False)
class MonotoneParameters(JOPLEnParameters):
    """The parameter of monotone constraints, for estimators of a single task."""

    columns_: Columns = field(init=False)
    cell_model_: CellModel = field(init=False)
    _: KW_ONLY
    monotonic_cst: Any = None

    def certify_monotonic(self) -> MonotoneCertificate:
        """Check on the weights of the fitted model that it is monotone, for all rows whatsoever.

        With ``monotonic_cst`` the inequalities hold for every fitted model, which `fit` checks.

        Returns
        -------
        MonotoneCertificate
            The inequalities that were checked; see ``holds``.
        """
        from jointleaf._model.monotone import certify

        check_is_fitted(self)
        signs = read_signs(self.monotonic_cst, self.columns_)
        if signs is None:
            raise ValueError(
                f"monotonic_cst={self.monotonic_cst!r} constrains no column: fit with constraints"
            )
        names = {c.label: int(sign) for c, sign in zip(self.columns_, signs, strict=False) if sign}
        return certify(self.cell_model_, signs, names)


def check_constraints(
    estimator: MonotoneParameters, signs: NDArray[np.intp] | None, n_classes: int
) -> None:
    """Raise for parameters with which constraints cannot be kept, before any work is done."""
    from jointleaf.partitions import RotatedPartitioner, VoronoiPartitioner, make_partitioner

    if signs is None:
        _check_lost(estimator.partitioner)
        return
    if n_classes > 2:
        raise ValueError(
            f"monotonic_cst is for two classes, but y holds {n_classes}: leave it out, or fit "
            "one class against the others"
        )
    if estimator.time_budget is not None:
        raise ValueError(
            f"monotonic_cst is not possible with time_budget={estimator.time_budget!r}: leave one "
            "of them out"
        )
    if not isinstance(estimator.cells, str):
        raise ValueError(
            f"monotonic_cst is not possible with cells={estimator.cells!r}: use one word for all "
            "partitions, and those that split on constrained columns are constant"
        )
    if not (isinstance(estimator.penalty, str) or type(estimator.penalty) is Frobenius):
        raise ValueError(
            f"monotonic_cst is not possible with penalty={estimator.penalty!r}: use 'auto' or "
            "Frobenius"
        )
    for name, known in (("solver", ("auto", "fista")), ("device", ("auto", "cpu"))):
        if getattr(estimator, name) not in known:
            raise ValueError(
                f"monotonic_cst is not possible with {name}={getattr(estimator, name)!r}: use "
                f"{known[0]!r} or {known[1]!r}"
            )
    if isinstance(estimator.partitioner, str) and estimator.partitioner == "auto":
        return
    for member in make_partitioner(estimator.partitioner).nested():
        if isinstance(member, RotatedPartitioner | VoronoiPartitioner):
            raise ValueError(
                f"monotonic_cst is not possible with a {type(member).__name__}, whose cells "
                "mix columns: use partitions of trees, such as 'lightgbm'"
            )


def _check_lost(partitioner: Any) -> None:
    """Raise for constraints on trees alone, which a joint fit of their cells would not keep."""
    from jointleaf.partitions import make_partitioner

    if isinstance(partitioner, str):
        return
    for member in make_partitioner(partitioner).nested():
        options = getattr(member, "options", None) or {}
        name = next((name for name in _TREE_CONSTRAINTS if name in options), None)
        if name is not None and np.any(options[name]):
            raise ValueError(
                f"{name}={options[name]!r} in the options of a {type(member).__name__} is of its "
                "trees alone, and a joint fit of their cells would not keep it: give the estimator "
                "monotonic_cst= instead"
            )


def check_certificate(estimator: MonotoneParameters) -> None:
    """Raise where a fitted model is not what was promised."""
    if read_signs(estimator.monotonic_cst, estimator.columns_) is None:
        return
    certificate = estimator.certify_monotonic()
    if not certificate.holds:
        raise RuntimeError(
            f"the fitted model does not keep monotonic_cst ({certificate}), which is a defect: "
            "please report it, and use partitioner='lightgbm' meanwhile"
        )


def read_signs(monotonic_cst: Any, columns: Columns) -> NDArray[np.intp] | None:
    """Return the sign of every column that a model sees; None where none is constrained."""
    if monotonic_cst is None:
        return None
    labels, d = [column.label for column in columns], len(columns)
    if isinstance(monotonic_cst, Mapping):
        unknown = [name for name in monotonic_cst if name not in labels]
        if unknown:
            raise ValueError(
                f"monotonic_cst names {unknown[0]!r}, but the columns are {labels}: use these names"
            )
        values = [monotonic_cst.get(label, 0) for label in labels]
    elif isinstance(monotonic_cst, Iterable) and not isinstance(monotonic_cst, str):
        values = list(monotonic_cst)
    else:
        raise TypeError(
            f"monotonic_cst={monotonic_cst!r} must be one of -1, 0 and 1 for every column, a dict "
            "of these by column name, or None"
        )
    if len(values) != d:
        raise ValueError(
            f"monotonic_cst has {len(values)} values, but X has {d} columns: use one of -1, 0 and "
            "1 for every column, or a dict by column name"
        )
    signs = np.zeros(len(columns.of_matrix()), np.intp)
    for j, value in enumerate(values):
        if isinstance(value, bool | np.bool_) or value not in (-1, 0, 1):
            raise ValueError(
                f"monotonic_cst holds {value!r} for column {labels[j]!r}: use 1 for a prediction "
                "that rises with it, -1 for one that falls, or 0"
            )
        signs[j] = value
    of_categories = np.flatnonzero((signs[:d] != 0) & (columns.n_categories > 0))
    if of_categories.size:
        raise ValueError(
            f"monotonic_cst constrains column {labels[of_categories[0]]!r}, which holds "
            "categories without an order: give it as numbers, or leave it out"
        )
    return signs if signs.any() else None
