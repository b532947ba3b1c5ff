"""The same model on accelerators, through JAX: imported only where it is asked for.

The host prepares a `_core.problem.Problem` as always. Its data are moved to the device once
(`_core.jax.problem`), one compiled function a solver minimises there, and the host measures the
answer as it does for every other solve. Losses and penalties are those of `_core`.
"""
