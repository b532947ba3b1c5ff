"""Time and peak memory of default fits over a grid of rows, columns and classes.

    python -m benchmarks.limits [--minutes 25] [--refit] [--most 20] [--seconds 300]
    python -m benchmarks.limits --report [--picture docs/images/limits.png]

Every cell is one fit of jointleaf's and one of LightGBM's defaults on the same generated rows, each
in a process of its own on one thread: CPU seconds, the peak of memory above what the process had
before the fit, and the score of new rows (R^2, or accuracy and log-loss). The report adds what
`estimate_memory` says. Cells in which fits once ran away come first, then the others in the order
of the time that LightGBM is expected to take; runs that are in the file of results are not repeated
(`--refit`: those of jointleaf are). Cells in which LightGBM is expected to take more than `--most`
seconds are left out, and a fit ends after `--seconds`; the report names both. Peaks are read from
/proc, so that this runs on Linux alone.
"""

from __future__ import annotations

import os

for _name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import argparse  # noqa: E402
import csv  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from functools import partial  # noqa: E402
from itertools import product  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

RESULTS = Path("benchmarks/results/limits.csv")
MODELS = ("lightgbm", "jointleaf")
FIELDS = ("rows", "columns", "classes", "model", "fit_s", "peak_mb", "score", "loss")
ROWS = (100, 1_000, 10_000, 100_000, 500_000)
COLUMNS = (5, 50, 500, 5_000)
CLASSES = (0, 2, 20, 200)  # 0: regression
#: Of earlier reports of fits that ran away.
REPORTED = (
    (1500, 8, 200), (10_500, 20, 12), (11_000, 20, 20), (10_500, 20, 35),
    (1000, 2000, 0), (50, 5000, 0), (400, 1500, 0), (400, 1500, 2),
)  # fmt: skip
MOST_NUMBERS = 2.5e7  # rows times columns of a cell
N_TEST = 2000
N_SIGNAL = 8  # columns that tell the class
CLUSTERS = 3  # of a class
LIMIT = 10.0  # times LightGBM's time
#: By the smallest number of classes that they stand for.
COLOURS = {0: "#33658a", 2: "#4a7c3a", 10: "#b08d57", 100: "#c1440e"}

Key = tuple[int, int, int, str]


