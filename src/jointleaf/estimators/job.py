"""What a fit works on."""

from __future__ import annotations

from dataclasses import dataclass

from jointleaf.columns import Columns
from jointleaf.features import FeaturePlan
from jointleaf.losses import Loss
from jointleaf.rows import Rows

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
