"""Losses: values, derivatives by finite differences, extreme predictions, rejected targets."""

import numpy as np
import pytest

from jointleaf._core.losses import Logistic, Multinomial, SquaredError, make_loss

NAMES = ["squared_error", "logistic", "multinomial"]


@pytest.fixture(params=NAMES)
def at(request, make_case):
    """A loss with targets, predictions, weights and a direction."""
    case = make_case(request.param, n=12)
    loss = make_loss(request.param)
    y = loss.encode(case.y)
    rng = np.random.default_rng(1)
    return loss, y, rng.standard_normal(y.shape), case.s, rng.standard_normal(y.shape)


def test_gradient_agrees_with_finite_differences(at, numeric_gradient):
    loss, y, f, s, _ = at
    expected = numeric_gradient(lambda z: loss.value(y, z, s), f)
    np.testing.assert_allclose(loss.gradient(y, f, s), expected, rtol=1e-6, atol=1e-9)


def test_hessian_product_agrees_with_finite_differences(at):
    loss, y, f, s, v = at
    step = 1e-5
    up, down = loss.gradient(y, f + step * v, s), loss.gradient(y, f - step * v, s)
    expected = (up - down) / (2 * step)
    np.testing.assert_allclose(loss.hessian(y, f, s)(v), expected, rtol=1e-6, atol=1e-9)


def test_curvature_is_the_diagonal_of_the_hessian(at):
    loss, y, f, s, _ = at
    diagonal = np.empty_like(f)
    for i in np.ndindex(f.shape):
        unit = np.zeros_like(f)
        unit[i] = 1.0
        diagonal[i] = loss.hessian(y, f, s)(unit)[i]
    curvature = loss.curvature(y, f, s)
    assert curvature.shape == f.shape
    np.testing.assert_allclose(curvature, diagonal, rtol=1e-12)


def test_max_curvature_bounds_the_hessian_and_is_reached(at):
    loss, y, f, s, _ = at
    shares = s / s.sum()
    largest = 0.0
    for point in (f, np.zeros_like(f), 0 * f + [0.0, 0.0, -1e3] if f.ndim == 2 else 0 * f):
        for n in range(len(f)):
            unit = np.zeros_like(f)
            columns = []
            for k in np.ndindex(f.shape[1:]):
                unit[(n, *k)] = 1.0
                columns.append(np.atleast_1d(loss.hessian(y, point, s)(unit)[n]))
                unit[(n, *k)] = 0.0
            largest = max(largest, np.linalg.eigvalsh(np.array(columns))[-1] / shares[n])
    assert largest == pytest.approx(loss.max_curvature)


def test_values_written_by_hand():
    s = np.array([1.0, 3.0])
    squared = SquaredError().value(np.array([1.0, 2.0]), np.array([2.0, 0.0]), s)
    assert squared == pytest.approx((1 * 1 + 3 * 4) / 4 / 2)
    logistic = Logistic().value(np.array([1.0, -1.0]), np.array([2.0, 0.5]), s)
    expected = (np.log(1 + np.exp(-2)) + 3 * np.log(1 + np.exp(0.5))) / 4
    assert logistic == pytest.approx(expected)
    loss = Multinomial()
    f = np.array([[1.0, 0.0, -1.0], [0.5, 2.0, 0.0]])
    expected = (np.log(np.exp(f[0]).sum()) - 1.0 + 3 * np.log(np.exp(f[1]).sum()) - 3 * 0.0) / 4
    assert loss.value(loss.encode([0, 2]), f, s) == pytest.approx(expected)


def test_squared_error_adds_up_its_outputs(numeric_gradient):
    rng = np.random.default_rng(0)
    y, f, s = rng.standard_normal((5, 2)), rng.standard_normal((5, 2)), rng.uniform(1, 2, 5)
    loss = SquaredError()
    assert loss.value(y, f, s) == pytest.approx(
        loss.value(y[:, 0], f[:, 0], s) + loss.value(y[:, 1], f[:, 1], s)
    )
    expected = numeric_gradient(lambda z: loss.value(y, z, s), f)
    np.testing.assert_allclose(loss.gradient(y, f, s), expected, rtol=1e-6, atol=1e-9)


