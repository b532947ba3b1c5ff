"""What a model file holds: its largest arrays, compressed as they are and with bytes shuffled.

    python benchmarks/file_parts.py MODEL.jleaf
    python benchmarks/file_parts.py 3000

A number is that of the training rows of the default regression model, as in speed_predict.py.
Shuffled, the first bytes of all numbers come first, then the second ones and so on.
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

import jointleaf
from jointleaf.io._model_file.container import unpack

SHOWN = 8


def saved_default(n_train: int) -> bytes:
    """Return the file of the default regression model."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_train + 10_000, 20))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + X[:, 3:8].sum(axis=1)
    y += 0.3 * rng.standard_normal(len(y))
    model = jointleaf.JOPLEnRegressor(random_state=0).fit(X[:n_train], y[:n_train])
    with tempfile.TemporaryDirectory() as place:
        jointleaf.save(model, path := Path(place) / "model.jleaf")
        return path.read_bytes()


def main() -> None:
    (given,) = sys.argv[1:]
    data = saved_default(int(given)) if given.isdigit() else Path(given).read_bytes()
    lines = []
    for array in unpack(data).arrays:
        numbers = array.ravel("K")
        is_zero = numbers == 0
        numbers = numbers[~is_zero] if 2 * is_zero.sum() > len(numbers) else numbers  # as in files
        as_bytes = numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize)
        sizes = [len(zlib.compress(b.tobytes(), 6)) for b in (as_bytes, as_bytes.T)]
        lines.append((*sizes, array.dtype.name, array.shape))
    lines.sort(key=lambda line: -line[0])
    for plain, shuffled, name, shape in lines[:SHOWN]:
        print(f"{plain:>10,} {shuffled:>10,}  {name} {shape}")
    best = sum(min(line[:2]) for line in lines)
    print(f"{len(data):,} bytes; arrays {sum(line[0] for line in lines):,}, at best {best:,}")


if __name__ == "__main__":
    main()
