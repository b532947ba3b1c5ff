"""Names of a package that are loaded when they are first used, so that importing it is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[list[str], Callable, Callable]:
    """Return the names of a package, its `__getattr__` and its `__dir__`.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    modules : mapping of str
        Names, with blanks between them, by the module below the package that is loaded for them.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        hidden = {"TYPE_CHECKING", "annotations", "lazy_names"}
        return sorted({*vars(sys.modules[package]), *homes} - hidden)

    return list(homes), load, listed
