"""Raw tables in Python: the transformer, columns of times, and models that go to the shell."""

import io
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import jointleaf
from cli_data import HEADER, as_csv, make_rows, run
from jointleaf import (
    Frobenius,
    JOPLEnClassifier,
    JOPLEnRegressor,
    LinearForestRegressor,
    MultiTaskJOPLEnRegressor,
    TablePreprocessor,
)
from jointleaf._data.kinds import ColumnKind
from jointleaf._data.preparation import Preparation
from jointleaf.partitions import LightGBMPartitioner

SMALL = {"partitioner": LightGBMPartitioner(5), "penalty": Frobenius(0.1), "random_state": 0}
ROWS = make_rows(60)
#: As pandas reads the file, with everything that is not a plain number as text.
RAW = pd.read_csv(io.StringIO(as_csv(ROWS)))


def times(n=60, seed=0):
    """A frame with a column of times, and a target that follows month and trend."""
    rng = np.random.default_rng(seed)
    days = pd.to_datetime("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D")
    frame = pd.DataFrame({"a": rng.normal(size=n), "when": days, "b": rng.integers(0, 9, n)})
    month, year = days.month.to_numpy(), days.year.to_numpy()
    return frame, frame["a"].to_numpy() + 0.3 * month + 0.01 * (year - 2023)


@parametrize_with_checks([TablePreprocessor()])
def test_the_transformer_has_the_manners_of_scikit_learn(estimator, check):
    check(estimator)


def test_columns_are_read_as_in_the_shell():
    frame = pd.DataFrame(
        {
            "rownames": range(1, 31),
            "price": ["$1,234.50", "n/a", "-$5"] * 10,
            "sold": pd.date_range("2024-01-30", periods=30).astype(str),
            "garden": ["yes", "no", None] * 10,
            "zip": [1010, 2020, 3030] * 10,
            "city": pd.Categorical([7, 8, 7] * 10),
            "same": 4.0,
            "key": [f"k{j}" for j in range(30)],
        }
    )
    made = TablePreprocessor(categorical=["zip"]).fit(frame)
    assert {kind.name: kind.kind for kind in made.kinds_} == {
        "rownames": "identifier", "price": "number", "sold": "date", "garden": "boolean",
        "zip": "category", "city": "category", "same": "constant", "key": "identifier",
    }  # fmt: skip
    out = made.transform(frame)
    assert list(out.columns) == made.get_feature_names_out().tolist()
    np.testing.assert_array_equal(out["price"][:3], [1234.5, np.nan, -5])
    np.testing.assert_array_equal(out["garden"][:3], [1, 0, np.nan])
    assert out["sold: month"].tolist()[:3] == [1, 1, 2]
    assert out["zip"].dtype == "category"
    assert out["zip"].tolist()[:3] == ["1010", "2020", "3030"]
    assert out["city"].tolist()[:2] == ["7", "8"]
    kept = TablePreprocessor(keep=["rownames", "key"], drop=["city"]).fit(frame)
    assert {"rownames", "key"} <= set(kept.get_feature_names_out())
    assert "city" not in kept.get_feature_names_out()


def test_every_library_gives_the_same_table_and_keeps_its_type():
    pandas = TablePreprocessor().fit(RAW).transform(RAW)
    for convert in (pl.from_pandas, lambda f: pa.Table.from_pandas(f, preserve_index=False)):
        native = convert(RAW)
        made = TablePreprocessor().fit(native).transform(native)
        assert type(made) is type(native)
        # As lists: pyarrow 16 does not make categories of polars those of pandas.
        columns = made.to_dict(as_series=False) if convert is pl.from_pandas else made.to_pydict()
        assert list(columns) == list(pandas.columns)
        for name, values in columns.items():
            pd.testing.assert_series_equal(
                pd.Series(values, dtype=object).fillna(np.nan),
                pandas[name].astype(object).reset_index(drop=True).fillna(np.nan),
                check_names=False,
            )


def test_copies_of_the_target_are_left_out_and_named():
    X = np.random.default_rng(0).normal(size=(20, 3))
    made = TablePreprocessor().fit(X, X[:, 1])
    assert made.get_feature_names_out().tolist() == ["x0", "x2"]
    assert made.kinds_[1].note == "equal to the target in every row"
    np.testing.assert_array_equal(made.transform(X), X[:, [0, 2]])


