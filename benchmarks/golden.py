"""Golden predictions: capture them before a change, compare with them after it.

    python benchmarks/golden.py capture golden.npz [--only PATTERN] [--jobs 2] [--add]
    python benchmarks/golden.py compare golden.npz [--only PATTERN] [--jobs 2] [--tol 1e-9]

Every configuration of `golden_configurations.py` is fitted on generated data with fixed seeds and
predicts the same held-out rows. ``compare`` prints the largest difference of every configuration,
relative to max(1, |golden|), and ends with status 1 if one is above the tolerance, if one raises,
or if configurations are missing on either side. ``capture --add`` keeps what the file has and
adds configurations that it has not. PYTHONPATH says which source is imported.

Captures of one source with one thread were equal bit for bit. With two threads the default fits of
3,000 numbers moved by up to 2e-6, all others by less than 1e-10: a change of the order of sums may
do as much.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import json
import re
import time
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

import jointleaf
from golden_configurations import CONFIGURATIONS, Outputs

PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm", "xgboost", "catboost", "pandas")
VERSIONS_KEY = "versions"
SEPARATOR = "//"


class Run(NamedTuple):
    """What one configuration gave: arrays by name, or an error."""

    name: str
    arrays: Outputs
    error: str
    seconds: float


class Difference(NamedTuple):
    """How far a configuration is from its golden predictions."""

    name: str
    value: float
    note: str


def run(name: str) -> Run:
    """Run one configuration; an exception becomes the error of the result."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = CONFIGURATIONS[name]()
            arrays, error = {key: np.asarray(a, dtype=float) for key, a in found.items()}, ""
        except Exception as raised:
            line = traceback.extract_tb(raised.__traceback__)[-1]
            place = f"{Path(line.filename).name}:{line.lineno}"
            arrays, error = {}, f"{type(raised).__name__}: {raised} ({place})"
    return Run(name, arrays, error, time.process_time() - start)


def run_all(names: list[str], jobs: int) -> Iterator[Run]:
    """Run configurations, several at a time in processes of their own."""
    if jobs == 1:
        yield from map(run, names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, name) for name in names]):
            yield future.result()


def chosen(pattern: str, names: list[str]) -> list[str]:
    """Return the names that a regular expression matches somewhere."""
    return [name for name in names if re.search(pattern, name)]


def installed_versions() -> dict[str, str]:
    """Return versions of Python and packages, and threads: all that predictions depend on."""
    found = {"python": sys.version.split()[0], "OMP_NUM_THREADS": os.environ["OMP_NUM_THREADS"]}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def save_golden(path: Path, golden: dict[str, Outputs]) -> None:
    """Write arrays by configuration and name, and the versions, to a compressed file."""
    arrays = {f"{name}{SEPARATOR}{key}": a for name in golden for key, a in golden[name].items()}
    arrays[VERSIONS_KEY] = np.array(json.dumps(installed_versions()))
    np.savez_compressed(path, **arrays)


def load_golden(path: Path) -> tuple[dict[str, Outputs], dict[str, str]]:
    """Return golden arrays by configuration and name, and the versions that made them."""
    golden: dict[str, Outputs] = {}
    with np.load(path) as file:
        versions = json.loads(str(file[VERSIONS_KEY]))
        for key in file.files:
            if key != VERSIONS_KEY:
                name, part = key.split(SEPARATOR)
                golden.setdefault(name, {})[part] = file[key]
    return golden, versions


def difference(found: Run, golden: Outputs) -> Difference:
    """Return the largest difference of a run, relative to max(1, |golden|)."""
    if found.error:
        return Difference(found.name, np.inf, found.error)
    largest, note = 0.0, ""
    for key in sorted(golden.keys() | found.arrays.keys()):
        if key not in golden or key not in found.arrays:
            where = "new run" if key not in golden else "golden file"
            return Difference(found.name, np.inf, f"{key!r} is only in the {where}")
        value, problem = array_difference(found.arrays[key], golden[key])
        if problem:
            return Difference(found.name, np.inf, f"{key}: {problem}")
        if value > largest:
            largest, note = value, key
    return Difference(found.name, largest, note)


