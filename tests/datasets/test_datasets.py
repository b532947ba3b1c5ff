"""The PMLB loader: where it looks, what it reads, how it fails. No network."""

import gzip
import hashlib
import io
from urllib.error import HTTPError, URLError

import numpy as np
import pytest

from jointleaf.datasets import _fetching as fetching
from jointleaf.datasets import data_folder, load_pmlb

TEXT = "a\ttarget\tb c\n1.5\t1\t-2\n2.5\t0\t4e3\n0\t1\t7\n"


def packed(text=TEXT):
    return gzip.compress(text.encode(), mtime=0)


@pytest.fixture
def no_network(monkeypatch):
    def reject(address, timeout):
        raise URLError("no route to host")

    monkeypatch.setattr(fetching, "urlopen", reject)


@pytest.mark.parametrize("sub", ["", "pmlb", "pmlb_large", "pmlb_more"])
def test_local_folder(sub, tmp_path, no_network):
    place = tmp_path / "here" / sub
    place.mkdir(parents=True)
    (place / "tiny.tsv.gz").write_bytes(packed())
    bunch = load_pmlb("tiny", folder=tmp_path / "here", cache=tmp_path / "cache")
    np.testing.assert_array_equal(bunch.data, [[1.5, -2], [2.5, 4000], [0, 7]])
    assert bunch.data.dtype == np.float64
    np.testing.assert_array_equal(bunch.target, [1, 0, 1])
    assert bunch.target.dtype == np.int64
    assert bunch.feature_names == ["a", "b c"]
    assert bunch.name == "tiny"
    assert bunch.filename == str(place / "tiny.tsv.gz")
    X, y = load_pmlb("tiny", folder=str(tmp_path / "here"), return_X_y=True)
    np.testing.assert_array_equal(X, bunch.data)
    np.testing.assert_array_equal(y, bunch.target)
    assert not (tmp_path / "cache").exists()


def test_fractional_target_and_one_row(tmp_path, no_network):
    (tmp_path / "one.tsv.gz").write_bytes(packed("a\tb\ttarget\n1\t2\t0.25\n"))
    X, y = load_pmlb("one", folder=tmp_path, return_X_y=True)
    assert X.shape == (1, 2)
    assert y.dtype == np.float64
    assert y[0] == 0.25


def test_download_once_into_the_cache(tmp_path, monkeypatch):
    asked = []

    def answer(address, timeout):
        asked.append((address, timeout))
        return io.BytesIO(packed())

    monkeypatch.setattr(fetching, "urlopen", answer)
    monkeypatch.setenv("JOINTLEAF_DATA", str(tmp_path / "kept"))
    first = load_pmlb("tiny", timeout=3.0)
    second = load_pmlb("tiny", folder=tmp_path)  # not in the folder, but in the cache
    base = "https://github.com/EpistasisLab/pmlb/raw/master/datasets"
    assert asked == [(f"{base}/tiny/tiny.tsv.gz", 3.0)]
    np.testing.assert_array_equal(first.data, second.data)
    files = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert files == ["tiny.tsv.gz", "tiny.tsv.gz.sha256"]


