"""Losses and intervals of several tasks: those of single ones, where nothing couples them."""

import numpy as np
import pytest

import jointleaf
from jointleaf import L21, Frobenius, JOPLEnRegressor, MultiTaskJOPLEnRegressor, PerTask
from jointleaf._core.losses import Huber, joined_loss, robust_scale
from jointleaf.partitions import VoronoiPartitioner

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (90, 3))
MEAN = np.exp(X[:, 0] + 0.5 * (X[:, 1] > 0))
TARGETS = {
    "absolute_error": MEAN + RNG.standard_t(2, 90),
    "huber": MEAN + RNG.standard_t(2, 90),
    "quantile": MEAN + RNG.normal(size=90),
    "poisson": RNG.poisson(MEAN).astype(float),
    "gamma": RNG.gamma(2, MEAN / 2),
    "tweedie": RNG.gamma(2, MEAN / 2) * (RNG.random(90) < 0.7),
}
OPTIONS = {"quantile": {"quantile": 0.8}, "tweedie": {"power": 1.3}}
CELLS = VoronoiPartitioner(4, 4, random_state=0)


FIXED = Frobenius(0.05)


def parameters(name, penalty=FIXED):
    options = {"loss": name, "penalty": penalty, "tol": 1e-8, "max_iter": 5000, "random_state": 0}
    return options | OPTIONS.get(name, {})


@pytest.mark.parametrize("name", TARGETS)
def test_one_task_is_the_fit_of_one_task(name):
    y = TARGETS[name]
    alone = JOPLEnRegressor("random_trees", **parameters(name)).fit(X, y)
    tasks = MultiTaskJOPLEnRegressor("random_trees", **parameters(name)).fit(X, y)
    np.testing.assert_allclose(tasks.predict(X), alone.predict(X), rtol=1e-7)
    assert tasks.losses_ == [alone.loss_]
    assert tasks.summary().count(name) >= 1


@pytest.mark.parametrize("name", TARGETS)
def test_tasks_that_nothing_couples_are_fits_of_their_own(name, tmp_path):
    """The squared norm is a sum over tasks; rows, units and deltas differ."""
    y = TARGETS[name]
    other = 3 * y[:60] if name != "huber" else y[:60] ** 3  # other residuals than the first
    pairs = {"a": (X, y), "b": (X[:60], other)}
    tasks = MultiTaskJOPLEnRegressor(CELLS, task_weights=[1, 1], **parameters(name)).fit(pairs)
    assert tasks.solution_.converged
    jointleaf.save(tasks, tmp_path / "tasks.jleaf")
    loaded = jointleaf.load(tmp_path / "tasks.jleaf")
    for t, (task, (rows, targets)) in enumerate(pairs.items()):
        alone = JOPLEnRegressor(CELLS, **parameters(name)).fit(rows, targets)
        if name != "huber":  # whose scale depends on the seed, which differs from task to task
            assert tasks.losses_[t] == alone.loss_
        else:
            given = parameters(name) | {"loss": tasks.losses_[t]}
            alone = JOPLEnRegressor(CELLS, **given).fit(rows, targets)
        expected = alone.predict(X)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(tasks.predict(X, task=task), expected, atol=1e-6 * scale)
        np.testing.assert_array_equal(loaded.predict(X, task=task), tasks.predict(X, task=task))
    assert loaded.losses_ == tasks.losses_
    if name == "huber":
        units = [robust_scale(y, np.ones(len(y))) for _, y in pairs.values()]
        deltas = [loss.delta / unit for loss, unit in zip(tasks.losses_, units, strict=True)]
        assert abs(deltas[0] / deltas[1] - 1) > 0.2


def test_the_loss_of_parts_is_that_of_every_part():
    y, f = np.random.default_rng(1).normal(0, 3, (2, 7))
    parts = Huber(0.5), Huber(2.0)
    joined = joined_loss(parts, [3, 4])
    for method in ("row_loss", "row_gradient", "row_curvature", "row_working_curvature"):
        expected = [
            getattr(parts[0], method)(y[:3], f[:3]),
            getattr(parts[1], method)(y[3:], f[3:]),
        ]
        np.testing.assert_array_equal(getattr(joined, method)(y, f), np.concatenate(expected))
    assert joined_loss([Huber(1.0), Huber(1.0)], [3, 4]) == Huber(1.0)


@pytest.mark.parametrize("name", ["poisson", "huber"])
def test_strengths_are_validated_by_the_loss(name):
    """The best score is minus the mean loss of the model on the validation rows."""
    y = TARGETS[name]
    penalty = PerTask(L21("auto", bias_strength=10.0))
    model = MultiTaskJOPLEnRegressor(CELLS, one_se=False, **parameters(name, penalty))
    pairs = [(X[:50], y[:50]), (X[:40], 7 * y[10:50])]
    held_out = [(X[50:], y[50:]), (X[50:], 7 * y[50:])]
    model.fit(pairs, X_val=held_out)
    losses = []
    for t, (_, truth) in enumerate(held_out):
        loss, unit = model.losses_[t], model.cell_models_[t].unit
        raw = model.explain(X[50:], task=t).prediction
        centre = model.cell_models_[t].centre
        scaled = loss.in_units(unit)
        losses.append(scaled.row_loss((truth - centre) / unit, (raw - centre) / unit).mean())
    expected = np.average(losses, weights=model.task_weights_)
    assert -model.cv_results_["mean_test_score"].max() == pytest.approx(expected, rel=0.01)
    assert model.report_[0].loss == name


