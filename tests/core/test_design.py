"""`LeafDesign` against the plain reference, its adjoint, its threads and its layout."""

import pickle
import sys
import tracemalloc

import numpy as np
import pytest

from jointleaf._core import cell_sums
from jointleaf._core import design as design_module
from jointleaf._core.design import LeafDesign, lipschitz
from jointleaf._core.layout import CellLayout, TaskLayout, check_codes
from reference import ReferenceDesign

N_CELLS = (2, 3, 2, 4, 3, 2)  # the last cell of partition 3 holds no row


KINDS = {
    "linear": "linear",
    "constant": "constant",
    "first_linear": ("linear",) * 2 + ("constant",) * 4,
    "first_constant": ("constant",) * 3 + ("linear",) * 3,
    "in_turn": ("linear", "constant") * 3,
}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    return request.param


@pytest.fixture(params=["plain", "merged", "dense"])
def form(request):
    return request.param


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return np.dtype(request.param)


@pytest.fixture(params=[0.0, 0.2], ids=["all_in_cells", "some_in_no_cell"])
def case(request, make_case):
    return make_case(n=600, d=3, cells=(2, 3, 2, 3, 3, 2), missing=request.param)


@pytest.fixture
def designs(case, kind, form, dtype, monkeypatch):
    """The fast design, in several blocks of rows, and the reference."""
    monkeypatch.setattr(cell_sums, "_BLOCK_BYTES", 1)
    if form == "merged":
        monkeypatch.setattr(design_module, "_DENSE_ENTRIES", 0)
    X = case.X.astype(dtype)
    fast = LeafDesign(X, case.codes, N_CELLS, cells=kind)
    if form != "plain":
        fast.merge_partitions()
    if form == "merged" and kind != KINDS["in_turn"]:
        groups = [len(part.groups) < len(part.partitions) for part in fast._parts]
        assert all(groups), "the case must exercise merging"
    assert (fast._dense is not None) == (form == "dense")
    return fast, ReferenceDesign(X, case.codes, N_CELLS, cells=kind)


def _assert_close(got, expected, dtype, given_dtype=None):
    assert got.dtype == (given_dtype or dtype)
    tol = 2e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(
        got, expected, rtol=tol, atol=tol * np.abs(expected).max(initial=0.0)
    )


def _normal(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape)


def test_reference_equals_a_design_written_by_hand():
    data = [[2.0], [3.0], [5.0]], [[0, 1], [1, -1], [0, 0]], [2, 2]
    slopes = np.array([[2, 0, 0, 2], [0, 3, 0, 0], [5, 0, 5, 0]])
    biases = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 1, 0]])
    for cells, kept in (
        ("linear", slice(None)),
        (("linear", "constant"), slice(2)),
        (("constant", "linear"), slice(2, None)),
        ("constant", slice(0)),
    ):
        expected = np.hstack([slopes[:, kept], biases])
        np.testing.assert_array_equal(ReferenceDesign(*data, cells=cells).to_dense(), expected)


@pytest.mark.parametrize("outputs", [(), (3,)], ids=["one_output", "three_outputs"])
def test_products_equal_the_reference(designs, dtype, outputs):
    fast, reference = designs
    theta, r = _normal(fast.layout.n_weights, *outputs), _normal(600, *outputs)
    biases, Z = fast.layout.split(theta)[1], reference.to_biases()
    _assert_close(fast.matvec(theta), reference.matvec(theta), dtype)
    _assert_close(fast.rmatvec(r), reference.rmatvec(r), dtype)
    _assert_close(fast.bias_matvec(biases), Z @ biases, dtype)
    _assert_close(fast.bias_rmatvec(r), Z.T @ r, dtype)


def test_second_order_pieces_equal_the_reference(designs, dtype):
    fast, reference = designs
    h = np.random.default_rng(2).uniform(0.1, 2.0, 600)
    grams, phi = reference.cell_grams(h), reference.to_dense()
    _assert_close(fast.cell_grams(h), grams, dtype, np.float64)
    _assert_close(fast.cell_diagonals(h), h @ phi**2, dtype, np.float64)
    _assert_close(np.triu(fast.bias_gram(h)), np.triu(reference.bias_gram(h)), dtype, np.float64)
    np.testing.assert_array_equal(
        np.triu(fast.bias_gram()), np.triu(reference.bias_gram(np.ones(600)))
    )


