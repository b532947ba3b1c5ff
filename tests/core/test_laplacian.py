"""The Laplacian penalty: its matrix, rows with weights, every solver, rejected arguments."""

import numpy as np
import pytest
from scipy import sparse

from jointleaf._core.design import LeafDesign
from jointleaf._core.fitting import fit_cells
from jointleaf._core.losses import make_loss
from jointleaf._core.penalties import L21, Frobenius, Laplacian
from jointleaf._core.penalties.laplacian import median_distance
from jointleaf._core.problem import Problem
from reference import ReferenceDesign

KINDS = ["standard", "symmetric", "random_walk"]
each_kind = pytest.mark.parametrize("kind", KINDS)
each_graph = pytest.mark.parametrize("graph", ["dense", "neighbors"])
TIGHT = {"tol": 1e-9, "max_iter": 20_000}


def _rows(n=25, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def _kernel(X, sigma):
    return np.exp(-np.square(X[:, None] - X[None]).sum(axis=2) / (2 * sigma**2))


def _formula(X, sigma, kind):
    """L for rows of equal weight."""
    K = _kernel(X, sigma)
    D = np.diag(K.sum(axis=1))
    if kind == "standard":
        return D - K
    if kind == "symmetric":
        root = np.diag(1 / np.sqrt(np.diag(D)))
        return np.eye(len(X)) - root @ K @ root
    stationary = len(X) * D / np.trace(D)
    return stationary @ (np.eye(len(X)) - np.linalg.inv(D) @ K)


def _dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


# -- the matrix --------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("bandwidth", [0.3, 1.5, "median"])
def test_matrix_is_the_documented_one(kind, bandwidth):
    X = _rows()
    sigma = median_distance(X) if bandwidth == "median" else bandwidth
    matrix = Laplacian(0.7, bandwidth, kind).matrix(X, np.ones(25))
    np.testing.assert_allclose(matrix, 0.7 / 25 * _formula(X, sigma, kind), rtol=0, atol=1e-14)


def test_standard_laplacian_sums_squared_differences():
    X, f = _rows(), _rows(d=1)[:, 0]
    matrix = Laplacian(0.7, 1.5).matrix(X, np.ones(25))
    differences = np.square(f[:, None] - f[None, :])
    expected = 0.7 / (2 * 25) * np.sum(_kernel(X, 1.5) * differences) / 2
    assert f @ matrix @ f / 2 == pytest.approx(expected, rel=1e-12)


@each_kind
@each_graph
@pytest.mark.parametrize("weighted", [False, True])
def test_matrix_is_symmetric_positive_and_blind_to_constants(kind, graph, weighted):
    X = _rows(60)
    s = np.random.default_rng(1).uniform(0.2, 3, 60) if weighted else np.ones(60)
    matrix = Laplacian(0.7, kind=kind, graph=graph, n_neighbors=4).matrix(X, s)
    assert sparse.issparse(matrix) == (graph == "neighbors")
    matrix = _dense(matrix)
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-15)
    values = np.linalg.eigvalsh(matrix)
    assert values[0] > -1e-14
    assert values[-1] > 1e-3
    if kind != "symmetric":
        np.testing.assert_allclose(matrix.sum(axis=1), 0, atol=1e-15)


@each_kind
@pytest.mark.parametrize("weighted", [False, True])
def test_all_neighbours_are_the_dense_graph(kind, weighted):
    X = _rows(40)
    X[7] = X[3]  # two equal rows are neighbours too
    s = np.random.default_rng(1).uniform(0.2, 3, 40) if weighted else np.ones(40)
    dense = Laplacian(0.7, 1.5, kind, "dense").matrix(X, s)
    near = Laplacian(0.7, 1.5, kind, "neighbors", n_neighbors=39).matrix(X, s)
    np.testing.assert_allclose(_dense(near), dense, rtol=0, atol=1e-14)
    more = Laplacian(0.7, 1.5, kind, "neighbors", n_neighbors=1000).matrix(X, s)
    np.testing.assert_allclose(_dense(more), dense, rtol=0, atol=1e-14)


def test_neighbours_are_pairs_of_which_one_is_near_the_other():
    X = _rows(40)
    matrix = _dense(Laplacian(1.0, 1.5, graph="neighbors", n_neighbors=3).matrix(X, np.ones(40)))
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)
    order = np.argsort(distances, axis=1)[:, 1:4]
    near = np.zeros((40, 40), bool)
    near[np.repeat(np.arange(40), 3), order.ravel()] = True
    expected = np.where(near | near.T, _kernel(X, 1.5), 0) / 40
    np.testing.assert_allclose(-matrix + np.diag(np.diag(matrix)), expected, atol=1e-14)
    assert 3 * 40 < np.count_nonzero(expected) < 6 * 40


