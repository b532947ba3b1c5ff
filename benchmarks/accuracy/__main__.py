"""The command `python -m benchmarks.accuracy`."""

import os
import sys

# Before anything imports NumPy or a peer: their threads are counted when they are loaded.
for _name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON", "VECLIB_MAXIMUM"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

from benchmarks.accuracy.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
