"""One implementation for NumPy and JAX: the namespace of an array, loops, and shapes.

Losses and proximal maps are written once, with the functions of the namespace to which their arrays
belong. JAX is looked at only where something else has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

__all__ = ["array_namespace", "expit", "shaped", "while_loop"]


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
