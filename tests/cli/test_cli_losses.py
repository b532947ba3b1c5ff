"""Losses, exposure and weights in the shell: the same fit as in Python, and peers that match it."""

import csv
import io
import json
import re

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    mean_pinball_loss,
    mean_tweedie_deviance,
    roc_auc_score,
)

import jointleaf
from cli_data import as_csv, fails, run
from jointleaf._core.losses import make_number_loss
from jointleaf.cli import _validation
from jointleaf.cli._models import BENCH_MODELS, Model, Options
from jointleaf.cli._preparation import Rows
from jointleaf.cli._scores import coverage_summary, measures

HEADER = ("age", "region", "years", "weight", "claims")


def make_claims(n=80, seed=0):
    rng = np.random.default_rng(seed)
    age, region = rng.integers(18, 80, n), rng.choice(["north", "south"], n)
    years, weight = rng.uniform(0.2, 2.0, n).round(2), rng.integers(0, 4, n)
    claims = rng.poisson(years * np.exp(1 - age / 60 + 0.5 * (region == "north")))
    return [list(row) for row in zip(age, region, years, weight, claims, strict=True)]


def frame(rows):
    import pandas as pd

    table = pd.DataFrame(rows, columns=HEADER)
    X = table[["age", "region"]].astype({"age": float, "region": "category"})
    return X, table.claims.to_numpy(float), table.years.to_numpy(), table.weight.to_numpy(float)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with claims and the model that the shell fits to them."""
    path = tmp_path_factory.mktemp("claims")
    (path / "claims.csv").write_text(as_csv(make_claims(), HEADER))
    options = "--loss", "poisson", "--exposure", "years", "--weight", "weight", "--json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_validation, "_FOLDS", 2)  # for speed
        arguments = ["fit", path / "claims.csv", "-t", "claims", "-o", path / "m.jleaf", *options]
        out = io.StringIO()
        patch.setattr("sys.stdout", out)
        assert jointleaf.cli.main([str(a) for a in arguments]) == 0
    (path / "fit.json").write_text(out.getvalue())
    return path


def predictions(capsys, folder, rows, *options, header=HEADER):
    (folder / "new.csv").write_text(as_csv(rows, header))
    arguments = folder / "m.jleaf", folder / "new.csv", *options
    code, out, err = run(capsys, "predict", *arguments)
    assert code == 0, err
    records = list(csv.DictReader(io.StringIO(out)))
    return {name: np.array([float(r[name]) for r in records]) for name in records[0]}


def test_the_model_is_that_of_python(capsys, folder):
    """Exposure and weights are no features, and act on the fit and on predictions."""
    X, y, years, weight = frame(make_claims())
    model = jointleaf.JOPLEnRegressor(loss="poisson", random_state=0)
    model.fit(X[weight > 0], y[weight > 0], weight[weight > 0], exposure=years[weight > 0])
    new = make_claims(12, seed=1)
    X_new, _, years_new, _ = frame(new)
    found = predictions(capsys, folder, new, "--interval", "0.8")
    np.testing.assert_allclose(
        found["prediction"], model.predict(X_new, exposure=years_new), rtol=1e-8
    )
    ends = model.predict_interval(X_new, 0.8, exposure=years_new)
    np.testing.assert_allclose(np.stack([found["lower"], found["upper"]], 1), ends, rtol=1e-8)
    assert found["prediction"].min() > 0
    assert found["lower"].min() >= 0
    doubled = [[*row[:2], 2 * row[2], *row[3:]] for row in new]
    twice = predictions(capsys, folder, doubled)["prediction"]
    np.testing.assert_allclose(twice, 2 * found["prediction"], rtol=1e-8)


def test_prediction_needs_exposure_and_no_weight(capsys, folder):
    rows = make_claims(5, seed=2)
    whole = predictions(capsys, folder, rows)["prediction"]
    header = ("age", "region", "years")
    short = predictions(capsys, folder, [row[:3] for row in rows], header=header)["prediction"]
    np.testing.assert_array_equal(short, whole)
    (folder / "new.csv").write_text(as_csv([row[:2] for row in rows], header[:2]))
    line = fails(capsys, "predict", folder / "m.jleaf", folder / "new.csv")
    assert "the model needs column 'years', which the table does not have" in line
    (folder / "new.csv").write_text(as_csv([[*row[:2], ""] for row in rows], header))
    line = fails(capsys, "predict", folder / "m.jleaf", folder / "new.csv")
    assert "the exposure 'years' is missing in row 1: it must be a positive number" in line


def test_what_the_fit_says(capsys, folder):
    record = json.loads((folder / "fit.json").read_text())
    kinds = {column["name"]: column["holds"] for column in record["columns"]}
    assert kinds == {
        "age": "number", "region": "category", "years": "exposure", "weight": "weight",
    }  # fmt: skip
    assert record["n_without_weight"] == sum(row[3] == 0 for row in make_claims())
    assert record["validation"]["measure"] == "deviance"
    by_name = {row["model"]: row["deviance"] for row in record["validation"]["table"]}
    assert set(by_name) == {
        "jointleaf", "LightGBM", "linear model", "constant", "LightGBM, 100 trees of 4 leaves",
    }  # fmt: skip
    assert by_name["jointleaf"] < by_name["constant"]
    code, out, _ = run(capsys, "explain", folder / "m.jleaf", folder / "claims.csv", "--row", "3")
    assert code == 0
    assert "row 3: the logarithm of the prediction" in out
    assert "for an exposure of" in out
    assert re.search(r"^interval of 90 %: \d[\d.]* to \d", out, re.MULTILINE)
    _, out, _ = run(capsys, "explain", folder / "m.jleaf", folder / "claims.csv", "--json")
    explained = json.loads(out)
    expected = explained["exposure"] * np.exp(explained["raw_prediction"])
    assert explained["prediction"] == pytest.approx(expected)
    assert explained["interval"]["lower"] <= explained["prediction"]
    code, out, _ = run(capsys, "info", folder / "m.jleaf")
    assert code == 0
    assert "intervals of 90 % hold " in out


def test_the_report_shows_intervals(capsys, folder):
    """Those of held-out rows, and with DATA those of the model on its rows."""
    record = json.loads((folder / "fit.json").read_text())["validation"]["intervals"]
    sentence = f"Intervals of 90 % hold {100 * record['inside']:.1f} % of the targets, mean width "
    for arguments, n_charts in (((), 1), ((folder / "claims.csv",), 2)):
        output = folder / "report.html"
        code, _, err = run(capsys, "report", folder / "m.jleaf", *arguments, "-o", output)
        assert code == 0, err
        report = output.read_text()
        assert sentence in report
        charts = report.split("<title>Intervals</title>")[1:]
        assert len(charts) == n_charts
        for chart in charts:
            svg = chart.split("</figure>")[0]
            n_drawn = len(re.findall(r'<path d="M[^"L]*V', svg))  # lines of the grid have an L
            assert n_drawn == svg.count("<circle") > 50  # an interval and a dot for every row


def test_intervals_that_cannot_be(capsys, folder, tmp_path):
    """Where an interval was asked for it is there, or one line says why not."""
    explain = "explain", folder / "m.jleaf", folder / "claims.csv", "--interval", "0.999"
    assert "needs more rows to calibrate on" in fails(capsys, *explain)
    X, y, years, _ = frame(make_claims())
    model = jointleaf.JOPLEnRegressor("lightgbm", penalty=jointleaf.Frobenius(1), loss="poisson")
    jointleaf.save(model.fit(X, y, exposure=years), tmp_path / "p.jleaf")
    (tmp_path / "new.csv").write_text(as_csv([row[:2] for row in make_claims(5)], HEADER[:2]))
    explain = "explain", tmp_path / "p.jleaf", tmp_path / "new.csv"
    code, out, err = run(capsys, *explain)
    assert code == 0
    assert "interval" not in out
    assert "fitted with exposure or an offset, which a file saved from Python does not name" in err
    code, _, err = run(capsys, *explain, "--interval", "0.8")
    assert code == 1
    assert "a prediction interval needs rows that the model has not seen" in err


def test_coverage_is_counted():
    truth = np.array([0.0, 1.0, 2.0, 3.0])
    ends = np.array([[0.0, 1.0], [1.5, 2.0], [1.0, 2.0], [2.0, 4.0]])
    found = coverage_summary(truth, ends, np.array([0, 3]))
    assert found["inside"] == 0.75
    assert found["width"] == pytest.approx(4.5 / 4)
    assert found["low"] == [0.0, 2.0]
    sets = np.array([[True, False], [True, True], [False, True], [True, False]])
    found = coverage_summary(np.array([0, 1, 0, 0]), sets, np.zeros(0, int))
    assert (found["inside"], found["size"]) == (0.75, 1.25)


@pytest.mark.parametrize("power", [1.0, 1.4, 2.0])
def test_measures_of_amounts_are_deviances_of_rates(power):
    rng = np.random.default_rng(0)
    y, predicted = rng.gamma(2.0, size=30), rng.gamma(2.0, size=30)
    exposure, weight = rng.uniform(0.1, 3, 30), rng.uniform(0.1, 3, 30)
    loss = make_number_loss("tweedie", power=power)
    found = measures(Rows(None, y, exposure, weight), predicted, loss)
    expected = mean_tweedie_deviance(
        y / exposure,
        predicted / exposure,
        power=power,
        sample_weight=weight * exposure ** (2 - power),
    )
    assert next(iter(found)) == "deviance"
    assert found["deviance"] == pytest.approx(expected, rel=1e-12)


def test_measures_of_classes_are_weighted():
    rng = np.random.default_rng(0)
    y, p, weight = rng.integers(0, 2, 30), rng.uniform(0.1, 0.9, 30), rng.uniform(0.1, 3, 30)
    found = measures(Rows(None, y, None, weight), np.stack([1 - p, p], 1))
    assert found["log_loss"] == pytest.approx(log_loss(y, p, sample_weight=weight))
    assert found["auc"] == pytest.approx(roc_auc_score(y, p, sample_weight=weight))
    error_rate = 1 - accuracy_score(y, p > 0.5, sample_weight=weight)
    assert found["error_rate"] == pytest.approx(error_rate)


def test_peers_get_the_scale_that_was_found(monkeypatch):
    import pandas as pd

    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60)})
    rows = Rows(X, 50 * X.a.to_numpy() + 20 * rng.standard_t(2, 60))
    monkeypatch.setattr(_validation, "_FOLDS", 2)
    options = Options("regression", 0, 1, loss=make_number_loss("huber"))
    models = [m for m in BENCH_MODELS if m.name in ("jointleaf", "LightGBM", "XGBoost")]
    deltas, fit = [], Model.fit

    def spy(self, rows, options):
        deltas.append((self.name, options.loss.delta))
        return fit(self, rows, options)

    monkeypatch.setattr(Model, "fit", spy)
    found = _validation.validate(rows, models, options)
    assert found["measure"] == "huber"
    names, values = zip(*deltas, strict=True)
    assert names == ("jointleaf", "LightGBM") * 2  # XGBoost has no such loss
    assert values[0] is values[2] is None  # found on the rows of every split
    assert values[1] == values[3] > 5


def test_measures_of_other_losses():
    rng = np.random.default_rng(0)
    y, predicted, weight = rng.normal(size=(3, 30))
    rows = Rows(None, y, None, np.abs(weight))
    found = measures(rows, predicted, make_number_loss("quantile", 0.8))
    expected = mean_pinball_loss(y, predicted, sample_weight=np.abs(weight), alpha=0.8)
    assert found["pinball"] == pytest.approx(expected, rel=1e-12)
    found = measures(rows, predicted, make_number_loss("absolute_error"))
    assert list(found) == ["mae", "rmse", "r2"]
    assert found["mae"] == pytest.approx(np.average(np.abs(y - predicted), weights=rows.weight))
    assert list(measures(rows, predicted)) == ["rmse", "mae", "r2"]


LOSSES = {
    "poisson": {}, "gamma": {}, "tweedie": {"power": 1.5},
    "quantile": {"quantile": 0.9}, "absolute_error": {},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_peers_minimise_the_same_loss(name):
    """Of a column with two values, predictions are the best constants of each under the loss."""
    import pandas as pd

    loss = make_number_loss(name, **LOSSES[name])
    rng = np.random.default_rng(0)
    n = 300
    cell = rng.integers(0, 2, n)
    y, weight = np.exp(cell + rng.normal(size=n)), rng.uniform(0.5, 1.5, n)
    exposure = rng.uniform(0.5, 2.0, n) if loss.has_log_link else None
    rows = Rows(pd.DataFrame({"cell": cell.astype(float)}), y, exposure, weight)
    ones = None if exposure is None else np.ones(2)
    new = pd.DataFrame({"cell": [0.0, 1.0]})
    offset = 0.0 if exposure is None else np.log(exposure)
    best = []
    for k in (0, 1):
        shift = np.broadcast_to(offset, n)[cell == k]
        best.append(loss.link(loss.best_shift(y[cell == k], weight[cell == k], shift)))
    options = Options("regression", 0, 1, loss=loss)
    found = {
        model.name: model.fit(rows, options).predict(new, ones)
        for model in BENCH_MODELS
        if model.takes_part(loss) and model.name not in ("jointleaf", "constant")
    }
    assert ("CatBoost" in found) is (name != "gamma")
    for model, predicted in found.items():
        np.testing.assert_allclose(predicted, best, rtol=0.1, err_msg=model)


BAD = {
    "negative counts": (
        ["--loss", "poisson"], -1,
        "the target 'claims': loss='poisson' takes y that is zero or positive, but y holds -1",
    ),
    "zeros for gamma": (
        ["--loss", "gamma"], 0, "loss='gamma' takes y that is positive, but y holds 0",
    ),
    "quantile without its loss": (
        ["--quantile", "0.9"], None, "--quantile 0.9 has no effect without --loss quantile",
    ),
    "power without its loss": (
        ["--loss", "poisson", "--power", "1.5"], None,
        "--power 1.5 has no effect without --loss tweedie",
    ),
    "exposure without a log link": (
        ["--exposure", "years"], None,
        "--exposure 'years' needs a loss whose predictions it multiplies: add --loss poisson",
    ),
    "exposure of squares": (
        ["--exposure", "years", "--loss", "huber"], None, "--exposure 'years' needs a loss",
    ),
    "no such exposure": (
        ["--exposure", "Years", "--loss", "poisson"], None,
        "--exposure 'Years' is not there: did you mean 'years'?",
    ),
    "no such weight": (["--weight", "mass"], None, "--weight 'mass' is not there: the columns are"),
    "text as weight": (
        ["--weight", "region"], None, "--weight 'region' needs a column of numbers",
    ),
    "the target as weight": (["--weight", "claims"], None, "--weight 'claims' is the target"),
    "dropped exposure": (
        ["--exposure", "years", "--loss", "poisson", "--drop", "years"], None,
        "--exposure 'years' is also in --drop",
    ),
    "both": (
        ["--exposure", "years", "--weight", "years", "--loss", "poisson"], None,
        "--exposure and --weight are both 'years'",
    ),
    "loss of classes": (
        ["--loss", "poisson", "--task", "classification"], None, "--loss poisson is for numbers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_options_that_cannot_be(capsys, tmp_path, name):
    options, target, message = BAD[name]
    rows = [[*row[:4], row[4] + 1] for row in make_claims(30)]
    rows[4][4] = rows[4][4] if target is None else target
    (tmp_path / "data.csv").write_text(as_csv(rows, HEADER))
    line = fails(capsys, "fit", tmp_path / "data.csv", "-t", "claims", *options)
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_weights_that_leave_one_class(capsys, tmp_path):
    rows = [[*row[:3], k % 2, "yes" if k % 2 else "no"] for k, row in enumerate(make_claims(30))]
    (tmp_path / "data.csv").write_text(as_csv(rows, HEADER))
    line = fails(capsys, "fit", tmp_path / "data.csv", "-t", "claims", "--weight", "weight")
    assert "the target 'claims' has one class only in rows of positive weight: at least two" in line


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [(2, 0, "is 0"), (2, "", "is missing"), (2, -1.5, "is -1.5"), (3, -2, "is -2")],
)
def test_exposure_and_weights_that_cannot_be(capsys, tmp_path, column, value, shown):
    rows = make_claims(30)
    rows[6][column] = value
    (tmp_path / "data.csv").write_text(as_csv(rows, HEADER))
    options = "--loss", "poisson", "--exposure", "years", "--weight", "weight"
    line = fails(capsys, "fit", tmp_path / "data.csv", "-t", "claims", *options)
    assert f"{HEADER[column]!r} {shown} in row 7: it must be " in line


def test_weights_of_zero_alone(capsys, tmp_path):
    rows = [[*row[:3], 0, row[4]] for row in make_claims(30)]
    (tmp_path / "data.csv").write_text(as_csv(rows, HEADER))
    line = fails(capsys, "fit", tmp_path / "data.csv", "-t", "claims", "--weight", "weight")
    assert "the weight 'weight' is zero in every row" in line


@pytest.mark.parametrize(
    "option", [["--quantile", "1"], ["--quantile", "x"], ["--power", "2.5"], ["--loss", "cubic"]]
)
def test_arguments_out_of_range(capsys, option):
    code, _, err = run(capsys, "fit", "data.csv", "-t", "y", *option)
    assert code == 2
    assert option[1] in err