def array_difference(new: np.ndarray, old: np.ndarray) -> tuple[float, str]:
    """Return the largest relative difference of two arrays, and why they cannot be compared."""
    if new.shape != old.shape:
        return np.inf, f"shape {new.shape}, golden {old.shape}"
    if not np.array_equal(np.isfinite(new), np.isfinite(old)):
        return np.inf, "not finite in other places"
    finite = np.isfinite(old)
    gaps = np.abs(new[finite] - old[finite]) / np.maximum(1.0, np.abs(old[finite]))
    return float(gaps.max(initial=0.0)), ""


def capture(path: Path, pattern: str, jobs: int, is_addition: bool) -> int:
    """Run configurations and write what they predict; return the exit status."""
    golden = load_golden(path)[0] if is_addition else {}
    names = [name for name in chosen(pattern, list(CONFIGURATIONS)) if name not in golden]
    runs = []
    for done in run_all(names, jobs):
        runs.append(done)
        print(f"{done.seconds:7.2f} s  {done.name}  {done.error}", flush=True)
    save_golden(path, golden | {r.name: r.arrays for r in runs if not r.error})
    failed = sum(bool(r.error) for r in runs)
    seconds = sum(r.seconds for r in runs)
    size = path.stat().st_size / 1e3
    print(f"{len(runs) - failed} captured, {failed} failed, {seconds:.0f} CPU s, {size:.0f} kB")
    return int(failed > 0)


def compare(path: Path, pattern: str, jobs: int, tol: float) -> int:
    """Run configurations and print how far they are from a file; return the exit status."""
    golden, versions = load_golden(path)
    print_versions(versions)
    names = chosen(pattern, list(CONFIGURATIONS))
    missing = chosen(pattern, sorted(golden.keys() - CONFIGURATIONS.keys()))
    new = [name for name in names if name not in golden]
    differences = []
    print("| configuration | largest difference | CPU s | |\n|---|---|---|---|")
    for done in run_all([name for name in names if name in golden], jobs):
        found = difference(done, golden[done.name])
        differences.append(found)
        verdict = "" if found.value <= tol else "**FAIL** "
        row = f"| {done.name} | {found.value:.1e} | {done.seconds:.1f} | {verdict}{found.note} |"
        print(row, flush=True)
    for name in missing:
        print(f"| {name} | | | **FAIL** in the golden file, but not a configuration any more |")
    for name in new:
        print(f"| {name} | | | **FAIL** not in the golden file: capture it |")
    return print_verdict(differences, tol, len(missing) + len(new))


def print_versions(golden: dict[str, str]) -> None:
    """Print a note for every package whose version is not that of the golden file."""
    here = installed_versions()
    for package in sorted(golden.keys() | here.keys()):
        old, new = golden.get(package, "unknown"), here.get(package, "unknown")
        if old != new:
            print(f"Note: {package} is {new}, the golden file was made with {old}.\n")


def print_verdict(differences: list[Difference], tol: float, n_unmatched: int) -> int:
    """Print a summary with the failures, largest first; return the exit status."""
    failed = sorted((d for d in differences if d.value > tol), key=lambda d: -d.value)
    largest = max((d.value for d in differences), default=0.0)
    print(
        f"\n{len(differences)} compared, {len(failed)} above {tol:g} or failed, "
        f"{n_unmatched} on one side only; largest difference {largest:.1e}"
    )
    for found in failed:
        print(f"  {found.value:.1e}  {found.name}: {found.note}")
    return int(bool(failed) or n_unmatched > 0 or not differences)


def main() -> int:
    """Read the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["capture", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="regular expression of names")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--tol", type=float, default=1e-9)
    parser.add_argument("--add", action="store_true", help="capture: keep what the file has")
    args = parser.parse_args()
    print(f"jointleaf from {Path(jointleaf.__file__).parent}\n")
    if args.command == "capture":
        return capture(args.file, args.only, args.jobs, args.add)
    return compare(args.file, args.only, args.jobs, args.tol)


if __name__ == "__main__":
    sys.exit(main())
