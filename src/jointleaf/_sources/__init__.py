"""Fits of rows that are never in one array: from a sample, corrected by all rows."""
