"""Arrays: of NumPy, JAX and in blocks by one implementation; devices, threads and memory.

Losses and proximal maps are written once, with the functions of the namespace to which their arrays
belong. JAX is imported only where a device other than "cpu" is asked for.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy import linalg, sparse, special

from jointleaf._core.row_vectors import RowVector

DEVICES = ("cpu", "gpu", "tpu", "auto", "jax:cpu")

#: multiplications of one pass, n P q K, from which "auto" uses an accelerator
LEAST_WORK = 2**25
_LEAST_BYTES = 2**12  # of arrays that are worth being stored without zeros

_INSTALL = (
    "pip install 'jointleaf[jax]', and for NVIDIA GPUs also pip install 'jax[cuda12]', for TPUs "
    "pip install 'jax[tpu]', or use device='cpu'"
)


def array_namespace(x: Any) -> Any:
    """Return the module with the functions for an array: `numpy` or `jax.numpy`."""
    jax = sys.modules.get("jax")
    return jax.numpy if jax is not None and isinstance(x, jax.Array) else np


def expit(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    if array_namespace(x) is np:
        return special.expit(x)
    from jax.scipy.special import expit as expit_of_jax

    return expit_of_jax(x)


def shaped(values: Any, like: Any) -> Any:
    """Return values with axes behind them, to multiply an array with more outputs."""
    return values.reshape(*values.shape, *(1,) * (like.ndim - values.ndim))


def threads(n_jobs: int | None) -> int:
    """Return the number of threads for `n_jobs`: None is 1, -1 all cores, and never more."""
    # Results do not depend on it, and a model may come from a machine with other cores.
    n_threads = int(effective_n_jobs(n_jobs))
    # Counting cores takes as long as predicting a row.
    return n_threads if n_threads == 1 else min(n_threads, os.cpu_count() or 1)


def over_rows(function: Callable[..., Any], *args: Any) -> Any:
    """Return function(*args), where it works row by row and arguments may be in blocks."""
    for arg in args:
        if isinstance(arg, RowVector):
            return arg.apply(function, *args)
    return function(*args)


def dot(a: Any, b: Any) -> Any:
    """Return the inner product of two arrays, added up in float64."""
    if isinstance(a, RowVector):
        return a.dot(b)
    if array_namespace(a) is np:
        return float(np.einsum("i,i->", a.ravel(), b.ravel(), dtype=np.float64))
    return (a.astype(float) * b.astype(float)).sum()


def updated(array: Any, index: Any, values: Any) -> Any:
    """Return an array with other values at an index; one of NumPy is changed in place."""
    if array_namespace(array) is not np:
        return array.at[index].set(values)
    array[index] = values
    return array


def cholesky_solver(A: Any) -> Callable[[Any], Any]:
    """Return the function that solves A x = b; an A of NumPy is overwritten."""
    if array_namespace(A) is np:
        # Called directly: for small matrices what surrounds a call costs more than the call.
        potrf, potrs = linalg.get_lapack_funcs(("potrf", "potrs"), (A,))
        factor, info = potrf(A.T, lower=True, clean=False, overwrite_a=True)
        if info != 0:
            raise linalg.LinAlgError(f"the leading minor of order {info} is not positive definite")
        return lambda b: potrs(factor, b, lower=True)[0]
    from jax.scipy.linalg import cho_solve

    root = array_namespace(A).linalg.cholesky(A)
    return lambda b: cho_solve((root, True), b)


def while_loop(
    xp: Any, go_on: Callable[[Any], Any], advance: Callable[[Any], Any], state: Any
) -> Any:
    """Return the state after `advance` for as long as `go_on`; JAX compiles the loop."""
    if xp is not np:
        from jax import lax

        return lax.while_loop(go_on, advance, state)
    while go_on(state):
        state = advance(state)
    return state


# -- numbers that are given ----------------------------------------------------------------------


def check_number(name: str, value: Any, *, positive: bool, hint: str = "") -> float:
    """Return a finite number that is positive, or not negative; `hint` ends the message."""
    kind = "a positive number" if positive else "a number that is not negative"
    message = f"{name}={value!r} must be {kind}{hint}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(message) from None
    if isinstance(value, bool):
        raise TypeError(message)
    if not np.isfinite(number) or number < 0 or (positive and number == 0):
        raise ValueError(message)
    return number


def is_whole(value: Any) -> bool:
    """Whether this is a whole number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_count(
    name: str, value: Any, wrong_type: type[Exception] = ValueError, *, least: int = 1
) -> int:
    """Return a whole number that is at least `least`; raise `wrong_type` for what is none."""
    if is_whole(value) and value >= least:
        return int(value)
    error = ValueError if is_whole(value) else wrong_type
    raise error(f"{name}={value!r} must be a whole number, at least {least}")


# -- devices -------------------------------------------------------------------------------------


def check_device(device: Any) -> None:
    """Check that a device is known and, where it is asked for by name, that it is there."""
    if not isinstance(device, str) or device not in DEVICES:
        raise ValueError(f"device={device!r} is not known: use one of {', '.join(DEVICES)}")
    if device not in ("cpu", "auto"):
        find_device(device)


def find_device(name: str) -> Any:
    """Return JAX's device of a name, "gpu", "tpu" or "jax:cpu"; errors say what to install."""
    try:
        import jax
    except ImportError as cause:
        raise ImportError(f"device={name!r} needs JAX: {_INSTALL}") from cause
    platform = name.removeprefix("jax:")
    try:
        return jax.devices(platform)[0]
    except RuntimeError as cause:
        platforms = sorted({device.platform for device in jax.devices()})
        raise RuntimeError(
            f"device={name!r}: JAX {jax.__version__} finds no {platform.upper()}, only "
            f"{', '.join(platforms)}: {_INSTALL}"
        ) from cause


