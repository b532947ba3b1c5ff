"""The tutorial on own penalties and losses: its code runs, and independent solvers agree."""

import re
import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import PoissonRegressor

from jointleaf import L1, L21, Frobenius, fit_cells, strength_path
from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import Loss, SquaredError
from jointleaf._core.penalties import Penalty, SlopeNorm
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.fista import ActiveFeatures
from jointleaf._core.solvers.steps import EliminatingSteps, make_steps
from reference import ReferenceDesign

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def _run(title):
    """Execute the code of one part of the page; gives its names as attributes of a class."""
    text = PAGE.read_text(encoding="utf-8")
    part = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE).group(1)
    blocks = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    assert len(blocks) >= 3
    names = {"__name__": "extending"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    return type("Page", (), names)


@pytest.fixture(scope="module")
def penalties():
    return _run("Write your own penalty")


@pytest.fixture(scope="module")
def losses():
    return _run("Write your own loss")


def test_links_of_the_page_exist():
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE.read_text(encoding="utf-8")):
        assert target.startswith("http") or (PAGE.parent / target).exists(), target


# -- penalties ---------------------------------------------------------------------------------


LAYOUT = CellLayout((5,), 12)


def _strengths(page, layout, strength, outputs=()):
    """Strengths of |theta| entry by entry, zero for biases."""
    weights = page.weights.reshape(-1, *[1] * len(outputs))
    slopes = np.broadcast_to(strength * weights, (layout.n_cells, 12, *outputs))
    return layout.join(slopes, np.zeros((layout.n_cells, *outputs))).ravel()


def _is_slope(page, layout, outputs=()):
    return _strengths(page, layout, 1.0, outputs) > 0


def _solve(objective, constraints=(), **tolerances):
    problem = cp.Problem(cp.Minimize(objective), list(constraints))
    return problem.solve(solver=cp.CLARABEL, **tolerances)


@pytest.mark.parametrize("outputs", [(), (3,)], ids=["one_output", "three_outputs"])
@pytest.mark.parametrize("name", ["NonNegative", "WeightedL1"])
def test_prox_is_the_minimiser(penalties, name, outputs):
    theta, step = np.random.default_rng(1).standard_normal((65, *outputs)), 0.7
    z = cp.Variable(theta.size)
    if name == "NonNegative":
        penalty, cost = penalties.NonNegative(), 0
        held = [z[_is_slope(penalties, LAYOUT, outputs)] >= 0]
    else:
        penalty, held = penalties.WeightedL1(0.3, penalties.weights), []
        cost = _strengths(penalties, LAYOUT, 0.3, outputs) @ cp.abs(z)
    penalty = penalty.bind(LAYOUT)
    goal = cp.sum_squares(z - theta.ravel()) / 2 + step * cost
    _solve(goal, held, tol_gap_abs=1e-12, tol_gap_rel=1e-12)
    before = theta.copy()
    found = penalty.prox(theta, step)
    np.testing.assert_array_equal(theta, before)
    np.testing.assert_allclose(found.ravel(), z.value, atol=1e-6)
    if name == "WeightedL1":
        z.value = theta.ravel()
        assert penalty.value(theta) == pytest.approx(cost.value)
    else:
        assert (penalty.value(found), penalty.value(theta)) == (0.0, np.inf)
    assert penalty.prox(theta.astype(np.float32), step).dtype == np.float32


def _squares(page, z, strength=0.0):
    phi = ReferenceDesign(page.X, page.codes).to_dense()
    residual = cp.sum_squares(phi @ z - page.y) / (2 * len(page.y))
    return residual + strength * cp.sum_squares(z) / 2


def test_non_negative_slopes_against_cvxpy(penalties):
    page = penalties
    z = cp.Variable(page.positive.theta.size)
    least = _solve(_squares(page, z, 0.01), [z[_is_slope(page, page.positive.layout)] >= 0])
    assert page.positive.objective == pytest.approx(least, rel=1e-7)
    np.testing.assert_allclose(page.positive.theta.ravel(), z.value, atol=1e-4)
    assert page.ridge.coef.min() < -0.1
    assert page.positive.coef.min() == 0


