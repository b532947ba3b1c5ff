"""The protocol of every partitioner, its checks, and partitions that are the leaves of trees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.arrays import check_count, threads
from jointleaf._core.problem import check_weights
from jointleaf._data.columns import Columns
from jointleaf._trees.flat import FlatTrees, TrainingRows
from jointleaf._trees.importers.base import is_ensemble
from jointleaf._trees.routing import Router

if TYPE_CHECKING:
    from typing_extensions import Self

TargetType = Literal["regression", "classification"]

#: The code of a row that lies in no cell of a partition: it gets a zero contribution there.
NO_CELL = -1


class Partitioner(BaseEstimator, ABC):
    """Makes an ensemble of P partitions, each a division of feature space into cells.

    A subclass implements `apply`, and `fit` or, on checked rows, `_fit_rows`, which set

    - ``n_features_in_``: the number of features d,
    - ``n_cells_``: integer array (P,), the number of cells of each partition,
    - ``split_gains_``: float array (d,), how much each feature contributed to the
      partitions (any non-negative scale; all equal where splits are not made by feature).

    Parameters follow the rules of scikit-learn estimators: stored as given in
    ``__init__`` and checked in `fit`, so that `sklearn.base.clone` works. A parameter
    called ``random_state`` or ``n_jobs`` whose value is None is filled in by estimators.
    """

    n_features_in_: int
    n_cells_: NDArray[np.intp]
    split_gains_: NDArray[np.float64]
    _needs_target = False
    #: whether ``split_gains_`` depends on the features (False: all are equal by design)
    splits_on_features: bool = True

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        target_type: TargetType = "regression",
        columns: Columns | None = None,
    ) -> Self:
        """Make the partitions from rows `X` (n, d), targets `y` (n,) and weights (n,).

        `X` is a matrix of numbers with NaN for missing values. For
        ``target_type="classification"`` the targets are class numbers 0..K-1. A row of
        weight zero counts as absent. Only relative weights matter.

        `columns` has the columns of `X` that hold categories, as codes 0..L-1; None means that
        all hold numbers. Estimators pass it only where some column holds categories.
        """
        self._check_table(X)
        if self._needs_target and y is None:
            raise ValueError(f"{type(self).__name__} needs targets: pass y")
        target = y if self._needs_target else None
        self._fit_rows(check_fit_rows(X, target, sample_weight, target_type, columns))
        return self

    def _check_table(self, X: Any) -> None:
        """Raise for rows, with the names of their columns, that do not fit the parameters."""

    def _fit_rows(self, rows: TrainingRows) -> None:
        """Make the partitions from rows of positive weight."""
        raise NotImplementedError

    @abstractmethod
    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the codes (n, P): the cell of each partition in which each row falls.

        Codes of partition p lie in ``0 .. n_cells_[p] - 1``; `NO_CELL` marks a row that
        falls where no training row did.
        """

    def walk(self, first: int = 0) -> Iterator[tuple[Partitioner, int]]:
        """Yield the innermost fitted partitioners, each with the number of its first partition.

        A partitioner that is made of others (`UnionPartitioner`, `ResidualPartitioner`) yields
        theirs in its place. Partitions come in the order of ``n_cells_``; `first` is the number
        of the first one.
        """
        check_is_fitted(self)
        yield self, first

    def nested(self) -> Iterator[Partitioner]:
        """Yield this partitioner and all that are among its parameters, outermost first.

        It looks at parameters alone, so that it serves partitioners that are not fitted yet.
        """
        yield self
        for value in self.get_params(deep=False).values():
            for member in value if isinstance(value, list | tuple) else (value,):
                if isinstance(member, Partitioner):
                    yield from member.nested()

    def fresh(self) -> Partitioner:
        """Return an unfitted partitioner that makes partitions in the same way.

        Honest cross-validation grows new partitions inside every fold with it.
        """
        return clone(self)

    def siblings(self) -> NDArray[np.intp]:
        """Pairs of cells that one split divides, (m, 3): partition, cell, cell; by default none.

        `NO_CELL` stands for a side of the split that is no cell. `jointleaf.prune` merges such
        pairs, with `with_merged`, and leaves partitions without them as they are.
        """
        return np.zeros((0, 3), dtype=np.intp)

    def with_merged(self, chosen: NDArray[np.bool_]) -> Partitioner:
        """Return a fitted partitioner in which some pairs (m,) of `siblings` are one cell each.

        The merged cell has the smaller code of the two, and the codes of a partition are 0, 1,
        ... again, in their old order. Clones of it grow unmerged partitions.
        """
        return self._unless(chosen.any(), "merge cells")

    def with_partitions(self, chosen: NDArray[np.bool_]) -> Partitioner:
        """Return a fitted partitioner that has only some (P,), at least one, of the partitions."""
        return self._unless(not chosen.all(), "leave partitions out")

    def of_columns(self, columns: NDArray[np.intp], n_features: int) -> Partitioner:
        """Return what was fitted to some columns (m,) of a table as a partitioner of its rows."""
        return self._unless(len(columns) < n_features, "be fitted to a part of the columns")

    def _unless(self, impossible: bool | np.bool_, action: str) -> Partitioner:
        if impossible:
            raise NotImplementedError(f"{type(self).__name__} cannot {action}")
        return self

    @property
    def leaf_values_(self) -> NDArray[np.float64] | None:
        """What the model that grew the partitions adds to raw predictions in each cell, (C, K).

        Cells are numbered partition after partition; K is 1 for regression and two classes. A
        raw prediction is the target itself, log-odds, or one number per class. By default None:
        there is no such model, or its predictions are no such sums.
        """
        return None

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Features on which the cells of a row depend, in rising order; by default all."""
        return np.arange(self.n_features_in_)


# -- checks ----------------------------------------------------------------------------------------


def checked_count(owner: object, name: str, least: int) -> int:
    """Return the parameter `name` as an int; raise an error if it is less than `least`."""
    return check_count(f"{type(owner).__name__}: {name}", getattr(owner, name), least=least)


def check_rows(X: ArrayLike) -> NDArray:
    """Return `X` as a two-dimensional float array; infinities and NaN are left to the library."""
    if type(X) is np.ndarray and X.ndim == 2 and X.size and X.dtype in (np.float64, np.float32):
        return X  # as scikit-learn would, in a tenth of a millisecond for every member of a union
    return check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False)


def check_fit_rows(
    X: ArrayLike,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    target_type: TargetType,
    columns: Columns | None = None,
) -> TrainingRows:
    """Check the arguments of `Partitioner.fit` and return the rows of positive weight.

    Targets are zeros where y is None: the partitioner does not look at them.
    """
    if target_type not in ("regression", "classification"):
        raise ValueError(
            f"target_type={target_type!r} is not known: use 'regression' or 'classification'"
        )
    X = check_rows(X)
    n_rows = X.shape[0]
    target = np.zeros(n_rows) if y is None else np.asarray(y)
    if target.shape != (n_rows,):
        raise ValueError(
            f"y has shape {target.shape}, but X has {n_rows} rows: use one target per row, shape "
            f"({n_rows},)"
        )
    weight: NDArray[np.float64] | None = None
    if sample_weight is not None:
        weight = check_weights(sample_weight, n_rows)
    if weight is not None and weight.min() == 0:
        counts = weight > 0
        X, target, weight = X[counts], target[counts], weight[counts]
    if weight is not None:
        # Equal weights must give exactly what no weights give, and the scale of the
        # weights must not meet the libraries' absolute thresholds (LightGBM's least
        # Hessian of a leaf): hence a mean of one.
        equal = weight.min() == weight.max()
        weight = None if equal else weight / weight.mean()
    n_classes = 0
    if target_type == "classification":
        classes, numbers = np.unique(target, return_inverse=True)
        n_classes = len(classes)
        if target.dtype.kind not in "iu":
            target = numbers
    else:
        target = target.astype(np.float64, copy=False)
    columns = Columns.numbers(X.shape[1]) if columns is None else columns.coded()
    return TrainingRows(X, target, weight, n_classes, columns)


def check_apply_rows(partitioner: Partitioner, X: ArrayLike) -> NDArray:
    """Return `X` (n, d) as floats; raise an error if `partitioner` was not fitted on d columns."""
    check_is_fitted(partitioner)
    rows = check_rows(X)
    if rows.shape[1] != partitioner.n_features_in_:
        raise ValueError(
            f"X has {rows.shape[1]} features, but {type(partitioner).__name__} is expecting "
            f"{partitioner.n_features_in_} features as input."
        )
    return rows


def as_seed(random_state: Any) -> int:
    """Return an integer seed: an integer as it is, otherwise a draw from `random_state`."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


