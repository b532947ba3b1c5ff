"""The rows, partitions and standardisation of every task, from which problems are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._core.task_problem import TaskProblem
from jointleaf._data.columns import Columns
from jointleaf._data.features import FeaturePlan
from jointleaf._data.rows import Rows
from jointleaf._fit.component import target_scale
from jointleaf._fit.folds import grow
from jointleaf._model.cell_model import Frame
from jointleaf.partitions import (
    Partitioner,
    RootCell,
    TargetType,
    UnionPartitioner,
    make_partitioner,
    seeded,
)

__all__ = ["Grower", "TaskParts"]


@dataclass(frozen=True)
class Grower:
    """Makes the partitions of all tasks.

    Attributes
    ----------
    partitioner : what an estimator was given, or a multitask partitioner
        The latter has a method ``fit_tasks`` that gives a fitted partitioner for every task.
    root_cell : bool
    seed : int
        Of the first task; the others count on from it.
    n_jobs : int
    target_type : {"regression", "classification"}
    columns : Columns
    """

    partitioner: Any
    root_cell: bool
    seed: int
    n_jobs: int
    target_type: TargetType
    columns: Columns

    @property
    def is_joint(self) -> bool:
        """Whether the partitions of all tasks are grown together."""
        return hasattr(self.partitioner, "fit_tasks")

    def check(self) -> None:
        """Refuse names and models that do not fit, before any work is done."""
        if not self.is_joint:
            make_partitioner(self.partitioner)

    def grow(self, rows: Sequence[Rows], *, fresh: bool) -> list[Partitioner]:
        """Grow partitions on the rows of every task; `fresh` ones inside cross-validation."""
        if self.is_joint:
            return self._grow_together(rows)
        return [self._grow_alone(own, t, fresh) for t, own in enumerate(rows)]

    def _grow_alone(self, rows: Rows, t: int, fresh: bool) -> Partitioner:
        partitioner = make_partitioner(self.partitioner)
        if self.root_cell:
            partitioner = UnionPartitioner([partitioner, RootCell()])
        partitioner = seeded(partitioner, (self.seed + t) % (2**31 - 1), self.n_jobs)
        if fresh:
            partitioner = partitioner.fresh()
        return grow(partitioner, rows, self.target_type, self.columns)

    def _grow_together(self, rows: Sequence[Rows]) -> list[Partitioner]:
        joint = self.partitioner
        if hasattr(joint, "get_params"):
            joint = seeded(joint, self.seed, self.n_jobs)
        fitted = joint.fit_tasks(list(rows), self.target_type, columns=self.columns)
        if not self.root_cell:
            return fitted
        out = []
        for partitioner, own in zip(fitted, rows, strict=True):
            root = grow(RootCell(), own, self.target_type, self.columns)
            out.append(UnionPartitioner.of_fitted([partitioner, root]))
        return out


@dataclass(frozen=True)
class TaskParts:
    """Rows, partitions and standardisation of every task."""

    rows: list[Rows]
    partitioners: list[Partitioner]
    frames: list[Frame]

    @classmethod
    def make(
        cls,
        rows: Sequence[Rows],
        partitioners: Sequence[Partitioner],
        plan: FeaturePlan,
        loss: Loss,
        grower: Grower,
        *,
        clip: bool,
    ) -> TaskParts:
        """Standardise the rows of every task by themselves."""
        frames = []
        for own in rows:
            features = plan.fit(own.X, own.s, clip=clip)
            centre, unit = target_scale(own.y, own.s, grower.target_type)
            best = loss.best_constant(loss.encode((own.y - centre) / unit), own.s)
            offset = np.asarray(best, float)
            frames.append(Frame(grower.columns, features, loss, offset, centre, unit, 1))
        return cls(list(rows), list(partitioners), frames)

    def designs(self, rows: Sequence[Rows], kind: CellKind) -> list[LeafDesign]:
        """The design of rows of every task."""
        return [
            frame.design(own.X, partitioner, kind)
            for frame, own, partitioner in zip(self.frames, rows, self.partitioners, strict=True)
        ]

    def problem(
        self, penalty: Term, kind: CellKind, task_weights: NDArray, n_jobs: int = 1
    ) -> TaskProblem:
        """The joint problem of all tasks."""
        pairs = list(zip(self.frames, self.rows, strict=True))
        return TaskProblem(
            self.designs(self.rows, kind),
            [frame.target(own.y) for frame, own in pairs],
            self.frames[0].loss,
            penalty,
            [own.s for own in self.rows],
            task_weights.tolist(),
            [float(frame.offset) for frame in self.frames],
            n_jobs,
        )
