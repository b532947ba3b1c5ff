"""Global pruning: siblings are merged where it costs least, and all cells fitted jointly again."""

import pickle
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from jointleaf import L21, Frobenius, JOPLEnClassifier, JOPLEnRegressor, prune, refine
from jointleaf._core.solvers.base import solve
from jointleaf._fit.pruning import Descent, merge, merging_costs, prune_to_size
from jointleaf.estimators._fitted import fitted_frame, read_fit_rows
from jointleaf.estimators._pruning import joint_candidate, make_walk
from jointleaf.partitions import (
    LightGBMPartitioner,
    RandomForestPartitioner,
    RootCell,
    RotatedPartitioner,
    UnionPartitioner,
    VoronoiPartitioner,
)
from jointleaf.plot import PruningDisplay

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

X, Y = make_friedman1(360, n_features=6, noise=0.5, random_state=0)
X, X_NEW, Y, Y_NEW = X[:240], X[240:], Y[:240], Y[240:]
BINARY = (np.median(Y) < Y).astype(int)
RIDGE = Frobenius(1e-3)
TREES = LightGBMPartitioner(8, 6)


def fit(partitioner=TREES, y=Y, estimator=JOPLEnRegressor, X=X, penalty=RIDGE, **options):
    return estimator(partitioner, penalty=penalty, random_state=0, **options).fit(X, y)


def total(model):
    return int(model.partitioner_.n_cells_.sum())


def mse(model, X=X_NEW, y=Y_NEW):
    return np.mean((model.predict(X) - y) ** 2)


@pytest.fixture(scope="module")
def model():
    return fit()


@pytest.fixture(scope="module")
def pruned(model):
    return prune(model, X, Y, step_fraction=0.25)


def prepared(model, X=X, y=Y, weight=None):
    """The problem of a fitted model and its weights."""
    rows = read_fit_rows(model, X, y, weight)
    frame = fitted_frame(model)
    start = joint_candidate(model)
    fitted = make_walk(model, start, frame, rows, 0.1).fit(start)
    return start, fitted.problem


def check_consistent(model, X=X):
    """Cells, layout, weights and predictions belong together."""
    codes, n_cells = model.apply(X), model.partitioner_.n_cells_
    layout = model.solution_.layout
    assert codes.shape == (len(X), len(n_cells))
    assert (codes < n_cells).all()
    assert layout.cells_per_partition == tuple(n_cells)
    assert len(model.coef_) == len(model.intercept_) == n_cells.sum() == layout.n_cells
    np.testing.assert_array_equal(model.cell_starts_, np.cumsum(n_cells) - n_cells)
    cells = codes + model.cell_starts_
    inside = codes >= 0
    raw = model.offset_ + np.zeros((len(X), *model.intercept_.shape[1:]))
    for n, (row, known) in enumerate(zip(cells, inside, strict=True)):
        own = row[known]
        raw[n] += np.tensordot(X[n], model.coef_[own].sum(axis=0), 1)
        raw[n] += model.intercept_[own].sum(axis=0)
    np.testing.assert_allclose(model._raw_predictions(X), raw, rtol=1e-6, atol=1e-8)


# -- costs and refits ------------------------------------------------------------------------------


def test_partitioners_merge_and_drop_and_stay_what_they_were(model):
    union = model.partitioner_
    pairs, before = union.siblings(), union.apply(X)
    chosen = np.arange(len(pairs)) % 3 == 0
    merged = union.with_merged(chosen)
    assert merged.n_cells_.sum() == union.n_cells_.sum() - chosen.sum()
    codes = merged.apply(X)
    for p, a, b in pairs[chosen]:
        both = (before[:, p] == a) | (before[:, p] == b)
        assert len(np.unique(codes[both, p])) == 1
    for p in range(before.shape[1]):  # nothing else is joined
        n_pairs = np.sum(chosen & (pairs[:, 0] == p))
        assert len(np.unique(codes[:, p])) == len(np.unique(before[:, p])) - n_pairs
    kept = np.arange(len(merged.n_cells_)) % 2 == 0
    np.testing.assert_array_equal(merged.with_partitions(kept).apply(X), codes[:, kept])
    np.testing.assert_array_equal(union.apply(X), before)
    with pytest.raises(NotImplementedError, match="VoronoiPartitioner cannot merge cells"):
        VoronoiPartitioner(2, 3).fit(X).with_merged(np.ones(1, bool))


