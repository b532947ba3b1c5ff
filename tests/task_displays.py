"""Small tasks, and what tests of their displays share."""

import numpy as np

from jointleaf import DirtyLasso, MultiTaskJOPLEnRegressor
from jointleaf.partitions import VoronoiPartitioner

SMALL = VoronoiPartitioner(5, 3)
FIXED = DirtyLasso(common=0.2, task=0.12, bias_strength=1.0)


def make_tasks(n=90, d=7, seed=0):
    """Feature 0 in all tasks, 5, 3 and 1 in one each."""
    rng = np.random.default_rng(seed)
    tasks = {}
    for own, name in ((5, "a"), (3, "b"), (1, "c")):
        X = rng.standard_normal((n, d))
        tasks[name] = X, 2 * np.sin(X[:, 0]) + X[:, own] + 0.1 * rng.standard_normal(n)
    return tasks


TASKS, TEST = make_tasks(), make_tasks(seed=1)
FEW = {name: task for name, task in make_tasks(n=60, d=6).items() if name != "c"}


def fit(penalty=FIXED, estimator=MultiTaskJOPLEnRegressor, tasks=TASKS, cells=SMALL, **options):
    return estimator(cells, penalty=penalty, random_state=0, **options).fit(tasks)


def words(labels):
    return [label.get_text() for label in labels]


def legend(ax):
    return words(ax.get_legend().get_texts())


def assert_drawn_inside(figure):
    """Nothing lies outside of the figure."""
    figure.draw_without_rendering()
    whole, box = figure.bbox, figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    assert whole.x0 - 1 <= box.x0 < box.x1 <= whole.x1 + 1
    assert whole.y0 - 1 <= box.y0 < box.y1 <= whole.y1 + 1
