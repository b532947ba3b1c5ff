"""Conjugate gradients for quadratic penalties: the solvers PCG and Newton, and what they share.

The Hessian H = Phi^T diag(h) Phi + D has one dense block per cell: inverting these is
block-Jacobi. It is slow because biases of different partitions nearly cancel in many ways. Up to a
few thousand cells the biases of **all** cells are therefore solved for together, through the
C x C matrix Z^T diag(h) Z + D_b: conjugate gradients then run on the slopes alone, each direction
being completed by the biases that are best for it, and need several times fewer passes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import lapack

from jointleaf._core.arrays import array_namespace, dot, shaped, updated, while_loop
from jointleaf._core.blocks import Design
from jointleaf._core.design import LeafDesign
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import Run, Solver, flat_curvature, line_search

MAX_BLOCK_ENTRIES = 2**27  # C d^2 floats of slope blocks (1 GB); beyond, their diagonals
# In float32 the running residual drifts from the true one: start again from it now and then.
CYCLE = {np.dtype(np.float32): 100, np.dtype(np.float64): 10**9}
_MAX_INNER = 250
MAX_JOINT_BIASES = 8192  # C^2 floats: half a gigabyte
# Flops of the factorisation that are worth one flop of a pass, for the passes that it saves;
# measured, also that free biases save many more.
JOINT_WORTH = {"penalised": 250, "free": 2500}


# -- the solvers ---------------------------------------------------------------------------------


class PCG(Solver):
    """Preconditioned conjugate gradients on (Phi^T diag(s/S) Phi + D) theta = Phi^T diag(s/S) y."""

    name = "pcg"

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return None for the squared error with a quadratic penalty."""
        if not problem.loss.is_quadratic:
            return "it needs the squared error loss: use solver='newton' or 'fista'"
        if problem.curvature is None:
            return "it needs a quadratic penalty such as Frobenius: use solver='fista'"
        return None

    def _minimise(self, problem: Problem, theta: NDArray, run: Run) -> tuple[NDArray, int, bool]:
        tol, max_iter, _, recorder = run
        design = problem.design.merge_partitions()
        f = design.matvec(theta)
        h = problem.loss_curvature(f)
        times_hessian = problem.hessian(f)
        curvature, diagonal = problem.quadratic()
        precondition = BlockPreconditioner(
            design, h if h.ndim == 1 else h[:, 0], curvature, eliminate=problem.smoother is None
        )

        def operator(p: NDArray) -> tuple[NDArray, NDArray, NDArray]:
            p, image = precondition.complete(p, design.matvec(p))
            return p, design.rmatvec(times_hessian(image)) + diagonal * p, image

        def is_done(residual: NDArray) -> Any:
            return np.abs(residual).max() <= 0.5 * tol * problem.start_slope

        def note(before: int, theta: NDArray, f: NDArray, residual: NDArray, step: int) -> None:
            optimality = float(np.abs(residual).max()) / problem.start_slope
            recorder.add(before + step, problem.objective(theta, f), optimality)

        iteration, stalled = 0, False
        best = best_objective = np.inf
        noise = 10 * float(np.finfo(design.dtype).eps)
        while True:
            gradient = problem.data_gradient(f)
            optimality = problem.optimality(theta, gradient)
            objective = problem.objective(theta, f)
            recorder.add(iteration, objective, optimality)
            stalled = optimality > 0.9 * best and objective > (1 - noise) * best_objective
            if optimality <= tol or stalled or iteration >= max_iter or np.isnan(optimality):
                break
            best, best_objective = optimality, objective
            residual = -(gradient + diagonal * theta)
            if precondition.eliminates:
                theta, f = precondition.settle(theta, f, problem.layout.split(residual)[1])
                residual = -(problem.data_gradient(f) + diagonal * theta)
                iteration += 1
                if iteration >= max_iter:
                    continue
            most = min(max_iter - iteration, CYCLE[design.dtype])
            theta, f, steps = conjugate_gradients(
                operator, precondition, theta, f, residual, is_done, most, partial(note, iteration)
            )
            iteration += int(steps)
            f = design.matvec(theta)
        return theta, iteration, stalled and iteration < max_iter


