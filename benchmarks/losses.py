"""Losses out of the box: claim counts with exposure, absolute errors and quantiles.

    python -m benchmarks.losses insurance ausprivauto0405 --data DIR
    python -m benchmarks.losses numbers --data DIR [--output FILE]
    python -m benchmarks.losses quantiles --data DIR [--output FILE]
    python -m benchmarks.losses report [--output FILE]
    python -m benchmarks.losses times

The first prints the Poisson deviance per unit of exposure on a fixed fifth of the rows of a motor
portfolio, the second mean absolute errors and quantile losses on a fixed quarter of the rows of 40
regression sets, relative to those of the best constant, beside all quantiles of one fit by squared
or by absolute error; the third compares quantiles that are fitted jointly with these and with one
fit for each level, on the sets of at most 2,000 rows; the fourth prints means, the last times on
generated rows. Seconds are CPU seconds. What is in the file is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.accuracy.loading import load
from benchmarks.accuracy.sets import HALVES, DataSet, select_sets
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_pinball_loss, mean_poisson_deviance
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from jointleaf import JOPLEnRegressor

#: Column of counts, of exposure, what a unit of exposure is, and columns that are no features.
PORTFOLIOS = {
    "ausprivauto0405": ("ClaimNb", "Exposure", 1.0, ("ClaimAmount", "ClaimOcc")),
    "beMTPL97": ("nclaims", "expo", 1.0, ("id", "claim", "average", "amount")),
    "pg15training": ("Numtppd", "Exppdays", 365.0, ("PolNum", "Numtpbi", "Indtppd", "Indtpbi")),
}
LEVELS = (0.1, 0.5, 0.9)
N_SETS = 40
_MOST_JOINT_ROWS = 2000
#: The same rows under several names.
REPEATS = (
    "195_auto_price", "207_autoPrice", "230_machine_cpu", "561_cpu", "557_analcatdata_apnea1",
)  # fmt: skip

Predict = Callable[[Any], NDArray]


def read_portfolio(data: Path, name: str) -> tuple[pd.DataFrame, NDArray, NDArray]:
    """Return features, counts and exposures of a portfolio."""
    counts, exposure, unit, others = PORTFOLIOS[name]
    frame = pd.read_csv(data / "insurance" / f"{name}.csv.gz")
    y, e = frame[counts].to_numpy(float), frame[exposure].to_numpy(float) / unit
    X = frame.drop(columns=[c for c in (counts, exposure, *others) if c in frame])
    for column in X.select_dtypes(exclude="number"):
        X[column] = X[column].astype("category")
    return X[e > 0], y[e > 0], e[e > 0]


def count_models(n_jobs: int) -> dict[str, Callable[..., Predict]]:
    """Return functions that fit counts with exposure and return predictions of rates."""

    def jointleaf(X: pd.DataFrame, y: NDArray, e: NDArray) -> Predict:
        model = JOPLEnRegressor(loss="poisson", n_jobs=n_jobs, random_state=0)
        return model.fit(X, y, exposure=e).predict

    def lightgbm(X: pd.DataFrame, y: NDArray, e: NDArray) -> Predict:
        from lightgbm import LGBMRegressor

        model = LGBMRegressor(objective="poisson", n_jobs=n_jobs, random_state=0, verbose=-1)
        return model.fit(X, y / e, sample_weight=e).predict

    def catboost(X: pd.DataFrame, y: NDArray, e: NDArray) -> Predict:
        from catboost import CatBoostRegressor

        text = list(X.select_dtypes("category"))
        model = CatBoostRegressor(
            loss_function="Poisson", cat_features=text, thread_count=n_jobs, random_seed=0,
            verbose=False, allow_writing_files=False,
        )  # fmt: skip
        model.fit(X.astype(dict.fromkeys(text, str)), y / e, sample_weight=e)
        return lambda rows: model.predict(rows.astype(dict.fromkeys(text, str)))

    def histogram(X: pd.DataFrame, y: NDArray, e: NDArray) -> Predict:
        model = HistGradientBoostingRegressor(
            loss="poisson", categorical_features="from_dtype", random_state=0
        )
        # It takes no more than 255 categories: columns with more are numbers for it.
        many = [c for c in X.select_dtypes("category") if X[c].nunique() > 255]

        def encoded(rows: pd.DataFrame) -> pd.DataFrame:
            return rows.assign(**{c: rows[c].cat.codes for c in many})

        model.fit(encoded(X), y / e, sample_weight=e)
        return lambda rows: model.predict(encoded(rows))

    def glum(X: pd.DataFrame, y: NDArray, e: NDArray) -> Predict:
        from glum import GeneralizedLinearRegressor

        text = list(X.select_dtypes("category"))
        table = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore", min_frequency=20), text),
            remainder=StandardScaler(),
        )
        model = make_pipeline(table, GeneralizedLinearRegressor(family="poisson", alpha=1e-4))
        return model.fit(X, y / e, generalizedlinearregressor__sample_weight=e).predict

    models = (jointleaf, lightgbm, catboost, histogram, glum)
    return {model.__name__: model for model in models}


def compare_counts(data: Path, name: str, only: list[str], n_jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the deviance of every model on the rows that are held out."""
    X, y, e = read_portfolio(data, name)
    rows = train_test_split(np.arange(len(y)), test_size=0.2, random_state=0)
    train, test = (np.sort(part) for part in rows)
    for model, fit in count_models(n_jobs).items():
        if only and model not in only:
            continue
        start = time.process_time()
        predict = fit(X.iloc[train], y[train], e[train])
        seconds = time.process_time() - start
        rates = np.maximum(predict(X.iloc[test]), 1e-12)
        deviance = mean_poisson_deviance(y[test] / e[test], rates, sample_weight=e[test])
        yield {"set": name, "model": model, "deviance": deviance, "seconds": round(seconds, 1)}


