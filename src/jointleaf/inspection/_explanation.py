"""Explanations: what every column adds to the predictions of rows."""

from __future__ import annotations

import html
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from jointleaf._data.formatting import day_text, number, short_number, signed, term
from jointleaf.inspection._methods import read_shift, read_task_rows, task_numbers
from jointleaf.inspection._parts import (
    COVERAGE,
    Parts,
    RawModel,
    decode_categories,
    last_step,
    main_output,
    named_raw_model,
    output_number,
    raw_model,
    task_names,
)

REST = "cells"  # name of what no single column is credited with
#: What that is, in a line below contributions.
REST_NOTE = (
    f"{REST}: the constants of cells that combine columns (Voronoi cells, rotated trees), credited "
    "to no single one"
)
_RESERVED = ("baseline", REST, "prediction")  # columns of `Explanation.to_frame`
_HTML_ROWS = 3  # that a notebook shows


@dataclass(frozen=True, repr=False)
class Explanation:
    """What every column of a table adds to the predictions of rows.

    For every row and output,

        prediction = baseline + sum over columns of values + cells_rest,
        values     = linear + cells,

    exactly, on the scale of raw predictions: that of the target in regression (its logarithm for
    the losses "poisson", "gamma" and "tweedie"), log-odds of the second class for two classes, one
    number per class for more (``decision_function``).

    Attributes
    ----------
    linear : array (n, d) or (n, d, K)
        What the linear models of the row's cells add: slope times distance from the training
        mean, less the mean of that product over the training rows.
    cells : array (n, d) or (n, d, K)
        What it adds that the row lies in these cells and not in others, credited to the columns
        on which the trees split.
    cells_rest : array (n,) or (n, K)
        The same for cells that are not made by splits on columns (Voronoi cells); else zero.
    baseline : float, array (K,), or array (n,) where every row has its task, offset or exposure
        The mean prediction over the training rows. Contributions are measured from it: over
        the training rows those of every column have mean zero. The offset of a row, where it was
        given, is part of it.
    feature_names : tuple of str, length d
    data : array (n, d)
        The rows, with the names of categories.
    output_names : tuple or None
        Classes, or tasks, along the last axis; None where there is one output.
    interval : array (n, 2) or (n, 2, T), or None
        Between which numbers the target is with the probability `coverage`, as in
        `JOPLEnRegressor.predict_interval`: on the scale of the target, also with a log link (there
        for an exposure of 1 unless it was given). None for classes, and where the fit held out no
        rows, or too few.
    coverage : float
    has_log_link : bool
        Whether raw predictions are logarithms of predictions.
    days : frozenset of int
        Columns that hold days since 1970-01-01, which are shown as dates.
    is_per_exposure : bool
        Whether `interval` is for an exposure of 1 and the fit had exposure, which texts say then.
    classes : tuple or None
        Names of the classes, of a classifier.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import Frobenius, JOPLEnRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> y = 2 * X[:, 0] + np.abs(X[:, 1])
    >>> model = JOPLEnRegressor("lightgbm", penalty=Frobenius(0.01), random_state=0).fit(X, y)
    >>> explanation = model.explain(X[:5])
    >>> explanation
    Explanation of 5 predictions by 3 columns, baseline 0.6656
    >>> whole = explanation.baseline + explanation.values.sum(axis=1)
    >>> bool(np.allclose(whole, model.predict(X[:5]), atol=1e-12))
    True
    """

    linear: NDArray[np.float64]
    cells: NDArray[np.float64]
    cells_rest: NDArray[np.float64]
    baseline: Any
    feature_names: tuple[str, ...]
    data: NDArray
    output_names: tuple | None = None
    interval: NDArray[np.float64] | None = None
    coverage: float = COVERAGE
    has_log_link: bool = False
    days: frozenset[int] = frozenset()
    is_per_exposure: bool = False
    classes: tuple | None = None

    @property
    def values(self) -> NDArray[np.float64]:
        """What every column adds, (n, d) or (n, d, K): ``linear + cells``."""
        return self.linear + self.cells

    @property
    def prediction(self) -> NDArray[np.float64]:
        """The raw predictions (n,) or (n, K) that are explained."""
        return self.baseline + self.values.sum(axis=1) + self.cells_rest

    @property
    def importances(self) -> NDArray[np.float64]:
        """Mean size of the values over the rows, (d,) or (d, K)."""
        return np.abs(self.values).mean(axis=0)

    @property
    def has_rest(self) -> bool:
        """Whether there is something that no single column is credited with."""
        return bool(np.any(self.cells_rest))

    def __len__(self) -> int:
        return len(self.linear)

    def __getitem__(self, rows: Any) -> Explanation:
        """Return the explanation of some rows: a number, a slice, or an array of either."""
        if isinstance(rows, int | np.integer):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"row {rows} is not there: the explanation has {len(self)} rows")
            rows = [rows]
        per_row = np.ndim(self.baseline) == 1 and self.linear.ndim == 2
        baseline = self.baseline[rows] if per_row else self.baseline
        return self._taken(rows, baseline=baseline, data=self.data[rows])

    def output(self, name: Any = None) -> Explanation:
        """Return the explanation of one of several outputs: a class, or a task.

        By default it is the class that is predicted, of several rows the most frequent one.
        """
        if self.output_names is None:
            raise ValueError(f"output({name!r}): the explanation has one output")
        k = self._output_number(name)
        base = float(self.baseline[k])
        return self._taken((..., k), baseline=base, output_names=None, classes=None)

    def _output_number(self, name: Any) -> int:
        assert self.output_names is not None
        if name is None and self.classes is not None:
            return main_output(self.prediction)
        return output_number(self.output_names, name)

    def _taken(self, index: Any, **changes: Any) -> Explanation:
        parts = {name: getattr(self, name)[index] for name in ("linear", "cells", "cells_rest")}
        interval = None if self.interval is None else self.interval[index]
        return replace(self, interval=interval, **parts, **changes)

    def __repr__(self) -> str:
        n, d = self.linear.shape[:2]
        base = np.asarray(self.baseline)
        number = f", baseline {float(base):.4g}" if base.ndim == 0 else ""
        number += " (logarithms)" if self.has_log_link else ""
        outputs = "" if self.output_names is None else f" of {len(self.output_names)} outputs"
        return f"Explanation of {n} predictions{outputs} by {d} columns{number}"

    def describe(self, row: int = 0, *, output: Any = None, n_columns: int = 10) -> str:
        """Return in plain text what made one prediction, the largest contributions first.

        Where raw predictions are logarithms, the prediction itself is in a line of its own. What
        no single column is credited with has a line "cells" and a note below the others. For
        classes the last line is the class that is predicted, with its probability.

        Parameters
        ----------
        row : int
        output : class or task, optional
            Of several classes the predicted one by default; of several tasks it is needed.
        n_columns : int
            Columns that get a line; the others are summed up in one.
        """
        whole = self[row]
        one = whole if whole.output_names is None else whole.output(output)
        entries = one.entries(n_columns)
        scale = " (log)" if one.has_log_link else ""
        lines = [(f"baseline{scale}", float(np.reshape(one.baseline, -1)[0])), *entries]
        lines.append((f"{whole._raw_name(output)}{scale}", float(one.prediction[0])))
        largest = max(abs(value) for _, value in lines)
        numbers = [term(value, largest) for _, value in lines]
        numbers[1:-1] = map(signed, numbers[1:-1])
        if one.has_log_link:
            lines.append(("prediction", float(np.exp(one.prediction[0]))))
            numbers.append(number(lines[-1][1]))
        width, right = max(len(name) for name, _ in lines), max(map(len, numbers))
        text = [
            f"{name:<{width}}  {number:>{right}}"
            for (name, _), number in zip(lines, numbers, strict=True)
        ]
        text += [REST_NOTE] if one.has_rest else []
        text += [one.interval_text()] if one.interval is not None else []
        return "\n".join([*text, *([] if self.classes is None else [whole._class_text()])])

    def _raw_name(self, output: Any) -> str:
        """Return what the raw predictions of an output are called."""
        if self.classes is None:
            return "prediction"
        if self.output_names is None:
            return f"log-odds of {self.classes[1]}"
        return f"raw prediction of {self.output_names[self._output_number(output)]}"

    def _class_text(self) -> str:
        """Return the class that is predicted for the first row, and its probability."""
        assert self.classes is not None
        raw = self.prediction[0]
        raw = np.array([0.0, raw]) if np.ndim(raw) == 0 else raw
        k = int(raw.argmax())
        return f"prediction: {self.classes[k]}, probability {softmax(raw)[k]:.3f}"

    def interval_text(self, row: int = 0) -> str:
        """Return in words what `interval` says of a row, of one output."""
        if self.interval is None:
            raise ValueError("the explanation has no intervals: see its attribute interval")
        low, high = self.interval[row]
        ends = f"{number(low)} to {number(high)}"
        exposure = " for an exposure of 1" if self.is_per_exposure else ""
        return f"target from {ends} with {100 * self.coverage:.4g} %{exposure}"

    def entries(self, n_columns: int = 10) -> list[tuple[str, float]]:
        """Return labels and contributions of the first row of one output, the largest first.

        What is behind the first `n_columns` is summed up in one entry.
        """
        values = self.values[0]
        order = np.argsort(-np.abs(values), kind="stable")
        # One entry for a single column would hide its name for nothing.
        n_columns = n_columns if len(values) - n_columns != 1 else n_columns + 1
        entries = [(self.label(0, int(j)), float(values[j])) for j in order[:n_columns]]
        small = order[n_columns:]
        if len(small):
            entries.append((f"{len(small)} other columns", float(values[small].sum())))
        if self.has_rest:
            entries.append((REST, float(self.cells_rest[0])))
        return entries

    def label(self, row: int, column: int) -> str:
        """Return the name of a column with its value in a row: "age = 31"."""
        return f"{self.feature_names[column]} = {self.value_text(row, column)}"

    def value_text(self, row: int, column: int, digits: int = 4) -> str:
        """Return the value of a column in a row as text: "31", "2024-05-01", "missing"."""
        value = self.data[row, column]
        if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
            return "missing"
        if not isinstance(value, float | np.floating):
            return str(value)
        x = float(value)
        return day_text(x) if column in self.days else short_number(x, digits)

    def to_frame(self) -> Any:
        """Return a pandas table: baseline, what every column adds, and prediction of every row.

        Rows are numbered from 0; where there are several outputs, the index has a second level with
        their names. What no single column is credited with has a column "cells" of its own. A
        column of the data with one of these names gets "x: " before it.
        """
        try:
            import pandas as pd
        except ImportError as cause:
            raise ImportError("to_frame needs pandas: pip install pandas") from cause
        columns = [f"x: {name}" if name in _RESERVED else name for name in self.feature_names]
        names = ["baseline", *columns, *([REST] if self.has_rest else []), "prediction"]
        base = np.broadcast_to(self.baseline, self.cells_rest.shape)
        rest = [self.cells_rest[:, None]] if self.has_rest else []
        parts = [base[:, None], self.values, *rest, self.prediction[:, None]]
        table = np.concatenate(parts, axis=1)
        if self.output_names is None:
            return pd.DataFrame(table, pd.RangeIndex(len(self), name="row"), names)
        index = pd.MultiIndex.from_product(
            [range(len(self)), self.output_names], names=["row", "output"]
        )
        return pd.DataFrame(np.moveaxis(table, 2, 1).reshape(-1, len(names)), index, names)

    def _repr_html_(self) -> str:
        """Return what made the first predictions, for notebooks; of several outputs the words."""
        if self.output_names is not None:
            return f"<p>{html.escape(repr(self))}: <code>output(name)</code> has one of them.</p>"
        tables = "".join(self[row]._html_table(row) for row in range(min(_HTML_ROWS, len(self))))
        flow = "display:flex;flex-wrap:wrap;gap:2em"
        return f'<p>{html.escape(repr(self))}</p><div style="{flow}">{tables}</div>'

    def _html_table(self, row: int) -> str:
        entries = self.entries()
        longest = max((abs(value) for _, value in entries), default=0.0) or 1.0
        base, raw = float(np.reshape(self.baseline, -1)[0]), float(self.prediction[0])
        largest = max(longest, abs(base), abs(raw))
        lines = [_html_line("baseline", term(base, largest), 0.0)]
        lines += [
            _html_line(name, signed(term(value, largest)), value / longest)
            for name, value in entries
        ]
        lines.append(_html_line("prediction", term(raw, largest), 0.0))
        return f"<table><tr><th colspan=3>row {row}</th></tr>{''.join(lines)}</table>"

    def to_shap(self) -> Any:
        """Return the same as a `shap.Explanation`, for the plots of shap (extra ``shap``).

        What no single column is credited with becomes one more column, "cells".
        """
        try:
            import shap
        except ImportError as cause:
            raise ImportError("to_shap needs shap: pip install 'jointleaf[shap]'") from cause
        values, data, names = self.values, self.data, list(self.feature_names)
        if self.has_rest:
            values = np.concatenate([values, self.cells_rest[:, None]], axis=1)
            blank = np.full((len(data), 1), np.nan).astype(data.dtype)
            data, names = np.concatenate([data, blank], axis=1), [*names, REST]
        # shap wants a baseline for every row.
        base = np.array(np.broadcast_to(self.baseline, self.cells_rest.shape), float)
        return shap.Explanation(
            values,
            base_values=base,
            data=data,
            feature_names=names,
            output_names=None if self.output_names is None else list(map(str, self.output_names)),
        )


