"""Groups and times in the shell: what is validated on is of other groups, or comes later."""

import json

import numpy as np
import pytest

import jointleaf
from cli_data import HEADER, as_csv, fails, make_rows, run
from jointleaf.cli import _validation
from jointleaf.cli._splits import group_splits, time_splits
from jointleaf.partitions import VoronoiPartitioner
from jointleaf.partitions._factory import PARTITIONERS

SOLD, CITY = HEADER.index("sold"), HEADER.index("city")
GROUPED = (*HEADER, "street")


@pytest.fixture
def table(tmp_path):
    rows = [[*row, f"street {k % 9}"] for k, row in enumerate(make_rows())]
    (tmp_path / "flats.csv").write_text(as_csv(rows, GROUPED))
    return tmp_path / "flats.csv"


@pytest.fixture
def fits(monkeypatch):
    """Rows, groups and splits of every fit of jointleaf."""
    seen, fit = [], jointleaf.JOPLEnRegressor.fit

    def see(self, X, y, sample_weight=None, **options):
        seen.append((X, options.get("groups"), self.cv))
        return fit(self, X, y, sample_weight, **options)

    monkeypatch.setattr(jointleaf.JOPLEnRegressor, "fit", see)
    monkeypatch.setattr(_validation, "_FOLDS", 3)  # for speed
    return seen


def test_groups(table, fits, capsys):
    path = table.with_name("m.jleaf")
    code, out, err = run(
        capsys, "fit", table, "-t", "price", "--group", "street", "-o", path, "--json"
    )
    assert code == 0, err
    method = json.loads(out)["validation"]["method"]
    assert method == "by 3-fold cross-validation over groups of all 70 rows"
    (_, whole, _), *parts = fits
    assert len(np.unique(whole)) == 9
    for _, groups, _ in parts:  # each trained on whole groups
        counts = np.bincount(groups, minlength=9)
        assert ((counts == 0) | (counts == np.bincount(whole))).all()
    assert "street" not in jointleaf.load(path).feature_names_in_
    (street,) = [c for c in json.loads(out)["columns"] if c["name"] == "street"]
    assert (street["kind"], street["holds"], street["used"]) == ("group", "group", False)
    new = table.with_name("new.csv")
    new.write_text(as_csv(make_rows(5, seed=1)))
    assert run(capsys, "predict", path, new)[0] == 0


def test_times(table, fits, capsys):
    path = table.with_name("m.jleaf")
    code, out, err = run(
        capsys, "fit", table, "-t", "price", "--time", "sold", "-o", path, "--json"
    )
    assert code == 0, err
    assert json.loads(out)["validation"]["method"].startswith("on the last 24 rows (34%) by time")
    assert len(fits) == 2
    days = [X["sold: day number"].to_numpy() for X, _, _ in fits]
    assert len(days[1]) == 46
    assert days[1].max() < np.sort(days[0])[46]
    for times, (_, _, cv) in zip(days, fits, strict=True):
        assert len(cv) == 3
        for train, valid in cv:
            assert times[train].max() < times[valid].min()
    assert jointleaf.load(path).cv is None


def test_bench_and_select_take_them_too(table, fits, capsys, monkeypatch):
    monkeypatch.setitem(PARTITIONERS, "voronoi", lambda: VoronoiPartitioner(5, 4))  # for speed
    code, out, err = run(capsys, "bench", table, "-t", "price", "--time", "sold", "--folds", 2)
    assert code == 0, err
    assert "by time, in 2 steps" in out
    code, _, err = run(capsys, "select", table, "-t", "price", "--group", "street", "--json")
    assert code == 0, err
    assert len(np.unique(fits[-1][1])) == 9


# -- splits ------------------------------------------------------------------------------------


def test_equal_times_are_on_one_side():
    times = np.array([0, 0, 1, 1, 1, 1, 2, 2, 3, 3.0])
    for n_splits, n_parts in ((1, 5), (3, 4), (9, 10)):
        for train, valid in time_splits(times, n_splits, n_parts):
            assert times[train].max() < times[valid].min()
    ((train, valid),) = time_splits(np.append(np.zeros(9), 1.0), 3, 6)  # most at one time
    assert (len(train), valid.tolist()) == (9, [9])


def test_every_group_is_held_out_once():
    groups = np.random.default_rng(0).integers(0, 7, 50)
    pairs = group_splits(groups, 3, None)
    assert sorted(np.concatenate([valid for _, valid in pairs])) == list(range(50))
    assert not any(set(groups[train]) & set(groups[valid]) for train, valid in pairs)


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--group", "price"), "--group 'price' is the target: name another column"),
        (("--time", "price"), "--time 'price' is the target: name another column"),
        (("--group", "street", "--time", "sold"), "--group and --time are two ways"),
        (("--group", "country"), "--group 'country' has all rows in one group"),
        (("--time", "city"), "--time 'city' needs dates or numbers in every row, but it holds"),
        (("--time", "area"), "--time 'area' is missing in row 4: fill it in"),
        (("--group", "road"), "road"),
    ],
)
def test_columns_that_cannot_be(table, capsys, options, message):
    assert message in fails(capsys, "fit", table, "-t", "price", *options)


def test_splits_that_train_on_one_class_are_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_validation, "_FOLDS", 2)
    rng = np.random.default_rng(0)
    rows = [[f"{rng.normal():.3f}", "rare" if k == 4 else "usual"] for k in range(30)]
    (tmp_path / "one.csv").write_text(as_csv(rows, ("a", "kind")))
    model = tmp_path / "m.jleaf"
    code, out, err = run(capsys, "fit", tmp_path / "one.csv", "-t", "kind", "-o", model)
    assert code == 0, err
    assert "without 1 of 2 splits that train on one class" in out
