"""One split of honest cross-validation: partitions grown on its training part alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.layout import CellKind
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._data.columns import Columns
from jointleaf._data.features import FeaturePlan, mean_and_scale
from jointleaf._data.rows import Rows
from jointleaf._fit.mixing import own_predictions, own_values
from jointleaf.partitions import Partitioner, TargetType

__all__ = [
    "Fold",
    "Table",
    "choose",
    "grow",
    "joined",
    "loss_columns",
    "stepping",
    "target_scale",
]

Table = dict[str, NDArray]

_MIN_GROUPS = 10  # of validation rows over all folds, from which standard errors are estimated


class Fold:
    """One split with partitions grown on its training part; judges models on its other part.

    With `max_rows` at most so many training and validation rows are used. Losses of a regression
    are in the given unit of the target, the same for all folds. They are means over `n_groups`
    groups of validation rows, because one number says nothing about its own precision.
    """

    def __init__(
        self,
        train: Rows,
        valid: Rows,
        partitioner: Partitioner,
        loss: Loss,
        max_rows: int | None = None,
        *,
        target_type: TargetType,
        plan: FeaturePlan,
        columns: Columns,
        clip: bool,
        has_root: bool,
        n_folds: int = 1,
        unit: float = 1.0,
        n_jobs: int = 1,
    ) -> None:
        self.is_part = max_rows is not None and len(train) > max_rows
        if self.is_part:  # rows are in random order: the first are a sample
            train, valid = train.take(slice(max_rows)), valid.take(slice(max_rows))
        self.train, self.valid, self.has_root = train, valid, has_root
        self.columns = columns
        features = plan.fit(train.X, train.s, clip=clip)
        self.X, self.X_valid = features.transform(train.X), features.transform(valid.X)
        self.sources = plan.sources
        centre, own_unit = target_scale(train.y, train.s, target_type)
        self.loss, self.n_jobs = loss, n_jobs
        self.y, self.y_valid = (train.y - centre) / own_unit, (valid.y - centre) / own_unit
        self._loss_scale = (own_unit / unit) ** 2 if target_type == "regression" else 1.0
        n_groups = min(-(-_MIN_GROUPS // n_folds), len(valid))
        self._groups = np.array_split(np.arange(len(valid)), n_groups)
        #: weight of the rows of every group
        self.weights = np.array([valid.s[group].sum() for group in self._groups])
        grow(partitioner, train, target_type, columns)
        self.codes, self.codes_valid = partitioner.apply(train.X), partitioner.apply(valid.X)
        self.n_cells, self.gains = partitioner.n_cells_, partitioner.split_gains_
        values = own_values(partitioner, self.codes, loss, loss.encode(self.y), train.s)
        #: whether these are those of the model that made the partitions
        self.has_own_values = partitioner.leaf_values_ is not None
        #: raw predictions of the partitions' own model for the validation rows, if it has any
        self.own_valid: NDArray | None = None
        if values is not None:
            own = own_predictions(values, self.n_cells, self.codes_valid)
            self.own_valid = (own - centre) / own_unit

    def problem(self, penalty: Term, cells: CellKind, loss: Loss, y: NDArray) -> Problem:
        """The problem on the training rows, with targets y in the form of the loss."""
        design = LeafDesign(self.X, self.codes, self.n_cells, cells=cells, n_jobs=self.n_jobs)
        offset = loss.best_constant(loss.encode(y), self.train.s)
        return Problem(design, y, loss, penalty, self.train.s, offset)

    def valid_design(self, cells: CellKind) -> LeafDesign:
        """The design of the validation rows."""
        return LeafDesign(self.X_valid, self.codes_valid, self.n_cells, cells=cells)

    def group_losses(self, loss: Loss, target: NDArray, raw: NDArray) -> NDArray[np.float64]:
        """Mean loss of raw predictions of every group of validation rows."""
        values = [loss.value(target[g], raw[g], self.valid.s[g]) for g in self._groups]
        return self._loss_scale * np.array(values)


def loss_columns(folds: Sequence[Fold], losses: Sequence[NDArray]) -> Table:
    """Mean loss, its standard deviation over groups and its standard error, at every setting.

    `losses` holds one array (groups, settings) per fold.
    """
    weights = np.concatenate([fold.weights for fold in folds])
    shares = weights / weights.sum()
    values = np.concatenate(losses)
    mean = shares @ values
    with np.errstate(invalid="ignore"):  # infinite where a path has ended
        std = np.sqrt(shares @ np.square(values - mean))
    return {"mean_loss": mean, "std_loss": std, "se_loss": std / np.sqrt(len(weights))}


def choose(table: Table, *, one_se: bool) -> int:
    """The row with the smallest mean loss, or the strongest within one standard error of it.

    Rows are in falling order of strength.
    """
    mean = table["mean_loss"]
    best = int(np.argmin(mean))
    if one_se:
        best = int(np.flatnonzero(mean <= mean[best] + table["se_loss"][best])[0])
    return best


def joined(tables: Sequence[Table]) -> Table:
    """One table of the rows of several."""
    return {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}


def stepping(function: Callable, progress: Progress, *args: object) -> object:
    """Call a function and count one step of progress."""
    result = function(*args)
    progress.step()
    return result


def grow(
    partitioner: Partitioner, rows: Rows, target_type: TargetType, columns: Columns
) -> Partitioner:
    """Fit a partitioner on rows; classes are numbered anew, in case a fold has lost one."""
    # Only where there is something to tell: a partitioner for numbers need not know the word.
    more = {"columns": columns} if columns.categorical.size else {}
    y = np.unique(rows.y, return_inverse=True)[1] if target_type == "classification" else rows.y
    return partitioner.fit(rows.X, y, rows.s, target_type=target_type, **more)


def target_scale(y: NDArray, s: NDArray, target_type: TargetType) -> tuple[float, float]:
    """Weighted mean and standard deviation of a regression target; (0, 1) for classes."""
    if target_type == "classification":
        return 0.0, 1.0
    centre, unit = mean_and_scale(y[:, None], s)
    return float(centre[0]), float(unit[0])
