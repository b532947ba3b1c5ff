"""The Frobenius penalty: its value with every constant, gradient, prox and rejected arguments."""

import numpy as np
import pytest

from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import Frobenius
from tables import on_tables

LAYOUT = CellLayout((2, 3), 2)
FULL = Frobenius(0.3, 0.7, feature_weights=[0.5, 2.0], partition_weights=[1.0, 4.0])


def _theta(*outputs):
    return np.random.default_rng(0).standard_normal((5, 3, *outputs))


@pytest.mark.parametrize("outputs", [(), (2,)], ids=["one_output", "two_outputs"])
def test_value_is_the_documented_sum(outputs):
    theta = _theta(*outputs)
    partition, u, v = [0, 0, 1, 1, 1], [1.0, 4.0], [0.5, 2.0]
    expected = 0.0
    for c in range(5):
        slopes = sum(np.sum(theta[c, j] ** 2) / v[j] for j in range(2))
        expected += (0.3 * slopes + 0.7 * np.sum(theta[c, 2] ** 2)) / u[partition[c]] / 2
    assert on_tables(FULL, LAYOUT).value(theta) == pytest.approx(expected)


@pytest.mark.parametrize("outputs", [(), (2,)], ids=["one_output", "two_outputs"])
def test_gradient_agrees_with_finite_differences(outputs, numeric_gradient):
    penalty, theta = FULL.bind(LAYOUT), LAYOUT.from_cells(_theta(*outputs))
    curvature = penalty.curvature()
    gradient = (curvature[:, None] if outputs else curvature) * theta
    np.testing.assert_allclose(gradient, numeric_gradient(penalty.value, theta), rtol=1e-7)


@pytest.mark.parametrize("outputs", [(), (2,)], ids=["one_output", "two_outputs"])
def test_prox_is_stationary(outputs, numeric_gradient):
    penalty, theta, step = on_tables(FULL, LAYOUT), _theta(*outputs), 1.7
    z = penalty.prox(theta, step)
    residual = numeric_gradient(
        lambda x: 0.5 * np.sum((x - theta) ** 2) + step * penalty.value(x), z
    )
    np.testing.assert_allclose(residual, 0, atol=1e-8)


def test_prox_keeps_float32():
    assert on_tables(FULL, LAYOUT).prox(_theta().astype(np.float32), 0.5).dtype == np.float32


def test_biases_are_penalised_like_slopes_unless_told_otherwise():
    assert Frobenius(0.2).bias_strength == 0.2
    assert Frobenius(0.2, 0).bind(LAYOUT).bias_curvature().tolist() == [0] * 5


def test_constant_cells_have_only_the_bias_penalty():
    layout = CellLayout((2, 3), 2, "constant")
    np.testing.assert_allclose(FULL.bind(layout).curvature(), [0.7, 0.7, 0.175, 0.175, 0.175])


def test_mixed_cells_have_slopes_in_linear_partitions():
    layout = CellLayout((2, 3), 2, ("constant", "linear"))
    slopes, biases = layout.split(FULL.bind(layout).curvature())
    np.testing.assert_allclose(slopes, np.tile([0.15, 0.0375], (3, 1)))
    np.testing.assert_allclose(biases, [0.7, 0.7, 0.175, 0.175, 0.175])


def test_scaled_multiplies_the_value():
    theta = _theta()
    value = on_tables(FULL * 10.0, LAYOUT).value(theta)
    assert value == pytest.approx(10 * on_tables(FULL, LAYOUT).value(theta))


def test_bind_leaves_the_penalty_as_it_was():
    FULL.bind(LAYOUT)
    with pytest.raises(ValueError, match="not bound to a layout"):
        FULL.curvature()


def test_repr_names_the_arguments():
    assert repr(Frobenius(0.5)) == "Frobenius(strength=0.5, bias_strength=0.5)"
    assert "feature_weights=<2 values>" in repr(FULL)


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf])
def test_strength_must_be_positive(value):
    with pytest.raises(ValueError, match=r"^strength=.*positive number"):
        Frobenius(value)


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_bias_strength_must_not_be_negative(value):
    with pytest.raises(ValueError, match=r"^bias_strength="):
        Frobenius(1.0, value)


@pytest.mark.parametrize("value", ["much", [1.0, 2.0], object()])
def test_strength_must_be_a_number(value):
    with pytest.raises(TypeError, match=r"^strength="):
        Frobenius(value)


@pytest.mark.parametrize("name", ["feature_weights", "partition_weights"])
@pytest.mark.parametrize("values", [[1.0, 0.0], [1.0, -2.0], [1.0, np.nan], [[1.0, 2.0]]])
def test_weights_must_be_positive_lists(name, values):
    with pytest.raises(ValueError, match=name):
        Frobenius(1.0, **{name: values})


@pytest.mark.parametrize("name", ["feature_weights", "partition_weights"])
def test_weights_must_have_the_right_length(name):
    with pytest.raises(ValueError, match=f"{name} has 3 entries, but there are 2"):
        Frobenius(1.0, **{name: [1.0, 1.0, 1.0]}).bind(LAYOUT)
