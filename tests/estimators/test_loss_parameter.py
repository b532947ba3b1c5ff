"""Regression with every loss: offsets and exposure, links everywhere, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score

import jointleaf as jl
from jointleaf import Frobenius, JOPLEnRegressor
from jointleaf._core.losses import robust_scale
from jointleaf.losses import AbsoluteError, Huber, Loss, Poisson, Quantile, Tweedie

N = 300
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (2 * N, 3))
MEAN = np.sin(3 * X[:, 0]) + X[:, 1]
EXPOSURE = RNG.uniform(0.2, 2.0, 2 * N)
NUMBERS = MEAN + 0.3 * RNG.standard_t(2, 2 * N)
COUNTS = RNG.poisson(EXPOSURE * np.exp(MEAN)).astype(float)
AMOUNTS = np.exp(MEAN) * RNG.gamma(2, 0.5, 2 * N)
TRAIN, TEST = slice(N), slice(N, None)
#: parameters of every loss, and its targets
LOSSES = {
    "absolute_error": ({}, NUMBERS),
    "huber": ({}, NUMBERS),
    "quantile": ({"quantile": 0.9}, NUMBERS),
    "poisson": ({}, COUNTS),
    "gamma": ({}, AMOUNTS),
    "tweedie": ({"power": 1.3}, COUNTS),
}
LOG_LINK = ("poisson", "gamma", "tweedie")


def quick(loss="poisson", **options):
    """An estimator whose fit takes a fraction of a second."""
    options = {"penalty": Frobenius(1.0), **options}
    return JOPLEnRegressor("lightgbm", loss=loss, random_state=0, **options)


class SoftAbsolute(Loss):
    """sqrt(1 + r^2) - 1: a loss of one's own."""

    max_curvature = 1.0
    is_of_residuals = True

    def row_loss(self, y, f):
        return np.sqrt(1 + (y - f) ** 2) - 1

    def row_gradient(self, y, f):
        return (f - y) / np.sqrt(1 + (y - f) ** 2)

    def row_curvature(self, y, f):
        return (1 + (y - f) ** 2) ** -1.5

    def best_constant(self, y, s):
        return np.asarray(np.median(y))


