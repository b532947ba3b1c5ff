"""Honest cross-validation: splits of the rows, and partitions grown on a training part alone.

On partitions that have seen the validation rows every choice looks too good, so that a `Fold`
grows its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.design import LeafDesign
from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._core.problem import Problem
from jointleaf._core.progress import Progress
from jointleaf._data.columns import Columns
from jointleaf._data.rows import Rows, deal_draws, deal_groups
from jointleaf._data.statistics import CategoryStatistics
from jointleaf._fit.component import CellKinds, FitContext, Split, Table
from jointleaf._fit.limits import SCREENED_COLUMNS, best_columns, is_wide
from jointleaf.partitions import Partitioner, UnionPartitioner
from jointleaf.partitions._base import TargetType, check_fit_rows

IndexPairs = list[tuple[NDArray, NDArray]]

MIN_GROUPS = 10  # of validation rows over all folds, from which standard errors are estimated


# -- splits of the rows --------------------------------------------------------------------------


def user_splits(
    cv: Any,
    X: NDArray,
    y: NDArray,
    target_type: TargetType,
    groups: NDArray[np.int64] | None = None,
) -> IndexPairs | None:
    """Return the splits of a splitter or an iterable of index pairs; None for a number of folds."""
    if cv is None or isinstance(cv, int | np.integer):
        return None
    from sklearn.model_selection import check_cv  # slow to import

    splitter = check_cv(cv, y, classifier=target_type == "classification")
    try:
        with warnings.catch_warnings():  # splitters that leave groups alone are checked below
            warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
            splits = [(np.asarray(a), np.asarray(b)) for a, b in splitter.split(X, y, groups)]
        for part in (part for split in splits for part in split):
            np.arange(len(y))[part]  # an index out of range raises
    except ValueError as cause:
        if groups is not None or "groups" not in str(cause):
            raise
        raise ValueError(
            f"cv={cv!r} keeps groups of rows together, but there are none: give fit groups, one "
            "label for every row, or use another splitter"
        ) from cause
    except (IndexError, TypeError) as cause:
        raise ValueError(
            f"cv={cv!r} must be a number of folds, a splitter, or pairs of row indices "
            f"(training, validation) below {len(y)}: {cause}"
        ) from cause
    if not splits:
        raise ValueError(f"cv={cv!r} gives no split: use a number of folds, or at least one pair")
    for train, valid in splits:
        if groups is not None and np.intersect1d(groups[train], groups[valid]).size:
            raise ValueError(
                f"cv={cv!r} puts rows of one group into training and validation of the same split: "
                "use a splitter that keeps groups together, such as GroupKFold, or a number of "
                "folds"
            )
    return splits


def split_labels(splits: IndexPairs | None, n: int) -> NDArray[np.int64]:
    """Return labels (n, splits): 1 in training, 2 in validation, 3 in both, 0 in neither."""
    labels = np.zeros((n, len(splits or [])), np.int64)
    for k, (train, valid) in enumerate(splits or []):
        labels[train, k] |= 1
        labels[valid, k] |= 2
    return labels


def make_splits(
    rows: Rows,
    cv: Any,
    valid: Rows | None,
    target_type: TargetType,
    *,
    n_folds: int,
    n_splits: int,
    statistics: CategoryStatistics | None = None,
) -> list[Split]:
    """Return training and validation rows of every split; none where there are too few rows.

    Validation rows `valid` of the user's come before everything else, then the user's splits `cv`,
    which are in the labels of `rows`, those with most training rows first: what is taken from one
    split alone is from the first. Without these, rows are dealt out to `n_folds` parts (or `cv`
    of them), of which `n_splits` are held out in turn. Statistics of categories are learned anew
    from the training rows of every split.
    """
    splits = []
    for train, held_out in _all_splits(rows, cv, valid, target_type, n_folds, n_splits):
        is_one_class = target_type == "classification" and len(np.unique(train.y)) < 2
        if not len(train) or not len(held_out) or is_one_class:
            continue
        if statistics is not None and valid is None:  # the user's rows have those of all rows
            train, held_out = statistics.split(train, held_out)
        splits.append((train, held_out))
    if rows.has_groups and not rows.labels.shape[1] and valid is None and not splits:
        warnings.warn(
            "groups leave no split with two classes in its training rows, so that nothing is "
            "validated: the penalty is the default one, and there are no prediction sets; give "
            "groups that hold several classes, or leave groups out",
            UserWarning,
            stacklevel=6,
        )
    if rows.labels.shape[1] and valid is None and not splits:
        raise ValueError(
            f"cv={cv!r} gives no split with rows on both sides"
            + (" and two classes in training" if target_type == "classification" else "")
        )
    return splits


def _all_splits(
    rows: Rows, cv: Any, valid: Rows | None, target_type: TargetType, n_folds: int, n_splits: int
) -> Iterator[Split]:
    if valid is not None:
        yield rows, valid
    elif rows.labels.shape[1]:
        in_training = (rows.labels & 1) > 0
        for k in np.argsort(-in_training.sum(axis=0), kind="stable"):
            yield rows.take(in_training[:, k]), rows.take((rows.labels[:, k] & 2) > 0)
    else:
        n_folds = min(n_folds if cv is None else int(cv), len(rows) // 2)
        if rows.has_groups:
            n_folds = min(n_folds, check_folds(cv, n_separate(rows), n_folds))
        deal = deal_draws(rows, n_folds, by_class=target_type == "classification")
        n_splits = min(n_splits, n_folds) if cv is None else n_folds
        parts = np.arange(n_splits if n_folds >= 2 else 0)
        if rows.has_groups:  # parts may be of any size: the largest are for training
            sizes = np.bincount(deal.part, minlength=n_folds)
            parts = np.argsort(sizes, kind="stable")[: len(parts)]
        for k in parts.tolist():
            yield deal.split(rows, k)


def n_separate(rows: Rows) -> int:
    """Return the number of groups of rows; without groups every row is one."""
    return len(np.unique(rows.groups)) if rows.has_groups else len(rows)


def check_folds(cv: Any, n_groups: int, n_folds: int) -> int:
    """Return the number of folds for some groups; raise where the user asks for more folds."""
    n_folds = n_folds if cv is None else int(cv)
    if cv is not None and n_groups < n_folds:
        raise ValueError(
            f"cv={cv!r} asks for more folds than there are groups ({n_groups}): give at most as "
            "many folds as groups"
        )
    return min(n_folds, n_groups)


def with_all_classes(rows: Rows, splits: Sequence[Split]) -> Sequence[Split]:
    """Return splits with all classes in training: boosting could not name the others.

    Splits of the user's, which may be in the order of time, are left out where training lacks a
    class, unless all do.
    """
    if rows.labels.shape[1]:
        n_classes = len(np.unique(rows.y))
        complete = [split for split in splits if len(np.unique(split[0].y)) == n_classes]
        splits = complete or splits
    return [_with_moved_rows(rows, *split) for split in splits]


def _with_moved_rows(rows: Rows, train: Rows, valid: Rows) -> Split:
    """Move rows of classes that training lacks; what else there is of their groups is left out."""
    is_missing, is_known = ~np.isin(rows.y, train.y), np.isin(valid.y, train.y)
    if not is_missing.any() or not is_known.any():
        return train, valid
    moved = rows.take(is_missing)
    if rows.has_groups:
        is_known &= ~np.isin(valid.groups, moved.groups)
    return (train.joined(moved), valid.take(is_known)) if is_known.any() else (train, valid)


class Fold:
    """One split with partitions grown on its training part, unless they are fitted already.

    Losses of a regression are in the unit of the target over all rows, the same for all folds. They
    are means over groups of validation rows (by default at least ten over all `n_folds` folds),
    because one number says nothing about its precision. Of both parts at most `max_rows` are used.
    """

    def __init__(
        self,
        context: FitContext,
        train: Rows,
        valid: Rows,
        partitioner: Partitioner,
        *,
        max_rows: int | None = None,
        n_folds: int = 1,
        n_groups: int | None = None,
        n_jobs: int = 1,
    ) -> None:
        self.is_sample = max_rows is not None and len(train) > max_rows
        if self.is_sample:  # rows are in random order: the first are a sample
            train, valid = train.take(slice(max_rows)), valid.take(slice(max_rows))
        self.context, self.train, self.valid = context, train, valid
        self.partitioner, self.n_jobs = partitioner, n_jobs
        self.loss = context.loss
        frame = context.standardize(train)
        #: centre and unit of the training part's targets
        self.units = frame.centre, frame.unit
        #: the best constant raw prediction of the training part, besides offsets
        self.constant = frame.offset
        self._features = frame.features
        self.y, self.y_valid = frame.target(train.y), frame.target(valid.y)
        unit = context.target_units(context.rows)[1]
        self._loss_scale = (frame.unit / unit) ** 2 if context.loss.is_quadratic else 1.0
        self.set_groups(n_groups or -(-MIN_GROUPS // n_folds))
        if not hasattr(partitioner, "n_cells_"):
            self.partitioner = partitioner = grow_partitions(context, partitioner, train)
        self.codes, self.codes_valid = self._apply(train.X), self._apply(valid.X)
        self.n_cells, self.gains = partitioner.n_cells_, partitioner.split_gains_

    @cached_property
    def X(self) -> NDArray:
        """Linear features of the training rows."""
        return self._features.transform(self.train.X)

    @cached_property
    def X_valid(self) -> NDArray:
        """Linear features of the validation rows."""
        return self._features.transform(self.valid.X)

    def release(self) -> None:
        """Free the linear features, which are made again where they are asked for."""
        for name in ("X", "X_valid"):
            self.__dict__.pop(name, None)

    def _apply(self, X: NDArray) -> NDArray:
        """Return the codes (n, P) of rows."""
        return self.partitioner.apply(X)

    def set_groups(self, n_groups: int) -> None:
        """Divide the validation rows into groups, each of whole groups of the user's."""
        valid = self.valid
        self.n_groups = min(n_groups, n_separate(valid))
        self._groups = np.array_split(np.arange(len(valid)), self.n_groups)
        if valid.has_groups:
            number = deal_groups(valid.groups, self.n_groups)
            self._groups = [np.flatnonzero(number == k) for k in range(self.n_groups)]
        #: weight of the rows of every group
        self.group_weights = np.array([self.valid.s[group].sum() for group in self._groups])

    def problem(self, penalty: Term, cells: CellKinds) -> Problem:
        """Return the problem of the training rows, with a smooth loss in place of one with kinks.

        Its offsets are those of the rows plus `constant`.
        """
        kinds = partition_kinds(cells, self.partitioner)
        design = LeafDesign(self.X, self.codes, self.n_cells, cells=kinds, n_jobs=self.n_jobs)
        offset = self.constant + self.train.offset if self.train.offset.any() else self.constant
        return Problem(design, self.y, self.context.smooth_loss, penalty, self.train.s, offset)

    def valid_design(self, cells: CellKinds) -> LeafDesign:
        """Return the design of the validation rows."""
        kinds = partition_kinds(cells, self.partitioner)
        return LeafDesign(self.X_valid, self.codes_valid, self.n_cells, cells=kinds)

    def group_losses(
        self, loss: Loss, target: NDArray, raw: NDArray, s: NDArray | None = None
    ) -> NDArray[np.float64]:
        """Return the mean loss of raw predictions of every group of validation rows.

        Rows have their own weights, or those of a quadratic model of the loss.
        """
        s = self.valid.s if s is None else s
        values = [loss.value(target[g], raw[g], s[g]) for g in self._groups]
        return self._loss_scale * np.array(values)

    def held_out_losses(self, raw: NDArray) -> NDArray[np.float64]:
        """Return the mean loss of every group, of raw predictions besides offsets."""
        if self.valid.offset.any():
            raw = raw + self.valid.offset
        return self.group_losses(self.loss, self.loss.encode(self.y_valid), raw)


