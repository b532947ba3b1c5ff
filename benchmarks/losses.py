"""Losses out of the box: claim counts with exposure, absolute errors and quantiles.

    python -m benchmarks.losses insurance ausprivauto0405 --data DIR
    python -m benchmarks.losses numbers --data DIR

The first prints the Poisson deviance per unit of exposure on a fixed fifth of the rows of a motor
portfolio, the second mean absolute errors and quantile losses on regression sets of PMLB, relative
to those of the best constant. Seconds are CPU seconds of `fit`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import PoissonRegressor
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

    def glm(X: pd.DataFrame, y: NDArray, e: NDArray) -> Predict:
        text = list(X.select_dtypes("category"))
        table = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore", min_frequency=20), text),
            remainder=StandardScaler(),
        )
        model = make_pipeline(table, PoissonRegressor(alpha=1e-4, max_iter=1000))
        return model.fit(X, y / e, poissonregressor__sample_weight=e).predict

    models = (jointleaf, lightgbm, catboost, histogram, glm)
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


def number_models(level: float, n_jobs: int) -> dict[str, Any]:
    """Return estimators of a quantile; the median is that of the absolute error."""
    from lightgbm import LGBMRegressor

    median = level == 0.5
    ours = {"loss": "absolute_error"} if median else {"loss": "quantile", "quantile": level}
    objective = {"objective": "l1"} if median else {"objective": "quantile", "alpha": level}
    theirs = {"loss": "absolute_error"} if median else ours
    return {
        "jointleaf": JOPLEnRegressor(n_jobs=n_jobs, random_state=0, **ours),
        "lightgbm": LGBMRegressor(n_jobs=n_jobs, random_state=0, verbose=-1, **objective),
        "histogram": HistGradientBoostingRegressor(random_state=0, **theirs),
    }


def compare_numbers(data: Path, names: list[str], n_jobs: int) -> Iterator[dict[str, Any]]:
    """Yield quantile losses, relative to those of the training rows' quantile."""
    for name in names:
        frame = pd.read_csv(data / "pmlb" / f"{name}.tsv.gz", sep="\t")
        X, y = frame.drop(columns="target").to_numpy(float), frame["target"].to_numpy(float)
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
        for level in LEVELS:
            constant = np.full(len(y_test), np.quantile(y, level))
            scale = mean_pinball_loss(y_test, constant, alpha=level)
            for model, estimator in number_models(level, n_jobs).items():
                start = time.process_time()
                predicted = estimator.fit(X, y).predict(X_test)
                loss = mean_pinball_loss(y_test, predicted, alpha=level) / scale
                seconds = round(time.process_time() - start, 1)
                yield {
                    "set": name,
                    "level": level,
                    "model": model,
                    "loss": loss,
                    "seconds": seconds,
                }


def main() -> None:
    """Print one line of JSON for every model and set."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["insurance", "numbers"])
    parser.add_argument("names", nargs="+", help="portfolios or sets of PMLB")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="models of claim counts")
    parser.add_argument("--n-jobs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.what == "numbers":
        results = compare_numbers(arguments.data, arguments.names, arguments.n_jobs)
        for result in results:
            print(json.dumps(result), flush=True)
        return
    for name in arguments.names:
        for result in compare_counts(arguments.data, name, arguments.only, arguments.n_jobs):
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
