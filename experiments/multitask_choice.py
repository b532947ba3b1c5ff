"""Which points of the paths are compared, and how: everything is chosen on validation rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.multitask_paths import Point

__all__ = ["budget_table", "compare", "frontier", "not_above", "own_choice"]

#: Of a method's least mean validation error: points within it count as equally good.
MARGIN = 1.05


def sparsest(points: Sequence[Point]) -> Point:
    """The fewest features; of equal ones the lowest validation error."""
    return min(points, key=lambda point: (point.features, point.error()))


def own_choice(points: Sequence[Point]) -> Point:
    """A method's own rule: the sparsest point with nearly the least validation error."""
    least = min(point.error() for point in points)
    return sparsest([point for point in points if point.error() <= MARGIN * least])


def not_above(points: Sequence[Point], rival: Point, n_tasks: int = 0) -> Point | None:
    """The sparsest point whose mean validation error is not above a rival's.

    With `n_tasks` it is also lower than the rival's in at least so many tasks. None where no
    point is that good.
    """
    good = [
        point
        for point in points
        if point.error() <= rival.error()
        and np.sum(point.mse["validation"] < rival.mse["validation"]) >= n_tasks
    ]
    return sparsest(good) if good else None


def frontier(points: Sequence[Point]) -> list[Point]:
    """Points with a lower validation error than all that are as sparse, from sparse to dense."""
    out: list[Point] = []
    for point in sorted(points, key=lambda point: (point.features, point.error())):
        if not out or point.error() < out[-1].error():
            out.append(point)
    return out


def budget_table(points: Sequence[Point], budgets: Sequence[float]) -> list[Point | None]:
    """For every budget of features per task the point with the lowest validation error."""
    best: list[Point | None] = []
    for budget in budgets:
        within = [point for point in points if point.features <= budget]
        best.append(min(within, key=Point.error) if within else None)
    return best


def compare(point: Point, rival: Point) -> dict[str, float]:
    """How a point does against a rival on the test rows, and in how many tasks."""
    lower = point.mse["test"] < rival.mse["test"]
    fewer = point.per_task < rival.per_task
    return {
        "test_mse": point.error("test"),
        "rival_test_mse": rival.error("test"),
        "features": point.features,
        "rival_features": rival.features,
        "n_tasks": len(lower),
        "tasks_lower_error": int(lower.sum()),
        "tasks_fewer_features": int(fewer.sum()),
        "tasks_both": int((lower & fewer).sum()),
        "tasks_either": int((lower | fewer).sum()),
    }
