"""Splits and peers of the multitask experiments, on made-up data."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def experiment(monkeypatch):
    """Import a module of `experiments`, which is found from the root of the repository."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"experiments.{name}")


@pytest.fixture
def sarcos_folder(tmp_path):
    rng = np.random.default_rng(0)
    X = 3 + 2 * rng.standard_normal((500, 21))
    Y = X[:, :7] + X[:, [20]] + 0.1 * rng.standard_normal((500, 7))
    np.savez(tmp_path / "sarcos_test.npz", X=X, Y=Y)
    return tmp_path


@pytest.fixture
def chem_folder(tmp_path):
    """Three tasks with molecules in common; columns that are constant, huge or an estimate."""
    rng = np.random.default_rng(1)
    names = ["a", "md_SLogP", "constant in one task", "huge", "b", "md_FilterItLogS", "seldom"]
    (tmp_path / "descriptors.txt").write_text("\n".join(names))
    molecules = np.array([f"C{k}" for k in range(600)])
    for name, start, n in (("mol_x", 0, 300), ("mol_y", 200, 250), ("mol_z", 100, 400)):
        X = rng.standard_normal((n, 7)).astype(np.float32)
        X[:, 3] = np.where(np.arange(n) == n // 2, 1e6, X[:, 3])
        X[:, 6] = 0
        X[0, 6] = 1
        if name == "mol_y":
            X[:, 2] = 5
        smiles = molecules[start : start + n][::-1]
        np.savez(tmp_path / f"{name}.npz", X=X, y=10 + 5 * X[:, 0], smiles=smiles)
    return tmp_path


def test_parts_as_in_the_paper(experiment):
    split = experiment("multitask_data").three_parts
    rng = np.random.RandomState(0)
    parts = split(48_933, rng)
    assert {name: len(rows) for name, rows in parts.items()} == {
        "train": 34_262,
        "validation": 9_777,
        "test": 4_894,
    }
    np.testing.assert_array_equal(np.sort(np.concatenate([*parts.values()])), np.arange(48_933))
    again = split(48_933, np.random.RandomState(0))
    np.testing.assert_array_equal(parts["test"], again["test"])
    assert not np.array_equal(parts["test"], split(48_933, rng)["test"])


def test_sarcos_is_standardised(experiment, sarcos_folder):
    data = experiment("multitask_data").sarcos_data(sarcos_folder, "test")
    assert [task.name for task in data.tasks] == [f"torque {k}" for k in range(1, 8)]
    assert len(data.feature_names) == 21
    for X, y in zip(*data.part("train"), strict=True):
        assert len(X) == len(y) == 350
        np.testing.assert_allclose([X.mean(), y.mean()], 0, atol=1e-12)
        np.testing.assert_allclose(X.std(axis=0), 1)
        np.testing.assert_allclose(y.std(), 1)
    np.testing.assert_array_equal(data.tasks[0].X["test"], data.tasks[6].X["test"])
    assert abs(data.tasks[0].y["test"].mean()) > 1e-6  # the training part's scale, not its own


def test_molecules_are_in_one_part(experiment, chem_folder):
    module, datasets = experiment("multitask_data"), importlib.import_module("jointleaf.datasets")
    bunches = datasets.load_chem_tasks(chem_folder)
    parts = module.split_molecules(
        (bunch.smiles for bunch in bunches.values()), np.random.RandomState(0)
    )
    assert len(parts) == 500
    of_part = {name: set() for name in module.PARTS}
    for bunch in bunches.values():
        rows = module.rows_by_molecule(bunch.smiles, parts)
        assert sum(map(len, rows.values())) == len(bunch.smiles)
        assert len(rows["train"]) == pytest.approx(0.7 * len(bunch.smiles), rel=0.15)
        for name, at in rows.items():
            of_part[name] |= set(bunch.smiles[at].tolist())
    assert not of_part["train"] & of_part["test"]
    assert not of_part["train"] & of_part["validation"]
    assert not of_part["validation"] & of_part["test"]


def test_chem_columns(experiment, chem_folder):
    module = experiment("multitask_data")
    data = module.chem_data(chem_folder)
    assert data.feature_names == ["a", "huge", "b"]
    assert set(data.dropped) == {"md_SLogP", "constant in one task", "md_FilterItLogS", "seldom"}
    for task in data.tasks:
        assert max(np.abs(X).max() for X in task.X.values()) <= module.CLIP
        np.testing.assert_allclose(task.y["train"].std(), 1)
    fewer = module.chem_data(chem_folder, names=["mol_x", "mol_z"])
    assert "constant in one task" in fewer.feature_names
    assert len(fewer.tasks) == 2


def test_peers_of_single_tasks(experiment, sarcos_folder):
    peers = experiment("multitask_peers")
    data = experiment("multitask_data").sarcos_data(sarcos_folder, "test")
    ridge, boosted = peers.fit_ridge(data), peers.fit_lightgbm(data)
    assert max(ridge.mse["test"]) < 0.01
    assert max(boosted.mse["test"]) < 0.3
    assert "| ridge |" in peers.report([ridge, boosted], data)


def test_dirty_lasso_is_optimal(experiment, chem_folder):
    """The optimality conditions hold with each task's own mean, though mutar knows only one."""
    pytest.importorskip("mutar")
    module = experiment("multitask_peers")
    data = experiment("multitask_data").chem_data(chem_folder)
    common, task = 0.1, 0.07
    peer = module.fit_dirty_lasso(data, common, task)
    gradient = []
    for X, y, w in zip(*data.part("train"), peer.coef, strict=True):
        X, y = X - X.mean(axis=0), y - y.mean()
        gradient.append(X.T @ (X @ w - y) / len(y))
    gradient = np.array(gradient)
    norms = np.linalg.norm(gradient, axis=0)
    assert norms.max() <= common * (1 + 1e-3)
    assert np.abs(gradient).max() <= task * (1 + 1e-3)
    assert peer.common == [0]
    np.testing.assert_allclose(norms[0], common, rtol=1e-3)
    chosen = module.choose_dirty_lasso(data, [(0.3, 0.2), (common, task)])
    assert chosen.about["common"] == common


# -- the whole experiment ------------------------------------------------------------------------


@pytest.fixture
def curved_folder(tmp_path):
    """Targets in the format of SARCOS that bend along a feature, and need one of their own."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 21))
    Y = np.abs(X[:, [20]]) + X[:, [20]] + X[:, :7] + 0.1 * rng.standard_normal((300, 7))
    np.savez(tmp_path / "sarcos_test.npz", X=X, Y=Y)
    return tmp_path


def make_point(module, validation, n_common, n_specific, test=None):
    mse = {"validation": np.array(validation), "test": np.array(test or validation)}
    return module.Point("JOPLEn DL", {}, mse, n_common, np.array(n_specific), 0.0)


def test_points_are_chosen_by_validation_error(experiment):
    paths, choice = experiment("multitask_paths"), experiment("multitask_choice")
    sparse = make_point(paths, [0.5, 0.5], 0, [1, 0])
    uneven = make_point(paths, [0.1, 0.32], 1, [1, 0])
    even = make_point(paths, [0.2, 0.2], 2, [0, 1])
    dense = make_point(paths, [0.2, 0.19], 9, [0, 0])
    points = [dense, sparse, even, uneven]
    assert [point.features for point in points] == [9, 0.5, 2.5, 1.5]
    assert choice.own_choice(points) is even  # within 5 % of dense
    rival = make_point(paths, [0.25, 0.25], 4, [2, 2])
    assert choice.not_above(points, rival) is uneven
    assert choice.not_above(points, rival, 2) is even
    assert choice.not_above(points, make_point(paths, [0.1, 0.1], 0, [0, 0])) is None
    assert choice.frontier(points) == [sparse, uneven, even, dense]
    assert choice.budget_table(points, [0, 1, 3]) == [None, sparse, even]
    found = choice.compare(even, make_point(paths, [0.3, 0.1], 1, [3, 1]))
    assert (found["tasks_lower_error"], found["tasks_fewer_features"]) == (1, 1)
    assert (found["tasks_both"], found["tasks_either"]) == (1, 1)


def test_points_of_paths_are_those_of_the_estimator(experiment, curved_folder):
    paths = experiment("multitask_paths")
    data = experiment("multitask_data").sarcos_data(curved_folder, "test")
    traced = list(paths.dirty_path(paths.JOPLEN, data, (0.1,), 2, 4.0, size=(5, 3)))
    assert len(traced) == 2
    found = traced[0]
    assert found[0].features == 0
    assert found[-1].features > 4
    point = next(point for point in found if point.features >= 2)
    model, again = paths.fit_point(point, data, size=(5, 3))
    np.testing.assert_allclose(again.mse["test"], point.mse["test"], rtol=0.02)
    assert abs(again.features - point.features) < 0.5
    assert model.penalty_.common == pytest.approx(point.settings["common"])


def test_linear_dirty_lasso_is_that_of_mutar(experiment, curved_folder):
    pytest.importorskip("mutar")
    paths, peers = experiment("multitask_paths"), experiment("multitask_peers")
    data = experiment("multitask_data").sarcos_data(curved_folder, "test")
    peer = peers.fit_dirty_lasso(data, 0.2, 0.1, tol=1e-8)
    penalty = paths.DirtyLasso(common=0.2, task=0.1)
    model = paths.joint_model(paths.DL, penalty, tol=1e-7, clip=False).fit(paths.as_tasks(data))
    slopes = np.array([task.coef[0] for task in model.solution_.tasks])
    np.testing.assert_allclose(slopes, peer.coef, atol=2e-4)
    assert model.common_features_.tolist() == peer.common
    specific = [model.task_features_[task.name].tolist() for task in data.tasks]
    assert specific == peer.specific
    np.testing.assert_allclose(paths.model_errors(model, data)["test"], peer.mse["test"], rtol=1e-3)


def test_multitask_experiment(experiment, curved_folder, monkeypatch, capsys, tmp_path):
    """All methods are traced, chosen and fitted; tables, files and pictures come out."""
    pytest.importorskip("lightgbm")
    pytest.importorskip("matplotlib").use("Agg")
    module = experiment("multitask")
    grid = module.Grid(8.0, 12.0, (0.1,), (0.02, 0.1), (0.02,), n_ratios=2, size=(10, 3))
    monkeypatch.setitem(module.GRIDS, "sarcos", grid)
    monkeypatch.setattr(experiment("multitask_paths"), "N_TREES", 10)
    out = tmp_path / "out"
    module.main(["--data", str(curved_folder), "--sets", "sarcos", "--output", str(out)])
    printed = capsys.readouterr().out
    for text in ("| JOPLEn DL at DL's mean error |", "| BoUTS |", "| ridge |", "1 + 1"):
        assert text in printed
    assert "use all features: without any slope" in printed
    assert "| LightGBM on the features of |" in printed
    pictures = [f"multitask_sarcos_{kind}.png" for kind in ("frontier", "weights", "errors")]
    assert all((out / name).stat().st_size > 10_000 for name in pictures)
    record = json.loads((out / "multitask_sarcos.json").read_text())
    against = record["comparisons"]["JOPLEn DL at DL's mean error"]
    assert against["test_mse"] < 1.2 * against["rival_test_mse"]
    assert len((out / "multitask_sarcos_paths.csv").read_text().splitlines()) > 10


def test_multitask_experiment_needs_a_folder(experiment, capsys):
    with pytest.raises(SystemExit):
        experiment("multitask").main(["--data", "nowhere"])
    assert "is not a folder" in capsys.readouterr().err
