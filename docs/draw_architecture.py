"""Draw the pictures of architecture.md and scaling-out.md: ``python docs/draw_architecture.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

IMAGES = Path(__file__).parent / "images"
INK, GREY, LINE = "#1f2933", "#52606d", "#7b8794"
#: Fill and edge of a box, by what it stands for.
COLORS = {
    "data": ("#e6f0fa", "#3f72af"),
    "core": ("#fdf0dd", "#c27c1a"),
    "fit": ("#e8f3ea", "#3d8b55"),
    "model": ("#f7e6ec", "#b23a63"),
    "public": ("#eeebf8", "#6a51a3"),
    "plain": ("#f5f7fa", "#9aa5b1"),
}


def box(
    ax: Axes,
    place: tuple[float, float],
    size: tuple[float, float],
    name: str,
    text: str = "",
    kind: str = "plain",
) -> None:
    """Draw a box at its lower left corner, with a name and a few words."""
    fill, edge = COLORS[kind]
    (x, y), (width, height) = place, size
    style = "round,pad=0,rounding_size=0.08"
    ax.add_patch(
        FancyBboxPatch((x, y), width, height, style, facecolor=fill, edgecolor=edge, linewidth=1.2)
    )
    middle = x + width / 2
    top = y + height - 0.1
    ax.text(middle, top, name, ha="center", va="top", color=INK, fontsize=9, fontweight="bold")
    n_lines = name.count("\n") + 1
    ax.text(
        middle, top - 0.22 * n_lines, text, ha="center", va="top", color=GREY, fontsize=7.5,
        linespacing=1.25,
    )  # fmt: skip


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    text: str = "",
    shift: tuple[float, float] = (0.0, 0.08),
    align: str = "center",
) -> None:
    """Draw an arrow, with a few words beside its middle."""
    style = {"arrowstyle": "-|>", "mutation_scale": 10, "color": LINE, "linewidth": 1.2}
    ax.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **style))
    middle = (start[0] + end[0]) / 2 + shift[0], (start[1] + end[1]) / 2 + shift[1]
    ax.text(*middle, text, ha=align, va="center", color=GREY, fontsize=7.5, linespacing=1.2)


def canvas(width: float, height: float) -> Axes:
    """Return axes that are measured in inches."""
    figure = plt.figure(figsize=(width, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, width)
    ax.set_ylim(0, height)
    ax.axis("off")
    return ax


def draw_flow() -> Axes:
    """Draw the way from rows to a model, and what a model does."""
    ax = canvas(9.6, 5.75)

    title(ax, (0.1, 5.6), "READ")
    box(ax, (0.1, 4.75), (1.7, 0.72), "X, y, weights", "arrays, data frames,\none task or several")
    box(ax, (2.4, 4.75), (2.0, 0.72), "Columns", "numbers, categories,\nmissing values", "data")
    box(
        ax,
        (5.0, 4.75),
        (2.0, 0.72),
        "Rows",
        "merged, in an order made\nfrom their contents",
        "data",
    )
    box(ax, (7.6, 4.75), (1.9, 0.72), "FitContext", "rows, feature plan,\nloss, options", "fit")
    for left, right in ((1.8, 2.4), (4.4, 5.0), (7.0, 7.6)):
        arrow(ax, (left, 5.11), (right, 5.11))

    frame = FancyBboxPatch(
        (0.1, 1.9), 9.4, 2.45, "round,pad=0,rounding_size=0.1", facecolor="none",
        edgecolor=COLORS["fit"][1], linestyle="--",
    )  # fmt: skip
    ax.add_patch(frame)
    title(ax, (0.25, 4.18), "FIT: a Recipe is a list of components and a way to blend them")
    arrow(ax, (8.55, 4.75), (8.55, 4.35))
    box(ax, (0.3, 3.25), (1.6, 0.72), "Partitioner", "trees, Voronoi cells:\ncodes (n, P)", "core")
    box(ax, (2.45, 3.25), (1.65, 0.72), "Problem", "design, loss\nand penalty", "core")
    box(ax, (4.65, 3.25), (1.45, 0.72), "Solver", "dual, pcg,\nnewton, fista", "core")
    box(
        ax,
        (6.7, 3.25),
        (2.6, 0.72),
        "Joint",
        "component: one convex\nproblem over all cells",
        "fit",
    )
    arrow(ax, (1.9, 3.61), (2.45, 3.61))
    arrow(ax, (4.1, 3.61), (4.65, 3.61))
    arrow(ax, (6.1, 3.61), (6.7, 3.61), "Solution", (-0.02, 0.12))
    text = "components without a joint problem;\nthe recipe lists which take part"
    box(ax, (0.3, 2.05), (3.8, 0.72), "Linear, LeafValues, Boosted, ...", text, "fit")
    text = "weights >= 0, fitted to\nheld-out predictions"
    box(ax, (6.7, 2.05), (2.6, 0.72), "Blend", text, "fit")
    arrow(ax, (4.1, 2.41), (6.7, 2.41), "held-out predictions", (0, 0.12))
    arrow(ax, (8.0, 3.25), (8.0, 2.77), "held-out predictions", (-0.1, 0.0), "right")

    title(ax, (0.1, 1.62), "KEEP AND USE")
    text = "the weighted sum of the\ncomponents, one model"
    box(ax, (5.0, 0.75), (2.0, 0.72), "CellModel", text, "model")
    box(ax, (7.6, 0.75), (1.9, 0.72), "FitReport", "what was really done", "fit")
    arrow(ax, (6.0, 1.9), (6.0, 1.47))
    arrow(ax, (8.55, 1.9), (8.55, 1.47))
    text = "cell_model_, report_,\nand views of both"
    box(ax, (2.4, 0.75), (2.0, 0.72), "estimator", text, "public")
    arrow(ax, (5.0, 1.11), (4.4, 1.11))
    ax.plot([8.55, 8.55, 3.4], [0.75, 0.45, 0.45], color=LINE, lw=1.2)
    arrow(ax, (3.4, 0.45), (3.4, 0.75))
    box(
        ax,
        (0.1, 0.35),
        (1.7, 1.12),
        "predict\nexplain\nprune\nsave, to_onnx",
        "",
        "public",
    )
    arrow(ax, (2.4, 1.11), (1.8, 1.11))
    return ax


def title(ax: Axes, place: tuple[float, float], text: str) -> None:
    """Write what a part of the picture is."""
    ax.text(*place, text, color=GREY, fontsize=8, fontweight="bold", va="center")


#: From high to low, as `tests/project/test_layers.py` has them.
LAYERS = (
    ("public", "cli", "the shell"),
    ("public", "dask", "fits on the workers of a cluster"),
    ("fit", "_sources", "fits of more rows than memory, checkpoints"),
    ("public", "plot, io, datasets", "pictures, model files and ONNX, public data"),
    ("public", "multitask", "several tasks, BoUTS"),
    ("public", "estimators", "parameters, fitted attributes, refine"),
    ("public", "inspection", "explanations of a CellModel"),
    ("fit", "_fit", "components, recipes, folds, search, blend, report, pruning"),
    ("model", "_model", "CellModel: the only thing that predicts"),
    ("public", "partitions", "what makes cells: trees, Voronoi cells, unions, trained models"),
    ("core", "_trees", "trees as flat arrays, routing, importers of other libraries"),
    ("data", "_data", "columns, linear features, canonical rows, task tables"),
    ("core", "_core", "layout, design, losses, penalties, problem, solvers, JAX"),
)


def draw_layers() -> Axes:
    """Draw the packages, each on top of those that it may import."""
    height, step = 0.4, 0.47
    top = step * len(LAYERS) + 0.05
    ax = canvas(9.6, top + 0.1)
    for i, (kind, name, text) in enumerate(LAYERS):
        y = top - step * (i + 1)
        fill, edge = COLORS[kind]
        style = "round,pad=0,rounding_size=0.06"
        ax.add_patch(FancyBboxPatch((0.55, y), 6.95, height, style, facecolor=fill, edgecolor=edge))
        ax.text(0.7, y + height / 2, name, va="center", color=INK, fontsize=9.5, fontweight="bold")
        ax.text(2.6, y + height / 2, text, va="center", color=GREY, fontsize=8)
    arrow(ax, (0.32, top - 0.05), (0.32, 0.08))
    ax.text(0.17, top / 2, "may import", rotation=90, ha="center", va="center", color=GREY,
            fontsize=8)  # fmt: skip
    bottom = top - step * len(LAYERS)
    box(ax, (7.75, bottom), (1.75, 0.87), "penalties, losses", "public names\nof _core", "public")
    return ax


def draw_cluster() -> Axes:
    """Draw what travels in a pass over rows on workers."""
    ax = canvas(9.6, 3.5)
    text = (
        "model of the sample, solver,\nweights of all cells, held-out rows:\nO(C d), whatever n is"
    )
    box(ax, (0.1, 1.3), (2.5, 1.0), "Client", text, "fit")
    text = (
        "rows and cells of a block,\ntargets, predictions, derivatives:\nmade once, and stay there"
    )
    for y, name in ((2.4, "Worker 1"), (1.3, "Worker 2"), (0.2, "Worker W")):
        box(ax, (4.1, y), (2.5, 0.95), name, text, "data")
        arrow(ax, (2.6, 1.9), (4.1, y + 0.62))
        arrow(ax, (6.6, y + 0.47), (7.6, 1.8))
    text = "weights of all cells,\nonce for every worker:\n8 C (d + 1) bytes"
    ax.text(2.7, 3.1, text, ha="center", va="center", color=GREY, fontsize=7.5, linespacing=1.25)
    text = "in the order of block numbers,\neight at a time, in float64"
    box(ax, (7.6, 1.35), (1.9, 0.9), "Sums", text, "core")
    points = [(8.55, 1.35), (8.55, 0.06), (1.35, 0.06)]
    ax.plot(*zip(*points, strict=True), color=LINE, linewidth=1.2)
    arrow(ax, points[-1], (1.35, 1.3))
    text = "at most eight sums, 8 C (d + 1) bytes each"
    ax.text(2.75, 0.2, text, ha="center", va="center", color=GREY, fontsize=7.5)
    return ax


PICTURES = {
    "architecture_flow": draw_flow,
    "architecture_layers": draw_layers,
    "scaling_out": draw_cluster,
}


def main() -> None:
    """Draw and save all."""
    for name, draw in PICTURES.items():
        figure = draw().figure
        figure.savefig(IMAGES / f"{name}.png", dpi=110, metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
