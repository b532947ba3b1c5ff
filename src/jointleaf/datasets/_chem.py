"""Molecular properties: seven tasks in one set of descriptors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from jointleaf.datasets._fetching import Folder

__all__ = ["load_chem_tasks"]

_SUBFOLDERS = ("", "chem", "multitask/chem")
_NAMES = "descriptors.txt"
_SOURCES = (
    "The molecules and properties are public (boiling and melting points and logP: the tables of "
    "the PyPI package chemicals; Henry's constant: PHYSPROP as in NIEHS/OPERA; solubility: "
    "AqSolDB; lipophilicity and hydration free energy: MoleculeNet), the descriptors can be "
    "computed with mordredcommunity and RDKit"
)


def load_chem_tasks(folder: Folder | None = None) -> dict[str, Bunch]:
    """Load the tasks of a folder with molecular properties, which share their features.

    These files cannot be downloaded as such: the properties are public, but the descriptors
    must be computed from the molecules.

    Parameters
    ----------
    folder : path
        A folder with ``descriptors.txt``, the name of one feature a line, and a file
        ``TASK.npz`` for every task with arrays ``X`` (n, d), ``y`` (n,) and ``smiles`` (n,), in
        itself or in ``chem`` or ``multitask/chem`` in it.

    Returns
    -------
    dict of Bunch
        By name of the task, in alphabetical order: ``data`` (n, d), float32 as stored;
        ``target`` (n,), float64; ``smiles`` (n,), the molecules as text; ``feature_names``, the
        same list in all; ``name``; ``filename``. Molecules recur across tasks: split by
        ``smiles``.

    Raises
    ------
    ValueError, FileNotFoundError
        No folder is given; it has no such files; they do not fit together.
    """
    if folder is None:
        raise ValueError(
            f"folder=None: the chem tasks cannot be downloaded. {_SOURCES}; give the folder with "
            f"TASK.npz and {_NAMES} as folder=."
        )
    place = _place(folder)
    names = (place / _NAMES).read_text(encoding="utf-8").split("\n")
    features = [name.strip() for name in names if name.strip()]
    tasks = {path.stem: _read(path, features) for path in sorted(place.glob("*.npz"))}
    if not tasks:
        raise FileNotFoundError(f"folder={str(folder)!r}: {place} has {_NAMES}, but no TASK.npz.")
    return tasks


def _place(folder: Folder) -> Path:
    """Give the folder of the files, `folder` or one inside it."""
    for sub in _SUBFOLDERS:
        place = Path(folder).expanduser() / sub
        if (place / _NAMES).is_file():
            return place
    raise FileNotFoundError(
        f"folder={str(folder)!r} has no {_NAMES}, not in chem or multitask/chem either. {_SOURCES}."
    )


def _read(path: Path, features: list[str]) -> Bunch:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            X, y, smiles = arrays["X"], arrays["y"].astype(np.float64), arrays["smiles"]
        if X.ndim != 2 or y.shape != smiles.shape or y.shape != (len(X),):
            raise ValueError(f"X {X.shape}, y {y.shape} and smiles {smiles.shape} do not fit")
        if X.shape[1] != len(features):
            raise ValueError(f"{X.shape[1]} columns, but {len(features)} lines in {_NAMES}")
    except (OSError, EOFError, KeyError, ValueError) as cause:
        raise ValueError(f"{path} is not a task that can be read: {cause}") from cause
    return Bunch(
        data=X,
        target=y,
        smiles=smiles,
        feature_names=features,
        name=path.stem,
        filename=str(path),
    )