def test_the_adaptive_lasso_against_cvxpy(penalties):
    page = penalties
    z = cp.Variable(page.adaptive.theta.size)
    strengths = _strengths(page, page.adaptive.layout, 0.01)
    least = _solve(_squares(page, z) + strengths @ cp.abs(z))
    assert page.adaptive.objective == pytest.approx(least, rel=1e-6)
    np.testing.assert_array_equal(np.flatnonzero(page.adaptive.coef.any(axis=0)), [0, 1])


def test_estimators_take_it_and_eliminated_biases_help(penalties):
    page = penalties
    assert page.model.coef_.min() == page.quick.coef_.min() == 0
    assert page.quick.solution_.objective == pytest.approx(page.model.solution_.objective, rel=1e-6)
    np.testing.assert_allclose(page.quick.predict(page.X), page.model.predict(page.X), atol=1e-2)
    assert 3 * page.quick.n_iter_ < page.model.n_iter_


def test_optional_methods_do_not_change_the_answer(penalties):
    page = penalties

    class Bare(page.WeightedL1):
        is_row_sparse = False
        bias_curvature, restricted = Penalty.bias_curvature, Penalty.restricted

    bare = fit_cells(page.X, page.codes, page.y, penalty=Bare(0.01, page.weights))
    assert bare.objective == pytest.approx(page.adaptive.objective, rel=1e-6)
    design = LeafDesign(page.X, page.codes)
    for kind, is_active in ((page.WeightedL1, True), (Bare, False)):
        problem = Problem(design, page.y, SquaredError(), kind(0.01, page.weights))
        assert ActiveFeatures.fits(problem) == is_active
        assert isinstance(make_steps(problem), EliminatingSteps) == is_active
    path = strength_path(
        page.X, page.codes, page.y, penalty=Bare(1.0, page.weights), n_strengths=15
    )
    np.testing.assert_allclose(path.strengths, page.path.strengths, rtol=1e-6)
    np.testing.assert_allclose(path.objective, page.path.objective, rtol=1e-3)


def test_a_penalty_for_arrays_of_jax_runs_on_every_device(penalties):
    pytest.importorskip("jax")
    page = penalties
    assert page.on_cpu.objective == pytest.approx(page.positive.objective, rel=1e-7)
    there = fit_cells(page.X, page.codes, page.y, penalty=page.anywhere, device="jax:cpu")
    assert there.objective == pytest.approx(page.on_cpu.objective, rel=1e-7)
    with pytest.raises(ValueError, match=r"NonNegative.*written in NumPy alone"):
        fit_cells(page.X, page.codes, page.y, penalty=page.NonNegative(), device="jax:cpu")


def test_a_multiple_of_an_own_penalty(penalties):
    page = penalties
    args = page.X, page.codes, page.y
    twice = fit_cells(*args, penalty=2 * page.WeightedL1(0.01, page.weights))
    same = fit_cells(*args, penalty=page.WeightedL1(0.02, page.weights))
    assert twice.objective == same.objective


def test_the_path_starts_where_slopes_begin(penalties):
    """At zero slopes and the best biases the largest |gradient| / weight is the strength."""
    page = penalties
    phi, layout = ReferenceDesign(page.X, page.codes).to_dense(), page.adaptive.layout
    Z = phi[:, -layout.n_cells :]
    residual = page.y - Z @ np.linalg.lstsq(Z, page.y, rcond=None)[0]
    gradient, _ = layout.split(residual @ phi / len(residual))
    expected = np.max(np.abs(gradient) / page.weights)
    assert page.path.strengths[0] == pytest.approx(expected, rel=1e-6)
    assert page.path.n_selected[0] == 0 < page.path.n_selected[1] < page.path.n_selected[-1]


def test_estimators_choose_an_own_strength(penalties):
    strengths = [term.strength for term in penalties.chosen.penalty_.terms]
    assert isinstance(strengths[0], float)
    assert strengths[0] > 0
    assert strengths[1] == 0.01


def test_several_outputs(penalties, make_case):
    case = make_case("multinomial", d=12, cells=(4,))
    own = penalties.WeightedL1(0.04, np.ones(12))
    same = [fit_cells(*case.data, loss="multinomial", penalty=p) for p in (own, L1(0.04))]
    assert same[0].objective == pytest.approx(same[1].objective, rel=1e-6)
    np.testing.assert_allclose(same[0].coef, same[1].coef, atol=1e-4)


