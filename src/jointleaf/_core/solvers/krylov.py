"""The whole path of strengths of a squared-error fit from one Krylov run.

With the curvature D of the penalty at strength one, sample weights s with sum S, and A the design
whose rows are multiplied by sqrt(s), the weights of strength lambda are

    theta = D^-1 A^T beta,      (K + S lambda I) beta = sqrt(s) y,      K = A D^-1 A^T.

Lanczos steps make an orthonormal basis V of the Krylov space of K and sqrt(s) y in which K is
tridiagonal, T = V^T K V. The basis does not depend on lambda: for every strength the weights with
the least objective among those whose beta is in it follow from one small eigendecomposition of T
(`KrylovPath._coordinates`). A step costs one adjoint and one forward pass over the design and,
where held-out rows are given, one over theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from jointleaf._core.arrays import shaped
from jointleaf._core.blocks import BlockDesign, Design
from jointleaf._core.design import LeafDesign
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Run, Solver
from jointleaf._core.solvers.solution import Solution

_LEAST_SHIFT = 100.0  # of S lambda, in rounding errors of K: smaller strengths count as this
_ROOM = 128  # vectors of a basis that there is room for at first; it is taken as it is filled
_EVERY = 5  # steps after which a solve looks whether it has arrived


class KrylovPath:
    """Lanczos steps that all strengths share; every output has a Krylov space of its own.

    The penalty of strength lambda is (lambda / 2) theta^T D theta with the positive `curvature` D
    (N,). Rows have targets (n[, K]) and weights s (n,); predictions of `held_out` rows are made
    along the way.
    """

    def __init__(
        self,
        design: Design,
        curvature: NDArray,
        target: NDArray,
        s: NDArray,
        held_out: LeafDesign | None = None,
    ) -> None:
        self._design: Any = design.merge_partitions()
        self._held_out = held_out
        if held_out is not None:
            held_out.merge_partitions()
        self._outputs = target.shape[1:]
        dtype = design.dtype
        # With mean one, so that their unit does not change what single precision rounds.
        s = s / s.mean()
        self._root = shaped(np.sqrt(s).astype(dtype), target)
        self._inverse = shaped((1.0 / curvature).astype(dtype), target)
        self._mass = float(s.sum())
        right = self._root * target.astype(dtype)
        self._norm = np.sqrt(np.square(right, dtype=float).sum(axis=0))
        self._basis = _Vectors(self._unit(right, self._norm)[None])
        self._diagonal: list[NDArray] = []
        self._off_diagonal: list[NDArray] = []
        self._images: list[NDArray] = []

    @property
    def basis(self) -> NDArray:
        """The vectors V of all steps and of the next, (steps + 1, n[, K])."""
        return self._basis.array

    @property
    def n_steps(self) -> int:
        """Steps taken."""
        return len(self._diagonal)

    def extend(self, n_steps: int) -> bool:
        """Take further steps; return whether there are more to take."""
        for _ in range(n_steps):
            if not np.any(self._off_diagonal[-1] if self._off_diagonal else self._norm):
                return False
            self._step()
        return True

    def cut(self, n_steps: int) -> None:
        """Forget all steps after the first `n_steps`."""
        for steps in (self._diagonal, self._off_diagonal, self._images):
            del steps[n_steps:]
        self._basis.cut(n_steps + 1)

    def _times(self, vector: NDArray) -> NDArray:
        """Return K times a vector, and keep what the held-out rows say of it."""
        weights = self._inverse * self._design.rmatvec(self._root * vector)
        if self._held_out is not None:
            self._images.append(self._held_out.matvec(weights))
        return self._root * self._design.matvec(weights)

    def _step(self) -> None:
        vector = self.basis[-1]
        product = self._times(vector)
        self._diagonal.append((product * vector).sum(axis=0, dtype=float))
        scale = np.linalg.norm(product, axis=0)
        # Twice: in single precision one sweep leaves what the next steps would amplify.
        for _ in range(2):
            product = self._without_basis(product)
        norm = np.linalg.norm(product.astype(float), axis=0)
        norm = np.where(norm > 10 * np.finfo(product.dtype).eps * scale, norm, 0.0)
        self._off_diagonal.append(norm)
        self._basis.append(self._unit(product, norm))

    def _without_basis(self, vector: NDArray) -> NDArray:
        """Return a vector (n[, K]) less its projections on the basis."""
        basis = self.basis
        if not self._outputs:
            # BLAS kernels may raise the flag of invalid values from lanes that they discard.
            with np.errstate(invalid="ignore"):
                return vector - (basis @ vector) @ basis
        shares = np.einsum("jnk,nk->jk", basis, vector)
        return vector - np.einsum("jnk,jk->nk", basis, shares)

    @staticmethod
    def _unit(vector: NDArray, norm: NDArray) -> NDArray:
        scale = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
        return (vector * scale).astype(vector.dtype)

    # -- solutions -----------------------------------------------------------------------------

    def coefficients(self, strengths: NDArray) -> NDArray[np.float64]:
        """Return the coordinates of beta in the basis, (steps, strengths) or (..., K)."""
        return self._solved(strengths)[0].reshape(self.n_steps, len(strengths), *self._outputs)

    def _solved(self, strengths: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return coordinates (steps, strengths, K), and relative residuals (strengths, K)."""
        norms = np.ravel(self._norm)
        if not self.n_steps:  # a target of zeros
            is_left = np.broadcast_to(norms > 0, (len(strengths), len(norms)))
            return np.zeros((0, *is_left.shape)), is_left.astype(float)
        diagonal = np.stack(self._diagonal).reshape(self.n_steps, -1)
        off_diagonal = np.stack(self._off_diagonal).reshape(self.n_steps, -1)
        columns, residuals = [], []
        for k, norm in enumerate(norms):
            values, vectors = eigh_tridiagonal(diagonal[:, k], off_diagonal[:-1, k])
            # Rounding changes K by its norm times epsilon, which must stay far below the shift.
            shift = np.maximum(self._mass * np.asarray(strengths), self._least(values))
            values, first, last = np.maximum(values, 0.0)[:, None], vectors[:1].T, vectors[-1:].T
            c = self._coordinates(values, first, off_diagonal[-1, k] * last, shift)
            columns.append(vectors @ (norm * c))
            rest = np.concatenate([first - (values + shift) * c, off_diagonal[-1, k] * last.T @ c])
            residuals.append((norm > 0) * np.linalg.norm(rest, axis=0))
        return np.stack(columns, axis=-1), np.stack(residuals, axis=-1)

    def _coordinates(
        self, values: NDArray, first: NDArray, last: NDArray, shift: NDArray
    ) -> NDArray[np.float64]:
        """Return least squares solutions for a unit target in eigenvectors of T, (steps, shifts).

        With k steps K V = V T + t e_k^T. The dual, (T + shift I) c = e_1, ignores the vector t.
        Least squares, (V^T K K V + shift T) c = T e_1 with V^T K K V = T^2 + |t|^2 e_k e_k^T,
        minimise the objective over the same space, of which fewer steps do: a correction of rank
        one. `first` and `last` (steps, 1) are e_1 and |t| e_k in eigenvectors.
        """
        c = first / (values + shift)
        # What K takes to zero, up to rounding, has no part in predictions.
        is_seen = values[:, 0] > 10 * np.finfo(self._design.dtype).eps * values.max()
        values, last = values[is_seen], last[is_seen]
        rest = last / (values * (values + shift))
        c[is_seen] -= rest * (last.T @ c[is_seen]) / (1 + last.T @ rest)
        return c

    def _least(self, values: NDArray) -> float:
        """Return the least S lambda that the precision can resolve beside eigenvalues of T."""
        return _LEAST_SHIFT * float(np.finfo(self._design.dtype).eps * np.abs(values).max())

    def predictions(self, strengths: NDArray) -> NDArray:
        """Return predictions of the held-out rows, (n, strengths) or (n, strengths, K)."""
        assert self._held_out is not None
        n, dtype = self._held_out.n_rows, self._held_out.dtype
        images = np.array(self._images, dtype).reshape(-1, n, *self._outputs)
        coefficients = self.coefficients(strengths).astype(images.dtype)
        if not self._outputs:
            return images.T @ coefficients
        return np.einsum("jnk,jsk->nsk", images, coefficients)

    def residuals(self, strengths: NDArray) -> NDArray[np.float64]:
        """Return |sqrt(s) y - (K + S lambda) beta| / |sqrt(s) y| of every strength, the largest."""
        return self._solved(strengths)[1].max(axis=1)

    def weights(self, strength: float) -> NDArray:
        """Return the weights theta (N,) or (N, K) of a strength."""
        coefficients = self.coefficients(np.array([strength]))[:, 0]
        basis = self.basis[: self.n_steps]
        beta = np.einsum("jn...,j...->n...", basis, coefficients.astype(basis.dtype))
        return self._inverse * self._design.rmatvec(self._root * beta)


