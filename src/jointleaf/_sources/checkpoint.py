"""Checkpoints: what a long fit has done so far, in the files of a folder.

A folder holds the rows that were drawn (``draw.npz``), the model of the sample (``model.jleaf``, a
model file) and how far the correction has come (``state.npz``). Each is written beside its place
and moved there when it is whole; the model is written after the draw that belongs to it. The files
hold numbers and JSON, no code.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from jointleaf._data.sources import Batch
from jointleaf._fit.correction import CorrectionState
from jointleaf.estimators._base import BaseJOPLEn
from jointleaf.io import load, load_metadata, save

_EVERY = 120.0  # seconds between states
_WITHOUT_EFFECT = ("n_jobs", "verbose")  # on the model
_PATH = "path_"  # before names of arrays of the round under way


class Checkpoint:
    """The folder of one fit.

    `settings` are what the model depends on besides rows and parameters of the estimator.
    """

    def __init__(self, folder: str | Path, estimator: BaseJOPLEn, **settings: Any) -> None:
        self._folder, self._written = Path(folder), time.monotonic()
        parameters = {
            name: value
            for name, value in estimator.get_params(deep=False).items()
            if name not in _WITHOUT_EFFECT
        }
        # Objects without a text of their own show where they are in memory.
        text = re.sub(
            r" at 0x[0-9a-f]+", "", repr((type(estimator).__name__, parameters, settings))
        )
        self._settings = hashlib.sha256(text.encode()).hexdigest()
        if self._folder.exists() and not self._folder.is_dir():
            raise ValueError(f"checkpoint={str(folder)!r} is a file: give a folder")
        self._folder.mkdir(parents=True, exist_ok=True)

    @property
    def _model(self) -> Path:
        return self._folder / "model.jleaf"

    def is_begun(self) -> bool:
        """Whether there is a model; raise ValueError if it is that of another fit."""
        if not self._model.exists():
            return False
        if load_metadata(self._model).get("settings") != self._settings:
            raise self._refused("parameters, or another number of rows")
        return True

    def draw(self) -> dict[str, NDArray]:
        """Return the rows that were drawn."""
        return self._read("draw.npz")

    def start(self, estimator: BaseJOPLEn, sample: Batch, draw: dict[str, NDArray]) -> None:
        """Write the model of a sample."""
        self._state.unlink(missing_ok=True)
        self._write("draw.npz", draw)
        save(
            estimator, self._model, metadata={"settings": self._settings, "rows": rows_hash(sample)}
        )

    def restore(self, estimator: BaseJOPLEn, sample: Batch) -> None:
        """Put the model of the sample on the estimator; raise ValueError for other rows."""
        if load_metadata(self._model).get("rows") != rows_hash(sample):
            raise self._refused("rows")
        parameters = estimator.get_params(deep=False)
        fitted = {k: v for k, v in vars(load(self._model)).items() if k not in parameters}
        estimator.__dict__.update(fitted)

    def _refused(self, what: str) -> ValueError:
        return ValueError(
            f"checkpoint={str(self._folder)!r} belongs to a fit of other {what}: remove it, or "
            "give another folder"
        )

    # -- the correction ------------------------------------------------------------------------

    @property
    def _state(self) -> Path:
        return self._folder / "state.npz"

    def keep(self, state: CorrectionState) -> None:
        """Write how far the correction has come, if that was long ago."""
        if time.monotonic() - self._written < _EVERY:
            return
        arrays = {_PATH + name: values for name, values in state.path.items()}
        arrays |= {f"move_{k}": move for k, move in enumerate(state.moves)}
        numbers = np.array([state.n_passes, state.last, *state.strengths])
        self._write("state.npz", arrays | {"numbers": numbers})
        self._written = time.monotonic()

    def state(self) -> CorrectionState | None:
        """Return how far the correction had come; None where it had not begun."""
        if not self._state.exists():
            return None
        arrays = self._read("state.npz")
        n_passes, last, *strengths = arrays["numbers"].tolist()
        return CorrectionState(
            [arrays[f"move_{k}"] for k in range(len(strengths))],
            strengths,
            int(n_passes),
            last,
            {k.removeprefix(_PATH): v for k, v in arrays.items() if k.startswith(_PATH)},
        )

    def remove(self) -> None:
        """Remove the files of a fit that is over, and the folder if nothing else is in it."""
        for name in ("state.npz", "model.jleaf", "draw.npz"):
            (self._folder / name).unlink(missing_ok=True)
        if not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _write(self, name: str, arrays: dict[str, NDArray]) -> None:
        path = self._folder / f"{name}.{os.getpid()}.part"
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        path.replace(self._folder / name)

    def _read(self, name: str) -> dict[str, NDArray]:
        try:
            with np.load(self._folder / name, allow_pickle=False) as file:
                return dict(file)
        except (OSError, ValueError, BadZipFile) as cause:
            raise ValueError(
                f"checkpoint={str(self._folder)!r} has a damaged file {name} ({cause}): remove the "
                "folder"
            ) from None


def rows_hash(batch: Batch) -> str:
    """Return a number that tells rows apart."""
    digest = hashlib.sha256()
    columns = [batch.X] if isinstance(batch.X, np.ndarray) else _columns(batch.X)
    for values in (*columns, batch.y, batch.sample_weight):
        array = np.asarray(values)
        if array.dtype == object:
            array = array.astype(str)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _columns(X: Any) -> list[NDArray]:
    return [column.to_numpy() for column in nw.from_native(X, eager_only=True).iter_columns()]
