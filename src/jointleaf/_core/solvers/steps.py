"""One step of the accelerated proximal gradient method, with or without elimination of biases.

At a point theta with predictions f the data term is bounded from above by its linear model plus
the quadratic |Phi move|^2 in the norm of H = c diag(s/S) + A, where c bounds the curvature of the
loss. A proximal gradient step minimises a simpler bound, |move|^2 / (2 t), in its place.

**Biases eliminated.** Where biases are free or penalised by their square, the quadratic is
minimised over them exactly, given the move of the slopes, through Z^T H Z + D_b. What is left for
the slopes is its Schur complement, which is far better conditioned: fewer steps, each with one
forward and one adjoint pass as before, and a few passes over the biases alone.

**Metrics.** A step minimises <G, move> + |move|_M^2 / (2 t) + R(theta + move) over the slopes. The
nearer M is to the Hessian, the fewer steps are needed; but R must have a proximal map in that norm.

**The metric of shared cells.** With features that are roughly independent of each other and of the
cells, the Hessian of the slopes of every feature is about Q = Z^T diag(h) Z, "how many rows do
two cells share", the same for all features and with eigenvalues over many orders of magnitude.
The l2,1 norm does not change when cells are rotated, so that in the eigenvectors of Q its proximal
map is a search for one number per feature. Tasks share no rows: Q has one block for each, and what
does not change when the cells of a task are rotated, such as the Dirty LASSO, serves as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from jointleaf._core.arrays import array_namespace, dot, shaped
from jointleaf._core.design import largest_eigenvalue
from jointleaf._core.penalties.monotone import Monotone
from jointleaf._core.penalties.norms import RotationInvariant
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import SolverState
from jointleaf._core.solvers.newton import BiasSolver, bias_gram

_SHORTER = 0.7
_POWER_ITERATIONS = 12
MAX_CELLS = 4096  # an eigendecomposition of C x C
WORTH = 200  # flops of it that are worth one flop of a pass, for the passes that it saves
FLOOR = 3.0  # times the mean eigenvalue: measured; smaller eigenvalues are less alike over features


class Step(NamedTuple):
    """Where a step led: weights, their predictions, the step size in the end, and how far.

    The distance is the largest entry of M move / size in the coordinates of the metric, a
    subgradient up to a bounded factor; where biases are eliminated, of the slopes alone.
    """

    theta: NDArray
    f: NDArray
    size: float
    distance: float


def make_steps(problem: Problem, state: SolverState | None = None) -> Steps:
    """Steps with biases eliminated where that is possible and worth it, else plain ones."""
    state = SolverState() if state is None else state
    beta = problem.penalty.bias_curvature()
    if beta is None or not np.isfinite(problem.loss.max_curvature):
        return Steps(problem)

    def make() -> BiasSolver:
        h = problem.loss.max_curvature * problem.s / problem.s.sum()
        mass = problem.design.cell_mass(h) + beta
        mass[mass <= 0] = 1.0
        return BiasSolver(problem.design, h, beta, mass, problem.smoother)

    biases = state.get(("biases", beta.tobytes()), make)
    if not biases.is_joint:
        return Steps(problem)
    return EliminatingSteps(problem, biases, beta, state)


class Quadratic(NamedTuple):
    """The bound of the data term at moves of the weights, for NumPy and JAX alike.

    h (n,) bounds the loss's curvature at every row, D (N,) is the curvature of the quadratic part
    of the penalty. Biases are eliminated where `biases` inverts Z^T H Z + diag(beta): beta (C,) is
    their part of D, which must be zero there.
    """

    problem: Any
    h: Any
    diagonal: Any
    biases: Any = None
    beta: Any = None

    @classmethod
    def of(cls, problem: Any, diagonal: Any, biases: Any, beta: Any, *, trust: bool) -> Quadratic:
        """Return the bound; without `trust` not the one that the loss states."""
        h = problem.curvature_bound(trust=trust).astype(problem.design.dtype)
        quadratic = cls(problem, h, diagonal, biases, beta)
        return quadratic._replace(diagonal=quadratic.pinned(diagonal))

    def pinned(self, theta: Any) -> Any:
        """Return weights without the biases, where these are eliminated."""
        if self.biases is None:
            return theta
        layout, xp = self.problem.design.layout, array_namespace(theta)
        return layout.with_biases(theta.copy(), xp.zeros_like(layout.split(theta)[1]))

    def weigh(self, image: Any) -> Any:
        """H times predictions."""
        return self.problem.weigh(self.h, image)

    def shrunk(self, theta: Any) -> Any:
        """D times weights."""
        return shaped(self.diagonal, theta) * theta

    def times_beta(self, biases: Any) -> Any:
        """The biases' part of D times biases that are eliminated."""
        return shaped(self.beta, biases) * biases

    def bend(self, image: Any, move: Any) -> Any:
        """The quadratic at a move of the weights whose predictions are `image`."""
        return dot(image, self.weigh(image)) + dot(move, self.shrunk(move))

    def value(self, theta: Any, f: Any) -> Any:
        """The data term and the quadratic part of the penalty at weights with predictions f."""
        return self.problem.data_value(f) + 0.5 * dot(theta, self.shrunk(theta))

    def answer(self, image: Any, slope: Any = 0.0) -> tuple[Any, Any]:
        """The best move of biases of some slope after an image of the slopes, and its image."""
        design = self.problem.design
        move = self.biases.solve(-(design.bias_rmatvec(self.weigh(image)) + slope))
        return move, design.bias_matvec(move)

    def times(self, move: Any) -> Any:
        """Phi^T H Phi + D times a move; the Schur complement where biases are eliminated."""
        design, move = self.problem.design, self.pinned(move)
        image = design.matvec(move)
        if self.biases is not None:
            image = image + self.answer(image)[1]
        return self.pinned(design.rmatvec(self.weigh(image)) + self.shrunk(move))

    def trial(
        self,
        nonsmooth: Any,
        theta: Any,
        f: Any,
        gradient: Any,
        size: Any,
        metric: Any = 1.0,
        *,
        trust: bool,
    ) -> tuple[Any, Any, Any, Any]:
        """Return whether the bound of a plain step holds, its weights, predictions and length.

        Without `trust` the objective itself tells. `metric` is a diagonal (N,) in whose norm the
        proximal map is the same.
        """
        xp = array_namespace(theta)
        size_of_type = xp.asarray(size, dtype=theta.dtype)
        new = nonsmooth.prox(theta - size_of_type * gradient / metric, size)
        f_new, move = self.problem.design.matvec(new), new - theta
        room = dot(move, metric * move) / size
        if trust:
            is_bound = self.bend(f_new - f, move) <= room * (1 + 1e-6)
        else:
            bound = self.value(theta, f) + dot(gradient, move) + 0.5 * room
            noise = 16 * float(xp.finfo(theta.dtype).eps) * abs(bound)
            is_bound = self.value(new, f_new) <= bound + noise
        return is_bound, new, f_new, xp.abs(metric * move).max()


