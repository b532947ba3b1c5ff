"""BoUTS: prices, both stages, the partitioner, and its errors for bad input."""

import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import check_estimator

from jointleaf import JOPLEnRegressor
from jointleaf._data.rows import Rows
from jointleaf.multitask import BoUTSClassifier, BoUTSPartitioner, BoUTSRegressor
from jointleaf.partitions._base import seeded

FREE = {"universal_price": 0.0, "task_price": 0.0}


def drawn(t, n, rng, d=12, noise=0.3):
    """Features 0 and 1 matter to all tasks, 2 + t to task t, the others to none."""
    X = rng.standard_normal((n, d))
    y = X[:, 0] + 1.2 * np.abs(X[:, 1]) * (-1) ** t + 0.9 * X[:, 2 + t]
    return X, (10.0**t) * (y + noise * rng.standard_normal(n))


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    return {name: drawn(t, 300 + 50 * t, rng) for t, name in enumerate("abc")}


@pytest.fixture(scope="module")
def model(tasks):
    return BoUTSRegressor().fit(tasks)


# -- boosting ------------------------------------------------------------------------------------


def test_one_task_without_prices_is_gradient_boosting():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((250, 5))
    y = X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3]
    ours = BoUTSRegressor(30, 20, min_samples_leaf=1, **FREE).fit(X, y)
    theirs = GradientBoostingRegressor(n_estimators=50, max_depth=3, random_state=0).fit(X, y)
    assert ours.trees_[0].n_trees == 50
    errors = [np.mean((m.predict(X) - y) ** 2) for m in (ours, theirs)]
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-6)


def test_two_classes_without_prices_are_gradient_boosting():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 4))
    y = np.where(X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.standard_normal(400) > 1, "yes", "no")
    ours = BoUTSClassifier(30, 20, min_samples_leaf=5, **FREE).fit(X, y)
    theirs = GradientBoostingClassifier(n_estimators=50, min_samples_leaf=5).fit(X, y)
    losses = [log_loss(y, m.predict_proba(X)) for m in (ours, theirs)]
    assert losses[0] < 1.1 * losses[1]
    assert (ours.predict(X) == y).mean() > 0.9


def test_features_of_all_tasks_and_of_each_are_found(tasks, model):
    assert model.task_names_ == ["a", "b", "c"]
    assert model.universal_features_.tolist() == [0, 1]
    own = {name: chosen.tolist() for name, chosen in model.task_features_.items()}
    assert own == {"a": [2], "b": [3], "c": [4]}
    rng = np.random.default_rng(9)
    for t, name in enumerate("abc"):
        X, y = drawn(t, 500, rng)
        assert 1 - np.var(y - model.predict(X, name)) / np.var(y) > 0.8
        used = np.flatnonzero(model.task_importances_[name])
        assert used.tolist() == [0, 1, 2 + t]
        assert model.trees_[name].split_features.tolist() == [0, 1, 2 + t]


def test_higher_prices_select_fewer_features(tasks):
    universal, own = [], []
    for price in (0.0, 0.02, 0.2, 2.0):
        fitted = BoUTSRegressor(20, 20, universal_price=price, task_price=price).fit(tasks)
        universal.append(len(fitted.universal_features_))
        own.append(sum(map(len, fitted.task_features_.values())) + universal[-1])
    assert universal == sorted(universal, reverse=True)
    assert own == sorted(own, reverse=True)
    assert universal[0] > 4
    assert universal[-1] == own[-1] == 0


def test_nothing_worth_its_price_leaves_the_mean(tasks):
    fitted = BoUTSRegressor(universal_price=2.0, task_price=2.0).fit(tasks)
    assert fitted.n_universal_trees_ == 0
    means = [y.mean() for _, y in tasks.values()]
    np.testing.assert_allclose(fitted.predict(np.zeros((2, 12))), np.tile(means, (2, 1)))


def test_only_universal_features_without_own_trees(tasks):
    fitted = BoUTSRegressor(n_task=0).fit(tasks)
    assert all(len(own) == 0 for own in fitted.task_features_.values())
    assert {trees.n_trees for trees in fitted.trees_.values()} == {fitted.n_universal_trees_}
    alone = BoUTSRegressor(n_universal=0).fit(tasks)
    assert len(alone.universal_features_) == 0
    assert alone.task_features_["b"].tolist() == [0, 1, 3]


