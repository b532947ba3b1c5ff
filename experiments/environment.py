"""What results were made with: versions of packages, the interpreter and the machine."""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path

import jointleaf

__all__ = ["describe_environment", "write_environment"]

PACKAGES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "lightgbm",
    "catboost",
    "ax-platform",
    "botorch",
    "torch",
    "pytorch-tabnet",
    "matplotlib",
)


def describe_environment() -> dict[str, object]:
    """Versions and the number of cores; None for a package that is not there."""
    return {
        "jointleaf": jointleaf.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def write_environment(path: Path) -> None:
    """Write it as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(describe_environment(), indent=1) + "\n")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
