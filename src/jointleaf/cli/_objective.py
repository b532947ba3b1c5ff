"""What is minimised, as the options of the commands say it."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from jointleaf._core.losses import Loss, make_number_loss
from jointleaf.cli._output import CliError


class Objective(NamedTuple):
    """What is minimised: a loss of numbers, and the columns with exposure and weights of rows."""

    loss: Loss | None = None  # None: the squared error, or that of classes
    exposure: str | None = None
    weight: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Objective:
        """Return what the options of a command say; raise if they contradict each other."""
        for option, value, owner in (
            ("--quantile", args.quantile, "quantile"),
            ("--power", args.power, "tweedie"),
        ):
            if value is not None and args.loss != owner:
                raise CliError(
                    f"{option} {value:g} has no effect without --loss {owner}: leave it out, or "
                    f"add --loss {owner}"
                )
        if args.loss is not None and args.task == "classification":
            raise CliError(
                f"--loss {args.loss} is for numbers: leave it out, or --task classification"
            )
        loss = args.loss and make_number_loss(args.loss, args.quantile, args.power)
        if args.exposure is not None and not (loss and loss.has_log_link):
            raise CliError(
                f"--exposure {args.exposure!r} needs a loss whose predictions it multiplies: add "
                "--loss poisson, gamma or tweedie"
            )
        objective = cls(loss, args.exposure, args.weight)
        for role, name in objective.roles.items():
            if name in (args.target, *args.drop, *args.categorical):
                other = "the target" if name == args.target else "also in --drop or --categorical"
                raise CliError(f"--{role} {name!r} is {other}: name another column")
        if args.exposure is not None and args.exposure == args.weight:
            raise CliError(
                f"--exposure and --weight are both {args.weight!r}: leave one of them out, as "
                "exposure weighs rows already"
            )
        return objective

    @property
    def roles(self) -> dict[str, str]:
        """Names of the columns with exposure and weights that there are, by what they hold."""
        roles = {"exposure": self.exposure, "weight": self.weight}
        return {role: name for role, name in roles.items() if name is not None}


#: Where nothing is said: the squared error, or the loss of classes.
DEFAULT = Objective()
