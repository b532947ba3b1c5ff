"""The default fit with many rows, against LightGBM's default in the same run.

    python benchmarks/many_rows.py [--rows 10000 100000 1000000]

Generated data: Friedman's first function with ten columns and noise of variance 1 (noise floor of
the normalised error about 0.04), and two classes drawn with its logistic transform. Both are
judged on 50,000 new rows. CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy.special import expit
from sklearn.datasets import make_friedman1
from sklearn.metrics import log_loss

from jointleaf import JOPLEnClassifier, JOPLEnRegressor

N_TEST = 50_000


def data(n: int, task: str):
    """Training and test rows."""
    X, y = make_friedman1(n + N_TEST, noise=1.0 if task == "regression" else 0.0, random_state=0)
    if task == "classes":
        y = (np.random.default_rng(1).random(len(y)) < expit((y - 14.4) / 2)).astype(int)
    return X[:n], y[:n], X[n:], y[n:]


def judged(model, X, y, X_test, y_test) -> tuple[float, float, float]:
    """Test loss, and CPU seconds of fit and predict."""
    start = time.process_time()
    model.fit(X, y)
    middle = time.process_time()
    if hasattr(model, "predict_proba"):
        loss = log_loss(y_test, model.predict_proba(X_test))
    else:
        loss = float(np.mean((model.predict(X_test) - y_test) ** 2) / np.var(y_test))
    return loss, middle - start, time.process_time() - middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    print(
        "| task | rows | LightGBM | jointleaf | fit, s | fit, s | ratio | predict, s | predict, s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for n in parser.parse_args().rows:
        for task in ("regression", "classes"):
            kinds = [LGBMRegressor, JOPLEnRegressor]
            if task == "classes":
                kinds = [LGBMClassifier, JOPLEnClassifier]
            peer = kinds[0](random_state=0, n_jobs=1, verbose=-1)
            theirs, ours = (judged(m, *data(n, task)) for m in (peer, kinds[1](random_state=0)))
            print(
                f"| {task} | {n:,} | {theirs[0]:.4f} | {ours[0]:.4f} | {theirs[1]:.1f} "
                f"| {ours[1]:.1f} | {ours[1] / theirs[1]:.1f}x | {theirs[2]:.2f} | {ours[2]:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
