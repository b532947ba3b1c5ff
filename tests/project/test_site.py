"""The pages of the documentation: their code runs, their links lead somewhere, none is missing."""

import ast
import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from test_cli_docs import shell_lines

import jointleaf
from blend_fits import true_fits
from jointleaf import Frobenius, JOPLEnRegressor, estimate_memory  # noqa: F401

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def prose(page):
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    """The anchors that GitHub (and the site) gives to the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    before = [slugs[:i].count(slug) for i, slug in enumerate(slugs)]
    return {f"{slug}-{n}" if n else slug for slug, n in zip(slugs, before, strict=True)}


def broken_links(page):
    """Relative links of a page that lead nowhere."""
    broken = []
    for target, anchor in LINK.findall(prose(page)):
        if target.startswith(("http:", "https:")):
            continue
        path = page.parent / target if target else page
        missing = anchor and path.suffix == ".md" and path.is_file() and anchor not in anchors(path)
        if not path.exists() or missing:
            broken.append(f"{target}#{anchor}" if anchor else target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page):
    assert broken_links(page) == []


def test_links_that_lead_nowhere_are_found(tmp_path):
    page = tmp_path / "page.md"
    links = "[a](#one-title-two) [b](#three) [c](no.md) [d](page.md#no)"
    page.write_text(f"# One `title`, two\n{links}")
    assert broken_links(page) == ["#three", "no.md", "page.md#no"]


def missing_paths(page):
    """Files and folders that a page names in backticks and that are not there."""
    named = re.findall(
        r"`((?:src|tests|benchmarks|docs|estimators|inspection|io|_[a-z]+)/[\w./-]+)`", prose(page)
    )
    places = (ROOT, ROOT / "src" / "jointleaf")
    return [path for path in named if not any((place / path).exists() for place in places)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page):
    assert missing_paths(page) == []


def run(page, n_blocks=None, **names):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    for block in blocks[:n_blocks]:
        exec(compile(block, page, "exec"), names)
    return names


@pytest.mark.slow
def test_the_first_page_runs_as_written(capsys):
    assert run("index.md")["model"].n_features_in_ == 10


@pytest.mark.slow
def test_getting_started_runs_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with true_fits():
        names = run("getting-started.md")
    out = capsys.readouterr().out
    assert "converged" in out
    assert "baseline" in out
    assert "\nTrue\n" in out  # the loaded model predicts the same
    X, y = names["X_test"], names["y_test"]
    assert names["refined"].score(X, y) > names["forest"].score(X, y)


def test_the_shell_commands_of_getting_started_are_those_that_are_tested():
    tested = [line.split("#")[0].split() for line in shell_lines("README.md")[1:]]
    assert [line.split() for line in shell_lines("docs/getting-started.md")] == tested


@pytest.mark.slow
def test_the_user_guide_runs_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run("user-guide.md")
    assert {0, 1, 2, 3, 4} <= set(names["selector"].selected_features_)
    assert names["joint"].common_features_.tolist() == [0]
    assert names["small"].solution_.layout.n_cells <= 100
    X, y = names["X"], names["y"]
    assert names["served"].score(X, y) == names["small"].score(X, y)


@pytest.mark.slow
def test_the_page_on_intervals_runs_as_written():
    names = run("intervals.md")
    assert 0.8 < names["coverage"] < 0.97
    assert names["quantiles"].shape == (len(names["X_test"]), 5)
    assert names["sets"].shape == (75, 3)


def test_the_page_on_model_files_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((60, 3))
    model = JOPLEnRegressor(penalty=Frobenius(0.1), random_state=0).fit(X, X.sum(axis=1))
    loaded = run("model-files.md", n_blocks=2, model=model)["model"]  # the third is ONNX
    assert loaded is not model
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_the_estimate_of_memory_in_how_it_works_is_what_is_printed():
    text = (DOCS / "how-it-works.md").read_text()
    ((code, shown),) = re.findall(r"```python\n>>> (.*?)\n(.*?)\n```", text)
    assert repr(eval(code)) == shown


@pytest.mark.slow
def test_the_gallery_runs_as_written_and_has_every_display():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    text = (DOCS / "gallery.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```(\s*!\[[^]]+\]\((\S+)\))?", text, re.DOTALL)
    names: dict = {}
    drawn = set()
    for code, _, picture in blocks:
        names.pop("display", None)
        exec(compile(code, "gallery.md", "exec"), names)
        assert bool(picture) == ("display" in names), code
        if picture:
            drawn.add(type(names["display"]).__name__)
            assert len(names["display"].figure_.axes[0].get_children()) > 10
            assert 1_000 < (DOCS / picture).stat().st_size < 60_000
    plt.close("all")
    assert drawn == {name for name in jointleaf.__all__ if name.endswith("Display")}


PUBLIC_MODULES = (
    *("dask", "datasets", "inspection", "io", "losses"),
    *("multitask", "partitions", "penalties", "plot"),
)


def test_the_reference_has_every_public_name_once():
    text = "".join(page.read_text() for page in sorted((DOCS / "api").glob("*.md")))
    listed = re.findall(r"^\.\. (?:auto\w+|py:data):: (\S+)$", text, re.MULTILINE)
    assert len(listed) == len(set(listed))
    names = set(jointleaf.__all__) - {"__version__"}
    public = {f"jointleaf.{name}" for name in names}
    for module in PUBLIC_MODULES:
        inner = set(importlib.import_module(f"jointleaf.{module}").__all__) - names
        public |= {f"jointleaf.{module}.{name}" for name in inner}
    assert public - set(listed) == set()
    returned = {path for path in listed if "._" in path}  # documented for their attributes
    assert set(listed) - returned == public
    for path in listed:
        module, name = path.rsplit(".", 1)
        assert hasattr(importlib.import_module(module), name), path
    overview = (DOCS / "api" / "index.md").read_text()
    assert {path for path in listed if f"`{path.rsplit('.', 1)[1]}`" not in overview} == set()


def test_every_page_is_in_the_navigation():
    tree = ast.parse((DOCS / "conf.py").read_text())
    (entries,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NAVIGATION"
    )
    listed = [entry.split("<")[-1].rstrip(">") for part in entries.values() for entry in part]
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted(pages - {"index"})


NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
LONG_NUMBER = re.compile(r"\d+(?:[.,]\d+)+|\d{3,}")


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "comparison.md"], ids=lambda p: p.name)
def test_numbers_are_those_of_the_measured_tables(page):
    """Pages that collect results give no number that its own page does not have any more."""
    collecting = {ROOT / "README.md", DOCS / "comparison.md"}
    measured = "\n".join(other.read_text() for other in PAGES if other not in collecting)
    numbers = set(LONG_NUMBER.findall(re.sub(r"\]\([^)]*\)", "]", prose(page))))
    assert len(numbers) > 10
    assert numbers - set(NUMBER.findall(measured)) == set()


def test_numbers_on_performance_are_those_of_the_linked_pages():
    rows = [line for line in prose(DOCS / "performance.md").splitlines() if line.startswith("|")]
    linked = [(row, re.findall(r"\]\(([\w-]+\.md)#", row)) for row in rows]
    assert sum(bool(names) for _, names in linked) > 10
    for row, names in linked:
        for name in names:
            known = set(NUMBER.findall((DOCS / name).read_text()))
            assert set(LONG_NUMBER.findall(row)) - known == set(), row


def test_slow_files_exist():
    text = (ROOT / "tests" / "conftest.py").read_text()
    named = re.findall(r'"([\w/]+/test_\w+\.py)"', text)
    assert named
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []
