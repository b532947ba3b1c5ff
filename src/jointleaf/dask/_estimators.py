"""The regressor and the classifier for Dask collections."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils.validation import check_is_fitted

import dask
from jointleaf._core import arrays
from jointleaf._sources.rows import Settings, SourceFit, check_settings, fit_rows
from jointleaf.dask._cluster import Cluster, find_client
from jointleaf.dask._collections import DaskRows, check_rows, is_frame
from jointleaf.estimators import JOPLEnClassifier, JOPLEnRegressor
from jointleaf.estimators._base import BaseJOPLEn
from jointleaf.estimators._docs import (
    CLASS_PARAMETERS,
    LOSS_PARAMETERS,
    MONOTONE_PARAMETERS,
    PARAMETERS,
    described,
)
from jointleaf.estimators._params import JOPLEnParameters, LossParameters

_PARAMETERS = """
    client : dask.distributed.Client, optional
        By default the one that was started last. It is not pickled with the estimator.
    sample_rows : int
        Rows, drawn across all partitions, that partitions of feature space are grown on: in the
        process of the client. If there are no more than that, a local fit of all rows is all.
    validation_rows : int
        Held-out rows, drawn across all partitions, at most a fifth of all.
    max_passes : int
        Most passes over all rows.
    checkpoint : str or path, optional
        Folder, of the client, in which the model of the sample and, every two minutes, the state of
        the correction are kept until the fit is over. An interrupted fit goes on from there when it
        is called again with the same rows and parameters, to the same model."""

_ATTRIBUTES = """Attributes
    ----------
    model_ : JOPLEnRegressor or JOPLEnClassifier
        What `to_local` returns.
    source_fit_ : SourceFit
        How it was fitted: numbers of rows and passes, losses of the held-out rows.
    n_features_in_ : int
        Number of features."""


@dataclass(eq=False, repr=False)
class BaseDaskJOPLEn(JOPLEnParameters):
    """What both have in common."""

    _: KW_ONLY
    monotonic_cst: Any = None
    client: Any = None
    sample_rows: int = 100_000
    validation_rows: int = 20_000
    max_passes: int = 20
    checkpoint: Any = None

    _local: ClassVar[type[BaseJOPLEn]]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **others: Any) -> BaseDaskJOPLEn:
        """Grow partitions on a sample, and fit the models of all their cells to all rows.

        Parameters
        ----------
        X : dask array (n, d) or data frame
            In partitions of rows, of any sizes; they stay on the workers. They are computed three
            times, unless they are persisted.
        y : dask array (n,) or series
            In the same partitions.
        sample_weight : dask array (n,) or series, optional
        **others
            What else local estimators take (offset, exposure, groups, rows for validation) is
            refused.

        Returns
        -------
        self
        """
        self._refuse(others)
        local = self._make_local()
        check_settings(local, self.sample_rows, self.validation_rows, self.max_passes)
        check_rows(X)
        cluster = Cluster(find_client(self.client))
        name, is_for_classes = type(self).__name__, is_classifier(local)
        store = DaskRows(name, cluster, X, y, sample_weight, with_labels=is_for_classes)
        limit = 0.5 * (arrays.available_memory() or 2**32)
        sizes = self.sample_rows, self.validation_rows, self.max_passes
        self.model_ = fit_rows(local, store, Settings(*sizes, limit, self.checkpoint))
        self.n_features_in_ = self.model_.n_features_in_
        return self

    def _refuse(self, others: dict[str, Any]) -> None:
        """Raise an error for arguments of the local fit that are not possible on a cluster."""
        kind, local = type(self).__name__, self._local.__name__
        for name, value in others.items():
            if name not in signature(self._local.fit).parameters:
                raise TypeError(f"{kind}.fit() has no argument {name!r}: see help({kind}.fit)")
            if value is not None:
                instead = f"fit {local} to rows in memory"
                if name == "exposure":
                    instead += ", or y / exposure with sample_weight=exposure"
                raise ValueError(f"{name} is not possible with {kind}: {instead}")

    def _make_local(self) -> Any:
        """Return the local estimator with the same parameters."""
        names = self._local().get_params(deep=False).keys() & self.get_params(deep=False).keys()
        return self._local(**{name: getattr(self, name) for name in names})

    def to_local(self) -> Any:
        """Return the ordinary estimator, which predicts, explains, prunes, saves and exports."""
        check_is_fitted(self)
        return self.model_

    @property
    def source_fit_(self) -> SourceFit:
        """How the model was fitted."""
        check_is_fitted(self, "model_")
        return self.model_.source_fit_

    def predict(self, X: Any) -> Any:
        """Predict targets of the rows of a dask array (n, d) or data frame.

        Nothing is computed yet: the result has the partitions of X, and is an array (n,), or a
        series with the index of the data frame.
        """
        check_is_fitted(self)
        return _lazily(self.model_, "predict", X, self._example())

    def _example(self) -> NDArray:
        """Return no predictions, of their type."""
        return np.empty(0, self.model_.cell_model_.biases.dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "client": None}

    def __sklearn_clone__(self) -> BaseDaskJOPLEn:
        client, self.client = self.client, None  # a connection cannot be copied
        try:
            copied = super().__sklearn_clone__()
        finally:
            self.client = client
        copied.client = client
        return copied


@described(
    parameters=PARAMETERS + MONOTONE_PARAMETERS + LOSS_PARAMETERS + _PARAMETERS,
    attributes=_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class DaskJOPLEnRegressor(RegressorMixin, LossParameters, BaseDaskJOPLEn):
    """`JOPLEnRegressor` for rows on the workers of a Dask cluster.

    A `JOPLEnRegressor` is fitted to a sample; all weights of all cells are then fitted jointly to
    all rows, as `fit_source` does it. The model depends on the partitions of the input, not on the
    workers: it is the same to the last bit on one worker and on many, also if some are lost.

    {parameters}

    {attributes}

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from jointleaf.dask import DaskJOPLEnRegressor
    >>> client = Client("scheduler:8786")  # doctest: +SKIP
    >>> X = da.random.default_rng(0).random((10_000_000, 20), chunks=(500_000, 20))
    >>> model = DaskJOPLEnRegressor(random_state=0).fit(X, X[:, 0])  # doctest: +SKIP
    >>> predictions = model.predict(X)  # doctest: +SKIP
    """

    _local = JOPLEnRegressor


@described(
    parameters=PARAMETERS + MONOTONE_PARAMETERS + CLASS_PARAMETERS + _PARAMETERS,
    attributes=_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class DaskJOPLEnClassifier(ClassifierMixin, BaseDaskJOPLEn):
    """`JOPLEnClassifier` for rows on the workers of a Dask cluster.

    See `DaskJOPLEnRegressor`. Every class must be in the sample.

    {parameters}

    {attributes}
    classes_ : array (K,)
        The class labels.
    """

    _: KW_ONLY
    class_weight: Any = None

    _local = JOPLEnClassifier

    @property
    def classes_(self) -> NDArray:
        """The class labels."""
        check_is_fitted(self, "model_")
        return self.model_.classes_

    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities, an array (n, K) or a data frame with a column for each.

        As for `predict`, nothing is computed yet.
        """
        check_is_fitted(self)
        example = np.empty((0, len(self.classes_)), self.model_.cell_model_.biases.dtype)
        return _lazily(self.model_, "predict_proba", X, example, self.classes_.tolist())

    def _example(self) -> NDArray:
        return self.classes_[:0]


