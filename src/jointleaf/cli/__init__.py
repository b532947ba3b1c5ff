"""The command line ``jointleaf``: from a table in a file to a model, predictions and a report.

Everything heavy is imported inside the commands, so that ``jointleaf --help`` is quick.
"""

from jointleaf.cli._main import main

__all__ = ["main"]