def place(device: str, work: float) -> str:
    """Return the device that a name stands for, where a pass takes this many multiplications.

    "auto" is an accelerator where JAX is installed and finds one and the work is at least
    `LEAST_WORK`, and else "cpu". All other names stand for themselves.
    """
    if device != "auto":
        return device
    if work < LEAST_WORK or find_spec("jax") is None:
        return "cpu"
    for name in ("gpu", "tpu"):
        with suppress(RuntimeError):
            find_device(name)
            return name
    return "cpu"


def double_precision() -> AbstractContextManager:
    """Within it float64 exists in JAX; its setting for everyone else stays as it is."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64(True)


@dataclass(frozen=True)
class NonZeros:
    """An array as a bit for every number, whether it is not zero, and the numbers that are not.

    It takes at least a 64th of what the array takes.
    """

    shape: tuple[int, ...]
    bits: NDArray[np.uint8]
    values: NDArray

    @classmethod
    def of(cls, array: NDArray) -> NonZeros | None:
        """Return the C-contiguous form of an array; None where that would hardly be smaller."""
        flat = np.ascontiguousarray(array).reshape(-1)
        is_stored = flat.view(f"u{flat.itemsize}") != 0  # -0.0 is none of the zeros
        size = len(flat) // 8 + flat.itemsize * int(np.count_nonzero(is_stored))
        if flat.nbytes < _LEAST_BYTES or size > flat.nbytes // 2:
            return None
        return cls(array.shape, np.packbits(is_stored), flat[is_stored])

    def array(self) -> NDArray:
        """Return the array."""
        flat = np.zeros(math.prod(self.shape), self.values.dtype)
        flat[np.unpackbits(self.bits, count=len(flat)).view(bool)] = self.values
        return flat.reshape(self.shape)


# -- memory ---------------------------------------------------------------------------------------


#: Bytes that may be used, where the system's own word is not to be taken.
MEMORY_VARIABLE = "JOINTLEAF_MAX_MEMORY"

_UNKNOWN_MEMORY = 2**32  # bytes for a dense table, where the system says nothing
_BLOCK = 2**28  # bytes of the dense rows that are predicted at a time
#: Files with the limit of the group of processes and what it uses, in two generations of Linux, and
#: the name of what of that is a copy of files and can be given up.
_MEMORY_LIMITS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", "file"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
)


def readable_bytes(n_bytes: float) -> str:
    """Return bytes as text, in MB or GB."""
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 1e9 else f"{n_bytes / 1e9:.1f} GB"


def available_memory() -> int | None:
    """Return the bytes that this process can still use; None where that is not known.

    The environment variable JOINTLEAF_MAX_MEMORY (bytes) is believed where it is set, else the
    system (Linux) and the limit of the group of processes (containers).
    """
    text = os.environ.get(MEMORY_VARIABLE, "")
    if text:
        try:
            return int(float(text))
        except (ValueError, OverflowError):
            raise ValueError(f"{MEMORY_VARIABLE}={text!r} must be a number of bytes") from None
    limits = [_system_memory(), *(_group_memory(*paths) for paths in _MEMORY_LIMITS)]
    known = [n for n in limits if n is not None]
    return min(known) if known else None


def _system_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if "MemAvailable:" in line)
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _group_memory(place: str, limit: str, used: str, cached: str) -> int | None:
    try:
        most, now = (int((Path(place) / name).read_text()) for name in (limit, used))
        lines = (Path(place) / "memory.stat").read_text().splitlines()
        freed = next(int(line.split()[1]) for line in lines if line.startswith(f"{cached} "))
    except (OSError, ValueError, IndexError, StopIteration):  # there is no limit: "max"
        return None
    return max(0, most - now + freed)


def as_dense(X: Any) -> Any:
    """Return a sparse matrix as an array, anything else as it is.

    Raises MemoryError for one that would not fit into memory.
    """
    if not sparse.issparse(X):
        return X
    needed = dense_bytes(X)
    free = available_memory()
    limit = _UNKNOWN_MEMORY if free is None else free
    if needed > limit:
        raise MemoryError(
            f"X is a sparse matrix of shape {X.shape}, which takes {readable_bytes(needed)} as the "
            f"dense table that is fitted, and {readable_bytes(limit)} are available: use fewer "
            "columns, for example those of SelectKBest or TruncatedSVD, fewer rows, or float32; "
            f"{MEMORY_VARIABLE} (bytes) overrules what is available"
        )
    return X.toarray()


def dense_bytes(X: Any) -> int:
    """Return the bytes of a sparse matrix as an array of floats."""
    itemsize = 4 if X.dtype == np.float32 else 8
    return int(np.prod(X.shape, dtype=float)) * itemsize


def row_blocks(X: Any) -> Iterator[Any]:
    """Yield blocks of the rows of a sparse matrix that is large as an array; else X itself."""
    if not sparse.issparse(X) or X.ndim != 2 or dense_bytes(X) <= _BLOCK:
        yield X
        return
    rows = X.tocsr()
    step = max(1, _BLOCK * X.shape[0] // dense_bytes(X))
    for start in range(0, X.shape[0], step):
        yield rows[start : start + step]
