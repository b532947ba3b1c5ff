"""What a fit of several tasks selected, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jointleaf.multitask._estimators import BaseMultiTaskJOPLEn

__all__ = ["selection_report"]


def selection_report(model: BaseMultiTaskJOPLEn) -> Any:
    """See `MultiTaskJOPLEnRegressor.selection_report`."""
    try:
        import pandas as pd
    except ImportError as cause:
        raise ImportError("selection_report needs pandas: pip install pandas") from cause
    norms = model.slope_norms_
    kind = np.full(len(norms), "none", dtype=object)
    kind[norms.any(axis=1)] = "task"
    kind[model.common_features_] = "common"
    labels = [column.label for column in model.columns_]
    table = pd.DataFrame({"kind": kind, "n_tasks": (norms > 0).sum(axis=1)}, index=labels)
    table.index.name = "feature"
    for t, name in enumerate(model.task_names_):
        table[name] = norms[:, t]
    return table
