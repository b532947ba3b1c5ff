"""Proximal maps against their definition, on random weights of all sizes.

z = prox(v) is right if and only if u = (v - z) / (step * strength) has dual norm at most 1 and
<u, z> = |z|. The norms and their duals are written out here a second time.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

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
    SchattenP,
)
from jointleaf._core.penalties.prox import shrink_l2_weighted
from tables import on_tables

quick = settings(deadline=None, max_examples=40, derandomize=True)
few = settings(deadline=None, max_examples=15, derandomize=True)


def rows(p):
    return lambda W: np.linalg.norm(W, p, axis=1)


def sigma(W):
    return np.linalg.svd(W, compute_uv=False)


def falling(W):
    return -np.sort(-rows(2)(W))


def weights(W):
    return 1.5 ** -np.arange(len(W))


# name: (penalty of a strength and d features, norm, dual norm)
NORMS = {
    "l1": (lambda t, d: L1(t), lambda W: np.abs(W).sum(), lambda G: np.abs(G).max()),
    "l21": (lambda t, d: L21(t), lambda W: rows(2)(W).sum(), lambda G: rows(2)(G).max()),
    "linf1": (lambda t, d: LInf1(t), lambda W: rows(np.inf)(W).sum(), lambda G: rows(1)(G).max()),
    "lp1_1.5": (
        lambda t, d: Lp1(t, 1.5),
        lambda W: rows(1.5)(W).sum(),
        lambda G: rows(3)(G).max(),
    ),
    "lp1_3": (lambda t, d: Lp1(t, 3), lambda W: rows(3)(W).sum(), lambda G: rows(1.5)(G).max()),
    "growl": (
        lambda t, d: GrOWL(t, 1.5 ** -np.arange(d)),
        lambda W: weights(W) @ falling(W),
        lambda G: (np.cumsum(falling(G)) / np.cumsum(weights(G))).max(),
    ),
    "nuclear": (lambda t, d: Nuclear(t), lambda W: sigma(W).sum(), lambda G: sigma(G)[0]),
    "ky_fan_2": (
        lambda t, d: KyFan(t, min(2, d)),
        lambda W: sigma(W)[:2].sum(),
        lambda G: max(sigma(G)[0], sigma(G).sum() / min(2, len(G))),
    ),
    "schatten_3": (
        lambda t, d: SchattenP(t, 3),
        lambda W: np.sum(sigma(W) ** 3) ** (1 / 3),
        lambda G: np.sum(sigma(G) ** 1.5) ** (2 / 3),
    ),
    "schatten_inf": (
        lambda t, d: SchattenP(t, np.inf),
        lambda W: sigma(W)[0],
        lambda G: sigma(G).sum(),
    ),
}
SUMS = {  # name: (penalty of two strengths, the terms they multiply, bias strength)
    "l1_l21": (lambda a, b: L1(a) + L21(b), (["l1"], ["l21"]), 0.0),
    "l21_l1": (
        lambda a, b: L21(a, bias_strength=0.3) + L1(b, bias_strength=0.2),
        (["l21"], ["l1"]),
        0.5,
    ),
    "l1_l1": (lambda a, b: L1(a) + L1(b), (["l1"], ["l1"]), 0.0),
    "l21_nuclear": (lambda a, b: L21(a) + Nuclear(b), (["l21"], ["nuclear"]), 0.0),
    "linf1_ky_fan": (lambda a, b: LInf1(a) + KyFan(b, 1), (["linf1"], ["schatten_inf"]), 0.0),
    "l21_frobenius": (lambda a, b: L21(a) + Frobenius(b, 0.1), (["l21"], ["ridge"]), 0.1),
    "three": (
        lambda a, b: L1(a) + L21(b, 0.2) + Nuclear(a),
        (["l1", "nuclear"], ["l21"]),
        0.2,
    ),
}

each_norm = pytest.mark.parametrize("name", NORMS)
shapes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.sampled_from([(), (3,)]))
seeds = st.integers(0, 10_000)
scales = st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6])
# Against the size of the weights: from hardly a change to nothing left.
thresholds = st.sampled_from([1e-9, 1e-3, 0.03, 0.1, 0.3, 1.0, 3.0, 30.0])


def slopes(theta):
    """W (d, m): one row per feature."""
    return np.stack([theta[:, j].ravel() for j in range(theta.shape[1] - 1)])


def make_theta(shape, seed, kind="normal"):
    C, d, outputs = shape
    rng = np.random.default_rng(seed)
    if kind == "ties":
        return rng.integers(-1, 3, (C, d + 1, *outputs)).astype(float)
    return rng.standard_normal((C, d + 1, *outputs))


def check_prox(name, theta, step, strength):
    """The condition on z; small singular values come from squares, which halves their digits."""
    make, norm, dual = NORMS[name]
    C, q = theta.shape[:2]
    z = on_tables(make(strength, q - 1), CellLayout((C,), q - 1)).prox(theta, step)
    t, size = step * strength, np.linalg.norm(slopes(theta))
    precision = 1e-8 if name in ("nuclear", "ky_fan_2", "schatten_3", "schatten_inf") else 1e-12
    V, Z = slopes(theta), slopes(z)
    assert dual(V - Z) <= t * (1 + 1e-12) + precision * size
    assert np.vdot(V - Z, Z) == pytest.approx(t * norm(Z), rel=1e-12, abs=precision * size**2)
    np.testing.assert_array_equal(z[:, -1], theta[:, -1])
    return z


@each_norm
@quick
@given(shapes, seeds, scales, scales, thresholds, st.sampled_from(["normal", "ties"]))
def test_prox_of_a_norm_meets_its_condition(name, shape, seed, scale, step, threshold, kind):
    theta = scale * make_theta(shape, seed, kind)
    check_prox(name, theta, step, scale * threshold / step)


@each_norm
def test_prox_of_equal_rows_and_equal_singular_values(name):
    flat, turn = np.ones((6, 5)), np.eye(6, 5)
    signs = np.where(np.arange(30).reshape(6, 5) % 3, 1.0, -1.0)
    for theta in (flat, turn, signs, np.tile(signs[:, :1], 5)):
        for t in (0.1, 0.5, 1.0, 2.0, 6.0):
            check_prox(name, theta, 0.5, 2 * t)


@each_norm
def test_prox_of_nearly_dependent_slopes(name):
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((6, 5))
    for distance in (1e-3, 1e-6, 1e-9, 0.0):
        theta[:, 1] = theta[:, 0] + distance * rng.standard_normal(6)
        for t in (1e-7, 1e-3, 0.5):
            check_prox(name, theta, 1.0, t)


@each_norm
@few
@given(shapes, seeds, scales, thresholds)
def test_prox_keeps_float32_and_its_digits(name, shape, seed, scale, threshold):
    C, d, _ = shape
    theta = (scale * make_theta(shape, seed)).astype(np.float32)
    theta[:, 0] = 0
    penalty = on_tables(NORMS[name][0](scale * threshold, d), CellLayout((C,), d))
    z = penalty.prox(theta, 1.0)
    assert z.dtype == np.float32
    exact = penalty.prox(theta.astype(float), 1.0)
    np.testing.assert_allclose(z, exact, rtol=0, atol=3e-6 * np.abs(theta).max())


@each_norm
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("outputs", [(), (2,)], ids=["one_output", "two_outputs"])
def test_prox_of_zero_is_zero(name, dtype, outputs):
    zero = np.zeros((3, 5, *outputs), dtype)
    z = on_tables(NORMS[name][0](0.3, 4), CellLayout((3,), 4)).prox(zero, 0.7)
    assert z.dtype == dtype
    assert not z.any()


@each_norm
@few
@given(seeds, st.floats(0.1, 3.0))
def test_no_search_finds_better_than_the_prox(name, seed, t):
    make, norm, _ = NORMS[name]
    theta = make_theta((2, 2, ()), seed)
    V = slopes(theta)

    def objective(flat):
        Z = flat.reshape(V.shape)
        return 0.5 * np.sum((Z - V) ** 2) + t * norm(Z)

    z = slopes(on_tables(make(t, 2), CellLayout((2,), 2)).prox(theta, 1.0)).ravel()
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}
    found = minimize(objective, V.ravel(), method="Nelder-Mead", options=options)
    assert objective(z) <= found.fun + 1e-9
    # The objective grows at least as |move|^2 / 2 from its minimum.
    assert np.sum((found.x - z) ** 2) / 2 <= found.fun - objective(z) + 1e-9


@each_norm
def test_penalised_biases_shrink_on_their_own(name):
    theta = make_theta((3, 4, (2,)), 0)
    penalty = on_tables(NORMS[name][0](0.4, 4), CellLayout((3,), 4))
    free = penalty.prox(theta, 0.5)
    penalty.bound.bias_strength = 3.0
    z = penalty.prox(theta, 0.5)
    np.testing.assert_array_equal(z[:, :-1], free[:, :-1])
    np.testing.assert_allclose(z[:, -1], theta[:, -1] / 2.5, rtol=1e-14)


@quick
@given(shapes, seeds, scales, scales, thresholds, st.sampled_from([np.float32, np.float64]))
def test_group_shrinkage_in_a_weighted_norm(shape, seed, scale, stretch, threshold, dtype):
    """m (v - x) = t x / |x|, or x = 0 where |m v| <= t."""
    V = (scale * slopes(make_theta(shape, seed))).astype(dtype)
    m = (10 ** np.random.default_rng(seed).uniform(-3, 1, V.shape[1]) * stretch).astype(dtype)
    t = scale * stretch * threshold
    X = shrink_l2_weighted(V, t, m)
    assert X.dtype == dtype
    rounding = 1e4 * np.finfo(dtype).eps * scale * stretch
    for v, x in zip(V.astype(float), X.astype(float), strict=True):
        if x.any():
            direction = x / np.linalg.norm(x)
            np.testing.assert_allclose(m * (v - x), t * direction, rtol=1e-5, atol=rounding)
        else:
            assert np.linalg.norm(m * v) <= t + rounding


# -- sums --------------------------------------------------------------------------------------


def norm_value(name, W):
    return np.sum(W**2) / 2 if name == "ridge" else NORMS[name][1](W)


def moves(z, v, rng):
    """Directions in which a wrong answer of a sum would show, of length 1."""
    yield from (z, v, v - z)
    for j in range(z.shape[1]):
        for whole in (z, v):
            row = np.zeros_like(z)
            row[:, j] = whole[:, j]
            yield row
    U, _, Vt = np.linalg.svd(slopes(z), full_matrices=False)
    for k in range(len(Vt)):
        yield np.column_stack([np.outer(Vt[k], U[:, k]), np.zeros(len(z))])
    for _ in range(20):
        noise = rng.standard_normal(z.shape)
        yield noise
        yield noise * (z != 0)
    for index in np.ndindex(z.shape):
        entry = np.zeros_like(z)
        entry[index] = 1.0
        yield entry


@pytest.mark.parametrize("name", SUMS)
@few
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    seeds,
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.floats(0.01, 2.0),
    st.floats(0.01, 2.0),
)
def test_prox_of_a_sum_is_the_minimiser_of_the_true_sum(name, C, d, seed, scale, a, b):
    theta = scale * make_theta((C, d, ()), seed)
    make, terms, bias_strength = SUMS[name]
    a, b = scale * a, b if name == "l21_frobenius" else scale * b
    z = on_tables(make(a, b), CellLayout((C,), d)).prox(theta, 0.8)

    def objective(x):
        value = bias_strength * np.sum(x[:, -1] ** 2) / 2
        for strength, names in zip((a, b), terms, strict=True):
            value += strength * sum(norm_value(each, slopes(x)) for each in names)
        return 0.5 * np.sum((x - theta) ** 2) + 0.8 * value

    best, size = objective(z), np.linalg.norm(theta)
    for move in moves(z, theta, np.random.default_rng(seed)):
        length = np.linalg.norm(move)
        if length == 0:
            continue
        for signed in (1e-2, -1e-2, 1e-4, -1e-4):
            there = objective(z + (signed * size / length) * move)
            # Strong convexity: J(z + m) >= J(z) + |m|^2 / 2 for every move m from the minimum.
            assert there >= best + 0.5 * (signed * size) ** 2 - 1e-10 * size**2


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_prox_of_a_sum_is_the_same_when_called_again(name, dtype):
    one, other = (make_theta((4, 3, (2,)), seed).astype(dtype) for seed in (0, 1))
    penalty = on_tables(SUMS[name][0](0.3, 0.5), CellLayout((4,), 3))
    first = penalty.prox(one, 0.7)
    assert first.dtype == dtype
    penalty.prox(other, 2.0)
    again = penalty.prox(one, 0.7)
    np.testing.assert_allclose(again, first, rtol=0, atol=max(1e-8, np.finfo(dtype).eps))
    assert not penalty.prox(np.zeros_like(one), 0.7).any()
