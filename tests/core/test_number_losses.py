"""Losses of numbers: values, derivatives, constants and scales, checks, smooth lower bounds."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import poisson
from sklearn.metrics import (
    mean_absolute_error,
    mean_gamma_deviance,
    mean_pinball_loss,
    mean_poisson_deviance,
    mean_tweedie_deviance,
)

from jointleaf import L21, Frobenius, fit_cells, fit_tasks, strength_path
from jointleaf._core.losses import make_loss, make_number_loss, robust_scale, weighted_quantile
from jointleaf._core.problem import Problem
from jointleaf.losses import (
    AbsoluteError,
    Gamma,
    Huber,
    JaxLoss,
    Kinked,
    Loss,
    Poisson,
    Quantile,
    SquaredError,
    Tweedie,
)

SMOOTH = [Huber(0.7), Poisson(), Gamma(), Tweedie(1.3), Tweedie(1.9)]
KINKED = [AbsoluteError(), Quantile(0.1), Quantile(0.5), Quantile(0.9)]
LOG_LINK = [loss for loss in SMOOTH if loss.has_log_link]


def sample(loss, n=30, seed=0):
    """Targets that suit a loss, predictions and weights."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(n)
    if loss.has_log_link:
        y = np.exp(y) if isinstance(loss, Gamma) else rng.poisson(np.exp(y)).astype(float)
    return y, rng.standard_normal(n), rng.uniform(0.3, 2.0, n)


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_derivatives_agree_with_finite_differences(loss, numeric_gradient):
    y, f, s = sample(loss)
    expected = numeric_gradient(lambda z: loss.value(y, z, s), f)
    np.testing.assert_allclose(loss.gradient(y, f, s), expected, rtol=1e-6, atol=1e-9)
    step = 1e-6
    bend = (loss.gradient(y, f + step, s) - loss.gradient(y, f - step, s)) / (2 * step)
    np.testing.assert_allclose(loss.curvature(y, f, s), bend, rtol=1e-5, atol=1e-8)
    assert (loss.row_curvature(y, f) >= 0).all()
    assert (loss.row_working_curvature(y, f) > 0).all()


def test_values_are_half_deviances_and_errors_of_scikit_learn():
    for loss, deviance in (
        (Poisson(), mean_poisson_deviance),
        (Gamma(), mean_gamma_deviance),
        (Tweedie(1.3), lambda *a, **k: mean_tweedie_deviance(*a, power=1.3, **k)),
    ):
        y, f, s = sample(loss)
        expected = deviance(y, np.exp(f), sample_weight=s) / 2
        assert loss.value(y, f, s) == pytest.approx(expected, rel=1e-12)
    y, f, s = sample(AbsoluteError())
    assert AbsoluteError().value(y, f, s) == pytest.approx(
        mean_absolute_error(y, f, sample_weight=s)
    )
    for q in (0.1, 0.9):
        expected = mean_pinball_loss(y, f, sample_weight=s, alpha=q)
        assert Quantile(q).value(y, f, s) == pytest.approx(expected)
    r = np.abs(y - f)
    by_hand = np.where(r <= 0.7, r**2 / 2, 0.7 * (r - 0.35))
    np.testing.assert_allclose(Huber(0.7).row_loss(y, f), by_hand, rtol=1e-12)


@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=repr)
@pytest.mark.parametrize("has_offset", [False, True])
def test_best_shift_is_the_minimiser(loss, has_offset):
    y, f, s = sample(loss, n=31)
    offset = f if has_offset else 0.0
    shift = float(loss.best_shift(y, s, offset))

    def value(c):
        return loss.value(y, c + offset * np.ones(31), s)

    best = minimize_scalar(value, bounds=(-6, 6), method="bounded", options={"xatol": 1e-12})
    assert value(shift) <= best.fun + 1e-10
    generic = float(Loss._search_shift(loss, y, s, offset))
    assert value(generic) == pytest.approx(value(shift), abs=1e-9)


@pytest.mark.parametrize("loss", [loss for loss in SMOOTH if isinstance(loss, Huber)], ids=repr)
def test_working_curvature_of_residuals_is_that_of_an_upper_bound(loss):
    _assert_upper_bound(loss)


