"""``jointleaf bench``: jointleaf and other models on one table, by cross-validation."""

from __future__ import annotations

import argparse
from typing import Any

from jointleaf.cli._commands.options import add_json, add_reading, add_seed, add_target, at_least

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the arguments."""
    parser = commands.add_parser(
        "bench",
        help="compare with LightGBM, CatBoost, XGBoost and linear models",
        description="Compare jointleaf with those of LightGBM, CatBoost and XGBoost that are "
        "installed, a linear model and a constant, all with their defaults, on the same folds.",
    )
    add_target(parser)
    parser.add_argument("--folds", metavar="N", type=at_least(2), default=5, help="5 by default")
    add_seed(parser)
    add_reading(parser)
    add_json(parser, "all errors")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Compare and show."""
    from jointleaf._core.progress import Progress
    from jointleaf.cli._judging import class_numbers, compare, make_splits
    from jointleaf.cli._output import print_json
    from jointleaf.cli._peers import BENCH_MODELS, Options, installed
    from jointleaf.cli._showing import error_table
    from jointleaf.cli._training import read_training_data

    data = read_training_data(args)
    if not args.json:
        print(data.describe(), flush=True)
    task = data.target.task
    y = data.y if task == "regression" else class_numbers(data.y)[1]
    models = installed(BENCH_MODELS)
    splits, how = make_splits(y, task, args.seed, args.folds)
    progress = Progress(len(splits) * len(models), "comparing")
    options = Options(task, args.seed, args.jobs)
    judgement = compare(data.X, y, models, options, splits, how, progress=progress)
    if args.json:
        print_json({"how": how, "measure": judgement.measure, "models": judgement.table()})
    else:
        print(f"errors {how}:")
        print(error_table(judgement.table()))
