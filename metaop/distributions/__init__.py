"""Probability distributions with samples, densities and divergences, as in PyTorch."""

from metaop.distributions import constraints
from metaop.distributions.continuous import (
    Beta,
    Chi2,
    Exponential,
    Gamma,
    HalfNormal,
    LogNormal,
    StudentT,
    Uniform,
)
from metaop.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    OneHotCategorical,
    Poisson,
)
from metaop.distributions.distribution import Distribution, ExponentialFamily
from metaop.distributions.kl import kl_divergence, register_kl
from metaop.distributions.location_scale import Cauchy, Gumbel, Laplace, Normal
from metaop.distributions.multivariate import Dirichlet, Independent, MultivariateNormal

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "ExponentialFamily",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfNormal",
    "Independent",
    "Laplace",
    "LogNormal",
    "Multinomial",
    "MultivariateNormal",
    "Normal",
    "OneHotCategorical",
    "Poisson",
    "StudentT",
    "Uniform",
    "constraints",
    "kl_divergence",
    "register_kl",
]
