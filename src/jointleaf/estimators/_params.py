"""Constructor parameters that the estimators of one task and of several tasks share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state

from jointleaf._core.layout import CellKind
from jointleaf._core.penalties import Penalty, Term
from jointleaf.partitions import TargetType, is_ensemble, without_models

__all__ = ["JOPLEnParameters", "restored_on_error"]


class JOPLEnParameters(BaseEstimator):
    """Parameters of a joint fit, with cloning, pickling and tags; see `JOPLEnRegressor`."""

    _target_type: TargetType

    def __init__(
        self,
        partitioner: Any = None,
        *,
        penalty: str | Term = "auto",
        cells: CellKind = "linear",
        root_cell: bool = True,
        clip: bool | str = True,
        categorical_features: Any = "from_dtype",
        linear_features: Any = None,
        add_indicator: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 1000,
        cv: Any = None,
        one_se: bool | str = "auto",
        n_jobs: int | None = None,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.partitioner = partitioner
        self.penalty = penalty
        self.cells = cells
        self.root_cell = root_cell
        self.clip = clip
        self.categorical_features = categorical_features
        self.linear_features = linear_features
        self.add_indicator = add_indicator
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.cv = cv
        self.one_se = one_se
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_clone__(self) -> JOPLEnParameters:
        copied = super().__sklearn_clone__()
        # Trained ensembles are parameters here: their clones would be untrained.
        if is_ensemble(self.partitioner):
            copied.partitioner = self.partitioner
        elif isinstance(self.partitioner, list):
            copied.partitioner = [
                mine if is_ensemble(mine) else theirs
                for mine, theirs in zip(self.partitioner, copied.partitioner, strict=True)
            ]
        return copied

    def __getstate__(self) -> dict[str, Any]:
        # A fitted model predicts without the library that grew its trees: so must its pickle.
        state = dict(super().__getstate__())
        if "partitioner_" in state or "partitioners_" in state:
            state["partitioner"] = without_models(self.partitioner)
        return state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @property
    def _chooses(self) -> bool:
        """Whether something about the penalty is left to cross-validation."""
        return isinstance(self.penalty, str) or self.penalty.is_auto

    @property
    def _is_recipe(self) -> bool:
        """Whether partitions and penalty are those of the default recipe."""
        return self.partitioner is None and isinstance(self.penalty, str)

    def _takes_one_se(self) -> bool:
        """Whether the strongest penalty within one standard error of the best is taken."""
        if self.one_se != "auto":
            return bool(self.one_se)
        terms = self.penalty.terms if isinstance(self.penalty, Term) else ()
        return any(isinstance(term, Penalty) and term.is_row_sparse for term in terms)


@contextmanager
def restored_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Leave an estimator as it was after an error or Ctrl-C, never half fitted."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise
