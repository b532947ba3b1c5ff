"""`fit_cells`: sample weights, predictions, unusual data, and everything it rejects."""

import numpy as np
import pytest

import jointleaf
from jointleaf._core.fitting import fit_cells
from jointleaf._core.penalties import Frobenius

LOSSES = ["squared_error", "logistic", "multinomial"]


@pytest.fixture(params=LOSSES)
def loss(request):
    return request.param


@pytest.mark.parametrize(
    ("cells", "n_linear"),
    [("linear", 12), ("constant", 0), (("linear", "constant", "linear"), 9)],
)
def test_shapes_and_training_predictions(loss, cells, n_linear, make_case):
    case = make_case(loss)
    solution = fit_cells(*case.data, loss=loss, cells=cells)
    outputs = (3,) if loss == "multinomial" else ()
    assert solution.coef.shape == (n_linear, 3, *outputs)
    assert solution.intercept.shape == (12, *outputs)
    assert solution.layout.cells_per_partition == (4, 3, 5)
    cell = case.codes + np.array([0, 4, 7])
    expected = solution.intercept[cell].sum(axis=1)
    slopes = np.concatenate([solution.coef, np.zeros((1, 3, *outputs))])
    slopes = slopes[solution.layout.slope_rows[cell]]
    expected += np.einsum("npj...,nj->n...", slopes, case.X)
    np.testing.assert_allclose(solution.predict(case.X, case.codes), expected, rtol=1e-10)


def test_a_row_in_no_cell_gets_no_contribution_there(loss, make_case):
    case = make_case(loss)
    solution = fit_cells(*case.data, loss=loss)
    whole = solution.predict(case.X, case.codes)
    without = case.codes.copy()
    without[:, 1] = -1
    only = np.full_like(case.codes, -1)
    only[:, 1] = case.codes[:, 1]
    parts = solution.predict(case.X, without) + solution.predict(case.X, only)
    np.testing.assert_allclose(parts, whole, rtol=1e-10, atol=1e-12)
    nowhere = solution.predict(case.X, np.full_like(case.codes, -1))
    np.testing.assert_array_equal(nowhere, np.zeros_like(whole))


@pytest.mark.parametrize("solver", ["auto", "newton"])
def test_weight_zero_equals_leaving_the_row_out(loss, solver, make_case):
    case = make_case(loss)
    weights = case.s * (np.arange(60) % 3 > 0)
    kept = weights > 0
    options = {"loss": loss, "solver": solver, "tol": 1e-10, "n_cells": (4, 3, 5)}
    zeros = fit_cells(*case.data, sample_weight=weights, **options)
    fewer = fit_cells(*(part[kept] for part in case.data), sample_weight=case.s[kept], **options)
    np.testing.assert_allclose(zeros.theta, fewer.theta, rtol=1e-8, atol=1e-8)
    assert zeros.objective == pytest.approx(fewer.objective, rel=1e-10)


@pytest.mark.parametrize("solver", ["auto", "newton"])
def test_weight_two_equals_giving_the_row_twice(loss, solver, make_case):
    case = make_case(loss)
    copies = 1 + np.arange(60) % 2
    options = {"loss": loss, "solver": solver, "tol": 1e-11}
    weighted = fit_cells(*case.data, sample_weight=copies, **options)
    repeated = fit_cells(*(np.repeat(part, copies, axis=0) for part in case.data), **options)
    np.testing.assert_allclose(weighted.theta, repeated.theta, rtol=1e-8, atol=1e-8)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-10)


