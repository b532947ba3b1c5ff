"""EBM, the explainable boosting machine: additive, with pairs of features; slow.

Sets of more than 6,000 rows or two classes are not run: minutes each.
"""

from typing import Any

from .base import Model


def regressor() -> Any:
    from interpret.glassbox import ExplainableBoostingRegressor

    return ExplainableBoostingRegressor(random_state=0, n_jobs=1)


def classifier() -> Any:
    from interpret.glassbox import ExplainableBoostingClassifier

    return ExplainableBoostingClassifier(random_state=0, n_jobs=1)


MODEL = Model(
    "ebm",
    "EBM",
    "interpret-core",
    regressor,
    classifier,
    categories=True,
    max_rows=6_000,
    multiclass=False,
)