def test_bias_gram_in_small_tables_of_counts(case, monkeypatch):
    monkeypatch.setattr(design_module, "_COUNTS", 1)
    fast = LeafDesign(case.X, case.codes, N_CELLS).merge_partitions()
    expected = ReferenceDesign(case.X, case.codes, N_CELLS).bias_gram(case.s)
    np.testing.assert_allclose(np.triu(fast.bias_gram(case.s)), np.triu(expected), rtol=1e-12)


def test_adjoint(designs, dtype):
    fast, _ = designs
    theta, r = _normal(fast.layout.n_weights, 2), _normal(600, 2)
    forward = float(np.vdot(fast.matvec(theta).astype(float), r))
    backward = float(np.vdot(theta, fast.rmatvec(r).astype(float)))
    assert forward == pytest.approx(backward, rel=1e-4 if dtype == np.float32 else 1e-11)


def test_cells_and_double_precision_are_kept_by_merging(case, kind):
    fast = LeafDesign(case.X.astype(np.float32), case.codes, N_CELLS, cells=kind)
    cells = fast.cells().copy()
    fast.merge_partitions()
    np.testing.assert_array_equal(fast.cells(), cells)
    double = fast.in_double()
    assert double.dtype == np.float64
    np.testing.assert_array_equal(double.cells(), cells)
    theta = _normal(fast.layout.n_weights)
    np.testing.assert_allclose(double.matvec(theta), fast.matvec(theta), rtol=1e-4, atol=1e-4)


def test_partitions_with_many_cells_merge_by_sorting(make_case):
    case = make_case(n=6000, d=2, cells=(2,) * 7)
    # 128 intersections times 601 cells are too many for a table of counts.
    codes = np.column_stack([case.codes, 600 * case.codes[:, 0]])
    fast = LeafDesign(case.X, codes, cells="constant").merge_partitions()
    assert len(fast._parts[0].groups) == 1
    theta = _normal(fast.layout.n_weights)
    expected = theta[codes + fast.layout.offsets[:-1]].sum(axis=1)
    np.testing.assert_allclose(fast.matvec(theta), expected, rtol=1e-12)


