"""Columns: what a table holds, and the float matrix of numbers and codes that is made of it."""

import datetime
import decimal

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from jointleaf._data.columns import (
    Column,
    Columns,
    as_codes,
    column_names,
    column_numbers,
    is_table,
)

NAN = np.nan


def frame(values, **options):
    return pd.DataFrame({"a": pd.Series(values, **options)})


def read(X, *args, **options):
    """Categories of the first column, and its coding."""
    columns = Columns.read(X, *args, **options)
    categories = columns[0].categories
    return None if categories is None else categories.tolist(), columns.encode(X)[:, 0]


# -- what becomes categories -------------------------------------------------------------------

TEXT = ["b", "a", None, "b", "c"]
AS_TEXT = {
    "object": frame(TEXT, dtype=object),
    "object with NA": frame(["b", "a", pd.NA, "b", "c"], dtype=object),
    "object with NaN": frame(["b", "a", NAN, "b", "c"], dtype=object),
    "numpy text": frame([np.str_("b"), "a", None, "b", np.str_("c")], dtype=object),
    "str": frame(TEXT, dtype="str"),
    "string[python]": frame(TEXT, dtype="string[python]"),
    "string[pyarrow]": frame(TEXT, dtype="string[pyarrow]"),
    "arrow string": frame(TEXT, dtype=pd.ArrowDtype(pa.string())),
    "arrow dictionary": frame(TEXT, dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
    "category": frame(TEXT, dtype="category"),
    "other order": frame(pd.Categorical(TEXT, categories=["c", "b", "a"])),
    "unused category": frame(pd.Categorical(TEXT, categories=["zz", "b", "aa", "a", "c"])),
    "ordered": frame(pd.Categorical(TEXT, categories=["c", "a", "b"], ordered=True)),
    "polars String": pl.DataFrame({"a": TEXT}),
    "polars Categorical": pl.DataFrame({"a": TEXT}, schema={"a": pl.Categorical}),
    "polars Enum": pl.DataFrame({"a": TEXT}, schema={"a": pl.Enum(["z", "c", "b", "a"])}),
    "pyarrow string": pa.table({"a": TEXT}),
    "pyarrow large_string": pa.table({"a": pa.array(TEXT, pa.large_string())}),
    "pyarrow dictionary": pa.table({"a": pa.array(TEXT).dictionary_encode()}),
    "pyarrow chunks": pa.table({"a": pa.chunked_array([TEXT[:2], TEXT[2:]])}),
    "pyarrow batch": pa.record_batch({"a": TEXT}),
    "narwhals": nw.from_native(pl.DataFrame({"a": TEXT})),
    "array of objects": np.array(TEXT, dtype=object)[:, None],
}


@pytest.mark.parametrize("form", AS_TEXT)
def test_text_in_every_form_gives_the_same_codes(form):
    categories, codes = read(AS_TEXT[form])
    assert categories == ["a", "b", "c"]
    np.testing.assert_array_equal(codes, [1, 0, NAN, 1, 2])
    again = Columns.read(AS_TEXT["object"])
    np.testing.assert_array_equal(again.encode(AS_TEXT[form]), again.encode(AS_TEXT["category"]))


def test_an_array_of_text():
    columns = Columns.read(np.array([["b", "x"], ["a", "x"], ["c", "y"]]))
    assert [c.categories.tolist() for c in columns] == [["a", "b", "c"], ["x", "y"]]
    assert [c.label for c in columns] == ["x0", "x1"]
    np.testing.assert_array_equal(
        columns.encode(np.array([["c", "y"], ["d", "x"]])), [[2, 1], [3, 0]]
    )


@pytest.mark.parametrize(
    "values",
    [
        pd.Categorical([30, 2, None, 30]),
        pd.Categorical([30.0, 2.0, None, 30.0]),
        pd.Categorical([30, 2, None, 30], categories=[30, 5, 2]),
        pd.array([30, 2, None, 30], dtype="Int64").astype("category"),
    ],
)
def test_categories_of_whole_numbers(values):
    categories, codes = read(frame(values))
    assert categories == [2, 30], "sorted as numbers, not as text"
    np.testing.assert_array_equal(codes, [1, 0, NAN, 1])


def test_categories_of_truth_values():
    assert read(frame(pd.Categorical([True, False, None])))[0] == [0, 1]


def test_categories_do_not_depend_on_the_order_of_rows():
    values = np.array(list("dcbadbca"), dtype=object)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(8)
        for dtype in (object, "category"):
            categories, codes = read(frame(values[order], dtype=dtype))
            assert categories == list("abcd")
            np.testing.assert_array_equal(codes, [ord(v) - ord("a") for v in values[order]])


def test_only_rows_that_count_are_learned_from():
    X = pd.DataFrame({"a": ["z", "b", "c"], "n": [5, 7, 7]})
    counts = np.array([False, True, True])
    columns = Columns.read(X, ["n"], counts=counts)
    assert [c.categories.tolist() for c in columns] == [["b", "c"], [7]]
    np.testing.assert_array_equal(columns.encode(X), [[2, 1], [0, 0], [1, 0]])
    (none,) = Columns.read(frame(["z", None]), counts=np.array([False, True]))
    assert none.categories.tolist() == []


def test_categories_that_a_model_knows_besides():
    X = pd.DataFrame({"a": ["b", "c"], "n": [5.0, 7.0]})
    columns = Columns.read(X, known={0: np.array(["a", "c"]), 1: None})
    assert [c.categories.tolist() for c in columns] == [["a", "b", "c"], [5, 7]]
    np.testing.assert_array_equal(columns.encode(X), [[1, 0], [2, 1]])
    with pytest.raises(ValueError, match=r"column 'a' mixes text and numbers as categories"):
        Columns.read(X, known={0: np.array([1, 2])})


def test_different_kinds_side_by_side():
    X = pd.DataFrame({"x": [0.5, NAN], "c": ["v", "u"], "b": [True, False], "k": [9, 4]})
    columns = Columns.read(X, ["k"])
    assert len(columns) == 4
    np.testing.assert_array_equal(columns.n_categories, [0, 2, 0, 2])
    np.testing.assert_array_equal(columns.categorical, [1, 3])
    np.testing.assert_array_equal(columns.encode(X), [[0.5, 1, 1, 1], [NAN, 0, 0, 0]])
    assert [c.label for c in columns] == list("xcbk")
    assert [c.categories is None for c in columns.coded()] == [True, False, True, False]
    np.testing.assert_array_equal(columns.coded()[3].categories, [0, 1])
    assert columns.coded()[3].label == "k"


# -- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (frame([1, None, 3], dtype="Int64"), [1, NAN, 3]),
        (frame([1, None, 3], dtype="UInt8"), [1, NAN, 3]),
        (frame([1.5, None, 3], dtype="Float64"), [1.5, NAN, 3]),
        (frame([1.5, None, 3], dtype="Float32"), [1.5, NAN, 3]),
        (frame([True, None, False], dtype="boolean"), [1, NAN, 0]),
        (frame([True, False], dtype="boolean"), [1, 0]),
        (frame([True, False]), [1, 0]),
        (frame([1.5, NAN], dtype=np.float32), [1.5, NAN]),
        (frame([-3, 7], dtype=np.int8), [-3, 7]),
        (frame([1, 2.5, None, NAN, pd.NA], dtype=object), [1, 2.5, NAN, NAN, NAN]),
        (frame([True, None], dtype=object), [1, NAN]),
        (frame([decimal.Decimal("1.5"), None], dtype=object), [1.5, NAN]),
        (frame([1, None], dtype=pd.ArrowDtype(pa.int64())), [1, NAN]),
        (frame([True, None], dtype=pd.ArrowDtype(pa.bool_())), [1, NAN]),
        (frame(pd.arrays.SparseArray([0.0, 2.0, NAN])), [0, 2, NAN]),
        (pl.DataFrame({"a": [True, None, False]}), [1, NAN, 0]),
        (pl.DataFrame({"a": [True, False]}), [1, 0]),
        (pl.DataFrame({"a": [1, None, 3]}), [1, NAN, 3]),
        (pl.DataFrame({"a": [1, None, 3]}, schema={"a": pl.Int8}), [1, NAN, 3]),
        (pl.DataFrame({"a": [1.5, None, NAN]}), [1.5, NAN, NAN]),
        (pl.DataFrame({"a": [1.5, None]}, schema={"a": pl.Float32}), [1.5, NAN]),
        (pl.DataFrame({"a": [decimal.Decimal("1.5"), None]}), [1.5, NAN]),
        (pa.table({"a": [1, None, 3]}), [1, NAN, 3]),
        (pa.table({"a": pa.array([1, None], pa.uint8())}), [1, NAN]),
        (pa.table({"a": [1.5, None, NAN]}), [1.5, NAN, NAN]),
        (pa.table({"a": pa.array([1.5, None], pa.float32())}), [1.5, NAN]),
        (pa.table({"a": [True, None, False]}), [1, NAN, 0]),
        (pa.table({"a": [decimal.Decimal("1.5"), None]}), [1.5, NAN]),
        (pa.record_batch({"a": [1, None, 3]}), [1, NAN, 3]),
        (np.array([[1, 2.5], [None, 3]], dtype=object), [1, NAN]),
        (np.array([[1.5], [NAN]]), [1.5, NAN]),
    ],
)
def test_numbers_stay_numbers(X, expected):
    categories, numbers = read(X)
    assert categories is None
    np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize("form", [pd.DataFrame, pl.DataFrame, pa.table])