def partition_kinds(cells: CellKinds, partitioner: Partitioner) -> CellKinds:
    """Return the kind of cells of every fitted partition, or the one word for all of them.

    Else there is one for every partition, or one for every member of the union; the root cell
    behind these is linear.
    """
    if isinstance(cells, str) or len(cells) == len(partitioner.n_cells_):
        return cells
    assert isinstance(partitioner, UnionPartitioner)
    members, with_root = partitioner.partitioners_, (*cells, "linear")
    pairs = zip(with_root[: len(members)], members, strict=True)
    return [kind for kind, member in pairs for _ in member.n_cells_]


def grow(
    partitioner: Partitioner, rows: Rows, target_type: TargetType, columns: Columns
) -> Partitioner:
    """Fit a partitioner on rows; classes are numbered anew, in case a fold has lost one."""
    # Only where there are categories: a partitioner for numbers need not know the word.
    options = {"columns": columns} if columns.categorical.size else {}
    y = np.unique(rows.y, return_inverse=True)[1] if target_type == "classification" else rows.y
    return partitioner.fit(rows.X, y, rows.s, target_type=target_type, **options)


def grow_partitions(context: FitContext, partitioner: Partitioner, rows: Rows) -> Partitioner:
    """Return the partitions of an exact joint fit, grown on rows.

    Those that a fit chooses itself for a wide table are grown on its best columns.
    """
    rows, (n_columns, target_type) = (
        context.growth_rows(rows),
        (rows.X.shape[1], context.target_type),
    )
    if context.partitioner is not None or not is_wide(n_columns):
        return grow(partitioner, rows, target_type, context.columns)
    table = check_fit_rows(rows.X, rows.y, rows.s, target_type, context.columns)
    best = best_columns(table, SCREENED_COLUMNS)
    columns = Columns(tuple(context.columns[j] for j in best.tolist()))
    some = replace(rows, X=rows.X[:, best])
    return grow(partitioner, some, target_type, columns).of_columns(best, n_columns)


