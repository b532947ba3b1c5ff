"""Parameters and attributes that the docstrings of estimators of several tasks share."""

PARAMETERS = """Tasks have the same features and each its own target, partitions and
    standardisation; they can have rows of their own. They are given as pairs (X_t, y_t), as one X
    with a 2-D y, or as one long table with the task of every row (see `fit`).

    Parameters
    ----------
    partitioner : "auto", str, Partitioner, multitask partitioner or list of these
        As for `JOPLEnRegressor`, for every task on its rows, or a partitioner that grows the
        partitions of all tasks together, such as `jointleaf.multitask.BoUTSPartitioner`. For
        selecting features "voronoi" is a good choice: its cells know nothing of y.
    penalty : "auto", Penalty or a sum of penalties
        "auto" is for prediction: every task has the default penalty of `JOPLEnRegressor`, chosen
        by its own honest cross-validation. ``DirtyLasso()`` is for selection: which
        features matter for all tasks, for single ones, and for none, with both strengths chosen by
        cross-validation over all tasks. ``L21``, ``LInf1``, ``Nuclear`` and others act on the
        slopes of all tasks together; ``PerTask(L21(0.1))`` on every task alone.
    recipe : {"auto", "joint", "blend"}
        What is fitted to every task with ``penalty="auto"``, as for `JOPLEnRegressor`.
    task_weights : "auto", list or dict of positive numbers
        gamma_t, the weight of a task's mean loss in the objective. "auto" is sqrt(S_t / max S_t)
        with S_t the task's number of rows (or sum of sample weights): the noise of a mean
        over S_t rows falls with the root of S_t, so that tasks then tell features from noise
        at the same strength. With equal numbers of rows all are 1.
    cells, root_cell, clip, categorical_features, linear_features, add_indicator, solver
        As for `JOPLEnRegressor`.
    tol : float
        Tolerance of the scale-free optimality measure. The default is ten times that of
        `JOPLEnRegressor`: penalties that tie tasks together are solved by first-order steps, for
        which the last digits are slow.
    max_iter : int
        Maximum number of solver iterations.
    cv : None, int, splitter
        Splits of every task's rows. None is 5 folds, or one validation split of a fifth where some
        task has more than 2,500 distinct rows.
    one_se : bool or "auto"
        Take the setting with the fewest features whose validation loss is within one standard
        error of the smallest. "auto" does so where whole features vanish.
    time_budget : float, optional
        Seconds that a fit with ``penalty="auto"`` may take, about, in equal parts for all tasks, as
        for `JOPLEnRegressor`.
    n_jobs : int, optional
        Threads (-1: all cores). The fitted model is the same for every value.
    device : {"cpu", "gpu", "tpu", "auto", "jax:cpu"}
        As for `JOPLEnRegressor`.
    random_state : int, RandomState or None
        Seed of the partitions.
    verbose : int
        1 shows progress."""

ATTRIBUTES = """Attributes
    ----------
    task_names_ : list
        Names of the tasks: keys of the dict, labels, column names of y, or numbers.
    task_form_ : str
        How the tasks were given: as pairs, as one or several targets, or as a long table.
    task_column_ : str, int or None
        The column of X that held the task of every row.
    task_weights_ : array (T,)
        gamma_t.
    common_features_ : array of int
        Features that are common to all tasks.
    task_features_ : dict of arrays of int
        For every task the features that it has besides the common ones.
    selected_features_ : array of int
        Features with a slope in any task.
    slope_norms_ : array (d, T)
        Euclidean norm of every feature's standardised slopes in every task.
    common_norms_ : array (d, T)
        The same of the common part of the slopes.
    penalty_ : Penalty, or list of them for ``penalty="auto"``
        With every strength a number.
    solution_ : Solution, or list of them for ``penalty="auto"``
        Slopes and biases of all tasks in standardised units, and how they were solved for.
    cv_results_ : dict of arrays, list of them for ``penalty="auto"``, or None
        Every setting that was tried, with scikit-learn's names: ``param_common`` and ``param_task``
        (the strengths; other penalties have theirs in ``param_common``), ``param_bias_strength``,
        ``param_relax`` (by what the strengths were multiplied for the selected features),
        ``mean_test_score`` (minus the weighted mean loss over tasks, in units of the targets'
        variances for regression; infinite where most features were selected, so that relaxing was
        not tried), ``std_test_score``, ``se_test_score`` and ``rank_test_score``; ``on_path``
        (False where bias strengths were compared), ``mean_common`` (number of common features, mean
        over splits), ``mean_specific`` (of further features of a task), ``mean_selected`` (their
        sum) and ``converged``.
    cell_models_ : list of CellModel
        The model of every task, which predicts.
    report_ : list of FitReport
        What was done for every task.
    partitioners_ : list of Partitioner
        The fitted partitioner of every task.
    feature_importances_ : array (d,)
        Mean over tasks of the average of two fractions: of the split gain, and of the spread of
        linear contributions.
    n_iter_ : int
        Iterations of the solver, the largest number of all tasks.
    linear_feature_names_, linear_feature_columns_, columns_, n_features_in_, feature_names_in_
        As for `JOPLEnRegressor`."""

CLASS_PARAMETERS = """
    class_weight : None, "balanced" or dict of numbers by class
        As for `JOPLEnClassifier`, for every task."""

LOSSES_ATTRIBUTE = """
    losses_ : list of Loss
        The loss of every task, with the scale that was found for "huber", in units of y.
    calibrations_ : list of Calibration or None
        How far targets of every task were from predictions on held-out rows; None where the fit
        kept no predictions of such rows."""
