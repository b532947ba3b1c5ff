"""Which features matter: l2,1 on Voronoi cells against LightGBM's gains and the Lasso.

    python benchmarks/selection.py                          about 15 minutes on two cores

200 independent standard normal features, of which 10 (placed at random) enter a nonlinear response
with noise; 2,000 rows. Every method says which features it selects; the table counts those of the
ten (hits) and the others (false) over ten seeds. LightGBM has no selection of its own: features
with more than the mean gain are taken, scikit-learn's default in `SelectFromModel`, and, as an
oracle that is told how many there are, its ten largest gains.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from lightgbm import LGBMRegressor
from numpy.typing import NDArray
from sklearn.linear_model import LassoCV

from jointleaf import L21, JOPLEnRegressor
from jointleaf.partitions import VoronoiPartitioner

N_FEATURES, N_RELEVANT = 200, 10


def make_data(seed: int, n_rows: int = 2000) -> tuple[NDArray, NDArray, set[int]]:
    """Rows, targets and the set of relevant features; noise is a tenth of the variance."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, N_FEATURES))
    relevant = rng.choice(N_FEATURES, N_RELEVANT, replace=False)
    Z = X[:, relevant].T
    signal = (
        2 * Z[0]
        + 2 * np.sin(2 * Z[1])
        + Z[2] * np.abs(Z[2])
        + 2 * np.tanh(2 * Z[3])
        + 1.5 * Z[4]
        + np.exp(0.6 * Z[5])
        + 2 * np.maximum(Z[6], 0)
        + Z[7] ** 3 / 3
        + (1 + 0.5 * Z[0]) * Z[8]
        + (1 + 0.5 * np.sign(Z[1])) * Z[9]
    )
    y = signal + np.sqrt(1 / 9) * signal.std() * rng.standard_normal(n_rows)
    return X, y, set(relevant.tolist())


def by_joplen(X: NDArray, y: NDArray, *, one_se: bool) -> NDArray:
    """Features with slopes in some cell."""
    model = JOPLEnRegressor(
        VoronoiPartitioner(100, 8, random_state=0), penalty=L21("auto"), one_se=one_se, n_jobs=2
    )
    return model.fit(X, y).selected_features_


def by_lightgbm(X: NDArray, y: NDArray, *, count: int | None = None) -> NDArray:
    """Features with more than the mean gain, or the given number of largest ones."""
    model = LGBMRegressor(importance_type="gain", random_state=0, verbose=-1, n_jobs=1).fit(X, y)
    gains = model.feature_importances_
    return np.flatnonzero(gains > gains.mean()) if count is None else np.argsort(-gains)[:count]


def by_lasso(X: NDArray, y: NDArray) -> NDArray:
    """Features with a coefficient at the strength that cross-validation chose."""
    return np.flatnonzero(LassoCV(cv=5).fit(X, y).coef_)


METHODS: dict[str, Callable[[NDArray, NDArray], NDArray]] = {
    'JOPLEn `L21("auto")`, one standard error': lambda X, y: by_joplen(X, y, one_se=True),
    "LightGBM, gain above the mean": by_lightgbm,
    "LightGBM, ten largest gains (oracle)": lambda X, y: by_lightgbm(X, y, count=N_RELEVANT),
    "Lasso (LassoCV)": by_lasso,
    'JOPLEn `L21("auto")`, smallest loss': lambda X, y: by_joplen(X, y, one_se=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    print("| method | hits of 10: mean (least) | false: mean (most) | seconds |")
    print("|---|---|---|---|")
    for name, select in METHODS.items():
        hits, false, seconds = [], [], []
        for seed in range(args.seeds):
            X, y, relevant = make_data(seed)
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                found = set(select(X, y).tolist())
            seconds.append(time.perf_counter() - start)
            hits.append(len(found & relevant))
            false.append(len(found - relevant))
        print(
            f"| {name} | {np.mean(hits):.1f} ({min(hits)}) | {np.mean(false):.1f} ({max(false)}) "
            f"| {np.mean(seconds):.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
