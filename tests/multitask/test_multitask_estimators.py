"""Estimators of several tasks: forms of input and output, and what must not change a model."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV

from blend_fits import small_fits
from jointleaf import (
    DirtyLasso,
    JOPLEnClassifier,
    JOPLEnRegressor,
    MultiTaskJOPLEnClassifier,
    MultiTaskJOPLEnRegressor,
    PerTask,
    load,
    save,
)
from jointleaf._core.penalties import L21, Frobenius, Nuclear
from jointleaf._fit.blend import Stacking
from jointleaf._fit.component import Blend
from jointleaf.multitask import BoUTSPartitioner
from jointleaf.partitions import LightGBMPartitioner, VoronoiPartitioner

CELLS = VoronoiPartitioner(n_partitions=5, n_cells=3)
DIRTY = DirtyLasso(0.17, 0.12, bias_strength=0.5)
NAMES, SIZES = ["a", "b", "c"], (60, 45, 70)


def make_pairs(seed=0, d=6, sizes=SIZES):
    """x0 matters in all tasks, one more feature in each."""
    rng = np.random.default_rng(seed)
    pairs = {}
    for t, (name, n) in enumerate(zip(NAMES, sizes, strict=True)):
        X = rng.standard_normal((n, d))
        pairs[name] = X, 2 * X[:, 0] + 1.5 * X[:, 1 + t] + 0.2 * rng.standard_normal(n) + t
    return pairs


PAIRS = make_pairs()
LONG_X = np.concatenate([X for X, _ in PAIRS.values()])
LONG_Y = np.concatenate([y for _, y in PAIRS.values()])
LABELS = np.repeat(NAMES, SIZES)
COLUMNS = [f"f{j}" for j in range(6)]
FRAME = pd.DataFrame(LONG_X, columns=COLUMNS)
NEW = np.random.default_rng(9).standard_normal((7, 6))


def regressor(**options):
    options = {"penalty": DIRTY, "random_state": 0, **options}
    return MultiTaskJOPLEnRegressor(options.pop("partitioner", CELLS), **options)


def classifier(**options):
    penalty = DirtyLasso(0.05, 0.03, bias_strength=0.1)
    options = {"penalty": penalty, "random_state": 0, **options}
    return MultiTaskJOPLEnClassifier(options.pop("partitioner", CELLS), **options)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(PAIRS)


# -- forms of input ----------------------------------------------------------------------------

FORMS = {
    "list": lambda m: m.fit(list(PAIRS.values())),
    "tuples of lists": lambda m: m.fit([(X.tolist(), y.tolist()) for X, y in PAIRS.values()]),
    "pandas pairs": lambda m: m.fit(
        {k: (pd.DataFrame(X, columns=COLUMNS), pd.Series(y)) for k, (X, y) in PAIRS.items()}
    ),
    "polars pairs": lambda m: m.fit(
        {k: (pl.DataFrame(X, schema=COLUMNS), pl.Series(y)) for k, (X, y) in PAIRS.items()}
    ),
    "labels": lambda m: m.fit(LONG_X, LONG_Y, task=LABELS),
    "list of labels": lambda m: m.fit(LONG_X.tolist(), LONG_Y.tolist(), task=LABELS.tolist()),
    "series of labels": lambda m: m.fit(FRAME, LONG_Y, task=pd.Series(LABELS, dtype="category")),
    "pandas column": lambda m: m.fit(FRAME.assign(t=LABELS), pd.Series(LONG_Y), task="t"),
    "first column": lambda m: m.fit(
        pd.concat([pd.Series(LABELS, name="t"), FRAME], axis=1), LONG_Y, task="t"
    ),
    "polars column": lambda m: m.fit(
        pl.DataFrame(LONG_X, schema=COLUMNS).with_columns(t=pl.Series(LABELS)), LONG_Y, task="t"
    ),
    "array column": lambda m: m.fit(
        np.insert(LONG_X, 2, np.repeat([0, 1, 2], SIZES), axis=1), LONG_Y, task=2
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_model(name, fitted):
    model = FORMS[name](regressor())
    for mine, theirs in zip(model.solution_.tasks, fitted.solution_.tasks, strict=True):
        np.testing.assert_array_equal(mine.theta, theirs.theta)
    assert len(model.task_names_) == 3
    assert model.n_features_in_ == 6
    np.testing.assert_array_equal(model.common_features_, fitted.common_features_)
    has_names = "pandas" in name or "polars" in name or name in ("first column", "series of labels")
    assert hasattr(model, "feature_names_in_") == has_names
    if has_names:
        np.testing.assert_array_equal(model.feature_names_in_, COLUMNS)
        rows = pd.DataFrame(NEW, columns=COLUMNS)
    else:
        rows = NEW
    for ours, task in zip(NAMES, model.task_names_, strict=True):
        predicted = model.predict(rows, task=task)
        np.testing.assert_array_equal(predicted, fitted.predict(NEW, task=ours))


def test_columns_of_y_are_tasks_with_the_same_rows():
    X = PAIRS["a"][0]
    Y = np.column_stack([X[:, 0], X[:, 1] ** 2, X[:, 2]])
    model = regressor().fit(X, Y)
    pairs = regressor().fit([(X, y) for y in Y.T])
    np.testing.assert_array_equal(model.predict(NEW), pairs.predict(NEW))
    assert model.task_names_ == [0, 1, 2]
    named = regressor().fit(X, pd.DataFrame(Y, columns=["u", "v", "w"]))
    assert named.task_names_ == ["u", "v", "w"]
    np.testing.assert_array_equal(named.predict(NEW, task="v"), model.predict(NEW, task=1))
    assert named.score(X, Y) == pytest.approx(r2_score(Y, named.predict(X)))
    column = regressor().fit(X, Y[:, :1])
    single = regressor().fit(X, Y[:, 0])
    assert column.predict(NEW).shape == (7, 1)
    assert single.predict(NEW).shape == (7,)
    np.testing.assert_array_equal(column.predict(NEW)[:, 0], single.predict(NEW))


def test_names_are_sorted_labels_or_kept_in_order():
    turned = {name: PAIRS[name] for name in ("c", "a", "b")}
    assert regressor().fit(turned).task_names_ == ["c", "a", "b"]
    assert regressor().fit(LONG_X[::-1], LONG_Y[::-1], task=LABELS[::-1]).task_names_ == NAMES
    numbers = np.repeat([10, 2, 3], SIZES)
    model = regressor().fit(LONG_X, LONG_Y, task=numbers)
    assert model.task_names_ == [2, 3, 10]
    assert list(model.task_features_) == [2, 3, 10]


# -- what comes out ----------------------------------------------------------------------------


def test_shapes_and_forms_of_predictions(fitted):
    whole = fitted.predict(NEW)
    assert whole.shape == (7, 3)
    for t, name in enumerate(NAMES):
        np.testing.assert_array_equal(fitted.predict(NEW, task=name), whole[:, t])
    labels = np.array(list("abcabca"))
    picked = fitted.predict(NEW, task=labels)
    numbers = [NAMES.index(label) for label in labels]
    np.testing.assert_allclose(picked, whole[np.arange(7), numbers], rtol=1e-12)
    codes = fitted.apply(NEW)
    assert [c.shape for c in codes] == [(7, 6)] * 3
    np.testing.assert_array_equal(fitted.apply(NEW, task="b"), codes[1])


def test_a_column_of_tasks_at_predict_time(fitted):
    table = FRAME.assign(t=LABELS)
    model = regressor().fit(table, LONG_Y, task="t")
    predicted = model.predict(table)
    assert predicted.shape == (175,)
    np.testing.assert_allclose(predicted, fitted.predict(LONG_X, task=LABELS))
    np.testing.assert_array_equal(predicted, model.predict(table, task="t"))
    np.testing.assert_array_equal(predicted, model.predict(FRAME, task=LABELS))
    np.testing.assert_array_equal(model.predict(table, task="b"), model.predict(FRAME, task="b"))
    np.testing.assert_array_equal(model.apply(table)[0], model.apply(FRAME)[0])
    assert model.score(table, LONG_Y) == pytest.approx(fitted.score(PAIRS))
    array = np.insert(LONG_X, 2, np.repeat([0, 1, 2], SIZES), axis=1)
    other = regressor().fit(array, LONG_Y, task=2)
    np.testing.assert_allclose(other.predict(array), predicted)
    np.testing.assert_array_equal(other.predict(array, task=1), other.predict(LONG_X, task=1))


def test_score_is_the_mean_over_tasks(fitted):
    own = [r2_score(y, fitted.predict(X, task=name)) for name, (X, y) in PAIRS.items()]
    assert fitted.score(PAIRS) == pytest.approx(np.mean(own))
    assert fitted.score(LONG_X, LONG_Y, task=LABELS) == pytest.approx(np.mean(own))
    assert fitted.score({"b": PAIRS["b"]}) == pytest.approx(own[1])
    assert fitted.score(*PAIRS["b"], task="b") == pytest.approx(own[1])
    assert min(own) > 0.8
    weights = {name: np.linspace(0, 1, n) for name, n in zip(NAMES, SIZES, strict=True)}
    heavy = [
        r2_score(y, fitted.predict(X, task=name), sample_weight=weights[name])
        for name, (X, y) in PAIRS.items()
    ]
    assert fitted.score(PAIRS, sample_weight=weights) == pytest.approx(np.mean(heavy))


def test_what_was_selected(fitted):
    np.testing.assert_array_equal(fitted.common_features_, [0])
    assert {k: v.tolist() for k, v in fitted.task_features_.items()} == {
        "a": [1],
        "b": [2],
        "c": [3],
    }
    np.testing.assert_array_equal(fitted.selected_features_, [0, 1, 2, 3])
    report = fitted.selection_report()
    assert report["kind"].tolist() == ["common", "task", "task", "task", "none", "none"]
    assert report["n_tasks"].tolist() == [3, 1, 1, 1, 0, 0]
    np.testing.assert_array_equal(report[NAMES].to_numpy(), fitted.slope_norms_)
    assert report.index.tolist() == [f"x{j}" for j in range(6)]
    np.testing.assert_allclose(
        fitted.slope_norms_[:, 1], np.linalg.norm(fitted.solution_.tasks[1].coef, axis=0)
    )
    assert fitted.feature_importances_.sum() == pytest.approx(1.0)
    assert fitted.feature_importances_.argmax() == 0


# -- what must not change a model --------------------------------------------------------------


def test_weights_equal_repeated_rows_and_zero_leaves_out():
    rng = np.random.default_rng(1)
    counts = {name: rng.integers(0, 4, n) for name, n in zip(NAMES, SIZES, strict=True)}
    weighted = regressor().fit(PAIRS, sample_weight=counts)
    repeated = regressor().fit(
        {
            k: (np.repeat(X, counts[k], axis=0), np.repeat(y, counts[k]))
            for k, (X, y) in PAIRS.items()
        }
    )
    np.testing.assert_array_equal(weighted.predict(NEW), repeated.predict(NEW))
    sums = np.array([own.sum() for own in counts.values()])
    for model in (weighted, repeated):
        np.testing.assert_allclose(model.task_weights_, np.sqrt(sums / sums.max()))
    long = regressor().fit(LONG_X, LONG_Y, np.concatenate(list(counts.values())), task=LABELS)
    np.testing.assert_array_equal(long.predict(NEW), weighted.predict(NEW))


@pytest.mark.parametrize("penalty", [DIRTY, DirtyLasso("auto", None, relax=1.0), "auto"])
def test_order_of_rows_and_threads_make_no_difference(penalty):
    options = {"penalty": penalty, "cv": None if penalty is DIRTY else 2}
    if penalty == "auto":
        options["partitioner"] = LightGBMPartitioner(5, 3)
    model = regressor(**options).fit(LONG_X, LONG_Y, task=LABELS)
    order = np.random.default_rng(0).permutation(len(LABELS))
    other = regressor(**options, n_jobs=2).fit(LONG_X[order], LONG_Y[order], task=LABELS[order])
    np.testing.assert_array_equal(model.predict(NEW), other.predict(NEW))


def test_gammas():
    model = regressor().fit(PAIRS)
    expected = np.sqrt(np.array(SIZES) / max(SIZES))
    np.testing.assert_allclose(model.task_weights_, expected)
    for given in (expected.tolist(), expected, dict(zip(NAMES, expected, strict=True))):
        other = regressor(task_weights=given).fit(PAIRS)
        np.testing.assert_array_equal(other.predict(NEW), model.predict(NEW))
    equal = regressor(task_weights=None).fit(PAIRS)
    np.testing.assert_array_equal(equal.task_weights_, 1.0)
    assert not np.array_equal(equal.predict(NEW), model.predict(NEW))


def test_every_task_has_cells_of_its_own():
    model = regressor(penalty=PerTask(Frobenius(0.1))).fit([PAIRS["a"], PAIRS["a"]])
    first, second = model.apply(NEW)
    assert not np.array_equal(first, second)
    assert not np.array_equal(*model.predict(NEW).T)


def test_unit_and_shift_of_a_target_make_no_difference(fitted):
    shifted = {k: (X, 100 + 50 * y if k == "b" else y) for k, (X, y) in PAIRS.items()}
    model = regressor().fit(shifted)
    np.testing.assert_array_equal(model.common_features_, fitted.common_features_)
    expected = fitted.predict(NEW)
    expected[:, 1] = 100 + 50 * expected[:, 1]
    np.testing.assert_allclose(model.predict(NEW), expected, rtol=1e-6)


@pytest.mark.parametrize("target", ["regression", "classification"])
def test_auto_is_the_default_estimator_for_every_task(target, monkeypatch):
    """The seed counts on from task to task; a tiny task does not change what others do."""
    is_regression = target == "regression"
    make = regressor if is_regression else classifier
    single = JOPLEnRegressor if is_regression else JOPLEnClassifier
    tasks = dict(PAIRS, tiny=(PAIRS["a"][0][:3], PAIRS["a"][1][:3]))
    if not is_regression:
        tasks = {k: (X, np.where(y > np.median(y), "yes", "no")) for k, (X, y) in tasks.items()}
    cells = LightGBMPartitioner(6, 4)
    model = make(penalty="auto", partitioner=cells).fit(tasks)
    seed = model._seed()
    for t, (name, (X, y)) in enumerate(tasks.items()):
        alone = single(cells, tol=1e-5)
        monkeypatch.setattr(alone, "_seed", lambda t=t: seed + t)
        alone.fit(X, y)
        np.testing.assert_array_equal(model.predict(NEW, task=name), alone.predict(NEW))
        assert repr(model.penalty_[t]) == repr(alone.penalty_)
    assert model.cv_results_[0] is not None
    assert model.cv_results_[-1] is None
    assert len(model.common_features_) == 0


# -- scikit-learn ------------------------------------------------------------------------------


@pytest.mark.parametrize("partitioner", [CELLS, LightGBMPartitioner(4, 3)])
def test_clone_and_pickle(partitioner):
    model = regressor(partitioner=partitioner, task_weights={"a": 1, "b": 2, "c": 3})
    copy = clone(model)
    assert copy.get_params()["task_weights"] == model.task_weights
    assert repr(copy.penalty) == repr(DIRTY)
    model.fit(PAIRS)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
    pd.testing.assert_frame_equal(again.selection_report(), model.selection_report())
    np.testing.assert_array_equal(copy.fit(PAIRS).predict(NEW), model.predict(NEW))
    assert not hasattr(clone(model), "task_names_")


def test_pickles_hold_no_trained_models():
    lightgbm = pytest.importorskip("lightgbm")
    trained = lightgbm.LGBMRegressor(n_estimators=4, num_leaves=4, verbose=-1).fit(LONG_X, LONG_Y)
    model = regressor(partitioner=trained).fit(PAIRS)
    state = pickle.dumps(model)
    assert b"LGBMRegressor\x94\x93" not in state
    assert "partitioner" in pickle.loads(state).get_params()
    np.testing.assert_array_equal(pickle.loads(state).predict(NEW), model.predict(NEW))


def test_grid_search_over_penalties():
    X = LONG_X
    Y = np.column_stack([X[:, 0] + X[:, 1], X[:, 0] - X[:, 2]])
    penalties = [DirtyLasso(5.0, 4.0, bias_strength=0.5), DIRTY, L21(0.1, 0.5), Nuclear(0.1, 0.5)]
    search = GridSearchCV(regressor(), {"penalty": penalties}, cv=2).fit(X, Y)
    assert repr(search.best_params_["penalty"]) != repr(penalties[0])
    assert search.best_score_ > 0.8
    assert search.best_estimator_.predict(NEW).shape == (7, 2)


def test_names_of_features_are_compared():
    model = regressor().fit(FRAME.assign(t=LABELS), LONG_Y, task="t")
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(FRAME.rename(columns={"f0": "g0"}), task="a")
    with pytest.raises(ValueError, match="same order"):
        model.predict(FRAME[COLUMNS[::-1]], task="a")
    with pytest.raises(ValueError, match="'t' is no column"):
        model.predict(FRAME)


# -- partitions, columns and penalties ---------------------------------------------------------


def test_partitions_grown_together():
    """BoUTS grows its universal trees once for all tasks; the object and its seed stay."""
    cells = BoUTSPartitioner(4, 3, n_cells=4, subsample=0.7)
    model = regressor(partitioner=cells).fit(PAIRS)
    assert cells.random_state is None
    assert not hasattr(cells, "trees_")
    parts = [union.partitioners_[0] for union in model.partitioners_]
    assert len({tuple(part.universal_features_) for part in parts}) == 1
    assert 0 in parts[0].universal_features_
    np.testing.assert_array_equal(
        regressor(partitioner=cells).fit(PAIRS).predict(NEW), model.predict(NEW)
    )
    seeds = [
        regressor(partitioner=cells.set_params(random_state=seed)).fit(PAIRS).predict(NEW)
        for seed in (1, 2)
    ]
    assert not np.array_equal(*seeds)
    bare = regressor(partitioner=cells, root_cell=False).fit(PAIRS)
    assert isinstance(bare.partitioners_[0], BoUTSPartitioner)
    chosen = regressor(partitioner=cells, penalty=PerTask(L21("auto")), cv=2).fit(PAIRS)
    assert chosen.score(PAIRS) > 0.5


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_text_categories_and_missing_values(library):
    """Categories that differ from task to task are categories of one column."""
    rng = np.random.default_rng(0)
    tasks = {}
    for t, (name, (X, y)) in enumerate(PAIRS.items()):
        text = rng.choice(["red", "green", f"own{t}"], len(X))
        table = pd.DataFrame(X, columns=COLUMNS).assign(colour=text)
        table.loc[::7, "f4"] = np.nan
        y = y + 2.0 * (text == "red")
        if library == "polars":
            tasks[name] = pl.from_pandas(table), y
        else:
            table["kind"] = pd.Categorical(rng.integers(t, t + 3, len(X)))  # numbers as categories
            tasks[name] = table, y
    model = regressor(add_indicator=True).fit(tasks)
    labels = [column.label for column in model.columns_]
    categories = model.columns_[labels.index("colour")].categories.tolist()
    assert categories == ["green", "own0", "own1", "own2", "red"]
    if library == "pandas":
        assert model.columns_[labels.index("kind")].categories.tolist() == [0, 1, 2, 3, 4]
    assert "f4 is missing" in model.linear_feature_names_.tolist()
    assert labels.index("colour") in model.common_features_
    assert model.score(tasks) > 0.7
    assert model.slope_norms_.shape == (len(labels), 3)


def test_a_column_that_one_task_does_not_have():
    tasks = {k: (X.copy(), y) for k, (X, y) in PAIRS.items()}
    tasks["b"][0][:, 4] = np.nan
    tasks["c"][0][:, 5] = 3.0
    model = regressor().fit(tasks)
    assert np.isfinite(model.predict(NEW)).all()
    assert model.slope_norms_[4, 1] == model.slope_norms_[5, 2] == 0


def test_clipping_by_cell():
    """Far outside no cell extrapolates beyond its own rows."""
    far = {
        clip: regressor(clip=clip).fit(PAIRS).predict(50 * NEW) for clip in (True, "cell", False)
    }
    assert np.abs(far["cell"]).max() <= np.abs(far[True]).max() < np.abs(far[False]).max()
    assert not np.array_equal(far["cell"], far[True])


def test_constant_cells():
    model = regressor(penalty=Frobenius(0.1), cells="constant").fit(PAIRS)
    assert model.predict(NEW).shape == (7, 3)
    assert len(model.selected_features_) == 0
    assert not model.slope_norms_.any()


# -- classes -----------------------------------------------------------------------------------


def test_classes_of_every_task():
    """Labels may differ from task to task, also in kind and length."""
    names = {"a": ["no", "yes"], "b": ["dog", "elephant"], "c": ["x", "y"]}
    tasks = {k: (X, np.where(y > np.median(y), *names[k][::-1])) for k, (X, y) in PAIRS.items()}
    model = classifier().fit(tasks)
    assert [c.tolist() for c in model.classes_] == list(names.values())
    predicted = model.predict(NEW, task=np.array(list("abcabca")))
    assert set(predicted[1::3]) <= set(names["b"])
    assert model.predict(NEW).shape == (7, 3)
    probabilities = model.predict_proba(NEW)
    assert [p.shape for p in probabilities] == [(7, 2)] * 3
    np.testing.assert_allclose(np.sum(probabilities, axis=2), 1.0)
    for t, name in enumerate(NAMES):
        likely = np.array(names[name])[probabilities[t].argmax(axis=1)]
        np.testing.assert_array_equal(model.predict(NEW, task=name), likely)
    own = [accuracy_score(y, model.predict(X, task=k)) for k, (X, y) in tasks.items()]
    assert model.score(tasks) == pytest.approx(np.mean(own))
    assert min(own) > 0.8
    X = PAIRS["a"][0]
    Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0]).astype(int)
    outputs = classifier().fit(X, Y)
    assert outputs.score(X, Y) == pytest.approx((outputs.predict(X) == Y).mean())
    single = classifier().fit(X, Y[:, 0])
    assert single.predict_proba(NEW).shape == (7, 2)
    np.testing.assert_array_equal(single.classes_, [0, 1])


def test_every_task_keeps_the_type_of_its_labels():
    """Text next to numbers stays text next to numbers, in all forms."""
    XA = np.random.default_rng(0).standard_normal((80, 4))
    first = np.where(XA[:, 0] > 0, "yes", "no")
    second = (XA[:, 1] > 0).astype(int)
    model = MultiTaskJOPLEnClassifier(CELLS, penalty=DIRTY, random_state=0)
    pairs = {"a": (XA, first), "b": (XA, second)}
    for given in ((pairs,), (XA, pd.DataFrame({"a": first, "b": second}))):
        model.fit(*given)
        assert model.predict(XA, task="b").dtype.kind == "i"
        assert model.predict(XA, task="a").dtype.kind == "U"
        assert np.mean(model.predict(XA, task="b") == second) > 0.8
        both = model.predict(XA)
        assert both.dtype == object
        assert set(map(type, both[0])) == {str, int}
        mixed = model.predict(XA, task=np.where(np.arange(len(XA)) % 2, "a", "b"))
        assert isinstance(mixed[0], int)
        assert isinstance(mixed[1], str)
        assert model.score(*given) > 0.8


def test_lists_of_tables_and_dicts_are_told_apart_from_pairs():
    model = MultiTaskJOPLEnRegressor(CELLS, penalty=DIRTY, random_state=0)
    (XA, YA), (XB, YB) = list(PAIRS.values())[:2]
    with pytest.raises(ValueError, match=r"give pairs, \[\(X_1, y_1\)"):
        model.fit([XA, XB], [YA, YB])
    with pytest.raises(TypeError, match="X is a dict"):
        model.fit(PAIRS).predict(PAIRS)


def test_tasks_without_a_joint_fit(tmp_path, monkeypatch):
    """Where the joint fit has no weight, no joint problem is solved: nothing says that one was."""
    monkeypatch.setattr(Stacking, "fit", lambda *_: Blend({"boosted": 1.0, "joint": 0.0}))
    X = np.random.default_rng(0).standard_normal((80, 4))
    Y = np.stack([X[:, 0] + X[:, 1], X[:, 0] ** 2], axis=1)
    with small_fits():
        model = MultiTaskJOPLEnRegressor(recipe="blend", random_state=0).fit(X, Y)
    assert [report.recipe for report in model.report_] == ["blend", "blend"]
    assert model.solution_ == model.penalty_ == [None, None]
    assert "boosted" in model.summary()
    save(model, tmp_path / "model.jleaf")
    loaded = load(tmp_path / "model.jleaf")
    assert [report.recipe for report in loaded.report_] == ["blend", "blend"]
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="recipe='blend' chooses partitions and penalty itself"):
        MultiTaskJOPLEnRegressor(recipe="blend", penalty=DIRTY).fit(X, Y)
