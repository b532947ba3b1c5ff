"""Intervals of 90 %: coverage and width, against conformalised quantile regression.

    python -m benchmarks.intervals run --data FOLDER [--splits 5] [--output FILE]
    python -m benchmarks.intervals report [--output FILE]

60 regression sets of the groups `paper` and `uci` of `benchmarks.accuracy`: all of 150 to 3,400
rows but repeats, and generated `fri` sets in the order of the CRC-32 of their names; a fifth is
test rows. The other intervals are those of Romano, Patterson and Candes (2019) by MAPIE: LightGBM's
default models of the quantiles 0.05 and 0.95, fitted to three quarters of the training rows and
conformalised on the last. Widths are means in standard deviations of the training target. What was
run is kept in the file, and not run again.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
import zlib
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from benchmarks.accuracy.loading import load
from benchmarks.accuracy.sets import select_sets
from lightgbm import LGBMRegressor

from jointleaf import JOPLEnRegressor

LEAST_ROWS, MOST_ROWS, N_SETS, COVERAGE = 150, 3400, 60, 0.9
FIELDS = "set", "seed", "rows", "model", "coverage", "width", "interval_score", "seconds"
RESULTS = Path(__file__).parent / "results" / "intervals.csv"
#: The same rows under several names.
REPEATS = ("195_auto_price", "207_autoPrice", "230_machine_cpu", "561_cpu")
#: On which the rules of the default intervals were chosen.
CHOICE = (
    "522_pm10", "547_no2", "1030_ERA", "666_rmftsa_ladata", "623_fri_c4_1000_10",
    "556_analcatdata_apnea2", "519_vinnie", "uci.housing", "uci.autompg", "uci.concrete",
    "uci.airfoil", "uci.energy", "uci.wine", "uci.yacht", "uci.solar", "uci.skillcraft",
    "uci.stock", "uci.forest", "uci.sml", "uci.parkinsons", "uci.protein",
)  # fmt: skip


def conformalised_quantiles(X, y, X_test, seed: int):
    """Intervals of conformalised quantile regression."""
    from mapie.regression import ConformalizedQuantileRegressor

    order = np.random.default_rng(seed).permutation(len(y))
    proper, fresh = np.split(order, [3 * len(y) // 4])
    model = LGBMRegressor(
        objective="quantile", alpha=0.5, random_state=seed, verbosity=-1, n_jobs=1
    )
    intervals = ConformalizedQuantileRegressor(model, confidence_level=COVERAGE)
    intervals.fit(rows_of(X, proper), y[proper]).conformalize(rows_of(X, fresh), y[fresh])
    return intervals.predict_interval(X_test, symmetric_correction=True)[1][:, :, 0]


def jointleaf_intervals(X, y, X_test, seed: int):
    """Intervals of the default fit."""
    return JOPLEnRegressor(random_state=seed).fit(X, y).predict_interval(X_test, COVERAGE)


MODELS = {"jointleaf": jointleaf_intervals, "LightGBM CQR": conformalised_quantiles}


def rows_of(X, index):
    return X.iloc[index] if hasattr(X, "iloc") else X[index]


def judged(intervals, y, unit: float) -> dict[str, float]:
    """Coverage, mean width and mean interval score."""
    low, high = intervals.T
    misses = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    scores = high - low + 2 / (1 - COVERAGE) * misses
    return {
        "coverage": float(np.mean(misses == 0)),
        "width": float(np.mean(high - low)) / unit,
        "interval_score": float(np.mean(scores)) / unit,
    }


def run(args: argparse.Namespace) -> None:
    known = set()
    if args.output.exists():
        with args.output.open() as file:
            known = {(r["set"], int(r["seed"]), r["model"]) for r in csv.DictReader(file)}
    entries = [e for e in interval_sets() if not args.sets or e.name in args.sets]
    with args.output.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not known:
            writer.writeheader()
        for seed in range(args.splits):
            for entry in entries:
                todo = [name for name in MODELS if (entry.name, seed, name) not in known]
                for record in compared(entry, seed, todo, args.data):
                    writer.writerow(record)
                    file.flush()
                    print(*record.values(), flush=True)


def interval_sets():
    """Return the sets."""
    entries = [e for g in ("paper", "uci") for e in select_sets(task="regression", group=g)]
    entries = [e for e in entries if LEAST_ROWS <= e.rows <= MOST_ROWS and e.name not in REPEATS]
    generated = sorted(
        (e for e in entries if "_fri_" in e.name), key=lambda e: zlib.crc32(e.name.encode())
    )
    others = [e for e in entries if "_fri_" not in e.name]
    return others + generated[: N_SETS - len(others)]


def compared(entry, seed: int, names, folder: Path):
    """Yield the results of models on one split of a set."""
    if not names:
        return
    table = load(entry, folder)
    order = np.random.default_rng(seed).permutation(len(table.y))
    test, train = np.split(order, [len(order) // 5])
    X, y = rows_of(table.X, train), table.y[train]
    for name in names:
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            intervals = MODELS[name](X, y, rows_of(table.X, test), seed)
        seconds = round(time.process_time() - start, 2)
        numbers = judged(intervals, table.y[test], float(np.std(y)))
        numbers = {key: round(value, 5) for key, value in numbers.items()}
        known = {"set": entry.name, "seed": seed, "rows": len(order), "model": name}
        yield {**known, **numbers, "seconds": seconds}


def report(args: argparse.Namespace) -> None:
    """Print means over sets, of those that rules were chosen on and of the others."""
    by_set: dict[str, dict[str, list]] = defaultdict(lambda: defaultdict(list))
    with args.output.open() as file:
        for row in csv.DictReader(file):
            by_set[row["set"]][row["model"]].append([float(row[name]) for name in FIELDS[4:]])
    groups = {
        "sets that rules were chosen on": [name for name in by_set if name in CHOICE],
        "other sets": [name for name in by_set if name not in CHOICE],
    }
    print("| sets | model | splits | coverage | lowest | width | width / CQR | score / CQR | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for title, names in groups.items():
        names = [name for name in names if len(by_set[name]) == len(MODELS)]
        if not names:
            continue
        means = {m: np.array([np.mean(by_set[s][m], axis=0) for s in names]) for m in MODELS}
        n_splits = sum(len(by_set[s]["jointleaf"]) for s in names)
        for model, values in means.items():
            peer = means["LightGBM CQR"]
            finite = np.isfinite(values).all(axis=1) & np.isfinite(peer).all(axis=1)
            ratios = np.exp(np.mean(np.log(values[finite, 1:3] / peer[finite, 1:3]), axis=0))
            width = np.exp(np.mean(np.log(values[finite, 1])))
            print(
                f"| {len(names)} {title} | {model} | {n_splits} | {values[:, 0].mean():.3f} | "
                f"{values[:, 0].min():.3f} | {width:.3f} | {ratios[0]:.3f} | {ratios[1]:.3f} | "
                f"{values[:, 3].sum():.0f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("run", "report"))
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sets", nargs="+", help="only these")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    {"run": run, "report": report}[args.command](args)


if __name__ == "__main__":
    main()
