"""The code that documentation shows runs as written."""

import doctest
import importlib
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import sklearn

import jointleaf
from blend_fits import true_fits

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
#: All modules whose docstrings have examples.
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text()
)


def test_the_readme_runs_as_written(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "converged" in capsys.readouterr().out


def test_the_page_on_penalties_runs_as_written(capsys):
    text = (ROOT / "docs" / "penalties.md").read_text()
    space: dict = {}
    with true_fits():  # the strengths in between decide what is selected
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(block, "penalties.md", "exec"), space)
    assert capsys.readouterr().out.count("converged") == 4
    assert set(space["model"].selected_features_) == {0, 1}


def test_the_page_on_losses_runs_as_written(capsys):
    text = (ROOT / "docs" / "losses.md").read_text()
    space: dict = {}
    with sklearn.config_context():  # the page turns metadata routing on
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(block, "losses.md", "exec"), space)
    printed = capsys.readouterr().out
    assert "Poisson() converged" in printed
    assert 0.5 < float(printed.split("inside: ")[1].split()[0]) < 0.95
    assert float(printed.split("delta: ")[1]) > 0


@pytest.mark.slow
def test_the_page_on_monotone_constraints_runs_as_written(capsys):
    text = (ROOT / "docs" / "monotone.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(block, "monotone.md", "exec"), {})
    assert capsys.readouterr().out == "True\n"


def test_the_page_on_partitions_runs_as_written(capsys):
    text = (ROOT / "docs" / "partitions.md").read_text()
    space: dict = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "partitions.md", "exec"), space)
    printed = capsys.readouterr().out
    assert "(442, 141)" in printed
    assert "['area' 'floor' 'city=Lima' 'city=Oslo' 'city=Rome']" in printed
    assert space["small"].solution_.layout.n_cells <= 80


def test_the_page_on_tasks_runs_as_written(capsys):
    text = (ROOT / "docs" / "multitask.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "multitask.md", "exec"), {})
    shown = re.search(r"```text\n(.*?)```", text, re.DOTALL).group(1)
    assert shown in capsys.readouterr().out


def test_the_page_on_explanations_runs_as_written(capsys):
    pytest.importorskip("shap")
    plt.switch_backend("Agg")
    text = (ROOT / "docs" / "explaining.md").read_text()
    space: dict = {}
    with true_fits():
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(block, "explaining.md", "exec"), space)
    plt.close("all")
    printed = capsys.readouterr().out
    assert printed.startswith("baseline")
    assert "\nTrue\n" in printed
    shown = re.search(r"```text\n(.*?)```", text, re.DOTALL).group(1)
    assert [line.split()[0] for line in shown.splitlines()] == [
        line.split()[0] for line in printed.splitlines()[: len(shown.splitlines())]
    ]
    assert "('all', 'half')" in printed


def test_the_example_of_sql_runs_as_written(capsys):
    text = (ROOT / "docs" / "model-files.md").read_text()
    section = text.split("\n## SQL\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names = {"jointleaf": jointleaf}
    exec(compile(block, "model-files.md", "exec"), names)
    rows = eval(capsys.readouterr().out)
    predicted = names["small"].predict(names["patients"].head(3))
    assert [row[1] for row in rows] == pytest.approx(predicted.tolist())


def test_the_example_of_onnx_runs_as_written(capsys, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "model-files.md").read_text()
    section = text.split("\n## ONNX\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(compile(block, "model-files.md", "exec"), {})
    assert capsys.readouterr().out == "True\n"
    assert (tmp_path / "model.onnx").exists()


def test_the_example_of_raw_tables_runs_as_written(capsys, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "model-files.md").read_text()
    section = text.split("\n## Raw tables\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(compile(block, "model-files.md", "exec"), {
        "jointleaf": jointleaf, "onnxruntime": onnxruntime, "np": np,
    })  # fmt: skip
    assert capsys.readouterr().out == "True\n"


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("Agg")
    result = doctest.testmod(importlib.import_module(name))
    plt.close("all")
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.slow
def test_the_page_on_clusters_runs_as_written(capsys):
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    (block,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/scaling-out.md").read_text(), re.DOTALL
    )
    from dask_rows import quick_starts

    names = {"__name__": "__main__"}
    with quick_starts():
        exec(compile(block, "scaling-out.md", "exec"), names)
    assert "n_rows=20000" in capsys.readouterr().out
    outcome = names["local"].source_fit_
    assert outcome.loss_after < 0.9 * outcome.loss_before
