"""``jointleaf bench``: jointleaf and other models on one table, by cross-validation."""

from __future__ import annotations

import argparse

from jointleaf.cli._output import print_json
from jointleaf.cli._peers import BENCH_MODELS, Options
from jointleaf.cli._training import read_training_data
from jointleaf.cli._validation import error_table, validate
from jointleaf.estimators import recipe_for

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Compare and print the errors."""
    data = read_training_data(args)
    # The recipe of all rows, also where the fewer rows of a split would mean another one.
    options = Options(data.target.task, args.seed, args.jobs, recipe_for(len(data.y)))
    validation = validate(data.X, data.encoded_y, BENCH_MODELS, options, n_folds=args.folds)
    if args.json:
        names = {"method": "method", "measure": "measure", "models": "table"}
        print_json({name: validation[key] for name, key in names.items()})
    else:
        print(error_table(validation))
