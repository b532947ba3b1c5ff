"""The linear model in force around one row, and how far it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._model.cell_model import CellModel
from jointleaf._trees.flat import FlatTrees, leaves_as_cells
from jointleaf._trees.routing import ZERO, Router
from jointleaf.inspection._parts import explainer_of, output_number, parents, step_model
from jointleaf.partitions import RootCell, RotatedPartitioner, VoronoiPartitioner
from jointleaf.partitions._base import TreeCells
from jointleaf.partitions._rotated import FARTHEST, GRID


@dataclass(frozen=True, repr=False)
class LocalModel:
    """The linear model that a fitted model is, around one row.

    With the linear features u of the row in the units of the data (numbers as they are, ones and
    zeros for categories and missing values), the raw prediction is
    ``intercept + sum of coef * u`` as long as no column of numbers leaves its range alone.

    Attributes
    ----------
    names : tuple of str, length m
        Of the linear features: columns of numbers, then categories ("city=Rome"), then indicators
        of missing values.
    coef : array (m,) or (m, K)
        Slopes. Zero where the row's value is missing, or outside the range that the linear
        models see: there the prediction does not depend on it.
    intercept : float or array (K,)
    value : float or array (K,)
        The raw prediction of the row.
    x : array (m,)
        The linear features of the row, NaN where they are missing.
    low, high : arrays (m,)
        How far each column of numbers can be moved, the others fixed, before the row enters
        another cell or a slope changes: the model holds for low < x < high. NaN for
        indicators, missing values, and where cells are of a kind whose limits are not known.
    scale : array (m,)
        Standard deviations over the training rows: ``coef * scale`` are comparable. Indicators of
        one column share a scale.
    is_number : bool array (m,)
        Which linear features are columns of numbers; the others are ones and zeros.
    output_names : tuple or None
    days : frozenset of int
        Linear features that are days since 1970-01-01, which are shown as dates.

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import Frobenius, JOPLEnRegressor
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> y = np.where(X[:, 0] > 0, 3 * X[:, 1], -X[:, 1])
    >>> model = JOPLEnRegressor("lightgbm", penalty=Frobenius(1e-4), random_state=0).fit(X, y)
    >>> bool(abs(model.local_model([[1.0, 0.2]]).coef[1] - 3) < 0.5)
    True
    """

    names: tuple[str, ...]
    coef: NDArray[np.float64]
    intercept: Any
    value: Any
    x: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    scale: NDArray[np.float64]
    is_number: NDArray[np.bool_]
    output_names: tuple | None = None
    days: frozenset[int] = frozenset()

    def predict(self, x: NDArray) -> Any:
        """Return the prediction of linear features x (m,) or (n, m); NaN counts as in the row."""
        u = np.where(np.isnan(x), np.nan_to_num(self.x), x)
        return self.intercept + u @ self.coef

    def of_output(self, output: Any = None) -> tuple[NDArray[np.float64], float]:
        """Return slopes (m,) and prediction of one output: a class, by default the predicted."""
        if self.output_names is None:
            return self.coef, float(self.value)
        is_given = output is not None
        k = output_number(self.output_names, output) if is_given else int(np.argmax(self.value))
        return self.coef[:, k], float(self.value[k])

    def __repr__(self) -> str:
        one = self.output_names is None
        value = f", prediction {float(self.value):.4g}" if one else ""
        return f"LocalModel with {np.count_nonzero(self.coef)} slopes{value}"


def local_model(model: Any, X: Any, *, task: Any = None) -> LocalModel:
    """Return the linear model in force around a row.

    Parameters
    ----------
    model : fitted estimator of jointleaf, or a Pipeline that ends in one
    X : array-like or data frame (1, d)
        One row.
    task : name of a task
        Needed where there are several.

    Returns
    -------
    LocalModel
    """
    raw, rows = step_model(model, X, task)
    if len(rows) != 1:
        raise ValueError(f"X has {len(rows)} rows: give one, for example X[:1] or X.iloc[[0]]")
    cell_model = raw.cell_model
    if cell_model is None:
        raise TypeError(f"{type(model).__name__} has no linear models in its cells, only constants")
    prediction, rows = raw.predict(rows), raw.columns.matrix(rows)
    features = cell_model.features
    u = features.plan.raw(rows.astype(np.float64))[0]
    z, codes = features.transform(rows), cell_model.partitioner.apply(rows)
    scaler = features.scaler
    slopes = explainer_of(cell_model).linear.slopes(z, codes)[0]  # (m, K)
    moves = ~np.isnan(u)
    if scaler.clip:
        moves &= (scaler.low <= u) & (u <= scaler.high) & (scaler.low < scaler.high)
    coef = np.where(moves[:, None], cell_model.unit * slopes / scaler.scale[:, None], 0.0)
    value = np.reshape(prediction, -1).astype(np.float64)
    intercept = value - np.nan_to_num(u) @ coef
    low, high = _intervals(cell_model, rows, codes, len(u))
    if raw.outputs is None:
        parts: tuple[Any, Any, Any] = coef[:, 0], float(intercept[0]), float(value[0])
    else:
        parts = coef, intercept, value
    is_number = np.arange(len(u)) < len(features.plan.numbers)
    names, scale = features.plan.names, scaler.scale
    if raw.labels is not None:
        n_numbers = len(features.plan.numbers)
        names = (*(raw.names[j] for j in features.plan.numbers), *names[n_numbers:])
    days = frozenset(i for i, j in enumerate(features.plan.numbers) if j in raw.days)
    return LocalModel(names, *parts, u, low, high, scale, is_number, raw.outputs, days)


# -- how far columns can be moved ------------------------------------------------------------------


class _Reach:
    """Intervals of d columns around the values of a row, which become narrower."""

    def __init__(self, x: NDArray) -> None:
        self.x = x
        self.low = np.where(np.isnan(x), np.nan, -np.inf)
        self.high = -self.low

    def cut(self, column: int, place: float) -> None:
        """Cut where something changes as the column goes from at most `place` to more."""
        if not np.isnan(self.x[column]):
            self.limit(column, place, bool(self.x[column] > place))

    def limit(self, column: int, place: float, is_above: bool) -> None:
        """Cut at the end of a range, at or above which the value lies, or else below."""
        if is_above:
            self.low[column] = max(self.low[column], place)
        else:
            self.high[column] = min(self.high[column], place)

    def forget(self) -> None:
        """Mark all ends as not known."""
        self.low[:], self.high[:] = np.nan, np.nan


def _intervals(
    cell_model: CellModel, rows: NDArray, codes: NDArray, n_features: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lower and upper ends (m,) for the linear features of one row (1, d)."""
    reach = _Reach(rows[0].astype(np.float64))
    for member, _ in cell_model.partitioner.walk():
        if isinstance(member, TreeCells):
            _cut_at_splits(reach, member.trees_, rows)
        elif isinstance(member, VoronoiPartitioner):
            _cut_at_borders(reach, member, rows)
        elif isinstance(member, RotatedPartitioner):
            _cut_at_oblique_splits(reach, member, rows)
        elif not isinstance(member, RootCell):
            reach.forget()
    _cut_at_ranges(reach, cell_model, rows, codes)
    low, high = np.full(n_features, np.nan), np.full(n_features, np.nan)
    numbers = cell_model.features.plan.numbers
    low[: len(numbers)], high[: len(numbers)] = reach.low[numbers], reach.high[numbers]
    return low, high


