"""Default fits of a million generated rows: error, CPU seconds and peak memory.

    python -m benchmarks.million [--rows 200000 1000000] [--models jointleaf catboost]

Friedman's first function with noise and 20 columns, as in `benchmarks.cliffs`: the error is the
part of the signal that is not explained, on 20,000 new rows. One thread, one process a fit. The
memory is that of the whole process at its peak, with the table (160 MB for a million rows).
"""

from __future__ import annotations

import argparse
import resource

from benchmarks.accuracy.isolation import run_isolated
from benchmarks.accuracy.models import select_models
from benchmarks.accuracy.models.base import Model
from benchmarks.cliffs import evaluate

FUNCTION, SEED = "friedman", 0


def measure(model: Model, n: int) -> tuple[float, float, float, float]:
    """Return the error, CPU seconds of fit and of predicting 20,000 rows, and the peak in GB."""
    values = evaluate(model, FUNCTION, SEED, n)
    return *values, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", nargs="+", type=int, default=[200_000, 1_000_000])
    parser.add_argument("--models", nargs="+", default=["jointleaf", "catboost"])
    args = parser.parse_args()
    print("| rows | model | signal left | fit, CPU s | predict, CPU s | peak, GB |")
    print("|---|---|---|---|---|---|")
    for n in args.rows:
        for model in select_models(args.models):
            error, fit_s, predict_s, peak = run_isolated(measure, model, n)
            print(
                f"| {n:,} | {model.label} | {error:.6f} | {fit_s:.1f} | {predict_s:.2f} "
                f"| {peak:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
