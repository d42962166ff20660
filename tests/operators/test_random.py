"""Random tensors: reproducibility, distributions (moments and bounds), shapes and types."""

from __future__ import annotations

import math

import numpy as np
import pytest

import metaop
from metaop.errors import ShapeError

COUNT = 20_000


@pytest.fixture(autouse=True)
def seeded() -> None:
    metaop.manual_seed(1234)


def assert_moments(x: metaop.Tensor, mean: float, variance: float) -> None:
    """Mean and variance within five standard errors (of normal numbers, for the variance)."""
    values = x.numpy().astype("float64")
    assert abs(values.mean() - mean) < 5 * math.sqrt(variance / values.size)
    assert abs(values.var() - variance) < 12 * variance * math.sqrt(2 / values.size)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_uniform(dtype: str) -> None:
    x = metaop.rand(COUNT, dtype=getattr(metaop, dtype))
    assert x.dtype is getattr(metaop, dtype)
    assert_moments(x, 0.5, 1 / 12)
    values = x.numpy().astype("float64")
    assert values.min() >= 0 and values.max() < 1
    counts = np.histogram(values, 16, (0, 1))[0]
    assert abs(counts - COUNT / 16).max() < 6 * math.sqrt(COUNT / 16)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_normal(dtype: str) -> None:
    x = metaop.randn(100, COUNT // 100, dtype=getattr(metaop, dtype))
    assert x.shape == (100, COUNT // 100)
    assert_moments(x, 0, 1)
    values = x.numpy().astype("float64")
    assert abs((values**3).mean()) < 0.2
    assert abs((values**4).mean() - 3) < 0.3
    assert abs(np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]) < 0.05


def test_same_seed_same_numbers() -> None:
    def draws() -> list:
        metaop.manual_seed(7)
        x = metaop.randn(3)
        return [x.tolist(), metaop.rand(2, 2).tolist(), metaop.randperm(5).tolist()]

    first = draws()
    assert draws() == first
    assert metaop.rand(2, 2).tolist() != first[1]
    assert metaop.initial_seed() == 7


def test_calls_differ() -> None:
    x, y = metaop.rand(100), metaop.rand(100)
    assert abs(np.corrcoef(x.numpy(), y.numpy())[0, 1]) < 0.5
    assert not (x == y).any()


def test_state() -> None:
    state = metaop.get_rng_state()
    first = metaop.rand(4).tolist()
    metaop.set_rng_state(state)
    assert metaop.rand(4).tolist() == first
    with metaop.random.fork_rng():
        metaop.rand(4)
    assert metaop.rand(1).tolist() != first[:1]


def test_generators_are_independent() -> None:
    generator = metaop.Generator().manual_seed(3)
    first = metaop.rand(4, generator=generator).tolist()
    metaop.rand(4)
    other = metaop.Generator().manual_seed(3)
    assert metaop.rand(4, generator=other).tolist() == first


def test_a_new_seed_compiles_nothing() -> None:
    from metaop.execution.executor import _programs

    metaop.randn(5).numpy()
    before = len(_programs)
    for seed in range(3):
        metaop.manual_seed(seed)
        metaop.randn(5).numpy()
    assert len(_programs) == before


def test_integers() -> None:
    x = metaop.randint(-3, 4, (COUNT,))
    assert x.dtype is metaop.int64
    assert sorted(set(x.tolist())) == list(range(-3, 4))
    assert_moments(x, 0, 4)
    assert metaop.randint(5, (2, 3)).max().item() < 5
    assert metaop.randint_like(metaop.ones(4), 1, 2).tolist() == [1.0] * 4
    with pytest.raises(ValueError):
        metaop.randint(3, 3, (2,))


def test_permutation() -> None:
    x = metaop.randperm(50)
    assert sorted(x.tolist()) == list(range(50))
    assert x.tolist() != list(range(50))
    for length in (0, 1, 2, 3000):
        drawn = metaop.randperm(length, dtype=metaop.int32)
        assert drawn.dtype is metaop.int32 and sorted(drawn.tolist()) == list(range(length))


def test_every_permutation_is_as_likely() -> None:
    """24 permutations of 4 numbers: the statistic has mean 23 and deviation 6.8."""
    drawn = [tuple(metaop.randperm(4).tolist()) for _ in range(2400)]
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    assert len(counts) == 24 and ((counts - 100.0) ** 2 / 100).sum() < 60


def test_draws_of_captured_functions_differ() -> None:
    weights = metaop.arange(200.0).reshape(2, 100)

    @metaop.jit
    def draw() -> list[metaop.Tensor]:
        return [metaop.randperm(90), *(metaop.multinomial(weights, 4, r) for r in (False, True))]

    drawn = [[x.tolist() for x in draw()] for _ in range(5)]
    for order, apart, again in drawn:
        assert sorted(order) == list(range(90))
        assert all(len(set(row)) == 4 for row in apart)
        assert all(0 < place < 100 for row in (apart[0], again[0]) for place in row)
    assert len({str(one) for one in drawn}) == 5


def test_bernoulli() -> None:
    x = metaop.bernoulli(metaop.full((COUNT,), 0.3))
    assert set(x.tolist()) == {0.0, 1.0}
    assert_moments(x, 0.3, 0.21)
    assert metaop.bernoulli(metaop.tensor([0.0, 1.0])).tolist() == [0, 1]
    assert_moments(metaop.empty(COUNT).bernoulli_(0.8), 0.8, 0.16)


def test_multinomial() -> None:
    weights = metaop.tensor([1.0, 0.0, 3.0])
    x = metaop.multinomial(weights, COUNT, replacement=True)
    counts = np.bincount(x.numpy(), minlength=3) / COUNT
    np.testing.assert_allclose(counts, [0.25, 0, 0.75], atol=0.02)
    apart = metaop.multinomial(metaop.tensor([[0.0, 1.0, 3.0, 6.0]] * COUNT), 2).numpy()
    first = np.bincount(apart[:, 0], minlength=4) / COUNT
    np.testing.assert_allclose(first, [0, 0.1, 0.3, 0.6], atol=0.02)
    # The second is drawn among what the first has left.
    pairs = np.mean((apart == [3, 2]).all(1))
    np.testing.assert_allclose(pairs, 0.6 * 3 / 4, atol=0.02)
    rows = metaop.multinomial(metaop.ones(4, 5), 5)
    assert all(sorted(row) == [0, 1, 2, 3, 4] for row in rows.tolist())
    with pytest.raises(RuntimeError):
        metaop.multinomial(weights, 3).numpy()
    with pytest.raises(ShapeError, match="not enough"):
        metaop.multinomial(weights, 4)
    for wrong in (-1.0, math.inf, math.nan):
        for replacement in (False, True):
            with pytest.raises(ValueError, match="probability tensor contains"):
                metaop.multinomial(metaop.tensor([wrong, 2.0]), 1, replacement).numpy()
    with pytest.raises(ValueError, match="sum of probabilities"):
        metaop.multinomial(metaop.zeros(3), 1, True).numpy()
    with pytest.raises(ValueError, match="n_sample <= 0"):
        metaop.multinomial(weights, 0)


def test_filling() -> None:
    x = metaop.empty(COUNT)
    assert_moments(x.uniform_(-2, 4), 1, 3)
    assert_moments(x.normal_(5, 2), 5, 4)
    assert_moments(x.exponential_(2.0), 0.5, 0.25)
    assert abs(x.geometric_(0.25).mean().item() - 4) < 0.2
    assert abs(x.cauchy_(1.0, 2.0).median().item() - 1) < 0.2
    assert abs(x.log_normal_(0.0, 0.5).log().mean().item()) < 0.05
    assert metaop.empty(100, dtype=metaop.int64).random_(3).max().item() == 2
    assert metaop.empty(100, dtype=metaop.uint8).random_().max().item() > 127


def test_normal_of_tensors() -> None:
    mean = metaop.arange(4.0)
    x = metaop.normal(mean, metaop.full((4,), 1e-6))
    np.testing.assert_allclose(x.numpy(), mean.numpy(), atol=1e-4)
    assert metaop.normal(0.0, 1.0, (2, 3)).shape == (2, 3)


def test_like_and_gradients() -> None:
    x = metaop.ones(2, 3, dtype=metaop.float64)
    assert metaop.rand_like(x).dtype is metaop.float64
    assert metaop.randn_like(x).shape == (2, 3)
    assert metaop.randn(2, requires_grad=True).is_leaf
    leaf = metaop.ones(3, requires_grad=True)
    assert not metaop.bernoulli(leaf).requires_grad


def test_poisson() -> None:
    assert_moments(metaop.poisson(metaop.full((COUNT,), 3.0)), 3, 3)