@pytest.mark.parametrize("kind", ["regression", "binary", "three classes", "constant"])
def test_costs_are_those_of_the_definition(kind):
    y = {"binary": BINARY, "three classes": np.digitize(Y, np.quantile(Y, [0.3, 0.6]))}.get(kind, Y)
    estimator = JOPLEnRegressor if y is Y else JOPLEnClassifier
    cells = "constant" if kind == "constant" else "linear"
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    model = fit(LightGBMPartitioner(3, 5), y, estimator, cells=cells)
    start, problem = prepared(model, y=y, weight=weight)
    theta, pairs = start.weights, model.partitioner_.siblings()
    costs = merging_costs(problem, theta, pairs)
    f = problem.design.matvec(problem.layout.from_cells(theta))
    h, cells_of = problem.loss_curvature(f), problem.design.cells()
    offsets = problem.layout.offsets
    for cost, (p, a, b) in zip(costs, pairs, strict=True):
        rows = {c: np.flatnonzero(cells_of[:, p] == offsets[p] + c) for c in (a, b)}
        mass = {c: problem.s[rows[c]].sum() for c in (a, b)}
        mean = sum(mass[c] * theta[offsets[p] + c] for c in (a, b)) / (mass[a] + mass[b])
        brute = 0.0
        for c in (a, b):
            for n in rows[c]:
                move = problem.design.X[n] @ (mean - theta[offsets[p] + c])
                brute += 0.5 * np.sum(h[n] * move**2)
        assert cost == pytest.approx(brute, rel=1e-9)


def test_for_the_squared_error_costs_are_the_rise_of_the_loss_without_residuals(model):
    """Where targets equal the predictions, the loss rises by exactly the cost."""
    start, problem = prepared(model)
    pairs = model.partitioner_.siblings()
    costs = merging_costs(problem, start.weights, pairs)
    f = problem.design.matvec(problem.layout.from_cells(start.weights))
    for k in (0, 5, len(pairs) - 1):
        merged = merge(start, problem, np.arange(len(pairs)) == k)
        rows = read_fit_rows(model, X, Y)
        design = fitted_frame(model).design(rows.X, merged.partitioner, "linear")
        change = design.matvec(design.layout.from_cells(merged.weights)) - f
        assert 0.5 * np.average(change**2, weights=rows.s) == pytest.approx(costs[k], rel=1e-6)


def test_leaves_without_rows_are_merged_first_and_for_nothing():
    forest = RandomForestRegressor(5, max_leaf_nodes=12, random_state=0).fit(X, Y)
    model = refine(forest, X[:40], Y[:40], penalty=RIDGE)
    pairs = model.partitioner_.siblings()
    assert (pairs[:, 1:] < 0).any()
    small = prune(model, X[:40], Y[:40], n_cells=total(model) - 1, step_fraction=0.5)
    left = small.partitioner_.siblings()
    assert (left[:, 1:] < 0).sum() < (pairs[:, 1:] < 0).sum()
    assert 0.5 * total(model) < total(small) < total(model)
    check_consistent(small, X[:40])


@pytest.mark.parametrize("solver", ["pcg", "dual", "fista"])
def test_a_warm_start_ends_where_a_cold_one_does(solver):
    options = {"solver": solver, "tol": 1e-9, "max_iter": 20000}
    small = prune(fit(LightGBMPartitioner(4, 5), **options), X, Y, n_cells=12)
    _, problem = prepared(small)
    cold = solve(problem, solver, tol=1e-9, max_iter=20000)
    assert small.solution_.objective == pytest.approx(cold.objective, rel=1e-9)
    np.testing.assert_allclose(
        problem.design.matvec(small.solution_.theta), problem.design.matvec(cold.theta), atol=1e-5
    )


