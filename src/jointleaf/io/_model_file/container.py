r"""The bytes of a model file: a fixed start, a JSON header and raw arrays.

======  =========  ==========================================================
bytes   type       meaning
======  =========  ==========================================================
0-7     bytes      ``\x89JLEAF\r\n``
8-11    uint32     format version
12-15   uint32     CRC-32 of everything from byte 16 on
16-23   uint64     length of the whole file
24-31   uint64     length H of the header
32-     UTF-8      the header, JSON, H bytes
...     raw        the arrays, each at the next multiple of 64 bytes
======  =========  ==========================================================

From byte 32 on a file is compressed with zlib, unless it begins with the brace of the JSON there;
places and H are those of the uncompressed file. All numbers are little-endian. The first 12 bytes
mean the same in every version. The header is an object with the keys ``jointleaf`` (the version
that wrote the file), ``model``, perhaps
``metadata`` (any JSON object that the caller of `save` gave) and ``arrays``, a list of
``[type, shape, order]`` in the order of the arrays; ``type`` is one of `TYPES`, ``order`` "C" or
"F". Where most numbers of an array are zero, ``[type, shape, order, n]`` stands for a bit per
number, whether it is not zero, first bits of a byte first, followed by the n numbers that are not.

Neither the uncompressed file nor all arrays together are larger than 64 times the file: what zlib
would make smaller than that is written without it. What else is made of a file when it is read is
paid for from a `Budget`, so that its cost is bounded by its size.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import NonZeros

#: The format that is written, and the newest that is read.
FORMAT = 2
MAGIC = b"\x89JLEAF\r\n"
#: Types of arrays, as NumPy writes them.
TYPES = (*("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8"), *("<f2", "<f4", "<f8"))
_START = struct.Struct("<8sIIQQ")
_CHECKED = 16  # the checksum is of everything from here on
_ALIGNED = 64
_KEYS = {"jointleaf", "model", "arrays"}  # that every header has
_PLAIN = b"{"  # the first byte of a header that is not compressed
_LEVEL = 6  # of zlib: the sizes of 1 and 9 differ from it by 3 %, the times by factors
_MOST_RATIO = 64  # of uncompressed bytes, and of bytes of arrays, to those of the file
_MOST_AXES = 4
_MOST_LENGTH = 2**40  # of an axis
_MOST_TEXT = 400  # characters of a message, parts of which may come from a damaged file
#: Bytes that reading may take: any file so many, and times what it unpacks to, its length, and
#: the limit of the caller, whichever is least.
_BUDGET, _PER_UNPACKED, _PER_FILE, _PER_LIMIT = 2**26, 16, 4 * _MOST_RATIO, 4
#: Bytes of Python's objects for marks of JSON, and for a character of its text.
_MARKS = {b"[": 64, b"{": 240, b",": 64, b":": 100}
_PER_ASCII, _PER_CHARACTER = 2, 8


class ModelFileError(ValueError):
    """A model cannot be saved, or a file is no valid model file; the message is one line."""

    def __init__(self, message: str) -> None:
        # Cut first: a text of a hostile file may have millions of words.
        line = " ".join(message[: 4 * _MOST_TEXT].split())
        super().__init__(line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]}...")


class Budget:
    """Bytes that reading a file may still take; all is paid before it is allocated."""

    def __init__(self, n_file: int, n_unpacked: int, max_bytes: float) -> None:
        least = min(_PER_UNPACKED * n_unpacked, _PER_FILE * n_file, _PER_LIMIT * max_bytes)
        self._left = _BUDGET + least

    def spend(self, n_bytes: float) -> None:
        """Pay for an allocation, or raise the error that the file asks for too much."""
        self._left -= n_bytes
        if self._left < 0:
            raise ModelFileError(
                "the model takes more memory than a file of its size may ask for: it is damaged, "
                "or holds too many small objects (metadata, texts, columns)"
            )


class Unpacked(NamedTuple):
    """What a file holds, and what may still be made of it."""

    version: int
    header: dict[str, Any]
    arrays: list[NDArray]
    budget: Budget


def pack(header: dict[str, Any], arrays: list[NDArray]) -> bytes:
    """Return the bytes of a file with this header, to which the list of arrays is added."""
    listed, parts = [], []
    for array in arrays:
        stored = array.astype(array.dtype.newbyteorder("<"), copy=False)
        entry: list[Any] = [stored.dtype.str, list(array.shape), order_of(array)]
        flat = in_order(stored)
        nonzeros = NonZeros.of(flat)
        if nonzeros is None:
            parts.append([flat])
        else:
            entry.append(len(nonzeros.values))
            parts.append([nonzeros.bits, nonzeros.values])
        listed.append(entry)
    text = json.dumps({**header, "arrays": listed}, allow_nan=False, separators=(",", ":"))
    pieces: list[Any] = [text.encode("ascii")]
    n_body = len(text)
    for part in parts:
        pieces += [bytes(-(_START.size + n_body) % _ALIGNED), *part]
        n_body += len(pieces[-1 - len(part)]) + sum(piece.nbytes for piece in part)
    packer = zlib.compressobj(_LEVEL)
    packed = [*(packer.compress(piece) for piece in pieces), packer.flush()]
    n_unpacked = max(n_body + _START.size, sum(array.nbytes for array in arrays))
    if n_unpacked > _MOST_RATIO * (sum(map(len, packed)) + _START.size):
        packed = [piece if isinstance(piece, bytes) else piece.tobytes() for piece in pieces]
    lengths = struct.pack("<QQ", _START.size + sum(map(len, packed)), len(text))
    checksum = zlib.crc32(lengths)
    for piece in packed:
        checksum = zlib.crc32(piece, checksum)
    return b"".join([MAGIC, struct.pack("<II", FORMAT, checksum), lengths, *packed])


def order_of(array: NDArray) -> str:
    """Return "F" for an array that is stored column after column, else "C"."""
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def in_order(array: NDArray) -> NDArray:
    """Return the numbers of an array (size,) in its order, without a copy where possible."""
    return np.ascontiguousarray(array.T if order_of(array) == "F" else array).reshape(-1)


def unpack(data: bytes, max_bytes: float = math.inf) -> Unpacked:
    """Return what a file holds; an error where it is damaged.

    Lengths are compared with the data before anything is allocated: arrays together are never
    larger than `max_bytes` and 64 times the data.
    """
    version, n_header = _check_start(data)
    most = min(max_bytes, _MOST_RATIO * len(data))
    body = _uncompressed(data, most)
    if n_header > len(body):
        raise ModelFileError("the lengths at the start of the file do not fit: it is damaged")
    text = bytes(body[:n_header])
    cost = _json_cost(text)
    Budget(len(data), len(body), max_bytes).spend(cost)
    header = _parse(text)
    arrays, place, n_bytes = [], n_header, 0
    for k, entry in enumerate(header["arrays"]):
        place += -(_START.size + place) % _ALIGNED
        array, place = _array(body, place, k, entry, most - n_bytes)
        n_bytes += max(array.nbytes, _empty_bytes(array.shape))
        arrays.append(array)
    if place != len(body):
        raise ModelFileError(f"{len(body) - place} bytes follow the last array")
    budget = Budget(len(data), len(body) + n_bytes, max_bytes)
    budget.spend(cost + len(body) + n_bytes)
    return Unpacked(version, header, arrays, budget)


def _json_cost(text: bytes) -> int:
    """Return about how many bytes Python's objects for a JSON text take, rather more than less."""
    size = len(text) * (_PER_ASCII if text.isascii() else _PER_CHARACTER)
    return size + sum(n_bytes * text.count(mark) for mark, n_bytes in _MARKS.items())