# -- tables of validation losses -----------------------------------------------------------------

_LOSSES = ("mean_loss", "std_loss", "se_loss")
LINE_PARAMETERS = ("slope_scale", "feature_power")  # of which every line has one value
_FLAGS = ("converged", "is_exact", "on_path", "mean_common", "mean_specific", "mean_selected")


def loss_columns(folds: Sequence[Fold], losses: Sequence[NDArray]) -> Table:
    """Return mean loss, its standard deviation over groups and standard error of every setting.

    `losses` holds one array (groups, settings) per fold.
    """
    weights = np.concatenate([fold.group_weights for fold in folds])
    weights = weights / weights.sum()
    values = np.concatenate(losses)
    mean = weights @ values
    with np.errstate(invalid="ignore"):  # infinite where a path has ended
        std = np.sqrt(weights @ np.square(values - mean))
    return {"mean_loss": mean, "std_loss": std, "se_loss": std / np.sqrt(len(weights))}


def best_row(table: Table, *, one_se: bool) -> int:
    """Return the row with the smallest mean loss, or the first within one standard error of it.

    Rows are in falling order of strength.
    """
    mean = table["mean_loss"]
    best = int(np.argmin(mean))
    if one_se:
        best = int(np.flatnonzero(mean <= mean[best] + table["se_loss"][best])[0])
    return best