def test_the_matrix_is_as_precise_as_the_table(form):
    single = np.array([1.1, NAN], dtype=np.float32)
    for columns, dtype in (({"a": single}, np.float32), ({"a": single, "b": [1, 2]}, np.float64)):
        X = form(columns)
        matrix = Columns.read(X).encode(X)
        assert matrix.dtype == dtype
        assert matrix[0, 0] == np.float32(1.1)


def test_encoding_does_not_change_the_table():
    X = pd.DataFrame({"a": ["v", None], "o": pd.Series([1, None], dtype=object)})
    kept = X.copy(deep=True)
    Columns.read(X).encode(X)
    pd.testing.assert_frame_equal(X, kept)


# -- declared categories -----------------------------------------------------------------------

NUMBERS = pd.DataFrame({"a": [1.0, 3.0, NAN], "b": [5, 4, 5]})


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("from_dtype", []),
        ([], []),
        (["b"], [1]),
        (("b", "a"), [0, 1]),
        ([1], [1]),
        ([-1], [1]),
        ([-2, "b"], [0, 1]),
        (np.array([0]), [0]),
        (np.array([True, False]), [0]),
        ([False, True], [1]),
        (pd.Series([True, True]), [0, 1]),
        (pd.Index(["b"]), [1]),
        ({"a"}, [0]),
    ],
)
def test_columns_are_declared_by_name_number_or_mask(declared, expected):
    columns = Columns.read(NUMBERS, declared)
    np.testing.assert_array_equal(columns.categorical, expected)
    if 0 in expected:
        assert columns[0].categories.tolist() == [1, 3]
        np.testing.assert_array_equal(columns.encode(NUMBERS)[:, 0], [0, 1, NAN])
    if 1 in expected:
        assert columns[1].categories.tolist() == [4, 5]
        np.testing.assert_array_equal(columns.encode(NUMBERS)[:, 1], [1, 0, 1])


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("a", r"categorical_features='a' must be a list"),
        (1, r"categorical_features=1 must be a list"),
        (None, r"categorical_features=None must be .*, or 'from_dtype'"),
        (["z"], r"names 'z', but the columns are \['a', 'b'\]"),
        ([2], "holds 2: use column names or numbers below 2"),
        ([-3], "holds -3"),
        ([1.0], "holds 1.0"),
        ([None], "holds None"),
        ([[0]], r"holds \[0\]"),
        ([0, True], "holds True"),
        ([True], r"mask of shape \(1,\), but X has 2 columns"),
        (np.ones(3, bool), r"mask of shape \(3,\)"),
    ],
)
def test_columns_that_cannot_be_declared(declared, message):
    with pytest.raises(ValueError, match=message):
        Columns.read(NUMBERS, declared)