# -- how far ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_cells", [30, 10, 1])
def test_pruning_to_a_size(model, n_cells):
    before = pickle.dumps(model)
    small = prune(model, X, Y, n_cells=n_cells)
    assert pickle.dumps(model) == before
    assert n_cells - 2 <= total(small) <= n_cells
    assert type(small) is type(model)
    record = small.pruning_
    assert (np.diff(record.n_cells) < 0).all()
    assert (record.n_cells_before, record.n_cells_after) == (total(model), total(small))
    assert record.chosen == len(record.n_cells) - 1
    assert record.valid_loss is None
    losses = 0.5 * np.mean((small.predict(X) - Y) ** 2) / Y.var()
    assert record.train_loss[-1] == pytest.approx(losses, rel=1e-3)
    assert (small.partitioner_.n_cells_[:-1] > 1).all()
    assert small.solution_.converged
    check_consistent(small)


def test_all_cells_and_nothing_to_do(model):
    same = prune(model, X, Y, n_cells=total(model))
    np.testing.assert_allclose(same.predict(X_NEW), model.predict(X_NEW), rtol=1e-5)
    assert list(same.pruning_.n_cells) == [total(model)]


def test_without_a_root_cell_one_partition_is_left(model):
    small = prune(fit(root_cell=False), X, Y, n_cells=1)
    assert list(small.partitioner_.n_cells_) == [1]
    check_consistent(small)


def test_weights_of_partitions_follow(model):
    weights = np.append(np.linspace(0.5, 1.5, 8), 3.0)
    given = Frobenius(1e-3, partition_weights=weights)
    big = fit(penalty=given)
    small = prune(big, X, Y, n_cells=10)
    kept = small.penalty_.partition_weights
    assert len(kept) == len(small.partitioner_.n_cells_) < 9
    assert kept[-1] == 3.0
    assert np.isin(kept, weights).all()
    assert len(big.penalty_.partition_weights) == 9
    # A tree stays with its weight: its features are those that it had.
    trees = big.partitioner_.partitioners_[0].trees_
    left = small.partitioner_.partitioners_[0].trees_
    for weight, first in zip(kept[:-1], left.starts[:-1], strict=True):
        p = int(np.flatnonzero(weights == weight)[0])
        root = trees.starts[p]
        assert trees.feature[root] == left.feature[first]
        assert trees.threshold[root] == left.threshold[first]


def test_validation_rows_choose_the_smallest_model_within_the_tolerance(model):
    small = prune(model, X, Y, X_val=X_NEW, y_val=Y_NEW, tol=0.1, step_fraction=0.25)
    record = small.pruning_
    within = np.flatnonzero(record.valid_loss <= 1.1 * record.valid_loss.min())
    assert len(within) > 1
    assert record.chosen == within[-1]
    assert total(small) == record.n_cells[record.chosen] == record.n_cells_after
    expected = 0.5 * mse(small) / Y.var()
    assert record.valid_loss[record.chosen] == pytest.approx(expected, rel=1e-2)
    assert record.n_cells[-1] == 1 or record.valid_loss[-1] > 1.2 * record.valid_loss.min()
    assert mse(small) <= 1.12 * mse(model)
    factor = record.strength_factor[record.chosen]
    assert small.penalty_.strength == pytest.approx(factor * 1e-3)
    assert small.penalty_.bias_strength == pytest.approx(factor * 1e-3)
    check_consistent(small)


def test_strengths_are_tried_on_the_way_where_the_penalty_is_a_ridge(model):
    strong = fit(penalty=Frobenius(1.0))
    record = prune(strong, X, Y, X_val=X_NEW, y_val=Y_NEW, step_fraction=0.4).pruning_
    assert record.strength_factor[0] == 1.0
    assert record.strength_factor[-1] < 0.5
    sparse = fit(LightGBMPartitioner(3, 4), penalty=L21(1e-2))
    record = prune(sparse, X, Y, X_val=X_NEW, y_val=Y_NEW, step_fraction=0.4).pruning_
    assert (record.strength_factor == 1.0).all()


