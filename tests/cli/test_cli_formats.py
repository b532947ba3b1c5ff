"""Sheets of Excel, JSON and other formats in the shell."""

import datetime
import io
import json
import sys
import zipfile

import numpy as np
import pytest

from jointleaf.cli import main
from jointleaf.cli._output import CliError
from jointleaf.cli._tables import read_table

ROWS = [
    ("  price", "sold", None, "kind", None),
    (1.5, datetime.datetime(2024, 1, 31), None, "flat", None),
    (None, None, None, None, None),
    (None, datetime.datetime(2024, 2, 1), 3, " house ", None),
    (2, None, 4, "NA", None),
]


def write(path, **sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        page = book.create_sheet(title)
        for row in rows:
            page.append(row)
    book.save(path)
    return str(path)


def test_a_sheet_is_read_with_its_numbers_dates_and_texts(tmp_path):
    path = write(tmp_path / "data.xlsx", first=ROWS, other=[("a",), (7,)])
    table = read_table(path)
    assert table.names == ["price", "sold", "column 3", "kind"]
    np.testing.assert_array_equal(table.column("price").values, [1.5, np.nan, 2])
    days = ["2024-01-31", "2024-02-01", "NaT"]
    np.testing.assert_array_equal(table.column("sold").values, np.array(days, "datetime64[us]"))
    np.testing.assert_array_equal(table.column("column 3").values, [np.nan, 3, 4])
    assert table.column("kind").values.tolist() == ["flat", "house", None]
    assert table.notes == ("sheet 'first' of 2: name another one with --sheet",)
    assert read_table(path, sheet="other").column("a").values.tolist() == [7]


def test_a_model_of_a_sheet_is_that_of_the_same_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    numbers = np.random.default_rng(0).standard_normal((40, 3)).round(3).tolist()
    rows = [("a", "b", "y"), *map(tuple, numbers)]
    write(tmp_path / "data.xlsx", sheet=rows)
    (tmp_path / "same.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    for name in ("data.xlsx", "same.csv"):
        assert main(["fit", name, "--target", "y", "--no-report"]) == 0
        capsys.readouterr()
        assert main(["predict", f"{name.split('.')[0]}.jleaf", name, "-o", f"{name}.out"]) == 0
    assert (tmp_path / "data.xlsx.out").read_text() == (tmp_path / "same.csv.out").read_text()


@pytest.mark.parametrize(
    ("sheets", "options", "message"),
    [
        ({"a": []}, {}, "the sheet is empty"),
        ({"a": [("x",)]}, {}, "a header and no rows"),
        ({"a": [(1.0, 2.0), (3.0, 4.0)]}, {}, "names of the columns and holds 1"),
        ({"a": [("x", "x"), (1, 2)]}, {}, "several columns have the name 'x'"),
        ({"a": ROWS}, {"sheet": "b"}, "--sheet 'b' is not there: sheets are 'a'"),
        (
            {"a": [("x",), *((letter * 30_000,) for letter in "abcdefghijklmnopqrstuvwxyz" * 2)]},
            {"max_unpacked": 1},
            "unpacks to more than 1 MB",
        ),
    ],
)
def test_sheets_that_cannot_be_read(tmp_path, sheets, options, message):
    path = write(tmp_path / "data.xlsx", **sheets)
    with pytest.raises(CliError, match=message):
        read_table(path, **options)


def test_a_damaged_workbook_and_a_sheet_of_a_csv_file(tmp_path):
    pytest.importorskip("openpyxl")
    with zipfile.ZipFile(tmp_path / "data.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<nothing")
    with pytest.raises(CliError, match="the Excel file is damaged"):
        read_table(str(tmp_path / "data.xlsx"))
    (tmp_path / "data.csv").write_text("a\n1\n")
    with pytest.raises(CliError, match="--sheet 'b' is for Excel files: leave it out"):
        read_table(str(tmp_path / "data.csv"), sheet="b")


def test_without_openpyxl_it_is_asked_for(tmp_path, monkeypatch):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    (tmp_path / "data.xlsx").write_bytes(file.getvalue())
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(CliError, match=r"need openpyxl: pip install 'jointleaf\[cli\]'"):
        read_table(str(tmp_path / "data.xlsx"))


def test_a_column_that_is_not_there_may_be_elsewhere(tmp_path):
    path = write(tmp_path / "data.xlsx", notes=[("a", "b"), (1, 2)], flats=ROWS)
    with pytest.raises(
        ValueError, match=r"'price' is not there: .*another sheet with --sheet: 'fl"
    ):
        read_table(path).column("price")
    path = write(tmp_path / "one.xlsx", notes=[("a",), (1,)], flats=ROWS)
    with pytest.raises(ValueError, match="the only column is 'a'; name another sheet with --sheet"):
        read_table(path).column("price")
    path = write(
        tmp_path / "title.xlsx", flats=[("Sales in 2024", None), ("price", "area"), (1, 2)]
    )
    with pytest.raises(ValueError, match="; 'Sales in 2024' looks like a title: delete what"):
        read_table(path).column("price")
    (tmp_path / "title.csv").write_text("Sales in 2024\nprice,area\n1,2\n")
    with pytest.raises(CliError, match="or delete what is above the names of the columns"):
        read_table(str(tmp_path / "title.csv"))


@pytest.mark.parametrize("form", ["lines", "list"])
def test_json_gives_what_csv_gives(tmp_path, form):
    rows = [{"a": 1.5, "b": "x", "c": True}, {"a": None, "b": "NA"}, {"a": 3, "c": False, "d": [1]}]
    lines = [json.dumps(row) for row in rows]
    text = "\n".join(lines) if form == "lines" else "[" + ",\n".join(lines) + "]"
    (tmp_path / "data.json").write_text(text)
    table = read_table(str(tmp_path / "data.json"))
    np.testing.assert_array_equal(table.column("a").values, [1.5, np.nan, 3])
    assert table.column("b").values.tolist() == ["x", None, None]
    assert table.column("c").values.tolist() == ["True", None, "False"]
    assert table.notes == ("column 'd' holds lists or objects: left out",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"PK\x03\x04xl/workbook.xml",
            "Excel file, a damaged one .*save .* as .xlsx or CSV",
        ),
        (b'{"a": 1}\n{"a": \n', "line 2 is no JSON object"),
        (b'{"a": 1}\n[2]\n', "line 2 is no JSON object"),
        (b'{\n"a": [1, 2]\n}', "no list of objects: write one object per row and line"),
    ],
)
def test_other_formats_are_named(tmp_path, content, message):
    (tmp_path / "data").write_bytes(content)
    with pytest.raises(CliError, match=message):
        read_table(str(tmp_path / "data"))


def test_damaged_json_is_no_csv_file(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1, "b": 2\n')
    with pytest.raises(CliError, match=r"this is no JSON .*: write one object per row and line"):
        read_table(str(tmp_path / "a.json"))
