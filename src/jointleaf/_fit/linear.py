"""Global linear models as components.

With few rows they are often nearly as good as any other model, and their mistakes are not those of
the joint fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from jointleaf._core.arrays import cholesky_solver
from jointleaf._core.design import LeafDesign
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Frobenius, Term
from jointleaf._core.penalties.monotone import Monotone
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Solver, line_search
from jointleaf._core.solvers.fista import FISTA
from jointleaf._core.solvers.newton import Newton
from jointleaf._data.columns import Columns
from jointleaf._data.rows import Rows
from jointleaf._fit.component import Component, Split
from jointleaf._fit.limits import SPLIT_BYTES, FitShape, MemoryEstimate, Seconds, Size, Stages
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._model.monotone import slope_signs
from jointleaf.partitions import CategoryPartitioner
from jointleaf.partitions._steps import MAX_CELLS
from jointleaf.partitions._union import MANY_CLASSES

STRENGTHS = tuple(10.0 ** np.arange(0.0, -6.01, -1.0))
_MAX_WEIGHTS = 1000  # slopes and intercepts up to which second derivatives are cheap
_MAX_ITER = 200
_MOST_ROWS = 20_000  # of a training part
_VECTORS = 25  # of L-BFGS: ten steps, as many gradients, and a few more
_TOL, _TINY = 1e-7, 1e-10  # of gradients; of curvatures, where all rows are told apart


class Linear(Component):
    """A global linear model, its strength chosen on the held-out rows."""

    name = "linear"
    strength = 0.0

    def held_out(self, splits: Sequence[Split]) -> list[NDArray] | None:
        """Choose the strength; None where a training part lacks a class, or without a root cell."""
        context, options = self.context, self.context.options
        if not (splits and options.root_cell and options.cells == "linear"):
            return None
        n_classes = 0 if context.is_regression else max(2, context.n_outputs)
        if any(len(np.unique(train.y)) < n_classes for train, _ in splits):
            return None
        # A model of few weights learns nothing from more rows: the first are a random sample.
        tables = [self._tables(train.take(slice(_MOST_ROWS)), valid) for train, valid in splits]
        if any(table is None for table in tables):
            return None
        best_loss, predictions = np.inf, None
        for strength in STRENGTHS:
            raws = [self._raw(table, strength) for table in tables if table is not None]
            losses = [self._loss(raw, split) for raw, split in zip(raws, splits, strict=True)]
            loss = float(np.average(losses, weights=[valid.s.sum() for _, valid in splits]))
            if loss < best_loss:
                self.strength, best_loss, predictions = strength, loss, raws
            elif loss > 1.1 * best_loss:
                break
        return predictions

    def fit(self, frame: Frame) -> CellModel:
        rows = self.context.rows
        X = frame.features.transform(rows.X)
        table = _Tables(X, frame.target(rows.y), rows.s, X, rows.offset)
        weights = self._fit_weights(table, self.strength)
        return CellModel.linear(frame, weights[:-1], weights[-1])

    def describe(self) -> str:
        return f"a global linear model with strength {self.strength:.3g}"

    @classmethod
    def memory(cls, shape: FitShape) -> Stages:
        """Return what the features of splits take, and the vectors of an iterative solver."""
        n, d = min(shape.n_rows, _MOST_ROWS), shape.n_features
        features = n * d * (shape.n_splits * shape.itemsize + 8)
        vectors = _VECTORS * 8 * (d + 1) * shape.n_outputs
        return Stages(MemoryEstimate(solver=features + vectors))

    @classmethod
    def seconds(cls, size: Size) -> Seconds:
        """Return the time of the path of strengths, on a part of the rows, and of one of them."""
        if (size.n_columns + 1) * size.n_outputs > _MAX_WEIGHTS:  # no second derivatives
            n_raw = min(size.n_rows, _MOST_ROWS) * size.n_outputs
            once = 0.003 + 6e-7 * n_raw * (1 + size.n_columns / 10)
            return Seconds(once, 0.2 * once)
        classes = size.n_outputs**1.5
        once = (0.003 + 1e-7 * min(size.n_rows, _MOST_ROWS) * size.n_columns) * classes
        return Seconds(once, 0.003 + 2e-8 * size.n_rows * size.n_columns * classes)

    def _fit_weights(self, table: _Tables, strength: float) -> NDArray:
        X, y, s, context = table.X, table.y, table.s, self.context
        if context.has_own_link or context.signs is not None:
            signs = None if context.signs is None else slope_signs(context.plan, context.signs)
            return fit_loss(context.smooth_loss, X, y, s, table.offset, strength, signs)
        fit = fit_ridge if self.context.is_regression else fit_logistic
        return fit(X, y, s, strength)

    def _tables(self, train: Rows, valid: Rows) -> _Tables | None:
        """Return the features of training and validation rows; None where it takes no part."""
        frame = self.context.standardize(train)
        X, X_valid = (frame.features.transform(rows.X) for rows in (train, valid))
        return _Tables(X, frame.target(train.y), train.s, X_valid, train.offset)

    def _raw(self, tables: _Tables, strength: float) -> NDArray:
        """Return raw predictions of the validation rows, (n,) or (n, K)."""
        weights = self._fit_weights(tables, strength)
        return tables.X_valid @ weights[:-1] + weights[-1]

    def _loss(self, raw: NDArray, split: Split) -> float:
        """Return the validation loss, in standard units of the training rows."""
        train, valid = split
        raw = raw + valid.offset if valid.offset.any() else raw
        return float(self.context.loss.value(self.context.target(valid, train), raw, valid.s))


class CategoryLinear(Linear):
    """A linear model with a constant for every value of the columns that have few."""

    name = "categories"

    def fit(self, frame: Frame) -> CellModel:
        rows = self.context.rows
        X, y = frame.features.transform(rows.X), frame.target(rows.y)
        indicators = find_indicators(rows, self.context.columns)
        if indicators is None:  # a value that no split had made them too many
            return super().fit(frame)
        weights = fit_logistic(indicators.design(X, rows.X), y, rows.s, self.strength)
        m = X.shape[1]
        constants = (weights[m:-1].T * indicators.scales).T
        by_category = CellModel.of_constants(frame, indicators.partitioner, constants)
        return CellModel.linear(frame, weights[:m], weights[-1]) + by_category

    def describe(self) -> str:
        return f"a linear model with a constant for every category, strength {self.strength:.3g}"

    @classmethod
    def memory(cls, shape: FitShape) -> Stages:
        """Return what the largest number of cells takes."""
        return Stages(fitting=MemoryEstimate(model=SPLIT_BYTES * MAX_CELLS))

    def _tables(self, train: Rows, valid: Rows) -> _Tables | None:
        """Return features with indicators; None without any, or with so many that fits are slow."""
        tables = super()._tables(train, valid)
        indicators = find_indicators(train, self.context.columns)
        if tables is None or indicators is None:
            return None
        n_features = tables.X.shape[1] + len(indicators.scales)
        if self.context.n_outputs * n_features > _MAX_WEIGHTS:
            return None
        X, X_valid = indicators.design(tables.X, train.X), tables.X_valid
        return replace(tables, X=X, X_valid=indicators.design(X_valid, valid.X))


@dataclass(frozen=True)
class _Tables:
    """Features and targets of the training rows of a split, and features of its other rows."""

    X: NDArray
    y: NDArray
    s: NDArray
    X_valid: NDArray
    offset: NDArray  # of the training rows


# -- indicators of values ------------------------------------------------------------------------


@dataclass(frozen=True)
class CategoryIndicators:
    """One indicator for each of the C cells of a `CategoryPartitioner`.

    They are divided by their standard deviations sqrt(p (1 - p)), p the share of rows in the cell:
    slopes and constants are penalised alike.
    """

    partitioner: CategoryPartitioner
    scales: NDArray[np.float64]

    def design(self, features: NDArray, X: NDArray) -> NDArray[np.float64]:
        """Return linear features (n, m) and the indicators (n, C) of rows X (n, d)."""
        return np.concatenate([features, _indicators(self.partitioner, X) * self.scales], axis=1)


def find_indicators(rows: Rows, columns: Columns) -> CategoryIndicators | None:
    """Find the columns of training rows that have few values; None where there are none."""
    partitioner = CategoryPartitioner().fit(rows.X, None, rows.s, columns=columns)
    if partitioner.n_cells_.max() == 1:
        return None
    share = rows.s @ _indicators(partitioner, rows.X) / rows.s.sum()
    return CategoryIndicators(partitioner, 1 / np.sqrt(share * (1 - share)))


def _indicators(partitioner: CategoryPartitioner, X: NDArray) -> NDArray[np.float64]:
    n_cells, codes = partitioner.n_cells_, partitioner.apply(X)
    parts = [codes[:, [p]] == np.arange(n) for p, n in enumerate(n_cells)]
    return np.concatenate(parts, axis=1).astype(np.float64)


# -- weights of cells ----------------------------------------------------------------------------


def fit_ridge(X: NDArray, y: NDArray, s: NDArray, strength: float) -> NDArray[np.float64]:
    """Return the weights (m + 1,) of a linear model of numbers y, the bias last.

    They minimise (1/S) sum_n s_n (f_n - y_n)^2 / 2 + (strength / 2) ||w||^2; the bias is free. X
    (n, m) is standardised, y (n,) are targets and s (n,) weights with sum S.
    """
    share = s / s.sum()
    mean, centre = share @ X, float(share @ y)
    centred = X - mean
    gram = (centred.T * share) @ centred + strength * np.eye(X.shape[1])
    slopes = np.linalg.solve(gram, centred.T @ (share * (y - centre)))
    return np.append(slopes, centre - mean @ slopes)


def fit_loss(
    loss: Loss,
    X: NDArray,
    y: NDArray,
    s: NDArray,
    offset: NDArray,
    strength: float,
    signs: NDArray[np.intp] | None = None,
) -> NDArray[np.float64]:
    """Return the weights (m + 1,) of a linear model with one output, the free bias last.

    They minimise (1/S) sum_n s_n loss_n + (strength / 2) ||w||^2 with a smooth loss; with `signs`
    (m,), 1 or -1, slopes are not negative or not positive.
    """
    constant = loss.best_shift(loss.encode(y), s, offset)
    design = LeafDesign(X.astype(float), np.zeros((len(y), 1), np.intp), (1,))
    penalty: Term = Frobenius(strength, 0.0)
    solver: Solver = Newton()
    max_iter = 50
    if signs is not None:
        penalty, solver = penalty + Monotone(np.zeros((0, 2), np.intp), signs), FISTA()
        max_iter = _MAX_ITER
    problem = Problem(design, y, loss, penalty, s, constant + offset)
    solution = solver.solve(problem, tol=1e-4, max_iter=max_iter)
    return np.append(solution.coef[0], solution.intercept[0] + constant)


def fit_logistic(X: NDArray, y: NDArray, s: NDArray, strength: float) -> NDArray[np.float64]:
    """Return the weights (m + 1,) or (m + 1, K) of a linear model of classes y, the bias last.

    They minimise (1/S) sum_n s_n loss_n + (strength / 2) ||W||^2; the bias is free. X (n, m) is
    standardised, y (n,) are class numbers, all of K, and s (n,) weights with sum S.
    """
    from sklearn.linear_model import LogisticRegression

    n_outputs = len(np.unique(y))
    n_outputs = 1 if n_outputs == 2 else n_outputs
    few = n_outputs * (X.shape[1] + 1) <= _MAX_WEIGHTS
    if n_outputs == 1 and few:
        return _fit_two_classes(X, y, s, strength)
    if X.shape[1] == 0:
        X = np.zeros((len(y), 1))
    model = LogisticRegression(
        C=1.0 / (strength * len(y)),
        solver="newton-cholesky" if few else "lbfgs",
        max_iter=_MAX_ITER,
    )
    with warnings.catch_warnings():
        # Its weight in the blend is fitted to held-out rows, converged or not.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", MANY_CLASSES)
        model.fit(X.astype(float), y, sample_weight=s * len(y) / s.sum())
    weights = np.concatenate([model.coef_, model.intercept_[:, None]], axis=1).T
    return weights[:, 0] if n_outputs == 1 else weights


def _fit_two_classes(X: NDArray, y: NDArray, s: NDArray, strength: float) -> NDArray[np.float64]:
    """Do so by Newton's method: with few weights less work than calling anything."""
    Z, is_second, share = np.c_[X.astype(float), np.ones(len(X))], y == y.max(), s / s.sum()
    ridge = np.append(np.full(X.shape[1], strength), 0.0)
    weights = np.zeros(Z.shape[1])

    def objective(weights: NDArray) -> float:
        raw = Z @ weights
        return share @ (np.logaddexp(0, raw) - is_second * raw) + 0.5 * ridge @ weights**2

    value = objective(weights)
    for _ in range(_MAX_ITER):
        probability = expit(Z @ weights)
        gradient = Z.T @ (share * (probability - is_second)) + ridge * weights
        if np.abs(gradient).max() <= _TOL:
            break
        hessian = (Z.T * (share * probability * (1 - probability))) @ Z
        hessian[np.diag_indices_from(hessian)] += ridge + _TINY
        step = -cholesky_solver(hessian)(gradient)
        length, value = line_search(
            lambda t, at=weights, step=step: objective(at + t * step), value, step @ gradient, 1e-14
        )
        if length == 0:
            break
        weights = weights + length * step
    return weights
