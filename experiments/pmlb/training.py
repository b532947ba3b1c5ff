"""Training a network of torch: mini-batches, Adam, stopping early on the validation rows."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from experiments import require
from experiments.pmlb.data import Data
from experiments.pmlb.ensembles import Predict

__all__ = ["Training", "train"]


@dataclass(frozen=True)
class Training:
    """How a network is trained.

    Attributes
    ----------
    batch : int
        Rows of a step.
    rate : float
        Learning rate of Adam.
    decay : float
        Strength of the squared norm of all parameters.
    patience : int
        Epochs without a lower validation loss after which training ends.
    """

    batch: int
    rate: float
    decay: float
    patience: int = 100
    epochs: int = 10_000


def train(network: Any, data: Data, training: Training, seed: int) -> Predict:
    """Train to the least validation loss; squared error, or logistic loss for two classes."""
    torch = require("torch")
    rows = {part: _tensors(torch, data, part) for part in ("train", "valid")}
    loss = torch.nn.BCEWithLogitsLoss() if data.is_binary else torch.nn.MSELoss()
    optimiser = torch.optim.Adam(
        network.parameters(), lr=training.rate, weight_decay=training.decay
    )
    generator = torch.Generator().manual_seed(seed)
    best, least, waited = copy.deepcopy(network.state_dict()), math.inf, 0
    for _ in range(training.epochs):
        _epoch(torch, network, rows["train"], loss, optimiser, training.batch, generator)
        with torch.no_grad():
            value = float(loss(network(rows["valid"][0]), rows["valid"][1]))
        waited += 1
        if value < least:
            best, least, waited = copy.deepcopy(network.state_dict()), value, 0
        if waited >= training.patience or not math.isfinite(value):
            break
    network.load_state_dict(best)

    def predict(X: NDArray) -> NDArray:
        with torch.no_grad():
            raw = network(torch.as_tensor(X, dtype=torch.float32)).numpy().astype(float)
        return expit(raw) if data.is_binary else raw

    return predict


def _tensors(torch: Any, data: Data, part: str) -> tuple[Any, Any]:
    arrays = (data.X[part], data.y[part])
    return tuple(torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float32) for a in arrays)


def _epoch(
    torch: Any,
    network: Any,
    rows: tuple[Any, Any],
    loss: Any,
    optimiser: Any,
    batch: int,
    generator: Any,
) -> None:
    """One pass over the rows in random order."""
    X, y = rows
    for chosen in torch.randperm(len(y), generator=generator).split(batch):
        optimiser.zero_grad()
        loss(network(X[chosen]), y[chosen]).backward()
        optimiser.step()
