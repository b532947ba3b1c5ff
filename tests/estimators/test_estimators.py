"""The estimators: the fitted model is what the objective says, and scikit-learn can use it."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine, make_friedman1
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor, fit_cells
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Penalty
from jointleaf.partitions import (
    NO_CELL,
    ExtraTreesPartitioner,
    LightGBMPartitioner,
    Partitioner,
    RandomForestPartitioner,
    RootCell,
    RotatedPartitioner,
    VoronoiPartitioner,
)

X, Y = make_friedman1(120, n_features=6, noise=0.5, random_state=0)
BINARY = np.where(np.median(Y) < Y, "yes", "no")
THREE = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])) * 10
SMALL = LightGBMPartitioner(12, 4)
RIDGE = Frobenius(0.01)


class Floors(Partitioner):
    """A user's partitioner: one partition per feature, whose cells are the whole parts seen."""

    def fit(self, X, y=None, sample_weight=None, *, target_type="regression"):
        X = np.asarray(X)
        self.seen_ = [np.unique(np.floor(column)) for column in X.T]
        self.n_features_in_ = X.shape[1]
        self.n_cells_ = np.array([len(seen) for seen in self.seen_])
        self.split_gains_ = np.ones(X.shape[1])
        return self

    def apply(self, X):
        codes = np.empty(np.shape(X), np.int32)
        for p, seen in enumerate(self.seen_):
            whole = np.floor(np.asarray(X)[:, p])
            at = np.minimum(np.searchsorted(seen, whole), len(seen) - 1)
            codes[:, p] = np.where(seen[at] == whole, at, NO_CELL)
        return codes


class L1(Penalty):
    """A user's penalty: the l1 norm of the slopes, biases free."""

    def __init__(self, strength):
        self.strength = strength

    def value(self, theta):
        return self.strength * float(np.abs(self.layout.split(theta)[0]).sum())

    def prox(self, theta, step):
        slopes, biases = self.layout.split(theta)
        shrunk = np.sign(slopes) * np.maximum(np.abs(slopes) - step * self.strength, 0)
        return self.layout.join(shrunk, biases)


class LogCosh(Loss):
    """A user's loss: log cosh(f - y)."""

    name = "log_cosh"
    max_curvature = 1.0

    def row_loss(self, y, f):
        return np.logaddexp(f - y, y - f) - np.log(2)

    def row_gradient(self, y, f):
        return np.tanh(f - y)

    def row_curvature(self, y, f):
        return 1 - np.tanh(f - y) ** 2

    def best_constant(self, y, s):
        return np.median(y)


def by_coefficients(model, X):
    """offset_ + sum over partitions of coef_[cell] @ x + intercept_[cell], as documented."""
    starts = np.concatenate([[0], np.cumsum(model.partitioner_.n_cells_)[:-1]])
    rows = []
    for x, row in zip(X, model.apply(X), strict=True):
        cells = (starts + row)[row != NO_CELL]
        slopes = np.tensordot(model.coef_[cells].sum(axis=0), x, axes=(0, 0))
        rows.append(model.offset_ + slopes + model.intercept_[cells].sum(axis=0))
    return np.array(rows)


def raw(model, X):
    """Predictions on the scale of the loss."""
    return getattr(model, "decision_function", model.predict)(X)


# -- the fitted model --------------------------------------------------------------------------


@pytest.mark.parametrize("cells", ["linear", "constant"])
@pytest.mark.parametrize("penalty", ["auto", RIDGE])
@pytest.mark.parametrize(
    ("estimator", "y", "shape"),
    [
        (JOPLEnRegressor, 1000 + 50 * Y, ()),
        (JOPLEnClassifier, BINARY, ()),
        (JOPLEnClassifier, THREE, (3,)),
    ],
)
def test_coefficients_in_input_units_give_the_predictions(estimator, y, shape, penalty, cells):
    far = X * [1, 10, 1e3, 1e-3, 1, 1] + [0, 5, 1e4, 0, -3, 0]
    cv = 3 if penalty == "auto" else None
    model = estimator(SMALL, penalty=penalty, cells=cells, cv=cv, random_state=0).fit(far, y)
    n_cells = int(model.partitioner_.n_cells_.sum())
    assert model.coef_.shape == (n_cells, 6, *shape)
    assert model.intercept_.shape == (n_cells, *shape)
    assert np.shape(model.offset_) == shape
    expected = by_coefficients(model, far)
    np.testing.assert_allclose(raw(model, far), expected, rtol=1e-7, atol=1e-7 * np.ptp(expected))
    if cells == "constant":
        assert not model.coef_.any()
    elif penalty is RIDGE:
        assert np.abs(model.coef_).max() > 0