def test_arrays_have_no_names():
    with pytest.raises(ValueError, match="names 'a', but X has no column names"):
        Columns.read(NUMBERS.to_numpy(), ["a"])
    assert column_numbers([np.int64(-1)], None, 3, "linear_features") == {2}
    assert column_names(NUMBERS.to_numpy()) is None
    assert column_names(NUMBERS) == column_names(pl.DataFrame(NUMBERS)) == ["a", "b"]
    arrow = pa.Table.from_pandas(NUMBERS)
    assert column_names(arrow) == column_names(arrow.to_batches()[0]) == ["a", "b"]
    assert column_names(arrow["a"]) is None


@pytest.mark.parametrize(
    "values",
    [
        [2.0, NAN, 10.0, 2.0],
        pd.array([2, None, 10, 2], dtype="Int64"),
        pd.array([2, None, 10, 2], dtype="Float64"),
        pd.Series([2, None, 10.0, 2], dtype=object),
        pd.Series([2, None, 10, 2], dtype=pd.ArrowDtype(pa.int32())),
    ],
)
def test_whole_numbers_with_missing_values_as_categories(values):
    categories, codes = read(frame(values), ["a"])
    assert categories == [2, 10]
    assert all(type(category) is int for category in categories)
    np.testing.assert_array_equal(codes, [0, NAN, 1, 0])


