"""Errors and times against the number of rows, in small steps: there must be no cliff.

    python -m benchmarks.cliffs [--seeds 0 1 2] [--max-rows 50000] [--models jointleaf lightgbm]
    python -m benchmarks.cliffs --report [--picture docs/images/cliffs.png]

Six generated functions (`benchmarks.generated`), 500 to 50,000 training rows in steps of 1.25,
each sample the beginning of the next larger one. The error is the part of the signal that is not
explained, on 20,000 new rows without noise: MSE over the variance of the truth, for two classes the
divergence from the true probabilities over that of the class shares. CPU seconds, one thread, one
process a fit. Runs that are in the file of results are not repeated.
"""

from __future__ import annotations

import os

for _name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON", "VECLIB_MAXIMUM"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import argparse  # noqa: E402
import csv  # noqa: E402
import sys  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from itertools import pairwise  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from benchmarks.accuracy.isolation import run_isolated  # noqa: E402
from benchmarks.accuracy.models import MODELS, select_models  # noqa: E402
from benchmarks.accuracy.models.base import Model  # noqa: E402
from benchmarks.accuracy.scoring import fit_predict  # noqa: E402
from benchmarks.accuracy.tables import OURS  # noqa: E402
from benchmarks.generated import FUNCTIONS, generate  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from scipy.special import rel_entr  # noqa: E402

RESULTS = Path("benchmarks/results/cliffs.csv")
FIELDS = ("function", "seed", "rows", "model", "error", "fit_s", "predict_s")
MIN_ROWS, MAX_ROWS, STEP = 500, 50_000, 1.25
N_TEST, TEST_SEED = 20_000, 1_000_000
NOISE_LIMIT = 3.0  # standard errors
COLOURS = ("#c1440e", "#33658a", "#4a7c3a", "#8a6d9e", "#b08d57")

Key = tuple[str, int, int, str]


def sizes(max_rows: int = MAX_ROWS) -> list[int]:
    """Numbers of training rows: steps of 1.25, and the largest itself."""
    count = int(np.log(MAX_ROWS / MIN_ROWS) / np.log(STEP)) + 1
    steps = [round(MIN_ROWS * STEP**k) for k in range(count)] + [MAX_ROWS]
    return [n for n in steps if n <= max_rows]


def evaluate(model: Model, name: str, seed: int, n: int) -> tuple[float, float, float]:
    """Return the error, and the CPU seconds of fit and of predicting 20,000 rows."""
    warnings.simplefilter("ignore")
    X, y, _ = generate(name, n, seed)
    X_test, _, truth = generate(name, N_TEST, TEST_SEED)
    fitted = fit_predict(model, FUNCTIONS[name].task, X, y, X_test)
    return unexplained(FUNCTIONS[name].task, truth, fitted.values), fitted.fit_s, fitted.predict_s


def unexplained(task: str, truth: NDArray, predicted: NDArray) -> float:
    """Return the part of the signal that predictions do not explain: 0 perfect, 1 a constant."""
    if task == "regression":
        return float(np.mean((predicted - truth) ** 2) / np.var(truth))
    return _divergence(truth, predicted) / _divergence(truth, np.full_like(truth, truth.mean()))


def _divergence(truth: NDArray, predicted: NDArray) -> float:
    p = np.clip(predicted, 1e-15, 1 - 1e-15)
    return float(np.mean(rel_entr(truth, p) + rel_entr(1 - truth, 1 - p)))


