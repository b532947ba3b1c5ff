"""What cannot be fitted on a cluster is told in one sentence, before partitions are grown."""

import sys
from importlib import import_module

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("distributed", reason="the extra dask is not installed")
import dask.array as da
import dask.dataframe as dd

import jointleaf
from dask_rows import FEW, SMALL, chunked, make_rows
from jointleaf import JOPLEnClassifier, JOPLEnRegressor, Laplacian
from jointleaf.dask import DaskJOPLEnClassifier, DaskJOPLEnRegressor, dask_fit_cells
from jointleaf.partitions import LightGBMPartitioner


@pytest.fixture(autouse=True)
def growing(monkeypatch):
    """Fail if partitions are grown."""

    def fit(self, *args, **kwargs):
        raise AssertionError("trees must not be grown")

    monkeypatch.setattr(LightGBMPartitioner, "fit", fit)


@pytest.fixture(scope="module")
def rows():
    return make_rows()


def refused(kind, message, X, y, *args, model=DaskJOPLEnRegressor, **parameters):
    with pytest.raises(kind, match=message):
        model(**SMALL | FEW | parameters).fit(X, y, *args)


def test_without_a_client(rows, monkeypatch):
    X, y = rows

    def default_client():
        raise ValueError("No clients found")  # as Dask says it

    monkeypatch.setattr("distributed.default_client", default_client)
    message = r"client=None, and there is no default.*Client\(\)"
    refused(ValueError, message, chunked(X), chunked(y))
    refused(TypeError, r"client='tcp.*must be a dask", chunked(X), chunked(y), client="tcp://x")


def test_collections_of_the_wrong_kind(client, rows):
    X, y = rows
    refused(TypeError, r"X is a ndarray.*dask.array.from_array", X, y)
    refused(TypeError, r"y is a ndarray, not a Dask array or series", chunked(X), y)
    by_columns = da.from_array(X, chunks=(1000, 2))
    refused(ValueError, r"X has 2 chunks along its columns: use X.rech", by_columns, chunked(y))
    refused(ValueError, r"X has 1 dimensions", chunked(y), chunked(y))
    refused(ValueError, r"y has shape .*: give 1 dim", chunked(X), chunked(X))
    table = pd.DataFrame(X)
    refused(TypeError, r"X is a DataFrame.*dask.dataframe.from_pandas", table, table[0])
    frame = dd.from_pandas(table, npartitions=2)
    refused(TypeError, r"y is a Series.*use a column of the data frame", frame, table[0])
    refused(ValueError, "y is a data frame: give one of its columns", frame, frame)
    refused(ValueError, "X has 2 partitions and y has 6: make both", frame, chunked(y))


def test_partitions_that_cannot_be_fitted_together(client, rows):
    X, y = rows
    short = da.concatenate([chunked(y[:900], (900,)), chunked(y[901:], (1, 1100, 700, 799))])
    message = r"partition 4: X has 800 rows and y has 799"
    full = chunked(X, (900, 1, 1100, 700, 800))
    refused(ValueError, message, full, short.map_blocks(np.asarray, chunks=((np.nan,) * 5,)))
    mixed = full.map_blocks(_single_if_long, dtype=float, meta=np.empty((0, 4)))
    message = r"partition 2 has the columns 4 of float32 where partition 0 has 4 of float64"
    refused(ValueError, message, mixed, chunked(y, (900, 1, 1100, 700, 800)))
    missing = y.copy()
    missing[2500] = np.nan
    message = r"partition 3: the target is missing in row 499 of it: leave out"
    refused(ValueError, message, full, chunked(missing, (900, 1, 1100, 700, 800)))
    labels = pd.Series(np.where(y > 0, "a", "b")).where(np.arange(len(y)) != 5)
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=2)
    message = r"partition 0: the target is missing in row 5 of it"
    labels = dd.from_pandas(labels, npartitions=2)
    refused(ValueError, message, frame, labels, model=DaskJOPLEnClassifier)
    nothing = chunked(X[:0], (0, 0)), chunked(y[:0], (0, 0))
    refused(ValueError, "X has no rows: nothing to fit", *nothing)
    rare = chunked(np.where(np.arange(len(y)) == 17, 1, 0))
    message = "class 1 is not among the sample_rows=10"
    few = {"model": DaskJOPLEnClassifier, "sample_rows": 10}
    refused(ValueError, message, chunked(X), rare, **few)
    message = r"partition 0: the target is -?0\.\d+ in row 0 of it, which is no class: use DaskJOP"
    refused(ValueError, message, chunked(X), chunked(y), model=DaskJOPLEnClassifier)
    message = r"the target has \d+ different numbers in \d+ rows, which are no classes"
    counts = chunked((1e4 * y).round())
    refused(ValueError, message, chunked(X), counts, model=DaskJOPLEnClassifier)


