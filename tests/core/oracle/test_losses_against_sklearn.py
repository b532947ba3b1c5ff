"""One partition with one cell against scikit-learn's linear models of the same loss."""

import numpy as np
import pytest
from sklearn.linear_model import (
    GammaRegressor,
    HuberRegressor,
    PoissonRegressor,
    QuantileRegressor,
    TweedieRegressor,
)

from jointleaf import L1, Frobenius, fit_cells
from jointleaf.losses import Gamma, Huber, Poisson, Quantile, Tweedie

STRENGTH = 0.03


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize(
    ("loss", "peer"),
    [
        (Poisson(), PoissonRegressor),
        (Gamma(), GammaRegressor),
        (Tweedie(1.5), lambda **options: TweedieRegressor(power=1.5, **options)),
    ],
    ids=["poisson", "gamma", "tweedie"],
)
def test_one_cell_is_a_generalised_linear_model(loss, peer, has_weights, make_case):
    case = make_case(cells=(1,), n=120)
    y = np.exp(0.5 * case.y)
    s = case.s if has_weights else None
    model = peer(alpha=STRENGTH, tol=1e-10, max_iter=5000).fit(case.X, y, s)
    found = fit_cells(
        case.X, case.codes, y, loss=loss, penalty=Frobenius(STRENGTH, 0), sample_weight=s, tol=1e-9
    )
    np.testing.assert_allclose(found.coef[0], model.coef_, atol=1e-5)
    assert found.intercept[0] == pytest.approx(model.intercept_, abs=1e-5)
    means = loss.link(found.predict(case.X, case.codes))
    np.testing.assert_allclose(means, model.predict(case.X), rtol=1e-4)


def test_exposure_is_the_weight_of_rates_in_a_poisson_model(make_case):
    case = make_case(cells=(1,), n=120)
    rng = np.random.default_rng(0)
    exposure = rng.uniform(0.1, 2.0, 120)
    counts = rng.poisson(exposure * np.exp(0.5 * case.y)).astype(float)
    model = PoissonRegressor(alpha=STRENGTH, tol=1e-10, max_iter=5000)
    model.fit(case.X, counts / exposure, exposure)
    penalty = Frobenius(STRENGTH * exposure.mean(), 0)
    offset = np.log(exposure)
    found = fit_cells(
        case.X, case.codes, counts, loss="poisson", penalty=penalty, offset=offset, tol=1e-9
    )
    np.testing.assert_allclose(found.coef[0], model.coef_, atol=1e-5)


@pytest.mark.parametrize("epsilon", [1.1, 1.35, 2.0])
def test_one_cell_is_the_huber_regressor_at_its_scale(epsilon, make_case):
    case = make_case(cells=(1,), n=120)
    y = case.y + 5 * (np.arange(120) % 10 == 0)
    model = HuberRegressor(epsilon=epsilon, alpha=2.0, tol=1e-9, max_iter=5000).fit(case.X, y)
    # Its penalty is on the sum of losses in units of its scale.
    penalty = Frobenius(2.0 * model.scale_ / 120, 0)
    loss = Huber(epsilon * model.scale_)
    found = fit_cells(case.X, case.codes, y, loss=loss, penalty=penalty, tol=1e-9)
    np.testing.assert_allclose(found.coef[0], model.coef_, atol=1e-4)
    assert found.intercept[0] == pytest.approx(model.intercept_, abs=1e-4)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_one_cell_is_the_quantile_regressor(quantile, make_case):
    case = make_case(cells=(1,), n=61)
    model = QuantileRegressor(quantile=quantile, alpha=STRENGTH, solver="highs").fit(case.X, case.y)
    peer = np.mean(Quantile(quantile).row_loss(case.y, model.predict(case.X)))
    peer += STRENGTH * np.abs(model.coef_).sum()
    found = fit_cells(
        *case.data, loss=Quantile(quantile), penalty=L1(STRENGTH, 0), tol=1e-6, max_iter=100_000
    )
    assert found.objective == pytest.approx(peer, rel=1e-5)
    np.testing.assert_allclose(found.coef[0], model.coef_, atol=2e-3)
