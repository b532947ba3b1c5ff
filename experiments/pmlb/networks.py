"""The feed-forward network and TabNet."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import require
from experiments.pmlb.data import Data
from experiments.pmlb.ensembles import Predict, predictor
from experiments.pmlb.space import Choice, Integer, Parameters, Real, Space
from experiments.pmlb.training import Training, train

__all__ = ["NETWORK", "TABNET", "fit_network", "fit_tabnet"]

BATCHES = Choice((16, 32, 64, 128, 256, 512, 1024))
NETWORK: Space = {
    "width": Integer(10, 100),
    "layers": Integer(1, 4),
    "activation": Choice(("relu", "sigmoid")),
    "batch": BATCHES,
    "rate": Real(1e-3, 10, log=True),
    "decay": Real(1e-5, 10, log=True),
}
#: The paper does not record TabNet's ranges: these are what its authors recommend.
TABNET: Space = {
    "width": Integer(8, 64),
    "steps": Integer(3, 10),
    "gamma": Real(1, 2),
    "sparsity": Real(1e-6, 1e-3, log=True),
    "rate": Real(1e-3, 0.1, log=True),
    "batch": Choice((64, 128, 256, 512, 1024)),
}
_PATIENCE, _EPOCHS = 30, 200  # of TabNet, whose epochs are slow


def fit_network(data: Data, parameters: Parameters, seed: int) -> Predict:
    """Layers of one width, and one output."""
    torch = require("torch")
    torch.manual_seed(seed)
    activation = torch.nn.ReLU if parameters["activation"] == "relu" else torch.nn.Sigmoid
    parts: list[Any] = []
    size = data.X["train"].shape[1]
    for _ in range(parameters["layers"]):
        parts += [torch.nn.Linear(size, parameters["width"]), activation()]
        size = parameters["width"]
    network = torch.nn.Sequential(*parts, torch.nn.Linear(size, 1), torch.nn.Flatten(0))
    training = Training(parameters["batch"], parameters["rate"], parameters["decay"])
    return train(network, data, training, seed)


def fit_tabnet(data: Data, parameters: Parameters, seed: int) -> Predict:
    """TabNet of the package pytorch-tabnet, stopped early on the validation rows."""
    tabnet = require("pytorch_tabnet.tab_model")
    make = tabnet.TabNetClassifier if data.is_binary else tabnet.TabNetRegressor
    model = make(
        n_d=parameters["width"],
        n_a=parameters["width"],
        n_steps=parameters["steps"],
        gamma=parameters["gamma"],
        lambda_sparse=parameters["sparsity"],
        optimizer_params={"lr": parameters["rate"]},
        seed=seed,
        verbose=0,
        device_name="cpu",
    )
    # It prints when it stops, and warns of what training does by itself.
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        model.fit(
            data.X["train"].astype(np.float32),
            _targets(data, "train"),
            eval_set=[(data.X["valid"].astype(np.float32), _targets(data, "valid"))],
            eval_metric=["logloss" if data.is_binary else "rmse"],
            max_epochs=_EPOCHS,
            patience=_PATIENCE,
            batch_size=parameters["batch"],
            virtual_batch_size=min(128, parameters["batch"]),
            drop_last=False,
        )
    predict = predictor(model, data)
    return lambda X: np.ravel(predict(X.astype(np.float32)))


def _targets(data: Data, part: str) -> NDArray:
    return data.y[part].astype(int) if data.is_binary else data.y[part][:, None]
