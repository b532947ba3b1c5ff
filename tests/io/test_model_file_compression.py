"""Model files are compressed, and what they may take when they are read is bounded."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest

from jointleaf.io._model_file.container import MAGIC, ModelFileError, pack, unpack

HEADER = {"jointleaf": "1", "model": {}}
START = 32


def compressed(body, n_header):
    """A file with these compressed bytes."""
    checked = struct.pack("<QQ", START + len(body), n_header) + body
    return MAGIC + struct.pack("<II", 2, zlib.crc32(checked)) + checked


def plain_body(arrays):
    """The bytes of a file behind its start, and the length of its header."""
    data = pack(HEADER, arrays)
    body = data[START:]
    body = body if body[:1] == b"{" else zlib.decompress(body)
    return body, struct.unpack("<Q", data[24:32])[0]


def test_arrays_are_compressed_and_come_back():
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 9, (50, 200)), rng.standard_normal(7), np.arange(0)]
    data = pack(HEADER, arrays)
    assert len(data) < arrays[0].nbytes / 8
    for written, read in zip(arrays, unpack(data)[2], strict=True):
        assert (written.dtype, written.tobytes()) == (read.dtype, read.tobytes())


def test_older_files_without_compression_are_read():
    arrays = [np.arange(1000.0)]
    data = compressed(*plain_body(arrays))
    np.testing.assert_array_equal(unpack(data)[2][0], arrays[0])


@pytest.mark.parametrize("array", [np.ones(300_000), np.zeros(300_000), np.zeros(300_000, bool)])
def test_what_is_written_is_read_whatever_its_ratio(array):
    """zlib makes equal numbers up to 1,000 times smaller: more than a reader believes."""
    data = pack(HEADER, [array])
    assert array.nbytes <= 64 * len(data)
    np.testing.assert_array_equal(unpack(data)[2][0], array)


@pytest.mark.parametrize("array", [np.ones(3_000_000), np.zeros(3_000_000)])
def test_small_files_cannot_take_much_memory(array):
    body, n_header = plain_body([array])
    data = compressed(zlib.compress(body, 9), n_header)
    tracemalloc.start()
    with pytest.raises(ModelFileError, match="64 times the file"):
        unpack(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 64 * len(data) + 1_000_000 < array.nbytes


def test_damaged_compression():
    body, n_header = plain_body([np.random.default_rng(0).standard_normal(500)])
    stream = zlib.compress(body)
    for damaged, match in [
        (stream[:-1], "does not end"),
        (stream + b"x", "does not end"),
        (stream[:100] + b"\xff" * 50 + stream[150:], "cannot be uncompressed"),
        (b"", "does not end"),
        (b"x", "does not end"),
        (b"abc", "cannot be uncompressed"),
        (zlib.compress(body[:-8]), "does not fit"),
        (zlib.compress(body + b"abc"), "follow the last array"),
        (zlib.compress(b""), "lengths at the start"),
    ]:
        with pytest.raises(ModelFileError, match=match):
            unpack(compressed(damaged, n_header))
    with pytest.raises(ModelFileError, match="lengths at the start"):
        unpack(compressed(stream, len(body) + 1))
