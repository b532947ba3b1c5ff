"""Searching every method on every set."""

from __future__ import annotations

import json
import math
import time
import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from experiments.pmlb.costs import Costs, duration
from experiments.pmlb.data import Data, load_data
from experiments.pmlb.ensembles import Predict
from experiments.pmlb.losses import loss, score
from experiments.pmlb.methods import Method
from experiments.pmlb.plan import Pair
from experiments.pmlb.records import Record, ResultFile, Setting
from experiments.pmlb.search import NoSearch, Search, make_search
from experiments.pmlb.sets import SetInfo
from experiments.pmlb.space import Parameters
from jointleaf._core.progress import Progress

__all__ = ["missing", "run", "run_pairs", "search_method"]


@dataclass(frozen=True)
class _Trial:
    """A fitted model and what came of it on the validation rows."""

    parameters: Parameters
    predict: Predict
    loss: float
    seconds: float


def run(
    sets: Sequence[SetInfo],
    methods: Sequence[Method],
    setting: Setting,
    folder: Path | None,
    file: ResultFile,
) -> None:
    """Run what is not in the file yet, set after set."""
    pairs = [(info, method) for info in sets for method in methods if info.task in method.spaces]
    run_pairs(pairs, setting, folder, file)


def missing(pairs: Iterable[Pair], file: ResultFile) -> list[Pair]:
    """The pairs that are not in the file."""
    return [pair for pair in pairs if file.find(pair[0].name, pair[1].name) is None]


def run_pairs(
    pairs: Iterable[Pair],
    setting: Setting,
    folder: Path | None,
    file: ResultFile,
    *,
    seconds: float = math.inf,
    costs: Costs | None = None,
) -> None:
    """Run what is not in the file yet, in this order.

    Pairs that are expected to end after so many seconds are left out. `costs` are what is expected,
    by default what the file tells.
    """
    todo = missing(pairs, file)
    clock = Clock(todo, costs or Costs(file.records()), setting, seconds)
    progress = Progress(len(todo), f"{len({info for info, _ in todo})} sets, {setting}")
    progress.begin(clock.left())
    data: Data | None = None
    loaded = ""
    for info, method in todo:
        if not clock.allows(info, method):
            continue
        if loaded != info.name:
            data, loaded = load_data(info, folder, setting.seed), info.name
        assert data is not None
        twin = None if data.categorical else file.find(info.name, method.twin)
        tuned = file.find(info.name, method.tuned_as)
        if twin is not None:
            file.add(replace(twin, method=method.name))
        elif method.tuned_as is None or tuned is not None:
            file.add(search_method(info, data, method, setting, tuned))
        else:
            print(f"{info.name}, {method.name}: needs {method.tuned_as}, which was not run")
        clock.done(info, method)
        progress.step(f"{info.name}, {method.label}; {clock.left()}")


class Clock:
    """What is left of the time: estimates, scaled by how long the pairs so far have taken."""

    def __init__(self, pairs: Iterable[Pair], costs: Costs, setting: Setting, limit: float) -> None:
        self._expected = {
            (info.name, method.name): costs.seconds(info, method, setting) for info, method in pairs
        }
        self._left = sum(self._expected.values())
        self._done = 0.0
        self._limit, self._start = limit, time.perf_counter()

    def _scale(self) -> float:
        """The true time over the expected one, from a minute on."""
        return (time.perf_counter() - self._start) / self._done if self._done > 60 else 1.0

    def allows(self, info: SetInfo, method: Method) -> bool:
        """Whether the pair should end in time."""
        expected = self._scale() * self._expected[info.name, method.name]
        return time.perf_counter() - self._start + expected <= self._limit

    def done(self, info: SetInfo, method: Method) -> None:
        """Count a pair."""
        expected = self._expected[info.name, method.name]
        self._left, self._done = self._left - expected, self._done + expected

    def left(self) -> str:
        """The time that is left, in words."""
        return f"about {duration(max(0.0, self._scale() * self._left))} left"


def search_method(
    info: SetInfo, data: Data, method: Method, setting: Setting, tuned: Record | None = None
) -> Record:
    """Try parameters, or only those of `tuned`; test the trial with the least validation loss."""
    seen = data if method.categories else data.real_valued()
    # Every set and method has its own draws, whatever else is run.
    seed = zlib.crc32(f"{setting.seed}/{info.name}/{method.name}".encode())
    search: Search
    if tuned is None:
        search = make_search(setting.search, method.spaces[info.task], seed)
    else:
        search = NoSearch(json.loads(tuned.parameters))
    start = time.perf_counter()
    best: _Trial | None = None
    for _ in range(setting.trials if tuned is None else 1):
        trial = _try(method, seen, search.ask(), setting.seed)
        search.tell(trial.loss)
        if best is None or trial.loss < best.loss:
            best = trial
    assert best is not None
    seconds = time.perf_counter() - start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tested = score(seen, best.predict)
    return Record(
        info.task,
        info.name,
        method.name,
        setting.search,
        setting.trials,
        setting.seed,
        info.rows,
        seen.X["train"].shape[1],
        _short(best.loss),
        _short(tested.error),
        _short(tested.dummy),
        _short(tested.log_loss),
        round(best.seconds, 3),
        round(seconds, 3),
        json.dumps({name: _short(value) for name, value in best.parameters.items()}),
    )


def _try(method: Method, data: Data, parameters: Parameters, seed: int) -> _Trial:
    """Fit on the training rows; networks that diverge overflow on the way."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        predict = method.fit(data, parameters, seed)
        seconds = time.perf_counter() - start
        return _Trial(parameters, predict, loss(data, "valid", predict(data.X["valid"])), seconds)


def _short(value: Any) -> Any:
    """Six digits are plenty, and keep the file small."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.6g}")
    return value
