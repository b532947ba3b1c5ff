"""What the components of the default recipe are worth: each left out in turn.

    python benchmarks/ablation.py --data FOLDER [--task regression|binary] [--step 1]

Runs over the half of the paper's sets on which the recipe was chosen (every second one in
alphabetical order), splits and scores as in `benchmarks.accuracy`: geometric-mean NMSE over seed 0
for regression, mean log-loss over seeds 0 and 1 of sets with fewer than 700 rows for two classes.
Components are left out by replacing pieces of the library, which is no interface: this file
changes with the recipe.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

from jointleaf import JOPLEnClassifier, JOPLEnRegressor  # noqa: E402
from jointleaf._fit.recipes import RECIPES  # noqa: E402
from jointleaf._fit.search import default_plan  # noqa: E402
from jointleaf.datasets import load_pmlb  # noqa: E402
from jointleaf.partitions import (  # noqa: E402
    LightGBMPartitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    UnionPartitioner,
)

SETS = Path(__file__).parent / "accuracy" / "sets.csv"
BASE = "jointleaf._fit.joint.many_partitions"


def boosted_alone(target_type: str = "") -> UnionPartitioner:
    inner = ResidualPartitioner(LightGBMPartitioner(100, 4))
    return UnionPartitioner([LightGBMPartitioner(100, 4), inner])


def random_alone(target_type: str = "") -> UnionPartitioner:
    inner = UnionPartitioner([RandomTreesPartitioner(100, 8), RandomTreesPartitioner(100, 4)])
    return UnionPartitioner([RandomTreesPartitioner(100, 8), ResidualPartitioner(inner)])


def target_alone(target_type: str = "") -> UnionPartitioner:
    members = [LightGBMPartitioner(100, 4), RandomTreesPartitioner(200, 8)]
    return UnionPartitioner([*members, RandomTreesPartitioner(100, 4)])


def joint_of(*components: str) -> dict[str, object]:
    """Return what replaces the recipe "joint" by one of these components for classes."""
    joint = RECIPES["joint"]
    kept = tuple(c for c in joint.components["classification"] if c.__name__ in components)
    changed = replace(joint, components={**joint.components, "classification": kept})
    return {"jointleaf._fit.recipes.RECIPES": {**RECIPES, "joint": changed}}


def search_from(**plan: object) -> Callable[[bool], object]:
    """Return what replaces `default_plan`, with these fields of it changed."""
    return lambda is_regression: replace(default_plan(is_regression), **plan)


CONSTANT_CELLS: dict[str, object] = {
    "jointleaf._fit.search.SLOPE_SCALES": (0.0,),
    "jointleaf._fit.joint.default_plan": search_from(scales=(0.0,)),
}
#: name -> what is replaced by what
REGRESSION: dict[str, dict[str, object]] = {
    "the recipe": {},
    "no random trees": {BASE: boosted_alone},
    "no boosted trees": {BASE: random_alone},
    "no trees on residuals": {BASE: target_alone},
    "no feature weights (q = 0)": {
        "jointleaf._fit.search.FEATURE_POWERS": (0.0,),
        "jointleaf._fit.joint.default_plan": search_from(power=0.0),
    },
    "constant cells (s = 0)": CONSTANT_CELLS,
    "no root cell": {"root_cell": False},
}
BINARY: dict[str, dict[str, object]] = {
    "the recipe": {},
    "no random trees": {BASE: boosted_alone},
    "the joint fit alone, no other components": joint_of("Joint"),
    "no constants for values": joint_of("Joint", "Linear", "LeafValues"),
    "constant cells (s = 0)": CONSTANT_CELLS,
}


@contextmanager
def replaced(pieces: dict[str, object]) -> Iterator[dict[str, object]]:
    """Replace pieces of the library; gives the others, which are parameters."""
    with ExitStack() as stack:
        for name, value in pieces.items():
            if "." in name:
                stack.enter_context(patch(name, value))
        yield {name: value for name, value in pieces.items() if "." not in name}


def half(task: str, step: int) -> list[str]:
    rows = [line.split(",") for line in SETS.read_text().splitlines()]
    header, rows = rows[0], rows[1:]
    at = {name: i for i, name in enumerate(header)}
    chosen = [r for r in rows if r[at["task"]] == task and r[at["group"]] == "paper"]
    names = sorted(r[at["set"]] for r in chosen)
    return names[::2][::step]


def score_regression(name: str, data: Path | None, params: dict) -> list[float]:
    X, y = load_pmlb(name, folder=data, return_X_y=True)
    a, b, c, d = train_test_split(X, y.astype(float), test_size=0.2, random_state=0)
    found = JOPLEnRegressor(random_state=0, **params).fit(a, c).predict(b)
    return [float(np.log(max(np.mean((found - d) ** 2) / np.mean((c.mean() - d) ** 2), 1e-6)))]


def score_binary(name: str, data: Path | None, params: dict) -> list[float]:
    X, y = load_pmlb(name, folder=data, return_X_y=True)
    if len(y) >= 700:
        return []
    y = (y == np.unique(y)[1]).astype(int)
    scores = []
    for seed in (0, 1):
        a, b, c, d = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y)
        p = JOPLEnClassifier(random_state=0, **params).fit(a, c).predict_proba(b)[:, 1]
        p = np.clip(p, 1e-15, 1 - 1e-15)
        scores.append(float(-np.mean(np.where(d == 1, np.log(p), np.log(1 - p)))))
    return scores


def run(
    variants: dict[str, dict[str, object]],
    names: list[str],
    score: Callable[..., list[float]],
    args: argparse.Namespace,
) -> None:
    first = None
    for variant, pieces in variants.items():
        start = time.process_time()
        with replaced(pieces) as params:
            scores = [v for name in names for v in score(name, args.data, params)]
        seconds = time.process_time() - start
        value = float(np.exp(np.mean(scores)) if args.task == "regression" else np.mean(scores))
        first = value if first is None else first
        print(
            f"| {variant} | {value:.4f} | {value / first - 1:+.1%} | {seconds:.0f} s |", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--task", choices=("regression", "binary"), default="regression")
    parser.add_argument("--step", type=int, default=1, help="every how many sets")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    is_regression = args.task == "regression"
    print(f"| | {'NMSE' if is_regression else 'log-loss'} | | CPU time |\n|---|---|---|---|")
    run(
        REGRESSION if is_regression else BINARY,
        half(args.task, args.step),
        score_regression if is_regression else score_binary,
        args,
    )


if __name__ == "__main__":
    main()