def test_by_default_the_size_is_chosen_on_rows_held_out(model, pruned):
    record = pruned.pruning_
    assert total(pruned) <= total(model) / 2
    assert mse(pruned) <= 1.05 * mse(model)
    assert record.n_cells[0] == total(model)
    within = np.flatnonzero(record.valid_loss <= 1.005 * record.valid_loss.min())
    assert record.chosen == within[-1]
    assert record.n_cells[record.chosen] - 2 <= total(pruned) <= record.n_cells[record.chosen]
    # Honest: rows held out are predicted no better than new ones.
    assert record.valid_loss[0] > 0.6 * (0.5 * mse(model) / Y.var())
    assert record.train_loss[0] < record.valid_loss[0]
    check_consistent(pruned)


@pytest.mark.parametrize("is_refined", [False, True])
def test_folds_never_see_their_validation_rows(monkeypatch, model, is_refined):
    seen = []
    start = Descent.__init__

    def watch(self, walks, valids, tol):
        seen.append((walks, valids))
        start(self, walks, valids, tol)

    if is_refined:
        forest = RandomForestRegressor(3, max_leaf_nodes=5, random_state=0).fit(X, Y)
        model = refine(forest, X, Y, penalty=RIDGE, random_state=0)
    monkeypatch.setattr(Descent, "__init__", watch)
    prune(model, X, Y, step_fraction=0.9)
    ((walks, valids),) = seen
    assert len(walks) == 5
    fitted = model.partitioner_.partitioners_[0].trees_
    for walk, valid in zip(walks, valids, strict=True):
        rows = {tuple(row) for row in valid.X}
        assert len(rows) == 48
        assert not rows & {tuple(row) for row in walk.rows.X}
        grown = clone(walk.start.partitioner).fit(walk.rows.X, walk.rows.y, walk.rows.s)
        np.testing.assert_array_equal(grown.apply(X), walk.start.partitioner.apply(X))
        trees = walk.start.partitioner.partitioners_[0].trees_
        assert not np.array_equal(trees.threshold, fitted.threshold)


def test_it_can_be_repeated_and_the_order_of_rows_does_not_matter(model, pruned):
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = prune(model, X[order], Y[order], step_fraction=0.25)
    np.testing.assert_allclose(shuffled.predict(X_NEW), pruned.predict(X_NEW), rtol=1e-6)


def test_weights_of_rows_count(model):
    weight = np.where(np.arange(len(X)) % 2, 1.0, 0.0)
    small = prune(model, X, Y, weight, n_cells=20)
    half = prune(model, X[1::2], Y[1::2], n_cells=20)
    np.testing.assert_allclose(small.predict(X_NEW), half.predict(X_NEW), rtol=1e-6)


# -- kinds of models -------------------------------------------------------------------------------


def test_classes():
    rows, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    for target, kept in ((names, slice(None)), (names[:100], slice(100))):
        model = fit(LightGBMPartitioner(5, 4), target, JOPLEnClassifier, rows[kept])
        small = prune(model, rows[kept], target, step_fraction=0.5)
        assert total(small) < total(model)
        assert small.score(rows[kept], target) > 0.9
        assert list(small.classes_) == list(model.classes_)
        assert small.predict_proba(rows[kept]).shape == (len(target), len(model.classes_))
        check_consistent(small, rows[kept])


def test_rotated_trees_are_pruned():
    model = fit([RotatedPartitioner(LightGBMPartitioner(6, 5), 3), LightGBMPartitioner(4, 5)])
    small = prune(model, X, Y, n_cells=20)
    assert total(small) <= 20
    check_consistent(small)
    kinds = {type(member).__name__ for member, _ in small.partitioner_.walk()}
    assert "RotatedPartitioner" in kinds


