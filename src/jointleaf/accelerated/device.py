"""Which device computes: names, the rule of "auto", and errors that say what to install.

JAX is imported here only when a device other than "cpu" is asked for.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any

__all__ = ["DEVICES", "LEAST_WORK", "check_device", "double_precision", "find_device", "has_gain"]

DEVICES = ("cpu", "gpu", "tpu", "auto", "jax:cpu")

#: multiplications of one pass, n P q K, from which "auto" uses an accelerator
LEAST_WORK = 2**25

_INSTALL = (
    "pip install 'jointleaf[jax]', and for NVIDIA GPUs also pip install 'jax[cuda12]', "
    "or use device='cpu'"
)


def check_device(device: Any) -> None:
    """Check the name of a device; nothing is imported."""
    if device not in DEVICES:
        raise ValueError(f"device={device!r} is not known: use one of {', '.join(DEVICES)}")


def find_device(name: str) -> Any:
    """Give JAX's device of a name, "gpu", "tpu" or "jax:cpu"; errors say what to install."""
    check_device(name)
    try:
        import jax
    except ImportError as cause:
        raise ImportError(f"device={name!r} needs JAX: {_INSTALL}") from cause
    platform = name.removeprefix("jax:")
    try:
        return jax.devices(platform)[0]
    except RuntimeError as cause:
        found = sorted({device.platform for device in jax.devices()})
        raise RuntimeError(
            f"device={name!r}: JAX {jax.__version__} finds no {platform.upper()}, only "
            f"{', '.join(found)}: {_INSTALL}"
        ) from cause


def has_gain(work: float) -> str | None:
    """The accelerator that "auto" uses for passes of this many multiplications, or None.

    One that JAX finds, where JAX is installed and the work is at least `LEAST_WORK`.
    """
    if work < LEAST_WORK or find_spec("jax") is None:
        return None
    import jax

    platforms = {device.platform for device in jax.devices()}
    return next((name for name in ("gpu", "tpu") if name in platforms), None)


def double_precision() -> AbstractContextManager:
    """Within it float64 exists in JAX; its setting for everyone else stays as it is."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64

    return enable_x64(True)
