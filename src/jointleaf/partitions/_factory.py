"""From what a user says to a partitioner, and to one with fixed seeds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from jointleaf._trees.importers import ADAPTERS, check_fitted_model, find_adapter, is_ensemble
from jointleaf.partitions._base import Partitioner, TargetType
from jointleaf.partitions._fitted import FittedEnsemble, LeftOut
from jointleaf.partitions._growers import (
    CatBoostPartitioner,
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    HistGradientBoostingPartitioner,
    LightGBMPartitioner,
    LinearForestPartitioner,
    RandomForestPartitioner,
    RandomTreesPartitioner,
    XGBoostPartitioner,
)
from jointleaf.partitions._residual import ResidualPartitioner
from jointleaf.partitions._steps import StepPartitioner
from jointleaf.partitions._union import UnionPartitioner
from jointleaf.partitions._voronoi import VoronoiPartitioner

__all__ = [
    "PARTITIONERS",
    "default_partitioner",
    "known_categories",
    "make_partitioner",
    "recipe_partitioner",
    "seeded",
]

#: The partitioners that can be asked for by name.
PARTITIONERS: dict[str, Callable[[], Partitioner]] = {
    "lightgbm": LightGBMPartitioner,
    "catboost": CatBoostPartitioner,
    "xgboost": XGBoostPartitioner,
    "gradient_boosting": GradientBoostingPartitioner,
    "hist_gradient_boosting": HistGradientBoostingPartitioner,
    "random_forest": RandomForestPartitioner,
    "extra_trees": ExtraTreesPartitioner,
    "random_trees": RandomTreesPartitioner,
    "linear_forest": LinearForestPartitioner,
    "steps": StepPartitioner,
    "voronoi": VoronoiPartitioner,
}

_fallback_told = False


def default_partitioner() -> LightGBMPartitioner | GradientBoostingPartitioner:
    """Give the default partitioner: LightGBM, or scikit-learn's boosting where it cannot load.

    The stand-in has the same numbers of partitions and cells, and a UserWarning, once per
    process, says why it is used.
    """
    partitioner = LightGBMPartitioner()
    try:
        import lightgbm  # noqa: F401
    except (ImportError, OSError) as cause:
        _tell_fallback(cause)
        return GradientBoostingPartitioner(
            n_partitions=partitioner.n_partitions, n_cells=partitioner.n_cells
        )
    return partitioner


def recipe_partitioner(target_type: TargetType = "regression") -> UnionPartitioner:
    """Give the partitions of the default recipe: 400 small trees of four kinds, 450 for classes.

    Boosted and extremely randomised trees, grown on the target and on the residuals of a linear
    model: on some data the ones are better, on others the others, and together they are better
    than each. For classes the boosted trees also take part with their own values: there are 100
    of them instead of 50.
    """
    n_boosted = 100 if target_type == "classification" else 50
    boosted = default_partitioner().set_params(n_partitions=n_boosted, n_cells=4)
    on_residuals = UnionPartitioner(
        [
            clone(boosted).set_params(n_partitions=50),
            RandomTreesPartitioner(100, 8),
            RandomTreesPartitioner(100, 4),
        ]
    )
    return UnionPartitioner(
        [boosted, RandomTreesPartitioner(100, 8), ResidualPartitioner(on_residuals)]
    )


def _tell_fallback(cause: Exception) -> None:
    global _fallback_told
    if _fallback_told:
        return
    _fallback_told = True
    warnings.warn(
        f"LightGBM cannot be loaded ({type(cause).__name__}: {cause}), so partitions are grown by "
        "scikit-learn's gradient boosting, which is slower on many rows. Install the package "
        "lightgbm and an OpenMP runtime (libgomp, or libomp on macOS), or choose "
        'partitioner="gradient_boosting" to say that this is meant.',
        UserWarning,
        stacklevel=4,
    )


def make_partitioner(spec: Any = None) -> Partitioner:
    """Give the partitioner that `spec` stands for.

    Parameters
    ----------
    spec : None, str, Partitioner, fitted model, or a list of these
        None is the default (see `default_partitioner`). A name is one of `PARTITIONERS`. A
        `Partitioner` is given back as it is, a fitted tree ensemble as a `FittedEnsemble`, a
        list as a `UnionPartitioner`.

    Returns
    -------
    Partitioner
    """
    if spec is None:
        return default_partitioner()
    if isinstance(spec, Partitioner):
        return spec
    if isinstance(spec, str):
        if spec not in PARTITIONERS:
            names = ", ".join(f'"{name}"' for name in PARTITIONERS)
            raise ValueError(f"partitioner={spec!r} is unknown; use one of {names}.")
        return PARTITIONERS[spec]()
    if isinstance(spec, list | tuple):
        return UnionPartitioner([make_partitioner(member) for member in spec])
    if isinstance(spec, LeftOut):
        spec.refuse()
    if is_ensemble(spec):
        check_fitted_model(spec)
        return FittedEnsemble(spec)
    names = ", ".join(f'"{name}"' for name in PARTITIONERS)
    models = ", ".join(name for adapter in ADAPTERS for name in adapter.supported)
    raise TypeError(
        f"partitioner is of type {type(spec).__name__}; give None, one of the names {names}, a "
        f"Partitioner, or a fitted model of one of these types: {models}."
    )


def seeded(partitioner: Partitioner, random_state: int, n_jobs: int | None = None) -> Partitioner:
    """Give an unfitted clone in which every seed and number of threads is set.

    Parameters
    ----------
    partitioner : Partitioner
        Left as it is.
    random_state : int
        From it come different seeds for all members whose ``random_state`` is None.
    n_jobs : int or None
        Takes the place of every ``n_jobs`` that is None.

    Returns
    -------
    Partitioner
    """
    partitioner, seeds = clone(partitioner), _seeds(random_state)
    for member in partitioner.nested():
        params = member.get_params(deep=False)
        if params.get("random_state", 0) is None:
            member.set_params(random_state=next(seeds))
        if params.get("n_jobs", 0) is None:
            member.set_params(n_jobs=n_jobs)
    return partitioner


def _seeds(random_state: int) -> Iterator[int]:
    rng = np.random.RandomState(random_state)
    drawn: set[int] = set()
    while True:
        seed = int(rng.randint(np.iinfo(np.int32).max))
        if seed not in drawn:
            drawn.add(seed)
            yield seed


def known_categories(spec: Any) -> dict[int, NDArray | None]:
    """Return the columns that trained models among partitioners treat as categories.

    Parameters
    ----------
    spec : what `make_partitioner` takes

    Returns
    -------
    dict
        From column numbers to the categories of the column; None where the model does not hold
        them.
    """
    categories: dict[int, NDArray | None] = {}
    for member in make_partitioner(spec).nested():
        model = getattr(member, "model", None)
        if is_ensemble(model):
            categories |= find_adapter(model).categories(model)
    return categories
