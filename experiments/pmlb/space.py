"""Ranges of hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Choice", "Integer", "Parameters", "Real", "Space", "draw"]

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Real:
    """A number between two bounds, uniform or log-uniform."""

    low: float
    high: float
    log: bool = False

    def draw(self, rng: np.random.Generator) -> float:
        """A random value."""
        if self.log:
            return float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        return float(rng.uniform(self.low, self.high))


@dataclass(frozen=True)
class Integer:
    """A whole number between two bounds, both possible, uniform or log-uniform."""

    low: int
    high: int
    log: bool = False

    def draw(self, rng: np.random.Generator) -> int:
        """A random value."""
        if self.log:
            value = round(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
            return int(np.clip(value, self.low, self.high))
        return int(rng.integers(self.low, self.high + 1))


@dataclass(frozen=True)
class Choice:
    """One of several values, which are in order if they are numbers."""

    values: tuple[str, ...] | tuple[int, ...]

    def draw(self, rng: np.random.Generator) -> str | int:
        """A random value."""
        return self.values[int(rng.integers(len(self.values)))]


Space = Mapping[str, Real | Integer | Choice]


def draw(space: Space, rng: np.random.Generator) -> Parameters:
    """A random value of every parameter."""
    return {name: values.draw(rng) for name, values in space.items()}
