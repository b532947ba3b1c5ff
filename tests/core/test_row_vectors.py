"""Numbers of rows in blocks: the operators of arrays, sums in one order, nothing held for long."""

import gc
import weakref

import numpy as np
import pytest

from jointleaf._core.arrays import dot, over_rows, shaped
from jointleaf._core.row_vectors import (
    FAN,
    Call,
    Here,
    Kept,
    RowVector,
    add_in_order,
    with_slots,
)

BOUNDS = [3, 3, 10]  # of blocks, one of which has no rows


def in_blocks(values):
    parts = np.split(values, BOUNDS)
    return RowVector(Here(), Kept(parts), values[:0], [len(part) for part in parts])


@pytest.fixture(params=["float32", "float64"])
def vectors(request):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(request.param) for shape in ((17,), (17, 3), (17,))]


def test_operators_are_those_of_arrays(vectors):
    a, M, b = vectors
    x, Y, z = map(in_blocks, vectors)
    pairs = [
        (x + z, a + b),
        (2.0 * x - z / 3, 2.0 * a - b / 3),
        (np.exp(-x), np.exp(-a)),
        (np.where(x > 0.5, 0.0, z), np.where(a > 0.5, 0.0, b)),
        (np.zeros_like(Y), np.zeros_like(M)),
        (shaped(x, Y) * Y, a[:, None] * M),
        (Y[:, 1], M[:, 1]),
        (x[0:17], a),
        (Y.mean(axis=1), M.mean(axis=1)),
        (x.reshape(17, -1).max(axis=1), a),
        (x.astype(float), a.astype(float)),
        (over_rows(np.cumsum, Y, 1), np.cumsum(M, 1)),
    ]
    for got, expected in pairs:
        assert (got.shape, got.dtype, got.ndim) == (expected.shape, expected.dtype, expected.ndim)
        np.testing.assert_array_equal(got.gather(), expected)
    assert x.max() == a.max()
    assert x.min() == a.min()
    assert (x * 0 + 1).all()
    assert not (x * 0).all()
    assert x.sum() == pytest.approx(a.sum(dtype=float), rel=1e-12)
    assert dot(Y, Y) == pytest.approx(dot(M, M), rel=1e-12)
    assert len(x) == x.size == 17


def test_what_is_not_written_for_blocks_is_refused(vectors):
    x = in_blocks(vectors[0])
    with pytest.raises(TypeError, match=r"stay with their blocks: use gather\(\)"):
        np.asarray(x)
    with pytest.raises(TypeError):
        np.sort(x)
    with pytest.raises(TypeError):
        np.add.reduce(x)
    with pytest.raises(TypeError):  # others may hold the same vector
        x += x


@pytest.mark.parametrize("n", [1, 2, FAN, FAN + 1, 3 * FAN, FAN**2, FAN**2 + 1, 2 * FAN**2 + 3])
def test_sums_are_added_level_by_level(n):
    terms = list(np.random.default_rng(n).standard_normal((n, 2)).astype("float32"))
    level = [term.astype(float) for term in terms]
    while len(level) > 1:
        groups = [level[i : i + FAN] for i in range(0, len(level), FAN)]
        level = [sum(group[1:], group[0]) for group in groups]
    total = add_in_order(iter(terms))
    assert total.dtype == float
    np.testing.assert_array_equal(total, level[0])


def test_expressions_stay_small():
    x = total = in_blocks(np.ones(17))
    for k in range(30):
        total = total + in_blocks(np.full(17, float(k)))
        assert len(with_slots(Call(np.asarray, (total,)))[1]) <= 5
    np.testing.assert_array_equal(total.gather(), np.full(17, 1.0 + sum(range(30))))
    assert x.gather().sum() == 17


def test_values_are_freed_with_the_last_vector_and_not_later():
    gc.disable()
    try:
        values = [np.ones(3), np.ones(2)]
        x = RowVector(Here(), Kept(list(values)), np.empty(0), (3, 2))
        seen = weakref.ref(values[0])
        assert (2 * x + x).sum() == 15
        del x, values
        assert seen() is None
    finally:
        gc.enable()
