"""The methods of estimators that explain; the work is done elsewhere, and loaded when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sklearn import get_config
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from jointleaf.inspection._explanation import Explanation
    from jointleaf.inspection._local import LocalModel

__all__ = ["Explainable", "ExplainableTasks", "Summarised"]


class Summarised:
    """A fitted estimator with a summary, which notebooks show under scikit-learn's diagram."""

    def summary(self) -> str:
        """Say in a few lines what the fit found: rows, cells, penalty, losses, convergence."""
        from jointleaf.inspection._summary import summary_text

        check_is_fitted(self)
        return summary_text(self)

    @property
    def _repr_html_(self) -> Callable[[], str]:
        # A property, as in scikit-learn: with another display there must be no such attribute.
        if get_config()["display"] != "diagram":
            raise AttributeError("_repr_html_ is there with sklearn.set_config(display='diagram')")
        return self._as_html

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            bundle["text/html"] = self._as_html()
        return bundle

    def _as_html(self) -> str:
        from jointleaf.inspection._summary import html

        diagram = estimator_html_repr(self)
        try:
            check_is_fitted(self)
        except NotFittedError:
            return diagram
        return html(self, diagram)


class Explainable(Summarised):
    """What a fitted estimator tells about its predictions."""

    def explain(self, X: Any) -> Explanation:
        """Say what every column adds to the predictions of rows X (n, d).

        The baseline, which is the mean prediction over the training rows (4,000 of them where
        there are more), and the values of all columns add up to the prediction exactly: to
        ``predict`` in regression and to ``decision_function`` for classes. See
        `jointleaf.inspection.explain`.

        Returns
        -------
        Explanation
        """
        from jointleaf.inspection import explain

        return explain(self, X)

    def local_model(self, X: Any) -> LocalModel:
        """Give the linear model in force around the one row of X (1, d).

        See `jointleaf.inspection.local_model`.
        """
        from jointleaf.inspection import local_model

        return local_model(self, X)


class ExplainableTasks(Summarised):
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

    def local_model(self, X: Any, task: Any = None) -> LocalModel:
        """Give the linear model of a task in force around the one row of X (1, d).

        See `jointleaf.inspection.local_model`.
        """
        from jointleaf.inspection import local_model

        return local_model(self, X, task=task)
