"""Sums of penalties, and the active set: the true sum is minimised, whatever the way."""

import pickle

import numpy as np
import pytest

from jointleaf._core.design import LeafDesign
from jointleaf._core.fitting import fit_cells
from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import make_loss
from jointleaf._core.penalties import (
    L1,
    L21,
    Frobenius,
    GrOWL,
    KyFan,
    Laplacian,
    LInf1,
    Lp1,
    Nuclear,
)
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import SolverState, solve
from jointleaf._core.solvers.fista import ActiveFeatures
from jointleaf._core.solvers.steps import SharedCellsMetric

LAYOUT = CellLayout((2, 3), 4)
TIGHT = {"tol": 1e-9, "max_iter": 20_000}


def _theta(*outputs, seed=0):
    return np.random.default_rng(seed).standard_normal((25, *outputs))


# -- arithmetic --------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [(), (3,)], ids=["one_output", "three_outputs"])
def test_values_add(outputs):
    parts = [L1(0.3, 0.1), L21(0.2), Nuclear(0.4, 0.2), Frobenius(0.5, 0.6), GrOWL(0.1)]
    theta = _theta(*outputs)
    total = parts[0] + parts[1] + (parts[2] + parts[3]) + parts[4] + Laplacian(0.7)
    expected = sum(part.bind(LAYOUT).value(theta) for part in parts)
    assert total.bind(LAYOUT).value(theta) == pytest.approx(expected, rel=1e-12)
    assert len(total.terms) == 6


def test_sums_show_their_terms():
    assert repr(L1(0.3) + KyFan(0.2, 2)) == "L1(0.3) + KyFan(0.2, k=2)"
    assert repr(2 * L1("auto") + L21("auto")) == "2 * L1('auto') + L21('auto')"


@pytest.mark.parametrize(
    "penalty",
    [L1(0.3), GrOWL(0.3), Nuclear(0.3), Frobenius(0.3), L1(0.3) + Nuclear(0.2) + Frobenius(0.1)],
    ids=repr,
)
def test_a_multiple_has_the_multiple_of_the_value(penalty):
    theta = _theta()
    value = penalty.bind(LAYOUT).value(theta)
    assert (3 * penalty).bind(LAYOUT).value(theta) == pytest.approx(3 * value)
    assert penalty.bind(LAYOUT).value(theta) == value


def test_at_fills_in_the_strengths_to_choose():
    theta = _theta()
    family = 2 * L1("auto") + L21("auto") + Nuclear(0.5)
    filled = family.at(0.25).bind(LAYOUT)
    expected = (L1(0.5) + L21(0.25) + Nuclear(0.5)).bind(LAYOUT)
    assert family.is_auto
    assert not filled.is_auto
    assert filled.value(theta) == pytest.approx(expected.value(theta))


@pytest.mark.parametrize("bind", ["before", "after"])
def test_at_changes_ridge_terms_bound_or_not(bind):
    theta, family = _theta(), L21("auto") + Frobenius("auto")
    filled = family.bind(LAYOUT).at(0.3) if bind == "before" else family.at(0.3).bind(LAYOUT)
    expected = (L21(0.3) + Frobenius(0.3)).bind(LAYOUT).value(theta)
    assert filled.value(theta) == pytest.approx(expected)


def test_at_of_a_bound_ridge_changes_its_curvature():
    curvature = Frobenius(0.1).bind(LAYOUT).at(0.7).curvature()
    np.testing.assert_allclose(curvature, 0.7)


def test_at_needs_a_strength_to_choose():
    with pytest.raises(ValueError, match=r"mark the strengths to change with 'auto'$"):
        (L1(0.3) + L21(0.2)).at(0.1)


def test_what_is_not_a_penalty_cannot_be_added():
    with pytest.raises(TypeError, match="unsupported operand"):
        L1(0.3) + 0.5
    with pytest.raises(ValueError, match=r"^factor=0 must be a positive number$"):
        0 * L1(0.3)


def test_a_sum_survives_pickling_after_use():
    penalty, theta = (L21(0.3) + Nuclear(0.2)).bind(LAYOUT), _theta()
    z = penalty.prox(theta, 0.5)
    again = pickle.loads(pickle.dumps(penalty)).prox(theta, 0.5)
    np.testing.assert_allclose(again, z, rtol=0, atol=1e-8)


