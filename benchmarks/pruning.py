"""Size and test error of models before and after `prune`.

    python benchmarks/pruning.py --data FOLDER [--fewer 4]

Nine regression sets of PMLB, from 159 to 40,768 rows, 80/20 splits with seed 0. LightGBM's
trees, 100 of 16 leaves, fitted jointly with jointleaf's defaults, then pruned with the defaults of
`prune`, or, with `--fewer`, to that many times fewer cells. Prints a table.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.model_selection import train_test_split

from jointleaf import JOPLEnRegressor, prune
from jointleaf.datasets import load_pmlb
from jointleaf.partitions import LightGBMPartitioner, RandomForestPartitioner

SETS = (
    "589_fri_c2_1000_25", "560_bodyfat", "4544_GeographicalOriginalofMusic", "599_fri_c2_1000_5",
    "195_auto_price", "1030_ERA", "522_pm10", "574_house_16H", "564_fried",
)  # fmt: skip
PARTITIONERS = {"lightgbm": LightGBMPartitioner, "random_forest": RandomForestPartitioner}
HEAD = (
    "set", "training rows", "columns", "cells before", "after", "times fewer", "test MSE before",
    "after", "ratio", "fit, s", "prune, s",
)  # fmt: skip


def evaluate(name: str, folder: str, partitioner: str, fewer: int | None) -> list[str]:
    """One line of the table."""
    X, y = load_pmlb(name, folder=folder, return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y.astype(float), test_size=0.2, random_state=0
    )
    start = time.perf_counter()
    grower = PARTITIONERS[partitioner](100, 16)
    model = JOPLEnRegressor(grower, random_state=0).fit(X_train, y_train)
    middle = time.perf_counter()
    n_cells = None if fewer is None else model.solution_.layout.n_cells // fewer
    small = prune(model, X_train, y_train, n_cells=n_cells)
    end = time.perf_counter()
    before, after = (float(np.mean((m.predict(X_test) - y_test) ** 2)) for m in (model, small))
    record = small.pruning_
    factor = record.n_cells_before / record.n_cells_after
    cells = [record.n_cells_before, record.n_cells_after, f"{factor:.1f}"]
    errors = [f"{before:.4g}", f"{after:.4g}", f"{after / before:.3f}"]
    seconds = [f"{middle - start:.0f}", f"{end - middle:.0f}"]
    return [str(entry) for entry in [name, *X_train.shape, *cells, *errors, *seconds]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with PMLB sets")
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--partitioner", choices=PARTITIONERS, default="lightgbm")
    parser.add_argument("--fewer", type=int, help="prune to so many times fewer cells")
    arguments = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |")
    print("|---" * len(HEAD) + "|")
    for name in arguments.sets:
        line = evaluate(name, arguments.data, arguments.partitioner, arguments.fewer)
        print("| " + " | ".join(line) + " |", flush=True)


if __name__ == "__main__":
    main()
