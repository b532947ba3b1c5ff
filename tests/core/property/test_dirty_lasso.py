"""The Dirty LASSOs against their definition, on random slopes of random tasks.

In units of the strength on single tasks the norm is the cheapest split of every row into a part
common to all tasks, which costs the ratio times its length, and a part per task, which costs
gamma_t times its length. Lengths and dual norms are written out here a second time.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from jointleaf._core.layout import CellLayout, TaskLayout
from jointleaf._core.penalties import L21, DirtyLasso, DirtyLInf, LInf1, PerTask
from tables import on_tables

quick = settings(deadline=None, max_examples=40, derandomize=True)
few = settings(deadline=None, max_examples=8, derandomize=True)

# class: (order of the norm, that of its dual)
KINDS = {DirtyLasso: (2, 2), DirtyLInf: (np.inf, 1)}
each_kind = pytest.mark.parametrize("cls", KINDS)

seeds = st.integers(0, 10_000)
scales = st.sampled_from([1e-6, 1.0, 1e6])
thresholds = st.sampled_from([1e-9, 1e-3, 0.03, 0.3, 1.0, 3.0, 30.0])
ratios = st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.2, 1.5, 2.0, 5.0])
task_cells = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def make_layout(cells, seed, d=3, *, equal=False):
    rng = np.random.default_rng(seed + 1)
    gamma = np.ones(len(cells)) if equal else rng.uniform(0.2, 2.0, len(cells))
    return TaskLayout([CellLayout((k,), d) for k in cells], gamma)


def make_slopes(layout, seed, kind="normal"):
    """Slopes (C, d + 1) with biases, some of whose rows are zero in some tasks."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((layout.n_cells, layout.n_slopes + 1))
    if kind == "ties":
        theta = rng.integers(-1, 2, theta.shape).astype(float)
    for cells in parts_of(layout):
        theta[cells, rng.integers(0, layout.n_slopes + 1)] = 0.0
    return theta


def parts_of(layout):
    starts = layout.task_starts.tolist()
    return [slice(a, b) for a, b in pairwise(starts)]


def lengths(W, layout, order):
    """Norm of every feature's slopes in every task, (d, T); W (C, d)."""
    return np.stack([np.linalg.norm(W[cells], order, axis=0) for cells in parts_of(layout)], axis=1)


def price(common, specific, layout, ratio, order):
    """What a split costs."""
    whole = np.linalg.norm(common, order, axis=0).sum()
    return ratio * whole + (lengths(specific, layout, order) @ layout.task_weights).sum()


def dual_norm(G, layout, ratio, order):
    """The larger of the dual norms of the two parts."""
    own = lengths(G, layout, order) / layout.task_weights
    return max(np.linalg.norm(G, order, axis=0).max() / ratio, own.max())


def split(penalty, theta, layout):
    W = np.ascontiguousarray(theta[:, :-1].T)
    common, specific = on_tables(penalty, layout).parts(W)
    return common.T, specific.T


# -- the norm ----------------------------------------------------------------------------------


@each_kind
@quick
@given(task_cells, seeds, ratios, scales, st.sampled_from(["normal", "ties"]))
def test_the_value_is_that_of_the_split_and_no_split_is_cheaper(
    cls, cells, seed, ratio, scale, kind
):
    layout, order = make_layout(cells, seed), KINDS[cls][0]
    theta = scale * make_slopes(layout, seed, kind)
    strength = 0.7
    penalty = cls(ratio * strength, strength)
    common, specific = split(penalty, theta, layout)
    np.testing.assert_allclose(common + specific, theta[:, :-1], rtol=1e-12, atol=1e-12 * scale)
    value = on_tables(penalty, layout).value(theta)
    best = strength * price(common, specific, layout, ratio, order)
    assert value == pytest.approx(best, rel=1e-12)
    rng = np.random.default_rng(seed)
    for step in (1.0, 1e-1, 1e-3):
        for _ in range(20):
            other = common + step * scale * rng.standard_normal(common.shape)
            rest = theta[:, :-1] - other
            assert strength * price(other, rest, layout, ratio, order) >= value * (1 - 1e-12)
    for share in rng.uniform(0, 1, (20, len(cells))):
        other = np.concatenate(
            [s * theta[c, :-1] for s, c in zip(share, parts_of(layout), strict=True)]
        )
        rest = theta[:, :-1] - other
        assert strength * price(other, rest, layout, ratio, order) >= value * (1 - 1e-12)


