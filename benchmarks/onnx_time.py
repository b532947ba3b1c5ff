"""Time of predictions with onnxruntime and with the model itself, in one run.

    python benchmarks/onnx_time.py [--rows 10000]

One thread, best of several runs, in milliseconds. The rows are doubles. "1 row" is the time of a
call for a single row. A model is called once before it is timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import onnxruntime

import jointleaf
from jointleaf import Frobenius, JOPLEnRegressor
from jointleaf.partitions import LightGBMPartitioner

COLUMNS = 20


def best_ms(call: Callable[[], object], repeats: int = 15) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def models(X: np.ndarray, y: np.ndarray) -> dict[str, JOPLEnRegressor]:
    trees = LightGBMPartitioner(100, 16)
    linear = JOPLEnRegressor(trees, penalty=Frobenius(0.1), random_state=0)
    constant = JOPLEnRegressor(trees, cells="constant", penalty=Frobenius(0.1), random_state=0)
    return {
        "100 trees, linear": linear.fit(X[:5000], y[:5000]),
        "100 trees, constant": constant.fit(X[:5000], y[:5000]),
        "default, 1,000 rows": JOPLEnRegressor(random_state=0).fit(X[:1000], y[:1000]),
        "default, 20,000 rows": JOPLEnRegressor(random_state=0).fit(X, y),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, COLUMNS))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.standard_normal(len(X))
    new = rng.standard_normal((rows, COLUMNS))
    head = (f"predict {rows}", f"onnx {rows}", "predict 1", "onnx 1", "onnx kB", "export", "differ")
    print(f"{'model':22}", *(f"{title:>14}" for title in head))
    for title, model in models(X, y).items():
        exporting = best_ms(lambda model=model: jointleaf.to_onnx(model), 3)
        data = jointleaf.to_onnx(model).SerializeToString()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

        def run(X: np.ndarray, session: onnxruntime.InferenceSession = session) -> np.ndarray:
            return session.run(None, {"X": X})[0][:, 0]

        numbers = (
            best_ms(lambda model=model: model.predict(new)),
            best_ms(lambda run=run: run(new)),
            best_ms(lambda model=model: model.predict(new[:1]), 100),
            best_ms(lambda run=run: run(new[:1]), 100),
            len(data) / 1e3,
            exporting,
        )
        differ = np.abs(run(new) - model.predict(new)).max() / spread(model, new)
        print(f"{title:22}", *(f"{value:14.2f}" for value in numbers), f"{differ:14.1e}")


def spread(model: JOPLEnRegressor, X: np.ndarray) -> float:
    return float(np.std(model.predict(X)))


if __name__ == "__main__":
    main()