@pytest.mark.parametrize("cells", ["linear", "constant"])
def test_regressor_solves_the_stated_problem(cells):
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, cells=cells, random_state=0).fit(X, Y)
    z = (Y - Y.mean()) / Y.std()
    solution = fit_cells(
        StandardScaler().fit_transform(X), model.apply(X), z, penalty=RIDGE, cells=cells, tol=1e-10
    )
    np.testing.assert_allclose(model.solution_.coef, solution.coef, atol=1e-7)
    np.testing.assert_allclose(model.solution_.intercept, solution.intercept, atol=1e-7)
    assert model.solution_.objective == pytest.approx(solution.objective, rel=1e-9)
    assert model.solution_.converged
    assert model.n_iter_ == model.solution_.n_iter
    assert not model.report_.joint.setting
    assert model.cv_results_ is None
    assert model.penalty_ is RIDGE


@pytest.mark.parametrize("solver", ["auto", "dual", "pcg", "fista"])
def test_one_cell_is_ridge_regression(solver):
    strength = 0.2
    model = JOPLEnRegressor(
        RootCell(),
        root_cell=False,
        penalty=Frobenius(strength, 0),
        solver=solver,
        tol=1e-10,
        max_iter=5000,
    ).fit(X, Y)
    ridge = make_pipeline(StandardScaler(), Ridge(strength * len(Y))).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), ridge.predict(X), rtol=1e-7)


@pytest.mark.parametrize("y", [BINARY, THREE], ids=["binary", "multiclass"])
def test_one_cell_is_logistic_regression(y):
    strength = 0.05
    model = JOPLEnClassifier(
        RootCell(), root_cell=False, penalty=Frobenius(strength, 0), tol=1e-9
    ).fit(X, y)
    peer = LogisticRegression(C=1 / (strength * len(y)), tol=1e-10, max_iter=10_000)
    peer = make_pipeline(StandardScaler(), peer).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-5)


def test_solvers_agree():
    answers = [
        JOPLEnRegressor(SMALL, penalty=RIDGE, solver=solver, tol=1e-8, max_iter=20_000).set_params(
            random_state=0
        )
        for solver in ("dual", "pcg", "newton", "fista")
    ]
    first, *others = [model.fit(X, Y).predict(X) for model in answers]
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-4)


@pytest.mark.parametrize("y", [BINARY, THREE], ids=["binary", "multiclass"])
def test_classifier_answers_agree_with_each_other(y):
    model = JOPLEnClassifier(SMALL, penalty=RIDGE, random_state=0).fit(X, y)
    scores, shares, labels = model.decision_function(X), model.predict_proba(X), model.predict(X)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert shares.shape == (len(y), len(model.classes_))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(labels, model.classes_[shares.argmax(axis=1)])
    if scores.ndim == 1:
        np.testing.assert_array_equal(labels == "yes", scores > 0)
        np.testing.assert_allclose(shares[:, 1], 1 / (1 + np.exp(-scores)))
    else:
        odds = np.exp(scores)
        np.testing.assert_allclose(shares, odds / odds.sum(axis=1, keepdims=True))


def test_root_cell_is_the_last_partition():
    with_root = JOPLEnRegressor(SMALL, penalty=RIDGE).fit(X, Y)
    without = JOPLEnRegressor(SMALL, penalty=RIDGE, root_cell=False).fit(X, Y)
    assert with_root.apply(X).shape[1] == without.apply(X).shape[1] + 1
    assert not with_root.apply(X)[:, -1].any()
    assert with_root.partitioner_.n_cells_[-1] == 1


