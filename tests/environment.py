"""What libraries read from the environment when they are loaded."""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _xla_flags():
    """Leave out what only makes compiled code faster: most of the time goes into compilation."""
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    try:
        release = version("jaxlib").split(".")[:2]
    except PackageNotFoundError:
        return flags
    # Three times faster again; a flag that a release does not know would end the process.
    known = release == ["0", "10"]
    return f"{flags} --xla_cpu_use_fusion_emitters=false" if known else flags


# Both count when libraries are loaded. Threads that wait must not spin beside other workers.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("XLA_FLAGS", _xla_flags())
# What XLA has compiled is kept for the next run; its keys hold program, flags and versions.
_COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "xla"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
