"""How tests choose splits for penalties that are chosen and for those that are given."""


def cv_for(penalty, n_folds):
    """Return a number of folds where something is left to choose, else None."""
    return n_folds if isinstance(penalty, str) else None
