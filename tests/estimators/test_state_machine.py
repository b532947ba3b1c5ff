"""Any order of fit, save, load, pickle, clone, prune, update and failed calls (Hypothesis)."""

import copy
import pickle
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import jointleaf
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor, prune
from jointleaf.partitions import LightGBMPartitioner

STRENGTH = 0.02
RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3))
Y = X[:, 0] * (X[:, 1] > 0) + 0.1 * RNG.normal(size=150)
OTHER = RNG.normal(size=(20, 3)) * 2  # rows that are predicted
OTHER[:4, 1] = np.nan
SIZES = 60, 75  # rows of fits; updates take those that follow
TARGETS = {
    "squared_error": 100 + 50 * Y,
    "poisson": RNG.poisson(np.exp(Y)).astype(float),
    "two": np.where(Y > 0, "b", "a"),
    "three": np.digitize(Y, [-0.3, 0.3]),
    "blend": Y,
}


def unfitted(kind):
    if kind == "blend":
        return JOPLEnRegressor(recipe="blend", random_state=0)
    options = {"penalty": Frobenius(STRENGTH), "random_state": 0, "root_cell": False}
    if kind in ("squared_error", "poisson"):
        return JOPLEnRegressor(LightGBMPartitioner(3, n_cells=4), loss=kind, **options)
    return JOPLEnClassifier(LightGBMPartitioner(3, n_cells=4), **options)


def outputs(model):
    """What a model says about the other rows."""
    if hasattr(model, "classes_"):
        return np.column_stack([model.predict_proba(OTHER), model.decision_function(OTHER)])
    return model.predict(OTHER)


@cache
def fitted(kind, size):
    """A model, its rows not kept, and its predictions; fits are the same in every process."""
    model = unfitted(kind).fit(X[:size], TARGETS[kind][:size])
    return copy.copy(model), outputs(model)


def solution(model, rows, y):
    """Predictions by the normal equations of the cells of a model, fitted to rows."""
    cells = model.cell_model_

    def design(matrix):
        features, codes = cells.features.transform(matrix), cells.partitioner.apply(matrix)
        features = np.column_stack([features, np.ones(len(features))])
        inside = [
            codes[:, p] == c for p, n in enumerate(cells.partitioner.n_cells_) for c in range(n)
        ]
        return np.hstack([mask[:, None] * features for mask in inside])

    A, target = design(rows), (y - cells.centre) / cells.unit - cells.offset
    gram = A.T @ A / len(A) + STRENGTH * np.eye(A.shape[1])
    theta = np.linalg.solve(gram, A.T @ target / len(A))
    return cells.centre + cells.unit * (design(OTHER) @ theta + cells.offset)


