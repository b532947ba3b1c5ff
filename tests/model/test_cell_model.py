"""Cell models: weighted sums of them, constants without slopes, explanations of both kinds."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lightgbm import LGBMRegressor

from jointleaf._core.layout import CellLayout
from jointleaf._core.losses import Multinomial, SquaredError
from jointleaf._data.columns import Columns
from jointleaf._data.features import plan_features
from jointleaf._model.bulk_predict import LEAST_ROWS
from jointleaf._model.cell_model import CellModel, Frame
from jointleaf._model.contributions import cell_ranges
from jointleaf.inspection._parts import CellExplainer
from jointleaf.partitions import (
    FittedEnsemble,
    LightGBMPartitioner,
    RandomTreesPartitioner,
    ResidualPartitioner,
    RootCell,
    RotatedPartitioner,
    UnionPartitioner,
    VoronoiPartitioner,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 4))
X[RNG.random(X.shape) < 0.05] = np.nan
Y = np.nansum(X, axis=1) + (X[:, 0] > 0)
ROWS = 2 * RNG.standard_normal((80, 4))
ROWS[RNG.random(ROWS.shape) < 0.05] = np.nan


def make_frame(n_outputs=1, rows=X):
    ones = np.ones(len(rows))
    columns = Columns.numbers(rows.shape[1])
    features = plan_features(rows, ones, columns).fit(rows, ones)
    loss = SquaredError() if n_outputs == 1 else Multinomial(n_outputs)
    centre, unit = (3.0, 2.5) if n_outputs == 1 else (0.0, 1.0)
    offset = np.zeros(()) if n_outputs == 1 else np.zeros(n_outputs)
    return Frame(columns, features, loss, offset, centre, unit, 1)


PARTITIONERS = [
    LightGBMPartitioner(5, 4, random_state=0).fit(X, Y),
    VoronoiPartitioner(3, 4, random_state=0).fit(X, Y),
    UnionPartitioner(
        [ResidualPartitioner(RandomTreesPartitioner(4, 6, random_state=1)), RootCell()]
    ).fit(X, Y),
    UnionPartitioner(
        [UnionPartitioner([LightGBMPartitioner(2, 3, random_state=2), RootCell()]), RootCell()]
    ).fit(X, Y),
    RotatedPartitioner(RandomTreesPartitioner(4, 4), 2, random_state=0).fit(X, Y),
]


def random_model(frame, partitioner, seed, *, clipped=False, kinds=None):
    """A model with random weights and a random kind for every partition."""
    rng = np.random.default_rng(seed)
    n_cells = tuple(partitioner.n_cells_.tolist())
    if kinds is None:
        kinds = tuple(rng.choice(["linear", "constant"], len(n_cells)).tolist())
    layout = CellLayout(n_cells, len(frame.features.plan.names), kinds)
    outputs = frame.offset.shape
    ranges = None
    if clipped:
        ranges = cell_ranges(frame.features.transform(X), partitioner.apply(X), layout)
    return CellModel(
        partitioner,
        frame.features,
        layout,
        rng.standard_normal((layout.n_linear_cells, layout.n_features, *outputs)),
        rng.standard_normal((layout.n_cells, *outputs)),
        rng.standard_normal(outputs),
        frame.centre,
        frame.unit,
        ranges,
    )


def standard(model, rows=ROWS):
    return (model.predict(rows) - model.centre) / model.unit


def by_loop(model, rows=ROWS):
    """Predictions in standard units, row by row and partition by partition."""
    z, codes, layout = model.features.transform(rows), model.partitioner.apply(rows), model.layout
    f = np.zeros((len(rows), *model.biases.shape[1:])) + model.offset
    for n, p in np.ndindex(codes.shape):
        if codes[n, p] < 0:
            continue
        cell = layout.offsets[p] + codes[n, p]
        f[n] += model.biases[cell]
        if layout.kinds[p] == "linear":
            row, seen = layout.slope_rows[cell], z[n]
            if model.ranges is not None:
                seen = np.clip(seen, model.ranges.low[row], model.ranges.high[row])
            f[n] += np.tensordot(seen, model.slopes[row], 1)
    return f


def test_sums_are_as_precise_as_the_least_precise_weights():
    frame = make_frame()
    one, two = (random_model(frame, PARTITIONERS[i], i) for i in (0, 1))
    single = replace(
        two, slopes=two.slopes.astype(np.float32), biases=two.biases.astype(np.float32)
    )
    for both in (one + single, single + one):
        assert both.slopes.dtype == both.biases.dtype == np.float32
        np.testing.assert_allclose(both.predict(ROWS), (one + two).predict(ROWS), atol=1e-5)
    constants = CellModel.of_constants(frame, PARTITIONERS[0], np.ones(len(one.biases)))
    assert (constants + constants).slopes.dtype == np.float64
    assert (single + constants).slopes.dtype == np.float32


@settings(max_examples=60, deadline=None)
@given(
    n_outputs=st.sampled_from([1, 3]),
    indices=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    clipped=st.tuples(st.booleans(), st.booleans()),
    factors=st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    seed=st.integers(0, 1000),
)
def test_predictions_of_sums_are_sums_of_predictions(n_outputs, indices, clipped, factors, seed):
    frame = make_frame(n_outputs)
    one, two = (
        random_model(frame, PARTITIONERS[i], seed + k, clipped=clipped[k])
        for k, i in enumerate(indices)
    )
    a, b = factors
    both = a * one + b * two
    expected = a * standard(one) + b * standard(two)
    np.testing.assert_allclose(standard(both), expected, atol=1e-10)
    np.testing.assert_allclose(by_loop(both), expected, atol=1e-10)
    assert both.layout.cells_per_partition == tuple(both.partitioner.n_cells_)
    if clipped == (False, False) and indices[0] == indices[1]:
        assert both.partitioner is one.partitioner


def test_rows_that_lie_in_no_cell():
    frame = make_frame(3)
    trees = LGBMRegressor(n_estimators=6, num_leaves=8, verbosity=-1, n_jobs=1).fit(X, Y)
    partitioner = FittedEnsemble(trees).fit(X[:15])  # leaves without rows are no cells
    assert (partitioner.apply(ROWS) < 0).any()
    one = random_model(frame, partitioner, 0)
    two = random_model(frame, PARTITIONERS[1], 1, clipped=True)
    both = 2 * one - two
    np.testing.assert_allclose(standard(both), 2 * by_loop(one) - by_loop(two), atol=1e-12)


def test_sums_with_ranges_share_cells_where_they_can():
    frame, partitioner = make_frame(), PARTITIONERS[0]
    joint = random_model(frame, partitioner, 0, clipped=True, kinds="linear")
    values = CellModel.of_leaf_values(frame, partitioner, np.ones((joint.layout.n_cells, 1)))
    both = joint + 0.5 * values
    assert both.partitioner is partitioner
    np.testing.assert_allclose(standard(both), by_loop(joint) + 0.5 * by_loop(values), atol=1e-12)
    assert (joint + 2 * joint).partitioner is partitioner
    other = random_model(frame, partitioner, 1, kinds="linear")  # a cell has one range
    assert (joint + other).layout.n_partitions == 2 * joint.layout.n_partitions


def test_constants_leaf_values_and_global_linear_models():
    frame, trees = make_frame(), PARTITIONERS[0]
    leaf_values = CellModel.of_leaf_values(frame, trees, trees.leaf_values_)
    codes = trees.apply(ROWS)
    starts = np.cumsum(trees.n_cells_) - trees.n_cells_
    np.testing.assert_allclose(
        leaf_values.predict(ROWS), trees.leaf_values_[codes + starts, 0].sum(axis=1)
    )
    slopes = np.arange(4.0)
    linear = CellModel.linear(frame, slopes, 0.5)
    z = frame.features.transform(ROWS)
    np.testing.assert_allclose(standard(linear), z @ slopes + 0.5)
    joint = random_model(frame, PARTITIONERS[2], 0, kinds="constant")
    both = joint + linear  # in the root cell of the union
    assert both.partitioner is joint.partitioner
    assert both.layout.n_linear_cells == 1
    np.testing.assert_allclose(standard(both), by_loop(joint) + z @ slopes + 0.5)
    np.testing.assert_allclose(standard(both.plus_constant(2.0)), standard(both) + 2)


def test_models_of_different_frames_cannot_be_added():
    one = random_model(make_frame(), PARTITIONERS[0], 0)
    with pytest.raises(ValueError, match="outputs"):
        one + random_model(make_frame(3), PARTITIONERS[0], 0)
    with pytest.raises(ValueError, match="different units"):
        one + replace(one, unit=9.0)
    with pytest.raises(ValueError, match="different units"):
        one + random_model(make_frame(rows=X[:100]), PARTITIONERS[0], 0)
    assert (one + random_model(make_frame(), PARTITIONERS[0], 0)).layout == one.layout


def test_constants_take_the_units_of_another_frame():
    frame, other = make_frame(), replace(make_frame(rows=X[:100]), centre=-7.0, unit=0.3)
    constants = random_model(frame, PARTITIONERS[0], 0, kinds="constant")
    moved = constants.in_units(other)
    np.testing.assert_allclose(moved.predict(ROWS), constants.predict(ROWS), rtol=1e-12)
    assert (moved + random_model(other, PARTITIONERS[0], 0)).unit == other.unit
    with pytest.raises(ValueError, match="slopes"):
        random_model(frame, PARTITIONERS[0], 0, kinds="linear").in_units(other)


def test_members_of_nested_sums_stay_flat():
    frame = make_frame()
    models = [random_model(frame, p, i) for i, p in enumerate(PARTITIONERS[:3])]
    total = models[0] + models[1] + models[2] + models[0] + models[2]
    members = total.partitioner.partitioners_
    assert len(members) == 4
    assert not any(isinstance(member, UnionPartitioner) for member in members)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("kinds", [None, "linear", "constant"])
def test_coefficients_in_the_units_of_the_input(n_outputs, kinds):
    rows = np.nan_to_num(X)
    frame = make_frame(n_outputs, rows)
    model = random_model(frame, PARTITIONERS[0], 0, kinds=kinds)
    codes = PARTITIONERS[0].apply(rows)
    cells = codes + model.layout.offsets[:-1]
    coef, intercept = model.coef(), model.intercept()
    assert coef.shape == (model.layout.n_cells, 4, *frame.offset.shape)
    found = np.einsum("nm,nm...->n...", rows, coef[cells].sum(axis=1))
    found += intercept[cells].sum(axis=1) + model.centre + model.unit * model.offset
    np.testing.assert_allclose(found, model.predict(rows), atol=1e-10)
    norms = np.sqrt(np.square(model.slopes).sum(axis=(0, 2) if n_outputs > 1 else 0))
    np.testing.assert_allclose(model.slope_norms(), norms)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_tables_of_mixed_models(n_outputs):
    frame = make_frame(n_outputs)
    linear = CellModel.linear(frame, RNG.standard_normal((4, *frame.offset.shape)), frame.offset)
    total = linear
    rows = np.tile(ROWS, (LEAST_ROWS // len(ROWS) + 1, 1))
    for i, partitioner in enumerate(PARTITIONERS):
        kinds = "constant" if i == 0 else None
        total = total + random_model(frame, partitioner, i, kinds=kinds)
        many, few = total.predict(rows)[: len(ROWS)], total.predict(ROWS)
        np.testing.assert_allclose(many, few, rtol=0, atol=1e-12 * np.abs(few).max())
    single = total.predict(rows.astype(np.float32))[: len(ROWS)]
    np.testing.assert_allclose(single, few, rtol=0, atol=1e-4 * np.abs(few).max())


def test_constants_cost_no_slopes():
    def n_bytes(m, has_linear=False):
        rows = np.random.default_rng(0).standard_normal((m, 50)).T  # the first columns are the same
        frame = make_frame(rows=rows)
        trees = RandomTreesPartitioner(20, 8, random_state=0).fit(rows[:, :2], rows[:, 0])
        model = CellModel.of_constants(frame, trees, np.ones(int(trees.n_cells_.sum())))
        if has_linear:
            model = model + CellModel.linear(frame, np.ones(m), 0.0)
        frameless = replace(model, features=None, means=None)
        return len(pickle.dumps(frameless)), model

    few, _ = n_bytes(10)
    many, model = n_bytes(1000)
    assert abs(many - few) < 100
    assert model.slopes.size == 0
    with_root, model = n_bytes(1000, True)
    assert with_root < many + 4 * 8 * 1000  # and not 8,000 for each of 160 cells
    assert model.slopes.shape == (1, 1000)


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_explanations_of_mixed_models_add_up(n_outputs, clipped):
    frame = make_frame(n_outputs)
    model = random_model(frame, PARTITIONERS[0], 0, clipped=clipped)
    model = model + 0.3 * random_model(frame, PARTITIONERS[2], 1, kinds="constant")
    model, _ = (model + random_model(frame, PARTITIONERS[1], 2)).described(X, np.ones(len(X)))
    assert model.layout.is_mixed
    parts = CellExplainer(model)(ROWS)
    whole = parts.baseline + (parts.linear + parts.cells).sum(axis=1) + parts.cells_rest
    prediction = model.predict(ROWS).reshape(len(ROWS), -1)
    np.testing.assert_allclose(whole, prediction, rtol=0, atol=1e-11 * np.abs(prediction).max())
    training = CellExplainer(model)(X)
    mean = model.predict(X).reshape(len(X), -1).mean(axis=0)
    np.testing.assert_allclose(training.baseline, mean, atol=1e-10)
    np.testing.assert_allclose((training.linear + training.cells).mean(axis=0), 0, atol=1e-10)
