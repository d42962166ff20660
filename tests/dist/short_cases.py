"""Tensors that are shorter than the ranks which share them, through operators of every family."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

import metaop
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, PARTIAL, NdSbp, Split
from metaop.distributed import distribute_tensor

SHAPES = [(1, 3), (3,), (0, 3), (1, 1)]
Operator = Callable[[metaop.Tensor], metaop.Tensor]
functional = metaop.nn.functional


def operators(shape: tuple[int, ...]) -> dict[str, Operator]:
    """What is computed of a tensor of this shape."""
    count = shape[-1]
    weight = metaop.tensor(np.linspace(-1, 1, count * 4).reshape(count, 4))

    def linear(x: metaop.Tensor) -> metaop.Tensor:
        placement = x.device.placement
        whole = (BROADCAST,) * len(placement.shape) if placement else None
        return x @ (weight if placement is None else distribute_tensor(weight, placement, whole))

    return {
        "elementwise": lambda x: metaop.tanh(x * 3 + 1),
        "reduce": lambda x: x.sum(0) * x.mean(-1, keepdim=True),
        "softmax": lambda x: functional.softmax(x, -1),
        "matmul": linear,
        "reindex": lambda x: metaop.cat([x[:1], x * 2]).reshape(-1),
    }


def states(shape: tuple[int, ...], mesh: tuple[int, ...]) -> list[NdSbp]:
    """The ways in which a tensor may lie on a mesh that leave some rank nothing, and some more."""
    if len(mesh) == 1:
        return [(PARTIAL,), *((Split(axis),) for axis in range(len(shape)))]
    first = Split(0)
    return [(first, first), (first, PARTIAL), (BROADCAST, first), (first, Split(len(shape) - 1))]


def check_shape(shape: tuple[int, ...], placement: Placement) -> None:
    """Every operator, from every state: values and gradients as on one device; every change."""
    value = np.arange(1, 1 + np.prod(shape)).reshape(shape) / 4
    ways = states(shape, placement.shape)
    for name, function in operators(shape).items():
        local = metaop.tensor(value, requires_grad=True)
        expected = function(local)
        factor = np.cos(np.arange(expected.numel())).reshape(tuple(expected.shape))
        (expected * metaop.tensor(factor)).sum().backward()
        for lie in ways:
            x = distribute_tensor(metaop.tensor(value), placement, lie).requires_grad_()
            found = function(x)
            whole = (BROADCAST,) * len(lie)
            (found * distribute_tensor(metaop.tensor(factor), placement, whole)).sum().backward()
            what = f"{name} of {shape} as {lie} on {placement.shape}"
            _compare(found, expected, what)
            _compare(x.grad, local.grad, f"gradient of {what}")
    for source, target in product(ways, [*ways, (BROADCAST,) * len(ways[0])]):
        x = distribute_tensor(metaop.tensor(value), placement, source)
        moved = x.to_global(sbp=target)
        _compare(moved, metaop.tensor(value), f"{source} -> {target}")


def _compare(found: metaop.Tensor, expected: metaop.Tensor, what: str) -> None:
    actual = found.detach().full_tensor().numpy()
    np.testing.assert_allclose(actual, expected.detach().numpy(), rtol=1e-9, err_msg=what)
