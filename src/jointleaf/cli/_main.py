"""Arguments in, exit code out: errors are one line, never a traceback."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import jointleaf
from jointleaf.cli._commands import bench, explain, fit, info, predict, report, select
from jointleaf.cli._output import CliError

__all__ = ["main"]

# Exit codes; the last two are 128 plus the number of the signal, as shells have it.
_OK, _DATA_ERROR, _USAGE_ERROR, _INTERRUPTED, _PIPE_CLOSED = 0, 1, 2, 130, 141
_DESCRIPTION = """\
Tree ensembles with a linear model in every leaf, all fitted jointly: from a table in a file to a
model, predictions, explanations and a report."""
_EPILOG = """\
example:
  jointleaf fit houses.csv --target price        writes houses.jleaf and houses.html
  jointleaf predict houses.jleaf new.csv -o out.csv
  jointleaf explain houses.jleaf new.csv --row 12

Files are CSV (the delimiter is detected) or Parquet, as they are or compressed with gzip; "-" is
the standard input or output. Exit codes: 0 for success, 1 for an error of the data or the model,
2 for wrong arguments."""


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
        where the reader of the output closed the pipe.
    """
    if hasattr(sys.stdout, "reconfigure"):
        # Names that a terminal's encoding lacks are written as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args = _parser().parse_args(arguments)
        args.run(args)
        sys.stdout.flush()
    except SystemExit as end:  # of argparse: --help, --version and wrong arguments
        return int(end.code or _OK) if isinstance(end.code, int | None) else _USAGE_ERROR
    except BrokenPipeError:
        # The rest of the buffer has no reader: drop it without a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _fail("interrupted", _INTERRUPTED)
    except (CliError, ValueError, TypeError, ImportError, OSError) as error:
        return _fail(str(error), _DATA_ERROR)
    except MemoryError:
        return _fail("there is not enough memory for this data", _DATA_ERROR)
    except Exception as error:  # a defect: users still get one line, and how to see more
        message = f"unexpected {type(error).__name__}: {error}: set JOINTLEAF_TRACEBACK=1 to see it"
        return _fail(message, _DATA_ERROR)
    return _OK


def _fail(message: str, code: int) -> int:
    if os.environ.get("JOINTLEAF_TRACEBACK"):  # for reports of defects
        raise
    line = " ".join(message.split())
    print(f"jointleaf: error: {line or 'no message'}", file=sys.stderr)
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