class Life(RuleBasedStateMachine):
    """One estimator, what it must predict, and the rows that it was fitted to."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "model.jleaf"

    def teardown(self):
        self.folder.cleanup()

    def _now(self, model):
        """Go on with another model, which predicts something new."""
        self.model, self.expected = model, outputs(model)

    def _rows(self):
        return X[: self.n_rows], self.y[: self.n_rows]

    @initialize(kind=st.sampled_from(list(TARGETS)), size=st.sampled_from(SIZES))
    def start(self, kind, size):
        self.kind, self.y = kind, TARGETS[kind]
        self.model, self.n_rows, self.size = copy.copy(fitted(kind, size)[0]), size, size
        self.expected, self.keeps_rows = fitted(kind, size)[1], False

    @rule(size=st.sampled_from(SIZES))
    def fit(self, size):
        """A fitted estimator is fitted anew as if it were not, whatever happened to it."""
        self.n_rows = self.size = size
        assert self.model.fit(*self._rows()) is self.model
        self.expected, self.keeps_rows = fitted(self.kind, size)[1], self.kind != "blend"

    @rule()
    def clone(self):
        """A clone is not fitted, and is when it is fitted what the first model was."""
        copied = clone(self.model)
        with pytest.raises(NotFittedError):
            copied.predict(OTHER)
        assert not [name for name in vars(copied) if name.endswith("_")]
        copied.fit(X[: self.size], self.y[: self.size])
        np.testing.assert_array_equal(outputs(copied), fitted(self.kind, self.size)[1])

    @rule()
    def save_and_load(self):
        jointleaf.save(self.model, self.path, metadata={"rows": self.n_rows})
        first = self.path.read_bytes()
        self.model, self.keeps_rows = jointleaf.load(self.path), False
        jointleaf.save(self.model, self.path, metadata=jointleaf.io.load_metadata(self.path))
        assert self.path.read_bytes() == first

    @rule(protocol=st.sampled_from([2, pickle.HIGHEST_PROTOCOL]))
    def pickle(self, protocol):
        self.model = pickle.loads(pickle.dumps(self.model, protocol))
        self.keeps_rows = False

    @rule()
    def deepcopy(self):
        self.model, self.keeps_rows = copy.deepcopy(self.model), False

    @precondition(lambda self: self.kind != "blend" and self.model.cell_model_.layout.n_cells > 4)
    @rule(fraction=st.sampled_from([0.4, 0.8]))
    def prune(self, fraction):
        """What is pruned is another model, of at most so many cells."""
        n_cells = max(3, int(fraction * self.model.cell_model_.layout.n_cells))
        pruned = prune(self.model, *self._rows(), n_cells=n_cells)
        assert pruned.cell_model_.layout.n_cells <= n_cells
        np.testing.assert_array_equal(outputs(self.model), self.expected)
        self._now(pruned)
        self.keeps_rows = pruned._kept_rows is not None

    @precondition(lambda self: self.kind != "blend" and self.n_rows < len(X))
    @rule(n_new=st.integers(1, 40), with_old=st.booleans())
    def update(self, n_new, with_old):
        """Squared errors have one solution, by whatever way the rows came."""
        old = self._rows()
        self.n_rows = min(self.n_rows + n_new, len(X))
        new = slice(len(old[0]), self.n_rows)
        if not self.keeps_rows:
            with pytest.raises(ValueError, match="give X_old and y_old"):
                self.model.update(X[new], self.y[new])
        rows = {} if self.keeps_rows and not with_old else {"X_old": old[0], "y_old": old[1]}
        self.model.update(X[new], self.y[new], **rows)
        self.keeps_rows = True
        self._now(self.model)
        if self.kind == "squared_error":
            expected = solution(self.model, *self._rows())
            np.testing.assert_allclose(self.expected, expected, rtol=0, atol=1e-6)

    @rule(
        call=st.sampled_from(
            [
                lambda self: self.model.fit(X[:30], self.y[:29]),
                lambda self: self.model.fit(np.full((30, 3), np.inf), self.y[:30]),
                lambda self: self.model.fit(*self._rows(), sample_weight=np.zeros(self.n_rows)),
                lambda self: self.model.predict(OTHER[:, :2]),
                lambda self: self.model.update(X[:3, :2], self.y[:3]),
                lambda self: self.model.update(X[:3], self.y[:2], X_old=X, y_old=self.y),
                lambda self: self.model.update(X[:3], self.y[:3], X_old=X),
                lambda self: self.model.set_params(unknown=1),
                lambda self: prune(self.model, *self._rows(), n_cells=0),
                lambda self: prune(self.model, X[:, :2], self.y),
                lambda self: jointleaf.save(self.model, self.path.parent / "none" / "model"),
                lambda self: jointleaf.save(self.model, self.path, metadata={"x": {1}}),
                lambda self: jointleaf.save(self.model, self.path, max_bytes=100),
            ]
        )
    )
    def fail(self, call):
        """A call that fails changes nothing, in the model or in its file."""
        before, file = dict(vars(self.model)), self.path.exists() and self.path.read_bytes()
        with pytest.raises((ValueError, OSError)):
            call(self)
        after = vars(self.model)
        assert after.keys() == before.keys()
        assert all(after[name] is before[name] for name in before)
        assert (self.path.exists() and self.path.read_bytes()) == file
        assert len(list(self.path.parent.iterdir())) <= 1

    @invariant()
    def predicts(self):
        """Predictions are the same bits until something must change them, finite and whole."""
        values = outputs(self.model)
        np.testing.assert_array_equal(values, self.expected)
        assert len(values) == len(OTHER)
        assert np.isfinite(values).all()
        labels = self.model.predict(OTHER)
        assert labels.shape == (len(OTHER),)
        if hasattr(self.model, "classes_"):
            proba = self.model.predict_proba(OTHER)
            np.testing.assert_allclose(proba.sum(axis=1), 1)
            np.testing.assert_array_equal(labels, self.model.classes_[proba.argmax(axis=1)])
        elif self.kind == "poisson":
            assert (labels > 0).all()


def test_any_order_of_calls():
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    few = settings(max_examples=25, stateful_step_count=12, deadline=None)
    run_state_machine_as_test(Life, settings=settings(few, suppress_health_check=slow))
