"""Arguments in, exit code out: errors are one line, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from jointleaf.cli._arguments import make_parser
from jointleaf.cli._output import CliError

__all__ = ["main"]

# Exit codes; the last two are 128 plus the number of the signal, as shells have it.
_OK, _DATA_ERROR, _USAGE_ERROR, _INTERRUPTED, _PIPE_CLOSED = 0, 1, 2, 130, 141


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
        args = make_parser().parse_args(arguments)
        import_module(f"jointleaf.cli._commands.{args.command}").run(args)
        sys.stdout.flush()
    except SystemExit as end:  # of argparse: --help, --version and wrong arguments
        return int(end.code or _OK) if isinstance(end.code, int | None) else _USAGE_ERROR
    except BrokenPipeError:
        # The rest of the buffer has no reader: drop it without a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _fail("interrupted", _INTERRUPTED)
    except MemoryError:
        return _fail("there is not enough memory for this data", _DATA_ERROR)
    except (CliError, ValueError, TypeError, ImportError, OSError) as error:
        return _fail(str(error), _DATA_ERROR)
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
