"""Random formulas whose values are read in several places of a program: all see the same number.

A formula minus itself is exactly 0, wherever its elements come from. `METAOP_FUZZ_COUNT` and
`METAOP_FUZZ_SEED` are those of the random programs; a tenth of them run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import metaop
from metaop import Tensor
from metaop.nn import functional as F
from tests.fuzz.test_programs import COUNT, FIRST_SEED

FORMULAS: Sequence[Callable[[Tensor, Tensor], Tensor]] = (
    lambda x, y: x * y,
    lambda x, y: x * y + x,
    lambda x, y: x - y * x,
    lambda x, y: x * 0.3 + y,
    lambda x, y: F.silu(x) * y,
    lambda x, y: x * y.sum(1, keepdim=True) * 0.1,
    lambda x, y: x.tanh() * y - x,
    lambda x, y: F.gelu(x) + y * y,
)
# What is 0 for every tensor of two dimensions.
NOTHING: dict[str, Callable[[Tensor], Tensor]] = {
    "argmax": lambda x: (x - x.gather(-1, x.argmax(-1, keepdim=True))).amax(-1),
    "amax": lambda x: (x - x.amax(-1, keepdim=True)).amax(-1),
    "detach": lambda x: x - x.detach(),
    "flip": lambda x: x - x.flip(0).flip(0),
    "sort": lambda x: x.sort(-1).values[:, -1] - x.amax(-1),
    "copy": lambda x: x.t().contiguous().t() - x,
    "cat": lambda x: metaop.cat([x, x])[len(x) :] - x,
    "index": lambda x: x[metaop.arange(len(x))] - x,
    "roll": lambda x: x.roll(1, 1).roll(-1, 1) - x,
    "products": lambda x: x * (x + 1) - (x.flip(0).flip(0) + 1) * x,
    "imaginary": lambda x: (metaop.complex(x, x + 1) * metaop.complex(x, x + 1).conj()).imag,
}
# Functions of one class of scores; all are 0, and so are their gradients of any order.
CERTAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "log_softmax": lambda x: x.log_softmax(1),
    "cross_entropy": lambda x: F.cross_entropy(x, metaop.zeros(len(x), dtype=metaop.long)),
    "softmax": lambda x: x.softmax(1) - 1,
    "mean": lambda x: x.mean(1) - x[:, 0],
}


def formula(random: np.random.Generator, depth: int, leaves: Sequence[Tensor]) -> Tensor:
    if depth == 0:
        return leaves[random.integers(len(leaves))]
    x = formula(random, depth - 1, leaves)
    y = formula(random, int(random.integers(depth)), leaves)
    return FORMULAS[random.integers(len(FORMULAS))](x, y)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + COUNT // 10))
def test_a_value_is_one_number_in_all_places(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = int(random.integers(1, 9)), int(random.choice([1, 3, 8, 17, 37]))

    def numbers(*sizes: int) -> Tensor:
        return metaop.tensor(random.standard_normal(sizes).astype("f"))

    leaves = [numbers(*shape) for _ in range(3)]
    if random.random() < 0.5:
        leaves.append(F.linear(leaves[0], numbers(shape[1], shape[1]), leaves[1][0]))
    x = formula(random, int(random.integers(1, 5)), leaves)
    kept = x if random.random() < 0.4 else None
    for name in random.permutation(list(NOTHING))[:4]:
        assert not NOTHING[name](x).any(), name
    del kept


@pytest.mark.parametrize("name", CERTAIN)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + max(1, COUNT // 50)))
def test_what_is_certain_has_no_gradients(seed: int, name: str) -> None:
    random = np.random.default_rng(seed)
    leaves = [
        metaop.tensor(random.standard_normal((5, 1)).astype("f"), requires_grad=True)
        for _ in range(3)
    ]
    scores = formula(random, int(random.integers(1, 4)), leaves) + sum(leaves)
    loss = (CERTAIN[name](scores) * 0.3).sum()
    slopes = metaop.autograd.grad(loss, leaves, create_graph=True)
    slope = sum((one * leaf.detach()).sum() for one, leaf in zip(slopes, leaves))
    assert not loss.detach()
    (loss + 0.1 * slope).backward()
    for one, leaf in zip(slopes, leaves):
        assert not one.detach().any()
        assert leaf.grad is not None
        assert not leaf.grad.any()
