"""Which features matter, and how the strength of the penalty was chosen: two pictures.

    python examples/feature_selection.py [--output FOLDER]           needs the extra `plot`

Friedman's first function: five of twenty features matter, three of them in a nonlinear way.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sklearn.datasets import make_friedman1

from jointleaf import L21, CVDisplay, JOPLEnRegressor, PathDisplay
from jointleaf.partitions import VoronoiPartitioner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("output"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    X, y = make_friedman1(900, n_features=20, noise=1.0, random_state=0)
    X_new, y_new = X[600:], y[600:]
    model = JOPLEnRegressor(
        VoronoiPartitioner(20, 5, random_state=0), penalty=L21("auto"), random_state=0, n_jobs=2
    )
    model.fit(X[:600], y[:600])
    print(f"chosen: {model.penalty_}")
    print(f"selected features: {model.selected_features_.tolist()}, of which 0 to 4 matter")
    print(f"R^2 on new rows: {model.score(X_new, y_new):.3f}")
    path = PathDisplay.from_estimator(model, X[:600], y[:600], X_val=X_new, y_val=y_new)
    path.figure_.savefig(args.output / "path.png", dpi=110)
    cv = CVDisplay.from_estimator(model)
    cv.figure_.savefig(args.output / "cv.png", dpi=110)
    print(f"pictures: {args.output / 'path.png'}, {args.output / 'cv.png'}")


if __name__ == "__main__":
    main()
