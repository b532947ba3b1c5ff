"""The experiment on PMLB, on made-up data."""

import csv
import functools
import gzip
import importlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pmlb(monkeypatch):
    """Import a module of `experiments.pmlb`, which is found from the root of the repository."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"experiments.pmlb.{name}")


@pytest.fixture
def make_rows():
    """Rows of two real columns and one with categories; a target that all three have a part in."""

    def make(n=80, *, binary=False):
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.standard_normal((n, 2)) * [3, 0.1] + 5, rng.integers(0, 3, n)])
        y = np.abs(X[:, 0] - 5) + X[:, 2] + 0.1 * rng.standard_normal(n)
        return X, (y > np.median(y)).astype(int) if binary else y

    return make


@pytest.fixture
def folder(tmp_path, make_rows):
    """A folder with one set of each task."""
    for name, binary in (("made_up", False), ("made_up_classes", True)):
        X, y = make_rows(binary=binary)
        with gzip.open(tmp_path / f"{name}.tsv.gz", "wt") as file:
            file.write("a\tb\tc\ttarget\n")
            file.writelines(
                "\t".join(map(str, row)) + f"\t{t}\n" for row, t in zip(X, y, strict=True)
            )
    return tmp_path


@pytest.fixture
def record(pmlb):
    """A row of results, to be changed with `dataclasses.replace`."""
    values = ("regression", "s", "gb", "random", 2, 0, 50, 3, 0.5, 3.0, 4.0, math.nan, 0.1, 0.2)
    return pmlb("records").Record(*values, "{}")


# -- data ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "sizes"), [(1000, (800, 100, 100)), (32, (26, 3, 3)), (3, (1, 1, 1))]
)
def test_parts_of_a_split(pmlb, n, sizes):
    parts = pmlb("data").split_rows(n, seed=0)
    assert tuple(len(parts[part]) for part in ("train", "valid", "test")) == sizes
    np.testing.assert_array_equal(np.sort(np.concatenate([*parts.values()])), np.arange(n))
    if n > 3:
        assert not np.array_equal(parts["test"], pmlb("data").split_rows(n, seed=1)["test"])


def test_too_few_rows(pmlb):
    with pytest.raises(ValueError, match="three parts"):
        pmlb("data").split_rows(2, seed=0)


def test_standard_units_come_from_the_training_rows(pmlb, make_rows):
    X, y = make_rows()
    data = pmlb("data").make_data(X, y, "regression", "cck")
    np.testing.assert_allclose(data.X["train"][:, :2].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(data.y["train"].std(), 1)
    assert abs(data.y["test"].mean()) > 1e-6
    assert data.categorical == (2,)
    assert set(np.unique(data.X["train"][:, 2])) == {0, 1, 2}
    real = data.real_valued()
    assert real.X["test"].shape == (8, 2)
    assert real.categorical == ()


def test_constant_columns_stay_finite(pmlb):
    data = pmlb("data").make_data(np.full((20, 1), 0.1), np.arange(20.0), "regression")
    np.testing.assert_allclose(data.X["test"], 0, atol=1e-12)


def test_the_papers_sets(pmlb):
    sets = pmlb("sets").PAPER_SETS
    tasks = [info.task for info in sets.values()]
    assert (tasks.count("regression"), tasks.count("binary")) == (90, 60)
    assert all(len(info.types) == info.columns for info in sets.values())
    # The paper leaves out sets without a real-valued feature.
    assert all("c" in info.types for info in sets.values())


def test_order_of_sets_is_cheap_first_and_mixed(pmlb):
    sets = pmlb("sets")
    order = sets.run_order(i for i in sets.PAPER_SETS.values() if i.task == "regression")
    assert len({info.name for info in order}) == 90
    assert {info.family for info in order[:18]} == {f"fri_c{k}" for k in range(5)} | {"other"}
    assert sum(i.cost for i in order[:30]) < sum(i.cost for i in order[-30:]) / 3


# -- scores ----------------------------------------------------------------------------------------


def test_errors_by_hand(pmlb):
    losses, data = pmlb("losses"), pmlb("data")
    parts = {"train": np.array([-1.0, 1.0]), "valid": np.zeros(1), "test": np.array([2.0, 0.0])}
    X = {part: np.zeros((len(y), 1)) for part, y in parts.items()}
    found = losses.score(
        data.Data("regression", X, parts, scale=10.0), lambda rows: np.array([1.0, 1.0])
    )
    assert found.error == pytest.approx(10.0)
    assert found.dummy == pytest.approx(10 * math.sqrt(2))  # the training mean is 0
    classes = {"train": np.array([1.0, 1, 0]), "valid": np.ones(1), "test": np.array([1.0, 0])}
    found = losses.score(data.Data("binary", X, classes), lambda rows: np.array([0.8, 0.6]))
    assert (found.error, found.dummy) == (0.5, 0.5)
    assert found.log_loss == pytest.approx(-(math.log(0.8) + math.log(0.4)) / 2)


def test_what_diverged_has_an_infinite_loss(pmlb, make_rows):
    data = pmlb("data").make_data(*make_rows(), "regression")
    assert pmlb("losses").loss(data, "valid", np.full(8, np.nan)) == math.inf


def test_normalised_error_by_hand(pmlb, record):
    normalised = pmlb("scores").normalised
    assert normalised(record) == 0.75
    assert normalised(replace(record, task="binary", error=0.25)) == 0.25
    assert math.isnan(normalised(replace(record, dummy=0.0)))


def test_comparison_is_scipys_wilcoxon(pmlb):
    rng = np.random.default_rng(0)
    sets = [f"s{k}" for k in range(30)]
    base = rng.uniform(0.2, 1, 30)
    mine = base * rng.uniform(0.7, 1.1, 30)
    found = pmlb("scores").compare(
        dict(zip(sets, mine, strict=True)), dict(zip(sets, base, strict=True)) | {"else": 0.0}
    )
    assert found.p == stats.wilcoxon(mine, base, alternative="less").pvalue
    assert (found.n, found.better, found.worse) == (30, (mine < base).sum(), (mine > base).sum())
    assert found.ratio == pytest.approx(np.exp(np.mean(np.log(mine / base))))


def test_comparison_of_equals(pmlb):
    found = pmlb("scores").compare({"a": 0.5, "b": 0.0}, {"a": 0.5, "b": 0.0})
    assert math.isnan(found.p)
    assert (found.n, found.better, found.worse) == (2, 0, 0)
    assert found.ratio == 1.0


# -- methods and searches --------------------------------------------------------------------------


def test_all_methods_of_the_paper_are_there(pmlb):
    methods = pmlb("methods").METHODS
    baselines = {"gb", "rf", "lf", "cb", "cb_nc", "ridge", "nn", "tabnet", "fastel"}
    refits = {f"{cells}_{kind}" for cells in ("gb", "rf", "lf", "vor") for kind in ("gr", "f", "l")}
    refits |= {"cb_gr_nc", "cb_f", "cb_l"}
    stopped = {f"{name.removesuffix('_nc')}_stop" for name in refits}
    refits |= {"cb_gr", "gb_fr", "rf_fr"} | stopped
    own = {f"{cells}_refine" for cells in ("gb", "rf", "lf", "cb")}
    assert set(methods) == baselines | refits | own
    assert {name for name, m in methods.items() if m.tuned_as} == own
    assert all("bias_strength" not in methods[name].spaces["binary"] for name in stopped)
    assert {name for name, m in methods.items() if "binary" not in m.spaces} == {"fastel"}
    assert {name for name, m in methods.items() if m.categories} == {"cb", "cb_gr"}
    assert all(methods[m.base].base is None for m in methods.values() if m.base)
    assert methods["lf_l"].paper == "jp_linear_linforest_l2L2"
    assert methods["gb_gr"].paper == "jp_const_gb_l2"
    assert len({m.label for m in methods.values()}) == len(methods)


def test_random_draws_stay_in_their_ranges(pmlb):
    space, methods = pmlb("space"), pmlb("methods").METHODS
    rng = np.random.default_rng(0)
    for method in methods.values():
        for ranges in method.spaces.values():
            for name, value in space.draw(ranges, rng).items():
                if isinstance(ranges[name], space.Choice):
                    assert value in ranges[name].values
                else:
                    assert ranges[name].low <= value <= ranges[name].high
    draws = [space.Integer(10, 1000, log=True).draw(rng) for _ in range(2000)]
    assert 80 < np.median(draws) < 125


def test_ax_search(pmlb):
    pytest.importorskip("ax")
    space = pmlb("space")
    ranges = {
        "a": space.Real(1e-5, 10, log=True),
        "b": space.Choice((2, 4)),
        "c": space.Choice(("x", "y")),
    }
    asked = []
    for _ in range(2):  # the same seed, the same trials
        search = pmlb("search").make_search("ax", ranges, 3)
        asked.append([])
        for _ in range(2):
            asked[-1].append(search.ask())
            search.tell(math.inf)
    assert asked[0] == asked[1]
    assert 1e-5 <= asked[0][0]["a"] <= 10
    assert asked[0][0]["b"] in (2, 4)


SMALL = {
    "n_estimators": 10, "max_leaf_nodes": 4, "ccp_alpha": 1e-5, "max_depth": 3,
    "n_partitions": 10, "n_cells": 4, "strength": 0.01, "bias_strength": 0.01,
    "laplacian_strength": 0.01, "bandwidth": 1.0, "kind": "symmetric", "refit_strength": 0.01,
    "learning_rate": 0.3, "iterations": 20, "od_wait": 10, "l2_leaf_reg": 1.0, "depth": 3,
    "alpha": 0.1, "C": 1.0,
}  # fmt: skip


@pytest.mark.parametrize("task", ["regression", "binary"])
def test_every_method_without_torch_is_better_than_a_constant(pmlb, make_rows, task):
    is_binary = task == "binary"
    data = pmlb("data").make_data(*make_rows(200, binary=is_binary), task, "cck")
    loss = pmlb("losses").loss
    constant = loss(data, "test", np.full(20, data.y["train"].mean()))
    for name, method in pmlb("methods").METHODS.items():
        if method.group == "networks" or (is_binary and method.tuned_as):  # refine takes a while
            continue
        if method.needs:
            pytest.importorskip(method.needs)
        seen = data if method.categories else data.real_valued()
        ranges = pmlb("methods").METHODS[method.tuned_as or name].spaces[task]
        predict = method.fit(seen, {key: SMALL[key] for key in ranges}, 0)
        found = loss(seen, "test", predict(seen.X["test"]))
        # The target is a V in what the other methods see: nothing for one line.
        assert found < (1.1 if name == "ridge" else 1.0) * constant, name


def test_soft_trees_learn(pmlb, monkeypatch):
    pytest.importorskip("torch")
    soft_trees, training = pmlb("soft_trees"), pmlb("training")
    few = functools.partial(training.Training, epochs=80)
    monkeypatch.setattr(soft_trees, "Training", few)
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    data = pmlb("data").make_data(X, np.abs(X[:, 0]) + X[:, 1] ** 2, "regression")
    values = {"n_trees": 20, "depth": 2, "width": 1.0, "batch": 64, "rate": 0.03, "decay": 1e-5}
    predict = soft_trees.fit_soft_trees(data, values, 0)
    assert pmlb("losses").loss(data, "test", predict(data.X["test"])) < 0.5  # the mean has about 1


@pytest.mark.parametrize("task", ["regression", "binary"])
def test_networks_learn(pmlb, make_rows, monkeypatch, task):
    pytest.importorskip("torch")
    networks, training = pmlb("networks"), pmlb("training")
    monkeypatch.setattr(networks, "Training", functools.partial(training.Training, epochs=80))
    data = pmlb("data").make_data(*make_rows(300, binary=task == "binary"), task)
    values = {"width": 20, "layers": 2, "activation": "relu", "batch": 32, "rate": 0.01}
    predict = networks.fit_network(data, values | {"decay": 1e-5}, 0)
    assert pmlb("losses").loss(data, "test", predict(data.X["test"])) < 0.5


def test_tabnet_learns(pmlb, make_rows, monkeypatch):
    pytest.importorskip("pytorch_tabnet")
    networks = pmlb("networks")
    monkeypatch.setattr(networks, "_EPOCHS", 20)
    data = pmlb("data").make_data(*make_rows(300), "regression")
    values = {"width": 8, "steps": 3, "gamma": 1.3, "sparsity": 1e-4, "rate": 0.05, "batch": 64}
    predict = networks.fit_tabnet(data, values, 0)
    assert pmlb("losses").loss(data, "test", predict(data.X["test"])) < 0.9


def test_smooth_step(pmlb):
    torch = pytest.importorskip("torch")
    t = torch.tensor([-3.0, -1.0, 0.0, 0.5, 1.0, 3.0])
    found = pmlb("soft_trees").smooth_step(t, 2.0)
    torch.testing.assert_close(found, torch.tensor([0.0, 0.0, 0.5, 0.84375, 1.0, 1.0]))


# -- running and reporting -------------------------------------------------------------------------


def test_run_goes_on_where_it_was(pmlb, folder, capsys):
    main, output = pmlb("__main__").main, folder / "results" / "out.csv"
    arguments = ["run", "--data", str(folder), "--datasets", "made_up", "--task", "regression"]
    arguments += ["--search", "random", "--trials", "2", "--output", str(output), "--methods"]
    main([*arguments, "ridge"])
    assert "all columns count as numbers" in capsys.readouterr().out
    before = output.read_text()
    # A line that was cut off when the run was killed is written anew.
    output.write_text(before + "regression,made_up,vor_f,ran")
    main([*arguments, "ridge", "vor_f"])
    assert output.read_text().startswith(before)
    records = pmlb("records").read_records(output)
    assert [record.method for record in records] == ["ridge", "vor_f"]
    assert all(record.error > 0 and record.rows == 80 for record in records)
    after = output.read_text()
    main([*arguments, "ridge", "vor_f"])
    assert output.read_text() == after


def test_refine_takes_the_parameters_of_its_base(pmlb, folder, record, capsys):
    methods, sets = pmlb("methods").METHODS, pmlb("sets")
    info = sets.SetInfo("made_up", "regression", 80, 3, "ccc")
    file = pmlb("records").ResultFile(folder / "out.csv", record.setting)
    arguments = ([info], [methods["rf_refine"]], record.setting, folder, file)
    pmlb("run").run(*arguments)
    assert "needs rf, which was not run" in capsys.readouterr().out
    small = json.dumps({key: SMALL[key] for key in methods["rf"].spaces["regression"]})
    file.add(replace(record, set="made_up", method="rf", parameters=small))
    pmlb("run").run(*arguments)
    found = file.find("made_up", "rf_refine")
    assert found.parameters == small
    assert 0 < found.error < found.dummy


def test_a_file_has_one_setting(pmlb, tmp_path, record):
    records = pmlb("records")
    path = tmp_path / "out.csv"
    records.ResultFile(path, record.setting).add(record)
    with pytest.raises(ValueError, match="random search, 2 trials, seed 0, not of"):
        records.ResultFile(path, replace(record.setting, trials=3))
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="does not have the columns"):
        records.read_records(path)


def test_sets_without_categories_are_not_run_twice(pmlb, make_rows, record, tmp_path, monkeypatch):
    run, methods = pmlb("run"), pmlb("methods").METHODS
    info = pmlb("sets").SetInfo("s", "regression", 80, 3, "ccc")
    file = pmlb("records").ResultFile(tmp_path / "out.csv", record.setting)
    file.add(replace(record, method="cb_nc"))
    data = pmlb("data").make_data(*make_rows(), "regression")
    monkeypatch.setattr(run, "load_data", lambda *_: data)
    run.run([info], [methods["cb"]], record.setting, None, file)
    assert file.find("s", "cb") == replace(record, method="cb")


def test_report(pmlb, record, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    file = pmlb("records").ResultFile(tmp_path / "out.csv", record.setting)
    paper = tmp_path / "paper.csv"
    names = {"gb": "gb", "gb_gr": "jp_const_gb_l2", "gb_f": "jp_linear_gb_l2"}
    with paper.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["kind", "method", "dataset", "test_score", "dummy_loss"])
        for k in range(12):
            for method, factor in (("gb", 3.0), ("gb_gr", 2.0), ("gb_f", 1.0)):
                error = factor + 0.1 * rng.random()
                row = replace(record, set=f"s{k}", method=method, error=error)
                file.add(row)
                file.add(replace(row, task="binary", set=f"c{k}", error=error / 8, log_loss=error))
                writer.writerow(["regr", names[method], f"s{k}", 2 * error, 4.0])
    picture = tmp_path / "pictures" / "figure.png"
    arguments = ["report", "--results", str(file.path), "--paper", str(paper)]
    pmlb("__main__").main([*arguments, "--picture", str(picture)])
    text = capsys.readouterr().out
    assert "12 of the paper's 90 sets" in text
    assert "GB GR p = 2.4e-04 (yes), GB JOPLEn F p = 2.4e-04 (yes)" in text
    assert "| GB JOPLEn F | 12 | 0.26" in text
    assert "The paper recorded no scores" in text  # of classes
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--trials", "0"], "--trials must be at least 1"),
        (["run", "--data", "no/such/folder"], "is not a folder"),
        (["run", "--methods", "unknown"], "invalid choice"),
        (["report", "--results", "no/such/file"], "is not a file"),
    ],
)
def test_bad_arguments(pmlb, capsys, arguments, message):
    with pytest.raises(SystemExit):
        pmlb("__main__").main(arguments)
    assert message in capsys.readouterr().err
