"""The documentation that all estimators share, written once."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import TypeVar

T = TypeVar("T")

PARAMETERS = """Parameters
    ----------
    partitioner : "auto", str, Partitioner, fitted ensemble or list of these
        Makes the partitions. "auto" is boosted and random trees, on the target and on the residuals
        of a linear model: 400 to 450 small trees up to 2,000 rows, 75 above. Names are "lightgbm",
        "catboost", "xgboost", "gradient_boosting", "hist_gradient_boosting", "random_forest",
        "extra_trees", "random_trees", "large_trees", "rotated_trees", "linear_forest", "steps" and
        "voronoi"; a fitted tree ensemble of scikit-learn, LightGBM, XGBoost or CatBoost is used as
        it is (see `refine`); a list is their union.
    penalty : "auto", Penalty or a sum of penalties
        "auto" chooses strength, slope scale and feature weighting of a Frobenius penalty, and the
        weights of the components of a recipe, by honest cross-validation; a Penalty such as
        ``Frobenius(0.01)`` or ``L21(0.1) + Laplacian(0.01)`` is used as given, in standardised
        units, and strengths that are "auto", as in ``L21("auto")``, are chosen by honest
        cross-validation.
    recipe : {"auto", "joint", "blend"}
        What is fitted where partitions and penalty are "auto": "joint" is a joint fit of all
        partitions (for classes blended with simpler models), "blend" a joint fit of large trees
        with constants and small ones with linear models, blended with boosted trees and a linear
        model. "auto" is "joint" up to 2,000 different rows, with what "blend" has besides where
        that clearly helps on held-out rows, and "blend" above.
    cells : {"linear", "constant"}, or list of these
        Models of the cells; constant cells are global refinement. With a penalty and a list of
        partitioners there may be one word for each of them; the root cell is then linear.
    root_cell : bool
        Add one partition with a single cell: a global linear model in the joint fit. Without it
        no other component of a recipe is a global linear model either.
    clip : True, False or "cell"
        Linear models see features clipped to their range in training, because linear cells
        extrapolate: the range over all training rows, or over those of the cell itself.
    categorical_features : "from_dtype", list of names or numbers, or bool array (d,)
        Columns of text or of a category type always hold categories; a list or a mask names
        columns of numbers that do as well. With the default partitions, more than 50 categories
        become cross-fitted target statistics.
    linear_features : None, "numeric", list of names or numbers, or bool array (d,)
        Columns that the linear models of the cells see; all of them, or those of numbers, or
        the given ones. Partitions see all columns.
    add_indicator : bool
        Give the linear models one more feature for every column of numbers with missing values,
        which tells where it is missing. A missing value itself counts as the training mean.
    solver : {"auto", "dual", "pcg", "newton", "fista"}
        "auto" follows the rules of docs/how-it-works.md: "dual" for few rows, "pcg" or "newton" for
        more, "fista" for penalties that are not quadratic; with recipe="blend" as many Lanczos
        steps as held-out rows ask for.
    tol : float
        Tolerance of the scale-free optimality measure.
    max_iter : int
        Maximum number of solver iterations.
    cv : None, int, splitter or iterable of index pairs
        Splits for what is "auto". None is 5 folds up to 2,500 distinct rows (3 folds with 400 to
        2,000 rows where partitions and penalty are "auto"), above that one validation split of a
        fifth; with recipe="blend" three such splits below 12,000 rows, two up to 20,000, and one
        above.
    one_se : bool or "auto"
        Take the strongest penalty whose validation loss is within one standard error of the
        smallest. "auto" does so where whole features vanish (L1, L21, ...): fewer features are
        selected at hardly any loss, whereas the smallest loss lets many in that do not matter.
    time_budget : float, optional
        Seconds that a fit by the default recipe may take, about: where there is no time for all of
        it, there are fewer splits, components, or rows (see docs/recipe.md). `report_.left_out`
        says what there was no time for.
    n_jobs : int, optional
        Threads (-1: all cores). The fitted model is the same for every value, up to
        rounding.
    device : {"cpu", "gpu", "tpu", "auto", "jax:cpu"}
        Where the cells of a given penalty (also one whose strength is "auto") are fitted and
        predicted. "cpu" is NumPy and SciPy; the others need JAX (extra ``jax``): an accelerator,
        or JAX on the CPU. "auto" is an accelerator where there is one and the problem is large
        enough, else "cpu". Partitions, and the choices of ``penalty="auto"``, are on the CPU.
    random_state : int, RandomState or None
        Seed of the partitions.
    verbose : int
        1 shows progress and how the solve ended."""

MONOTONE_PARAMETERS = """
    monotonic_cst : array-like (d,) of -1, 0 and 1, dict of these by column name, or None
        1 for columns of numbers with which raw predictions (and so means and probabilities) must
        not fall, -1 for those with which they must not rise, all other columns being the same;
        between a value and a missing one nothing is promised. All components and all partitions
        are made monotone, which is sufficient; see docs/monotone.md and `certify_monotonic`. Not
        for more than two classes."""

WARM_PARAMETERS = """
    warm_start : bool
        Whether `fit` of a fitted model keeps its partitions, standardisation, intervals and what
        was chosen, and fits the cells alone to the rows that are given, iterative solvers from the
        weights of the model: quick for another `penalty` of fixed strength, or for rows that
        changed a little. Other parameters that say what is grown or chosen have no effect then.
        For models that are one joint fit, as in `update`; blends are refused."""

ATTRIBUTES = """Attributes
    ----------
    coef_ : array (C, m) or (C, m, K)
        Slopes of all cells in the units of the input, partition after partition; one column
        for each of the m linear features, which are the d columns of X where all are numbers.
    linear_feature_names_ : array (m,) of str
        Names of the linear features: columns of numbers, categories ("city=Rome") of columns with
        text, and indicators of missing values.
    linear_feature_columns_ : array (m,) of int
        Column of X that each of them comes from.
    intercept_ : array (C,) or (C, K)
        Biases of all cells in the units of the input.
    offset_ : float or array (K,)
        What the cells add to: with ``cells = apply(x) + cell_starts_``, a raw prediction is
        ``offset_ + coef_[cells].sum(axis=0) @ x + intercept_[cells].sum()`` for one x in the
        training range (and no cell of -1).
    cell_starts_ : array (P,)
        Number of the first cell of every partition.
    report_ : FitReport
        What the fit did: the recipe, its components with their weights and what they are, the joint
        problem that was solved (or None), and the settings that were tried.
    blend_ : Blend
        Weights of the components that the model is the sum of, by name, and a constant;
        ``coef_`` and ``intercept_`` are those of the blend.
    cell_model_ : CellModel
        The fitted model: partitions and the weights of their cells.
    calibration_ : Calibration or None
        How far targets were from predictions on held-out rows, or on those of `calibrate`; None
        where the fit held out no rows.
    cv_results_ : dict of arrays or None
        Every setting of the joint fit that was tried, with its score on held-out rows under
        scikit-learn's names: ``param_strength`` and so on, ``mean_test_score`` (minus the mean
        loss), ``std_test_score`` (over groups of held-out rows, at least ten), ``se_test_score``
        (standard error of the mean), ``rank_test_score``, ``params``.
        None where nothing was left to choose, or no joint fit takes part in the blend.
    penalty_ : Penalty or None
        The penalty of the joint problem, in standardised units, with every strength a number; None
        where no joint fit takes part in the blend.
    selected_features_ : array of int
        Features that have a slope in some cell: the linear part of the model uses them.
    split_features_ : array of int
        Features on which the cells depend: a model can use a feature through its partitions
        alone (all features for Voronoi cells).
    slope_norms_ : array (d,)
        Euclidean norm of every feature's standardised slopes over all cells and outputs; zero
        for features that are not selected. For `sklearn.feature_selection.SelectFromModel`:
        ``importance_getter="slope_norms_", threshold=1e-10``.
    solution_ : Solution or None
        The solver's record of the joint problem, with weights in standardised units; None where
        none was solved.
    partitioner_ : Partitioner
        The fitted partitions of all components.
    feature_importances_ : array (d,)
        The average of two fractions: of the split gain, and of the spread of linear contributions.
    n_iter_ : int
        Iterations of the solver, or rounds of boosting where no joint problem was solved.
    columns_ : Columns
        What the columns of X hold.
    pruning_ : Pruning
        How `prune` chose the size, where it made the model.
    source_fit_ : SourceFit
        How the cells were fitted to all rows, where `fit_source` made the model.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array (d,)
        Names of the features, where X had string column names."""

LOSS_PARAMETERS = """
    loss : str or Loss
        "squared_error" (the mean), "absolute_error" (the median), "huber" (a mean that outliers do
        not move; its scale is found from held-out residuals), "quantile", or, with predictions
        exp(raw) that are never negative, "poisson" (counts), "gamma" (amounts) or "tweedie"
        (amounts with many zeros); or an object of `jointleaf.losses`, such as a convex loss of
        one's own. Trees are grown on the same loss, and everything is validated by it; ``score`` is
        R^2 with every loss.
    quantile : float in (0, 1) or list of these, optional
        The level, for loss="quantile"; 0.5 by default. `JOPLEnRegressor` takes a list of rising
        levels as well, at most 20, which are fitted jointly and never cross: ``predict`` returns a
        column for each, and ``score`` minus their mean loss (docs/intervals.md).
    power : float, optional
        Of loss="tweedie", 1.5 by default: the variance grows with this power of the mean. Between 1
        and 2, which are "poisson" and "gamma"; 0 is the squared error."""

CLASS_PARAMETERS = """
    class_weight : None, "balanced" or dict of numbers by class
        By what the weights of rows are multiplied; classes that a dict leaves out have 1.
        "balanced" gives all classes the same weight in sum. Everything is fitted and chosen with
        these weights: probabilities are those of rows in which classes are as frequent as their
        weights say, and not the frequencies in y. `predict_set` is calibrated to those in y."""

LOSS_ATTRIBUTE = """
    loss_ : Loss
        The loss that was minimised, with the scale that was found for "huber" (``loss_.delta``), in
        units of y; with several levels in `quantile` that of the median.
    quantiles_ : JointQuantiles
        The distances of several quantiles from the median, which everything else that was fitted
        describes; only with several levels in `quantile`."""


CALIBRATE = """The model itself stays as it is, and so do the widths that the fit has learned. What
        is predicted afterwards has the exact guarantee of split-conformal prediction: see
        `predict_interval` and `predict_set`.

        Parameters
        ----------
        X : array-like or data frame (n, d)
            Rows that took no part in the fit in any way.
        y : array-like (n,)
        sample_weight : array-like (n,), optional
            Only their ratios matter. With weights s there are (sum s)^2 / sum s^2 rows, and the
            guarantee is approximate."""


def described(**sections: str) -> Callable[[T], T]:
    """Return a decorator that fills shared sections into a docstring, by their names.

    The docstring loses its indentation, as from Python 3.13 on all do.
    """

    def fill(documented: T) -> T:
        text = cleandoc(documented.__doc__ or "")
        for name, section in sections.items():
            text = text.replace(f"{{{name}}}", cleandoc(section))
        documented.__doc__ = text
        return documented

    return fill
