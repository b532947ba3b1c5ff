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

from jointleaf._core.arrays import dot, shaped
from jointleaf._core.design import largest_eigenvalue
from jointleaf._core.penalties.norms import RotationInvariant
from jointleaf._core.problem import Problem
from jointleaf._core.solvers.base import SolverState
from jointleaf._core.solvers.biases import BiasSolver, bias_gram

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


class Steps:
    """Proximal gradient steps of a problem.

    With ``trust=False`` the loss's bound on its curvature is not used, and the objective itself
    tells whether a step was too long.
    """

    #: whether biases follow the slopes, so that the slopes alone tell how far a step went
    eliminates = False

    def __init__(self, problem: Problem, *, trust: bool = True) -> None:
        self.problem, self.design = problem, problem.design
        self._dtype: Any = problem.design.dtype.type
        self.knows_curvature = trust and bool(np.isfinite(problem.loss.max_curvature))
        self._h = problem.curvature_bound(trust=trust).astype(self._dtype)
        self.metric = Metric(problem)
        diagonal = problem.smooth_curvature
        self._diagonal = None if diagonal is None else diagonal.astype(self._dtype)

    def settle(self, theta: NDArray, f: NDArray) -> tuple[NDArray, NDArray]:
        """Prepare the first weights and their predictions."""
        return theta, f

    def size(self) -> float:
        """1 / (largest eigenvalue of the quadratic against the metric), by power iteration."""
        start = self.problem.layout.random_weights().astype(self._dtype)
        value = largest_eigenvalue(
            lambda v: self.metric.divide(self.curved(v)), start, _POWER_ITERATIONS
        )
        return 1.0 / (1.02 * value) if value > 0 else 1.0

    def _weigh(self, image: NDArray) -> NDArray:
        """H times predictions."""
        return self.problem.weigh(self._h, image)

    def _times_diagonal(self, theta: NDArray) -> NDArray:
        assert self._diagonal is not None
        return shaped(self._diagonal, theta) * theta

    def _ridge(self, theta: NDArray) -> float:
        """Return theta^T D theta."""
        return 0.0 if self._diagonal is None else dot(theta, self._times_diagonal(theta))

    def advance(self, theta: NDArray, f: NDArray, size: float) -> Step:
        """Take a step from weights theta with predictions f, at most of a size.

        It is shortened until its bound holds.
        """
        problem = self.problem
        gradient = problem.smooth_gradient(theta, problem.data_gradient(f))
        while True:
            new = problem.nonsmooth.prox(theta - self._dtype(size) * gradient, size)
            f_new = self.design.matvec(new)
            move = new - theta
            if size < 1e-30 or self._is_bound(theta, f, move, f_new, gradient, size):
                return Step(new, f_new, size, float(np.abs(move).max()) / size)
            size *= _SHORTER

    def _is_bound(
        self,
        theta: NDArray,
        f: NDArray,
        move: NDArray,
        f_new: NDArray,
        gradient: NDArray,
        size: float,
    ) -> bool:
        room = dot(move, move) / size
        if self.knows_curvature:
            image = f_new - f
            return dot(image, self._weigh(image)) + self._ridge(move) <= room * (1 + 1e-6)
        value = self.problem.data_value(f) + 0.5 * self._ridge(theta)
        new_value = self.problem.data_value(f_new) + 0.5 * self._ridge(theta + move)
        bound = value + dot(gradient, move) + 0.5 * room
        return new_value <= bound + 16 * float(np.finfo(self._dtype).eps) * abs(bound)

    def curved(self, move: NDArray) -> NDArray:
        """The quadratic's matrix times a move of the weights: (Phi^T H Phi + D) move."""
        product = self.design.rmatvec(self._weigh(self.design.matvec(move)))
        return product if self._diagonal is None else product + self._times_diagonal(move)


class EliminatingSteps(Steps):
    """Slopes move along the gradient, biases to what is best for the slopes.

    `biases` is the joint inverse of Z^T H Z + diag(beta), beta (C,) the curvature of the penalty.
    """

    eliminates = True

    def __init__(
        self, problem: Problem, biases: BiasSolver, beta: NDArray, state: SolverState
    ) -> None:
        super().__init__(problem)
        self._biases = biases
        self._beta = beta.astype(self._dtype)
        if self._diagonal is not None:
            self._diagonal = self._diagonal.copy()
            self._biases_of(self._diagonal)[:] = 0.0  # the biases' part is in beta
        if SharedCellsMetric.fits(problem, state):
            self.metric = SharedCellsMetric(problem, self._h, state)

    def settle(self, theta: NDArray, f: NDArray) -> tuple[NDArray, NDArray]:
        """Move the biases to the least of the bound; for the squared error to their best."""
        slope = self._bias_slope(theta, self.problem.slope(f))
        move = self._biases.solve(-slope)
        theta = theta.copy()
        self._biases_of(theta)[:] += move
        return theta, f + self.design.bias_matvec(move)

    def advance(self, theta: NDArray, f: NDArray, size: float) -> Step:
        problem, design = self.problem, self.design
        r = problem.slope(f)
        if problem.loss.is_quadratic:
            # Biases are at their best already, but for rounding, which is mended on the way.
            gradient = design.rmatvec(r)
            bias_slope = self._biases_of(gradient) + self._times_beta(self._biases_of(theta))
            settling, settled = None, None
        else:
            settling = self._biases.solve(-self._bias_slope(theta, r))
            settled = design.bias_matvec(settling)
            gradient = design.rmatvec(r + self._weigh(settled))
            bias_slope = None
        if self._diagonal is not None:
            gradient += self._times_diagonal(theta)
        while True:
            new, turned = self.metric.prox(theta, gradient, size)
            self._biases_of(new)[:] = self._biases_of(theta)
            self._biases_of(turned)[:] = 0.0
            weighed_move = self.metric.weigh(turned)
            f_new = design.matvec(new)
            image = f_new - f
            weighed = design.bias_rmatvec(self._weigh(image))
            answer = self._biases.solve(-(weighed if bias_slope is None else weighed + bias_slope))
            change = design.bias_matvec(answer)
            image = image + change
            bend = dot(image, self._weigh(image)) + dot(answer, self._times_beta(answer))
            bend += self._ridge(new - theta)
            if size < 1e-30 or bend <= (1 + 1e-6) * dot(turned, weighed_move) / size:
                break
            size *= _SHORTER
        self._biases_of(new)[:] += answer
        f_new = f_new + change
        if settling is not None and settled is not None:
            self._biases_of(new)[:] += settling
            f_new = f_new + settled
        return Step(new, f_new, size, float(np.abs(weighed_move).max(initial=0.0)) / size)

    def curved(self, move: NDArray) -> NDArray:
        """The Schur complement times the slopes of a move."""
        move = move.copy()
        self._biases_of(move)[:] = 0.0
        image = self.design.matvec(move)
        answer = self._biases.solve(-self.design.bias_rmatvec(self._weigh(image)))
        image = image + self.design.bias_matvec(answer)
        product = self.design.rmatvec(self._weigh(image))
        if self._diagonal is not None:
            product += self._times_diagonal(move)
        self._biases_of(product)[:] = 0.0
        return product

    def _biases_of(self, theta: NDArray) -> NDArray:
        return self.problem.layout.split(theta)[1]

    def _bias_slope(self, theta: NDArray, r: NDArray) -> NDArray:
        return self.design.bias_rmatvec(r) + self._times_beta(self._biases_of(theta))

    def _times_beta(self, biases: NDArray) -> NDArray:
        return shaped(self._beta, biases) * biases


# -- metrics -------------------------------------------------------------------------------------


class Metric:
    """M, of moves (N[, K]) whose biases are zero or count like slopes: here the identity."""

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
        self.largest = float(self._weights.max())

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
        n_features = blocks[0].rows.shape[1]  # all features, alive or not
        pass_cost = 4.0 * entries.sum() * n_features
        return "cell spectrum" in state or WORTH * pass_cost >= 10.0 * np.sum(counts**3)

    def prox(self, theta: NDArray, gradient: NDArray, size: float) -> tuple[NDArray, NDArray]:
        """In the eigenvectors of Q, feature by feature; biases stay where they are."""
        slopes, biases = self._layout.split(theta)
        start, downhill = self._turn(slopes), self._turn(self._layout.split(gradient)[0])
        goal = start - theta.dtype.type(size) * downhill / self._along(slopes)
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
        return self._layout.join(self._along(slopes) * slopes, biases)

    def divide(self, gradient: NDArray) -> NDArray:
        """U diag(1 / weights) U^T gradient."""
        slopes, biases = self._layout.split(gradient)
        return self._layout.join(self._turn_back(self._turn(slopes) / self._along(slopes)), biases)

    def _along(self, slopes: NDArray) -> NDArray:
        return self._weights.reshape(-1, *(1,) * (slopes.ndim - 1))

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
