"""BoUTS: boosted trees that select universal and task-specific features."""
