"""The cells of an ensemble that the user has trained already."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from jointleaf.partitions.base import Task
from jointleaf.partitions.cells import EnsemblePartitioner
from jointleaf.partitions.checks import as_seed, check_fit_rows, check_rows, check_weight
from jointleaf.partitions.ensembles import check_fitted_model

__all__ = ["FittedEnsemble", "RegrownEnsemble"]


def _rows_for(model: Any, X: ArrayLike) -> Any:
    """Give `X` (n, d) as the model's library takes it: data frames stay where it reads them.

    LightGBM looks up the categories it was trained with in the columns of a data frame.
    """
    adapter = check_fitted_model(model, X)
    return X if hasattr(X, "iloc") and adapter.reads_frames else check_rows(X)


class _OfModel(EnsemblePartitioner):
    """Shared by the partitioners that have a trained model as their parameter."""

    def __init__(self, model: Any, random_state: Any = None, n_jobs: int | None = None) -> None:
        self.model = model
        self.random_state = random_state
        self.n_jobs = n_jobs

    def __sklearn_clone__(self) -> _OfModel:
        # scikit-learn's clone would make an untrained model of the trained one.
        return type(self)(self.model, random_state=self.random_state, n_jobs=self.n_jobs)


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
    model_ : object
        The model.
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
        task: Task = "regression",
    ) -> FittedEnsemble:
        """Give numbers to the leaves that rows `X` (n, d) of positive weight reach."""
        rows = _rows_for(self.model, X)
        weight = check_weight(sample_weight, rows.shape[0])
        if weight is not None and weight.min() == 0:
            rows = rows.iloc[weight > 0] if hasattr(rows, "iloc") else rows[weight > 0]
        self._take_cells(self.model, rows)
        return self

    def _model_rows(self, X: ArrayLike) -> Any:
        return _rows_for(self.model_, X)

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
    model_ : object
        The new model.
    n_cells_, split_gains_, n_features_in_
        As for `FittedEnsemble`.
    """

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        task: Task = "regression",
    ) -> RegrownEnsemble:
        """Train a new model on rows `X` (n, d), targets `y` (n,) and weights (n,)."""
        adapter = check_fitted_model(self.model, X)
        name = type(self.model).__name__
        if y is None:
            raise ValueError(f"Growing a {name} again needs targets; give y.")
        if task == "regression" and adapter.is_classifier(self.model):
            raise ValueError(
                f'A {name} that tells classes apart cannot be grown again for task="regression"; '
                "give a model fitted for regression."
            )
        rows = check_fit_rows(X, y, sample_weight, task)
        model = adapter.regrow(
            self.model,
            rows.X,
            rows.y,
            rows.weight,
            random_state=None if self.random_state is None else as_seed(self.random_state),
            n_jobs=self.n_jobs,
        )
        self._take_cells(model, rows.X)
        return self
