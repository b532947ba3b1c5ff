"""Models from files, with the record of their fit, which is checked as all of the file is."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jointleaf
from jointleaf._data.preparation import Preparation
from jointleaf._data.raw_table import MISSING_WORDS
from jointleaf._data.texts import NOTATIONS
from jointleaf.cli import _output as out
from jointleaf.cli._columns import Target
from jointleaf.cli._preparation import of_model
from jointleaf.cli._record import RECORD_FORMAT
from jointleaf.io._model_file.container import Budget
from jointleaf.io._model_file.objects import PREPARATION
from jointleaf.io._model_file.schema import Each, Integer, Place, Scope, Text, record

_TARGET = record(
    Target,
    name=Text(),
    task=Text(("regression", "classification")),
    notation=Text(("", *NOTATIONS)),
    reason=Text(),
    labels=Each(Text()).must(lambda s: len(s.labels) in (0, 2), "must be none or two"),
)


@dataclass(frozen=True)
class LoadedModel:
    """A model from a file, and how its data are read."""

    path: str
    model: Any
    preparation: Preparation
    record: dict[str, Any] | None = None  # of its fit; None if it was saved by `jointleaf.save`
    target: Target | None = None

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Raise an error that says so where what is shown of the record is damaged."""
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, RuntimeError) as cause:
            raise _damaged(self.path, f"{type(cause).__name__}: {cause}") from None
        except (TypeError, ValueError) as cause:
            raise _damaged(self.path, str(cause)) from None


def load_model(path: str) -> LoadedModel:
    """Read a model file."""
    with out.reading(path, "model file"):
        model, metadata = jointleaf.load(path), jointleaf.load_metadata(path)
    if not isinstance(model, jointleaf.JOPLEnRegressor | jointleaf.JOPLEnClassifier):
        raise out.CliError(
            f"{path}: holds a {type(model).__name__}, which the command line does not know: "
            "use it from Python with jointleaf.load"
        )
    fit = metadata.get("cli")
    if fit is None:
        return LoadedModel(path, model, of_model(model, path))
    if not isinstance(fit, dict):
        raise _damaged(path, "it is no object")
    place = Place("", [], Budget(0, 0, math.inf))
    try:
        version = Integer(1).read(fit.get("format"), place.at("format"), Scope())
        if version > RECORD_FORMAT:
            raise out.CliError(f"{path}: was written by a newer jointleaf: upgrade jointleaf")
        preparation = fit.get("preparation")
        if isinstance(preparation, dict):  # of files that had no words of their own
            preparation = {"missing": list(MISSING_WORDS), **preparation}
        columns = PREPARATION.read(preparation, place.at("preparation"), Scope())
        summary = fit["target"] if isinstance(fit.get("target"), dict) else {}
        fields = {name: value for name, value in summary.items() if name in _TARGET.fields}
        target = _TARGET.read(fields, place.at("target"), Scope())
    except jointleaf.ModelFileError as cause:
        raise _damaged(path, str(cause).lstrip(".")) from None
    if columns.outputs != list(getattr(model, "feature_names_in_", ())):
        raise _damaged(path, "preparation.columns are not those of the model")
    return LoadedModel(path, model, columns, fit, target)


def _damaged(path: str, problem: str) -> out.CliError:
    return out.CliError(f"{path}: the record of the fit is damaged ({problem})")
