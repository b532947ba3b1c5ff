"""All methods of the figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from experiments.pmlb import ensembles, networks, soft_trees
from experiments.pmlb.ensembles import Fit
from experiments.pmlb.joint import joint_fit, joint_space
from experiments.pmlb.refined import refined_fit
from experiments.pmlb.sets import Task
from experiments.pmlb.space import Space
from experiments.pmlb.stopped import stopped_fit

__all__ = ["METHODS", "Method"]


@dataclass(frozen=True)
class Method:
    """One row of the figure.

    Attributes
    ----------
    name, label : str
        On the command line, and in tables and the figure.
    group : str
        Methods of a group have one colour.
    spaces : mapping from task to Space
        Ranges of its parameters; a task that is missing is not possible.
    base : str, optional
        The ensemble that it refits: it is tested against it.
    categories : bool
        Sees all columns; the others see those with real values alone.
    twin : str, optional
        The method that it equals on sets without categories.
    paper : str, optional
        Its name in the paper's recorded scores.
    tuned_as : str, optional
        The method whose chosen parameters it takes; nothing is searched.
    needs : str, optional
        A module of another package, without which it cannot be run.
    """

    name: str
    label: str
    group: str
    fit: Fit
    spaces: Mapping[Task, Space]
    base: str | None = None
    categories: bool = False
    twin: str | None = None
    paper: str | None = None
    tuned_as: str | None = None
    needs: str | None = None


def _both(space: Space) -> dict[Task, Space]:
    return {"regression": space, "binary": space}


def _baselines() -> list[Method]:
    """Methods in which nothing is refitted."""
    linear: dict[Task, Space] = {"regression": ensembles.RIDGE, "binary": ensembles.LOGISTIC}
    gb, cb = _both(ensembles.GRADIENT_BOOSTING), _both(ensembles.CATBOOST)
    forest, nn, tabnet = map(_both, (ensembles.TREES, networks.NETWORK, networks.TABNET))
    # The authors' code of FASTEL has no loss for classes, so that the paper leaves them out.
    fastel: dict[Task, Space] = {"regression": soft_trees.SOFT_TREES}
    fit_cb, torch = ensembles.fit_catboost, "torch"
    return [
        Method("ridge", "ridge", "linear", ensembles.fit_linear, linear, paper="ridge"),
        Method("gb", "GB", "GB", ensembles.fit_gradient_boosting, gb, paper="gb"),
        Method("rf", "RF", "RF", ensembles.fit_forest, forest, paper="rf"),
        Method("lf", "LF", "LF", ensembles.fit_linear_forest, forest, paper="lf"),
        # The recorded scores of CatBoost are of real-valued columns alone.
        Method("cb_nc", "CB (NC)", "CB", fit_cb, cb, paper="cb", needs="catboost"),
        Method("cb", "CB", "CB", fit_cb, cb, categories=True, twin="cb_nc", needs="catboost"),
        Method("nn", "NN", "networks", networks.fit_network, nn, paper="nn", needs=torch),
        Method("tabnet", "TabNet", "networks", networks.fit_tabnet, tabnet, needs="pytorch_tabnet"),
        Method(
            "fastel",
            "FASTEL",
            "networks",
            soft_trees.fit_soft_trees,
            fastel,
            paper="fastel",
            needs=torch,
        ),
    ]


def _friedman(base: Method, kind: str) -> Method:
    spaces = {
        task: {**space, "refit_strength": ensembles.REFIT_STRENGTH}
        for task, space in base.spaces.items()
    }
    name = f"{base.name}_fr"
    label, fit = f"{base.label} Friedman", ensembles.friedman_refit(kind)
    return Method(name, label, base.group, fit, spaces, base=base.name, paper=name)


def _refits() -> list[Method]:
    """Global refinement, and JOPLEn with two penalties, on all cells.

    Each is there twice: solved to the optimum, and stopped early on the validation rows.
    """
    # Cells, label, the ensemble to compare with, and the name in the recorded scores.
    kinds = (
        ("gb", "GB", "gb", "gb"),
        ("rf", "RF", "rf", "rf"),
        ("lf", "LF", "lf", "linforest"),
        ("cb", "CB", "cb_nc", None),
        ("vor", "Vor", None, "vor"),
    )
    variants = (
        ("gr", "GR", "const_{}_l2"),
        ("f", "JOPLEn F", "linear_{}_l2"),
        ("l", "JOPLEn L", "linear_{}_l2L2"),
    )
    methods: list[Method] = []
    for cells, label, base, recorded in kinds:
        for short, title, pattern in variants:
            kind = {"linear": short != "gr", "laplacian": short == "l"}
            is_cb_gr = cells == "cb" and short == "gr"
            solved = Method(
                f"{cells}_gr_nc" if is_cb_gr else f"{cells}_{short}",
                f"{label} {title}" + " (NC)" * is_cb_gr,
                label,
                joint_fit(cells, **kind),
                _both(joint_space(cells, **kind)),
                base=base,
                paper=recorded and "jp_" + pattern.format(recorded),
                needs="catboost" if cells == "cb" else None,
            )
            stopped = replace(
                solved,
                name=f"{cells}_{short}_stop",
                label=f"{label} {title}, stopped",
                fit=stopped_fit(cells, **kind),
                spaces=_both(joint_space(cells, **kind, free_biases=True)),
            )
            methods += [solved, stopped]
    return methods


def _refined() -> list[Method]:
    """Tuned ensembles that are refitted as they are."""
    bases = (("gb", "GB", "gb"), ("rf", "RF", "rf"), ("lf", "LF", "lf"), ("cb", "CB", "cb_nc"))
    return [
        Method(
            f"{name}_refine",
            f"{label} refine",
            label,
            refined_fit(name),
            _both({}),
            base=base,
            tuned_as=base,
            needs="catboost" if name == "cb" else None,
        )
        for name, label, base in bases
    ]


def _all_methods() -> dict[str, Method]:
    methods = {method.name: method for method in (*_baselines(), *_refits())}
    # The paper has global refinement of CatBoost's cells with and without categories.
    kind = {"linear": False, "laplacian": False}
    methods["cb_gr"] = Method(
        "cb_gr",
        "CB GR",
        "CB",
        joint_fit("cb", **kind),
        _both(joint_space("cb", **kind)),
        base="cb",
        categories=True,
        twin="cb_gr_nc",
        needs="catboost",
    )
    for base, kind_name in (("gb", "GradientBoosting"), ("rf", "RandomForest")):
        refit = _friedman(methods[base], kind_name)
        methods[refit.name] = refit
    return methods | {method.name: method for method in _refined()}


#: By name, in the order in which they are run.
METHODS: dict[str, Method] = _all_methods()
