"""Tables, files and pictures of the multitask experiment."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import require
from experiments.multitask_choice import budget_table, compare, frontier
from experiments.multitask_data import MultitaskData
from experiments.multitask_paths import BOUTS, DL, JOPLEN, Point
from experiments.multitask_peers import Peer
from jointleaf.plot import SelectionDisplay, TaskErrorDisplay, TaskWeightsDisplay

__all__ = ["Paths", "claims", "draw", "tables", "write_files"]

Paths = Mapping[str, Sequence[Point]]

BUDGETS = (0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 30, 50, 100)
#: JOPLEn DL as the pictures show it: the first of these that there is.
SHOWN = (f"{JOPLEN} at {DL}'s errors", f"{JOPLEN} at {DL}'s mean error")
WIDE = 30  # numbers of features from which their axis is logarithmic
COLORS = {JOPLEN: "#c1432e", DL: "#4f86b8", BOUTS: "#6a994e"}


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


# -- tables --------------------------------------------------------------------------------------


def frontier_table(paths: Paths) -> str:
    """Test errors of the points with the lowest validation error for a number of features."""
    most = max(point.features for points in paths.values() for point in points)
    budgets = [budget for budget in BUDGETS if budget <= most]
    columns = [budget_table(points, budgets) for points in paths.values()]
    rows = []
    for k, budget in enumerate(budgets):
        cells = [
            "-" if best is None else f"{best.error('test'):.4f} ({best.features:.1f})"
            for best in (column[k] for column in columns)
        ]
        rows.append([str(budget), *cells])
    return markdown(["features per task, at most", *paths], rows)


def error_table(chosen: Mapping[str, Point], peers: Sequence[Peer], data: MultitaskData) -> str:
    """Test errors of every task."""
    rows = [
        [name, *(f"{value:.4f}" for value in [*point.mse["test"], point.error("test")]),
         f"{point.error():.4f}", f"{point.seconds:.1f}"]
        for name, point in chosen.items()
    ]  # fmt: skip
    for peer in peers:
        mse = peer.mse["test"]
        numbers = [*mse, np.mean(mse), np.mean(peer.mse["validation"])]
        rows.append([peer.name, *(f"{value:.4f}" for value in numbers), f"{peer.seconds:.1f}"])
    names = [task.name for task in data.tasks]
    return markdown(["test MSE", *names, "mean", "mean, validation", "seconds"], rows)


def count_table(chosen: Mapping[str, Point], data: MultitaskData) -> str:
    """Numbers of features, common + of the task only."""
    rows = [
        [name, *(f"{point.n_common} + {own}" for own in point.n_specific), f"{point.features:.1f}"]
        for name, point in chosen.items()
    ]
    return markdown(["features", *(task.name for task in data.tasks), "per task"], rows)


def selected_table(refits: Mapping[str, Sequence[float]], data: MultitaskData) -> str:
    """Test errors of LightGBM on selected features."""
    rows = [
        [name, *(f"{value:.4f}" for value in [*errors, np.mean(errors)])]
        for name, errors in refits.items()
    ]
    names = [task.name for task in data.tasks]
    return markdown(["LightGBM on the features of", *names, "mean"], rows)


def settings_lines(chosen: Mapping[str, Point]) -> str:
    """Strengths and prices that were chosen."""
    lines = []
    for name, point in chosen.items():
        values = ", ".join(f"{key}={value:.4g}" for key, value in point.settings.items())
        lines.append(f"- {name}: {values}")
    return "\n".join(lines)


def meaning_of_selected(paths: Paths) -> str:
    """What "selected" says of JOPLEn DL, and how far its cells come without any slope."""
    bare = [point for point in paths[JOPLEN] if point.features == 0]
    best = min(bare, key=Point.error).error("test")
    return (
        f"Selected features of {JOPLEN} are those with slopes. The Voronoi cells, and so the "
        f"biases of cells,\nuse all features: without any slope they reach a mean test error of "
        f"{best:.4f}."
    )


def claims(chosen: Mapping[str, Point]) -> dict[str, dict[str, float]]:
    """Comparisons of every point of JOPLEn DL with the method that it was chosen for."""
    found = {}
    for name, point in chosen.items():
        for rival in (DL, BOUTS):
            if point.method == JOPLEN and f"{rival}'s" in name:
                found[name] = compare(point, chosen[rival])
    return found


def claim_lines(found: Mapping[str, Mapping[str, float]]) -> str:
    """Comparisons in words."""
    lines = []
    for name, of in found.items():
        lines.append(
            f"- {name}: test MSE {of['test_mse']:.4f} against {of['rival_test_mse']:.4f}, "
            f"{of['features']:.1f} features per task against {of['rival_features']:.1f}; of "
            f"{of['n_tasks']} tasks the error is lower in {of['tasks_lower_error']}, features are "
            f"fewer in {of['tasks_fewer_features']}, both in {of['tasks_both']}, either in "
            f"{of['tasks_either']}"
        )
    return "\n".join(lines)


def tables(
    paths: Paths,
    chosen: Mapping[str, Point],
    refits: Mapping[str, Sequence[float]],
    peers: Sequence[Peer],
    data: MultitaskData,
) -> str:
    """Everything that is printed."""
    return "\n\n".join(
        (
            "Mean test error for a number of features per task, chosen by validation error (their "
            "number):",
            frontier_table(paths),
            "Chosen points:",
            settings_lines(chosen),
            error_table(chosen, peers, data),
            count_table(chosen, data),
            meaning_of_selected(paths),
            "What is in the selected features by themselves:",
            selected_table(refits, data),
            claim_lines(claims(chosen)),
        )
    )


# -- files ---------------------------------------------------------------------------------------


def point_record(point: Point) -> dict[str, Any]:
    """What is written of a chosen point."""
    return {
        "method": point.method,
        "settings": {key: float(f"{value:.6g}") for key, value in point.settings.items()},
        "mse": {part: np.round(values, 5).tolist() for part, values in point.mse.items()},
        "n_common": point.n_common,
        "n_specific": point.n_specific.tolist(),
        "seconds": round(point.seconds, 2),
    }


def write_paths(paths: Paths, file: Path) -> None:
    """Write every point of every path as a row."""
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(
            ["method", "first", "second", "bias_strength", "common", "specific", "features",
             "validation_mse", "test_mse", "seconds"]
        )  # fmt: skip
        for points in paths.values():
            for point in points:
                settings = [f"{value:.4g}" for value in point.settings.values()]
                writer.writerow(
                    [point.method, *settings, *[""] * (3 - len(settings)), point.n_common,
                     " ".join(map(str, point.n_specific)), f"{point.features:.2f}",
                     f"{point.error():.5f}", f"{point.error('test'):.5f}", f"{point.seconds:.2f}"]
                )  # fmt: skip


def write_files(
    name: str,
    paths: Paths,
    chosen: Mapping[str, Point],
    refits: Mapping[str, Sequence[float]],
    peers: Sequence[Peer],
    data: MultitaskData,
    folder: Path,
) -> None:
    """Write the paths and what was chosen."""
    folder.mkdir(parents=True, exist_ok=True)
    write_paths(paths, folder / f"multitask_{name}_paths.csv")
    record = {
        "tasks": {task.name: {part: len(y) for part, y in task.y.items()} for task in data.tasks},
        "n_features": len(data.feature_names),
        "chosen": {name: point_record(point) for name, point in chosen.items()},
        "peers": {
            peer.name: {part: np.round(mse, 5).tolist() for part, mse in peer.mse.items()}
            for peer in peers
        },
        "lightgbm_on_selected": {
            name: np.round(errors, 5).tolist() for name, errors in refits.items()
        },
        "comparisons": claims(chosen),
        "path_seconds": {
            method: round(sum(point.seconds for point in points), 1)
            for method, points in paths.items()
        },
    }
    text = json.dumps(record, indent=1) + "\n"
    (folder / f"multitask_{name}.json").write_text(text)


# -- pictures ------------------------------------------------------------------------------------


def draw_frontier(
    paths: Paths, chosen: Mapping[str, Point], peers: Sequence[Peer], file: Path
) -> None:
    """Mean test errors along the frontiers, with the chosen points."""
    figure = require("matplotlib.figure").Figure(figsize=(7.5, 4.4), layout="constrained")
    axes = figure.subplots()
    for method, points in paths.items():
        best = frontier(points)
        axes.plot(
            [point.features for point in best], [point.error("test") for point in best],
            "o-", ms=3, lw=1.4, color=COLORS[method], label=method,
        )  # fmt: skip
    for name, point in chosen.items():
        axes.plot(
            point.features, point.error("test"), "o", ms=10, mfc="none", mew=1.6,
            color=COLORS[point.method], label="chosen" if name == DL else None,
        )  # fmt: skip
    for peer, style in zip(peers, (":", "--"), strict=False):
        axes.axhline(np.mean(peer.mse["test"]), color="#3d4450", lw=1, ls=style, label=peer.name)
    axes.set_yscale("log")
    if axes.get_xlim()[1] > WIDE:
        axes.set_xscale("symlog", linthresh=10, linscale=1.5)
        ticks = [tick for tick in (0, 2, 4, 6, 8, 10, 20, 50, 100) if tick <= axes.get_xlim()[1]]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlim(left=-0.3)
    levels = [v for v in (0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
              if axes.get_ylim()[0] <= v <= axes.get_ylim()[1]]  # fmt: skip
    axes.set_yticks(levels, [f"{level:g}" for level in levels])
    axes.yaxis.set_minor_locator(require("matplotlib.ticker").NullLocator())
    axes.grid(color="#c9ced6", lw=0.5, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("selected features per task (mean; common ones count in every task)")
    axes.set_ylabel("mean test MSE, target variance = 1")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    figure.savefig(file, dpi=120)


def draw(
    name: str,
    paths: Paths,
    chosen: Mapping[str, Point],
    models: Mapping[str, Any],
    peers: Sequence[Peer],
    data: MultitaskData,
    folder: Path,
) -> list[Path]:
    """Write the frontiers and the paper's three pictures: weights, errors, numbers of features."""
    folder.mkdir(parents=True, exist_ok=True)
    require("matplotlib").use("Agg")
    plt = require("matplotlib.pyplot")
    files = {
        kind: folder / f"multitask_{name}_{kind}.png"
        for kind in ("frontier", "weights", "errors", "counts")
    }
    draw_frontier(paths, chosen, peers, files["frontier"])
    names = [task.name for task in data.tasks]
    key = next((key for key in SHOWN if key in chosen), None)
    shown = {} if key is None else {JOPLEN: chosen[key]}
    shown |= {DL: chosen[DL], BOUTS: chosen[BOUTS]}
    errors = {
        method: dict(zip(names, point.mse["test"].tolist(), strict=True))
        for method, point in shown.items()
    }
    errors |= {peer.name: dict(zip(names, peer.mse["test"], strict=True)) for peer in peers}
    counts = {
        method: (point.n_common, dict(zip(names, point.n_specific.tolist(), strict=True)))
        for method, point in shown.items()
    }
    displays = {
        "weights": TaskWeightsDisplay(
            models[key or DL].solution_, task_names=names, feature_names=data.feature_names
        ).plot(),
        "errors": TaskErrorDisplay(
            errors, error_name="test MSE, target variance = 1 (lower is better)"
        ).plot(),
        "counts": SelectionDisplay(counts).plot(),
    }
    for kind, display in displays.items():
        display.figure_.savefig(files[kind], dpi=120, bbox_inches="tight")
        plt.close(display.figure_)
    return list(files.values())
