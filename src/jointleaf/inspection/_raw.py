"""One view on all fitted models: rows in, raw predictions and their parts out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.columns import Columns, as_codes
from jointleaf._data.rows import read_rows
from jointleaf._model.cell_model import CellModel
from jointleaf.inspection._methods import Explainable, ExplainableTasks
from jointleaf.inspection._parts import Parts, TreeExplainer, explainer_of


@dataclass(frozen=True)
class RawModel:
    """The raw predictions of one model: of the only task, or of one of several."""

    columns: Columns
    read: Callable[[Any], NDArray]  # from what users give to the matrix (n, d)
    predict: Callable[[NDArray], NDArray]  # from a matrix to raw predictions (n,) or (n, K)
    parts: Callable[[NDArray], Parts]  # from a matrix to the parts of these
    outputs: tuple | None  # names of K outputs; None for one
    cell_model: CellModel | None  # None for BoUTS

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.label for column in self.columns)

    def output(self, output: Any) -> int:
        """Return the number of an output that is named or numbered; None is the only one."""
        if self.outputs is None:
            if output is not None:
                raise ValueError(f"output={output!r}: the model has one output, leave it out")
            return 0
        return output_number(self.outputs, output)


def output_number(outputs: tuple, output: Any) -> int:
    """Return the number of one of several outputs."""
    if output is None:
        raise ValueError(f"the model has several outputs: give one of {list(outputs)} as output")
    if output in outputs:
        return list(outputs).index(output)
    raise ValueError(f"output={output!r} is not known: the outputs are {list(outputs)}")


def last_step(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the last step of a fitted pipeline, and the rows as that step sees them."""
    if not isinstance(model, Pipeline):
        return model, X
    before = model[:-1]
    return model.steps[-1][1], before.transform(X) if len(before.steps) else X


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
        return _of_cells(model, model.cell_model_, partial(read_rows, model))
    if names is not None and task is None:
        raise ValueError(f"the model has several tasks: give one of {names} as task")
    t = 0 if task is None else model.task_number(task)

    def read(X: Any) -> NDArray:
        rows: NDArray = model.read_task_rows(X, model.task_names_[t])[0]
        return rows

    if hasattr(model, "cell_models_"):
        return _of_cells(model, model.cell_models_[t], read)
    return _of_trees(model, t, read)


def _of_cells(model: Any, cell_model: CellModel, read: Callable[[Any], NDArray]) -> RawModel:
    if cell_model.means is None:
        raise ValueError("the model holds no means of its training rows: fit it again")
    n_jobs = effective_n_jobs(model.n_jobs)
    outputs = tuple(model.classes_.tolist()) if cell_model.biases.ndim == 2 else None
    return RawModel(
        model.columns_,
        read,
        lambda rows: cell_model.predict(rows, n_jobs),
        lambda rows: explainer_of(cell_model)(rows),
        outputs,
        cell_model,
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
        model.columns_, read, lambda rows: model.raw_predictions(rows, t), parts, outputs, None
    )


def named_column(columns: Columns, column: Any) -> int:
    """Return the number of a column that is named or numbered."""
    names = [c.label for c in columns]
    if isinstance(column, str):
        if column not in names:
            raise ValueError(f"column {column!r} is not known: the columns are {names}")
        return names.index(column)
    if isinstance(column, int | np.integer) and 0 <= column < len(names):
        return int(column)
    raise ValueError(f"column={column!r} must be a name or a number from 0 to {len(names) - 1}")


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
