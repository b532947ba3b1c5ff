"""One module a command: `add` describes its arguments, `run` does the work."""
