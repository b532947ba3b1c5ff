"""Partitioners that grow trees: one file per library."""

from jointleaf.partitions._growers.base import TreePartitioner
from jointleaf.partitions._growers.catboost import CatBoostPartitioner
from jointleaf.partitions._growers.lightgbm import LightGBMPartitioner
from jointleaf.partitions._growers.linear_forest import LinearForestPartitioner
from jointleaf.partitions._growers.random_trees import RandomTreesPartitioner
from jointleaf.partitions._growers.sklearn import (
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    HistGradientBoostingPartitioner,
    RandomForestPartitioner,
)
from jointleaf.partitions._growers.xgboost import XGBoostPartitioner

__all__ = [
    "CatBoostPartitioner",
    "ExtraTreesPartitioner",
    "GradientBoostingPartitioner",
    "HistGradientBoostingPartitioner",
    "LightGBMPartitioner",
    "LinearForestPartitioner",
    "RandomForestPartitioner",
    "RandomTreesPartitioner",
    "TreePartitioner",
    "XGBoostPartitioner",
]
