"""The parts of a prediction: of the linear models, and of the cells themselves.

A row's linear part is taken apart feature by feature (`jointleaf._model.contributions`). What the
cells of trees are worth is credited to the columns that the trees split on. Every node of a tree
has the expected value of a training row that reaches it,

    v(node) = sum of weight * value over the leaves below, divided by the sum of the weights,
              with the training weight in every leaf; zero where no training row came.

From the root to its leaf a row changes this value step by step. Each change, v(child) - v(parent),
is credited to the column that the parent splits on (Saabas 2014, "treeinterpreter"). The credits
of a row add up to v(leaf) - v(root), and their mean over the training rows is zero for every
column. They depend on the leaf alone, so that they are a table with a row per leaf, and explaining
a row costs what predicting it costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.arrays import threads
from jointleaf._core.losses import Loss
from jointleaf._data.columns import Columns, as_codes
from jointleaf._data.preprocessor import TablePreprocessor
from jointleaf._data.rows import read_coded_rows
from jointleaf._fit.calibration import Calibration, interval_levels
from jointleaf._model.cell_model import CellModel
from jointleaf._model.contributions import sum_of_entries
from jointleaf._trees.flat import FlatTrees, leaves_as_cells
from jointleaf._trees.routing import Router
from jointleaf.inspection._methods import (
    Explainable,
    ExplainableTasks,
    raw_of_task,
    read_task_rows,
    task_number,
)
from jointleaf.partitions import Partitioner
from jointleaf.partitions._base import TreeCells

#: The probability with which intervals hold the target, by default.
COVERAGE = 0.9
_BLOCK_ROWS = 4096
_DENSE_WIDTH = 64  # columns of credits up to which products with a dense table are faster
_DENSE_SIZE = 2**23  # numbers in it


# -- credits of splits -----------------------------------------------------------------------------


class TreeCredits(NamedTuple):
    """Credits of all L leaves."""

    table: NDArray[np.float64] | sparse.csr_array  # (L, d * K): of column j for output k at j K + k
    mean: NDArray[np.float64]  # (K,), the sum of the values of all roots: the mean over rows


def tree_credits(trees: FlatTrees, values: NDArray, weights: NDArray) -> TreeCredits:
    """Credit the values of leaves to the columns on which trees split.

    A split on a number that CatBoost looks up for a combination of columns is credited to these
    columns in equal parts.

    `values` (L, K) and `weights` (L,), the fractions of the training weight, are those of all
    leaves, tree after tree.
    """
    n_splits, n_leaves, n_outputs = len(trees.feature), *values.shape
    parent = parents(trees)
    value, weight = np.zeros((n_splits + n_leaves, n_outputs)), np.zeros(n_splits + n_leaves)
    value[n_splits:], weight[n_splits:] = values, weights
    value[n_splits:] *= weights[:, None]
    for level in reversed(_levels(parent)):  # sums of what is below, from the bottom up
        has_parent = level[parent[level] >= 0]
        np.add.at(weight, parent[has_parent], weight[has_parent])
        np.add.at(value, parent[has_parent], value[has_parent])
    reached = weight > 0
    value[reached] /= weight[reached, None]
    value[n_splits:] = values  # also of leaves that no training row reached
    rows, columns, changes = [], [], []
    leaf = np.arange(n_leaves)
    node = n_splits + leaf
    while len(node):
        above = parent[node]
        inner = above >= 0
        leaf, node, above = leaf[inner], node[inner], above[inner]
        rows.append(leaf)
        columns.append(trees.feature[above].astype(np.intp))
        changes.append(value[node] - value[above])
        node = above
    mean = value[parent < 0].sum(axis=0)
    entries = np.concatenate(rows), np.concatenate(columns), np.concatenate(changes)
    return TreeCredits(_table(trees, *entries, (n_leaves, n_outputs)), mean)


def parents(trees: FlatTrees) -> NDArray[np.intp]:
    """Return the split above every split and, behind them, every leaf (N + L,); -1 for roots."""
    n_splits = len(trees.feature)
    first = trees.leaf_starts[trees.tree_of_split]
    parent = np.full(n_splits + int(trees.n_leaves.sum()), -1, np.intp)
    for child in (trees.left, trees.right):
        place = np.where(child >= 0, child, n_splits + first + ~child)
        parent[place] = np.arange(n_splits)
    return parent


def _levels(parent: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return nodes by their distance from the root."""
    depth = np.zeros(len(parent), np.intp)
    node, above = np.arange(len(parent)), parent
    while len(node):
        inner = above >= 0
        node, above = node[inner], above[inner]
        depth[node] += 1
        above = parent[above]
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1)


