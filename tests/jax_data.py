"""Data of one shape for all tests of the JAX backend: what is compiled serves several of them."""

import numpy as np

N, D, P = 160, 5, 4
_rng = np.random.default_rng(0)
X = _rng.standard_normal((N, D))
CODES = np.stack([np.digitize(X @ _rng.standard_normal(D), [-0.8, 0.0, 0.8]) for _ in range(P)], 1)
SIGNAL = np.abs(X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 0.2 * _rng.standard_normal(N)
WEIGHTS = _rng.uniform(0.5, 2.0, N)
TARGETS = {
    "squared_error": SIGNAL,
    "logistic": np.where(SIGNAL + 0.3 * _rng.standard_normal(N) > np.median(SIGNAL), 1, -1),
    "multinomial": np.digitize(SIGNAL, np.quantile(SIGNAL, [0.3, 0.6])),
}


def tasks():
    """Three tasks with the same features, one with more partitions."""
    rng = np.random.default_rng(1)
    made = []
    for t in range(3):
        rows = rng.standard_normal((80 + 20 * t, D))
        turns = rng.standard_normal((D, 3 + (t == 1)))
        codes = np.digitize(rows @ turns, [-0.8, 0.0, 0.8])
        noise = 0.1 * rng.standard_normal(len(rows))
        made.append((rows, codes, np.abs(rows[:, 0]) + rows[:, 1 + t] + noise))
    return made
