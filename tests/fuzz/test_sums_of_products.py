"""Random sums of products that are large enough for packed schedules, against float64.

Einstein sums over inputs whose axes lie in another order in memory, and convolutions with their
gradients. `METAOP_FUZZ_COUNT` and `METAOP_FUZZ_SEED` are those of the random programs; a fifth as
many cases of each sort run here.
"""

from __future__ import annotations

import string

import numpy as np
import pytest

import metaop
from tests.fuzz.test_programs import COUNT, FIRST_SEED

SEEDS = range(FIRST_SEED, FIRST_SEED + -(-COUNT // 5))
torch = pytest.importorskip("torch")


def turned(random: np.random.Generator, sizes: tuple[int, ...]) -> metaop.Tensor:
    """Random numbers of a shape whose axes lie in a random order in memory."""
    order = random.permutation(len(sizes))
    stored = random.standard_normal([sizes[k] for k in order]).astype(np.float32)
    return metaop.from_numpy(stored).permute(*(int(k) for k in np.argsort(order)))


@pytest.mark.parametrize("seed", SEEDS)
def test_einstein_sums(seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = random.integers(0, 2), *random.integers(1, 3, 3)
    letters = iter(string.ascii_lowercase)
    batch, rows, columns, depth = ("".join(next(letters) for _ in range(n)) for n in counts)
    extents = dict(zip(batch + rows + columns + depth, random.integers(2, 20, 26)))

    def shuffled(text: str) -> str:
        return "".join(random.permutation(list(text)))

    left, right = shuffled(batch + rows + depth), shuffled(batch + columns + depth)
    formula = f"{left},{right}->{shuffled(batch + rows + columns)}"
    tensors = [turned(random, tuple(int(extents[c]) for c in text)) for text in (left, right)]
    tensors = [tensor.requires_grad_() for tensor in tensors]
    arrays = [tensor.detach().numpy().astype(np.float64) for tensor in tensors]
    found = metaop.einsum(formula, *tensors)
    wanted = np.einsum(formula, *arrays, optimize=True)
    compare(formula, found.detach().numpy(), wanted)
    seen = random.standard_normal(wanted.shape).astype(np.float32)
    gradients = metaop.autograd.grad(found, tensors, metaop.from_numpy(seen))
    result = formula[-wanted.ndim :]
    expected = (
        np.einsum(f"{result},{right}->{left}", seen.astype(np.float64), arrays[1], optimize=True),
        np.einsum(f"{result},{left}->{right}", seen.astype(np.float64), arrays[0], optimize=True),
    )
    for gradient, one in zip(gradients, expected):
        compare(formula, gradient.numpy(), one)


@pytest.mark.parametrize("seed", SEEDS)
def test_convolutions(seed: int) -> None:
    random = np.random.default_rng(seed)
    rank = int(random.integers(1, 4))
    groups = int(random.choice([1, 1, 2, 3]))
    inputs, outputs = (groups * int(n) for n in random.integers(1, 9, 2))
    window = tuple(int(n) for n in random.choice([1, 2, 3, 3, 5], rank))
    stride, dilation = (tuple(int(n) for n in random.integers(1, 3, rank)) for _ in range(2))
    padding = tuple(int(random.integers(0, n)) for n in window)
    image = tuple(
        int(random.integers(dilation[k] * (window[k] - 1) + 1, (40, 24, 10)[rank - 1] + 6))
        for k in range(rank)
    )
    is_transposed = bool(random.integers(0, 2))
    channels = (inputs, outputs // groups) if is_transposed else (outputs, inputs // groups)
    name = f"conv_transpose{rank}d" if is_transposed else f"conv{rank}d"
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x = turned(random, (int(random.integers(1, 5)), inputs, *image)).requires_grad_()
    w = turned(random, (*channels, *window)).requires_grad_()
    bias = turned(random, (outputs,)).requires_grad_()
    ours = [x, w, bias]
    theirs = [
        torch.tensor(t.detach().numpy(), dtype=torch.float64, requires_grad=True) for t in ours
    ]
    case = f"{name} {tuple(x.shape)} {tuple(w.shape)} {options}"
    wanted = getattr(torch.nn.functional, name)(*theirs, **options)
    if wanted.numel() == 0:
        pytest.skip("no results")
    found = getattr(metaop.nn.functional, name)(*ours, **options)
    compare(case, found.detach().numpy(), wanted.detach().numpy())
    seen = random.standard_normal(tuple(wanted.shape)).astype(np.float32)
    gradients = metaop.autograd.grad(found, ours, metaop.from_numpy(seen))
    expected = torch.autograd.grad(wanted, theirs, torch.from_numpy(seen).double())
    for gradient, one in zip(gradients, expected):
        compare(case, gradient.numpy(), one.numpy())


def compare(case: str, found: np.ndarray, wanted: np.ndarray) -> None:
    """Rounding is relative to the largest value; short products have five times as much."""
    assert found.shape == wanted.shape, case
    error = np.abs(found - wanted).max(initial=0) / max(np.abs(wanted).max(initial=0), 1e-3)
    assert error < 2e-5, f"{case}: {error:.1e}"
