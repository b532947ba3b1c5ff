"""Saving fitted models to files, and loading them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import jointleaf
from jointleaf._data.preprocessor import TablePreprocessor
from jointleaf.io._model_file.container import ModelFileError, pack, unpack
from jointleaf.io._model_file.estimators import ESTIMATOR
from jointleaf.io._model_file.schema import Arrays, Place, Scope
from jointleaf.io._model_file.upgrades import upgrade

#: The largest file that is loaded by default.
MAX_BYTES = 2**31
_MOST_NAME = 200  # bytes of a name to which a mark is added; most systems allow 255
_BINARY = getattr(os, "O_BINARY", 0)  # of Windows


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
    max_bytes: int = MAX_BYTES,
) -> None:
    """Save a fitted model to a file that holds data alone.

    The file is written next to its place and moved there when it is whole, so that an older file of
    that name is replaced at once or not at all. What was written is read back before.

    Parameters
    ----------
    model : fitted estimator
        `JOPLEnRegressor`, `JOPLEnClassifier` (also from `refine` and `prune`),
        `MultiTaskJOPLEnRegressor`, `MultiTaskJOPLEnClassifier`, `BoUTSRegressor`,
        `BoUTSClassifier`, `LinearForestRegressor` or `LinearForestClassifier`. Also a Pipeline of a
        `TablePreprocessor` and one of these: what is loaded is its last step, which then takes the
        raw table.
    path : str or path
        By convention it ends in ``.jleaf``.
    metadata : mapping, optional
        Whatever belongs to the model and is plain JSON: names, dates, scores. `load_metadata`
        returns it; nothing in jointleaf's estimators looks at it.
    max_bytes : int
        What `load` would refuse with the same number is not written.

    Raises
    ------
    ModelFileError
        Where the model is no such estimator, its partitions are of a class of the user's own, or
        `load` would refuse the file.

    Notes
    -----
    Parameters that are no plain values, partitioners, penalties or random states of NumPy are left
    out: a model trained by another library, a splitter of rows. The loaded model predicts as the
    saved one did, but raises an error where it is fitted again with such a parameter.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from sklearn.datasets import load_diabetes
    >>> import jointleaf
    >>> X, y = load_diabetes(return_X_y=True)
    >>> penalty = jointleaf.Frobenius(0.1)
    >>> model = jointleaf.JOPLEnRegressor(penalty=penalty, random_state=0).fit(X, y)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.jleaf"
    >>> jointleaf.save(model, path)
    >>> (jointleaf.load(path).predict(X) == model.predict(X)).all()
    np.True_
    """
    if isinstance(model, Pipeline):
        model = _with_preparation(model)
    if hasattr(model, "to_local"):
        raise ModelFileError(
            f"a {type(model).__name__} is saved as the ordinary estimator that it holds: "
            "jointleaf.save(model.to_local(), path)"
        )
    if ESTIMATOR.knows(model):
        check_is_fitted(model)
    data = _to_bytes(model, metadata)
    _check_size(len(data), max_bytes)
    _from_bytes(data, max_bytes)  # what cannot be loaded must not be written
    write_whole(path, data)


def _with_preparation(pipeline: Pipeline) -> Any:
    """Return the last step of a pipeline, which then prepares raw tables as the first one does."""
    steps = [step for _, step in pipeline.steps if step not in (None, "passthrough")]
    if len(steps) != 2 or type(steps[0]) is not TablePreprocessor or not ESTIMATOR.knows(steps[1]):
        raise ModelFileError(
            "a Pipeline cannot be saved, because its other steps may hold any code, unless these "
            "are a TablePreprocessor alone: save its last step, jointleaf.save(pipeline[-1], "
            "path), and make the steps before it anew"
        )
    check_is_fitted(steps[1])
    if not hasattr(steps[1], "feature_names_in_"):
        raise ModelFileError("the Pipeline was fitted on an array: fit it on a data frame")
    model = copy(steps[1])
    model.columns_ = replace(model.columns_, preparation=steps[0].preparation_)
    return model


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """Load a model that `save` has written.

    Nothing in the file is run, and every number in it is checked before it is used.

    Parameters
    ----------
    path : str or path
    max_bytes : int
        Larger files are an error before they are read, and so are files that take more when they
        are uncompressed. Whatever the file holds, loading takes at most 64 MB and four times this,
        16 times what the file unpacks to, or 256 times its length.

    Returns
    -------
    estimator
        Of the class that was saved, fitted.

    Raises
    ------
    ModelFileError
        Where the file is no valid model file: damaged, truncated, of a newer version, too large.
    """
    return _read_file(path, max_bytes, lambda data: _from_bytes(data, max_bytes))


def load_metadata(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the metadata of a model file; an empty dict where there is none.

    Parameters
    ----------
    path : str or path
    max_bytes : int
        As for `load`.
    """
    return _read_file(path, max_bytes, lambda data: _read_metadata(data, max_bytes))


