"""Schemas of trees, columns, linear features and partitioners."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jointleaf import partitions
from jointleaf._data.columns import Column, Columns
from jointleaf._data.features import FeaturePlan, Indicators, LinearFeatures, Standardizer
from jointleaf._data.kinds import KINDS, ColumnKind
from jointleaf._data.preparation import Preparation
from jointleaf._data.statistics import CategoryStatistics, CategoryTable
from jointleaf._data.texts import DATE_FORMATS, DATE_PARTS, NOTATIONS
from jointleaf._trees.flat import FlatTrees, KeyPart, Lookup
from jointleaf.io._model_file.parameters import PARAMETER_KINDS, Parameters
from jointleaf.io._model_file.schema import (
    Array,
    Each,
    Field,
    Flag,
    Integer,
    Let,
    Maybe,
    Number,
    Record,
    Scope,
    Text,
    Variants,
    indices,
    record,
)
from jointleaf.io._model_file.values import Labels
from jointleaf.multitask import BoUTSPartitioner
from jointleaf.partitions import (
    Partitioner,
    ResidualPartitioner,
    RotatedPartitioner,
    UnionPartitioner,
)
from jointleaf.partitions._base import LeftOut, TreeCells
from jointleaf.partitions._factory import RegrownEnsemble

_MOST_LEVELS = 2**12  # of a tree
_TREE_BYTES = 100  # of what is kept for a tree besides its splits and leaves
_TEXTS = Each(Text())


# -- trees ---------------------------------------------------------------------------------------

_KEY_PART = record(
    KeyPart,
    column=Integer(0, lambda s: len(s.n_categories) - 1),
    n_hashes=Let(lambda s: int(s.n_categories[s.column]) + 2),
    hashes=Maybe(Array("u8", "n_hashes")).must(
        lambda s: (s.hashes is None) == (s.n_hashes == 2), "does not fit the column"
    ),
    threshold=Number(finite=False),
    missing_above=Flag(),
)
_LOOKUP = record(
    Lookup,
    parts=Each(_KEY_PART, least=1),
    keys=Array("u8", rising=True),
    values=Array("f8", "#keys", finite=True),
    default=Number(),
)


def _goes_down(trees: FlatTrees, child: np.ndarray) -> bool:
    """Whether children are later splits of the same tree, or leaves that it has."""
    tree = trees.tree_of_split
    is_later = (child > np.arange(len(child))) & (child < trees.starts[1:][tree])
    return bool(np.where(child < 0, ~child < trees.n_leaves[tree], is_later).all())


def _has_one_parent(trees: FlatTrees) -> bool:
    """Whether every split but the first of its tree, and every leaf, is the child of one split."""
    child = np.concatenate([trees.left, trees.right]).astype(np.int64)
    tree = np.tile(trees.tree_of_split, 2)
    is_leaf, has_splits = child < 0, np.diff(trees.starts) > 0
    roots = trees.starts[:-1][has_splits]
    splits = np.bincount(np.concatenate([child[~is_leaf], roots]), minlength=len(trees.feature))
    single = trees.leaf_starts[:-1][~has_splits]  # trees of one leaf alone
    numbers = trees.leaf_starts[tree[is_leaf]] + ~child[is_leaf]
    leaves = np.bincount(np.concatenate([numbers, single]), minlength=len(trees.cell_of_leaf))
    return bool((splits == 1).all() and (leaves == 1).all())


def _has_tables(trees: FlatTrees) -> bool:
    """Whether splits on columns with categories, and only these, have a table of all of them."""
    n_lookups = np.zeros(len(trees.lookups), np.intp)
    n_categories = np.concatenate([trees.n_categories, n_lookups])[trees.feature]
    last = len(trees.categories_left) - n_categories - 1
    has_table = (trees.table >= 0) & (trees.table <= last)
    return bool(np.where(n_categories > 0, has_table, trees.table == -1).all())


def _has_cells(trees: FlatTrees) -> bool:
    """Whether the cells of every tree are numbered 0, 1, ... without holes."""
    n_cells = trees.n_cells
    if (n_cells > trees.n_leaves).any() or (n_cells < 1).any():
        return False
    return bool(np.bincount(trees.leaf_cells, minlength=int(n_cells.sum()))[: n_cells.sum()].all())


def _is_shallow(trees: FlatTrees) -> bool:
    """Whether no row takes more than `_MOST_LEVELS` steps to its leaf.

    Every split but the first of its tree has one parent. Jumps to the parent, its parent, and so
    on, twice as far each time, take one step after the other where a file has very many trees.
    """
    split = np.arange(len(trees.feature))
    ancestor, root = split.copy(), trees.starts[:-1][trees.tree_of_split]
    jump = root.copy()
    for child in (trees.left, trees.right):
        jump[child[child >= 0]] = split[child >= 0]
    for _ in range(_MOST_LEVELS.bit_length() - 1):  # 1 + 2 + 4 + ... = _MOST_LEVELS - 1 in all
        ancestor, jump = jump[ancestor], jump[jump]
    return bool((ancestor == root).all())


_NO_TREE = "names a split that does not follow its parent in the tree, or a leaf that it lacks"
TREES = record(
    FlatTrees,
    n_features=Integer("d", "d"),
    n_leaves=indices(low=1).must(lambda s: len(s.n_leaves), "has no trees"),
    n_bounds=Let(lambda s: len(s.n_leaves) + 1),
    n_splits=Let(lambda s: int((s.n_leaves - 1).sum())),
    n_all_leaves=Let(lambda s: int(s.n_leaves.sum())),
    starts=indices(lambda s: s.n_splits + 1, "n_bounds").must(
        lambda s: s.starts[0] == 0 and (np.diff(s.starts) == s.n_leaves - 1).all(),
        "does not fit n_leaves",
    ),
    n_categories=indices(shape="d"),
    lookups=Each(_LOOKUP),
    feature=Array("i4", "n_splits", low=0, stop=lambda s: s.d + len(s.lookups)),
    threshold=Array("f8", "n_splits").must(lambda s: not np.isnan(s.threshold).any(), "holds NaN"),
    left=Array("i4", "n_splits"),
    right=Array("i4", "n_splits"),
    missing_left=Array("b1", "n_splits"),
    table=Array("i8", "n_splits"),
    categories_left=Array("b1"),
    cell_of_leaf=Array("i4", "n_all_leaves", low=-1),
    single_precision=Flag(),
    zero_is_missing=Flag(),
    leaf_values=Maybe(Array("f8", "n_all_leaves ?", finite=True)),
    cost=lambda s: _TREE_BYTES * len(s.n_leaves),
    rules=(
        ("left", lambda trees: _goes_down(trees, trees.left), _NO_TREE),
        ("right", lambda trees: _goes_down(trees, trees.right), _NO_TREE),
        ("", _has_one_parent, "has a split or leaf that is not the child of exactly one split"),
        ("", _is_shallow, f"has a tree of more than {_MOST_LEVELS} levels"),
        ("table", _has_tables, "does not fit the categories of the columns"),
        ("cell_of_leaf", _has_cells, "does not number the cells of a tree from 0 on"),
    ),
)

# -- columns and features ------------------------------------------------------------------------

_COLUMN = record(Column, label=Text(), categories=Maybe(Labels(0, types="iUO", rising=True)))


def _are_placed(statistics: CategoryStatistics) -> bool:
    """Whether single columns come first, in rising order."""
    sizes, replaced = [len(table.columns) for table in statistics.tables], statistics.replaced
    return sizes == sorted(sizes) and replaced == sorted(set(replaced))


_TABLE = record(
    CategoryTable,
    columns=Each(Integer(0, lambda s: len(s.n_codes_of) - 1), least=1).must(
        lambda s: (
            list(s.columns) == sorted(set(s.columns))[:2]
            and all(s.n_codes_of[j] for j in s.columns)
        ),
        "must be one or two columns with categories",
    ),
    n_codes=Let(lambda s: tuple(s.n_codes_of[j] for j in s.columns)),
    names=Each(Text(), least=1),
    keys=Array("i8", low=0, stop=lambda s: math.prod(s.n_codes), rising=True).must(
        lambda s: len(s.keys), "is empty"
    ),
    values=Array("f8", "? #names", finite=True).must(
        lambda s: len(s.values) == len(s.keys) + 1, "does not fit the keys"
    ),
    make=lambda s: CategoryTable(s.columns, s.n_codes, s.names, s.keys, s.values),
)
_STATISTICS = record(
    CategoryStatistics,
    n_codes_of=Let(
        lambda s: [0 if c.categories is None else len(c.categories) + 2 for c in s.columns]
    ),
    classes=Each(Number()),
    tables=Each(_TABLE, least=1),
    make=lambda s: CategoryStatistics(len(s.n_codes_of), s.classes, s.tables),
    rules=(("tables", _are_placed, "must have single columns in rising order before pairs"),),
)
_OF_DATES = ("time", *DATE_FORMATS)


def _can_be_read(s: Scope) -> bool:
    """Whether dates are written as dates, and numbers as something else."""
    return s.kind not in ("date", "number") or (s.kind == "date") == (s.notation in _OF_DATES)


_KIND = record(
    ColumnKind,
    name=Text(),
    kind=Text(KINDS),
    notation=Text(("", *NOTATIONS, *_OF_DATES)).must(_can_be_read, "is no notation of this kind"),
    parts=Each(Text(DATE_PARTS)),
    note=Text(),
)
PREPARATION = record(Preparation, columns=Each(_KIND, least=1), missing=_TEXTS)
COLUMNS = record(
    Columns,
    columns=Each(_COLUMN, least=1),
    statistics=Maybe(_STATISTICS),
    preparation=Maybe(PREPARATION).must(
        lambda s: s.preparation is None or s.preparation.outputs == [c.label for c in s.columns],
        "does not make the columns of the model",
    ),
)
_INDICATORS = record(
    Indicators,
    column=Integer(0, lambda s: s.d - 1),
    names=_TEXTS,
    place=indices(lambda s: len(s.names) + 1, low=-1).must(
        lambda s: len(s.place) - 2 == s.n_categories[s.column] > 0,
        "does not fit the categories of the column",
    ),
)


def _sources(s: Scope) -> np.ndarray:
    """Return the column that every linear feature comes from."""
    of_categories = [np.full(len(i.names), i.column) for i in s.indicators]
    return np.concatenate([s.numbers, *of_categories, s.missing_indicators]).astype(np.intp)


_PLAN = record(
    FeaturePlan,
    numbers=indices("d", rising=True).must(
        lambda s: not s.n_categories[s.numbers].any(), "holds a column with categories"
    ),
    missing_indicators=indices("d", rising=True),
    indicators=Each(_INDICATORS),
    sources=Let(_sources),
    names=_TEXTS.must(lambda s: len(s.names) == len(s.sources), "does not fit the features"),
    make=lambda s: FeaturePlan(s.numbers, s.indicators, s.missing_indicators, s.names, s.sources),
)
_OF_FEATURES = Array("f8", "m", finite=True)
_SCALER = record(
    Standardizer,
    mean=_OF_FEATURES,
    scale=_OF_FEATURES.must(lambda s: (s.scale > 0).all(), "must be positive"),
    low=_OF_FEATURES,
    high=_OF_FEATURES.must(lambda s: (s.low <= s.high).all(), "is below low"),
    clip=Flag(),
)
FEATURES = record(
    LinearFeatures,
    plan=_PLAN,
    m=Let(lambda s: len(s.plan.names)),
    scaler=_SCALER,
    cost=lambda s: 16 * s.m,
)

# -- partitioners --------------------------------------------------------------------------------


def _are_partitioners(s: Scope) -> bool:
    members = s.parameters.get("partitioners", [s.parameters.get("partitioner")])
    is_list = isinstance(members, list | tuple) and len(members) > 0
    return is_list and all(isinstance(member, Partitioner | LeftOut) for member in members)


def fitted(
    cls: Any, fill: Callable[[Any, Scope], None] | None = None, /, **steps: Field | Let
) -> Record:
    """Return the schema of a fitted estimator or partitioner.

    A field is the fitted attribute of its name with an underscore, or that of another name, or a
    function of the estimator: what such fields stand for is set by `fill`.
    """
    for name, step in steps.items():
        if isinstance(step, Field) and step.attribute is None:
            steps[name] = step.of(f"{name}_")

    def make(s: Scope) -> Any:
        model = cls(**s.parameters)
        model.n_features_in_ = s.d
        for name, step in steps.items():
            if isinstance(step, Field) and isinstance(step.attribute, str):
                value = getattr(s, name)
                if not (step.optional and value is None):
                    setattr(model, step.attribute, value)
        if fill is not None:
            fill(model, s)
        return model

    return Record(cls, {"parameters": _parameters(cls), **steps}, make, cost=_fitted_bytes)


def _fitted_bytes(s: Scope) -> int:
    """Return what gains of all columns, and numbers of cells of all partitions, take."""
    members = getattr(s, "partitioners", getattr(s, "members", ()))
    n_partitions = sum(len(member.n_cells_) for member in members)
    n_partitions += len(getattr(s, "centres", ()))
    return 24 * s.d + 64 * n_partitions


def _parameters(cls: type) -> Parameters:
    if cls not in (UnionPartitioner, ResidualPartitioner, RotatedPartitioner):
        return Parameters(cls)
    return Parameters(cls).must(_are_partitioners, "holds something that is no partitioner")


def _unfitted(cls: Any) -> Record:
    return record(cls, parameters=_parameters(cls), make=lambda s: cls(**s.parameters))


def _fill_cells(partitioner: Any, s: Scope) -> None:
    """Set the cells of partitions that are not made by splits; a root cell has one."""
    n_partitions, n_cells = s.centres.shape[:2] if hasattr(s, "centres") else (1, 1)
    partitioner.n_cells_ = np.full(n_partitions, n_cells, dtype=np.intp)
    partitioner.split_gains_ = np.ones(s.d)


_GAINS = Array("f8", "d", finite=True, low=0)


def _of_trees(cls: Any, **steps: Field | Let) -> Record:
    """Return the schema of a partitioner whose cells are leaves."""
    return fitted(
        cls, lambda cells, s: cells.set_trees(s.trees), split_gains=_GAINS, trees=TREES, **steps
    )


def _fill_rotated(rotated: Any, s: Scope) -> None:
    rotated.n_features_in_ = s.n_columns  # d is what the members see
    rotated.set_members(list(s.members), s.rotations)


def _are_trees_of_numbers(s: Scope) -> bool:
    return all(
        isinstance(member, TreeCells)
        and not member.trees_.n_categories.any()
        and not member.trees_.lookups
        for member in s.members
    )


_TREE_PARTITIONERS = (
    *("CatBoostPartitioner", "CategoryPartitioner", "ExtraTreesPartitioner", "FittedEnsemble"),
    *("GradientBoostingPartitioner", "HistGradientBoostingPartitioner", "LightGBMPartitioner"),
    *("LargeTreesPartitioner", "LinearForestPartitioner", "RandomForestPartitioner"),
    *("RandomTreesPartitioner", "StepPartitioner", "XGBoostPartitioner"),
)
PARTITIONER = Variants(
    {},
    "{name} is no partitioner of jointleaf, and model files hold these alone: use pickle for files "
    "that only you read",
)
PARTITIONER.add(
    *(_of_trees(getattr(partitions, name)) for name in _TREE_PARTITIONERS),
    _of_trees(RegrownEnsemble),
    _of_trees(
        BoUTSPartitioner,
        n_universal_trees=Integer(0, lambda s: s.trees.n_trees),
        universal_features=indices("d", rising=True),
        task_features=indices("d", rising=True),
    ),
    fitted(partitions.RootCell, _fill_cells),
    fitted(
        partitions.VoronoiPartitioner,
        _fill_cells,
        features=FEATURES,
        m=Let(lambda s: len(s.features.plan.names)),
        # Without features an array of any number of partitions takes no bytes.
        centres=Array("f8", "? ? m", finite=True).must(lambda s: s.centres.size, "is empty"),
    ),
    fitted(
        RotatedPartitioner,
        _fill_rotated,
        features=FEATURES,
        split_gains=_GAINS,
        m=Let(lambda s: len(s.features.plan.names)),
        rotations=Array("f8", "? m ?", finite=True).must(
            lambda s: 1 <= s.rotations.shape[2] <= max(s.m, 1), "has no possible directions"
        ),
        n_columns=Let(lambda s: s.d),
        d=Let(lambda s: s.rotations.shape[2]),
        n_categories=Let(lambda s: np.zeros(s.d, np.intp)),
        members=Each(PARTITIONER, lambda s: len(s.rotations), least=1).must(
            _are_trees_of_numbers, "holds something other than trees of numbers"
        ),
    ),
    fitted(
        UnionPartitioner,
        lambda union, s: union.set_members(list(s.partitioners)),
        partitioners=Each(PARTITIONER, least=1),
    ),
    fitted(
        ResidualPartitioner,
        lambda residual, s: residual.set_fitted(s.partitioner),
        partitioner=PARTITIONER,
    ),
)
PARAMETER_KINDS["partitioner"] = Variants(
    {name: _unfitted(known.cls) for name, known in PARTITIONER.records.items()}
)