def test_a_quadratic_penalty_goes_to_the_quadratic_solvers(make_case):
    """Cells are shrunk each with its own strength."""

    class CellRidge(Penalty):
        def __init__(self, strengths):
            self.strengths = np.asarray(strengths, float)

        def curvature(self):
            slopes = np.repeat(self.strengths[:, None], self.layout.n_features, axis=1)
            return self.layout.join(slopes, self.strengths)

        def value(self, theta):
            return 0.5 * float(self.curvature() @ np.square(theta))

        def prox(self, theta, step):
            return theta / (1 + step * self.curvature())

    case = make_case()
    strengths = np.linspace(0.01, 0.1, 12)
    phi = ReferenceDesign(case.X, case.codes).to_dense()
    n = len(phi)
    gram = phi.T @ phi / n + np.diag(np.append(np.repeat(strengths, 3), strengths))
    expected = np.linalg.solve(gram, phi.T @ case.y / n)
    chosen = fit_cells(*case.data, penalty=CellRidge(strengths))
    assert chosen.solver == "pcg"
    for solver in ("pcg", "newton", "fista"):
        found = fit_cells(*case.data, penalty=CellRidge(strengths), solver=solver, tol=1e-9)
        np.testing.assert_allclose(found.theta.ravel(), expected, atol=1e-6)
    with pytest.raises(ValueError, match="Frobenius penalty: use solver='newton'"):
        fit_cells(*case.data, penalty=CellRidge(strengths), solver="dual")


def test_a_norm_of_the_slopes(make_case):
    class Own(SlopeNorm):
        def norm(self, W):
            return float(np.abs(W).sum())

        def shrink(self, W, t):
            return W - np.clip(W, -t, t)

        def dual_norm(self, G):
            return float(np.abs(G).max())

    case = make_case(d=12)
    own, known = (strength_path(*case.data, penalty=kind(1.0), n_strengths=3) for kind in (Own, L1))
    np.testing.assert_allclose(own.strengths, known.strengths)
    own, known = (fit_cells(*case.data, penalty=kind(0.05)) for kind in (Own, L1))
    assert own.objective == pytest.approx(known.objective, rel=1e-6)


# -- losses ------------------------------------------------------------------------------------


class Huber(Loss):
    """r^2 / 2 for r = |f - y| <= delta, delta (r - delta / 2) beyond."""

    max_curvature = 1.0
    delta = 0.3

    def row_loss(self, y, f):
        r = np.abs(f - y)
        return np.where(r <= self.delta, r**2 / 2, self.delta * (r - self.delta / 2))

    def row_gradient(self, y, f):
        return np.clip(f - y, -self.delta, self.delta)

    def row_curvature(self, y, f):
        return (np.abs(f - y) <= self.delta).astype(f.dtype)

    def best_constant(self, y, s):
        return np.median(y)


@pytest.mark.parametrize("name", ["Poisson", "Huber"])
def test_derivatives_against_finite_differences(losses, numeric_gradient, name):
    loss = losses.Poisson() if name == "Poisson" else Huber()
    rng = np.random.default_rng(3)
    y, f, s = rng.poisson(2.0, 12).astype(float), rng.standard_normal(12), rng.uniform(0.5, 2, 12)
    slope = numeric_gradient(lambda at: loss.value(y, at, s), f)
    np.testing.assert_allclose(loss.gradient(y, f, s), slope, atol=1e-8)
    bend = [numeric_gradient(lambda at, k=k: loss.gradient(y, at, s)[k], f)[k] for k in range(12)]
    np.testing.assert_allclose(loss.curvature(y, f, s), bend, atol=1e-8)
    if name == "Poisson":
        constant = np.full(12, loss.best_constant(y, s))
        assert loss.gradient(y, constant, s).sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True], ids=["equal_weights", "sample_weight"])
