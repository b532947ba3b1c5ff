"""Public data sets to try things on: the PMLB collection."""

from __future__ import annotations

import gzip
import os
import re
import sys
import tempfile
from itertools import chain
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

__all__ = ["data_folder", "load_pmlb"]

_ADDRESS = "https://github.com/EpistasisLab/pmlb/raw/master/datasets/{name}/{name}.tsv.gz"
_TARGET = "target"
#: Folders inside a local folder in which data sets are looked for.
_SUBFOLDERS = ("", "pmlb", "pmlb_large")


def data_folder() -> Path:
    """Give the folder in which downloaded data sets are kept.

    It is the environment variable ``JOINTLEAF_DATA``, or else ``jointleaf`` in the user's
    usual cache folder. It need not exist yet.
    """
    given = os.environ.get("JOINTLEAF_DATA")
    if given:
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jointleaf"


def load_pmlb(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
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
    kept = data_folder() if cache is None else Path(cache).expanduser()
    path = _find(name, folder, kept)
    if path is None:
        path = kept / f"{name}.tsv.gz"
        _download(name, path, timeout)
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


def _find(name: str, folder: str | os.PathLike[str] | None, kept: Path) -> Path | None:
    places = [kept]
    if folder is not None:
        places = [Path(folder).expanduser() / sub for sub in _SUBFOLDERS] + places
    for place in places:
        path = place / f"{name}.tsv.gz"
        if path.is_file():
            return path
    return None


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


def _download(name: str, path: Path, timeout: float) -> None:
    """Fetch a data set; `path` appears complete or not at all."""
    address = _ADDRESS.format(name=name)
    try:
        with urlopen(address, timeout=timeout) as answer:
            content = answer.read()
    except HTTPError as cause:
        if cause.code == 404:
            raise FileNotFoundError(
                f"PMLB has no data set name={name!r} (looked at {address}); the names are listed "
                "at https://epistasislab.github.io/pmlb/."
            ) from cause
        raise ConnectionError(_no_download(name, path, address, cause)) from cause
    except (URLError, OSError) as cause:
        raise ConnectionError(_no_download(name, path, address, cause)) from cause
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
        part.write(content)
    try:
        os.replace(part.name, path)
    except BaseException:
        os.unlink(part.name)
        raise


def _no_download(name: str, path: Path, address: str, cause: Exception) -> str:
    return (
        f"Data set {name!r} is not in {path.parent} and cannot be downloaded from {address} "
        f"({cause}). Go online, or put {path.name} into a folder and give it as folder=."
    )
