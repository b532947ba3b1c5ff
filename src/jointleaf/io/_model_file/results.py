"""What cross-validation and pruning found."""

from __future__ import annotations

from typing import Any

import numpy as np

from jointleaf._fit.pruning.pruner import Pruning
from jointleaf._fit.search import Setting
from jointleaf.io._model_file.errors import ModelFileError
from jointleaf.io._model_file.fields import Arrays, Part, number
from jointleaf.io._model_file.values import read_plain, write_plain

__all__ = [
    "read_mix",
    "read_pruning",
    "read_setting",
    "read_shares",
    "read_table",
    "write_mix",
    "write_pruning",
    "write_setting",
    "write_shares",
    "write_table",
]

_SETTING = Setting._fields
_SHARES = ("joint", "linear", "own", "strength")
_LEVELS = ("levels", "levels_strength")


def write_setting(setting: Setting | None) -> dict[str, Any] | None:
    """Give JSON for a setting."""
    if setting is None:
        return None
    return {name: number(getattr(setting, name)) for name in _SETTING}


def read_setting(part: Part | None) -> Setting | None:
    """Read a setting."""
    if part is None:
        return None
    setting = Setting(**{name: part.number(name) for name in _SETTING})
    part.close()
    return setting


def write_shares(shares: Any | None) -> dict[str, Any] | None:
    """Give JSON for shares of simpler models."""
    if shares is None:
        return None
    data: dict[str, Any] = {name: number(getattr(shares, name)) for name in _SHARES}
    data |= {name: number(getattr(shares, name)) for name in _LEVELS if shares.levels_strength}
    return {**data, "boosted": [float(share) for share in shares.boosted]}


def read_shares(part: Part | None) -> Any:
    """Read shares of simpler models."""
    if part is None:
        return None
    boosted = part.get("boosted")
    if not isinstance(boosted, list) or not all(type(v) is float for v in boosted):
        part.fail("must be a list of numbers", "boosted")
    values: Any = {name: part.number(name) for name in _SHARES}
    if any(name in part for name in _LEVELS):  # files of models without them have neither
        values |= {name: part.number(name) for name in _LEVELS}
    shares = Any(**values, boosted=tuple(boosted))
    part.close()
    return shares


def write_mix(mix: Any | None, arrays: Arrays) -> dict[str, Any] | None:
    """Give JSON for a mix."""
    if mix is None:
        return None
    constant = arrays.add(np.asarray(mix.constant, np.float64))
    return {"joint": number(mix.joint), "own": number(mix.own), "constant": constant}


def read_mix(part: Part | None) -> Any:
    """Read a mix."""
    if part is None:
        return None
    constant = part.array("constant", "f8", finite=True)
    if constant.ndim > 1:
        part.fail("must be a number or one for every class", "constant")
    single = float(constant) if constant.ndim == 0 else constant
    mix = tuple(part.number("joint"), part.number("own"), single)
    part.close()
    return mix


def write_table(table: Any, arrays: Arrays) -> Any:
    """Give JSON for results of cross-validation: None, a dict of arrays, or a list of these."""
    return write_plain(table, arrays)


def read_table(part: Part, name: str, *, with_list: bool = False) -> Any:
    """Read results of cross-validation."""
    table = read_plain(part, name)
    tables = table if with_list and isinstance(table, list) else [table]
    if not all(_is_table(own) for own in tables):
        part.fail("must hold columns of one length", name)
    return table


def _is_table(table: Any) -> bool:
    if table is None:
        return True
    if not isinstance(table, dict) or not all(isinstance(key, str) for key in table):
        return False
    columns = table.values()
    if not all(isinstance(column, np.ndarray) and column.ndim == 1 for column in columns):
        return False
    return len({len(column) for column in columns}) <= 1


def write_pruning(pruning: Pruning | None, arrays: Arrays) -> dict[str, Any] | None:
    """Give JSON for how a model was pruned."""
    if pruning is None:
        return None
    return {
        "n_cells": arrays.add(np.asarray(pruning.n_cells, np.int64)),
        "train_loss": arrays.add(np.asarray(pruning.train_loss, np.float64)),
        "valid_loss": arrays.maybe(pruning.valid_loss),
        "chosen": int(pruning.chosen),
        "strength_factor": arrays.add(np.asarray(pruning.strength_factor, np.float64)),
        "n_cells_before": int(pruning.n_cells_before),
        "n_cells_after": int(pruning.n_cells_after),
    }


def read_pruning(part: Part | None) -> Pruning | None:
    """Read how a model was pruned."""
    if part is None:
        return None
    n_cells = part.indices("n_cells", 2**31, low=1)
    shape = (len(n_cells),)
    if not len(n_cells):
        raise ModelFileError(f"{part.path} has no steps")
    pruning = Pruning(
        n_cells,
        part.array("train_loss", "f8", shape),
        part.maybe_array("valid_loss", "f8", shape),
        part.integer("chosen", 0, len(n_cells) - 1),
        part.array("strength_factor", "f8", shape),
        part.integer("n_cells_before", 1),
        part.integer("n_cells_after", 1),
    )
    part.close()
    return pruning