def held_out_loss(model, y, **options):
    """Mean loss on the test rows of a model, and of the best constant of the training rows."""
    loss, n = model.loss_, len(y) - N
    predicted = model.predict(X[TEST], **options)
    raw = np.log(predicted) if loss.has_log_link else predicted
    shift = np.log(options["exposure"]) if options else np.zeros(n)
    offset = np.log(EXPOSURE[TRAIN]) if options else 0.0
    constant = loss.best_shift(y[TRAIN], np.ones(N), offset) + shift
    return loss.value(y[TEST], raw, np.ones(n)), loss.value(y[TEST], constant, np.ones(n))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["joint", "blend"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_recipe_minimises_the_loss(loss, recipe):
    options, y = LOSSES[loss]
    model = JOPLEnRegressor(recipe=recipe, loss=loss, random_state=0, **options)
    model.fit(X[TRAIN], y[TRAIN])
    fitted, constant = held_out_loss(model, y)
    # A constant learns nothing; of what a tweedie model could learn exposure is the larger part.
    assert fitted < (0.9 if loss == "tweedie" else 0.8) * constant
    assert model.report_.loss == loss
    assert model.report_.recipe == recipe
    assert dict(model.report_.lines())["loss"] == loss
    if loss in LOG_LINK:
        assert model.predict(X).min() > 0


@pytest.mark.slow
def test_quantiles_cover_what_they_say():
    shares = [
        np.mean(quick("quantile", quantile=q, penalty="auto").fit(X[TRAIN], NUMBERS[TRAIN])
                .predict(X[TEST]) >= NUMBERS[TEST])
        for q in (0.1, 0.5, 0.9)
    ]  # fmt: skip
    np.testing.assert_allclose(shares, [0.1, 0.5, 0.9], atol=0.08)


@pytest.mark.parametrize("loss", LOG_LINK)
def test_exposure_multiplies_predictions(loss):
    y = LOSSES[loss][1]
    model = quick(loss).fit(X[TRAIN], y[TRAIN], exposure=EXPOSURE[TRAIN])
    rates = model.predict(X[TEST])
    np.testing.assert_allclose(
        model.predict(X[TEST], exposure=EXPOSURE[TEST]), EXPOSURE[TEST] * rates
    )
    np.testing.assert_allclose(
        model.predict(X[TEST], offset=np.log(EXPOSURE[TEST])), EXPOSURE[TEST] * rates
    )
    assert model.report_.has_offset
    same = quick(loss).fit(X[TRAIN], y[TRAIN], offset=np.log(EXPOSURE[TRAIN]))
    np.testing.assert_allclose(same.predict(X[TEST]), rates, rtol=1e-10)


def test_exposure_is_worth_something():
    model = quick().fit(X[TRAIN], COUNTS[TRAIN], exposure=EXPOSURE[TRAIN])
    fitted, constant = held_out_loss(model, COUNTS, exposure=EXPOSURE[TEST])
    without = quick().fit(X[TRAIN], COUNTS[TRAIN])
    plain = Poisson().value(COUNTS[TEST], np.log(without.predict(X[TEST])), np.ones(N))
    assert fitted < plain
    assert fitted < 0.8 * constant
    total = model.predict(X[TRAIN], exposure=EXPOSURE[TRAIN]).sum()
    assert total == pytest.approx(COUNTS[TRAIN].sum(), rel=0.02)


@pytest.mark.slow
def test_exposure_in_the_recipes():
    for recipe in ("joint", "blend"):
        model = JOPLEnRegressor(recipe=recipe, loss="poisson", random_state=0)
        model.fit(X[TRAIN], COUNTS[TRAIN], exposure=EXPOSURE[TRAIN])
        fitted, constant = held_out_loss(model, COUNTS, exposure=EXPOSURE[TEST])
        assert fitted < 0.7 * constant, recipe


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber"])
def test_offsets_of_residuals_are_subtracted(loss):
    model = quick(loss).fit(X[TRAIN], NUMBERS[TRAIN], offset=MEAN[TRAIN])
    rest = quick(loss).fit(X[TRAIN], NUMBERS[TRAIN] - MEAN[TRAIN])
    np.testing.assert_allclose(
        model.predict(X[TEST], offset=MEAN[TEST]), rest.predict(X[TEST]) + MEAN[TEST]
    )


@pytest.mark.parametrize("loss", ["absolute_error", "quantile", "huber"])
@pytest.mark.parametrize("unit", [1e-3, 1e4])
def test_units_of_the_target_do_not_matter(loss, unit):
    plain = quick(loss).fit(X[TRAIN], NUMBERS[TRAIN])
    other = quick(loss).fit(X[TRAIN], 5 + unit * NUMBERS[TRAIN])
    np.testing.assert_allclose(
        other.predict(X[TEST]), 5 + unit * plain.predict(X[TEST]), rtol=1e-3, atol=2e-3 * unit
    )


def test_huber_finds_its_scale_and_outliers_do_not_move_it():
    y = NUMBERS[TRAIN].copy()
    y[::20] += 100.0
    model = quick("huber").fit(X[TRAIN], y)
    assert 0.3 < model.loss_.delta / (1.345 * robust_scale(NUMBERS - MEAN, np.ones(2 * N))) < 3
    squared = quick("squared_error").fit(X[TRAIN], y)
    error, squared_error = (np.abs(m.predict(X) - MEAN).mean() for m in (model, squared))
    assert error < 0.3 * squared_error


@pytest.mark.parametrize("recipe", ["given", pytest.param("blend", marks=pytest.mark.slow)])
def test_losses_of_ones_own(recipe):
    loss = SoftAbsolute()
    model = quick(loss) if recipe == "given" else JOPLEnRegressor(recipe=recipe, loss=loss)
    model.fit(X[TRAIN], NUMBERS[TRAIN])
    fitted, constant = held_out_loss(model, NUMBERS)
    assert fitted < 0.7 * constant
    assert model.report_.loss == "SoftAbsolute"
    assert "SoftAbsolute" in repr(clone(model))


def test_parameters_of_losses_act():
    low, high = (
        quick("quantile", quantile=q).fit(X[TRAIN], NUMBERS[TRAIN]).predict(X[TEST])
        for q in (0.1, 0.9)
    )
    assert np.mean(high > low) > 0.95
    assert quick("tweedie", power=1.9).fit(X[TRAIN], COUNTS[TRAIN]).loss_ == Tweedie(1.9)
    assert quick("tweedie", power=1).fit(X[TRAIN], COUNTS[TRAIN]).loss_ == Poisson()
    assert quick(Quantile(0.2)).fit(X[TRAIN], NUMBERS[TRAIN]).loss_ == Quantile(0.2)
    assert quick("absolute_error").fit(X[TRAIN], NUMBERS[TRAIN]).loss_ == AbsoluteError()


def test_rows_differ_by_their_exposure():
    twice = np.concatenate([X[:50], X[:50]])
    y = np.concatenate([COUNTS[:50], COUNTS[:50]])
    exposure = np.concatenate([EXPOSURE[:50], 2 * EXPOSURE[:50]])
    rows = quick(penalty=Frobenius(1.0)).fit(twice, y, exposure=exposure)
    order = np.random.default_rng(0).permutation(100)
    shuffled = quick(penalty=Frobenius(1.0)).fit(twice[order], y[order], exposure=exposure[order])
    np.testing.assert_allclose(rows.predict(X), shuffled.predict(X), rtol=1e-9)
    # A row of weight 2 is a row that is given twice.
    doubled = quick(penalty=Frobenius(1.0)).fit(
        np.concatenate([twice, twice]), np.tile(y, 2), exposure=np.tile(exposure, 2)
    )
    np.testing.assert_allclose(rows.predict(X), doubled.predict(X), rtol=1e-9)


def test_validation_rows_have_exposure_too():
    model = quick(penalty=Frobenius("auto"))
    model.fit(
        X[TRAIN], COUNTS[TRAIN], exposure=EXPOSURE[TRAIN],
        X_val=X[TEST], y_val=COUNTS[TEST], exposure_val=EXPOSURE[TEST],
    )  # fmt: skip
    right = -model.cv_results_["mean_test_score"].max()
    fitted, _ = held_out_loss(model, COUNTS, exposure=EXPOSURE[TEST])
    assert right == pytest.approx(fitted, rel=0.02)


def test_categories_with_many_values_count_per_unit():
    rng = np.random.default_rng(1)
    town = rng.integers(0, 80, 2500)
    exposure = rng.uniform(0.1, 3.0, 2500)
    y = rng.poisson(exposure * np.exp(np.sin(town)))
    frame = pd.DataFrame({"town": pd.Categorical([f"t{t}" for t in town]), "x": rng.random(2500)})
    options = {"cells": "constant", "random_state": 0, "recipe": "joint", "cv": 2}
    model = JOPLEnRegressor(loss="poisson", **options).fit(
        frame[:800], y[:800], exposure=exposure[:800]
    )
    table = model.columns_.statistics.tables[0]
    rates = [
        y[:800][town[:800] == t].sum() / exposure[:800][town[:800] == t].sum() for t in range(80)
    ]
    learned = [table.values[k, 0] for k in range(80)]
    names = [int(name[1:]) for name in sorted({f"t{t}" for t in town})]
    assert np.corrcoef(np.nan_to_num([rates[t] for t in names]), learned[: len(names)])[0, 1] > 0.9


# -- files, graphs, explanations, pruning ----------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_files_hold_the_loss(loss, tmp_path):
    options, y = LOSSES[loss]
    model = quick(loss, **options).fit(X[TRAIN], y[TRAIN])
    jl.save(model, tmp_path / "model.jleaf")
    loaded = jl.load(tmp_path / "model.jleaf")
    np.testing.assert_array_equal(loaded.predict(X[TEST]), model.predict(X[TEST]))
    assert loaded.loss_ == model.loss_
    assert loaded.report_.loss == loss
    assert loaded.get_params()["loss"] == loss


def test_files_hold_loss_objects_but_no_code(tmp_path):
    model = quick(Huber(0.5)).fit(X[TRAIN], NUMBERS[TRAIN])
    jl.save(model, tmp_path / "model.jleaf")
    assert jl.load(tmp_path / "model.jleaf").loss == Huber(0.5)
    own = quick(SoftAbsolute()).fit(X[TRAIN], NUMBERS[TRAIN])
    with pytest.raises(jl.ModelFileError, match=r"loss=SoftAbsolute cannot be saved.*use pickle"):
        jl.save(own, tmp_path / "own.jleaf")


def test_onnx_graphs_have_the_link(tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = quick().fit(X[TRAIN], COUNTS[TRAIN])
    session = runtime.InferenceSession(jl.to_onnx(model).SerializeToString())
    (found,) = session.run(None, {"X": X[TEST]})
    np.testing.assert_allclose(found[:, 0], model.predict(X[TEST]), rtol=1e-5)
    with pytest.raises(ValueError, match="its link cannot be exported"):
        jl.to_onnx(quick(SoftAbsolute()).fit(X[TRAIN], NUMBERS[TRAIN]))


def test_explanations_add_up_to_logarithms():
    model = quick().fit(X[TRAIN], COUNTS[TRAIN])
    explanation = model.explain(X[TEST])
    whole = explanation.baseline + explanation.values.sum(axis=1) + explanation.cells_rest
    np.testing.assert_allclose(np.exp(whole), model.predict(X[TEST]), rtol=1e-9)


@pytest.mark.parametrize("loss", ["poisson", "absolute_error"])
def test_pruned_models_keep_the_loss(loss):
    y = LOSSES[loss][1]
    model = quick(loss).fit(X[TRAIN], y[TRAIN])
    n_cells = int(model.partitioner_.n_cells_.sum()) // 2
    small = jl.prune(model, X[TRAIN], y[TRAIN], n_cells=n_cells)
    assert small.report_.loss == loss
    assert small.partitioner_.n_cells_.sum() <= n_cells
    fitted, constant = held_out_loss(small, y)
    assert fitted < 0.8 * constant


def test_pruning_and_paths_refuse_offsets():
    model = quick().fit(X[TRAIN], COUNTS[TRAIN], exposure=EXPOSURE[TRAIN])
    with pytest.raises(ValueError, match="was fitted with exposure or an offset"):
        jl.prune(model, X[TRAIN], COUNTS[TRAIN], n_cells=20)


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exposure": EXPOSURE[TRAIN]}, r"y_val has none.* give exposure_val \(or offset_val\)"),
        ({"exposure_val": EXPOSURE[TEST]}, r"y has none.* give exposure \(or offset\)"),
        ({"exposure_val": EXPOSURE[TEST], "X_val": None, "y_val": None}, "X_val, which is not"),
    ],
)
def test_training_and_validation_rows_both_have_exposure(options, message):
    rows = {"X_val": X[TEST], "y_val": COUNTS[TEST]}
    with pytest.raises(ValueError, match=message):
        JOPLEnRegressor(loss="poisson").fit(X[TRAIN], COUNTS[TRAIN], **rows | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "loss='hinge' is not known"),
        ({"loss": "quantile", "quantile": 1.0}, "quantile=1.0 must be a number between 0 and 1"),
        ({"loss": "quantile", "quantile": 0}, "quantile=0 must be a number between 0 and 1"),
        ({"loss": "tweedie", "power": 3}, "power=3 must be a number between 1"),
        ({"loss": "poisson", "power": 1.5}, "power=1.5 has no effect with loss='poisson'"),
        ({"quantile": 0.5}, "quantile=0.5 has no effect with loss='squared_error'"),
    ],
)
def test_parameters_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        JOPLEnRegressor(**options).fit(X[TRAIN], COUNTS[TRAIN])


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        ("poisson", COUNTS - 1, "loss='poisson' takes y that is zero or positive, but y holds -1"),
        ("gamma", COUNTS, "loss='gamma' takes y that is positive, but y holds 0"),
        ("tweedie", NUMBERS, "loss='tweedie' takes y that is zero or positive"),
        ("poisson", 0 * COUNTS, "y is zero in every row"),
    ],
)
def test_targets_that_do_not_fit(loss, y, message):
    with pytest.raises(ValueError, match=message):
        JOPLEnRegressor(loss=loss).fit(X, y)


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        ("poisson", {"exposure": EXPOSURE[:5]}, r"exposure has shape \(5,\), but there are 300"),
        ("poisson", {"offset": EXPOSURE}, r"offset has shape \(600,\), but there are 300 rows"),
        ("poisson", {"exposure": 0 * EXPOSURE[TRAIN]}, "exposure holds 0: it must be positive"),
        ("poisson", {"exposure": np.full(N, np.nan)}, "exposure holds NaN or infinity"),
        ("poisson", {"exposure": ["a"] * N}, "exposure must hold real numbers"),
        (
            "poisson",
            {"exposure": EXPOSURE[TRAIN], "offset": EXPOSURE[TRAIN]},
            "offset and exposure are both given",
        ),
        ("huber", {"exposure": EXPOSURE[TRAIN]}, "exposure needs a loss whose predictions"),
    ],
)
def test_offsets_that_do_not_fit(loss, options, message):
    with pytest.raises(ValueError, match=message):
        JOPLEnRegressor(loss=loss).fit(X[TRAIN], COUNTS[TRAIN], **options)


