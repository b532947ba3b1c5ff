"""Validation: jointleaf and other models on the same held-out rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold

from jointleaf._core.losses import Loss
from jointleaf._core.progress import Progress, ticking
from jointleaf.cli._models import Model, Options
from jointleaf.cli._preparation import Rows
from jointleaf.cli._scores import JOINTLEAF, measures, prediction_summary
from jointleaf.cli._splits import Pairs, group_splits, time_splits

#: Up to so many rows all are held out once, in five folds; of more, one fifth is held out.
SMALL = 1000
_FOLDS = 5
_OUR_STEPS = 10  # of the bar, for a fit of jointleaf; one for each other


def make_splits(
    y: NDArray, task: str, seed: int, n_folds: int | None = None, most: int = SMALL
) -> tuple[list[tuple[NDArray, NDArray]], str]:
    """Return pairs of training and held-out rows, and a description.

    The proportions of classes, of which y (n,) holds numbers, are kept. By default these are five
    folds up to `most` rows, and the first of five with more.
    """
    n = len(y)
    k = min(n_folds or _FOLDS, n)
    kind: Any = KFold
    if task == "classification" and np.bincount(y).max() >= k:
        kind = StratifiedKFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes with fewer rows than folds
        splits = list(kind(k, shuffle=True, random_state=seed).split(np.zeros(n), y))
    if n_folds is None and n > most:
        m = len(splits[0][1])
        return splits[:1], f"on {m:,} held-out rows ({m / n:.0%})"
    return splits, f"by {k}-fold cross-validation over all {n:,} rows"


def _later_rows(times: NDArray, n_folds: int | None) -> tuple[Pairs, str]:
    """Return splits in the order of time, by default one, and a description."""
    splits = time_splits(times, n_folds or 1, n_folds + 1 if n_folds else _FOLDS)
    m = sum(len(test) for _, test in splits)
    method = f"on the last {m:,} rows ({m / len(times):.0%}) by time"
    return splits, method + (f", in {len(splits)} steps" if len(splits) > 1 else "")


def _other_groups(
    groups: NDArray, classes: NDArray | None, n_folds: int | None, most: int
) -> tuple[Pairs, str]:
    """Return folds of whole groups as `make_splits` has them, and a description."""
    n = len(groups)
    splits = group_splits(groups, n_folds or _FOLDS, classes)
    if n_folds is None and n > most:
        m, others = len(splits[0][1]), len(np.unique(groups[splits[0][1]]))
        of = "another group" if others == 1 else f"{others:,} other groups"
        return splits[:1], f"on {m:,} held-out rows ({m / n:.0%}) of {of}"
    return splits, f"by {len(splits)}-fold cross-validation over groups of all {n:,} rows"


def _with_two_classes(splits: Pairs, y: NDArray, method: str) -> tuple[Pairs, str]:
    """Leave out splits whose training rows are of one class, unless all are; say so."""
    useful = [split for split in splits if np.ptp(y[split[0]]) > 0]
    if not useful or len(useful) == len(splits):
        return splits, method
    n_left = len(splits) - len(useful)
    return useful, f"{method}, without {n_left} of {len(splits)} splits that train on one class"


def validate(
    rows: Rows,
    models: Sequence[Model],
    options: Options,
    n_folds: int | None = None,
    *,
    is_quick: bool = False,
) -> dict[str, Any]:
    """Fit all models that are installed on all splits, and score them on the held-out rows.

    With few rows too there is one split only where it `is_quick`.

    Targets are numbers, or numbers 0..K-1 of classes. The result has "method", which rows were held
    out; "measure", by which models are ordered; "table", one record for each model with its errors
    and the seconds of a fit, best first; "summary", of the predictions of jointleaf, and
    "intervals", how often its intervals held the target.
    """
    models = [model for model in models if model.takes_part(options.loss)]
    most = 0 if is_quick else SMALL
    strata, task = rows.y, options.task
    if options.loss is not None and options.loss.has_log_link:  # zeros alone teach nothing
        strata, task = (rows.y > 0).astype(int), "classification"
    if rows.times is not None:
        splits, method = _later_rows(rows.times, n_folds)
    elif rows.groups is not None:
        classes = strata if task == "classification" else None
        splits, method = _other_groups(rows.groups, classes, n_folds, most)
    else:
        splits, method = make_splits(strata, task, options.seed, n_folds, most)
    if options.task == "classification":
        splits, method = _with_two_classes(splits, rows.y, method)
    with ticking("validating"):
        results = _fit_splits(rows, models, options, splits)
    held_out = rows.take(np.concatenate([test for _, test in splits]))
    joined = {name: np.concatenate(parts) for name, parts in results.predictions.items()}
    table = [
        {
            "model": name,
            **measures(held_out, predicted, results.loss),
            "seconds": results.seconds[name] / len(splits),
        }
        for name, predicted in joined.items()
    ]
    measure = next(name for name in table[0] if name != "model")
    summary = prediction_summary(held_out, joined[JOINTLEAF], results.ends())
    drawn = ("low", "high")
    intervals = summary["intervals"] or {}
    return {
        "method": method if rows.weight is None else f"{method}, weighted",
        "measure": measure,
        "table": sorted(table, key=lambda record: record[measure]),
        "intervals": {k: v for k, v in intervals.items() if k not in drawn} or None,
        "summary": summary,
    }


@dataclass
class _HeldOutResults:
    """Predictions of held-out rows by all models, split after split."""

    loss: Loss | None
    predictions: dict[str, list[NDArray]]
    seconds: dict[str, float]
    intervals: list[NDArray | None] = field(default_factory=list)

    def ends(self) -> NDArray | None:
        """Return the intervals or sets of all rows; None where a split has none."""
        known = [part for part in self.intervals if part is not None]
        return np.concatenate(known) if len(known) == len(self.intervals) else None


def _fit_splits(
    rows: Rows, models: Sequence[Model], options: Options, splits: Sequence[tuple[NDArray, NDArray]]
) -> _HeldOutResults:
    n_classes = int(rows.y.max()) + 1 if options.task == "classification" else 0
    results = _HeldOutResults(
        options.loss, {m.name: [] for m in models}, {m.name: 0.0 for m in models}
    )
    n_steps = len(models) + _OUR_STEPS - 1
    progress = Progress(len(splits) * n_steps, "validating")
    for train, test in splits:
        # A column without any value in the training rows of a split is an error for some models.
        has_values = rows.X.iloc[train].notna().any().to_numpy()
        part = rows._replace(X=rows.X.loc[:, has_values])
        known, new = part.take(train), part.take(test)
        for model in models:
            is_ours = model.name == JOINTLEAF
            start = time.perf_counter()
            n_inner = _OUR_STEPS - 1 if is_ours else 0
            with warnings.catch_warnings(), progress.holding(model.name, n_inner):
                warnings.simplefilter("ignore")  # of peers, on feature names and iterations
                fitted = model.fit(
                    known, options if is_ours else options._replace(loss=results.loss)
                )
                predicted = fitted.predict(new.X, new.exposure, n_classes)
            results.seconds[model.name] += time.perf_counter() - start
            results.predictions[model.name].append(predicted)
            if is_ours:
                results.intervals.append(fitted.intervals(new.X, new.exposure, n_classes))
                if results.loss is not None and results.loss.needs_scale:
                    results.loss = fitted.estimator.loss_  # also for the others, which find none
            progress.step()
    return results