class TreeCells(Partitioner):
    """Base of the partitioners whose cells are the leaves of trees.

    A subclass's `fit` makes the trees and passes them to `number_cells`.
    """

    trees_: FlatTrees  # in portable form: the library that grew them is not needed any more
    n_jobs: int | None

    def number_cells(self, trees: FlatTrees, gains: ArrayLike, X: NDArray) -> None:
        """Number the leaves that training rows `X` (n, d) reach as cells."""
        router = Router(trees)
        trees = trees.numbered(router(X, self._threads()))
        # Set together at the end: an interrupted fit leaves nothing half-fitted.
        self.set_all_leaves(trees, gains)
        self.__dict__["router"] = router.renumbered(trees)

    def set_all_leaves(self, trees: FlatTrees, gains: ArrayLike) -> None:
        """Make a cell of every leaf: training rows reach all leaves of trees grown on them."""
        self.set_trees(trees)
        self.n_features_in_ = trees.n_features
        self.split_gains_ = np.maximum(np.nan_to_num(np.asarray(gains, dtype=np.float64)), 0.0)

    def set_trees(self, trees: FlatTrees) -> None:
        """Use these trees, whose leaves are numbered as cells already."""
        self.trees_ = trees
        self.n_cells_ = trees.n_cells
        self.__dict__.pop("router", None)

    @cached_property
    def router(self) -> Router:
        """What finds the cells of rows."""
        return Router(self.trees_)

    def _threads(self) -> int:
        return threads(self.n_jobs)

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Features on which some tree splits, in rising order."""
        check_is_fitted(self)
        return self.trees_.split_features

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the codes (n, P) of rows `X` (n, d); `NO_CELL` in leaves unmet in training."""
        X = check_apply_rows(self, X)
        return self.router(X, self._threads())

    @property
    def leaf_values_(self) -> NDArray[np.float64] | None:
        """What the model of the trees adds in each cell, (C, K); None where it is no such sum."""
        check_is_fitted(self)
        return self.trees_.cell_values

    def siblings(self) -> NDArray[np.intp]:
        """Pairs of cells that are the two leaves of one split, (m, 3): partition, cell, cell."""
        check_is_fitted(self)
        trees = self.trees_
        left, right = trees.leaves_of(trees.twigs)
        cells = trees.cell_of_leaf
        return np.stack([trees.tree_of_split[trees.twigs], cells[left], cells[right]], axis=1)

    def with_merged(self, chosen: NDArray[np.bool_]) -> TreeCells:
        """Return the trees in which some splits (m,) of `siblings` are one leaf each."""
        return self._with_trees(self.trees_.merged(self.trees_.twigs[chosen]))

    def with_partitions(self, chosen: NDArray[np.bool_]) -> TreeCells:
        """Return only some (P,) of the trees."""
        return self._with_trees(self.trees_.only(chosen))

    def of_columns(self, columns: NDArray[np.intp], n_features: int) -> TreeCells:
        """Return trees that were grown on some columns (m,) of a table as trees of its rows."""
        copy, gains = self._copy(), np.zeros(n_features)
        gains[columns] = self.split_gains_
        copy.set_all_leaves(self.trees_.of_columns(columns, n_features), gains)
        return copy

    def _copy(self) -> TreeCells:
        copy = type(self).__new__(type(self))  # copy.copy would leave a model out, as pickles do
        copy.__dict__.update(self.__dict__)
        return copy

    def _with_trees(self, trees: FlatTrees) -> TreeCells:
        """Return a copy with other trees: gains as they were where splits are left, else zero."""
        copy = self._copy()
        copy.set_trees(trees)
        is_used = np.zeros(self.n_features_in_, bool)
        is_used[trees.split_features] = True
        copy.split_gains_ = np.where(is_used, self.split_gains_, 0.0)
        return copy

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("router", None)  # made anew from the trees
        return state


