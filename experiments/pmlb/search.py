"""Searching a space: Ax, as in the paper, or plain random search."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any, Literal, Protocol

import numpy as np

from experiments import require
from experiments.pmlb.space import Choice, Integer, Parameters, Space, draw

__all__ = [
    "SEARCHES",
    "AxSearch",
    "NoSearch",
    "RandomSearch",
    "Search",
    "SearchName",
    "make_search",
]

SearchName = Literal["ax", "random"]
SEARCHES: tuple[SearchName, ...] = ("ax", "random")

#: What Ax is told of any larger loss. Losses are about 1 for a constant; a single one of 1e6, of a
#: network that diverged, would leave its Gaussian process blind to everything else.
WORST_LOSS = 5.0
#: Trials before the first Bayesian one.
QUASI_RANDOM = 8
#: Of Ax's search for the next point.
RESTARTS, RAW_SAMPLES = 4, 128


class Search(Protocol):
    """Proposes parameters and learns what came of them."""

    def ask(self) -> Parameters:
        """The next parameters to try."""

    def tell(self, loss: float) -> None:
        """The validation loss of the parameters that were asked for last."""


class RandomSearch:
    """Independent random draws: no extra package, and next to no time per trial."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._rng = np.random.default_rng(seed)

    def ask(self) -> Parameters:
        """Draw the next parameters."""
        return draw(self._space, self._rng)

    def tell(self, loss: float) -> None:
        """Nothing is learnt."""


class NoSearch:
    """Parameters that are known."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters

    def ask(self) -> Parameters:
        """Give them."""
        return self._parameters

    def tell(self, loss: float) -> None:
        """Nothing is learnt."""


class AxSearch:
    """Ax: the centre, Sobol points, then Bayesian optimisation.

    A Bayesian trial takes Ax half a second to a second, more than most fits here, and a batch of
    them no less per trial, because each takes a search of its own. Sobol points cost next to
    nothing. There are eight, the centre among them, where Ax's default is five: a Gaussian process
    of five points in six dimensions knows little. The search for the next point starts at fewer
    points than by default, which takes a quarter off.
    """

    def __init__(self, space: Space, seed: int) -> None:
        client = require("ax.api.client")
        # Its loggers have levels of their own, and tell of every trial.
        for handler in logging.getLogger("ax").handlers:
            handler.setLevel(logging.WARNING)
        self._client = client.Client(random_seed=seed)
        self._client.configure_experiment(
            name="search", parameters=[_ax_parameter(name, space[name]) for name in space]
        )
        self._client.configure_optimization(objective="-loss")
        self._client.configure_generation_strategy(
            initialization_budget=QUASI_RANDOM, initialization_random_seed=seed
        )
        _search_less(self._client)
        self._trial = -1

    def ask(self) -> Parameters:
        """Ask Ax for a trial."""
        with warnings.catch_warnings():  # remarks on numerics inside its models
            warnings.simplefilter("ignore")
            ((self._trial, parameters),) = self._client.get_next_trials(max_trials=1).items()
        return dict(parameters)

    def tell(self, loss: float) -> None:
        """Complete the trial."""
        bounded = min(loss, WORST_LOSS) if math.isfinite(loss) else WORST_LOSS
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._client.complete_trial(trial_index=self._trial, raw_data={"loss": bounded})


def _search_less(client: Any) -> None:
    """Start searches for the next point at fewer points."""
    options = {"optimizer_kwargs": {"num_restarts": RESTARTS, "raw_samples": RAW_SAMPLES}}
    for node in client._generation_strategy._nodes:
        for spec in node.generator_specs:
            if node.name == "MBM":
                spec.generator_gen_kwargs["model_gen_options"] = options


def _ax_parameter(name: str, values: Any) -> Any:
    configs = require("ax.api.configs")
    if isinstance(values, Choice):
        is_number = isinstance(values.values[0], int)
        return configs.ChoiceParameterConfig(
            name=name,
            parameter_type="int" if is_number else "str",
            values=list(values.values),
            is_ordered=is_number,
        )
    return configs.RangeParameterConfig(
        name=name,
        parameter_type="int" if isinstance(values, Integer) else "float",
        bounds=(values.low, values.high),
        scaling="log" if values.log else "linear",
    )


def make_search(kind: SearchName, space: Space, seed: int) -> Search:
    """The search of this name."""
    return AxSearch(space, seed) if kind == "ax" else RandomSearch(space, seed)
