"""The commands, in this process and as a user runs them."""

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from functools import partial

import numpy as np
import pandas as pd
import pytest

import jointleaf
from blend_fits import true_fits
from cli_data import HEADER, as_csv, fails, make_rows, run
from jointleaf._core.losses import make_number_loss
from jointleaf._data.formatting import number, signed
from jointleaf.cli import _fitting, _models, _using, _validation, main
from jointleaf.cli._preparation import Rows, prepared
from jointleaf.cli._tables import read_table
from jointleaf.cli._using import load_model
from jointleaf.partitions import VoronoiPartitioner
from jointleaf.partitions._factory import PARTITIONERS

ROWS = make_rows(70)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with data and two models, of a number and of a class, and their output."""
    path = tmp_path_factory.mktemp("cli")
    (path / "flats.csv").write_text(as_csv(ROWS))
    (path / "flats.html").write_text("an older report")
    (path / "new.csv").write_text(as_csv([row[:-1] for row in make_rows(9, seed=1)], HEADER[:-1]))
    without = [[*row[:2], row[2] if k else "", *row[3:]] for k, row in enumerate(ROWS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            assert main(["fit", "flats.csv", "--target", "price"]) == 0
    (path / "number.out").write_text(out.getvalue())
    (path / "number.err").write_text(err.getvalue())
    arguments = ["fit", "-", "-t", "city", "-o", "city.jleaf", "--no-report", "--json"]
    stdin = io.TextIOWrapper(io.BytesIO(as_csv(without).encode()))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.chdir(path)
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(_validation, "_FOLDS", 2)  # for speed
        assert main(arguments) == 0
    (path / "class.out").write_text(out.getvalue())
    return path


def command(*arguments, **options):
    """Run a command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "jointleaf", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False, **options,
    )  # fmt: skip


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


# -- fit -----------------------------------------------------------------------------------------


def test_fit_describes_the_data_and_writes_model_and_report(folder):
    out, err = (folder / "number.out").read_text(), (folder / "number.err").read_text()
    assert "target 'price': regression (numbers with 70 different values)" in out
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert "left out: identifier" in lines["id"]
    assert "date" in lines["sold"]
    assert "weekday" in lines["sold"]
    assert lines["area"].split()[1:] == ["number", str(sum(row[3] == "" for row in ROWS))]
    assert "boolean" in lines["balcony"]
    assert "left out: constant" in lines["country"]
    assert "by 5-fold cross-validation over all 70 rows" in out
    assert {"jointleaf", "LightGBM", "linear", "LightGBM,", "constant"} <= set(lines)
    assert "  LightGBM, 100 trees of 4 leaves  " in out
    assert "wrote flats.jleaf" in out
    assert "replaced flats.html" in out
    assert "validating [" in err
    written = {"flats.jleaf", "flats.html", "city.jleaf"}
    given = {"flats.csv", "new.csv", "number.out", "number.err", "class.out"}
    assert {p.name for p in folder.iterdir()} - {"plain.csv", "plain.jleaf"} == given | written


def test_fit_as_json_and_from_the_standard_input(folder):
    found = json.loads((folder / "class.out").read_text())
    assert found["n_rows"] == 69
    assert found["n_without_target"] == 1
    assert found["source"] == "standard input"
    assert found["target"]["task"] == "classification"
    assert found["report"] is None
    assert {row["model"] for row in found["validation"]["table"]} >= {"jointleaf", "linear model"}


def test_the_model_is_that_of_the_library(folder):
    """The command fits what a user would fit by hand on the same columns."""
    loaded = load_model(str(folder / "flats.jleaf"))
    table = read_table(str(folder / "flats.csv"))
    X, _ = prepared(loaded.preparation, table)
    y = np.array([float(row[-1]) for row in ROWS])
    own = jointleaf.JOPLEnRegressor(random_state=0).fit(X, y)
    np.testing.assert_array_equal(own.predict(X), loaded.model.predict(X))


def test_errors_are_those_of_held_out_rows(capsys, folder):
    """The error of the linear model, by scikit-learn on the same folds by hand."""
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + rng.normal(0, 0.1, 60)
    path = folder / "plain.csv"
    path.write_text(as_csv(np.column_stack([X, y]).tolist(), ("a", "b", "c", "y")))
    arguments = ["fit", path, "-t", "y", "-o", folder / "plain.jleaf", "--seed", 3, "--no-report"]
    assert run(capsys, *arguments)[0] == 0
    table = load_model(str(folder / "plain.jleaf")).record["validation"]["table"]
    found = next(row for row in table if row["model"] == "linear model")
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))
    folds = KFold(5, shuffle=True, random_state=3)
    predicted = cross_val_predict(model, X, y, cv=folds)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((predicted - y) ** 2)), rel=1e-6)
    assert found["mae"] == pytest.approx(np.mean(np.abs(predicted - y)), rel=1e-6)


