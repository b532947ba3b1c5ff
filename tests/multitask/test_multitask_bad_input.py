"""Bad input of several tasks: errors that name task or argument, and no half-fitted model."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from jointleaf import (
    DirtyLasso,
    DirtyLInf,
    JOPLEnRegressor,
    MultiTaskJOPLEnClassifier,
    MultiTaskJOPLEnRegressor,
    PerTask,
    fit_tasks,
)
from jointleaf._core.penalties import L21, Frobenius, GrOWL, Laplacian, Nuclear
from jointleaf.multitask import BoUTSPartitioner
from jointleaf.partitions import RootCell, VoronoiPartitioner

CELLS = VoronoiPartitioner(n_partitions=3, n_cells=2)
DIRTY, AUTO = DirtyLasso(0.2, 0.15, bias_strength=0.1), DirtyLasso(bias_strength=0.1)
RNG = np.random.default_rng(0)
XA, XB = RNG.standard_normal((30, 4)), RNG.standard_normal((25, 4))
YA, YB = XA[:, 0] + XA[:, 1], XB[:, 0] - XB[:, 2]
PAIRS = {"a": (XA, YA), "b": (XB, YB)}
X, Y = np.concatenate([XA, XB]), np.concatenate([YA, YB])
LABELS = np.repeat(["a", "b"], [30, 25])
TWO = np.column_stack([YA, -YA])


class Untouchable(RootCell):
    """Fails when work starts: what is wrong must be found before."""

    def fit(self, X, y=None, sample_weight=None, *, target_type="regression"):
        raise AssertionError("work has started")


def regressor(**options):
    return MultiTaskJOPLEnRegressor(Untouchable(), **{"penalty": DIRTY, **options})


def put(array, value):
    array = np.array(array, dtype=float)
    array.flat[3] = value
    return array


def check_rejected(model, message, *args, **options):
    """The error, and that nothing but the parameters is on the estimator."""
    before = dict(vars(model))
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        model.fit(*args, **options)
    assert vars(model) == before
    return str(caught.value)


# -- data --------------------------------------------------------------------------------------


def pair_b(X=XB, y=YB):
    return {"a": PAIRS["a"], "b": (X, y)}


FRAME_A, FRAME_B = (pd.DataFrame(X, columns=list("pqrs")) for X in (XA, XB))

DATA = {
    "no tasks": (({},), {}, "there is no task: give at least one pair"),
    "empty list": (([],), {}, "there is no task"),
    "no y": ((XA,), {}, r"requires y.*list or dict of pairs"),
    "no pair": (({"a": PAIRS["a"], "b": XB},), {}, r"task 'b' must be a pair \(X, y\)"),
    "features": ((pair_b(XB[:, :3]),), {}, "task 'b' has 3 features, but task 'a' has 4.*same"),
    "names": (
        ({"a": (FRAME_A, YA), "b": (FRAME_B.rename(columns={"q": "z"}), YB)},),
        {},
        "task 'b' has the column 'z' where task 'a' has 'q'.*same order",
    ),
    "frame and array": (({"a": (FRAME_A, YA), "b": (XB, YB)},), {}, "task 'b' has the column 0"),
    "empty task": ((pair_b(XB[:0], YB[:0]),), {}, "task 'b' has no rows: leave it out"),
    "one row": ((pair_b(XB[:1], YB[:1]),), {}, "task 'b' has 1 rows.*at least 2.*leave it out"),
    "lengths": ((pair_b(XB, YB[:-1]),), {}, r"task 'b': y has shape \(24,\), expected \(25,\)"),
    "1-D X": ((pair_b(XB[:, 0]),), {}, r"task 'b': X has shape \(25,\), expected \(n, d\)"),
    "NaN in y": ((pair_b(XB, put(YB, np.nan)),), {}, "task 'b': y contains NaN .*remove"),
    "inf in y": ((pair_b(XB, put(YB, np.inf)),), {}, "task 'b': y contains .*infinity: remove"),
    "text in y": ((pair_b(XB, ["u"] * 25),), {}, "task 'b': y must hold numbers"),
    "inf in X": ((pair_b(put(XB, np.inf)),), {}, "infinity"),
    "3-D y": ((XA, np.zeros((30, 2, 2))), {}, r"y has shape \(30, 2, 2\): give \(n,\), or"),
    "no columns in y": ((XA, np.zeros((30, 0))), {}, "y has no column: give one per task"),
    "rows of y": ((XA, TWO[:-1]), {}, r"inconsistent numbers of samples: \[30, 29\]"),
    "NaN in a column": ((XA, put(TWO, np.nan)), {}, "NaN or infinity for task 1: give.*pairs"),
    "labels": ((X, Y), {"task": LABELS[:-1]}, r"task has shape \(54,\), expected \(55,\)"),
    "missing label": ((X, Y), {"task": [None, *LABELS[1:]]}, "task is missing in row 0: name"),
    "NA label": ((X, Y), {"task": [pd.NA, *LABELS[1:]]}, "task is missing in row 0: name"),
    "NaN label": ((X, Y), {"task": put(np.ones(55), np.nan)}, "task is missing in row 3"),
    "label of one row": ((X, Y), {"task": ["c", *LABELS[1:]]}, "task 'c' has 1 rows"),
    "no such column": ((X, Y), {"task": "t"}, "task='t' is no column of X: .*numbers from 0 to 3"),
    "no such number": ((X, Y), {"task": 4}, "task=4 is no column of X"),
    "names as columns": ((FRAME_A, YA), {"task": "t"}, r"task='t' is no column.*\['p', 'q'"),
    "long without y": ((X,), {"task": LABELS}, "y is missing: with task.*give X and y"),
    "long with 2-D y": ((XA, TWO), {"task": ["a"] * 30}, r"y has shape \(30, 2\), expected"),
    "pairs and labels": ((PAIRS, Y), {"task": LABELS}, "task is for a long table: pairs"),
    "list and labels": ((list(PAIRS.values()), Y), {"task": LABELS}, "task is for a long table"),
    "weights of pairs": (
        (PAIRS,),
        {"sample_weight": np.ones(55)},
        "sample_weight must be a list or dict with the weights of each of the 2 tasks",
    ),
    "too few weights": (
        (PAIRS,),
        {"sample_weight": {"b": np.ones(3)}},
        r"task 'b': sample_weight has shape \(3,\), expected \(25,\)",
    ),
    "weights of another": (
        (PAIRS,),
        {"sample_weight": {"B": np.ones(25)}},
        r"sample_weight has weights for task 'B': the tasks are \['a', 'b'\]",
    ),
    "negative weights": (
        (PAIRS,),
        {"sample_weight": [None, -np.ones(25)]},
        "sample_weight holds -1: weights must not be negative",
    ),
    "weights of zero": (
        (PAIRS,),
        {"sample_weight": [None, np.zeros(25)]},
        "task 'b' has 0 rows of positive weight: at least 2 are needed",
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_data_that_cannot_be_fitted(name):
    args, options, message = DATA[name]
    check_rejected(regressor(), message, *args, **options)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(25), r"task 'b' has one class only \(0.0\): at least two.*leave it out"),
        (np.arange(25) % 3, "binary.*task 'b' has 3 classes. Use JOPLEnClassifier"),
        (YB, "continuous"),
    ],
)
def test_classes_that_cannot_be_told_apart(y, message):
    model = MultiTaskJOPLEnClassifier(Untouchable(), penalty=DIRTY)
    check_rejected(model, message, {"a": (XA, YA > 0), "b": (XB, y)})
    assert not hasattr(model, "classes_")


# -- parameters --------------------------------------------------------------------------------

PARAMETERS = {
    "no such weights": ({"task_weights": "equal"}, "task_weights='equal' is not known: use 'auto'"),
    "few weights": (
        {"task_weights": [1.0]},
        r"task_weights has shape \(1,\), but there are 2.*a, b",
    ),
    "zero": ({"task_weights": [1.0, 0.0]}, "task_weights holds 0 for task b: .*positive"),
    "negative": ({"task_weights": {"a": -2, "b": 1}}, "task_weights holds -2 for task a"),
    "NaN": ({"task_weights": [np.nan, 1.0]}, "task_weights holds nan for task a"),
    "text": ({"task_weights": ["x", "y"]}, "task_weights must hold real numbers"),
    "missing": ({"task_weights": {"a": 1.0}}, "task_weights has no number for task 'b'"),
    "unknown": (
        {"task_weights": {"a": 1.0, "b": 1.0, "c": 1.0}},
        r"task_weights has a number for task 'c': the tasks are \['a', 'b'\]",
    ),
    "penalty": ({"penalty": "l21"}, "penalty='l21' is not known: use 'auto' or a Penalty"),
    "a class": ({"penalty": DirtyLasso}, "must be 'auto' or a Penalty"),
    "constant": (
        {"penalty": AUTO, "cells": "constant"},
        "DirtyLasso.* with cells='constant' has no slopes to penalise: use",
    ),
    "constant per task": (
        {"penalty": PerTask(L21("auto")), "cells": "constant"},
        "PerTask.* with cells='constant' has no slopes",
    ),
    "weights of GrOWL": (
        {"penalty": PerTask(GrOWL(0.1, [1.0, 0.5]))},
        "weights of GrOWL has 2.* 4",
    ),
    "solver": ({"solver": "magic"}, "solver='magic' is not known"),
    "one fold": ({"penalty": AUTO, "cv": 1}, "cv=1 must be at least 2 folds"),
    "index pairs": (
        {"penalty": AUTO, "cv": [(np.arange(20), np.arange(20, 30)), (np.arange(9), [10])]},
        r"cv is a list.*with pairs \(X, y\) give a number of folds or a splitter",
    ),
    "partitioner": ({"partitioner": "no such"}, "no such"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_that_cannot_be_used(name):
    options, message = PARAMETERS[name]
    partitioner = options.get("partitioner", Untouchable())
    model = regressor(**{k: v for k, v in options.items() if k != "partitioner"})
    check_rejected(model.set_params(partitioner=partitioner), message, PAIRS)


def test_a_solver_for_single_tasks():
    model = MultiTaskJOPLEnRegressor(CELLS, penalty=Frobenius(0.1), solver="dual")
    check_rejected(model, "solver='dual' does not fit.*single task: use solver='pcg'", PAIRS)


@pytest.mark.parametrize("cls", [DirtyLasso, DirtyLInf])
@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((0, 0.1), ValueError, "common=0 must be a positive number.*None to leave that part"),
        ((0.1, -1.0), ValueError, "task=-1.0 must be a positive number"),
        ((np.nan, 0.1), ValueError, "common=nan must be a positive number"),
        ((0.1, np.inf), ValueError, "task=inf must be a positive number"),
        (("x", 0.1), TypeError, "common='x' must be a positive number"),
        ((0.1, True), TypeError, "task=True must be a positive number"),
        (([0.1], 0.1), TypeError, r"common=\[0.1\] must be a positive number"),
        ((0.1, "auto"), ValueError, "common=0.1 and task='auto': 'auto' is for both"),
        (("auto", 0.1), ValueError, "common='auto' and task=0.1: 'auto' is for both"),
        ((None, None), ValueError, "common=None and task=None leave no penalty"),
        ((0.2, 0.1, -1), ValueError, "bias_strength=-1 must be a number that is not negative"),
        ((0.2, 0.1, "auto"), ValueError, "bias_strength='auto' needs strength='auto'"),
        ((0.2, 0.1, 0.0, 2.0), ValueError, "relax=2.0 must be a positive number, at most 1"),
        ((0.2, 0.1, 0.0, "auto"), ValueError, "relax='auto' is chosen together"),
    ],
)
def test_strengths_that_make_no_sense(cls, args, error, message):
    with pytest.raises(error, match=message):
        cls(*args)


@pytest.mark.parametrize(
    ("penalty", "message"),
    [
        (DIRTY, "PerTask: penalty=DirtyLasso.* is a penalty on several tasks.*use L21"),
        (L21(0.1) + Nuclear(0.1), "PerTask: .* of a sum, give every term its own PerTask"),
        (Laplacian(0.1), "PerTask: penalty=Laplacian.* must be a single penalty on weights"),
        ("l21", "PerTask: penalty='l21' must be a single penalty"),
        (None, "PerTask: penalty=None must be"),
    ],
)
def test_penalties_that_are_not_of_one_task(penalty, message):
    with pytest.raises(TypeError, match=message):
        PerTask(penalty)


# -- validation rows ---------------------------------------------------------------------------

VALIDATION = {
    "nothing to choose": (DIRTY, {"X_val": PAIRS}, "penalty=DirtyLasso.*has nothing to choose"),
    "only y": (AUTO, {"y_val": Y}, "X_val and y_val belong together"),
    "only task": (AUTO, {"task_val": LABELS}, "X_val and y_val belong together"),
    "only X": (AUTO, {"X_val": X}, "X_val, y_val: requires y"),
    "unknown task": (
        AUTO,
        {"X_val": {"z": PAIRS["a"]}},
        r"X_val.*task 'z' is not known.*\['a', 'b'",
    ),
    "unknown label": (
        AUTO,
        {"X_val": X, "y_val": Y, "task_val": ["z", *LABELS[1:]]},
        r"X_val.*task 'z' is not known: the tasks are \['a', 'b'\]",
    ),
    "no rows of a task": (
        AUTO,
        {"X_val": {"a": PAIRS["a"]}},
        "task 'b' has no validation rows in X_val: give some",
    ),
    "no task": (AUTO, {"X_val": X, "y_val": Y}, r"X_val.*shape \(55,\), but there are 2 tasks"),
    "columns": (
        AUTO,
        {"X_val": XA, "y_val": np.zeros((30, 3))},
        "y has 3 columns, but there are 2 tasks",
    ),
    "rows": (AUTO, {"X_val": XA, "y_val": TWO[:-1]}, "X_val has 30 rows, but y_val has 29"),
    "NaN": (AUTO, {"X_val": pair_b(XB, put(YB, np.nan))}, "X_val.*task 'b': y contains NaN"),
    "NaN in a long y": (
        AUTO,
        {"X_val": X, "y_val": put(Y, np.nan), "task_val": LABELS},
        "task 'a': y_val contains NaN",
    ),
    "features": (AUTO, {"X_val": {k: (x[:, :3], y) for k, (x, y) in PAIRS.items()}}, "3 features"),
}


@pytest.mark.parametrize("name", VALIDATION)
def test_validation_rows_that_cannot_be_used(name):
    penalty, options, message = VALIDATION[name]
    check_rejected(regressor(penalty=penalty), message, PAIRS, **options)


def test_a_class_that_was_not_in_training():
    tasks = {k: (x, np.where(y > 0, "u", "v")) for k, (x, y) in PAIRS.items()}
    other = {"a": tasks["a"], "b": (XB, np.where(YB > 0, "u", "w"))}
    model = MultiTaskJOPLEnClassifier(Untouchable(), penalty=AUTO)
    check_rejected(model, r"task 'b': y_val holds class 'w'.*\['u', 'v'\]", tasks, X_val=other)


def test_too_few_rows_to_choose():
    few = {"a": PAIRS["a"], "b": (XB[:3], YB[:3])}
    message = "task 'b' has 3 different rows, too few to choose.*give numbers, or leave"
    check_rejected(regressor(penalty=AUTO), message, few)


def test_targets_without_anything_to_choose():
    constant = {k: (x, np.ones(len(y))) for k, (x, y) in PAIRS.items()}
    model = MultiTaskJOPLEnRegressor(CELLS, penalty=AUTO)
    check_rejected(model, "slopes are zero at every strength: y does not depend", constant)
    fixed = MultiTaskJOPLEnRegressor(CELLS, penalty=DIRTY).fit(constant)
    np.testing.assert_allclose(fixed.predict(XA), 1.0)


# -- fitted models -----------------------------------------------------------------------------


@pytest.fixture
def fitted():
    return MultiTaskJOPLEnRegressor(CELLS, penalty=DIRTY, random_state=0).fit(PAIRS)


def test_a_failed_fit_leaves_the_model_as_it_was(fitted):
    before, expected = dict(vars(fitted)), fitted.predict(XA)
    check_rejected(fitted, "task 'b' has no rows", pair_b(XB[:0], YB[:0]))
    fitted.partitioner = Untouchable()
    with pytest.raises(AssertionError, match="work has started"):
        fitted.fit(X, Y, task=LABELS)
    fitted.partitioner = CELLS
    assert vars(fitted) == before
    np.testing.assert_array_equal(fitted.predict(XA), expected)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("z", r"task 'z' is not known: the tasks are \['a', 'b'\]"),
        (["a"] * 29 + ["z"], "task 'z' is not known"),
        (["a"] * 29, r"task has shape \(29,\): give one task, or one for each of the 30 rows"),
        (0, "task 0 is not known"),
    ],
)
def test_tasks_that_are_not_known(fitted, task, message):
    with pytest.raises(ValueError, match=message):
        fitted.predict(XA, task=task)
    with pytest.raises(ValueError, match="task"):
        fitted.score(XA, YA, task=task)


def test_before_and_after_a_fit(fitted):
    for call in ("predict", "apply"):
        with pytest.raises(NotFittedError):
            getattr(MultiTaskJOPLEnRegressor(), call)(XA)
    with pytest.raises(NotFittedError):
        MultiTaskJOPLEnRegressor().selection_report()
    with pytest.raises(NotFittedError):
        MultiTaskJOPLEnRegressor().score(PAIRS)
    with pytest.raises(ValueError, match="task 'z' is not known"):
        fitted.score({"z": PAIRS["a"]})
    with pytest.raises(ValueError, match="3 features"):
        fitted.predict(XA[:, :3])
    with pytest.raises(ValueError, match="y is missing"):
        fitted.score(XA, task=["a"] * 30)


# -- the function ------------------------------------------------------------------------------

CODES_A, CODES_B = (XA[:, :1] > 0).astype(int), (XB[:, :1] > 0).astype(int)
ONE, OTHER = (XA, CODES_A, YA), (XB, CODES_B, YB)


@pytest.mark.parametrize(
    ("tasks", "options", "error", "message"),
    [
        ([], {}, ValueError, r"tasks must be a list of \(X, codes, y\)"),
        ([ONE, (XB, YB)], {}, ValueError, "task 1 must be three arrays: X, codes and y"),
        (
            [ONE, (XB[:, :2], CODES_B, YB)],
            {},
            ValueError,
            "task 1 has 2 features, but task 0 has 4",
        ),
        ([ONE, (XB, CODES_B, put(YB, np.nan))], {}, ValueError, "task 1: y holds NaN"),
        ([ONE, (put(XB, np.inf), CODES_B, YB)], {}, ValueError, "task 1: X holds NaN or infinity"),
        ([ONE, (XB, CODES_B - 5, YB)], {}, ValueError, "task 1: codes holds -5"),
        ([ONE, (XB, CODES_B, YB[:-1])], {}, ValueError, r"task 1: y has shape \(24,\)"),
        ([ONE, OTHER], {"loss": "logistic"}, ValueError, "task 0: .*-1"),
        ([ONE, OTHER], {"penalty": "l21"}, TypeError, "penalty='l21' must be a Penalty"),
        ([ONE, OTHER], {"penalty": AUTO}, ValueError, "has a strength to choose"),
        ([ONE, OTHER], {"task_weights": [1.0]}, ValueError, "task_weights has shape"),
        ([ONE, OTHER], {"task_weights": [1.0, 0.0]}, ValueError, "holds 0 for task 1"),
        ([ONE, OTHER], {"init": np.zeros((2, 2))}, ValueError, r"init has shape \(2, 2\), but"),
        ([ONE, OTHER], {"tol": 0}, ValueError, "tol=0"),
        ([ONE, OTHER], {"cells": "cubic"}, ValueError, "cells='cubic' is not known"),
        ([ONE, OTHER], {"solver": "dual"}, ValueError, "solver='dual' does not fit"),
        ([ONE, OTHER], {"n_jobs": 0}, ValueError, "n_jobs=0 must be a whole number"),
    ],
)
def test_what_fit_tasks_rejects(tasks, options, error, message):
    with pytest.raises(error, match=message):
        fit_tasks(tasks, **{"penalty": DIRTY, **options})


def test_trees_of_all_tasks_do_not_go_with_tasks_fitted_alone():
    X = np.random.default_rng(0).standard_normal((40, 3))
    model = MultiTaskJOPLEnRegressor(BoUTSPartitioner(2, 2, n_cells=4))
    with pytest.raises(ValueError, match="penalty='auto' fits every task alone"):
        model.fit(X, X[:, :2])


@pytest.mark.parametrize("penalty", [DirtyLasso(), DirtyLasso(0.2, 0.1), PerTask(L21(0.1))])
def test_penalties_on_tasks_are_rejected_where_there_is_one(penalty):
    X = np.random.default_rng(0).standard_normal((40, 3))
    with pytest.raises(ValueError, match="is for several tasks: use L21 here"):
        JOPLEnRegressor(penalty=penalty).fit(X, X[:, 0])
