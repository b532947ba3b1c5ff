"""Multi-target regression sets of the Mulan collection."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import arff
from sklearn.utils import Bunch

from jointleaf.datasets._fetching import Folder, cache_folder, download, find_file

__all__ = ["MULAN_TARGETS", "load_mulan"]

#: Number of targets of each set; they are the last columns of its file.
MULAN_TARGETS = {
    "andro": 6,
    "atp1d": 6,
    "edm": 2,
    "enb": 2,
    "jura": 3,
    "oes97": 16,
    "scpf": 3,
    "sf1": 3,
    "slump": 3,
    "wq": 14,
}

_ADDRESS = "https://github.com/tsoumakas/mulan/raw/master/data/multi-target/{name}.arff"
_SUBFOLDERS = ("", "mtr", "multitask/mtr")

#: Column names and the columns themselves.
_Table = tuple[list[str], NDArray[np.float64]]


def load_mulan(
    name: str,
    *,
    folder: Folder | None = None,
    cache: Folder | None = None,
    return_X_y: bool = False,
    timeout: float = 30.0,
) -> Bunch | tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Load one of ten multi-target regression sets of the Mulan collection.

    It is taken from `folder`, or else from `cache`, or else downloaded from Mulan's public
    repository into `cache`. Categories that are not numbers become columns of zeros and ones,
    and columns with the same value everywhere are left out.

    Parameters
    ----------
    name : str
        A key of `MULAN_TARGETS`: "andro", "atp1d", "edm", "enb", "jura", "oes97", "scpf",
        "sf1", "slump" or "wq".
    folder : path, optional
        A folder with files ``NAME.arff``, in itself or in ``mtr`` or ``multitask/mtr`` in it;
        ``NAME.npz`` with arrays ``X``, ``Y``, ``feature_names``, ``target_names`` and
        perhaps ``missing_mask`` (True where a value of X is missing) is taken as well.
    cache : path, optional
        Where downloads are kept; by default what `data_folder` gives.
    return_X_y : bool
        Give only ``(data, target)``.
    timeout : float
        Seconds to wait for the server.

    Returns
    -------
    Bunch or (X, Y)
        ``data`` (n, d), float64, NaN where a value is missing (only in "scpf"); ``target``
        (n, T), float64; ``feature_names``, ``target_names``, ``name``, ``filename``.

    Raises
    ------
    ConnectionError
        The file is not here and cannot be downloaded.
    """
    if not isinstance(name, str) or name not in MULAN_TARGETS:
        raise ValueError(f"name={name!r} is none of {', '.join(map(repr, MULAN_TARGETS))}.")
    kept, file = cache_folder(cache), f"{name}.arff"
    path = find_file([file, f"{name}.npz"], folder, _SUBFOLDERS, kept)
    if path is None:
        path = kept / file
        unknown = f"Mulan's repository no longer has {file} of name={name!r}"
        address, what = _ADDRESS.format(name=name), f"Data set {name!r}"
        download(address, path, timeout, what=what, unknown=unknown)
    (features, X), (targets, Y) = _read(path, MULAN_TARGETS[name])
    if return_X_y:
        return X, Y
    return Bunch(
        data=X,
        target=Y,
        feature_names=features,
        target_names=targets,
        name=name,
        filename=str(path),
    )


def _read(path: Path, n_targets: int) -> tuple[_Table, _Table]:
    """Read the names and columns of the features and those of the targets."""
    try:
        inputs, outputs = _read_npz(path) if path.suffix == ".npz" else _read_arff(path, n_targets)
        if outputs[1].shape != (len(inputs[1]), n_targets):
            shapes = f"inputs {inputs[1].shape} and targets {outputs[1].shape}"
            raise ValueError(f"{shapes}, not {n_targets} targets for every row")
        if not np.isfinite(outputs[1]).all():
            raise ValueError("a target is missing")
    # SciPy raises many kinds on broken files, NotImplementedError and StopIteration among them.
    except Exception as cause:
        raise ValueError(
            f"{path} is not a data set of Mulan that can be read "
            f"({type(cause).__name__}: {cause}); delete it, so that it is downloaded again."
        ) from cause
    return inputs, outputs


def _read_npz(path: Path) -> tuple[_Table, _Table]:
    with np.load(path, allow_pickle=False) as arrays:
        X, Y = arrays["X"].astype(np.float64), arrays["Y"].astype(np.float64)
        if "missing_mask" in arrays:
            X[arrays["missing_mask"]] = np.nan
        names = [arrays[f"{kind}_names"].tolist() for kind in ("feature", "target")]
    return (names[0], X), (names[1], Y)


def _read_arff(path: Path, n_targets: int) -> tuple[_Table, _Table]:
    with path.open(encoding="utf-8") as file:
        rows, about = arff.loadarff(file)
    names = about.names()
    inputs = [_columns(name, about[name], rows[name]) for name in names[:-n_targets]]
    features = [name for table in inputs for name in table[0]]
    X = np.column_stack([table[1] for table in inputs])
    with warnings.catch_warnings():  # a column of nothing but gaps is left out too
        warnings.simplefilter("ignore", RuntimeWarning)
        varies = np.nanmax(X, axis=0) > np.nanmin(X, axis=0)
    kept = [name for name, use in zip(features, varies, strict=True) if use]
    targets = names[-n_targets:]
    Y = np.column_stack([np.asarray(rows[name], np.float64) for name in targets])
    return (kept, np.ascontiguousarray(X[:, varies])), ([_plain(name) for name in targets], Y)


def _columns(name: str, kind: tuple[str, tuple[str, ...] | None], values: NDArray) -> _Table:
    """Give the columns of one attribute: itself, or zeros and ones of its categories."""
    plain = _plain(name)
    if kind[0] == "numeric":
        return [plain], np.asarray(values, np.float64)[:, None]
    texts = np.char.strip(values.astype(str))
    levels = [level.strip() for level in kind[1] or ()]
    gaps = texts == "?"
    if all(level.replace(".", "", 1).isdigit() for level in levels):  # an order, not just names
        return [plain], np.where(gaps, "nan", texts).astype(np.float64)[:, None]
    flags = (texts[:, None] == np.array(levels)).astype(np.float64)
    flags[gaps] = np.nan
    return [f"{plain}={level}" for level in levels], flags


def _plain(name: str) -> str:
    """Give the name of an attribute without the quotes around it."""
    return name.strip("\"'")
