"""Models that the shell writes as SQL and as an ONNX graph."""

import sqlite3

import numpy as np
import pandas as pd
import pytest

from cli_data import HEADER, as_csv, fails, make_rows, run
from jointleaf.cli import main
from jointleaf.cli._using import load_model


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("export")
    (path / "flats.csv").write_text(as_csv(make_rows(70)))
    (path / "new.csv").write_text(as_csv([row[:-1] for row in make_rows(9, seed=1)], HEADER[:-1]))
    given = ["fit", path / "flats.csv", "-t", "price", "--no-compare", "--no-report"]
    assert main([*map(str, given), "-o", str(path / "flats.jleaf")]) == 0
    return path / "flats.jleaf"


def test_sql_predicts_what_the_model_predicts(capsys, model_file, tmp_path):
    model, rows = load_model(str(model_file)).model, pd.read_csv(model_file.parent / "new.csv")
    sql = tmp_path / "flats.sql"
    code, out, _ = run(capsys, "export", model_file, sql, "--table", "flats")
    assert code == 0
    assert out.startswith(f"wrote {sql}, which takes {model.feature_names_in_[0]}, ")
    database = sqlite3.connect(":memory:")
    model.columns_.preparation.transform(rows).to_sql("flats", database, index=False)
    found = [row[0] for row in database.execute(sql.read_text())]
    np.testing.assert_allclose(found, model.predict(rows), rtol=1e-9)


def test_a_graph_takes_the_columns_that_the_model_sees(capsys, model_file, tmp_path):
    onnx = pytest.importorskip("onnx")
    graph = tmp_path / "flats.onnx"
    assert run(capsys, "export", model_file, graph)[0] == 0
    inputs = {given.name for given in onnx.load(graph).graph.input}
    assert inputs == set(load_model(str(model_file)).model.feature_names_in_)


def test_other_endings_are_refused(capsys, model_file, tmp_path):
    line = fails(capsys, "export", model_file, tmp_path / "flats.txt")
    assert line.endswith("name a file that ends in .onnx or .sql")
