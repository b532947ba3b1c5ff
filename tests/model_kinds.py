"""Small fitted models of every kind that model files hold."""

import functools
import warnings

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

import jointleaf as jl
from blend_fits import small_fits
from jointleaf.partitions import (
    LightGBMPartitioner,
    RandomTreesPartitioner,
    RotatedPartitioner,
    StepPartitioner,
    UnionPartitioner,
    VoronoiPartitioner,
)

__all__ = ["KINDS", "TASKS", "X", "frame", "make", "rows_for"]

_rng = np.random.default_rng(0)
X = _rng.standard_normal((160, 4))
Y = np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 0.1 * _rng.standard_normal(160)
MISSING = np.where(_rng.random(X.shape) < 0.1, np.nan, X)
TWO = np.where(Y > 0, "yes", "no")
THREE = np.digitize(Y, [-0.5, 0.5])
TASKS = {"a": (X, Y), 7: (X[:90], Y[:90] ** 2)}
SMALL = {"random_state": 0}
TREES = RandomTreesPartitioner(12, 6)
VORONOI = VoronoiPartitioner(8, 4)
ROTATED = RotatedPartitioner(TREES, 3, n_directions=3)


def frame():
    """Numbers and text, both with missing values, and numbers that are categories."""
    rng = np.random.default_rng(1)
    colour = pd.Series(rng.choice(["red", "green", "blue"], 160), dtype=object)
    colour[rng.random(160) < 0.1] = None
    return pd.DataFrame(
        {
            "size": MISSING[:, 0],
            "colour": colour,
            "house": pd.Categorical(rng.integers(3, 9, 160)),
            "width": X[:, 1],
        }
    )


def _refined(library):
    if library == "lightgbm":
        from lightgbm import LGBMRegressor

        options = {"n_estimators": 20, "num_leaves": 5, "min_child_samples": 5, "verbose": -1}
        table = frame().assign(colour=frame()["colour"].astype("category"))
        return jl.refine(LGBMRegressor(**options).fit(table, Y), table, Y, penalty=jl.Frobenius(1))
    if library == "catboost":
        from catboost import CatBoostRegressor

        table = frame().assign(colour=frame()["colour"].fillna("none"))
        table["house"] = table["house"].astype(int)
        model = CatBoostRegressor(
            iterations=20, depth=3, cat_features=["colour", "house"], verbose=0,
            allow_writing_files=False, random_seed=0,
        )  # fmt: skip
        return jl.refine(model.fit(table, Y), table, Y, penalty=jl.Frobenius(1))
    from xgboost import XGBRegressor

    model = XGBRegressor(n_estimators=20, max_depth=3).fit(MISSING, Y)
    return jl.refine(model, MISSING, Y, penalty=jl.Frobenius(1))


def _forest():
    forest = RandomForestClassifier(8, max_leaf_nodes=6, random_state=0).fit(X, THREE)
    return jl.refine(forest, X, THREE, penalty=jl.Frobenius(0.1))


def _pruned():
    model = jl.JOPLEnRegressor(TREES, penalty=jl.Frobenius(0.1), **SMALL).fit(X, Y)
    return jl.prune(model, X, Y, n_cells=40)


def _tasks_long():
    table = frame().assign(who=np.where(np.arange(160) % 3, "x", "y"))
    penalty = jl.PerTask(jl.L21(0.02)) + jl.PerTask(jl.Frobenius(0.1))
    return jl.MultiTaskJOPLEnRegressor(VORONOI, penalty=penalty, **SMALL).fit(table, Y, task="who")


def _union():
    members = [LightGBMPartitioner(10), VoronoiPartitioner(5, 3), "steps"]
    return jl.JOPLEnRegressor(
        members, penalty=jl.L1(0.01) + jl.Frobenius(0.1), clip="cell", add_indicator=True,
        random_state=np.random.RandomState(3), n_jobs=2,
    ).fit(MISSING, Y)  # fmt: skip


