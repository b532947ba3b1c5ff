"""update: the cells of a model fitted to old and new rows, by closed forms and other solvers."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn.base import clone

import jointleaf
from jointleaf import L21, Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf.partitions import LightGBMPartitioner

CELLS = LightGBMPartitioner(3, n_cells=3)
SMALL = {"partitioner": CELLS, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3))
Y = X[:, 0] * (X[:, 1] > 0) + 0.1 * RNG.normal(size=90)
OLD, NEW = slice(0, 50), slice(50, 90)
WEIGHTS = RNG.integers(0, 3, 90).astype(float)


def dense_design(model, rows):
    """Return the design (n, N) of standardised slopes and biases of all cells, cell by cell."""
    cells = model.cell_model_
    features, codes = cells.features.transform(rows), cells.partitioner.apply(rows)
    columns = []
    for p, n_cells in enumerate(cells.partitioner.n_cells_):
        for c in range(n_cells):
            inside = (codes[:, p] == c)[:, None].astype(float)
            columns += [inside * features, inside]
    return np.hstack(columns)


@pytest.mark.parametrize("solver", ["auto", "fista"])
def test_squared_errors_are_those_of_the_normal_equations(solver):
    model = JOPLEnRegressor(**SMALL, penalty=Frobenius(0.01), solver=solver)
    model.fit(X[OLD], Y[OLD], WEIGHTS[OLD]).update(X[NEW], Y[NEW], WEIGHTS[NEW])
    cells, s = model.cell_model_, WEIGHTS / WEIGHTS.sum()
    A = dense_design(model, X)
    target = (Y - cells.centre) / cells.unit - cells.offset
    theta = np.linalg.solve(A.T @ (s[:, None] * A) + 0.01 * np.eye(A.shape[1]), A.T @ (s * target))
    expected = cells.centre + cells.unit * (A @ theta + cells.offset)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-8)


def test_the_order_of_updates_makes_no_difference():
    fitted = JOPLEnRegressor(**SMALL, penalty=Frobenius(0.01)).fit(X[OLD], Y[OLD])
    at_once = copy.copy(fitted).update(X[NEW], Y[NEW], X_old=X[OLD], y_old=Y[OLD])
    fitted.update(X[70:], Y[70:]).update(X[50:70], Y[50:70])
    np.testing.assert_allclose(fitted.predict(X), at_once.predict(X), atol=1e-8)
    before = JOPLEnRegressor(**SMALL, penalty=Frobenius(0.01)).fit(X[OLD], Y[OLD])
    assert np.abs(fitted.predict(X) - before.predict(X)).max() > 0.01
    explained = fitted.explain(X)
    np.testing.assert_allclose(explained.prediction, fitted.predict(X))


def test_other_losses_are_solved_to_their_optimum():
    labels = np.where(Y > 0, "b", "a")
    model = JOPLEnClassifier(**SMALL, penalty=Frobenius(0.02), tol=1e-9)
    model.fit(X[OLD], labels[OLD]).update(X[NEW], labels[NEW])
    A, sign = dense_design(model, X), np.where(Y > 0, 1.0, -1.0)
    offset = float(model.cell_model_.offset)

    def objective(theta):
        margin = sign * (A @ theta + offset)
        slope = -sign / (1 + np.exp(margin)) / len(sign)
        value = np.logaddexp(0, -margin).mean() + 0.01 * theta @ theta
        return value, A.T @ slope + 0.02 * theta

    best = minimize(objective, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B", tol=1e-14)
    np.testing.assert_allclose(model.decision_function(X), A @ best.x + offset, atol=1e-4)


def test_the_solver_starts_from_the_weights_of_the_model():
    counts = np.random.default_rng(0).poisson(np.exp(X[:, 0]))
    options = {"loss": "poisson", "penalty": Frobenius(0.01), "solver": "newton", **SMALL}
    model = JOPLEnRegressor(**options).fit(X, counts)
    n_steps = model.solution_.n_iter
    model.update(X[:1], counts[:1], [1e-9])
    assert model.solution_.n_iter <= 1 < n_steps


def test_sparse_penalties_categories_and_frames():
    frame = pd.DataFrame(X, columns=list("abc")).assign(d=np.where(X[:, 2] > 0, "u", "v"))
    model = JOPLEnRegressor(**SMALL, penalty=L21(0.05)).fit(frame[OLD], Y[OLD])
    model.update(frame[NEW].assign(d="new"), Y[NEW])
    assert model.solution_.optimality < 1e-5
    counts = JOPLEnRegressor(**SMALL, penalty=Frobenius(0.1), loss="poisson")
    counts.fit(X[OLD], np.exp(Y[OLD])).update(X[NEW], np.exp(Y[NEW]))
    assert counts.predict(X).min() > 0


def test_what_is_not_kept_is_asked_for(tmp_path):
    model = JOPLEnRegressor(**SMALL, penalty=Frobenius(0.1)).fit(X[OLD], Y[OLD])
    jointleaf.save(model, tmp_path / "m.jleaf")
    for other in (jointleaf.load(tmp_path / "m.jleaf"), pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match=r"model files .* leave out: give X_old and y_old"):
            other.update(X[NEW], Y[NEW])
        other.update(X[NEW], Y[NEW], X_old=X[OLD], y_old=Y[OLD])
        expected = copy.deepcopy(model).update(X[NEW], Y[NEW], X_old=X[OLD], y_old=Y[OLD])
        np.testing.assert_array_equal(other.predict(X), expected.predict(X))
    with pytest.raises(ValueError, match="X_old and y_old belong together"):
        model.update(X[NEW], Y[NEW], X_old=X[OLD])


def test_what_has_no_joint_problem_is_refused_and_left_alone():
    labels = np.where(Y > 0, "b", "a")
    blend = JOPLEnClassifier(recipe="blend", random_state=0, time_budget=5).fit(X, labels)
    with pytest.raises(ValueError, match=r"the model is a blend .*: fit all rows again, or give"):
        blend.update(X, labels)
    model = JOPLEnClassifier(**SMALL, penalty=Frobenius(0.1)).fit(X, labels)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="y_new holds class 'c', which the fit did not see"):
        model.update(X[:1], ["c"])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.update(X[:3], ["a", "b"])
    np.testing.assert_array_equal(model.predict_proba(X), before)
    balanced = JOPLEnClassifier(**SMALL, penalty=Frobenius(0.1), class_weight="balanced")
    with pytest.raises(ValueError, match="class_weight='balanced'"):
        balanced.fit(X, labels).update(X, labels)
    counts = JOPLEnRegressor(**SMALL, penalty=Frobenius(0.1), loss="poisson")
    with pytest.raises(ValueError, match="takes no exposure or offset"):
        counts.fit(X, np.exp(Y), exposure=np.ones(90) * 2).update(X, np.exp(Y))
    with pytest.raises(ValueError, match="update takes no exposure: fit all rows again"):
        counts.update(X, np.exp(Y), exposure=np.ones(90))
    monotone = JOPLEnRegressor(**SMALL, cells="constant", penalty=Frobenius(0.1))
    monotone.set_params(monotonic_cst=[1, 0, 0])
    with pytest.raises(ValueError, match="monotone constraints: fit all rows again"):
        monotone.fit(X, Y).update(X, Y)


def test_class_weights_by_name_are_those_of_new_rows_too():
    labels = np.where(Y > 0, "b", "a")
    weighted = JOPLEnClassifier(**SMALL, penalty=Frobenius(0.1), class_weight={"b": 3.0})
    by_class = weighted.fit(X[OLD], labels[OLD]).update(X[NEW], labels[NEW])
    rows = JOPLEnClassifier(**SMALL, penalty=Frobenius(0.1))
    s = np.where(labels == "b", 3.0, 1.0)
    by_row = rows.fit(X[OLD], labels[OLD], s[OLD]).update(X[NEW], labels[NEW], s[NEW])
    np.testing.assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X), atol=1e-6)


WARM = {**SMALL, "warm_start": True}


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
def test_a_warm_start_keeps_partitions_and_fits_cells_to_the_rows_that_are_given(loss):
    target = np.exp(Y) if loss == "poisson" else Y
    options = {"loss": loss, "penalty": Frobenius(0.01), "tol": 1e-9}
    options["solver"] = "pcg" if loss == "squared_error" else "newton"
    model = JOPLEnRegressor(**WARM, **options).fit(X[OLD], target[OLD])
    partitions = model.cell_model_.partitioner
    updated = copy.deepcopy(model).update(X[NEW], target[NEW], X_old=X[OLD], y_old=target[OLD])
    model.fit(X, target)
    assert model.cell_model_.partitioner is partitions
    np.testing.assert_allclose(model.predict(X), updated.predict(X), rtol=1e-6, atol=1e-6)
    cold = JOPLEnRegressor(**SMALL, **options).fit(X, target)
    assert np.abs(model.predict(X) - cold.predict(X)).max() > 1e-3  # which has other trees
    assert model.fit(X, target).solution_.n_iter <= 1 < cold.solution_.n_iter


def test_a_warm_start_takes_the_penalty_of_now():
    model = JOPLEnRegressor(**WARM, penalty=Frobenius("auto"), cv=2).fit(X, Y)
    chosen = model.penalty_
    assert model.fit(X, Y).penalty_ is chosen
    assert model.cv_results_ is not None
    model.set_params(penalty=Frobenius(10.0)).fit(X, Y)
    assert model.cv_results_ is None
    cold = JOPLEnRegressor(**SMALL, penalty=Frobenius(10.0)).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), cold.predict(X), atol=1e-6)


def test_a_warm_start_without_a_model_is_an_ordinary_fit_also_of_clones():
    cold = JOPLEnRegressor(**SMALL, penalty=Frobenius(0.1)).fit(X, Y)
    warm = JOPLEnRegressor(**WARM, penalty=Frobenius(0.1)).fit(X[:40], Y[:40])
    np.testing.assert_array_equal(clone(warm).fit(X, Y).predict(X), cold.predict(X))


def test_a_warm_start_refuses_what_would_have_no_effect_and_leaves_the_model_alone():
    labels = np.where(Y > 0, "b", "a")
    model = JOPLEnClassifier(**WARM, penalty=Frobenius(0.1), class_weight="balanced")
    before = model.fit(X, labels).predict_proba(X)
    with pytest.raises(ValueError, match="groups has no effect with warm_start=True"):
        model.fit(X, labels, groups=np.arange(90))
    with pytest.raises(ValueError, match=r"y holds class 'c', .*: set warm_start=False"):
        model.fit(X, np.where(Y > 1, "c", labels))
    with pytest.raises(ValueError, match="features"):
        model.fit(X[:, :2], labels)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    np.testing.assert_allclose(model.fit(X, labels).predict_proba(X), before, atol=1e-5)
    with pytest.raises(TypeError, match="warm_start='yes' must be True or False"):
        model.set_params(warm_start="yes").fit(X, labels)
    blend = JOPLEnClassifier(recipe="blend", random_state=0, time_budget=5, warm_start=True)
    with pytest.raises(ValueError, match="a fit with warm_start=True has no joint problem"):
        blend.fit(X, labels).fit(X, labels)
