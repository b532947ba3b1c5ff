"""The report of a fit: one HTML file with everything in it."""