def test_apply_gives_cells_within_their_number():
    model = JOPLEnRegressor(SMALL, penalty=RIDGE).fit(X, Y)
    codes = model.apply(X)
    assert codes.dtype == np.int32
    np.testing.assert_array_equal(codes.max(axis=0) + 1, model.partitioner_.n_cells_)
    assert codes.min() == 0


def test_importances_rank_informative_features_first():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 6))
    target = 2 * Z[:, 4] + 3 * np.abs(Z[:, 1]) + 0.1 * rng.normal(size=200)
    for y, estimator in [(target, JOPLEnRegressor), (target > np.median(target), JOPLEnClassifier)]:
        for cells in ("linear", "constant"):
            model = estimator(penalty=RIDGE, cells=cells, random_state=0).fit(Z, y)
            assert model.feature_importances_.sum() == pytest.approx(1)
            assert (model.feature_importances_ >= 0).all()
            assert set(np.argsort(model.feature_importances_)[-2:]) == {1, 4}


def test_cell_starts_and_log_probabilities():
    rows, labels = load_wine(return_X_y=True)
    model = JOPLEnClassifier("random_forest", penalty=Frobenius(0.01), random_state=0)
    model.fit(rows, labels)
    cells = model.apply(rows[:1])[0] + model.cell_starts_
    slopes, biases = model.coef_[cells].sum(axis=0), model.intercept_[cells].sum(axis=0)
    raw = model.offset_ + rows[0] @ slopes + biases
    np.testing.assert_allclose(model.decision_function(rows[:1])[0], raw)
    logs = model.predict_log_proba(rows)
    np.testing.assert_allclose(np.exp(logs), model.predict_proba(rows))


# -- outside of what was seen ------------------------------------------------------------------


@pytest.mark.parametrize("penalty", ["auto", RIDGE])
def test_far_rows_are_clipped_to_the_training_range(penalty):
    model = JOPLEnRegressor(SMALL, penalty=penalty, random_state=0).fit(X, Y)
    edge = X.max(axis=0)
    edges = model.predict([edge, X.min(axis=0)])
    for far in (10.0, 1e6, 1e300):
        np.testing.assert_allclose(model.predict([edge + far, X.min(axis=0) - far]), edges)


def test_without_clipping_cells_extrapolate_linearly():
    model = JOPLEnRegressor(SMALL, penalty=RIDGE, clip=False, random_state=0).fit(X, Y)
    far = np.linspace(2, 9, 8)[:, None] * np.ones(6)
    assert len(np.unique(model.apply(far), axis=0)) == 1
    np.testing.assert_allclose(model.predict(far), by_coefficients(model, far))
    steps = np.diff(model.predict(far))
    np.testing.assert_allclose(steps, steps[0])
    assert abs(steps[0]) > 0.1


def test_rows_in_cells_without_training_rows_get_a_zero_contribution():
    rng = np.random.default_rng(0)
    seen = rng.uniform(0, 3, size=(90, 2))
    y = seen @ [1.0, -2.0] + np.floor(seen[:, 0])
    for root_cell in (False, True):
        model = JOPLEnRegressor(Floors(), penalty=RIDGE, root_cell=root_cell, clip=False)
        model.fit(seen, y)
        new = np.array([[7.5, 8.5], [-4.5, 1.5]])
        codes = model.apply(new)
        np.testing.assert_array_equal(codes[:, :2], [[NO_CELL, NO_CELL], [NO_CELL, 1]])
        np.testing.assert_allclose(model.predict(new), by_coefficients(model, new))
        if not root_cell:
            assert model.predict(new)[0] == pytest.approx(y.mean())


# -- a user's own parts ------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", ["auto", RIDGE])
def test_own_partitioner(penalty):
    rng = np.random.default_rng(0)
    Z = rng.uniform(-2, 2, size=(150, 2))
    y = np.where(Z[:, 0] > 0, Z[:, 1], 3.0) + 0.01 * rng.normal(size=150)
    mine = Floors()
    model = JOPLEnRegressor(mine, penalty=penalty).fit(Z[:100], y[:100])
    assert not hasattr(mine, "seen_")
    assert model.apply(Z).shape == (150, 3)
    assert model.score(Z[100:], y[100:]) > JOPLEnRegressor(RootCell(), penalty=RIDGE).fit(
        Z[:100], y[:100]
    ).score(Z[100:], y[100:])
    labels = JOPLEnClassifier(mine, penalty=penalty).fit(Z, y > 1).predict(Z)
    assert np.mean(labels == (y > 1)) > 0.9


