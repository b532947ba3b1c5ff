"""Paths of strengths: where they begin, that they are exact, and what they report."""

import numpy as np
import pytest

from jointleaf import L1, L21, Frobenius, GrOWL, Laplacian, Nuclear, fit_cells, strength_path
from jointleaf._core.fitting import make_problem
from jointleaf._core.losses import make_loss
from jointleaf._core.path import largest_strength
from jointleaf._core.penalties import KyFan, LInf1, Lp1, SchattenP
from jointleaf._core.solvers import steps as metrics

PENALTIES = [
    L1(1.0),
    L21(1.0),
    L21(1.0, 0.3),
    LInf1(1.0),
    Lp1(1.0, 1.5),
    GrOWL(1.0),
    Nuclear(1.0),
    KyFan(1.0, 2),
    SchattenP(1.0, 3),
    L1("auto") + L21("auto"),
    L21("auto") + Frobenius(0.1),
    L21("auto", 0.0) + Laplacian(0.1),
]


def _case(loss, n=150, d=12):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    codes = rng.integers(0, 3, (n, 4))
    f = X[:, 0] * (codes[:, 0] == 1) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(n)
    y = {"squared_error": f, "logistic": np.where(f > 0, 1, -1)}.get(loss)
    return X, codes, np.digitize(f, [-0.4, 0.4]) if y is None else y


@pytest.mark.parametrize("loss", ["squared_error", "logistic", "multinomial"])
@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_slopes_are_zero_at_the_largest_strength_and_not_below(penalty, loss):
    X, codes, y = _case(loss)
    problem = make_problem(
        X,
        codes,
        y,
        loss=loss,
        penalty=penalty.at(1.0),
        cells="linear",
        sample_weight=None,
        n_cells=None,
        n_jobs=1,
    )
    largest = largest_strength(problem, penalty)
    at = fit_cells(X, codes, y, loss=loss, penalty=penalty.at(1.0001 * largest), tol=1e-8)
    assert not at.coef.any()
    below = fit_cells(X, codes, y, loss=loss, penalty=penalty.at(0.98 * largest), tol=1e-8)
    assert below.coef.any()


@pytest.mark.parametrize("loss", ["squared_error", "logistic"])
def test_every_point_is_the_answer_of_its_own_fit(loss):
    X, codes, y = _case(loss)
    path = strength_path(X, codes, y, loss=loss, penalty=L21(1.0, 0.1), n_strengths=6)
    for k, strength in enumerate(path.strengths):
        alone = fit_cells(X, codes, y, loss=loss, penalty=L21(strength, 0.1), tol=1e-9)
        assert path.objective[k] == pytest.approx(alone.objective, rel=1e-5)
        assert path.solutions[k].optimality == path.optimality[k] <= 3e-3
    loose, tight = (
        path.objective,
        strength_path(
            X, codes, y, loss=loss, penalty=L21(1.0, 0.1), n_strengths=6, tol=1e-6
        ).objective,
    )
    np.testing.assert_array_less(tight, loose + 1e-12)


def test_what_a_path_reports():
    X, codes, y = _case("squared_error")
    new = X[:40], codes[:40], y[:40]
    path = strength_path(
        X[40:], codes[40:], y[40:], penalty=L21(1.0), n_strengths=5, ratio=0.1, validation=new
    )
    assert path.strengths[-1] == pytest.approx(0.1 * path.strengths[0])
    assert path.n_selected[0] == 0 < path.n_selected[-1]
    for k, solution in enumerate(path.solutions):
        f = solution.predict(X[40:], codes[40:])
        assert path.error[k] == pytest.approx(0.5 * np.mean((f - y[40:]) ** 2))
        f = solution.predict(new[0], new[1])
        assert path.validation_error[k] == pytest.approx(0.5 * np.mean((f - new[2]) ** 2))
        norms = np.linalg.norm(solution.coef, axis=0)
        np.testing.assert_allclose(path.feature_norms[k], norms)
        np.testing.assert_array_equal(path.selected[k], norms > 0)
        value = L21(path.strengths[k]).bind(solution.layout).value(solution.theta)
        assert path.objective[k] == pytest.approx(path.error[k] + value)


def test_given_strengths_are_followed_from_strong_to_weak():
    X, codes, y = _case("squared_error")
    path = strength_path(X, codes, y, penalty=L21(1.0), strengths=[0.01, 0.1])
    np.testing.assert_array_equal(path.strengths, [0.1, 0.01])


@pytest.mark.parametrize("outputs", [(), (3,)], ids=["one", "three"])
@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_the_metric_of_shared_cells_changes_nothing_but_the_way(outputs, ridge, monkeypatch):
    loss = "multinomial" if outputs else "squared_error"
    X, codes, y = _case(loss, n=400)
    penalty = L21(0.02, 0.1) + Frobenius(ridge, 0.0) if ridge else L21(0.02, 0.1)
    used = []
    make = metrics.SharedCellsMetric.__init__
    monkeypatch.setattr(
        metrics.SharedCellsMetric, "__init__", lambda *a: (used.append(1), make(*a))[1]
    )
    with_metric = fit_cells(X, codes, y, loss=loss, penalty=penalty, tol=1e-9, max_iter=5000)
    assert used
    monkeypatch.setattr(metrics, "MAX_CELLS", 0)
    without = fit_cells(X, codes, y, loss=loss, penalty=penalty, tol=1e-9, max_iter=5000)
    assert with_metric.objective == pytest.approx(without.objective, rel=1e-9)
    np.testing.assert_allclose(with_metric.coef, without.coef, atol=1e-5)


def test_multiples_keep_strengths_in_proportion():
    penalty = 2 * L1("auto") + L21("auto")
    first, second = penalty.at(0.3).terms
    assert (first.strength, second.strength) == (0.6, 0.3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"penalty": "L21"}, TypeError, "penalty='L21' must be a Penalty"),
        ({"strengths": [0.1, -1]}, ValueError, "strengths=.* positive numbers"),
        ({"strengths": "few"}, TypeError, "strengths='few' must be a list of positive numbers"),
        ({"n_strengths": 0}, ValueError, "n_strengths=0 must be a whole number"),
        ({"n_strengths": 2.5}, TypeError, "n_strengths=2.5 must be a whole number"),
        ({"ratio": 2.0}, ValueError, "ratio=2.0 must be a number between 0 and 1"),
        ({"penalty": L1(0.1) + L21(0.1)}, ValueError, "mark the strengths to change with 'auto'"),
        ({"penalty": Laplacian(0.1) + L21(0.1)}, ValueError, "mark the strengths"),
        ({"penalty": Laplacian(0.1)}, ValueError, "the strength of a Laplacian stays as it is"),
        ({"cells": "constant"}, ValueError, "no slopes"),
        ({"validation": (1, 2)}, ValueError, "validation must be three arrays"),
        ({"tol": 0}, ValueError, "tol=0 must be a positive number"),
    ],
)
def test_bad_input(options, error, message):
    X, codes, y = _case("squared_error")
    with pytest.raises(error, match=message):
        strength_path(X, codes, y, **({"penalty": L21(1.0)} | options))


def test_a_target_without_slopes_is_told():
    X, codes, _ = _case("squared_error")
    with pytest.raises(ValueError, match="slopes are zero at every strength"):
        strength_path(X, codes, np.ones(len(X)), penalty=L21(1.0))


def test_losses_by_name_or_object():
    X, codes, y = _case("logistic")
    by_name = strength_path(X, codes, y, loss="logistic", penalty=L21(1.0), n_strengths=3)
    by_object = strength_path(
        X, codes, y, loss=make_loss("logistic"), penalty=L21(1.0), n_strengths=3
    )
    np.testing.assert_array_equal(by_name.objective, by_object.objective)
