"""`jointleaf fit` on a folder of Parquet files: a sample is detected, all rows are fitted."""

import json

import numpy as np
import pandas as pd
import pytest

import jointleaf
from jointleaf.cli import _folders, main


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "houses"
    path.mkdir()
    for part in range(3):
        frame = pd.DataFrame(rng.standard_normal((400, 2)), columns=["size", "age"])
        frame["city"] = np.where(rng.random(400) < 0.5, "Rome", "Oslo")
        frame["built"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(
            rng.integers(0, 900, 400), "D"
        )
        frame["weight"] = rng.integers(1, 4, 400)
        frame["price"] = np.abs(frame["size"]) + (frame["city"] == "Rome") * frame["age"]
        frame.loc[::50, "age"] = np.nan
        frame.loc[::100, "price"] = np.nan
        frame.to_parquet(path / f"{part}.parquet")
    return path


def test_all_rows_of_a_folder_are_fitted(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = {}

    def fit_source(*args, **settings):
        given.update(settings)
        return jointleaf.fit_source(*args, **settings)

    monkeypatch.setattr(_folders, "fit_source", fit_source)
    options = ["--sample-rows", "300", "--checkpoint", "state", "--weight", "weight", "--json"]
    assert main(["fit", str(folder), "-t", "price", *options]) == 0
    assert given == {"sample_rows": 300, "checkpoint": "state"}
    record = json.loads(capsys.readouterr().out)
    assert record["n_rows"] == 3 * 396  # without those that have no target
    model = jointleaf.load("houses.jleaf")
    table = pd.read_parquet(folder).drop(columns=["price", "weight"])
    table.to_parquet("new.parquet")
    assert {"size", "age", "city"} <= set(model.feature_names_in_)
    price = pd.read_parquet(folder)["price"].to_numpy()
    assert main(["predict", "houses.jleaf", "new.parquet", "-o", "predicted.csv"]) == 0
    predicted = pd.read_csv("predicted.csv")["prediction"].to_numpy()
    has_price = np.isfinite(price)
    error = np.mean((predicted - price)[has_price] ** 2) / np.var(price[has_price])
    assert error < 0.2


def test_what_a_folder_cannot_be(folder, tmp_path, monkeypatch, capsys):
    def refused(message, *options):
        assert main(["fit", str(folder), "-t", "price", *options]) != 0
        assert message in capsys.readouterr().err

    refused("a folder is fitted in batches, for which --group is not written", "--group", "city")
    assert main(["fit", str(folder), "-t", "cost"]) != 0
    assert "has no column 'cost'" in capsys.readouterr().err
    pd.DataFrame({"price": ["much"]}).to_parquet(folder / "9.parquet")
    refused("write all files with the same columns and types")
    assert main(["fit", f"{tmp_path}/nof/", "-t", "price"]) != 0
    assert "nof/: there is no such folder" in capsys.readouterr().err
    (tmp_path / "one.csv").write_text("price,size\n1,2\n")
    for option in ("--sample-rows", "--checkpoint"):
        assert main(["fit", str(tmp_path / "one.csv"), "-t", "price", option, "7"]) != 0
        assert f"{option} 7 is for folders of Parquet files, and" in capsys.readouterr().err
    (tmp_path / "nothing").mkdir()
    assert main(["fit", str(tmp_path / "nothing"), "-t", "price"]) != 0
    assert "is a folder without files: give a file" in capsys.readouterr().err
    (tmp_path / "nothing" / "rows.csv").write_text("price,size\n1,2\n")
    assert main(["fit", str(tmp_path / "nothing"), "-t", "price"]) != 0
    assert "holds a file that is not Parquet" in capsys.readouterr().err
