"""No module imports from a higher layer, and none reaches into the privates of another."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "jointleaf"
#: From low to high; a module may import its own layer and those before it.
LAYERS = [
    {"_core"},
    {"_data", "losses", "penalties"},
    {"_trees"},
    {"partitions"},
    {"_model"},
    {"_fit"},
    {"inspection"},
    {"estimators"},
    {"multitask"},
    {"plot", "io", "datasets"},
    {"_sources"},
    {"dask"},
    {"cli"},
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))


def package(path):
    """Return the package, or the module, directly below jointleaf."""
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


@cache
def tree_of(path):
    return ast.parse(path.read_text())


def imports(path):
    """Yield the packages of jointleaf that a module imports when it runs, at once or lazily."""
    tree = tree_of(path)
    unused = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in unused:
            top, *rest = node.module.split(".")
            if top == "jointleaf":
                yield from ([rest[0]] if rest else [a.name for a in node.names])


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_imports_from_a_higher_layer(path):
    own = package(path)
    if own in ("__init__", "__main__"):
        return
    for name in imports(path):
        if name in HEIGHT:
            assert HEIGHT[name] <= HEIGHT[own], f"{own} imports {name}"


def test_the_core_needs_neither_scikit_learn_nor_lightgbm():
    for path in (ROOT / "_core").rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            module = getattr(node, "module", None) or ""
            assert not module.startswith(("lightgbm", "pandas", "narwhals")), path
            if module.startswith("sklearn"):
                assert module == "sklearn.exceptions", path


def defined_names(tree):
    """Return names of functions, classes, annotated and assigned attributes of a module."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def private_uses(path):
    """Yield uses of private attributes that a module neither defines nor has from itself."""
    tree = tree_of(path)
    names = defined_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
            continue
        is_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if not (is_self or node.attr in names or node.attr.startswith("__")):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"


def test_no_module_reaches_into_the_privates_of_another():
    uses = [use for path in MODULES for use in private_uses(path)]
    of_tuples = ("._replace", "._asdict", "._fields", "._make")
    uses = [use for use in uses if not use.endswith(of_tuples)]
    # scikit-learn's histogram boosting has no public way to its trees.
    assert [use for use in uses if "importers/histogram.py" not in use] == []


def test_modules_of_public_packages_are_private():
    public = {
        "estimators",
        "multitask",
        "inspection",
        "plot",
        "io",
        "cli",
        "datasets",
        "partitions",
    }
    for path in MODULES:
        parts = path.relative_to(ROOT).parts
        if parts[0] in public and len(parts) > 1:
            assert parts[1].startswith("_"), path