def test_graph_is_sparse_where_there_are_many_rows():
    many = _rows(4001, 1)
    assert sparse.issparse(Laplacian(1.0).matrix(many, np.ones(4001)))
    assert not sparse.issparse(Laplacian(1.0).matrix(many[:500], np.ones(500)))


@each_graph
def test_few_rows_make_a_graph(graph):
    one = Laplacian(1.0, graph=graph).matrix(np.ones((1, 2)), np.ones(1))
    assert _dense(one).tolist() == [[0.0]]
    equal = Laplacian(1.0, graph=graph).matrix(np.ones((3, 2)), np.ones(3))
    np.testing.assert_allclose(_dense(equal), np.eye(3) - 1 / 3, atol=1e-14)


def test_a_dense_graph_too_large_for_memory_is_rejected():
    X = np.zeros((10_000, 1))
    with pytest.raises(ValueError, match=r"^a dense Laplacian of 10000 rows takes about 2.2 GiB"):
        Laplacian(1.0, graph="dense").matrix(X, np.ones(10_000))
    with pytest.raises(ValueError, match=r"use graph='neighbors'"):
        fit_cells(X, np.zeros((10_000, 1), int), X[:, 0], penalty=Laplacian(1.0, graph="dense"))


# -- fits --------------------------------------------------------------------------------------


def _closed_form(case, penalty, curvature, cells):
    """Predictions of the least squares fit, through the dense normal equations."""
    phi = ReferenceDesign(case.X, case.codes, cells=cells).to_dense()
    A = _dense(penalty.matrix(case.X, case.s))
    shares = np.diag(case.s / case.s.sum())
    C = ReferenceDesign(case.X, case.codes, cells=cells).layout.n_cells
    slopes = np.tile(curvature[:-1], C)
    normal = phi.T @ (shares + A) @ phi + np.diag(np.append(slopes, np.full(C, curvature[-1])))
    return phi @ np.linalg.lstsq(normal, phi.T @ (shares @ case.y), rcond=1e-12)[0]


@each_kind
@each_graph
@pytest.mark.parametrize("bias_strength", [0.0, 0.03])
@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
def test_solvers_agree_with_the_normal_equations(kind, graph, bias_strength, solver, make_case):
    case, smooth = make_case(), Laplacian(0.8, 1.2, kind, graph, n_neighbors=5)
    expected = _closed_form(case, smooth, [0.05] * 3 + [bias_strength], "linear")
    solution = fit_cells(
        *case.data,
        penalty=smooth + Frobenius(0.05, bias_strength),
        sample_weight=case.s,
        solver=solver,
        **TIGHT,
    )
    assert solution.solver == solver
    assert solution.converged
    found = solution.predict(case.X, case.codes)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@each_kind
@pytest.mark.parametrize("solver", ["dual", "pcg", "fista"])
def test_constant_cells(kind, solver, make_case):
    case, smooth = make_case(), Laplacian(0.8, 1.2, kind)
    solution = fit_cells(
        *case.data,
        cells="constant",
        penalty=Frobenius(1.0, 0.03) + smooth,
        sample_weight=case.s,
        solver=solver,
        **TIGHT,
    )
    found = solution.predict(case.X, case.codes)
    expected = _closed_form(case, smooth, [0.03], "constant")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@each_kind
@pytest.mark.parametrize("solver", ["auto", "newton", "fista"])
def test_alone(kind, solver, make_case):
    case, smooth = make_case(n=80, cells=(2, 3)), Laplacian(0.8, 1.2, kind)
    solution = fit_cells(*case.data, penalty=smooth, sample_weight=case.s, solver=solver, **TIGHT)
    expected = _closed_form(case, smooth, [0.0] * 4, "linear")
    np.testing.assert_allclose(solution.predict(case.X, case.codes), expected, rtol=0, atol=1e-6)


def test_two_graphs_add(make_case):
    case, ridge = make_case(), Frobenius(0.05)
    parts = [Laplacian(0.4, 1.2), Laplacian(0.3, 0.5, "symmetric", "neighbors")]
    both = fit_cells(*case.data, penalty=parts[0] + ridge + parts[1], sample_weight=case.s, **TIGHT)

    class Total(Laplacian):
        def matrix(self, X, s):
            return sum(_dense(part.matrix(X, s)) for part in parts)

    expected = _closed_form(case, Total(1.0), [0.05] * 4, "linear")
    np.testing.assert_allclose(both.predict(case.X, case.codes), expected, rtol=0, atol=1e-6)


