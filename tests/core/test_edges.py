"""Small things that only show in time, traces or rare data: each of these ends a mutant."""

import numpy as np
import pytest

from jointleaf._core.design import LeafDesign, largest_eigenvalue
from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import make_loss
from jointleaf._core.losses.base import Huber, SmoothedPinball
from jointleaf._core.penalties import L21, Free, Frobenius, GrOWL, Nuclear
from jointleaf._core.penalties.prox import _solve_power
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import flat_curvature, solve
from jointleaf._core.solvers.fista import ActiveFeatures
from jointleaf._core.solvers.krylov import _Vectors
from jointleaf._core.solvers.newton import _BlockInverse
from jointleaf._core.solvers.steps import Steps


def problem(penalty, d=3, y=None, X=None):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, d)) if X is None else X
    y = X[:, 0] + rng.standard_normal(len(X)) if y is None else y
    codes = np.arange(len(X))[:, None] % 2
    return Problem(LeafDesign(X, codes), y, make_loss("squared_error"), penalty)


def test_curvature_is_that_of_the_parabola_alone():
    loss = SmoothedPinball(0.3, 0.7, 0.1)
    f = np.array([-1.0, -0.031, -0.029, 0.069, 0.071, 1.0])  # of targets of zero
    curvature = loss.row_curvature(np.zeros(6), f)
    np.testing.assert_allclose(curvature, [0, 0, 10, 10, 0, 0], rtol=1e-12)


def test_delta_in_other_units():
    assert Huber(2.0).in_units(4.0).delta == 0.5
    assert Huber().in_units(4.0).delta is None


def test_rows_without_curvature_get_a_little():
    h = np.array([4.0, 1e-8, 1e-6, 0.0])
    np.testing.assert_allclose(flat_curvature(h, 0.5), [0, 2e-3, 0, 2e-3])
    np.testing.assert_allclose(flat_curvature(h, 7.0), [0, 4e-3, 0, 4e-3])


def test_vectors_beyond_their_room():
    rows = np.random.default_rng(0).standard_normal((200, 3))
    vectors = _Vectors(rows[:1])
    for row in rows[1:]:
        vectors.append(row)
    np.testing.assert_array_equal(vectors.array, rows)


def test_a_start_that_is_the_optimum_has_the_slope_of_its_terms():
    X, y = np.full((4, 1), 3.0), np.array([1.0, 1.0, -1.0, -1.0])  # two of each cell
    flat = problem(Frobenius(0.1), X=X, y=y)
    slope = np.abs(flat.slope(flat.zero_predictions())).sum()
    assert slope > 0
    assert flat.start_slope == pytest.approx(3 * slope)


def test_iterations_are_counted_one_by_one():
    assert solve(problem(Frobenius(0.1)), "dual").n_iter == 1
    solution = solve(problem(Frobenius(0.1, 0.2), d=8), "pcg")
    steps = [point.iteration for point in solution.trace]
    assert len(steps) > 2
    assert steps == sorted(steps)
    assert steps[-1] == solution.n_iter
    assert "trace" not in repr(solve(problem(Frobenius(0.1)), "dual"))


def test_zero_has_the_eigenvalue_zero():
    assert largest_eigenvalue(lambda v: v, np.zeros(3), 5) == 0.0
    assert largest_eigenvalue(lambda v: 2 * v, np.ones(3), 5) == pytest.approx(2)


def test_penalties_are_summed():
    assert repr(sum([L21(0.1), Nuclear(0.2)])) == repr(L21(0.1) + Nuclear(0.2))
    with pytest.raises(TypeError):
        1 + L21(0.1)


def test_a_step_says_how_far_it_went():
    flat = problem(L21(0.01))
    steps, theta = Steps(flat), flat.zeros()
    step = steps.advance(theta, flat.design.matvec(theta), 0.5 * steps.size())
    assert step.size != 1
    assert step.distance == pytest.approx(np.abs(step.theta).max() / step.size)


def test_restricted_growl_has_the_first_weights():
    layout = CellLayout((2,), 4)
    whole, few = GrOWL(0.3, weights=[4.0, 3.0, 2.0, 1.0]).bind(layout), np.array([1, 3])
    theta = np.random.default_rng(0).standard_normal(10)
    slopes, biases = layout.split(theta)
    slopes[:, [0, 2]] = 0
    part = whole.restricted(few)
    rest = layout.with_features(2).join(slopes[:, few], biases)
    assert part.value(rest) == pytest.approx(whole.value(layout.join(slopes, biases)))


def test_what_is_free_stays_free_of_fewer_features():
    part = Free().bind(CellLayout((2,), 4)).restricted(np.array([1, 3]))
    assert part.layout.n_features == 2


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_biases_that_are_combinations_of_others_are_found(size):
    """Each of two partitions has all rows, whatever their curvature is."""
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, 7, 300), rng.integers(0, 9, 300)])
    design, h = LeafDesign(np.zeros((300, 1)), codes, cells="constant"), size * rng.random(300)
    inverse = _BlockInverse(design, h, np.zeros(16), design.cell_mass(h), None)
    assert len(inverse._chosen) == 15


@pytest.mark.parametrize("e", [0.3, 0.5, 1.0, 2.5])
def test_powers_are_solved(e):
    V, c = np.array([[0.0, 0.1, 3.0]]), np.array([[0.7]])
    x = _solve_power(V, c, e)
    np.testing.assert_allclose(x + c * x**e, V, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("penalty", "d", "fits"),
    [(L21(0.1), 9, True), (L21(0.1), 8, False), (Nuclear(0.1), 9, False)],
)
def test_features_are_left_out_where_many_vanish(penalty, d, fits):
    assert ActiveFeatures.fits(problem(penalty, d)) is fits