def read(path: Path) -> dict[Key, tuple[float, float]]:
    """Return error and seconds of fit of all runs in the file."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            (row["function"], int(row["seed"]), int(row["rows"]), row["model"]): (
                float(row["error"]),
                float(row["fit_s"]),
            )
            for row in csv.DictReader(file)
        }


def run(
    models: Sequence[Model], names: Sequence[str], seeds: Sequence[int], max_rows: int, path: Path
) -> None:
    """Run what is not in the file yet, seed after seed, and append to it."""
    done = read(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n")
    runs = [
        (model, name, seed, n)
        for seed in seeds
        for name in names
        for n in sizes(max_rows)
        for model in models
        if (name, seed, n, model.name) not in done and model.takes(FUNCTIONS[name].task, n)
    ]
    for count, (model, name, seed, n) in enumerate(runs, 1):
        what = f"{count} of {len(runs)}: {name}, seed {seed}, {n} rows, {model.name}"
        try:
            error, fit_s, predict_s = run_isolated(evaluate, model, name, seed, n)
        except RuntimeError as failure:
            print(f"{what}: {failure}", file=sys.stderr, flush=True)
            continue
        with path.open("a", newline="") as file:
            line = [name, seed, n, model.name, f"{error:.6g}", fit_s, predict_s]
            csv.writer(file, lineterminator="\n").writerow(line)
        print(f"{what}: {error:.5f} in {fit_s:.2f} s", flush=True)


def curves(
    results: dict[Key, tuple[float, float]], name: str, model: str
) -> tuple[NDArray, NDArray, NDArray]:
    """Return rows (k,), and the logarithms (seeds, k) of errors and times; NaN where not run."""
    found = {
        (seed, n): value
        for (function, seed, n, who), value in results.items()
        if (function, who) == (name, model)
    }
    rows = sorted({n for _, n in found})
    seeds = sorted({seed for seed, _ in found})
    missing = (np.nan, np.nan)
    table = np.array([[found.get((seed, n), missing) for n in rows] for seed in seeds])
    table = table.reshape(len(seeds), len(rows), 2)
    return np.array(rows), np.log(table[..., 0]), np.log(np.maximum(table[..., 1], 1e-3))


def report(results: dict[Key, tuple[float, float]]) -> str:
    """Return a table: where errors rise beyond noise from one size to the next, and times jump."""
    lines = [
        "| function | model | seeds | error, first to last | largest rise of the error "
        "| rises beyond noise | time, first to last, s | largest step of the time |",
        "|---|---|---|---|---|---|---|---|",
    ]
    models = [name for name in MODELS if any(key[3] == name for key in results)]
    for name in FUNCTIONS:
        for model in models:
            rows, errors, times = curves(results, name, model)
            if len(rows) < 2:
                continue
            lines.append(_report_line(FUNCTIONS[name].label, model, rows, errors, times))
    return "\n".join(lines)


def _report_line(label: str, model: str, rows: NDArray, errors: NDArray, times: NDArray) -> str:
    rises = np.diff(errors, axis=1)  # of the same seed
    counts = np.sum(~np.isnan(rises), axis=0)
    mean, has_noise = np.nanmean(rises, axis=0), counts > 1
    beyond = "needs two seeds"
    if has_noise.any():
        # At least the noise of all steps together: that of one is itself noisy with few seeds.
        variances = np.zeros(len(mean))
        variances[has_noise] = np.nanvar(rises[:, has_noise], axis=0, ddof=1)
        variances = np.maximum(variances, variances[has_noise].mean())
        where = np.flatnonzero(mean > NOISE_LIMIT * np.sqrt(variances / counts))
        steps = list(pairwise(rows))
        beyond = ", ".join(f"{steps[k][0]:,} to {steps[k][1]:,}" for k in where) or "none"
    first, last = np.exp(np.nanmean(errors, axis=0)[[0, -1]])
    seconds = np.exp(np.nanmean(times, axis=0))
    jumps = np.exp(np.nanmean(np.diff(times, axis=1), axis=0))
    runs = np.sum(~np.isnan(errors), axis=0)
    n_seeds = str(runs[0]) if runs[0] == runs[-1] else f"{runs[0]} to {runs[-1]}"
    k, j = int(mean.argmax()), int(jumps.argmax())
    cells = [
        label, MODELS[model].label, n_seeds, f"{first:.4f} to {last:.4f}",
        f"{100 * np.expm1(mean[k]):+.1f} % at {rows[k + 1]:,}", beyond,
        f"{seconds[0]:.2f} to {seconds[-1]:.2f}", f"{jumps[j]:.2f}x at {rows[j + 1]:,}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def draw(results: dict[Key, tuple[float, float]], path: Path) -> None:
    """Save the picture: errors above, times below, a column for every function."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    models = [name for name in MODELS if any(key[3] == name for key in results)]
    names = [name for name in FUNCTIONS if any(key[0] == name for key in results)]
    figure = Figure(figsize=(3.0 * len(names), 5.6), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False, sharex=True)
    for column, name in enumerate(names):
        for k, model in enumerate(models):
            rows, errors, times = curves(results, name, model)
            for ax, values in zip(axes[:, column], (errors, times), strict=True):
                colour = COLOURS[0] if model == OURS else COLOURS[1 + k % (len(COLOURS) - 1)]
                points = np.exp(values)
                everywhere = np.broadcast_to(rows, points.shape)
                ax.scatter(everywhere, points, s=6, color=colour, alpha=0.25, lw=0)
                label = MODELS[model].label
                if len(rows):
                    mean = np.exp(np.nanmean(values, axis=0))
                    ax.plot(rows, mean, color=colour, lw=1.6, label=label)
        axes[0, column].set_title(FUNCTIONS[name].label, fontsize=10)
        axes[1, column].set_xlabel("training rows")
    for ax in axes.flat:
        ax.set(xscale="log", yscale="log")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(NullLocator())
        ax.tick_params(labelsize=7)
        ax.tick_params(axis="x", labelrotation=45)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("signal not explained")
    axes[1, 0].set_ylabel("fit, CPU seconds")
    axes[0, 0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--max-rows", type=int, default=MAX_ROWS)
    parser.add_argument("--models", nargs="+", default=["jointleaf"], help="as of the accuracy run")
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=list(FUNCTIONS))
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="run nothing")
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    if not args.report:
        models = select_models(args.models)
        run(models, args.functions, args.seeds, args.max_rows, args.output)
    results = read(args.output)
    print(report(results))
    if args.picture:
        draw(results, args.picture)


if __name__ == "__main__":
    main()
