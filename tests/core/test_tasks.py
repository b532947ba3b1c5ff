"""The joint problem of several tasks: its design, its solvers, and what must not change it."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from jointleaf import DirtyLasso, DirtyLInf, Laplacian, PerTask, fit_cells, fit_tasks
from jointleaf._core.design import LeafDesign, TaskDesign, lipschitz
from jointleaf._core.losses import Logistic, SquaredError
from jointleaf._core.path import follow_path, largest_strength
from jointleaf._core.penalties import L1, L21, Frobenius, Nuclear, Penalty
from jointleaf._core.solvers import steps
from jointleaf._core.solvers.base import SolverState
from jointleaf._core.solvers.newton import BiasSolver
from jointleaf._core.solvers.steps import Metric, SharedCellsMetric
from jointleaf._core.tasks import BlockSmoother, task_problem
from jointleaf._fit.strengths import ratio_grid
from reference import ReferenceDesign

SIZES, CELLS, D = (40, 55, 30), ((2, 3), (3,), (2, 2, 2)), 4
GAMMA = [1.0, 0.5, 1.6]
DIRTY = DirtyLasso(0.2, 0.13, bias_strength=0.1)  # free biases of several partitions are not unique
TIGHT = {"tol": 1e-10, "max_iter": 20_000}


def make_tasks(seed=0, d=D, loss="squared_error"):
    rng = np.random.default_rng(seed)
    tasks = []
    for t, (n, cells) in enumerate(zip(SIZES, CELLS, strict=True)):
        X = rng.standard_normal((n, d))
        codes = np.column_stack([rng.integers(0, k, n) for k in cells])
        y = (1.5 - codes[:, 0]) * X[:, 0] + X[:, 1 + t % (d - 1)] + 0.5 * codes[:, -1]
        y += 0.2 * rng.standard_normal(n)
        tasks.append((X, codes, np.where(y > 0, 1.0, -1.0) if loss == "logistic" else y))
    return tasks


TASKS = make_tasks()


def designs_of(tasks, cells="linear"):
    return [LeafDesign(X, codes, cells=kinds_of(cells, codes)) for X, codes, _ in tasks]


def make_problem(tasks, penalty, loss=None):
    return task_problem(
        designs_of(tasks),
        [y for _, _, y in tasks],
        loss or SquaredError(),
        penalty,
        [np.ones(len(y)) for _, _, y in tasks],
        GAMMA,
        [0.0] * len(tasks),
    )


def assert_same(a, b, atol=1e-7):
    """The same answer and the same selection."""
    assert a.objective == pytest.approx(b.objective, rel=1e-12)
    np.testing.assert_allclose(a.theta, b.theta, rtol=0, atol=atol)
    np.testing.assert_array_equal(a.common_norms > 0, b.common_norms > 0)
    np.testing.assert_array_equal(a.specific_norms > 0, b.specific_norms > 0)


# -- the design --------------------------------------------------------------------------------


def kinds_of(cells, codes):
    """The kind of every partition of a task: "mixed" is linear and constant in turn."""
    return cells if cells != "mixed" else (["linear", "constant"] * 2)[: codes.shape[1]]


@pytest.mark.parametrize("cells", ["linear", "constant", "mixed"])
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_the_design_is_block_diagonal(cells, n_jobs):
    design = TaskDesign(designs_of(TASKS, cells), GAMMA, n_jobs)
    parts = [ReferenceDesign(X, c, cells=kinds_of(cells, c)) for X, c, _ in TASKS]
    slopes = [part.to_dense()[:, : -part.layout.n_cells] for part in parts]
    dense = np.hstack([block_diag(*slopes), block_diag(*(part.to_biases() for part in parts))])
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(design.layout.n_weights)
    r, h = rng.standard_normal(design.n_rows), rng.uniform(0.1, 1.0, design.n_rows)
    assert dense.shape == (design.n_rows, theta.size)
    np.testing.assert_allclose(design.matvec(theta), dense @ theta, atol=1e-12)
    np.testing.assert_allclose(design.rmatvec(r), dense.T @ r, atol=1e-12)
    Z, biases = dense[:, -design.layout.n_cells :], design.layout.split(theta)[1]
    np.testing.assert_allclose(design.bias_matvec(biases), Z @ biases, atol=1e-12)
    np.testing.assert_allclose(design.bias_rmatvec(r), Z.T @ r, atol=1e-12)
    hessian = (dense.T * h) @ dense
    bounds = np.cumsum(SIZES)[:-1]
    grams = [part.cell_grams(own) for part, own in zip(parts, np.split(h, bounds), strict=True)]
    np.testing.assert_allclose(design.cell_grams(h), np.concatenate(grams), atol=1e-12)
    np.testing.assert_allclose(design.cell_diagonals(h), np.diag(hessian), atol=1e-12)
    np.testing.assert_allclose(design.cell_mass(h), Z.T @ h, atol=1e-12)
    assert lipschitz(design, h, max_iter=2000, tol=1e-12) == pytest.approx(
        np.linalg.eigvalsh(hessian)[-1], rel=1e-6
    )
    assert design.largest_value == pytest.approx(np.abs(dense).max())
    merged = TaskDesign(designs_of(TASKS, cells), GAMMA, n_jobs).merge_partitions()
    np.testing.assert_allclose(merged.matvec(theta), dense @ theta, atol=1e-12)


def test_a_design_of_some_features():
    design = TaskDesign(designs_of(TASKS), GAMMA).with_features(np.array([0, 2]))
    smaller = [(X[:, [0, 2]], codes, y) for X, codes, y in TASKS]
    other = TaskDesign(designs_of(smaller), GAMMA)
    theta = np.random.default_rng(0).standard_normal(other.layout.n_weights)
    assert design.layout == other.layout
    np.testing.assert_array_equal(design.layout.task_weights, GAMMA)
    np.testing.assert_allclose(design.matvec(theta), other.matvec(theta), atol=1e-13)


def test_the_layout_knows_its_tasks():
    layout = TaskDesign(designs_of(TASKS), GAMMA).layout
    np.testing.assert_array_equal(layout.task_starts, [0, 5, 8, 14])
    np.testing.assert_array_equal(layout.cell_factors(), np.repeat(GAMMA, [5, 3, 6]))
    assert [part.cells_per_partition for part in layout.tasks] == list(CELLS)
    assert layout.n_partitions == 6


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_biases_of_all_tasks_are_solved_for(smooth, beta):
    design = TaskDesign(designs_of(TASKS), GAMMA)
    rng = np.random.default_rng(0)
    h = rng.uniform(0.5, 1.0, design.n_rows)
    roots = [rng.standard_normal((n, 3)) for n in SIZES]
    parts = [0.01 * root @ root.T for root in roots]
    smoother = BlockSmoother(parts) if smooth else None
    matrix = np.diag(h) + (block_diag(*parts) if smooth else 0)
    Z = np.column_stack([design.bias_matvec(e) for e in np.eye(design.layout.n_cells)])
    H = Z.T @ matrix @ Z + beta * np.eye(design.layout.n_cells)
    solver = BiasSolver(design, h, np.full(len(H), beta), np.diag(H), smoother)
    assert solver.is_joint
    r = H @ rng.standard_normal((len(H), 2))
    np.testing.assert_allclose(H @ solver.solve(r), r, atol=1e-8)
    f = rng.standard_normal((design.n_rows, 2))
    if smooth:
        np.testing.assert_allclose(smoother @ f, block_diag(*parts) @ f, atol=1e-12)
        twice = (smoother + smoother).astype(np.float32)
        np.testing.assert_allclose(twice @ f, 2 * block_diag(*parts) @ f, rtol=1e-5, atol=1e-5)


def test_the_metric_of_shared_cells_is_that_of_every_task():
    """M-weighted steps, by brute force in the coordinates of the cells."""
    problem = make_problem(TASKS, DIRTY)
    h = problem.s / problem.s.sum()
    metric = SharedCellsMetric(problem, h, SolverState())
    layout = problem.layout
    Z = np.column_stack([problem.design.bias_matvec(e) for e in np.eye(layout.n_cells)])
    Q = (Z.T * h) @ Z
    values, vectors = np.linalg.eigh(Q)
    floor = 3.0 * values.mean()
    M = (vectors * np.maximum(values, floor)) @ vectors.T
    rng = np.random.default_rng(0)
    theta, G = rng.standard_normal((2, layout.n_weights))
    slope_gradient = layout.split(G)[0]
    divided = layout.split(metric.divide(G))[0]
    np.testing.assert_allclose(divided, np.linalg.solve(M, slope_gradient), atol=1e-9)
    new, turned = metric.prox(theta, G, 0.5)
    weighed = metric.weigh(turned)
    move = new - theta
    slopes, biases = layout.split(move)
    assert np.vdot(turned, weighed) == pytest.approx(np.vdot(slopes, M @ slopes))
    assert not biases.any()

    def objective(z):
        move = layout.split(z - theta)[0]
        value = np.vdot(slope_gradient, move) + np.vdot(move, M @ move) / (2 * 0.5)
        return value + problem.nonsmooth.value(z)

    best = objective(new)
    for step in (1.0, 1e-2, 1e-4):
        for other in (move, new, *rng.standard_normal((20, *new.shape))):
            other = other.copy()
            layout.split(other)[1][:] = 0.0
            assert objective(new + step * other) >= best - 1e-12
            assert objective(new - step * other) >= best - 1e-12


# -- answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [DIRTY, DirtyLInf(0.5, 0.3, 0.1) + Frobenius(0.05, 0)])
@pytest.mark.parametrize("d", [D, 12])  # with 12, features are let in one after the other
def test_every_start_and_every_step_leads_to_the_same_answer(penalty, d, monkeypatch):
    tasks = make_tasks(d=d)
    found = fit_tasks(tasks, penalty=penalty, task_weights=GAMMA, **TIGHT)
    assert found.converged
    assert 0 < (found.common_norms.any(axis=1)).sum() < d
    rng = np.random.default_rng(0)
    init = 100 * rng.standard_normal(found.theta.shape)
    other = fit_tasks(tasks, penalty=penalty, task_weights=GAMMA, init=init, **TIGHT)
    assert_same(other, found, 1e-6)
    size = steps.Steps.size
    for factor in (0.05, 30.0):
        monkeypatch.setattr(steps.Steps, "size", lambda self, f=factor: f * size(self))
        assert_same(fit_tasks(tasks, penalty=penalty, task_weights=GAMMA, **TIGHT), found, 1e-6)


@pytest.mark.parametrize("kind", ["plain steps", "plain metric"])
def test_every_kind_of_step_leads_to_the_same_answer(kind, monkeypatch):
    problem = make_problem(TASKS, DIRTY)
    made = steps.make_steps(problem)
    assert isinstance(made, steps.EliminatingSteps)
    assert isinstance(made.metric, SharedCellsMetric)
    found = fit_tasks(TASKS, penalty=DIRTY, task_weights=GAMMA, **TIGHT)
    if kind == "plain metric":
        monkeypatch.setattr(SharedCellsMetric, "fits", staticmethod(lambda problem, state: False))
        assert type(steps.make_steps(problem).metric) is Metric
    else:
        monkeypatch.setattr("jointleaf._core.solvers.newton.MAX_JOINT_BIASES", 0)
        problem = make_problem(TASKS, DIRTY)
        assert type(steps.make_steps(problem)) is steps.Steps
    assert_same(fit_tasks(TASKS, penalty=DIRTY, task_weights=GAMMA, **TIGHT), found, 1e-6)


def test_units_of_rows_and_targets():
    """X times a, y times b: slopes times b / a with strengths times a b."""
    a, b = 8.0, 0.25  # a b = 2
    tasks = [(a * X, codes, b * y) for X, codes, y in TASKS]
    found = fit_tasks(TASKS, penalty=DIRTY, task_weights=GAMMA, **TIGHT)
    other = fit_tasks(
        tasks, penalty=DirtyLasso(0.4, 0.26, bias_strength=0.1), task_weights=GAMMA, **TIGHT
    )
    assert other.objective == pytest.approx(b**2 * found.objective)
    for one, same in zip(other.tasks, found.tasks, strict=True):
        np.testing.assert_allclose(one.coef, b / a * same.coef, atol=1e-7)
    # gamma multiplies the loss and all that belongs to a single task
    heavier = fit_tasks(
        TASKS,
        penalty=DirtyLasso(1.4, 0.13, bias_strength=0.1),
        task_weights=7 * np.array(GAMMA),
        **TIGHT,
    )
    np.testing.assert_allclose(heavier.theta, found.theta, atol=1e-7)
    assert heavier.objective == pytest.approx(7 * found.objective)


def test_order_of_tasks():
    order = [2, 0, 1]
    found = fit_tasks(TASKS, penalty=DIRTY, task_weights=GAMMA, **TIGHT)
    other = fit_tasks(
        [TASKS[k] for k in order], penalty=DIRTY, task_weights=[GAMMA[k] for k in order], **TIGHT
    )
    assert other.objective == pytest.approx(found.objective, rel=1e-12)
    for t, k in enumerate(order):
        np.testing.assert_allclose(other.tasks[t].common, found.tasks[k].common, atol=1e-7)
        np.testing.assert_allclose(other.tasks[t].specific, found.tasks[k].specific, atol=1e-7)
        np.testing.assert_allclose(other.tasks[t].intercept, found.tasks[k].intercept, atol=1e-6)


def test_threads_change_no_bit():
    found = [fit_tasks(TASKS, penalty=DIRTY, task_weights=GAMMA, n_jobs=jobs) for jobs in (1, 2, 5)]
    for other in found[1:]:
        np.testing.assert_array_equal(other.theta, found[0].theta)
        assert other.objective == found[0].objective


@pytest.mark.parametrize("penalty", [DirtyLasso(None, 0.1), DirtyLasso(0.2, 0.1)])
def test_one_task_is_a_group_lasso(penalty):
    X, codes, y = TASKS[0]
    found = fit_tasks([TASKS[0]], penalty=penalty, **TIGHT)
    single = fit_cells(X, codes, y, penalty=L21(penalty.task), **TIGHT)
    assert found.objective == pytest.approx(single.objective, rel=1e-13)
    np.testing.assert_allclose(found.theta, single.theta, rtol=0, atol=1e-8)
    weighted = fit_tasks([TASKS[0]], penalty=DirtyLasso(None, 0.1), task_weights=[5.0], **TIGHT)
    if penalty.common is None:  # gamma multiplies everything
        np.testing.assert_allclose(weighted.theta, single.theta, rtol=0, atol=1e-8)
        assert weighted.objective == pytest.approx(5 * single.objective)


def test_tasks_that_are_the_same():
    """T copies share every slope: the answer is that of one with common / sqrt(T) strength."""
    copies = fit_tasks([TASKS[0]] * 3, penalty=DirtyLasso(0.2, 0.15), **TIGHT)
    alone = fit_cells(*TASKS[0], penalty=L21(0.2 / np.sqrt(3)), **TIGHT)
    assert not copies.specific_norms.any()
    for task in copies.tasks:
        np.testing.assert_allclose(task.coef, alone.coef, atol=1e-7)
    assert copies.objective == pytest.approx(3 * alone.objective)


@pytest.mark.parametrize("loss", ["squared_error", "logistic"])
@pytest.mark.parametrize("solver", ["auto", "fista", "newton"])
@pytest.mark.parametrize("per_task", [False, True])
def test_ridge_keeps_tasks_apart(loss, solver, per_task):
    tasks, ridge = make_tasks(loss=loss), Frobenius(0.1, 0.05)
    penalty = PerTask(ridge) if per_task else ridge
    found = fit_tasks(tasks, penalty=penalty, task_weights=GAMMA, loss=loss, solver=solver, **TIGHT)
    total = 0.0
    for gamma, (X, codes, y), own in zip(GAMMA, tasks, found.tasks, strict=True):
        alone = fit_cells(X, codes, y, penalty=ridge, loss=loss, **TIGHT)
        np.testing.assert_allclose(own.theta, alone.theta, rtol=0, atol=1e-6)
        total += gamma * alone.objective
    assert found.objective == pytest.approx(total)
    assert not found.common_norms.any()
    if solver == "auto" and loss == "squared_error":
        assert found.tasks[0].gap >= 0
        assert found.tasks[0].gap < 1e-10


@pytest.mark.parametrize("penalty", [L21(0.1), Nuclear(0.1), L1(0.05), L21(0.05) + Frobenius(0.1)])
def test_a_penalty_per_task_keeps_tasks_apart(penalty):
    parts = [PerTask(term) for term in penalty.terms]
    found = fit_tasks(TASKS, penalty=sum(parts), task_weights=GAMMA, **TIGHT)
    for (X, codes, y), own in zip(TASKS, found.tasks, strict=True):
        alone = fit_cells(X, codes, y, penalty=penalty, **TIGHT)
        np.testing.assert_allclose(own.predict(X, codes), alone.predict(X, codes), atol=1e-6)
    assert not found.common_norms.any()
    assert found.specific_norms.any()


def test_a_laplacian_of_one_task():
    X, codes, y = TASKS[0]
    penalty = L21(0.1) + Laplacian(0.5)
    alone = fit_cells(X, codes, y, penalty=penalty, **TIGHT)
    found = fit_tasks([TASKS[0]], penalty=penalty, **TIGHT)
    np.testing.assert_allclose(found.theta, alone.theta, atol=1e-6)


class HalfRidge(Penalty):
    """A penalty with nothing but its two methods, and no strength."""

    def value(self, theta):
        return 0.05 * float(np.sum(theta**2))

    def prox(self, theta, step):
        return theta / (1 + 0.1 * step)


@pytest.mark.parametrize("more", [None, L21(0.1)])
def test_a_penalty_of_ones_own(more):
    ridge = Frobenius(0.1)
    own = HalfRidge() if more is None else HalfRidge() + more
    known = PerTask(ridge) if more is None else ridge + more
    equal = {"task_weights": [1.0, 1.0, 1.0], **TIGHT}
    found = fit_tasks(TASKS, penalty=own, **equal)
    expected = fit_tasks(TASKS, penalty=known, **equal)
    np.testing.assert_allclose(found.theta, expected.theta, atol=1e-6)
    assert found.objective == pytest.approx(expected.objective)


# -- paths -------------------------------------------------------------------------------------

FAMILIES = [
    DirtyLasso().with_ratio(1.4),
    DirtyLasso("auto", None),
    DirtyLInf().with_ratio(2.0),
    PerTask(L21("auto")),
    L21("auto"),
    PerTask(L21("auto")) + Frobenius(0.1),
    DirtyLasso().with_ratio(1.4) + L1(0.1),
    L1(0.1) + PerTask(L21("auto")),
]


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("loss", ["squared_error", "logistic"])
def test_the_largest_strength_is_the_smallest_without_slopes(family, loss):
    tasks = make_tasks(loss=loss)
    problem = make_problem(tasks, family.at(1.0), Logistic() if loss == "logistic" else None)
    largest = largest_strength(problem, family)
    strengths = largest * np.array([1 + 1e-4, 1 - 1e-2])
    path = follow_path(problem, family, strengths, tol=1e-7, max_iter=2000)
    above, below = (np.abs(solution.coef).max() for solution in path)
    assert above < 1e-6 * max(below, 1e-3)
    assert below > 0


def test_ratios_reach_from_all_common_to_nothing_common():
    gamma = np.array([1.0, 0.5, 2.0])
    grid = ratio_grid(gamma)
    assert grid[0] == pytest.approx(0.5)
    assert grid[-1] == pytest.approx(np.linalg.norm(gamma), rel=1e-5)
    assert (np.diff(grid) > 0).all()
    np.testing.assert_array_equal(ratio_grid(np.array([3.0])), [3.0])
    solutions = [
        fit_tasks(TASKS, penalty=DirtyLasso(0.1 * r, 0.1), task_weights=gamma, **TIGHT)
        for r in (grid[0], grid[-1] * 1.0001)
    ]
    assert not solutions[0].specific_norms.any()
    assert not solutions[1].common_norms.any()
