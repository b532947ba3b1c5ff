"""Joint fits under every penalty against a general convex solver."""

from dataclasses import dataclass

import cvxpy as cp
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
    Laplacian,
    LInf1,
    Lp1,
    Nuclear,
    SchattenP,
)
from reference import ReferenceDesign

GROWL = np.array([1.0, 0.6, 0.5, 0.1])


@dataclass
class Model:
    """What cvxpy minimises over: slopes W (d, C K), biases (C, K) and predictions (n, K)."""

    W: cp.Expression
    b: cp.Expression
    f: cp.Expression
    X: np.ndarray
    s: np.ndarray


def l1(m):
    return cp.sum(cp.abs(m.W))


def lp1(p):
    return lambda m: sum(cp.pnorm(m.W[j], p) for j in range(m.W.shape[0]))


def growl(m):
    """Falling weights are a sum of "the k longest rows", k = 1, 2, ..."""
    lengths = cp.norm(m.W, 2, axis=1)
    steps = GROWL - np.append(GROWL[1:], 0)
    return sum(step * cp.sum_largest(lengths, k + 1) for k, step in enumerate(steps))


def nuclear(m):
    return cp.normNuc(m.W)


def ky_fan(k):
    """Eigenvalues of [[0, W], [W^T, 0]] are the singular values of W and their negatives."""

    def total(m):
        d, n = m.W.shape
        both = cp.bmat([[np.zeros((d, d)), m.W], [m.W.T, np.zeros((n, n))]])
        return cp.lambda_sum_largest(both, k)

    return total


def frobenius_norm(m):
    return cp.norm(m.W, "fro")


def spectral_norm(m):
    return cp.sigma_max(m.W)


def ridge(m):
    return cp.sum_squares(m.W) / 2


def laplacian(kind):
    """f^T L f / (2 n) with rows of weight s counted as s copies."""

    def roughness(m):
        K = np.exp(-np.square(m.X[:, None] - m.X[None]).sum(axis=2) / (2 * 1.5**2))
        degree, n = K @ m.s, m.s.sum()
        if kind == "symmetric":
            L = np.diag(m.s) - np.outer(m.s, m.s) * K / np.sqrt(np.outer(degree, degree))
        else:
            L = np.diag(m.s * degree) - np.outer(m.s, m.s) * K
        if kind == "random_walk":
            L *= n / (m.s @ degree)
        values, vectors = np.linalg.eigh(L)
        root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
        return cp.sum_squares(root @ m.f) / (2 * n)

    return roughness


def smooth(kind, strength):
    return Laplacian(strength, bandwidth=1.5, kind=kind)


