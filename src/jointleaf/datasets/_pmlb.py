"""The PMLB collection: one target each."""

from __future__ import annotations

import gzip
import re
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from jointleaf.datasets._fetching import Folder, cache_folder, download, find_file

__all__ = ["load_pmlb"]

_ADDRESS = "https://github.com/EpistasisLab/pmlb/raw/master/datasets/{name}/{name}.tsv.gz"
_TARGET = "target"
#: Folders inside a local folder in which data sets are looked for.
_SUBFOLDERS = ("", "pmlb", "pmlb_large")


def load_pmlb(
    name: str,
    *,
    folder: Folder | None = None,
    cache: Folder | None = None,
    return_X_y: bool = False,
    timeout: float = 30.0,
) -> Bunch | tuple[NDArray[np.float64], NDArray]:
    """Load a data set of PMLB, the Penn Machine Learning Benchmarks.

    It is taken from `folder`, or else from `cache`, or else downloaded from PMLB's public
    repository into `cache`.

    Parameters
    ----------
    name : str
        The data set's name in PMLB, e.g. ``"586_fri_c3_1000_25"``.
    folder : path, optional
        A folder with files ``NAME.tsv.gz``, in itself or in ``pmlb`` or ``pmlb_large`` in it.
    cache : path, optional
        Where downloads are kept; by default what `data_folder` gives.
    return_X_y : bool
        Give only ``(data, target)``.
    timeout : float
        Seconds to wait for the server.

    Returns
    -------
    Bunch or (X, y)
        ``data`` (n, d), float64; ``target`` (n,), int64 where all values are whole numbers
        and float64 otherwise; ``feature_names``, a list of d names; ``name``; ``filename``.

    Raises
    ------
    FileNotFoundError, ConnectionError
        PMLB has no data set of this name; it is not here and cannot be downloaded.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"name={name!r} is no name of a PMLB data set, e.g. '564_fried'.")
    kept, file = cache_folder(cache), f"{name}.tsv.gz"
    path = find_file([file], folder, _SUBFOLDERS, kept)
    if path is None:
        path = kept / file
        unknown = (
            f"PMLB has no data set name={name!r}; the names are listed at "
            "https://epistasislab.github.io/pmlb/"
        )
        address, what = _ADDRESS.format(name=name), f"Data set {name!r}"
        download(address, path, timeout, what=what, unknown=unknown)
    names, table = _read(path)
    column = names.index(_TARGET)
    X = np.ascontiguousarray(np.delete(table, column, axis=1))
    y = table[:, column].copy()
    if np.all(np.abs(y) < 2**53) and np.array_equal(y, np.rint(y)):
        y = y.astype(np.int64)
    if return_X_y:
        return X, y
    return Bunch(
        data=X,
        target=y,
        feature_names=[column for column in names if column != _TARGET],
        name=name,
        filename=str(path),
    )


def _read(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Read the column names (d + 1) and the table (n, d + 1)."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            names = file.readline().rstrip("\r\n").split("\t")
            first = file.readline()
            if not first.strip():  # NumPy would only warn.
                raise ValueError("it has no rows")
            table = np.loadtxt(chain([first], file), delimiter="\t", ndmin=2, comments=None)
    except (OSError, EOFError, ValueError) as cause:
        raise ValueError(
            f"{path} is not a data set of PMLB that can be read ({cause}); delete it, so that it "
            "is downloaded again."
        ) from cause
    if _TARGET not in names or table.shape[1] != len(names):
        raise ValueError(
            f"{path} has the columns {names} and {table.shape[1]} values a row; a PMLB file has "
            f"one column named {_TARGET!r}. Delete it, so that it is downloaded again."
        )
    return names, table
