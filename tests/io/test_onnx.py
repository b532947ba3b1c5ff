"""ONNX graphs predict what the models predict; what they cannot express is rejected."""

import sys

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import jointleaf as jl
from jointleaf.partitions import (
    ExtraTreesPartitioner,
    FittedEnsemble,
    LightGBMPartitioner,
    Partitioner,
    RandomForestPartitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    RotatedPartitioner,
    StepPartitioner,
    VoronoiPartitioner,
)

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
D = 4
PENALTY = jl.Frobenius(0.1)


def rows(n, missing=0.0):
    X = RNG.standard_normal((n, D))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 0.1 * RNG.standard_normal(n)
    return np.where(RNG.random(X.shape) < missing, np.nan, X), y


X, Y = rows(250)
MISSING, Y_MISSING = rows(250, 0.15)
# New rows: some with missing values, some far outside the training range.
NEW = np.concatenate([rows(150)[0], rows(150, 0.2)[0], 4 * rows(50)[0]])


def run(model, X_new, proto=None):
    """What onnxruntime makes of rows, by the names of the outputs."""
    proto = jl.to_onnx(model) if proto is None else proto
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X_new}), strict=True))


def sizes(partitioner):
    """Partitions of every member that is no union; each rotation is a member."""
    members = [getattr(member, "members_", [member]) for member, _ in partitioner.walk()]
    return [len(member.n_cells_) for inner in members for member in inner]


def raw_bound(model, X_new):
    """Largest error (n,) of raw predictions.

    Of every member of the partitions, the sums S_j of weights are rounded to float32: an error of
    at most 2^-24 |S_j| each, multiplied with the feature z_j (1 for the bias). All else is double:
    1e-12 of the sum of all terms' sizes is several hundred times what their rounding comes to.
    """
    cells = model.cell_model_
    biases = cells.biases.reshape(cells.layout.n_cells, -1)
    slopes = cells.slopes.reshape(*cells.slopes.shape[:2], biases.shape[1])
    slopes = np.concatenate([slopes, np.zeros((1, *slopes.shape[1:]))])[cells.layout.slope_rows]
    theta = np.concatenate([slopes, biases[:, None]], axis=1)
    theta = np.concatenate([theta, np.zeros_like(theta[:1])]).astype(float)
    codes = model.apply(X_new)
    number = np.where(codes < 0, cells.layout.n_cells, codes + cells.layout.offsets[:-1])
    z = np.ones((len(X_new), theta.shape[1], 1))
    z[:, :-1, 0] = np.abs(cells.features.transform(X_new))[:, : theta.shape[1] - 1]
    rounded = double = 0.0
    for columns in np.split(number, np.cumsum(sizes(model.partitioner_))[:-1], axis=1):
        parts = theta[columns]  # (n, P', q, K)
        rounded = rounded + (np.abs(parts.sum(axis=1)) * z).sum(axis=1)
        double = double + (np.abs(parts).sum(axis=1) * z).sum(axis=1)
    fixed = np.abs(cells.centre) + cells.unit * np.abs(cells.offset)
    error = cells.unit * (2.0**-24 * rounded + 1e-12 * double) + 1e-12 * fixed
    return error.max(axis=1)


def check(model, X_new=NEW):
    """Compare with the model itself; give the outputs."""
    found = run(model, X_new)
    bound = raw_bound(model, X_new)
    if isinstance(model, jl.JOPLEnRegressor):
        assert found["variable"].shape == (len(X_new), 1)
        assert (np.abs(found["variable"][:, 0] - model.predict(X_new)) <= bound).all()
        return found
    # Neither the logistic function nor softmax enlarges the largest error of the raw predictions.
    error = np.abs(found["probabilities"] - model.predict_proba(X_new)).max(axis=1)
    assert (error <= bound + 1e-14).all()
    raw = model.decision_function(X_new)
    ranked = np.sort(np.stack([0 * raw, raw], axis=1) if raw.ndim == 1 else raw, axis=1)
    clear = ranked[:, -1] - ranked[:, -2] > 2 * bound
    assert clear.mean() > 0.9
    assert (found["label"][clear] == model.predict(X_new)[clear]).all()
    return found


REGRESSORS = {
    "lightgbm": {"partitioner": LightGBMPartitioner(20, 6)},
    "constant": {"partitioner": LightGBMPartitioner(20, 6), "cells": "constant"},
    "no root": {"partitioner": LightGBMPartitioner(20, 6), "root_cell": False},
    "no clip": {"partitioner": LightGBMPartitioner(20, 6), "clip": False},
    "indicators": {"partitioner": RandomTreesPartitioner(20, 6), "add_indicator": True},
    "chosen": {"partitioner": LightGBMPartitioner(20, 6), "linear_features": [1, 3]},
    "sparse": {"partitioner": LightGBMPartitioner(20, 6), "penalty": jl.L21(0.03)},
    "forest": {"partitioner": RandomForestPartitioner(10, 30)},
    "residual": {"partitioner": ResidualPartitioner(ExtraTreesPartitioner(10, 6))},
    "steps": {"partitioner": StepPartitioner(20)},
    "voronoi": {"partitioner": VoronoiPartitioner(10, 5)},
    "rotated": {"partitioner": RotatedPartitioner(LightGBMPartitioner(20, 6), 4)},
    "rotated constants": {
        "partitioner": [RotatedPartitioner(RandomForestPartitioner(10, 30), 3), StepPartitioner(9)],
        "cells": "constant",
    },
    "union": {"partitioner": [VoronoiPartitioner(5, 4), LightGBMPartitioner(10, 6), "steps"]},
    "linear": {"partitioner": RootCell(), "root_cell": False},
    "mean": {"partitioner": RootCell(), "cells": "constant"},
}