# -- fits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared_error", "logistic", "multinomial"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (L1(0.02) + L1(0.03), L1(0.05)),
        (L21(0.05) + L21(0.05), L21(0.1)),
        (L21(0.05, 0.1) + L1(0.02), L1(0.02, 0.1) + L21(0.05)),
        (Nuclear(0.02) + L21(0.05), L21(0.05) + Nuclear(0.02)),
        (Frobenius(0.02, 0.01) + Frobenius(0.03, 0.04), Frobenius(0.05)),
        (Frobenius(0.02, 0.01) + L1(0.03) + Frobenius(0.03, 0.04), L1(0.03) + Frobenius(0.05)),
        (Lp1(0.03, 1) + Frobenius(0.02), Frobenius(0.02) + L1(0.03)),
    ],
    ids=lambda p: repr(p).replace(" ", ""),
)
def test_equal_penalties_give_equal_fits(one, other, loss, make_case):
    case = make_case(loss, n=50, cells=(2, 3))
    found = [
        fit_cells(*case.data, loss=loss, penalty=p, sample_weight=case.s, **TIGHT)
        for p in (one, other)
    ]
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-9)
    np.testing.assert_allclose(found[0].coef, found[1].coef, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("one", "other"),
    [(L21(0.25), Nuclear(0.02)), (L1(0.15), Nuclear(0.05)), (LInf1(0.4), KyFan(0.05, 1))],
    ids=repr,
)
def test_what_vanishes_in_a_sum_is_exactly_zero_in_any_order(one, other, make_case):
    case = make_case(n=80, d=6, cells=(2, 3), seed=1)
    for penalty in (one + other, other + one):
        sizes = np.abs(fit_cells(*case.data, penalty=penalty, tol=1e-8).coef)
        assert sizes.max() > 0.1
        assert (sizes < 1e-6).any()
        assert not sizes[sizes < 1e-6].any()


@pytest.mark.parametrize(
    ("penalty", "seed"),
    [(L1(0.3) + Nuclear(0.6), 257), (L21(0.6) + Nuclear(1.2), 328), (L21(0.3) + Nuclear(0.2), 0)],
    ids=repr,
)
def test_prox_of_a_sum_has_converged(penalty, seed):
    """Called again it starts from where it ended: a converged answer does not move."""
    theta = np.random.default_rng(seed).standard_normal(35)
    bound = penalty.bind(CellLayout((5,), 6))
    z = bound.prox(theta, 1.0)
    np.testing.assert_allclose(bound.prox(theta, 1.0), z, rtol=0, atol=1e-8)


FAMILIES = [
    L1("auto") + L21("auto"),
    3 * L1("auto") + Nuclear("auto"),
    L1("auto") + L21(0.01),
    L21("auto") + Frobenius(0.1, 0),
    L21("auto") + Frobenius("auto", 0),
]


@pytest.mark.parametrize("loss", ["squared_error", "logistic"])
@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_at_the_largest_strength_all_slopes_vanish(family, loss, make_case, make_problem):
    case = make_case(loss, d=4, cells=(2, 3))
    problem = make_problem(case, loss, L21(1e6))
    gradient = problem.data_gradient(problem.design.matvec(solve(problem, **TIGHT).theta))
    largest = family.bind(LAYOUT).strength_max(gradient)
    settings = {"loss": loss, "sample_weight": case.s, **TIGHT}
    above = fit_cells(*case.data, penalty=family.at(1.0001 * largest), **settings)
    below = fit_cells(*case.data, penalty=family.at(0.98 * largest), **settings)
    assert not above.coef.any()
    assert np.abs(below.coef).max() > 1e-4


def test_a_strength_to_choose_in_a_sum_cannot_be_fitted(make_case):
    with pytest.raises(ValueError, match=r"^penalty=L1\(0.1\) \+ L21\('auto'\) has a strength to"):
        fit_cells(*make_case().data, penalty=L1(0.1) + L21("auto"))


@pytest.mark.parametrize("solver", ["pcg", "dual", "newton"])
def test_solvers_for_quadratic_penalties_reject_sums_with_norms(solver, make_case):
    with pytest.raises(ValueError, match=rf"^solver='{solver}' does not fit .*use solver='fista'$"):
        fit_cells(*make_case().data, penalty=L21(0.1) + Frobenius(0.1), solver=solver)