def test_weights_are_repeated_rows(tasks):
    rng = np.random.default_rng(3)
    times = {name: rng.integers(0, 4, len(y)) for name, (_, y) in tasks.items()}
    often = {
        k: (np.repeat(X, times[k], axis=0), np.repeat(y, times[k])) for k, (X, y) in tasks.items()
    }
    weighted = BoUTSRegressor(10, 10).fit(tasks, sample_weight=times)
    repeated = BoUTSRegressor(10, 10).fit(often)
    X = rng.standard_normal((100, 12))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-10)
    np.testing.assert_array_equal(weighted.universal_features_, repeated.universal_features_)


def test_units_of_targets_and_weights_and_order_of_rows_do_not_matter(tasks, model):
    rng = np.random.default_rng(3)
    other, weights = {}, {}
    for k, (name, (X, y)) in enumerate(tasks.items()):
        order = rng.permutation(len(y))
        other[name] = X[order], 1e-50 * 7.0**k * y[order] + 1e-49
        weights[name] = np.full(len(y), 3.0**k)
    fitted = BoUTSRegressor().fit(other, sample_weight=weights)
    X = rng.standard_normal((100, 12))
    expected = 1e-50 * np.array([1.0, 7.0, 49.0]) * model.predict(X) + 1e-49
    np.testing.assert_allclose(fitted.predict(X), expected, rtol=1e-8)


def test_order_of_tasks_does_not_matter(tasks, model):
    turned = BoUTSRegressor().fit(dict(reversed(tasks.items())))
    X = np.random.default_rng(0).standard_normal((50, 12))
    np.testing.assert_allclose(turned.predict(X)[:, ::-1], model.predict(X))


def test_constant_tasks_and_tiny_tasks_are_no_obstacle(tasks):
    more = {**tasks, "same": (tasks["a"][0], np.full(300, 0.1))}
    fitted = BoUTSRegressor().fit(more)
    assert fitted.universal_features_.tolist() == [0, 1]
    np.testing.assert_allclose(fitted.predict(np.zeros((3, 12)), "same"), 0.1)
    tiny = {**tasks, "tiny": (np.ones((1, 12)), [5.0])}
    assert BoUTSRegressor(2, 2).fit(tiny).predict(np.zeros((1, 12)), "tiny") == pytest.approx(5.0)


def test_row_sampling_follows_its_seed(tasks):
    X = tasks["a"][0]
    fits = [BoUTSRegressor(5, 5, subsample=0.5, random_state=k).fit(tasks) for k in (0, 0, 1)]
    first, same, other = (fitted.predict(X) for fitted in fits)
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)


def test_several_classes_and_tasks_with_different_ones():
    rng = np.random.default_rng(5)
    X, Z = rng.standard_normal((500, 8)), rng.standard_normal((400, 8))
    colours = np.array(["red", "green", "blue"])[(X[:, 0] > 0.4).astype(int) + (X[:, 0] > -0.4)]
    fitted = BoUTSClassifier(20, 20).fit(
        {"colour": (X, colours), "sign": (Z, Z[:, 0] + Z[:, 3] > 0)}
    )
    assert fitted.universal_features_.tolist() == [0]
    assert fitted.task_features_["sign"].tolist() == [3]
    shares = fitted.predict_proba(X)
    assert [p.shape for p in shares] == [(500, 3), (500, 2)]
    np.testing.assert_allclose(shares[0].sum(axis=1), 1)
    assert (fitted.predict(X, "colour") == colours).mean() > 0.97
    assert (fitted.predict(Z, "sign") == (Z[:, 0] + Z[:, 3] > 0)).mean() > 0.9
    assert [list(c) for c in fitted.classes_] == [["blue", "green", "red"], [False, True]]
    same = BoUTSClassifier(2, 2).fit(X, np.ones(500, int))
    assert set(same.predict(X)) == {1}
    assert same.predict_proba(X).shape == (500, 1)