def _cut_at_splits(reach: _Reach, trees: FlatTrees, rows: NDArray) -> None:
    """Cut at the thresholds that the row meets on its way through the trees."""
    leaves = Router(leaves_as_cells(trees))(rows)[0] + trees.leaf_starts[:-1]
    above = parents(trees)
    node = above[len(trees.feature) + leaves]
    on_the_way = []
    while (node >= 0).any():
        node = node[node >= 0]
        on_the_way.append(node)
        node = above[node]
    for split in np.unique(np.concatenate(on_the_way)) if on_the_way else ():
        column = int(trees.feature[split])
        if column >= trees.n_features:
            for part in trees.lookups[column - trees.n_features].parts:
                if part.hashes is None:
                    reach.cut(part.column, part.threshold)
        elif trees.table[split] < 0:
            reach.cut(column, float(trees.threshold[split]))
            if trees.zero_is_missing:
                reach.cut(column, -ZERO)
                reach.cut(column, ZERO)


def _cut_at_borders(reach: _Reach, member: VoronoiPartitioner, rows: NDArray) -> None:
    """Cut where another centre becomes the nearest one.

    The nearest centre c has the largest <z, c> - |c|^2 / 2; when feature i moves by t, the lead
    over another centre c' changes by t (c_i - c'_i).
    """
    features = member.features_
    z = features.transform(rows.astype(np.float64))[0]
    centres = member.centres_  # (P, cells, m)
    scores = centres @ z - np.square(centres).sum(axis=2) / 2
    nearest = member.apply(rows)[0]
    p = np.arange(len(centres))
    lead = np.maximum(scores[p, nearest][:, None] - scores, 0.0)
    for i, column in enumerate(features.plan.numbers):
        gains = centres[p, nearest, i][:, None] - centres[:, :, i]
        scale = features.scaler.scale[i]
        for sign in (1.0, -1.0):
            losing = sign * gains > 0
            if losing.any() and not np.isnan(reach.x[column]):
                step = scale * (lead[losing] / np.abs(gains[losing])).min()
                reach.limit(column, reach.x[column] - sign * step, sign > 0)