class Steps:
    """Proximal gradient steps of a problem.

    With ``trust=False`` the loss's bound on its curvature is not used, and the objective itself
    tells whether a step was too long. `biases` is the joint inverse where they are eliminated,
    beta (C,) the curvature of the penalty on them.
    """

    def __init__(
        self, problem: Problem, biases: Any = None, beta: Any = None, *, trust: bool = True
    ) -> None:
        self.problem, self.design = problem, problem.design
        self.knows_curvature = trust and bool(np.isfinite(problem.loss.max_curvature))
        dtype, diagonal = problem.design.dtype, problem.smooth_curvature
        diagonal = np.zeros(problem.layout.n_weights) if diagonal is None else diagonal
        beta = None if beta is None else beta.astype(dtype)
        self._bound = Quadratic.of(problem, diagonal.astype(dtype), biases, beta, trust=trust)
        self.metric = Metric(problem)
        if CurvatureMetric.fits(problem):
            self.metric = CurvatureMetric(problem)

    def settle(self, theta: NDArray, f: NDArray) -> tuple[NDArray, NDArray]:
        """Prepare the first weights and their predictions."""
        return theta, f

    def size(self) -> float:
        """1 / (largest eigenvalue of the quadratic against the metric), by power iteration."""
        start = self.problem.layout.random_weights().astype(self.design.dtype)
        value = largest_eigenvalue(
            lambda v: self.metric.divide(self._bound.times(v)), start, _POWER_ITERATIONS
        )
        return 1.0 / (1.02 * value) if value > 0 else 1.0

    def advance(self, theta: NDArray, f: NDArray, size: float) -> Step:
        """Take a step from weights theta with predictions f, at most of a size.

        It is shortened until its bound holds.
        """
        problem, trust = self.problem, self.knows_curvature
        gradient = problem.smooth_gradient(theta, problem.data_gradient(f))
        while True:
            is_bound, new, f_new, largest = self._bound.trial(
                problem.nonsmooth, theta, f, gradient, size, self.metric.diagonal, trust=trust
            )
            if size < 1e-30 or is_bound:
                return Step(new, f_new, size, float(largest) / size)
            size *= _SHORTER


