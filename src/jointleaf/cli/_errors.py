"""The one kind of error that the command line shows."""

from __future__ import annotations

__all__ = ["DATA_ERROR", "INTERRUPTED", "OK", "PIPE_CLOSED", "USAGE_ERROR", "ShellError"]

#: Exit codes. The last two are 128 plus the number of the signal, as shells have it.
OK, DATA_ERROR, USAGE_ERROR, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141


class ShellError(Exception):
    """Something about the data, the model or a file that the user can put right.

    The message is one line that names the file or column, the value and the remedy.
    """
