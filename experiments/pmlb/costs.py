"""How long a search of a method on a set takes, learnt from searches that were run."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from experiments.pmlb.methods import Method
from experiments.pmlb.records import Record, Setting
from experiments.pmlb.search import QUASI_RANDOM
from experiments.pmlb.sets import SetInfo

__all__ = ["Costs", "duration"]

#: Of Ax itself: a quasi-random trial and a Bayesian one.
AX_SECONDS = (0.03, 0.7)
#: Records from which a method has a fit of its own; before, all methods together have one.
LEAST = 5
#: Seconds of a trial where nothing is known at all.
UNKNOWN = 1.0


class Costs:
    """Seconds of (set, method) pairs.

    The logarithm of the seconds of a trial is linear in those of rows and columns, by method.

    Parameters
    ----------
    records : iterable of Record
        Of any settings.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        groups: dict[str, list[Record]] = {}
        for record in records:
            groups.setdefault(record.method, []).append(record)
        everything = [record for group in groups.values() for record in group]
        self._fits = {name: _fit(group) for name, group in groups.items() if len(group) >= LEAST}
        self._all = _fit(everything) if len(everything) >= LEAST else None

    def seconds(self, info: SetInfo, method: Method, setting: Setting) -> float:
        """The time that a search should take; a variant stands in for one that was not run."""
        names = (method.name, method.name.removesuffix("_stop"))
        fit = next((self._fits[name] for name in names if name in self._fits), self._all)
        trial = UNKNOWN if fit is None else float(np.exp(_row(info.rows, info.columns) @ fit))
        if method.tuned_as is not None:
            return trial
        return setting.trials * trial + overhead(setting)


def overhead(setting: Setting) -> float:
    """Seconds that the search itself takes."""
    if setting.search != "ax":
        return 0.0
    first = min(setting.trials, QUASI_RANDOM)
    return first * AX_SECONDS[0] + (setting.trials - first) * AX_SECONDS[1]


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _row(rows: int, columns: int) -> NDArray[np.float64]:
    return np.array([1.0, np.log(rows), np.log(max(columns, 1))])


def _fit(records: list[Record]) -> NDArray[np.float64]:
    """Least squares, held back a little where sets are nearly of one size."""
    X = np.array([_row(record.rows, record.columns) for record in records])
    y = np.log([_trial_seconds(record) for record in records])
    return np.linalg.solve(X.T @ X + 1e-2 * np.eye(3), X.T @ y)


def _trial_seconds(record: Record) -> float:
    own = max(record.seconds - overhead(record.setting), 0.1 * record.seconds, 1e-3)
    # Refined ensembles are not searched: theirs is a single trial.
    return own if record.method.endswith("_refine") else own / record.trials