@each_kind
@quick
@given(task_cells, seeds, ratios)
def test_norm_and_dual_norm_belong_together(cls, cells, seed, ratio):
    """<G, W> <= |G|* |W|, with equality for some W; the norm's own properties."""
    layout, dual_order = make_layout(cells, seed), KINDS[cls][1]
    penalty = on_tables(cls(ratio, 1.0), layout)
    rng = np.random.default_rng(seed)
    G, W, V = (rng.standard_normal((3, layout.n_cells)) for _ in range(3))
    bound = penalty.dual_norm(G)
    assert bound == pytest.approx(dual_norm(G.T, layout, ratio, dual_order), rel=1e-12)
    assert np.vdot(G, W) <= bound * penalty.norm(W) * (1 + 1e-12)
    # What the projection leaves of G, at just less than its dual norm, points to the equality.
    point = penalty.shrink(G, bound * (1 - 1e-6))
    assert np.vdot(G, point) == pytest.approx(bound * penalty.norm(point), rel=1e-5)
    assert penalty.norm(W + V) <= (penalty.norm(W) + penalty.norm(V)) * (1 + 1e-12)
    assert penalty.norm(-3.5 * W) == pytest.approx(3.5 * penalty.norm(W), rel=1e-12)


# -- the proximal map --------------------------------------------------------------------------


@each_kind
@quick
@given(task_cells, seeds, ratios, scales, scales, thresholds, st.sampled_from(["normal", "ties"]))
def test_prox_meets_its_condition(cls, cells, seed, ratio, scale, step, threshold, kind):
    """V - z has dual norm at most t, and <V - z, z> = t |z|."""
    layout = make_layout(cells, seed)
    theta = scale * make_slopes(layout, seed, kind)
    strength = scale * threshold / step
    penalty = on_tables(cls(ratio * strength, strength), layout)
    z = penalty.prox(theta, step)
    np.testing.assert_array_equal(z[:, -1], theta[:, -1])
    V, Z, t = theta[:, :-1], z[:, :-1], step * strength
    size = np.linalg.norm(V)
    assert dual_norm(V - Z, layout, ratio, KINDS[cls][1]) <= t * (1 + 1e-12) + 1e-12 * size
    norm = penalty.value(z) / strength
    assert np.vdot(V - Z, Z) == pytest.approx(t * norm, rel=1e-12, abs=1e-12 * size**2)
    # Moreau: what is taken away is the projection on the dual ball, which nothing changes.
    moved = np.column_stack([V - Z, theta[:, -1]])
    np.testing.assert_allclose(
        penalty.prox(moved, step * (1 + 1e-9))[:, :-1], 0.0, atol=1e-11 * size
    )


@each_kind
@few
@given(seeds, ratios, st.floats(0.1, 2.0))
def test_no_search_finds_better_than_the_prox(cls, seed, ratio, t):
    """The search moves both parts, so that it knows no norm of W."""
    layout = make_layout([2, 1], seed, d=1)
    theta = make_slopes(layout, seed)
    V = theta[:, :-1]
    order = KINDS[cls][0]

    def objective(flat):
        common, specific = flat.reshape(2, *V.shape)
        fit = 0.5 * np.sum((common + specific - V) ** 2)
        return fit + t * price(common, specific, layout, ratio, order)

    penalty = on_tables(cls(ratio * t, t), layout)
    z = penalty.prox(theta, 1.0)
    ours = 0.5 * np.sum((z[:, :-1] - V) ** 2) + penalty.value(
        np.column_stack([z[:, :-1], np.zeros(len(z))])
    )
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 2000, "maxfev": 2000}
    for start in (np.stack([V, 0 * V]), np.stack([V, V]) / 2):
        found = minimize(objective, start.ravel(), method="Nelder-Mead", options=options)
        assert ours <= found.fun + 1e-9


@each_kind
@quick
@given(task_cells, seeds, ratios, st.floats(0.01, 1.0), st.sampled_from([1e-6, 1e4]))
def test_units_make_no_difference(cls, cells, seed, ratio, t, unit):
    """Weights times a unit and strengths times it; gammas times a factor and ratio with them."""
    layout = make_layout(cells, seed)
    theta = make_slopes(layout, seed)
    z = on_tables(cls(ratio * t, t), layout).prox(theta, 1.0)
    scaled = on_tables(cls(ratio * t * unit, t * unit), layout).prox(theta * unit, 1.0)
    np.testing.assert_allclose(scaled, unit * z, rtol=1e-12, atol=1e-13 * unit)
    heavier = TaskLayout(layout.parts, 3.0 * layout.task_weights)
    same = on_tables(cls(ratio * t, t / 3), heavier).prox(theta, 1.0)
    np.testing.assert_allclose(same, z, rtol=1e-12, atol=1e-13)
    longer = on_tables(cls(ratio * t / 4, t / 4), layout).prox(theta, 4.0)
    np.testing.assert_allclose(longer, z, rtol=1e-12, atol=1e-13)


