"""A table with text and missing values, shared by tests."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf.partitions import LightGBMPartitioner

RIDGE = Frobenius(0.01)
SMALL = LightGBMPartitioner(10, 4)
SHIFTS = {"berlin": 4.0, "oslo": -4.0, "paris": 0.0, "rome": 8.0, "vaduz": -8.0}


def make_frame(n=160, seed=0):
    """Numbers and text, both with missing values; the city shifts the target. One city is rare."""
    rng = np.random.default_rng(seed)
    city = rng.choice(list(SHIFTS), n, p=[0.35, 0.35, 0.15, 0.148, 0.002])
    city[0] = "vaduz"
    X = pd.DataFrame(
        {
            "size": rng.normal(10, 3, n),
            "city": city.astype(object),
            "kind": rng.choice(["new", "old"], n),
            "age": rng.exponential(20, n),
            "noise": rng.normal(size=n),
        }
    )
    y = X["size"] - 0.05 * X["age"] + X["city"].map(SHIFTS) + 0.3 * rng.normal(size=n)
    X.loc[rng.random(n) < 0.1, "age"] = np.nan
    gone = rng.random(n) < 0.05
    gone[0] = False
    X.loc[gone, "city"] = None
    return X, y.to_numpy()


X, Y = make_frame()
NEW, NEW_Y = make_frame(seed=1)
BINARY = np.where(np.median(Y) < Y, "yes", "no")
THREE = np.digitize(Y, np.quantile(Y, [1 / 3, 2 / 3])) * 10
TASKS = {
    "regression": (JOPLEnRegressor, Y),
    "binary": (JOPLEnClassifier, BINARY),
    "multiclass": (JOPLEnClassifier, THREE),
}


def raw(model, X):
    """Predictions on the scale of the loss."""
    return getattr(model, "decision_function", model.predict)(X)


#: The same table in other forms.
FORMS = {
    "category": lambda X: X.astype({"city": "category", "kind": "category"}),
    "string": lambda X: X.astype({"city": "string[python]", "kind": "string[pyarrow]"}),
    # Before pandas 3 "str" made text of missing values.
    "str": lambda X: X.astype({"city": "str" if pd.__version__ >= "3" else "string"}),
    "object": lambda X: X.astype({"kind": object}),
    "nullable": lambda X: X.astype({"age": "Float64"}),
    "all objects": lambda X: X.astype(object),
    "polars": lambda X: pl.DataFrame(
        {name: [None if pd.isna(value) else value for value in X[name]] for name in X}
    ),
    "polars categories": lambda X: FORMS["polars"](X).with_columns(
        pl.col("city").cast(pl.Categorical), pl.col("kind").cast(pl.Enum(["old", "new", "x"]))
    ),
    "pyarrow": lambda X: pa.Table.from_pandas(X, preserve_index=False),
    "pyarrow categories": lambda X: pa.Table.from_pandas(
        X.astype({"city": "category", "kind": "category"}), preserve_index=False
    ),
    "pyarrow batch": lambda X: pa.RecordBatch.from_pandas(X, preserve_index=False),
    "ordered": lambda X: X.assign(
        city=pd.Categorical(X["city"], ["x", *reversed(SHIFTS)], ordered=True)
    ),
}

#: Of all partitioners.
NAMES = [
    "lightgbm",
    "catboost",
    "xgboost",
    "gradient_boosting",
    "hist_gradient_boosting",
    "random_forest",
    "extra_trees",
    "random_trees",
    "large_trees",
    "rotated_trees",
    "linear_forest",
    "steps",
    "voronoi",
]
