"""The convex problem and its solvers, on arrays alone: layout, design, losses, penalties, path."""
