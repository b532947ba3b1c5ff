"""The files of a release agree: versions, dates, Python versions, dependencies."""

import re
from pathlib import Path

import pytest

import jointleaf

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def only(pattern, name):
    """The one thing that a pattern finds in a file."""
    (found,) = re.findall(pattern, read(name), re.MULTILINE)
    return found


def newest_heading(name):
    """Version and date of the first heading of a version."""
    return re.findall(r"^## (\d\S*) \((\d{4}-\d\d-\d\d)\)$", read(name), re.MULTILINE)[0]


def test_all_files_name_the_same_version():
    version = PROJECT["version"]
    assert jointleaf.__version__ == version
    assert only(r"^version: (\S+)$", "CITATION.cff") == version
    assert only(r'set version = "(\S+)"', "conda/meta.yaml") == version
    assert newest_heading("CHANGELOG.md")[0] == version
    assert newest_heading("docs/releases.md")[0] == version


def test_all_files_name_the_same_date():
    date = only(r"^date-released: (\S+)$", "CITATION.cff")
    assert newest_heading("CHANGELOG.md")[1] == date
    assert newest_heading("docs/releases.md")[1] == date


def python_versions():
    """Versions of the classifiers, oldest first."""
    names = [name.rsplit(" ", 1)[1] for name in PROJECT["classifiers"] if " :: 3." in name]
    return sorted(names, key=lambda name: int(name.split(".")[1]))


def test_python_versions_are_those_that_are_required_and_tested():
    yaml = pytest.importorskip("yaml")
    oldest, *_, newest = versions = python_versions()
    assert PROJECT["requires-python"] == f">={oldest}"
    assert set(re.findall(r"- python >=(\S+)", read("conda/meta.yaml"))) == {oldest}
    jobs = yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]
    assert jobs["matrix"]["strategy"]["matrix"]["python"] == versions
    extremes = jobs["dependencies"]["strategy"]["matrix"]["include"]
    assert extremes == [
        {"versions": "oldest", "python": oldest},
        {"versions": "newest", "python": newest},
    ]


def test_the_conda_recipe_has_the_dependencies_of_the_package():
    run = read("conda/meta.yaml").split("  run:\n")[1].split("\n\n")[0]
    listed = [line.strip("- ").replace(" ", "") for line in run.splitlines()]
    assert listed[1:] == PROJECT["dependencies"]
    assert only(r"^  summary: (.+)$", "conda/meta.yaml") == PROJECT["description"]
    assert f"    - jointleaf = {PROJECT['scripts']['jointleaf']}\n" in read("conda/meta.yaml")


@pytest.mark.parametrize(
    "name", sorted(str(p.relative_to(ROOT)) for p in (ROOT / ".github").rglob("*.yml"))
)
def test_workflows_and_templates_are_yaml(name):
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load(read(name))
    assert isinstance(content, dict)
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    assert set(re.findall(r"run: make ([a-z]+)$", read(name), re.MULTILINE)) <= targets


def test_links_of_the_project_have_one_address():
    home = PROJECT["urls"]["Homepage"]
    assert all(url.startswith(home) for url in PROJECT["urls"].values())
    assert only(r"^repository-code: (\S+)$", "CITATION.cff") == home
    assert only(r"^  home: (\S+)$", "conda/meta.yaml") == home


def test_the_archive_has_what_the_tests_read():
    text = tomllib.loads(read("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]
    assert text["wheel"]["packages"] == ["src/jointleaf"]  # no tests
    named = {"CHANGELOG.md", "CITATION.cff", "Makefile", "conda", ".github", "docs", "tests"}
    assert named <= set(text["sdist"]["include"])
    assert [name for name in text["sdist"]["include"] if not (ROOT / name).exists()] == []