def number_sets() -> list[tuple[DataSet, str]]:
    """Return 40 regression sets and their halves: `choice`, where rules were chosen, or `report`.

    All sets of PMLB and UCI with 100 to 3,400 rows, without repeats, and as many of the generated
    `fri` sets as are left; both in the order of the CRC-32 of their names, in which every second
    set is in the same half.
    """

    def order(entry: DataSet) -> int:
        return zlib.crc32(entry.bare_name.encode())

    entries = [e for group in ("paper", "uci") for e in select_sets(task="regression", group=group)]
    entries = [e for e in entries if 100 <= e.rows <= 3400 and e.name not in REPEATS]
    generated = sorted((e for e in entries if "_fri_" in e.name), key=order)
    others = [e for e in entries if "_fri_" not in e.name]
    chosen = sorted(others + generated[: N_SETS - len(others)], key=order)
    return [(entry, HALVES[k % 2]) for k, entry in enumerate(chosen)]


def number_models(level: float) -> dict[str, Any]:
    """Return estimators of a quantile; the median is that of the absolute error."""
    from lightgbm import LGBMRegressor

    median = level == 0.5
    loss = {"loss": "absolute_error"} if median else {"loss": "quantile", "quantile": level}
    objective = {"objective": "l1"} if median else {"objective": "quantile", "alpha": level}
    return {
        "jointleaf": JOPLEnRegressor(random_state=0, **loss),
        "lightgbm": LGBMRegressor(n_jobs=1, random_state=0, verbose=-1, **objective),
        "histogram": HistGradientBoostingRegressor(random_state=0, **loss),
    }


