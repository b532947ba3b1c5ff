"""Does `refine` make tuned models better? Test error before and after, model by model.

    python benchmarks/refine.py --data FOLDER [--task binary] [--output results.csv]

Twenty of the paper's regression sets, or of its binary sets, evenly spaced in alphabetical order
among those of up to 1,000 rows; 80/20 splits with seeds 0 and 1 (stratified for classes). Every
model is tuned by a random search of 5 settings with 3 folds on the training part, then refined
there with jointleaf's defaults. Mean squared error, or log-loss, on the test part. Results are
appended to the output file, and what is in it already is not run again.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import RandomizedSearchCV, train_test_split

from jointleaf import refine
from jointleaf.datasets import load_pmlb

SETS = {
    "regression": (
        "1030_ERA", "195_auto_price", "230_machine_cpu", "542_pollution", "560_bodyfat",
        "583_fri_c1_1000_50", "589_fri_c2_1000_25", "595_fri_c0_1000_10", "599_fri_c2_1000_5",
        "605_fri_c2_250_25", "609_fri_c0_1000_5", "615_fri_c4_250_10", "621_fri_c0_100_10",
        "627_fri_c2_500_10", "635_fri_c0_250_10", "644_fri_c4_250_25", "649_fri_c0_500_5",
        "654_fri_c0_500_10", "663_rabe_266", "687_sleuth_ex1605",
    ),
    "binary": (
        "analcatdata_aids", "analcatdata_bankruptcy", "analcatdata_boxing2",
        "analcatdata_cyyoung9302", "analcatdata_lawsuit", "backache", "breast", "breast_w", "bupa",
        "colic", "credit_g", "diabetes", "haberman", "heart_h", "horse_colic", "ionosphere",
        "lupus", "prnn_crabs", "saheart", "spectf",
    ),
}  # fmt: skip
FIELDS = ("task", "model", "set", "seed", "before", "after", "tune_s", "refine_s")

_BOOSTING = {"n_estimators": [50, 100, 200], "learning_rate": [0.05, 0.1, 0.2]}


def random_forest(kind: str):
    from sklearn import ensemble

    space = {"max_features": ["sqrt", 0.5, 1.0], "min_samples_leaf": [1, 2, 5, 10]}
    return getattr(ensemble, f"RandomForest{kind}")(100, random_state=0), space


def gradient_boosting(kind: str):
    from sklearn import ensemble

    space = _BOOSTING | {"max_depth": [2, 3, 4], "subsample": [0.7, 1.0]}
    return getattr(ensemble, f"GradientBoosting{kind}")(random_state=0), space


def lightgbm(kind: str):
    import lightgbm

    space = _BOOSTING | {"num_leaves": [4, 8, 16, 31], "min_child_samples": [5, 10, 20]}
    model = getattr(lightgbm, f"LGBM{kind}")(random_state=0, n_jobs=1, verbose=-1)
    return model, space


def xgboost(kind: str):
    import xgboost

    space = _BOOSTING | {"max_depth": [2, 3, 4, 6], "subsample": [0.7, 1.0]}
    return getattr(xgboost, f"XGB{kind}")(random_state=0, n_jobs=1), space


def catboost(kind: str):
    import catboost

    space = {"iterations": [100, 200, 300], "depth": [2, 3, 4, 6], "learning_rate": [0.05, 0.1]}
    model = getattr(catboost, f"CatBoost{kind}")(
        random_seed=0, thread_count=1, verbose=False, allow_writing_files=False
    )
    return model, space


MODELS = {
    "random forest": random_forest,
    "gradient boosting": gradient_boosting,
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
    "CatBoost": catboost,
}


def evaluate(make, task: str, X, y, seed: int) -> dict[str, float]:
    """Test loss of the tuned model and of the refined one, and the seconds both took."""
    is_binary = task == "binary"
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.2, random_state=seed, stratify=y if is_binary else None
    )
    model, space = make("Classifier" if is_binary else "Regressor")
    scoring = "neg_log_loss" if is_binary else "neg_mean_squared_error"
    start = time.perf_counter()
    search = RandomizedSearchCV(model, space, n_iter=5, cv=3, scoring=scoring, random_state=0)
    tuned = search.fit(X_train, y_train).best_estimator_
    middle = time.perf_counter()
    refined = refine(tuned, X_train, y_train, random_state=0)
    end = time.perf_counter()

    def loss(fitted) -> float:
        if is_binary:
            return float(log_loss(y_test, fitted.predict_proba(X_test)))
        return float(mean_squared_error(y_test, fitted.predict(X_test)))

    return {
        "before": loss(tuned),
        "after": loss(refined),
        "tune_s": round(middle - start, 2),
        "refine_s": round(end - middle, 2),
    }


def report(rows: list[dict]) -> None:
    print("| model | better | cases | share | after / before, geometric mean | median |")
    print("|---|---|---|---|---|---|")
    for name in MODELS:
        mine = [r for r in rows if r["model"] == name]
        if not mine:
            continue
        ratio = np.array([float(r["after"]) / float(r["before"]) for r in mine])
        print(
            f"| {name} | {(ratio < 1).sum()} | {len(ratio)} | {(ratio < 1).mean():.0%} "
            f"| {np.exp(np.log(ratio).mean()):.3f} | {np.median(ratio):.3f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="local folder with PMLB data; else downloaded")
    parser.add_argument("--task", choices=SETS, default="regression")
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--output", type=Path, default=Path("refine.csv"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    rows = list(csv.DictReader(args.output.open())) if args.output.exists() else []
    done = {(r["task"], r["model"], r["set"], int(r["seed"])) for r in rows}
    with args.output.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        for seed in args.seeds:
            for name in args.sets or SETS[args.task]:
                X, y = load_pmlb(name, folder=args.data, return_X_y=True)
                if args.task == "binary":  # XGBoost wants classes 0 and 1
                    y = np.unique(y, return_inverse=True)[1]
                for model in args.models:
                    key = (args.task, model, name, seed)
                    if key in done:
                        continue
                    row = dict(zip(FIELDS, key, strict=False))
                    row |= evaluate(MODELS[model], args.task, X, y, seed)
                    writer.writerow(row)
                    file.flush()
                    rows.append(row)
                    print(*row.values(), flush=True)
    wanted = set(args.models), set(args.seeds), set(args.sets or SETS[args.task])
    report(
        [
            r
            for r in rows
            if r["task"] == args.task
            and r["model"] in wanted[0]
            and int(r["seed"]) in wanted[1]
            and r["set"] in wanted[2]
        ]
    )


if __name__ == "__main__":
    main()
