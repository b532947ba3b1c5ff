"""The methods of estimators that explain; the work is done elsewhere, and loaded when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jointleaf.inspection.explanation import Explanation

__all__ = ["Explainable", "ExplainableTasks"]


class Explainable:
    """What a fitted estimator tells about its predictions."""

    def explain(self, X: Any) -> Explanation:
        """Say what every column adds to the predictions of rows X (n, d).

        The baseline, which is the mean prediction over the training rows, and the values of all
        columns add up to the prediction exactly: to ``predict`` in regression and to
        ``decision_function`` for classes. See `jointleaf.inspection.explain`.

        Returns
        -------
        Explanation
        """
        from jointleaf.inspection import explain

        return explain(self, X)


class ExplainableTasks:
    """The same for estimators of several tasks."""

    def explain(self, X: Any, task: Any = None) -> Explanation:
        """Say what every column adds to the predictions of rows X (n, d).

        The baseline of a task, which is the mean prediction over its training rows, and the
        values of all columns add up to the task's raw prediction: to ``predict`` in
        regression, to log-odds for two classes. See `jointleaf.inspection.explain`.

        Parameters
        ----------
        X : array-like or data frame (n, d)
        task : name of a task, or labels (n,), optional
            As in ``predict``; without it all tasks are explained, as outputs.

        Returns
        -------
        Explanation
        """
        from jointleaf.inspection import explain

        return explain(self, X, task=task)
