"""scikit-learn's own checks, with no expected failures."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from blend_fits import small_fits
from jointleaf import Frobenius, JOPLEnClassifier, JOPLEnRegressor


@parametrize_with_checks(
    [
        JOPLEnRegressor(cv=2),
        JOPLEnClassifier(cv=2),
        JOPLEnRegressor("random_forest", penalty=Frobenius(0.01)),
        JOPLEnClassifier("voronoi", penalty=Frobenius(0.01)),
    ]
)
def test_scikit_learn_checks(estimator, check):
    with small_fits():
        check(estimator)
