"""Training rows as adapters of tree libraries take them."""

import numpy as np

from jointleaf._data.columns import Column, Columns
from jointleaf._trees.flat import TrainingRows

__all__ = ["training_rows"]


def training_rows(X, y, weight=None, categorical=()):
    """Return rows whose columns `categorical` hold codes."""
    columns = [
        Column(f"x{j}", np.arange(int(np.nanmax(X[:, j])) + 1) if j in categorical else None)
        for j in range(X.shape[1])
    ]
    n_classes = len(np.unique(y)) if np.asarray(y).dtype.kind in "iu" else 0
    return TrainingRows(X, y, weight, n_classes, Columns(tuple(columns)))