def test_offsets_of_predictions_that_do_not_fit():
    model = quick().fit(X[TRAIN], COUNTS[TRAIN])
    with pytest.raises(ValueError, match=r"exposure has shape \(3,\), but there are 300 rows"):
        model.predict(X[TEST], exposure=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="exposure holds -1: it must be positive"):
        model.predict(X[:1], exposure=[-1.0])


def test_a_loss_of_ones_own_must_say_what_offsets_mean():
    class Silent(SoftAbsolute):
        is_of_residuals = False

    with pytest.raises(ValueError, match="offset is not possible with loss=Silent"):
        quick(Silent()).fit(X[TRAIN], NUMBERS[TRAIN], offset=MEAN[TRAIN])


def test_targets_are_compared_with_predictions_for_their_exposure():
    rng = np.random.default_rng(0)
    X, exposure = rng.uniform(-1, 1, (200, 2)), rng.uniform(0.2, 3, 200)
    y = rng.poisson(exposure * np.exp(X[:, 0])).astype(float)
    model = quick()
    model.fit(X, y, exposure=exposure)
    expected = r2_score(y, model.predict(X, exposure=exposure))
    assert model.score(X, y, exposure=exposure) == pytest.approx(expected)
    assert model.score(X, y, offset=np.log(exposure)) == pytest.approx(expected)
    for compare in (model.score, model.calibrate):
        with pytest.raises(ValueError, match="exposure"):
            compare(X, y)


def test_the_loss_of_a_quantile_has_one_level():
    with pytest.raises(ValueError, match=r"quantile=\[0.1, 0.9\] must be a number.*takes several"):
        Quantile([0.1, 0.9])


@pytest.mark.parametrize("name", ["exposure", "offset"])
def test_names_in_place_of_numbers(name):
    with pytest.raises(ValueError, match=rf"^{name}='days' must be numbers and not a name: give "):
        JOPLEnRegressor(loss="poisson").fit([[0.0], [1.0]], [0, 1], **{name: "days"})


@pytest.mark.parametrize("name", ["exposure", "offset"])
@pytest.mark.parametrize("given", [["days"], pd.DataFrame({"days": [1.0, 2.0]})])
def test_tables_in_place_of_numbers(name, given):
    message = rf"^{name} must be numbers and not names or a table: give the column .* X\['days'\]"
    with pytest.raises(ValueError, match=message):
        JOPLEnRegressor(loss="poisson").fit([[0.0], [1.0]], [0, 1], **{name: given})
