"""Public data sets: PMLB (one target), Mulan, SARCOS and molecular properties (several)."""

from __future__ import annotations

import contextlib
import gzip
import re
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.io import arff, loadmat
from sklearn.utils import Bunch

from jointleaf.datasets._fetching import Folder, find_file, locate

_PMLB = "https://github.com/EpistasisLab/pmlb/raw/master/datasets/{name}/{name}.tsv.gz"
_MULAN = "https://github.com/tsoumakas/mulan/raw/master/data/multi-target/{name}.arff"
_SARCOS = "https://gaussianprocess.org/gpml/data/{file}"

#: Column names and the columns themselves.
_Table = tuple[list[str], NDArray[np.float64]]


@contextlib.contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Raise errors of any kind, as SciPy has many on broken files, as one that names the file."""
    try:
        yield
    except Exception as cause:
        raise ValueError(
            f"{path} is not {what} that can be read ({type(cause).__name__}: {cause}): delete it, "
            "so that it is downloaded again"
        ) from cause


# -- PMLB --------------------------------------------------------------------------------------

_TARGET = "target"


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
        A folder with files ``NAME.tsv.gz``, in itself or in ``pmlb``, ``pmlb_large`` or
        ``pmlb_more`` in it.
    cache : path, optional
        Folder of downloads; by default `data_folder()`.
    return_X_y : bool
        Return only ``(data, target)``.
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
        raise ValueError(
            f"name={name!r} is no name of a PMLB data set: use one such as '564_fried'"
        )
    unknown = (
        f"PMLB has no data set name={name!r}: the names are listed at "
        "https://epistasislab.github.io/pmlb/"
    )
    path = locate(
        [f"{name}.tsv.gz"], folder, ("", "pmlb", "pmlb_large", "pmlb_more"), cache,
        address=_PMLB.format(name=name), timeout=timeout, what=f"data set {name!r}",
        unknown=unknown,
    )  # fmt: skip
    names, table = _read_pmlb(path)
    column = names.index(_TARGET)
    X = np.ascontiguousarray(np.delete(table, column, axis=1))
    y = table[:, column].copy()
    if np.all(np.abs(y) < 2**53) and np.array_equal(y, np.rint(y)):
        y = y.astype(np.int64)
    if return_X_y:
        return X, y
    names.remove(_TARGET)
    return Bunch(data=X, target=y, feature_names=names, name=name, filename=str(path))


def _read_pmlb(path: Path) -> _Table:
    """Read the column names (d + 1) and the table (n, d + 1)."""
    with _reading(path, "a data set of PMLB"), gzip.open(path, "rt", encoding="utf-8") as file:
        names = file.readline().rstrip("\r\n").split("\t")
        first = file.readline()
        if not first.strip():  # NumPy would only warn.
            raise ValueError("it has no rows")
        table = np.loadtxt(chain([first], file), delimiter="\t", ndmin=2, comments=None)
        if names.count(_TARGET) != 1 or table.shape[1] != len(names):
            raise ValueError(
                f"it has the columns {names} and {table.shape[1]} values a row, and a PMLB file "
                f"has one column named {_TARGET!r}"
            )
    return names, table


# -- Mulan -------------------------------------------------------------------------------------

#: Number of targets of each set; they are the last columns of its file.
MULAN_TARGETS = {
    "andro": 6, "atp1d": 6, "edm": 2, "enb": 2, "jura": 3, "oes97": 16, "scpf": 3, "sf1": 3,
    "slump": 3, "wq": 14,
}  # fmt: skip


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
    cache, return_X_y, timeout
        As in `load_pmlb`.

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
        raise ValueError(f"name={name!r} is not known: use one of {', '.join(MULAN_TARGETS)}")
    file = f"{name}.arff"
    path = locate(
        [file, f"{name}.npz"], folder, ("", "mtr", "multitask/mtr"), cache,
        address=_MULAN.format(name=name), timeout=timeout, what=f"data set {name!r}",
        unknown=f"Mulan's repository no longer has {file} of name={name!r}",
    )  # fmt: skip
    n_targets = MULAN_TARGETS[name]
    with _reading(path, "a data set of Mulan"):
        tables = _read_npz(path) if path.suffix == ".npz" else _read_arff(path, n_targets)
        (features, X), (targets, Y) = tables
        if Y.shape != (len(X), n_targets):
            shapes = f"inputs {X.shape} and targets {Y.shape}"
            raise ValueError(f"{shapes}, not {n_targets} targets for every row")
        if not np.isfinite(Y).all():
            raise ValueError("a target is missing")
    if return_X_y:
        return X, Y
    names = {"feature_names": features, "target_names": targets}
    return Bunch(data=X, target=Y, **names, name=name, filename=str(path))


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
    with warnings.catch_warnings():  # a column without values is left out too
        warnings.simplefilter("ignore", RuntimeWarning)
        varies = np.nanmax(X, axis=0) > np.nanmin(X, axis=0)
    used = [name for name, use in zip(features, varies, strict=True) if use]
    targets = names[-n_targets:]
    Y = np.column_stack([np.asarray(rows[name], np.float64) for name in targets])
    return (used, np.ascontiguousarray(X[:, varies])), ([_plain(name) for name in targets], Y)


def _columns(name: str, kind: tuple[str, tuple[str, ...] | None], values: NDArray) -> _Table:
    """Return the columns of one attribute: itself, or zeros and ones of its categories."""
    plain = _plain(name)
    if kind[0] == "numeric":
        return [plain], np.asarray(values, np.float64)[:, None]
    texts = np.char.strip(values.astype(str))
    categories = [text.strip() for text in kind[1] or ()]
    missing = texts == "?"
    if all(text.replace(".", "", 1).isdigit() for text in categories):  # an order, not just names
        return [plain], np.where(missing, "nan", texts).astype(np.float64)[:, None]
    flags = (texts[:, None] == np.array(categories)).astype(np.float64)
    flags[missing] = np.nan
    return [f"{plain}={text}" for text in categories], flags


def _plain(name: str) -> str:
    """Return the name of an attribute without the quotes around it."""
    return name.strip("\"'")


# -- SARCOS ------------------------------------------------------------------------------------

_N_JOINTS = 7
#: File of the source, file with arrays X and Y instead of it, and number of rows, of each part.
_SARCOS_PARTS = {
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
    part : "all", "train" or "test"
        The 44,484 training rows, the 4,449 test rows, or both, in this order.
    cache, return_X_y, timeout
        As in `load_pmlb`.

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
    if part not in ("all", *_SARCOS_PARTS):
        raise ValueError(f"part={part!r} is not known: use 'all', 'train' or 'test'")
    wanted = list(_SARCOS_PARTS) if part == "all" else [part]
    paths = [_locate_sarcos(name, part, folder, cache, timeout) for name in wanted]
    X, Y = (np.concatenate(arrays) for arrays in zip(*map(_read_sarcos, paths), strict=True))
    if return_X_y:
        return X, Y
    kinds = ("position", "velocity", "acceleration", "torque")
    names = [f"{kind} {joint}" for kind in kinds for joint in range(1, _N_JOINTS + 1)]
    return Bunch(
        data=X,
        target=Y,
        feature_names=names[:-_N_JOINTS],
        target_names=names[-_N_JOINTS:],
        name="sarcos",
        filenames=[str(path) for path in paths],
    )


def _locate_sarcos(
    name: str, part: str, folder: Folder | None, cache: Folder | None, timeout: float
) -> Path:
    """Find or download the file of the part `name`, which `part` asks for."""
    file, arrays, n_rows = _SARCOS_PARTS[name]
    what = f"the {name} part of SARCOS ({file}, {n_rows:,} rows), needed for part={part!r},"
    if folder is not None:
        what += f" is not in folder={str(folder)!r},"
    return locate(
        [file, arrays], folder, ("", "multitask"), cache,
        address=_SARCOS.format(file=file), timeout=timeout, what=what,
        unknown=f"the server no longer has {file}",
    )  # fmt: skip


def _read_sarcos(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read inputs (n, 21) and torques (n, 7) of one part."""
    n_inputs = 3 * _N_JOINTS
    with _reading(path, "a part of SARCOS"):
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                X, Y = arrays["X"], arrays["Y"]
        else:
            table = loadmat(path)[path.stem]
            X, Y = table[:, :n_inputs], table[:, n_inputs:]
        X, Y = np.array(X, np.float64, order="C"), np.array(Y, np.float64, order="C")
        if X.shape[1:] != (n_inputs,) or Y.shape != (len(X), _N_JOINTS):
            raise ValueError(f"inputs {X.shape} and torques {Y.shape}, not (n, 21) and (n, 7)")
    return X, Y


