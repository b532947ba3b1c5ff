"""Few rows are walked down trees, or compared at all splits: the cells are those of tables."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest
from sklearn import ensemble

from jointleaf._data.columns import Columns
from jointleaf._trees import routing
from jointleaf._trees.importers.base import find_adapter
from jointleaf._trees.routing import Router
from jointleaf.partitions import LightGBMPartitioner, make_partitioner

pd = pytest.importorskip("pandas")

QUIET = {"verbosity": -1, "num_threads": 1, "min_child_samples": 1, "min_child_weight": 0.0}
CATEGORIES = ["lp", "e", "", "m", "a", "zz", "b"]


def table(n, seed, *, unseen=False):
    """Numbers with ties, and text, both with missing values; new categories if asked for."""
    rng = np.random.default_rng(seed)
    letter = rng.integers(0, 7, n)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": np.round(rng.normal(size=n)),
            "letter": np.array(CATEGORIES, object)[letter],
        }
    )
    y = X["a"] * X["b"] + np.sin(7.0 * letter) + 0.1 * rng.normal(size=n)
    for name in X:
        X.loc[rng.random(n) < 0.1, name] = None
    if unseen:
        X.loc[rng.random(n) < 0.1, "letter"] = "new"
    return X, y.to_numpy()


X, Y = table(1500, 0)
NEW, _ = table(1300, 1, unseen=True)
COLUMNS = Columns.read(X)
NUMBERS = ["a", "b"]


@pytest.fixture(autouse=True)
def without_lightgbm(monkeypatch):
    """LightGBM finds no cells here (tests/trees/test_native.py is about those)."""
    monkeypatch.setattr(Router, "_native_trees", lambda *_: iter(()))


def trees_of(model, columns=None):
    adapter = find_adapter(model)
    columns = Columns.numbers(adapter.n_features(model)) if columns is None else columns
    return adapter.trees(model, columns)


def both_ways(trees, rows, monkeypatch):
    """Cells of the rows: compared, walked, from bits and from tables; they must be the same."""
    for name in ("_FEW_ROWS", "_LOOKED_UP_ROWS", "_BIT_ROWS", "_TREE_TABLED"):
        monkeypatch.setattr(routing, name, 10**9)
    compared = Router(trees)(rows)
    monkeypatch.setattr(routing, "is_small", lambda trees: np.zeros(trees.n_trees, bool))
    router = Router(trees)
    walked = router(rows)
    assert not {"_tables", "_row_bits"} & set(vars(router)), "nothing is prepared"
    monkeypatch.setattr(routing, "_TREE_TABLED", -1.0)
    router = Router(trees)
    from_tables = router(rows)
    assert ("_tables" in vars(router)) == router._is_tabled.any()
    monkeypatch.setattr(routing, "_BIT_ROWS", 0)
    monkeypatch.setattr(Router, "_least_bit_rows", 0.0)
    router = Router(trees)
    from_bits = router(rows)
    assert "_row_bits" in vars(router)
    monkeypatch.undo()
    monkeypatch.setattr(Router, "_native_trees", lambda *_: iter(()))
    for cells in (compared, from_tables, from_bits):
        assert cells.dtype == walked.dtype == np.int32
        np.testing.assert_array_equal(cells, walked)
    return walked


def at_thresholds(trees, rows):
    """The same rows with some numbers at thresholds, and the next floats beside them."""
    rng, rows = np.random.default_rng(2), rows.copy()
    for j in range(rows.shape[1]):
        here = (trees.feature == j) & (trees.table < 0) & np.isfinite(trees.threshold)
        if here.any():
            chosen = rng.random(len(rows)) < 0.5
            values = rng.choice(trees.threshold[here], chosen.sum())
            way = rng.choice([-np.inf, np.inf], len(values))
            rows[chosen, j] = np.where(
                rng.random(len(values)) < 0.5, values, np.nextafter(values, way)
            )
    return rows


# -- trees of every library --------------------------------------------------------------------


@pytest.mark.parametrize("zero_as_missing", [False, True])
@pytest.mark.parametrize("n_leaves", [2, 5, 40, 100])
def test_lightgbm_with_categories_and_missing_values(n_leaves, zero_as_missing, monkeypatch):
    model = lightgbm.LGBMRegressor(
        n_estimators=6, num_leaves=n_leaves, zero_as_missing=zero_as_missing, **QUIET
    ).fit(X.astype({"letter": "category"}), Y)
    trees = trees_of(model, COLUMNS)
    assert (trees.table >= 0).any()
    rows = COLUMNS.encode(NEW)
    both_ways(trees, rows, monkeypatch)
    both_ways(trees, at_thresholds(trees, rows), monkeypatch)


@pytest.mark.parametrize("kind", ["SymmetricTree", "Lossguide"])
def test_catboost(kind, monkeypatch):
    catboost = pytest.importorskip("catboost")
    known = X.assign(letter=X["letter"].fillna("none"))
    new = NEW.assign(letter=NEW["letter"].fillna("none"))
    model = catboost.CatBoostRegressor(
        iterations=8, depth=3, grow_policy=kind, verbose=0, thread_count=1,
        allow_writing_files=False, cat_features=["letter"],
    ).fit(known, Y)  # fmt: skip
    columns = Columns.read(known)
    trees = trees_of(model, columns)
    assert trees.lookups
    rows = columns.encode(new)
    codes = both_ways(trees, rows, monkeypatch)
    leaves = np.asarray(model.calc_leaf_indexes(new))
    for code, leaf in zip(codes.T, leaves.T, strict=True):
        pairs = np.unique(np.stack([code, leaf]), axis=1).shape[1]
        assert pairs == len(np.unique(code)) == len(np.unique(leaf))


@pytest.mark.parametrize("onehot", [1, 50])
def test_xgboost(onehot, monkeypatch):
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBRegressor(
        n_estimators=6, max_depth=4, enable_categorical=True, max_cat_to_onehot=onehot, n_jobs=1
    ).fit(X.astype({"letter": "category"}), Y)
    trees = trees_of(model, COLUMNS)
    assert (trees.table >= 0).any()
    both_ways(trees, at_thresholds(trees, COLUMNS.encode(NEW)), monkeypatch)


SKLEARN = {
    "forest": ensemble.RandomForestRegressor(5, max_leaf_nodes=30, random_state=0),
    "deep forest": ensemble.ExtraTreesRegressor(3, random_state=0),
    "histograms": ensemble.HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=9),
    "boosting": ensemble.GradientBoostingRegressor(n_estimators=5, random_state=0),
}


@pytest.mark.parametrize("kind", SKLEARN)
def test_sklearn(kind, monkeypatch):
    rows, new = X[NUMBERS].to_numpy(float), NEW[NUMBERS].to_numpy(float)
    if kind == "boosting":
        rows, new = np.nan_to_num(rows), np.nan_to_num(new)
    trees = trees_of(SKLEARN[kind].fit(rows, Y))
    both_ways(trees, new, monkeypatch)
    both_ways(trees, at_thresholds(trees, new), monkeypatch)
    both_ways(trees, new.astype(np.float32), monkeypatch)


@pytest.mark.parametrize("name", ["random_trees", "lightgbm", "random_forest", "steps"])
def test_grown_cells_with_some_leaves_unmet(name, monkeypatch):
    part = (
        make_partitioner(name).set_params(n_partitions=8, random_state=0)
        if name != "steps"
        else make_partitioner(name)
    )
    part.fit(COLUMNS.encode(X), Y, columns=COLUMNS)
    both_ways(part.trees_, COLUMNS.encode(NEW), monkeypatch)


def test_trees_without_a_split_among_others(monkeypatch):
    rows = X[NUMBERS].fillna(0).to_numpy(float)
    y = np.where(np.arange(1500) < 30, 1.0, 0.0)
    part = make_partitioner("random_trees").set_params(n_partitions=30, n_cells=3, random_state=0)
    few = part.fit(rows[:5], y[:5] + np.arange(5)).trees_
    assert {1, 2} == set(few.n_leaves), "some have one leaf, others two"
    both_ways(few, rows, monkeypatch)
    one = LightGBMPartitioner(3, random_state=0).fit(rows, np.ones(1500)).trees_
    assert not both_ways(one, rows, monkeypatch).any()


# -- the limit ---------------------------------------------------------------------------------


def test_tables_that_are_there_serve_few_rows(monkeypatch):
    part = LightGBMPartitioner(12, 20, random_state=0).fit(COLUMNS.encode(X), Y, columns=COLUMNS)
    rows = COLUMNS.encode(NEW)
    router = Router(part.trees_)
    expected = router(rows[:100])
    assert "_tables" not in vars(router)
    for _ in range(8):
        assert router(rows[:100]).tolist() == expected.tolist()
    monkeypatch.setattr(Router, "_walk", None)
    for n in (0, 1, 16):
        assert router(rows[:n]).tolist() == expected[:n].tolist()


@pytest.mark.parametrize("n_rows", [1, 100])
def test_many_calls_with_few_rows_make_tables(n_rows):
    part = LightGBMPartitioner(12, 20, random_state=0).fit(COLUMNS.encode(X), Y, columns=COLUMNS)
    rows = COLUMNS.encode(NEW)[:n_rows]
    router = Router(part.trees_)
    lost = routing._CALL_LOST + n_rows * routing._ROW_LOST
    for _ in range(int(routing._TREE_TABLED / lost)):
        expected = router(rows)
    assert "_tables" not in vars(router)
    np.testing.assert_array_equal(router(rows), expected)
    assert "_tables" in vars(router)


@pytest.mark.parametrize("n", [0, 1, 2, 255, 256, 257, 1300])
def test_row_counts_around_the_limit(n):
    assert routing._BIT_ROWS == 256
    part = LightGBMPartitioner(12, 20, random_state=0).fit(COLUMNS.encode(X), Y, columns=COLUMNS)
    rows = COLUMNS.encode(NEW)
    router = Router(part.trees_)
    found = router(rows[:n])
    assert found.shape == (n, 12)
    assert ("_row_bits" in vars(router)) == (n >= 256)
    np.testing.assert_array_equal(found, router(rows)[:n])


# -- other cells -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_leaves", [2, 9, 30, 100])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_renumbered(n_leaves, is_prepared, monkeypatch):
    monkeypatch.setattr(routing, "_MANY_ROWS", 1000)
    rows, new = X[NUMBERS].to_numpy(float), NEW[NUMBERS].to_numpy(float)
    model = lightgbm.LGBMRegressor(n_estimators=5, num_leaves=n_leaves, **QUIET).fit(rows, Y)
    trees = trees_of(model)
    router = Router(trees)
    if is_prepared:
        router(new)
    leaves = router(rows[:20])
    met = trees.numbered(leaves)  # few rows: many leaves are no cell
    other = router.renumbered(met)
    assert ("_row_bits" in vars(other)) == is_prepared
    assert other.trees is met
    for some in (new, new[:300]):
        expected = Router(met)(some)
        np.testing.assert_array_equal(other(some), expected)
        if n_leaves > 9:
            assert expected.min() == -1
    shuffled = [np.random.default_rng(p).permutation(k) for p, k in enumerate(trees.n_leaves)]
    turned = replace(trees, cell_of_leaf=np.concatenate(shuffled).astype(np.int32))
    expected = np.column_stack([cells[c] for cells, c in zip(shuffled, router(new).T, strict=True)])
    np.testing.assert_array_equal(router.renumbered(turned)(new), expected)
    np.testing.assert_array_equal(router(new), Router(trees)(new), err_msg="left as it was")
