"""The paper's multitask figures over several random splits: means and standard errors.

    python -m experiments.multitask_splits --data FOLDER [--sets sarcos] [--splits 10]

Every split is traced and chosen as in `experiments.multitask`, on smaller grids: paths of JOPLEn
DL end where tasks have more features than its chosen points ever had. What is in the file is not
run again.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import require
from experiments.multitask import GRIDS, Grid, choose, fit_chosen, load, trace
from experiments.multitask_data import MultitaskData
from experiments.multitask_paths import BOUTS, DL, JOPLEN, Point
from experiments.multitask_peers import fit_lightgbm, fit_ridge
from experiments.multitask_report import COLORS, SHOWN, markdown

__all__ = ["SECONDS", "SPLIT_GRIDS", "Splits", "draw", "run_splits", "summary"]

#: Of one split, on one core.
SECONDS = {"sarcos": 60.0, "chem": 1200.0}
SPLIT_GRIDS = {
    "sarcos": replace(
        GRIDS["sarcos"],
        most=6.0,
        bias_strengths=(0.01,),
        universal_prices=(0.01, 0.1),
        task_prices=(0.001, 0.003, 0.01),
        n_ratios=3,
    ),
    "chem": replace(GRIDS["chem"], bias_strengths=(0.1,), n_ratios=3),
}
_COLUMNS = ("set", "split", "method", "task", "test_mse", "common", "features")
_EXTRA = {"ridge": "#7a7a7a", "LightGBM": "#3d4450"}


class Splits:
    """The file of results: a row for every set, split, method and task."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="") as stream:
                self.rows = list(csv.DictReader(stream))

    def has(self, name: str, split: int) -> bool:
        """Whether a split was run."""
        return any((row["set"], row["split"]) == (name, str(split)) for row in self.rows)

    def splits(self, name: str) -> list[str]:
        """Numbers of the splits that were run."""
        return sorted({row["split"] for row in self.rows if row["set"] == name}, key=int)

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the rows of a whole split at once."""
        self.rows += [{key: str(row[key]) for key in _COLUMNS} for row in rows]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, _COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)

    def methods(self, name: str) -> list[str]:
        """Methods of a set, in the order of the file."""
        return list(dict.fromkeys(row["method"] for row in self.rows if row["set"] == name))

    def table(self, name: str, method: str, column: str) -> NDArray[np.float64]:
        """A column, (splits, tasks); NaN where a split has no such point."""
        splits = self.splits(name)
        own = [row for row in self.rows if (row["set"], row["method"]) == (name, method)]
        tasks = list(dict.fromkeys(row["task"] for row in own))
        table = np.full((len(splits), len(tasks)), np.nan)
        for row in own:
            table[splits.index(row["split"]), tasks.index(row["task"])] = float(row[column])
        return table


def run_splits(name: str, folder: Path, n_splits: int, file: Splits, grid: Grid) -> None:
    """Run the splits of a set of tasks that are not in the file."""
    for split in range(n_splits):
        if not file.has(name, split):
            print(f"\n{name}, split {split + 1} of {n_splits}")
            file.add(run_split(name, load(name, folder, split), split, grid))


def run_split(
    name: str, data: MultitaskData, split: int, grid: Grid
) -> list[dict[str, str | int | float]]:
    """Trace, choose and fit one split; gives the rows of the file."""
    _, chosen = fit_chosen(choose(trace(data, grid)), data, grid)
    rows: list[dict[str, str | int | float]] = []
    for method, point in chosen.items():
        rows += _rows(name, split, method, data, point.mse["test"], point)
    for peer in (fit_ridge(data), fit_lightgbm(data)):
        rows += _rows(name, split, peer.name, data, np.array(peer.mse["test"]), None)
    return rows


def _rows(
    name: str, split: int, method: str, data: MultitaskData, mse: NDArray, point: Point | None
) -> list[dict[str, str | int | float]]:
    d = len(data.feature_names)
    features = [d] * len(mse) if point is None else point.per_task.tolist()
    values = (name, split, method)
    return [
        dict(
            zip(
                _COLUMNS,
                (*values, task.name, round(float(error), 5), point.n_common if point else 0, own),
                strict=True,
            )
        )
        for task, error, own in zip(data.tasks, mse, features, strict=True)
    ]


def mean_and_error(values: NDArray) -> tuple[NDArray, NDArray]:
    """Means over splits and their standard errors, which NaN has no part in."""
    n = np.sum(np.isfinite(values), axis=0)
    spread = np.nanstd(values, axis=0, ddof=1) if len(values) > 1 else np.full(n.shape, np.nan)
    return np.nanmean(values, axis=0), spread / np.sqrt(n)


def summary(name: str, file: Splits) -> str:
    """Means and standard errors, and JOPLEn DL against the method it was chosen for."""
    rows = []
    for method in file.methods(name):
        errors = file.table(name, method, "test_mse").mean(axis=1)
        features = file.table(name, method, "features").mean(axis=1)
        texts = ["{:.4f} ± {:.4f}".format(*map(float, mean_and_error(errors)))]
        texts.append("{:.1f} ± {:.1f}".format(*map(float, mean_and_error(features))))
        rows.append(
            [method, str(int(np.isfinite(errors).sum())), *texts, _wins(name, method, file)]
        )
    head = ["method", "splits", "mean test MSE", "features per task", "lower error, fewer features"]
    return markdown(head, rows)


def _wins(name: str, method: str, file: Splits) -> str:
    """In how many splits the mean error is lower than the rival's, and features are fewer."""
    rival = next((r for r in (DL, BOUTS) if f"at {r}'s" in method), None)
    if rival is None:
        return ""
    counts = []
    for column in ("test_mse", "features"):
        mine, other = (file.table(name, m, column).mean(axis=1) for m in (method, rival))
        counts.append(f"{int(np.sum(mine < other))} of {int(np.isfinite(mine).sum())}")
    return f"{counts[0]}, {counts[1]} against {rival}"


