"""Linear models on standardised columns, their penalty chosen over twelve powers of ten."""

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .base import Model


def regressor() -> Any:
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-6, 6, 49)))


def classifier() -> Any:
    model = LogisticRegressionCV(
        Cs=np.logspace(-6, 6, 25),
        l1_ratios=(0.0,),
        scoring="neg_log_loss",
        max_iter=1000,
        random_state=0,
        use_legacy_attributes=False,
    )
    return make_pipeline(StandardScaler(), model)


MODEL = Model("linear", "linear", "scikit-learn", regressor, classifier)