class Newton(Solver):
    """Newton steps solved by preconditioned conjugate gradients, with a line search.

    The inner accuracy tightens with the gradient, so that convergence is superlinear. The line
    search needs no pass over the data: predictions are linear in the weights.
    """

    name = "newton"

    def unsupported_reason(self, problem: Problem) -> str | None:
        if problem.curvature is None:
            return "it needs a quadratic penalty such as Frobenius: use solver='fista'"
        return None

    def _minimise(self, problem: Problem, theta: NDArray, run: Run) -> tuple[NDArray, int, bool]:
        tol, max_iter, _, recorder = run
        design = problem.design.merge_partitions()
        f = design.matvec(theta)
        objective = problem.objective(theta, f)

        n_iter = 0
        noise = 16 * float(np.finfo(design.dtype).eps)
        while True:
            gradient = problem.data_gradient(f)
            optimality = problem.optimality(theta, gradient)
            recorder.add(n_iter, objective, optimality)
            if optimality <= tol or n_iter >= max_iter:
                return theta, n_iter, False
            curvature, diagonal = problem.quadratic()
            residual = -(gradient + diagonal * theta)
            eliminate = problem.smoother is None
            direction, image = newton_direction(
                problem, curvature, diagonal, f, residual, eliminate=eliminate
            )
            at = partial(problem.objective_along, theta, f, direction, image)
            length, objective = line_search(at, objective, -dot(residual, direction), noise)
            if length == 0.0:
                return theta, n_iter, True
            theta += length.astype(theta.dtype) * direction
            f = design.matvec(theta)
            n_iter += 1


def newton_direction(
    problem: Any,
    curvature: Any,
    diagonal: Any,
    f: Any,
    residual: Any,
    biases: Any = None,
    *,
    eliminate: bool,
) -> tuple[Any, Any]:
    """Newton direction and its predictions, to the accuracy that the residual deserves.

    The curvature (N,) of the penalty is also given as shaped to multiply weights (`diagonal`).
    Written for NumPy and JAX alike.
    """
    xp, design, h = array_namespace(f), problem.design, problem.loss_curvature(f)
    relative = xp.abs(residual).max() / problem.start_slope
    # Where all rows are on linear pieces, as far from the targets, no curvature leads anywhere.
    flat = xp.where(h.max() > 0, flat_curvature(h, relative), problem.working_curvature(f))
    # Outputs couple: one preconditioner with their mean curvature.
    mean = h + flat if h.ndim == 1 else (h + flat).mean(axis=1)
    eliminate = eliminate and h.ndim == 1
    precondition = BlockPreconditioner(design, mean, curvature, biases, eliminate=eliminate)

    times_hessian = problem.hessian(f)

    def back(image: Any) -> Any:
        return design.rmatvec(times_hessian(image) + flat * image)

    def operator(p: Any) -> tuple[Any, Any, Any]:
        p, image = precondition.complete(p, design.matvec(p))
        return p, back(image) + diagonal * p, image

    goal = xp.minimum(0.1, xp.sqrt(relative)) ** 2 * dot(residual, residual)
    direction, image = xp.zeros_like(residual), xp.zeros_like(f)
    if precondition.eliminates:
        bias_residual = design.layout.split(residual)[1]
        direction, image = precondition.settle(direction, image, bias_residual)
        residual = residual - back(image) - diagonal * direction
    return conjugate_gradients(
        operator, precondition, direction, image, residual, lambda r: dot(r, r) <= goal, _MAX_INNER
    )[:2]


# -- conjugate gradients -------------------------------------------------------------------------


def conjugate_gradients(
    operator: Any,
    precondition: Any,
    x: Any,
    image: Any,
    residual: Any,
    is_done: Any,
    most: Any,
    note: Any = None,
) -> tuple[Any, Any, Any]:
    """Minimise x^T H x / 2 - x^T residual from x; return x, its image and the steps.

    `operator(p)` returns a completed direction, H p and Phi p; `is_done(residual)` ends it, as
    do `most` steps and the end of the precision. `note` sees x, image, residual and number of every
    step. Written for NumPy and JAX alike.
    """
    xp, dtype = array_namespace(x), x.dtype

    def go_on(state: Any) -> Any:
        _, _, residual, _, product, k = state
        return (k < most) & (product > 0) & xp.logical_not(is_done(residual))

    def advance(state: Any) -> Any:
        x, image, residual, direction, product, k = state
        direction, curved, step_image = operator(direction)
        bend = dot(direction, curved)
        is_good = bend > 0
        if xp is np and not is_good:  # what is not finite must not come in
            return x, image, residual, direction, 0.0, k
        length = xp.where(is_good, product / xp.where(is_good, bend, 1.0), 0.0).astype(dtype)
        x, image = x + length * direction, image + length * step_image
        residual = residual - length * curved
        if note is not None:
            note(x, image, residual, k + 1)
        z = precondition(residual)
        new = dot(residual, z)
        direction = z + xp.asarray(new / product, dtype=dtype) * direction
        return x, image, residual, direction, xp.where(is_good, new, 0.0), k + 1

    first = precondition(residual)
    start = x, image, residual, first, dot(residual, first), 0
    x, image, _, _, _, k = while_loop(xp, go_on, advance, start)
    return x, image, k


