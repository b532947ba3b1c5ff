"""The documentation that all estimators share, written once."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["describe_parameters"]

T = TypeVar("T")

PARAMETERS = """Parameters
    ----------
    partitioner : None, str, Partitioner, fitted ensemble or list of these
        Makes the partitions. None is LightGBM with 100 trees of 4 leaves; names are
        "lightgbm", "gradient_boosting", "random_forest", "extra_trees" and "voronoi"; a
        fitted tree ensemble of scikit-learn or LightGBM is used as it is (see `refine`); a
        list is their union.
    penalty : "auto" or Penalty
        "auto" chooses strength, slope scale and feature weighting by honest
        cross-validation (`jointleaf.tuning`); a Penalty such as ``Frobenius(0.01)`` is used
        as given, in standardised units.
    cells : {"linear", "constant"}
        Models of the cells; constant cells are global refinement.
    root_cell : bool
        Add one partition with a single cell: a global linear model in the joint fit.
    clip : bool
        Linear models see features clipped to their range in training, because linear cells
        extrapolate.
    solver : {"auto", "dual", "pcg", "newton", "fista"}
        See `jointleaf.solvers.choose_solver` for the rules of "auto".
    tol : float
        Tolerance of the scale-free optimality measure.
    max_iter : int
        Most iterations of the solver.
    cv : None, int, splitter or iterable of index pairs
        Splits for ``penalty="auto"``. None is 5 folds up to 2,500 distinct rows, above that one
        validation split of a fifth.
    n_jobs : int, optional
        Threads (-1: all cores). The fitted model is the same for every value.
    random_state : int, RandomState or None
        Seed of the partitions.
    verbose : int
        1 shows progress and how the solve ended."""

ATTRIBUTES = """Attributes
    ----------
    coef_ : array (C, d) or (C, d, K)
        Slopes of all cells in the units of the input, partition after partition.
    intercept_ : array (C,) or (C, K)
        Biases of all cells in the units of the input.
    offset_ : float or array (K,)
        What the cells add to: with ``cells = apply(x) + cell_starts_``, a raw prediction is
        ``offset_ + coef_[cells].sum(axis=0) @ x + intercept_[cells].sum()`` for one x in the
        training range (and no cell of -1).
    cell_starts_ : array (P,)
        Number of the first cell of every partition.
    setting_ : Setting or None
        Strength, slope scale and feature power that "auto" chose.
    cv_results_ : dict of arrays or None
        Every setting that was tried, with its validation loss; see
        `jointleaf.tuning.TuningResult` for the columns.
    penalty_ : Penalty
        The penalty of the fit, in standardised units.
    solution_ : Solution
        The solver's record, with weights in standardised units.
    partitioner_ : Partitioner
        The fitted partitioner; the root cell is its last partition.
    feature_importances_ : array (d,)
        Half the share in split gains, half the share in the spread of linear contributions.
    n_iter_ : int
        Iterations of the solver.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array (d,)
        Names of the features, where X had string column names."""


def describe_parameters(cls: type[T]) -> type[T]:
    """Fill the shared sections into the class docstring."""
    text = cls.__doc__ or ""
    cls.__doc__ = text.replace("{parameters}", PARAMETERS).replace("{attributes}", ATTRIBUTES)
    return cls