def compare_numbers(data: Path, output: Path, *, is_joint: bool) -> None:
    """Append quantile losses, relative to the training rows' quantile, to a table."""
    known = set(pd.read_csv(output)["set"]) if output.exists() else set()
    for entry, half in number_sets():
        if entry.name in known or (is_joint and entry.rows > _MOST_JOINT_ROWS):
            continue
        table = load(entry, data)
        rows = np.random.default_rng(0).permutation(len(table.y))
        test, train = np.split(rows, [len(rows) // 4])
        X, X_test = (part_of(table.X, part) for part in (train, test))
        results = quantile_losses(X, table.y[train], X_test, table.y[test], is_joint=is_joint)
        frame = pd.DataFrame(results, columns=["level", "model", "loss", "seconds"])
        frame.insert(0, "half", half)
        frame.insert(0, "set", entry.name)
        frame.to_csv(output, mode="a", header=not output.exists(), index=False)
        print(frame.to_string(header=False, index=False), flush=True)


def quantile_losses(
    X: Any, y: NDArray, X_test: Any, y_test: NDArray, *, is_joint: bool
) -> list[tuple]:
    """Return level, model, loss and seconds of all levels and models; peers only if not joint."""
    of_one_fit = {}
    fits: dict[str, dict[str, Any]] = {
        "of mean": {"loss": "squared_error"},
        "of median": {"loss": "absolute_error"},
    }
    if is_joint:
        fits["joint"] = {"loss": "quantile", "quantile": LEVELS}
    for name, options in fits.items():
        start = time.process_time()
        model = JOPLEnRegressor(random_state=0, **options).fit(X, y)
        seconds = time.process_time() - start
        of_one_fit[name] = model.predict_quantiles(X_test, LEVELS), seconds
    results = []
    for k, level in enumerate(LEVELS):
        constant = np.full(len(y_test), np.quantile(y, level))
        predictions = {name: (q[:, k], seconds) for name, (q, seconds) in of_one_fit.items()}
        for name, model in number_models(level).items():
            if is_joint and name != "jointleaf":
                continue
            start = time.process_time()
            predictions[name] = model.fit(X, y).predict(X_test), time.process_time() - start
        scale = mean_pinball_loss(y_test, constant, alpha=level)
        for name, (predicted, seconds) in predictions.items():
            loss = mean_pinball_loss(y_test, predicted, alpha=level) / scale
            results.append((level, name, round(loss, 5), round(seconds, 2)))
    return results


def part_of(X: Any, rows: NDArray) -> Any:
    """Return some rows of a matrix or frame."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def report_numbers(output: Path) -> None:
    """Print geometric means over sets, and how many of these are won from both peers."""
    frame = pd.read_csv(output)
    peers = [name for name in ("lightgbm", "histogram") if name in set(frame["model"])]
    rivals = peers or ["of median", "jointleaf"]
    first = "jointleaf" if peers else "joint"
    models = list(dict.fromkeys([first, "jointleaf", "of mean", "of median", *peers]))
    print(f"| sets | quantile | {' | '.join(models)} | won |")
    print("|" + "---|" * (len(models) + 3))
    of_sets = ["set", "half", "model"]
    means = frame.groupby(of_sets, as_index=False)["loss"].mean().assign(level="all")
    for (half, level), part in pd.concat([frame, means]).groupby(["half", "level"], sort=False):
        table = part.pivot(index="set", columns="model", values="loss")
        geometric = np.exp(np.log(table.clip(lower=1e-4)).mean())
        won = (table[first] < table[rivals].min(axis=1)).sum()
        texts = " | ".join(f"{geometric[name]:.4f}" for name in models)
        print(f"| {half} | {level} | {texts} | {won} of {len(table)} |")
    wide = frame.pivot_table(index=["set", "level"], columns="model", values="seconds")
    ratios = wide[first] / wide["of mean"]
    print(f"times of the squared-error fit: median {ratios.median():.2f}, most {ratios.max():.2f}")


def print_times() -> None:
    """Print CPU seconds of fits with several losses, relative to the squared error."""
    rng = np.random.default_rng(0)
    losses: dict[str, dict[str, Any]] = {
        name: {"loss": name} for name in ("squared_error", "absolute_error", "huber", "poisson")
    }
    losses["quantile"] = {"loss": "quantile", "quantile": 0.9}
    losses["quantiles"] = {"loss": "quantile", "quantile": LEVELS}
    for n in (200, 600, 1500, 3000):
        X, noise = rng.standard_normal((n, 8)), rng.standard_normal(n)
        y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + (0.3 + 0.3 * (X[:, 4] > 0)) * noise
        counts, seconds = rng.poisson(np.exp(0.5 * y)), {}
        for loss, options in losses.items():
            start = time.process_time()
            model = JOPLEnRegressor(random_state=0, **options)
            model.fit(X, counts if loss == "poisson" else y)
            seconds[loss] = time.process_time() - start
        first = seconds["squared_error"]
        ratios = ", ".join(f"{loss} {seconds[loss] / first:.2f}" for loss in list(losses)[1:])
        print(f"{n} rows, squared error {first:.2f} s: {ratios}", flush=True)


def main() -> None:
    """Print one line of JSON for every model and portfolio, or append to a table of numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["insurance", "numbers", "quantiles", "report", "times"])
    parser.add_argument("names", nargs="*", default=list(PORTFOLIOS), help="portfolios")
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--output", type=Path, default=Path("losses.csv"), help="of numbers")
    parser.add_argument("--only", nargs="*", default=[], help="models of claim counts")
    parser.add_argument("--n-jobs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.what in ("numbers", "quantiles"):
        is_joint = arguments.what == "quantiles"
        compare_numbers(arguments.data, arguments.output, is_joint=is_joint)
    elif arguments.what == "report":
        report_numbers(arguments.output)
    elif arguments.what == "times":
        print_times()
    else:
        for name in arguments.names:
            for result in compare_counts(arguments.data, name, arguments.only, arguments.n_jobs):
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
