"""Fitting the selected features once more with a weaker penalty."""

import numpy as np
import pytest

from blend_fits import small_fits
from jointleaf import L21, DirtyLasso, DirtyLInf, MultiTaskJOPLEnRegressor, fit_cells, fit_tasks
from jointleaf._core.layout import CellLayout, TaskLayout
from jointleaf._fit import strengths
from jointleaf.partitions import VoronoiPartitioner
from tables import on_tables


def make_task(rng, n, own, d=8):
    X = rng.standard_normal((n, d))
    y = 2 * np.sin(X[:, 0]) + X[:, own] + 0.2 * rng.standard_normal(n)
    return X, (X[:, :2] > 0).astype(int), y


@pytest.fixture
def tasks():
    rng = np.random.default_rng(0)
    return [make_task(rng, n, own) for n, own in ((90, 2), (60, 3), (120, 4))]


def test_one_task_is_the_group_lasso_on_the_selected_columns(tasks):
    X, codes, y = tasks[0]
    strict = fit_cells(X, codes, y, penalty=L21(0.3), tol=1e-10, max_iter=20000)
    chosen = np.flatnonzero(strict.slope_norms)
    assert 0 < len(chosen) < X.shape[1]
    again = fit_cells(X[:, chosen], codes, y, penalty=L21(0.03), tol=1e-10, max_iter=20000)
    penalty = DirtyLasso(common=None, task=0.3, relax=0.1)
    found = fit_tasks([tasks[0]], penalty=penalty, tol=1e-10, max_iter=20000)
    np.testing.assert_allclose(found.objective, again.objective, rtol=1e-9)
    np.testing.assert_allclose(found.tasks[0].coef[:, chosen], again.coef, atol=1e-5)
    others = np.setdiff1d(np.arange(X.shape[1]), chosen)
    assert not found.tasks[0].coef[:, others].any()


@pytest.mark.parametrize("kind", [DirtyLasso, DirtyLInf])
def test_what_is_not_selected_stays_out_and_errors_fall(tasks, kind):
    options = {"tol": 1e-7, "max_iter": 5000}
    strict = fit_tasks(tasks, penalty=kind(0.6, 0.4, bias_strength=0.1), **options)
    loose = fit_tasks(tasks, penalty=kind(0.6, 0.4, bias_strength=0.1, relax=0.1), **options)
    plain = fit_tasks(tasks, penalty=kind(0.06, 0.04, bias_strength=0.1), **options)
    selected = [task.slope_norms > 0 for task in strict.tasks]
    assert any(np.sum(task.slope_norms > 0) > np.sum(own) for task, own in
               zip(plain.tasks, selected, strict=True))  # fmt: skip
    for (X, codes, y), before, after, own in zip(
        tasks, strict.tasks, loose.tasks, selected, strict=True
    ):
        assert not (after.slope_norms > 0)[~own].any()
        errors = [np.mean((s.predict(X, codes) - y) ** 2) for s in (before, after)]
        assert errors[1] < errors[0]
    assert loose.converged


@pytest.mark.parametrize("kind", [DirtyLasso, DirtyLInf])
def test_the_proximal_map_on_a_support_is_optimal(kind):
    rng = np.random.default_rng(1)
    layout = TaskLayout([CellLayout((2,), 4), CellLayout((3,), 4)], (1.0, 0.7))
    support = rng.random((4, 2)) < 0.5
    support[0] = True
    bound = on_tables(kind(1.3, 1.0).relaxed(1.0, support), layout)
    theta = 3 * rng.standard_normal((5, 5))
    spread = np.repeat(support, [2, 3], axis=1)
    best = bound.prox(theta, 0.4)
    assert not best[:, :-1].T[~spread].any()

    def cost(z):
        return 0.5 * np.sum((z - theta) ** 2) + 0.4 * bound.value(z)

    mask = np.ones_like(theta, bool)
    mask[:, :-1] = spread.T
    for _ in range(300):
        move = 10.0 ** rng.uniform(-4, 0) * rng.standard_normal(theta.shape) * mask
        assert cost(best + move) >= cost(best) - 1e-12


def test_shrinking_in_a_weighted_norm_keeps_to_the_support():
    rng = np.random.default_rng(2)
    layout = TaskLayout([CellLayout((2,), 4), CellLayout((3,), 4)], (1.0, 0.7))
    support = np.array([[True, True], [True, False], [False, True], [False, False]])
    bound = DirtyLasso(1.3, 1.0).relaxed(1.0, support).bind(layout)
    W = 3 * rng.standard_normal((4, 5))
    spread = np.repeat(support, [2, 3], axis=1)
    equal = bound.shrink_weighted(W, 0.3, np.full(5, 1.0))
    np.testing.assert_allclose(equal, bound.shrink(W, 0.3), atol=1e-12)
    assert not bound.shrink_weighted(W, 0.3, rng.uniform(0.5, 2, 5))[~spread].any()
    np.testing.assert_allclose(
        bound.restricted(np.array([1, 2])).shrink(W[1:3], 0.3), bound.shrink(W, 0.3)[1:3]
    )


def test_cross_validation_chooses_it_and_finds_the_features(monkeypatch):
    grid = strengths.ratio_grid
    monkeypatch.setattr(strengths, "ratio_grid", lambda weights: grid(weights, 2))  # for speed
    rng = np.random.default_rng(3)
    tasks = {}
    for name, own, n in (("a", 2, 100), ("b", 3, 80), ("c", 4, 120)):
        X, _, y = make_task(rng, n, own)
        tasks[name] = X, y
    cells = VoronoiPartitioner(n_partitions=4, n_cells=3)
    options = {"cv": 2, "random_state": 0}
    with small_fits():
        model = MultiTaskJOPLEnRegressor(cells, penalty=DirtyLasso(), **options).fit(tasks)
    assert model.common_features_.tolist() == [0]
    assert {k: v.tolist() for k, v in model.task_features_.items()} == {
        "a": [2],
        "b": [3],
        "c": [4],
    }
    tried = model.cv_results_["param_relax"][model.cv_results_["on_path"].astype(bool)]
    assert set(np.round(tried, 3)) == {1.0, 0.316, 0.1}
    few = {name: (X[:40], y[:40]) for name, (X, y) in tasks.items()}
    fixed = MultiTaskJOPLEnRegressor(cells, penalty=DirtyLasso(relax=1.0), **options)
    with small_fits():
        assert set(fixed.fit(few).cv_results_["param_relax"]) == {1.0}
    assert fixed.penalty_.relax == 1.0


@pytest.mark.parametrize("relax", [0, -1, 1.5, "no", None.__class__])
def test_wrong_factors_are_rejected(relax):
    with pytest.raises((TypeError, ValueError), match="relax"):
        DirtyLasso(0.2, 0.1, relax=relax)


def test_auto_needs_strengths_to_choose():
    with pytest.raises(ValueError, match="relax='auto' is chosen together"):
        DirtyLasso(0.2, 0.1, relax="auto")
    assert DirtyLasso(0.2, 0.1).relax == 1.0
    assert DirtyLasso().relax == "auto"
    assert "relax=0.1" in repr(DirtyLasso(0.2, 0.1, relax=0.1))