class BlockPreconditioner:
    """Approximate inverse of H = Phi^T diag(h) Phi + D, with biases eliminated where possible.

    Written for NumPy and JAX alike. `biases` inverts the matrix of the biases; by default it is
    made for NumPy, and there is none for JAX. To `eliminate` needs h (n,) to be the exact
    curvature; where `eliminates` is True, `complete` must be called on every direction.
    """

    def __init__(
        self, design: Any, h: Any, curvature: Any, biases: Any = None, *, eliminate: bool = True
    ) -> None:
        xp, layout, dtype = array_namespace(curvature), design.layout, design.dtype
        self._design, self._h = design, h.astype(dtype)
        on_slopes, on_biases = layout.split(curvature)
        self._bias_curvature = on_biases.astype(dtype)
        self._blocks: Any = None
        mass = design.cell_mass(h) + on_biases
        mass = xp.where(mass > 0, mass, 1.0)  # a cell without rows and penalty stays at zero
        self._inverse_mass = (1.0 / mass).astype(dtype)
        if on_slopes.size:
            d = layout.n_features
            if layout.n_linear_cells * d * d <= MAX_BLOCK_ENTRIES:
                grams = design.cell_grams(h)
                weight = mass[layout.linear_cells]
                self._centre = (grams[:, :d, d] / weight[:, None]).astype(dtype)
                blocks = _inverse_blocks(grams[:, :d, :d], grams[:, :d, d], weight, on_slopes)
                self._blocks = blocks.astype(dtype)
            else:
                diagonal = layout.split(design.cell_diagonals(h))[0] + on_slopes
                self._scale = (1.0 / xp.where(diagonal > 0, diagonal, 1.0)).astype(dtype)
        self._biases = BiasSolver(design, h, on_biases, mass) if xp is np else biases
        self.eliminates = eliminate and self._biases is not None and self._biases.is_joint

    def __call__(self, residual: Any) -> Any:
        """Apply to a residual (N,) or (N, K)."""
        xp, layout = array_namespace(residual), self._design.layout
        slopes, on_biases = layout.split(residual.reshape(residual.shape[0], -1))
        biases = xp.zeros_like(on_biases) if self.eliminates else self._solve_biases(on_biases)
        if slopes.size and self._blocks is not None:
            if self.eliminates:
                slopes = self._blocks @ slopes
            else:  # centring on the cell decouples its slopes from its bias; undone afterwards
                linear = layout.linear_cells
                slopes = self._blocks @ (
                    slopes - self._centre[:, :, None] * on_biases[linear][:, None, :]
                )
                shift = xp.einsum("cd,cdk->ck", self._centre, slopes)
                biases = updated(biases, linear, biases[linear] - shift)
        elif slopes.size:
            slopes = self._scale[:, :, None] * slopes
        return layout.join(slopes, biases).reshape(residual.shape)

    def complete(self, direction: Any, image: Any) -> tuple[Any, Any]:
        """Return a direction with the biases that are best for its slopes, and its image."""
        if not self.eliminates:
            return direction, image
        biases = self._design.layout.split(direction)[1]
        slope = self._design.bias_rmatvec(shaped(self._h, image) * image)
        slope = slope + shaped(self._bias_curvature, biases) * biases
        return self.settle(direction, image, -slope)

    def settle(self, theta: Any, image: Any, residual: Any) -> tuple[Any, Any]:
        """Move biases until their residual (C[, K]) is zero; return weights and their image."""
        step = self._solve_biases(residual)
        biases = self._design.layout.split(theta)[1]
        theta = self._design.layout.with_biases(theta, biases + step)
        return theta, image + self._design.bias_matvec(step)

    def _solve_biases(self, r: Any) -> Any:
        if self._biases is None:
            return shaped(self._inverse_mass, r) * r
        return self._biases.solve(r)


def _inverse_blocks(grams: Any, cross: Any, mass: Any, curvature: Any) -> Any:
    """Inverses of all slope blocks after centring: gram + D - cross cross^T / mass, (L, d, d)."""
    xp, d = array_namespace(grams), grams.shape[1]
    blocks = grams - cross[:, :, None] * (cross / mass[:, None])[:, None, :]
    diagonal = xp.einsum("cii->ci", blocks) + curvature
    # Rounding must not make a block indefinite where the penalty is tiny against the data.
    diagonal = diagonal + 1e-12 * xp.einsum("cii->c", grams)[:, None] / d
    diagonal = xp.where(diagonal > 0, diagonal, 1.0)
    places = np.arange(d)
    return xp.linalg.inv(updated(blocks, (slice(None), places, places), diagonal))


# -- the biases of all cells, solved for together --------------------------------------------------


