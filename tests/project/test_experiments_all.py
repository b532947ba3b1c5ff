"""One command for all figures: estimates, resuming, second runs, ten splits; on made-up data."""

import gzip
import importlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
METHODS = ["ridge", "vor_f", "vor_f_stop"]


@pytest.fixture
def experiment(monkeypatch):
    """Import a module of `experiments`, which is found from the root of the repository."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"experiments.{name}")


@pytest.fixture
def few_sets(experiment, monkeypatch, tmp_path):
    """A folder with two made-up sets, which stand in for all of the paper's."""
    modules = [experiment(name) for name in ("everything", "pmlb.repeat", "pmlb.report")]
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    info = experiment("pmlb.sets").SetInfo
    sets = {}
    for name, task in (("numbers", "regression"), ("classes", "binary")):
        X = rng.standard_normal((60, 2))
        y = X[:, 0] + np.abs(X[:, 1])
        target = (y > 0.5).astype(int) if task == "binary" else y
        with gzip.open(folder / f"{name}.tsv.gz", "wt") as file:
            file.write("a\tb\ttarget\n")
            rows = zip(*X.T, target, strict=True)
            file.writelines("\t".join(map(str, row)) + "\n" for row in rows)
        sets[name] = info(name, task, 60, 2, "cc")
    for module in modules:
        monkeypatch.setattr(module, "PAPER_SETS", sets)
    monkeypatch.setattr(experiment("everything"), "RESULTS", tmp_path / "none")
    return folder


def arguments(folder, *more):
    fixed = ["all", "--data", str(folder), "--out", str(folder / "out"), "--only", "figure1"]
    return [*fixed, "--search", "random", "--trials", "2", "--methods", *METHODS, *more]


def test_all_resumes_and_second_runs_agree(experiment, few_sets, capsys):
    pytest.importorskip("matplotlib")
    main, out = experiment("everything").main, few_sets / "out"
    main(arguments(few_sets))
    printed = capsys.readouterr()
    assert "Figure 1, 6 (set, method) pairs: about" in printed.out
    assert "left" in printed.err
    made = json.loads((out / "environment.json").read_text())
    assert made["packages"]["numpy"] == np.__version__
    table = (out / "pmlb_random_2_0.csv").read_text()
    assert len(table.splitlines()) == 7
    assert "| Vor JOPLEn F, stopped | 1 |" in (out / "pmlb_random_2_0.md").read_text()
    assert (out / "pmlb_random_2_0.png").stat().st_size > 10_000
    with pytest.raises(SystemExit, match="give --resume"):
        main(arguments(few_sets))
    main(arguments(few_sets, "--resume"))
    assert "Figure 1, 0 (set, method) pairs: about 0 s" in capsys.readouterr().out
    assert (out / "pmlb_random_2_0.csv").read_text() == table
    again = ["repeat", "--data", str(few_sets), "--results", str(out / "pmlb_random_2_0.csv")]
    main([*again, "--pairs", "3", "--output", str(out / "again.md")])
    assert "3 of 3 pairs are the same" in (out / "again.md").read_text()
    (out / "pmlb_random_2_0.csv").write_text(
        table.replace("ridge,random,2,0,60,2,0.", "ridge,random,2,0,60,2,9.")
    )
    with pytest.raises(SystemExit):
        main([*again, "--pairs", "6"])
    assert "| no |" in capsys.readouterr().out


def test_time_that_is_up_ends_the_run(experiment, few_sets):
    pytest.importorskip("matplotlib")
    experiment("everything").main(arguments(few_sets, "--hours", "0"))
    assert len((few_sets / "out" / "pmlb_random_2_0.csv").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--data", "no/such/folder"], "is not a folder"),
        (["--trials", "0"], "--trials must be at least 1"),
        (["--paper", "no/such/file"], "is not a file"),
    ],
)
def test_bad_arguments(experiment, tmp_path, capsys, more, message):
    with pytest.raises(SystemExit):
        experiment("everything").main(["all", "--data", str(tmp_path), *more])
    assert message in capsys.readouterr().err