def join_tables(tables: Sequence[Table]) -> Table:
    """Return one table of the rows of several."""
    return {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}


def cv_results(table: Table) -> dict[str, Any]:
    """Return a table of validation losses with scikit-learn's names and sign.

    It has ``param_*`` for every number that was tried (strength, slope_scale, ...) and ``params``,
    the same as a list of dicts; ``mean_test_score`` (minus the weighted mean validation loss over
    all splits, for squared error in units of the target's variance), ``std_test_score`` over groups
    of validation rows, ``se_test_score``, the standard error of the mean, and ``rank_test_score``;
    ``converged``, and what else is known of a setting.
    """
    names = [name for name in table if name not in (*_LOSSES, *_FLAGS)]
    losses = np.asarray(table["mean_loss"], float)
    order = np.where(np.isnan(losses), np.inf, losses)
    return {
        **{f"param_{name}": table[name] for name in names},
        "params": [{n: v.item() for n, v in zip(names, row, strict=True)}
                   for row in zip(*(table[name] for name in names), strict=True)],
        "mean_test_score": -losses,
        "std_test_score": table["std_loss"],
        "se_test_score": table["se_loss"],
        "rank_test_score": np.searchsorted(np.sort(order), order).astype(np.int32) + 1,
        **{name: table[name] for name in _FLAGS if name in table},
    }  # fmt: skip


def loss_table(results: Mapping[str, Any]) -> Table:
    """Return the table of validation losses that `cv_results` was made from."""
    losses = -np.asarray(results["mean_test_score"], float)
    numbers = {name.removeprefix("param_"): v for name, v in results.items() if "param_" in name}
    columns = losses, results["std_test_score"], results["se_test_score"]
    flags = {name: results[name] for name in _FLAGS if name in results}
    return {
        **numbers,
        **dict(zip(_LOSSES, columns, strict=True)),
        "is_exact": np.ones(len(losses), bool),
        **flags,
    }


def split_lines(results: Mapping[str, Any]) -> list[Table]:
    """Return the lines that a search followed, each from strong to weak; of paths the last one.

    Blends of the best setting with the leaf values are points, not lines, and left out.
    """
    table = loss_table(results)
    rows = np.isfinite(table["mean_loss"]) & table.get("on_path", True)
    rows &= table.get("joint_weight", 1.0) == 1.0
    followed = {name: column[rows] for name, column in table.items()}
    is_new = np.diff(followed["strength"]) >= 0
    for name in ("is_exact", *LINE_PARAMETERS):
        if name in followed:
            is_new |= np.diff(followed[name]) != 0
    parts = np.split(np.arange(rows.sum()), np.flatnonzero(is_new) + 1)
    lines = [{name: column[part] for name, column in followed.items()} for part in parts]
    return lines[-1:] if "on_path" in table else lines


def with_progress(function: Callable, progress: Progress, *args: object) -> object:
    """Call a function and count one step of progress."""
    result = function(*args)
    progress.step()
    return result
