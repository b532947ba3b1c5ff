"""Where files of data sets are looked for, and how they are downloaded."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

__all__ = ["Folder", "cache_folder", "data_folder", "download", "find_file"]

#: A folder as users give it.
Folder = str | os.PathLike[str]


def data_folder() -> Path:
    """Give the folder in which downloaded data sets are kept.

    It is the environment variable ``JOINTLEAF_DATA``, or else ``jointleaf`` in the user's
    usual cache folder. It need not exist yet.
    """
    given = os.environ.get("JOINTLEAF_DATA")
    if given:
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jointleaf"


def cache_folder(cache: Folder | None) -> Path:
    """Give the folder of downloads: `cache`, or else what `data_folder` gives."""
    return data_folder() if cache is None else Path(cache).expanduser()


def find_file(
    names: Sequence[str], folder: Folder | None, subfolders: Sequence[str], kept: Path
) -> Path | None:
    """Give the first of the files `names` that there is, or None.

    Parameters
    ----------
    names : sequence of str
        Names of files with the same content, the preferred one first.
    folder : path or None
        The folder of the user, which goes before `kept`.
    subfolders : sequence of str
        Folders in `folder` that are looked at, ``""`` for itself.
    kept : Path
        The folder of downloads.
    """
    places = [kept]
    if folder is not None:
        places = [Path(folder).expanduser() / sub for sub in subfolders] + places
    paths = (place / name for place in places for name in names)
    return next((path for path in paths if path.is_file()), None)


def download(
    address: str, path: Path, timeout: float, *, what: str, unknown: str, hint: str = ""
) -> None:
    """Fetch a file; `path` appears complete or not at all.

    Parameters
    ----------
    address : str
        Where it is.
    path : Path
        Where it goes; its folder is made.
    timeout : float
        Seconds to wait for the server.
    what, unknown, hint : str
        For errors: what is fetched, what to say if the server does not know it, and what else
        may help.
    """
    try:
        with urlopen(address, timeout=timeout) as answer:
            content = answer.read()
    except HTTPError as cause:
        if cause.code == 404:
            raise FileNotFoundError(f"{unknown} (looked at {address})") from cause
        raise ConnectionError(_no_download(what, path, address, cause) + hint) from cause
    except (URLError, OSError) as cause:
        raise ConnectionError(_no_download(what, path, address, cause) + hint) from cause
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
        part.write(content)
    try:
        os.replace(part.name, path)
    except BaseException:
        os.unlink(part.name)
        raise


def _no_download(what: str, path: Path, address: str, cause: Exception) -> str:
    return (
        f"{what} is not in {path.parent} and cannot be downloaded from {address} "
        f"({cause}). Go online, or put {path.name} into a folder and give it as folder=."
    )