# -- models and bytes ----------------------------------------------------------------------------


def _to_bytes(model: Any, metadata: Mapping[str, Any] | None = None) -> bytes:
    arrays = Arrays()
    header = {"jointleaf": jointleaf.__version__, "model": ESTIMATOR.write(model, arrays)}
    if metadata is not None:
        header["metadata"] = _checked_metadata(metadata)
    return pack(header, arrays.stored)


def _checked_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as a file holds them; an error where they would change on the way."""
    try:
        text = json.dumps(dict(metadata), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as cause:
        raise ModelFileError(f"metadata must be plain JSON values: {cause}") from None
    loaded = json.loads(text)
    if loaded != metadata:
        raise ModelFileError("metadata must be plain JSON values: text as keys, lists, no tuples")
    return loaded


def _from_bytes(data: bytes, max_bytes: float = MAX_BYTES) -> Any:
    with _one_error():
        file = unpack(data, max_bytes)
        place = Place("model", file.arrays, file.budget)
        model = upgrade(file.header["model"], place, file.version)
        return ESTIMATOR.read(model, place, Scope())


def _read_metadata(data: bytes, max_bytes: float) -> dict[str, Any]:
    with _one_error():
        return unpack(data, max_bytes).header.get("metadata", {})


@contextlib.contextmanager
def _one_error() -> Iterator[None]:
    """Behind all checks, so that callers have one error to catch."""
    try:
        yield
    except ModelFileError:
        raise
    except Exception as cause:
        raise ModelFileError(f"the file holds no valid model: {cause!r}") from cause


# -- files ---------------------------------------------------------------------------------------


def _read_file(path: str | os.PathLike[str], max_bytes: int, parse: Callable[[bytes], Any]) -> Any:
    """Return what a file of at most `max_bytes` holds; errors name the file."""
    try:
        _check_regular(os.stat(path))  # opening a pipe or a device may wait, or do something
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            _check_regular(status)  # of what was opened
            _check_size(status.st_size, max_bytes)
            data = file.read(status.st_size + 1)
        return parse(data)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError("this is no regular file")


def _check_size(n_bytes: int, max_bytes: int) -> None:
    if n_bytes > max_bytes:
        raise ModelFileError(
            f"the file has {n_bytes} bytes, more than max_bytes={max_bytes}: raise max_bytes if "
            "you expect so large a model"
        )


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file next to its place, then move it there; of a link, to where it leads."""
    place = os.path.realpath(path)
    folder = os.path.dirname(place)
    if not os.path.exists(folder):
        message = f"The folder {folder!r} does not exist, create it first"
        raise FileNotFoundError(errno.ENOENT, message, os.fspath(path))
    name, mode = _part_name(place), _mode(place)
    # Nobody may read what is written who may not read the file that it replaces.
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | _BINARY
    number = os.open(name, flags, 0o666 if mode is None else mode)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(name, mode)
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _part_name(place: str) -> str:
    """Return a new name next to a place, as long as the name of the place or not very long."""
    folder, name = os.path.split(place)
    short = os.fsencode(name)[:_MOST_NAME].decode(errors="ignore")
    return os.path.join(folder, f".{short}.{secrets.token_hex(4)}.part")


def _mode(place: str) -> int | None:
    """Return the permissions of the file that is replaced; None where there is none."""
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):  # a device, which must not become a file
        raise OSError(errno.EINVAL, "Is no regular file", place)
    return stat.S_IMODE(mode)