def test_unions_keep_what_has_no_siblings():
    parts = [LightGBMPartitioner(4, 5), VoronoiPartitioner(2, 3), RandomForestPartitioner(3, 6)]
    small = prune(fit(parts), X, Y, n_cells=7)
    assert list(small.partitioner_.n_cells_) == [3, 3, 1]
    check_consistent(small)
    middle = prune(fit(parts), X, Y, n_cells=25)
    assert 22 < total(middle) <= 25
    check_consistent(middle)
    inner = fit(UnionPartitioner([LightGBMPartitioner(3, 4), RootCell()]), root_cell=False)
    assert list(prune(inner, X, Y, n_cells=1).partitioner_.n_cells_) == [1]


def test_categories_and_missing_values():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(X[:, :3], columns=list("abc"))
    frame.loc[rng.random(len(X)) < 0.2, "b"] = np.nan
    category = rng.integers(0, 4, len(X))
    frame["kind"] = pandas.Categorical(np.array(["u", "v", "w", "z"])[category])
    model = fit(LightGBMPartitioner(8, 6), Y + 5 * (category == 2), X=frame)
    small = prune(model, frame, Y + 5 * (category == 2), n_cells=12)
    assert total(small) <= 12
    assert small.score(frame, Y + 5 * (category == 2)) > 0.5
    codes = small.apply(frame)
    assert (codes >= 0).all()
    assert (codes.max(axis=0) == small.partitioner_.n_cells_ - 1).all()


def test_refined_models_and_pickles():
    forest = RandomForestRegressor(6, max_leaf_nodes=8, random_state=0).fit(X, Y)
    model = refine(forest, X, Y, penalty=RIDGE, random_state=0)
    small = prune(model, X, Y, step_fraction=0.5)
    assert total(small) < total(model)
    loaded = pickle.loads(pickle.dumps(small))
    np.testing.assert_array_equal(loaded.predict(X_NEW), small.predict(X_NEW))
    np.testing.assert_array_equal(loaded.apply(X_NEW), small.apply(X_NEW))
    assert small.partitioner is forest
    lost = pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match=r"cannot be grown anew .* X_val and y_val, or n_cells"):
        prune(lost, X, Y)
    np.testing.assert_allclose(
        prune(lost, X, Y, n_cells=20).predict(X_NEW),
        prune(model, X, Y, n_cells=20).predict(X_NEW),
    )


def test_clones_and_later_fits_know_nothing_of_it(model, pruned):
    other = clone(pruned)
    assert not hasattr(other, "pruning_")
    assert str(other.get_params()) == str(model.get_params())
    again = pickle.loads(pickle.dumps(pruned)).fit(X, Y)
    assert not hasattr(again, "pruning_")
    np.testing.assert_array_equal(again.predict(X_NEW), model.predict(X_NEW))


def test_what_it_says_about_features():
    model = fit(X=np.c_[X, np.random.default_rng(0).random(len(X))])
    rows = np.c_[X, np.random.default_rng(0).random(len(X))]
    small = prune(model, rows, Y, n_cells=6)
    assert len(small.split_features_) < len(model.split_features_)
    gains = small.partitioner_.partitioners_[0].split_gains_
    unused = np.setdiff1d(np.arange(7), small.split_features_)
    assert unused.size
    assert (gains[unused] == 0).all()
    assert (gains[small.split_features_] > 0).all()
    assert small.feature_importances_.sum() == pytest.approx(1.0)
    assert not np.array_equal(small.feature_importances_, model.feature_importances_)
    assert small.slope_norms_.shape == (7,)
    alone = prune(model, rows, Y, n_cells=1)
    assert not alone.split_features_.size
    assert alone.feature_importances_.sum() == pytest.approx(1.0)


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_cells": 0}, ValueError, r"n_cells=0 .* number from 1 to 49"),
        ({"n_cells": 50}, ValueError, r"n_cells=50 .* number from 1 to 49"),
        ({"n_cells": 2.5}, TypeError, r"n_cells=2\.5 must be a whole number"),
        ({"n_cells": True}, TypeError, "n_cells=True must be a whole number"),
        ({"step_fraction": 0}, ValueError, "step_fraction=0 must be"),
        ({"step_fraction": 1.0}, ValueError, r"step_fraction=1\.0 is not possible: give a number"),
        ({"tol": -0.1}, ValueError, r"tol=-0\.1 must be"),
        ({"X_val": X_NEW}, ValueError, "X_val and y_val belong together"),
        ({"n_cells": 5, "X_val": X_NEW, "y_val": Y_NEW}, ValueError, "give one"),
        ({"sample_weight": [1.0]}, ValueError, "sample_weight has shape"),
    ],
)
def test_arguments_that_do_not_fit(model, options, error, message):
    with pytest.raises(error, match=message):
        prune(model, X, Y, **options)


