"""Global refinement and JOPLEn: jointleaf on the cells of several ensembles.

The paper searches a step size as well, and its unpenalised biases are held back by stopping early
on the validation rows (`stopped` has this). jointleaf solves to the optimum, where free biases
overfit, so that the place of the step size is taken by a strength on biases, in the same range as
all strengths.
"""

from __future__ import annotations

from experiments.pmlb.data import Data
from experiments.pmlb.ensembles import Fit, Predict, predictor
from experiments.pmlb.space import Choice, Integer, Parameters, Real, Space
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf._core.penalties import Laplacian, Term
from jointleaf.partitions import (
    CatBoostPartitioner,
    GradientBoostingPartitioner,
    LinearForestPartitioner,
    RandomForestPartitioner,
    VoronoiPartitioner,
)

__all__ = ["CELLS", "joint_fit", "joint_space", "make_penalty"]

#: What makes the cells, by the name of the base ensemble.
CELLS = {
    "gb": GradientBoostingPartitioner,
    "rf": RandomForestPartitioner,
    "lf": LinearForestPartitioner,
    "cb": CatBoostPartitioner,
    "vor": VoronoiPartitioner,
}

_STRENGTH = Real(1e-5, 1e3, log=True)
_LAPLACIAN: Space = {
    "laplacian_strength": _STRENGTH,
    "bandwidth": Real(1e-5, 1e3, log=True),
    "kind": Choice(("symmetric", "standard", "random_walk")),
}


def joint_space(
    cells_of: str, *, linear: bool, laplacian: bool, free_biases: bool = False
) -> Space:
    """The paper's ranges, with a strength on biases for the step size unless they are free."""
    sizes = Choice((2, 4, 8, 16, 32)) if cells_of == "lf" else Integer(2, 32)
    space = {
        "n_cells": sizes,
        "n_partitions": Integer(10, 1000, log=True),
        "strength": _STRENGTH,
    }
    if linear and not free_biases:
        space["bias_strength"] = _STRENGTH
    return {**space, **_LAPLACIAN} if laplacian else space


def joint_fit(cells_of: str, *, linear: bool, laplacian: bool) -> Fit:
    """JOPLEn (linear cells) or global refinement (constant cells).

    There is no root cell, which the paper does not have.
    """

    def fit(data: Data, parameters: Parameters, seed: int) -> Predict:
        make = JOPLEnClassifier if data.is_binary else JOPLEnRegressor
        model = make(
            CELLS[cells_of](parameters["n_partitions"], parameters["n_cells"]),
            penalty=make_penalty(parameters),
            cells="linear" if linear else "constant",
            root_cell=False,
            categorical_features=list(data.categorical),
            random_state=seed,
        )
        return predictor(model.fit(data.X["train"], data.y["train"]), data)

    return fit


def make_penalty(parameters: Parameters) -> Term:
    """The penalty of parameters; constant cells have no strength on biases of their own."""
    penalty: Term = Frobenius(parameters["strength"], parameters.get("bias_strength"))
    if "bandwidth" in parameters:
        penalty = penalty + Laplacian(
            parameters["laplacian_strength"], parameters["bandwidth"], parameters["kind"]
        )
    return penalty
