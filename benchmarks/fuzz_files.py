"""Load very many damaged model files, with a limit of memory and of time for each.

    python -m benchmarks.fuzz_files --files 100000

Every file must give `ModelFileError`, or a model that predicts, and can be printed, cloned, pickled
and saved. The damage is that of the tests (`tests/model_file_damage.py`): bytes, lengths,
stretches, fields of the header, values from elsewhere in it, shapes, numbers in their own types,
compression, very long lists and texts, arrays without numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import pickle
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import jointleaf as jl  # noqa: E402
from jointleaf.io._model_file import files  # noqa: E402
from model_file_damage import MODELS, Mutations, predict  # noqa: E402
from model_kinds import KINDS, X, make  # noqa: E402

OLD = ROOT / "tests" / "io" / "model_files"
_SECONDS, _MEGABYTES = 10, 1024


def originals() -> dict[str, bytes]:
    """Return files to damage: of all kinds of models, and of older formats."""
    models = {f"fitted {name}": make_model for name, make_model in MODELS.items()}
    data = {name: files._to_bytes(make_model()) for name, make_model in models.items()}
    data |= {f"kind {name}": files._to_bytes(make(name)) for name in KINDS}
    old = sorted(path for path in OLD.glob("*/*") if path.suffix in (".jl", ".jleaf"))
    return data | {f"old {path.parent.name}/{path.stem}": path.read_bytes() for path in old}


def use(model: Any, matrix: np.ndarray) -> None:
    """Do with a model what its owner might."""
    predict(model, matrix)
    predict(model, np.tile(matrix, (100, 1)))
    repr(model)
    clone(model)
    pickle.loads(pickle.dumps(model))
    files._from_bytes(files._to_bytes(model))


def outcome(data: bytes, matrix: np.ndarray, *, is_used: bool) -> str:
    """Return "refused", "valid", or what went wrong with a file."""
    try:
        model = files._from_bytes(data)
    except jl.ModelFileError as error:
        cause = error.__cause__  # behind all checks: memory, or a check that is missing
        return "refused" if cause is None else f"load: {cause!r:.100}"
    except Exception as error:
        return f"load: {error!r:.100}"
    try:
        predict(model, matrix)
        if is_used:
            use(model, matrix)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"use: {error!r:.100} at {Path(last.filename).name}:{last.lineno}"
    return "valid"


def main() -> None:
    """Damage files in turns, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for files that went wrong")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sources = originals()
    ways = {
        name: iter(Mutations(data, f"{name} {args.seed}", args.files))
        for name, data in sources.items()
    }
    matrix = np.nan_to_num(X[:3])
    matrix[0, 0] = np.nan
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    status = Path("/proc/self/statm")
    if status.exists():  # all that is allocated from here on
        pages = int(status.read_text().split()[0])
        limit = pages * resource.getpagesize() + _MEGABYTES * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    counts: Counter[str] = Counter()
    slowest, start = (0.0, ""), time.process_time()
    names = list(sources)
    with contextlib.suppress(KeyboardInterrupt):  # counts of what there was time for
        for k in range(args.files):
            name = names[k % len(names)]
            data = next(ways[name])
            begin = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)
            with np.errstate(all="ignore"):
                result = outcome(data, matrix, is_used=k // len(names) % 3 == 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            seconds = time.process_time() - begin
            slowest = max(slowest, (seconds, f"{result[:20]}, {name}, number {k}"))
            counts[result] += 1
            if result not in ("refused", "valid") and args.keep is not None:
                args.keep.mkdir(parents=True, exist_ok=True)
                (args.keep / f"{k}.jleaf").write_bytes(data)
                print(k, name, result, flush=True)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{counts.total():,} files of {len(sources)} models in {seconds:.0f} s of one core")
    print(f"slowest: {slowest[0]:.2f} s, {slowest[1]}")
    print(f"memory: {before:.0f} MB before, {peak:.0f} MB at most")
    for result, count in counts.most_common():
        print(f"{count:>9,}  {result}")


def _late(*_: Any) -> None:
    raise TimeoutError(f"more than {_SECONDS} seconds")


if __name__ == "__main__":
    signal.signal(signal.SIGPROF, _late)  # of processor time: the machine may be busy
    main()