def test_only_relative_weights_matter(make_case):
    case = make_case()
    one = fit_cells(*case.data, sample_weight=case.s, solver="dual")
    other = fit_cells(*case.data, sample_weight=100 * case.s, solver="dual")
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-9, atol=1e-11)
    same = fit_cells(*case.data, sample_weight=2.5, solver="dual")
    plain = fit_cells(*case.data, solver="dual")
    np.testing.assert_allclose(same.theta, plain.theta, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
@pytest.mark.parametrize("bias_strength", [0.1, 0.0])
def test_cells_without_rows_get_zero_weights(solver, bias_strength, make_case):
    case = make_case()
    penalty = Frobenius(0.1, bias_strength)
    options = {"penalty": penalty, "solver": solver, "tol": 1e-8, "max_iter": 5000}
    solution = fit_cells(*case.data, n_cells=(6, 3, 5), **options)
    assert solution.converged
    np.testing.assert_array_equal(solution.coef[4:6], 0)
    np.testing.assert_array_equal(solution.intercept[4:6], 0)
    assert solution.objective == pytest.approx(fit_cells(*case.data, **options).objective)


def test_default_penalty_is_documented(make_case):
    case = make_case()
    explicit = fit_cells(*case.data, penalty=Frobenius(0.01, 0.01))
    np.testing.assert_array_equal(fit_cells(*case.data).theta, explicit.theta)


@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
def test_one_row(solver):
    solution = fit_cells([[2.0, -1.0]], [[0, 0]], [3.0], solver=solver, tol=1e-8)
    assert solution.converged
    # Two equal cells: f = k / (k + strength) y with k = 2 (|x|^2 + 1).
    expected = 3.0 * 12 / (12 + 0.01)
    assert solution.predict([[2.0, -1.0]], [[0, 0]])[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
def test_constant_and_duplicate_columns(solver, make_case):
    case = make_case()
    X = np.column_stack([case.X, np.full(60, 4.0), case.X[:, 0]])
    solution = fit_cells(X, case.codes, case.y, solver=solver, tol=1e-8, max_iter=20_000)
    assert solution.converged
    np.testing.assert_allclose(solution.coef[:, 0], solution.coef[:, 4], rtol=1e-5, atol=1e-6)
    # A constant column of 4 acts as a bias with four times the slope.
    np.testing.assert_allclose(solution.coef[:, 3], 4 * solution.intercept, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
def test_more_features_than_rows(solver, make_case):
    case = make_case(n=12, d=20, cells=(2, 3))
    solution = fit_cells(*case.data, solver=solver, tol=1e-7, max_iter=5000)
    assert solution.converged
    expected = fit_cells(*case.data, solver="dual").objective
    assert solution.objective == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("solver", ["dual", "pcg", "newton", "fista"])
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_targets_need_no_slopes(solver, value, make_case):
    case = make_case()
    solution = fit_cells(
        case.X, case.codes, np.full(60, value), penalty=Frobenius(0.1, 0), solver=solver, tol=1e-8
    )
    assert solution.converged
    np.testing.assert_allclose(solution.coef, 0, atol=1e-6)
    np.testing.assert_allclose(solution.predict(case.X, case.codes), value, atol=1e-6)


def test_zero_targets_give_zero_weights(make_case):
    case = make_case()
    solution = fit_cells(case.X, case.codes, np.zeros(60))
    assert solution.converged
    assert solution.objective == 0
    np.testing.assert_array_equal(solution.theta, 0)


def test_zero_features_give_zero_slopes(loss, make_case):
    case = make_case(loss)
    solution = fit_cells(np.zeros((60, 3)), case.codes, case.y, loss=loss)
    assert solution.converged
    np.testing.assert_array_equal(solution.coef, 0)
    assert np.isfinite(solution.intercept).all()


def test_one_class_is_fitted(make_case):
    case = make_case("logistic")
    solution = fit_cells(case.X, case.codes, np.ones(60), loss="logistic")
    assert solution.converged
    assert (solution.predict(case.X, case.codes) > 0).all()


def test_inputs_are_not_changed(make_case):
    case = make_case()
    kept = [part.copy() for part in (*case.data, case.s)]
    for solver in ("dual", "pcg", "newton", "fista"):
        fit_cells(*case.data, sample_weight=case.s, solver=solver)
    for part, copy in zip((*case.data, case.s), kept, strict=True):
        np.testing.assert_array_equal(part, copy)


def test_lists_and_integers_are_accepted(make_case):
    case = make_case()
    X = np.round(case.X).astype(int)
    one = fit_cells(X, case.codes.astype(np.uint8), case.y)
    other = fit_cells(X.astype(float).tolist(), case.codes.tolist(), case.y.tolist())
    np.testing.assert_array_equal(one.theta, other.theta)


def test_threads_do_not_change_a_bit(make_case):
    case = make_case(n=9000, d=2, cells=(3,) * 6)
    one, two = (fit_cells(*case.data, solver="pcg", n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.theta, two.theta)


def test_public_names():
    assert jointleaf.fit_cells is fit_cells
    assert jointleaf.Frobenius is Frobenius
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = jointleaf.nothing


N = 10
GOOD = {"X": np.arange(2.0 * N).reshape(N, 2), "codes": np.zeros((N, 2), int), "y": np.arange(N)}


def _with(name, **at):
    """The good array of a name, as floats, with the value at one place replaced."""
    changed = GOOD[name].astype(float)
    changed.flat[3] = at["value"]
    return {name: changed}


BAD = {
    "no_rows": ({"X": np.empty((0, 2)), "codes": np.empty((0, 2), int), "y": []}, "X has no rows"),
    "flat_X": ({"X": np.arange(10.0)}, "X must be an"),
    "cube_X": ({"X": np.zeros((N, 2, 2))}, "X must be an"),
    "NaN_in_X": (_with("X", value=np.nan), "X holds NaN"),
    "infinity_in_X": (_with("X", value=np.inf), "X holds NaN or infinity"),
    "strings_in_X": ({"X": [["a", "b"]] * N}, "X must hold real numbers"),
    "objects_in_X": ({"X": [[None, {}]] * N}, "X must hold real numbers"),
    "NaN_in_y": (_with("y", value=np.nan), "y holds NaN"),
    "infinity_in_y": (_with("y", value=-np.inf), "y holds NaN or infinity"),
    "short_y": ({"y": np.arange(N - 1)}, "y has shape"),
    "long_y": ({"y": np.arange(N + 1)}, "y has shape"),
    "wide_y": ({"y": np.zeros((N, 2))}, "y has shape"),
    "zero_one_y": ({"y": np.arange(N) % 2, "loss": "logistic"}, "y in {-1, 1}"),
    "fractional_classes": ({"y": np.arange(N) / 2, "loss": "multinomial"}, "y as class numbers"),
    "short_codes": ({"codes": np.zeros((N - 1, 2), int)}, "codes has 9 rows"),
    "flat_codes": ({"codes": np.zeros(N, int)}, "codes must be an"),
    "no_partition": ({"codes": np.zeros((N, 0), int)}, "codes has no column"),
    "float_codes": (_with("codes", value=0.0), "codes must be integers"),
    "negative_codes": ({"codes": np.full((N, 2), -1)}, "codes holds -1"),
    "codes_above_n_cells": (
        {"codes": np.full((N, 2), 3), "n_cells": [4, 3]},
        "partition 1.*only 3",
    ),
    "huge_codes": ({"codes": np.full((N, 2), 10**10)}, "codes asks for 2e\\+10 cells"),
    "short_n_cells": ({"n_cells": [1]}, "n_cells has shape"),
    "negative_weight": ({"sample_weight": np.arange(N) - 1.0}, "sample_weight holds -1"),
    "zero_weights": ({"sample_weight": np.zeros(N)}, "sample_weight is zero for every row"),
    "NaN_weight": ({"sample_weight": np.full(N, np.nan)}, "sample_weight holds NaN"),
    "infinite_weight": ({"sample_weight": np.full(N, np.inf)}, "sample_weight holds NaN or inf"),
    "short_weights": ({"sample_weight": np.ones(N - 1)}, "sample_weight has shape"),
    "feature_weights": ({"penalty": Frobenius(1, feature_weights=[1])}, "feature_weights has 1"),
    "partition_weights": (
        {"penalty": Frobenius(1, partition_weights=[1] * 3)},
        "partition_weights has 3",
    ),
    "unknown_loss": ({"loss": "hinge"}, "loss='hinge' is not known"),
    "unknown_solver": ({"solver": "magic"}, "solver='magic' is not known.*'dual'"),
    "unknown_cells": ({"cells": "cubic"}, "cells='cubic' is not known"),
    "strings_in_y": ({"y": ["a"] * N}, "y must hold real numbers"),
    "complex_X": ({"X": np.ones((N, 2)) * 1j}, "X must hold real numbers"),
    "ragged_X": ({"X": [[1.0, 2.0]] * (N - 1) + [[1.0]]}, "X must be an"),
    "string_weights": ({"sample_weight": ["a"] * N}, "sample_weight must hold real numbers"),
    "largest_code_of_its_type": (
        {"codes": np.full((N, 2), np.iinfo(np.int64).max)},
        "codes asks for",
    ),
    "fractional_n_cells": ({"n_cells": [1.5, np.nan]}, "n_cells must be integers"),
    "no_threads": ({"n_jobs": None}, "n_jobs=None must be"),
    "huge_X": ({"X": np.full((N, 2), 1e160)}, "X holds values up to 1e\\+160"),
    "huge_float32_X": ({"X": np.full((N, 2), 1e20, np.float32)}, "too large for float32"),
    "huge_y": ({"y": np.full(N, 1e160)}, "y holds values up to"),
    "zero_tol": ({"tol": 0.0}, "tol=0.0 must be"),
    "negative_tol": ({"tol": -1e-3}, "tol=-0.001 must be"),
    "NaN_tol": ({"tol": np.nan}, "tol=nan must be"),
    "zero_max_iter": ({"max_iter": 0}, "max_iter=0 must be"),
    "fractional_max_iter": ({"max_iter": 2.5}, "max_iter=2.5 must be"),
}


@pytest.mark.parametrize(("changed", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_rejected_by_name(changed, message):
    with pytest.raises(ValueError, match=message):
        fit_cells(**{**GOOD, **changed})


def test_penalty_must_be_a_penalty():
    with pytest.raises(TypeError, match=r"penalty=0\.1 must be a Penalty"):
        fit_cells(**GOOD, penalty=0.1)


def test_good_input_of_the_rejections_is_good():
    assert fit_cells(**GOOD).converged


def test_predict_rejects_codes_of_other_partitions(make_case):
    case = make_case()
    solution = fit_cells(*case.data)
    with pytest.raises(ValueError, match="codes holds 9 in partition 2"):
        solution.predict(case.X[:1], [[0, 0, 9]])
    with pytest.raises(ValueError, match="2 partitions"):
        solution.predict(case.X, case.codes[:, :2])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_codes_may_fill_their_type(dtype):
    codes = np.array([[0], [np.iinfo(dtype).max]] * 5, dtype)
    solution = fit_cells(GOOD["X"], codes, GOOD["y"])
    assert solution.layout.n_cells == np.iinfo(dtype).max + 1
    assert solution.converged


def test_predict_needs_the_features_of_the_fit():
    solution = fit_cells(**GOOD)
    with pytest.raises(ValueError, match="fitted with 2 features"):
        solution.predict(np.zeros((3, 1)), np.zeros((3, 2), int))
