"""Partitioners that grow trees: one file per library."""

from jointleaf.partitions.growers.base import TreePartitioner
from jointleaf.partitions.growers.catboost import CatBoostPartitioner
from jointleaf.partitions.growers.histogram import HistGradientBoostingPartitioner
from jointleaf.partitions.growers.lightgbm import LightGBMPartitioner
from jointleaf.partitions.growers.linear_forest import LinearForestPartitioner
from jointleaf.partitions.growers.random_trees import RandomTreesPartitioner
from jointleaf.partitions.growers.sklearn import (
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    RandomForestPartitioner,
)
from jointleaf.partitions.growers.xgboost import XGBoostPartitioner

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
