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
