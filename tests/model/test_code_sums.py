"""Sums of weights by codes are those of a loop, the same for every number of rows together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jointleaf._core.layout import CellLayout
from jointleaf._model import code_sums
from jointleaf._model.code_sums import CodeSums


def problem(kinds, outputs, seed, *, may_miss, n_rows=130):
    """Return a layout, weights, linear features and codes (P, n)."""
    rng = np.random.default_rng(seed)
    layout = CellLayout(tuple(rng.integers(1, 6, len(kinds)).tolist()), 3, kinds)
    slopes = rng.standard_normal((layout.n_linear_cells, 3, *outputs))
    biases = rng.standard_normal((layout.n_cells, *outputs))
    sizes = np.array(layout.cells_per_partition)[:, None]
    codes = rng.integers(-1 if may_miss else 0, sizes, (len(kinds), n_rows))
    return layout, slopes, biases, rng.standard_normal((n_rows, 3)), codes.astype(np.int32)


def by_loop(layout, slopes, biases, Z, codes, partitions):
    sums = np.zeros((len(Z), *biases.shape[1:]))
    for p in partitions:
        for i, code in enumerate(codes[p]):
            if code >= 0:
                cell = layout.offsets[p] + code
                sums[i] += biases[cell]
                if layout.kinds[p] == "linear":
                    sums[i] += np.tensordot(Z[i], slopes[layout.slope_rows[cell]], axes=(0, 0))
    return sums


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_sums_are_those_of_a_loop(data):
    kinds = data.draw(st.lists(st.sampled_from(["linear", "constant"]), min_size=1, max_size=9))
    may_miss = data.draw(st.booleans())
    outputs = data.draw(st.sampled_from([(), (2,)]))
    case = problem(tuple(kinds), outputs, data.draw(st.integers(0, 99)), may_miss=may_miss)
    layout, slopes, biases, Z, codes = case
    chosen = data.draw(st.sets(st.integers(0, len(kinds) - 1), min_size=1))
    partitions = np.array(sorted(chosen))
    output = data.draw(st.sampled_from([..., 1])) if outputs else ...
    sums = CodeSums(layout, slopes, biases, output, partitions, may_miss=may_miss)
    expected = by_loop(*case, partitions)[:, output] if outputs else by_loop(*case, partitions)
    for n in (0, 1, 2, 63, 130):
        found = sums(Z[:n], codes[:, :n])
        assert found.shape == expected[:n].shape
        np.testing.assert_allclose(found, expected[:n], atol=1e-12)


@pytest.mark.parametrize("n_entries", [1, 2**11, 2**16])
def test_no_number_depends_on_the_rows_beside_it(n_entries, monkeypatch):
    kinds = ("constant", "linear") * 150 + ("linear",) * 200
    layout, slopes, biases, Z, codes = problem(kinds, (), 0, may_miss=True, n_rows=200)
    sums = CodeSums(layout, slopes, biases, ..., np.arange(len(kinds)))
    expected = sums(Z, codes)
    monkeypatch.setattr(code_sums, "_ENTRIES", n_entries)
    for size in (1, 7, 64, 199, 200):
        for begin in range(0, 200, size if size > 1 else 29):
            rows = slice(begin, begin + size)
            np.testing.assert_array_equal(sums(Z[rows], codes[:, rows]), expected[rows])
