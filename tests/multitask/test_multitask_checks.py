"""scikit-learn's own checks of the estimators of several tasks, with no expected failures."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from blend_fits import least_fits
from jointleaf import DirtyLasso, MultiTaskJOPLEnClassifier, MultiTaskJOPLEnRegressor
from jointleaf.partitions import VoronoiPartitioner

CELLS = VoronoiPartitioner(n_partitions=3, n_cells=2)
DIRTY = DirtyLasso(0.02, 0.015, bias_strength=0.1)


@parametrize_with_checks(
    [
        MultiTaskJOPLEnRegressor(CELLS, penalty=DIRTY),
        MultiTaskJOPLEnClassifier(CELLS, penalty=DIRTY),
        MultiTaskJOPLEnRegressor(CELLS, cv=2),
        MultiTaskJOPLEnClassifier(CELLS, cv=2),
    ]
)
def test_scikit_learn_checks(estimator, check):
    with least_fits():
        check(estimator)
