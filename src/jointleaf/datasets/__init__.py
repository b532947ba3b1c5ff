"""Public data sets to try things on, for one target and for many."""

from jointleaf.datasets._fetching import data_folder
from jointleaf.datasets._loaders import (
    MULAN_TARGETS,
    load_chem_tasks,
    load_mulan,
    load_pmlb,
    load_sarcos,
)

__all__ = [
    "MULAN_TARGETS",
    "data_folder",
    "load_chem_tasks",
    "load_mulan",
    "load_pmlb",
    "load_sarcos",
]