def _lazily(
    model: BaseEstimator, method: str, X: Any, example: NDArray, names: list[Any] | None = None
) -> Any:
    """Return what a method of a model says of every partition, not computed yet."""
    check_rows(X)
    _check_columns(model, X)
    sent = dask.delayed(model, pure=False, traverse=False)  # once, not with every partition
    if is_frame(X):
        import pandas as pd
        from dask.dataframe.dispatch import make_meta

        index = make_meta(X).index[:0]
        meta: Any = pd.DataFrame(example, index, names) if names else pd.Series(example, index)
        return X.map_partitions(_of_frame, sent, method, meta, meta=meta)
    chunks = (X.chunks[0],) if example.ndim == 1 else (X.chunks[0], (example.shape[1],))
    return X.map_blocks(
        _of_array,
        sent,
        method,
        example,
        dtype=example.dtype,
        chunks=chunks,
        drop_axis=1 if example.ndim == 1 else None,
        meta=example,
    )


def _check_columns(model: Any, X: Any) -> None:
    """Raise an error, before anything is computed, where columns of the fit are missing."""
    names = _names_of(model)
    if is_frame(X) and names is not None:
        missing = [name for name in names if name not in X.columns]
        if missing:
            raise ValueError(f"X lacks the column {missing[0]!r} of the fit: add it")
    elif X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} columns, but the model was fitted to {model.n_features_in_}: give "
            "the same columns"
        )


def _names_of(model: Any) -> list | None:
    """Return the columns of a data frame that a model needs; None where it has no names."""
    if model.columns_.preparation is not None:
        return model.columns_.preparation.names
    return model.feature_names_in_.tolist() if hasattr(model, "feature_names_in_") else None


def _of_array(X: NDArray, model: Any, method: str, example: NDArray) -> NDArray:
    return getattr(model, method)(X).astype(example.dtype, copy=False) if len(X) else example


def _of_frame(X: Any, model: Any, method: str, meta: Any) -> Any:
    if not len(X):
        return meta
    names = _names_of(model)
    values = getattr(model, method)(X if names is None else X[names])
    if meta.ndim == 1:
        return type(meta)(values, index=X.index)
    return type(meta)(values, index=X.index, columns=meta.columns)
