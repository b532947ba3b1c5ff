"""Factors of models in their sum, fitted to rows held out (stacking, Breiman 1996)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls
from scipy.special import expit, logsumexp, softmax

__all__ = ["least_squares_factors", "logistic_factors"]


def least_squares_factors(
    parts: Sequence[NDArray], target: NDArray, s: NDArray, start: NDArray, more_rows: float
) -> list[float]:
    """Factors >= 0 of predictions (n,) with which they predict held-out numbers.

    As if `more_rows` further rows agreed with the factors `start`. Weights are s (n,).
    """
    A = np.stack(parts, axis=1) * np.sqrt(s)[:, None]
    more = np.sqrt(more_rows / len(s))
    found, _ = nnls(np.concatenate([A, more * A]), np.append(target * np.sqrt(s), more * A @ start))
    return [float(w) for w in found]


def logistic_factors(
    parts: Sequence[NDArray],
    target: NDArray,
    s: NDArray,
    start: NDArray,
    more_rows: float,
    *,
    has_constant: bool = False,
) -> tuple[list[float], NDArray]:
    """Factors w_k >= 0 of raw predictions f_k, and what is added to their sum.

    The minimisers of the mean logistic loss, or softmax cross-entropy, of sum_k w_k f_k + c on
    rows held out, as if `more_rows` further rows agreed with the factors `start`: without
    them classes that can be told apart perfectly would have infinite factors.

    Parameters
    ----------
    parts : arrays (n,) or (n, K)
        Raw predictions of rows that no model has seen.
    target : array of the same shape
        -1 and 1, or ones and zeros for K classes.
    s : array (n,)
        Weights.
    start : array
        One factor for every part.
    more_rows : float
    has_constant : bool
        Whether c is fitted too; 0 otherwise.

    Returns
    -------
    factors : list of float
    constant : array () or (K,)
    """
    one, n_parts = target.ndim == 1, len(parts)
    stack = np.stack(parts)
    before = np.tensordot(start, stack, 1)
    more = more_rows / len(s)
    said = expit(before) if one else softmax(before, axis=1)
    shares = ((target > 0) + more * said) / (1 + more)
    weights = s / s.sum()
    shape = target.shape[1:]

    def objective(numbers: NDArray) -> tuple[float, NDArray]:
        raw = np.tensordot(numbers[:n_parts], stack, 1)
        if has_constant:
            raw = raw + numbers[n_parts:].reshape(shape)
        total = np.logaddexp(0, raw) if one else logsumexp(raw, axis=1)
        agreed = shares * raw if one else (shares * raw).sum(axis=1)
        error = (expit(raw) if one else softmax(raw, axis=1)) - shares
        error = (weights if one else weights[:, None]) * error
        slopes = np.tensordot(stack, error, error.ndim)
        if has_constant:
            slopes = np.append(slopes, error.sum(axis=0))
        return float(weights @ (total - agreed)), slopes

    n_constants = int(np.prod(shape)) if has_constant else 0
    found = minimize(
        objective,
        np.append(start, np.zeros(n_constants)),
        jac=True,
        bounds=[(0, None)] * n_parts + [(None, None)] * n_constants,
        method="L-BFGS-B",
        options={"ftol": 1e-12, "gtol": 1e-8, "maxiter": 500},
    ).x
    constant = found[n_parts:].reshape(shape) if has_constant else np.zeros(shape)
    return [float(w) for w in found[:n_parts]], constant
