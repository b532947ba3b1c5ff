"""SARCOS: the inverse dynamics of a robot arm, seven targets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from scipy.io.matlab import MatReadError
from sklearn.utils import Bunch

from jointleaf.datasets._fetching import Folder, cache_folder, download, find_file

__all__ = ["load_sarcos"]

_ADDRESS = "http://www.gaussianprocess.org/gpml/data/{file}"
_SUBFOLDERS = ("", "multitask")
_N_JOINTS = 7
#: File of the source, file with arrays X and Y instead of it, and number of rows, of each part.
_PARTS = {
    "train": ("sarcos_inv.mat", "sarcos_train.npz", 44_484),
    "test": ("sarcos_inv_test.mat", "sarcos_test.npz", 4_449),
}


def load_sarcos(
    *,
    folder: Folder | None = None,
    cache: Folder | None = None,
    part: Literal["all", "train", "test"] = "all",
    return_X_y: bool = False,
    timeout: float = 60.0,
) -> Bunch | tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Load SARCOS: torques of a robot arm's seven joints from its movement.

    The files are taken from `folder`, or else from `cache`, or else downloaded from
    gaussianprocess.org into `cache`. Many test rows are from the trajectories of the training
    rows, so errors on them are too good; pool the parts and split anew to compare with papers
    that do so.

    Parameters
    ----------
    folder : path, optional
        A folder with ``sarcos_inv.mat`` (training part) and ``sarcos_inv_test.mat`` (test
        part), in itself or in ``multitask`` in it; ``sarcos_train.npz`` and
        ``sarcos_test.npz`` with arrays ``X`` and ``Y`` are taken as well.
    cache : path, optional
        Where downloads are kept; by default what `data_folder` gives.
    part : "all", "train" or "test"
        The 44,484 training rows, the 4,449 test rows, or both, in this order.
    return_X_y : bool
        Give only ``(data, target)``.
    timeout : float
        Seconds to wait for the server.

    Returns
    -------
    Bunch or (X, Y)
        ``data`` (n, 21): positions, velocities and accelerations of the joints; ``target``
        (n, 7): torques; ``feature_names``, ``target_names``, ``name``, ``filenames``.

    Raises
    ------
    ConnectionError
        A file is not here and cannot be downloaded.
    """
    if part not in ("all", *_PARTS):
        raise ValueError(f"part={part!r} is none of 'all', 'train', 'test'.")
    kept = cache_folder(cache)
    wanted = list(_PARTS) if part == "all" else [part]
    paths = [_locate(name, part, folder, kept, timeout) for name in wanted]
    X, Y = (np.concatenate(arrays) for arrays in zip(*map(_read, paths), strict=True))
    if return_X_y:
        return X, Y
    joints = range(1, _N_JOINTS + 1)
    return Bunch(
        data=X,
        target=Y,
        feature_names=[
            f"{what} {joint}"
            for what in ("position", "velocity", "acceleration")
            for joint in joints
        ],
        target_names=[f"torque {joint}" for joint in joints],
        name="sarcos",
        filenames=[str(path) for path in paths],
    )


def _locate(name: str, part: str, folder: Folder | None, kept: Path, timeout: float) -> Path:
    """Find or download the file of the part `name`, which `part` asks for."""
    file, arrays, n_rows = _PARTS[name]
    path = find_file([file, arrays], folder, _SUBFOLDERS, kept)
    if path is not None:
        return path
    what = f"The {name} part of SARCOS ({file}, {n_rows:,} rows), needed for part={part!r},"
    if folder is not None:
        what += f" is not in folder={str(folder)!r},"
    has_test = find_file(_PARTS["test"][:2], folder, _SUBFOLDERS, kept) is not None
    path = kept / file
    download(
        _ADDRESS.format(file=file),
        path,
        timeout,
        what=what,
        unknown=f"The server no longer has {file}",
        hint=" Only part='test' is here." if has_test else "",
    )
    return path


def _read(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read inputs (n, 21) and torques (n, 7) of one part."""
    n_inputs = 3 * _N_JOINTS
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                X, Y = arrays["X"], arrays["Y"]
        else:
            table = loadmat(path)[path.stem]
            X, Y = table[:, :n_inputs], table[:, n_inputs:]
        X, Y = np.array(X, np.float64, order="C"), np.array(Y, np.float64, order="C")
        if X.shape[1:] != (n_inputs,) or Y.shape != (len(X), _N_JOINTS):
            raise ValueError(f"inputs {X.shape} and torques {Y.shape}, not (n, 21) and (n, 7)")
    except (OSError, EOFError, KeyError, ValueError, IndexError, MatReadError) as cause:
        raise ValueError(
            f"{path} is not a part of SARCOS that can be read ({cause}); delete it, so that it is "
            "downloaded again."
        ) from cause
    return X, Y