@each_kind
@pytest.mark.parametrize("loss", ["squared_error", "logistic", "multinomial"])
@pytest.mark.parametrize("rest", [Frobenius(0.05, 0.01), L21(0.05)], ids=repr)
def test_weights_are_copies_of_rows(kind, loss, rest, make_case):
    case = make_case(loss, n=40, cells=(2, 3))
    times = np.random.default_rng(0).integers(1, 4, 40)
    X, codes, y = (np.repeat(part, times, axis=0) for part in case.data)
    penalty = Laplacian(0.8, 1.2, kind, "dense") + rest
    copies = fit_cells(X, codes, y, loss=loss, penalty=penalty, **TIGHT)
    weighted = fit_cells(*case.data, loss=loss, penalty=penalty, sample_weight=times, **TIGHT)
    assert weighted.objective == pytest.approx(copies.objective, rel=1e-9)
    np.testing.assert_allclose(weighted.coef, copies.coef, rtol=0, atol=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_newton_and_fista_agree_on_classes(loss, make_case):
    case = make_case(loss)
    penalty = Laplacian(0.5, kind="random_walk", graph="neighbors") + Frobenius(0.05, 0.01)
    newton, fista = (
        fit_cells(*case.data, loss=loss, penalty=penalty, solver=solver, **TIGHT)
        for solver in ("newton", "fista")
    )
    assert newton.objective == pytest.approx(fista.objective, rel=1e-9)
    np.testing.assert_allclose(newton.coef, fista.coef, rtol=0, atol=1e-6)


@each_graph
def test_objective_and_its_slope_agree(graph, make_case, numeric_gradient):
    case = make_case()
    penalty = Laplacian(0.8, graph=graph) + L21(0.1)
    design, loss = LeafDesign(case.X, case.codes), make_loss("squared_error")
    problem = Problem(design, case.y, loss, penalty, case.s, offset=0.3)
    f = np.random.default_rng(0).standard_normal(60)
    np.testing.assert_allclose(problem.slope(f), numeric_gradient(problem.data_value, f), atol=1e-9)


def test_a_strong_penalty_makes_predictions_equal(make_case):
    case = make_case()
    penalty = Laplacian(1e6, 3.0) + Frobenius(1e-3, 0)
    f = fit_cells(*case.data, penalty=penalty, sample_weight=case.s).predict(case.X, case.codes)
    np.testing.assert_allclose(f, np.average(case.y, weights=case.s), rtol=0, atol=1e-3)


def test_float32_rows(make_case):
    case = make_case()
    penalty = Laplacian(0.8, kind="symmetric") + L21(0.05)
    rough = fit_cells(case.X.astype(np.float32), case.codes, case.y, penalty=penalty)
    exact = fit_cells(*case.data, penalty=penalty, **TIGHT)
    assert rough.coef.dtype == np.float32
    assert rough.objective == pytest.approx(exact.objective, rel=1e-5)


# -- rejected -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"strength": 0}, ValueError, r"^strength=0 must be a positive number"),
        ({"strength": np.nan}, ValueError, r"^strength=nan must be a positive number"),
        ({"strength": "much"}, TypeError, r"^strength='much' must be a positive number"),
        ({"bandwidth": 0}, ValueError, r"^bandwidth=0 must be a positive number, or 'median'$"),
        ({"bandwidth": "mean"}, TypeError, r"^bandwidth='mean' must be .*, or 'median'$"),
        ({"kind": "signed"}, ValueError, r"^kind='signed' is not known: use one of .*'standard'"),
        ({"graph": "full"}, ValueError, r"^graph='full' is not known: use 'auto', 'dense' or"),
        ({"n_neighbors": 0}, ValueError, r"^n_neighbors=0 must be a whole number, at least 1$"),
        ({"n_neighbors": 2.5}, TypeError, r"^n_neighbors=2.5 must be a whole number"),
        ({"n_neighbors": True}, TypeError, r"^n_neighbors=True must be a whole number"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Laplacian(**{"strength": 1.0, **arguments})


def test_dual_needs_the_squared_error(make_case):
    case = make_case("logistic")
    with pytest.raises(ValueError, match=r"^solver='dual' .* squared error: use solver='newton'$"):
        fit_cells(
            *case.data, loss="logistic", penalty=Laplacian(1.0) + Frobenius(0.1), solver="dual"
        )
