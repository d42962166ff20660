"""Arguments of every distribution, and values that lie in its support."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

random = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return random.normal(size=shape)


def positive(*shape: int) -> np.ndarray:
    return random.uniform(0.5, 2.5, shape)


def unit(*shape: int) -> np.ndarray:
    return random.uniform(0.05, 0.95, shape)


def simplex(*shape: int) -> np.ndarray:
    return random.dirichlet(np.ones(shape[-1]), shape[:-1])


def counts(*shape: int) -> np.ndarray:
    return random.integers(0, 5, shape) * 1.0


def one_hot(*shape: int) -> np.ndarray:
    return np.eye(shape[-1])[random.integers(0, shape[-1], shape[:-1])]


def positive_definite(*shape: int) -> np.ndarray:
    factor = random.normal(size=shape)
    return factor @ np.swapaxes(factor, -1, -2) + 2 * np.eye(shape[-1])


def factor(*shape: int) -> np.ndarray:
    return np.linalg.cholesky(positive_definite(*shape))


def correlation_factor(*shape: int) -> np.ndarray:
    found = factor(*shape)
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


def location_scale() -> dict[str, Any]:
    return {"loc": normal(2, 3), "scale": positive(3)}


CASES: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "Bernoulli": ({"probs": unit(2, 3)}, random.integers(0, 2, (4, 2, 3)) * 1.0),
    "Beta": ({"concentration1": positive(3), "concentration0": positive(3)}, unit(4, 3)),
    "Binomial": ({"total_count": np.full(3, 6.0), "probs": unit(3)}, counts(4, 3)),
    "Categorical": ({"logits": normal(2, 5)}, random.integers(0, 5, (4, 2))),
    "Cauchy": (location_scale(), normal(4, 2, 3)),
    "Chi2": ({"df": positive(3)}, positive(4, 3)),
    "ContinuousBernoulli": ({"probs": np.array([0.1, 0.4995, 0.8])}, unit(4, 3)),
    "Dirichlet": ({"concentration": positive(2, 3)}, simplex(4, 2, 3)),
    "Exponential": ({"rate": positive(3)}, positive(4, 3)),
    "FisherSnedecor": ({"df1": 2 + positive(3), "df2": 5 + positive(3)}, positive(4, 3)),
    "Gamma": ({"concentration": positive(3), "rate": positive(3)}, positive(4, 3)),
    "GeneralizedPareto": (
        {"loc": normal(3), "scale": positive(3), "concentration": np.array([-0.3, 0.0, 0.2])},
        3 + unit(4, 3),
    ),
    "Geometric": ({"probs": unit(2, 3)}, counts(4, 2, 3)),
    "Gumbel": (location_scale(), normal(4, 2, 3)),
    "HalfCauchy": ({"scale": positive(3)}, positive(4, 3)),
    "HalfNormal": ({"scale": positive(3)}, positive(4, 3)),
    "InverseGamma": ({"concentration": 2 + positive(3), "rate": positive(3)}, positive(4, 3)),
    "Kumaraswamy": ({"concentration1": positive(3), "concentration0": positive(3)}, unit(4, 3)),
    "LKJCholesky": ({"dim": 3, "concentration": positive(2)}, correlation_factor(4, 2, 3, 3)),
    "Laplace": (location_scale(), normal(4, 2, 3)),
    "LogNormal": (location_scale(), positive(4, 2, 3)),
    "LogisticNormal": (location_scale(), simplex(4, 2, 4)),
    "LowRankMultivariateNormal": (
        {"loc": normal(2, 3), "cov_factor": normal(3, 2), "cov_diag": positive(3)},
        normal(4, 2, 3),
    ),
    "Multinomial": ({"total_count": 9, "probs": simplex(2, 3)}, counts(4, 2, 3) // 2),
    "MultivariateNormal": ({"loc": normal(2, 3), "scale_tril": factor(3, 3)}, normal(4, 2, 3)),
    "NegativeBinomial": ({"total_count": positive(3), "logits": normal(3)}, counts(4, 3)),
    "Normal": (location_scale(), normal(4, 2, 3)),
    "OneHotCategorical": ({"probs": simplex(2, 5)}, one_hot(4, 2, 5)),
    "OneHotCategoricalStraightThrough": ({"logits": normal(2, 5)}, one_hot(4, 2, 5)),
    "Pareto": ({"scale": positive(3), "alpha": 2 + positive(3)}, 3 + positive(4, 3)),
    "Poisson": ({"rate": positive(3)}, counts(4, 3)),
    "RelaxedBernoulli": ({"temperature": np.array(0.7), "logits": normal(2, 3)}, unit(4, 2, 3)),
    "RelaxedOneHotCategorical": (
        {"temperature": np.array(0.7), "logits": normal(2, 4)},
        simplex(4, 2, 4),
    ),
    "StudentT": ({"df": 3 + positive(3), "loc": normal(3), "scale": positive(3)}, normal(4, 3)),
    "Uniform": ({"low": -positive(3), "high": 3 + positive(3)}, positive(4, 3)),
    "VonMises": ({"loc": normal(2, 3), "concentration": positive(3)}, normal(4, 2, 3)),
    "Weibull": ({"scale": positive(3), "concentration": 1 + positive(3)}, positive(4, 3)),
    "Wishart": (
        {"df": 4 + positive(2), "covariance_matrix": positive_definite(2, 3, 3)},
        positive_definite(4, 2, 3, 3),
    ),
}


def made(
    package: Any, name: str, convert: Callable[..., Any], arguments: dict[str, Any] | None = None
) -> Any:
    """A distribution of a package, with arguments that are converted unless they are numbers."""
    chosen = CASES[name][0] if arguments is None else arguments
    given = {
        key: convert(value) if isinstance(value, np.ndarray) else value
        for key, value in chosen.items()
    }
    return getattr(package, name)(**given)


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-10) -> None:
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), tolerance, tolerance, equal_nan=True
    )
