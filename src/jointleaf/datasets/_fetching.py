"""Where files of data sets are looked for, and how they are downloaded."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

__all__ = ["Folder", "data_folder", "download", "find_file", "locate"]

#: A folder as users name it.
Folder = str | os.PathLike[str]


def data_folder() -> Path:
    """Return the folder of downloaded data sets.

    It is the environment variable ``JOINTLEAF_DATA``, or else ``jointleaf`` in the user's
    usual cache folder. It need not exist yet.
    """
    variable = os.environ.get("JOINTLEAF_DATA")
    if variable:
        return Path(variable).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jointleaf"


def find_file(
    names: Sequence[str], folder: Folder | None, subfolders: Sequence[str], cache: Folder | None
) -> Path | None:
    """Return the first of the files `names` that exists, or None.

    Parameters
    ----------
    names : sequence of str
        Names of files with the same content, the preferred one first.
    folder : path or None
        The folder of the user, which goes before `cache`.
    subfolders : sequence of str
        Folders in `folder` that are looked at, ``""`` for itself.
    cache : path or None
        The folder of downloads; None is `data_folder`.
    """
    places = [_cache(cache)]
    if folder is not None:
        places = [Path(folder).expanduser() / sub for sub in subfolders] + places
    paths = (place / name for place in places for name in names)
    return next((path for path in paths if path.is_file()), None)


def locate(
    names: Sequence[str],
    folder: Folder | None,
    subfolders: Sequence[str],
    cache: Folder | None,
    **options: Any,
) -> Path:
    """Return the path of a file, which is downloaded as ``names[0]`` if need be.

    Parameters are those of `find_file`, options those of `download`.
    """
    path = find_file(names, folder, subfolders, cache)
    if path is None:
        path = _cache(cache) / names[0]
        download(path, **options)
    return path


def _cache(cache: Folder | None) -> Path:
    return data_folder() if cache is None else Path(cache).expanduser()


def download(
    path: Path, *, address: str, timeout: float, what: str, unknown: str, hint: str = ""
) -> None:
    """Fetch a file; `path` appears complete or not at all.

    Parameters
    ----------
    path : Path
        Where it goes; its folder is made.
    address : str
        Where it is.
    timeout : float
        Seconds to wait for the server.
    what, unknown, hint : str
        For errors: what is fetched, the message where the server does not know it, and what
        else may help.
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
        f"({cause}): go online, or put {path.name} into a folder and pass it as folder="
    )
