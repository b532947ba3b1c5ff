"""Penalties that are norms of the slopes: values, the largest strength, fits, wrong arguments."""

import numpy as np
import pytest

from jointleaf._core.fitting import fit_cells
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import (
    L1,
    L21,
    Frobenius,
    GrOWL,
    KyFan,
    LInf1,
    Lp1,
    Nuclear,
    Penalty,
    SchattenP,
)
from jointleaf._core.solvers.base import solve
from tables import on_tables

LAYOUT = CellLayout((2, 3), 4)
WEIGHTS = [1.0, 0.5, 0.5, 0.2]
TIGHT = {"tol": 1e-8, "max_iter": 20_000}


def sigma(W):
    return np.linalg.svd(W, compute_uv=False)


def rows(W, p=2):
    return np.linalg.norm(W, p, axis=1)


def power(values, p):
    return np.sum(values**p) ** (1 / p)


# name: (penalty of a strength, norm of W (d, m))
NORMS = {
    "l1": (L1, lambda W: np.abs(W).sum()),
    "l21": (L21, lambda W: rows(W).sum()),
    "linf1": (LInf1, lambda W: rows(W, np.inf).sum()),
    "lp1_1.5": (lambda t, **k: Lp1(t, 1.5, **k), lambda W: rows(W, 1.5).sum()),
    "lp1_3": (lambda t, **k: Lp1(t, 3, **k), lambda W: rows(W, 3).sum()),
    "growl": (
        lambda t, **k: GrOWL(t, WEIGHTS, **k),
        lambda W: WEIGHTS @ np.sort(rows(W))[::-1],
    ),
    "growl_default": (GrOWL, lambda W: [1, 0.75, 0.5, 0.25] @ np.sort(rows(W))[::-1]),
    "nuclear": (Nuclear, lambda W: sigma(W).sum()),
    "ky_fan": (lambda t, **k: KyFan(t, 2, **k), lambda W: sigma(W)[:2].sum()),
    "schatten_1.5": (lambda t, **k: SchattenP(t, 1.5, **k), lambda W: power(sigma(W), 1.5)),
    "schatten_3": (lambda t, **k: SchattenP(t, 3, **k), lambda W: power(sigma(W), 3)),
    "schatten_inf": (lambda t, **k: SchattenP(t, np.inf, **k), lambda W: sigma(W)[0]),
}
each_norm = pytest.mark.parametrize("name", NORMS)
each_loss = pytest.mark.parametrize("loss", ["squared_error", "logistic"])


def slopes(theta):
    return np.stack([theta[:, j].ravel() for j in range(theta.shape[1] - 1)])


# -- values ------------------------------------------------------------------------------------


@each_norm
@pytest.mark.parametrize("outputs", [(), (3,)], ids=["one_output", "three_outputs"])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_value_is_the_strength_times_the_norm(name, outputs, rank):
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((4, rank)), rng.standard_normal((rank, 5, *outputs))
    theta = np.append(np.tensordot(left, right, 1), rng.standard_normal((1, 5, *outputs)), axis=0)
    theta = np.swapaxes(theta, 0, 1)
    make, norm = NORMS[name]
    expected = 0.7 * norm(slopes(theta))
    assert on_tables(make(0.7), LAYOUT).value(theta) == pytest.approx(expected, rel=1e-12)
    biased = on_tables(make(0.7, bias_strength=0.3), LAYOUT).value(theta)
    assert biased == pytest.approx(expected + 0.15 * np.sum(theta[:, -1] ** 2), rel=1e-12)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Lp1(0.3, 1), L1(0.3)),
        (Lp1(0.3, 2), L21(0.3)),
        (Lp1(0.3, np.inf), LInf1(0.3)),
        (GrOWL(0.3, np.ones(4)), L21(0.3)),
        (SchattenP(0.3, 1), Nuclear(0.3)),
        (KyFan(0.3, 4), Nuclear(0.3)),
        (KyFan(0.3, 1), SchattenP(0.3, np.inf)),
    ],
    ids=repr,
)
def test_special_cases_are_the_same_penalty(one, other):
    theta = np.random.default_rng(0).standard_normal((5, 5))
    one, other = on_tables(one, LAYOUT), on_tables(other, LAYOUT)
    assert one.value(theta) == pytest.approx(other.value(theta), rel=1e-12)
    np.testing.assert_allclose(one.prox(theta, 2.0), other.prox(theta, 2.0), rtol=0, atol=1e-12)
    assert one.strength_max(theta) == pytest.approx(other.strength_max(theta), rel=1e-12)


