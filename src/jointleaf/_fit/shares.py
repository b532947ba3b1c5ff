"""Simpler models of classes next to the joint fit: judged on the same folds, and mixed in.

With few rows a linear model or the boosted trees alone are often nearly as good as any other, and
their mistakes are not those of the joint fit. The model is

    a f + b f_linear + c f_own + d f_levels,     a, b, c, d >= 0,

with f_linear a linear model of the root cell, f_own the boosted trees' own values, and f_levels,
where columns have few different values, a linear model with a constant for each of them
(`_fit.levels`). The mix is one model of all cells again. The factors are fitted by
logistic regression to predictions of rows held out, as if 100 more rows agreed with the mean of
all parts.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from jointleaf._fit.factors import least_squares_factors, logistic_factors
from jointleaf._fit.levels import find_levels
from jointleaf._fit.recipe_fold import RecipeFold
from jointleaf._fit.settings import Setting

__all__ = ["Shares", "choose_shares", "fit_linear", "stacked"]

STRENGTHS = tuple(10.0 ** np.arange(0.0, -6.01, -1.0))
_MORE_ROWS = 100.0
_MAX_WEIGHTS = 1000  # slopes and intercepts up to which second derivatives are cheap
_MAX_ITER = 200


class Shares(NamedTuple):
    """How much of each model is in the sum ``joint * f + linear * f_linear + own * f_own + ...``.

    Attributes
    ----------
    joint, linear, own : float
        Of the joint fit, of a global linear model, and of the values of the partitions' own model.
    strength : float
        Of the linear model's Frobenius penalty.
    boosted : tuple of float
        With many rows, of every ensemble of boosted trees.
    levels, levels_strength : float
        Of a linear model with a constant for every value of the columns that have few.
    """

    joint: float
    linear: float
    own: float
    strength: float
    boosted: tuple[float, ...] = ()
    levels: float = 0.0
    levels_strength: float = 0.0


def choose_shares(folds: Sequence[RecipeFold], setting: Setting) -> Shares | None:
    """Choose the strength of the linear model, then all factors; None where a class is missing."""
    if not _has_all_classes(folds):
        return None
    strength, linear = _choose_linear(folds, [(fold.X, fold.X_valid) for fold in folds])
    joint = [fold.raw(setting) for fold in folds]
    parts = {"joint": joint, "linear": linear}
    own = [fold.own_valid for fold in folds if fold.own_valid is not None]
    if len(own) == len(folds) and all(o.shape == j.shape for o, j in zip(own, joint, strict=True)):
        parts["own"] = own
    levels_strength, tables = 0.0, _with_levels(folds)
    if tables is not None:
        levels_strength, parts["levels"] = _choose_linear(folds, tables)
    target = np.concatenate([fold.loss.encode(fold.y_valid) for fold in folds])
    s = np.concatenate([fold.valid.s for fold in folds])
    raws = [np.concatenate(part) for part in parts.values()]
    start = np.full(len(raws), 1 / len(raws))
    found, _ = logistic_factors(raws, target, s, start, _MORE_ROWS)
    factor = dict(zip(parts, found, strict=True))
    return Shares(
        factor["joint"],
        factor["linear"],
        factor.get("own", 0.0),
        strength,
        levels=factor.get("levels", 0.0),
        levels_strength=levels_strength,
    )


def _with_levels(folds: Sequence[RecipeFold]) -> list[tuple[NDArray, NDArray]] | None:
    """Features of training and validation rows with indicators; None where they are of no use.

    That is without columns of few values, or with so many weights that fits are slow.
    """
    tables = []
    for fold in folds:
        levels = find_levels(fold.train, fold.columns)
        if levels is None:
            return None
        n_outputs = fold.loss.encode(fold.y).size // len(fold.y)
        if n_outputs * (fold.X.shape[1] + len(levels.factors)) > _MAX_WEIGHTS:
            return None
        train = levels.design(fold.X, fold.train.X)
        tables.append((train, levels.design(fold.X_valid, fold.valid.X)))
    return tables


def stacked(
    fold: RecipeFold, setting: Setting, boosted: Sequence[NDArray], start: Mapping[str, float]
) -> Shares:
    """Factors of the joint fit, of a linear model (of classes only) and of boosted ensembles.

    Parameters
    ----------
    fold : RecipeFold
    setting : Setting
        Of the joint fit.
    boosted : arrays (n,) or (n, K)
        Raw predictions of the fold's validation rows.
    start : mapping
        Factors that 100 more rows agree with: ``joint``, ``linear``, and ``boosted`` for each.
    """
    parts, first = [fold.raw(setting)], [start["joint"]]
    has_linear = not fold.loss.is_quadratic and _has_all_classes([fold])
    strength = 0.0
    if has_linear:
        strength, linear = _choose_linear([fold], [(fold.X, fold.X_valid)])
        parts, first = [*parts, linear[0]], [*first, start["linear"]]
    n_simple = len(parts)
    parts, first = [*parts, *boosted], [*first, *[start["boosted"]] * len(boosted)]
    target = fold.loss.encode(fold.y_valid)
    args = parts, target, fold.valid.s, np.array(first) / sum(first), _MORE_ROWS
    if fold.loss.is_quadratic:
        found = least_squares_factors(*args)
    else:
        found, _ = logistic_factors(*args)
    linear_share = found[1] if has_linear else 0.0
    return Shares(found[0], linear_share, 0.0, strength, tuple(found[n_simple:]))


def _has_all_classes(folds: Sequence[RecipeFold]) -> bool:
    target = folds[0].loss.encode(folds[0].y_valid)
    n_classes = 2 if target.ndim == 1 else target.shape[1]
    return all(len(np.unique(fold.y)) == n_classes for fold in folds)


def _choose_linear(
    folds: Sequence[RecipeFold], tables: Sequence[tuple[NDArray, NDArray]]
) -> tuple[float, list[NDArray]]:
    """The best strength of a linear model, and its raw predictions of held-out rows.

    `tables` holds the features of every fold's training and validation rows.
    """
    best, best_loss = STRENGTHS[0], np.inf
    kept: list[NDArray] = []
    for strength in STRENGTHS:
        raws = [_raw(fold, *pair, strength) for fold, pair in zip(folds, tables, strict=True)]
        losses = [
            fold.loss.value(fold.loss.encode(fold.y_valid), raw, fold.valid.s)
            for fold, raw in zip(folds, raws, strict=True)
        ]
        loss = float(np.average(losses, weights=[fold.valid.s.sum() for fold in folds]))
        if loss < best_loss:
            best, best_loss, kept = strength, loss, raws
        elif loss > 1.1 * best_loss:
            break
    return best, kept


def _raw(fold: RecipeFold, X: NDArray, X_valid: NDArray, strength: float) -> NDArray:
    """Raw predictions of the validation rows, (n,) or (n, K)."""
    theta = fit_linear(X, fold.y, fold.train.s, strength)
    return X_valid @ theta[0, :-1] + theta[0, -1]


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
