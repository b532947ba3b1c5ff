"""The loaders of data with several targets or tasks. No network and no real data."""

import io
from urllib.error import HTTPError, URLError

import numpy as np
import pytest
from scipy.io import savemat

from jointleaf.datasets import (
    MULAN_TARGETS,
    load_chem_tasks,
    load_mulan,
    load_sarcos,
)
from jointleaf.datasets import (
    _fetching as fetching,
)

ARFF = """% The kinds of lines that are in the files of Mulan
@relation 'some-weka.filters.unsupervised.attribute.Reorder-R1,2,3'

@attribute "'price'l1" NUMERIC
@attribute Land=1 numeric
@attribute same numeric
@attribute kind {A,B,C}
@attribute level {1,2, 3}
@attribute t+fut_1 numeric\x20
@attribute Target_2 real

@data
  1.5, 0, 7, C, 1, 3, 4
2.5,?,7,B,2,3.5,5
3,1,7,?,2,4,5
"""


@pytest.fixture
def no_network(monkeypatch):
    def reject(address, timeout):
        raise URLError("no route to host")

    monkeypatch.setattr(fetching, "urlopen", reject)


@pytest.fixture
def server(monkeypatch):
    """Give files by address; the addresses that were asked for are kept."""
    files, asked = {}, []

    def answer(address, timeout):
        asked.append(address)
        if address not in files:
            raise HTTPError(address, 404, "not found", None, None)
        return io.BytesIO(files[address])

    monkeypatch.setattr(fetching, "urlopen", answer)
    return files, asked


def sarcos_rows(n, start=0.0):
    return start + np.arange(28.0 * n).reshape(n, 28)


def mat(name, table):
    file = io.BytesIO()
    savemat(file, {name: table})
    return file.getvalue()


BASE = "https://gaussianprocess.org/gpml/data"


def test_sarcos_download_once(server, tmp_path):
    files, asked = server
    train, test = sarcos_rows(5), sarcos_rows(2, start=1e4)
    files[f"{BASE}/sarcos_inv.mat"] = mat("sarcos_inv", train)
    files[f"{BASE}/sarcos_inv_test.mat"] = mat("sarcos_inv_test", test)
    bunch = load_sarcos(cache=tmp_path)
    pooled = np.concatenate([train, test])
    np.testing.assert_array_equal(bunch.data, pooled[:, :21])
    np.testing.assert_array_equal(bunch.target, pooled[:, 21:])
    assert bunch.data.flags.c_contiguous
    assert len(bunch.feature_names) == 21
    assert bunch.feature_names[::7] == ["position 1", "velocity 1", "acceleration 1"]
    assert bunch.target_names[6] == "torque 7"
    X, Y = load_sarcos(cache=tmp_path, part="train", return_X_y=True)
    np.testing.assert_array_equal(X, train[:, :21])
    np.testing.assert_array_equal(Y, train[:, 21:])
    assert load_sarcos(cache=tmp_path, part="test").target.shape == (2, 7)
    assert asked == [f"{BASE}/sarcos_inv.mat", f"{BASE}/sarcos_inv_test.mat"]


@pytest.mark.parametrize("sub", ["", "multitask"])
def test_sarcos_with_only_the_test_part(sub, tmp_path, no_network):
    (tmp_path / sub).mkdir(exist_ok=True)
    rows = sarcos_rows(3)
    np.savez(tmp_path / sub / "sarcos_test.npz", X=rows[:, :21], Y=rows[:, 21:])
    X, Y = load_sarcos(folder=tmp_path, cache=tmp_path / "c", part="test", return_X_y=True)
    np.testing.assert_array_equal(np.hstack([X, Y]), rows)
    for part in ("all", "train"):
        with pytest.raises(ConnectionError) as error:
            load_sarcos(folder=tmp_path, cache=tmp_path / "c", part=part)
        message = str(error.value)
        for words in (f"part='{part}'", "sarcos_inv.mat", "44,484"):
            assert words in message


def test_sarcos_errors(server, tmp_path):
    with pytest.raises(ValueError, match="part='val' is not known: use 'all', 'train' or 'test'"):
        load_sarcos(part="val")
    with pytest.raises(FileNotFoundError, match=r"no longer has sarcos_inv\.mat"):
        load_sarcos(cache=tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"not a file", mat("other", sarcos_rows(2)), mat("sarcos_inv", np.ones((4, 5)))],
    ids=["garbage", "another name", "too narrow"],
)
def test_sarcos_files_that_cannot_be_read(content, tmp_path, no_network):
    (tmp_path / "sarcos_inv.mat").write_bytes(content)
    with pytest.raises(ValueError, match=r"sarcos_inv\.mat.*downloaded again"):
        load_sarcos(folder=tmp_path, part="train")


