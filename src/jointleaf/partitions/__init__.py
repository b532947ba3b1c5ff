"""Partitioners: ensembles of partitions of feature space, each made of cells."""

from jointleaf.partitions.base import NO_CELL, Partitioner, TargetType
from jointleaf.partitions.factory import (
    PARTITIONERS,
    default_partitioner,
    make_partitioner,
    recipe_partitioner,
    seeded,
)
from jointleaf.partitions.fitted import FittedEnsemble, RegrownEnsemble, without_models
from jointleaf.partitions.flat import FlatTrees
from jointleaf.partitions.growers import (
    CatBoostPartitioner,
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    HistGradientBoostingPartitioner,
    LightGBMPartitioner,
    LinearForestPartitioner,
    RandomForestPartitioner,
    RandomTreesPartitioner,
    TreePartitioner,
    XGBoostPartitioner,
)
from jointleaf.partitions.levels import LevelsPartitioner
from jointleaf.partitions.libraries import (
    ADAPTERS,
    EnsembleAdapter,
    check_fitted_model,
    find_adapter,
    is_ensemble,
)
from jointleaf.partitions.residual import ResidualPartitioner
from jointleaf.partitions.steps import StepPartitioner
from jointleaf.partitions.union import RootCell, UnionPartitioner
from jointleaf.partitions.voronoi import VoronoiPartitioner

__all__ = [
    "ADAPTERS",
    "NO_CELL",
    "PARTITIONERS",
    "CatBoostPartitioner",
    "EnsembleAdapter",
    "ExtraTreesPartitioner",
    "FittedEnsemble",
    "FlatTrees",
    "GradientBoostingPartitioner",
    "HistGradientBoostingPartitioner",
    "LevelsPartitioner",
    "LightGBMPartitioner",
    "LinearForestPartitioner",
    "Partitioner",
    "RandomForestPartitioner",
    "RandomTreesPartitioner",
    "RegrownEnsemble",
    "ResidualPartitioner",
    "RootCell",
    "StepPartitioner",
    "TargetType",
    "TreePartitioner",
    "UnionPartitioner",
    "VoronoiPartitioner",
    "XGBoostPartitioner",
    "check_fitted_model",
    "default_partitioner",
    "find_adapter",
    "is_ensemble",
    "make_partitioner",
    "recipe_partitioner",
    "seeded",
    "without_models",
]