# -- forms of input ------------------------------------------------------------------------------


def test_outputs_of_one_table_are_tasks():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    Y = np.stack([X[:, 0] + X[:, 1], X[:, 0] - X[:, 2]], axis=1)
    fitted = BoUTSRegressor(10, 10).fit(X, Y)
    pairs = BoUTSRegressor(10, 10).fit([(X, Y[:, 0]), (X, Y[:, 1])])
    assert fitted.predict(X).shape == (200, 2)
    np.testing.assert_array_equal(fitted.predict(X), pairs.predict(X))
    np.testing.assert_array_equal(fitted.predict(X)[:, 1], fitted.predict(X, task=1))
    assert fitted.score(X, Y) > 0.5
    one = BoUTSRegressor(10, 10).fit(X, Y[:, 0])
    assert one.predict(X).shape == (200,)
    assert one.task_names_ == [0]


def test_frames_give_names():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((200, 3)), columns=["u", "v", "w"])
    Y = pd.DataFrame({"left": X["u"] + X["v"], "right": X["u"] - X["w"]})
    fitted = BoUTSRegressor(10, 10).fit(X, Y)
    assert fitted.task_names_ == ["left", "right"]
    assert fitted.feature_names_in_.tolist() == ["u", "v", "w"]
    np.testing.assert_array_equal(fitted.predict(X, "right"), fitted.predict(X.to_numpy(), 1))
    with pytest.raises(ValueError, match="in the same order"):
        fitted.predict(X[["w", "v", "u"]])


def test_long_tables_and_every_form_of_score(tasks, model):
    X = np.concatenate([X for X, _ in tasks.values()])
    y = np.concatenate([y for _, y in tasks.values()])
    labels = np.repeat(list(tasks), [len(y) for _, y in tasks.values()])
    long = BoUTSRegressor().fit(X, y, task=labels)
    np.testing.assert_array_equal(long.predict(X), model.predict(X))
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(12)]).assign(who=labels)
    column = BoUTSRegressor().fit(frame, y, task="who")
    assert column.n_features_in_ == 12
    np.testing.assert_array_equal(column.predict(frame), long.predict(X, labels))
    assert column.score(frame, y) == pytest.approx(model.score(tasks))
    assert model.score(tasks) == pytest.approx(model.score(X, y, task=labels))
    assert [codes.shape for codes in model.apply(X[:5])] == [
        (5, trees.n_trees) for trees in model.trees_.values()
    ]


def test_importances_select_features(tasks, model):
    expected = np.mean(list(model.task_importances_.values()), axis=0)
    np.testing.assert_allclose(model.feature_importances_, expected)
    X, y = tasks["a"]
    selector = SelectFromModel(BoUTSRegressor(), threshold=1e-10).fit(X, np.stack([y, -y], axis=1))
    used = selector.estimator_.universal_features_
    np.testing.assert_array_equal(selector.get_support(indices=True), used)
    assert used.tolist() == [0, 1, 2]


