"""Choice of penalties by honest cross-validation: the default recipe, and single strengths."""

from jointleaf.tuning.folds import Fold, grow, target_scale
from jointleaf.tuning.levels import find_levels
from jointleaf.tuning.mixing import Mix, own_predictions, own_values
from jointleaf.tuning.recipe import TuningResult, tune
from jointleaf.tuning.recipe_fold import RecipeFold
from jointleaf.tuning.settings import (
    DEFAULT_SETTING,
    Setting,
    auto_penalty,
    feature_weights,
    setting_cells,
)
from jointleaf.tuning.shares import Shares, fit_linear
from jointleaf.tuning.strengths import PathFold, StrengthChoice, choose_strength

__all__ = [
    "DEFAULT_SETTING",
    "Fold",
    "Mix",
    "PathFold",
    "RecipeFold",
    "Setting",
    "Shares",
    "StrengthChoice",
    "TuningResult",
    "auto_penalty",
    "choose_strength",
    "feature_weights",
    "find_levels",
    "fit_linear",
    "grow",
    "own_predictions",
    "own_values",
    "setting_cells",
    "target_scale",
    "tune",
]
