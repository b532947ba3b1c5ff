"""Corrections of a model by many rows: against closed forms, and held-out rows decide."""

import numpy as np
import pytest

from jointleaf._core.blocks import BlockDesign
from jointleaf._core.design import LeafDesign
from jointleaf._core.losses import make_loss
from jointleaf._core.problem import Problem
from jointleaf._fit import correction
from jointleaf._fit.correction import fit_correction, move_penalty
from reference import ReferenceDesign

N_CELLS = (4, 3, 5)
KINDS = ("linear", "constant", "linear")


def _problems(make_case, loss, n_train=200):
    """Rows in two blocks, held-out rows, and predictions of a model that is to be corrected."""
    case = make_case(loss, n=300, d=3, cells=N_CELLS)
    raw = 0.3 * case.X[:, :3] if loss == "multinomial" else 0.3 * case.X[:, 0]
    parts = slice(0, 80), slice(80, n_train), slice(n_train, 300)
    designs = [LeafDesign(case.X[p], case.codes[p], N_CELLS, cells=KINDS) for p in parts]
    penalty, train = move_penalty(3), slice(0, n_train)
    given = make_loss(loss), penalty
    return (
        Problem(BlockDesign(designs[:2]), case.y[train], *given, case.s[train], raw[train]),
        Problem(designs[2], case.y[parts[2]], *given, case.s[parts[2]], raw[parts[2]]),
        ReferenceDesign(case.X[train], case.codes[train], N_CELLS, cells=KINDS).to_dense(),
    )


@pytest.mark.parametrize("loss", ["squared_error", "logistic", "multinomial"])
def test_a_round_minimises_the_quadratic_model(make_case, monkeypatch, loss):
    problem, held_out, phi = _problems(make_case, loss)
    monkeypatch.setattr(correction, "_STRENGTHS", np.array([0.03]))
    monkeypatch.setattr(correction, "_LEAST_GAIN", -np.inf)
    monkeypatch.setattr(correction, "_ROUNDS", 1)
    found = fit_correction(problem, held_out, 200)
    assert found.strengths == [0.03]
    at = problem.zero_predictions()
    h, g = problem.loss_curvature(at).gather(), problem.slope(at).gather()
    h = h if h.ndim == 1 else h.mean(axis=1)
    H = phi.T @ (h[:, None] * phi) + 0.03 * np.diag(problem.penalty.curvature())
    np.testing.assert_allclose(found.theta, -np.linalg.solve(H, phi.T @ g), rtol=1e-7, atol=1e-9)
    assert found.loss_before == pytest.approx(held_out.data_value(held_out.zero_predictions()))
    after = held_out.data_value(held_out.design.matvec(found.theta))
    assert found.loss_after == pytest.approx(after)
    assert after < found.loss_before


def test_rounds_of_other_losses_go_on_while_held_out_rows_gain(make_case):
    problem, held_out, _ = _problems(make_case, "logistic")
    found = fit_correction(problem, held_out, 100)
    assert 2 <= len(found.strengths) <= 3
    assert found.n_passes <= 100
    assert found.loss_after < found.loss_before


def test_held_out_rows_can_be_against_any_correction(make_case):
    problem, held_out, _ = _problems(make_case, "squared_error")
    noise = np.random.default_rng(0).standard_normal(200)
    noisy = Problem(problem.design, noise, problem.loss, move_penalty(3))
    settled = Problem(
        held_out.design, np.zeros(100), held_out.loss, move_penalty(3), None, np.zeros(100)
    )
    found = fit_correction(noisy, settled, 20)
    assert found.strengths == []
    assert not found.theta.any()
    assert found.loss_after == found.loss_before == 0.0