def test_clone_and_pickle(tasks, model):
    X = tasks["b"][0]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    again = clone(model)
    assert not hasattr(again, "trees_")
    np.testing.assert_array_equal(again.fit(tasks).predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"universal_price": -1},
            "universal_price=-1 must be a number at least 0",
        ),
        ({"task_price": np.nan}, "task_price=nan"),
        ({"task_price": "low"}, "task_price='low'"),
        ({"n_universal": -1}, "BoUTSRegressor: n_universal=-1 must be a whole number, at least 0"),
        ({"n_universal": 0, "n_task": 0}, "leave no trees"),
        ({"max_depth": 0}, "max_depth=0"),
        ({"learning_rate": 0}, "learning_rate=0 must be a number above 0 and at most 1"),
        ({"subsample": 1.5}, "subsample=1.5"),
        ({"min_samples_leaf": 0}, "min_samples_leaf=0"),
    ],
)
def test_impossible_parameters_are_named(tasks, parameters, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        BoUTSRegressor(**parameters).fit(tasks)


X4 = np.arange(8.0).reshape(4, 2)
Y4 = np.arange(4.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([],), "there is no task"),
        ((X4,), "requires y to be passed"),
        (({"a": X4},), "task 'a' must be a pair (X, y)"),
        (([(X4, Y4, Y4)],), "task 0 must be a pair (X, y)"),
        (({"a": (X4, Y4), "b": (X4[:, :1], Y4)},), "task 'b' has 1 features, but task 'a' has 2"),
        (({"a": (X4, Y4), "b": (X4[:0], Y4[:0])},), "task 'b' has no rows"),
        (({"a": (X4, Y4[:3])},), "task 'a': y has shape (3,), expected (4,)"),
        (({"a": (Y4, Y4)},), "task 'a': X has shape (4,), expected (n, d)"),
        (({"a": (X4, [1, np.nan, 2, 3])},), "task 'a': y contains NaN or infinity"),
        (({"a": (X4, ["p", "q", "r", "s"])},), "task 'a': y must hold numbers"),
        (({"a": (np.where(X4 == 3, np.inf, X4), Y4)},), "infinity"),
        (({"a": (pd.DataFrame({"u": [*"pqrs"]}), Y4)},), "column 'u' holds categories"),
        (
            ({"a": (pd.DataFrame(X4, columns=["u", "v"]), Y4), "b": (X4, Y4)},),
            "task 'b' has the column 0 where task 'a' has 'u'",
        ),
        ((X4, np.zeros((4, 2, 2))), "y has shape (4, 2, 2)"),
        (({"a": (X4, Y4)}, None, {"b": Y4}), "sample_weight has weights for task 'b'"),
        (({"a": (X4, Y4)}, None, Y4), "sample_weight must be a list or dict"),
        (({"a": (X4, Y4)}, None, {"a": -Y4}), "sample_weight holds -3"),
        (({"a": (X4, Y4)}, None, {"a": Y4[:2]}), "task 'a': sample_weight has shape (2,)"),
        (
            ({"a": (X4, Y4), "b": (X4, Y4)}, None, {"a": 0 * Y4}),
            "task 'a' has no rows of positive weight",
        ),
    ],
)
def test_bad_input_is_named(given, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        BoUTSRegressor().fit(*given)


def test_bad_input_to_predict_is_named(tasks, model):
    X = tasks["a"][0]
    for task in ("d", 3, -1, 1.5, True):
        with pytest.raises(ValueError, match=r"is not known: the tasks are \['a', 'b', 'c'\]"):
            model.predict(X, task)
    with pytest.raises(ValueError, match=r"task has shape \(1,\): give one task, or one for each"):
        model.predict(X, ["a"])
    with pytest.raises(ValueError, match="X has 3 features, but BoUTSRegressor is expecting 12"):
        model.predict(X[:, :3])
    with pytest.raises(NotFittedError):
        BoUTSRegressor().predict(X)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("checked", [BoUTSRegressor(3, 3), BoUTSClassifier(3, 3)])
def test_conventions_of_scikit_learn(checked):
    results = check_estimator(checked, on_fail=None)
    failed = [r["check_name"] for r in results if r["status"] == "failed"]
    assert failed == []


# -- partitions ----------------------------------------------------------------------------------


def as_rows(tasks):
    return [Rows(X, y, np.ones(len(y)), np.zeros((len(y), 0), np.int64)) for X, y in tasks.values()]


def test_cells_are_the_leaves_of_the_estimator(tasks, model):
    partitioner = BoUTSPartitioner()
    fitted = partitioner.fit_tasks(as_rows(tasks), "regression")
    assert not hasattr(partitioner, "trees_")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 12))
    for name, own in zip(tasks, fitted, strict=True):
        np.testing.assert_array_equal(own.apply(X), model.apply(X, name))
        np.testing.assert_array_equal(own.n_cells_, model.trees_[name].n_leaves)
        assert own.n_cells_.max() <= 8
        assert own.n_universal_trees_ == 50
        np.testing.assert_array_equal(own.universal_features_, model.universal_features_)
        np.testing.assert_array_equal(own.task_features_, model.task_features_[name])
        np.testing.assert_allclose(own.split_gains_, model.task_importances_[name])
        starts = np.cumsum(own.n_cells_) - own.n_cells_
        values = own.leaf_values_[own.apply(X) + starts].sum(axis=1)[:, 0]
        np.testing.assert_allclose(values, model.predict(X, name))