class Cell(NamedTuple):
    """Numbers of rows, columns and classes; no classes are a regression."""

    rows: int
    columns: int
    classes: int

    @property
    def expected(self) -> float:
        """About the seconds that LightGBM takes: 100 rounds of a tree for every class."""
        n_leaves, n_bins = min(31, 1 + self.rows // 40), min(255, 1 + self.rows // 3)
        tree = self.columns * (1e-8 * n_leaves * n_bins + 4e-9 * self.rows)
        return 100 * (1 if self.classes <= 2 else self.classes) * (1e-4 + tree)


def cells() -> list[Cell]:
    """Return the grid, without tables that are too large, and with ten rows a class at least."""
    grid = [Cell(*numbers) for numbers in (*product(ROWS, COLUMNS, CLASSES), *REPORTED)]
    used = [c for c in grid if c.rows * c.columns <= MOST_NUMBERS and c.classes <= c.rows / 5]
    return sorted(used, key=lambda cell: (cell not in REPORTED, cell.expected))


def generate(cell: Cell, n: int, seed: int) -> tuple[NDArray, NDArray]:
    """Return rows: a function of five columns with noise, or three clusters for every class."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, cell.columns))
    noise = rng.standard_normal(n)
    if not cell.classes:
        y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * X[:, 4] + 0.3 * noise
        return X, y
    k = min(N_SIGNAL, cell.columns)
    centres = 2.5 * np.random.default_rng(1).standard_normal((CLUSTERS * cell.classes, k))
    cluster = rng.integers(len(centres), size=n)
    cluster[: cell.classes] = np.arange(cell.classes)[:n]  # of every class one row at least
    X[:, :k] += centres[cluster]
    return X, cluster % cell.classes


# -- one fit -------------------------------------------------------------------------------------


def measure(name: str, cell: Cell) -> dict[str, Any]:
    """Fit one model in this process; return what is written to the file."""
    from lightgbm import LGBMClassifier, LGBMRegressor

    import jointleaf as jl

    warnings.simplefilter("ignore")
    X, y = generate(cell, cell.rows, 0)
    X_test, y_test = generate(cell, N_TEST, 2)
    kinds: dict[str, Any] = {
        "lightgbm": (LGBMRegressor, LGBMClassifier),
        "jointleaf": (jl.JOPLEnRegressor, jl.JOPLEnClassifier),
    }
    options = {"verbosity": -1} if name == "lightgbm" else {}
    kinds[name][0](n_jobs=1, random_state=0, **options).fit(X[:60, :5], X[:60, 0])  # imports
    model = kinds[name][cell.classes > 0](n_jobs=1, random_state=0, **options)
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before, start = _memory("VmRSS"), time.process_time()
    model.fit(X, y)
    result = {
        **cell._asdict(),
        "model": name,
        "fit_s": round(time.process_time() - start, 3),
        "peak_mb": round((_memory("VmHWM") - before) / 1e6, 1),
        "score": round(float(model.score(X_test, y_test)), 4),
        "loss": "",
    }
    if cell.classes:
        probability = model.predict_proba(X_test)[np.arange(N_TEST), y_test]
        result["loss"] = round(float(-np.log(np.maximum(probability, 1e-15)).mean()), 4)
    return result


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))


# -- all of them ---------------------------------------------------------------------------------


def read(path: Path) -> dict[Key, dict[str, Any]]:
    """Return all runs in the file."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(int(r["rows"]), int(r["columns"]), int(r["classes"]), r["model"]): r for r in rows}


def run(path: Path, minutes: float, most: float, seconds: float, *, refit: bool = False) -> None:
    """Run what is not in the file yet, until the time is over."""
    done, end = read(path), time.monotonic() + 60 * minutes
    if refit:
        done = {key: row for key, row in done.items() if key[3] != "jointleaf"}
    for cell, name in product(cells(), MODELS):
        if (*cell, name) in done or cell.expected > most:
            continue
        if time.monotonic() > end:
            break
        command = [sys.executable, "-m", "benchmarks.limits", "--cell", name, *map(str, cell)]
        limit = partial(resource.setrlimit, resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        process = subprocess.run(
            command, capture_output=True, text=True, check=False, preexec_fn=limit
        )
        if process.returncode:
            print(f"{name} {cell}: {process.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            continue
        done[(*cell, name)] = json.loads(process.stdout)
        print(process.stdout.strip(), flush=True)
        _write(path, done)


def _write(path: Path, done: dict[Key, dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(done[key] for key in sorted(done))


class Comparison(NamedTuple):
    """What a cell's two runs say of one another."""

    cell: Cell
    seconds: tuple[float, float]  # LightGBM's and jointleaf's
    peaks: tuple[float, float]  # MB
    estimate: float  # MB
    scores: tuple[float, float]  # R^2 or accuracy
    losses: tuple[float, float]  # log-loss; NaN in regression


def comparisons(results: dict[Key, dict[str, Any]]) -> list[Comparison]:
    """Return the cells that both models were run in."""
    found = []
    for cell in cells():
        if not all((*cell, name) in results for name in MODELS):
            continue
        pair = [results[(*cell, name)] for name in MODELS]

        def numbers(field: str, pair: list[dict[str, Any]] = pair) -> tuple[float, float]:
            first, second = (float(row[field] or "nan") for row in pair)
            return first, second

        fields = (numbers(field) for field in ("fit_s", "peak_mb"))
        found.append(Comparison(cell, *fields, estimate(cell), numbers("score"), numbers("loss")))
    return found


def estimate(cell: Cell) -> float:
    """Return what `estimate_memory` says of a default fit to the rows of a cell, in MB."""
    import jointleaf as jl

    kind = jl.JOPLEnClassifier if cell.classes else jl.JOPLEnRegressor
    model = kind(n_jobs=1, random_state=0)
    return jl.estimate_memory(model, *generate(cell, cell.rows, 0)).total / 1e6


def report(found: list[Comparison]) -> str:
    """Return a table of all cells, and what the worst of them are."""
    lines = [
        "| rows | columns | classes | fit, s | times LightGBM's | peak, MB | LightGBM's, MB "
        "| estimate / peak | R² or accuracy (LightGBM) | log-loss (LightGBM) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for c in found:
        losses = "" if np.isnan(c.losses[1]) else f"{c.losses[1]:.3f} ({c.losses[0]:.3f})"
        lines.append(
            f"| {c.cell.rows:,} | {c.cell.columns:,} | {c.cell.classes or '-'} | {c.seconds[1]:.1f}"
            f" | {c.seconds[1] / c.seconds[0]:.1f} | {c.peaks[1]:.0f} | {c.peaks[0]:.0f}"
            f" | {c.estimate / c.peaks[1]:.2f} | {c.scores[1]:.3f} ({c.scores[0]:.3f}) | {losses} |"
        )
    return "\n".join(lines)


def draw(found: list[Comparison], path: Path) -> None:
    """Draw time and memory against LightGBM's, and the estimate against the measured peak."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
    panels = (
        ([c.seconds for c in found], "CPU seconds", (1.0, LIMIT)),
        ([c.peaks for c in found], "peak memory, MB", (1.0, 3.0)),
        ([(c.peaks[1], c.estimate) for c in found], "memory, MB", (1 / 1.5, 1.5)),
    )
    colours = [COLOURS[max(k for k in COLOURS if k <= c.cell.classes)] for c in found]
    for axis, (pairs, unit, factors) in zip(axes, panels, strict=True):
        values = np.maximum(np.array(pairs), 1e-2)
        axis.scatter(*values.T, c=colours, s=26, alpha=0.85, linewidths=0)
        ends = np.array([values.min() * 0.7, values.max() * 1.4])
        for factor in factors:
            axis.plot(ends, factor * ends, color="0.6", lw=0.8, zorder=0)
            axis.annotate(f"{factor:.2g}x", (ends[1], factor * ends[1]), fontsize=8, color="0.4")
        axis.set(xscale="log", yscale="log", title=unit, xlim=ends * [1, 1.6])
    for axis, labels in zip(
        axes, (("LightGBM", "jointleaf"), ("LightGBM", "jointleaf"), ("measured", "estimated")),
        strict=True,
    ):  # fmt: skip
        axis.set(xlabel=labels[0], ylabel=labels[1])
        axis.spines[["top", "right"]].set_visible(False)
    for k, colour in COLOURS.items():
        label = {0: "regression", 2: "2 classes", 10: "12 to 35 classes", 100: "200 classes"}[k]
        axes[0].scatter([], [], c=colour, s=26, label=label)
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--most", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--refit", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        print(json.dumps(measure(arguments.cell[0], Cell(*map(int, arguments.cell[1:])))))
        return
    if not (arguments.report or arguments.picture):
        limits = arguments.minutes, arguments.most, arguments.seconds
        run(arguments.results, *limits, refit=arguments.refit)
        return
    found = comparisons(read(arguments.results))
    print(report(found))
    absent = [c for c in cells() if c not in {comparison.cell for comparison in found}]
    print("\nNot run, or not to the end:", ", ".join(map(str, map(tuple, absent))))
    if arguments.picture:
        draw(found, arguments.picture)


if __name__ == "__main__":
    main()