@pytest.mark.parametrize("loss", KINKED, ids=repr)
def test_smoothed_losses_bound_from_below_and_have_upper_parabolas(loss):
    y, f, _ = sample(loss, n=200)
    for width in (1.0, 0.01):
        smooth = loss.smoothed(width)
        lacking = loss.row_loss(y, f) - smooth.row_loss(y, f)
        assert (lacking >= -1e-15).all()
        assert (lacking <= width / 2 * max(loss.under, loss.over) ** 2 + 1e-15).all()
        _assert_upper_bound(smooth)
        slope = smooth.row_gradient(y, f)
        excess = loss.row_excess(y, f, slope)
        assert (excess >= -1e-15).all()
        assert (excess[np.abs(y - f) > width] <= 1e-15).all()


def _assert_upper_bound(loss):
    rng = np.random.default_rng(1)
    y, at, other = (2 * rng.standard_normal(2000) for _ in range(3))
    move = other - at
    parabola = (
        loss.row_loss(y, at)
        + loss.row_gradient(y, at) * move
        + loss.row_working_curvature(y, at) * move**2 / 2
    )
    assert (parabola >= loss.row_loss(y, other) - 1e-12).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=repr)
def test_no_overflow_at_extreme_predictions(loss, dtype):
    y, f, s = sample(loss)
    f = (1e4 * np.sign(f)).astype(dtype)
    with np.errstate(over="raise"):
        results = loss.gradient(y.astype(dtype), f, s), loss.curvature(y.astype(dtype), f, s)
        assert all(np.isfinite(r).all() and r.dtype == dtype for r in (*results, loss.link(f)))


@pytest.mark.parametrize("loss", LOG_LINK, ids=repr)
def test_links_are_means(loss):
    np.testing.assert_allclose(loss.link(np.array([0.0, 1.0])), np.exp([0.0, 1.0]))


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        (Poisson(), [1.0, -2.0], "loss='poisson' takes y that is zero or positive, .* y holds -2"),
        (Tweedie(), [1.0, -2.0], "loss='tweedie' takes y that is zero or positive"),
        (Gamma(), [1.0, 0.0], "loss='gamma' takes y that is positive, but y holds 0"),
        (AbsoluteError(), [1.0, np.nan], "y holds NaN"),
    ],
)
def test_targets_that_do_not_fit_are_rejected(loss, y, message):
    with pytest.raises(ValueError, match=message):
        loss.encode(y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Quantile(0.0), "quantile=0.0 must be a number between 0 and 1"),
        (lambda: Quantile(1), "quantile=1 must be a number between 0 and 1"),
        (lambda: Tweedie(3), "power=3 must be a number between 1 .* not convex"),
        (lambda: Tweedie(0.5), "power=0.5 must be a number between 1"),
        (lambda: Huber(-1.0), "delta=-1.0 must be a positive number"),
        (lambda: Huber().row_loss(np.ones(1), np.ones(1)), "has no delta yet"),
        (lambda: make_number_loss("hinge"), "loss='hinge' is not known"),
        (lambda: make_number_loss("logistic"), "loss='logistic' is not known"),
        (lambda: make_number_loss(make_loss("logistic")), "is for classes"),
        (lambda: make_number_loss("poisson", power=1.5), "power=1.5 has no effect"),
        (lambda: make_number_loss("huber", quantile=0.5), "quantile=0.5 has no effect"),
        (lambda: make_number_loss("tweedie", power=3.0), "power=3.0 must be"),
    ],
)
def test_parameters_that_do_not_fit_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_make_number_loss_knows_parameters_and_limits():
    assert make_number_loss("quantile", quantile=0.2) == Quantile(0.2)
    assert make_number_loss("tweedie", power=1.7) == Tweedie(1.7)
    limits = [make_number_loss("tweedie", power=p) for p in (0, 1, 2)]
    assert limits == [SquaredError(), Poisson(), Gamma()]
    own = Huber(2.0)
    assert make_number_loss(own) is own
    with pytest.raises(TypeError, match="loss=3 must be"):
        make_number_loss(3)


