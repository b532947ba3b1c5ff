r"""The Dirty LASSO: features that all tasks share, and features of single tasks.

The slopes of every task are a sum of two parts, W_t = C_t + T_t. With W fixed the cheapest split
is known in closed form, so that the penalty is a norm of W alone: the infimal convolution of the
two. Its dual unit ball is the *intersection* of those of its parts. For a feature whose
slopes in task t have the vector w_t, with the Euclidean norm (p = 2) and kappa_t = gamma_t,

.. math::

    R(w) = \max \{ \langle u, w \rangle :\ |u| \le r,\ |u_t| \le \kappa_t \}

in units of the strength on single tasks, r being the ratio of the two strengths. What the
maximum is attained at, the proximal map (w minus the projection of w on the intersection) and the
split itself all come from one number per feature, the level.
"""

from __future__ import annotations

from abc import abstractmethod
from inspect import cleandoc
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointleaf._core.arrays import array_namespace, check_number
from jointleaf._core.layout import CellLayout
from jointleaf._core.penalties import prox
from jointleaf._core.penalties.base import AUTO, is_auto, shown
from jointleaf._core.penalties.norms import RotationInvariant, SlopeNorm


class TaskNorm(SlopeNorm):
    r"""What the Dirty LASSOs share: two strengths, and the tasks that a layout knows.

    The strength of the norm is that on single tasks, and `ratio` the common one over it; without
    a part for single tasks it is the common strength, with kappa_t infinite and a ratio of 1.

    Parameters
    ----------
    common : float > 0, "auto" or None
        Strength on common slopes; None: there are none.
    task : float > 0, "auto" or None
        Strength on the slopes of single tasks; None: there are none.
        "auto" is for both, or for one while the other is None.
    {bias_strength}
    relax : float in (0, 1] or "auto", optional
        Below 1 the features that are selected are fitted once more, alone, with both strengths
        multiplied by it (the relaxed LASSO, Meinshausen 2007): a strength that keeps
        irrelevant features out also shrinks what the relevant ones do. By default 1, or
        "auto" where the strengths are.
    """

    is_row_sparse = True

    def __init__(
        self,
        common: float | str | None = AUTO,
        task: float | str | None = AUTO,
        bias_strength: float | str | None = None,
        relax: float | str | None = None,
    ) -> None:
        _check_pair(common, task)
        strength = common if task is None else task
        assert strength is not None
        super().__init__(strength, bias_strength)
        self.has_common, self.has_task = common is not None, task is not None
        self.ratio: float | None = 1.0
        if common is None:
            self.ratio = np.inf
        elif task is not None:
            # Both to be chosen: the ratio too.
            self.ratio = None if self.is_auto else float(common) / float(task)
        self.relax = _check_relax(relax, self.is_auto)
        #: gamma_t, known after `bind`
        self._kappa = np.ones(1)
        #: features (d, T) that may have slopes in a task; None for all
        self.support: NDArray[np.bool_] | None = None

    def __init_subclass__(cls) -> None:
        shared = cleandoc(TaskNorm.__doc__ or "").partition("\nParameters")[2]
        doc = cleandoc(cls.__doc__ or "")
        cls.__doc__ = doc.replace("{parameters}", f"Parameters{shared}")
        super().__init_subclass__()

    # -- strengths -----------------------------------------------------------------------------

    @property
    def common(self) -> float | str | None:
        """The strength on common parts; None where there are none."""
        if not self.has_common:
            return None
        return AUTO if self.is_auto else self.ratio * self.strength

    @property
    def task(self) -> float | str | None:
        """The strength on the parts of single tasks; None where there are none."""
        return self.strength if self.has_task else None

    @property
    def is_ratio_auto(self) -> bool:
        """Whether the ratio of the two strengths is still to be chosen."""
        return self.ratio is None

    def with_ratio(self, ratio: float) -> Any:
        """Return the same penalty with the common strength this multiple of the other."""
        return self.replaced(ratio=check_number("ratio", ratio, positive=True))

    def relaxed(self, factor: float, support: NDArray[np.bool_]) -> Any:
        """Return the penalty with weaker strengths on selected features (d, T) alone."""
        return self.replaced(strength=factor * self.strength, relax=1.0, support=support)

    def at(self, strength: float) -> Any:
        """Return the same penalty with this strength on single tasks, the ratio kept."""
        if self.ratio is None:
            raise ValueError(
                f"{self!r} has two strengths to choose, which MultiTaskJOPLEnRegressor and "
                "MultiTaskJOPLEnClassifier do: for a single task use L21 or LInf1, or fix the "
                "ratio of the two with with_ratio"
            )
        return super().at(strength)

    def __repr__(self) -> str:
        parts = [f"common={shown(self.common)}", f"task={shown(self.task)}"]
        if self.bias_strength and not self.is_bias_auto:
            parts.append(f"bias_strength={self.bias_strength:.4g}")
        if self.relax not in (1.0, AUTO):
            parts.append(f"relax={self.relax:.4g}")
        return f"{type(self).__name__}({', '.join(parts)})"

    # -- tasks ---------------------------------------------------------------------------------

    def bind(self, layout: CellLayout) -> Any:
        return super().bind(layout).replaced(_kappa=layout.task_weights)

    def _limits(self) -> tuple[Any, Any]:
        """Ratio r and kappa (T,); None in place of what there is not."""
        if self.ratio is None:
            raise ValueError(f"{self!r}: the ratio of the strengths is still to be chosen")
        return self.ratio if self.has_common else None, self._kappa if self.has_task else None

    def _columns(self, W: Any) -> list[slice]:
        if self._layout is None:
            return [slice(0, W.shape[1])]
        starts = self._layout.slope_starts
        bounds = (starts * (W.shape[1] // max(int(starts[-1]), 1))).tolist()
        return [slice(a, b) for a, b in pairwise(bounds)]

    def restricted(self, features: NDArray[np.intp]) -> Any:
        """The penalty on some features: rows of zeros do not change the norm."""
        support = None if self.support is None else self.support[features]
        return self.with_features(len(features)).replaced(support=support)

    def _supported(self, W: Any) -> Any:
        """W with zeros where a task has no slopes; the proximal map of R leaves them zero."""
        return W if self.support is None else W * self._spread(self.support, W)

    def _spread(self, values: Any, W: Any) -> Any:
        """Values (d, T) on the columns of their tasks, (d, m), in the type of W."""
        xp = array_namespace(W)
        widths = np.array([c.stop - c.start for c in self._columns(W)])
        return xp.repeat(xp.asarray(values, W.dtype), widths, axis=1)

    def parts(self, W: NDArray) -> tuple[NDArray, NDArray]:
        """Return the cheapest split of W (d, m) into common slopes and slopes of single tasks."""
        if not self.has_common:
            return np.zeros_like(W), W
        common = self._common_part(W) if self.has_task else W
        return common, W - common

    def _smallest_multiple(self, whole: NDArray, parts: NDArray) -> float:
        """Largest of the dual norms of whole rows (d,) over r, and of parts (d, T) over kappa."""
        r, kappa = self._limits()
        multiples = [] if r is None else [whole.max(initial=0.0) / r]
        multiples += [] if kappa is None else [(parts / kappa).max(initial=0.0)]
        return float(max(multiples))

    @abstractmethod
    def _common_part(self, W: NDArray) -> NDArray:
        """Return the common slopes where there are slopes of single tasks too."""


class DirtyLasso(TaskNorm, RotationInvariant):
    r"""Features common to all tasks and features of single tasks: W_t = C_t + T_t.

    .. math::

        R = \text{task} \sum_t \gamma_t \sum_i |T_{t,i}|
            + \text{common} \sum_i |[C_{1,i} \dots C_{T,i}]|

    where row i holds the slopes of feature i in all cells, of one task or of all of them, and
    lengths are Euclidean. Rows that are not needed vanish. R is the least over all splits of W, a
    norm of W: only its answer, not the split, is searched for, and the split is exact.

    With common <= task * min gamma everything is common; with common >= task * |gamma| nothing is.

    {parameters}
    """

    shortens = "blocks"

    def norm(self, W: Any) -> Any:
        (r, kappa), xp = self._limits(), array_namespace(W)
        lengths = self._lengths(W)
        if kappa is None:
            return r * xp.sqrt((lengths**2).sum(axis=1)).sum()
        if r is None:
            return (kappa * lengths).sum()
        level = prox.fill_level(lengths, kappa, r)[:, None]
        pulls = xp.where(
            level > 0, xp.minimum(lengths / xp.where(level > 0, level, 1.0), kappa), kappa
        )
        return (pulls * lengths).sum()

    def dual_norm(self, G: NDArray) -> float:
        """Return the smallest multiple of the intersection that holds every row of G."""
        lengths = self._lengths(self._supported(G))
        return self._smallest_multiple(np.sqrt(np.sum(lengths**2, axis=1)), lengths)

    def shrink(self, W: Any, t: Any) -> Any:
        """Return W minus its projection on t times the intersection."""
        (r, kappa), xp = self._limits(), array_namespace(W)
        W = self._supported(W)
        if kappa is None:
            return prox.shrink_l2(W, t * r)
        lengths = self._lengths(W)
        if r is None:
            positive = xp.where(lengths > 0, lengths, 1.0)
            scale = xp.minimum(t * kappa / positive, 1.0)
        else:
            scale = prox.cap_l2(lengths, t * kappa, t * r)
        return W * self._spread(1.0 - scale, W)

    def shrink_weighted(self, W: NDArray, t: float, weights: NDArray) -> NDArray:
        """The same in a weighted norm: the projection is a search for T + 1 numbers per row."""
        r, kappa = self._limits()
        W = self._supported(W)
        columns = self._columns(W)
        caps = np.full(len(columns), np.inf) if kappa is None else t * kappa
        return prox.cap_l2_weighted(W, columns, weights, caps, np.inf if r is None else t * r)

    def _common_part(self, W: NDArray) -> NDArray:
        """Lengths of the common slopes are min(|w_t|, kappa_t level)."""
        r, kappa = self._limits()
        lengths = self._lengths(W)
        caps = kappa * prox.fill_level(lengths, kappa, r)[:, None]
        scale = np.where(lengths > caps, caps / np.where(lengths > 0, lengths, 1.0), 1.0)
        return W * self._spread(scale, W)

    def _lengths(self, W: Any) -> Any:
        """Euclidean lengths of every feature's slopes in every task, (d, T)."""
        xp = array_namespace(W)
        parts = [xp.linalg.norm(W[:, c].astype(float), axis=1) for c in self._columns(W)]
        return xp.stack(parts, axis=1)


class DirtyLInf(TaskNorm):
    r"""The Dirty LASSO with the largest absolute value in place of the Euclidean length.

    .. math::

        R = \text{task} \sum_t \gamma_t \sum_i |T_{t,i}|_\infty
            + \text{common} \sum_i |[C_{1,i} \dots C_{T,i}]|_\infty

    {parameters}
    """

    def norm(self, W: Any) -> Any:
        """Fill the budget r, at most kappa_t for each task, from the largest on."""
        (r, kappa), xp = self._limits(), array_namespace(W)
        largest = self._largest(W)
        if kappa is None:
            return r * largest.max(axis=1, initial=0.0).sum()
        if r is None:
            return (kappa * largest).sum()
        order = xp.argsort(-largest, axis=1)
        sorted_kappa = xp.asarray(kappa)[order]
        before = xp.cumsum(sorted_kappa, axis=1) - sorted_kappa
        room = xp.minimum(sorted_kappa, xp.maximum(r - before, 0.0))
        return (room * xp.take_along_axis(largest, order, axis=1)).sum()

    def dual_norm(self, G: NDArray) -> float:
        G = self._supported(G)
        sums = np.stack([np.abs(G[:, c]).sum(axis=1) for c in self._columns(G)], axis=1)
        return self._smallest_multiple(sums.sum(axis=1), sums)

    def shrink(self, W: Any, t: Any) -> Any:
        """Cut the slopes of every task to a level."""
        r, kappa = self._limits()
        W = self._supported(W)
        parts = [W[:, c] for c in self._columns(W)]
        caps, radius = None if kappa is None else t * kappa, None if r is None else t * r
        return self._cut(W, prox.cap_l1(parts, caps, radius))

    def _common_part(self, W: NDArray) -> NDArray:
        """What is below the level at which the budget is used up."""
        r, kappa = self._limits()
        level = prox.cut_level(self._largest(W), kappa, r)
        return self._cut(W, np.repeat(level[:, None], len(kappa), axis=1))

    def _largest(self, W: Any) -> Any:
        """Largest absolute slope of every feature in every task, (d, T)."""
        xp = array_namespace(W)
        parts = [xp.abs(W[:, c]).max(axis=1, initial=0.0) for c in self._columns(W)]
        return xp.stack(parts, axis=1).astype(float)

    def _cut(self, W: Any, levels: Any) -> Any:
        level = self._spread(levels, W)
        return array_namespace(W).clip(W, -level, level)


def _check_relax(relax: Any, with_auto: bool) -> float | str:
    if relax is None:
        return AUTO if with_auto else 1.0
    if is_auto(relax):
        if not with_auto:
            raise ValueError("relax='auto' is chosen together with strengths that are 'auto'")
        return AUTO
    hint = ", at most 1, or 'auto'"
    number = check_number("relax", relax, positive=True, hint=hint)
    if number > 1:
        raise ValueError(f"relax={relax!r} must be a positive number{hint}")
    return number


def _check_pair(common: Any, task: Any) -> None:
    if common is None and task is None:
        raise ValueError("common=None and task=None leave no penalty: give at least one")
    hint = ", 'auto', or None to leave that part of the slopes out"
    for name, value in (("common", common), ("task", task)):
        if value is not None and not is_auto(value):
            check_number(name, value, positive=True, hint=hint)
    autos = [is_auto(value) for value in (common, task) if value is not None]
    if any(autos) and not all(autos):
        raise ValueError(
            f"common={common!r} and task={task!r}: 'auto' is for both, or for one while the other "
            "is None"
        )