def test_a_column_with_values_in_few_rows_is_no_hindrance():
    """A fold whose training rows have no value of a column is fitted without it."""
    import pandas as pd

    from jointleaf.cli._models import FIT_MODELS, Options
    from jointleaf.cli._preparation import Rows
    from jointleaf.cli._validation import make_splits, validate

    rng = np.random.default_rng(0)
    y = rng.normal(size=30)
    X = pd.DataFrame({"a": y + rng.normal(0, 0.1, 30), "rare": np.full(30, np.nan)})
    splits, _ = make_splits(y, "regression", 0)
    X.loc[splits[0][1][0], "rare"] = 1.0
    linear = [model for model in FIT_MODELS if model.name in ("linear model", "jointleaf")]
    validation = validate(Rows(X, y), linear, Options("regression", 0, 1))
    assert all(row["r2"] > 0.9 for row in validation["table"])


def test_a_fifth_of_many_rows_is_held_out():
    from jointleaf.cli._validation import make_splits

    splits, method = make_splits(np.arange(1500.0), "regression", 0)
    assert [len(test) for _, test in splits] == [300]
    assert method == "on 300 held-out rows (20%)"
    rare = np.array([0] * 1400 + [1] * 99 + [2])  # a class with a single row
    splits, _ = make_splits(rare, "classification", 0)
    assert 19 <= (rare[splits[0][1]] == 1).sum() <= 20


# -- predict -------------------------------------------------------------------------------------


def test_predict_keeps_order_and_identifiers(capsys, folder, tmp_path):
    out = tmp_path / "out.csv"
    code, shown, _ = run(
        capsys, "predict", folder / "flats.jleaf", folder / "new.csv", "-o", out, "--id", "id"
    )
    assert code == 0
    assert shown == ""
    rows = read_csv(out.read_text())
    assert [row["id"] for row in rows] == [f"F{k:03d}" for k in range(9)]
    loaded = load_model(str(folder / "flats.jleaf"))
    X, _ = prepared(loaded.preparation, read_table(str(folder / "new.csv")))
    found = [float(row["prediction"]) for row in rows]
    np.testing.assert_allclose(found, loaded.model.predict(X), rtol=1e-9)
    truth = [float(row[-1]) for row in make_rows(9, seed=1)]
    assert np.corrcoef(found, truth)[0, 1] > 0.9


def test_predict_classes_with_probabilities_to_all_outputs(capsys, folder, tmp_path):
    model, data = folder / "city.jleaf", folder / "flats.csv"
    _, text, _ = run(capsys, "predict", model, data)
    rows = read_csv(text)
    assert list(rows[0]) == ["prediction", "probability Oslo", "probability Rome"]
    for row in rows:
        shares = {name: float(row[f"probability {name}"]) for name in ("Oslo", "Rome")}
        assert sum(shares.values()) == pytest.approx(1)
        assert max(shares, key=shares.get) == row["prediction"]
    run(capsys, "predict", model, data, "-o", tmp_path / "out.csv.gz")
    assert gzip.decompress((tmp_path / "out.csv.gz").read_bytes()).decode() == text
    _, found, _ = run(capsys, "predict", model, data, "--json")
    assert [row["prediction"] for row in json.loads(found)["predictions"]] == [
        row["prediction"] for row in rows
    ]


def test_predict_with_intervals_and_sets(capsys, folder):
    model, data = folder / "flats.jleaf", folder / "new.csv"
    _, text, _ = run(capsys, "predict", model, data, "--interval", "0.8")
    loaded = load_model(str(model))
    X, _ = prepared(loaded.preparation, read_table(str(data)))
    found = [[float(row["lower"]), float(row["upper"])] for row in read_csv(text)]
    np.testing.assert_allclose(found, loaded.model.predict_interval(X, 0.8), rtol=1e-9)
    city = folder / "city.jleaf"
    _, text, _ = run(capsys, "predict", city, folder / "flats.csv", "--interval", "0.99")
    rows = read_csv(text)
    assert {row["set"] for row in rows} <= {"Oslo", "Rome", "Oslo|Rome"}
    assert all(row["prediction"] in row["set"].split("|") for row in rows)
    _, text, remarks = run(capsys, "predict", model, data, "--interval", "0.9999", "--json")
    assert "coverage=0.9999 needs more rows to calibrate on" in remarks
    contents = json.loads(text)
    assert contents["predictions"][0]["lower"] is None
    assert len(contents["remarks"]) == 1
    for wrong in ("0", "1", "90", "much"):
        code, _, error = run(capsys, "predict", model, data, "--interval", wrong)
        assert code == 2
        assert f"{wrong!r} must be a number between 0 and 1" in error