def test_the_plan_has_every_pair_once(experiment):
    plan, methods = experiment("pmlb.plan"), experiment("pmlb.methods").METHODS
    assert sorted(name for stage in plan.STAGES for name in stage) == sorted(methods)
    names = [(info.name, method.name) for info, method in plan.PAIRS]
    assert len(set(names)) == len(names) == 150 * len(methods) - 60  # no FASTEL of classes
    place = {name: k for k, name in enumerate(names)}
    for info, method in plan.PAIRS:  # what takes the parameters of another comes after it
        for before in (method.tuned_as, method.twin):
            if before is not None:
                assert place[info.name, before] < place[info.name, method.name]


def test_costs_follow_the_size(experiment):
    costs, records = experiment("pmlb.costs"), experiment("pmlb.records")
    methods, sets = experiment("pmlb.methods").METHODS, experiment("pmlb.sets")
    values = ("regression", "s", "gb", "random", 5, 0, 50, 3, 0.5, 3.0, 4.0, math.nan, 0.1, 0.2)
    record = records.Record(*values, "{}")
    sizes = [(rows, columns) for rows in (50, 200, 800) for columns in (2, 8)]
    found = costs.Costs(replace(record, rows=n, columns=d, seconds=5e-4 * n * d) for n, d in sizes)
    info = sets.SetInfo("t", "regression", 400, 4, "cccc")
    random = records.Setting("random", 10, 0)
    assert found.seconds(info, methods["gb"], random) == pytest.approx(1.6, rel=0.1)
    by_ax = found.seconds(info, methods["gb"], replace(random, search="ax"))
    assert by_ax > found.seconds(info, methods["gb"], random) + 1
    # Nothing is known of this one: it counts like all others together.
    assert found.seconds(info, methods["rf_l_stop"], random) == pytest.approx(1.6, rel=0.1)
    assert costs.Costs([]).seconds(info, methods["gb"], random) == 10 * costs.UNKNOWN
    assert [costs.duration(s) for s in (30, 600, 9000)] == ["30 s", "10 min", "2.5 h"]


def test_stopping_early_holds_free_biases_back(experiment):
    """More cells than rows: at the optimum free biases interpolate noise, stopped ones do not."""
    data = experiment("pmlb.data")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5))
    made = data.make_data(X, X[:, 0] + rng.standard_normal(400), "regression")
    parameters = {"n_partitions": 60, "n_cells": 16, "strength": 1.0}
    stopped, joint = experiment("pmlb.stopped"), experiment("pmlb.joint")
    kind = {"linear": True, "laplacian": False}
    early = stopped.stopped_fit("rf", **kind)(made, parameters, 0)
    solved = joint.joint_fit("rf", **kind)(made, parameters | {"bias_strength": 1e-6}, 0)
    loss = experiment("pmlb.losses").loss
    errors = [loss(made, "test", predict(made.X["test"])) for predict in (early, solved)]
    assert errors[0] < 0.9 * errors[1]


def test_descent_reaches_the_optimum_if_it_is_not_stopped(experiment, monkeypatch):
    """Without an end on the validation rows it is the problem that jointleaf solves."""
    stopped = experiment("pmlb.stopped")
    monkeypatch.setattr(stopped, "MAX_ITER", 3000)
    monkeypatch.setattr(stopped, "PATIENCE", 3000)
    made = experiment("pmlb.data").make_data(
        np.random.default_rng(0).standard_normal((80, 2)), np.arange(80.0), "regression"
    )
    values = {"n_partitions": 3, "n_cells": 2, "strength": 0.1, "laplacian_strength": 0.1}
    values |= {"bandwidth": 1.0, "kind": "symmetric"}
    seen = []
    original = stopped.descend

    def descend(problem, valid_loss):
        seen.append(problem)
        return original(problem, lambda theta: -float(np.linalg.norm(theta)))  # the last is best

    monkeypatch.setattr(stopped, "descend", descend)
    stopped.stopped_fit("vor", linear=True, laplacian=True)(made, values, 0)
    theta = original(
        seen[0], lambda theta: float(seen[0].objective(theta, seen[0].design.matvec(theta)))
    )
    gradient = seen[0].data_gradient(seen[0].design.matvec(theta))
    assert seen[0].optimality(theta, gradient) < 1e-3