# name: (penalty of a scale and a bias strength, the same for cvxpy as (strength, term) pairs)
CASES = {
    "l1": (lambda t, b: L1(0.06 * t, b), [(0.06, l1)]),
    "l21": (lambda t, b: L21(0.15 * t, b), [(0.15, lp1(2))]),
    "linf1": (lambda t, b: LInf1(0.3 * t, b), [(0.3, lp1("inf"))]),
    "lp1_1.5": (lambda t, b: Lp1(0.1 * t, 1.5, b), [(0.1, lp1(1.5))]),
    "lp1_3": (lambda t, b: Lp1(0.15 * t, 3, b), [(0.15, lp1(3))]),
    "growl": (lambda t, b: GrOWL(0.2 * t, GROWL, b), [(0.2, growl)]),
    "nuclear": (lambda t, b: Nuclear(0.1 * t, b), [(0.1, nuclear)]),
    "ky_fan_2": (lambda t, b: KyFan(0.2 * t, 2, b), [(0.2, ky_fan(2))]),
    "schatten_1": (lambda t, b: SchattenP(0.1 * t, 1, b), [(0.1, nuclear)]),
    "schatten_2": (lambda t, b: SchattenP(0.2 * t, 2, b), [(0.2, frobenius_norm)]),
    "schatten_inf": (lambda t, b: SchattenP(0.3 * t, np.inf, b), [(0.3, spectral_norm)]),
    "standard": (
        lambda t, b: smooth("standard", 0.3 * t) + Frobenius(0.02 * t, b),
        [(0.3, laplacian("standard")), (0.02, ridge)],
    ),
    "symmetric": (
        lambda t, b: smooth("symmetric", 2 * t) + Frobenius(0.02 * t, b),
        [(2.0, laplacian("symmetric")), (0.02, ridge)],
    ),
    "random_walk": (
        lambda t, b: Frobenius(0.02 * t, b) + smooth("random_walk", 2 * t),
        [(2.0, laplacian("random_walk")), (0.02, ridge)],
    ),
    "l1_l21": (lambda t, b: L1(0.03 * t) + L21(0.1 * t, b), [(0.03, l1), (0.1, lp1(2))]),
    "l21_frobenius": (
        lambda t, b: L21(0.1 * t) + Frobenius(0.05 * t, b),
        [(0.1, lp1(2)), (0.05, ridge)],
    ),
    "nuclear_frobenius": (
        lambda t, b: Nuclear(0.1 * t, b) + Frobenius(0.05 * t, 0),
        [(0.1, nuclear), (0.05, ridge)],
    ),
    "laplacian_l21": (
        lambda t, b: smooth("symmetric", t) + L21(0.1 * t, b),
        [(1.0, laplacian("symmetric")), (0.1, lp1(2))],
    ),
    "l21_nuclear": (
        lambda t, b: L21(0.06 * t) + Nuclear(0.06 * t, b),
        [(0.06, lp1(2)), (0.06, nuclear)],
    ),
    "three": (
        lambda t, b: L1(0.03 * t, b / 2) + Nuclear(0.05 * t, b / 2) + Frobenius(0.02 * t, 0),
        [(0.03, l1), (0.05, nuclear), (0.02, ridge)],
    ),
}
SCALES = {"squared_error": 1.0, "logistic": 0.4, "multinomial": 0.4}
#: with several partitions only the predictions are unique
NOT_UNIQUE = {"ky_fan_2", "schatten_inf"}


DYKSTRA = {"l21_nuclear", "three"}  # every iteration is a search of its own


def _losses(loss, y, f):
    if loss == "squared_error":
        return cp.square(f[:, 0] - y) / 2
    if loss == "logistic":
        return cp.logistic(-cp.multiply(y, f[:, 0]))
    return cp.log_sum_exp(f, axis=1) - cp.sum(cp.multiply(np.eye(3)[y], f), axis=1)


def _minimum(case, loss, terms, bias_strength, s, n_cells):
    """Least objective, slopes (C, d, K) and predictions (n, K) by cvxpy."""
    d, K = case.X.shape[1], 3 if loss == "multinomial" else 1
    reference = ReferenceDesign(case.X, case.codes, n_cells)
    phi = reference.to_dense()
    C = reference.layout.n_cells
    slopes = [cp.Variable((C, d)) for _ in range(K)]
    b = cp.Variable((C, K))
    f = cp.hstack(
        [
            cp.reshape(
                phi[:, : C * d] @ cp.vec(W, order="C") + phi[:, C * d :] @ b[:, k],
                (len(phi), 1),
                order="C",
            )
            for k, W in enumerate(slopes)
        ]
    )
    model = Model(cp.hstack([W.T for W in slopes]), b, f, case.X, s)
    objective = s @ _losses(loss, case.y, f) / s.sum()
    objective += sum(SCALES[loss] * strength * term(model) for strength, term in terms)
    objective += bias_strength / 2 * cp.sum_squares(b)
    # Of free biases one of every partition but the first can be zero: the answer is then unique.
    fixed = [b[c] == 0 for c in reference.layout.offsets[1:-1] if not bias_strength]
    peer = cp.Problem(cp.Minimize(objective), fixed)
    peer.solve(solver=cp.CLARABEL)
    assert peer.status == cp.OPTIMAL
    return peer.value, np.stack([W.value for W in slopes], axis=2), f.value


