"""The same model on accelerators, through JAX: imported only where it is asked for.

The host prepares a `_core.problem.Problem` as always. It is moved to the device once
(`_core.jax.problem`), solved there by one compiled function a solver, and judged on the
host by the code that judges every other solve.
"""
