"""One module for each command: `add` describes its arguments, `run` does the work."""
