"""What a model of the benchmark is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Model:
    """A model out of the box: how it is made, and what must be installed for it.

    Attributes
    ----------
    name : str
        In commands and in the file of results.
    label : str
        In tables and pictures.
    package : str
        What to install, as pip knows it.
    regressor, classifier : callable or None
        Import the package and give a new estimator; None where there is none for the task.
    """

    name: str
    label: str
    package: str
    regressor: Callable[[], Any] | None = None
    classifier: Callable[[], Any] | None = None

    def takes(self, task: str) -> bool:
        """Whether the model can be fitted for the task."""
        return self._maker(task) is not None

    def make(self, task: str) -> Any:
        """Give a new estimator for the task.

        Raises
        ------
        ImportError
            The package is not installed.
        """
        maker = self._maker(task)
        if maker is None:
            raise ValueError(f"Model {self.name!r} has no estimator for task {task!r}.")
        try:
            return maker()
        except ImportError as error:
            raise ImportError(
                f"Model {self.name!r} needs {self.package} ({error}): pip install {self.package}"
            ) from error

    def _maker(self, task: str) -> Callable[[], Any] | None:
        return self.regressor if task == "regression" else self.classifier