def test_universal_trees_differ_by_thresholds_alone(tasks):
    first, second, third = (p.trees_ for p in BoUTSPartitioner(8, 0).fit_tasks(as_rows(tasks)))
    for other in (second, third):
        np.testing.assert_array_equal(first.feature, other.feature)
        np.testing.assert_array_equal(first.left, other.left)
        assert not np.array_equal(first.threshold, other.threshold)


def test_partitioner_keeps_the_protocol(tasks):
    rows = as_rows(tasks)
    ready = seeded(BoUTSPartitioner(6, 4, n_cells=6, subsample=0.7), 0, 1)
    first, again = ready.fit_tasks(rows)[0], ready.fresh().fit_tasks(rows)[0]
    X = rows[0].X
    np.testing.assert_array_equal(first.apply(X), again.apply(X))
    assert first.n_cells_.max() == 6
    assert not hasattr(first.fresh(), "trees_")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).apply(X), first.apply(X))
    assert set(first.split_features_) == set(np.flatnonzero(first.split_gains_))
    pairs = first.siblings()
    merged = first.with_merged(np.arange(len(pairs)) == 0)
    assert merged.n_cells_.sum() == first.n_cells_.sum() - 1
    kept = np.arange(len(first.n_cells_)) % 2 == 0
    assert first.with_partitions(kept).n_universal_trees_ == 3


def test_partitioner_of_one_task_serves_every_estimator():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    y = X[:, 0] + np.abs(X[:, 1])
    fitted = JOPLEnRegressor(BoUTSPartitioner(5, 5, n_cells=4), random_state=0).fit(X, y)
    assert fitted.score(X, y) > 0.9
    frame = pd.DataFrame({"x": X[:, 0], "kind": rng.choice(["p", "q", "r"], 300)})
    y = frame["x"] + 2.0 * (frame["kind"] == "q")
    fitted = JOPLEnRegressor(BoUTSPartitioner(5, 5, n_cells=4), random_state=0).fit(frame, y)
    assert fitted.score(frame, y) > 0.9
    assert set(fitted.split_features_) == {0, 1}


def test_partitioner_takes_classes_missing_values_and_weights(tasks):
    rows = []
    for row in as_rows(tasks):
        X, s = row.X.copy(), np.ones(len(row))
        X[::7, 0] = np.nan
        s[::3] = 0.0
        rows.append(Rows(X, np.digitize(row.y, np.quantile(row.y, [0.3, 0.7])), s, row.labels))
    fitted = BoUTSPartitioner(5, 5).fit_tasks(rows, "classification")
    for own, row in zip(fitted, rows, strict=True):
        assert own.leaf_values_.shape == (own.n_cells_.sum(), 3)
        assert own.apply(row.X).min() >= 0


def test_partitioner_names_what_is_wrong(tasks):
    rows = as_rows(tasks)
    with pytest.raises(ValueError, match="n_cells=1 must be a whole number"):
        BoUTSPartitioner(n_cells=1).fit_tasks(rows)
    with pytest.raises(ValueError, match="there is no task"):
        BoUTSPartitioner().fit_tasks([])
    narrow = Rows(rows[1].X[:, :5], rows[1].y, rows[1].s, rows[1].labels)
    with pytest.raises(ValueError, match="task 1 has 5 features, but task 0 has 12"):
        BoUTSPartitioner().fit_tasks([rows[0], narrow])
    with pytest.raises(ValueError, match="pass y"):
        BoUTSPartitioner().fit(rows[0].X)


# -- documentation -------------------------------------------------------------------------------


def test_documentation_runs_as_written(capsys):
    text = (Path(__file__).parents[2] / "docs" / "bouts.md").read_text()
    space: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "bouts.md", "exec"), space)
    printed = capsys.readouterr().out
    for shown in re.findall(r"```text\n(.*?)```", text, re.DOTALL):
        assert shown in printed