@each_kind
@quick
@given(st.lists(st.integers(1, 3), min_size=2, max_size=4), seeds, ratios, st.floats(0.05, 1.0))
def test_the_order_of_tasks_and_cells_makes_no_difference(cls, cells, seed, ratio, t):
    layout = make_layout(cells, seed)
    theta = make_slopes(layout, seed)
    z = on_tables(cls(ratio * t, t), layout).prox(theta, 1.0)
    order = np.random.default_rng(seed).permutation(len(cells))
    parts = parts_of(layout)
    rows = np.concatenate([np.arange(parts[k].start, parts[k].stop)[::-1] for k in order])
    other = TaskLayout([layout.parts[k] for k in order], layout.task_weights[order])
    turned = on_tables(cls(ratio * t, t), other).prox(theta[rows], 1.0)
    np.testing.assert_allclose(turned, z[rows], rtol=1e-12, atol=1e-14)


# -- in a weighted norm ------------------------------------------------------------------------


@quick
@given(task_cells, seeds, ratios, scales, thresholds)
def test_equal_weights_are_no_weights(cells, seed, ratio, scale, threshold):
    layout = make_layout(cells, seed)
    W = scale * make_slopes(layout, seed)[:, :-1].T
    penalty = on_tables(DirtyLasso(ratio, 1.0), layout)
    for weight in (1.0, 0.01, 50.0):
        t = scale * threshold * weight
        found = penalty.shrink_weighted(W, t, np.full(W.shape[1], weight))
        expected = penalty.shrink(W, t / weight)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * scale)


@quick
@given(task_cells, seeds, ratios, scales, scales, thresholds, st.sampled_from([32, 64]))
def test_weighted_shrinkage_meets_its_condition(
    cells, seed, ratio, scale, stretch, threshold, bits
):
    """m (v - x) has dual norm at most t, and <m (v - x), x> = t |x|; so for every single row."""
    assume(bits == 64 or threshold > 1e-6)  # float32 does not see smaller ones
    dtype = np.dtype(f"float{bits}")
    layout = make_layout(cells, seed)
    V = (scale * make_slopes(layout, seed)[:, :-1].T).astype(dtype)
    m = 10 ** np.random.default_rng(seed).uniform(-3, 1, V.shape[1]) * stretch
    t = scale * stretch * threshold
    penalty = on_tables(DirtyLasso(ratio, 1.0), layout)
    X = penalty.shrink_weighted(V, t, m.astype(dtype))
    assert X.dtype == dtype
    size = 100 * np.finfo(dtype).eps * scale * m.max()
    for v, x in zip(V.astype(float), X.astype(float), strict=True):
        u = (m * (v - x))[:, None]
        assert dual_norm(u, layout, ratio, 2) <= t * (1 + 1e-6) + size
        norm = penalty.norm(x[None])
        assert u[:, 0] @ x == pytest.approx(t * norm, rel=1e-5, abs=size * scale)


@few
@given(st.lists(st.integers(1, 2), min_size=2, max_size=3), seeds, ratios, st.floats(0.05, 1.0))
def test_no_move_improves_weighted_shrinkage(cells, seed, ratio, t):
    layout = make_layout(cells, seed)
    V = make_slopes(layout, seed)[:, :-1].T
    rng = np.random.default_rng(seed)
    m = rng.uniform(0.05, 3.0, V.shape[1])
    penalty = on_tables(DirtyLasso(ratio, 1.0), layout)

    def objective(X):
        return 0.5 * np.sum(m * (X - V) ** 2) + t * penalty.norm(X)

    X = penalty.shrink_weighted(V, t, m)
    best = objective(X)
    for step in (1.0, 1e-2, 1e-4):
        for move in (X, V, V - X, *rng.standard_normal((30, *V.shape))):
            for sign in (step, -step):
                grown = 0.5 * np.sum(m * (sign * move) ** 2)  # strong convexity
                assert objective(X + sign * move) >= best + grown - 1e-12


# -- strengths ---------------------------------------------------------------------------------


@each_kind
@quick
@given(task_cells, seeds, ratios, scales)
def test_largest_strength_is_exact(cls, cells, seed, ratio, scale):
    layout = make_layout(cells, seed)
    gradient = scale * make_slopes(layout, seed)
    assume(gradient[:, :-1].any())
    family = cls().with_ratio(ratio)
    largest = on_tables(family, layout).strength_max(gradient)
    above, below = (on_tables(family.at(largest * f), layout) for f in (1 + 1e-9, 1 - 1e-9))
    assert not above.prox(-gradient, 1.0)[:, :-1].any()
    assert below.prox(-gradient, 1.0)[:, :-1].any()
    doubled = on_tables(2 * family, layout).strength_max(gradient)
    assert doubled == pytest.approx(largest / 2)
    assert below.common == pytest.approx(ratio * below.task)


