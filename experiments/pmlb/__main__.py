"""The command line: ``python -m experiments.pmlb run`` and ``report``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments import check_options, require
from experiments.pmlb import __doc__ as ABOUT
from experiments.pmlb.data import describe
from experiments.pmlb.methods import METHODS
from experiments.pmlb.plot import draw
from experiments.pmlb.records import ResultFile, Setting, read_records
from experiments.pmlb.report import report_text
from experiments.pmlb.run import run
from experiments.pmlb.search import SEARCHES
from experiments.pmlb.sets import PAPER_SETS, SetInfo, run_order

RESULTS = Path(__file__).parents[1] / "results"
DEFAULT_RESULTS = RESULTS / "pmlb_random_5_0.csv"
TASKS = ("regression", "binary")


def default_output(setting: Setting) -> Path:
    """One file for every setting."""
    return RESULTS / f"pmlb_{setting.search}_{setting.trials}_{setting.seed}.csv"


def chosen_sets(options: argparse.Namespace) -> list[SetInfo]:
    """The sets to run, cheap ones first."""
    if not options.datasets:
        sets = [info for info in PAPER_SETS.values() if info.task in options.task]
    else:
        sets = []
        for name in options.datasets:
            if name not in PAPER_SETS:
                print(f"{name} is not one of the paper's sets: all columns count as numbers")
            sets.append(PAPER_SETS.get(name) or describe(name, options.data, options.task[0]))
    return run_order(info for info in sets if info.rows <= options.max_rows)


def run_command(options: argparse.Namespace) -> None:
    """Run what is missing."""
    setting = Setting(options.search, options.trials, options.seed)
    file = ResultFile(options.output or default_output(setting), setting)
    methods = [method for name, method in METHODS.items() if name in options.methods]
    # Said now, and not after hours.
    for name in {method.needs for method in methods if method.needs}:
        require(name)
    if options.search == "ax":
        require("ax.api.client")
    run(chosen_sets(options), methods, setting, options.data, file)
    print(f"results: {file.path}")


def report_command(options: argparse.Namespace) -> None:
    """Print tables and draw the figure."""
    records = read_records(options.results)
    if not records:
        raise SystemExit(f"{options.results} holds no results yet")
    print(report_text(records, options.paper))
    draw(records, options.picture)
    print(f"picture: {options.picture}")


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.pmlb",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    add_run(commands.add_parser("run", help="search the methods on the sets; goes on where it was"))
    add_report(commands.add_parser("report", help="print tables and tests, draw the figure"))
    options = parser.parse_args(arguments)
    check_options(parser, options)
    if options.command == "report":
        kinds = require("matplotlib.figure").Figure().canvas.get_supported_filetypes()
        if options.picture.suffix[1:] not in kinds:
            parser.error(f"--picture {options.picture} must end in one of: {', '.join(kinds)}")
    return options


def add_run(parser: argparse.ArgumentParser) -> None:
    """Arguments of `run`."""
    add = parser.add_argument
    add("--data", type=Path, help="folder with files of PMLB; what is not there is downloaded")
    add("--task", nargs="+", choices=TASKS, default=list(TASKS), help="kinds of sets (both)")
    add("--datasets", nargs="+", metavar="NAME", help="names of sets (all of the paper's)")
    add("--max-rows", type=int, default=10**9, help="leave out sets with more rows")
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME",
        help=f"of: {', '.join(METHODS)} (all)")  # fmt: skip
    add("--trials", type=int, default=50, help="trials per method and set (50)")
    add("--search", choices=SEARCHES, default="ax",
        help="ax, as in the paper: a second or two per trial; or random, which is cheap and needs "
        "no extra package (ax)")  # fmt: skip
    add("--seed", type=int, default=0, help="of splits, searches and models (0)")
    add("--output", type=Path, help="file of results (experiments/results/pmlb_..., by setting)")


def add_report(parser: argparse.ArgumentParser) -> None:
    """Arguments of `report`."""
    add = parser.add_argument
    add("--results", type=Path, default=DEFAULT_RESULTS, help="file of results")
    add("--paper", type=Path, help="the scores that the paper's authors recorded (CSV)")
    add("--picture", type=Path, default=Path("output/pmlb.png"), help="the figure")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run with command line arguments."""
    options = parse_arguments(arguments)
    if options.command == "run":
        run_command(options)
    else:
        report_command(options)


if __name__ == "__main__":
    main()