class EliminatingSteps(Steps):
    """Slopes move along the gradient, biases to what is best for the slopes."""

    def __init__(
        self, problem: Problem, biases: BiasSolver, beta: NDArray, state: SolverState
    ) -> None:
        super().__init__(problem, biases, beta)
        self._biases = biases
        if SharedCellsMetric.fits(problem, state):
            self.metric = SharedCellsMetric(problem, self._bound.h, state)

    def settle(self, theta: NDArray, f: NDArray) -> tuple[NDArray, NDArray]:
        """Move the biases to the least of the bound; for the squared error to their best."""
        slope = self._bias_slope(theta, self.problem.slope(f))
        move = self._biases.solve(-slope)
        theta = theta.copy()
        self._biases_of(theta)[:] += move
        return theta, f + self.design.bias_matvec(move)

    def advance(self, theta: NDArray, f: NDArray, size: float) -> Step:
        problem, design, bound = self.problem, self.design, self._bound
        r = problem.slope(f)
        settling, settled, bias_slope = None, None, 0.0
        if problem.loss.is_quadratic:
            # Biases are at their best already, but for rounding, which is mended on the way.
            gradient = design.rmatvec(r)
            bias_slope = self._biases_of(gradient) + bound.times_beta(self._biases_of(theta))
        else:
            settling = self._biases.solve(-self._bias_slope(theta, r))
            settled = design.bias_matvec(settling)
            gradient = design.rmatvec(r + bound.weigh(settled))
        gradient += bound.shrunk(theta)
        while True:
            new, turned = self.metric.prox(theta, gradient, size)
            self._biases_of(new)[:] = self._biases_of(theta)
            self._biases_of(turned)[:] = 0.0
            weighed_move = self.metric.weigh(turned)
            f_new = design.matvec(new)
            answer, change = bound.answer(f_new - f, bias_slope)
            bend = bound.bend(f_new - f + change, new - theta)
            bend += dot(answer, bound.times_beta(answer))
            # Where no slope moves, shortening is in vain: what bends is rounding.
            is_bound = bend <= (1 + 1e-6) * dot(turned, weighed_move) / size
            if size < 1e-30 or is_bound or not turned.any():
                break
            size *= _SHORTER
        self._biases_of(new)[:] += answer
        f_new = f_new + change
        if settling is not None and settled is not None:
            self._biases_of(new)[:] += settling
            f_new = f_new + settled
        return Step(new, f_new, size, float(np.abs(weighed_move).max(initial=0.0)) / size)

    def _biases_of(self, theta: NDArray) -> NDArray:
        return self.problem.layout.split(theta)[1]

    def _bias_slope(self, theta: NDArray, r: NDArray) -> NDArray:
        return self.design.bias_rmatvec(r) + self._bound.times_beta(self._biases_of(theta))


# -- metrics -------------------------------------------------------------------------------------


class Metric:
    """M, of moves (N[, K]) whose biases are zero or count like slopes: here the identity."""

    #: M (N,) where plain steps use it
    diagonal: Any = 1.0

    def __init__(self, problem: Problem) -> None:
        self._nonsmooth = problem.nonsmooth

    def prox(self, theta: NDArray, gradient: NDArray, size: float) -> tuple[NDArray, NDArray]:
        """Minimise <gradient, z - theta> + |z - theta|_M^2 / (2 size) + R(z).

        Returns z and z - theta in the coordinates in which M is diagonal.
        """
        new = self._nonsmooth.prox(theta - gradient.dtype.type(size) * gradient, size)
        return new, new - theta

    def weigh(self, turned: NDArray) -> NDArray:
        """M times a move, both in the coordinates in which M is diagonal."""
        return turned

    def divide(self, gradient: NDArray) -> NDArray:
        """M^-1 gradient."""
        return gradient