def test_mulan_reads_arff(server, tmp_path, monkeypatch):
    files, asked = server
    address = "https://github.com/tsoumakas/mulan/raw/master/data/multi-target/edm.arff"
    files[address] = ARFF.encode()
    bunch = load_mulan("edm", cache=tmp_path)
    nan = np.nan
    # A category that is a number stays one; others become flags; what never varies is left out.
    assert bunch.feature_names == ["price'l1", "Land=1", "kind=B", "kind=C", "level"]
    np.testing.assert_array_equal(
        bunch.data, [[1.5, 0, 0, 1, 1], [2.5, nan, 1, 0, 2], [3, 1, nan, nan, 2]]
    )
    assert bunch.target_names == ["t+fut_1", "Target_2"]
    np.testing.assert_array_equal(bunch.target, [[3, 4], [3.5, 5], [4, 5]])
    X, Y = load_mulan("edm", cache=tmp_path, return_X_y=True)
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(Y, bunch.target)
    assert asked == [address]


@pytest.mark.parametrize("sub", ["", "mtr", "multitask/mtr"])
def test_mulan_reads_npz(sub, tmp_path, no_network):
    (tmp_path / sub).mkdir(exist_ok=True, parents=True)
    missing = np.zeros((4, 2), bool)
    missing[1, 0] = True
    np.savez(
        tmp_path / sub / "enb.npz",
        X=np.ones((4, 2)),
        Y=np.arange(8).reshape(4, 2),
        feature_names=np.array(["a", "b"]),
        target_names=np.array(["y", "z"]),
        missing_mask=missing,
    )
    bunch = load_mulan("enb", folder=tmp_path)
    np.testing.assert_array_equal(np.isnan(bunch.data), missing)
    assert (bunch.feature_names, bunch.target_names) == (["a", "b"], ["y", "z"])
    assert bunch.target.dtype == np.float64


def test_mulan_errors(tmp_path, no_network):
    assert len(MULAN_TARGETS) == 10
    for name in ("none", None, ["enb"]):
        with pytest.raises(ValueError, match=r"name=.* is not known: use one of andro, atp1d"):
            load_mulan(name)
    with pytest.raises(ConnectionError, match=r"'enb' is not in .*no route.*enb\.arff.*folder="):
        load_mulan("enb", cache=tmp_path)


@pytest.mark.parametrize(
    "content",
    ["", "nothing", ARFF[:-30], ARFF.replace("3.5,5", "?,5"), ARFF.replace("real", "string")],
    ids=["empty", "garbage", "cut off", "a target is missing", "a target is text"],
)
def test_mulan_files_that_cannot_be_read(content, tmp_path, no_network):
    (tmp_path / "edm.arff").write_text(content)
    with pytest.raises(ValueError, match=r"edm\.arff.*downloaded again"):
        load_mulan("edm", folder=tmp_path)


def write_chem(place, **changes):
    place.mkdir(parents=True, exist_ok=True)
    (place / "descriptors.txt").write_text("d1\nd 2\nd3\n")
    arrays = {"X": np.eye(3, dtype=np.float32), "y": np.arange(3), "smiles": np.array([*"CNO"])}
    np.savez(place / "mol_b.npz", **(arrays | changes))
    np.savez(place / "mol_a.npz", **{name: array[:2] for name, array in arrays.items()})


@pytest.mark.parametrize("sub", ["", "chem", "multitask/chem"])
def test_chem_tasks(sub, tmp_path):
    write_chem(tmp_path / sub)
    tasks = load_chem_tasks(tmp_path)
    assert list(tasks) == ["mol_a", "mol_b"]
    task = tasks["mol_b"]
    np.testing.assert_array_equal(task.data, np.eye(3))
    assert task.data.dtype == np.float32
    assert task.target.dtype == np.float64
    assert task.smiles.tolist() == ["C", "N", "O"]
    assert task.feature_names == ["d1", "d 2", "d3"]
    assert tasks["mol_a"].data.shape == (2, 3)


def test_chem_needs_a_folder(tmp_path):
    with pytest.raises(
        ValueError, match=r"folder=None, and .*cannot be downloaded: pass the folder .*AqSolDB"
    ):
        load_chem_tasks()
    with pytest.raises(FileNotFoundError, match=r"has no descriptors\.txt.*PHYSPROP"):
        load_chem_tasks(tmp_path)
    (tmp_path / "descriptors.txt").write_text("d1\n")
    with pytest.raises(FileNotFoundError, match=r"no TASK\.npz"):
        load_chem_tasks(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"y": np.arange(4)}, {"X": np.eye(4)[:3]}, {"smiles": np.array(["C", None, 3], object)}],
    ids=["too many targets", "too many columns", "objects"],
)
def test_chem_files_that_do_not_fit(changes, tmp_path):
    write_chem(tmp_path, **changes)
    with pytest.raises(ValueError, match=r"mol_b\.npz is not a task that can be read"):
        load_chem_tasks(tmp_path)