@pytest.mark.parametrize(("n_cells", "is_merged"), [(10, True), (20, False)])
def test_partitions_of_too_many_cells_stay_apart(n_cells, is_merged, make_case, monkeypatch):
    """Two of them have as many intersections as there are rows: 10 * 10 < 200 < 20 * 20."""
    monkeypatch.setattr(design_module, "_DENSE_ENTRIES", 0)
    case = make_case(n=200, d=2, cells=(n_cells,) * 6)
    fast = LeafDesign(case.X, case.codes, (n_cells,) * 6).merge_partitions()
    assert (fast._parts[0].groups is not None) == is_merged
    phi = ReferenceDesign(case.X, case.codes, (n_cells,) * 6).to_dense()
    theta, r = _normal(fast.layout.n_weights), _normal(200)
    np.testing.assert_allclose(fast.matvec(theta), phi @ theta, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(fast.rmatvec(r), r @ phi, rtol=1e-10, atol=1e-10)


def test_lipschitz_is_the_largest_eigenvalue(case, kind):
    phi = ReferenceDesign(case.X, case.codes, N_CELLS, cells=kind).to_dense()
    largest = np.linalg.eigvalsh(phi.T @ (case.s[:, None] * phi))[-1]
    fast = LeafDesign(case.X, case.codes, N_CELLS, cells=kind)
    assert lipschitz(fast, case.s, max_iter=500, tol=1e-9) == pytest.approx(largest, rel=1e-5)


@pytest.fixture(scope="module")
def long_case(make_case):
    return make_case(n=30_000, d=2, cells=(3,) * 8)


@pytest.mark.parametrize("dtype_name", ["float32", "float64"])
@pytest.mark.parametrize("merged", [False, True])
def test_results_are_bit_identical_for_every_n_jobs(long_case, merged, dtype_name):
    X, codes = long_case.X.astype(dtype_name), long_case.codes
    theta, r = _normal(72, 2), _normal(30_000)

    def results(n_jobs):
        fast = LeafDesign(X, codes, n_jobs=n_jobs)
        if merged:
            fast.merge_partitions()
        assert len(fast._parts[0].segments(0)) > 3, "the case must have several segments"
        bits = [fast.matvec(theta), fast.matvec(theta[:, 0]), fast.rmatvec(r)]
        return [*bits, fast.cell_grams(long_case.s), fast.bias_rmatvec(r)]

    first = results(1)
    for n_jobs in (2, 3):
        for one, other in zip(first, results(n_jobs), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("merged", [False, True])
def test_many_rows_in_threads_equal_plain_sums(long_case, merged):
    fast = LeafDesign(long_case.X, long_case.codes, n_jobs=2)
    if merged:
        fast.merge_partitions()
    theta, r = _normal(24, 3), _normal(30_000)
    rows = np.column_stack([long_case.X, np.ones(30_000)])
    cells = long_case.codes + 3 * np.arange(8)
    f, G = np.zeros(30_000), np.zeros((24, 3))
    for column in cells.T:
        f += (theta[column] * rows).sum(axis=1)
        np.add.at(G, column, r[:, None] * rows)
    layout = fast.layout
    np.testing.assert_allclose(fast.matvec(layout.from_cells(theta)), f, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(fast.rmatvec(r), layout.from_cells(G), rtol=1e-9, atol=1e-9)


def test_layout_splits_and_joins():
    layout = CellLayout((2, 3), 4)
    theta = _normal(25, 2)
    slopes, biases = layout.split(theta)
    assert slopes.shape == (5, 4, 2)
    assert biases.shape == (5, 2)
    np.testing.assert_array_equal(layout.join(slopes, biases), theta)
    np.testing.assert_array_equal(layout.from_cells(layout.by_cell(theta)), theta)
    np.testing.assert_array_equal(layout.offsets, [0, 2, 5])
    np.testing.assert_array_equal(layout.partition_of_cell, [0, 0, 1, 1, 1])
    assert CellLayout((2, 3), 4, "constant").n_weights == 5


def test_every_partition_has_its_kind():
    layout = CellLayout((2, 3, 1), 4, ("constant", "linear", "linear"))
    assert (layout.n_cells, layout.n_linear_cells, layout.n_weights) == (6, 4, 22)
    np.testing.assert_array_equal(layout.linear_cells, [2, 3, 4, 5])
    np.testing.assert_array_equal(layout.slope_rows, [4, 4, 0, 1, 2, 3])
    assert layout.only([0, 2]) == CellLayout((2, 1), 4, ("constant", "linear"))
    assert layout.only([False, True, True]) == CellLayout((3, 1), 4)
    table = layout.by_cell(np.arange(22.0))
    np.testing.assert_array_equal(table[:2, :-1], 0)
    np.testing.assert_array_equal(table[2:, :-1].ravel(), np.arange(16))
    np.testing.assert_array_equal(table[:, -1], np.arange(16, 22))


def test_tasks_have_their_part_of_the_weights():
    parts = CellLayout((2,), 3), CellLayout((1, 2), 3, ("constant", "linear"))
    layout = TaskLayout(parts, [1.0, 2.0])
    theta = _normal(layout.n_weights)
    slopes, biases = layout.split(theta)
    for task, rows, cells in ((0, slice(2), slice(2)), (1, slice(2, 4), slice(2, 5))):
        own = parts[task].split(layout.part_of(theta, task))
        np.testing.assert_array_equal(own[0], slopes[rows])
        np.testing.assert_array_equal(own[1], biases[cells])


@pytest.mark.parametrize("cells", ["lines", ("linear", "lines"), 3, ()])
def test_kinds_that_are_not_known_are_told(cells):
    with pytest.raises(ValueError, match=r"cells=.* is not known: use 'linear' or 'constant'"):
        CellLayout((2, 3), 1, cells)


def test_a_wrong_number_of_kinds_is_told():
    with pytest.raises(ValueError, match="cells has 3 words for 2 partitions: use"):
        LeafDesign(np.zeros((2, 1)), np.zeros((2, 2), int), cells=["linear"] * 3)


def test_constant_partitions_have_no_slopes_in_memory():
    rng = np.random.default_rng(0)
    X, codes = rng.standard_normal((300, 1000)), rng.integers(0, 50, (300, 41))
    cells = ("linear",) + ("constant",) * 40
    design = LeafDesign(X, codes, (50,) * 41, cells=cells)
    theta, r = np.ones(design.layout.n_weights), np.ones(300)
    assert theta.size == 50 * 1000 + 41 * 50
    design.merge_partitions().matvec(theta)
    tracemalloc.start()
    design.matvec(theta)
    design.rmatvec(r)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 8 * (50 * 1001 + 300 * 1001)  # of the linear partition; with slopes 100 times


def test_codes_of_no_rows_and_of_unused_cells_are_counted():
    assert check_codes(np.empty((0, 2), int), 0)[1] == (1, 1)
    assert check_codes([[0, 2], [1, 0]], 2)[1] == (2, 3)
    assert check_codes([[0, 2], [1, 0]], 2, [4, 3])[1] == (4, 3)
    assert check_codes([[-1, 2]], 1, allow_no_cell=True)[1] == (1, 3)


def test_unsupported_precision_is_rejected():
    with pytest.raises(ValueError, match="dtype=float16"):
        LeafDesign(np.zeros((2, 1)), np.zeros((2, 1), int), dtype=np.float16)


@pytest.mark.parametrize("merged", [False, True])
def test_no_rows_give_empty_predictions_and_sums_of_zero(kind, merged):
    empty = LeafDesign(np.empty((0, 3)), np.empty((0, 6), int), N_CELLS, cells=kind)
    if merged:
        empty.merge_partitions()
    layout, none = empty.layout, np.empty(0)
    theta = _normal(layout.n_weights)
    assert empty.matvec(theta).shape == (0,)
    assert empty.matvec(theta[:, None].repeat(2, axis=1)).shape == (0, 2)
    assert empty.bias_matvec(layout.split(theta)[1]).shape == (0,)
    assert empty.cells().shape == (0, 6)
    assert empty.largest_value == 1.0
    assert empty.rmatvec(np.empty((0, 2))).shape == (layout.n_weights, 2)
    for product in ("rmatvec", "bias_rmatvec", "cell_grams", "cell_mass", "cell_diagonals"):
        assert not np.any(getattr(empty, product)(none)), product
    assert not np.any(np.triu(empty.bias_gram()))
    assert not np.any(np.triu(empty.bias_gram(none)))


def test_a_pickle_holds_rows_and_codes_alone(long_case):
    fast = LeafDesign(long_case.X, long_case.codes, n_jobs=2).merge_partitions()
    theta = _normal(72)
    r = _normal(30_000)
    expected = fast.matvec(theta), fast.rmatvec(r)
    text = pickle.dumps(fast)
    codes = fast._parts[0]._merged
    assert codes.dtype == np.uint16
    assert codes.shape[1] < 4
    assert len(text) < 1.05 * (30_000 * 3 * 8 + codes.nbytes)
    loaded = pickle.loads(text)
    np.testing.assert_array_equal(loaded.matvec(theta), expected[0])
    np.testing.assert_array_equal(loaded.rmatvec(r), expected[1])
    np.testing.assert_array_equal(loaded.cells(), fast.cells())


def test_a_design_says_how_large_it_is(long_case):
    LeafDesign(long_case.X, long_case.codes).merge_partitions()  # what is imported for it is here
    tracemalloc.start()
    fast = LeafDesign(long_case.X, long_case.codes).merge_partitions()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert sys.getsizeof(fast) == pytest.approx(held, rel=0.02)


@pytest.mark.parametrize("n_cells", [200, 300, 70_000])
def test_codes_are_stored_in_the_smallest_type(n_cells):
    codes = np.array([[0, n_cells - 1], [n_cells - 1, -1], [-1, 0]])
    fast = LeafDesign(np.ones((3, 1)), codes, (n_cells, n_cells), cells="constant")
    dtype = {200: np.uint16, 300: np.uint16, 70_000: np.int32}[n_cells]  # no cell is code 2 C
    assert fast._parts[0]._merged.dtype == dtype
    full = LeafDesign(np.ones((1, 1)), codes[:1], (n_cells, n_cells), cells="constant")
    assert full._parts[0]._merged.dtype == {200: np.uint8}.get(n_cells, dtype)
    np.testing.assert_array_equal(
        fast.cells(), [[0, 2 * n_cells - 1], [n_cells - 1, 2 * n_cells], [2 * n_cells, n_cells]]
    )
    theta = np.arange(2.0 * n_cells)
    expected = [2 * n_cells - 1, n_cells - 1, n_cells]
    np.testing.assert_array_equal(fast.matvec(theta), expected)


def test_codes_of_a_byte_are_numbered_beyond_it():
    """NumPy 1 adds a byte and a small number of another type as bytes."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, (400, 60))
    codes[:5] = np.arange(5)[:, None]  # all are met
    design = LeafDesign(rng.standard_normal((400, 2)), codes, cells="constant")
    expected = codes + 5 * np.arange(60)
    np.testing.assert_array_equal(design.cells(), expected)
    for part in design._parts:
        part.merge()
        assert part.groups is not None
    np.testing.assert_array_equal(design.cells(), expected)
    gram = np.triu(design.bias_gram())
    indicators = (expected[:, :, None] == np.arange(300)).sum(axis=1)
    np.testing.assert_array_equal(gram, np.triu(indicators.T @ indicators))
