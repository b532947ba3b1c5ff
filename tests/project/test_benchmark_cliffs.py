"""The cliffs benchmark: nested samples, an error of one for a constant, and resumed runs."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("friedman", "steps", "directions", "parity", "categories", "classes")


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_nested(module, name):
    generate = module("generated").generate
    X, y, truth = generate(name, 50, 3)
    X_more, y_more, truth_more = generate(name, 80, 3)
    np.testing.assert_array_equal(np.asarray(X), np.asarray(X_more)[:50])
    np.testing.assert_array_equal(y, y_more[:50])
    np.testing.assert_array_equal(truth, truth_more[:50])
    assert np.std(truth) > 0
    assert not np.array_equal(generate(name, 50, 4)[1], y)


def test_sizes(module):
    sizes = module("cliffs").sizes()
    assert sizes[0] == 500
    assert sizes[-1] == 50_000
    ratios = np.divide(sizes[1:], sizes[:-1])
    assert ratios.max() == pytest.approx(1.25, abs=0.002)
    assert module("cliffs").sizes(1000)[-1] == 977


@pytest.mark.parametrize("name", ["friedman", "classes"])
def test_a_constant_explains_nothing(module, name):
    cliffs, generated = module("cliffs"), module("generated")
    _, _, truth = generated.generate(name, 5000, 0)
    task = generated.FUNCTIONS[name].task
    constant = np.full(5000, truth.mean())
    assert cliffs.unexplained(task, truth, constant) == pytest.approx(1.0)
    assert cliffs.unexplained(task, truth, truth) == pytest.approx(0.0, abs=1e-12)


def test_runs_are_kept_and_reported(module, tmp_path, monkeypatch, capsys):
    cliffs = module("cliffs")
    output, picture = tmp_path / "new" / "cliffs.csv", tmp_path / "cliffs.png"
    arguments = ["cliffs", "--models", "constant", "--output", str(output), "--max-rows", "700"]
    arguments += ["--functions", "friedman", "categories", "--seeds", "0", "1"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--picture", str(picture)])
    cliffs.main()
    lines = output.read_text().splitlines()
    assert len(lines) == 1 + 2 * 2 * 2
    assert picture.stat().st_size > 0
    out = capsys.readouterr().out
    assert "| Friedman's first | constant | 2 | 1.0" in out
    cliffs.main()
    assert output.read_text().splitlines() == lines


def test_rises_beyond_noise_are_named(module):
    cliffs = module("cliffs")
    noise = np.random.default_rng(0).normal(scale=0.01, size=(10, 4))
    levels = [0.4, 0.3, 0.35, 0.2]
    results = {
        ("steps", seed, n, "jointleaf"): (level * np.exp(noise[seed, k]), 2.0**k)
        for seed in range(10)
        for k, (n, level) in enumerate(zip((500, 625, 781, 977), levels, strict=True))
    }
    for n_seeds, text in ((10, "| 10 |"), (4, "| 10 to 4 |")):
        some = {k: v for k, v in results.items() if k[1] < n_seeds or k[2] < 977}
        row = cliffs.report(some).splitlines()[-1]
        assert "| 625 to 781 |" in row
        assert "2.00x" in row
        assert text in row
