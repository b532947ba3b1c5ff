"""Losses out of the box: claim counts with exposure, absolute errors and quantiles.

    python -m benchmarks.losses insurance --data DIR [--models jointleaf glum]
    python -m benchmarks.losses numbers --data DIR [--models jointleaf joint]
    python -m benchmarks.losses report
    python -m benchmarks.losses times

The first compares Poisson deviances per unit of exposure on a fixed fifth of the rows of three
motor portfolios, the second mean absolute errors and quantile losses on a fixed quarter of the rows
of 40 regression sets, relative to those of the best constant: one fit for each level, all levels
fitted jointly (up to 2,000 rows), all quantiles of one fit by squared or by absolute error, and
peers. The third prints tables of both, the last times on generated rows. Seconds are CPU seconds.
What is in the files of results is not run again; delete the rows of a model to run it again.
"""

from __future__ import annotations

import argparse
import csv
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
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

RESULTS = Path(__file__).parent / "results"

Predict = Callable[[Any], NDArray]
Records = Iterator[dict[str, Any]]


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


def compare_counts(
    data: Path, known: set[tuple[str, str]], only: list[str], n_jobs: int
) -> Records:
    """Yield the deviance of every model on the held-out rows of every portfolio."""
    for name in PORTFOLIOS:
        models = [(m, fit) for m, fit in count_models(n_jobs).items() if (name, m) not in known]
        models = [(m, fit) for m, fit in models if m in only or not only]
        if not models:
            continue
        X, y, e = read_portfolio(data, name)
        rows = train_test_split(np.arange(len(y)), test_size=0.2, random_state=0)
        train, test = (np.sort(part) for part in rows)
        for model, fit in models:
            start = time.process_time()
            predict = fit(X.iloc[train], y[train], e[train])
            seconds = time.process_time() - start
            rates = np.maximum(predict(X.iloc[test]), 1e-12)
            deviance = mean_poisson_deviance(y[test] / e[test], rates, sample_weight=e[test])
            yield {"set": name, "model": model, "deviance": round(deviance, 6),
                   "seconds": round(seconds, 1)}  # fmt: skip


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


def number_models() -> dict[str, Callable[..., tuple[NDArray, NDArray]]]:
    """Return functions that predict all levels, and say how long the fit of each took.

    The level of 0.5 is the absolute error.
    """
    from lightgbm import LGBMRegressor

    def options(level: float) -> dict[str, Any]:
        if level == 0.5:
            return {"loss": "absolute_error"}
        return {"loss": "quantile", "quantile": level}

    def of_each(make: Callable[[float], Any]) -> Callable[..., tuple[NDArray, NDArray]]:
        def predictions(X: Any, y: NDArray, X_test: Any) -> tuple[NDArray, NDArray]:
            fits = [timed_fit(make(level), X, y) for level in LEVELS]
            columns = [model.predict(X_test) for model, _ in fits]
            return np.column_stack(columns), np.array([seconds for _, seconds in fits])

        return predictions

    def of_one(**parameters: Any) -> Callable[..., tuple[NDArray, NDArray]]:
        def predictions(X: Any, y: NDArray, X_test: Any) -> tuple[NDArray, NDArray]:
            model, seconds = timed_fit(JOPLEnRegressor(random_state=0, **parameters), X, y)
            return model.predict_quantiles(X_test, LEVELS), np.full(len(LEVELS), seconds)

        return predictions

    def lightgbm(level: float) -> Any:
        objective = {"objective": "quantile", "alpha": level}
        objective = {"objective": "l1"} if level == 0.5 else objective
        return LGBMRegressor(n_jobs=1, random_state=0, verbose=-1, **objective)

    return {
        "jointleaf": of_each(lambda level: JOPLEnRegressor(random_state=0, **options(level))),
        "joint": of_one(loss="quantile", quantile=LEVELS),
        "of mean": of_one(loss="squared_error"),
        "of median": of_one(loss="absolute_error"),
        "lightgbm": of_each(lightgbm),
        "histogram": of_each(
            lambda level: HistGradientBoostingRegressor(random_state=0, **options(level))
        ),
    }


