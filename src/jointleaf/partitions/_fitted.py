"""The cells of an ensemble that the user has trained already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from numpy.typing import ArrayLike

from jointleaf._data.columns import Columns
from jointleaf._trees.importers import (
    EnsembleAdapter,
    check_fitted_model,
    find_adapter,
    is_ensemble,
)
from jointleaf.partitions._base import Partitioner, TargetType
from jointleaf.partitions._cells import TreeCells
from jointleaf.partitions._checks import as_seed, check_fit_rows, check_rows, check_weight

__all__ = ["FittedEnsemble", "LeftOut", "RegrownEnsemble", "without_models"]


class _OfModel(TreeCells):
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
        if "trees_" in state and not isinstance(self.model, LeftOut):
            state["model"] = LeftOut(type(self.model).__name__)
        return state

    def _check_model(self, X: Any) -> EnsembleAdapter:
        if isinstance(self.model, LeftOut):
            self.model.refuse()
        return check_fitted_model(self.model, X)


@dataclass(frozen=True)
class LeftOut:
    """Stands for a model, or another object, that was not pickled or saved along with its cells."""

    name: str

    def refuse(self) -> NoReturn:
        """Say why there is nothing to fit."""
        raise ValueError(
            f"The {self.name} behind these cells was left out when they were pickled or saved, so "
            "that they can be used without its library, and they cannot be fitted again without "
            "it; refine the model itself once more."
        )


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
        Used by the partitioner that `fresh` gives, where the model has no seed.
    n_jobs : int or None
        Threads to find leaves with; None is the model's own setting.

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
        target_type: TargetType = "regression",
        columns: Columns | None = None,
    ) -> FittedEnsemble:
        """Give numbers to the leaves that rows `X` (n, d) of positive weight reach."""
        adapter = self._check_model(X)
        rows = check_rows(X)
        weight = check_weight(sample_weight, rows.shape[0])
        if weight is not None and weight.min() == 0:
            rows = rows[weight > 0]
        columns = Columns.numbers(rows.shape[1]) if columns is None else columns
        trees = adapter.trees(self.model, columns)
        self._take_trees(trees, adapter.split_gains(self.model), rows)
        return self

    def fresh(self) -> RegrownEnsemble:
        """Give a partitioner that grows the model anew, with its own parameters, in `fit`."""
        return RegrownEnsemble(self.model, random_state=self.random_state, n_jobs=self.n_jobs)


class RegrownEnsemble(_OfModel):
    """The leaves of a new ensemble, trained the way a given one was.

    A clone of a scikit-learn style model is fitted; a LightGBM Booster is trained with the
    same parameters. LightGBM models get as many rounds as the given one uses, so that
    nothing is left to stop early on, and are trained quietly.

    Parameters
    ----------
    model : fitted ensemble
        As for `FittedEnsemble`; never changed.
    random_state : int, RandomState or None
        Seed where the model has none of its own (LightGBM always has).
    n_jobs : int or None
        Threads where the model has no setting of its own.

    Attributes
    ----------
    trees_ : FlatTrees
        Its trees in portable form.
    n_cells_, split_gains_, n_features_in_
        As for `FittedEnsemble`.
    """

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        target_type: TargetType = "regression",
        columns: Columns | None = None,
    ) -> RegrownEnsemble:
        """Train a new model on rows `X` (n, d), targets `y` (n,) and weights (n,)."""
        adapter = self._check_model(X)
        name = type(self.model).__name__
        if y is None:
            raise ValueError(f"Growing a {name} again needs targets; give y.")
        if target_type == "regression" and adapter.is_classifier(self.model):
            raise ValueError(
                f"A {name} that tells classes apart cannot be grown again for "
                'target_type="regression"; give a model fitted for regression.'
            )
        rows = check_fit_rows(X, y, sample_weight, target_type, columns)
        model = adapter.regrow(
            self.model,
            rows.X,
            rows.y,
            rows.weight,
            categorical=rows.columns.categorical,
            random_state=None if self.random_state is None else as_seed(self.random_state),
            n_jobs=self.n_jobs,
        )
        adapter = find_adapter(model)
        self._take_trees(adapter.trees(model, rows.columns), adapter.split_gains(model), rows.X)
        return self


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
