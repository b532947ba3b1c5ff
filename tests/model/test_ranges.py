"""Linear models that stay inside the range of their own cell."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf._core.layout import CellLayout
from jointleaf._model.contributions import cell_ranges
from jointleaf.partitions import LightGBMPartitioner

RIDGE = Frobenius(1e-3, 1e-3)


def by_hand(X, codes, train, train_codes, theta, layout):
    """Row by row and partition by partition."""
    f = np.zeros((len(X), *theta.shape[2:]))
    for n, x in enumerate(X):
        for p, code in enumerate(codes[n]):
            if code < 0:
                continue
            mine = train[train_codes[:, p] == code]
            inside = np.clip(x, mine.min(axis=0), mine.max(axis=0))
            weights = theta[layout.offsets[p] + code]
            f[n] += np.tensordot(inside, weights[:-1], 1) + weights[-1]
    return f


@pytest.mark.parametrize("n_outputs", [None, 3])
def test_against_a_loop(n_outputs):
    rng = np.random.default_rng(0)
    layout = CellLayout((3, 1, 5), 4)
    train, X = rng.standard_normal((60, 4)), 3 * rng.standard_normal((25, 4))
    sizes = np.array([3, 1, 5])
    train_codes = rng.integers(0, sizes, (60, 3))
    train_codes[:10, 2] = -1
    codes = rng.integers(-1, sizes, (25, 3))
    theta = rng.standard_normal((9, 5) if n_outputs is None else (9, 5, n_outputs))
    ranges = cell_ranges(train, train_codes, layout)
    expected = by_hand(X, codes, train, train_codes, theta, layout)
    np.testing.assert_allclose(
        ranges.predict(X, codes, layout, theta[:, :-1], theta[:, -1]), expected, rtol=1e-12
    )


def test_training_rows_are_predicted_as_without():
    X, y = load_diabetes(return_X_y=True)
    fit = {"partitioner": LightGBMPartitioner(20, 8), "penalty": RIDGE, "random_state": 0}
    plain, inside = (JOPLEnRegressor(clip=c, **fit).fit(X, y) for c in (True, "cell"))
    np.testing.assert_allclose(inside.predict(X), plain.predict(X), rtol=1e-9)
    np.testing.assert_array_equal(inside.coef_, plain.coef_)
    far = X + 0.02
    assert not np.allclose(inside.predict(far), plain.predict(far))


def test_every_cell_stays_at_the_edge_of_what_it_saw():
    x = np.linspace(0, 1, 200)[:, None]
    y = np.where(x[:, 0] < 0.5, x[:, 0], 5.0)
    one = {"partitioner": LightGBMPartitioner(1, 2), "root_cell": False, "random_state": 0}
    model = JOPLEnRegressor(clip="cell", penalty=Frobenius(1e-9, 0.0), **one).fit(x, y)
    codes = model.apply(x)[:, 0]
    edge = x[codes == codes[0]].max()
    between = np.array([[edge + 1e-6]])
    while model.apply(between)[0, 0] != codes[0]:  # beyond the cell's last row, still in the cell
        between = (between + edge) / 2
    np.testing.assert_allclose(model.predict(between), model.predict([[edge]]), rtol=1e-12)
    np.testing.assert_allclose(model.predict([[-9.0]]), model.predict([[0.0]]), rtol=1e-9)


def test_classes_float32_and_pickles():
    import pickle

    X, y = load_iris(return_X_y=True)
    fit = {"partitioner": LightGBMPartitioner(9, 4), "penalty": RIDGE, "random_state": 0}
    plain = JOPLEnClassifier(**fit).fit(X, y)
    inside = JOPLEnClassifier(clip="cell", **fit).fit(X, y)
    np.testing.assert_allclose(inside.predict_proba(X), plain.predict_proba(X), rtol=1e-8)
    loaded = pickle.loads(pickle.dumps(inside))
    np.testing.assert_array_equal(loaded.predict_proba(X + 1), inside.predict_proba(X + 1))
    single = JOPLEnClassifier(clip="cell", **fit).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.predict_proba(X.astype(np.float32)).sum(axis=1), 1, rtol=1e-5)


def test_constant_cells_have_nothing_to_limit():
    X, y = load_diabetes(return_X_y=True)
    fit = {"cells": "constant", "penalty": RIDGE, "random_state": 0}
    plain, inside = (JOPLEnRegressor(clip=c, **fit).fit(X, y) for c in (True, "cell"))
    np.testing.assert_array_equal(inside.predict(X + 1), plain.predict(X + 1))


@pytest.mark.parametrize("clip", ["training", None, 1])
def test_other_words_are_rejected(clip):
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(TypeError, match=r"clip=.* must be True, False or 'cell'"):
        JOPLEnRegressor(clip=clip).fit(X, y)
