"""Where files of data sets are looked for, and how they are downloaded."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

#: A folder as users name it.
Folder = str | os.PathLike[str]


#: No data set that is offered here is nearly as large.
MAX_BYTES = 2**28


def data_folder() -> Path:
    """Return the folder of downloaded data sets.

    It is the environment variable ``JOINTLEAF_DATA``, or else ``jointleaf`` in the user's
    usual cache folder. It need not exist yet.

    Next to every download stands ``NAME.sha256``, which ``sha256sum --check`` reads: the checksum
    of what was first downloaded. A file that differs from it is refused, and so is another
    download that does. Delete the checksum to take what the server has now.
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
    """Return the first of the files `names`, which have the same content, that exists, or None.

    The user's `folder`, in which `subfolders` are looked at (``""`` is itself), goes before the
    folder of downloads `cache`, by default `data_folder()`.
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
    """Return what `find_file` finds, or else download ``names[0]`` with options of `download`.

    Raise an error where a file was downloaded and is no longer the same.
    """
    path = find_file(names, folder, subfolders, cache)
    if path is None:
        path = _cache(cache) / names[0]
        download(path, **options)
    elif not _is_known(path, path.read_bytes()):
        raise ValueError(
            f"{path} is not what was downloaded, by {_checksum_of(path).name} next to it: delete "
            "it, so that it is downloaded again"
        )
    return path


def _cache(cache: Folder | None) -> Path:
    return data_folder() if cache is None else Path(cache).expanduser()


def download(path: Path, *, address: str, timeout: float, what: str, unknown: str) -> None:
    """Fetch a file; `path` appears complete or not at all, and its folder is made.

    Only by HTTPS, also where the server leads elsewhere, no more than `MAX_BYTES`, and nothing else
    than what the same address gave before. Errors name what is fetched, or that it is unknown to
    the server.
    """
    from jointleaf.io._model_file.files import write_whole  # not needed for files that are here

    try:
        _check_secure(address)
        with urlopen(address, timeout=timeout) as answer:
            _check_secure(getattr(answer, "url", address))
            content = answer.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise OSError(f"the answer has more than {MAX_BYTES} bytes")
            if not _is_known(path, content):
                raise OSError(
                    f"the answer is another than the one before; delete {_checksum_of(path)} if "
                    "you trust it"
                )
    except OSError as cause:  # also those of HTTP and of addresses
        if isinstance(cause, HTTPError) and cause.code == 404:
            raise FileNotFoundError(f"{unknown} (looked at {address})") from cause
        raise ConnectionError(
            f"{what} is not in {path.parent} and cannot be downloaded from {address} "
            f"({cause}): go online, or put {path.name} into a folder and pass it as folder="
        ) from cause
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    checksum = f"{hashlib.sha256(content).hexdigest()}  {path.name}\n"  # as sha256sum has it
    write_whole(_checksum_of(path), checksum.encode())


def _checksum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _is_known(path: Path, content: bytes) -> bool:
    """Whether a content is the first that was downloaded to a path; yes where none was."""
    checksum = _checksum_of(path)
    if not checksum.is_file():
        return True
    return checksum.read_bytes().split()[:1] == [hashlib.sha256(content).hexdigest().encode()]


def _check_secure(address: str) -> None:
    if not address.startswith("https://"):
        raise OSError(f"{address} is no HTTPS address, so that others may change the answer")