class BiasSolver:
    """Inverts Z^T (diag(h) + A) Z + D_b: jointly where that is worth it, else cell by cell.

    Tasks have no cell in common, so that each has an inverse of its own. h (n,) is the curvature of
    the loss at every row, `curvature` (C,) that of the penalty on biases, D_b, zero for free ones;
    `mass` (C,) is the diagonal of the matrix, with 1 in place of zeros. A is the smoother (n, n) of
    a penalty on predictions, which only the joint inverse knows.
    """

    def __init__(
        self, design: Design, h: NDArray, curvature: NDArray, mass: NDArray, smoother: Any = None
    ) -> None:
        blocks = design.blocks()
        smoothers = getattr(smoother, "parts", [smoother] * len(blocks))
        self._parts: list[tuple[slice, _BlockInverse]] = [
            (cells, _BlockInverse(part, h[rows], curvature[cells], mass[cells], smooth))
            for (rows, cells, part), smooth in zip(blocks, smoothers, strict=True)
        ]

    @property
    def is_joint(self) -> bool:
        """Whether the biases of all cells of a task are solved for together, exactly."""
        return all(inverse.is_joint for _, inverse in self._parts)

    def solve(self, r: NDArray) -> NDArray:
        """Apply to residuals (C,) or (C, K)."""
        R = r.reshape(len(r), -1)
        out = np.empty_like(R)
        for cells, inverse in self._parts:
            out[cells] = inverse.solve(R[cells])
        return out.reshape(r.shape)


class _BlockInverse:
    """The inverse of one task; arguments as for `BiasSolver`."""

    def __init__(
        self, design: LeafDesign, h: NDArray, curvature: NDArray, mass: NDArray, smoother: Any
    ) -> None:
        self._dtype = design.dtype
        self._diagonal = (1.0 / mass).astype(self._dtype)
        self._factor: NDArray | None = None
        if not is_joint_worth(design, curvature):
            return
        gram = bias_gram(design, h)
        if smoother is not None:
            gram += smoothed_gram(design, smoother)
        gram[np.diag_indices_from(gram)] += curvature
        # Pivoting finds the biases that are combinations of others (with free biases every
        # partition after the first has one): these stay where they are, which loses nothing.
        tol = 1e-10 * float(gram.diagonal().max())
        factor, pivots, rank, _ = lapack.dpstrf(gram.T, tol=tol, lower=1, overwrite_a=1)
        self._factor = np.empty((rank, rank), self._dtype, order="F")
        self._factor[...] = factor[:rank, :rank]
        self._chosen = pivots[:rank] - 1
        # Called directly: for small tasks what surrounds a call costs more than the call.
        (self._potrs,) = lapack.get_lapack_funcs(("potrs",), (self._factor,))

    @property
    def is_joint(self) -> bool:
        """Whether the biases of all cells are solved for together."""
        return self._factor is not None

    def solve(self, r: NDArray) -> NDArray:
        """Apply to residuals (C, K)."""
        if self._factor is None:
            return self._diagonal[:, None] * r
        out = np.zeros_like(r)
        if len(self._chosen):
            out[self._chosen], _ = self._potrs(self._factor, r[self._chosen], lower=True)
        return out


def is_joint_worth(design: LeafDesign, curvature: NDArray) -> bool:
    """Whether factorising the matrix of all biases of a task saves more than it costs.

    `curvature` (C,) is that of the penalty on biases.
    """
    n_cells, layout = len(curvature), design.layout
    # With all features, alive or not: the inverse serves related problems too.
    pass_cost = 4.0 * design.n_rows * layout.with_features(design.n_row_features).entries_per_row
    worth = JOINT_WORTH["penalised" if (curvature > 0).all() else "free"]
    most = min(MAX_JOINT_BIASES, design.most_joint_cells)
    return n_cells <= most and n_cells**3 / 3 <= worth * pass_cost


def bias_gram(design: LeafDesign, h: NDArray) -> NDArray[np.float64]:
    """Z^T diag(h) Z; equal weights are counted as integers, which is faster."""
    least, largest = float(h.min()), float(h.max())
    if largest - least > 1e-12 * max(abs(least), abs(largest)):
        return design.bias_gram(h)
    gram = design.bias_gram()
    gram *= largest
    return gram


def smoothed_gram(design: LeafDesign, smoother: Any) -> NDArray[np.float64]:
    """Z^T A Z, (C, C)."""
    cells, C = design.cells(), design.layout.n_cells
    n, P = cells.shape
    indptr = np.arange(0, n * P + 1, P)
    Z = sparse.csr_array((np.ones(n * P), cells.ravel(), indptr), shape=(n, C + 1))
    product = Z.T @ (smoother @ Z)
    dense = product.toarray() if sparse.issparse(product) else np.asarray(product)
    return dense[:C, :C]
