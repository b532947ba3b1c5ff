"""Sparse matrices are the tables that they stand for, as far as there is memory."""

import numpy as np
import pytest
from scipy import sparse
from xgboost import XGBRegressor

from jointleaf import (
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    MultiTaskJOPLEnRegressor,
    refine,
)
from jointleaf._core import arrays
from jointleaf.estimators import LinearForestRegressor
from jointleaf.partitions import LightGBMPartitioner

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 6)) * (RNG.random((90, 6)) < 0.4)
Y = X @ np.arange(6.0) + RNG.standard_normal(90) / 10
SMALL = {"partitioner": LightGBMPartitioner(4, 4), "penalty": Frobenius(0.1), "random_state": 0}


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_a_fit_is_that_of_the_dense_table_to_the_bit(form, dtype):
    table = (3 * X).astype(dtype)
    model = JOPLEnRegressor(**SMALL).fit(form(table), Y)
    same = JOPLEnRegressor(**SMALL).fit(table, Y)
    np.testing.assert_array_equal(model.predict(form(table)), same.predict(table))
    assert model.predict(form(table)).dtype == same.predict(table).dtype


def test_everything_that_takes_rows_takes_sparse_ones():
    rows, labels = sparse.csr_array(X), Y > 0
    valid = {"X_val": rows, "y_val": Y}
    choosing = SMALL | {"penalty": Frobenius("auto")}
    model, same = (
        JOPLEnRegressor(**choosing).fit(x, Y, **{**valid, "X_val": x}) for x in (rows, X)
    )
    model.calibrate(rows, Y)
    same.calibrate(X, Y)
    for method in ("predict", "apply", "predict_interval"):
        np.testing.assert_array_equal(getattr(model, method)(rows), getattr(same, method)(X))
    assert model.explain(rows[:2]).to_frame().equals(same.explain(X[:2]).to_frame())
    np.testing.assert_array_equal(
        model.update(rows[:5], Y[:5]).predict(rows), same.update(X[:5], Y[:5]).predict(X)
    )
    classifier = JOPLEnClassifier(**SMALL).fit(rows, labels)
    np.testing.assert_array_equal(classifier.predict_proba(rows), classifier.predict_proba(X))
    tasks = MultiTaskJOPLEnRegressor(**SMALL).fit([(rows, Y), (rows, -Y)])
    np.testing.assert_array_equal(tasks.predict(rows, task=1), tasks.predict(X, task=1))
    forest = LinearForestRegressor(5, random_state=0).fit(rows, Y)
    np.testing.assert_array_equal(forest.predict(rows), forest.predict(X))


def test_predictions_of_large_matrices_are_made_block_by_block(monkeypatch):
    model = JOPLEnClassifier(**SMALL).fit(X, Y > 0)
    rows = sparse.csr_array(np.tile(X, (5, 1)))
    expected = model.predict_proba(rows.toarray())
    monkeypatch.setattr(arrays, "_BLOCK", 6 * 8 * 100)
    monkeypatch.setenv(arrays.MEMORY_VARIABLE, str(6 * 8 * 100))  # the whole of it is too large
    np.testing.assert_array_equal(model.predict_proba(rows), expected)
    assert [len(block.toarray()) for block in arrays.row_blocks(rows)] == [100, 100, 100, 100, 50]
    with pytest.raises(MemoryError, match="sparse matrix"):
        model.apply(rows)


def test_what_memory_does_not_hold_is_refused_with_its_size(monkeypatch):
    rows = sparse.csr_matrix((40_000, 30_000))
    monkeypatch.setenv(arrays.MEMORY_VARIABLE, "2e9")
    message = r"\(40000, 30000\), which takes 9.6 GB .* and 2.0 GB are available: .*TruncatedSVD"
    with pytest.raises(MemoryError, match=message):
        JOPLEnRegressor().fit(rows, np.zeros(40_000))
    monkeypatch.delenv(arrays.MEMORY_VARIABLE)
    monkeypatch.setattr(arrays, "available_memory", lambda: None)  # not known
    with pytest.raises(MemoryError, match=r"and 4\.3 GB are available"):
        JOPLEnRegressor().fit(rows, np.zeros(40_000))


def test_xgboost_reads_zeros_as_missing():
    model = XGBRegressor(n_estimators=2, max_depth=2).fit(sparse.csr_array(X), Y)
    with pytest.raises(ValueError, match="XGBoost read as missing what is not stored"):
        refine(model, sparse.csr_array(X), Y)