def test_words_that_count_as_missing():
    frame = pd.DataFrame({"size": ["none", "small", "big", "-"] * 5})
    usual = TablePreprocessor().fit_transform(frame)
    chosen = TablePreprocessor(missing_values=["-"]).fit_transform(frame)
    assert usual["size"].tolist()[:4] == [np.nan, "small", "big", "-"] or usual["size"].isna()[0]
    assert chosen["size"].isna().tolist()[:4] == [False, False, False, True]


def test_what_cannot_be_prepared_is_named():
    with pytest.raises(TypeError, match="drop='city' must be a list of names"):
        TablePreprocessor(drop="city").fit(RAW)
    with pytest.raises(ValueError, match="the column 'town' is not there"):
        TablePreprocessor(drop=["town"]).fit(RAW)
    made = TablePreprocessor().fit(RAW)
    with pytest.raises(ValueError, match="needs column 'area', which the table does not have"):
        made.transform(RAW.drop(columns="area"))
    with pytest.raises(ValueError, match="column 'area' held numbers in training and holds 'x'"):
        made.transform(RAW.assign(area="x"))


def test_a_pipeline_clones_pickles_and_validates():
    X, y = RAW.drop(columns="price"), RAW["price"]
    pipeline = make_pipeline(TablePreprocessor(), JOPLEnRegressor(**SMALL))
    assert cross_val_score(clone(pipeline), X, y, cv=3).mean() > 0.5
    pipeline.fit(X, y)
    again = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(again.predict(X), pipeline.predict(X))
    new = X.assign(city="Lima", extra=1)[["extra", *reversed(X.columns)]]  # unseen, in any order
    assert np.isfinite(pipeline.predict(new)).all()


# -- models between Python and the shell ---------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables")
    (path / "flats.csv").write_text(as_csv(ROWS))
    new = make_rows(9, seed=1)
    (path / "new.csv").write_text(as_csv([row[:-1] for row in new], HEADER[:-1]))
    return path


def predictions_of_the_shell(capsys, model, data):
    code, out, err = run(capsys, "predict", model, data)
    assert code == 0, err
    return np.array([float(line) for line in out.split()[1:]])


def test_a_model_of_the_shell_predicts_a_raw_frame(folder, capsys, small_shell_fit):
    fit = ("fit", folder / "flats.csv", "-t", "price", "-o", folder / "a.jleaf", "--no-report")
    code, out, err = run(capsys, *fit)
    assert code == 0, err
    assert "Left out: 'id'. To use such a column anyway, add --keep NAME." in out
    shell = predictions_of_the_shell(capsys, folder / "a.jleaf", folder / "new.csv")
    model = jointleaf.load(folder / "a.jleaf")
    raw = pd.read_csv(folder / "new.csv")
    np.testing.assert_allclose(model.predict(raw), shell, rtol=1e-9)
    np.testing.assert_allclose(model.predict(pl.from_pandas(raw)), shell, rtol=1e-9)
    np.testing.assert_allclose(model.explain(raw).prediction, shell, rtol=1e-9)
    prepared = model.columns_.preparation.transform(raw)
    np.testing.assert_array_equal(model.predict(prepared), model.predict(raw))
    with pytest.raises(ValueError, match="needs column 'sold'"):
        model.predict(raw.drop(columns="sold"))


@pytest.mark.usefixtures("small_shell_fit")
def test_a_counter_is_found_before_rows_without_a_target_are_left_out(tmp_path, capsys):
    rows = [[k + 1, *row[:-1], "" if k % 20 == 9 else row[-1]] for k, row in enumerate(make_rows())]
    (tmp_path / "a.csv").write_text(as_csv(rows, ("flat number", *HEADER)))
    options = ("-t", "price", "-o", tmp_path / "a.jleaf", "--no-report")
    code, out, err = run(capsys, "fit", tmp_path / "a.csv", *options)
    assert code == 0, err
    line = next(line for line in out.splitlines() if line.startswith("  flat number"))
    assert "left out: identifier" in line
    assert "counts the rows" in line


