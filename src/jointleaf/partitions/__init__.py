"""Partitioners: ensembles of partitions of feature space, each made of cells."""

from jointleaf._trees.flat import FlatTrees
from jointleaf._trees.importers import (
    ADAPTERS,
    EnsembleAdapter,
    check_fitted_model,
    find_adapter,
    is_ensemble,
)
from jointleaf.partitions._base import NO_CELL, Partitioner, TargetType
from jointleaf.partitions._factory import (
    PARTITIONERS,
    default_partitioner,
    known_categories,
    make_partitioner,
    recipe_partitioner,
    seeded,
)
from jointleaf.partitions._fitted import FittedEnsemble, RegrownEnsemble, without_models
from jointleaf.partitions._growers import (
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
from jointleaf.partitions._levels import LevelsPartitioner
from jointleaf.partitions._residual import ResidualPartitioner
from jointleaf.partitions._steps import StepPartitioner
from jointleaf.partitions._union import RootCell, UnionPartitioner
from jointleaf.partitions._voronoi import VoronoiPartitioner

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
    "known_categories",
    "make_partitioner",
    "recipe_partitioner",
    "seeded",
    "without_models",
]
