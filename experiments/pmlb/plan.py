"""In which order (set, method) pairs are run, and how many of the figure there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from experiments.pmlb.methods import METHODS, Method
from experiments.pmlb.sets import PAPER_SETS, SetInfo, run_order

__all__ = ["PAIRS", "STAGES", "Pair", "ordered"]

Pair = tuple[SetInfo, Method]

_FAMILIES = ("gb", "rf", "lf", "cb")
#: Methods that are run together, on all regression sets and then on all two-class sets. A run
#: that is stopped early has the evidence that matters most: ensembles beside their refits.
STAGES: tuple[tuple[str, ...], ...] = (
    (
        *("ridge", "gb", "rf", "lf", "cb_nc", "cb"),
        *(f"{cells}_{kind}_stop" for cells in _FAMILIES for kind in ("f", "l")),
        *(f"{cells}_refine" for cells in _FAMILIES),
    ),
    (
        *(f"{cells}_{kind}" for cells in _FAMILIES for kind in ("f", "l")),
        *(f"{cells}_gr_stop" for cells in _FAMILIES),
        *("gb_gr", "rf_gr", "lf_gr", "cb_gr_nc", "cb_gr"),
        *(f"vor_{kind}{stop}" for kind in ("gr", "f", "l") for stop in ("", "_stop")),
    ),
    ("gb_fr", "rf_fr", "nn"),
    ("fastel", "tabnet"),
)


def ordered(
    sets: Iterable[SetInfo] = PAPER_SETS.values(), methods: Iterable[str] = METHODS
) -> Iterator[Pair]:
    """All pairs of sets and methods that there can be, the most telling ones first."""
    chosen, wanted = list(sets), set(methods)
    for stage in STAGES:
        for task in ("regression", "binary"):
            for info in run_order(info for info in chosen if info.task == task):
                for name in stage:
                    if name in wanted and info.task in METHODS[name].spaces:
                        yield info, METHODS[name]


#: Of the whole figure.
PAIRS: Sequence[Pair] = tuple(ordered())