@pytest.mark.usefixtures("small_shell_fit")
def test_columns_are_kept_and_words_are_missing_as_the_shell_is_told(folder, capsys):
    options = ("-o", folder / "k.jleaf", "--no-report", "--keep", "id", "--na", "gas")
    code, out, err = run(capsys, "fit", folder / "flats.csv", "-t", "price", *options)
    assert code == 0, err
    assert "Left out: 'id'" not in out
    model = jointleaf.load(folder / "k.jleaf")
    assert "id" in model.feature_names_in_
    heating = next(column for column in model.columns_ if column.label == "heating")
    assert heating.categories.tolist() == ["NA", "oil"]  # "gas" is missing, and "NA" is not
    raw = pd.read_csv(folder / "new.csv", keep_default_na=False)
    gas, missing = raw.assign(heating="gas"), raw.assign(heating=None)
    np.testing.assert_array_equal(model.predict(gas), model.predict(missing))


@pytest.fixture
def small_shell_fit(monkeypatch):
    """Let ``jointleaf fit`` fit a small model, and validate nothing."""
    from jointleaf.cli import _fitting

    table = {"table": [], "method": "", "measure": "", "intervals": None, "summary": {}}
    monkeypatch.setattr(
        _fitting, "jointleaf_estimator", lambda X, options: JOPLEnRegressor(**SMALL)
    )
    monkeypatch.setattr(_fitting, "validate", lambda *args, **options: table)
    monkeypatch.setattr(_fitting, "error_table", lambda validation: "")


def test_a_pipeline_of_python_predicts_a_file_in_the_shell(folder, capsys):
    X, y = RAW.drop(columns="price"), RAW["price"]
    pipeline = make_pipeline(TablePreprocessor(), JOPLEnRegressor(**SMALL)).fit(X, y)
    jointleaf.save(pipeline, folder / "b.jleaf")
    raw = pd.read_csv(folder / "new.csv")
    expected = pipeline.predict(raw)
    loaded = jointleaf.load(folder / "b.jleaf")
    np.testing.assert_array_equal(loaded.predict(raw), expected)
    with pytest.warns(UserWarning, match=r"fit takes X as it is: .* fit make_pipeline\(") as seen:
        loaded.set_params(penalty=Frobenius(0.1)).fit(raw, np.arange(len(raw)))
    assert seen[0].filename == __file__
    shell = predictions_of_the_shell(capsys, folder / "b.jleaf", folder / "new.csv")
    np.testing.assert_allclose(shell, expected, rtol=1e-9)
    other = make_pipeline(TablePreprocessor(), "passthrough", JOPLEnRegressor(**SMALL)).fit(X, y)
    jointleaf.save(other, folder / "c.jleaf")


def test_a_model_with_times_predicts_a_file_in_the_shell(folder, capsys):
    frame, y = times()
    frame["c"] = frame["a"] > 0  # truth values
    jointleaf.save(JOPLEnRegressor(**SMALL).fit(frame, y), folder / "times.jleaf")
    frame.to_csv(folder / "times.csv", index=False)
    shell = predictions_of_the_shell(capsys, folder / "times.jleaf", folder / "times.csv")
    model = jointleaf.load(folder / "times.jleaf")
    np.testing.assert_allclose(shell, model.predict(frame), rtol=1e-9)
    again = pd.read_csv(folder / "times.csv", float_precision="round_trip")  # pandas 2 rounds
    np.testing.assert_array_equal(model.predict(again), model.predict(frame))


# -- columns of times ----------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_columns_of_times_become_numbers(library):
    frame, y = times()
    convert = {"pandas": lambda f: f, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}
    model = JOPLEnRegressor(**SMALL).fit(convert[library](frame), y)
    parts = [f"when: {part}" for part in ("day number", "year", "month", "day", "weekday")]
    assert model.feature_names_in_.tolist() == ["a", *parts, "b"]
    by_hand = frame.drop(columns="when")
    when = frame["when"].dt
    numbers = {
        "day number": (frame["when"] - pd.Timestamp(0)).dt.days, "year": when.year,
        "month": when.month, "day": when.day, "weekday": when.day_of_week,
    }  # fmt: skip
    for k, (part, values) in enumerate(numbers.items()):
        by_hand.insert(1 + k, f"when: {part}", values.astype(float))
    expected = JOPLEnRegressor(**SMALL).fit(by_hand, y).predict(by_hand)
    np.testing.assert_array_equal(model.predict(convert[library](frame)), expected)
    shifted = frame.set_index(np.arange(100, 160))
    np.testing.assert_array_equal(model.predict(shifted), expected)