@pytest.mark.parametrize("kind", REGRESSORS)
def test_regressors(kind):
    parameters = {"penalty": PENALTY, "random_state": 0, **REGRESSORS[kind]}
    model = jl.JOPLEnRegressor(**parameters).fit(MISSING, Y_MISSING)
    check(model)
    check(model, NEW[:1])


@pytest.fixture(scope="module", params=["joint", "blend"])
def of_recipe(request):
    X_many, y = rows(150, 0.05)
    return jl.JOPLEnRegressor(recipe=request.param, random_state=0).fit(X_many[:, :3], y)


def test_the_default_recipes(of_recipe):
    check(of_recipe, NEW[:, :3])


@pytest.mark.parametrize("of_recipe", ["blend"], indirect=True)
def test_constant_trees_beside_linear_ones_have_one_target(of_recipe):
    model = of_recipe
    assert model.cell_model_.layout.is_mixed
    ensembles = [node for node in jl.to_onnx(model).graph.node if "Tree" in node.op_type]
    targets = [a.i for node in ensembles for a in node.attribute if a.name == "n_targets"]
    assert 1 in targets  # boosted trees: their values alone
    assert max(targets) == 4  # partitions of the joint fit: three slopes and the bias


@pytest.mark.parametrize(
    "classes", [[1, 2], [False, True], [1.0, 2.0], np.array(["no", "yes"], object)]
)
def test_two_classes(classes):
    y = np.asarray(classes)[(Y > 0).astype(int)]
    model = jl.JOPLEnClassifier(LightGBMPartitioner(10, 6), penalty=PENALTY).fit(X, y)
    label = check(model)["label"]
    assert label.shape == (len(NEW),)
    assert label.dtype == y.dtype