@pytest.mark.parametrize(
    "X",
    [
        frame([True, None, False], dtype="boolean"),
        frame([True, None, False], dtype=object),
        pl.DataFrame({"a": [True, None, False]}),
        pa.table({"a": [True, None, False]}),
    ],
)
def test_truth_values_as_categories(X):
    categories, codes = read(X, ["a"])
    assert categories == [0, 1]
    np.testing.assert_array_equal(codes, [1, NAN, 0])


@pytest.mark.parametrize("dtype", [np.int64, object, "Int64"])
def test_large_whole_numbers_are_told_apart(dtype):
    numbers = [2**53 + 1, 2**53, 5, 2**63 - 1]
    categories, codes = read(frame(numbers, dtype=dtype), ["a"])
    assert categories == sorted(numbers)
    np.testing.assert_array_equal(codes, [2, 1, 0, 3])


@pytest.mark.parametrize("form", [pa.table, pl.DataFrame, lambda x: pd.DataFrame(x, dtype="Int64")])
def test_large_whole_numbers_beside_missing_ones_are_told_apart(form):
    categories, codes = read(form({"a": [2**53 + 1, None, 2**53]}), ["a"])
    assert categories == [2**53, 2**53 + 1]
    np.testing.assert_array_equal(codes, [1, NAN, 0])


@pytest.mark.parametrize(
    ("X", "shown"),
    [
        (frame([1.0, 2.5, NAN]), "2.5"),
        (frame([1.0, np.inf]), "inf"),
        (frame([1.0, 1e300]), r"1e\+300"),
        (frame([1.0, 2.0**60]), "1.15.*e"),
        (frame(np.array([1, 2**63 + 1], dtype=np.uint64)), "9.22.*e"),
        (frame([1, 2**70], dtype=object), "1.18.*e"),
        (frame(pd.Categorical([1.5, 2.5])), "1.5"),
        (pl.DataFrame({"a": [0.25, None]}), "0.25"),
    ],
)
def test_numbers_that_cannot_be_categories(X, shown):
    with pytest.raises(ValueError, match=rf"column 'a' is declared .* holds {shown}.*astype\(str"):
        Columns.read(X, ["a"])


# -- rejected -----------------------------------------------------------------------------------

