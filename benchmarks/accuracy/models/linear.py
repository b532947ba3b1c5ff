"""Linear models on standardised columns, their penalty chosen over twelve powers of ten."""

import inspect
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .base import Model


def regressor() -> Any:
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-6, 6, 49)))


def classifier() -> Any:
    # From scikit-learn 1.8 on, squared slopes alone are this; before, the default is the same.
    newer = {"l1_ratios": (0.0,), "use_legacy_attributes": False}
    is_newer = "use_legacy_attributes" in inspect.signature(LogisticRegressionCV).parameters
    model = LogisticRegressionCV(
        Cs=np.logspace(-6, 6, 25),
        scoring="neg_log_loss",
        max_iter=1000,
        random_state=0,
        **(newer if is_newer else {}),
    )
    return make_pipeline(StandardScaler(), model)


MODEL = Model("linear", "linear", "scikit-learn", regressor, classifier)
