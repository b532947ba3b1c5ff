"""One view on all fitted models: rows in, raw predictions and their parts out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.columns import Columns
from jointleaf.inspection._cells import Parts, TreeExplainer, explainer_of

if TYPE_CHECKING:
    from jointleaf._model.cell_model import CellModel
    from jointleaf.multitask._bouts.estimator import BaseBoUTS

__all__ = ["RawModel", "last_step", "named_column", "output_number", "raw_model", "task_names"]


@dataclass(frozen=True)
class RawModel:
    """The raw predictions of one model: of the only task, or of one of several.

    Attributes
    ----------
    columns : Columns
    read : function
        From what users give to the matrix (n, d).
    predict : function
        From a matrix (n, d) to raw predictions (n,) or (n, K).
    parts : function
        From a matrix (n, d) to the parts of these.
    outputs : tuple or None
        Names of K outputs; None for one.
    fitted : CellModel or None
        None for BoUTS.
    """

    columns: Columns
    read: Callable[[Any], NDArray]
    predict: Callable[[NDArray], NDArray]
    parts: Callable[[NDArray], Parts]
    outputs: tuple | None
    fitted: CellModel | None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(column.label for column in self.columns)

    def output(self, output: Any) -> int:
        """Number of an output that is named or numbered; None is the only one."""
        if self.outputs is None:
            if output is not None:
                raise ValueError(f"output={output!r}: the model has one output, leave it out")
            return 0
        return output_number(self.outputs, output)


def output_number(outputs: tuple, output: Any) -> int:
    """Number of one of several outputs."""
    if output is None:
        raise ValueError(f"the model has several outputs: give one of {list(outputs)} as output")
    if output in outputs:
        return list(outputs).index(output)
    raise ValueError(f"output={output!r} is not known: the outputs are {list(outputs)}")


def last_step(model: Any, X: Any) -> tuple[Any, Any]:
    """Give the last step of a fitted pipeline, and the rows as that step sees them."""
    if not isinstance(model, Pipeline):
        return model, X
    before = model[:-1]
    return model.steps[-1][1], before.transform(X) if len(before.steps) else X


def task_names(model: Any) -> list | None:
    """Names of the tasks of a model of several tasks; None of all others."""
    check_is_fitted(model)
    is_single = getattr(model, "task_form_", None) == "single"
    return None if is_single or not hasattr(model, "task_names_") else list(model.task_names_)


def raw_model(model: Any, task: Any = None) -> RawModel:
    """Look at a fitted estimator.

    Parameters
    ----------
    model : JOPLEnRegressor, JOPLEnClassifier, MultiTask..., BoUTS...
    task : name of a task
        Needed where there are several.
    """
    from jointleaf.estimators._params import JOPLEnParameters
    from jointleaf.multitask._bouts.estimator import BaseBoUTS
    from jointleaf.multitask._estimators import BaseMultiTaskJOPLEn

    if not isinstance(model, JOPLEnParameters | BaseBoUTS):
        raise TypeError(
            f"model={model!r} cannot be explained: give a fitted estimator of jointleaf, or a "
            "Pipeline that ends in one"
        )
    names = task_names(model)
    if names is None and task is not None and not hasattr(model, "task_names_"):
        raise ValueError(f"task={task!r}: the model has no tasks, leave it out")
    if names is not None and task is None:
        raise ValueError(f"the model has several tasks: give one of {names} as task")
    if isinstance(model, BaseBoUTS):
        return _bouts(model, 0 if task is None else model.task_number(task))
    if isinstance(model, BaseMultiTaskJOPLEn):
        name = model.task_names_[0] if task is None else task
        fitted = model.cell_models_[model.task_number(name)]
        return _joplen(model, fitted, lambda X: model.read_task_rows(X, name)[0])
    return _joplen(model, model.cell_model_)


def _joplen(
    model: Any, fitted: CellModel, read: Callable[[Any], NDArray] | None = None
) -> RawModel:
    from jointleaf._data.rows import read_rows

    if fitted.means is None:
        raise ValueError("the model holds no means of its training rows: fit it again")
    jobs = effective_n_jobs(model.n_jobs)
    outputs = tuple(model.classes_.tolist()) if fitted.biases.ndim == 2 else None
    return RawModel(
        model.columns_,
        read or partial(read_rows, model),
        lambda rows: fitted.predict(rows, jobs),
        lambda rows: explainer_of(fitted)(rows),
        outputs,
        fitted,
    )


def _bouts(model: BaseBoUTS, t: int) -> RawModel:
    classes: Any = getattr(model, "task_classes_", {t: ()})[t]
    outputs = tuple(classes.tolist()) if len(classes) > 2 else None
    return RawModel(
        model.columns_,
        lambda X: model.read_task_rows(X, model.task_names_[t])[0],
        lambda rows: model.raw_predictions(rows, t),
        partial(_tree_parts, model, model.task_names_[t]),
        outputs,
        None,
    )


def _tree_parts(model: BaseBoUTS, name: Any, rows: NDArray) -> Parts:
    trees = model.trees_[name]
    assert trees.leaf_values is not None
    explainer = TreeExplainer(trees, trees.leaf_values, model.leaf_weights_[name])
    cells, _ = explainer(rows.astype(np.float64, copy=False))
    rest = np.zeros((len(rows), cells.shape[2]))
    return Parts(np.zeros_like(cells), cells, rest, explainer.mean)


def named_column(columns: Columns, column: Any) -> int:
    """Number of a column that is named or numbered."""
    names = [c.label for c in columns]
    if isinstance(column, str):
        if column not in names:
            raise ValueError(f"column {column!r} is not known: the columns are {names}")
        return names.index(column)
    if isinstance(column, int | np.integer) and 0 <= column < len(names):
        return int(column)
    raise ValueError(f"column={column!r} must be a name or a number from 0 to {len(names) - 1}")
