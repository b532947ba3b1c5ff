"""Configurations whose predictions `golden.py` stores: one more is one more line of a dictionary.

A configuration takes nothing and returns arrays by name. It reaches the library only by public
names, when it runs, so that a name that is gone is an error of that configuration alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import ensemble

import jointleaf as jl
from golden_data import Split, cells, classes, first_feature, frames, numbers, tasks, weights

#: What iterative solvers stop at where a configuration is about their answer: another order of
#: summation then changes predictions by less than 1e-9, and not by what the tolerance allows.
TIGHT = {"tol": 1e-13, "max_iter": 100_000}

Outputs = dict[str, NDArray[np.float64]]
Configuration = Callable[[], Outputs]

PARTITIONERS = (
    "lightgbm",
    "catboost",
    "xgboost",
    "gradient_boosting",
    "hist_gradient_boosting",
    "random_forest",
    "extra_trees",
    "random_trees",
    "linear_forest",
    "steps",
    "voronoi",
)

PENALTIES: dict[str, Callable[[], Any]] = {
    "frobenius": lambda: jl.Frobenius(0.01),
    "frobenius with biases": lambda: jl.Frobenius(0.01, 0.001),
    "l1": lambda: jl.L1(0.003, 0.01),
    "l21": lambda: jl.L21(0.01, 0.01),
    "linf1": lambda: jl.LInf1(0.02, 0.01),
    "lp1": lambda: jl.Lp1(0.01, 3.0, 0.01),
    "growl": lambda: jl.GrOWL(0.01, bias_strength=0.01),
    "nuclear": lambda: jl.Nuclear(0.01, 0.01),
    "ky fan": lambda: jl.KyFan(0.02, 2, 0.01),
    "schatten p": lambda: jl.SchattenP(0.01, 1.5, 0.01),
    "laplacian + frobenius": lambda: jl.Laplacian(0.01) + jl.Frobenius(0.01, 0.01),
    "l21 + frobenius": lambda: jl.L21(0.01) + jl.Frobenius(0.01, 0.01),
    "l1 + nuclear": lambda: jl.L1(0.003, 0.01) + jl.Nuclear(0.005),
}

TASK_PENALTIES: dict[str, Callable[[], Any]] = {
    "dirty lasso": lambda: jl.DirtyLasso(0.2, 0.12, 1.0),
    "dirty linf": lambda: jl.DirtyLInf(0.2, 0.12, 1.0),
    "l21": lambda: jl.L21(0.1, 1.0),
    "per task l21": lambda: jl.PerTask(jl.L21(0.05, 1.0)),
    "frobenius": lambda: jl.Frobenius(0.05, 0.05),
}


def outputs(model: Any, X: Any) -> Outputs:
    """Return everything that a fitted model predicts for rows."""
    if not hasattr(model, "predict_proba"):
        return {"predict": model.predict(X)}
    found = {"proba": np.asarray(model.predict_proba(X))}
    if hasattr(model, "decision_function"):
        found["decision"] = np.asarray(model.decision_function(X))
    return found


def fitted(kind: str, split: Split, *args: Any, sample_weight: Any = None, **kwargs: Any) -> Any:
    """Return a fitted estimator of the library, called by its name."""
    model = getattr(jl, kind)(*args, **{"random_state": 0} | kwargs)
    if sample_weight is None:
        return model.fit(split.X, split.y)
    return model.fit(split.X, split.y, sample_weight=sample_weight)


def regression(split: Split, *args: Any, **kwargs: Any) -> Outputs:
    """Fit numbers and predict the held-out rows."""
    return outputs(fitted("JOPLEnRegressor", split, *args, **kwargs), split.X_test)


def classification(split: Split, *args: Any, **kwargs: Any) -> Outputs:
    """Fit classes and predict the held-out rows."""
    return outputs(fitted("JOPLEnClassifier", split, *args, **kwargs), split.X_test)


def fixed(partitioner: Any, kind: str = "numbers", **kwargs: Any) -> Outputs:
    """Fit 200 rows with a partitioner and a given penalty."""
    kwargs = {"penalty": jl.Frobenius(0.01, 0.001)} | kwargs
    if kind == "numbers":
        return regression(numbers(200), partitioner, **kwargs)
    if kind == "frames":
        return regression(frames(200), partitioner, **kwargs)
    return classification(classes(200, 2 if kind == "two classes" else 3), partitioner, **kwargs)


def voronoi(n_partitions: int = 10, n_cells: int = 4) -> Any:
    """Return a small partitioner."""
    from jointleaf.partitions import VoronoiPartitioner

    return VoronoiPartitioner(n_partitions, n_cells)


def trained(kind: str, suffix: str) -> Any:
    """Return an unfitted ensemble of another library; suffix is Regressor or Classifier."""
    if kind == "LightGBM":
        import lightgbm

        options = {"num_leaves": 6, "n_jobs": 1, "verbose": -1, "random_state": 0}
        return getattr(lightgbm, f"LGBM{suffix}")(n_estimators=25, **options)
    if kind == "XGBoost":
        import xgboost

        options = {"max_depth": 3, "n_jobs": 1, "random_state": 0}
        return getattr(xgboost, f"XGB{suffix}")(n_estimators=25, **options)
    if kind == "CatBoost":
        import catboost

        options = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
        return getattr(catboost, f"CatBoost{suffix}")(
            iterations=25, depth=3, random_seed=0, **options
        )
    options = {"max_leaf_nodes": 6, "random_state": 0}
    options["max_iter" if kind.startswith("Hist") else "n_estimators"] = 25
    return getattr(ensemble, kind + suffix)(**options)


def refined(kind: str, n_classes: int = 0, **kwargs: Any) -> Outputs:
    """Refine a trained ensemble: numbers without classes, else classes."""
    split = classes(200, n_classes) if n_classes else numbers(200)
    model = trained(kind, "Classifier" if n_classes else "Regressor").fit(split.X, split.y)
    found = jl.refine(model, split.X, split.y, **{"random_state": 0} | kwargs)
    return outputs(found, split.X_test)


def pruned(split: Split, kind: str, **kwargs: Any) -> Outputs:
    """Prune a model of boosted trees."""
    model = fitted(kind, split, "lightgbm", penalty=jl.Frobenius(0.01, 0.01))
    return outputs(jl.prune(model, split.X, split.y, **kwargs), split.X_test)


def several_tasks(kind: str, split: Split, *args: Any, **kwargs: Any) -> Outputs:
    """Fit several tasks and predict the held-out rows with each of them."""
    model = getattr(jl, kind)(*args, **{"random_state": 0} | kwargs).fit(split.X)
    return outputs(model, split.X_test)


def task_penalty(penalty: Any, n_tasks: int = 2, **kwargs: Any) -> Outputs:
    """Fit tasks with numbers on Voronoi cells."""
    return several_tasks(
        "MultiTaskJOPLEnRegressor", tasks(n_tasks), voronoi(), penalty=penalty, **kwargs
    )


def wide_targets() -> Outputs:
    """Fit two targets of the same rows."""
    X, y, X_test = numbers(150)
    split = Split(X, np.column_stack([y, X[:, 0] - y]), X_test)
    penalty = jl.DirtyLasso(0.2, 0.12, 1.0)
    model = fitted("MultiTaskJOPLEnRegressor", split, voronoi(), penalty=penalty)
    return outputs(model, X_test)


def fit_cells(target: str = "numbers", **kwargs: Any) -> Outputs:
    """Fit the cells of given codes."""
    data = cells(target=target)
    solution = jl.fit_cells(data.X, data.codes, data.y, **TIGHT | kwargs)
    return {"predict": solution.predict(data.X_test, data.codes_test)}


def strength_path(penalty: Any, **kwargs: Any) -> Outputs:
    """Follow a path of strengths; predictions at every strength."""
    data = cells()
    path = jl.strength_path(
        data.X, data.codes, data.y, penalty=penalty, **TIGHT | {"n_strengths": 8} | kwargs
    )
    found = [solution.predict(data.X_test, data.codes_test) for solution in path.solutions]
    return {"strengths": path.strengths, "predict": np.array(found)}


def fit_tasks(penalty: Any, **kwargs: Any) -> Outputs:
    """Fit the cells of two tasks with given codes."""
    parts = [cells(200), cells(300)]
    solution = jl.fit_tasks([part[:3] for part in parts], penalty=penalty, **TIGHT | kwargs)
    found = [
        task.predict(part.X_test, part.codes_test)
        for task, part in zip(solution.tasks, parts, strict=True)
    ]
    return {"predict": np.array(found)}


def explained(kind: str, split: Split, *args: Any, n_rows: int = 15, **kwargs: Any) -> Outputs:
    """Explain the predictions of a few held-out rows."""
    explanation = fitted(kind, split, *args, **kwargs).explain(split.X_test[:n_rows])
    return {"values": explanation.values, "baseline": np.atleast_1d(explanation.baseline)}


def saved(kind: str, split: Split, *args: Any, **kwargs: Any) -> Outputs:
    """Fit, save to a file, load and predict."""
    model = fitted(kind, split, *args, **kwargs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.jl"
        jl.save(model, path)
        return outputs(jl.load(path), split.X_test)


def linear_forest(kind: str, split: Split) -> Outputs:
    """Fit a linear forest."""
    return outputs(fitted(kind, split, 20), split.X_test)


def cells_of_default(split: Split) -> Outputs:
    """Return the cells and the importances of a default model."""
    model = fitted("JOPLEnRegressor", split)
    return {"apply": model.apply(split.X_test[:5]), "importances": model.feature_importances_}


CONFIGURATIONS: dict[str, Configuration] = {
    # Defaults
    "default numbers 60": lambda: regression(numbers(60)),
    "default numbers 500": lambda: regression(numbers(500)),
    "default numbers 3000": lambda: regression(numbers(3000)),
    "default numbers 12000": lambda: regression(numbers(12_000)),
    "default 2 classes 400": lambda: classification(classes(400, 2)),
    "default 2 classes 3000": lambda: classification(classes(3000, 2)),
    "default 2 classes 12000": lambda: classification(classes(12_000, 2)),
    "default 5 classes 400": lambda: classification(classes(400, 5)),
    "default 5 classes 3000": lambda: classification(classes(3000, 5)),
    "default 5 classes 12000": lambda: classification(classes(12_000, 5)),
    "default wide": lambda: regression(numbers(60, 100)),
    "default one feature": lambda: regression(first_feature(numbers(150))),
    # Data frames
    "frames numbers 400": lambda: regression(frames(400)),
    "frames numbers 3000": lambda: regression(frames(3000)),
    "frames numbers 12000": lambda: regression(frames(12_000)),
    "frames classes 300": lambda: classification(frames(300, is_classification=True)),
    "frames classes 12000": lambda: classification(frames(12_000, is_classification=True)),
    "frames linear features": lambda: fixed("lightgbm", "frames", linear_features=["size"]),
    # Sample weights
    "weights numbers 200": lambda: regression(numbers(200), sample_weight=weights(200)),
    "weights numbers 3000": lambda: regression(numbers(3000), sample_weight=weights(3000)),
    "weights numbers 12000": lambda: regression(numbers(12_000), sample_weight=weights(12_000)),
    "weights 3 classes 200": lambda: classification(classes(200, 3), sample_weight=weights(200)),
    # Several tasks
    "tasks default": lambda: several_tasks("MultiTaskJOPLEnRegressor", tasks(2, 80)),
    "tasks dirty lasso 3": lambda: task_penalty(jl.DirtyLasso(0.2, 0.12, 1.0), 3),
    "tasks dirty lasso relaxed": lambda: task_penalty(jl.DirtyLasso(0.2, 0.12, 1.0, 0.3)),
    "tasks dirty lasso auto 2": lambda: task_penalty(jl.DirtyLasso(), cv=2),
    "tasks dirty lasso auto 3": lambda: task_penalty(jl.DirtyLasso(), 3, cv=2),
    "tasks l21 auto": lambda: task_penalty(jl.L21("auto"), cv=2),
    "tasks wide targets": wide_targets,
    "tasks classes default": lambda: several_tasks(
        "MultiTaskJOPLEnClassifier", tasks(2, 80, is_classification=True)
    ),
    "tasks classes dirty lasso": lambda: several_tasks(
        "MultiTaskJOPLEnClassifier", tasks(2, is_classification=True), voronoi(),
        penalty=jl.DirtyLasso(0.05, 0.03, 1.0),
    ),
    "bouts numbers": lambda: several_tasks("BoUTSRegressor", tasks(3), 15, 15),
    "bouts classes": lambda: several_tasks(
        "BoUTSClassifier", tasks(2, is_classification=True), 15, 15
    ),
    # Smaller models
    "prune numbers": lambda: pruned(numbers(250), "JOPLEnRegressor"),
    "prune n_cells": lambda: pruned(numbers(200), "JOPLEnRegressor", n_cells=100),
    "prune classes": lambda: pruned(classes(200, 2), "JOPLEnClassifier"),
    # Partitioners beside those by name
    "partitions union": lambda: fixed(["lightgbm", "voronoi", "steps"]),
    "partitions lightgbm frames": lambda: fixed("lightgbm", "frames"),
    "partitions random_trees frames": lambda: fixed("random_trees", "frames"),
    "partitions lightgbm two classes": lambda: fixed("lightgbm", "two classes"),
    "partitions lightgbm three classes": lambda: fixed("lightgbm", "three classes"),
    "partitions voronoi three classes": lambda: fixed(voronoi(), "three classes"),
    # Settings of a fit
    "auto on lightgbm": lambda: regression(numbers(200), "lightgbm"),
    "auto on random forest, classes": lambda: classification(classes(200, 3), "random_forest"),
    "auto cv 3": lambda: regression(numbers(200), cv=3),
    "cells constant": lambda: fixed("lightgbm", cells="constant"),
    "cells constant auto": lambda: regression(numbers(200), cells="constant"),
    "clip cell": lambda: fixed("lightgbm", clip="cell"),
    "clip off": lambda: fixed("lightgbm", clip=False),
    "root_cell off": lambda: fixed("lightgbm", root_cell=False),
    "root_cell off auto": lambda: regression(numbers(200), root_cell=False),
    "linear_features": lambda: fixed("lightgbm", linear_features=[0, 2]),
    "categorical_features": lambda: regression(
        Split(np.floor(4 * numbers(200).X), numbers(200).y, np.floor(4 * numbers(200).X_test)),
        "lightgbm", penalty=jl.Frobenius(0.01, 0.001), categorical_features=[0, 1],
    ),
    # Penalties that choose
    "penalty l21 auto": lambda: regression(numbers(200), voronoi(), penalty=jl.L21("auto"), cv=3),
    "penalty l21 auto + frobenius": lambda: regression(
        numbers(200), voronoi(), penalty=jl.L21("auto") + jl.Frobenius(0.01, 0.01), cv=3
    ),
    "penalty l1 auto, classes": lambda: classification(
        classes(150, 2), voronoi(), penalty=jl.L1("auto", 0.1), cv=3
    ),
    "penalty l21, 3 classes": lambda: fixed(
        voronoi(), "classes", penalty=jl.L21(0.01, 0.05), **TIGHT
    ),
    # Functions
    "fit_cells default": fit_cells,
    "fit_cells weights": lambda: fit_cells(sample_weight=weights(300)),
    "fit_cells constant": lambda: fit_cells(cells="constant"),
    "fit_cells logistic": lambda: fit_cells("signs", loss="logistic"),
    "fit_cells multinomial": lambda: fit_cells("classes", loss="multinomial"),
    "fit_cells multinomial l21": lambda: fit_cells(
        "classes", loss="multinomial", penalty=jl.L21(0.01, 0.05)
    ),
    "strength_path l21": lambda: strength_path(jl.L21("auto", 0.1)),
    "strength_path frobenius": lambda: strength_path(
        jl.Frobenius("auto", 0.1), strengths=np.geomspace(1.0, 1e-3, 8)
    ),
    "fit_tasks dirty lasso": lambda: fit_tasks(jl.DirtyLasso(0.05, 0.03, 0.1)),
    "fit_tasks frobenius": lambda: fit_tasks(jl.Frobenius(0.01, 0.1)),
    # Explanations, files, linear forests
    "explain default 300": lambda: explained("JOPLEnRegressor", numbers(300)),
    "explain default 12000": lambda: explained("JOPLEnRegressor", numbers(12_000)),
    "explain 3 classes": lambda: explained("JOPLEnClassifier", classes(200, 3)),
    "explain voronoi": lambda: explained(
        "JOPLEnRegressor", numbers(200), voronoi(), penalty=jl.Frobenius(0.01)
    ),
    "explain frames": lambda: explained("JOPLEnRegressor", frames(200)),
    "apply and importances": lambda: cells_of_default(numbers(200)),
    "save and load frames": lambda: saved("JOPLEnRegressor", frames(200)),
    "save and load 12000": lambda: saved("JOPLEnClassifier", classes(12_000, 3)),
    "linear forest numbers": lambda: linear_forest("LinearForestRegressor", numbers(200)),
    "linear forest frames": lambda: linear_forest("LinearForestRegressor", frames(200)),
    "linear forest classes": lambda: linear_forest("LinearForestClassifier", classes(200, 3)),
}  # fmt: skip

for _name in PARTITIONERS:
    CONFIGURATIONS[f"partitions {_name}"] = lambda name=_name: fixed(name)
for _name, _make in PENALTIES.items():
    CONFIGURATIONS[f"penalty {_name}"] = lambda make=_make: fixed(voronoi(), penalty=make())
for _name, _make in TASK_PENALTIES.items():
    CONFIGURATIONS[f"tasks {_name}"] = lambda make=_make: task_penalty(make())
for _name in ("dual", "pcg", "fista"):
    CONFIGURATIONS[f"fit_cells {_name}"] = lambda name=_name: fit_cells(solver=name)
for _name in ("newton", "fista"):
    CONFIGURATIONS[f"fit_cells logistic {_name}"] = lambda name=_name: fit_cells(
        "signs", loss="logistic", solver=name
    )
for _name in (
    "GradientBoosting", "HistGradientBoosting", "RandomForest", "ExtraTrees", "LightGBM",
    "XGBoost", "CatBoost",
):  # fmt: skip
    CONFIGURATIONS[f"refine {_name} numbers"] = lambda name=_name: refined(name)
    CONFIGURATIONS[f"refine {_name} 2 classes"] = lambda name=_name: refined(
        name, 2, penalty=jl.Frobenius(0.01, 0.01)
    )
for _name in ("GradientBoosting", "RandomForest", "LightGBM", "XGBoost", "CatBoost"):
    CONFIGURATIONS[f"refine {_name} 3 classes"] = lambda name=_name: refined(
        name, 3, penalty=jl.Frobenius(0.01, 0.01)
    )