def test_side_by_side(experiment, tmp_path):
    pytest.importorskip("matplotlib")
    module, records = experiment("pmlb.side_by_side"), experiment("pmlb.records")
    values = ("regression", "s", "gb", "random", 5, 0, 50, 3, 0.5, 3.0, 4.0, math.nan, 0.1, 0.2)
    record = records.Record(*values, "{}")
    ours, lines = [], ["kind,method,dataset,test_score,dummy_loss"]
    for k in range(8):
        for name, paper, error in (("gb", "gb", 2.0), ("gb_l_stop", "jp_linear_gb_l2L2", 1.0)):
            ours.append(replace(record, set=f"s{k}", method=name, error=error + 0.01 * k))
            lines.append(f"regr,{paper},s{k},{error + 0.02 * k},2.0")
    paper = tmp_path / "paper.csv"
    paper.write_text("\n".join(lines) + "\n")
    base, refit = module.side_by_side(ours, paper)
    assert (base.method, base.p, refit.base, refit.sets) == ("gb", None, "gb", 8)
    assert (refit.wins, refit.paper_wins, refit.lower) == (8, 8, 8)
    assert refit.p == refit.paper_p == pytest.approx(1 / 256)
    assert refit.median == pytest.approx(1.035 / 4)
    assert refit.correlation == pytest.approx(1)
    module.write_rows([base, refit], tmp_path / "out.csv")
    assert "regression,gb_l_stop,gb,8,0.2588," in (tmp_path / "out.csv").read_text()
    module.draw_scatter(ours, paper, tmp_path / "out.png")
    assert (tmp_path / "out.png").stat().st_size > 10_000


def test_splits(experiment, tmp_path, monkeypatch, capsys):
    """Splits are run once, and summed up with standard errors."""
    pytest.importorskip("matplotlib")
    module, paths = experiment("multitask_splits"), experiment("multitask_paths")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 21))
    Y = np.abs(X[:, [20]]) + X[:, [20]] + X[:, :7] + 0.1 * rng.standard_normal((200, 7))
    np.savez(tmp_path / "sarcos_test.npz", X=X, Y=Y)
    grid = experiment("multitask").Grid(4.0, 8.0, (0.1,), (0.1,), (0.02,), 1, (5, 3))
    monkeypatch.setitem(module.SPLIT_GRIDS, "sarcos", grid)
    monkeypatch.setattr(paths, "N_TREES", 5)
    options = ["--data", str(tmp_path), "--sets", "sarcos", "--output", str(tmp_path / "out")]
    module.main([*options, "--splits", "1"])
    first = (tmp_path / "out" / "multitask_splits.csv").read_text()
    module.main([*options, "--splits", "2"])
    assert (tmp_path / "out" / "multitask_splits.csv").read_text().startswith(first)
    assert "split 1 of 2" not in capsys.readouterr().out
    file = module.Splits(tmp_path / "out" / "multitask_splits.csv")
    assert file.splits("sarcos") == ["0", "1"]
    errors = file.table("sarcos", "DL", "test_mse")
    assert errors.shape == (2, 7)
    mean, error = module.mean_and_error(errors[:, 0])
    assert float(mean) == pytest.approx(errors[:, 0].mean())
    assert float(error) == pytest.approx(abs(errors[0, 0] - errors[1, 0]) / 2)
    assert "| DL | 2 |" in module.summary("sarcos", file)
    assert (tmp_path / "out" / "multitask_sarcos_splits.png").stat().st_size > 10_000