def _check(name, loss, case, *, bias_strength=0.0, weighted=False, n_cells=None, unique=True):
    make, terms = CASES[name]
    s = case.s if weighted else np.ones(len(case.y))
    least, slopes, f = _minimum(case, loss, terms, bias_strength, s, n_cells)
    solution = fit_cells(
        *case.data,
        loss=loss,
        penalty=make(SCALES[loss], bias_strength),
        sample_weight=s if weighted else None,
        n_cells=n_cells,
        tol=1e-9,
        max_iter=100 if name in DYKSTRA else 20_000,
    )
    assert solution.converged
    assert np.abs(slopes).max() > 0.05  # not the easy answer
    assert solution.objective == pytest.approx(least, rel=1e-6)
    found = solution.predict(case.X, case.codes)
    if loss == "multinomial":  # a constant for all classes changes nothing
        found, f = found - found.mean(axis=1)[:, None], f - f.mean(axis=1)[:, None]
    np.testing.assert_allclose(found, f.reshape(found.shape), rtol=0, atol=1e-3)
    if unique:
        coef = solution.coef.reshape(slopes.shape)
        np.testing.assert_allclose(coef, slopes, rtol=0, atol=1e-3)


@pytest.mark.parametrize("loss", ["squared_error", "logistic"])
@pytest.mark.parametrize("name", CASES)
def test_free_biases(name, loss, make_case):
    case = make_case(loss, n=40, d=4, cells=(2, 3))
    _check(name, loss, case, unique=name not in NOT_UNIQUE)


@pytest.mark.parametrize("loss", ["squared_error", "logistic"])
@pytest.mark.parametrize("name", CASES)
def test_penalised_biases_and_sample_weights(name, loss, make_case):
    case = make_case(loss, n=40, d=4, cells=(3,), seed=1)
    _check(name, loss, case, bias_strength=0.05, weighted=True)


@pytest.mark.parametrize("name", ["l21", "linf1", "growl", "nuclear", "standard", "l21_nuclear"])
def test_three_partitions_and_a_cell_without_rows(name, make_case):
    case = make_case(n=40, d=4, cells=(2, 3, 2), seed=2)
    _check(name, "squared_error", case, n_cells=(2, 4, 2), unique=name != "linf1")


@pytest.mark.parametrize("name", ["l21", "nuclear", "l1_l21", "laplacian_l21"])
def test_multinomial(name, make_case):
    case = make_case("multinomial", n=50, d=4, cells=(2, 2))
    _check(name, "multinomial", case, bias_strength=0.02)


SUMS = {
    "l1_l21": (L1(0.3) + L21(0.6), [(0.3, l1), (0.6, lp1(2))]),
    "l21_frobenius": (L21(0.6) + Frobenius(0.2, 0), [(0.6, lp1(2)), (0.2, ridge)]),
    "l1_nuclear": (L1(0.3) + Nuclear(0.6), [(0.3, l1), (0.6, nuclear)]),
    "l21_nuclear": (L21(0.6) + Nuclear(0.6), [(0.6, lp1(2)), (0.6, nuclear)]),
    "three": (
        L1(0.2) + L21(0.3) + Nuclear(0.3),
        [(0.2, l1), (0.3, lp1(2)), (0.3, nuclear)],
    ),
}


@pytest.mark.parametrize("seed", [0, 257])  # at 257 alternating between the terms is slow
@pytest.mark.parametrize("name", SUMS)
def test_prox_of_a_sum(name, seed):
    penalty, terms = SUMS[name]
    theta = np.random.default_rng(seed).standard_normal((5, 7))
    W = cp.Variable((6, 5))
    model = Model(W, None, None, None, None)
    total = sum(strength * term(model) for strength, term in terms)
    peer = cp.Problem(cp.Minimize(cp.sum_squares(W - theta[:, :-1].T) / 2 + total))
    peer.solve(solver=cp.CLARABEL)
    layout = CellLayout((5,), 6)
    z = layout.by_cell(penalty.bind(layout).prox(layout.from_cells(theta), 1.0))
    # The objective grows as the square of the distance, and cvxpy stops 1e-8 above its least.
    np.testing.assert_allclose(z[:, :-1], W.value.T, rtol=0, atol=2e-4)
    np.testing.assert_array_equal(z[:, -1], theta[:, -1])