def test_schatten_2_is_the_frobenius_norm_not_squared():
    theta = np.random.default_rng(0).standard_normal((5, 5))
    length = np.linalg.norm(theta[:, :-1])
    penalty = on_tables(SchattenP(0.3, 2), LAYOUT)
    assert penalty.value(theta) == pytest.approx(0.3 * length)
    shrunk = penalty.prox(theta, 1.0)[:, :-1]
    np.testing.assert_allclose(shrunk, theta[:, :-1] * (1 - 0.3 / length), rtol=1e-10)


@pytest.mark.parametrize("p", [30, 100])
def test_large_powers_stay_finite_where_little_is_left(p):
    """The prox at (1 - 1e-9) times the strength that leaves nothing is tiny, but it exists."""
    theta = np.random.default_rng(0).standard_normal((5, 2))
    q, V = p / (p - 1), theta[:, 0]
    largest = np.sum(np.abs(V) ** q) ** (1 / q)
    penalty = on_tables(Lp1(largest * (1 - 1e-9), p), CellLayout((5,), 1))
    z = penalty.prox(theta, 1.0)[:, 0]
    assert 0 < np.abs(z).max() < 1e-8
    np.testing.assert_array_equal(np.sign(z), np.sign(V))


# -- the largest strength ----------------------------------------------------------------------


def _gradient_at_zero_slopes(problem):
    solution = solve(problem, **TIGHT)
    assert not solution.coef.any()
    return problem.data_gradient(problem.design.matvec(solution.theta))


@each_loss
@each_norm
def test_at_the_largest_strength_all_slopes_vanish(name, loss, make_case, make_problem):
    case, make = make_case(loss, d=4, cells=(2, 3)), NORMS[name][0]
    gradient = _gradient_at_zero_slopes(make_problem(case, loss, make(1e6)))
    largest = make(1.0).bind(LAYOUT).strength_max(gradient)
    settings = {"loss": loss, "sample_weight": case.s, **TIGHT}
    above = fit_cells(*case.data, penalty=make(1.0001 * largest), **settings)
    below = fit_cells(*case.data, penalty=make(0.98 * largest), **settings)
    assert above.converged
    assert not above.coef.any()
    assert np.abs(below.coef).max() > 1e-4


@each_norm
@pytest.mark.parametrize("outputs", [(), (3,)], ids=["one_output", "three_outputs"])
def test_search_for_the_largest_strength_agrees(name, outputs):
    gradient = 1e-3 * np.random.default_rng(0).standard_normal((25, *outputs))
    penalty = NORMS[name][0](1.0).bind(LAYOUT)
    searched = Penalty.strength_max(penalty, gradient)
    assert penalty.strength_max(gradient) == pytest.approx(searched, rel=1e-7)


@each_norm
def test_largest_strength_of_a_multiple(name):
    gradient = np.random.default_rng(0).standard_normal(25)
    penalty = NORMS[name][0]("auto").bind(LAYOUT)
    assert (4 * penalty).strength_max(gradient) == pytest.approx(penalty.strength_max(gradient) / 4)
    searched = Penalty.strength_max(4 * penalty, gradient)
    assert (4 * penalty).strength_max(gradient) == pytest.approx(searched, rel=1e-7)


@each_norm
def test_largest_strength_without_slopes_to_move_is_zero(name):
    gradient = LAYOUT.join(np.zeros((5, 4)), np.ones(5))
    penalty = NORMS[name][0](1.0).bind(LAYOUT)
    assert penalty.strength_max(gradient) == 0
    assert Penalty.strength_max(penalty, gradient) == 0


# -- fits --------------------------------------------------------------------------------------


@each_loss
@pytest.mark.parametrize("p", [1.5, 3.0])
def test_schatten_p_meets_its_optimality_condition(p, loss, make_case, make_problem):
    """-gradient / strength has dual norm 1 and inner product |W| with the slopes W."""
    problem = make_problem(make_case(loss, d=4, cells=(2, 3)), loss, SchattenP(0.05, p))
    solution = solve(problem, **TIGHT)
    gradient = problem.data_gradient(problem.design.matvec(solution.theta))
    G, W = -slopes(LAYOUT.by_cell(gradient)) / 0.05, slopes(LAYOUT.by_cell(solution.theta))
    assert np.abs(W).max() > 0.05
    assert power(sigma(G), p / (p - 1)) == pytest.approx(1, rel=1e-6)
    assert np.vdot(G, W) == pytest.approx(power(sigma(W), p), rel=1e-6)
    np.testing.assert_allclose(LAYOUT.split(gradient)[1], 0, atol=1e-8)


