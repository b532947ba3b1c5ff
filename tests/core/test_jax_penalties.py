"""Proximal maps written for a device agree with those of the host."""

import numpy as np
import pytest

from jointleaf import (
    L1,
    L21,
    DirtyLasso,
    DirtyLInf,
    Frobenius,
    GrOWL,
    KyFan,
    LInf1,
    Lp1,
    Nuclear,
    PerTask,
    SchattenP,
)
from jointleaf._core.layout import CellLayout, TaskLayout
from jointleaf._core.penalties import Penalty
from jointleaf._core.penalties.per_task import Scaled

jax = pytest.importorskip("jax")

from jointleaf._core.arrays import double_precision  # noqa: E402
from jointleaf._core.jax.problem import DevicePenalty, compiled_penalty  # noqa: E402
from jointleaf._core.penalties.prox import cap_l2, shrink_sorted  # noqa: E402

PENALTIES = [
    L1(0.3),
    L21(0.3, bias_strength=0.2),
    LInf1(0.3),
    Lp1(0.3, p=1.2),
    Lp1(0.3, p=4),
    GrOWL(0.3),
    Nuclear(0.3),
    KyFan(0.3, k=2),
    SchattenP(0.3, p=1.5),
    SchattenP(0.3, p=np.inf),
    DirtyLasso(0.3, 0.2),
    DirtyLasso(0.3, None),
    DirtyLasso(None, 0.2),
    DirtyLInf(0.3, 0.2),
    DirtyLInf(0.3, None),
    DirtyLInf(None, 0.2),
    PerTask(L21(0.3)),
    L1(0.1, bias_strength=0.1) + L21(0.3, bias_strength=0.2),
    L1(0.1) + DirtyLasso(0.3, 0.2),
    L21(0.2) + LInf1(0.1),
    Scaled(2.0, L21(0.1)),
    Frobenius(0.3),
]
LAYOUT = TaskLayout([CellLayout((3, 4), 5), CellLayout((2, 3), 5)], [1.0, 0.7])


MIXED = TaskLayout(
    [CellLayout((3, 4), 5, ("constant", "linear")), CellLayout((2, 3), 5, ("linear", "constant"))],
    [1.0, 0.7],
)


def device_answer(penalty, theta, step):
    with double_precision():
        return np.asarray(_prox(DevicePenalty.of(penalty), theta, np.asarray(step)))


@jax.jit
def _prox(made, theta, step):
    return made.prox(theta, step)


def make_theta(layout, *outputs):
    theta = np.random.default_rng(0).standard_normal((layout.n_weights, *outputs))
    slopes, _ = layout.split(theta)
    slopes[:, 1] *= 0.01  # a feature that vanishes
    slopes[:, 2] = 0.0
    return theta


SEVERAL_OUTPUTS = [L21(0.3, bias_strength=0.2), Nuclear(0.3), DirtyLInf(0.3, 0.2), Frobenius(0.3)]


@pytest.mark.parametrize(
    ("penalty", "layout", "outputs"),
    [(penalty, layout, ()) for penalty in PENALTIES for layout in (LAYOUT, MIXED)]
    + [(penalty, LAYOUT, (2,)) for penalty in SEVERAL_OUTPUTS],
    ids=str,
)
def test_proximal_maps(penalty, layout, outputs):
    bound, theta = penalty.bind(layout), make_theta(layout, *outputs)
    for step in (0.1, 3.0):
        expected = bound.prox(theta, step)
        assert np.allclose(device_answer(bound, theta, step), expected, atol=1e-9)


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_values(penalty):
    bound, theta = penalty.bind(MIXED), make_theta(MIXED)
    with double_precision():
        value = jax.jit(bound.value)(theta)
    assert np.isclose(value, bound.value(theta), rtol=1e-12)


def test_proximal_maps_of_wide_and_flat_slopes():
    layout = CellLayout((2,), 7)
    theta = np.random.default_rng(0).standard_normal(16)
    for penalty in (Nuclear(0.3), SchattenP(0.3, p=3), KyFan(0.3, k=1), L21(0.5)):
        bound = penalty.bind(layout)
        assert np.allclose(device_answer(bound, theta, 1.0), bound.prox(theta, 1.0), atol=1e-9)


def test_supported_features_of_a_relaxed_penalty():
    support = np.array([[1, 0], [1, 1], [0, 0], [0, 1], [1, 1]], bool)
    theta = np.random.default_rng(0).standard_normal(72)
    for penalty in (DirtyLasso(0.3, 0.2), DirtyLInf(0.3, 0.2)):
        bound = penalty.relaxed(0.5, support).bind(LAYOUT)
        answer = device_answer(bound, theta, 1.0)
        assert np.allclose(answer, bound.prox(theta, 1.0), atol=1e-9)
        assert not LAYOUT.split(answer)[0][7:, 0].any()


def test_sorted_norm_and_caps_on_many_vectors():
    rng = np.random.default_rng(0)
    with double_precision():
        for m in (1, 30):
            v = np.abs(rng.standard_normal(m)) * rng.integers(0, 2, m)
            weights = -np.sort(-rng.uniform(0, 1, m))
            assert np.allclose(jax.jit(shrink_sorted)(v, weights), shrink_sorted(v, weights))
        lengths = np.abs(rng.standard_normal((50, 4))) * rng.integers(0, 2, (50, 4))
        kappa = np.array([0.1, 0.5, 1.0, 0.3])
        for r in (0.05, 0.4, 0.8, 5.0):
            assert np.allclose(jax.jit(cap_l2)(lengths, kappa, r), cap_l2(lengths, kappa, r))


def test_strengths_are_leaves_and_what_decides_the_computation_is_not():
    weak, strong = (DevicePenalty.of(Lp1(s, p=1.5).bind(LAYOUT)) for s in (0.1, 0.2))
    assert weak.structure == strong.structure
    assert weak.structure != DevicePenalty.of(Lp1(0.1, p=3).bind(LAYOUT)).structure
    used = (L21(0.2) + LInf1(0.1)).bind(LAYOUT)
    before = DevicePenalty.of(used).structure
    used.prox(make_theta(LAYOUT), 1.0)  # it keeps where it ended, which is not compiled in
    assert DevicePenalty.of(used).structure == before


def test_a_penalty_in_numpy_alone_has_no_map_on_a_device():
    class Mine(Penalty):
        def value(self, theta):
            return 0.0

        def prox(self, theta, step):
            return np.maximum(theta, 0.0)

    class Inherits(L21):
        def shrink(self, W, t):
            return np.maximum(W - t, 0.0)

    class Everywhere(L21):
        def shrink(self, W, t):
            return W - W.clip(-t, t)

    theta = make_theta(LAYOUT)
    for penalty in (Mine(), Inherits(0.1), Inherits(0.1) + L1(0.1)):
        assert "TracerArrayConversionError" in compiled_penalty(penalty.bind(LAYOUT), theta)
    assert compiled_penalty(Everywhere(0.1).bind(LAYOUT), theta) is None
