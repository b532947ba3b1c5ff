"""What a fit did: the one source of fitted attributes, summaries and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jointleaf._core.losses import Loss
from jointleaf._core.penalties import Term
from jointleaf._core.progress import iterations
from jointleaf._core.solvers.solution import Solution
from jointleaf._fit.component import Blend, Component, JointSolve, Table
from jointleaf.partitions._base import TargetType

#: What validation losses are, by the name of the loss.
LOSS_UNITS = {
    "squared_error": "squared error / 2, target variance = 1",
    "absolute_error": "absolute error in robust standard deviations of the target",
    "huber": "Huber loss, robust standard deviation of the target = 1",
    "quantile": "quantile loss in robust standard deviations of the target",
    "poisson": "Poisson deviance / 2",
    "gamma": "gamma deviance / 2",
    "tweedie": "Tweedie deviance / 2",
    "logistic": "log-loss",
    "multinomial": "log-loss",
}


def loss_name(target_type: TargetType, loss: Loss | None = None) -> str:
    """Return the name of a loss in `LOSS_UNITS`, or that of a class of the user's."""
    if loss is None:
        return "squared_error" if target_type == "regression" else "logistic"
    return loss.name if loss.name in LOSS_UNITS else type(loss).__name__


_LOSSES = ("mean_loss", "std_loss", "se_loss")
LINE_PARAMETERS = ("slope_scale", "feature_power")  # of which every line has one value
_FLAGS = ("converged", "is_exact", "on_path", "mean_common", "mean_specific", "mean_selected")


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
    def of(
        cls,
        recipe: str,
        target_type: TargetType,
        blend: Blend,
        components: dict[str, Component],
        loss: Loss | None = None,
    ) -> FitReport:
        """Put together what the components of a blend did."""
        active = [components[name] for name in blend.active]
        tables = [c.table for c in active if c.table is not None]
        return cls(
            recipe,
            target_type,
            tuple(ComponentReport(c.name, blend.weights[c.name], c.describe()) for c in active),
            blend,
            next((c.solve for c in active if c.solve is not None), None),
            cv_results(tables[0]) if tables else None,
            sum(component.n_rounds for component in active),
            loss_name(target_type, loss),
        )

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


def cv_results(table: Table) -> dict[str, Any]:
    """Return a table of validation losses with scikit-learn's names and sign.

    It has ``param_*`` for every number that was tried (strength, slope_scale, ...) and ``params``,
    the same as a list of dicts; ``mean_test_score`` (minus the weighted mean validation loss over
    all splits, for squared error in units of the target's variance), ``std_test_score`` over groups
    of validation rows, ``se_test_score``, the standard error of the mean, and ``rank_test_score``;
    ``converged``, and what else is known of a setting.
    """
    names = [name for name in table if name not in (*_LOSSES, *_FLAGS)]
    losses = np.asarray(table["mean_loss"], float)
    order = np.where(np.isnan(losses), np.inf, losses)
    return {
        **{f"param_{name}": table[name] for name in names},
        "params": [{n: v.item() for n, v in zip(names, row, strict=True)}
                   for row in zip(*(table[name] for name in names), strict=True)],
        "mean_test_score": -losses,
        "std_test_score": table["std_loss"],
        "se_test_score": table["se_loss"],
        "rank_test_score": np.searchsorted(np.sort(order), order).astype(np.int32) + 1,
        **{name: table[name] for name in _FLAGS if name in table},
    }  # fmt: skip


def loss_table(results: Mapping[str, Any]) -> Table:
    """Return the table of validation losses that `cv_results` was made from."""
    losses = -np.asarray(results["mean_test_score"], float)
    numbers = {name.removeprefix("param_"): v for name, v in results.items() if "param_" in name}
    columns = losses, results["std_test_score"], results["se_test_score"]
    flags = {name: results[name] for name in _FLAGS if name in results}
    return {
        **numbers,
        **dict(zip(_LOSSES, columns, strict=True)),
        "is_exact": np.ones(len(losses), bool),
        **flags,
    }


def split_lines(results: Mapping[str, Any]) -> list[Table]:
    """Return the lines that a search followed, each from strong to weak; of paths the last one.

    Blends of the best setting with the leaf values are points, not lines, and left out.
    """
    table = loss_table(results)
    rows = np.isfinite(table["mean_loss"]) & table.get("on_path", True)
    rows &= table.get("joint_weight", 1.0) == 1.0
    followed = {name: column[rows] for name, column in table.items()}
    is_new = np.diff(followed["strength"]) >= 0
    for name in ("is_exact", *LINE_PARAMETERS):
        if name in followed:
            is_new |= np.diff(followed[name]) != 0
    parts = np.split(np.arange(rows.sum()), np.flatnonzero(is_new) + 1)
    lines = [{name: column[part] for name, column in followed.items()} for part in parts]
    return lines[-1:] if "on_path" in table else lines
