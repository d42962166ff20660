"""Kullback-Leibler divergences beside PyTorch's, for every pair that PyTorch knows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import distributions as D
from metaop.distributions.kl import _FORMULAS
from tests.distributions.cases import (
    CASES,
    assert_close,
    factor,
    made,
    normal,
    positive,
    positive_definite,
    random,
    simplex,
    unit,
)
from tests.helpers import from_numpy, to_torch

torch = pytest.importorskip("torch")
T = torch.distributions

PAIRS = sorted((p.__name__, q.__name__) for p, q in T.kl._KL_REGISTRY)
# Pairs of classes that make no distributions themselves, or whose parts decide.
OF_CLASSES = {"ExponentialFamily", "TransformedDistribution", "Independent"}

# Parameters of the second of a pair, where those of the first have another shape or meaning.
SECOND: dict[str, dict[str, Any]] = {
    "Bernoulli": {"logits": normal(2, 3)},
    "Categorical": {"probs": simplex(2, 5)},
    "ContinuousBernoulli": {"probs": np.array([0.7, 0.2, 0.5005])},
    "Geometric": {"logits": normal(2, 3)},
    "LowRankMultivariateNormal": {
        "loc": normal(3),
        "cov_factor": normal(2, 3, 1),
        "cov_diag": positive(2, 3),
    },
    "MultivariateNormal": {"loc": normal(3), "scale_tril": factor(2, 3, 3)},
    "OneHotCategorical": {"logits": normal(2, 5)},
    "Binomial": {"total_count": np.full(3, 6.0), "logits": normal(3)},
    "Uniform": {"low": -3 - positive(3), "high": 6 + positive(3)},
}
# PyTorch says infinity also where the limits are equal, and needs limits that are within.
UNIFORM_IN_UNIT = {"low": 0.1 * unit(3), "high": 0.5 + 0.4 * unit(3)}


def pair(first: str, second: str):
    of_first, of_second = CASES[first][0], SECOND.get(second)
    if of_second is None:
        of_second = {
            key: value * 0.9 + 0.05 if key != "total_count" else value
            for key, value in CASES[second][0].items()
        }
    if first == "Uniform" and second != "Uniform":
        of_first = UNIFORM_IN_UNIT
        if second == "Pareto":
            of_first = {"low": 3 + unit(3), "high": 5 + unit(3)}
    if second == "Normal":
        of_second = {"loc": normal(3), "scale": positive(3)}
    if first in ("Beta", "ContinuousBernoulli") and second == "Uniform":
        of_second = {"low": -unit(3), "high": 1 + unit(3)}
    return of_first, of_second


def leaves(arguments, convert):
    made_of = {
        key: convert(value) if isinstance(value, np.ndarray) else value
        for key, value in arguments.items()
    }
    for key, value in made_of.items():
        if key != "total_count" and hasattr(value, "requires_grad_"):
            value.requires_grad_()
    return made_of


@pytest.mark.parametrize("first, second", [one for one in PAIRS if not OF_CLASSES & set(one)])
def test_pairs(first: str, second: str) -> None:
    of_first, of_second = pair(first, second)
    mine = [leaves(one, from_numpy) for one in (of_first, of_second)]
    other = [leaves(one, to_torch) for one in (of_first, of_second)]
    ours = D.kl_divergence(getattr(D, first)(**mine[0]), getattr(D, second)(**mine[1]))
    theirs = T.kl_divergence(getattr(T, first)(**other[0]), getattr(T, second)(**other[1]))
    theirs = theirs.expand(ours.shape)  # PyTorch's infinities have the shape of the first alone
    assert_close(ours, theirs, 1e-9)
    if not theirs.requires_grad or not bool(theirs.isfinite().all()):
        return
    weight = np.asarray(random.normal(size=tuple(theirs.shape)))
    (ours * from_numpy(weight)).sum().backward()
    (theirs * to_torch(weight)).sum().backward()
    for own, others in zip(mine, other):
        for key, value in others.items():
            if getattr(value, "grad", None) is not None:
                assert_close(own[key].grad, value.grad, 1e-7)


def test_every_pair_is_known() -> None:
    own = {(p.__name__, q.__name__) for p, q in _FORMULAS}
    # That of a half normal variable is that of its base, as of any two transformed alike.
    assert set(PAIRS) - own == {("HalfNormal", "HalfNormal")}


@pytest.mark.parametrize(
    "name", ["HalfNormal", "HalfCauchy", "LogNormal", "LogisticNormal", "InverseGamma"]
)
def test_pairs_by_base_or_family(name: str) -> None:
    arguments = CASES[name][0]
    changed = {key: value * 1.1 for key, value in arguments.items()}
    ours = D.kl_divergence(made(D, name, from_numpy), made(D, name, from_numpy, changed))
    theirs = T.kl_divergence(made(T, name, to_torch), made(T, name, to_torch, changed))
    assert_close(ours, theirs, 1e-8)


def test_wishart_matrices() -> None:
    degrees, other_degrees = positive(2) + 3, positive(2) + 3
    scales, others = positive_definite(2, 3, 3), positive_definite(2, 3, 3)
    found = D.kl_divergence(
        D.Wishart(from_numpy(degrees), from_numpy(scales)),
        D.Wishart(from_numpy(other_degrees), from_numpy(others)),
    )
    # One by one, for PyTorch sums a part over the batch.
    wanted = [
        T.kl_divergence(
            T.Wishart(to_torch(np.array(degrees[k])), to_torch(scales[k])),
            T.Wishart(to_torch(np.array(other_degrees[k])), to_torch(others[k])),
        ).item()
        for k in range(2)
    ]
    np.testing.assert_allclose(found.detach().numpy(), wanted, 1e-8)


def test_independent_events() -> None:
    p, q = CASES["Normal"][0], {"loc": normal(2, 3), "scale": positive(3)}
    ours = D.kl_divergence(
        *(D.Independent(made(D, "Normal", from_numpy, one), 1) for one in (p, q))
    )
    theirs = T.kl_divergence(
        *(T.Independent(made(T, "Normal", to_torch, one), 1) for one in (p, q))
    )
    assert_close(ours, theirs)


def test_probabilities_of_0_and_1() -> None:
    first, second = np.array([0.0, 0.0, 1.0, 1.0, 0.5, 0.5]), np.array([0.0, 1, 1, 0, 0, 1])
    pairs = [{"probs": first}, {"probs": second}]
    ours = D.kl_divergence(*(made(D, "Bernoulli", from_numpy, one) for one in pairs))
    theirs = T.kl_divergence(*(made(T, "Bernoulli", to_torch, one) for one in pairs))
    assert_close(ours, theirs)
    ours = D.Binomial(metaop.tensor([3.0, 4.0]), metaop.tensor(0.5))
    fewer = D.Binomial(metaop.tensor([2.0, 4.0]), metaop.tensor(0.5))
    assert D.kl_divergence(ours, fewer).tolist() == [np.inf, 0.0]
    with pytest.raises(NotImplementedError, match="total_count"):
        D.kl_divergence(fewer, ours)


def test_supports_that_stick_out() -> None:
    uniform = D.Uniform(metaop.tensor([-0.5, 0.2, 0.0, 0.1]), metaop.tensor([0.5, 1.2, 1.0, 0.9]))
    beta = D.Beta(metaop.tensor(2.0), metaop.tensor(3.0))
    found = D.kl_divergence(uniform, beta)
    assert found.isinf().tolist() == [True, True, False, False]
    assert D.kl_divergence(beta, uniform).isinf().tolist() == [True, True, False, True]
    wide = D.Pareto(metaop.tensor(1.0), metaop.tensor(2.0))
    narrow = D.Pareto(metaop.tensor([0.5, 1.5]), metaop.tensor(2.0))
    assert D.kl_divergence(wide, narrow).isinf().tolist() == [False, True]
    tails = D.Pareto(metaop.tensor(1.0), metaop.tensor([0.5, 1.5, 2.5]))
    exponential, normal_one = D.Exponential(metaop.tensor(1.0)), D.Normal(0.0, 1.0)
    assert D.kl_divergence(tails, exponential).isinf().tolist() == [True, False, False]
    assert D.kl_divergence(tails, normal_one).isinf().tolist() == [True, True, False]


def test_divergences_of_equals_are_zero() -> None:
    for name in ("Normal", "Laplace", "Gamma", "Beta", "Dirichlet", "Bernoulli", "Poisson"):
        one = made(D, name, from_numpy)
        assert float(D.kl_divergence(one, one).abs().max()) == 0


def test_divergences_without_a_formula() -> None:
    for p, q in (
        (D.Normal(0.0, 1.0), D.Poisson(metaop.tensor(1.0))),
        (D.StudentT(3.0), D.StudentT(4.0)),
        (D.Weibull(1.0, 2.0), D.Weibull(1.0, 3.0)),
        (D.Independent(D.Normal(metaop.zeros(2), 1.0), 1), D.Independent(D.Normal(0.0, 1.0), 0)),
    ):
        with pytest.raises(NotImplementedError, match=r"KL\(p \|\| q\)"):
            D.kl_divergence(p, q)
    with pytest.raises(ValueError, match="event shapes"):
        D.kl_divergence(
            D.MultivariateNormal(metaop.zeros(2), metaop.eye(2)),
            D.MultivariateNormal(metaop.zeros(3), metaop.eye(3)),
        )


def test_formulas_of_the_users_own() -> None:
    class Own(D.Normal):
        pass

    one, other = Own(0.0, 1.0), D.Normal(1.0, 1.0)
    before = dict(_FORMULAS)
    try:
        D.register_kl(Own, D.Normal)(lambda p, q: p.loc + 7)
        assert D.kl_divergence(one, other).item() == 7
        D.register_kl(D.Normal, Own)(lambda p, q: p.loc + 8)
        with pytest.warns(RuntimeWarning, match="Ambiguous"):
            D.kl_divergence(one, one)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            D.register_kl(Own, Own)(lambda p, q: p.loc + 9)
            assert D.kl_divergence(one, one).item() == 9
    finally:
        _FORMULAS.clear()
        _FORMULAS.update(before)
    with pytest.raises(TypeError):
        D.register_kl("Normal", D.Normal)


def test_a_base_that_is_no_distribution_serves_for_those_that_derive_from_it() -> None:
    class Base:
        pass

    class Own(Base, D.Normal):
        pass

    try:
        D.register_kl(Own, Base)(lambda p, q: p.loc + 7)
        assert D.kl_divergence(Own(1.0, 1.0), Own(0.0, 1.0)).item() == 8
    finally:
        del _FORMULAS[Own, Base]
