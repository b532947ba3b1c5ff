"""A loss that a user writes as one function in jax.numpy."""

import re
from pathlib import Path

import numpy as np
import pytest

from jax_data import CODES, SIGNAL, WEIGHTS, X
from jointleaf import L21, Frobenius, fit_cells
from jointleaf.losses import JaxLoss, Logistic, Loss, Multinomial, SquaredError

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

from jointleaf._core.arrays import double_precision  # noqa: E402


def poisson(y, f):
    return jnp.exp(f) - y * f


class HandWritten(Loss):
    """The same in NumPy, with its derivatives."""

    def row_loss(self, y, f):
        with np.errstate(over="ignore"):
            return np.exp(f) - y * f

    def row_gradient(self, y, f):
        return np.exp(f) - y

    def row_curvature(self, y, f):
        return np.exp(f)

    def best_constant(self, y, s):
        return np.log(np.average(y, weights=s))


COUNTS = np.random.default_rng(0).poisson(np.exp(0.5 * SIGNAL))


def test_derivatives_come_from_the_function():
    ours, theirs = HandWritten(), JaxLoss(poisson)
    f = np.random.default_rng(1).standard_normal(len(COUNTS))
    for name in ("value", "gradient", "curvature"):
        expected = getattr(ours, name)(COUNTS, f, WEIGHTS)
        assert np.allclose(getattr(theirs, name)(COUNTS, f, WEIGHTS), expected, rtol=1e-12)
    expected = ours.best_constant(COUNTS, WEIGHTS)
    assert np.isclose(theirs.best_constant(COUNTS, WEIGHTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("solver", "penalty"), [("newton", Frobenius(0.02)), ("fista", L21(0.05))], ids=str
)
def test_the_same_answer_on_every_device(solver, penalty):
    options = {"penalty": penalty, "solver": solver, "tol": 1e-8, "max_iter": 5000}
    by_hand = fit_cells(X, CODES, COUNTS, loss=HandWritten(), **options)
    for device in ("cpu", "jax:cpu"):
        found = fit_cells(X, CODES, COUNTS, loss=JaxLoss(poisson), device=device, **options)
        assert found.converged
        assert np.isclose(found.objective, by_hand.objective, rtol=1e-10, atol=0)


def huber(y, f):
    return jnp.sqrt(1 + (f - y) ** 2) - 1


@pytest.mark.parametrize(
    ("solver", "penalty"), [("newton", Frobenius(0.02)), ("fista", L21(0.05))], ids=str
)
def test_a_loss_with_a_bound_on_both_backends(solver, penalty):
    options = {"penalty": penalty, "solver": solver, "tol": 1e-9, "max_iter": 5000}
    loss = JaxLoss(huber, max_curvature=1.0)
    ours, theirs = (
        fit_cells(X, CODES, SIGNAL, loss=loss, device=device, **options)
        for device in ("cpu", "jax:cpu")
    )
    assert theirs.converged
    assert np.isclose(ours.objective, theirs.objective, rtol=1e-10, atol=0)


def test_a_bound_of_the_curvature_is_used():
    bounded = JaxLoss(huber, max_curvature=1.0)
    options = {"penalty": L21(0.03), "tol": 1e-8, "max_iter": 5000, "device": "jax:cpu"}
    quick = fit_cells(X, CODES, SIGNAL, loss=bounded, **options)
    slow = fit_cells(X, CODES, SIGNAL, loss=JaxLoss(huber), **options)
    assert np.isclose(quick.objective, slow.objective, rtol=1e-9)
    assert quick.n_iter < slow.n_iter  # biases are eliminated


@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Multinomial()], ids=lambda v: v.name)
def test_the_losses_of_jointleaf_on_a_device(loss):
    rng = np.random.default_rng(0)
    y = loss.encode({"multinomial": rng.integers(0, 3, 50)}.get(loss.name, rng.choice([-1, 1], 50)))
    f, v = 5 * rng.standard_normal(y.shape), rng.standard_normal(y.shape)
    s = rng.uniform(1, 2, 50)
    with double_precision():
        for name in ("value", "gradient", "curvature"):
            function = getattr(loss, name)
            got = jax.jit(function)(y, f, s)
            assert np.allclose(got, function(y, f, s), rtol=1e-12, atol=1e-15)
        got = jax.jit(lambda *at: loss.hessian(*at)(v))(y, f, s)
        assert np.allclose(got, loss.hessian(y, f, s)(v), rtol=1e-12, atol=1e-15)
        derived = jax.grad(lambda f: loss.value(y, f, s))(jnp.asarray(f))
        assert np.allclose(loss.gradient(y, f, s), derived, rtol=1e-9, atol=1e-15)


def test_bad_arguments():
    with pytest.raises(TypeError, match="function='poisson' must be a function"):
        JaxLoss("poisson")
    with pytest.raises(ValueError, match="max_curvature=0 must be a positive number"):
        JaxLoss(poisson, max_curvature=0)
    assert repr(JaxLoss(poisson)) == "JaxLoss(poisson)"


DOCS = Path(__file__).parents[2] / "docs"


def _run(page, title):
    """Execute the code of one part of a page; gives its names."""
    text = (DOCS / page).read_text(encoding="utf-8")
    part = text[text.index(f"{title}\n") :]
    if title.startswith("## "):
        part = part.split("\n## ")[0]
    names: dict = {"__name__": page}
    blocks = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names


def test_the_tutorial_runs_as_written():
    page = _run("extending.md", "## Write a loss without derivatives")
    upper, again = page["upper"], page["again"]
    assert upper.converged
    assert again.converged
    assert np.isclose(upper.objective, again.objective, rtol=1e-9)
    y, f = page["y"], upper.predict(page["X"], page["codes"])
    # First-order condition: pulls from above and below balance up to the penalty on biases.
    pull = np.where(y > f, 0.9, 0.1) * (y - f)
    expected = 0.01 * upper.intercept[:4].sum()  # the cells of one partition cover all rows
    assert np.isclose(pull.mean(), expected, atol=1e-5)
    assert np.mean(y < f) > 0.7


def test_the_page_on_accelerators_runs_as_written(capsys):
    page = _run("jax.md", "# Accelerators")
    assert np.isclose(page["on_cpu"].objective, page["on_jax"].objective, rtol=1e-4)
    assert "converged" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda y, f: ((y - f) ** 2).mean(), ValueError, "loss of every row"),
        (lambda y, f: np.asarray(f) ** 2, TypeError, "jax.numpy in place of numpy"),
        (lambda y, f: -((y - f) ** 2), ValueError, "not convex in f"),
    ],
)
def test_functions_that_are_no_losses_are_rejected_at_once(function, error, message):
    with pytest.raises(error, match=message):
        JaxLoss(function)
