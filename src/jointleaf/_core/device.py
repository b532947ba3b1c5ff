"""Which device computes: names, the rule of "auto", and errors that say what to install.

JAX is imported here only when a device other than "cpu" is asked for.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from importlib.util import find_spec
from typing import Any

__all__ = ["DEVICES", "LEAST_WORK", "check_device", "double_precision", "find_device", "place"]

DEVICES = ("cpu", "gpu", "tpu", "auto", "jax:cpu")

#: multiplications of one pass, n P q K, from which "auto" uses an accelerator
LEAST_WORK = 2**25

_INSTALL = (
    "pip install 'jointleaf[jax]', and for NVIDIA GPUs also pip install 'jax[cuda12]', for TPUs "
    "pip install 'jax[tpu]', or use device='cpu'"
)


def check_device(device: Any) -> None:
    """Check that a device is known and, where it is asked for by name, that it is there."""
    if not isinstance(device, str) or device not in DEVICES:
        raise ValueError(f"device={device!r} is not known: use one of {', '.join(DEVICES)}")
    if device not in ("cpu", "auto"):
        find_device(device)


def find_device(name: str) -> Any:
    """Give JAX's device of a name, "gpu", "tpu" or "jax:cpu"; errors say what to install."""
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


def place(device: str, work: float) -> str:
    """The device that a name stands for, where a pass takes this many multiplications.

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