@pytest.mark.parametrize("convert", [lambda f: f, pl.from_pandas, pa.Table.from_pandas])
@pytest.mark.parametrize("columns", [["a", "when", "b"], ["a", "b"]], ids=["times", "numbers"])
def test_new_frames_have_the_columns_of_training_in_their_order(columns, convert):
    """One rule, that of scikit-learn, whether or not the frame has times."""
    frame, y = times()
    frame = frame[columns]
    model = JOPLEnRegressor(**SMALL).fit(convert(frame), y)
    scaler = StandardScaler().fit(frame.assign(when=0.0)[columns])  # the oracle
    for change, hint in (
        (lambda f: f[f.columns[::-1]], ""),
        (lambda f: f.assign(more=1.0), ""),
        (lambda f: f.drop(columns="b"), ""),
        (lambda f: f.rename(columns={"a": "A"}), "Did you mean 'a' by 'A'?"),
    ):
        with pytest.raises(ValueError, match="feature names should match") as expected:
            scaler.transform(change(frame.assign(when=0.0)[columns]))
        with pytest.raises(ValueError) as error:
            model.predict(convert(change(frame)))
        assert str(error.value) == str(expected.value) + hint


def test_what_is_no_frame_is_told_where_the_fit_had_times():
    frame, y = times()
    model = JOPLEnRegressor(**SMALL).fit(frame, y)
    text = JOPLEnRegressor(**SMALL).fit(frame.assign(when="x"), y)
    with pytest.raises(ValueError, match=r"a data frame with dates \('when'\): give a data frame"):
        model.predict(frame.to_numpy())
    for estimator, table in ((model, frame), (text, frame.assign(when="x"))):
        for method in (estimator.predict, estimator.explain):
            with pytest.raises(ValueError, match=r"2-dimensional container .*single row"):
                method(table.iloc[0])


