"""One module for each command, whose arguments are described in `jointleaf.cli._arguments`."""