def test_a_download_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    class Broken(io.BytesIO):
        def read(self, *args):
            raise TimeoutError("timed out")

    monkeypatch.setattr(fetching, "urlopen", lambda address, timeout: Broken())
    with pytest.raises(ConnectionError, match="timed out"):
        load_pmlb("tiny", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(source, target):
        raise OSError("no space left")

    monkeypatch.setattr(fetching, "urlopen", lambda address, timeout: io.BytesIO(packed()))
    monkeypatch.setattr(fetching.os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        load_pmlb("tiny", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_offline(tmp_path, no_network):
    with pytest.raises(ConnectionError, match=r"'tiny' is not in .*no route.*folder="):
        load_pmlb("tiny", cache=tmp_path)


@pytest.mark.parametrize(("code", "error"), [(404, FileNotFoundError), (503, ConnectionError)])
def test_server_errors(code, error, tmp_path, monkeypatch):
    def answer(address, timeout):
        raise HTTPError(address, code, "sorry", None, None)

    monkeypatch.setattr(fetching, "urlopen", answer)
    with pytest.raises(error, match="tiny"):
        load_pmlb("tiny", cache=tmp_path)


@pytest.mark.parametrize("name", ["../secret", "a/b", "", None, 3])
def test_names_that_are_no_names(name, tmp_path, no_network):
    with pytest.raises(ValueError, match="is no name of a PMLB data set"):
        load_pmlb(name, cache=tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"not packed",
        packed()[:-12],
        packed("a\tb\n1\t2\n"),
        packed("a\ttarget\n1\tx\n"),
        packed("a\ttarget\n1\t2\t3\n"),
        packed("a\ttarget\n"),
    ],
    ids=["not packed", "cut off", "no target", "a word", "too wide", "no rows"],
)
def test_files_that_cannot_be_read(content, tmp_path, no_network):
    (tmp_path / "odd.tsv.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"odd\.tsv\.gz.*downloaded again"):
        load_pmlb("odd", cache=tmp_path)


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("JOINTLEAF_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.delenv("JOINTLEAF_DATA")
    monkeypatch.setattr(fetching.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert data_folder() == tmp_path / "x" / "jointleaf"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder().parts[-2:] == (".cache", "jointleaf")


def test_downloads_are_limited_and_secure(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "urlopen", lambda address, timeout: io.BytesIO(packed()))
    options = {"timeout": 1.0, "what": "the file", "unknown": ""}
    with pytest.raises(ConnectionError, match=r"http://x.org/a is no HTTPS address"):
        fetching.download(tmp_path / "a", address="http://x.org/a", **options)

    class Elsewhere(io.BytesIO):
        url = "http://y.org/a"

    with monkeypatch.context() as patch:
        patch.setattr(fetching, "urlopen", lambda address, timeout: Elsewhere(packed()))
        with pytest.raises(ConnectionError, match=r"http://y.org/a is no HTTPS address"):
            fetching.download(tmp_path / "a", address="https://x.org/a", **options)
    monkeypatch.setattr(fetching, "MAX_BYTES", 10)
    with pytest.raises(ConnectionError, match="more than 10 bytes"):
        fetching.download(tmp_path / "a", address="https://x.org/a", **options)
    assert list(tmp_path.iterdir()) == []


def test_downloads_stay_what_they_were(tmp_path, monkeypatch):
    content = packed()
    monkeypatch.setattr(fetching, "urlopen", lambda address, timeout: io.BytesIO(content))
    load_pmlb("tiny", cache=tmp_path)
    path, checksum = tmp_path / "tiny.tsv.gz", tmp_path / "tiny.tsv.gz.sha256"
    known = f"{hashlib.sha256(content).hexdigest()}  tiny.tsv.gz\n"
    assert checksum.read_text() == known
    load_pmlb("tiny", cache=tmp_path)
    other = packed(TEXT.replace("1.5", "9.5"))
    path.write_bytes(other)  # a table that can be read
    with pytest.raises(ValueError, match=r"not what was downloaded, by tiny\.tsv\.gz\.sha256"):
        load_pmlb("tiny", cache=tmp_path)
    path.unlink()
    content = other
    with pytest.raises(ConnectionError, match=r"another than the one before; delete .*sha256"):
        load_pmlb("tiny", cache=tmp_path)
    assert not path.exists()
    assert checksum.read_text() == known
    for text in ("", "no checksum", "\xff"):
        checksum.write_text(text, encoding="latin-1")
        with pytest.raises(ConnectionError, match="another than the one before"):
            load_pmlb("tiny", cache=tmp_path)
    checksum.unlink()  # as the message says
    assert load_pmlb("tiny", cache=tmp_path).data[0, 0] == 9.5
    assert checksum.read_text() != known


def test_own_files_need_no_checksum(tmp_path, no_network):
    (tmp_path / "tiny.tsv.gz").write_bytes(packed())
    load_pmlb("tiny", folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.tsv.gz"]
