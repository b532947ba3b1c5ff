"""Choice of penalties by honest cross-validation: the default recipe, and single strengths."""

from jointleaf._fit.folds import Fold, grow, target_scale
from jointleaf._fit.levels import find_levels
from jointleaf._fit.mixing import Mix, own_predictions, own_values
from jointleaf._fit.recipe import TuningResult, tune
from jointleaf._fit.recipe_fold import RecipeFold
from jointleaf._fit.settings import (
    DEFAULT_SETTING,
    Setting,
    auto_penalty,
    feature_weights,
    setting_cells,
)
from jointleaf._fit.shares import Shares, fit_linear
from jointleaf._fit.strengths import PathFold, StrengthChoice, choose_strength

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
