"""Time and memory of two versions of jointleaf, in turns on the same machine.

    python benchmarks/base_against_head.py BASE_SRC HEAD_SRC [--repeats 5] [--only PATTERN]

BASE_SRC and HEAD_SRC are folders that hold the package ``jointleaf``. Every measurement runs in a
new process with one thread, base and head in turns, and the smallest value of every quantity is
printed: CPU seconds, growth of the peak memory during a fit, size of a pickle and of a saved file.
Bytecode is kept in a temporary folder: nothing is written to either source.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
FITS = (
    ("numbers", 500),
    ("numbers", 3000),
    ("numbers", 12_000),
    ("classes", 400),
    ("classes", 3000),
)

IMPORT = """
import json, time
start = time.process_time()
{statement}
print(json.dumps({{{label!r}: time.process_time() - start}}))
"""

FIT = """
import json, pickle, resource, sys, tempfile, time
from pathlib import Path
import numpy as np
from sklearn.datasets import make_friedman1
import jointleaf

kind, n = {kind!r}, {n}
X, y = make_friedman1(n, n_features=10, noise=1.0, random_state=0)
if kind == "classes":
    y = np.searchsorted(np.quantile(y, [1 / 3, 2 / 3]), y)
name = "JOPLEnRegressor" if kind == "numbers" else "JOPLEnClassifier"
make = getattr(jointleaf, name)
make(random_state=0).fit(X[:60], y[:60])  # imports


def peak():
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else 1024 * size


def best(call, repeats=5):
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


before, start = peak(), time.process_time()
model = make(random_state=0).fit(X, y)
found = {{"fit, CPU s": time.process_time() - start, "memory growth, MB": (peak() - before) / 1e6}}
rows = np.random.default_rng(1).random((20_000, 10))
found["predict 20 rows, CPU s"] = best(lambda: model.predict(rows[:20]), 20)
found["predict 20,000 rows, CPU s"] = best(lambda: model.predict(rows), 3)
found["pickle, kB"] = len(pickle.dumps(model)) / 1e3
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.jl"
    jointleaf.save(model, path)
    found["saved file, kB"] = path.stat().st_size / 1e3
print(json.dumps(found))
"""


def scripts() -> dict[str, str]:
    """Return the measurements: scripts that print a JSON object of quantities."""
    statements = {
        "import jointleaf": "import jointleaf",
        "import JOPLEnRegressor": "from jointleaf import JOPLEnRegressor",
    }
    found = {
        name: IMPORT.format(statement=statement, label="import, CPU s")
        for name, statement in statements.items()
    }
    for kind, n in FITS:
        found[f"{kind} {n:,} rows"] = FIT.format(kind=kind, n=n)
    return found


def measure(script: str, source: Path, cache: Path) -> dict[str, float]:
    """Run a script in a new process that imports from a folder; return what it printed."""
    environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": str(source)}
    environment |= {"PYTHONWARNINGS": "ignore", "PYTHONPYCACHEPREFIX": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"A measurement failed with the source {source}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def in_turns(
    script: str, sources: tuple[Path, Path], repeats: int, cache: Path
) -> list[dict[str, float]]:
    """Measure both sources in turns; return the smallest value of every quantity for each."""
    smallest: list[dict[str, float]] = [{}, {}]
    for turn in range(repeats):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            for key, value in measure(script, sources[which], cache).items():
                smallest[which][key] = min(value, smallest[which].get(key, value))
    return smallest


def print_rows(name: str, base: dict[str, float], head: dict[str, float]) -> None:
    """Print one row of the table for every quantity."""
    for key in base:
        ratio = f"{head[key] / base[key]:.2f}" if base[key] > 0 else ""
        print(f"| {name} | {key} | {base[key]:.4g} | {head[key]:.4g} | {ratio} |", flush=True)


def print_table(sources: tuple[Path, Path], repeats: int, pattern: str) -> None:
    """Run the measurements that a regular expression matches and print what they gave."""
    print("| measurement | quantity | base | head | head / base |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as cache:
        for source in sources:
            measure(FIT.format(kind="numbers", n=100), source, Path(cache))  # compiles
        for name, script in scripts().items():
            if re.search(pattern, name):
                print_rows(name, *in_turns(script, sources, repeats, Path(cache)))


def source_folder(text: str) -> Path:
    """Return a folder that holds the package, as an absolute path."""
    path = Path(text).resolve()
    if not (path / "jointleaf" / "__init__.py").exists():
        raise argparse.ArgumentTypeError(f"{text} holds no package jointleaf")
    return path


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=source_folder)
    parser.add_argument("head", type=source_folder)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="regular expression of measurements")
    args = parser.parse_args()
    print_table((args.base, args.head), args.repeats, args.only)


if __name__ == "__main__":
    main()
