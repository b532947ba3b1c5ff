"""Joint fits of several tasks against a general convex solver.

cvxpy searches for the common slopes C_t and those of single tasks T_t as variables of their own;
the library for W_t = C_t + T_t alone.
"""

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import pytest

from jointleaf import DirtyLasso, DirtyLInf, Laplacian, PerTask, fit_tasks
from jointleaf._core.layout import CellLayout, TaskLayout
from jointleaf._core.penalties import L1, L21, Frobenius, GrOWL, LInf1, Nuclear
from reference import ReferenceDesign

SIZES, CELLS, D = (30, 45, 24), ((2, 3), (3,), (2, 2, 2)), 5
GAMMA = np.array([1.0, 0.4, 1.7])
GROWL = np.array([1.0, 0.7, 0.6, 0.3, 0.1])


def make_tasks(loss="squared_error", seed=0):
    """Feature 0 matters in all tasks, feature 1 + t in task t, and the biases in all cells."""
    rng = np.random.default_rng(seed)
    tasks = []
    for t, (n, cells) in enumerate(zip(SIZES, CELLS, strict=True)):
        X = rng.standard_normal((n, D))
        codes = np.column_stack([rng.integers(0, k, n) for k in cells])
        y = (1.5 - codes[:, 0]) * X[:, 0] + X[:, 1 + t] + codes[:, -1] - 0.5
        y += 0.3 * rng.standard_normal(n)
        tasks.append((X, codes, np.where(y > 0, 1.0, -1.0) if loss == "logistic" else y))
    return tasks


@dataclass
class Model:
    """Variables of cvxpy for every task: slopes C_t, T_t (C, d), biases (C,), predictions (n,)."""

    C: list
    T: list
    b: list
    f: list
    tasks: list

    @property
    def W(self):
        """All slopes (d, C): one row per feature."""
        return cp.hstack([(C + T).T for C, T in zip(self.C, self.T, strict=True)])


def dirty(common, task, kind):
    """The penalty as it is written down, with the two parts apart."""

    def value(m):
        total = 0
        for i in range(D):
            if common is not None:
                total += common * cp.norm(cp.hstack([C[:, i] for C in m.C]), kind)
            if task is not None:
                total += sum(
                    task * g * cp.norm(T[:, i], kind) for g, T in zip(GAMMA, m.T, strict=True)
                )
        return total

    return value


def over_all(norm):
    return lambda m: norm(m.W)


def rows(kind):
    return lambda W: sum(cp.norm(W[i], kind) for i in range(D))


def per_task(norm):
    return lambda m: sum(g * norm((C + T).T) for g, C, T in zip(GAMMA, m.C, m.T, strict=True))


def half_squares(W):
    return cp.sum_squares(W) / 2


def growl(W):
    """Falling weights are a sum of "the k longest rows", k = 1, 2, ..."""
    lengths, steps = cp.norm(W, 2, axis=1), GROWL - np.append(GROWL[1:], 0)
    return sum(step * cp.sum_largest(lengths, k + 1) for k, step in enumerate(steps))


def roughness(strength):
    """sum_t gamma_t f_t^T L_t f_t / (2 n_t), with a graph for every task."""

    def value(m):
        total = 0
        for g, f, (X, _, _) in zip(GAMMA, m.f, m.tasks, strict=True):
            K = np.exp(-np.square(X[:, None] - X[None]).sum(axis=2) / (2 * 1.5**2))
            degree = K.sum(axis=1)
            L = np.eye(len(X)) - K / np.sqrt(np.outer(degree, degree))
            values, vectors = np.linalg.eigh(L)
            root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
            total += strength * g * cp.sum_squares(root @ f) / (2 * len(X))
        return total

    return value


def add(*terms):
    return lambda m: sum(term(m) for term in terms)


