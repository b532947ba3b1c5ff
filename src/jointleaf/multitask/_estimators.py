"""Estimators of several tasks that are fitted together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from jointleaf._core.losses import Logistic, Loss
from jointleaf._core.solvers.solution import Solution
from jointleaf._data.columns import Columns
from jointleaf._data.rows import Rows
from jointleaf._data.tasks import as_one_type
from jointleaf._fit.calibration import Calibration, interval_levels
from jointleaf._fit.report import Fit
from jointleaf.estimators import _checks as checks
from jointleaf.estimators import _params as params
from jointleaf.estimators._docs import LOSS_PARAMETERS, described
from jointleaf.estimators._intervals import warn_of_few_rows
from jointleaf.multitask._base import TaskClassifier, TaskRegressor, encode_numbers, number_classes
from jointleaf.multitask._docs import ATTRIBUTES, CLASS_PARAMETERS, LOSSES_ATTRIBUTE, PARAMETERS
from jointleaf.multitask._fitting import TaskJob
from jointleaf.multitask._joint_base import BaseMultiTaskJOPLEn


@described(parameters=PARAMETERS + LOSS_PARAMETERS, attributes=ATTRIBUTES + LOSSES_ATTRIBUTE)
@dataclass(eq=False, repr=False)
class MultiTaskJOPLEnRegressor(TaskRegressor, params.LossParameters, BaseMultiTaskJOPLEn):
    """Piecewise linear ensembles for several regression tasks, all cells fitted jointly.

    {parameters}

    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from jointleaf import DirtyLasso, MultiTaskJOPLEnRegressor
    >>> rng = np.random.default_rng(0)
    >>> tasks = {}
    >>> for j, name in ((1, "a"), (2, "b"), (3, "c")):
    ...     X = rng.standard_normal((150, 8))
    ...     tasks[name] = X, 2 * np.sin(X[:, 0]) + X[:, j]
    >>> penalty = DirtyLasso(common=0.2, task=0.12, bias_strength=1.0)
    >>> model = MultiTaskJOPLEnRegressor("voronoi", penalty=penalty, random_state=0).fit(tasks)
    >>> print(model.common_features_, model.task_features_)
    [0] {'a': array([1]), 'b': array([2]), 'c': array([3])}
    >>> model.predict(X, task="c").shape, model.predict(X).shape
    ((150,), (150, 3))
    """

    def _encode_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        numbers = encode_numbers(targets, names)
        return _by_task(self._encode_target, numbers, names)

    def _encode_known_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        numbers = encode_numbers(targets, names, "y_val")
        return _by_task(self._encode_known, numbers, names)

    def _find_losses(
        self, rows: list[Rows], columns: Columns, seeds: list[int]
    ) -> list[tuple[Loss, tuple[float, float] | None]]:
        scaled = [
            self._scaled_loss(task_rows, columns, seed)
            for task_rows, seed in zip(rows, seeds, strict=True)
        ]
        self.losses_ = [loss for loss, _, _ in scaled]
        return [(loss, units) for _, loss, units in scaled]

    def _keep(self, job: TaskJob, fits: list[Fit], solution: Solution | None = None) -> None:
        super()._keep(job, fits, solution)
        self.calibrations_: list[Calibration | None] = [
            None if fit.held_out is None else Calibration.of_fit(fit.held_out, self.columns_)
            for fit in fits
        ]

    def _answer(self, t: int, raw: NDArray) -> NDArray:
        return self.losses_[t].link(raw)

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, task: Any = None
    ) -> NDArray[np.float64]:
        """Predict intervals that hold the target with a given probability.

        They are from the held-out rows of every task, as those of
        `JOPLEnRegressor.predict_interval`, with no exact guarantee. Only ``penalty="auto"`` keeps
        predictions of such rows.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        coverage : float in (0, 1)
        task : name of a task, or labels (n,), optional
            As in ``predict``.

        Returns
        -------
        array (n, 2) or (n, T, 2)
            Lower and upper ends, of the given task, or of every row's task; of all tasks where
            ``predict`` returns (n, T).
        """
        check_is_fitted(self)
        levels = interval_levels(coverage)
        if None in self.calibrations_:
            raise ValueError(
                f"a prediction interval needs rows that the model has not seen, and this fit "
                f"(penalty={self.penalty!r}) kept no predictions of such rows: fit with "
                "penalty='auto'"
            )

        def ends(t: int, rows: NDArray) -> NDArray:
            calibration = self.calibrations_[t]
            assert calibration is not None
            predictions = self._predictions(t, rows)
            quantiles = calibration.quantiles(rows, predictions, levels, self.losses_[t])
            if np.isinf(quantiles).any():
                warn_of_few_rows(calibration, f"coverage={coverage}", "infinite")
            return quantiles

        answers = self._per_task(X, task, ends)
        return np.stack(answers, axis=1) if isinstance(answers, list) else answers


def _by_task(
    encode: Callable[[NDArray], NDArray], targets: list[NDArray], names: list
) -> list[NDArray]:
    """Return encoded targets of every task; errors name the task."""
    encoded = []
    for name, y in zip(names, targets, strict=True):
        try:
            encoded.append(encode(y))
        except ValueError as error:
            raise ValueError(f"task {name!r}: {error}") from None
    return encoded


@described(parameters=PARAMETERS + CLASS_PARAMETERS, attributes=ATTRIBUTES)
@dataclass(eq=False, repr=False)
class MultiTaskJOPLEnClassifier(TaskClassifier, BaseMultiTaskJOPLEn):
    """Piecewise linear ensembles for several tasks with two classes each, fitted jointly.

    {parameters}

    {attributes}
    classes_ : list of arrays (2,), or one array where y was (n,)
        The class labels of every task.
    task_classes_ : list of arrays (2,)
        The same, a list also for one task.
    """

    _: KW_ONLY
    class_weight: Any = None

    def _class_weights(self, y: NDArray, s: NDArray, task: Any) -> dict[Any, float] | None:
        try:
            return checks.class_weights(self.class_weight, as_one_type(y), s)
        except ValueError as error:
            raise ValueError(f"task {task!r}: {error}") from None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.target_tags.single_output = True
        return tags

    def _encode_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        self.task_classes_, numbers = number_classes(targets)
        for name, classes in zip(names, self.task_classes_, strict=True):
            if len(classes) < 2:
                raise ValueError(
                    f"task {name!r} has one class only ({classes[0]}): at least two are needed, "
                    "leave it out"
                )
            if len(classes) > 2:
                raise ValueError(
                    "Only binary classification is supported. The type of the target is "
                    f"multiclass: task {name!r} has {len(classes)} classes. Use JOPLEnClassifier."
                )
        return [2.0 * y - 1.0 for y in numbers]

    def _find_losses(
        self, rows: list[Rows], columns: Columns, seeds: list[int]
    ) -> list[tuple[Loss, tuple[float, float] | None]]:
        return [(Logistic(), None)] * len(rows)

    def _encode_known_tasks(self, targets: list[NDArray], names: list) -> list[NDArray]:
        encoded = []
        for name, target, classes in zip(names, targets, self.task_classes_, strict=True):
            y = as_one_type(target)
            unknown = [label for label in np.unique(y).tolist() if label not in classes.tolist()]
            if unknown:
                raise ValueError(
                    f"task {name!r}: y_val holds class {unknown[0]!r}, but the classes in y are "
                    f"{classes.tolist()}"
                )
            encoded.append(2.0 * np.searchsorted(classes, y) - 1.0)
        return encoded
