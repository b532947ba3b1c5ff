"""scikit-learn's own checks, with no expected failures."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from blend_fits import least_fits
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor
from jointleaf.partitions import RandomForestPartitioner, VoronoiPartitioner


@parametrize_with_checks(
    [
        JOPLEnRegressor(cv=2),
        JOPLEnClassifier(cv=2),
        JOPLEnRegressor(RandomForestPartitioner(5, 4), penalty=Frobenius(0.01)),
        JOPLEnClassifier(VoronoiPartitioner(5, 4), penalty=Frobenius(0.01)),
    ]
)
def test_scikit_learn_checks(estimator, check):
    with least_fits():
        check(estimator)
