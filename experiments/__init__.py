"""The paper's figures and tables, one module each: ``python -m experiments.<module>``."""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["require"]


def require(name: str) -> ModuleType:
    """Import a module of another package, or end the program and say what to install."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as cause:  # OSError: a compiled part lacks its own libraries
        package = name.partition(".")[0]
        raise SystemExit(
            f"this experiment needs {package}, which cannot be imported ({cause}): "
            'pip install -e ".[experiments]"'
        ) from cause