def _cut_at_oblique_splits(reach: _Reach, member: RotatedPartitioner, rows: NDArray) -> None:
    """Cut where a direction of some rotation passes a threshold.

    When feature i moves by t, direction k moves by t A_ik. The ends lie inside the range by what
    features are rounded by, and directions where trees compare them in single precision.
    """
    z = member.places(rows)[0]
    below, above = np.full(len(z), np.inf), np.full(len(z), np.inf)  # steps down and up
    for A, trees in zip(member.rotations_, member.members_, strict=True):
        directions = _Reach(z @ A)
        _cut_at_splits(directions, trees.trees_, directions.x[None])
        margin = np.finfo(np.float32).eps * FARTHEST * np.abs(A).sum(axis=0)
        down, up = directions.x - directions.low - margin, directions.high - directions.x - margin
        for steps, falling, rising in ((below, up, down), (above, down, up)):
            room = np.where(A > 0, rising, falling)
            moves = np.divide(room, np.abs(A), out=np.full(A.shape, np.inf), where=A != 0)
            np.minimum(steps, moves.min(axis=1) - 1 / GRID, out=steps)
    scaler = member.features_.scaler
    for i, column in enumerate(member.features_.plan.numbers):
        for sign, steps in ((-1.0, below), (1.0, above)):
            place = z[i] + sign * max(steps[i], 0.0)
            if abs(place) <= FARTHEST and not np.isnan(reach.x[column]):
                end = scaler.mean[i] + scaler.scale[i] * place
                outer = min if sign < 0 else max  # the row itself stays in its range
                reach.limit(column, outer(end, reach.x[column]), sign < 0)


def _cut_at_ranges(reach: _Reach, cell_model: CellModel, rows: NDArray, codes: NDArray) -> None:
    """Cut where linear models stop seeing a feature move."""
    layout, ranges, scaler = cell_model.layout, cell_model.ranges, cell_model.features.scaler
    if layout.n_slopes == 0:
        return
    z = cell_model.features.transform(rows)[0]
    cells = (codes[0] + layout.offsets[:-1])[codes[0] >= 0]
    slope_rows = layout.slope_rows[cells]
    for i, column in enumerate(cell_model.features.plan.numbers):
        x = reach.x[column]
        if np.isnan(x):
            continue
        if scaler.clip and scaler.low[i] < scaler.high[i]:
            reach.limit(column, scaler.low[i], bool(x >= scaler.low[i]))
            reach.limit(column, scaler.high[i], bool(x > scaler.high[i]))
            if not scaler.low[i] <= x <= scaler.high[i]:
                continue  # nothing is seen to move there
        if ranges is not None:
            low, high = ranges.low[slope_rows, i], ranges.high[slope_rows, i]
            varies = low < high  # a cell in which the feature is constant has no slope to change
            for end in np.unique(low[varies]):
                reach.limit(column, _in_units(scaler, i, end), bool(z[i] >= end))
            for end in np.unique(high[varies]):
                reach.limit(column, _in_units(scaler, i, end), bool(z[i] > end))


def _in_units(scaler: Any, i: int, z: float) -> float:
    return float(scaler.mean[i] + scaler.scale[i] * z)
