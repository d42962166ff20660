"""Samples beside their moments and quantiles, and gradients that flow through them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import metaop
from metaop import distributions as D
from metaop.distributions.gamma_samples import _slope
from tests.distributions.cases import CASES, made, normal, positive, positive_definite
from tests.helpers import from_numpy, to_torch

torch = pytest.importorskip("torch")
T = torch.distributions

COUNT = 4000
# Without a mean, or with one of no meaning here.
WITHOUT_MOMENTS = {"Cauchy", "HalfCauchy", "Categorical", "VonMises"}
# Whose fourth moments are infinite or huge, so that samples do not tell the variance.
WITH_TAILS = {"FisherSnedecor", "GeneralizedPareto", "InverseGamma", "LogNormal", "Pareto"}
WITH_TAILS |= {"StudentT"}
# With quantiles in both packages, so that samples tell the uniform numbers that made them.
BY_QUANTILE = (
    *("Cauchy", "ContinuousBernoulli", "Exponential", "GeneralizedPareto", "Gumbel", "HalfCauchy"),
    *(
        "HalfNormal",
        "Kumaraswamy",
        "Laplace",
        "LogNormal",
        "Normal",
        "Pareto",
        "Uniform",
        "Weibull",
    ),
)
BY_GAMMA = ("Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT")


@pytest.mark.parametrize("name", CASES)
def test_samples_have_the_moments(name: str) -> None:
    metaop.manual_seed(5)
    ours = made(D, name, from_numpy)
    sample = ours.sample((COUNT,))
    assert tuple(sample.shape) == (COUNT, *ours.batch_shape, *ours.event_shape)
    assert not sample.requires_grad
    assert bool(ours.support.check(sample).all())
    try:
        mean, deviation = ours.mean.numpy(), ours.stddev.numpy()
    except NotImplementedError:
        return
    if name in WITHOUT_MOMENTS:
        return
    sample = sample.numpy()
    assert (np.abs(sample.mean(0) - mean) <= 6 * deviation / COUNT**0.5 + 1e-12).all()
    if name in WITH_TAILS:
        return
    # The error of a variance is that of the mean of squares, as the sample itself tells it.
    squares = (sample - mean) ** 2
    error = np.abs(squares.mean(0) - deviation**2)
    assert (error <= 6 * squares.std(0) / COUNT**0.5 + 1e-12).all()


@pytest.mark.parametrize("name", (*BY_QUANTILE, "Beta", "Gamma", "StudentT", "FisherSnedecor"))
def test_samples_have_the_quantiles(name: str) -> None:
    from scipy import stats

    metaop.manual_seed(6)
    ours = made(D, name, from_numpy)
    sample = ours.sample((COUNT,))
    arguments = CASES[name][0]
    if name == "Beta":
        level = stats.beta(arguments["concentration1"], arguments["concentration0"]).cdf(sample)
    elif name == "Gamma":
        level = stats.gamma(arguments["concentration"], scale=1 / arguments["rate"]).cdf(sample)
    elif name == "StudentT":
        level = stats.t(*arguments.values()).cdf(sample)
    elif name == "FisherSnedecor":
        level = stats.f(*arguments.values()).cdf(sample)
    else:
        level = made(T, name, to_torch).cdf(to_torch(sample.numpy())).numpy()
    order = np.sort(level, 0)
    wanted = (np.arange(COUNT) + 0.5).reshape(-1, *[1] * (level.ndim - 1)) / COUNT
    # Kolmogorov and Smirnov's distance, which passes 2 / sqrt(n) once in 1500 times.
    assert np.abs(order - wanted).max() < 2.2 / COUNT**0.5


@pytest.mark.parametrize("name", BY_QUANTILE)
def test_samples_move_as_their_quantiles_do(name: str) -> None:
    metaop.manual_seed(7)
    names = list(CASES[name][0])
    mine = {key: from_numpy(CASES[name][0][key]).requires_grad_() for key in names}
    other = {key: to_torch(CASES[name][0][key]).requires_grad_() for key in names}
    ours, theirs = getattr(D, name)(**mine), getattr(T, name)(**other)
    sample = ours.rsample((5,))
    weight = np.asarray(normal(*sample.shape))
    (sample * from_numpy(weight)).sum().backward()
    place = to_torch(sample.detach().numpy())
    # PyTorch's samples at the same probabilities.
    level = theirs.cdf(place).detach()
    (theirs.icdf(level) * to_torch(weight)).sum().backward()
    for key in names:
        np.testing.assert_allclose(mine[key].grad.numpy(), other[key].grad.numpy(), 1e-5, 1e-8)


@pytest.mark.parametrize("name", BY_GAMMA)
def test_samples_of_gamma_variables_move_with_the_mean(name: str) -> None:
    metaop.manual_seed(0)
    mine = {key: from_numpy(value + 1).requires_grad_() for key, value in CASES[name][0].items()}
    other = {key: to_torch(value + 1).requires_grad_() for key, value in CASES[name][0].items()}
    ours, theirs = getattr(D, name)(**mine), getattr(T, name)(**other)
    weight = np.asarray(normal(*theirs.mean.shape))
    (ours.rsample((20000,)).mean(0) * from_numpy(weight)).sum().backward()
    (theirs.mean * to_torch(weight)).sum().backward()
    for key in mine:
        # Some of PyTorch's means do not depend on all parameters.
        wanted = 0 * mine[key].grad.numpy() if other[key].grad is None else other[key].grad.numpy()
        np.testing.assert_allclose(mine[key].grad.numpy(), wanted, atol=0.1)


def test_samples_of_normal_vectors_move_with_the_covariance() -> None:
    metaop.manual_seed(1)
    for name in ("MultivariateNormal", "LowRankMultivariateNormal"):
        mine = {key: from_numpy(v).requires_grad_() for key, v in CASES[name][0].items()}
        ours = getattr(D, name)(**mine)
        sample = ours.rsample((20000,))
        covariance = ours.covariance_matrix
        apart = sample - ours.loc
        estimate = (apart.unsqueeze(-1) * apart.unsqueeze(-2)).mean(0)
        np.testing.assert_allclose(estimate.detach().numpy(), covariance.detach().numpy(), atol=0.3)
        keys = [key for key in mine if key != "loc"]
        weight = from_numpy(np.tril(normal(3, 3)))
        found = metaop.autograd.grad((estimate * weight).sum(), [mine[key] for key in keys])
        wanted = metaop.autograd.grad((covariance * weight).sum(), [mine[key] for key in keys])
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one.numpy(), other.numpy(), atol=0.6)


def test_samples_of_wishart_matrices_move_with_the_mean() -> None:
    metaop.manual_seed(2)
    degrees = from_numpy(np.array(5.5)).requires_grad_()
    scale = from_numpy(np.linalg.cholesky(positive_definite(2, 2))).requires_grad_()
    ours = D.Wishart(degrees, scale_tril=scale)
    weight = from_numpy(normal(2, 2))
    sample = (ours.rsample((20000,)).mean(0) * weight).sum()
    found = metaop.autograd.grad(sample, [degrees, scale])
    wanted = metaop.autograd.grad((ours.mean * weight).sum(), [degrees, scale])
    for one, other in zip(found, wanted):
        error = np.abs(one.numpy() - other.numpy())
        assert error.max() < 0.02 * np.abs(other.numpy()).max() + 0.2


def test_relaxed_samples_move_with_their_parameters() -> None:
    metaop.manual_seed(3)
    logits = from_numpy(normal(4)).requires_grad_()
    temperature = from_numpy(np.array(0.6)).requires_grad_()
    for kind in (D.RelaxedBernoulli, D.RelaxedOneHotCategorical):
        sample = kind(temperature, logits=logits).rsample((5,))
        if kind is D.RelaxedBernoulli:
            score = (sample / (1 - sample)).log()
        else:
            score = sample.log()[..., :1] - sample.log()[..., 1:]
        found = metaop.autograd.grad(score.sum(), [logits, temperature])
        np.testing.assert_allclose(found[1].numpy(), -score.detach().numpy().sum() / 0.6, rtol=1e-8)
        slope = np.full(4, 5 / 0.6)
        if kind is D.RelaxedOneHotCategorical:
            slope = np.array([15.0, -5, -5, -5]) / 0.6
        np.testing.assert_allclose(found[0].numpy(), slope, rtol=1e-8)


def test_relaxed_samples_choose_as_often_as_their_probabilities() -> None:
    metaop.manual_seed(4)
    probs = np.array([0.1, 0.6, 0.3])
    sample = D.RelaxedOneHotCategorical(0.1, probs=from_numpy(probs)).sample((COUNT,))
    share = np.eye(3)[sample.numpy().argmax(-1)].mean(0)
    assert (np.abs(share - probs) < 6 * (probs * (1 - probs) / COUNT) ** 0.5).all()
    sample = D.RelaxedBernoulli(0.1, probs=from_numpy(probs)).sample((COUNT,))
    share = (sample.numpy() > 0.5).mean(0)
    assert (np.abs(share - probs) < 6 * (probs * (1 - probs) / COUNT) ** 0.5).all()


def test_straight_through_gradients() -> None:
    logits = from_numpy(normal(2, 4)).requires_grad_()
    ours = D.OneHotCategoricalStraightThrough(logits=logits)
    sample, weight = ours.rsample((3,)), from_numpy(normal(3, 2, 4))
    assert bool(((sample - ours.support.check(sample).unsqueeze(-1) * sample).abs() < 1e-12).all())
    found = metaop.autograd.grad((sample * weight).sum(), logits)[0]
    wanted = metaop.autograd.grad((logits.softmax(-1) * weight).sum(), logits)[0]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-10, 1e-12)


@pytest.mark.parametrize("dim", [2, 4])
def test_random_correlations(dim: int) -> None:
    metaop.manual_seed(8)
    concentration = positive(2)
    factor = D.LKJCholesky(dim, from_numpy(concentration)).sample((COUNT,))
    correlation = (factor @ factor.mT).numpy()
    np.testing.assert_allclose(np.diagonal(correlation, 0, -2, -1), 1, rtol=1e-12)
    # Each correlation is 2 x - 1 of a beta variable x with these equal concentrations.
    alpha = concentration + (dim - 2) / 2
    variance = 1 / (2 * alpha + 1)
    for row in range(1, dim):
        for column in range(row):
            one = correlation[:, :, row, column]
            assert (np.abs(one.mean(0)) < 6 * (variance / COUNT) ** 0.5).all()
            error = 6 * (one**2).std(0) / COUNT**0.5
            assert (np.abs((one**2).mean(0) - variance) < error).all()


def test_random_angles() -> None:
    metaop.manual_seed(9)
    ours = made(D, "VonMises", from_numpy)
    sample = ours.sample((COUNT,)).numpy()
    assert (np.abs(sample) <= np.pi + 1e-6).all()
    turned = np.exp(1j * (sample - ours.loc.numpy())).mean(0)
    np.testing.assert_allclose(turned, 1 - ours.variance.numpy(), atol=6 / COUNT**0.5)


@pytest.mark.filterwarnings("ignore:Singular sample")  # of PyTorch, whatever the sample is
def test_types_of_samples() -> None:
    for name in CASES:
        arguments = {
            key: np.float32(value) if isinstance(value, np.ndarray) else value
            for key, value in CASES[name][0].items()
        }
        ours, theirs = made(D, name, from_numpy, arguments), made(T, name, to_torch, arguments)
        mine = ours.sample()
        assert str(mine.dtype).split(".")[1] == str(theirs.sample().dtype).split(".")[1], name


def test_gradients_reach_the_parameters_of_samples() -> None:
    location = metaop.tensor([0.0, 1.0]).requires_grad_()
    scale = metaop.tensor([1.0, 2.0]).requires_grad_()
    D.Normal(location, scale).rsample((8,)).sum().backward()
    np.testing.assert_array_equal(location.grad.numpy(), [8.0, 8.0])
    assert scale.grad is not None


@pytest.mark.parametrize("name", ["Gamma", "Beta", "StudentT", "Poisson", "VonMises"])
def test_single_numbers(name: str) -> None:
    parameters = [metaop.tensor(2.0)] * (1 if name in ("StudentT", "Poisson") else 2)
    sample = getattr(D, name)(*parameters).sample()
    assert sample.shape == () and sample.isfinite()


def test_samples_without_gradients() -> None:
    for name in ("Bernoulli", "VonMises", "LKJCholesky"):
        with pytest.raises(NotImplementedError, match="sample"):
            made(D, name, from_numpy).rsample()


@pytest.mark.parametrize("concentration", [0.05, 0.5, 2.0, 20.0, 200.0, 2000.0, 20000.0])
def test_gradients_of_gamma_samples(concentration: float) -> None:
    samples = concentration * np.array([0.01, 0.3, 0.9, 1.0, 1.1, 1.5, 4.0])
    shapes = np.full(len(samples), concentration)
    wanted = torch._standard_gamma_grad(torch.tensor(shapes), torch.tensor(samples))
    # PyTorch's own approximation is good to about 5e-4.
    np.testing.assert_allclose(_slope(shapes, samples), wanted.numpy(), rtol=1e-3)


def test_gradients_of_many_gamma_samples_take_no_call_for_each() -> None:
    calls = []
    shapes = np.linspace(0.1, 9, 2000)
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        _slope(shapes, shapes * 1.1)
    finally:
        sys.setprofile(None)
    assert len(calls) < len(shapes)