@pytest.mark.parametrize("solver", ["auto", "dual", "newton", "fista"])
def test_poisson_against_scikit_learn(losses, solver, weighted):
    page = losses
    phi = ReferenceDesign(page.X, page.codes, page.n_cells).to_dense()
    weight = np.arange(len(page.y)) % 3 if weighted else None
    peer = PoissonRegressor(
        alpha=0.01, fit_intercept=False, solver="newton-cholesky", tol=1e-10, max_iter=1000
    ).fit(phi, page.y, weight)
    found = fit_cells(
        page.X,
        page.codes,
        page.y,
        loss=page.loss,
        penalty=Frobenius(0.01),
        n_cells=page.n_cells,
        sample_weight=weight,
        solver=solver,
        tol=1e-8,
        max_iter=5000,
    )
    assert found.converged
    assert found.solver == ("dual" if solver == "auto" else solver)
    np.testing.assert_allclose(found.theta.ravel(), peer.coef_, atol=1e-5)
    if solver == "auto" and not weighted:
        np.testing.assert_allclose(page.expected, peer.predict(phi), rtol=1e-4)


@pytest.mark.parametrize("penalty", [Frobenius(0.01, bias_strength=0), L21(0.02)], ids=repr)
@pytest.mark.parametrize("name", ["Poisson", "Huber"])
def test_free_biases_against_cvxpy(losses, make_case, name, penalty):
    case = make_case(n=80)
    phi = ReferenceDesign(case.X, case.codes).to_dense()
    y = np.random.default_rng(0).poisson(np.exp(case.X[:, 0])) if name == "Poisson" else case.y
    z = cp.Variable(phi.shape[1])
    f = phi @ z
    rows = cp.exp(f) - cp.multiply(y, f) if name == "Poisson" else cp.huber(f - y, 0.3) / 2
    slopes, biases = cp.reshape(z[:36], (12, 3), order="C"), z[36:]
    held = [biases[[4, 7]] == 0]  # those of the other cells of their partitions can stand in
    if isinstance(penalty, L21):
        cost, solver = 0.02 * cp.sum(cp.norm(slopes, 2, axis=0)), "fista"
    else:
        cost, solver = 0.005 * cp.sum_squares(slopes), "newton"
    least = _solve(cp.sum(rows) / 80 + cost, held)
    loss = losses.Poisson() if name == "Poisson" else Huber()
    found = fit_cells(case.X, case.codes, y, loss=loss, penalty=penalty)
    assert found.solver == solver
    assert found.converged
    assert found.objective == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("solver", ["dual", "newton", "fista"])
def test_large_counts_do_not_overflow(losses, solver):
    """Steps that are too long are tried, without a warning, and taken back."""
    page = losses
    args = page.X, page.codes, 1000 * page.y
    found = fit_cells(*args, loss=page.loss, n_cells=page.n_cells, solver=solver, tol=1e-3)
    assert found.converged


def test_a_bound_of_the_curvature_lets_biases_be_eliminated(make_case):
    class Unbounded(Huber):
        max_curvature = np.inf

    case = make_case()
    design = LeafDesign(case.X, case.codes)
    found = []
    for loss, eliminates in ((Huber(), True), (Unbounded(), False)):
        made = make_steps(Problem(design, case.y, loss, L21(0.05)))
        assert isinstance(made, EliminatingSteps) == eliminates
        found.append(fit_cells(*case.data, loss=loss, penalty=L21(0.05)).objective)
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_own_partitioner_divides_every_column_at_its_quantiles():
    text = PAGE.read_text(encoding="utf-8").split("## Write your own partitioner")[1]
    names = {"__name__": "extending"}
    for block in re.findall(r"```python\n(.*?)```", text.split("\n## ")[0], re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    X, y, model = names["X"], names["y"], names["model"]
    codes = model.apply(X[:300])
    assert codes.shape == (300, 4)  # three columns and the root cell
    counts = np.stack([np.bincount(codes[:, p], minlength=6) for p in range(3)])
    assert counts.min() >= 49
    assert counts.max() <= 51
    for p in range(3):  # cells are intervals in the order of the column
        assert (np.diff(codes[np.argsort(X[:300, p]), p]) >= 0).all()
    # |x0| and sin are piecewise linear up to the noise of variance 0.01
    assert np.mean((model.predict(X[300:]) - y[300:]) ** 2) < 0.015
    assert names["both"].score(X[300:], y[300:]) > 0.95