# -- the active set and the elimination of biases ----------------------------------------------

WIDE = {
    "l21": L21(0.08),
    "l1": L1(0.04),
    "growl": GrOWL(0.12, np.linspace(1, 0.6, 40), bias_strength=0.01),
    "linf1": LInf1(0.15),
    "l1_l21": L1(0.02, 0.01) + L21(0.05),
    "l21_frobenius": L21(0.06) + Frobenius(0.02, 0.01),
    "laplacian_l21": Laplacian(0.5, kind="symmetric") + L21(0.06),
}


@pytest.mark.parametrize("loss", ["squared_error", "logistic", "multinomial"])
@pytest.mark.parametrize("name", WIDE)
def test_shortcuts_do_not_change_the_answer(name, loss, make_case, monkeypatch):
    case = make_case(loss, n=100, d=40, cells=(2, 3))  # every cell holds every class
    scale = 1.0 if loss == "squared_error" else 0.4
    penalty, updates = scale * WIDE[name], []
    update = ActiveFeatures.update
    monkeypatch.setattr(
        ActiveFeatures, "update", lambda self, theta: updates.append(1) or update(self, theta)
    )

    def fit():
        settings = {"loss": loss, "sample_weight": case.s, "tol": 1e-7, "max_iter": 20_000}
        solution = fit_cells(*case.data, penalty=penalty, **settings)
        assert solution.converged, solution.message
        assert solution.optimality <= 1e-7
        return solution

    fast = fit()
    live = np.abs(fast.coef).reshape(5, 40, -1).max(axis=(0, 2)) > 0
    assert updates
    assert 1 < live.sum() < 40
    monkeypatch.setattr("jointleaf._core.solvers.fista._MIN_FEATURES", 10**9)
    updates.clear()
    whole = fit()
    assert not updates
    monkeypatch.setattr("jointleaf._core.solvers.newton.MAX_JOINT_BIASES", 0)
    plain = fit()
    for other in (whole, plain):
        assert other.objective == pytest.approx(fast.objective, rel=1e-8)
        np.testing.assert_allclose(_predictions(other, case), _predictions(fast, case), atol=1e-4)


def _predictions(solution, case):
    """What is unique where several slopes are equally good: a constant for all classes is not."""
    f = solution.predict(case.X, case.codes)
    return f if f.ndim == 1 else f - f.mean(axis=1)[:, None]


@pytest.mark.parametrize("name", WIDE)
def test_the_active_set_ends_in_float32(name, make_case):
    case = make_case(n=100, d=40, cells=(2, 3))
    exact = fit_cells(*case.data, penalty=WIDE[name], tol=1e-7, max_iter=5000)
    solution = fit_cells(
        case.X.astype(np.float32), case.codes, case.y, penalty=WIDE[name], max_iter=5000
    )
    assert solution.converged
    assert solution.objective == pytest.approx(exact.objective, rel=1e-5)


@pytest.mark.parametrize("loss", ["squared_error", "logistic", "multinomial"])
@pytest.mark.parametrize("name", ["l21", "l21_frobenius"])
def test_the_metric_of_shared_cells_does_not_change_the_answer(name, loss, make_case, monkeypatch):
    case = make_case(loss, n=150, d=4, cells=(2,) * 6)
    problem = _problem(case, loss, L21(0.1))
    metric = SharedCellsMetric(problem, case.s / case.s.sum(), SolverState())
    weighed, _ = problem.layout.split(metric.weigh(np.ones(problem.layout.n_weights)))
    assert weighed.max() > 1.2 * weighed.min()  # not the plain metric
    fits = []
    for most in (4096, 0):
        monkeypatch.setattr("jointleaf._core.solvers.steps.MAX_CELLS", most)
        problem = _problem(case, loss, WIDE[name])
        assert SharedCellsMetric.fits(problem, SolverState()) == (most > 0)
        fits.append(solve(problem, **TIGHT))
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=1e-10)
    np.testing.assert_allclose(fits[0].coef, fits[1].coef, rtol=0, atol=1e-6)


def _problem(case, loss, penalty):
    return Problem(LeafDesign(case.X, case.codes), case.y, make_loss(loss), penalty, case.s)