class _Vectors:
    """Vectors of one shape in one array, to which further ones are appended."""

    def __init__(self, first: NDArray) -> None:
        self._count = len(first)
        self._memory = np.empty((max(_ROOM, self._count), *first.shape[1:]), first.dtype)
        self._memory[: self._count] = first

    @property
    def array(self) -> NDArray:
        """All vectors, one after the other along the first axis."""
        return self._memory[: self._count]

    def cut(self, count: int) -> None:
        """Forget all but the first vectors."""
        self._count = min(self._count, count)

    def append(self, vector: NDArray) -> None:
        """Add a vector; memory is asked for seldom, and taken only as it is filled."""
        if self._count == len(self._memory):
            memory = np.empty((2 * self._count, *vector.shape), vector.dtype)
            memory[: self._count] = self._memory
            self._memory = memory
        self._memory[self._count] = vector
        self._count += 1


class WeightKrylovPath(KrylovPath):
    """The path of a quadratic model of any loss, with a basis of weights instead of rows.

    With derivatives g (n[, K]) and curvatures h (n,) of the data term by predictions, the weights
    of strength lambda minimise <g, Phi theta> + |Phi theta|_h^2 / 2 + (lambda / 2) theta^T D theta.
    The basis takes steps times N numbers, which for many rows are fewer than steps times n.
    """

    def __init__(
        self,
        design: LeafDesign | BlockDesign,
        curvature: NDArray,
        g: NDArray,
        h: NDArray,
        held_out: LeafDesign,
    ) -> None:
        self._design: Any = design.merge_partitions()
        self._held_out = held_out.merge_partitions()
        self._outputs, self._mass = g.shape[1:], 1.0
        self._curvature = h.astype(design.dtype)
        self._inverse = shaped((1.0 / np.sqrt(curvature)).astype(design.dtype), g)
        right = -self._inverse * design.rmatvec(g)
        self._norm = np.sqrt(np.square(right, dtype=float).sum(axis=0))
        self._basis = _Vectors(self._unit(right, self._norm)[None])
        self._diagonal, self._off_diagonal, self._images = [], [], []

    def _times(self, vector: NDArray) -> NDArray:
        weights = self._inverse * vector
        assert self._held_out is not None
        self._images.append(self._held_out.matvec(weights))
        return self._inverse * self._design.gram_product(self._curvature, weights)

    def _coordinates(
        self, values: NDArray, first: NDArray, last: NDArray, shift: NDArray
    ) -> NDArray[np.float64]:
        return first / (values + shift)  # the basis is one of weights: this is the minimum

    def state(self) -> dict[str, NDArray]:
        """Return the steps that were taken, from which another path of the problem can go on."""
        return {
            "basis": self.basis.copy(),
            "diagonal": np.array(self._diagonal),
            "off_diagonal": np.array(self._off_diagonal),
            "images": np.array(self._images),
        }

    def restore(self, state: Mapping[str, NDArray]) -> None:
        """Take the steps of a `state`, without a pass."""
        self._basis, self._images = _Vectors(state["basis"]), list(state["images"])
        self._diagonal = list(state["diagonal"])
        self._off_diagonal = list(state["off_diagonal"])

    def weights(self, strength: float) -> NDArray:
        """Return the weights theta (N,) or (N, K) of a strength."""
        coefficients = self.coefficients(np.array([strength]))[:, 0]
        basis = self.basis[: self.n_steps]
        return self._inverse * np.einsum(
            "jn...,j...->n...", basis, coefficients.astype(basis.dtype)
        )