@each_kind
@quick
@given(task_cells, seeds, ratios, st.floats(0.05, 1.0))
def test_absent_features_make_no_difference(cls, cells, seed, ratio, t):
    layout = make_layout(cells, seed, d=5)
    theta = make_slopes(layout, seed)
    features = np.array([0, 2, 3])
    theta[:, [1, 4]] = 0.0
    whole = on_tables(cls(ratio * t, t, bias_strength=0.3), layout)
    part, own = whole.restricted(features), theta[:, [0, 2, 3, 5]]
    assert part.value(own) == pytest.approx(whole.value(theta), rel=1e-12)
    z = whole.prox(theta, 0.7)
    np.testing.assert_array_equal(part.prox(own, 0.7), z[:, [0, 2, 3, 5]])
    assert not z[:, [1, 4]].any()


@each_kind
@quick
@given(task_cells, seeds, st.floats(0.05, 1.0), st.sampled_from([0.0, 0.4]))
def test_special_cases_are_older_penalties(cls, cells, seed, t, bias_strength):
    """One task; nothing common; nothing of single tasks."""
    plain = L21 if cls is DirtyLasso else LInf1
    layout = make_layout(cells, seed)
    theta = make_slopes(layout, seed)
    single = CellLayout((layout.n_cells,), layout.n_features)
    pairs = [
        (cls(2 * t, t, bias_strength), plain(t, bias_strength), single),
        (cls(t, 3 * t, bias_strength), plain(t, bias_strength), single),
        (cls(None, t, bias_strength), plain(t, bias_strength), single),
        (cls(t, None, bias_strength), plain(t, bias_strength), layout),
        (cls(None, t, bias_strength), PerTask(plain(t, bias_strength)), layout),
        (cls(1e3 * t, t, bias_strength), PerTask(plain(t, bias_strength)), layout),
    ]
    for dirty, other, where in pairs:
        ours, theirs = on_tables(dirty, where), on_tables(other, where)
        assert ours.value(theta) == pytest.approx(theirs.value(theta), rel=1e-12)
        z = ours.prox(theta, 0.8)
        np.testing.assert_allclose(z, theirs.prox(theta, 0.8), rtol=1e-12, atol=1e-14)
        share = t / (dirty.common if dirty.task is None else dirty.task)  # of their strength
        largest = share * ours.strength_max(theta)
        assert largest == pytest.approx(theirs.strength_max(theta), rel=1e-12)
        np.testing.assert_array_equal(ours.bias_curvature(), theirs.bias_curvature())


@each_kind
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pair", [(0.3, 0.2), (None, 0.2), (0.3, None)])
def test_kind_of_number_zeros_and_missing_parts(cls, dtype, pair):
    layout = make_layout([3, 1, 2], 0)
    penalty = on_tables(cls(*pair), layout)
    theta = make_slopes(layout, 0)
    z = penalty.prox(theta.astype(dtype), 0.5)
    assert z.dtype == dtype
    np.testing.assert_allclose(z, penalty.prox(theta, 0.5), atol=2 * np.finfo(dtype).eps)
    common, specific = penalty.parts(np.ascontiguousarray(z[:, :-1].T))
    assert common.dtype == specific.dtype == dtype
    assert pair[0] is not None or not common.any()
    assert pair[1] is not None or not specific.any()
    zero = np.zeros_like(theta, dtype)
    assert not penalty.prox(zero, 0.5).any()
    assert penalty.value(zero) == 0
    assert not any(part.any() for part in penalty.parts(zero[:, :-1].T))
    no_features, biases = penalty.restricted(np.zeros(0, int)), np.ones((6, 1), dtype)
    np.testing.assert_array_equal(no_features.prox(biases, 0.5), biases)
    assert no_features.value(biases) == 0
    if cls is DirtyLasso:
        weights = np.linspace(1, 2, 6).astype(dtype)
        shrunk = penalty.shrink_weighted(zero[:, :-1].T, 0.1, weights)
        assert shrunk.dtype == dtype
        assert not shrunk.any()


@each_kind
def test_where_all_is_common_and_where_nothing_is(cls):
    """From a ratio of min gamma up to the dual length of all gammas."""
    layout = make_layout([2, 3, 1], 4)
    theta, gamma = make_slopes(layout, 4), layout.task_weights
    high = np.linalg.norm(gamma, KINDS[cls][1])
    common, specific = split(cls(gamma.min(), 1.0), theta, layout)
    assert not specific.any()
    common, specific = split(cls(high, 1.0), theta, layout)
    assert not common.any()
    common, specific = split(cls(high * 0.9, 1.0), theta, layout)
    assert common.any()
    assert specific.any()
