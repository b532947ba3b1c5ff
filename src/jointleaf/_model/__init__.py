"""The fitted model of all cells: what predicts, is explained, pruned, saved and exported."""
