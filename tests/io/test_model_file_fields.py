"""Fields of model files at the edges of what they may be: each of these ends a mutant."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from jointleaf.io._model_file import container, estimators, files, fits, objects, upgrades
from jointleaf.io._model_file.container import Budget, ModelFileError, pack, unpack
from jointleaf.io._model_file.parameters import LOSS, PARAMETER_KINDS
from jointleaf.io._model_file.schema import (
    Array,
    Each,
    Flag,
    Integer,
    Made,
    Place,
    Scope,
    indices,
    record,
)
from jointleaf.io._model_file.values import Labels, Plain
from model_file_damage import MOST

FILES = Path(__file__).parent / "model_files"


def place(budget=None):
    return Place("it", [], budget or Budget(0, 0, 0))


def read(field, data, **scope):
    """Read JSON in which arrays are still arrays."""
    where = place()

    def stored(value):
        if isinstance(value, np.ndarray):
            where.arrays.append(value)
            return {"array": len(where.arrays) - 1}
        if isinstance(value, dict):
            return {key: stored(item) for key, item in value.items()}
        return [stored(item) for item in value] if isinstance(value, list) else value

    return field.read(stored(data), where, Scope(**scope))


def floats(*values):
    return np.array(values, dtype=float)


def stump(*leaf_values, d=2):
    """The JSON of a tree with one split, and leaf values unless there are none."""
    return {
        "n_features": d,
        "n_leaves": np.array([2]),
        "starts": np.array([0, 1]),
        "n_categories": np.zeros(d, np.int64),
        "lookups": [],
        "feature": np.zeros(1, np.int32),
        "threshold": floats(0.5),
        "left": np.array([-1], np.int32),
        "right": np.array([-2], np.int32),
        "missing_left": np.zeros(1, bool),
        "table": np.array([-1]),
        "categories_left": np.zeros(0, bool),
        "cell_of_leaf": np.array([0, 1], np.int32),
        "single_precision": False,
        "zero_is_missing": False,
        "leaf_values": np.array(leaf_values) if leaf_values else None,
    }


CALIBRATION = {
    "scores": floats(0.1, 0.2),
    "ranks": floats(0, 1),
    "total": 0.0,
    "n_rows": 1,
    "is_fresh": True,
    "widths": stump([1.0], [2.0]),
}
QUANTILES = {
    "levels": floats(0.1, 0.5),
    "coefficients": np.array([[1.0, 2.0]]),
    "n_rows": 1,
    "widths": None,
    "cells": [stump([1.0, 2.0], [0.0, 0.0])],
}
PRUNING = {
    "n_cells": np.array([1]),
    "train_loss": floats(0),
    "valid_loss": None,
    "chosen": 0,
    "strength_factor": floats(1),
    "n_cells_before": 1,
    "n_cells_after": 1,
}
STATISTICS = {
    "columns": [
        {"label": "a", "categories": {"texts": ["x", "y"]}},
        {"label": "b", "categories": None},
    ],
    "statistics": {
        "classes": [],
        "tables": [
            {
                "columns": [0],
                "names": ["a: mean"],
                "keys": np.array([0, 3]),
                "values": np.zeros((3, 1)),
            }
        ],
    },
    "preparation": None,
}
INDICATORS = {"column": 1, "names": ["u", "v"], "place": np.array([0, 1, -1, 2])}
MEANS = {"cell_weights": floats(1), "linear": np.zeros((1, 1)), "n_rows": 1}
STATE = {"class": "RandomState", "key": np.zeros(624, np.uint32), "pos": 0, "gauss": 0.0}
RECORDS = {
    "calibration": (fits.CALIBRATION, CALIBRATION, {"d": 1}),
    "quantiles": (fits.QUANTILES, QUANTILES, {"d": 1}),
    "pruning": (fits.PRUNING, PRUNING, {}),
    "statistics": (objects.COLUMNS, STATISTICS, {}),
    "indicators": (objects._INDICATORS, INDICATORS, {"d": 2, "n_categories": np.array([0, 2])}),
    "means": (fits._MEANS, MEANS, {"n_cells": 1, "m": 1, "n_outputs": 1}),
    "layout": (
        fits._LAYOUT,
        {"cells_per_partition": np.array([1]), "n_features": 0, "kinds": "constant"},
        {},
    ),
    "tweedie": (LOSS, {"class": "Tweedie", "power": 1.5}, {}),
    "state": (PARAMETER_KINDS["random_state"], {**STATE, "has_gauss": 1}, {}),
    "column": (objects._COLUMN, {"label": "a", "categories": {"texts": []}}, {}),
    "fill": (estimators._FILL, {"column": 1, "value": 0.0}, {"d": 2}),
    "scores": (
        estimators._SCORES,
        {"column": 1, "values": np.zeros(4)},
        {"d": 2, "n_categories": np.array([0, 2])},
    ),
    "key": (
        objects._KEY_PART,
        {"column": 1, "hashes": None, "threshold": 0.0, "missing_above": True},
        {"n_categories": np.array([0, 0])},
    ),
    "ranges": (
        fits._RANGES,
        {"low": np.full((2, 1), -np.inf), "high": np.full((2, 1), np.inf)},
        {"n_linear": 1, "m": 1},
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_what_may_be_is_read(name):
    field, data, scope = RECORDS[name]
    assert read(field, data, **scope) is not None


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("calibration", {"scores": floats()}, "is empty"),
        ("calibration", {"scores": floats(2, 1)}, "must rise"),
        ("calibration", {"ranks": floats(-1, 0)}, "below 0"),
        ("calibration", {"ranks": floats(0, 0)}, "must rise"),
        ("calibration", {"total": -1e-9}, "number from 0"),
        ("calibration", {"n_rows": 0}, "from 1"),
        ("calibration", {"widths": stump()}, "must have leaf values"),
        ("calibration", {"widths": stump([1.0, 1.0], [1.0, 1.0])}, "must have leaf values"),
        ("calibration", {"widths": stump([1.0], [1.0], d=1)}, "n_features must be"),
        ("quantiles", {"levels": floats(0, 0.5)}, "from 0 to 1"),
        ("quantiles", {"levels": floats(0.5, 1)}, "from 0 to 1"),
        ("quantiles", {"coefficients": np.array([[2.0, 1.0]])}, "must rise"),
        ("quantiles", {"coefficients": np.ones((3, 2))}, "does not fit the coefficients"),
        ("quantiles", {"widths": stump([1.0], [1.0])}, "does not fit the coefficients"),
        ("quantiles", {"n_rows": 0}, "from 1"),
        ("quantiles", {"cells": [stump()]}, "must rise"),
        ("quantiles", {"cells": [stump([2.0, 1.0], [0.0, 0.0])]}, "must rise"),
        ("pruning", {"n_cells": np.array([0])}, "below 1"),
        ("pruning", {"chosen": 1}, "from 0 to 0"),
        ("pruning", {"n_cells_before": 0}, "from 1"),
        ("pruning", {"n_cells_after": 0}, "from 1"),
        ("indicators", {"place": np.array([0, 1, -1, 3])}, "above 2"),
        ("indicators", {"place": np.array([0, 1, -2, 0])}, "below -1"),
        ("indicators", {"place": np.array([0, 1, -1])}, "does not fit the categories"),
        ("indicators", {"column": 2}, "from 0 to 1"),
        ("means", {"n_rows": 0}, "from 1"),
        ("means", {"cell_weights": floats(-1)}, "below 0"),
        ("layout", {"n_features": -1}, "from 0"),
        ("tweedie", {"power": 1.0}, "between 1 and 2"),
        ("tweedie", {"power": 2.0}, "between 1 and 2"),
        ("state", {"has_gauss": 2}, "from 0 to 1"),
        ("state", {"pos": 625}, "from 0 to 624"),
        ("column", {"categories": {"objects": [1]}}, "of a kind that is not allowed"),
        ("fill", {"column": 2}, "from 0 to 1"),
        ("scores", {"column": 0}, "has no categories"),
        ("scores", {"values": floats(0, 0, 0, np.nan)}, "infinity or NaN"),
        ("key", {"column": 2}, "from 0 to 1"),
        ("key", {"hashes": np.zeros(2, np.uint64)}, "does not fit the column"),
        ("ranges", {"low": np.full((2, 1), np.inf)}, "infinity or NaN"),
        ("ranges", {"high": np.full((2, 1), -np.inf)}, "infinity or NaN"),
        ("ranges", {"low": np.full((2, 1), np.nan)}, "infinity or NaN"),
    ],
)
def test_what_may_not_be_is_refused(name, change, problem):
    field, data, scope = RECORDS[name]
    with pytest.raises(ModelFileError, match=problem):
        read(field, {**data, **change}, **scope)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"columns": [1]}, "one or two columns with categories"),
        ({"columns": [0, 0]}, "one or two columns with categories"),
        ({"keys": np.array([0, 4])}, "above 3"),
        ({"keys": np.zeros(0, np.int64)}, "is empty"),
        ({"values": np.zeros((2, 1))}, "does not fit the keys"),
    ],
)
def test_tables_of_statistics(change, problem):
    (table,) = STATISTICS["statistics"]["tables"]
    statistics = {"classes": [], "tables": [{**table, **change}]}
    with pytest.raises(ModelFileError, match=problem):
        read(objects.COLUMNS, {**STATISTICS, "statistics": statistics})


def test_pairs_of_columns_come_after_single_ones():
    columns = [{"label": label, "categories": {"texts": ["x"]}} for label in "ab"]
    (table,) = STATISTICS["statistics"]["tables"]
    single = {**table, "keys": np.array([0, 2])}
    pair = {**single, "columns": [0, 1]}
    for tables, may_be in [([single, pair], True), ([pair, single], False)]:
        data = {"columns": columns, "preparation": None}
        data["statistics"] = {"classes": [], "tables": tables}
        if may_be:
            assert read(objects.COLUMNS, data).statistics.replaced == [0]
        else:
            with pytest.raises(ModelFileError, match="before pairs"):
                read(objects.COLUMNS, data)


@pytest.mark.parametrize(
    ("kind", "notation", "may_be"),
    [
        ("date", "iso", True), ("date", "time", True), ("date", "plain", False),
        ("date", "", False), ("number", "plain%", True), ("number", "iso", False),
        ("identifier", "plain", True), ("constant", "iso", True),
    ],
)  # fmt: skip
def test_notations_are_those_of_the_kind_of_a_column(kind, notation, may_be):
    column = {"name": "a", "kind": kind, "notation": notation, "parts": ["year"], "note": ""}
    data = {"columns": [column], "missing": []}
    if may_be:
        assert read(objects.PREPARATION, data).columns[0].notation == notation
    else:
        with pytest.raises(ModelFileError, match="is no notation of this kind"):
            read(objects.PREPARATION, data)


@pytest.mark.parametrize(
    ("field", "data", "problem"),
    [
        (LOSS, 3, "is no object"),
        (Array(), 3, "must be a reference to an array"),
        (Array(), {"array": 0}, "must be a reference to an array"),
        (Array(finite=True), floats(1, np.nan), "infinity or NaN"),
        (Plain(), {}, "no known kind"),
        (Plain(), {"a": 1, "b": 2}, "no known kind"),
        (Plain(), {"other": "inf"}, "no known kind"),
        (Plain(), {"float": "big"}, "no known kind"),
        (Labels(rising=True), np.array([1, 3, 2]), "must rise"),
        (indices(5, rising=True), np.array([1, 3, 2]), "must rise"),
        (record(int, make=lambda s: int("x")), {}, "is no int that can be"),
    ],
)
def test_values_of_another_kind(field, data, problem):
    with pytest.raises(ModelFileError, match=problem):
        read(field, data)


@pytest.mark.parametrize("name", ["task_features", "universal_features"])
def test_features_of_tasks_rise(name):
    file = unpack((FILES / "format-2" / "bouts.jleaf").read_bytes())
    header, arrays = file.header, [*file.arrays, np.array([1, 0])]
    falling = {"array": len(arrays) - 1}
    tasks = header["model"]["task_features"]
    header["model"][name] = [falling] * len(tasks) if name == "task_features" else falling
    del header["arrays"]
    with pytest.raises(ModelFileError, match=f"{name}.* must rise"):
        files._from_bytes(pack(header, arrays))


def test_solves_that_did_not_end():
    """The objective of a solve that failed is infinite."""
    for name in ("objective", "optimality"):
        assert read(fits._SOLVE[name], "inf") == np.inf


def test_columns_of_results_have_one_length():
    assert fits._is_table({"a": [1, 2], "b": np.zeros(2)})
    assert not fits._is_table({"a": [1, 2], "b": np.zeros(3)})
    assert not fits._is_table({"a": np.zeros((2, 2))})
    assert not fits._is_table({1: [1]})


def test_lists_are_nested_160_times_at_most():
    deep = "x"
    for _ in range(160):
        deep = [deep]
    Plain().read(deep, place(), Scope())
    with pytest.raises(ModelFileError, match="nested too deeply"):
        Plain().read([[deep]], place(), Scope())


def test_arrays_are_converted():
    where = place()
    where.arrays.append(np.arange(3, dtype=np.int32))
    assert where.array(0, np.int64).dtype == np.int64
    assert where.array(0) is where.array(0, np.int32) is where.arrays[0]


def test_what_is_written_of_values_made_of_others():
    assert Made(Each(Integer()), tuple).write((1, 2), None) == [1, 2]
    assert Made(Each(Integer()), dict, dict.keys).write({1: 2}, None) == [1]
    with pytest.raises(AttributeError):
        Flag().get(SimpleNamespace(), "a")
    assert Flag().of("a", optional=True).get(SimpleNamespace(), "a") is None


# -- budgets ---------------------------------------------------------------------------------------


def test_budgets_grow_with_the_least_of_three_sizes():
    for sizes, more in [((1000, 10, 1e9), 160), ((10, 1000, 1e9), 2560), ((1e9, 1e9, 100), 400)]:
        budget = Budget(*sizes)
        budget.spend(MOST + more)
        with pytest.raises(ModelFileError, match="more memory"):
            budget.spend(1)


def test_header_file_and_arrays_are_paid_for():
    data = pack({"jointleaf": "1", "model": {}}, [np.arange(1000.0), np.ones(500)])
    whole = unpack(data)
    n_header, n_arrays = int.from_bytes(data[24:32], "little"), 12_000
    text = (container._uncompressed(data, 1e9))[:n_header].tobytes()
    n_body = len(container._uncompressed(data, 1e9))
    least = min(16 * (n_body + n_arrays), 256 * len(data))
    cost = container._json_cost(text) + n_body + n_arrays
    assert whole.budget._left == MOST + least - cost


def test_files_of_the_largest_size_are_read():
    files._check_size(5, 5)
    with pytest.raises(ModelFileError, match="more than max_bytes=5"):
        files._check_size(6, 5)


def test_centres_of_cells_are_paid_for():
    assert objects._fitted_bytes(Scope(d=1, centres=np.zeros((10, 2, 1)))) == 24 + 640
    members = [SimpleNamespace(n_cells_=np.ones(3))] * 2
    assert objects._fitted_bytes(Scope(d=2, members=members)) == 48 + 6 * 64


def test_losses_that_are_added_are_paid_for():
    budget = Budget(0, 0, 0)
    budget.spend(MOST - 2**20)
    model = {"class": "MultiTaskJOPLEnRegressor", "report": [None] * 10_000}
    with pytest.raises(ModelFileError, match="more memory"):
        upgrades.upgrade(model, place(budget), 2)


# -- upgrades --------------------------------------------------------------------------------------


def test_components_of_format_1():
    cells, shares = np.array([3, 2]), {"joint": 0.5, "linear": 0.25, "strength": 1.0}
    boosted = upgrades._components({**shares, "boosted": [0.25]}, None, cells, 7)
    assert {name: weight for name, (weight, _) in boosted.items()} == {
        "joint": 0.5, "linear": 0.25, "boosted": 0.25,
    }  # fmt: skip
    own = {**shares, "boosted": [], "own": 0.2, "levels": 0.05, "levels_strength": 2.0}
    assert list(upgrades._components(own, None, cells, 7)) == [
        "joint", "linear", "leaf_values", "categories",
    ]  # fmt: skip


def test_results_and_descriptions_of_format_1_are_kept():
    file = unpack((FILES / "format-1" / "tasks_alone.jl").read_bytes())
    header, arrays = file.header, list(file.arrays)
    first = header["model"]["models"][0]["theta"]
    arrays.append(arrays[first["array"]] / 2)  # as if it had been blended
    first["array"] = len(arrays) - 1
    del header["arrays"]
    data = pack(header, arrays)
    model = files._from_bytes(data[:8] + (1).to_bytes(4, "little") + data[12:])
    assert all("mean_test_score" in table for table in model.cv_results_)
    texts = [report.components[0].description for report in model.report_]
    assert ["blended" in text for text in texts] == [True, False]