def _empty_bytes(shape: Sequence[int]) -> int:
    """Return what is counted for an array without numbers, whose other axes may be believed."""
    return 0 if math.prod(shape) else 8 * max(shape)


def _check_start(data: bytes) -> tuple[int, int]:
    """Check the first 32 bytes and the checksum; return the format and the header's length."""
    if not len(data):
        raise ModelFileError("the file is empty")
    if not data.startswith(MAGIC[: len(data)]):
        raise ModelFileError(
            "not a jointleaf model file: make one with jointleaf.save, or with "
            "`jointleaf fit` in the shell"
        )
    if len(data) < _START.size:
        raise ModelFileError(f"the file is truncated: it holds {len(data)} bytes only")
    _, version, checksum, total, n_header = _START.unpack_from(data)
    if version > FORMAT:
        raise ModelFileError(
            f"the file has format {version}, of a newer jointleaf; this one reads formats up to "
            f"{FORMAT}: upgrade jointleaf"
        )
    if version < 1:
        raise ModelFileError(f"the file has format {version}, which never was: it is damaged")
    if total > len(data):
        raise ModelFileError(f"the file is truncated: it holds {len(data)} of {total} bytes")
    if zlib.crc32(memoryview(data)[_CHECKED:]) != checksum:
        raise ModelFileError("the checksum does not fit: the file is damaged, copy it once more")
    if total != len(data):
        raise ModelFileError("the lengths at the start of the file do not fit: it is damaged")
    return int(version), int(n_header)


