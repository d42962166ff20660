"""Tensors that are written outside the tape between forward and backward have one gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")


def by_hand(T: Any, leaf: Any) -> None:
    with T.no_grad():
        leaf.mul_(2)


def by_data(T: Any, leaf: Any) -> None:
    leaf.data = leaf.data * 2


def by_an_optimizer(T: Any, leaf: Any) -> None:
    T.optim.SGD([leaf], lr=0.5).step()


WRITES: dict[str, Callable[[Any, Any], None]] = {
    "by hand": by_hand,
    "data": by_data,
    "optimizer": by_an_optimizer,
}


def of_grad(T: Any, value: Any, leaf: Any, other: Any) -> list[Any]:
    return list(T.autograd.grad(value, [leaf, other]))


def of_inputs(T: Any, value: Any, leaf: Any, other: Any) -> list[Any]:
    leaf.grad = other.grad = None
    value.backward(inputs=[leaf])
    return [leaf.grad, float(other.grad is None)]


def of_hooks(T: Any, value: Any, leaf: Any, other: Any) -> list[Any]:
    """A hook sees the whole gradient, once."""
    leaf.grad, seen = None, []
    leaf.register_hook(lambda gradient: gradient.clamp(-1.5, 1.5))
    leaf.register_post_accumulate_grad_hook(lambda parameter: seen.append(1.0))
    value.backward()
    return [leaf.grad, other.grad, len(seen)]


WAYS = {"grad": of_grad, "inputs": of_inputs, "hooks": of_hooks}


def before_and_after(T: Any, leaf: Any, other: Any, write: Callable[[Any, Any], None]) -> Any:
    first = ((leaf + other) * other).sum()
    leaf.grad = leaf.detach() * 0.1
    write(T, leaf)
    return first + (leaf * leaf * other.tanh()).sum()


def checkpointed(T: Any, leaf: Any, other: Any, write: Callable[[Any, Any], None]) -> Any:
    """A part that is computed again with what the leaf holds then."""
    part = T.utils.checkpoint.checkpoint(
        lambda x: (x * leaf).tanh(), other * 0.5, use_reentrant=False
    )
    leaf.grad = leaf.detach() * 0.1
    write(T, leaf)
    return part.square().sum()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("model", [before_and_after, checkpointed], ids=lambda one: one.__name__)
def test_gradient_of_a_written_leaf(model: Any, write: str, way: str) -> None:
    found = []
    for T in (metaop, torch):
        numbers = T.tensor([0.7, -0.4, 1.3], dtype=T.float64), T.tensor([0.2, 0.9, -1.1])
        leaf, other = (x.double().requires_grad_() for x in numbers)
        value = model(T, leaf, other, WRITES[write])
        results = WAYS[way](T, value, leaf, other)
        found.append([np.array(x.tolist() if hasattr(x, "tolist") else x) for x in results])
    for actual, wanted in zip(*found):
        np.testing.assert_allclose(actual, wanted, rtol=1e-12)


def layer(T: Any, x: Any) -> Any:
    """A value that is read, written outside the tape, and read again; and what came of it."""
    y = x * 2
    y.retain_grad()
    first = (y + 1).sum()
    by_hand(T, y)
    return y, first + (y * y).sum()


RESULTS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "grad": lambda T, x: (lambda y, value: [T.autograd.grad(value, y)[0]])(*layer(T, x)),
    "retained": lambda T, x: (lambda y, value: [value.backward(), y.grad, x.grad][1:])(
        *layer(T, x)
    ),
    "grad of both": lambda T, x: (lambda y, value: list(T.autograd.grad(value, [y, x])))(
        *layer(T, x)
    ),
}


@pytest.mark.parametrize("way", RESULTS)
def test_gradient_of_a_written_value(way: str) -> None:
    found = []
    for T in (metaop, torch):
        x = T.tensor([0.7, -0.4, 1.3], requires_grad=True)
        found.append([one.tolist() for one in RESULTS[way](T, x)])
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_hooks_of_a_written_value() -> None:
    """They see the whole gradient, wherever they were registered; retained ones move on."""

    def seen(T: Any) -> list[Any]:
        x, found = T.tensor([0.7, -0.4, 1.3], requires_grad=True), []
        y = x * 2
        y.register_hook(lambda gradient: found.append(gradient.tolist()))
        value = (y + 1).sum()
        by_hand(T, y)
        y.register_hook(lambda gradient: gradient.clamp(-2.5, 2.5))
        y.retain_grad()
        value = value + y.exp().sum()
        y.mul_(3)
        y.register_hook(lambda gradient: found.append(gradient.tolist()))
        (value + y.sum() * 0.1).backward()
        return [*found, x.grad.tolist(), y.grad.tolist()]

    np.testing.assert_allclose(seen(metaop), seen(torch), rtol=1e-6)
