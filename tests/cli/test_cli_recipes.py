"""With many rows: the recipe that is validated is the one that is saved, and shown as it is."""

import json
import re

import numpy as np
import pytest

import jointleaf
from blend_fits import small_fits
from cli_data import as_csv, fails, run
from jointleaf._fit import recipes
from jointleaf._fit.blend import Stacking
from jointleaf._fit.component import Blend
from jointleaf._fit.recipes import recipe_for
from jointleaf.cli import _fitting
from jointleaf.cli._using import load_model


def fit_rows(capsys, monkeypatch, folder, n, *options):
    """Fit n rows of two columns; return the recipes of all fits in order, and the output."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)).round(4)
    y = (np.abs(X[:, 0]) + X[:, 1] + rng.normal(0, 0.1, n)).round(4)
    (folder / "data.csv").write_text(as_csv(np.column_stack([X, y]).tolist(), ("a", "b", "y")))
    fits = []
    original = jointleaf.JOPLEnRegressor.fit

    def spy(self, *args, **kwargs):
        fitted = original(self, *args, **kwargs)
        fits.append(self.report_.recipe)
        return fitted

    monkeypatch.setattr(jointleaf.JOPLEnRegressor, "fit", spy)
    monkeypatch.setattr(_fitting, "FIT_MODELS", _fitting.FIT_MODELS[:1])  # for speed
    arguments = folder / "data.csv", "-t", "y", "-o", folder / "model.jleaf", *options
    code, out, err = run(capsys, "fit", *arguments)
    assert code == 0, err
    return fits, out


@pytest.mark.parametrize("n", [2300, 12_000])
def test_validation_fits_the_recipe_of_all_rows(capsys, monkeypatch, tmp_path, n):
    """A split trains on 80 %: of 2,300 rows 1,840, whose default is another recipe."""
    assert [recipe_for(n) for n in (1840, 2300)] == ["joint", "blend"]
    fits, out = fit_rows(capsys, monkeypatch, tmp_path, n, "--no-report", "--json")
    assert fits == ["blend", "blend"]
    model = json.loads(out)["model"]
    assert model["recipe"] == "blend"
    assert model["joint"]["solver"]


@pytest.mark.slow
def test_a_recipe_that_is_asked_for(capsys, monkeypatch, tmp_path):
    with small_fits():
        fits, _ = fit_rows(capsys, monkeypatch, tmp_path, 300, "--recipe", "blend", "--no-report")
        assert fits == ["blend"] * 6
        fits, _ = fit_rows(capsys, monkeypatch, tmp_path, 2300, "--recipe", "joint", "--no-report")
    assert fits == ["joint", "joint"]
    assert "SELECT" in jointleaf.to_sql(jointleaf.load(tmp_path / "model.jleaf"), "t")


def test_one_component_leaves_nothing_to_a_budget_of_time(capsys, tmp_path):
    line = fails(capsys, "fit", "d.csv", "-t", "y", "--recipe", "joint", "--time-budget", "5")
    assert "leave out one of the two" in line


def test_a_blend_without_a_joint_fit(capsys, monkeypatch, tmp_path):
    """No joint problem is solved: neither output nor report mention a solver or a strength."""
    monkeypatch.setattr(recipes, "recipe_for", lambda *args: "blend")
    monkeypatch.setattr(Stacking, "fit", lambda *_: Blend({"boosted": 1.0, "joint": 0.0}))
    with small_fits():
        fits, out = fit_rows(capsys, monkeypatch, tmp_path, 500)
    assert set(fits) == {"blend"}
    report = (tmp_path / "model.html").read_text()
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", report, flags=re.DOTALL)
    _, info, _ = run(capsys, "info", tmp_path / "model.jleaf")
    for shown in (out, text, info):
        assert "boosted trees" in shown
        for claim in ("jointly", "solver", "converged", "optimality", "Frobenius", "Chosen"):
            assert claim not in shown, claim
    model = load_model(str(tmp_path / "model.jleaf"))
    assert model.record["model"]["joint"] is None
    assert model.record["search"] == []
    assert model.model.solution_ is None
    assert model.model.penalty_ is None