# -- molecular properties ----------------------------------------------------------------------

_CHEM_FOLDERS = ("", "chem", "multitask/chem")
_DESCRIPTORS = "descriptors.txt"
_CHEM_SOURCES = (
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
        There is no folder; it has no such files; they do not fit together.
    """
    if folder is None:
        raise ValueError(
            f"folder=None, and the chem tasks cannot be downloaded: pass the folder with TASK.npz "
            f"and {_DESCRIPTORS}. {_CHEM_SOURCES}"
        )
    path = find_file([_DESCRIPTORS], folder, _CHEM_FOLDERS, cache=folder)
    if path is None:
        raise FileNotFoundError(
            f"folder={str(folder)!r} has no {_DESCRIPTORS}, not in chem or multitask/chem either: "
            f"pass the folder with the files. {_CHEM_SOURCES}"
        )
    place = path.parent
    names = path.read_text(encoding="utf-8").split("\n")
    features = [name.strip() for name in names if name.strip()]
    tasks = {path.stem: _read_chem(path, features) for path in sorted(place.glob("*.npz"))}
    if not tasks:
        raise FileNotFoundError(
            f"folder={str(folder)!r}: {place} has {_DESCRIPTORS}, but no TASK.npz: add one per task"
        )
    return tasks


def _read_chem(path: Path, features: list[str]) -> Bunch:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            X, y, smiles = arrays["X"], arrays["y"].astype(np.float64), arrays["smiles"]
        if X.ndim != 2 or y.shape != smiles.shape or y.shape != (len(X),):
            raise ValueError(f"X {X.shape}, y {y.shape} and smiles {smiles.shape} do not fit")
        if X.shape[1] != len(features):
            raise ValueError(f"{X.shape[1]} columns, but {len(features)} lines in {_DESCRIPTORS}")
    except (OSError, EOFError, KeyError, ValueError) as cause:
        raise ValueError(f"{path} is not a task that can be read: {cause}") from cause
    names = {"feature_names": features, "name": path.stem, "filename": str(path)}
    return Bunch(data=X, target=y, smiles=smiles, **names)