def _html_line(name: str, number: str, fraction: float) -> str:
    """Return a line of a table: a name, a number, and a bar of the length of a fraction."""
    color = "#c0504d" if fraction < 0 else "#4f81bd"
    bar = f"height:0.7em;width:{round(80 * abs(fraction))}px;background:{color}"
    return (
        f'<tr><td style="text-align:left">{html.escape(name)}</td>'
        f'<td style="text-align:right">{number}</td><td><div style="{bar}"></div></td></tr>'
    )


# -- from a fitted model and rows ------------------------------------------------------------------


def explain(
    model: Any,
    X: Any,
    *,
    task: Any = None,
    coverage: float | None = None,
    offset: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
) -> Explanation:
    """Return what every column adds to the predictions of rows; the parts add up exactly.

    Parameters
    ----------
    model : fitted estimator of jointleaf, or a Pipeline that ends in one
        Of a pipeline the columns are those that its last step sees.
    X : array-like or data frame (n, d)
    task : name of a task, or labels (n,), optional
        As for ``predict`` of models of several tasks: without it all tasks are explained, as
        outputs, unless X has the column of tasks.
    coverage : float in (0, 1), optional
        Of the intervals beside the predictions, by default 0.9 where the model has any.
    offset, exposure : array-like (n,), optional
        As for ``predict`` of regressors: part of the baseline, which every row then has of its own.

    Returns
    -------
    Explanation

    Notes
    -----
    A prediction is a sum over the cells of a row, one of every partition, of linear models. Its
    linear part is taken apart feature by feature, which is exact, and put together again for the
    columns that indicators of categories and missing values come from. What the cells themselves
    are worth is credited to the columns that trees split on along the row's way (Saabas 2014).
    That takes about as long as predicting. Shapley values of the same trees spread a tree's value
    more evenly between the splits near the root and those near the leaves, but cost a multiple.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from jointleaf import Frobenius, JOPLEnRegressor
    >>> from jointleaf.inspection import explain
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = JOPLEnRegressor(penalty=Frobenius(0.1), random_state=0).fit(X, y)
    >>> explanation = explain(model, X)
    >>> explanation.values.shape
    (442, 10)
    >>> whole = explanation.baseline + explanation.values.sum(axis=1)
    >>> bool(np.allclose(whole, model.predict(X)))
    True
    >>> bool(np.isclose(explanation.baseline, model.predict(X).mean()))
    True
    """
    given = model
    model, X = last_step(model, X)
    names = task_names(model) if hasattr(model, "task_names_") else None
    shift = read_shift(model, X, offset, exposure)
    if names is None:
        raw = named_raw_model(given, task)
        return _explain_one(raw, raw.read(X), coverage, shift)
    rows, task = read_task_rows(model, X, task)
    if task is None:
        models = [raw_model(model, name) for name in names]
        return _explain_all_tasks(models, names, rows, coverage)
    if np.ndim(task) == 0:
        return _explain_one(raw_model(model, task), rows, coverage)
    return _explain_by_label(model, rows, np.asarray(task), coverage)