def minimum(tasks, loss, penalty, bias_strength):
    """Least objective and the model at it."""
    m = Model([], [], [], [], tasks)
    objective = 0
    for g, (X, codes, y) in zip(GAMMA, tasks, strict=True):
        reference = ReferenceDesign(X, codes)
        n, C = len(X), reference.layout.n_cells
        m.C.append(cp.Variable((C, D)))
        m.T.append(cp.Variable((C, D)))
        m.b.append(cp.Variable(C))
        slopes = cp.vec(m.C[-1] + m.T[-1], order="C")
        phi = reference.to_dense()
        m.f.append(phi[:, : C * D] @ slopes + phi[:, C * D :] @ m.b[-1])
        if loss == "logistic":
            losses = cp.sum(cp.logistic(-cp.multiply(y, m.f[-1])))
        else:
            losses = cp.sum_squares(m.f[-1] - y) / 2
        objective += g * (losses / n + bias_strength / 2 * cp.sum_squares(m.b[-1]))
    peer = cp.Problem(cp.Minimize(objective + penalty(m)))
    peer.solve(solver=cp.CLARABEL)
    assert peer.status == cp.OPTIMAL
    return peer.value, m


def check(penalty, peer, *, loss="squared_error", bias_strength=0.0, seed=0, unique=True):
    tasks = make_tasks(loss, seed)
    least, model = minimum(tasks, loss, peer, bias_strength)
    solution = fit_tasks(
        tasks, penalty=penalty, task_weights=GAMMA, loss=loss, tol=1e-9, max_iter=20_000
    )
    assert solution.converged
    assert max(np.abs(task.coef).max() for task in solution.tasks) > 0.05  # not the easy answer
    assert solution.objective == pytest.approx(least, rel=1e-6)
    for t, (X, codes, _) in enumerate(tasks):
        own = solution.tasks[t]
        found = own.predict(X, codes)
        np.testing.assert_allclose(found, model.f[t].value, rtol=0, atol=2e-3)
        if unique:
            W = model.C[t].value + model.T[t].value
            np.testing.assert_allclose(own.coef, W, rtol=0, atol=2e-3)
        np.testing.assert_allclose(own.common + own.specific, own.coef, atol=1e-12)
    return solution, model


# From everything common, over both parts at work, to nothing common.
STRENGTHS = [(0.05, 0.2), (0.2, 0.12), (0.03, 0.02), (0.5, 0.06)]


@pytest.mark.parametrize("bias_strength", [0.0, 0.2])
@pytest.mark.parametrize(("common", "task"), STRENGTHS)
def test_dirty_lasso_and_its_split(common, task, bias_strength):
    penalty = DirtyLasso(common, task, bias_strength=bias_strength)
    solution, model = check(penalty, dirty(common, task, 2), bias_strength=bias_strength)
    for t in range(3):
        np.testing.assert_allclose(solution.tasks[t].common, model.C[t].value, rtol=0, atol=2e-3)
        np.testing.assert_allclose(solution.tasks[t].specific, model.T[t].value, rtol=0, atol=2e-3)
    if common / task <= GAMMA.min():
        assert not solution.specific_norms.any()
    if common / task >= np.linalg.norm(GAMMA):
        assert not solution.common_norms.any()


def test_both_parts_of_a_feature_are_found():
    """In one answer: a feature of all tasks, features of one, and one that is both."""
    solution, _ = check(DirtyLasso(0.17, 0.12), dirty(0.17, 0.12, 2))
    is_common = solution.common_norms > 0
    is_specific = solution.specific_norms > 0
    assert is_common[0].all()
    assert (is_common & is_specific).any()
    assert (~is_common.any(axis=1) & is_specific.any(axis=1)).any()
    assert not (is_common | is_specific).all()


@pytest.mark.parametrize("bias_strength", [0.0, 0.2])
@pytest.mark.parametrize(("common", "task"), [(0.1, 0.5), (0.35, 0.25), (0.1, 0.05)])
def test_dirty_linf(common, task, bias_strength):
    penalty = DirtyLInf(common, task, bias_strength=bias_strength)
    peer = dirty(common, task, "inf")
    _, model = check(penalty, peer, bias_strength=bias_strength, unique=False)
    # The split need not be unique, but none is cheaper than the one that is found.
    slopes = np.concatenate([C.value + T.value for C, T in zip(model.C, model.T, strict=True)])
    layout = TaskLayout([CellLayout(cells, D) for cells in CELLS], GAMMA)
    theta = layout.join(slopes, np.zeros(layout.n_cells))
    value = DirtyLInf(common, task).bind(layout).value(theta)
    assert value <= peer(model).value * (1 + 1e-6)