def test_new_categories_missing_values_and_left_out_columns_are_fine(capsys, folder, tmp_path):
    rows = [["2023-05-05", "Lima", "", "", "?"], ["", "Rome", "55", "no", "coal"]]
    path = tmp_path / "new.csv"
    path.write_text(as_csv(rows, ("sold", "city", "area", "balcony", "heating")))
    code, out, _ = run(capsys, "predict", folder / "flats.jleaf", path)
    assert code == 0
    assert all(np.isfinite(float(row["prediction"])) for row in read_csv(out))


def test_models_saved_from_python_work_too(capsys, folder, tmp_path):
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "kind": rng.choice(["u", "v"], 60)})
    y = frame["a"] + (frame["kind"] == "u")
    model = jointleaf.JOPLEnRegressor(penalty=jointleaf.Frobenius(0.1), random_state=0)
    jointleaf.save(model.fit(frame, y), tmp_path / "own.jleaf")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    code, out, _ = run(capsys, "predict", tmp_path / "own.jleaf", tmp_path / "rows.csv")
    assert code == 0
    found = [float(row["prediction"]) for row in read_csv(out)]
    np.testing.assert_allclose(found, model.predict(frame), rtol=1e-9)
    assert "JOPLEnRegressor" in run(capsys, "info", tmp_path / "own.jleaf")[1]
    line = fails(capsys, "report", tmp_path / "own.jleaf")
    assert "holds no record of its fit" in line


# -- explain, info, select, bench ----------------------------------------------------------------


def test_explanations_of_voronoi_cells_add_up(capsys, tmp_path):
    """What no single column is credited with has a line of its own."""
    import pandas as pd

    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    model = jointleaf.JOPLEnRegressor("voronoi", penalty=jointleaf.Frobenius(0.01), random_state=0)
    jointleaf.save(model.fit(X, X["a"] + X["b"].abs()), tmp_path / "cells.jleaf")
    X.to_csv(tmp_path / "rows.csv", index=False)
    arguments = "explain", tmp_path / "cells.jleaf", tmp_path / "rows.csv"
    contents = json.loads(run(capsys, *arguments, "--json")[1])
    total = contents["baseline"] + sum(c["contribution"] for c in contents["contributions"])
    assert abs(contents["cells"]) > 1e-3
    assert total + contents["cells"] == pytest.approx(contents["raw_prediction"], abs=1e-9)
    text = run(capsys, *arguments)[1]
    assert text.count("cells: the constants of cells that combine columns") == 1
    lines = [line.split() for line in text.splitlines()]
    assert ["cells", signed(number(contents["cells"]))] in [line[:2] for line in lines]


def test_explanations_add_up(capsys, folder):
    arguments = "explain", folder / "flats.jleaf", folder / "flats.csv", "--row", 12
    _, out, _ = run(capsys, *arguments, "--json")
    found = json.loads(out)
    total = found["baseline"] + sum(c["contribution"] for c in found["contributions"])
    assert total == pytest.approx(found["prediction"], rel=1e-9)
    loaded = load_model(str(folder / "flats.jleaf"))
    X, _ = prepared(loaded.preparation, read_table(str(folder / "flats.csv")))
    assert found["prediction"] == pytest.approx(loaded.model.predict(X)[11], rel=1e-9)
    _, text, _ = run(capsys, *arguments, "--top", 3)
    assert text.startswith("row 12: the prediction")
    assert found["contributions"][0]["feature"] in text
    assert f"{len(found['contributions']) - 3} others" in text
    # Dates are shown as dates, and stay numbers in JSON.
    (day,) = [c for c in found["contributions"] if c["feature"].endswith(": day number")]
    shown = next(
        x for x in run(capsys, *arguments, "--top", 99)[1].splitlines() if day["feature"] in x
    )
    assert str(np.datetime64(int(day["value"]), "D")) in shown


