"""Saving fitted models to files, and loading them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
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


def save(
    model: Any, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
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

    Raises
    ------
    ModelFileError
        Where the model is no such estimator, or its partitions are of a class of the user's own.

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
    _from_bytes(data)  # what cannot be loaded must not be written
    write_whole(Path(os.path.realpath(path)), data)


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
        are uncompressed. Loading takes up to three times as much.

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
    return _read_file(path, max_bytes, lambda data: unpack(data, max_bytes)[1].get("metadata", {}))


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


def _from_bytes(data: bytes, max_bytes: float = math.inf) -> Any:
    try:
        version, header, arrays = unpack(data, max_bytes)
        model = upgrade(header["model"], arrays, version)
        return ESTIMATOR.read(model, Place("model", arrays), Scope())
    except ModelFileError:
        raise
    # Behind all checks, so that callers have one error to catch.
    except (ValueError, TypeError, OverflowError, RecursionError, MemoryError) as cause:
        raise ModelFileError(f"the file holds no valid model: {cause}") from None


# -- files ---------------------------------------------------------------------------------------


def _read_file(path: str | os.PathLike[str], max_bytes: int, parse: Callable[[bytes], Any]) -> Any:
    """Return what a file of at most `max_bytes` holds; errors name the file."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ModelFileError("this is no regular file")
            if status.st_size > max_bytes:
                raise ModelFileError(
                    f"the file has {status.st_size} bytes, more than max_bytes={max_bytes}: raise "
                    "max_bytes if you expect so large a model"
                )
            data = file.read(max_bytes)
        return parse(data)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file next to its place, then move it there."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _mode(path))
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _mode(path: Path) -> int:
    """Permissions of the file that is replaced, or those of a new one."""
    with contextlib.suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
