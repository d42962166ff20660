"""Hooks that wait for the gradients of several tensors are called as PyTorch's are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metaop

torch = pytest.importorskip("torch")

Library = Any
Log = list[Any]


def _shown(gradient: Any) -> Any:
    return None if gradient is None else gradient.tolist()


def _hook(library: Library, tensors: Any, seen: Log) -> Any:
    def gathered(gradients: Any) -> None:
        seen.append([_shown(gradient) for gradient in gradients])

    return library.autograd.graph.register_multi_grad_hook(tensors, gathered)


def several_passes(library: Library) -> Log:
    seen: Log = []
    a = library.tensor([1.0, 2.0], requires_grad=True)
    b = library.tensor([3.0, 4.0], requires_grad=True)
    product, total = a * b, a + b
    handle = _hook(library, (a, b, product, total), seen)
    product.sum().backward(retain_graph=True)
    product.sum().backward(inputs=(a,), retain_graph=True)
    (product * total).sum().backward(retain_graph=True)
    handle.remove()
    product.sum().backward()
    return seen


def the_first_gradient(library: Library) -> Log:
    seen: Log = []
    x = library.ones(2, requires_grad=True)
    y = x * 3
    hook = library.autograd.graph.register_multi_grad_hook
    handle = hook((x, library.ones(1), y), lambda one: seen.append(_shown(one)), mode="any")
    y.sum().backward(retain_graph=True)
    (x * 2).sum().backward()
    with handle:
        pass
    y.sum().backward()
    return seen


def none_from_a_function(library: Library) -> Log:
    class First(library.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient, None

    seen: Log = []
    a, b = (library.ones(1, requires_grad=True) for _ in range(2))
    _hook(library, (a, doubled := b * 2), seen)
    First.apply(a, doubled).backward()
    return seen


def in_a_checkpoint(library: Library) -> Log:
    """The parameter has its gradient from within the checkpoint and from outside of it."""
    seen: Log = []
    weight = library.tensor([0.5, 1.0], requires_grad=True)
    _hook(library, (weight, weight), seen)
    half = library.utils.checkpoint.checkpoint(
        lambda x: x * weight, weight * 2, use_reentrant=False
    )
    (half * weight).sum().backward()
    return seen


@pytest.mark.parametrize(
    "program", [several_passes, the_first_gradient, none_from_a_function, in_a_checkpoint]
)
def test_hooks_of_several_tensors_see_what_pytorchs_do(program: Callable[[Library], Log]) -> None:
    found = program(metaop)
    assert found
    assert found == program(torch)


def test_a_pass_within_a_hook_is_apart() -> None:
    seen: Log = []
    x = metaop.ones(1, requires_grad=True)
    y = x * 3
    _hook(metaop, (x, y), seen)

    def another(gradient: Any) -> None:
        with metaop.enable_grad():
            (metaop.ones(1, requires_grad=True) * 2).backward()

    y.register_hook(another)
    y.backward()
    assert seen == [[[3.0], [1.0]]]


def test_a_pass_that_failed_leaves_nothing() -> None:
    seen: Log = []
    x = metaop.ones(1, requires_grad=True)
    y = x * 3
    _hook(metaop, (x, y), seen)

    def failing(gradient: Any) -> None:
        raise KeyError("failed")

    handle = y.register_hook(failing)
    with pytest.raises(KeyError):
        y.backward(retain_graph=True)
    handle.remove()
    y.backward()
    assert seen == [[[3.0], [1.0]]]


def test_functions_of_gradients_are_nodes() -> None:
    x = metaop.ones(1, requires_grad=True)
    assert isinstance((x * 2).grad_fn, metaop.autograd.graph.Node)
    with pytest.raises(ValueError, match="mode to be one of"):
        metaop.autograd.graph.register_multi_grad_hook((x,), print, mode="both")
