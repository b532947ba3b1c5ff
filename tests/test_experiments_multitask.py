"""Splits and peers of the multitask experiments, on made-up data."""

import importlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


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
