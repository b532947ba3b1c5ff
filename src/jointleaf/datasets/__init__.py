"""Public data sets to try things on, for one target and for many."""

from jointleaf.datasets.chem import load_chem_tasks
from jointleaf.datasets.fetching import data_folder
from jointleaf.datasets.mulan import MULAN_TARGETS, load_mulan
from jointleaf.datasets.pmlb import load_pmlb
from jointleaf.datasets.sarcos import load_sarcos

__all__ = [
    "MULAN_TARGETS",
    "data_folder",
    "load_chem_tasks",
    "load_mulan",
    "load_pmlb",
    "load_sarcos",
]
