"""Partitioners from names, trained models and lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike, NDArray

from jointleaf._core.problem import check_weights
from jointleaf._data.columns import Columns
from jointleaf._trees.flat import TrainingRows
from jointleaf._trees.importers.base import (
    ADAPTERS,
    EnsembleAdapter,
    check_fitted_model,
    find_adapter,
    is_ensemble,
)
from jointleaf.partitions import _base as base
from jointleaf.partitions._growers.base import (
    CatBoostPartitioner,
    LightGBMPartitioner,
    XGBoostPartitioner,
)
from jointleaf.partitions._growers.large_trees import LargeTreesPartitioner
from jointleaf.partitions._growers.random_trees import RandomTreesPartitioner
from jointleaf.partitions._growers.sklearn import (
    ExtraTreesPartitioner,
    GradientBoostingPartitioner,
    HistGradientBoostingPartitioner,
    LinearForestPartitioner,
    RandomForestPartitioner,
)
from jointleaf.partitions._rotated import RotatedPartitioner
from jointleaf.partitions._steps import StepPartitioner
from jointleaf.partitions._union import UnionPartitioner
from jointleaf.partitions._voronoi import VoronoiPartitioner

#: The partitioners that can be asked for by name.
PARTITIONERS: dict[str, Callable[[], base.Partitioner]] = {
    "lightgbm": LightGBMPartitioner,
    "catboost": CatBoostPartitioner,
    "xgboost": XGBoostPartitioner,
    "gradient_boosting": GradientBoostingPartitioner,
    "hist_gradient_boosting": HistGradientBoostingPartitioner,
    "random_forest": RandomForestPartitioner,
    "extra_trees": ExtraTreesPartitioner,
    "random_trees": RandomTreesPartitioner,
    "rotated_trees": lambda: RotatedPartitioner(RandomTreesPartitioner()),
    "large_trees": LargeTreesPartitioner,
    "linear_forest": LinearForestPartitioner,
    "steps": StepPartitioner,
    "voronoi": VoronoiPartitioner,
}


class _OfModel(base.TreeCells):
    """Shared by the partitioners that have a trained model as their parameter."""

    def __init__(self, model: Any, random_state: Any = None, n_jobs: int | None = None) -> None:
        self.model = model
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __sklearn_clone__(self) -> _OfModel:
        # scikit-learn's clone would make an untrained model of the trained one.
        return type(self)(self.model, random_state=self.random_state, n_jobs=self.n_jobs)

    def __getstate__(self) -> dict[str, Any]:
        # The cells do without the library that grew them, and so must their pickle.
        state = dict(super().__getstate__())
        if "trees_" in state and not isinstance(self.model, base.LeftOut):
            state["model"] = base.LeftOut(type(self.model).__name__)
        return state

    def _check_model(self, X: Any) -> EnsembleAdapter:
        if isinstance(self.model, base.LeftOut):
            self.model.raise_error()
        return check_fitted_model(self.model, X)


class FittedEnsemble(_OfModel):
    """The leaves of a trained tree ensemble, used as they are.

    `fit` does not train: it numbers the leaves that the rows reach. The model is never
    changed, and clones of this partitioner share it.

    Parameters
    ----------
    model : fitted ensemble
        scikit-learn's gradient boosting, random forest or extra trees (regressor or
        classifier); LightGBM's LGBMRegressor, LGBMClassifier or Booster, with linear trees or
        without, up to the best round where it stopped early. P is its number of trees; for
        several classes the K trees of a boosting round lie side by side.
    random_state : int, RandomState or None
        Used by the partitioner that `fresh` returns, where the model has no seed.
    n_jobs : int or None
        Threads to find leaves with; None is the setting of the model.

    Attributes
    ----------
    trees_ : FlatTrees
        Its trees in portable form.
    n_cells_ : ndarray (P,)
        Number of leaves of each tree that rows given to `fit` reached.
    split_gains_ : ndarray (d,)
        Gain importance of each feature in the model.
    n_features_in_ : int
        Number of features d.
    """

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        target_type: base.TargetType = "regression",
        columns: Columns | None = None,
    ) -> FittedEnsemble:
        """Number the leaves that rows `X` (n, d) of positive weight reach."""
        adapter = self._check_model(X)
        rows = base.check_rows(X)
        rows = rows[check_weights(sample_weight, len(rows)) > 0]
        columns = Columns.numbers(rows.shape[1]) if columns is None else columns
        trees = adapter.trees(self.model, columns)
        self.number_cells(trees, adapter.split_gains(self.model), rows)
        return self

    def fresh(self) -> RegrownEnsemble:
        """Return a partitioner that trains the model anew, with the same parameters, in `fit`."""
        return RegrownEnsemble(self.model, random_state=self.random_state, n_jobs=self.n_jobs)


class RegrownEnsemble(_OfModel):
    """The leaves of a new ensemble, trained the way another one was, which is never changed.

    A clone of a scikit-learn style model is fitted; a Booster is trained with the same parameters.
    Boosting takes as many rounds as the model uses, so that nothing is left to stop early on, and
    prints nothing. `random_state` and `n_jobs` are used where the model has no setting (LightGBM
    always has a seed). Attributes are those of `FittedEnsemble`.
    """

    _needs_target = True

    def _check_table(self, X: Any) -> None:
        self._check_model(X)

    def _fit_rows(self, rows: TrainingRows) -> None:
        adapter = find_adapter(self.model)
        if rows.n_classes == 0 and adapter.is_classifier(self.model):
            raise ValueError(
                f"A {type(self.model).__name__} for classification cannot be trained again for "
                "target_type='regression': use a model fitted for regression"
            )
        seed = None if self.random_state is None else base.as_seed(self.random_state)
        model = adapter.regrow(self.model, rows, random_state=seed, n_jobs=self.n_jobs)
        adapter = find_adapter(model)
        self.number_cells(adapter.trees(model, rows.columns), adapter.split_gains(model), rows.X)


def make_partitioner(spec: Any) -> base.Partitioner:
    """Return the partitioner that `spec` stands for.

    Parameters
    ----------
    spec : str, Partitioner, fitted model, or a list of these
        A name is one of `PARTITIONERS`. A `Partitioner` is returned as it is, a fitted tree
        ensemble as a `FittedEnsemble`, a list as a `UnionPartitioner`. The "auto" of estimators
        depends on the number of rows and is none of these.

    Returns
    -------
    Partitioner
    """
    if isinstance(spec, base.Partitioner):
        return spec
    if isinstance(spec, str) or spec is None:
        if spec not in PARTITIONERS:
            names = ", ".join(map(repr, PARTITIONERS))
            raise ValueError(
                f"partitioner={spec!r} is not known: use 'auto' (alone, not in a list), or {names}"
            )
        return PARTITIONERS[spec]()
    if isinstance(spec, list | tuple):
        if not spec:
            raise ValueError(
                f"partitioner={spec!r} is empty: use a list of at least one partitioner"
            )
        return UnionPartitioner([make_partitioner(member) for member in spec])
    if isinstance(spec, base.LeftOut):
        spec.raise_error()
    if is_ensemble(spec):
        check_fitted_model(spec)
        return FittedEnsemble(spec)
    names = ", ".join(repr(name) for name in ("auto", *PARTITIONERS))
    models = ", ".join(name for adapter in ADAPTERS for name in adapter.supported)
    raise TypeError(
        f"partitioner is of type {type(spec).__name__}: use one of the names {names}, a "
        f"Partitioner, or a fitted model of one of these types: {models}"
    )


def known_categories(spec: Any) -> dict[int, NDArray | None]:
    """Return the columns that trained models among partitioners treat as categories.

    Numbers of columns point to their categories; to None where the model does not hold them.
    """
    categories: dict[int, NDArray | None] = {}
    for member in make_partitioner(spec).nested():
        model = getattr(member, "model", None)
        if is_ensemble(model):
            categories |= find_adapter(model).categories(model)
    return categories
