"""Output of the commands: files that are never half written, text tables, numbers and JSON."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_CHUNK = 8192


class CliError(Exception):
    """An error of the data, the model or a file that the user can put right.

    The message is one line that names the file or column, the value and the remedy.
    """


@contextlib.contextmanager
def reading(source: str, kind: str = "file") -> Iterator[None]:
    """Raise errors of reading a file as lines that name it."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        noun = "folder" if source.endswith(("/", os.sep)) else "file"
        raise CliError(f"{source}: there is no such {noun}") from None
    except IsADirectoryError:
        raise CliError(f"{source}: is a folder: name a {kind}") from None
    except OSError as cause:
        raise CliError(f"{source}: cannot be read ({cause.strerror or cause})") from None


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise errors of writing a file as lines that name it."""
    try:
        yield
    except OSError as cause:
        raise CliError(f"{path}: cannot be written ({cause.strerror or cause})") from None


def write_file(path: Path, content: str | bytes) -> None:
    """Write text or bytes in one step: others see the old file or the new one, never half."""
    from jointleaf.io._model_file.files import write_whole  # slow to load for ``--help``

    check_writable(path)
    with writing(path):
        write_whole(path, content.encode() if isinstance(content, str) else content)


def check_writable(path: Path) -> None:
    """Raise, before any work, if a file cannot be written."""
    if path.is_dir():
        raise CliError(f"{path}: is a folder: name a file")
    if not path.parent.is_dir():
        raise CliError(f"{path}: the folder {path.parent} does not exist: create it first")
    if not os.access(path.parent, os.W_OK):
        raise CliError(f"{path}: the folder {path.parent} cannot be written to")


def as_json(record: Any) -> str:
    """Return a JSON document; numbers that are not finite become null, as JSON has none."""
    return json.dumps(finite(record), indent=2, ensure_ascii=False)


def print_result(record: Any, text: str, *, is_json: bool) -> None:
    """Write the result of a command to the standard output, as text or as a JSON document."""
    show((as_json(record) if is_json else text) + "\n")


def show(text: str) -> None:
    """Write a long text to the standard output.

    In chunks: of a single large write, the part that a closed pipe has not taken is lost without
    an error.
    """
    for start in range(0, len(text), _CHUNK):
        sys.stdout.write(text[start : start + _CHUNK])


def finite(value: Any) -> Any:
    """Return plain values that JSON knows: arrays as lists, None where a number is not finite."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_remark(text: str) -> None:
    """Print something that is not the result: on the standard error stream."""
    print(text, file=sys.stderr, flush=True)


def number(value: float, digits: int = 4) -> str:
    """Format a number: a few digits, with commas between thousands from 10,000 on."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}" if abs(value) >= 10_000 else f"{int(value)}"
    size = abs(value)
    if size >= 1e6 or size < 1e-4:
        return f"{value:.{digits - 1}g}"
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{places}f}" if size >= 10_000 else f"{value:.{places}f}"


def seconds(value: float) -> str:
    """Format a duration."""
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def plural(count: int, noun: str) -> str:
    """Return "1 row" or "1,200 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def bar(value: float, largest: float, width: int = 20) -> str:
    """Return a bar of characters whose length is the size of a value."""
    share = abs(value) / largest if largest > 0 else 0.0
    return ("-" if value < 0 else "+") * round(width * share)


def text_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: int = 2) -> str:
    """Align rows in columns; the first row is the header, `right` are columns of numbers."""
    columns = []
    for k, column in enumerate(zip(*rows, strict=True)):
        width = max(map(len, column))
        columns.append([cell.rjust(width) if k in right else cell.ljust(width) for cell in column])
    lines = ("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))
    return "\n".join(" " * indent + line for line in lines)