@pytest.mark.parametrize("cells", ["linear", "constant"])
def test_several_classes(cells):
    y = np.array(["red", "green", "blue"])[np.digitize(Y_MISSING, [-0.5, 0.5])]
    model = jl.JOPLEnClassifier(RandomTreesPartitioner(10, 6), cells=cells, penalty=PENALTY)
    found = check(model.fit(MISSING, y))
    assert set(found["label"]) == {"red", "green", "blue"}
    assert found["probabilities"].shape == (len(NEW), 3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_default_classifiers(n_classes):
    y = np.digitize(Y, [0] if n_classes == 2 else [-0.5, 0.5])
    check(jl.JOPLEnClassifier(random_state=0).fit(X[:80, :3], y[:80]), NEW[:, :3])


# -- trained models ------------------------------------------------------------------------------


def lightgbm(**more):
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(n_estimators=15, num_leaves=6, min_child_samples=5, verbose=-1, **more)
    return model.fit(np.where(np.abs(MISSING) < 0.3, 0.0, MISSING), Y_MISSING)


def xgboost():
    model = pytest.importorskip("xgboost").XGBRegressor(n_estimators=15, max_depth=3)
    return model.fit(MISSING, Y_MISSING)


def catboost():
    library = pytest.importorskip("catboost")
    model = library.CatBoostRegressor(iterations=15, depth=3, verbose=0, allow_writing_files=False)
    return model.fit(MISSING, Y_MISSING)


TRAINED = {
    "lightgbm": lightgbm,
    "zeros are missing": lambda: lightgbm(zero_as_missing=True),
    "xgboost": xgboost,
    "catboost": catboost,
    "histogram": lambda: HistGradientBoostingRegressor(max_iter=15).fit(MISSING, Y_MISSING),
}


@pytest.mark.parametrize("kind", TRAINED)
def test_refined_models(kind):
    model = jl.refine(TRAINED[kind](), MISSING, Y_MISSING, penalty=PENALTY)
    found = check(model)
    zeros = np.where(np.abs(NEW) < 0.3, 0.0, NEW)
    assert (check(model, zeros)["variable"] != found["variable"]).any()


def test_a_refined_forest_of_classes():
    y = np.where(Y > 0, "up", "down")
    forest = RandomForestClassifier(10, max_leaf_nodes=8, random_state=0).fit(X, y)
    check(jl.refine(forest, X, y, penalty=PENALTY))


def test_a_pruned_model():
    model = jl.JOPLEnRegressor(LightGBMPartitioner(20, 6), penalty=PENALTY).fit(X, Y)
    small = jl.prune(model, X, Y, n_cells=30)
    assert small.solution_.layout.n_cells < model.solution_.layout.n_cells
    check(small)


def test_a_model_of_single_precision():
    model = jl.JOPLEnRegressor(LightGBMPartitioner(20, 6), penalty=PENALTY)
    model.fit(X.astype(np.float32), Y)
    check(model, NEW.astype(np.float32).astype(float))


@pytest.mark.parametrize("kind", ["lightgbm", "zeros are missing", "xgboost", "catboost"])
def test_rows_on_thresholds_reach_the_same_cells(kind):
    """The threshold itself and a step of one unit in the last place to either side.

    Trees of single precision round a row before they compare it, so that a double just above a
    threshold still goes left.
    """
    model = jl.refine(TRAINED[kind](), MISSING, Y_MISSING, cells="constant", penalty=PENALTY)
    members = model.partitioner_.partitioners_
    trees = next(m for m in members if isinstance(m, FittedEnsemble)).trees_
    step = np.float32 if trees.single_precision else np.float64
    inside = np.abs(trees.threshold) < 1e30  # CatBoost sends missing values by the largest number
    exact, feature = trees.threshold[inside].astype(step), trees.feature[inside]
    near = [np.nextafter(exact, step(side)) for side in (-np.inf, np.inf)]
    nearest = [np.nextafter(exact.astype(float), side) for side in (-np.inf, np.inf)]
    on_border = NEW[RNG.integers(len(NEW), size=5 * len(exact))]
    on_border[np.arange(len(on_border)), np.tile(feature, 5)] = np.concatenate(
        [exact, *near, *nearest]
    )
    check(model, on_border)
    # The check can fail: one unit above a threshold rows are predicted otherwise.
    at, above = (on_border.copy()[: len(exact)] for _ in range(2))
    above[np.arange(len(at)), feature] = near[1]
    differ = np.abs(model.predict(at) - model.predict(above))
    assert (differ > 100 * raw_bound(model, at)).sum() > len(at) / 10


# -- files ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return jl.JOPLEnRegressor(LightGBMPartitioner(5, 4), penalty=PENALTY).fit(X, Y)


def test_files_are_written_whole(small, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"older")
    assert jl.to_onnx(small, path) is None
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    written = onnx.load(path)
    assert written == jl.to_onnx(small)
    assert (run(small, NEW, written)["variable"] == run(small, NEW)["variable"]).all()
    assert written.producer_name == "jointleaf"
    with pytest.raises(FileNotFoundError):
        jl.to_onnx(small, tmp_path / "none" / "model.onnx")


def test_names_of_columns_are_kept():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    proto = jl.to_onnx(jl.JOPLEnRegressor(LightGBMPartitioner(5, 4), penalty=PENALTY).fit(frame, Y))
    props = {entry.key: entry.value for entry in proto.metadata_props}
    assert props == {"columns": '["a", "b", "c", "d"]'}


def test_without_onnx_the_extra_is_named(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'jointleaf\[onnx\]'"):
        jl.to_onnx(small)


# -- rejections ------------------------------------------------------------------------------------


class Halves(Partitioner):
    """Two cells: the sign of the first column."""

    def fit(self, X, y=None, sample_weight=None, *, target_type="regression", columns=None):
        self.n_features_in_ = X.shape[1]
        self.n_cells_ = np.array([2])
        self.split_gains_ = np.ones(X.shape[1])
        return self

    def apply(self, X):
        return (np.asarray(X)[:, :1] > 0).astype(np.int32)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"clip": "cell"}, "clip='cell' cannot be exported"),
        ({"partitioner": Halves()}, "partitions of a Halves cannot be exported"),
    ],
)
def test_what_cannot_be_expressed_is_rejected(parameters, message, tmp_path):
    parameters = {"partitioner": LightGBMPartitioner(5, 4), "penalty": PENALTY, **parameters}
    model = jl.JOPLEnRegressor(**parameters).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        jl.to_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_other_objects_are_rejected(small):
    tasks = jl.MultiTaskJOPLEnRegressor(LightGBMPartitioner(5, 4), penalty=PENALTY)
    for wrong in (jl.LinearForestRegressor(5).fit(X, Y), tasks, "model"):
        with pytest.raises(TypeError, match=f"a {type(wrong).__name__} cannot be exported"):
            jl.to_onnx(wrong)
    with pytest.raises(TypeError, match="give the last step"):
        jl.to_onnx(make_pipeline(FunctionTransformer(), small))
    with pytest.raises(NotFittedError):
        jl.to_onnx(jl.JOPLEnRegressor())


def test_classes_that_have_no_type_are_rejected():
    dates = np.array(["2024-01-01", "2025-01-01"], "datetime64[D]").astype(object)
    model = jl.JOPLEnClassifier(LightGBMPartitioner(5, 4), penalty=PENALTY).fit(X, (Y > 0))
    model.classes_ = dates
    with pytest.raises(ValueError, match="neither a number nor text"):
        jl.to_onnx(model)
