"""Why a model predicts what it predicts: six pictures.

    python examples/explaining.py [--output FOLDER]           needs the extra `plot`

The diabetes data of scikit-learn with the default recipe, as on the page about explanations.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from jointleaf import (
    EffectDisplay,
    ExplanationDisplay,
    ImportanceDisplay,
    InteractionDisplay,
    JOPLEnRegressor,
    LocalModelDisplay,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    model = JOPLEnRegressor(random_state=0).fit(X_train, y_train)
    row = X_test.iloc[[2]]
    print(model.explain(row).describe())
    pictures = {
        "explain_row": ExplanationDisplay.from_estimator(model, row, n_columns=7),
        "explain_rows": ExplanationDisplay.from_estimator(model, X_test),
        "explain_effect": EffectDisplay.from_estimator(model, X_train, "bmi"),
        "explain_importance": ImportanceDisplay.from_estimator(model, X_test, y_test),
        "explain_local": LocalModelDisplay.from_estimator(model, row),
        "explain_interactions": InteractionDisplay.from_estimator(model, X_train),
    }
    for name, display in pictures.items():
        display.figure_.savefig(args.output / f"{name}.png", dpi=110)
        print(f"picture: {args.output / name}.png")


if __name__ == "__main__":
    main()
