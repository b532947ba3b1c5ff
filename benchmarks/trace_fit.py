"""Count the functions of jointleaf that a default fit runs through.

    python benchmarks/trace_fit.py [--rows 500 5000 50000] [--predict-rows 500 20000]

Every call in every thread is seen by `sys.setprofile`. Counted are distinct functions (lambdas and
comprehensions among them: compare runs of one version of Python only), the files and folders that
hold them, packages (the folders and files directly below ``src/jointleaf``; "top files" are the
files among them), the largest depth of jointleaf's own calls, and edges: pairs of files in
different packages of which the one calls the other. What imports run is left out: the same is
fitted once before anything is counted.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.datasets import make_friedman1

import jointleaf

ROOT = Path(jointleaf.__file__).parent
N_FEATURES = 10


class Counts(NamedTuple):
    """What was counted while a call ran."""

    functions: int
    files: int
    folders: int
    packages: int
    top_files: int
    depth: int
    edges: int
    calls: int
    seconds: float


class Function(NamedTuple):
    """A function of jointleaf: its file below the package, and its name with that of its class."""

    file: Path
    name: str

    @property
    def package(self) -> str:
        """The folder or the file directly below the package."""
        return self.file.parts[0]


class Tracer:
    """A profile function that follows the calls between functions of jointleaf.

    Attributes
    ----------
    calls : dict of int
        Number of calls of every function.
    edges : set of pairs
        Caller and callee; functions of other libraries between them are skipped.
    depth : int
        Most functions of jointleaf on the stack of one thread.
    """

    def __init__(self) -> None:
        self.calls: dict[Function, int] = {}
        self.edges: set[tuple[Function, Function]] = set()
        self.depth = 0
        self._functions: dict[CodeType, Function | None] = {}
        self._local = threading.local()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note the begin or the end of a call."""
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code not in self._functions:
            self._functions[code] = function_of(code)
        function = self._functions[code]
        if function is None:
            return
        stack = self._local.__dict__.setdefault("stack", [])
        if event == "call":
            self._enter(function, stack)
        elif stack:
            stack.pop()

    def _enter(self, function: Function, stack: list[Function]) -> None:
        self.calls[function] = self.calls.get(function, 0) + 1
        if stack:
            self.edges.add((stack[-1], function))
        stack.append(function)
        self.depth = max(self.depth, len(stack))


def function_of(code: CodeType) -> Function | None:
    """Return the function of jointleaf that code belongs to, None for everything else."""
    path = Path(code.co_filename)
    if ROOT not in path.parents or code.co_name == "<module>":
        return None
    return Function(path.relative_to(ROOT), getattr(code, "co_qualname", code.co_name))


def traced(call: Callable[[], Any]) -> Counts:
    """Run something in sight of a tracer and return what was counted."""
    tracer = Tracer()
    start = time.perf_counter()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return counts(tracer, time.perf_counter() - start)


def counts(tracer: Tracer, seconds: float) -> Counts:
    """Return the numbers of a tracer."""
    files = {function.file for function in tracer.calls}
    packages = {function.package for function in tracer.calls}
    edges = {(a.file, b.file) for a, b in tracer.edges if a.package != b.package}
    return Counts(
        functions=len(tracer.calls),
        files=len(files),
        folders=len({file.parent for file in files}),
        packages=len(packages),
        top_files=sum(package.endswith(".py") for package in packages),
        depth=tracer.depth,
        edges=len(edges),
        calls=sum(tracer.calls.values()),
        seconds=seconds,
    )


def data(n: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return Friedman's first function with ten columns, or three classes of equal size of it."""
    X, y = make_friedman1(n, n_features=N_FEATURES, noise=1.0, random_state=0)
    if kind == "classes":
        y = np.searchsorted(np.quantile(y, [1 / 3, 2 / 3]), y)
    return X, y


def estimator(kind: str) -> Any:
    """Return a default estimator for numbers or classes."""
    name = "JOPLEnRegressor" if kind == "numbers" else "JOPLEnClassifier"
    return getattr(jointleaf, name)(random_state=0)


def print_row(what: str, kind: str, n: int, found: Counts) -> None:
    """Print one row of the table."""
    numbers = " | ".join(f"{number:,}" for number in found[:-1])
    print(f"| {what} | {kind} | {n:,} | {numbers} | {found.seconds:.1f} |", flush=True)


def print_rows(kind: str, fit_rows: list[int], predict_rows: list[int]) -> None:
    """Print what was counted in fits, and in predictions of the model with the fewest rows."""
    for n in sorted(fit_rows, reverse=True):
        X, y = data(n, kind)
        model = estimator(kind).fit(X, y)  # imports
        print_row("fit", kind, n, traced(partial(model.fit, X, y)))
    for n in predict_rows:
        X, _ = data(n, kind)
        model.predict(X)
        print_row("predict", kind, n, traced(partial(model.predict, X)))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", type=int, default=[500, 5000, 50_000])
    parser.add_argument("--predict-rows", nargs="*", type=int, default=[500, 20_000])
    args = parser.parse_args()
    names = ("what", "target", "rows", *Counts._fields[:-1], "s with tracing")
    print("| " + " | ".join(names).replace("_", " ") + " |\n|" + "---|" * len(names))
    for kind in ("numbers", "classes"):
        print_rows(kind, args.rows, args.predict_rows)


if __name__ == "__main__":
    main()
