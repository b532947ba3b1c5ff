"""Choice of penalties by honest cross-validation: the default recipe, and single strengths."""

from jointleaf.tuning.folds import Fold, grow, target_scale
from jointleaf.tuning.mixing import Mix, own_predictions, own_values
from jointleaf.tuning.recipe import (
    DEFAULT_SETTING,
    RecipeFold,
    Setting,
    TuningResult,
    auto_penalty,
    feature_weights,
    setting_cells,
    tune,
)
from jointleaf.tuning.strengths import PathFold, StrengthChoice, choose_strength

__all__ = [
    "DEFAULT_SETTING",
    "Fold",
    "Mix",
    "PathFold",
    "RecipeFold",
    "Setting",
    "StrengthChoice",
    "TuningResult",
    "auto_penalty",
    "choose_strength",
    "feature_weights",
    "grow",
    "own_predictions",
    "own_values",
    "setting_cells",
    "target_scale",
    "tune",
]
