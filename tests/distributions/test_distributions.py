"""Densities, entropies and divergences beside PyTorch's; samples beside their moments."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop import distributions as D
from metaop.distributions.gamma_samples import _slope
from tests.helpers import from_numpy, to_torch

torch = pytest.importorskip("torch")
T = torch.distributions

random = np.random.default_rng(3)


def positive(*shape: int) -> np.ndarray:
    return random.uniform(0.5, 2.5, shape)


def simplex(*shape: int) -> np.ndarray:
    return random.dirichlet(np.ones(shape[-1]), shape[:-1])


MATRIX = np.linalg.cholesky(np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.7]]))

# Arguments by name, and values that lie in the support.
CASES = {
    "Normal": ({"loc": random.normal(size=(2, 3)), "scale": positive(3)}, positive(4, 2, 3)),
    "LogNormal": ({"loc": random.normal(size=3), "scale": positive(3)}, positive(4, 3)),
    "HalfNormal": ({"scale": positive(3)}, positive(4, 3)),
    "Uniform": ({"low": -positive(3), "high": 3 + positive(3)}, positive(4, 3)),
    "Exponential": ({"rate": positive(3)}, positive(4, 3)),
    "Laplace": ({"loc": random.normal(size=3), "scale": positive(3)}, positive(4, 3)),
    "Cauchy": ({"loc": random.normal(size=3), "scale": positive(3)}, positive(4, 3)),
    "Gumbel": ({"loc": random.normal(size=3), "scale": positive(3)}, positive(4, 3)),
    "Gamma": ({"concentration": positive(3), "rate": positive(3)}, positive(4, 3)),
    "Chi2": ({"df": positive(3)}, positive(4, 3)),
    "Beta": ({"concentration1": positive(3), "concentration0": positive(3)}, simplex(4, 3)),
    "StudentT": ({"df": 3 + positive(3), "loc": positive(3), "scale": positive(3)}, positive(4, 3)),
    "Bernoulli": ({"probs": simplex(2, 3)}, random.integers(0, 2, (4, 2, 3)) * 1.0),
    "Geometric": ({"probs": simplex(2, 3)}, random.integers(0, 5, (4, 2, 3)) * 1.0),
    "Binomial": (
        {"total_count": np.array([5.0, 6.0, 7.0]), "probs": simplex(3)},
        random.integers(0, 5, (4, 3)) * 1.0,
    ),
    "Poisson": ({"rate": positive(3)}, random.integers(0, 5, (4, 3)) * 1.0),
    "Categorical": ({"logits": random.normal(size=(2, 5))}, random.integers(0, 5, (4, 2))),
    "OneHotCategorical": ({"probs": simplex(2, 5)}, np.eye(5)[random.integers(0, 5, (4, 2))]),
    "Dirichlet": ({"concentration": positive(2, 3)}, simplex(4, 2, 3)),
    "MultivariateNormal": (
        {"loc": random.normal(size=(2, 3)), "scale_tril": MATRIX},
        random.normal(size=(4, 2, 3)),
    ),
}
WITHOUT_ENTROPY = {"Binomial", "Poisson"}
IN_KL = (
    *("Normal", "Laplace", "Exponential", "Gamma", "Beta", "Bernoulli", "Poisson", "Categorical"),
    *("OneHotCategorical", "Dirichlet", "MultivariateNormal"),
)


def made(package, name: str, convert, arguments=None):
    chosen = CASES[name][0] if arguments is None else arguments
    return getattr(package, name)(**{key: convert(value) for key, value in chosen.items()})


def assert_close(ours, theirs, tolerance: float = 1e-10) -> None:
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), tolerance, tolerance)


@pytest.mark.parametrize("name", CASES)
def test_densities(name: str) -> None:
    ours, theirs = made(D, name, from_numpy), made(T, name, to_torch)
    value = CASES[name][1]
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert_close(ours.log_prob(from_numpy(value)), theirs.log_prob(to_torch(value)))
    if name not in WITHOUT_ENTROPY:
        assert_close(ours.entropy(), theirs.entropy())
    if name != "Categorical":
        assert_close(ours.mean, theirs.mean)
        assert_close(ours.variance, theirs.variance)
    for function in ("cdf", "icdf"):
        if function in vars(type(ours)):
            point = simplex(*theirs.batch_shape) if function == "icdf" else value
            mine = getattr(ours, function)(from_numpy(point))
            assert_close(mine, getattr(theirs, function)(to_torch(point)))


@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_moments(name: str) -> None:
    metaop.manual_seed(5)
    distribution = made(D, name, from_numpy)
    sample = distribution.sample((4000,))
    assert tuple(sample.shape) == (4000, *distribution.batch_shape, *distribution.event_shape)
    assert not sample.requires_grad
    if name in ("Cauchy", "Categorical", "StudentT"):
        return
    error = (sample.mean(0) - distribution.mean).abs()
    assert bool((error < 6 * distribution.stddev / 4000**0.5).all())


@pytest.mark.parametrize("name", IN_KL)
def test_divergences(name: str) -> None:
    arguments = CASES[name][0]
    changed = {key: value * 0.9 + 0.05 for key, value in arguments.items()}
    if name == "MultivariateNormal":
        changed["scale_tril"] = np.tril(changed["scale_tril"])
    if name == "OneHotCategorical":
        changed = {"probs": arguments["probs"][::-1].copy()}
    ours = D.kl_divergence(made(D, name, from_numpy), made(D, name, from_numpy, changed))
    theirs = T.kl_divergence(made(T, name, to_torch), made(T, name, to_torch, changed))
    assert_close(ours, theirs)


def test_divergence_without_a_formula() -> None:
    with pytest.raises(NotImplementedError, match="Normal"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(metaop.tensor(1.0)))


def test_gradients_reach_the_parameters_of_samples() -> None:
    location = metaop.tensor([0.0, 1.0]).requires_grad_()
    scale = metaop.tensor([1.0, 2.0]).requires_grad_()
    D.Normal(location, scale).rsample((8,)).sum().backward()
    np.testing.assert_array_equal(location.grad.numpy(), [8.0, 8.0])
    assert scale.grad is not None


def test_gradient_of_gamma_samples_is_that_of_the_mean_on_average() -> None:
    metaop.manual_seed(0)
    shape = metaop.tensor([0.7, 2.0, 9.0], dtype=metaop.float64).requires_grad_()
    D.Gamma(shape, metaop.ones_like(shape)).rsample((5000,)).mean(0).sum().backward()
    np.testing.assert_allclose(shape.grad.numpy(), np.ones(3), atol=0.08)


def test_independent_sums_over_the_event() -> None:
    value = random.normal(size=(4, 2, 3))
    ours = D.Independent(made(D, "Normal", from_numpy), 1)
    theirs = T.Independent(made(T, "Normal", to_torch), 1)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert_close(ours.log_prob(from_numpy(value)), theirs.log_prob(to_torch(value)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: D.Normal(0.0, -1.0),
        lambda: D.Bernoulli(metaop.tensor(1.5)),
        lambda: D.Categorical(),
        lambda: D.Uniform(1.0, 0.0),
    ],
)
def test_wrong_parameters(make) -> None:
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize("concentration", [0.05, 0.5, 2.0, 20.0, 200.0, 2000.0, 20000.0])
def test_gradients_of_gamma_samples(concentration: float) -> None:
    samples = concentration * np.array([0.01, 0.3, 0.9, 1.0, 1.1, 1.5, 4.0])
    shapes = np.full(len(samples), concentration)
    wanted = torch._standard_gamma_grad(torch.tensor(shapes), torch.tensor(samples))
    # PyTorch's own approximation is good to about 5e-4.
    np.testing.assert_allclose(_slope(shapes, samples), wanted.numpy(), rtol=1e-3)