def _table(
    trees: FlatTrees,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    changes: NDArray[np.float64],
    shape: tuple[int, int],
) -> NDArray[np.float64] | sparse.csr_array:
    """Sum the changes (E, K) of leaves and columns (E,) in a table (L, d * K)."""
    d, (n_leaves, n_outputs) = trees.n_features, shape
    rows, columns, changes = _spread_lookups(trees, rows, columns, changes)
    places = (columns[:, None] * n_outputs + np.arange(n_outputs)).reshape(-1)
    table = sparse.coo_array(
        (changes.reshape(-1), (np.repeat(rows, n_outputs), places)), shape=(n_leaves, d * n_outputs)
    ).tocsr()
    small = d * n_outputs <= _DENSE_WIDTH and n_leaves * d * n_outputs <= _DENSE_SIZE
    return table.toarray() if small else table


def _spread_lookups(
    trees: FlatTrees,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    changes: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """Replace columns that are looked up by those that they are made of, in equal parts."""
    plain = columns < trees.n_features
    parts = [(rows[plain], columns[plain], changes[plain])]
    for i, lookup in enumerate(trees.lookups):
        chosen = columns == trees.n_features + i
        sources = sorted({part.column for part in lookup.parts})
        for j in sources:
            credit = changes[chosen] / len(sources)
            parts.append((rows[chosen], np.full(chosen.sum(), j, np.intp), credit))
    rows, columns, changes = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return rows, columns, changes


# -- parts of predictions --------------------------------------------------------------------------


class Parts(NamedTuple):
    """Parts of raw predictions with K outputs."""

    linear: NDArray[np.float64]  # (n, d, K)
    cells: NDArray[np.float64]  # (n, d, K)
    cells_rest: NDArray[np.float64]  # (n, K), of cells that are not made by splits on columns
    baseline: NDArray[np.float64]  # (K,)


class TreeExplainer:
    """Credits of trees for rows; the arguments are those of `tree_credits`."""

    def __init__(self, trees: FlatTrees, values: NDArray, weights: NDArray) -> None:
        self._first = trees.leaf_starts[:-1]
        # Leaves that no training row reached are distinguished here, though they are no cells.
        self._router = Router(leaves_as_cells(trees))
        self._cell_of_leaf = trees.cell_of_leaf
        self._shape = trees.n_features, values.shape[1]
        self._table, self.mean = tree_credits(trees, values, weights)

    def __call__(self, X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Return credits (n, d, K) of rows X (n, d), and their codes (n, P)."""
        leaves = self._router(X) + self._first
        credits = sum_of_entries(leaves, self._table)
        return credits.reshape(len(X), *self._shape), self._cell_of_leaf[leaves]

    @classmethod
    def of_cells(cls, trees: FlatTrees, values: NDArray, weights: NDArray) -> TreeExplainer:
        """Return the explainer of trees whose cells have values (C, K) and weights (C,)."""
        is_cell = trees.cell_of_leaf >= 0
        cell = np.where(is_cell, trees.leaf_cells, 0)
        return cls(trees, is_cell[:, None] * values[cell], is_cell * weights[cell])


class _OtherCells:
    """Values of cells that are not made by splits, as their differences from the mean."""

    def __init__(self, member: Partitioner, values: NDArray, weights: NDArray) -> None:
        self._member = member
        self._starts = np.cumsum(member.n_cells_) - member.n_cells_
        self._values = np.concatenate([values, np.zeros_like(values[:1])])
        self.mean = weights @ values

    def __call__(self, X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Return values (n, K) of rows X (n, d), and their codes (n, P)."""
        codes = self._member.apply(X)
        cells = np.where(codes < 0, len(self._values) - 1, codes + self._starts)
        return sum_of_entries(cells, self._values) - self.mean, codes


class CellExplainer:
    """Takes the predictions of a fitted model apart, which has the means of its training rows."""

    def __init__(self, model: CellModel) -> None:
        assert model.means is not None
        self._model = model
        self.linear = model.contributions
        biases = model.biases.astype(np.float64).reshape(model.layout.n_cells, -1)
        means, start = model.means, 0
        self._members: list[TreeExplainer | _OtherCells] = []
        for member, _ in model.partitioner.walk():
            stop = start + int(member.n_cells_.sum())
            values, weights = biases[start:stop], means.cell_weights[start:stop]
            self._members.append(
                TreeExplainer.of_cells(member.trees_, values, weights)
                if isinstance(member, TreeCells)
                else _OtherCells(member, values, weights)
            )
            start = stop
        mean = sum(member.mean for member in self._members) + means.linear.sum(axis=0)
        offset = np.asarray(model.offset, float).reshape(-1)
        self.baseline = model.centre + model.unit * (offset + mean)

    def __call__(self, X: NDArray) -> Parts:
        """Take the predictions of rows X (n, d) apart."""
        n, d = X.shape
        k = len(self.baseline)
        shape = (n, d, k)
        parts = Parts(np.zeros(shape), np.zeros(shape), np.zeros((n, k)), self.baseline)
        for start in range(0, len(X), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            self._fill(X[rows], parts.linear[rows], parts.cells[rows], parts.cells_rest[rows])
        return parts

    def _fill(self, X: NDArray, linear: NDArray, cells: NDArray, cells_rest: NDArray) -> None:
        model, codes = self._model, []
        for member in self._members:
            values, member_codes = member(X)
            codes.append(member_codes)
            into = cells if isinstance(member, TreeExplainer) else cells_rest
            into += model.unit * values
        features = model.features.transform(X)
        assert model.means is not None
        by_feature = self.linear(features, np.concatenate(codes, axis=1)) - model.means.linear
        np.add.at(linear.swapaxes(0, 1), model.features.plan.sources, by_feature.swapaxes(0, 1))
        linear *= model.unit


_explainers: WeakKeyDictionary[CellModel, CellExplainer] = WeakKeyDictionary()


def explainer_of(model: CellModel) -> CellExplainer:
    """Return the explainer of a model, made when it is needed for the first time."""
    if model not in _explainers:
        _explainers[model] = CellExplainer(model)
    return _explainers[model]


# -- one view on all fitted models: rows in, raw predictions and their parts out -------------------


@dataclass(frozen=True)
class RawModel:
    """The raw predictions of one model: of the only task, or of one of several."""

    columns: Columns
    read: Callable[[Any], NDArray]  # from what users give to the matrix (n, d)
    predict: Callable[[NDArray], NDArray]  # from a matrix to raw predictions (n,) or (n, K)
    parts: Callable[[NDArray], Parts]  # from a matrix to the parts of these
    outputs: tuple | None  # names of K outputs; None for one
    cell_model: CellModel | None  # None for BoUTS
    calibration: Calibration | None = None
    loss: Loss | None = None  # of numbers
    has_offset: bool = False  # whether the fit had exposure or an offset
    labels: tuple[str, ...] | None = None  # of the columns, where the model does not know them
    classes: tuple | None = None  # of a model of classes

    def intervals(self, rows: NDArray, raw: NDArray, coverage: float | None) -> NDArray | None:
        """Return intervals (n, 2) of a matrix with raw predictions (n,).

        None where the model is not calibrated, or on too few rows, or predicts classes; that is an
        error where a coverage was asked for.
        """
        levels = interval_levels(COVERAGE if coverage is None else coverage)
        if self.calibration is not None and self.loss is not None:
            matrix = self.columns.matrix(rows)
            ends = self.calibration.quantiles(matrix, self.loss.link(raw), levels, self.loss)
            if np.isfinite(ends).all():
                return ends
        if coverage is not None:
            raise ValueError(
                f"coverage={coverage!r} is for intervals, which the model does not have, for "
                "classes, without held-out rows or with too few of them: leave it out"
            )
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        labels = tuple(column.label for column in self.columns)
        return labels if self.labels is None or len(self.labels) != len(labels) else self.labels

    @property
    def days(self) -> frozenset[int]:
        """Columns of numbers that are days since 1970-01-01: dates of the raw table."""
        preparation = self.columns.preparation
        days = set() if preparation is None else preparation.days
        return frozenset(j for j, name in enumerate(self.names) if name in days)

    @property
    def dates(self) -> dict[str, dict[str, int]]:
        """The columns made of every column of dates of the raw table, by its name and by part."""
        preparation, names = self.columns.preparation, self.names
        return {
            str(kind.name): dict(zip(kind.parts, map(names.index, kind.outputs), strict=True))
            for kind in (() if preparation is None else preparation.columns)
            if kind.kind == "date" and kind.name not in names and set(kind.outputs) <= set(names)
        }

    def output(self, output: Any, rows: NDArray) -> int:
        """Return the number of an output that is named; None is the only one, or `main_output`."""
        if self.outputs is None:
            if output is not None:
                raise ValueError(f"output={output!r}: the model has one output, leave it out")
            return 0
        if output is None:
            return main_output(self.predict(rows))
        return output_number(self.outputs, output)


def main_output(raw: NDArray) -> int:
    """Return the class that raw predictions (n, K) mean, of several rows the most frequent one."""
    return int(np.bincount(raw.argmax(axis=1), minlength=raw.shape[1]).argmax())


def output_number(outputs: tuple, output: Any) -> int:
    """Return the number of one of several outputs."""
    if output is None:
        raise ValueError(f"the model has several outputs: give one of {list(outputs)} as output")
    if output in outputs:
        return list(outputs).index(output)
    raise ValueError(f"output={output!r} is not known: the outputs are {list(outputs)}")


def _steps(model: Any) -> list[Any]:
    """Return the steps of a pipeline, or the estimator alone."""
    from sklearn.pipeline import Pipeline  # it loads a library of progress bars

    return [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]


def last_step(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the last step of a fitted pipeline, and the rows as that step sees them."""
    return last_estimator(model), model[:-1].transform(X) if len(_steps(model)) > 1 else X


def last_estimator(model: Any) -> Any:
    """Return the last step of a pipeline, or the estimator itself."""
    return _steps(model)[-1]


def step_names(model: Any) -> tuple[str, ...] | None:
    """Return the names of the columns that the last step of a fitted pipeline was given.

    None where that step knows them itself, where no step before it does, and without a pipeline.
    """
    if len(_steps(model)) < 2 or hasattr(last_estimator(model), "feature_names_in_"):
        return None
    try:
        return tuple(map(str, model[:-1].get_feature_names_out()))
    except (AttributeError, ValueError):  # steps without the method, or that know no names
        return None


def step_model(model: Any, X: Any, task: Any = None) -> tuple[RawModel, NDArray]:
    """Return the raw predictions of an estimator or of the last step of a pipeline, and rows."""
    raw = named_raw_model(model, task)
    return raw, raw.read(last_step(model, X)[1])


def named_raw_model(model: Any, task: Any = None) -> RawModel:
    """Return the raw predictions of an estimator, or of the last step of a pipeline."""
    raw = replace(raw_model(last_estimator(model), task), labels=step_names(model))
    before = _steps(model)[-2:][0]
    if isinstance(before, TablePreprocessor):
        raw = replace(raw, columns=replace(raw.columns, preparation=before.preparation_))
    return raw


def task_names(model: Any) -> list | None:
    """Return the names of the tasks of a model of several tasks; None of all others."""
    check_is_fitted(model)
    is_single = getattr(model, "task_form_", None) == "single"
    return None if is_single or not hasattr(model, "task_names_") else list(model.task_names_)


def raw_model(model: Any, task: Any = None) -> RawModel:
    """Return the raw predictions of a fitted estimator, of `task` where there are several."""
    if not isinstance(model, Explainable | ExplainableTasks):
        raise TypeError(
            f"model={model!r} cannot be explained: give a fitted estimator of jointleaf, or a "
            "Pipeline that ends in one"
        )
    names = task_names(model)
    if isinstance(model, Explainable):
        if task is not None:
            raise ValueError(f"task={task!r}: the model has no tasks, leave it out")
        raw = _of_cells(model, model.cell_model_, partial(read_coded_rows, model))
        calibration, loss = (getattr(model, name, None) for name in ("calibration_", "loss_"))
        has_offset = getattr(getattr(model, "report_", None), "has_offset", False)
        known = getattr(model, "classes_", None)
        raw = replace(raw, calibration=calibration, loss=loss, has_offset=has_offset)
        return raw if known is None else replace(raw, classes=tuple(known.tolist()))
    if names is not None and task is None:
        raise ValueError(f"the model has several tasks: give one of {names} as task")
    t = 0 if task is None else task_number(model, task)

    def read(X: Any) -> NDArray:
        rows: NDArray = read_task_rows(model, X, model.task_names_[t])[0]
        return rows

    if hasattr(model, "cell_models_"):
        raw = _of_cells(model, model.cell_models_[t], read)
        calibrations, losses = (getattr(model, name, None) for name in ("calibrations_", "losses_"))
        if calibrations is None or losses is None:  # classes
            return raw
        return replace(raw, calibration=calibrations[t], loss=losses[t])
    return _of_trees(model, t, read)


def _of_cells(model: Any, cell_model: CellModel, read: Callable[[Any], NDArray]) -> RawModel:
    if cell_model.means is None:
        raise ValueError("the model holds no means of its training rows: fit it again")
    n_jobs, columns = threads(model.n_jobs), model.columns_
    outputs = tuple(model.classes_.tolist()) if cell_model.biases.ndim == 2 else None

    def parts(rows: NDArray) -> Parts:
        of_matrix = explainer_of(cell_model)(columns.matrix(rows))
        linear, cells = (columns.credited(part, axis=1) for part in of_matrix[:2])
        return of_matrix._replace(linear=linear, cells=cells)

    return RawModel(
        columns,
        read,
        lambda rows: cell_model.predict(columns.matrix(rows), n_jobs),
        parts,
        outputs,
        cell_model,
        classes=outputs,
    )


def _of_trees(model: Any, t: int, read: Callable[[Any], NDArray]) -> RawModel:
    """Boosted trees of one task, without linear models."""
    classes: Any = getattr(model, "task_classes_", {t: ()})[t]
    outputs = tuple(classes.tolist()) if len(classes) > 2 else None
    name = model.task_names_[t]
    trees, weights = model.trees_[name], model.leaf_weights_[name]

    def parts(rows: NDArray) -> Parts:
        explainer = TreeExplainer(trees, trees.leaf_values, weights)
        cells, _ = explainer(rows.astype(np.float64, copy=False))
        cells_rest = np.zeros((len(rows), cells.shape[2]))
        return Parts(np.zeros_like(cells), cells, cells_rest, explainer.mean)

    return RawModel(
        model.columns_, read, lambda rows: raw_of_task(model, rows, t), parts, outputs, None,
        classes=outputs,
    )  # fmt: skip


def decode_categories(rows: NDArray, columns: Columns) -> NDArray:
    """Return rows (n, d) with the names of categories instead of their codes."""
    if not columns.categorical.size:
        return rows.astype(np.float64)
    out = rows.astype(np.float64).astype(object)
    for j in columns.categorical:
        categories = columns[j].categories
        assert categories is not None
        texts = np.array([*categories.tolist(), "(unseen)", None], dtype=object)
        out[:, j] = texts[as_codes(rows[:, j], len(categories))]
    return out
