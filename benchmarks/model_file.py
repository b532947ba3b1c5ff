"""Loading model files against pickle and the tree libraries' own files, in one run.

    python benchmarks/model_file.py [--rows 5000]

100 trees of 16 cells on 20 columns, and the default recipe on 1000 rows; best of several runs, in
milliseconds. LightGBM, XGBoost and CatBoost load their own 100 trees, without linear models.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import jointleaf
from jointleaf import Frobenius, JOPLEnRegressor
from jointleaf.partitions import LightGBMPartitioner

TREES, CELLS, COLUMNS = 100, 16, 20


def best_ms(call: Callable[[], object], repeats: int = 15) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def libraries(X: np.ndarray, y: np.ndarray, place: Path) -> dict[str, tuple[Path, Callable]]:
    """Files of trained models, and how each library loads its own."""
    import catboost
    import lightgbm
    import xgboost

    light = lightgbm.LGBMRegressor(n_estimators=TREES, num_leaves=CELLS, verbose=-1).fit(X, y)
    light.booster_.save_model(place / "lightgbm.txt")
    xgb = xgboost.XGBRegressor(n_estimators=TREES, max_depth=4).fit(X, y)
    xgb.save_model(place / "xgboost.ubj")
    cat = catboost.CatBoostRegressor(
        iterations=TREES, depth=4, verbose=0, allow_writing_files=False
    ).fit(X, y)
    cat.save_model(str(place / "catboost.cbm"))
    return {
        "LightGBM": (
            place / "lightgbm.txt",
            lambda: lightgbm.Booster(model_file=place / "lightgbm.txt"),
        ),
        "XGBoost": (
            place / "xgboost.ubj",
            lambda: xgboost.XGBRegressor().load_model(place / "xgboost.ubj"),
        ),
        "CatBoost": (
            place / "catboost.cbm",
            lambda: catboost.CatBoostRegressor().load_model(str(place / "catboost.cbm")),
        ),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5000)
    rows = parser.parse_args().rows
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, COLUMNS))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.standard_normal(rows)
    partitioner = LightGBMPartitioner(TREES, CELLS)
    models = {
        "100 trees": JOPLEnRegressor(partitioner, penalty=Frobenius(0.1)).fit(X, y),
        "default recipe": JOPLEnRegressor(random_state=0).fit(X[:1000], y[:1000]),
    }
    print(f"{'model':16} {'way':10} {'kB':>8} {'save ms':>8} {'load ms':>8}")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for title, model in models.items():
            print_ours(title, model, place)
        for title, (path, load) in libraries(X, y, place).items():
            print_line(title, "its own", path, float("nan"), best_ms(load))


def print_ours(title: str, model: JOPLEnRegressor, place: Path) -> None:
    path, pickled = place / "model.jleaf", place / "model.pickle"
    saving = best_ms(lambda: jointleaf.save(model, path), 5)
    print_line(title, "jointleaf", path, saving, best_ms(lambda: jointleaf.load(path)))
    saving = best_ms(lambda: pickled.write_bytes(pickle.dumps(model)), 5)
    loading = best_ms(lambda: pickle.loads(pickled.read_bytes()))
    print_line(title, "pickle", pickled, saving, loading)


def print_line(title: str, way: str, path: Path, saving: float, loading: float) -> None:
    size = path.stat().st_size / 1e3
    print(f"{title:16} {way:10} {size:8.0f} {saving:8.1f} {loading:8.1f}")


if __name__ == "__main__":
    main()
