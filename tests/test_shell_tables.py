"""Tables in files: reading, what columns hold, and the same preparation again."""

import gzip
import json
from datetime import datetime, timezone

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jointleaf.shell.errors import ShellError
from jointleaf.shell.tables.dates import date_parts, find_format, parse_dates
from jointleaf.shell.tables.kinds import detect_kind
from jointleaf.shell.tables.numbers import find_notation, parse_booleans, parse_numbers
from jointleaf.shell.tables.preparing import Preparation
from jointleaf.shell.tables.raw import RawColumn, RawTable
from jointleaf.shell.tables.reading import read_table
from jointleaf.shell.tables.targets import detect_target
from shell_data import as_csv, make_rows


def texts(*values):
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def column(*values, name="x"):
    return RawColumn(name, texts(*values))


def values(table, name):
    return table.column(name).values.tolist()


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_delimiter_is_found_also_in_gzip(tmp_path, delimiter, packed):
    rows = [["a, b; c", "1"], ['say "no"', "2"], ["two\nlines", "3"]]
    data = as_csv(rows, ("text", "number"), delimiter).encode()
    path = tmp_path / "data"
    path.write_bytes(gzip.compress(data) if packed else data)
    table = read_table(str(path))
    assert table.names == ["text", "number"]
    assert values(table, "text") == [row[0] for row in rows]
    assert values(table, "number") == ["1", "2", "3"]


