"""Several tasks fitted together."""
