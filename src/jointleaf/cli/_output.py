"""Output of the commands: files that are never half written, text tables, numbers and JSON."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jointleaf._data.formatting import number as number

_CHUNK = 8192
# All but line ends and tabs: ESC begins a command, others write over what was there.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


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
        if isinstance(content, str):  # names of files may hold what is not UTF-8
            content = content.encode(errors="backslashreplace")
        write_whole(path, content)


def check_outputs(outputs: Mapping[str, Path | None], *inputs: str | None) -> None:
    """Raise, before any work, if a file cannot be written or would take the place of another.

    Outputs are named by their options, and may be None; inputs may be folders, or "-".
    """
    chosen = {option: path for option, path in outputs.items() if path is not None}
    for path in chosen.values():
        check_writable(path)
    for option, path in chosen.items():
        for source in filter(None, inputs):
            if _coincides(path, source):
                raise CliError(
                    f"{path}: is the input {source} too, which would be lost: name another file "
                    f"with {option}"
                )
        for other, its_path in chosen.items():
            if other != option and _same_file(path, its_path):
                raise CliError(f"{path}: is the file of {other} too: name another with {option}")


def _coincides(path: Path, source: str) -> bool:
    """Whether an output is an input, or one of the files of a folder."""
    if source == "-":
        with contextlib.suppress(OSError, ValueError, AttributeError):  # no file, or closed
            return os.path.samestat(os.stat(path), os.fstat(sys.stdin.fileno()))
        return False
    files = Path(source).rglob("*") if Path(source).is_dir() else [Path(source)]
    return any(_same_file(path, file) for file in files)


def _same_file(path: Path, other: Path) -> bool:
    """Whether two names stand for one file, through links too, and before it exists."""
    with contextlib.suppress(OSError):
        return os.path.samefile(path, other)
    first, second = (os.path.normcase(os.path.realpath(name)) for name in (path, other))
    return first == second


def check_writable(path: Path) -> None:
    """Raise, before any work, if a file cannot be written."""
    with writing(path):
        place = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(place).st_mode  # raises for names that are too long
            if stat.S_ISDIR(mode):
                raise CliError(f"{path}: is a folder: name a file")
            if not stat.S_ISREG(mode):
                raise CliError(
                    f"{path}: is no regular file, and is not replaced by one: name another"
                )
    if not place.parent.is_dir():
        raise CliError(f"{path}: the folder {place.parent} does not exist: create it first")
    if not os.access(place.parent, os.W_OK):
        raise CliError(f"{path}: the folder {place.parent} cannot be written to")


def as_json(record: Any) -> str:
    """Return a JSON document in ASCII, which is JSON in every encoding of the output.

    Numbers that are not finite become null, as JSON has none.
    """
    return json.dumps(finite(record), indent=2)


def print_result(record: Any, text: str, *, is_json: bool) -> None:
    """Write the result of a command to the standard output, as text or as a JSON document."""
    show((as_json(record) if is_json else printable(text)) + "\n")


def show(text: str) -> None:
    """Write a long text to the standard output.

    In chunks: of a single large write, the part that a closed pipe has not taken is lost without
    an error.
    """
    for start in range(0, len(text), _CHUNK):
        sys.stdout.write(text[start : start + _CHUNK])


def show_data(text: str) -> None:
    """Write a table to the standard output: in UTF-8 as to files, unless a terminal shows it."""
    if sys.stdout.isatty():
        show(printable(text))
        return
    sys.stdout.flush()
    data = text.encode(errors="backslashreplace")
    for start in range(0, len(data), _CHUNK):
        sys.stdout.buffer.write(data[start : start + _CHUNK])
    sys.stdout.buffer.flush()


def printable(text: str) -> str:
    """Return text in which what controls a terminal, or the order of letters, is an escape."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


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
    print(printable(text), file=sys.stderr, flush=True)


def seconds(value: float) -> str:
    """Format a duration."""
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def plural(count: int, noun: str) -> str:
    """Return "1 row" or "1,200 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def bar(value: float, largest: float, width: int = 20) -> str:
    """Return a bar of characters whose length is the size of a value."""
    fraction = abs(value) / largest if largest > 0 else 0.0
    return ("-" if value < 0 else "+") * round(width * fraction)


def text_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: int = 2) -> str:
    """Align rows in columns; the first row is the header, `right` are columns of numbers."""
    columns = []
    for k, cells in enumerate(zip(*rows, strict=True)):
        column = [cell.replace("\n", "\\n") for cell in cells]
        width = max(map(len, column))
        columns.append([cell.rjust(width) if k in right else cell.ljust(width) for cell in column])
    lines = ("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))
    return "\n".join(" " * indent + line for line in lines)
