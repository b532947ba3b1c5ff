"""The layers hold: no module imports from a higher one, and none reaches into another's privates."""

import ast
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
    {"cli"},
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))


def package(path):
    """Return the package, or the module, directly below jointleaf."""
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imports(path):
    """Yield the packages of jointleaf that a module imports when it runs, at once or lazily."""
    tree = ast.parse(path.read_text())
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
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or ""
            assert not module.startswith(("lightgbm", "pandas", "narwhals")), path
            if module.startswith("sklearn"):
                assert module == "sklearn.exceptions", path


def private_uses(path):
    """Yield uses `name._attribute` of objects that are neither self nor cls nor of the class."""
    tree = ast.parse(path.read_text())
    own = {
        target
        for node in ast.walk(tree)
        for target in (
            [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else
            [node.attr] if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) else
            [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            else []
        )
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            is_own = node.attr in own or node.attr.startswith("__")
            if not is_own and not (
                isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"


def test_no_module_reaches_into_the_privates_of_another():
    uses = [use for path in MODULES for use in private_uses(path)]
    allowed = ("._replace", "._asdict", "._fields", "._make")  # of named tuples
    assert [use for use in uses if not use.endswith(allowed)] == []


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