def timed_fit(model: Any, X: Any, y: NDArray) -> tuple[Any, float]:
    """Return a fitted model and the CPU seconds of its fit."""
    start = time.process_time()
    return model.fit(X, y), time.process_time() - start


def compare_numbers(data: Path, known: set[tuple[str, str]], only: list[str]) -> Records:
    """Yield the quantile losses of every model, relative to the training rows' quantile."""
    for entry, half in number_sets():
        models = [(m, f) for m, f in number_models().items() if (entry.name, m) not in known]
        models = [(m, f) for m, f in models if m in only or not only]
        if entry.rows > _MOST_JOINT_ROWS:
            models = [(m, f) for m, f in models if m != "joint"]
        if not models:
            continue
        table = load(entry, data)
        rows = np.random.default_rng(0).permutation(len(table.y))
        test, train = np.split(rows, [len(rows) // 4])
        X, X_test, y, y_test = (
            *(part_of(table.X, p) for p in (train, test)),
            table.y[train],
            table.y[test],
        )
        for model, predict in models:
            predicted, seconds = predict(X, y, X_test)
            crossing = np.mean((np.diff(predicted, axis=1) < 0).any(axis=1))
            for k, level in enumerate(LEVELS):
                constant = np.full(len(test), np.quantile(y, level))
                scale = mean_pinball_loss(y_test, constant, alpha=level)
                loss = mean_pinball_loss(y_test, predicted[:, k], alpha=level) / scale
                yield {"set": entry.name, "half": half, "model": model, "level": level,
                       "loss": round(loss, 5), "crossing": round(crossing, 4),
                       "seconds": round(seconds[k], 2)}  # fmt: skip


def append(output: Path, records: Iterable[dict[str, Any]]) -> None:
    """Append records to a file of results as they come, and print them."""
    is_new = not output.exists()
    with output.open("a", newline="") as file:
        writer = None
        for record in records:
            if writer is None:
                writer = csv.DictWriter(file, list(record))
                if is_new:
                    writer.writeheader()
            writer.writerow(record)
            file.flush()
            print(*record.values(), flush=True)


def known_pairs(output: Path) -> set[tuple[str, str]]:
    """Return the sets and models that are in a file of results."""
    if not output.exists():
        return set()
    frame = pd.read_csv(output)
    return set(zip(frame["set"], frame["model"], strict=True))


def part_of(X: Any, rows: NDArray) -> Any:
    """Return some rows of a matrix or frame."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def report_counts(output: Path) -> None:
    """Print deviances and seconds of all models on all portfolios."""
    table = pd.read_csv(output).pivot(index="set", columns="model")[["deviance", "seconds"]]
    models = [m for m in count_models(1) if m in table["deviance"]]
    print(f"| portfolio | {' | '.join(models)} |")
    print("|" + "---|" * (len(models) + 1))
    for name, row in table.iterrows():
        texts = [f"{row['deviance', m]:.4f} ({row['seconds', m]:.0f} s)" for m in models]
        print(f"| {name} | {' | '.join(texts)} |")
    means = table["deviance"].mean()
    print(f"| mean | {' | '.join(f'{means[m]:.4f}' for m in models)} |")


def report_numbers(frame: pd.DataFrame, first: str, others: list[str], rivals: list[str]) -> None:
    """Print geometric means over sets, and on how many the first model beats all rivals."""
    models = [first, *others]
    frame = frame[frame["model"].isin([*models, "of mean"])]
    print(f"\n| sets | quantile | {' | '.join(models)} | won |")
    print("|" + "---|" * (len(models) + 3))
    of_sets = ["set", "half", "model"]
    means = frame.groupby(of_sets, as_index=False)["loss"].mean().assign(level="all")
    parts = pd.concat([frame, means]).groupby(["half", "level"], sort=False)
    for (half, level), part in sorted(parts, key=lambda group: str(group[0])):
        table = part.pivot(index="set", columns="model", values="loss").dropna()
        geometric = np.exp(np.log(table.clip(lower=1e-4)).mean())
        won = (table[first] < table[rivals].min(axis=1)).sum()
        texts = " | ".join(f"{geometric[name]:.4f}" for name in models)
        print(f"| {half} | {level} | {texts} | {won} of {len(table)} |")
    wide = frame.pivot(index=["set", "level"], columns="model", values="seconds").dropna()
    ratios = wide[first] / wide["of mean"]
    print(f"times of the squared-error fit: median {ratios.median():.2f}, most {ratios.max():.2f}",
          f"({ratios.idxmax()})")  # fmt: skip


def report_tables(frame: pd.DataFrame) -> None:
    """Print one fit for each level against peers, and levels that are fitted jointly against it."""
    peers, others = ["lightgbm", "histogram"], ["jointleaf", "of median", "of mean"]
    report_numbers(frame, "jointleaf", ["of mean", "of median", *peers], peers)
    joint = frame[frame["set"].isin(frame.loc[frame["model"] == "joint", "set"])]
    report_numbers(joint, "joint", others, ["jointleaf", "of median"])
    report_crossing(joint)


def report_crossing(frame: pd.DataFrame) -> None:
    """Print on how many sets the levels of each model cross."""
    for model, shares in frame.groupby("model")["crossing"]:
        n_sets, most = (shares > 0).sum() // len(LEVELS), shares.max()
        print(f"{model}: levels cross on {n_sets} sets, on one in {most:.1%} of the test rows")


def print_times() -> None:
    """Print CPU seconds of fits with several losses, relative to the squared error.

    Up to 2,000 rows a fit by squared error may also try larger trees, which others do not: ratios
    are to the fit without them (recipe="joint") there.
    """
    rng = np.random.default_rng(0)
    losses: dict[str, dict[str, Any]] = {
        name: {"loss": name} for name in ("absolute_error", "huber", "poisson")
    }
    losses["quantile"] = {"loss": "quantile", "quantile": 0.9}
    losses["quantiles"] = {"loss": "quantile", "quantile": LEVELS}
    for n in (100, 200, 600, 1500, 3000):  # the first warms up
        X, noise = rng.standard_normal((n, 8)), rng.standard_normal(n)
        y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + (0.3 + 0.3 * (X[:, 4] > 0)) * noise
        counts = rng.poisson(np.exp(0.5 * y))
        default = timed_fit(JOPLEnRegressor(random_state=0), X, y)[1]
        recipe = "joint" if n <= _MOST_JOINT_ROWS else "blend"
        plain = timed_fit(JOPLEnRegressor(recipe=recipe, random_state=0), X, y)[1]
        ratios = []
        for loss, options in losses.items():
            model = JOPLEnRegressor(random_state=0, **options)
            seconds = timed_fit(model, X, counts if loss == "poisson" else y)[1]
            ratios.append(f"{loss} {seconds / plain:.2f}")
        if n > 100:
            print(f"{n} rows, squared error {default:.2f} s, recipe={recipe!r} {plain:.2f} s:",
                  ", ".join(ratios), flush=True)  # fmt: skip


def main() -> None:
    """Append to the files of results, or print their tables, or times."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["insurance", "numbers", "report", "times"])
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--models", nargs="*", default=[], help="only these")
    parser.add_argument("--n-jobs", type=int, default=1, help="of models of claim counts")
    args = parser.parse_args()
    counts, numbers = args.results / "claims.csv", args.results / "losses.csv"
    if args.what == "times":
        print_times()
    elif args.what == "insurance":
        known = known_pairs(counts)
        append(counts, compare_counts(args.data, known, args.models, args.n_jobs))
    elif args.what == "numbers":
        append(numbers, compare_numbers(args.data, known_pairs(numbers), args.models))
    elif args.what == "report":
        if counts.exists():
            report_counts(counts)
        if numbers.exists():
            report_tables(pd.read_csv(numbers))


if __name__ == "__main__":
    main()
