"""Penalties among the parameters of estimators: get_params, set_params, clone, GridSearchCV."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from jointleaf import (
    L1,
    L21,
    DirtyLasso,
    Frobenius,
    GrOWL,
    JOPLEnRegressor,
    KyFan,
    Laplacian,
    Lp1,
    Nuclear,
    PerTask,
    SchattenP,
)
from jointleaf.partitions import LightGBMPartitioner

PENALTIES = [
    Frobenius(0.1),
    Frobenius(0.1, 0.2, feature_weights=[1.0, 2.0]),
    L1("auto"),
    2 * L21("auto"),
    Lp1(0.1, 3.0, bias_strength=0.5),
    GrOWL(0.1),
    KyFan(0.1, 2),
    SchattenP(0.3, 1.5),
    Nuclear(0.1),
    DirtyLasso(0.1, 0.2),
    Laplacian(0.1),
    PerTask(L21(0.1)),
    L1(0.1) + L21(0.2) + Frobenius(0.3),
    L1(0.1) + L1(0.2),
]


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_clones_and_parameters_are_the_penalty_again(penalty):
    copied = clone(penalty)
    assert copied is not penalty
    assert (repr(copied), copied.share) == (repr(penalty), penalty.share)
    again = copied.set_params(**penalty.get_params(deep=False))
    assert (repr(again), again.share) == (repr(penalty), penalty.share)


def test_parameters_are_set_and_checked():
    penalty = Frobenius(0.1).set_params(strength=2)
    assert (penalty.strength, penalty.bias_strength) == (2.0, 2.0)  # which follows
    total = L1(0.1) + L21(0.2)
    assert total.get_params()["l21__strength"] == 0.2
    assert repr(total.set_params(l21__strength=0.7)) == repr(L1(0.1) + L21(0.7))
    assert (L1(0.1) + L1(0.2)).get_params()["l1-2__strength"] == 0.2
    assert repr(PerTask(L21(0.1)).set_params(penalty__strength=3)) == repr(PerTask(L21(3.0)))
    with pytest.raises(ValueError, match="strength=-1 must be a positive number"):
        Frobenius(0.1).set_params(strength=-1)
    with pytest.raises(ValueError, match="'power' is no parameter of L1"):
        L1(0.1).set_params(power=2)


def test_a_grid_of_strengths_is_that_of_penalties():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + rng.normal(0, 0.3, 60)
    penalty = Frobenius(0.5)
    model = JOPLEnRegressor(LightGBMPartitioner(3), penalty=penalty, random_state=0)
    strengths = [0.001, 10.0]
    by_name = GridSearchCV(model, {"penalty__strength": strengths}, cv=2).fit(X, y)
    by_object = GridSearchCV(model, {"penalty": list(map(Frobenius, strengths))}, cv=2).fit(X, y)
    np.testing.assert_array_equal(
        by_name.cv_results_["mean_test_score"], by_object.cv_results_["mean_test_score"]
    )
    assert np.ptp(by_name.cv_results_["mean_test_score"]) > 0.1
    assert penalty.strength == 0.5  # the one that was given is left alone


def test_parameters_of_a_penalty_that_has_none_name_the_remedy():
    message = (
        r"penalty__strength=0.1 cannot be set because penalty='auto'.*penalty=Frobenius\(0.1\)"
    )
    with pytest.raises(ValueError, match=message):
        JOPLEnRegressor().set_params(penalty__strength=0.1)
    model = JOPLEnRegressor().set_params(penalty=Frobenius(1.0), penalty__strength=0.1)
    assert model.penalty.strength == 0.1
