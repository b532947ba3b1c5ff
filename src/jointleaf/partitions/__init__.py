"""Partitioners: ensembles of partitions of feature space, each made of cells."""

from jointleaf.partitions._base import NO_CELL, Partitioner
from jointleaf.partitions._factory import PARTITIONERS, FittedEnsemble, make_partitioner
from jointleaf.partitions._growers.base import (
    CatBoostPartitioner,
    LightGBMPartitioner,
    TreePartitioner,
    XGBoostPartitioner,
)
from jointleaf.partitions._growers.large_trees import LargeTreesPartitioner
from jointleaf.partitions._growers.random_trees import RandomTreesPartitioner
from jointleaf.partitions._growers.sklearn import (
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    HistGradientBoostingPartitioner,
    LinearForestPartitioner,
    RandomForestPartitioner,
)
from jointleaf.partitions._rotated import RotatedPartitioner
from jointleaf.partitions._steps import CategoryPartitioner, StepPartitioner
from jointleaf.partitions._union import ResidualPartitioner, RootCell, UnionPartitioner
from jointleaf.partitions._voronoi import VoronoiPartitioner

__all__ = [
    "NO_CELL",
    "PARTITIONERS",
    "CatBoostPartitioner",
    "CategoryPartitioner",
    "ExtraTreesPartitioner",
    "FittedEnsemble",
    "GradientBoostingPartitioner",
    "HistGradientBoostingPartitioner",
    "LargeTreesPartitioner",
    "LightGBMPartitioner",
    "LinearForestPartitioner",
    "Partitioner",
    "RandomForestPartitioner",
    "RandomTreesPartitioner",
    "ResidualPartitioner",
    "RootCell",
    "RotatedPartitioner",
    "StepPartitioner",
    "TreePartitioner",
    "UnionPartitioner",
    "VoronoiPartitioner",
    "XGBoostPartitioner",
    "make_partitioner",
]