@pytest.fixture(scope="module")
def calibrated():
    y = X[:, 0] + 0.3 * np.random.default_rng(1).normal(size=90)
    tasks = {"a": (X, y), "b": (X[:70], 5 + 3 * y[:70])}
    return tasks, MultiTaskJOPLEnRegressor("random_trees", random_state=0).fit(tasks)


def test_intervals_are_those_of_every_task(calibrated, tmp_path):
    tasks, model = calibrated
    alone = JOPLEnRegressor("random_trees", random_state=0, tol=1e-5).fit(*tasks["a"])
    expected = alone.predict_interval(X[:9], 0.8)
    np.testing.assert_allclose(model.predict_interval(X[:9], 0.8, task="a"), expected, rtol=1e-9)
    both = model.predict_interval(X[:9], 0.8)
    assert both.shape == (9, 2, 2)
    np.testing.assert_array_equal(both[:, 0], model.predict_interval(X[:9], 0.8, task="a"))
    labels = np.array(["a", "b"] * 4 + ["a"])
    mixed = model.predict_interval(X[:9], 0.8, task=labels)
    np.testing.assert_array_equal(mixed[labels == "b"], both[labels == "b", 1])
    jointleaf.save(model, tmp_path / "tasks.jleaf")
    loaded = jointleaf.load(tmp_path / "tasks.jleaf")
    np.testing.assert_array_equal(loaded.predict_interval(X[:9], 0.8), both)


def test_explanations_say_the_intervals(calibrated):
    _, model = calibrated
    both = model.predict_interval(X[:4], 0.8)
    explanation = model.explain(X[:4], coverage=0.8)
    assert explanation.interval.shape == (4, 2, 2)
    for k, task in enumerate(("a", "b")):
        one = explanation.output(task)
        np.testing.assert_allclose(one.interval, both[:, k], rtol=1e-9)
        np.testing.assert_allclose(one[2].interval, both[2:3, k], rtol=1e-9)
        np.testing.assert_allclose(
            model.explain(X[:4], task=task, coverage=0.8).interval, both[:, k], rtol=1e-9
        )
    labels = np.array(["b", "a", "b", "a"])
    mixed = model.explain(X[:4], task=labels, coverage=0.8).interval
    np.testing.assert_allclose(mixed, both[np.arange(4), (labels == "b").astype(int)], rtol=1e-9)


def test_without_held_out_rows_there_are_no_intervals():
    y = TARGETS["quantile"]
    model = MultiTaskJOPLEnRegressor(CELLS, penalty=Frobenius(0.1)).fit([(X, y), (X, y)])
    with pytest.raises(ValueError, match=r"penalty=Frobenius.*fit with penalty='auto'"):
        model.predict_interval(X)
    assert model.explain(X[:2]).interval is None


def test_few_held_out_rows_give_infinite_intervals_with_a_warning(calibrated):
    _, model = calibrated
    with pytest.warns(UserWarning, match="coverage=0.99 needs more rows to calibrate on than 90"):
        assert np.isinf(model.predict_interval(X[:2], 0.99, task="a")).all()
    with pytest.raises(ValueError, match=r"coverage=0.99 is for intervals"):
        model.explain(X[:2], coverage=0.99)


@pytest.mark.parametrize(
    ("options", "targets", "message"),
    [
        ({"loss": "poisson"}, [1.0, -1.0], r"task 'b': loss='poisson' takes y that is zero or"),
        ({"loss": "gamma"}, [1.0, 0.0], r"task 'b': loss='gamma' takes y that is positive"),
        ({"loss": "poisson"}, [0.0, 0.0], r"task 'b': loss='poisson' .*zero in every row"),
        ({"loss": "cubic"}, [1.0, 0.0], r"loss='cubic' is not known"),
        ({"loss": "huber", "quantile": 0.3}, [1.0, 0.0], r"quantile=0.3 has no effect"),
        ({"loss": "quantile", "quantile": 1.5}, [1.0, 0.0], r"quantile=1.5 must be a number"),
        ({"loss": "tweedie", "power": 3}, [1.0, 0.0], r"power=3 must be a number between"),
    ],
)
def test_losses_that_cannot_be(options, targets, message):
    pairs = {"a": (X[:40], np.ones(40) + X[:40, 0]), "b": (X[:40], np.repeat(targets, 20))}
    with pytest.raises(ValueError, match=message):
        MultiTaskJOPLEnRegressor(**options).fit(pairs)


@pytest.mark.slow
def test_deltas_that_differ_on_jax():
    pytest.importorskip("jax")
    y = TARGETS["huber"]
    pairs = {"a": (X, y), "b": (X[:60], y[:60] ** 3)}
    one, two = (
        MultiTaskJOPLEnRegressor(CELLS, device=device, **parameters("huber")).fit(pairs)
        for device in ("cpu", "jax:cpu")
    )
    np.testing.assert_allclose(two.predict(X), one.predict(X), rtol=1e-6, atol=1e-6)
