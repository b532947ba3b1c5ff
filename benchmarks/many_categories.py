"""Columns with thousands of categories: log-loss on generated rows, and on insurance tables.

    python benchmarks/many_categories.py [--seeds 2] [--peer] [--insurance FOLDER]

The generated set is like access data: 26,000 training and 6,500 test rows, nine text columns with
67 to 7,000 categories whose frequencies fall as 1 / rank, two classes. The log-odds are a sum of
random effects of all categories (standard deviation 0.5) and of three pairs of columns (0.7).
``--peer`` fits CatBoost with its defaults as well. The folder has beMTPL97.csv.gz and
pg15training.csv.gz of CASdatasets.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import log_loss

from jointleaf import JOPLEnClassifier

SIZES = (7000, 4200, 128, 177, 450, 343, 2300, 67, 343)
PAIRS = ((0, 1), (2, 4), (5, 7))
N_TRAIN, N_TEST = 26_000, 6_500

Table = tuple[pd.DataFrame, NDArray, int]


def generate(seed: int) -> Table:
    """Return rows, classes and the number of training rows."""
    rng = np.random.default_rng(seed)
    n = N_TRAIN + N_TEST
    codes = np.empty((n, len(SIZES)), int)
    for j, size in enumerate(SIZES):
        frequency = 1 / np.arange(1, size + 1)
        order = rng.permutation(size)
        codes[:, j] = order[rng.choice(size, n, p=frequency / frequency.sum())]
    log_odds = np.full(n, 2.0)
    for j, size in enumerate(SIZES):
        log_odds += (0.5 * rng.standard_normal(size))[codes[:, j]]
    for a, b in PAIRS:
        place = np.unique(codes[:, a] * 10_000 + codes[:, b], return_inverse=True)[1]
        log_odds += 0.7 * rng.standard_normal(place.max() + 1)[place]
    y = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return pd.DataFrame({f"c{j}": [f"v{k}" for k in c] for j, c in enumerate(codes.T)}), y, N_TRAIN


def insurance(folder: Path) -> dict[str, Table]:
    """Return tables in which a place is a column with hundreds of categories."""
    belgian = pd.read_csv(folder / "beMTPL97.csv.gz").sample(60_000, random_state=0)
    names = ["coverage", "ageph", "sex", "bm", "power", "agec", "fuel", "use", "fleet"]
    X = belgian[names].assign(postcode="p" + belgian["postcode"].astype(str))
    policies = pd.read_csv(folder / "pg15training.csv.gz").sample(40_000, random_state=0)
    names = ["Gender", "Type", "Category", "Occupation", "Age", "Group1", "Bonus", "Poldur"]
    names += ["Adind", "SubGroup2", "Group2", "Value"]
    tables = {
        "beMTPL97": (X, (belgian["nclaims"] > 0).to_numpy().astype(int)),
        "pg15training": (policies[names], (policies["Numtppd"] > 0).to_numpy().astype(int)),
    }
    shuffled = {}
    for name, (X, y) in tables.items():
        order = np.random.default_rng(0).permutation(len(y))
        shuffled[name] = X.iloc[order].reset_index(drop=True), y[order], int(0.75 * len(y))
    return shuffled


def catboost(X: pd.DataFrame) -> Any:
    """Return CatBoost with its defaults, on one core."""
    from catboost import CatBoostClassifier

    texts = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]
    return CatBoostClassifier(
        verbose=0, random_seed=0, thread_count=1, cat_features=texts, allow_writing_files=False
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--insurance", type=Path)
    args = parser.parse_args()
    tables = {f"generated, seed {seed}": generate(seed) for seed in range(args.seeds)}
    tables |= insurance(args.insurance) if args.insurance else {}
    for name, (X, y, n) in tables.items():
        models = {"jointleaf": JOPLEnClassifier(random_state=0)}
        models |= {"CatBoost": catboost(X)} if args.peer else {}
        for label, model in models.items():
            start = time.process_time()
            model.fit(X[:n], y[:n])
            seconds = time.process_time() - start
            loss = log_loss(y[n:], model.predict_proba(X[n:]))
            print(f"{name:20} {label:10} log-loss {loss:.4f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
