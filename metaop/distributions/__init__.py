"""Probability distributions with samples, densities and divergences, as in PyTorch."""

from metaop.distributions import constraints, transforms
from metaop.distributions.categorical import (
    Categorical,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from metaop.distributions.constraint_registry import biject_to, transform_to
from metaop.distributions.continuous import (
    ContinuousBernoulli,
    Exponential,
    GeneralizedPareto,
    Uniform,
    VonMises,
)
from metaop.distributions.counts import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson
from metaop.distributions.distribution import Distribution, ExponentialFamily
from metaop.distributions.gamma_family import (
    Beta,
    Chi2,
    Dirichlet,
    FisherSnedecor,
    Gamma,
    StudentT,
)
from metaop.distributions.independent import Independent
from metaop.distributions.kl import kl_divergence, register_kl
from metaop.distributions.location_scale import Cauchy, Gumbel, Laplace, Normal
from metaop.distributions.matrices import LKJCholesky, Wishart
from metaop.distributions.mixture_same_family import MixtureSameFamily
from metaop.distributions.multivariate import LowRankMultivariateNormal, MultivariateNormal
from metaop.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from metaop.distributions.transformed_distribution import TransformedDistribution
from metaop.distributions.transformed_families import (
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    Pareto,
    Weibull,
)
from metaop.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]
