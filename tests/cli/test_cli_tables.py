"""Tables in files: reading, what columns hold, and the same preparation again."""

import gzip
import json
import math
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli_data import as_csv, make_rows
from jointleaf._data.kinds import detect_kind
from jointleaf._data.preparation import Preparation
from jointleaf._data.raw_table import RawColumn, RawTable
from jointleaf._data.texts import (
    detect_notation,
    parse_booleans,
    parse_numbers,
)
from jointleaf.cli._columns import detect_target
from jointleaf.cli._output import CliError
from jointleaf.cli._preparation import prepared
from jointleaf.cli._tables import read_table
from jointleaf.io._model_file.container import Budget
from jointleaf.io._model_file.objects import PREPARATION
from jointleaf.io._model_file.schema import Place, Scope


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


def test_marks_blank_lines_spaces_and_missing_values(tmp_path):
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
        made.append(prepared(Preparation(tuple(kinds.values())), table)[0])
    pd.testing.assert_frame_equal(*made)


# -- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "notation", "numbers"),
    [
        (["1", "-2.5", "1e3"], "plain", [1, -2.5, 1000]),
        (["1,5", "2", "-0,25"], "comma", [1.5, 2, -0.25]),
        (["1,234.5", "12", "1,000,000"], "thousands", [1234.5, 12, 1e6]),
        (["1,234", "2,345,678"], "thousands", [1234, 2345678]),
        (["1,234", "999", "-12,000"], "thousands", [1234, 999, -12000]),
        (["36.355,20", "1.234", "7", "-0,5"], "points", [36355.2, 1234, 7, -0.5]),
        (["1.234.567", "2.345.678"], "points", [1234567, 2345678]),
        (["355,20"] * 30 + ["1.355,20"], "points", [355.2] * 30 + [1355.2]),
        (["$1,234.50", "-$5", "$ 17.25"], "thousands", [1234.5, -5, 17.25]),
        (["$1,234", "$12,000"], "thousands", [1234, 12000]),
        (["€ 12", "7,50 €", "-3 EUR"], "comma", [12, 7.5, -3]),
        (["€ 1.234", "€ 12.500"], "points", [1234, 12500]),
        (["$3.459", "$4.129"], "plain", [3.459, 4.129]),
        (["12.3%", "-4 %", "1e-3%"], "plain%", [12.3, -4, 0.001]),
        (["12,3 %", "1.204,5 %"], "points%", [12.3, 1204.5]),
    ],
)
def test_notations_of_numbers(given, notation, numbers):
    found = texts(*given, None)
    assert detect_notation(found) == notation
    np.testing.assert_array_equal(parse_numbers(found, notation), [*numbers, np.nan])


@pytest.mark.parametrize(
    "given",
    [
        ["a", "b"],
        ["1", "b"],
        ["1.2.3", "4.5.6"],
        ["1-2", "3"],
        ["$", "%"],
        ["1,23,4", "5"],
        ["12 kg", "3 kg"],
        ["$-$5", "--5"],
    ],
)
def test_other_texts_are_no_numbers(given):
    assert detect_notation(texts(*given)) is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_numbers_come_back_exactly(numbers):
    found = texts(*map(repr, numbers))
    assert detect_notation(found) == "plain"
    np.testing.assert_array_equal(parse_numbers(found, "plain"), numbers)


cents = st.integers(-(10**9), 10**9)


@given(st.lists(cents, min_size=1, max_size=20), st.sampled_from(["{}", "$ {}", "{} €", "{}%"]))
@settings(max_examples=100, deadline=None)
def test_numbers_with_thousands_and_signs_come_back_exactly(numbers, frame):
    """Two decimals and one large value make clear what is meant, in both ways of writing."""
    numbers = [value / 100 for value in [*numbers, 123456789]]
    english = [frame.format(f"{value:,.2f}") for value in numbers]
    german = [text.translate(str.maketrans(",.", ".,")) for text in english]
    percent = "%" if "%" in frame else ""
    for written, notation in ((english, "thousands"), (german, "points")):
        assert detect_notation(texts(*written)) == notation + percent
        np.testing.assert_array_equal(parse_numbers(texts(*written), notation + percent), numbers)


def test_infinity_counts_as_missing():
    np.testing.assert_array_equal(
        parse_numbers(texts("1", "inf", "-Infinity"), "plain"), [1, np.nan, np.nan]
    )


def test_booleans():
    np.testing.assert_array_equal(
        parse_booleans(texts("yes", "No", "TRUE", "f", None)), [1, 0, 1, 0, np.nan]
    )
    assert parse_booleans(texts("yes", "maybe")) is None


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


@pytest.mark.parametrize(("name", "start"), [("id", 7), ("rownames", 1), ("week", 0)])
def test_a_column_that_counts_the_rows_is_left_out_unless_it_is_kept(name, start):
    counted = column(*(str(k + start) for k in range(30)), name=name)
    kind = detect_kind(counted)
    assert (kind.kind, kind.note) == ("identifier", "counts the rows")
    assert kind.can_be_kept
    kept = detect_kind(counted, is_kept=True)
    assert (kept.kind, kept.note) == ("number", "counts the rows")


