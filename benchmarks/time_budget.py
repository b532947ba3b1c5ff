"""What a time budget gives: R2 and seconds of default fits to Friedman's function, by budget.

python benchmarks/time_budget.py --rows 5000 100000 --budgets 1 3 10 30
"""

from __future__ import annotations

import argparse
import time
import warnings

from sklearn.datasets import make_friedman1

from jointleaf import JOPLEnRegressor


def main() -> None:
    """Print one line for every number of rows and budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[5000, 100_000])
    parser.add_argument("--budgets", type=float, nargs="+", default=[1.0, 3.0, 10.0, 30.0])
    args = parser.parse_args()
    new, new_y = make_friedman1(5000, noise=1.0, random_state=1)
    for n_rows in args.rows:
        X, y = make_friedman1(n_rows, noise=1.0, random_state=0)
        for budget in [*args.budgets, None]:
            model = JOPLEnRegressor(time_budget=budget, random_state=0)
            start = time.perf_counter(), time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                model.fit(X, y)
            wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
            left_out = ", ".join(model.report_.left_out) or "nothing"
            print(
                f"{n_rows:>7,} rows, budget {budget}: {wall:.1f} s ({cpu:.1f} s of CPU), "
                f"R2 {model.score(new, new_y):.4f}, left out: {left_out}",
                flush=True,
            )


if __name__ == "__main__":
    main()
