"""All figures of the paper with one command.

    python -m experiments all --data FOLDER [--resume] [--out FOLDER] [--only figure1 ...]
    python -m experiments repeat --data FOLDER [--results FILE] [--pairs 10]

`all` says how long it should take, runs Figure 1 (`experiments.pmlb`), Figure 2
(`experiments.nuclear_norm`) and Figures 3 and 4 (`experiments.multitask`, then ten splits of it),
and writes tables, figures and the environment into FOLDER. With --resume what is there already is
kept, and what is missing is run; --hours stops Figure 1 in time and then writes what there is.
`repeat` runs random (set, method) pairs of Figure 1 again and compares the numbers.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from experiments import check_options, multitask, multitask_splits, nuclear_norm, require
from experiments.environment import write_environment
from experiments.pmlb.costs import Costs, duration
from experiments.pmlb.methods import METHODS
from experiments.pmlb.plan import PAIRS, Pair, ordered
from experiments.pmlb.plot import draw
from experiments.pmlb.records import Record, ResultFile, Setting, read_records
from experiments.pmlb.repeat import draw_pairs, repeat, repetition_table
from experiments.pmlb.report import report_text
from experiments.pmlb.run import missing, run_pairs
from experiments.pmlb.search import SEARCHES
from experiments.pmlb.sets import PAPER_SETS
from experiments.pmlb.side_by_side import draw_scatter, side_by_side, write_rows

RESULTS = Path(__file__).parent / "results"
FIGURES = ("figure1", "figure2", "figure34")
#: Of Figure 2, and of one split of Figures 3 and 4 with its whole paths, on one core.
SECONDS = {"figure2": 60.0, "sarcos": 450.0, "chem": 2000.0}


def past_records(folder: Path) -> list[Record]:
    """All results of Figure 1 in a folder, whatever their setting."""
    return [
        record for path in sorted(folder.glob("pmlb_*_[0-9].csv")) for record in read_records(path)
    ]


def chosen_pairs(options: argparse.Namespace) -> list[Pair]:
    """The pairs of Figure 1 that are asked for."""
    sets = [
        info
        for info in PAPER_SETS.values()
        if info.task in options.task and info.rows <= options.max_rows
    ]
    return list(ordered(sets, options.methods))


class Figure1:
    """The results of Figure 1 in one folder, and what is made of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.setting = Setting(options.search, options.trials, options.seed)
        name = f"pmlb_{options.search}_{options.trials}_{options.seed}"
        self.stem = options.out / name
        self.file = ResultFile(self.stem.with_suffix(".csv"), self.setting)
        self.todo = missing(chosen_pairs(options), self.file)
        self.costs = Costs([*past_records(RESULTS), *past_records(options.out)])

    def seconds(self) -> float:
        """What is missing should take so long."""
        return sum(self.costs.seconds(info, method, self.setting) for info, method in self.todo)

    def run(self) -> None:
        """Run what is missing, then write the tables and the figures."""
        for name in sorted({method.needs for _, method in self.todo if method.needs}):
            require(name)
        if self.setting.search == "ax" and self.todo:
            require("ax.api.client")
        limit = 3600 * self.options.hours
        run_pairs(
            self.todo,
            self.setting,
            self.options.data,
            self.file,
            seconds=limit,
            costs=self.costs,
        )
        self.write()

    def write(self) -> None:
        """Write tables and figures of what there is."""
        records, paper = self.file.records(), self.options.paper
        if not records:
            return
        counted = f"{len(PAIRS) - len(missing(PAIRS, self.file))} of {len(PAIRS)}"
        text = f"# {self.setting}: {counted} (set, method) pairs\n\n{report_text(records, paper)}"
        self.stem.with_suffix(".md").write_text(text.rstrip() + "\n")
        draw(records, self.stem.with_suffix(".png"))
        if paper is not None:
            beside = self.stem.with_name(self.stem.name + "_paper")
            write_rows(side_by_side(records, paper), beside.with_suffix(".csv"))
            draw_scatter(records, paper, beside.with_suffix(".png"))
        print(f"Figure 1: {counted} pairs, {self.stem}.*")