def test_weighted_quantiles_and_scales():
    values = np.array([3.0, 1.0, 2.0, 10.0])
    assert weighted_quantile(values, np.ones(4), 0.5) == 2.0
    assert weighted_quantile(values, np.array([1.0, 1.0, 1.0, 9.0]), 0.5) == 10.0
    normal = 3 * np.random.default_rng(0).standard_normal(100_000) + 5
    assert robust_scale(normal, np.ones(100_000)) == pytest.approx(3, rel=0.02)
    assert robust_scale(np.array([1.0, 1.0, 1.0, 5.0]), np.ones(4)) == pytest.approx(1.0)
    assert robust_scale(np.ones(4), np.ones(4)) == 1.0


# -- joint fits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["dual", "newton", "fista"])
@pytest.mark.parametrize("loss", [*KINKED, *SMOOTH], ids=repr)
def test_solvers_agree_and_certify_the_optimum(loss, solver, make_case):
    case = make_case(n=120)
    y = sample(loss, 120)[0] if loss.has_log_link else case.y
    options = {"penalty": Frobenius(0.05, 0.02), "sample_weight": case.s, "loss": loss}
    best = fit_cells(case.X, case.codes, y, solver="newton", tol=1e-8, **options)
    tol = 3e-6 if solver == "fista" else 1e-6
    found = fit_cells(case.X, case.codes, y, solver=solver, tol=tol, max_iter=20_000, **options)
    assert found.converged
    assert found.optimality <= tol
    # The gap is a bound: it is not exceeded, and it is small.
    assert found.objective - best.objective <= found.gap + 1e-9
    assert found.gap <= 1e-4
    assert found.loss == loss


def test_optimality_of_a_kinked_loss_tells_bad_weights_apart(make_case):
    case = make_case(n=60)
    options = {"loss": "absolute_error", "penalty": Frobenius(0.05, 0.02), "solver": "newton"}
    best = fit_cells(*case.data, **options, tol=1e-8)
    with pytest.warns(UserWarning, match="stopped after 2 iterations"):
        early = fit_cells(*case.data, **options, max_iter=2)
    assert not early.converged
    assert early.objective - best.objective <= early.gap
    assert early.optimality > 1e-3


@pytest.mark.parametrize("loss", [Poisson(), AbsoluteError()], ids=repr)
def test_offsets_of_rows_are_added_to_predictions(loss, make_case):
    case = make_case(n=80)
    y = np.random.default_rng(0).poisson(2.0, 80).astype(float)
    offset = np.random.default_rng(1).standard_normal(80)
    options = {"penalty": Frobenius(0.05, 0.02), "solver": "newton", "tol": 1e-9, "loss": loss}
    found = fit_cells(case.X, case.codes, y, offset=offset, **options)
    if loss.has_log_link:  # the weighted fit of rates
        rate = fit_cells(
            case.X, case.codes, y / np.exp(offset), sample_weight=np.exp(offset),
            **{**options, "penalty": Frobenius(0.05, 0.02) * (80 / np.exp(offset).sum())},
        )  # fmt: skip
    else:
        rate = fit_cells(case.X, case.codes, y - offset, **options)
    np.testing.assert_allclose(
        found.predict(case.X, case.codes), rate.predict(case.X, case.codes), atol=1e-5
    )


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (np.zeros(3), r"offset has shape \(3,\): give one number, or one for each of 60 rows"),
        (np.full(60, np.nan), "offset holds NaN"),
        ("many", "offset must hold real numbers"),
    ],
)
def test_wrong_offsets_are_rejected(offset, message, make_case):
    with pytest.raises(ValueError, match=message):
        fit_cells(*make_case().data, offset=offset)


def test_rows_of_weight_zero_lose_their_offset_too(make_case):
    case = make_case()
    s = (np.arange(60) % 3 > 0).astype(float)
    offset = np.linspace(-1, 1, 60)
    found = fit_cells(*case.data, offset=offset, sample_weight=s)
    some = s > 0
    alone = fit_cells(case.X[some], case.codes[some], case.y[some], offset=offset[some])
    np.testing.assert_allclose(found.intercept, alone.intercept)


