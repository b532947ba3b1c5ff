"""A global linear model of classes next to the joint fit: chosen on the same folds, and mixed in.

With few rows a linear model is often nearly as good as any other, and its mistakes are not those of
the joint fit. The model is

    a f + b f_linear,     a, b >= 0,

where both factors are fitted by logistic regression to predictions of rows held out, as if 100
more rows agreed with 0.7 f + 0.3 f_linear. f_linear is a linear model of the root cell, so that the
mix is one model of all cells again.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from jointleaf.tuning.recipe_fold import RecipeFold
from jointleaf.tuning.settings import Setting

__all__ = ["LinearShare", "choose_linear_share", "fit_linear"]

STRENGTHS = tuple(10.0 ** np.arange(0.0, -6.01, -1.0))
_START = (0.7, 0.3)
_MORE_ROWS = 100.0
_MAX_WEIGHTS = 1000  # slopes and intercepts up to which second derivatives are cheap
_MAX_ITER = 200


class LinearShare(NamedTuple):
    """How the linear model takes part: ``joint * f + linear * f_linear``.

    Attributes
    ----------
    joint, linear : float
    strength : float
        Of the linear model's Frobenius penalty.
    """

    joint: float
    linear: float
    strength: float


def choose_linear_share(
    folds: Sequence[RecipeFold], settings: Sequence[Setting]
) -> LinearShare | None:
    """Choose the strength of the linear model, then both factors; None where a class is missing."""
    n_classes = {len(np.unique(fold.y)) for fold in folds}
    targets = [fold.loss.encode(fold.y_valid) for fold in folds]
    n_outputs = 2 if targets[0].ndim == 1 else targets[0].shape[1]
    if n_classes != {n_outputs}:
        return None
    total = sum(fold.valid.s.sum() for fold in folds)
    best, best_loss, linear = 0.0, np.inf, []
    for strength in STRENGTHS:
        raws = [_raw(fold, strength) for fold in folds]
        losses = [
            fold.loss.value(target, raw, fold.valid.s) * fold.valid.s.sum()
            for fold, target, raw in zip(folds, targets, raws, strict=True)
        ]
        loss = sum(losses) / total
        if loss < best_loss:
            best, best_loss, linear = strength, loss, raws
        elif loss > 1.1 * best_loss:
            break
    joint = [np.mean([fold.raw(setting) for setting in settings], axis=0) for fold in folds]
    parts = [np.concatenate(joint), np.concatenate(linear)]
    s = np.concatenate([fold.valid.s for fold in folds])
    return LinearShare(*_factors(parts, np.concatenate(targets), s), best)


def _raw(fold: RecipeFold, strength: float) -> NDArray:
    """Raw predictions of the validation rows, (n,) or (n, K)."""
    theta = fit_linear(fold.X, fold.y, fold.train.s, strength)
    return fold.X_valid @ theta[0, :-1] + theta[0, -1]


def fit_linear(X: NDArray, y: NDArray, s: NDArray, strength: float) -> NDArray[np.float64]:
    """Weights (1, m + 1[, K]) of a linear model of classes y: those of one cell.

    They minimise (1/S) sum_n s_n loss_n + (strength / 2) ||W||^2; the bias is free.

    Parameters
    ----------
    X : array (n, m)
        Standardised.
    y : array (n,)
        Class numbers, all of K.
    s : array (n,)
        Weights with sum S.
    strength : float
    """
    from sklearn.linear_model import LogisticRegression

    n_outputs = len(np.unique(y))
    n_outputs = 1 if n_outputs == 2 else n_outputs
    if X.shape[1] == 0:
        X = np.zeros((len(y), 1))
    few = n_outputs * (X.shape[1] + 1) <= _MAX_WEIGHTS
    model = LogisticRegression(
        C=1.0 / (strength * len(y)),
        solver="newton-cholesky" if few else "lbfgs",
        max_iter=_MAX_ITER,
    )
    with warnings.catch_warnings():
        # Its mix with the joint fit is judged on rows held out, converged or not.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X.astype(float), y, sample_weight=s * len(y) / s.sum())
    theta = np.concatenate([model.coef_, model.intercept_[:, None]], axis=1).T[None]
    return theta[:, :, 0] if n_outputs == 1 else theta


def _factors(parts: Sequence[NDArray], target: NDArray, s: NDArray) -> tuple[float, float]:
    """Factors >= 0 of raw predictions (n,) or (n, K) with which they predict held-out classes."""
    one = target.ndim == 1
    before = sum(w * part for w, part in zip(_START, parts, strict=True))
    said = expit(before) if one else softmax(before, axis=1)
    more = _MORE_ROWS / len(s)
    shares = ((target > 0) + more * said) / (1 + more)
    weights = s / s.sum()

    def objective(w: NDArray) -> tuple[float, NDArray]:
        raw = w[0] * parts[0] + w[1] * parts[1]
        total = np.logaddexp(0, raw) if one else logsumexp(raw, axis=1)
        agreed = shares * raw if one else (shares * raw).sum(axis=1)
        error = (expit(raw) if one else softmax(raw, axis=1)) - shares
        error = (weights if one else weights[:, None]) * error
        return float(weights @ (total - agreed)), np.array([(error * p).sum() for p in parts])

    found = minimize(
        objective, np.array(_START), jac=True, bounds=[(0, None)] * 2, method="L-BFGS-B"
    ).x
    return float(found[0]), float(found[1])
