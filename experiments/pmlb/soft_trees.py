"""FASTEL: an ensemble of soft trees, trained by gradient descent (Ibrahim et al. 2022).

Trees are perfect, of one depth; a node sends a row to the left with probability S(<w, x> + b),
where S is the smooth step of Hazimeh et al. (2020): exactly 0 and 1 outside of an interval of width
gamma, a cubic inside. All trees are evaluated at once, level by level, as tensors.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from experiments import require
from experiments.pmlb.data import Data
from experiments.pmlb.ensembles import Predict
from experiments.pmlb.networks import BATCHES
from experiments.pmlb.space import Integer, Parameters, Real, Space
from experiments.pmlb.training import Training, train

__all__ = ["SOFT_TREES", "fit_soft_trees", "smooth_step"]

#: The authors' code calls one parameter "power"; its range is taken for the width gamma.
SOFT_TREES: Space = {
    "n_trees": Integer(1, 1000, log=True),
    "depth": Integer(1, 4),
    "width": Real(1e-5, 100, log=True),
    "batch": BATCHES,
    "rate": Real(1e-3, 10, log=True),
    "decay": Real(1e-5, 10, log=True),
}


def smooth_step(t: Any, width: float) -> Any:
    """0 below -width / 2, 1 above width / 2, in between -2 (t/width)^3 + 3/2 (t/width) + 1/2."""
    u = (t / width).clamp(-0.5, 0.5)
    return u * (1.5 - 2 * u * u) + 0.5


@cache
def _soft_trees_class() -> type:
    """The module's class; made when torch is there."""
    torch = require("torch")

    class SoftTrees(torch.nn.Module):  # type: ignore[name-defined]
        """Sum of the trees: (n, d) to (n,)."""

        def __init__(self, n_features: int, n_trees: int, depth: int, width: float) -> None:
            super().__init__()
            self.depth, self.width, self.n_trees = depth, width, n_trees
            n_nodes, n_leaves = 2**depth - 1, 2**depth
            self.split = torch.nn.Linear(n_features, n_trees * n_nodes)
            self.leaves = torch.nn.Parameter(0.01 * torch.randn(n_trees, n_leaves))
            self.offset = torch.nn.Parameter(torch.zeros(()))

        def forward(self, X: Any) -> Any:
            """Mix the leaves by the probabilities of reaching them."""
            left = smooth_step(self.split(X), self.width).view(len(X), self.n_trees, -1)
            reached = torch.ones_like(left[:, :, :1])
            for level in range(self.depth):
                first = 2**level - 1  # nodes are numbered level by level
                share = left[:, :, first : 2 * first + 1]
                reached = torch.stack([reached * share, reached * (1 - share)], dim=-1).flatten(2)
            return torch.einsum("ntl,tl->n", reached, self.leaves) + self.offset

    return SoftTrees


def fit_soft_trees(data: Data, parameters: Parameters, seed: int) -> Predict:
    """Train the ensemble."""
    require("torch").manual_seed(seed)
    n_features = data.X["train"].shape[1]
    network = _soft_trees_class()(
        n_features, parameters["n_trees"], parameters["depth"], parameters["width"]
    )
    training = Training(parameters["batch"], parameters["rate"], parameters["decay"])
    return train(network, data, training, seed)