def test_years_in_order_and_shuffled_numbers_are_used():
    years = column(*(str(k) for k in range(1990, 2020)), name="year")
    assert (detect_kind(years).kind, detect_kind(years).note) == ("number", "counts the rows")
    assert detect_kind(column(*map(str, [2, 1, *range(3, 31)]), name="week")).kind == "number"


@pytest.mark.parametrize(
    ("values", "target", "kind"),
    [
        (["1,200", "950", "3"], ["1200", "950.0", "3"], "copy"),
        (["1200", "950", "4"], ["1200", "950", "3"], "number"),
        (["a", "b", "a"], ["a", "b", "a"], "copy"),
        (["a", "b", "a"], ["a", "b", "c"], "category"),
        (["1", None, "3"], ["1", "2", "3"], "number"),
    ],
)
def test_a_copy_of_the_target_is_left_out_unless_it_is_kept(values, target, kind):
    pair = column(*values), column(*target, name="y")
    assert detect_kind(pair[0], target=pair[1]).kind == kind
    assert detect_kind(pair[0], target=pair[1], is_kept=True).kind != "copy"


def test_near_unique_text_can_be_kept():
    names = column(*(f"F{k:03d}" for k in range(30)), name="flat")
    assert detect_kind(names).kind == "identifier"
    assert detect_kind(names, is_kept=True).kind == "category"


