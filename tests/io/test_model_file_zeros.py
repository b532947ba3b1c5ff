"""Arrays that are mostly zeros are stored without these, in model files and pickles."""

import json
import pickle
import struct
import zlib
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import jointleaf as jl
from blend_fits import blended, small_fits
from jointleaf._core.arrays import NonZeros
from jointleaf._core.layout import CellLayout
from jointleaf._fit.blend import Stacking
from jointleaf._fit.component import Blend
from jointleaf.io._model_file.container import TYPES, ModelFileError, pack, unpack

HEADER = {"jointleaf": "1", "model": {}}
DTYPES = st.sampled_from([np.dtype(kind) for kind in TYPES])


@st.composite
def sparse_arrays(draw):
    dtype = draw(DTYPES)
    shape = draw(arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=40))
    array = np.zeros(shape, dtype)
    for _ in range(draw(st.integers(0, 12))):
        at = tuple(draw(st.integers(0, n - 1)) for n in shape)
        array[at] = draw(arrays_of.from_dtype(dtype))
    return np.asfortranarray(array) if draw(st.booleans()) else array


@settings(deadline=None, max_examples=100)
@given(st.lists(sparse_arrays(), max_size=4))
def test_arrays_come_back_bit_for_bit(arrays):
    data = pack(HEADER, arrays)
    read = unpack(data).arrays
    assert len(read) == len(arrays)
    for a, b in zip(arrays, read, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        assert a.flags.f_contiguous == b.flags.f_contiguous


def test_minus_zero_and_missing_values_are_numbers():
    array = np.zeros((100, 10))
    array[3, 4], array[5, 6], array[7, 8] = -0.0, np.nan, 5e-324
    stored = NonZeros.of(array)
    assert len(stored.values) == 3
    assert stored.array().tobytes() == array.tobytes()


def test_what_is_stored_without_zeros():
    dense = np.ones((1000, 10))
    assert NonZeros.of(dense) is None
    assert NonZeros.of(np.zeros(100)) is None, "small"
    dense[:, 1:] = 0.0
    assert NonZeros.of(dense) is not None
    assert len(pack(HEADER, [dense])) < 10_000
    dense[:, :5] = 1.0
    assert NonZeros.of(dense) is None, "half of the numbers"


def edited(data, entry, change=bytes):
    """A file with another description of its only array, and other bytes of the array."""
    n_header = struct.unpack("<Q", data[24:32])[0]
    header = json.loads(data[32 : 32 + n_header])
    header["arrays"] = [entry]
    text = json.dumps(header).encode()
    body = data[32 + n_header + -(32 + n_header) % 64 :]
    body = text + bytes(-(32 + len(text)) % 64) + change(body)
    checked = struct.pack("<QQ", 32 + len(body), len(text)) + body
    return data[:12] + struct.pack("<I", zlib.crc32(checked)) + checked


def test_damaged_arrays():
    array = np.zeros(1001)
    array[[0, 500, 1000]] = 1.0
    data = pack(HEADER, [array])
    np.testing.assert_array_equal(unpack(edited(data, ["<f8", [1001], "C", 3]))[2][0], array)
    for count in (2, 4, 0, -1, 1002, 2**70, 3.0, True, None, "3", [3]):
        with pytest.raises(ModelFileError):
            unpack(edited(data, ["<f8", [1001], "C", count]))
    for shape in ([1000], [1009], [2**40], [2**40, 2**40], [8 * 2**20]):
        with pytest.raises(ModelFileError):
            unpack(edited(data, ["<f8", shape, "C", 3]))
    with pytest.raises(ModelFileError, match="not described"):
        unpack(edited(data, ["<f8", [1001], "C", 3, 3]))
    with pytest.raises(ModelFileError, match="other bits"):
        unpack(edited(data, ["<f8", [1001], "C", 3], lambda b: b"\x81" + b[1:]))
    last = -(-1001 // 8) - 1
    # The first bit becomes one behind the last number.
    moved = edited(
        data, ["<f8", [1001], "C", 3], lambda b: b"\x00" + b[1:last] + b"\xc0" + b[last + 1 :]
    )
    with pytest.raises(ModelFileError, match="other bits"):
        unpack(moved)
    is_true = np.zeros(9000, bool)
    is_true[7] = True
    data = pack(HEADER, [is_true])
    with pytest.raises(ModelFileError, match="truth values"):
        unpack(edited(data, ["|b1", [9000], "C", 1], lambda b: b[:1125] + b"\x02" + b[1126:]))


def test_zeros_count_among_the_bytes_that_a_file_may_take(tmp_path):
    arrays = [np.zeros(100_000), np.zeros(100_001)]
    data = pack(HEADER, arrays)
    assert len(data) < 30_000
    assert len(unpack(data, 1_600_008)[2]) == 2
    with pytest.raises(ModelFileError, match="raise max_bytes"):
        unpack(data, 1_600_007)


# -- models ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def boosted():
    """A model of six classes, of which every tree adds to one."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 8))
    y = np.digitize(X[:, 0] * X[:, 1] + X[:, 2], [-1.5, -0.7, 0.0, 0.7, 1.5])
    with small_fits(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stacking, "fit", lambda *_: Blend.alone("boosted_random"))
        return blended(jl.JOPLEnClassifier).fit(X, y), X


def test_pickles_and_files_of_boosted_classes_are_small(boosted, tmp_path):
    model, X = boosted
    cells = model.cell_model_
    assert (cells.biases != 0).mean() < 0.2
    dense = cells.biases.nbytes + cells.slopes.nbytes
    path = tmp_path / "model.jleaf"
    jl.save(model, path)
    expected = model.predict_proba(X)
    loaded, unpickled = jl.load(path), pickle.loads(pickle.dumps(model))
    for copy in (loaded, unpickled):
        np.testing.assert_array_equal(copy.predict_proba(X), expected)
        assert copy.cell_model_.slopes.tobytes() == cells.slopes.tobytes()
        assert copy.cell_model_.biases.tobytes() == cells.biases.tobytes()
    assert len(pickle.dumps(cells.slopes)) + len(pickle.dumps(cells.biases)) >= dense
    state = cells.__getstate__()
    assert sum(len(pickle.dumps(state[name])) for name in ("slopes", "biases")) < dense / 3
    with pytest.raises(jl.ModelFileError, match="max_bytes"):
        jl.load(path, max_bytes=path.stat().st_size + 1000)


def test_pickled_layouts_hold_their_fields_alone():
    layout = CellLayout((3, 4, 5), 2, ("linear", "constant", "linear"))
    size = len(pickle.dumps(layout))
    assert layout.n_linear_cells == 8
    assert layout.partition_of_cell[-1] == 2
    assert len(pickle.dumps(layout)) == size
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout
    assert set(vars(again)) == {field.name for field in fields(CellLayout)}