DAY = datetime.date(2020, 1, 31)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (frame(["u", 1.0], dtype=object), ValueError, "mixes text and other.*'u' and 1.0"),
        (frame([1, "u"], dtype="category"), ValueError, "mixes text and other.*'u' and 1"),
        (frame(["u", {}], dtype=object), ValueError, "mixes text and other"),
        (frame([{}, None], dtype=object), TypeError, "holds {}: float"),
        (frame([(1, 2), None], dtype=object), TypeError, r"holds \(1, 2\)"),
        (frame([b"u", None], dtype=object), TypeError, "holds b'u'"),
        (frame([1j, None], dtype=object), ValueError, "Complex data not supported"),
        (frame([1j, 2.0]), ValueError, "Complex data not supported"),
        (frame([np.zeros(2), None], dtype=object), TypeError, "holds array"),
        (frame(pd.interval_range(0, 2)), TypeError, "holds Interval"),
        (frame([DAY, None], dtype=object), ValueError, "holds times"),
        (frame(pd.to_datetime([DAY, None])), ValueError, "holds times.*year, month"),
        (frame(pd.to_datetime([DAY]).tz_localize("UTC")), ValueError, "holds times"),
        (frame(pd.to_timedelta([1])), ValueError, "holds times"),
        (frame(pd.period_range("2020", periods=2, freq="M")), ValueError, "holds times"),
        (frame(pd.Categorical(pd.to_datetime([DAY]))), ValueError, "holds times"),
        (frame([DAY], dtype=pd.ArrowDtype(pa.date32())), ValueError, "holds times"),
        (pl.DataFrame({"a": [DAY]}), ValueError, "holds times"),
        (pl.DataFrame({"a": [datetime.datetime(2020, 1, 1)]}), ValueError, "holds times"),
        (pl.DataFrame({"a": [datetime.timedelta(1)]}), ValueError, "holds times"),
        (pl.DataFrame({"a": [datetime.time(1)]}), ValueError, "holds times"),
        (pl.DataFrame({"a": [[1], [2]]}), TypeError, "holds array"),
        (pa.table({"a": [DAY]}), ValueError, "holds times"),
        (pa.table({"a": [[1], [2]]}), TypeError, "holds array"),
        (pa.table({"a": ["1.5", None]}), ValueError, "numbers as text"),
        (pl.DataFrame({"a": [{"u": 1}, {"u": 2}]}), TypeError, "holds Struct"),
        (frame(["1.5", "2"]), ValueError, r"numbers as text, for example '1.5'.*astype\(float\)"),
        (frame(["1", "nan"]), ValueError, "numbers as text, for example 'nan'"),
        (pl.DataFrame({"a": ["-1e-3", None]}), ValueError, "numbers as text.*'-1e-3'"),
    ],
)
def test_what_is_neither_number_nor_category(X, error, message):
    with pytest.raises(error, match=message) as caught:
        Columns.read(X)
    assert "column 'a'" in str(caught.value)


@pytest.mark.parametrize(
    ("X", "declared"),
    [
        (frame([NAN, NAN]), ["a"]),
        (frame([None, None], dtype="category"), "from_dtype"),
        (pl.DataFrame({"a": [None]}, schema={"a": pl.Categorical}), "from_dtype"),
    ],
)
def test_a_column_without_values_takes_whatever_comes_later(X, declared):
    columns = Columns.read(X, declared)
    assert np.isnan(columns.encode(X)).all()
    np.testing.assert_array_equal(columns.encode(frame(["u", None])), [[0.0], [NAN]])


def test_missing_values_alone_do_not_tell_text_from_numbers():
    columns = Columns.read(frame([None, None], dtype="str"))
    for later in (["u", None], [3.0, None]):
        np.testing.assert_array_equal(columns.encode(frame(later)), [[0.0], [NAN]])


def test_whole_numbers_as_text_are_categories():
    assert read(frame(["10", "9", None]))[0] == ["10", "9"]


def test_text_with_fractions_is_taken_where_it_is_declared():
    assert read(frame(["1.5", "2"]), ["a"])[0] == ["1.5", "2"]
    assert read(frame(["1.5", "2"], dtype="category"))[0] == ["1.5", "2"]
    enum = pl.DataFrame({"a": ["1.5", "2"]}, schema={"a": pl.Enum(["2", "1.5"])})
    assert read(enum)[0] == ["1.5", "2"]


