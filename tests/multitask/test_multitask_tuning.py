"""Choice of strengths over several tasks: validation rows, splits, one standard error, relaxing."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from jointleaf import (
    DirtyLasso,
    MultiTaskJOPLEnClassifier,
    MultiTaskJOPLEnRegressor,
    PerTask,
)
from jointleaf._core.penalties import L21, Frobenius
from jointleaf.partitions import VoronoiPartitioner

CELLS = VoronoiPartitioner(n_partitions=3, n_cells=2)
#: one path without relaxed answers: the quick one
QUICK = DirtyLasso("auto", None, bias_strength=0.1, relax=1.0)


def make_pairs(seed, sizes=(50, 40), noise=0.5):
    rng = np.random.default_rng(seed)
    pairs = {}
    for t, n in enumerate(sizes):
        X = rng.standard_normal((n, 5))
        pairs["ab"[t]] = X, X[:, 0] + X[:, 1 + t] + noise * rng.standard_normal(n)
    return pairs


PAIRS, FRESH = make_pairs(0), make_pairs(1)


def long(pairs):
    X = np.concatenate([X for X, _ in pairs.values()])
    y = np.concatenate([y for _, y in pairs.values()])
    return X, y, np.repeat(list(pairs), [len(y) for _, y in pairs.values()])


def regressor(penalty=QUICK, **options):
    return MultiTaskJOPLEnRegressor(CELLS, penalty=penalty, random_state=0, **options)


@pytest.fixture(scope="module")
def chosen():
    """All that is chosen by default."""
    return regressor(DirtyLasso(), cv=2).fit(PAIRS)


def test_both_strengths_are_chosen(chosen):
    table = chosen.cv_results_
    paths = table["on_path"]
    ratios = np.unique(np.round(table["param_common"][paths] / table["param_task"][paths], 6))
    gamma = chosen.task_weights_
    assert ratios[0] == pytest.approx(gamma.min(), rel=1e-5)
    assert ratios[-1] == pytest.approx(np.linalg.norm(gamma), rel=1e-4)
    assert len(ratios) > 2
    assert np.isnan(table["param_common"][~paths]).all()
    penalty = chosen.penalty_
    at = (table["param_common"] == penalty.common) & (table["param_task"] == penalty.task) & paths
    assert at.any()
    assert table["param_bias_strength"][at][0] == penalty.bias_strength
    assert len({len(values) for values in table.values()}) == 1
    assert 0 in chosen.selected_features_
    assert chosen.score(FRESH) > 0.6
    assert np.isfinite(table["mean_test_score"][at]).any()
    assert (table["mean_selected"] == table["mean_common"] + table["mean_specific"]).all()


def test_the_fewest_features_within_one_standard_error(chosen):
    table, penalty = chosen.cv_results_, chosen.penalty_
    mean, paths = table["mean_test_score"], table["on_path"]
    best = int(np.argmax(np.where(paths, mean, -np.inf)))
    near = paths & (mean >= mean[best] - table["se_test_score"][best])
    at = near & (table["param_task"] == penalty.task) & (table["param_common"] == penalty.common)
    at &= table["param_relax"] == penalty.relax
    assert at.sum() == 1
    assert table["mean_selected"][at][0] == table["mean_selected"][near].min()
    smallest = regressor(cv=2, one_se=False).fit(PAIRS)
    table = smallest.cv_results_
    assert smallest.penalty_.common == table["param_common"][np.argmax(table["mean_test_score"])]


def test_validation_rows_in_every_form():
    X, y, labels = long(PAIRS)
    X_val, y_val, task_val = long(FRESH)
    model = regressor().fit(PAIRS, X_val=FRESH)
    others = [
        regressor().fit(PAIRS, X_val=X_val, y_val=y_val, task_val=task_val),
        regressor().fit(X, y, task=labels, X_val=FRESH),
        regressor().fit(X, y, task=labels, X_val=X_val, y_val=y_val, task_val=task_val),
        regressor().fit(X, y, task=labels, X_val=dict(reversed(FRESH.items()))),
    ]
    for other in others:
        assert other.penalty_.common == model.penalty_.common
        np.testing.assert_array_equal(other.predict(X_val), model.predict(X_val))
    numbers, numbers_val = ((t == "b").astype(float) for t in (labels, task_val))
    column = regressor().fit(
        np.column_stack([X, numbers]),
        y,
        task=5,
        X_val=np.column_stack([X_val, numbers_val]),
        y_val=y_val,
    )
    assert column.penalty_.common == model.penalty_.common
    crossed = regressor(cv=2).fit(PAIRS)
    assert crossed.penalty_.common != model.penalty_.common


def test_validation_rows_decide():
    """Where the first feature is worthless in the validation rows, it is left out."""
    rng = np.random.default_rng(2)
    noise = {k: (X, rng.standard_normal(len(y))) for k, (X, y) in FRESH.items()}
    with pytest.warns(UserWarning, match="selected no feature"):
        model = regressor().fit(PAIRS, X_val=noise)
    assert len(model.selected_features_) == 0


def test_forms_of_cv():
    X, y, labels = long(PAIRS)
    by_splitter = regressor(cv=KFold(2)).fit(PAIRS)
    same = regressor(cv=KFold(2)).fit(X, y, task=labels)
    assert by_splitter.penalty_.common == same.penalty_.common
    # The same halves of every task, as indices into the rows of X.
    half = np.concatenate([np.arange(50) < 25, np.arange(40) < 20])
    pairs = [(np.flatnonzero(~half), np.flatnonzero(half)), (np.flatnonzero(half), ~half)]
    for cv in (pairs, iter(pairs)):
        model = regressor(cv=cv).fit(X, y, task=labels)
        assert model.penalty_.common == pytest.approx(by_splitter.penalty_.common)
    columns = np.column_stack([X[:, 0], X[:, 1]])
    outputs = regressor(cv=pairs).fit(X, columns)
    assert outputs.penalty_.common == regressor(cv=iter(pairs)).fit(X, columns).penalty_.common


def test_a_given_relax_is_validated_and_used():
    relaxed = DirtyLasso("auto", None, bias_strength=0.1, relax=0.2)
    model = regressor(relaxed, cv=2).fit(PAIRS)
    table = model.cv_results_
    np.testing.assert_array_equal(table["param_relax"], 0.2)
    plain = regressor(cv=2).fit(PAIRS).cv_results_
    n = min(len(table["param_common"]), len(plain["param_common"]))
    np.testing.assert_allclose(table["param_common"][:n], plain["param_common"][:n])
    np.testing.assert_array_equal(table["mean_selected"][:n], plain["mean_selected"][:n])
    # Early on the path less shrinkage is better.
    assert table["mean_test_score"][3] > plain["mean_test_score"][3]
    assert model.penalty_.relax == 0.2


@pytest.mark.parametrize(
    "penalty",
    [
        PerTask(Frobenius("auto")),
        PerTask(L21("auto", 0.1)) + Frobenius(0.01, 0),
        L21("auto", 0.1),
        Frobenius("auto"),
    ],
    ids=repr,
)
def test_other_penalties_are_chosen_too(penalty):
    model = regressor(penalty, cv=2).fit(PAIRS)
    assert not model.penalty_.is_auto
    assert model.score(FRESH) > 0.5
    assert (np.diff(model.cv_results_["param_common"]) < 0).all()


def test_tasks_of_very_different_sizes():
    """Seven rows make folds of three and two: groups of rows are not all of one number."""
    X, y = PAIRS["b"]
    model = regressor(one_se=False).fit({"a": PAIRS["a"], "b": (X[:7], y[:7])})
    assert 0 in model.selected_features_


def test_chosen_strengths_of_a_classifier():
    tasks = {k: (X, y > np.median(y)) for k, (X, y) in PAIRS.items()}
    model = MultiTaskJOPLEnClassifier(CELLS, penalty=QUICK, cv=2, random_state=0).fit(tasks)
    assert 0 in model.selected_features_
    assert model.penalty_.common > 0
    assert model.score(tasks) > 0.75