def test_own_penalty_is_minimised_by_fista():
    strength = 0.1
    model = JOPLEnRegressor(RootCell(), root_cell=False, penalty=L1(strength), tol=1e-9).fit(X, Y)
    z = (Y - Y.mean()) / Y.std()
    lasso = Lasso(strength, tol=1e-12).fit(StandardScaler().fit_transform(X), z)
    assert model.solution_.solver == "fista"
    assert 0 < np.count_nonzero(lasso.coef_) < 6
    np.testing.assert_allclose(model.solution_.coef[0], lasso.coef_, atol=1e-6)
    np.testing.assert_array_equal(model.coef_[0] == 0, lasso.coef_ == 0)


def test_own_loss_is_minimised():
    codes = Floors().fit(4 * X).apply(4 * X)
    arguments = {"loss": LogCosh(), "penalty": RIDGE, "tol": 1e-8, "max_iter": 20_000}
    newton, fista = (
        fit_cells(X, codes, Y, solver=solver, **arguments) for solver in ("newton", "fista")
    )
    assert newton.objective == pytest.approx(fista.objective, rel=1e-6)
    outlier = Y.copy()
    outlier[0] += 1e3
    robust = fit_cells(X, codes, outlier, **arguments).predict(X, codes)
    squared = fit_cells(X, codes, outlier, penalty=RIDGE).predict(X, codes)
    assert np.abs(robust - Y)[1:].mean() < 0.1 * np.abs(squared - Y)[1:].mean()


# -- the same rows, the same model -------------------------------------------------------------

PARTITIONERS = {
    "lightgbm": SMALL,
    "forest": RandomForestPartitioner(10, 6),
    "voronoi": VoronoiPartitioner(10, 4),
    "rotated": RotatedPartitioner(LightGBMPartitioner(10, 4), 3),
    "union": [LightGBMPartitioner(6, 4), ExtraTreesPartitioner(6, 6)],
}


@pytest.fixture(params=PARTITIONERS)
def seeded_model(request):
    return JOPLEnRegressor(PARTITIONERS[request.param], penalty=RIDGE, random_state=0)


def test_the_order_of_rows_does_not_matter(seeded_model):
    expected = seeded_model.fit(X, Y).predict(X)
    order = np.random.default_rng(0).permutation(len(Y))
    np.testing.assert_array_equal(seeded_model.fit(X[order], Y[order]).predict(X), expected)


def test_weights_stand_for_repeated_and_removed_rows(seeded_model):
    weights = np.repeat([2, 0, 1], 40)
    index = np.concatenate([np.arange(40), np.arange(40), np.arange(80, 120)])
    expected = seeded_model.fit(X[index], Y[index]).predict(X)
    np.testing.assert_array_equal(seeded_model.fit(X, Y, weights).predict(X), expected)
    assert not np.array_equal(seeded_model.fit(X, Y).predict(X), expected)


def test_only_relative_weights_matter(seeded_model):
    weights = np.linspace(1, 3, len(Y))
    expected = seeded_model.fit(X, Y, weights).predict(X)
    np.testing.assert_allclose(seeded_model.fit(X, Y, 1e-6 * weights).predict(X), expected)


def test_the_seed_decides(seeded_model):
    first = seeded_model.fit(X, Y).predict(X)
    np.testing.assert_array_equal(seeded_model.fit(X, Y).predict(X), first)
    assert not np.array_equal(seeded_model.set_params(random_state=1).fit(X, Y).predict(X), first)
    state = seeded_model.set_params(random_state=np.random.RandomState(5)).fit(X, Y).predict(X)
    again = seeded_model.set_params(random_state=np.random.RandomState(5)).fit(X, Y).predict(X)
    np.testing.assert_array_equal(state, again)


def test_threads_do_not_matter(seeded_model):
    first = seeded_model.fit(X, Y).predict(X)
    for n_jobs in (2, -1):
        model = clone(seeded_model).set_params(n_jobs=n_jobs).fit(X, Y)
        np.testing.assert_array_equal(model.predict(X), first)
