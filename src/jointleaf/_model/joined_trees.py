"""The codes of all partitions of a model, with one search for the leaves of all its trees.

A model of several partitioners would look for leaves in each of them, and every search has a cost
of its own, which few rows feel. So the trees of all are put into one list. Trees in rotated spaces
split on projections of rows, which become further columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from jointleaf._trees.flat import FlatTrees, concatenate
from jointleaf._trees.routing import Router
from jointleaf.partitions import Partitioner, RootCell, RotatedPartitioner
from jointleaf.partitions._base import TreeCells

_Source = Partitioner | Router


class JoinedTrees:
    """Finds the codes of rows in the partitions of fitted sources, side by side."""

    def __init__(self, sources: Sequence[_Source]) -> None:
        self._rotated: list[RotatedPartitioner] = []
        self._others: list[tuple[_Source, slice]] = []
        self._n_partitions = 0
        joined: list[_Source] = []
        self._places: list[slice] = []  # among the codes, of every joined source
        for source, size in innermost(sources):
            here = slice(self._n_partitions, self._n_partitions + size)
            self._n_partitions = here.stop
            if _fit_together([*joined, source]):
                joined.append(source)
                self._places.append(here)
            elif not isinstance(source, RootCell):  # its code is zero
                self._others.append((source, here))
        self._router = self._join(joined) if joined else None

    def _join(self, sources: list[_Source]) -> Router:
        """Return the router of all trees, which takes projections as further columns."""
        first = sources[0]
        if len(sources) == 1 and not isinstance(first, RotatedPartitioner):
            return first if isinstance(first, Router) else first.router
        n_categories, parts = _n_categories(sources), []
        for source in sources:
            if not isinstance(source, RotatedPartitioner):
                parts += _trees(source)
                continue
            self._rotated.append(source)
            for trees in _trees(source):
                parts.append(replace(trees, feature=trees.feature + len(n_categories)))
                n_categories = np.append(n_categories, trees.n_categories)
        features = [rotated.features_ for rotated in self._rotated]
        # Those that were grown on the same rows have the same.
        self._has_same_places = [
            a.equals(b) for a, b in zip(features, features[:1] + features[:-1], strict=True)
        ]
        parts[0] = replace(parts[0], n_features=len(n_categories), n_categories=n_categories)
        return Router(concatenate(parts))

    @property
    def may_miss(self) -> bool:
        """Whether rows may lie in no cell of some partition, where their code is -1."""
        return bool(self._others) or not (self._router is None or self._router.leaves_are_cells)

    def __call__(self, X: NDArray, n_jobs: int = 1) -> NDArray[np.int32]:
        """Return the codes (n, P) of rows X (n, d)."""
        return np.ascontiguousarray(self.by_partition(X, n_jobs).T)

    def by_partition(self, X: NDArray, n_jobs: int = 1) -> NDArray[np.int32]:
        """Return the same codes, partition by partition: (P, n)."""
        tree_codes = np.zeros((0, len(X)), np.int32)
        if self._router is not None:
            tree_codes = self._router.by_tree(self._with_projections(X), n_jobs)
            if len(tree_codes) == self._n_partitions:
                return tree_codes
        codes = np.zeros((self._n_partitions, len(X)), np.int32)
        begin = 0
        for place in self._places:
            end = begin + place.stop - place.start
            codes[place] = tree_codes[begin:end]
            begin = end
        for source, partitions in self._others:
            found = source(X) if isinstance(source, Router) else source.apply(X)
            codes[partitions] = found.T
        return codes

    def _with_projections(self, X: NDArray) -> NDArray:
        """Return rows X (n, d) and what trees in rotated spaces see of them, side by side."""
        if not self._rotated:
            return X
        parts, places = [X], X
        for i, rotated in enumerate(self._rotated):
            if i == 0 or not self._has_same_places[i]:
                places = rotated.places(X)
            parts.append(rotated.projections(places))
        return np.concatenate(parts, axis=1)


def innermost(sources: Sequence[_Source]) -> Iterator[tuple[_Source, int]]:
    """Yield routers and innermost partitioners, with their numbers of partitions."""
    for source in sources:
        if isinstance(source, Router):
            yield source, source.trees.n_trees
        else:
            yield from ((member, len(member.n_cells_)) for member, _ in source.walk())


def _trees(source: _Source) -> list[FlatTrees]:
    """Return the trees whose leaves are the cells; none where there are none."""
    if isinstance(source, Router):
        return [source.trees]
    if isinstance(source, RotatedPartitioner):
        return [member.trees_ for member in source.members_]
    return [source.trees_] if isinstance(source, TreeCells) else []


def _n_categories(sources: list[_Source]) -> NDArray[np.intp]:
    """Return the numbers of categories (d,) of the columns; zeros where all trees are rotated."""
    for source in sources:
        if not isinstance(source, RotatedPartitioner):
            return _trees(source)[0].n_categories
    rotated = next(source for source in sources if isinstance(source, RotatedPartitioner))
    return np.zeros(rotated.n_features_in_, np.intp)


def _fit_together(sources: list[_Source]) -> bool:
    """Whether all have trees, which compare numbers as they are and know the same categories."""
    known = [source for source in sources if _trees(source)]
    if len(known) < len(sources):
        return False
    n_categories = _n_categories(sources)
    for source in sources:
        for trees in _trees(source):
            if trees.lookups or trees.single_precision or trees.zero_is_missing:
                return False
            is_rotated = isinstance(source, RotatedPartitioner)
            if not is_rotated and not np.array_equal(trees.n_categories, n_categories):
                return False
    return True