class Krylov(Solver):
    """Lanczos steps for squared error and a quadratic penalty, a given number of them.

    Early stopping regularises as the penalty does, so that the number of steps is chosen on
    held-out rows together with the strength: that the last digits of the optimum are not reached
    is no failure. Steps end before where optimality reaches the tolerance.

    A path of the same design and target that was run before has the solution already: that of its
    strength, by which the curvature of the problem is that of the path.
    """

    name = "krylov"

    def __init__(
        self, n_steps: int = 100, path: KrylovPath | None = None, strength: float = 1.0
    ) -> None:
        self.n_steps, self._path, self._strength = n_steps, path, strength

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return why the problem does not fit: another loss, or weights that are free."""
        if not problem.loss.is_quadratic or problem.smoother is not None:
            return "it needs squared error and no term on predictions: use 'newton' or 'fista'"
        curvature = problem.penalty.curvature()
        if curvature is None or not np.all(curvature > 0):
            return "it needs a quadratic penalty on all slopes and biases: use 'pcg' or 'fista'"
        return None

    def _minimise(self, problem: Problem, theta: NDArray, run: Run) -> tuple[NDArray, int, bool]:
        if self._path is not None:
            theta = self._path.weights(self._strength).astype(theta.dtype)
            return theta, self._path.n_steps, False
        curvature, _ = problem.quadratic()
        path = KrylovPath(problem.design, curvature, problem.y - problem.offset, problem.s)
        last = min(self.n_steps, run.max_iter)
        while path.extend(min(_EVERY, last - path.n_steps)) and path.n_steps < last:
            # The residual of the dual system bounds the gradient: looking costs no pass.
            if path.residuals(np.ones(1))[0] <= 0.1 * run.tol:
                break
        return path.weights(1.0).astype(theta.dtype), path.n_steps, False

    def _finish(
        self, problem: Problem, run: Run, theta: NDArray, n_iter: int, stalled: bool
    ) -> Solution:
        solution = super()._finish(problem, run, theta, n_iter, stalled)
        if solution.converged or n_iter == run.max_iter < self.n_steps:
            return solution
        message = f"krylov took the {n_iter} steps that were chosen for it"
        if n_iter < self.n_steps:
            message = f"krylov found nothing more after {n_iter} steps in {problem.design.dtype}"
        message += f", to optimality {solution.optimality:.1e}"
        return replace(solution, status="stopped", message=message)
