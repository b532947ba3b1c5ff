"""Monotone constraints: errors beside scikit-learn's with the same constraints.

    python benchmarks/monotone.py --data FOLDER [--splits 5] [--first-seed 0] [--sets NAME ...]

Three generated sets whose means are truly monotone in the constrained columns (numbers, counts, two
classes), and two of UCI, where it is common knowledge: concrete gets stronger with cement and age
and weaker with water; cars drive less far with displacement, horsepower and weight, and newer ones
farther. Test losses: squared error over the variance of the target, Poisson deviance, log-loss. A
third of the rows of a real set are test rows. `holds` tells whether the certificate holds, `falls`
how many of 10,000 random pairs of rows that differ in one constrained column are out of order.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import train_test_split

from jointleaf import JOPLEnClassifier, JOPLEnRegressor

#: Rows, and the signs of the columns.
GENERATED = {"numbers": 800, "counts": 2500, "classes": 1200}
SIGNS = [1, 1, 0, 0, 0, -1, 0, 1]
REAL = {
    "concrete": [1, 0, 0, -1, 0, 0, 0, 1],
    "autompg": [0, -1, -1, -1, 0, 1, 0],
}
TEST_ROWS = 5000


def generate(name: str, n: int, seed: int) -> tuple[NDArray, NDArray]:
    """Return rows (n, 8) and targets (n,), monotone in columns 0, 1, 5 and 7."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 8))
    g = np.tanh(2 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 0.5 * np.sin(3 * X[:, 3])
    g += -0.3 * np.exp(0.7 * X[:, 5]) + 0.5 * np.maximum(X[:, 7], X[:, 4])
    if name == "numbers":
        return X, g + rng.standard_normal(n)
    if name == "counts":
        return X, rng.poisson(np.exp(0.7 * g)).astype(float)
    return X, (rng.random(n) < expit(2 * g)).astype(int)


def split(name: str, seed: int, folder: Path) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Return training rows, test rows and their targets."""
    if name in GENERATED:
        X, y = generate(name, GENERATED[name], 2 * seed)
        X_test, y_test = generate(name, TEST_ROWS, 2 * seed + 1)
        return X, X_test, y, y_test
    table = np.loadtxt(folder / "uci" / name / "data.csv.gz", delimiter=",")
    return train_test_split(table[:, :-1], table[:, -1], test_size=1 / 3, random_state=seed)


def models(name: str, signs: list[int], seed: int) -> dict[str, Any]:
    """Return the models to compare, by name."""
    options = {"monotonic_cst": signs, "random_state": seed}
    if name == "classes":
        return {
            "jointleaf": JOPLEnClassifier(**options),
            "jointleaf, free": JOPLEnClassifier(random_state=seed),
            "HistGradientBoosting": HistGradientBoostingClassifier(**options),
        }
    loss = "poisson" if name == "counts" else "squared_error"
    return {
        "jointleaf": JOPLEnRegressor(loss=loss, **options),
        "jointleaf, free": JOPLEnRegressor(loss=loss, random_state=seed),
        "HistGradientBoosting": HistGradientBoostingRegressor(loss=loss, **options),
    }


def test_loss(name: str, model: Any, X: NDArray, y: NDArray) -> float:
    """Return the loss of a fitted model."""
    if name == "classes":
        return float(log_loss(y, model.predict_proba(X)))
    if name == "counts":
        return float(mean_poisson_deviance(y, model.predict(X)))
    return float(mean_squared_error(y, model.predict(X)) / np.var(y))


def n_falls(model: Any, X: NDArray, signs: list[int], n: int = 10_000) -> int:
    """Return how many of n pairs that differ in one constrained column are out of order."""
    rng = np.random.default_rng(0)
    low = X[rng.integers(len(X), size=n)]
    high, each = low.copy(), np.arange(n)
    column = rng.choice(np.flatnonzero(signs), n)
    values = np.sort(X[rng.integers(len(X), size=(n, 2)), column[:, None]], axis=1)
    low[each, column], high[each, column] = values.T
    raw = model.decision_function if hasattr(model, "decision_function") else model.predict
    rises = np.array(signs)[column] * (raw(high) - raw(low))
    return int(np.count_nonzero(rises < -1e-9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with uci/NAME")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--sets", nargs="+", default=[*GENERATED, *REAL])
    options = parser.parse_args()
    print("| set | rows | model | test loss | CPU seconds | holds | falls |")
    print("|---|---|---|---|---|---|---|")
    for name in options.sets:
        signs = REAL.get(name, SIGNS)
        lines: dict[str, list[tuple[float, float, bool, int]]] = {}
        for seed in range(options.first_seed, options.first_seed + options.splits):
            X, X_test, y, y_test = split(name, seed, options.data)
            for label, model in models(name, signs, seed).items():
                start = time.process_time()
                model.fit(X, y)
                seconds = time.process_time() - start
                loss = test_loss(name, model, X_test, y_test)
                is_ours = label == "jointleaf"
                holds = is_ours and model.certify_monotonic().holds
                falls = n_falls(model, X_test, signs)
                lines.setdefault(label, []).append((loss, seconds, holds, falls))
        for label, results in lines.items():
            losses, seconds, holds, falls = map(np.array, zip(*results, strict=True))
            certificate = ("yes" if holds.all() else "no") if label == "jointleaf" else ""
            print(f"| {name} | {len(y):,} | {label} | {losses.mean():.4f} | {seconds.mean():.1f} "
                  f"| {certificate} | {int(falls.sum())} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
