"""jointleaf against joplen 1.0.3 on one multitask problem, in one run on one core.

    python benchmarks/speed_joplen_multitask.py --data FOLDER [--seconds 600]

About 13 minutes. Dirty LASSO on the test part of SARCOS: 80 % of its 4,449 rows, seven torques,
100 x 8 Voronoi cells for every task, squared error, free biases; the strengths select some, not
all, of the 21 features. joplen runs as a black box in an environment of its own and makes the
cells; they are handed to jointleaf with the same standardised data. joplen gets the best of
several steps, found by short runs before the long one; what it has not reached by then counts as
the cap. Its runs are kept in the work folder and used again by a second call; delete the folder
for a run from the start. Both packages are judged by `dirty_lasso_objective.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from jointleaf.datasets import load_sarcos
from speed_joplen import joplen_python, lowest, pinned, seconds_to

HERE = Path(__file__).parent
N_PARTITIONS, N_CELLS = 100, 8
#: joplen diverges with larger steps: its common and task weights move at once.
STEPS = (0.0005, 0.001, 0.002, 0.005, 0.01)


def prepare(folder: Path | None, work: Path) -> Path:
    """Write the standardised data; 80 % of the rows are training rows."""
    X, Y = load_sarcos(folder=folder, part="test", return_X_y=True)
    X_train, X_test, Y_train, Y_test = train_test_split(X, Y, test_size=0.2, random_state=0)
    arrays = {}
    for name, train, test in (("X", X_train, X_test), ("Y", Y_train, Y_test)):
        mean, scale = train.mean(axis=0), train.std(axis=0)
        arrays[f"{name}_train"] = (train - mean) / scale
        arrays[f"{name}_test"] = (test - mean) / scale
    path = work / "sarcos.npz"
    np.savez(path, **arrays)
    return path


def options(args: argparse.Namespace) -> list[str]:
    """Arguments that both workers have."""
    return [
        "--n-cells", str(N_CELLS), "--common", str(args.common), "--task", str(args.task),
    ]  # fmt: skip


def run_joplen(python: Path, data: Path, mu: float, seconds: float, args) -> tuple[dict, Path]:
    """One run of joplen: the record of `joplen_multitask_worker.py` and the file of its cells."""
    name = f"joplen-{args.common:g}-{args.task:g}-{mu:g}-{seconds:g}"
    stem = args.work / name.replace(".", "p")  # a dot would be taken for a suffix
    if not stem.with_suffix(".json").exists():
        command = [
            *pinned(args.core), str(python), str(HERE / "joplen_multitask_worker.py"), str(data),
            "--output", str(stem), "--n-partitions", str(N_PARTITIONS), *options(args),
            "--mu", str(mu), "--seconds", str(seconds),
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        subprocess.run(command, check=True, stdout=quiet, stderr=quiet)
    return json.loads(stem.with_suffix(".json").read_text()), stem.with_suffix(".npz")


def run_jointleaf(data: Path, codes: Path, name: str, args, *more: str) -> dict:
    """One run of jointleaf; the record of `jointleaf_multitask_worker.py`."""
    output = args.work / f"{name}.json"
    command = [
        *pinned(args.core), sys.executable, str(HERE / "jointleaf_multitask_worker.py"),
        str(data), str(codes), str(output), *options(args), *more,
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return json.loads(output.read_text())


def best_step(python: Path, data: Path, args: argparse.Namespace) -> float:
    """Step of joplen with the lowest objective after a short run."""
    values = {}
    for mu in STEPS:
        record, _ = run_joplen(python, data, mu, args.trial_seconds, args)
        # The end counts: a step that is too large starts well and diverges later.
        values[mu] = record["trajectory"][-1]["objective"] or np.inf
        print(f"  joplen, step {mu}: {values[mu]:.5g} in {args.trial_seconds:g} s", flush=True)
    return min(values, key=values.__getitem__)


def compare(peer: dict, own: dict, optimum: float, cap: float) -> list[dict]:
    """Seconds of both packages to within two distances of the optimum."""
    theirs = [
        (point["wall_s"], point["objective"])
        for point in peer["trajectory"]
        if point["objective"] is not None
    ]
    rows = []
    for tol in (1e-3, 1e-4):
        goal = optimum * (1 + tol)
        reached = seconds_to(theirs, goal)
        rows.append(
            {
                "tol": tol,
                "joplen": cap if reached is None else reached,
                "reached": reached is not None,
                "jointleaf": seconds_to(own["trace"], goal),
            }
        )
    return rows


def counts(selected: dict) -> str:
    """Numbers of selected features, common + of each task only."""
    return f"{len(selected['common'])} + ({', '.join(str(len(s)) for s in selected['tasks'])})"


def report(result: dict) -> str:
    """Markdown table and what else is to be known."""
    lines = ["| to within | joplen | jointleaf | ratio |", "|---|---|---|---|"]
    for row in result["times"]:
        mark, ours = "" if row["reached"] else "> ", row["jointleaf"]
        cells = [f"{row['tol']:g}", f"{mark}{row['joplen']:.0f} s"]
        if ours is None:
            cells += ["not reached", ""]
        else:
            cells += [f"{ours:.2f} s", f"{mark}{row['joplen'] / ours:.0f}x"]
        lines.append("| " + " | ".join(cells) + " |")
    a, b = result["memory"]
    lines.append(
        f"memory growth {a:.0f} / {b:.0f} MB = {a / max(b, 1):.1f}x; optimum "
        f"{result['optimum']:.6g}, joplen's best {result['joplen_best']:.6g} "
        f"({result['joplen_best'] / result['optimum'] - 1:.2%} above) with step {result['step']} "
        f"in {result['passes']} passes"
    )
    lines.append(
        f"features, common + of each task: optimum {counts(result['selected'])}, "
        f"joplen {counts(result['joplen_selected'])}"
    )
    return "\n".join(lines)


def run(args: argparse.Namespace) -> dict:
    """Run both packages and give the result."""
    data = prepare(args.data, args.work)
    python = joplen_python(args.joplen)
    mu = best_step(python, data, args)
    peer, codes = run_joplen(python, data, mu, args.seconds, args)
    exact = run_jointleaf(
        data, codes, "exact", args, "--dtype", "float64", "--tol", "1e-8", "--max-iter", "100000"
    )
    runs = [run_jointleaf(data, codes, f"jointleaf-{k}", args) for k in range(args.repeats)]
    own = sorted(runs, key=lambda record: record["total_s"])[len(runs) // 2]  # the median run
    return {
        "strengths": (args.common, args.task),
        "optimum": exact["objective"],
        "objective_gap": max(record["objective_gap"] for record in (exact, *runs)),
        "step": mu,
        "passes": peer["passes"],
        "joplen_best": lowest(peer),
        "times": compare(peer, own, exact["objective"], args.seconds),
        "memory": tuple(r["rss_peak_mb"] - r["rss_before_fit_mb"] for r in (peer, own)),
        "selected": exact["selected"],
        "joplen_selected": peer["selected"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="local folder with SARCOS; else downloaded")
    parser.add_argument("--work", type=Path, default=Path("output/speed_joplen_multitask"))
    parser.add_argument(
        "--joplen", type=Path, default=Path("output/speed_joplen"), help="has joplen's environment"
    )
    parser.add_argument("--common", type=float, default=0.07, help="strength on common slopes")
    parser.add_argument("--task", type=float, default=0.03, help="strength on slopes of a task")
    parser.add_argument("--seconds", type=float, default=600.0, help="what joplen gets")
    parser.add_argument("--trial-seconds", type=float, default=20.0, help="to find its step")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    result = run(args)
    (args.work / "result.json").write_text(json.dumps(result, indent=1))
    print(report(result))


if __name__ == "__main__":
    main()
