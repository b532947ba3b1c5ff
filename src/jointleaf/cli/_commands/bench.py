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
    """Compare and print the errors."""
    from jointleaf.cli._output import print_json
    from jointleaf.cli._peers import BENCH_MODELS, Options, installed
    from jointleaf.cli._training import read_training_data
    from jointleaf.cli._validation import error_table, validate

    data = read_training_data(args)
    options = Options(data.target.task, args.seed, args.jobs)
    models = installed(BENCH_MODELS)
    validation = validate(data.X, data.encoded_y, models, options, n_folds=args.folds)
    table, method = validation.table(), validation.method
    if args.json:
        print_json({"method": method, "measure": validation.measure, "models": table})
    else:
        print(error_table({"method": method, "table": table}))