def test_words_that_count_as_missing_can_be_chosen(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("size,x\nnone,1\nsmall,-\n,3\nnone,2\nsmall,5\n")
    usual = read_table(str(path)).column("size")
    assert usual.values.tolist() == [None, "small", None, None, "small"]
    assert detect_kind(usual).note == "1 category; 'none' counts as missing"
    chosen = read_table(str(path), missing=("-",))
    assert values(chosen, "size") == ["none", "small", None, "none", "small"]
    assert values(chosen, "x") == ["1", None, "3", "2", "5"]


@pytest.mark.parametrize("name", ["id", "customer_id", "Customer ID", "customerId"])
def test_numbers_that_are_named_an_id_and_all_differ_are_identifiers(name):
    kind = detect_kind(column("17", "905", "33", name=name))
    assert kind.kind == "identifier"
    assert kind.note == "named an id, and whole numbers that all differ"
    assert detect_kind(RawColumn(name, np.array([17.0, 905.0, np.nan, 3.0]))).kind == "identifier"
    assert detect_kind(column("17", "905", "17", name=name)).kind == "number"
    assert detect_kind(column("17", "905", "1.5", name=name)).kind == "number"
    for other in ("paid", "humid", "grid"):
        assert detect_kind(column("17", "905", "33", name=other)).kind == "number"


def test_how_numbers_are_read_is_told():
    kind = detect_kind(column("12.5%", "3%", "4"))
    assert (kind.kind, kind.notation) == ("number", "plain%")
    assert kind.note == "percent: '12.5%' is 12.5; 1 without the sign, such as '4', are percent too"
    assert detect_kind(column("$1,234.50", "$3")).note == "the sign $ is left out"
    assert "several currencies, $ and €" in detect_kind(column("$1.50", "€3.20")).note
    assert detect_kind(column("1,234", "5,678")).note == "'1,234' is 1.234"  # may be otherwise
    assert detect_kind(column("1,234", "678")).note == "'1,234' is 1234"
    assert detect_kind(column("1", "2")).note == detect_kind(column("1,5", "2,5")).note == ""


@pytest.mark.parametrize("given", [("12 kg", "3 kg", "5 kg"), ("1 234,5", "2 345,6", "7 891,2")])
def test_texts_that_look_like_numbers_are_not_left_out_in_silence(given):
    kind = detect_kind(column(*given))
    assert kind.kind == "identifier"
    assert kind.holds == "left out: text"
    assert f"looks like numbers, but {given[0]!r} cannot be read as one" in kind.note
    assert "looks like" not in detect_kind(column("F001", "F002", "F003")).note


def test_percent_signs_are_expected_where_training_had_them():
    made = Preparation((detect_kind(column("12.5%", "3%")),))
    frame, notes = prepared(made, RawTable("new.csv", (column("0.5", "7%"),)))
    assert frame["x"].tolist() == [0.5, 7]
    assert notes == [
        "column 'x': 1 without the percent sign of training, such as '0.5': taken as percent"
    ]
    plain = Preparation((detect_kind(column("12.5", "3")),))
    with pytest.raises(ValueError, match="'x' held numbers in training and holds '7%' in row 1"):
        prepared(plain, RawTable("new.csv", (column("7%"),)))


def test_a_few_other_values_in_numbers_are_missing_with_a_note():
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


def test_classes_of_yes_and_no_are_two_however_they_are_written():
    given = ["Yes", "YES", "no", "No", "Yes", "no", None]
    target = detect_target(column(*given), "data")
    assert target.labels == ("no", "Yes")
    assert target.reason == "yes or no, written 'No', 'YES', 'Yes', 'no'; called 'no', 'Yes'"
    y, has = target.read(column(*given), "data")
    assert y.tolist() == ["Yes", "Yes", "no", "no", "Yes", "no"]
    assert has.tolist() == [True] * 6 + [False]
    later, _ = target.read(column("y", "0", "1", "perhaps"), "data")
    assert later.tolist() == ["Yes", "no", "Yes", "perhaps"]
    with pytest.raises(CliError, match="is always YES: nothing"):
        detect_target(column("YES", "Yes"), "data")


def test_categories_that_differ_in_case_or_spaces_only_are_told():
    given = column(*["Gold", "gold", "top gold", "silver"] * 6)
    for told in (detect_target(given, "data").reason, detect_kind(given).note):
        assert told.endswith("; 'Gold', 'gold' differ only in case or spaces")
    assert "differ only" not in detect_target(column(*["a", "b"] * 6), "data").reason


def test_booleans_may_come_as_one_and_zero():
    made = Preparation((detect_kind(column("true", "false", "true")),))
    frame, notes = prepared(made, RawTable("new.csv", (column("1", "0", "1.0", None, "TRUE"),)))
    np.testing.assert_array_equal(frame["x"], [1, 0, 1, np.nan, 1])
    assert notes == []
    numbers = RawColumn("x", np.array([1.0, 0.0, 2.0, np.nan]))
    frame, notes = prepared(made, RawTable("new.parquet", (numbers,)))
    np.testing.assert_array_equal(frame["x"], [1, 0, np.nan, np.nan])
    assert len(notes) == 1
    assert "'x': 1 not true or false" in notes[0]
    assert "in row 3" in notes[0]


def test_tasks_can_be_forced():
    whole = column(*["0", "1", "2"] * 6)
    assert detect_target(whole, "data", "regression").task == "regression"
    text = column(*["a", "b"] * 6)
    with pytest.raises(CliError, match=r"--task regression needs numbers, .* holds 'a'"):
        detect_target(text, "data", "regression")


# -- preparation ---------------------------------------------------------------------------------


def training_table(tmp_path):
    path = tmp_path / "flats.csv"
    path.write_text(as_csv(make_rows()))
    return read_table(str(path))


def test_preparation_survives_a_file_and_gives_the_same_frame(tmp_path):
    table = training_table(tmp_path)
    made = Preparation.learn(table, target=table.column("price"))
    record = json.loads(json.dumps(asdict(made)))
    again = PREPARATION.read(record, Place("", [], Budget(0, 0, math.inf)), Scope())
    assert again == made
    first, notes = prepared(made, table)
    second, _ = prepared(again, table)
    assert notes == []
    pd.testing.assert_frame_equal(first, second)
    assert made.names == ["sold", "city", "area", "balcony", "heating"]
    assert list(first.columns[:2]) == ["sold: day number", "sold: year"]
    assert first["area"].isna().sum() == sum(row[3] == "" for row in make_rows())
    # A single row means the same as within the table.
    alone, _ = prepared(made, table.take(np.array([7])))
    assert alone["sold: day number"][0] == first["sold: day number"][7]


def test_new_texts_in_numbers_are_told_and_a_column_of_them_is_rejected(tmp_path):
    table = training_table(tmp_path)
    made = Preparation.learn(table, target=table.column("price"))
    area = table.column("area").values.copy()
    area[4] = "large"

    def replaced(new):
        columns = [RawColumn(c.name, new) if c.name == "area" else c for c in table.columns]
        return RawTable("new.csv", tuple(columns))

    frame, notes = prepared(made, replaced(area))
    assert notes == ["column 'area': 1 not a number, 'large' in row 5: taken as missing"]
    assert np.isnan(frame["area"][4])
    with pytest.raises(ValueError, match=r"'area' held numbers in training and holds 'x' in row 1"):
        prepared(made, replaced(texts(*["x"] * len(table))))


def test_the_task_that_is_guessed_can_be_overruled():
    counts = column(*(str(k % 5) for k in range(50)), name="visits")
    assert detect_target(counts, "f").advice == "; --task regression predicts numbers instead"
    assert detect_target(counts, "f", "classification").advice == ""
    assert detect_target(counts, "f", "regression").advice == ""
    assert detect_target(column(*"abab" * 9, name="y"), "f").advice == ""


@pytest.mark.parametrize(
    ("numbers", "is_guess"),
    [
        (np.arange(130) % 26, True),
        (np.arange(250) % 50, True),
        (np.arange(255) % 51, False),
        (np.arange(129) % 26, False),  # some class has less than five rows
        (np.arange(130) % 26 + 0.5, False),
    ],
)
def test_whole_numbers_that_may_be_classes_are_told(numbers, is_guess):
    codes = column(*map(str, numbers), name="letter")
    found = detect_target(codes, "f")
    assert found.task == "regression"
    n = len(set(numbers))
    assert found.reason == f"{'whole ' * is_guess}numbers with {n} different values"
    advice = "; --task classification predicts classes instead"
    assert found.advice == advice * is_guess
    assert detect_target(codes, "f", "regression").advice == ""