KINDS = {
    "recipe": lambda: jl.JOPLEnRegressor(**SMALL).fit(X, Y),
    "recipe, two classes": lambda: jl.JOPLEnClassifier(**SMALL).fit(X, TWO),
    "recipe, three classes": lambda: jl.JOPLEnClassifier(**SMALL).fit(X, THREE),
    "recipe, table": lambda: jl.JOPLEnClassifier(**SMALL).fit(frame(), TWO),
    "recipe, small": lambda: jl.JOPLEnClassifier(TREES, **SMALL).fit(X[:80], TWO[:80]),
    "blend": lambda: jl.JOPLEnRegressor(recipe="blend", **SMALL).fit(X[:60], Y[:60]),
    "blend, classes": lambda: jl.JOPLEnClassifier(recipe="blend", **SMALL).fit(X, THREE),
    "float32": lambda: jl.JOPLEnRegressor(TREES, penalty=jl.Frobenius(0.1)).fit(
        X.astype(np.float32), Y
    ),
    "voronoi": lambda: jl.JOPLEnRegressor(VORONOI, penalty=jl.L21("auto"), **SMALL).fit(X, Y),
    "voronoi, table": lambda: jl.JOPLEnRegressor(
        VORONOI, penalty=jl.LInf1(0.01), **SMALL
    ).fit(frame(), Y),
    "rotated": lambda: jl.JOPLEnClassifier(
        ROTATED, penalty=jl.Frobenius(0.1), **SMALL
    ).fit(MISSING, THREE),
    "rotated, table": lambda: jl.JOPLEnRegressor(
        [ROTATED, "steps"], penalty=jl.Frobenius(0.1), **SMALL
    ).fit(frame(), Y),
    "steps": lambda: jl.JOPLEnClassifier(
        StepPartitioner(8), penalty=jl.Nuclear(0.01), **SMALL
    ).fit(X, TWO),
    "constant": lambda: jl.JOPLEnRegressor(
        TREES, cells="constant", penalty=jl.Frobenius(0.1), root_cell=False
    ).fit(X, Y),
    "union": _union,
    "nested": lambda: jl.JOPLEnRegressor(
        UnionPartitioner([UnionPartitioner([TREES]), VoronoiPartitioner(4, 3)]),
        penalty=jl.Lp1(0.01, 3.0) + jl.KyFan(0.01, 2), solver="fista", max_iter=8, **SMALL,
    ).fit(X, Y),
    "laplacian": lambda: jl.JOPLEnRegressor(
        TREES, penalty=jl.Frobenius(0.1) + jl.Laplacian(0.1), **SMALL
    ).fit(X, Y),
    "lightgbm": lambda: _refined("lightgbm"),
    "catboost": lambda: _refined("catboost"),
    "xgboost": lambda: _refined("xgboost"),
    "forest": _forest,
    "pruned": _pruned,
    "linear forest": lambda: jl.LinearForestRegressor(10, **SMALL).fit(frame(), Y),
    "linear forest, two": lambda: jl.LinearForestClassifier(10, **SMALL).fit(X, TWO),
    "linear forest, three": lambda: jl.LinearForestClassifier(10, **SMALL).fit(X, THREE),
    "tasks": lambda: jl.MultiTaskJOPLEnRegressor(
        VoronoiPartitioner(6, 3), penalty=jl.DirtyLasso(0.05, 0.05, relax=0.5), **SMALL
    ).fit(TASKS),
    "tasks, long": _tasks_long,
    "tasks, alone": lambda: jl.MultiTaskJOPLEnRegressor(TREES, **SMALL).fit(
        X, np.stack([Y, Y**2], axis=1)
    ),
    "tasks, classes": lambda: jl.MultiTaskJOPLEnClassifier(
        StepPartitioner(8), penalty=jl.DirtyLInf(0.02, 0.02), tol=1e-3, **SMALL
    ).fit({"a": (X, TWO), "b": (X[:100], TWO[:100] == "no")}),
    "bouts": lambda: jl.BoUTSRegressor(15, 10).fit(TASKS),
    "bouts, classes": lambda: jl.BoUTSClassifier(8, 6).fit(
        {"a": (MISSING, TWO), "b": (X[:100], THREE[:100])}
    ),
}  # fmt: skip


@functools.lru_cache
def make(name):
    """Fit the model of a kind, once for all tests: they must not change it."""
    with warnings.catch_warnings(), small_fits():
        warnings.simplefilter("ignore")
        return KINDS[name]()


def rows_for(model):
    """Rows that a model can predict, some with values that training did not have."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        rows = np.concatenate([X[:40], 3 * X[40:50]])
        rows[::7, 1] = np.nan
        return rows
    table = frame().iloc[:50].copy()
    library = type(model.partitioner).__name__ if hasattr(model, "partitioner") else ""
    if library.startswith("CatBoost"):
        table["colour"] = table["colour"].fillna("none")
        table["house"] = table["house"].astype(int)
    table.loc[table.index[:3], "colour"] = "violet"
    if getattr(model, "task_column_", None):
        table["who"] = "x"
    return table
