"""From a fitted model and rows to their explanation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._data.columns import Columns, as_codes
from jointleaf.inspection._cells import Parts
from jointleaf.inspection._explanation import Explanation
from jointleaf.inspection._raw import RawModel, last_step, raw_model, task_names

__all__ = ["decoded", "explain"]


def explain(model: Any, X: Any, *, task: Any = None) -> Explanation:
    """Say what every column adds to the predictions of rows; the parts add up exactly.

    Parameters
    ----------
    model : fitted estimator of jointleaf, or a Pipeline that ends in one
        Of a pipeline the columns are those that its last step sees.
    X : array-like or data frame (n, d)
    task : name of a task, or labels (n,), optional
        As for ``predict`` of models of several tasks: without it all tasks are explained, as
        outputs, unless X has the column of tasks.

    Returns
    -------
    Explanation

    Notes
    -----
    A prediction is a sum over the cells of a row, one of every partition, of linear models. Its
    linear part is taken apart feature by feature, which is exact, and put together again for the
    columns that indicators of levels and gaps come from. What the cells themselves are worth is
    credited to the columns that trees split on along the row's way
    (`jointleaf.inspection._credits`). That takes about as long as predicting. Shapley values of the
    same trees share a tree's value more evenly between the splits near the root and those near
    the leaves, but cost a multiple.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from jointleaf import Frobenius, JOPLEnRegressor
    >>> from jointleaf.inspection import explain
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = JOPLEnRegressor(penalty=Frobenius(0.1), random_state=0).fit(X, y)
    >>> found = explain(model, X)
    >>> found.values.shape
    (442, 10)
    >>> bool(np.allclose(found.baseline + found.values.sum(axis=1), model.predict(X)))
    True
    >>> bool(np.isclose(found.baseline, model.predict(X).mean()))
    True
    """
    model, X = last_step(model, X)
    names = task_names(model) if hasattr(model, "task_names_") else None
    if names is None:
        return _explained(raw_model(model, task), X)
    if hasattr(model, "_without_column"):
        X, task = model._without_column(X, task)
    if task is None:
        return _all_tasks([raw_model(model, name) for name in names], names, X)
    if np.ndim(task) == 0:
        return _explained(raw_model(model, task), X)
    return _own_tasks(model, X, np.asarray(task))


def _explained(raw: RawModel, X: Any) -> Explanation:
    rows = raw.read(X)
    return _explanation(raw.parts(rows), raw, rows, raw.outputs)


def _explanation(parts: Parts, raw: RawModel, rows: NDArray, outputs: tuple | None) -> Explanation:
    """Drop the axis of outputs where there is one only."""
    base: Any = parts.baseline
    linear, cells, rest = parts.linear, parts.cells, parts.rest
    if outputs is None:
        base, linear, cells, rest = float(base[0]), linear[..., 0], cells[..., 0], rest[..., 0]
    return Explanation(linear, cells, rest, base, raw.names, decoded(rows, raw.columns), outputs)


def _all_tasks(models: list[RawModel], names: list, X: Any) -> Explanation:
    """Every task is an output."""
    rows = models[0].read(X)
    several = [name for raw, name in zip(models, names, strict=True) if raw.outputs is not None]
    if several:
        raise ValueError(
            f"task {several[0]!r} has several classes, each with an explanation of its own: give "
            "the name of a task as task"
        )
    found = [raw.parts(rows) for raw in models]
    parts = Parts(
        np.concatenate([p.linear for p in found], axis=2),
        np.concatenate([p.cells for p in found], axis=2),
        np.concatenate([p.rest for p in found], axis=1),
        np.concatenate([p.baseline for p in found]),
    )
    return _explanation(parts, models[0], rows, tuple(names))


def _own_tasks(model: Any, X: Any, labels: NDArray) -> Explanation:
    """Every row is explained by the model of its own task."""
    some = raw_model(model, model.task_names_[0])
    rows = some.read(X)
    if labels.shape != (len(rows),):
        raise ValueError(
            f"task has shape {labels.shape}: give one task, or one for each of the {len(rows)} rows"
        )
    models = {label: raw_model(model, label) for label in dict.fromkeys(labels.tolist())}
    several = [label for label, raw in models.items() if raw.outputs is not None]
    if several:
        raise ValueError(f"task {several[0]!r} has several classes: explain every task on its own")
    n, d = rows.shape
    linear, cells = np.empty((n, d)), np.empty((n, d))
    rest, base = np.empty(n), np.empty(n)
    for label, raw in models.items():
        own = np.flatnonzero([other == label for other in labels.tolist()])
        parts = raw.parts(rows[own])
        linear[own], cells[own] = parts.linear[..., 0], parts.cells[..., 0]
        rest[own], base[own] = parts.rest[:, 0], parts.baseline[0]
    return Explanation(linear, cells, rest, base, some.names, decoded(rows, some.columns))


def decoded(rows: NDArray, columns: Columns) -> NDArray:
    """Rows (n, d) with the names of levels instead of their codes."""
    if not columns.categorical.size:
        return rows.astype(np.float64)
    out = rows.astype(np.float64).astype(object)
    for j in columns.categorical:
        levels = columns[j].categories
        assert levels is not None
        texts = np.array([*levels.tolist(), "(unseen)", None], dtype=object)
        out[:, j] = texts[as_codes(rows[:, j], len(levels))]
    return out