def test_columns_of_an_array_are_named_by_number():
    with pytest.raises(ValueError, match="column 1 mixes text"):
        Columns.read(np.array([[1.0, "u"], [2.0, 3.0]], dtype=object))


def test_the_same_name_twice():
    X = pd.DataFrame([["u", 1.0], ["v", 2.5]], columns=["a", "a"])
    for table in (X, pa.Table.from_arrays([[1], [2]], names=["a", "a"])):
        with pytest.raises(ValueError, match="several columns with the name 'a': rename them"):
            Columns.read(table)


# -- other rows --------------------------------------------------------------------------------


def test_unseen_categories_have_one_code_of_their_own():
    columns = Columns.read(frame(["b", "d"]))
    codes = columns.encode(frame(["d", "a", "c", "zzz", None, ""]))[:, 0]
    np.testing.assert_array_equal(codes, [1, 2, 2, 2, NAN, 2])
    numbers = Columns.read(frame([4, 2]), ["a"])
    np.testing.assert_array_equal(
        numbers.encode(frame([2.0, 3.0, NAN, -7.0]))[:, 0], [0, 2, NAN, 2]
    )


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (frame(["b", "a"]), frame([1.0, 2.0]), "held text as categories .* holds numbers now"),
        (frame(["1", "2"]), frame([1, 2]), "held text as categories .* holds numbers now"),
        (frame([1.0, 2.0]), frame(["b", "a"]), "held numbers in training and holds 'b' now"),
        (frame([1.0, 2.0]), frame(pd.Categorical(["b"])), "held numbers in training .* 'b' now"),
        (frame([True, False]), frame(["True"]), "held numbers in training and holds 'True'"),
        (frame(pd.Categorical([1, 2])), frame(["1"]), "held numbers as categories .* text now"),
        (frame(pd.Categorical([1, 2])), frame([1.5]), "holds 1.5"),
    ],
)
def test_another_kind_of_value_than_in_training(before, now, message):
    with pytest.raises(ValueError, match=rf"column 'a' .*{message}"):
        Columns.read(before).encode(now)


@pytest.mark.parametrize("before", [frame(["b", "a"]), frame([1.0, 2.0])])
@pytest.mark.parametrize(
    "now",
    [
        frame([NAN, NAN]),
        frame([None, None], dtype=object),
        frame([None, None], dtype="str"),
        frame([None, None], dtype="category"),
        frame([None, None], dtype="Int64"),
        pl.DataFrame({"a": [None, None]}),
        pa.table({"a": [None, None]}),
    ],
)
def test_rows_with_nothing_but_missing_values(before, now):
    np.testing.assert_array_equal(Columns.read(before).encode(now), [[NAN], [NAN]])


def test_numbers_may_come_as_categories():
    columns = Columns.read(frame([1.0, 2.5]))
    np.testing.assert_array_equal(columns.encode(frame(pd.Categorical([2.5, 7])))[:, 0], [2.5, 7])


def test_as_codes_numbers_everything():
    found = as_codes(np.array([0, 2, 3, NAN, -1, 9, 1], dtype=np.float32), 3)
    np.testing.assert_array_equal(found, [0, 2, 3, 4, 3, 3, 1])


def test_tables_and_matrices():
    assert is_table(NUMBERS)
    assert is_table(pl.DataFrame({"a": [1]}))
    assert is_table(pa.table({"a": [1]}))
    assert is_table(np.array([["a"]]))
    assert is_table(np.array([[1]], dtype=object))
    assert not is_table(np.zeros((2, 2)))
    assert not is_table([["a"]])
    assert not is_table(np.array(["a"], dtype=object))


def test_columns_of_numbers():
    assert list(Columns.numbers(2)) == [Column("x0"), Column("x1")]
    assert [c.label for c in Columns.numbers(2, ["u", 7])] == ["u", "7"]
    assert not Columns.numbers(2).categorical.size