def test_only_relative_weights_matter(at):
    loss, y, f, s, _ = at
    assert loss.value(y, f, 7 * s) == pytest.approx(loss.value(y, f, s))
    np.testing.assert_allclose(loss.gradient(y, f, 7 * s), loss.gradient(y, f, s))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sign", [1, -1])
def test_no_overflow_at_extreme_predictions(at, sign, dtype):
    loss, y, f, s, v = at
    y, f = y.astype(dtype), (sign * 1e4 * np.sign(f)).astype(dtype)
    assert np.isfinite(loss.value(y, f, s))
    for result in (
        loss.gradient(y, f, s),
        loss.curvature(y, f, s),
        loss.hessian(y, f, s)(v.astype(dtype)),
        loss.link(f),
    ):
        assert np.isfinite(result).all()
        assert result.dtype == dtype


def test_extreme_losses_are_linear_in_the_prediction():
    s = np.ones(1)
    assert Logistic().value(np.ones(1), np.array([-1e4]), s) == pytest.approx(1e4)
    loss = Multinomial(3)
    f = np.array([[1e4, 0.0, 0.0]])
    assert loss.value(loss.encode([1]), f, s) == pytest.approx(1e4)


def test_best_constant_has_no_gradient(at):
    loss, y, f, s, _ = at
    constant = np.broadcast_to(loss.best_constant(y, s), f.shape)
    np.testing.assert_allclose(loss.gradient(y, constant, s).sum(axis=0), 0, atol=1e-12)


def test_best_constant_of_one_class_is_finite():
    assert np.isfinite(Logistic().best_constant(np.ones(3), np.ones(3)))
    loss = Multinomial(3)
    assert np.isfinite(loss.best_constant(loss.encode([1, 1]), np.ones(2))).all()


def test_links_give_probabilities():
    f = np.array([-2.0, 0.0, 3.0])
    np.testing.assert_allclose(Logistic().link(f)[:, 1], 1 / (1 + np.exp(-f)))
    np.testing.assert_allclose(Logistic().link(f).sum(axis=1), 1)
    scores = np.array([[0.0, np.log(2), np.log(5)]])
    np.testing.assert_allclose(Multinomial().link(scores), [[1 / 8, 2 / 8, 5 / 8]])
    np.testing.assert_array_equal(SquaredError().link(f), f)


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        (SquaredError(), [0.0, np.nan], "y holds NaN"),
        (Logistic(), [1.0, np.inf], "y holds NaN or infinity"),
        (Logistic(), [0.0, 1.0], "y in {-1, 1}.*y holds 0"),
        (Multinomial(), [0.0, 0.5], "class numbers"),
        (Multinomial(), [-1.0, 1.0], "class numbers"),
        (Multinomial(), [0.0, 0.0], "at least two classes"),
        (Multinomial(2), [0.0, 2.0], "y holds class number 2, but n_classes=2"),
    ],
)
def test_targets_that_do_not_fit_are_rejected(loss, y, message):
    with pytest.raises(ValueError, match=message):
        loss.encode(y)


def test_make_loss_takes_names_and_objects():
    assert [make_loss(name).name for name in NAMES] == NAMES
    loss = Logistic()
    assert make_loss(loss) is loss
    with pytest.raises(ValueError, match=r"loss='hinge' is not known.*logistic"):
        make_loss("hinge")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cells", ["linear", "constant"])
def test_gradient_of_the_whole_objective(name, cells, make_case, make_problem, numeric_gradient):
    problem = make_problem(make_case(name, n=25, d=2), name, cells=cells, offset=0.3)
    theta = np.random.default_rng(3).standard_normal(problem.zeros().shape)
    f = problem.design.matvec(theta)
    gradient = problem.data_gradient(f) + problem.curvature * theta
    expected = numeric_gradient(lambda t: problem.objective(t, problem.design.matvec(t)), theta)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)
    largest = np.abs(problem.data_gradient(problem.zero_predictions())).max()
    scale_free = problem.optimality(theta, problem.data_gradient(f))
    assert scale_free == pytest.approx(np.abs(expected).max() / largest, rel=1e-6)