def test_the_scale_of_huber_is_that_of_its_own_residuals(make_case):
    case = make_case(n=200)
    found = fit_cells(*case.data, loss="huber", penalty=Frobenius(0.01))
    residuals = case.y - found.predict(case.X, case.codes)
    expected = Huber().with_scale(residuals, np.ones(200))
    assert found.loss.delta == pytest.approx(expected.delta, rel=2e-3)
    assert found.loss.delta == pytest.approx(
        1.345 * robust_scale(residuals, np.ones(200)), rel=2e-3
    )
    fixed = fit_cells(*case.data, loss=found.loss, penalty=Frobenius(0.01))
    assert fixed.objective == pytest.approx(found.objective, rel=1e-6)


def test_problems_find_a_scale_that_is_missing(make_case, make_problem):
    problem = make_problem(make_case(), "huber")
    assert isinstance(problem, Problem)
    assert problem.loss.delta > 0


@pytest.mark.parametrize("loss", ["absolute_error", "quantile", "poisson", "huber"])
def test_paths_accept_every_loss(loss, make_case):
    case = make_case(n=150, d=4)
    y = np.exp(case.y) if loss == "poisson" else case.y
    path = strength_path(case.X, case.codes, y, penalty=L21(1.0), loss=loss, n_strengths=5)
    assert path.n_selected[0] <= 1
    assert path.n_selected[-1] >= 3
    assert (np.diff(path.error) < 0).all()


@pytest.mark.parametrize("loss", [AbsoluteError(), Quantile(0.8), Huber(0.5)], ids=repr)
def test_targets_far_from_zero_are_reached_by_free_biases(loss, make_case):
    """At the start all rows are on linear pieces of the loss, without any curvature."""
    case, penalty = make_case(n=150, d=4), Frobenius(0.1, bias_strength=0.0)
    near = fit_cells(case.X, case.codes, case.y, loss=loss, penalty=penalty)
    far = fit_cells(case.X, case.codes, case.y + 50, loss=loss, penalty=penalty, solver="newton")
    assert far.converged
    assert far.objective == pytest.approx(near.objective, rel=1e-4)
    paths = [
        strength_path(case.X, case.codes, y, penalty=L21(1.0), loss=loss, n_strengths=3)
        for y in (case.y, case.y + 50)
    ]
    np.testing.assert_allclose(paths[0].strengths, paths[1].strengths, rtol=0.01)


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        ({"loss": "quantile", "quantile": 0.8}, Quantile(0.8)),
        ({"loss": "tweedie", "power": 1.3}, Tweedie(1.3)),
    ],
)
def test_functions_take_levels_and_powers(options, loss, make_case):
    case = make_case(n=80, d=3)
    y = np.exp(case.y)
    named = fit_cells(case.X, case.codes, y, penalty=Frobenius(0.1), **options)
    given = fit_cells(case.X, case.codes, y, penalty=Frobenius(0.1), loss=loss)
    np.testing.assert_array_equal(named.theta, given.theta)
    path = strength_path(case.X, case.codes, y, penalty=L21(1.0), n_strengths=2, **options)
    assert all(solution.loss == loss for solution in path.solutions)
    with pytest.raises(ValueError, match="has no effect with loss='squared_error'"):
        fit_cells(case.X, case.codes, y, **{k: v for k, v in options.items() if k != "loss"})


def test_paths_take_offsets_of_validation_rows(make_case):
    case = make_case(n=60)
    y, offset = np.exp(case.y), np.linspace(0, 1, 60)
    options = {"penalty": Frobenius(1.0), "loss": "poisson", "strengths": [0.1], "offset": offset}
    path = strength_path(
        case.X, case.codes, y, validation=(case.X, case.codes, y, offset), **options
    )
    assert path.validation_error[0] == pytest.approx(path.error[0])
    with pytest.raises(ValueError, match="give validation as X, codes, y and offset"):
        strength_path(case.X, case.codes, y, validation=(case.X, case.codes, y), **options)


