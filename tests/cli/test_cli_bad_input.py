"""Bad input: one clear line, the right exit code, and nothing written."""

import gzip
import json
import os
import struct
import sys

import pytest

from cli_data import HEADER, as_csv, fails, make_rows, run
from jointleaf.cli._using import load_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with data and a model."""
    path = tmp_path_factory.mktemp("bad")
    (path / "flats.csv").write_text(as_csv(make_rows(40)))
    from jointleaf.cli import main

    arguments = [
        "fit",
        path / "flats.csv",
        "-t",
        "price",
        "-o",
        path / "model.jleaf",
        "--no-report",
    ]
    assert main([str(a) for a in arguments]) == 0
    return path


def fit(capsys, tmp_path, content, *more, target="price"):
    """Fit bad bytes or text; return the error, and check that nothing was written."""
    path = tmp_path / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = fails(capsys, "fit", path, "-t", target, "-o", tmp_path / "m.jleaf", *more)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.csv"]
    return line


ROWS = make_rows(40)


def with_column(name, values):
    rows = [[*row, value] for row, value in zip(ROWS, values, strict=True)]
    return as_csv(rows, (*HEADER, name))


CASES = {
    "empty": (b"", "the file is empty"),
    "blank": (b" \n\n", "the file is empty"),
    "header only": (as_csv([]), "there is a header and no rows"),
    "other delimiter": (as_csv(ROWS, delimiter=":"), "check the --delimiter"),
    "no header": (as_csv([["1", "2"]], ("3", "4")), "must hold the names of the columns"),
    "duplicate columns": (with_column("area", ["1"] * 40), "several columns have the name 'area'"),
    "single header": (
        "a:price\n1,5:2,5\n3,25:4\n",
        "with the delimiter comma the header is a single field, 'a:price': name the right "
        "delimiter with --delimiter",
    ),
    "short line": ("a,price\n1,2\n3\n", "line 3 has 1 fields and the header has 2"),
    "long line": ("a,price\n1,2\n3,4,5\n", "line 3 has 3 fields and the header has 2"),
    "open quote": ('a,price\n1,2\n"3,4\n', "line 3: unexpected end of data"),
    "latin-1": ("a,price\n1,2\né,4\n".encode("latin-1"), "line 3 is not utf-8 (byte 0xe9)"),
    "truncated gzip": (gzip.compress(as_csv(ROWS).encode())[:-20], "damaged or truncated"),
    "truncated parquet": (b"PAR1" + bytes(40), "the Parquet file is damaged or truncated"),
    "feather": (b"ARROW1\0\0" + bytes(40), "is an Arrow (Feather) file, which is not read here"),
    "pickle": (b"\x80\x04\x95" + bytes(40), "is a pickle, which is not read here: write CSV"),
    "no targets": (as_csv([[*row[:-1], "NA"] for row in ROWS]), "so no rows are left"),
    "few rows": (as_csv(ROWS[:5]), "5 rows with a target: at least 10 are needed"),
    "one target": (as_csv([[*row[:-1], "7"] for row in ROWS]), "is always 7: nothing"),
    "only a target": ("price\n" + "1\n2.5\n" * 9, "no column is left to learn from: only a target"),
    "nothing to learn from": (
        as_csv([[f"F{k}", f"{k}.5"] for k in range(40)], ("name", "price")),
        "no column is left to learn from: 'name' is left out (identifier)",
    ),
    "dates as target": (
        as_csv([[str(k), f"2024-01-{k + 1:02d}"] for k in range(20)], ("a", "price")),
        "holds dates",
    ),
    "names as target": (
        as_csv([[str(k % 7), f"n{k}"] for k in range(40)], ("a", "price")),
        "40 different texts in 40 rows, too many to be classes",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_tables_that_cannot_be_learnt_from(capsys, tmp_path, name):
    content, message = CASES[name]
    assert message in fit(capsys, tmp_path, content)


def test_a_missing_target_names_the_columns_or_the_one_meant(capsys, tmp_path):
    data = as_csv(ROWS)
    line = fit(capsys, tmp_path, data, target="cost")
    assert "the target 'cost' is not there: the columns are 'id', 'sold', 'city'" in line
    for target in ("Price", "pricee"):
        assert "did you mean 'price'?" in fit(capsys, tmp_path, data, target=target)


def test_a_delimiter_that_is_wrong_is_guessed(capsys, tmp_path):
    line = fit(capsys, tmp_path, as_csv(ROWS), "--delimiter", ";")
    assert "--delimiter ';' gives one column" in line
    assert ": use comma, or" in line


def test_options_that_name_no_column(capsys, tmp_path):
    for option in ("--drop", "--categorical"):
        assert "'rooms' is not there" in fit(capsys, tmp_path, as_csv(ROWS), option, "rooms")
    assert "--drop 'price' is the target" in fit(capsys, tmp_path, as_csv(ROWS), "--drop", "price")


def test_files_that_are_not_there(capsys, tmp_path):
    line = fails(capsys, "fit", tmp_path / "no.csv", "-t", "y")
    assert line.endswith("no.csv: there is no such file")
    assert "is a folder" in fails(capsys, "fit", tmp_path, "-t", "y")
    assert "there is no such file" in fails(capsys, "info", tmp_path / "no.jleaf")
    assert "is a folder" in fails(capsys, "info", tmp_path)


def test_places_that_cannot_be_written_are_found_before_the_fit(capsys, folder):
    data = folder / "flats.csv"
    line = fails(capsys, "fit", data, "-t", "price", "-o", folder / "no" / "m.jleaf")
    assert "the folder" in line
    assert "does not exist" in line
    line = fails(capsys, "predict", folder / "model.jleaf", data, "-o", folder)
    assert "is a folder: name a file" in line
    line = fails(capsys, "predict", folder / "model.jleaf", data, "-o", folder / "out.parquet")
    assert "out.parquet: predictions are written as CSV, or as JSON: name a file" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fit", "a.csv"], "the following arguments are required: --target/-t"),
        (["grow"], "invalid choice: 'grow'"),
        (["fit", "a.csv", "-t", "y", "--delimiter", "ab"], "'ab' must be one character"),
        (["explain", "m.jleaf", "a.csv", "--row", "0"], "'0' must be a whole number from 1 on"),
        (["bench", "a.csv", "-t", "y", "--folds", "x"], "'x' must be a whole number from 2 on"),
    ],
)
def test_wrong_arguments_are_usage_errors(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert message in err


def test_unknown_options_show_the_usage_of_their_command(capsys):
    code, _, err = run(capsys, "select", "a.csv", "-t", "y", "--loss", "poisson")
    assert code == 2
    assert err.startswith("usage: jointleaf select ")
    assert err.endswith("jointleaf select: error: unrecognized arguments: --loss poisson\n")


def test_packages_that_are_not_installed_are_named(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert "pip install 'jointleaf[cli]'" in fit(capsys, tmp_path, as_csv(ROWS))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    line = fit(capsys, tmp_path, b"PAR1" + bytes(40))
    assert "Parquet files need pyarrow: pip install 'jointleaf[cli]'" in line


# -- models --------------------------------------------------------------------------------------


def predict(capsys, folder, tmp_path, content, *more):
    """Predict bad rows; return the error, and check that nothing was written."""
    path = tmp_path / "new.csv"
    path.write_text(content)
    out = tmp_path / "out.csv"
    line = fails(capsys, "predict", folder / "model.jleaf", path, "-o", out, *more)
    assert not out.exists()
    return line


def test_missing_and_extra_columns(capsys, folder, tmp_path):
    without = [[*row[:3], *row[4:]] for row in ROWS]
    header = (*HEADER[:3], *HEADER[4:])
    line = predict(capsys, folder, tmp_path, as_csv(without, header))
    assert line.endswith("the model needs column 'area', which the table does not have")
    line = predict(capsys, folder, tmp_path, with_column("rooms", ["1"] * 40))
    assert "the model does not know column 'rooms': leave it out, or use --ignore-extra" in line
    assert "did you mean 'Area', 'HEATING'?" in predict(
        capsys, folder, tmp_path,
        as_csv(ROWS, [{"area": "Area", "heating": "HEATING"}.get(name, name) for name in HEADER]),
    )  # fmt: skip
    assert line.count("did you mean") == 0
    one = predict(capsys, folder, tmp_path, as_csv(ROWS, delimiter=":"))
    assert "whose only column is 'id:sold:city" in one
    assert one.endswith("check the --delimiter")
    (tmp_path / "new.csv").write_text(with_column("rooms", ["1"] * 40))
    new = tmp_path / "new.csv"
    assert run(capsys, "predict", folder / "model.jleaf", new, "--ignore-extra")[0] == 0
    assert run(capsys, "predict", folder / "model.jleaf", new, "--id", "rooms")[0] == 0


def test_categories_that_training_did_not_have_are_told(capsys, folder, tmp_path):
    rows = [[*row[:2], "PARIS" if k else "Oslo", *row[3:]] for k, row in enumerate(ROWS)]
    new = tmp_path / "new.csv"
    new.write_text(as_csv(rows))
    told = "column 'city': 39 of 40 values were not seen in training ('PARIS')"
    code, out, err = run(capsys, "predict", folder / "model.jleaf", new, "--json")
    assert code == 0
    assert err == f"{new}: {told}\n"
    assert json.loads(out)["remarks"] == [told]
    assert len(json.loads(out)["predictions"]) == 40
    _, out, _ = run(capsys, "predict", folder / "model.jleaf", folder / "flats.csv", "--json")
    assert json.loads(out)["remarks"] == []
    for k, row in enumerate(rows):
        row[2] = f"c{k}"
    new.write_text(as_csv(rows))
    _, _, err = run(capsys, "explain", folder / "model.jleaf", new)
    assert "40 of 40 values were not seen in training ('c0', 'c1', 'c2', ...)" in err


def test_numbers_far_outside_training_are_told(capsys, folder, tmp_path):
    rows = [list(row) for row in ROWS]
    areas = [float(row[HEADER.index("area")]) for row in rows if row[HEADER.index("area")]]
    low, high = min(areas), max(areas)
    new, j = tmp_path / "new.csv", HEADER.index("area")
    rows[3][j] = f"{2 * high - low}"  # at the border
    new.write_text(as_csv(rows))
    assert "far outside" not in run(capsys, "predict", folder / "model.jleaf", new)[2]
    rows[3][j] = "1e6"
    new.write_text(as_csv(rows))
    _, _, err = run(capsys, "predict", folder / "model.jleaf", new)
    assert "column 'area': 1 of 40 values is far outside training (" in err
    assert err.strip().endswith("such as 1,000,000 in row 4")


def test_the_ending_of_the_output_says_json(capsys, folder, tmp_path):
    path = tmp_path / "out.json"
    arguments = ["predict", folder / "model.jleaf", folder / "flats.csv"]
    assert run(capsys, *arguments, "-o", path)[0] == 0
    assert json.loads(path.read_text()) == json.loads(run(capsys, *arguments, "--json")[1])


def test_columns_of_another_kind(capsys, folder, tmp_path):
    rows = [[*row[:3], "large", *row[4:]] for row in ROWS]
    line = predict(capsys, folder, tmp_path, as_csv(rows))
    assert line.endswith("column 'area' held numbers in training and holds 'large' in row 1")


def test_a_row_that_is_not_there(capsys, folder):
    line = fails(capsys, "explain", folder / "model.jleaf", folder / "flats.csv", "--row", 41)
    assert "--row 41: " in line
    assert line.endswith("has 40 rows below the header")
    line = fails(capsys, "explain", folder / "model.jleaf", folder / "flats.csv", "--class", "a")
    assert "the model predicts numbers, not classes" in line


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_truncated_models(capsys, folder, tmp_path, share):
    data = (folder / "model.jleaf").read_bytes()
    (tmp_path / "m.jleaf").write_bytes(data[: int(share * len(data))])
    for command in (["info"], ["report"], ["predict"], ["explain"]):
        rest = [folder / "flats.csv"] if command[0] in ("predict", "explain") else []
        line = fails(capsys, *command, tmp_path / "m.jleaf", *rest)
        assert f"m.jleaf: the file is {'truncated' if share else 'empty'}" in line


def test_models_of_a_newer_version_and_other_files(capsys, folder, tmp_path):
    data = bytearray((folder / "model.jleaf").read_bytes())
    data[8:12] = struct.pack("<I", 99)
    (tmp_path / "m.jleaf").write_bytes(data)
    line = fails(capsys, "info", tmp_path / "m.jleaf")
    assert "newer jointleaf" in line
    assert "upgrade jointleaf" in line
    line = fails(capsys, "info", folder / "flats.csv")
    assert (
        "not a jointleaf model file: make one with jointleaf.save, or with `jointleaf fit`" in line
    )


def test_models_of_other_kinds(capsys, tmp_path):
    import numpy as np

    import jointleaf

    X = np.random.default_rng(0).normal(size=(40, 2))
    jointleaf.save(
        jointleaf.LinearForestRegressor(random_state=0).fit(X, X[:, 0]), tmp_path / "f.jleaf"
    )
    line = fails(capsys, "info", tmp_path / "f.jleaf")
    assert "holds a LinearForestRegressor, which the command line does not know" in line
    model = jointleaf.JOPLEnRegressor(penalty=jointleaf.Frobenius(0.1)).fit(X, X[:, 0])
    jointleaf.save(model, tmp_path / "m.jleaf")
    line = fails(capsys, "info", tmp_path / "m.jleaf")
    assert "fitted on a matrix without column names" in line


def test_the_target_of_a_model_from_python_is_an_extra_column(capsys, tmp_path):
    """Python passes over it, and the shell says why it does not."""
    import pandas as pd

    import jointleaf

    table = pd.DataFrame({"area": range(40), "price": [7 * k % 40 for k in range(40)]})
    model = jointleaf.JOPLEnRegressor("lightgbm", penalty=jointleaf.Frobenius(0.1))
    jointleaf.save(model.fit(table[["area"]], table["price"]), tmp_path / "m.jleaf")
    table.to_csv(tmp_path / "d.csv", index=False)
    line = fails(capsys, "predict", tmp_path / "m.jleaf", tmp_path / "d.csv")
    assert line.endswith(
        "does not know column 'price': leave it out, or use --ignore-extra (a file saved from "
        "Python does not name its target)"
    )
    assert (
        run(capsys, "predict", tmp_path / "m.jleaf", tmp_path / "d.csv", "--ignore-extra")[0] == 0
    )


def test_a_record_of_a_newer_version(capsys, folder, tmp_path):
    import jointleaf

    loaded = load_model(str(folder / "model.jleaf"))
    path = tmp_path / "m.jleaf"
    jointleaf.save(loaded.model, path, metadata={"cli": {**loaded.record, "format": 99}})
    assert "was written by a newer jointleaf" in fails(capsys, "info", path)
    jointleaf.save(loaded.model, path, metadata={"cli": {"format": 1}})
    assert "the record of the fit is damaged" in fails(capsys, "info", path)


def test_a_failed_write_leaves_the_old_file(capsys, folder, tmp_path, monkeypatch):
    out = tmp_path / "out.csv"
    out.write_text("old")

    def reject(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", reject)
    line = fails(capsys, "predict", folder / "model.jleaf", folder / "flats.csv", "-o", out)
    assert line.endswith("out.csv: cannot be written (No space left on device)")
    assert out.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_ctrl_c_and_defects_have_no_traceback(capsys, folder, monkeypatch):
    from jointleaf.cli import _using

    def interrupt(args):
        raise KeyboardInterrupt

    def defect(args):
        raise KeyError("x")

    monkeypatch.setattr(_using, "info", interrupt)
    assert "interrupted" in fails(capsys, "info", "m.jleaf", code=130)
    monkeypatch.setattr(_using, "info", defect)
    assert "unexpected KeyError: 'x'" in fails(capsys, "info", "m.jleaf")