def test_models_and_rows_that_do_not_fit(model, pruned):
    with pytest.raises(NotFittedError):
        prune(JOPLEnRegressor(), X, Y)
    with pytest.raises(TypeError, match="must be a JOPLEnRegressor or JOPLEnClassifier"):
        prune(Ridge().fit(X, Y), X, Y)
    with pytest.raises(ValueError, match="features"):
        prune(model, X[:, :4], Y)
    with pytest.raises(ValueError, match=r"(?s)no cells that one split divides.*trees"):
        prune(fit(VoronoiPartitioner(3, 4)), X, Y)
    with pytest.raises(ValueError, match="no cells that one split divides"):
        prune(fit(y=np.ones(len(X))), X, Y)
    with pytest.raises(ValueError, match=r"pruned already.*n_cells"):
        prune(pruned, X, Y)
    assert total(prune(pruned, X, Y, n_cells=5)) <= 5
    with pytest.raises(ValueError, match="different rows are too few"):
        prune(model, X[:2], Y[:2])
    binary = fit(y=BINARY, estimator=JOPLEnClassifier)
    with pytest.raises(ValueError, match="class 7"):
        prune(binary, X, np.where(BINARY, 7, 0))


# -- the picture -----------------------------------------------------------------------------------


def test_the_picture_shows_the_path(pruned):
    record = pruned.pruning_
    _, ax = plt.subplots()
    display = PruningDisplay.from_estimator(pruned, ax=ax)
    assert display.ax_ is ax
    training, validation = display.lines_
    np.testing.assert_array_equal(training.get_xydata(), np.c_[record.n_cells, record.train_loss])
    np.testing.assert_array_equal(validation.get_xydata(), np.c_[record.n_cells, record.valid_loss])
    assert ax.get_xscale() == "log"
    assert "cells" in ax.get_xlabel()
    assert "variance" in ax.get_ylabel()
    dot = ax.lines[-1]
    k = record.chosen
    assert dot.get_xydata().tolist() == [[record.n_cells[k], record.valid_loss[k]]]
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"chosen: {record.n_cells_after} of {record.n_cells_before} cells" in texts
    plt.close("all")


def test_the_picture_without_validation_and_of_other_models(model):
    display = PruningDisplay.from_estimator(prune(model, X, Y, n_cells=30))
    assert len(display.lines_) == 1
    display.figure_.draw_without_rendering()
    plt.close("all")
    with pytest.raises(ValueError, match=r"not pruned.*prune\(estimator, X, y\)"):
        PruningDisplay.from_estimator(model)
    with pytest.raises(NotFittedError):
        PruningDisplay.from_estimator(JOPLEnRegressor())


def test_candidates_with_linear_and_constant_partitions_keep_their_kinds():
    model = fit()
    rows = read_fit_rows(model, X, Y)
    frame, start = fitted_frame(model), joint_candidate(model)
    kinds = tuple("constant" if p % 2 else "linear" for p in range(len(start.kinds)))
    walk = make_walk(model, replace(start, kinds=kinds, weights=None), frame, rows, 0.5)
    path, small = prune_to_size(walk, start.n_cells // 4)
    assert small.n_cells <= start.n_cells // 4
    assert len(small.kinds) == len(small.partitioner.n_cells_) < len(kinds)
    assert set(small.kinds) == {"linear", "constant"}
    is_constant = np.repeat(np.array(small.kinds) == "constant", small.partitioner.n_cells_)
    assert not small.weights[is_constant, :-1].any()
    assert small.weights[~is_constant, :-1].any()
    assert path.train_loss[-1] < 0.5  # of a constant it is 1 / 2