@each_norm
def test_constant_cells_have_no_slopes_to_penalise(name, make_case):
    case = make_case(d=4)
    penalty = NORMS[name][0](0.3, bias_strength=0.2)
    solution = fit_cells(*case.data, cells="constant", penalty=penalty, **TIGHT)
    ridge = fit_cells(*case.data, cells="constant", penalty=Frobenius(1.0, 0.2), **TIGHT)
    np.testing.assert_allclose(solution.intercept, ridge.intercept, rtol=1e-6)
    assert solution.objective == pytest.approx(ridge.objective, rel=1e-9)


@each_norm
def test_float32_rows_give_the_same_fit(name, make_case):
    case, penalty = make_case(n=40, d=4, cells=(3,)), NORMS[name][0](0.05)
    solution = fit_cells(case.X.astype(np.float32), case.codes, case.y, penalty=penalty, tol=1e-5)
    exact = fit_cells(*case.data, penalty=penalty, tol=1e-7)
    assert solution.coef.dtype == np.float32
    assert solution.converged
    assert solution.objective == pytest.approx(exact.objective, rel=1e-5)


# -- rejected -----------------------------------------------------------------------------------


@each_norm
def test_strength_must_be_positive(name):
    for value in (0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"^strength=.* must be a positive number, or 'auto'$"):
            NORMS[name][0](value)
    for value in ("much", None, [1.0], True):
        with pytest.raises(TypeError, match=r"^strength=.* must be a positive number, or 'auto'$"):
            NORMS[name][0](value)
    with pytest.raises(ValueError, match=r"^bias_strength=-1.* not negative$"):
        NORMS[name][0](1.0, bias_strength=-1.0)


@pytest.mark.parametrize("penalty", [Lp1, SchattenP])
def test_power_must_be_at_least_one(penalty):
    for p in (0.5, -2, np.nan):
        with pytest.raises(ValueError, match=r"^p=.* at least 1: below 1 it is not convex$"):
            penalty(1.0, p)
    with pytest.raises(TypeError, match=r"^p='two' must be a number, at least 1$"):
        penalty(1.0, "two")


@pytest.mark.parametrize("k", [0, -1, 2.5, "2", True, None])
def test_ky_fan_takes_a_whole_number(k):
    with pytest.raises(ValueError, match=r"^k=.* must be a whole number, at least 1$"):
        KyFan(1.0, k)


def test_ky_fan_takes_at_most_the_number_of_features(make_case):
    with pytest.raises(ValueError, match=r"^k=4 is more than the 3 features"):
        fit_cells(*make_case().data, penalty=KyFan(1.0, 4))


@pytest.mark.parametrize("weights", [[1.0, -0.5], [1.0, np.nan], [[1.0, 0.5]], 1.0])
def test_growl_takes_a_list_of_numbers_that_are_not_negative(weights):
    with pytest.raises(ValueError, match=r"^weights of GrOWL must be a list of numbers"):
        GrOWL(1.0, weights)


@pytest.mark.parametrize("weights", [[0.5, 1.0], [0.0, 0.0], []])
def test_growl_takes_falling_weights(weights):
    with pytest.raises(ValueError, match=r"^weights of GrOWL must begin with a positive .* sort"):
        GrOWL(1.0, weights)


def test_growl_takes_numbers():
    with pytest.raises(TypeError, match=r"^weights='equal' must be a list of numbers"):
        GrOWL(1.0, "equal")


def test_growl_takes_one_weight_a_feature(make_case):
    with pytest.raises(ValueError, match=r"^weights of GrOWL has 4 entries, but there are 3"):
        fit_cells(*make_case().data, penalty=GrOWL(1.0, WEIGHTS))


@pytest.mark.parametrize("solver", ["pcg", "dual", "newton"])
@each_norm
def test_solvers_for_quadratic_penalties_reject_norms(name, solver, make_case):
    with pytest.raises(ValueError, match=rf"^solver='{solver}' does not fit .*use solver='fista'$"):
        fit_cells(*make_case(d=4).data, penalty=NORMS[name][0](0.1), solver=solver)


@each_norm
def test_a_strength_to_choose_cannot_be_fitted(name, make_case):
    with pytest.raises(ValueError, match=r"^penalty=.*'auto'.* has a strength to choose"):
        fit_cells(*make_case(d=4).data, penalty=NORMS[name][0]("auto"))
