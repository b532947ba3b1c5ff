"""Trees in rotated spaces of features that are weighted by importance: oblique cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from jointleaf._data.features import LinearFeatures, plan_features
from jointleaf._trees.flat import TrainingRows
from jointleaf.partitions._base import (
    Partitioner,
    TargetType,
    TreeCells,
    as_seed,
    check_apply_rows,
    checked_count,
)
from jointleaf.partitions._growers.base import LightGBMPartitioner
from jointleaf.partitions._union import Nest

if TYPE_CHECKING:
    from typing_extensions import Self

#: Standardised features are clipped here, so that outliers do not dominate a direction.
FARTHEST = 5.0
#: And rounded to multiples of 1 / GRID.
GRID = 2.0**20
#: Numbers held at a time, so that memory does not grow with the number of rows.
_BLOCK_ELEMENTS = 1 << 21
_BOOSTER_TREES, _BOOSTER_CELLS = 20, 16


@dataclass(eq=False, repr=False)
class RotatedPartitioner(Nest):
    """Partitions of trees grown in rotated spaces of features weighted by importance.

    The splits of such trees are oblique in the space of the columns, which suits smooth targets.
    Rows become linear features z (`_data.features`: standardised numbers, indicators of categories,
    the mean for missing values), clipped to [-5, 5]. Those of column j are multiplied by
    ``(d * s_j) ** power``, where s_j is the fraction of the split gain that the column has in a
    small booster, and each rotation projects them on random orthogonal directions. On these
    projections, numbers without missing values, a clone of `partitioner` is fitted.

    A row's codes do not depend on the rows beside it, on the BLAS library or on the machine:
    features are rounded to multiples of 2^-20, and rotations to multiples of a power of 2 with
    which every sum of their products is exact.

    Parameters
    ----------
    partitioner : Partitioner
        A tree partitioner with a parameter ``n_partitions``, which is the number of partitions of
        all rotations together. (Boosting grows K trees a round for K > 2 classes, in every
        rotation.) Its ``random_state`` is not used.
    n_rotations : int
        Number R of rotations; one per partition where there are fewer partitions.
    power : float
        How strongly importances weight the features; 0 is not at all.
    n_directions : int
        Largest number of directions of a rotation.
    random_state : int, RandomState or None
        Seed of the booster, the rotations and the trees of every rotation.

    Attributes
    ----------
    members_ : list of Partitioner
        The fitted partitioner of each rotation.
    rotations_ : ndarray (R, m, q)
        Matrices that rotate and weight linear features: members see ``z @ rotations_[r]``.
    features_ : LinearFeatures
        How rows become linear features.
    n_cells_ : ndarray (P,)
        Number of cells of all partitions, in the order of the members.
    split_gains_ : ndarray (d,)
        Gain of each column in the booster whose gains weight the features.
    n_features_in_ : int
        Number of features d.
    """

    _needs_target = True
    members_: list[TreeCells] = field(init=False)
    rotations_: NDArray[np.float64] = field(init=False)
    features_: LinearFeatures = field(init=False)
    partitioner: Partitioner
    n_rotations: int = 10
    power: float = 0.25
    n_directions: int = 20
    random_state: Any = None

    def _fit_rows(self, rows: TrainingRows) -> None:
        """Weight the features of rows, rotate them, and grow trees on the results."""
        sizes = self._check_parameters()
        rng = np.random.default_rng(as_seed(self.random_state))
        features = plan_features(rows.X, rows.weights, rows.columns).fit(
            rows.X, rows.weights, clip=False
        )
        gains = self._column_gains(rows, _draw_seed(rng))
        weights = _importance_weights(gains, self.power)[features.plan.sources]
        rotations = _draw_rotations(rng, weights, len(sizes), self.n_directions)
        places = _places(features, rows.X)
        members = []
        for rotation, size in zip(rotations, sizes, strict=True):
            member = clone(self.partitioner).set_params(n_partitions=size)
            if "random_state" in member.get_params(deep=False):
                member.set_params(random_state=_draw_seed(rng))
            member.fit(places @ rotation, rows.y, rows.weight, target_type=_target_type(rows))
            members.append(member)
        self.features_ = features
        self.split_gains_ = gains
        self.n_features_in_ = rows.X.shape[1]
        self.set_members(members, rotations)

    def set_members(self, members: list[TreeCells], rotations: NDArray[np.float64]) -> None:
        """Use these fitted partitioners, one per rotation (R, m, q)."""
        self.members_, self.rotations_ = members, rotations
        self.n_cells_ = np.concatenate([member.n_cells_ for member in members])

    def places(self, X: NDArray) -> NDArray[np.float64]:
        """Return the clipped and rounded linear features z (n, m) of rows `X` (n, d)."""
        return _places(self.features_, X)

    def projections(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what the members see of rows with these `places`, side by side: (n, R q)."""
        n_rotations, n_places, n_directions = self.rotations_.shape
        rotations = self.rotations_.transpose(1, 0, 2)
        return places @ rotations.reshape(n_places, n_rotations * n_directions)

    def apply(self, X: ArrayLike) -> NDArray[np.int32]:
        """Return the codes (n, P) of all rotations side by side."""
        X = check_apply_rows(self, X)
        codes = np.empty((X.shape[0], len(self.n_cells_)), dtype=np.int32)
        step = max(1, _BLOCK_ELEMENTS // max(1, *self.rotations_.shape[1:]))
        for begin in range(0, X.shape[0], step):
            block = slice(begin, begin + step)
            places, first = self.places(X[block]), 0
            for member, rotation in zip(self.members_, self.rotations_, strict=True):
                stop = first + len(member.n_cells_)
                codes[block, first:stop] = member.apply(places @ rotation)
                first = stop
        return codes

    @property
    def split_features_(self) -> NDArray[np.intp]:
        """Columns that have a weight in some direction, in rising order."""
        check_is_fitted(self)
        is_used = self.rotations_.any(axis=(0, 2))
        return np.unique(self.features_.plan.sources[is_used])

    @property
    def members(self) -> Sequence[Partitioner]:
        """The fitted partitioners of the rotations; before `fit`, the one to clone."""
        return getattr(self, "members_", [self.partitioner])

    def walk(self, first: int = 0) -> Iterator[tuple[Partitioner, int]]:
        """Yield this partitioner: its members see rotated rows and are of no use without it."""
        check_is_fitted(self)
        yield self, first

    def _with_members(self, members: list[Partitioner], is_left: NDArray[np.bool_]) -> Self:
        copy = type(self)(**self.get_params(deep=False))
        copy.features_, copy.split_gains_ = self.features_, self.split_gains_
        copy.n_features_in_ = self.n_features_in_
        copy.set_members(cast("list[TreeCells]", members), self.rotations_[is_left])
        return copy

    def _check_parameters(self) -> list[int]:
        """Return the number of partitions of each rotation."""
        trees = self.partitioner
        if not isinstance(trees, TreeCells) or "n_partitions" not in trees.get_params(deep=False):
            raise TypeError(
                f"RotatedPartitioner: partitioner={trees!r} does not grow a number of trees: use a "
                "tree partitioner with the parameter n_partitions, such as RandomTreesPartitioner()"
            )
        n_partitions = checked_count(trees, "n_partitions", 1)
        n_rotations = min(checked_count(self, "n_rotations", 1), n_partitions)
        checked_count(self, "n_directions", 1)
        power = self.power
        if not isinstance(power, Real) or isinstance(power, bool) or not 0 <= power < np.inf:
            raise ValueError(
                f"RotatedPartitioner: power={power!r} is not possible: use a finite number of at "
                "least 0"
            )
        size, remainder = divmod(n_partitions, n_rotations)
        return [size + (r < remainder) for r in range(n_rotations)]

    def _column_gains(self, rows: TrainingRows, seed: int) -> NDArray[np.float64]:
        """Return the split gains (d,) of a small booster."""
        n_jobs = self.partitioner.get_params(deep=False).get("n_jobs")
        booster = LightGBMPartitioner(_BOOSTER_TREES, _BOOSTER_CELLS, seed, n_jobs)
        kind = _target_type(rows)
        booster.fit(rows.X, rows.y, rows.weight, target_type=kind, columns=rows.columns)
        return booster.split_gains_


def _target_type(rows: TrainingRows) -> TargetType:
    return "classification" if rows.n_classes else "regression"


def _draw_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(np.iinfo(np.int32).max))


