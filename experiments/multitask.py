"""The paper's multitask experiment: errors and selected features of several tasks.

    python -m experiments.multitask --data FOLDER [--sets sarcos chem] [--output FOLDER]

JOPLEn DL (Dirty LASSO in the cells of 100 Voronoi partitions of 8 cells), DL (linear Dirty LASSO:
one cell per task), BoUTS (50 + 50 trees of depth 3), ridge and LightGBM. The first three select
features. Each is traced along its own two strengths or prices (for JOPLEn DL with a few strengths
on biases); then DL and BoUTS take the sparsest point within 5 % of their least validation error,
and JOPLEn DL, with the validation rows alone,

- "at DL's mean error": the sparsest point whose mean validation error is not above DL's;
- "at DL's errors": the same, with a lower error in all tasks but one at least;
- "at BoUTS's mean error".

The chosen points are fitted anew to a close tolerance; tables and pictures show these. LightGBM
is also fitted on the features alone that each of them selected, as in the authors' notebooks.
FOLDER is as for `load_sarcos` and `load_chem_tasks`; of SARCOS the smaller official part is taken
where the larger is not there. `experiments.multitask_splits` repeats it over several splits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from experiments.multitask_choice import not_above, own_choice
from experiments.multitask_data import MultitaskData, chem_data, sarcos_data
from experiments.multitask_paths import (
    BOUTS,
    DL,
    JOPLEN,
    N_CELLS,
    N_PARTITIONS,
    Point,
    dirty_path,
    fit_point,
    price_path,
    selected_features,
)
from experiments.multitask_peers import fit_lightgbm, fit_on_selected, fit_ridge
from experiments.multitask_report import Paths, draw, tables, write_files
from jointleaf._core.progress import Progress


@dataclass(frozen=True)
class Grid:
    """What is tried on one set of tasks.

    `most` and `most_linear` end paths of JOPLEn DL and DL: mean number of features per task.
    """

    most: float
    most_linear: float
    bias_strengths: tuple[float, ...]
    universal_prices: tuple[float, ...]
    task_prices: tuple[float, ...]
    n_ratios: int = 4
    size: tuple[int, int] = (N_PARTITIONS, N_CELLS)


GRIDS = {
    "sarcos": Grid(
        20.0,
        20.0,
        (0.1, 0.01, 0.001),
        (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1),
        (0.001, 0.003, 0.01, 0.03, 0.1),
    ),
    # Of 1,018 features. The cost of a fit grows with the features that any task uses.
    "chem": Grid(60.0, 100.0, (0.1, 0.01), (0.002, 0.006, 0.02), (0.003, 0.01, 0.03)),
}


def load(name: str, folder: Path, seed: int = 0) -> MultitaskData:
    """Split one set; of SARCOS the smaller official part alone, where the larger is not there."""
    if name == "chem":
        return chem_data(folder, seed)
    larger = [
        inner / file
        for inner in (folder, folder / "multitask")
        for file in ("sarcos_inv.mat", "sarcos_train.npz")
    ]
    part: Literal["all", "test"] = "all" if any(file.exists() for file in larger) else "test"
    return sarcos_data(folder, part, seed)


def trace(data: MultitaskData, grid: Grid) -> dict[str, list[Point]]:
    """All points of the methods that select."""
    traced: dict[str, tuple[int, Iterator[list[Point]]]] = {
        JOPLEN: (
            len(grid.bias_strengths) * grid.n_ratios,
            dirty_path(JOPLEN, data, grid.bias_strengths, grid.n_ratios, grid.most, size=grid.size),
        ),
        DL: (grid.n_ratios, dirty_path(DL, data, (0.0,), grid.n_ratios, grid.most_linear)),
        BOUTS: (
            len(grid.universal_prices) * len(grid.task_prices),
            price_path(data, grid.universal_prices, grid.task_prices),
        ),
    }
    paths: dict[str, list[Point]] = {}
    for method, (total, found) in traced.items():
        progress = Progress(total, method)
        paths[method] = []
        for points in found:
            paths[method] += points
            best = min(point.error() for point in paths[method])
            progress.step(f"{len(paths[method])} points, validation error down to {best:.4f}")
    return paths


def choose(paths: Paths) -> dict[str, Point]:
    """The points that are compared, by name."""
    linear, boosted = own_choice(paths[DL]), own_choice(paths[BOUTS])
    n_tasks = len(linear.n_specific)
    found = {
        f"{JOPLEN} at {DL}'s mean error": not_above(paths[JOPLEN], linear),
        f"{JOPLEN} at {DL}'s errors": not_above(paths[JOPLEN], linear, n_tasks - 1),
        f"{JOPLEN} at {BOUTS}'s mean error": not_above(paths[JOPLEN], boosted),
        DL: linear,
        BOUTS: boosted,
    }
    for name, point in found.items():
        if point is None:
            print(f"no point of {name.replace(' at ', ' is at ')}")
    return {name: point for name, point in found.items() if point is not None}


def fit_chosen(
    chosen: dict[str, Point], data: MultitaskData, grid: Grid
) -> tuple[dict[str, Any], dict[str, Point]]:
    """Fit the chosen points anew; gives the models and what they reach."""
    fitted: dict[int, tuple[Any, Point]] = {}  # two rules may choose the same point
    progress = Progress(len(chosen), "final fits")
    for name, point in chosen.items():
        if id(point) not in fitted:
            fitted[id(point)] = fit_point(point, data, size=grid.size)
        progress.step(name)
    found = {name: fitted[id(point)] for name, point in chosen.items()}
    return (
        {name: model for name, (model, _) in found.items()},
        {name: reached for name, (_, reached) in found.items()},
    )


def run(name: str, data: MultitaskData, grid: Grid, output: Path) -> None:
    """Trace, choose, fit, print and write one set of tasks."""
    clock = time.perf_counter()
    rows = [len(task.y["train"]) for task in data.tasks]
    print(
        f"\n{name}: {len(rows)} tasks of {min(rows)} to {max(rows)} training rows, "
        f"{len(data.feature_names)} features"
    )
    paths = trace(data, grid)
    models, chosen = fit_chosen(choose(paths), data, grid)
    refits = {key: fit_on_selected(data, selected_features(model)) for key, model in models.items()}
    peers = [fit_ridge(data), fit_lightgbm(data)]
    print(f"\n{tables(paths, chosen, refits, peers, data)}\n")
    write_files(name, paths, chosen, refits, peers, data, output)
    pictures = draw(name, paths, chosen, models, peers, data, output)
    print(f"pictures: {', '.join(map(str, pictures))}")
    n_points = int(np.sum([len(points) for points in paths.values()]))
    print(f"{n_points} points, {time.perf_counter() - clock:.0f} seconds")


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.multitask",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder with the data")
    add("--sets", nargs="+", choices=GRIDS, default=list(GRIDS), help="the sets (all)")
    add("--output", type=Path, default=Path("output/multitask"), help="folder for files, pictures")
    options = parser.parse_args(arguments)
    if not options.data.is_dir():
        parser.error(f"--data {options.data} is not a folder")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment with command line arguments."""
    options = parse_arguments(arguments)
    for name in options.sets:
        run(name, load(name, options.data), GRIDS[name], options.output)


if __name__ == "__main__":
    main()
