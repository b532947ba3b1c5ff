"""Flat trees, how rows are routed through them, and importers of trees of other libraries."""