def _importance_weights(gains: NDArray, power: float) -> NDArray[np.float64]:
    """Return (d * fraction of the gain) ** power (d,); ones where no split was made."""
    total = gains.sum()
    return (len(gains) * gains / total) ** power if total > 0 else np.ones(len(gains))


def _draw_rotations(
    rng: np.random.Generator, weights: NDArray, n_rotations: int, n_directions: int
) -> NDArray[np.float64]:
    """Return weighted random rotations (R, m, q) of m features on a grid that keeps sums exact."""
    m = len(weights)
    shape = n_rotations, max(m, 1), min(max(m, 1), n_directions)  # without features, one of zeros
    directions = np.linalg.qr(rng.standard_normal(shape))[0][:, :m]
    rotations = weights[:, None] * directions
    largest = FARTHEST * np.abs(rotations).sum(axis=1).max(initial=0.0)
    if largest == 0:
        return rotations
    # Products are multiples of 1 / (GRID * fineness), and no sum of them has more than 53 bits.
    fineness = 2.0 ** np.floor(52 - np.log2(largest * GRID))
    return np.rint(rotations * fineness) / fineness


def _places(features: LinearFeatures, X: NDArray) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # clipped
        places = features.transform(X.astype(np.float64, copy=False))
    np.clip(places, -FARTHEST, FARTHEST, out=places)
    places *= GRID
    np.rint(places, out=places)
    places /= GRID
    return places
