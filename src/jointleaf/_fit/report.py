"""What a fit did: the one source of fitted attributes, summaries and reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._core.progress import iterations
from jointleaf._core.solvers.solution import Solution
from jointleaf._fit.calibration import HeldOut
from jointleaf._fit.component import LOSS_UNITS, Blend, JointSolve, loss_name
from jointleaf._model.cell_model import CellModel
from jointleaf.partitions._base import TargetType


@dataclass(frozen=True)
class ComponentReport:
    """One component of a fitted model: its name, its weight in the blend, and what it is."""

    name: str
    weight: float
    description: str


@dataclass(frozen=True)
class FitReport:
    """What was really done in a fit.

    Attributes
    ----------
    recipe : str
        "joint" or "blend"; files of older versions may hold "boosting".
    target_type : {"regression", "classification"}
    components : tuple of ComponentReport
        Those that the model consists of; components of weight zero are left out.
    blend : Blend
    joint : JointSolve or None
        The joint problem that was solved, with its penalty; None where no joint fit takes part.
    cv_results : dict of arrays or None
        Every setting of the joint fit that was tried, with its score on held-out rows; see
        `cv_results`. None where no joint fit takes part.
    n_rounds : int
        Rounds of boosting over all components; 0 without boosting.
    loss : str
        Name of the loss.
    has_offset : bool
        Whether rows had offsets.
    left_out : tuple of str
        What there was no time for, what wide tables and many classes are spared, or what was tried
        and did not help.
    """

    recipe: str
    target_type: TargetType
    components: tuple[ComponentReport, ...]
    blend: Blend
    joint: JointSolve | None
    cv_results: dict[str, Any] | None = field(repr=False)
    n_rounds: int = 0
    loss: str = "squared_error"
    has_offset: bool = False
    left_out: tuple[str, ...] = ()

    @classmethod
    def of_joint(
        cls,
        target_type: TargetType,
        solve: JointSolve,
        table: dict[str, Any] | None = None,
        loss: Loss | None = None,
    ) -> FitReport:
        """Return the report of a joint fit alone."""
        layout = solve.solution.layout
        text = f"joint fit of {layout.n_partitions:,} partitions with {layout.n_cells:,} cells"
        parts = (ComponentReport("joint", 1.0, text),)
        name = loss_name(target_type, loss)
        return cls("joint", target_type, parts, Blend.alone("joint"), solve, table, 0, name)

    @property
    def solution(self) -> Solution | None:
        """The solver's record of the joint problem, if one was solved."""
        return None if self.joint is None else self.joint.solution

    @property
    def penalty(self) -> Term | None:
        """The penalty of the joint problem, if one was solved."""
        return None if self.joint is None else self.joint.penalty

    def joint_or_raise(self, purpose: str) -> JointSolve:
        """Return the joint problem that was solved; raise an error where there is none."""
        if self.joint is None:
            raise ValueError(
                f"no joint problem was solved (recipe={self.recipe!r}, {self.blend!r}), which "
                f"{purpose} needs: fit with recipe='joint' or a partitioner"
            )
        return self.joint

    @property
    def n_iter(self) -> int:
        """Iterations of the solver, or rounds of boosting where no joint problem was solved."""
        return self.n_rounds if self.joint is None else self.joint.solution.n_iter

    @property
    def validation_loss(self) -> float | None:
        """Smallest mean loss on held-out rows of the settings that were tried."""
        if self.cv_results is None:
            return None
        return -float(self.cv_results["mean_test_score"][_best_row(self.cv_results)])

    def lines(self) -> list[tuple[str, str]]:
        """Return names and texts of a summary for people."""
        lines, is_blend = [("recipe", self.recipe)], len(self.components) > 1
        if self.target_type == "regression" and self.loss != "squared_error":
            lines.append(("loss", self.loss))
        for part in self.components:
            name = part.name.replace("_", " ") if is_blend else "model"
            text = f"{part.weight:.2g} x {part.description}" if is_blend else part.description
            lines.append((name, text))
        if self.joint is not None:
            lines.append(("penalty", repr(self.joint.penalty)))
            if self.joint.setting:
                lines.append(("setting", _setting_text(self.joint.setting)))
        if self.cv_results is not None:
            text = validation_text(self.cv_results, self.loss)
            of_joint = is_blend and self.joint is not None
            lines.append(("validation loss", f"of the joint fit: {text}" if of_joint else text))
        if self.joint is not None:
            lines.append(("solver", describe_solution(self.joint.solution)))
        idle = [name for name, weight in self.blend.weights.items() if weight == 0]
        left_out = [*self.left_out, *(f"{name} (weight zero)" for name in idle)]
        if left_out:
            lines.append(("left out", ", ".join(left_out).replace("_", " ")))
        return lines


@dataclass(frozen=True)
class Fit:
    """The model of a fit, the importances (d,) of columns, what was done, and held-out rows.

    A fit that explains hardly more than a constant `wants_larger_trees`, where there are such:
    columns that say nothing one by one may do so together, which takes the recipe of more rows,
    with more of them in training. `explained` is the part of the loss of a constant by which that
    of held-out rows is lower, where it is known.
    """

    model: CellModel
    importances: NDArray[np.float64]
    report: FitReport
    held_out: HeldOut | None = None
    wants_larger_trees: bool = False
    explained: float | None = None


def _setting_text(setting: dict[str, float]) -> str:
    """Return a setting in words; of the scales of groups of partitions their range alone."""
    scales = [v for k, v in setting.items() if k.endswith("_scale") and k != "slope_scale"]
    names = [k for k in setting if not k.endswith("_scale") or k == "slope_scale"]
    parts = [f"{name} {setting[name]:.3g}".replace("_", " ") for name in names]
    if scales:
        groups = f"{len(scales)} groups of partitions" if len(scales) > 1 else "partitions"
        parts.append(f"{groups} with scales {min(scales):.2g} to {max(scales):.2g}")
    return ", ".join(parts)


def _best_row(results: dict[str, Any]) -> int:
    """Return the row with the best score; those of squared errors in place of the loss are none."""
    scores = np.asarray(results["mean_test_score"], float)
    is_exact = np.asarray(results.get("is_exact", np.ones(len(scores), bool)))
    return int(np.nanargmax(np.where(is_exact, scores, -np.inf)))


def validation_text(results: dict[str, Any], loss: str) -> str:
    """Return the smallest validation loss of a table, with its standard error and unit."""
    k, n = _best_row(results), len(results["mean_test_score"])
    error = float(results["se_test_score"][k])
    text = f"{-results['mean_test_score'][k]:.4g}"
    text += "" if np.isnan(error) else f" ± {error:.2g}"
    text += f" ({LOSS_UNITS.get(loss, loss)})"
    return text + (f", best of {n} settings" if n > 1 else "")


def describe_solution(solution: Solution) -> str:
    """Return how a solve ended, in one line."""
    return (
        f"{solution.solver}, {solution.status} after {iterations(solution.n_iter)}, "
        f"optimality {solution.optimality:.1e}"
    )