def _explain_one(
    raw: RawModel, rows: NDArray, coverage: float | None, shift: NDArray | None = None
) -> Explanation:
    explanation = _explanation(raw.parts(rows), raw, rows, raw.outputs)
    raws, ends = explanation.prediction, np.zeros(1)
    if shift is not None:
        base = explanation.baseline + shift
        explanation = replace(explanation, baseline=base, is_per_exposure=False)
        # By exposure the intervals of counts and amounts widen; all others are moved.
        raws, ends = (raws + shift, ends) if explanation.has_log_link else (raws, shift[:, None])
    interval = raw.intervals(rows, raws, coverage)
    interval = None if interval is None else interval + ends
    return replace(explanation, interval=interval, coverage=coverage or COVERAGE)


def _explanation(parts: Parts, raw: RawModel, rows: NDArray, outputs: tuple | None) -> Explanation:
    """Drop the axis of outputs where there is one only."""
    if outputs is None:
        parts = Parts(*(part[..., 0] for part in parts))
    linear, cells, cells_rest, baseline = parts
    base = float(baseline) if outputs is None else baseline
    data = decode_categories(rows, raw.columns)
    has_log_link = raw.loss is not None and raw.loss.has_log_link
    classes = raw.classes if outputs is raw.outputs else None  # those of tasks
    return Explanation(
        linear, cells, cells_rest, base, raw.names, data, outputs, has_log_link=has_log_link,
        is_per_exposure=has_log_link and raw.has_offset, days=raw.days, classes=classes,
    )  # fmt: skip


def _explain_all_tasks(
    models: list[RawModel], names: list, rows: NDArray, coverage: float | None
) -> Explanation:
    several = [name for raw, name in zip(models, names, strict=True) if raw.outputs is not None]
    if several:
        raise ValueError(
            f"task {several[0]!r} has several classes, each with an explanation of its own: give "
            "the name of a task as task"
        )
    by_task = zip(*(raw.parts(rows) for raw in models), strict=True)
    parts = Parts(*(np.concatenate(arrays, axis=-1) for arrays in by_task))
    explanation = _explanation(parts, models[0], rows, tuple(names))
    intervals = [
        raw.intervals(rows, predictions, coverage)
        for raw, predictions in zip(models, explanation.prediction.T, strict=True)
    ]
    known = [ends for ends in intervals if ends is not None]
    interval = np.stack(known, axis=-1) if len(known) == len(models) else None
    return replace(explanation, interval=interval, coverage=coverage or COVERAGE)


def _explain_by_label(
    model: Any, rows: NDArray, labels: NDArray, coverage: float | None
) -> Explanation:
    numbers = task_numbers(model, labels, len(rows))
    n, d = rows.shape
    whole = Parts(np.empty((n, d)), np.empty((n, d)), np.empty(n), np.empty(n))
    ends, has_ends = np.empty((n, 2)), True
    for t in np.unique(numbers):
        name = model.task_names_[t]
        raw = raw_model(model, name)
        if raw.outputs is not None:
            raise ValueError(f"task {name!r} has several classes: explain every task on its own")
        in_task = numbers == t
        one = _explain_one(raw, rows[in_task], coverage)
        parts = (one.linear, one.cells, one.cells_rest, one.baseline)
        for values, part in zip(whole, parts, strict=True):
            values[in_task] = part
        has_ends = has_ends and one.interval is not None
        if one.interval is not None:
            ends[in_task] = one.interval
    names = tuple(column.label for column in model.columns_)
    data = decode_categories(rows, model.columns_)
    return Explanation(
        *whole, names, data, interval=ends if has_ends else None, coverage=coverage or COVERAGE,
        has_log_link=one.has_log_link, days=one.days,
    )  # fmt: skip