@pytest.mark.parametrize("loss", ["absolute_error", "poisson"])
def test_tasks_accept_every_loss(loss, make_case):
    cases = [make_case(n=60, seed=k) for k in range(2)]
    tasks = [(c.X, c.codes, np.exp(c.y)) for c in cases]
    together = fit_tasks(tasks, penalty=Frobenius(0.05), loss=loss, tol=1e-7)
    for task, solution in zip(tasks, together.tasks, strict=True):
        alone = fit_cells(*task, penalty=Frobenius(0.05), loss=loss, tol=1e-7)
        np.testing.assert_allclose(solution.predict(*task[:2]), alone.predict(*task[:2]), atol=2e-3)


@pytest.mark.parametrize(("loss", "power"), [(Poisson(), 1), (Gamma(), 2), (Tweedie(1.5), 1.5)])
def test_deviations_are_those_of_the_variance_function(loss, power):
    mean = np.array([0.1, 1.0, 30.0])
    np.testing.assert_allclose(loss.deviation(mean) ** 2, mean**power)
    np.testing.assert_array_equal(AbsoluteError().deviation(mean), np.ones(3))


def test_low_quantiles_of_counts():
    mean, levels = np.array([[1e-9], [0.1], [3.2], [300.0]]), np.array([0.01, 0.05, 0.49])
    np.testing.assert_array_equal(Poisson().low_quantiles(mean, levels), poisson.ppf(levels, mean))
    assert np.isinf(Gamma().low_quantiles(mean, levels)).all()


# -- on JAX ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=repr)
def test_numpy_and_jax_agree(loss):
    jax = pytest.importorskip("jax")
    from jointleaf._core.arrays import double_precision

    y, f, _ = sample(loss)
    losses = [loss] if loss.is_smooth else [loss, loss.smoothed(0.3)]
    with double_precision():
        for each in losses:
            for name in ("row_loss", "row_gradient", "row_curvature"):
                function = getattr(each, name)
                theirs = np.asarray(function(jax.numpy.asarray(y), jax.numpy.asarray(f)))
                np.testing.assert_allclose(theirs, function(y, f), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["auto", "newton", "fista"])
@pytest.mark.parametrize("loss", [Poisson(), Huber(0.5), AbsoluteError()], ids=repr)
def test_solvers_on_jax_agree(loss, solver, make_case):
    pytest.importorskip("jax")
    case = make_case(n=60)
    y = np.exp(case.y) if loss.has_log_link else case.y
    options = {"penalty": Frobenius(0.05, 0.02), "loss": loss, "solver": solver, "tol": 1e-5}
    options |= {"max_iter": 20_000}
    there = fit_cells(case.X, case.codes, y, device="jax:cpu", **options)
    here = fit_cells(case.X, case.codes, y, **{**options, "tol": 1e-8, "solver": "newton"})
    assert there.converged
    rounding = 4 * np.spacing(here.objective)  # of the two sums
    assert there.objective - here.objective <= there.gap + rounding
    assert there.gap <= 3e-5


@pytest.mark.slow
def test_the_dual_of_a_kinked_loss_is_refused_on_devices(make_case):
    pytest.importorskip("jax")
    options = {"penalty": Frobenius(0.05, 0.02), "loss": "absolute_error", "solver": "dual"}
    with pytest.raises(ValueError, match="only written for the CPU: use 'newton'"):
        fit_cells(*make_case().data, device="jax:cpu", **options)


@pytest.mark.slow
def test_a_jax_loss_has_constants_after_offsets():
    jnp = pytest.importorskip("jax.numpy")
    y, f, s = sample(Poisson())
    loss = JaxLoss(lambda y, f: jnp.exp(f) - y * f)
    assert float(loss.best_shift(y, s, f)) == pytest.approx(
        float(Poisson().best_shift(y, s, f)), abs=1e-5
    )


def test_kinked_losses_are_told_apart():
    assert all(isinstance(loss, Kinked) and not loss.is_smooth for loss in KINKED)
    assert not any(isinstance(loss, Kinked) for loss in SMOOTH)
