"""Selection over several tasks: which features matter for all of them, for some, and for none.

    python benchmarks/selection_tasks.py [--seeds 10] [--rows 600]

Four tasks of different sizes with 30 features: 3 matter for all tasks, 2 further ones for each task
alone, the other 19 for none. Responses are nonlinear (sines, kinks, products with a switch), with
a tenth of their variance as noise, and differ from task to task. Precision and recall of the common
features (over all seeds) and of the features of single tasks (over all tasks and seeds); a
feature counts as the kind it was selected as. JOPLEn has 50 Voronoi partitions of 6 cells, the
linear Dirty LASSO is the same estimator with one cell, and BoUTS has its default prices.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from jointleaf import BoUTSRegressor, DirtyLasso, MultiTaskJOPLEnRegressor
from jointleaf.partitions import RootCell, VoronoiPartitioner

N_FEATURES, N_COMMON, N_OWN = 30, 3, 2
SIZES = (1.0, 0.8, 0.6, 1.2)  # of the tasks, relative to --rows


def make_tasks(n_rows: int, seed: int):
    """Tasks as pairs, the common features, and the own features of every task."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(N_FEATURES)
    common = order[:N_COMMON]
    tasks, owns = {}, {}
    for t, size in enumerate(SIZES):
        own = order[N_COMMON + N_OWN * t : N_COMMON + N_OWN * (t + 1)]
        X = rng.standard_normal((int(size * n_rows), N_FEATURES))
        y = np.zeros(len(X))
        for j in [*common, *own]:
            y += response(X[:, j], rng)
        y += 0.5 * X[:, common[0]] * (X[:, own[0]] > 0)  # an interaction
        y += np.sqrt(0.1) * y.std() * rng.standard_normal(len(y))
        tasks[f"task {t}"], owns[f"task {t}"] = (X, y), own
    return tasks, common, owns


def response(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One of several nonlinear shapes with a trend, of unit variance, with a random sign."""
    shapes = (
        lambda x: np.sin(1.5 * x) + 0.3 * x,
        lambda x: np.maximum(x, 0.0) * 2,
        lambda x: np.tanh(2 * x),
        lambda x: x + 0.5 * x**2,
    )
    values = shapes[rng.integers(len(shapes))](x)
    return rng.choice([-1, 1]) * (values - values.mean()) / values.std()


def joplen(tasks):
    model = MultiTaskJOPLEnRegressor(
        VoronoiPartitioner(n_partitions=50, n_cells=6), penalty=DirtyLasso(), random_state=0
    ).fit(tasks)
    return model.common_features_, model.task_features_


def linear(tasks):
    model = MultiTaskJOPLEnRegressor(
        RootCell(), penalty=DirtyLasso(), root_cell=False, random_state=0
    ).fit(tasks)
    return model.common_features_, model.task_features_


def bouts(tasks):
    model = BoUTSRegressor(random_state=0).fit(tasks)
    return model.universal_features_, model.task_features_


METHODS = {"JOPLEn Dirty LASSO": joplen, "linear Dirty LASSO": linear, "BoUTS": bouts}


def rates(found: list[set], wanted: list[set]) -> tuple[float, float]:
    hits = sum(len(f & w) for f, w in zip(found, wanted, strict=True))
    return hits / max(1, sum(map(len, found))), hits / sum(map(len, wanted))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    args = parser.parse_args()
    print("| method | common: precision | recall | of single tasks: precision | recall | seconds |")
    print("|---|---|---|---|---|---|")
    for name in args.methods:
        found_common, found_own, want_common, want_own = [], [], [], []
        start = time.perf_counter()
        for seed in range(args.seeds):
            tasks, common, owns = make_tasks(args.rows, seed)
            selected, own = METHODS[name](tasks)
            found_common.append(set(selected.tolist()))
            want_common.append(set(common.tolist()))
            for task in tasks:
                found_own.append(set(own[task].tolist()))
                want_own.append(set(owns[task].tolist()))
        seconds = (time.perf_counter() - start) / args.seeds
        first, second = rates(found_common, want_common), rates(found_own, want_own)
        numbers = " | ".join(f"{x:.2f}" for x in (*first, *second))
        print(f"| {name} | {numbers} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