@pytest.mark.parametrize("kind", [2, "inf"])
@pytest.mark.parametrize(("common", "task"), [(0.15, None), (None, 0.1)])
def test_one_part_alone(common, task, kind):
    cls = DirtyLasso if kind == 2 else DirtyLInf
    solution, _ = check(cls(common, task), dirty_alone(common, task, kind), unique=kind == 2)
    empty = solution.common_norms if common is None else solution.specific_norms
    assert not empty.any()


def dirty_alone(common, task, kind):
    """The absent part is held at zero by a price that nothing is worth."""
    return dirty(common or 20.0, task or 20.0, kind)


# name: (penalty of a scale and a bias strength, the same for cvxpy of a scale, unique)
OTHERS = {
    "dirty_frobenius": (
        lambda t, b: DirtyLasso(0.2 * t, 0.12 * t) + Frobenius(0.1 * t, b),
        lambda t: add(dirty(0.2 * t, 0.12 * t, 2), scaled(0.1 * t, per_task(half_squares))),
    ),
    "dirty_laplacian": (
        lambda t, b: DirtyLasso(0.2 * t, 0.12 * t, b) + Laplacian(t, 1.5, kind="symmetric"),
        lambda t: add(dirty(0.2 * t, 0.12 * t, 2), roughness(t)),
    ),
    "dirty_l1": (
        lambda t, b: DirtyLasso(0.15 * t, 0.1 * t, b) + L1(0.03 * t),
        lambda t: add(
            dirty(0.15 * t, 0.1 * t, 2),
            scaled(0.03 * t, over_all(lambda W: cp.sum(cp.abs(W)))),
        ),
    ),
    "l21": (lambda t, b: L21(0.2 * t, b), lambda t: scaled(0.2 * t, over_all(rows(2)))),
    "linf1": (lambda t, b: LInf1(0.5 * t, b), lambda t: scaled(0.5 * t, over_all(rows("inf")))),
    "growl": (
        lambda t, b: GrOWL(0.3 * t, GROWL, b),
        lambda t: scaled(0.3 * t, over_all(growl)),
    ),
    "nuclear": (
        lambda t, b: Nuclear(0.15 * t, b),
        lambda t: scaled(0.15 * t, over_all(cp.normNuc)),
    ),
    "per_task_l21": (
        lambda t, b: PerTask(L21(0.12 * t, b)),
        lambda t: scaled(0.12 * t, per_task(rows(2))),
    ),
    "per_task_nuclear": (
        lambda t, b: PerTask(Nuclear(0.1 * t, b)),
        lambda t: scaled(0.1 * t, per_task(cp.normNuc)),
    ),
    "per_task_frobenius": (
        lambda t, b: PerTask(Frobenius(0.1 * t, b)),
        lambda t: scaled(0.1 * t, per_task(half_squares)),
    ),
    "per_task_sum": (
        lambda t, b: PerTask(L21(0.08 * t)) + PerTask(Frobenius(0.1 * t, b)) + L21(0.05 * t),
        lambda t: add(
            scaled(0.08 * t, per_task(rows(2))),
            scaled(0.1 * t, per_task(half_squares)),
            scaled(0.05 * t, over_all(rows(2))),
        ),
    ),
}
NOT_UNIQUE = {"linf1"}


def scaled(factor, term):
    return lambda m: factor * term(m)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("bias_strength", [0.0, 0.2])
def test_other_penalties_on_tasks(name, bias_strength):
    make, peer = OTHERS[name]
    unique = name not in NOT_UNIQUE
    check(make(1.0, bias_strength), peer(1.0), bias_strength=bias_strength, seed=1, unique=unique)


@pytest.mark.parametrize("name", ["dirty_lasso", "l21", "dirty_laplacian", "per_task_frobenius"])
def test_logistic_loss(name):
    if name == "dirty_lasso":
        penalty, peer = DirtyLasso(0.08, 0.05, bias_strength=0.1), dirty(0.08, 0.05, 2)
    else:
        penalty, peer = OTHERS[name][0](0.4, 0.1), OTHERS[name][1](0.4)
    check(penalty, peer, loss="logistic", bias_strength=0.1, seed=2)
