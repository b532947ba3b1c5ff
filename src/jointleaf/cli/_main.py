"""Arguments in, exit code out: errors are one line, never a traceback."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import jointleaf
from jointleaf.cli._commands import bench, explain, fit, info, predict, report, select
from jointleaf.cli._errors import (
    DATA_ERROR,
    INTERRUPTED,
    OK,
    PIPE_CLOSED,
    USAGE_ERROR,
    ShellError,
)

__all__ = ["main"]

_DESCRIPTION = """\
Tree ensembles with a linear model in every leaf, all fitted jointly: from a table in a file to a
model, predictions, explanations and a report."""
_EPILOG = """\
example:
  jointleaf fit houses.csv --target price        writes houses.jleaf and houses.html
  jointleaf predict houses.jleaf new.csv -o out.csv
  jointleaf explain houses.jleaf new.csv --row 12

Files are CSV (the delimiter is found) or Parquet, as they are or compressed with gzip; "-" is the
standard input or output. Exit codes: 0 all went well, 1 something about the data or the model,
2 about the arguments."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        0 for success, 1 for an error of data or model, 2 for wrong arguments, 130 after Ctrl-C, 141
        where the reader of the output went away.
    """
    if hasattr(sys.stdout, "reconfigure"):
        # Names that a terminal's encoding lacks are written as escapes, not refused.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args = _parser().parse_args(arguments)
        args.run(args)
        sys.stdout.flush()
    except SystemExit as end:  # of argparse: --help, --version and wrong arguments
        return int(end.code or OK) if isinstance(end.code, int | None) else USAGE_ERROR
    except BrokenPipeError:
        # What is left in the buffer has no reader: let it go without a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except (ShellError, ValueError, TypeError, ImportError, OSError) as problem:
        return _fail(str(problem), DATA_ERROR)
    except MemoryError:
        return _fail("there is not enough memory for this data", DATA_ERROR)
    except Exception as problem:  # a defect: users still get one line, and how to see more
        message = (
            f"unexpected {type(problem).__name__}: {problem}; JOINTLEAF_TRACEBACK=1 says where"
        )
        return _fail(message, DATA_ERROR)
    return OK


def _fail(message: str, code: int) -> int:
    if os.environ.get("JOINTLEAF_TRACEBACK"):  # for reports of bugs
        raise
    line = " ".join(message.split())
    print(f"jointleaf: error: {line or 'unknown'}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jointleaf",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"jointleaf {jointleaf.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (fit, predict, explain, select, report, bench, info):
        command.add(commands)
    return parser