def test_times_with_zones_missing_values_and_dates():
    frame, y = times()
    model = JOPLEnRegressor(**SMALL).fit(frame, y)
    zoned = frame.assign(when=frame["when"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
    np.testing.assert_array_equal(model.predict(zoned), model.predict(frame))
    dates = pl.from_pandas(frame).with_columns(pl.col("when").dt.date())
    np.testing.assert_array_equal(model.predict(dates), model.predict(frame))
    gaps = frame.assign(when=frame["when"].mask(frame.index < 3))
    assert np.isfinite(model.predict(gaps)).all()
    with pytest.raises(ValueError, match=r"categorical_features=\[2\] must name columns"):
        JOPLEnRegressor(**SMALL, categorical_features=[2]).fit(frame, y)
    with pytest.raises(ValueError, match="holds times"):
        JOPLEnRegressor(**SMALL).fit(frame.assign(when=frame["when"] - frame["when"][0]), y)


def test_objects_of_dates_are_times(recwarn):
    """What a column of `datetime.date` is in pandas; as a column of times."""
    frame, y = times()
    frame["when"] = frame["when"].dt.normalize()
    dates = frame.assign(when=frame["when"].dt.date)
    model = JOPLEnRegressor(**SMALL).fit(frame, y)
    expected = model.predict(frame)
    np.testing.assert_array_equal(model.predict(dates), expected)
    np.testing.assert_array_equal(model.fit(dates, y).predict(frame), expected)
    gaps = dates.assign(when=[None, *dates["when"][1:]])
    assert np.isfinite(model.fit(gaps, y).predict(gaps)).all()
    assert [str(w.message) for w in recwarn if w.category is UserWarning] == []


def test_texts_that_look_like_dates_are_told():
    frame, y = times()
    with pytest.warns(UserWarning, match=r"'when' looks like dates.*pandas.to_datetime, or Table"):
        JOPLEnRegressor(**SMALL).fit(frame.assign(when=frame["when"].dt.date.astype(str)), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        JOPLEnRegressor(**SMALL).fit(frame.assign(when=[f"A{k % 9}" for k in range(60)]), y)


@pytest.mark.parametrize(
    ("when", "remedy"),
    [
        (pd.period_range("2020", periods=60, freq="M"), r"dt\.to_timestamp\(\)"),
        (pd.to_timedelta(np.arange(60), unit="h"), r"dt\.total_seconds\(\)"),
    ],
)
def test_periods_and_durations_have_remedies_of_their_own(when, remedy):
    frame, y = times()
    with pytest.raises(ValueError, match=f"'when' holds times.*: convert it.*{remedy}"):
        JOPLEnRegressor(**SMALL).fit(frame.assign(when=when), y)


def test_dicts_are_no_tables():
    frame, y = times()
    model = JOPLEnRegressor(**SMALL).fit(frame[["a", "b"]], y)
    row = {"a": 1.0, "b": 2.0}
    for rows in (row, [row]):
        with pytest.raises(
            TypeError, match=r"X holds a dict.*pandas\.DataFrame\(\[X\]\) of one row$"
        ):
            model.predict(rows)


def test_other_estimators_take_times_too():
    frame, y = times()
    forest = LinearForestRegressor(n_estimators=3, random_state=0).fit(frame, y)
    assert np.isfinite(forest.predict(frame)).all()
    labels = JOPLEnClassifier(**SMALL).fit(frame, y > y.mean())
    assert labels.predict_proba(frame).shape == (60, 2)
    tasks = MultiTaskJOPLEnRegressor(**SMALL).fit(frame, np.stack([y, -y], axis=1))
    assert np.isfinite(tasks.predict(frame)).all()


# -- matrices ------------------------------------------------------------------------------------


def test_sparse_matrices_are_for_estimators():
    with pytest.raises(TypeError, match=r"Sparse data .* \(40, 3\), .*estimators take sparse"):
        TablePreprocessor().fit(csr_matrix((40, 3)), np.zeros(40))


# -- columns that should not be used -------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (np.arange(1, 61), "column 'x2' counts the rows, 1, 2, ...: leave it out"),
        (np.arange(60), "column 'x2' counts the rows, 0, 1, ...: leave it out"),
        ("y", "column 'x2' is equal to y in every row: leave it out"),
    ],
)
def test_row_counters_and_copies_of_the_target_are_named(column, message):
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = X[:, 0] + X[:, 1] ** 2
    more = np.c_[X, y if isinstance(column, str) else column]
    with pytest.warns(UserWarning, match=message):
        JOPLEnRegressor(**SMALL).fit(more, y)


def test_texts_that_hardly_come_again_are_named(recwarn):
    frame = pd.DataFrame({"a": np.arange(70.0) ** 2, "street": [f"{k} Elm St" for k in range(70)]})
    y = np.arange(70.0) % 7
    with pytest.warns(UserWarning, match="column 'street' has 70 categories in 70 rows, as a name"):
        JOPLEnRegressor(**SMALL).fit(frame, y)
    recwarn.clear()
    JOPLEnRegressor(**SMALL).fit(frame.assign(street=[f"{k // 2}" for k in range(70)]), y)
    assert not list(recwarn)


@pytest.mark.parametrize("column", [np.arange(60)[::-1], np.arange(1960, 2020), np.r_[0, 0:59]])
def test_other_columns_are_not(column, recwarn):
    X = np.random.default_rng(0).normal(size=(60, 2))
    JOPLEnRegressor(**SMALL).fit(np.c_[X, column], X[:, 0])
    assert [str(w.message)[:11] for w in recwarn] == ["column 'x0'"]  # the target itself


def test_values_that_cannot_be_read_are_told():
    fees = ["$1,200", "$950", "$1,010", "$800"] * 10
    raw = pd.DataFrame({"fee": fees, "balcony": ["yes", "no"] * 20})
    prepared = jointleaf.TablePreprocessor().fit(raw)
    raw.loc[:9, "balcony"] = "maybe"
    message = r"X: column 'balcony': 10 not true or false, 'maybe' in row 1"
    with pytest.warns(UserWarning, match=message):
        assert prepared.transform(raw)["balcony"].isna().sum() == 10


def test_times_in_the_place_of_whole_numbers_as_categories():
    kind = ColumnKind("a", "category", "plain")
    preparation = Preparation((kind,))
    with pytest.raises(ValueError, match=r"'a' held whole numbers .* holds times now"):
        preparation.transform(pd.DataFrame({"a": pd.to_datetime(["2020-01-01", "2020-01-02"])}))