def test_a_comma_in_numbers_is_not_the_delimiter(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a;b\n1,5;2,5\n3,25;4,5\n")
    table = read_table(str(path))
    assert values(table, "a") == ["1,5", "3,25"]
    assert table.notes == ("the delimiter is semicolon",)


def test_marks_blank_lines_spaces_and_gaps(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes("\ufeffa, b\r\n x ,NA\r\n\r\n?,  null\r\nNaN,é\r\n".encode())
    table = read_table(str(path))
    assert values(table, "a") == ["x", None, None]
    assert values(table, "b") == [None, None, "é"]


def test_a_named_encoding(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes("a,b\né,1\n".encode("latin-1"))
    assert values(read_table(str(path), encoding="latin-1"), "a") == ["é"]


def test_parquet_gives_what_csv_gives(tmp_path):
    frame = pd.DataFrame(
        {
            "number": [1.5, None, 3.0],
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "text": ["a", None, "c"],
            "flag": [True, False, True],
            "day": pd.to_datetime(["2024-01-31 00:00", None, "2024-03-01 06:00"]),
        }
    )
    frame.to_parquet(tmp_path / "data.parquet")
    frame.to_csv(tmp_path / "data.csv", index=False)
    made = []
    for name in ("data.parquet", "data.csv"):
        table = read_table(str(tmp_path / name))
        kinds = {c.name: detect_kind(c, is_category=c.name == "text") for c in table.columns}
        assert [kinds[n].kind for n in table.names] == [
            "number", "number", "category", "boolean", "date",
        ]  # fmt: skip
        made.append(Preparation(tuple(kinds.values())).apply(table)[0])
    pd.testing.assert_frame_equal(*made)


# -- numbers and dates ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "notation", "numbers"),
    [
        (["1", "-2.5", "1e3"], "plain", [1, -2.5, 1000]),
        (["1,5", "2", "-0,25"], "comma", [1.5, 2, -0.25]),
        (["1,234.5", "12", "1,000,000"], "thousands", [1234.5, 12, 1e6]),
        (["1,234", "2,345,678"], "thousands", [1234, 2345678]),
    ],
)
def test_notations_of_numbers(given, notation, numbers):
    found = texts(*given, None)
    assert find_notation(found) == notation
    np.testing.assert_array_equal(parse_numbers(found, notation), [*numbers, np.nan])


@pytest.mark.parametrize("given", [["a", "b"], ["1", "b"], ["1.2.3", "4.5.6"], ["1-2", "3"]])
def test_other_texts_are_no_numbers(given):
    assert find_notation(texts(*given)) is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_numbers_come_back_exactly(numbers):
    found = texts(*map(repr, numbers))
    assert find_notation(found) == "plain"
    np.testing.assert_array_equal(parse_numbers(found, "plain"), numbers)


def test_infinity_counts_as_missing():
    np.testing.assert_array_equal(
        parse_numbers(texts("1", "inf", "-Infinity"), "plain"), [1, np.nan, np.nan]
    )


def test_booleans():
    np.testing.assert_array_equal(
        parse_booleans(texts("yes", "No", "TRUE", "f", None)), [1, 0, 1, 0, np.nan]
    )
    assert parse_booleans(texts("yes", "maybe")) is None


moments = st.datetimes(datetime(1950, 1, 1), datetime(2090, 12, 31))


@given(st.lists(moments, min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_parts_of_dates_are_those_of_the_standard_library(times):
    times = [time.replace(microsecond=0) for time in times]
    written = texts(*(time.isoformat(" ") for time in times))
    assert find_format(written.tolist()) == "iso"
    parts = date_parts(parse_dates(written, "iso"))
    for k, time in enumerate(times):
        seconds = time.replace(tzinfo=timezone.utc).timestamp()
        assert parts["day number"][k] == pytest.approx(seconds / 86400, abs=1e-9)
        expected = (time.year, time.month, time.day, time.weekday(), time.hour)
        found = [parts[name][k] for name in ("year", "month", "day", "weekday", "hour")]
        assert tuple(found) == expected


@pytest.mark.parametrize(
    "form", ["%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y %H:%M", "%b %d, %Y", "%d %B %Y", "%Y/%m/%d"]
)
def test_formats_of_dates_are_found(form):
    times = [datetime(2023, 1, 31, 5, 10), datetime(2024, 2, 29, 23, 59), datetime(2021, 12, 5)]
    written = [time.strftime(form) for time in times]
    assert find_format(written) == form
    found = parse_dates(texts(*written), form)
    expected = [
        datetime.strptime(w, form).replace(tzinfo=timezone.utc).timestamp() for w in written
    ]
    np.testing.assert_array_equal(found, expected)


def test_zones_are_brought_to_utc():
    found = parse_dates(texts("2024-01-01T00:30:00+02:00", "2023-12-31T22:30:00Z"), "iso")
    assert found[0] == found[1]


@pytest.mark.parametrize("given", [["2024-13-01"], ["2024-02-30"], ["soon"], ["20240101"], ["1-2"]])
def test_other_texts_are_no_dates(given):
    assert find_format(given) is None


# -- kinds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (["1", "2", None], "number"),
        (["7", "7", "7"], "constant"),
        (["7", "7", None], "number"),  # where it is missing may tell something
        (["a", "b", "a"], "category"),
        (["a", "b", "c"], "identifier"),
        (["a", "a", "a"], "constant"),
        ([None, None, None], "empty"),
        (["yes", "no", "yes"], "boolean"),
        (["2024-01-01", "2024-01-02", None], "date"),
        (["2024-01-01", "2024-01-01", "2024-01-01"], "constant"),
    ],
)
def test_kinds_of_columns(given, kind):
    assert detect_kind(column(*given)).kind == kind


def test_row_numbers_are_identifiers_by_their_name_only():
    counted = [str(k) for k in range(30)]
    assert detect_kind(column(*counted, name="id")).kind == "identifier"
    assert detect_kind(column(*counted, name="week")).kind == "number"
    assert detect_kind(column(*counted[::-1], name="id")).kind == "number"


def test_a_few_strange_values_in_numbers_are_gaps_and_told():
    kind = detect_kind(column(*map(str, range(40)), "oops", name="x"))
    assert kind.kind == "number"
    assert kind.note == "1 not a number, such as 'oops' in row 41: taken as missing"
    assert detect_kind(column(*map(str, range(10)), "oops", "x", "y")).kind != "number"


def test_categories_may_be_asked_for():
    assert detect_kind(column("1", "2", "3"), is_category=True).kind == "category"


@pytest.mark.parametrize(
    ("given", "task", "classes"),
    [
        (["a", "b"] * 9, "classification", str),
        (["yes", "no"] * 9, "classification", str),
        (["0", "1", "2"] * 6, "classification", int),
        (["0.5", "1", "2"] * 6, "regression", float),
        ([str(k) for k in range(11)] * 6, "regression", float),
        (["0", "1", "2"], "regression", float),  # too few rows to be classes
    ],
)
def test_tasks(given, task, classes):
    target = detect_target(column(*given), "data")
    assert target.task == task
    y, has = target.read(column(*given), "data")
    assert has.all()
    assert isinstance(y.tolist()[0], classes)


def test_tasks_can_be_forced():
    whole = column(*["0", "1", "2"] * 6)
    assert detect_target(whole, "data", "regression").task == "regression"
    text = column(*["a", "b"] * 6)
    with pytest.raises(ShellError, match=r"--task regression needs numbers, .* holds 'a'"):
        detect_target(text, "data", "regression")


# -- preparation ---------------------------------------------------------------------------------


def training_table(tmp_path):
    path = tmp_path / "flats.csv"
    path.write_text(as_csv(make_rows()))
    return read_table(str(path))


def test_preparation_survives_a_file_and_gives_the_same_frame(tmp_path):
    table = training_table(tmp_path)
    made = Preparation.learn(table, target="price")
    again = Preparation.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again == made
    first, notes = made.apply(table)
    second, _ = again.apply(table)
    assert notes == []
    pd.testing.assert_frame_equal(first, second)
    assert made.names == ["sold", "city", "area", "balcony", "heating"]
    assert list(first.columns[:2]) == ["sold: day number", "sold: year"]
    assert first["area"].isna().sum() == sum(row[3] == "" for row in make_rows())
    # A single row means the same as within the table.
    alone, _ = made.apply(table.take(np.array([7])))
    assert alone["sold: day number"][0] == first["sold: day number"][7]


def test_new_texts_in_numbers_are_told_and_a_column_of_them_is_refused(tmp_path):
    table = training_table(tmp_path)
    made = Preparation.learn(table, target="price")
    area = table.column("area").values.copy()
    area[4] = "large"

    def replaced(new):
        columns = [RawColumn(c.name, new) if c.name == "area" else c for c in table.columns]
        return RawTable("new.csv", tuple(columns))

    frame, notes = made.apply(replaced(area))
    assert notes == ["column 'area': 1 not a number, 'large' in row 5: taken as missing"]
    assert np.isnan(frame["area"][4])
    with pytest.raises(ShellError, match=r"'area' held numbers in training and holds 'x' in row 1"):
        made.apply(replaced(texts(*["x"] * len(table))))
