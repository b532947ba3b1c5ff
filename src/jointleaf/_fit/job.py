"""What a fit works on."""

from __future__ import annotations

from dataclasses import dataclass

from jointleaf._core.losses import Loss
from jointleaf._data.columns import Columns
from jointleaf._data.features import FeaturePlan
from jointleaf._data.rows import Rows

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """Rows, what is known of their columns, and how they are worked on.

    Attributes
    ----------
    rows : Rows
    columns : Columns
    plan : FeaturePlan
        Which linear features there are.
    loss : Loss
    seed, n_jobs : int
    """

    rows: Rows
    columns: Columns
    plan: FeaturePlan
    loss: Loss
    seed: int
    n_jobs: int