def test_explanations_of_classes(capsys, folder, tmp_path):
    arguments = "explain", folder / "city.jleaf", folder / "flats.csv", "--row", 3
    second = json.loads(run(capsys, *arguments, "--json")[1])
    first = json.loads(run(capsys, *arguments, "--json", "--class", "Oslo")[1])
    assert second["explains"] == "the log-odds of Rome"
    assert first["raw_prediction"] == pytest.approx(-second["raw_prediction"])
    share = second["probabilities"]["Rome"]
    assert second["raw_prediction"] == pytest.approx(np.log(share / (1 - share)), rel=1e-6)
    assert "classes are Oslo, Rome" in fails(capsys, *arguments, "--class", "Lima")
    other = ({"Oslo", "Rome"} - {first["prediction"]}).pop()
    lines = run(capsys, *arguments, "--class", other)[1].splitlines()
    assert f"probability of {other}: {first['probabilities'][other]:#.3g}" in lines
    assert "probability of" not in run(capsys, *arguments, "--class", first["prediction"])[1]
    pytest.importorskip("matplotlib")
    assert run(capsys, *arguments, "--plot", tmp_path / "row.png")[0] == 0
    assert (tmp_path / "row.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("length", [5, 60])
def test_pictures_of_rows_have_room_for_their_titles(capsys, tmp_path, length):
    """Names of columns, or their values, may take most of the width."""
    image = pytest.importorskip("matplotlib.image")
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a" * length, "b"])
    y = np.resize(["hurricane", "tropical depression", "low"], 60)
    model = jointleaf.JOPLEnClassifier("lightgbm", penalty=jointleaf.Frobenius(0.01))
    jointleaf.save(model.fit(X, y), tmp_path / "m.jleaf")
    X.to_csv(tmp_path / "rows.csv", index=False)
    arguments = "explain", tmp_path / "m.jleaf", tmp_path / "rows.csv", "--row", 12
    assert run(capsys, *arguments, "--plot", tmp_path / "row.png")[0] == 0
    picture = image.imread(tmp_path / "row.png")[..., :3]
    for edge in (picture[:, -1], picture[:, 0], picture[0]):
        assert (edge == picture[0, 0]).all()


def test_info(capsys, folder):
    _, text, _ = run(capsys, "info", folder / "city.jleaf")
    facts = {line.split()[0]: line for line in text.splitlines()}
    assert "JOPLEnClassifier" in facts["kind"]
    assert f"jointleaf {jointleaf.__version__}" in facts["version"]
    assert "standard input, 69 rows" in facts["data"]
    assert "Oslo, Rome" in facts["classes"]
    found = json.loads(run(capsys, "info", folder / "city.jleaf", "--json")[1])
    assert found["target"]["name"] == "city"
    sizes = load_model(str(folder / "city.jleaf")).model.partitioner_.n_cells_
    assert (found["model"]["cells"], found["model"]["partitions"]) == (sizes.sum(), len(sizes))


@pytest.fixture
def few_cells(monkeypatch):
    """Selections have fewer cells in here: their linear models select."""
    monkeypatch.setitem(PARTITIONERS, "voronoi", partial(VoronoiPartitioner, 40, 4))


def test_select_finds_what_matters_and_shows_the_path(capsys, tmp_path, few_cells):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    y = 3 * X[:, 1] - 2 * X[:, 4] + rng.normal(0, 0.1, 120)
    path = tmp_path / "data.csv"
    path.write_text(as_csv(np.column_stack([X, y]).tolist(), (*"abcdef", "y")))
    code, out, _ = run(capsys, "select", path, "-t", "y", "--json")
    assert code == 0
    found = json.loads(out)
    assert {row["feature"] for row in found["selected"]} == {"b", "e"}
    strengths = [point["strength"] for point in found["path"]]
    assert strengths == sorted(strengths, reverse=True)
    assert found["path"][0]["features"] == []
    chosen = next(p for p in found["path"] if p["strength"] == pytest.approx(found["strength"]))
    assert chosen["features"] == ["b", "e"]


def test_the_path_at_the_chosen_strength_is_the_selection(capsys, tmp_path):
    """Also of columns that say nearly the same, which loose solves leave in."""
    rng = np.random.default_rng(1)
    year, month, a = rng.integers(2000, 2010, 150), rng.integers(0, 12, 150), rng.normal(size=150)
    y = a + 0.1 * (year + month / 12) + rng.normal(0, 0.5, 150)
    rows = np.column_stack([a, year, month, (year + month / 12).round(4), y])
    (tmp_path / "data.csv").write_text(as_csv(rows.tolist(), ("a", "year", "month", "date", "y")))
    with true_fits():
        found = json.loads(run(capsys, "select", tmp_path / "data.csv", "-t", "y", "--json")[1])
    chosen = [p for p in found["path"] if p["strength"] == pytest.approx(found["strength"])]
    assert [set(p["features"]) for p in chosen] == [{r["feature"] for r in found["selected"]}]


def test_bench_compares_what_is_installed(capsys, folder):
    code, out, err = run(
        capsys, "bench", folder / "flats.csv", "-t", "city", "--folds", 2, "--json"
    )
    assert code == 0
    found = json.loads(out)
    names = {row["model"] for row in found["models"]}
    assert {"jointleaf", "LightGBM", "linear model", "constant"} <= names
    assert found["method"] == "by 2-fold cross-validation over all 70 rows"
    losses = [row["log_loss"] for row in found["models"]]
    assert losses == sorted(losses)
    assert "validating [" in err


def test_peers_that_are_not_installed_are_named(monkeypatch):
    absent = {"catboost", "xgboost"}
    monkeypatch.setattr(
        _models.importlib.util, "find_spec", lambda name: name not in absent or None
    )
    assert _models.absent_peers(None) == (
        "CatBoost and XGBoost are not installed, and not compared: pip install catboost xgboost"
    )
    assert _models.absent_peers(make_number_loss("huber")).startswith("CatBoost is not installed")
    absent.clear()
    assert _models.absent_peers(None) == ""


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_bench_names_them_beside_its_result(capsys, folder, monkeypatch, options):
    monkeypatch.setattr(_fitting, "absent_peers", lambda loss: "CatBoost is not installed")
    found = {"method": "", "measure": "", "table": []}
    monkeypatch.setattr(_fitting, "validate", lambda *args, **more: found)
    monkeypatch.setattr(_fitting, "error_table", lambda validation: "errors")
    code, out, err = run(capsys, "bench", folder / "flats.csv", "-t", "price", *options)
    assert code == 0, err
    assert "CatBoost" not in out
    assert ("CatBoost is not installed" in err) == (not options)


def test_one_column_that_is_summed_up_is_no_plural():
    parts = [{"feature": name, "contribution": 1.0} for name in "ab"]
    contents = {"row": 1, "explains": "it", "baseline": 0.0, "contributions": parts}
    contents |= {"raw_prediction": 2.0, "prediction": 2.0}
    text = _using._explanation_text(contents, {"a": "", "b": ""}, 1)
    assert re.search(r"^  1 other +\+1", text, re.MULTILINE)


# -- as a user runs it ---------------------------------------------------------------------------


def test_help_is_quick_and_loads_nothing_heavy():
    def seconds():
        start = time.perf_counter()
        assert command("--help").returncode == 0
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.5
    code = "import sys; from jointleaf.cli import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert not {"numpy", "pandas", "sklearn", "lightgbm", "matplotlib"} & loaded


def test_help_of_every_command(capsys):
    for name in ("fit", "predict", "explain", "select", "report", "bench", "info"):
        code, out, _ = run(capsys, name, "--help")
        assert code == 0
        assert out.startswith(f"usage: jointleaf {name}")


def test_version():
    done = command("--version")
    assert done.stdout == f"jointleaf {jointleaf.__version__}\n"


def test_pipes(folder):
    data = (folder / "flats.csv").read_text()
    done = command("predict", folder / "flats.jleaf", "-", input=data)
    assert done.returncode == 0
    assert len(read_csv(done.stdout)) == 70
    assert done.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_reader_that_goes_away_is_no_error(folder, tmp_path):
    many = tmp_path / "many.csv"
    many.write_text(as_csv(ROWS * 50))  # more than a pipe holds
    line = (
        f"{sys.executable} -m jointleaf predict {folder / 'flats.jleaf'} {many} --json | head -n 1"
    )
    done = subprocess.run(
        ["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["{", "141"]
    assert done.stderr == ""


def test_a_selection_of_nothing_says_what_to_look_at(tmp_path, capsys, few_cells):
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, 120))
    rows = zip(a, b, (a > 0) ^ (b > 0), strict=True)
    text = "".join(f"{x:.4f},{z:.4f},{int(y)}.5\n" for x, z, y in rows)
    (tmp_path / "xor.csv").write_text(f"a,b,y\n{text}")
    assert main(["select", str(tmp_path / "xor.csv"), "--target", "y"]) in (0, None)
    assert "see their importances in the report of jointleaf fit" in capsys.readouterr().out


def test_columns_that_are_kept_are_not_warned_of(recwarn):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"row": np.arange(60.0), "a": rng.normal(size=60)})
    X["name"] = [f"n{k}" for k in range(60)]
    rows = Rows(X.assign(name=X["name"].astype("category")), X["a"].to_numpy(), None, None)
    model = jointleaf.JOPLEnRegressor("lightgbm", penalty=jointleaf.Frobenius(0.1))
    _models.fit_jointleaf(model, rows._replace(X=rows.X.assign(b=1.5 * rows.X["a"])))
    assert [str(w.message) for w in recwarn if "leave it out" in str(w.message)] == []
