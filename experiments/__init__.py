"""The paper's figures and tables, one module each: ``python -m experiments.<module>``."""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType

__all__ = ["check_options", "require"]

#: Options of several commands, and the least value of each.
_LEAST = {"trials": 1, "seed": 0, "splits": 0, "pairs": 1, "max_rows": 3}


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


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End the program where a number is too small, or a folder or file is not there."""
    for name, least in _LEAST.items():
        if getattr(options, name, least) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")
    folder = getattr(options, "data", None)
    if folder is not None and not folder.is_dir():
        parser.error(f"--data {folder} is not a folder")
    for name in ("results", "paper"):
        path = getattr(options, name, None)
        if path is not None and not path.is_file():
            parser.error(f"--{name} {path} is not a file")
