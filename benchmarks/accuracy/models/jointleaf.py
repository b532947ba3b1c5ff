"""jointleaf's own estimators."""

from typing import Any

from .base import Model


def regressor() -> Any:
    from jointleaf import JOPLEnRegressor

    return JOPLEnRegressor(random_state=0)


def classifier() -> Any:
    from jointleaf import JOPLEnClassifier

    return JOPLEnClassifier(random_state=0)


def five_regressors() -> Any:
    from sklearn.ensemble import VotingRegressor

    from jointleaf import JOPLEnRegressor

    return VotingRegressor([(f"seed_{s}", JOPLEnRegressor(random_state=s)) for s in range(5)])


def five_classifiers() -> Any:
    from sklearn.ensemble import VotingClassifier

    from jointleaf import JOPLEnClassifier

    members = [(f"seed_{s}", JOPLEnClassifier(random_state=s)) for s in range(5)]
    return VotingClassifier(members, voting="soft")


MODEL = Model("jointleaf", "jointleaf", "jointleaf", regressor, classifier, categories=True)

#: What five times the time buys: the mean of the predictions of five seeds.
FIVE_SEEDS = Model(
    "jointleaf_five",
    "jointleaf, mean of five seeds",
    "jointleaf",
    five_regressors,
    five_classifiers,
    categories=True,
)
