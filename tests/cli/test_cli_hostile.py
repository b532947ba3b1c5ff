"""Hostile input to the shell: files that would be lost, damaged records, bombs, odd streams."""

import copy
import gzip
import io
import json
import os
import sys
import time

import numpy as np
import pytest

import jointleaf as jl
from cli_data import as_csv, fails, make_rows, run
from jointleaf._data.texts import detect_format, parse_dates
from jointleaf.cli import _output as out
from jointleaf.cli import _tables as tables
from jointleaf.cli import main
from jointleaf.cli._record import load_model
from jointleaf.cli._report import render_report
from jointleaf.cli._scores import measures
from model_file_damage import ODD, places

ROWS = make_rows(40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with data and a model."""
    path = tmp_path_factory.mktemp("hostile")
    (path / "flats.csv").write_text(as_csv(ROWS))
    arguments = ["fit", path / "flats.csv", "-t", "price", "-o", path / "model.jleaf"]
    assert main([*map(str, arguments), "--no-report"]) == 0
    return path


@pytest.fixture
def place(folder, tmp_path):
    """Another folder with the same files, which tests may damage."""
    for name in ("flats.csv", "model.jleaf"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    return tmp_path


# -- files that would be lost ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "flats.csv", "-t", "price", "-o", "flats.csv"],
        ["fit", "flats.csv", "-t", "price", "-o", "z.jleaf", "--report", "flats.csv"],
        ["fit", "flats.csv", "-t", "price", "-o", "m.html"],
        ["fit", "flats.csv", "-t", "price", "-o", "new", "--report", "./sub/../new"],
        ["fit", "flats.csv", "-t", "price", "-o", "link.csv"],
        ["fit", "flats.csv", "-t", "price", "-o", "hard.csv"],
        ["fit", "sub", "-t", "price", "-o", "sub/part.parquet"],
        ["fit", "flats.csv", "-t", "price", "-o", "lost", "--report", "dangling"],
        ["predict", "model.jleaf", "flats.csv", "-o", "flats.csv"],
        ["predict", "model.jleaf", "flats.csv", "-o", "model.jleaf"],
        ["predict", "model.jleaf", "flats.csv", "-o", "link.csv"],
        ["explain", "model.jleaf", "flats.csv", "--plot", "model.jleaf"],
        ["report", "model.html"],
        ["report", "model.jleaf", "flats.csv", "-o", "flats.csv"],
    ],
)
def test_outputs_never_take_the_place_of_files_that_are_needed(
    capsys, place, monkeypatch, arguments
):
    monkeypatch.chdir(place)
    (place / "sub").mkdir()
    (place / "sub" / "part.parquet").write_bytes(b"PAR1")
    (place / "link.csv").symlink_to("flats.csv")
    (place / "dangling").symlink_to("lost")
    os.link("flats.csv", "hard.csv")
    (place / "model.html").write_bytes((place / "model.jleaf").read_bytes())
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    line = fails(capsys, *arguments)
    assert "too" in line
    assert "name another" in line
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_standard_input_that_is_the_output(capsys, place, monkeypatch):
    path = place / "flats.csv"
    with open(path) as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert "is the input - too" in fails(capsys, "fit", "-", "-t", "price", "-o", path)
    assert path.read_text() == as_csv(ROWS)


def test_links_are_followed_and_devices_left_alone(capsys, place):
    link = place / "out.csv"
    link.symlink_to(place / "real.csv")
    assert run(capsys, "predict", place / "model.jleaf", place / "flats.csv", "-o", link)[0] == 0
    assert link.is_symlink()
    assert len((place / "real.csv").read_text().splitlines()) == 41
    fifo = place / "pipe"
    os.mkfifo(fifo)
    line = fails(capsys, "predict", place / "model.jleaf", place / "flats.csv", "-o", fifo)
    assert "no regular file" in line
    with pytest.raises(OSError, match="no regular file"):
        jl.save(load_model(str(place / "model.jleaf")).model, fifo)


def test_long_names_fail_before_the_fit(capsys, place, monkeypatch):
    monkeypatch.chdir(place)
    line = fails(capsys, "fit", "nothing.csv", "-t", "price", "-o", "x" * 256)
    assert "File name too long" in line
    name = "x" * 251 + ".csv"
    assert run(capsys, "predict", "model.jleaf", "flats.csv", "-o", name)[0] == 0


# -- records ---------------------------------------------------------------------------------------


def test_damaged_records_are_one_clear_line(capsys, folder, tmp_path, monkeypatch):
    loaded = load_model(str(folder / "model.jleaf"))
    random = np.random.default_rng(0)
    monkeypatch.setattr(jl, "load", lambda path: loaded.model)
    counts = {0: 0, 1: 0}
    for _ in range(150):
        record = copy.deepcopy(loaded.record)
        collected = places(record, [])
        owner, key = collected[random.integers(len(collected))]
        if random.random() < 0.3:
            del owner[key]
        else:
            owner[key] = copy.deepcopy(ODD[random.integers(len(ODD))])
        monkeypatch.setattr(jl, "load_metadata", lambda path, record=record: {"cli": record})
        command = ["info", "report"][random.integers(2)]
        options = ["-o", tmp_path / "r.html"] if command == "report" else []
        code, _, err = run(capsys, command, folder / "model.jleaf", *options)
        counts[code] += 1
        assert code == 0 or "the record of the fit is damaged" in err, err
    assert min(counts.values()) > 10


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda r: r["target"].update(labels=["a"]), "target.labels must be none or two"),
        (lambda r: r["preparation"]["columns"][2].update(notation="%d%d"), "is '%d%d'"),
        (lambda r: r["preparation"]["columns"][2].update(kind="code"), "kind is 'code'"),
        (lambda r: r["preparation"]["columns"].pop(2), "are not those of the model"),
        (lambda r: r.update(format="1"), "format must be a whole number"),
        (lambda r: r.update(target=[]), "target.name is missing"),
    ],
)
def test_what_commands_act_on_is_checked(capsys, folder, monkeypatch, change, match):
    record = copy.deepcopy(load_model(str(folder / "model.jleaf")).record)
    change(record)
    monkeypatch.setattr(jl, "load_metadata", lambda path: {"cli": record})
    assert match in fails(capsys, "predict", folder / "model.jleaf", folder / "flats.csv")


# -- output ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_json_in_every_encoding(encoding):
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, errors="backslashreplace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        out.print_result({"größe": "rot😀", "file": "\udcff"}, "", is_json=True)
        stream.flush()
    assert json.loads(buffer.getvalue()) == {"größe": "rot😀", "file": "\udcff"}


def test_tables_are_utf8_whatever_the_encoding(monkeypatch):
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding="ascii"))
    out.show_data("größe\n😀\n")
    assert buffer.getvalue().decode() == "größe\n😀\n"


def test_closed_streams(folder, capsys, monkeypatch):
    """Python has None for streams that are closed when it starts."""
    model = folder / "model.jleaf"
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", None)
        assert "the standard input is closed" in fails(capsys, "predict", model, "-")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        assert main(["info", str(folder / "none.jleaf")]) == 1
        sys.stderr.close()
    assert capsys.readouterr().out == ""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["info", str(model)]) == 1
    assert "the standard output is closed" in capsys.readouterr().err


def test_names_of_files_that_are_not_utf8(folder, tmp_path, capsys):
    name = os.fsdecode(b"caf\xe9.jleaf")
    record = {**load_model(str(folder / "model.jleaf")).record, "source": name}
    model = load_model(str(folder / "model.jleaf")).model
    jl.save(model, tmp_path / name, metadata={"cli": record})
    assert run(capsys, "info", tmp_path / name)[0] == 0
    assert run(capsys, "report", tmp_path / name)[0] == 0
    assert "caf\\udce9" in (tmp_path / os.fsdecode(b"caf\xe9.html")).read_text()
    out.write_file(tmp_path / "page.html", render_report(record))


def test_terminal_escapes_are_shown_and_not_obeyed(capsys, tmp_path):
    data = tmp_path / "data.csv"
    data.write_text(as_csv(ROWS).replace("area", "\x1b[31mred\x9b\u202e", 1))
    _, _, err = run(capsys, "bench", data, "-t", "x\x1b[2J")
    assert "x\\x1b[2J" in err
    assert "\x1b" not in err
    out.print_result({}, "a\x1b[31m\x07\x9b\u202e\tb\nc\r", is_json=False)
    assert capsys.readouterr().out == "a\\x1b[31m\\x07\\x9b\\u202e\tb\nc\\r\n"
    assert "\n" not in out.text_table([["a\nb"]])


def test_formulas_in_tables(capsys, folder, tmp_path):
    rows = [["=cmd|' /C calc'!A1", *row[1:]] for row in ROWS]
    (tmp_path / "new.csv").write_text(as_csv(rows))
    arguments = ["predict", folder / "model.jleaf", tmp_path / "new.csv", "--id", "id"]
    code, shown, _ = run(capsys, *arguments)
    assert (code, shown.splitlines()[1][0]) == (0, "=")
    code, shown, _ = run(capsys, *arguments, "--escape-formulas", "--id", "area")
    cells = shown.splitlines()[1].split(",")
    assert (cells[0][:2], cells[1]) == ("'=", ROWS[0][3])


# -- tables ----------------------------------------------------------------------------------------


def read(path, content, **options):
    path.write_bytes(content)
    return tables.read_table(str(path), **options)


def test_what_compressed_files_unpack_to_is_limited(tmp_path, monkeypatch):
    path = tmp_path / "data.csv.gz"
    assert tables._UNPACKED == 2**28
    bomb = gzip.compress(b"a,b\n" + b"1,2\n" * 2**19)
    assert len(bomb) < 2**14
    assert len(read(path, bomb)) == 2**19
    with pytest.raises(out.CliError, match="more than 1 MB"):
        read(path, bomb, max_unpacked=1)
    monkeypatch.setattr(tables, "_UNPACKED", 2**20)
    with pytest.raises(out.CliError, match=r"more than 1 MB.*--max-unpacked"):
        read(path, bomb)


def test_what_parquet_files_unpack_to_is_limited(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"a": np.zeros(2**20)}), path)
    assert len(tables.read_table(str(path))) == 2**20
    with pytest.raises(out.CliError, match="more than 7 MB"):
        tables.read_table(str(path), max_unpacked=7)


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_encodings_without_a_mark_are_named(tmp_path, name):
    path = tmp_path / "data.csv"
    content = as_csv(ROWS).encode(name)
    with pytest.raises(out.CliError, match=f"--encoding {name}"):
        read(path, content)
    assert len(read(path, content, encoding=name)) == 40
    assert len(read(path, as_csv(ROWS).encode(name[:6]))) == 40  # with a mark
    with pytest.raises(out.CliError, match=f"--encoding {name}"):  # bytes that are not UTF-8
        read(path, "größe,y\n1,2\n".encode(name))


def test_nul_characters_are_named(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    with pytest.raises(out.CliError, match=r"line 2 holds a NUL character.*remove it"):
        read(tmp_path / "data.csv", b"a,b\nx\0,1\n")
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"b\0": [1]}), path)
    with pytest.raises(out.CliError, match="has a NUL character: rename it"):
        tables.read_table(str(path))
    pq.write_table(pa.table({"b": ["x\0\0", "x"]}), path)
    assert tables.read_table(str(path)).column("b").values.tolist() == ["x", "x"]


def test_many_columns_are_read_in_linear_time(tmp_path):
    names = [f"column {j}" for j in range(20_000)]
    content = ",".join(names) + "\n" + ",".join("1" * len(names)) + "\n"
    start = time.perf_counter()
    table = read(tmp_path / "data.csv", content.encode())
    assert [table.column(name).name for name in names] == names
    assert time.perf_counter() - start < 3


def test_times_with_nanoseconds(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "data.parquet"
    times = np.array(["2024-01-02T03:04:05.123456789", "NaT"], "datetime64[ns]")
    pq.write_table(pa.table({"t": times}), path)
    values = tables.read_table(str(path)).column("t").values
    assert values[0] == np.datetime64("2024-01-02T03:04:05.123456")
    assert np.isnat(values[1])


def test_dates_that_are_out_of_range_in_utc():
    texts = ["0001-01-01T00:00:00+05:00", "9999-12-31T23:00:00-05:00"]
    assert detect_format(texts) is None
    dates = parse_dates(np.array([*texts, "2024-01-02"], object), "iso")
    assert np.isnan(dates).tolist() == [True, True, False]


def test_targets_with_too_many_digits(capsys, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,y\n" + "".join(f"{k},{2**60 + k}\n" for k in range(30)))
    assert "as far as 16 digits tell: subtract a constant" in fails(capsys, "fit", path, "-t", "y")


def test_errors_of_very_large_targets():
    from jointleaf.cli._preparation import Rows

    truth = np.array([1.0, 2.0, 4.0, 3.0])
    predicted = np.array([1.5, 2.0, 3.0, 3.0])
    for unit in (1.0, 1e307):
        errors = measures(Rows(None, unit * truth), unit * predicted)
        assert errors["rmse"] == pytest.approx(unit * np.sqrt(1.25 / 4))
        assert errors["mae"] == pytest.approx(unit * 1.5 / 4)
        assert errors["r2"] == pytest.approx(0.75)
