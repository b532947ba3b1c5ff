"""Partitioners: ensembles of partitions of feature space, each made of cells."""

from jointleaf.partitions.base import NO_CELL, Partitioner, Task
from jointleaf.partitions.ensembles import (
    ADAPTERS,
    EnsembleAdapter,
    check_fitted_model,
    find_adapter,
)
from jointleaf.partitions.factory import (
    PARTITIONERS,
    default_partitioner,
    make_partitioner,
    seeded,
)
from jointleaf.partitions.fitted import FittedEnsemble, RegrownEnsemble
from jointleaf.partitions.numbering import CellNumbering
from jointleaf.partitions.trees import (
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    LightGBMPartitioner,
    RandomForestPartitioner,
    TreePartitioner,
)
from jointleaf.partitions.union import RootCell, UnionPartitioner
from jointleaf.partitions.voronoi import VoronoiPartitioner

__all__ = [
    "ADAPTERS",
    "NO_CELL",
    "PARTITIONERS",
    "CellNumbering",
    "EnsembleAdapter",
    "ExtraTreesPartitioner",
    "FittedEnsemble",
    "GradientBoostingPartitioner",
    "LightGBMPartitioner",
    "Partitioner",
    "RandomForestPartitioner",
    "RegrownEnsemble",
    "RootCell",
    "Task",
    "TreePartitioner",
    "UnionPartitioner",
    "VoronoiPartitioner",
    "check_fitted_model",
    "default_partitioner",
    "find_adapter",
    "make_partitioner",
    "seeded",
]