class Tasks:
    """Figures 3 and 4: whole paths of the first split, and several splits."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.file = multitask_splits.Splits(options.out / "multitask_splits.csv")
        self.first = [
            name for name in options.sets if not (options.out / f"multitask_{name}.json").exists()
        ]

    def seconds(self) -> float:
        """What is missing should take so long."""
        splits = sum(
            multitask_splits.SECONDS[name]
            for name in self.options.sets
            for split in range(self.options.splits)
            if not self.file.has(name, split)
        )
        return splits + sum(SECONDS[name] for name in self.first)

    def run(self) -> None:
        """Run what is missing and draw."""
        for name in self.options.sets:
            if name in self.first:
                data = multitask.load(name, self.options.data)
                multitask.run(name, data, multitask.GRIDS[name], self.options.out)
            grid = multitask_splits.SPLIT_GRIDS[name]
            multitask_splits.run_splits(
                name, self.options.data, self.options.splits, self.file, grid
            )
            if self.file.splits(name):
                print(f"\n{name}\n\n{multitask_splits.summary(name, self.file)}\n")
                picture = self.options.out / f"multitask_{name}_splits.png"
                multitask_splits.draw(name, self.file, picture)


def run_all(options: argparse.Namespace) -> None:
    """Say how long it takes, and run."""
    kept = [path.name for path in existing_results(options)]
    if kept and not options.resume:
        raise SystemExit(
            f"--out {options.out} holds {kept[0]} already: give --resume to go on with it, or "
            "another folder"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "nuclear_norm.png"
    first = Figure1(options) if "figure1" in options.only else None
    tasks = Tasks(options) if "figure34" in options.only else None
    parts: list[tuple[str, float]] = []
    if first is not None:
        expected = min(first.seconds(), 3600 * options.hours)
        parts.append((f"Figure 1, {len(first.todo)} (set, method) pairs", expected))
    if "figure2" in options.only and not picture.exists():
        parts.append(("Figure 2", SECONDS["figure2"]))
    if tasks is not None:
        parts.append((f"Figures 3 and 4, {options.splits} splits", tasks.seconds()))
    for name, seconds in parts:
        print(f"{name}: about {duration(seconds)}")
    print(f"in all: about {duration(sum(seconds for _, seconds in parts))} on one core", flush=True)
    write_environment(options.out / "environment.json")
    if first is not None:
        first.run()
    if "figure2" in options.only and not picture.exists():
        nuclear_norm.main(["--output", str(picture)])
    if tasks is not None:
        tasks.run()


def existing_results(options: argparse.Namespace) -> list[Path]:
    """Files that a run without --resume would go on with."""
    names = (
        f"pmlb_{options.search}_{options.trials}_{options.seed}.csv",
        "multitask_splits.csv",
        *(f"multitask_{name}.json" for name in options.sets),
    )
    return [options.out / name for name in names if (options.out / name).exists()]


def run_again(options: argparse.Namespace) -> None:
    """Repeat random pairs of a file and compare; the program fails where one differs."""
    records = read_records(options.results)
    small = [record for record in records if record.rows <= options.max_rows]
    chosen = draw_pairs(small, options.pairs, options.seed)
    found = repeat(chosen, records, options.data)
    text = repetition_table(found)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")
    if not all(one.is_same for one in found):
        raise SystemExit(1)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    add_all(commands.add_parser("all", help="run every figure; say first how long it takes"))
    add_repeat(commands.add_parser("repeat", help="run random pairs of Figure 1 a second time"))
    options = parser.parse_args(arguments)
    check_options(parser, options)
    return options


def add_all(parser: argparse.ArgumentParser) -> None:
    """Arguments of `all`."""
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder with the data (pmlb, multitask)")
    add("--out", type=Path, default=RESULTS, help="folder of results (experiments/results)")
    add("--resume", action="store_true", help="keep what is in the folder, run what is missing")
    add("--only", nargs="+", choices=FIGURES, default=list(FIGURES), help="figures (all)")
    add("--hours", type=float, default=math.inf, help="time for Figure 1 (no limit)")
    add("--trials", type=int, default=10, help="trials per method and set (10)")
    add("--search", choices=SEARCHES, default="ax", help="of hyperparameters (ax)")
    add("--seed", type=int, default=0, help="of splits, searches and models (0)")
    add("--task", nargs="+", choices=("regression", "binary"), default=["regression", "binary"])
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME",
        help="of Figure 1 (all)")  # fmt: skip
    add("--max-rows", type=int, default=10**9, help="leave out larger sets of Figure 1")
    add("--sets", nargs="+", choices=multitask.GRIDS, default=list(multitask.GRIDS),
        help="of Figures 3 and 4 (all)")  # fmt: skip
    add("--splits", type=int, default=10, help="of Figures 3 and 4 (10)")
    add("--paper", type=Path, help="scores that the paper's authors recorded (CSV)")


def add_repeat(parser: argparse.ArgumentParser) -> None:
    """Arguments of `repeat`."""
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder with the data")
    add("--results", type=Path, default=RESULTS / "pmlb_ax_10_0.csv", help="file of results")
    add("--pairs", type=int, default=10, help="number of pairs (10)")
    add("--seed", type=int, default=0, help="of the draw of pairs (0)")
    add("--max-rows", type=int, default=10**9, help="draw among smaller sets")
    add("--output", type=Path, help="file for the table (Markdown)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run with command line arguments."""
    options = parse_arguments(arguments)
    if options.command == "all":
        run_all(options)
    else:
        run_again(options)