# -- trained models in pickles and files -----------------------------------------------------------


@dataclass(frozen=True)
class LeftOut:
    """Stands for a model, or another object, that was not pickled or saved along with its cells."""

    name: str

    def raise_error(self) -> NoReturn:
        """Raise the error that there is nothing to fit."""
        raise ValueError(
            f"The {self.name} behind these cells was left out when they were pickled or saved, so "
            "that they can be used without its library, and they cannot be fitted again without "
            "it: refine the model itself once more"
        )


def without_models(spec: Any) -> Any:
    """Return what stands for partitioners, with `LeftOut` in place of trained models."""
    if is_ensemble(spec):
        return LeftOut(type(spec).__name__)
    if isinstance(spec, list | tuple):
        return [without_models(member) for member in spec]
    if isinstance(spec, Partitioner) and any(
        is_ensemble(getattr(member, "model", None)) for member in spec.nested()
    ):
        params = spec.get_params(deep=False)
        return type(spec)(**{name: without_models(value) for name, value in params.items()})
    return spec


def seeded(partitioner: Partitioner, random_state: int, n_jobs: int | None = None) -> Partitioner:
    """Return an unfitted clone in which every seed and number of threads is set.

    Members whose ``random_state`` is None get different seeds from `random_state`, and `n_jobs`
    takes the place of every ``n_jobs`` that is None.
    """
    partitioner, seeds = clone(partitioner), _seeds(random_state)
    for member in partitioner.nested():
        params = member.get_params(deep=False)
        if params.get("random_state", 0) is None:
            member.set_params(random_state=next(seeds))
        if params.get("n_jobs", 0) is None:
            member.set_params(n_jobs=n_jobs)
    return partitioner


def _seeds(random_state: int) -> Iterator[int]:
    rng = np.random.RandomState(random_state)
    drawn: set[int] = set()
    while True:
        seed = int(rng.randint(np.iinfo(np.int32).max))
        if seed not in drawn:
            drawn.add(seed)
            yield seed
