"""Trees of other libraries in portable form: one adapter class and one file per library.

A new library is one subclass of `EnsembleAdapter` and one line here.
"""

from jointleaf._trees.importers.base import ADAPTERS
from jointleaf._trees.importers.catboost import CatBoostAdapter
from jointleaf._trees.importers.histogram import HistogramAdapter
from jointleaf._trees.importers.lightgbm import LightGBMAdapter
from jointleaf._trees.importers.sklearn import ScikitLearnAdapter
from jointleaf._trees.importers.xgboost import XGBoostAdapter

ADAPTERS += [
    ScikitLearnAdapter(),
    HistogramAdapter(),
    LightGBMAdapter(),
    XGBoostAdapter(),
    CatBoostAdapter(),
]