def _single_if_long(X):
    return X.astype("float32") if len(X) == 1100 else X


def test_parameters(client, rows):
    X, y = map(chunked, rows)
    refused(ValueError, "sample_rows=0 must be a whole number", X, y, sample_rows=0)
    refused(ValueError, r"time_budget=9 is not possible.*: use max_passes", X, y, time_budget=9)
    codes = (X > 0).astype(int)
    with pytest.raises(ValueError, match=r"loss='absolute_error' needs all rows at once: use one"):
        dask_fit_cells(X, codes, y, loss="absolute_error")
    with pytest.raises(ValueError, match=r"Laplacian.*all rows at once.*use a penalty on weights"):
        dask_fit_cells(X, codes, y, penalty=Laplacian(0.1))
    with pytest.raises(ValueError, match=r"solver='dual'.*all rows at once"):
        dask_fit_cells(X, codes, y, solver="dual")
    with pytest.raises(ValueError, match="codes must be integers"):
        dask_fit_cells(X, codes.astype(float), y)


def test_local_estimators_do_not_load_collections(client, rows):
    X, y = rows
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=2)
    message = r"{} is a Dask .*, whose rows are on workers: use DaskJOPLEnRegressor"
    for table in (chunked(X), frame):
        with pytest.raises(TypeError, match=message.format("X")):
            JOPLEnRegressor(**SMALL).fit(table, y)
        with pytest.raises(TypeError, match=message.format("X")):
            JOPLEnClassifier(**SMALL).fit(table, y > 0)
    with pytest.raises(TypeError, match=message.format("y")):
        JOPLEnRegressor(**SMALL).fit(X, chunked(y))


def test_dask_is_asked_for(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("jointleaf.dask")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delattr("jointleaf.dask")
    with pytest.raises(ImportError, match=r"needs Dask: pip install 'jointleaf\[dask\]'"):
        import_module("jointleaf.dask")


def test_what_is_saved_is_the_local_model(tmp_path):
    with pytest.raises(jointleaf.ModelFileError, match=r"save\(model.to_local\(\), path\)"):
        jointleaf.save(DaskJOPLEnRegressor(), tmp_path / "model.jleaf")


@pytest.mark.parametrize("kind", [DaskJOPLEnRegressor, DaskJOPLEnClassifier])
def test_what_only_local_fits_take_is_refused_by_public_names(rows, kind):
    X, y = rows
    local = kind.__name__.removeprefix("Dask")
    for name in ("groups", "X_val"):
        message = f"^{name} is not possible with {kind.__name__}: fit {local} to rows in memory$"
        with pytest.raises(ValueError, match=message):
            kind().fit(X, y, **{name: y})
    with pytest.raises(TypeError, match=rf"^{kind.__name__}.fit\(\) has no argument 'weights'"):
        kind().fit(X, y, weights=y)


def test_exposure_is_refused_with_its_remedy(rows):
    X, y = rows
    message = "^exposure is not possible with DaskJOPLEnRegressor: .* sample_weight=exposure$"
    with pytest.raises(ValueError, match=message):
        DaskJOPLEnRegressor().fit(X, y, exposure=y)