def draw(name: str, file: Splits, path: Path) -> None:
    """Errors and features of every task: means over splits, bars of two standard errors."""
    figure = require("matplotlib.figure").Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, 2)
    methods = file.methods(name)
    shown = {JOPLEN: next((m for m in SHOWN if m in methods), ""), DL: DL, BOUTS: BOUTS}
    shown |= {peer: next((m for m in methods if m.startswith(peer)), "") for peer in _EXTRA}
    shown = {label: method for label, method in shown.items() if method}
    tasks = list(dict.fromkeys(row["task"] for row in file.rows if row["set"] == name))
    columns = ("test_mse", "features")
    labels = ("test MSE, target variance = 1", "selected features")
    for axes, column, label in zip(panels, columns, labels, strict=True):
        for k, (short, method) in enumerate(shown.items()):
            if column == "features" and short in _EXTRA:
                continue
            mean, error = mean_and_error(file.table(name, method, column))
            at = np.arange(len(tasks)) + 0.13 * (k - 1)
            axes.errorbar(at, mean, 2 * error, fmt="o", ms=4, lw=1.4, capsize=2,
                          color=(COLORS | _EXTRA)[short], label=short)  # fmt: skip
        axes.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#c9ced6", lw=0.5, alpha=0.6)
    panels[0].legend(frameon=False, fontsize=9)
    figure.suptitle(f"{name}: mean of {len(file.splits(name))} splits, bars are ± 2 standard "
                    "errors", fontsize=11)  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run with command line arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.multitask_splits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder with the data")
    add("--sets", nargs="+", choices=SPLIT_GRIDS, default=list(SPLIT_GRIDS), help="the sets (all)")
    add("--splits", type=int, default=10, help="number of random splits (10)")
    add("--output", type=Path, default=Path("output/multitask"), help="folder for file, pictures")
    options = parser.parse_args(arguments)
    if not options.data.is_dir():
        parser.error(f"--data {options.data} is not a folder")
    if options.splits < 1:
        parser.error("--splits must be at least 1")
    file = Splits(options.output / "multitask_splits.csv")
    for name in options.sets:
        run_splits(name, options.data, options.splits, file, SPLIT_GRIDS[name])
        print(f"\n{name}\n\n{summary(name, file)}")
        draw(name, file, options.output / f"multitask_{name}_splits.png")


if __name__ == "__main__":
    main()