def _uncompressed(data: bytes, max_bytes: float) -> memoryview:
    """Return what follows the start of a file, without compression, of at most `max_bytes`."""
    if data[_START.size : _START.size + 1] == _PLAIN:
        return memoryview(data)[_START.size :]
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(memoryview(data)[_START.size :], max(1, int(max_bytes)))
    except zlib.error as cause:
        raise ModelFileError(f"the file cannot be uncompressed: {cause}") from None
    if stream.unconsumed_tail:
        raise _too_large()
    if not stream.eof or stream.unused_data:
        raise ModelFileError("the compressed part of the file does not end where the file does")
    return memoryview(body)


def _too_large() -> ModelFileError:
    return ModelFileError(
        "the model takes more than max_bytes or 64 times the file: raise max_bytes if you expect "
        "so large a model"
    )


def _parse(text: bytes) -> dict[str, Any]:
    def fail(constant: str) -> NoReturn:
        raise ModelFileError(f"the header holds {constant}, which JSON does not know")

    def number(digits: str) -> float:
        return value if math.isfinite(value := float(digits)) else fail(digits[:40])

    try:
        header = json.loads(text.decode("utf-8"), parse_constant=fail, parse_float=number)
    except RecursionError:
        raise ModelFileError("the header is nested too deeply") from None
    except ModelFileError:
        raise
    except ValueError as cause:  # of JSON, of UTF-8 and of numbers with too many digits
        raise ModelFileError(f"the header is no valid JSON: {cause}") from None
    if not isinstance(header, dict) or set(header) - {"metadata"} != _KEYS:
        raise ModelFileError("the header lacks its parts jointleaf, model and arrays")
    if not isinstance(header["jointleaf"], str):
        raise ModelFileError("the header does not say which jointleaf wrote the file")
    if not isinstance(header["arrays"], list):
        raise ModelFileError("arrays is no list")
    if not isinstance(header.get("metadata", {}), dict):
        raise ModelFileError("the metadata is no JSON object")
    return header


def _array(
    data: memoryview, place: int, k: int, entry: Any, max_bytes: float
) -> tuple[NDArray, int]:
    """Return array k, described by its entry in the header, and the place after it."""
    if not isinstance(entry, list) or len(entry) not in (3, 4):
        raise ModelFileError(f"array {k} is not described by type, shape and order")
    kind, shape, order, *count = entry
    if kind not in TYPES or order not in ("C", "F"):
        raise ModelFileError(f"array {k} has type {kind!r} and order {order!r}")
    is_shape = isinstance(shape, list) and len(shape) <= _MOST_AXES
    if not is_shape or not all(type(n) is int and 0 <= n <= _MOST_LENGTH for n in shape):
        raise ModelFileError(f"array {k} has the shape {str(shape)[:80]}")
    dtype, size = np.dtype(kind), math.prod(shape)
    n_bits = -(-size // 8) if count else 0
    n_values = count[0] if count else size
    if type(n_values) is not int or not 0 <= n_values <= size:
        raise ModelFileError(f"array {k} has {str(n_values)[:20]} numbers that are not zero")
    begin = place + n_bits
    end = begin + n_values * dtype.itemsize
    if end > len(data):
        raise ModelFileError(f"an array of shape {tuple(shape)} does not fit into the file")
    if max(size * dtype.itemsize, _empty_bytes(shape)) > max_bytes:
        raise _too_large()
    flat = np.frombuffer(data, dtype, n_values, begin) if n_values else np.zeros(0, dtype)
    if dtype.kind == "b" and n_values and flat.view(np.uint8).max() > 1:
        raise ModelFileError("an array of truth values holds other numbers")
    if count:
        bits = np.frombuffer(data, np.uint8, n_bits, place) if n_bits else np.zeros(0, np.uint8)
        n_set = np.count_nonzero(np.unpackbits(bits, count=size))
        if n_set != n_values or n_set != np.count_nonzero(np.unpackbits(bits)):
            raise ModelFileError(f"array {k} has other bits than numbers that are not zero")
        flat = NonZeros((size,), bits, flat).array()
    else:
        flat = flat.copy()  # of memory that is read-only, and belongs to the whole file
    return flat.reshape(shape, order=order).astype(dtype.newbyteorder("="), copy=False), end