class CurvatureMetric(Metric):
    """The penalty's own curvature, for monotone constraints.

    It is the same for all cells of a partition, so that the projection is too. Weights that are
    penalised little, such as those of the root cell, then move as far as they want.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        assert problem.smooth_curvature is not None
        self.diagonal = problem.smooth_curvature.astype(problem.design.dtype)

    @staticmethod
    def fits(problem: Problem) -> bool:
        """Whether there are such constraints, and every weight is penalised."""
        curvature = problem.smooth_curvature
        is_monotone = isinstance(problem.nonsmooth, Monotone)
        return is_monotone and curvature is not None and bool((curvature > 0).all())

    def divide(self, gradient: NDArray) -> NDArray:
        """M^-1 gradient."""
        return gradient / self.diagonal


class SharedCellsMetric(Metric):
    """Q + floor on the slopes of every feature, for norms that rotations of cells do not change.

    h (n,) bounds the loss's curvature at every row.
    """

    def __init__(self, problem: Problem, h: NDArray, state: SolverState) -> None:
        assert isinstance(problem.nonsmooth, RotationInvariant)
        self._norm = problem.nonsmooth
        self._layout = problem.layout
        values, self._vectors = state.get("cell spectrum", lambda: _spectrum(problem, h))
        dtype = problem.design.dtype
        extra = 0.0
        if problem.smooth_curvature is not None and problem.layout.n_slopes:
            extra = float(problem.layout.split(problem.smooth_curvature)[0].mean())
        self._weights = (np.maximum(values, FLOOR * values.mean()) + extra).astype(dtype)

    @staticmethod
    def fits(problem: Problem, state: SolverState) -> bool:
        """Whether the norm allows it, and turning and its preparation are worth their time."""
        if not isinstance(problem.nonsmooth, RotationInvariant) or problem.smoother is not None:
            return False
        blocks = [block.design for block in problem.design.blocks()]
        counts = np.array([design.layout.n_linear_cells for design in blocks], float)
        entries = np.array([d.n_rows * d.layout.kinds.count("linear") for d in blocks])
        if not 0 < counts.max() <= MAX_CELLS:
            return False
        if entries.sum() < np.sum(counts**2):  # turning would cost more than the passes
            return False
        n_features = blocks[0].n_row_features  # all features, alive or not
        pass_cost = 4.0 * entries.sum() * n_features
        return "cell spectrum" in state or WORTH * pass_cost >= 10.0 * np.sum(counts**3)

    def prox(self, theta: NDArray, gradient: NDArray, size: float) -> tuple[NDArray, NDArray]:
        """In the eigenvectors of Q, feature by feature; biases stay where they are."""
        slopes, biases = self._layout.split(theta)
        start, downhill = self._turn(slopes), self._turn(self._layout.split(gradient)[0])
        goal = start - theta.dtype.type(size) * downhill / shaped(self._weights, slopes)
        n_outputs = int(np.prod(slopes.shape[2:]))
        rows = np.ascontiguousarray(np.moveaxis(goal, 1, 0))  # one for every feature
        shrunk = self._norm.shrink_weighted(
            rows.reshape(goal.shape[1], -1),
            size * self._norm.strength,
            np.repeat(self._weights, n_outputs),
        )
        new = np.moveaxis(shrunk.reshape(rows.shape), 0, 1)
        moved = self._layout.join(new - start, np.zeros_like(biases))
        return self._layout.join(self._turn_back(new), biases), moved

    def weigh(self, turned: NDArray) -> NDArray:
        slopes, biases = self._layout.split(turned)
        return self._layout.join(shaped(self._weights, slopes) * slopes, biases)

    def divide(self, gradient: NDArray) -> NDArray:
        """U diag(1 / weights) U^T gradient."""
        slopes, biases = self._layout.split(gradient)
        divided = self._turn(slopes) / shaped(self._weights, slopes)
        return self._layout.join(self._turn_back(divided), biases)

    def _turn(self, slopes: NDArray) -> NDArray:
        return self._times([vectors.T for vectors in self._vectors], slopes)

    def _turn_back(self, slopes: NDArray) -> NDArray:
        return self._times(self._vectors, slopes)

    def _times(self, matrices: list[NDArray], slopes: NDArray) -> NDArray:
        flat, out, start = slopes.reshape(len(slopes), -1), [], 0
        for matrix in matrices:
            out.append(matrix @ flat[start : start + len(matrix)])
            start += len(matrix)
        return np.concatenate(out).reshape(slopes.shape)


def _spectrum(problem: Problem, h: NDArray) -> tuple[NDArray, list[NDArray]]:
    """Eigenvalues (L,) of Z^T diag(h) Z over linear cells, eigenvectors (L_t, L_t) of each task."""
    values, vectors = [], []
    for rows, _, design in problem.design.blocks():
        gram = bias_gram(design.linear_partitions(), h[rows])
        eigenvalues, turned = eigh(gram, lower=False, overwrite_a=True, check_finite=False)
        values.append(np.maximum(eigenvalues, 0.0))
        vectors.append(turned.astype(problem.design.dtype))  # one block in float64 at a time
    return np.concatenate(values), vectors
