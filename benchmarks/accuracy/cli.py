"""Arguments of the command `python -m benchmarks.accuracy`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

from .comparison import KINDS, Comparison, compare
from .models import MODELS, ON_REQUEST, select_models
from .running import plan, run_all
from .sets import GROUPS, HALVES, TASKS, DataSet, default_seeds, half_rule, select_half, select_sets
from .store import Key, Result, read_results
from .tables import markdown, markdown_per_set, markdown_seconds

RESULTS = Path("benchmarks/results/accuracy.csv")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 1 where arguments or the installation are at fault."""
    args = _parser().parse_args(arguments)
    try:
        return args.command(args)
    except (ValueError, ImportError, FileNotFoundError, ConnectionError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def run(args: argparse.Namespace) -> int:
    """Run the models over the sets, and append to the file of results."""
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    sets = select_sets(args.sets, task=args.task, group=args.group)
    seeds = args.seeds or default_seeds(args.group)
    runs = plan(sets, select_models(args.models), seeds, args.output)
    progress = run_all(runs, args.output, args.data)
    print(f"{progress.done - progress.failed} runs added, {progress.failed} failed.")
    return 0


def report(args: argparse.Namespace) -> int:
    """Print the tables, and save the pictures if a file is named."""
    results = read_results(args.input)
    if not results:
        raise ValueError("There are no results in the file.")
    seeds = args.seeds or ((0,) if args.group == "medium" else None)
    models = None if args.models is None else [m.name for m in select_models(args.models)]
    compared = []
    for title, sets in _parts(args):
        tables = [
            compare(results, sets, task, models, seeds) for task in _tasks(args.task, results, sets)
        ]
        print(f"{title}\n" if title else "", end="")
        for comparison in tables:
            print(f"\n{markdown(comparison)}\n\n{markdown_seconds(comparison)}")
        compared = compared or tables
        print()
    if args.per_set:
        print("\n\n".join(markdown_per_set(comparison) for comparison in compared))
    if args.picture:
        _draw(compared, args.picture)
    if args.rows_picture:
        from .rows_picture import draw_rows

        draw_rows(results, models, args.rows_picture)
        print(f"\nPicture: {args.rows_picture}")
    return 0


def _parts(args: argparse.Namespace) -> list[tuple[str, list[DataSet]]]:
    """Titles and sets of the tables: all sets and, where a group has them, its halves."""
    sets, rule = select_sets(args.sets, group=args.group), half_rule(args.group)
    if args.half:
        half = select_half(sets, args.half)
        if not half:
            raise ValueError(
                f"--half {args.half}: only the groups paper, uci, medium and more have halves."
            )
        return [(f"{rule}\n\nHalf: {args.half}", half)]
    if args.sets or rule is None or args.group == "paper":
        return [("", sets)]
    halves = [(f"## Half: {half}", select_half(sets, half)) for half in HALVES]
    return [(f"{rule}\n\n## Both halves", sets), *halves]


def _tasks(wanted: str, results: dict[Key, Result], sets: Sequence[DataSet]) -> list[str]:
    """The task that is wanted; or all that there are results of, classes together."""
    if wanted != "all":
        return [wanted]
    names = {entry.name for entry in sets}
    found = {result.task for result in results.values() if result.set in names}
    if not found:
        raise ValueError("There are no results of these sets in the file: see --group and --sets.")
    classes = "classes" if "multiclass" in found else "binary"
    return [task for task in ("regression", classes) if task in found or task == "classes"]


def _draw(compared: list[Comparison], path: Path) -> None:
    """Save the strips to the named file, and the ranks to a second one beside it."""
    from .rank_diagram import draw_ranks
    from .strips import draw_strips

    ranks = path.with_name(f"{path.stem}_ranks{path.suffix}")
    draw_strips(compared, path)
    draw_ranks(compared, ranks)
    print(f"\nPictures: {path}, {ranks}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        description="Accuracy of jointleaf and its peers, everything out of the box.",
    )
    commands = parser.add_subparsers(required=True)
    _add_run(commands.add_parser("run", help="run models over data sets, and keep the results"))
    _add_report(commands.add_parser("report", help="tables and pictures of the results"))
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=run)
    parser.add_argument("--data", type=Path, help="local folder with data; else PMLB is downloaded")
    parser.add_argument("--task", choices=(*TASKS, "all"), default="all")
    parser.add_argument("--group", choices=GROUPS, default="paper", help="unless --sets are named")
    parser.add_argument("--sets", nargs="+", help="names of sets; by default the whole group")
    slow = ", ".join(ON_REQUEST)
    models = f"of {', '.join(MODELS)}; by default all but the slow ones, {slow}"
    parser.add_argument("--models", nargs="+", help=models)
    seeds = "of the splits; by default 0 and 1, for medium and million 0"
    parser.add_argument("--seeds", nargs="+", type=int, help=seeds)
    parser.add_argument("--output", type=Path, default=RESULTS)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=report)
    parser.add_argument("--input", type=Path, default=RESULTS)
    parser.add_argument("--task", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--group", choices=GROUPS, default="paper", help="unless --sets are named")
    parser.add_argument("--sets", nargs="+", help="names of sets; by default the whole group")
    parser.add_argument("--half", choices=HALVES, help="only one half of the sets")
    parser.add_argument("--models", nargs="+", help="by default all in the file but slow ones")
    parser.add_argument(
        "--seeds", nargs="+", type=int, help="by default all in the file, of medium 0"
    )
    parser.add_argument("--per-set", action="store_true", help="also the scores on every set")
    parser.add_argument("--picture", type=Path, help="file for the strips; ranks go to *_ranks")
    rows_picture = "file for errors against the number of rows, over all groups in the file"
    parser.add_argument("--rows-picture", type=Path, help=rows_picture)
