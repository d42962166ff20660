"""Hooks of `grad_fn`: the gradients that they see and replace are PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metaop

torch = pytest.importorskip("torch")

Library = Any
Log = list[Any]


def _shown(gradients: Any) -> list[Any]:
    return [None if x is None else x.tolist() for x in gradients]


def one_output(library: Library) -> Log:
    seen: Log = []
    x = library.tensor([1.0, 2.0], requires_grad=True)
    w = library.tensor([3.0, 4.0], requires_grad=True)
    y = x * w
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 10,))

    def doubled(inputs: Any, outputs: Any) -> Any:
        seen.append((_shown(inputs), _shown(outputs)))
        return inputs[0] * 2, inputs[1]

    handle = y.grad_fn.register_hook(doubled)
    y.exp().sum().backward(retain_graph=True)
    seen.append(_shown([x.grad, w.grad]))
    handle.remove()
    x.grad = w.grad = None
    y.sum().backward()
    return [*seen, _shown([x.grad, w.grad])]


def a_leaf(library: Library) -> Log:
    seen: Log = []
    x = library.ones(2, requires_grad=True)
    leaf = x.expand_as(x).grad_fn.next_functions[0][0]
    leaf.register_prehook(lambda outputs: (outputs[0] + 1,))
    leaf.register_hook(
        lambda inputs, outputs: seen.append((_shown(inputs), _shown(outputs), x.grad.tolist()))
    )
    (3 * x).sum().backward()
    return seen


def several_outputs(library: Library) -> Log:
    seen: Log = []
    x = library.tensor([[1.0, 3.0], [4.0, 2.0]], requires_grad=True)
    largest, _ = x.max(1)
    largest.grad_fn.register_prehook(lambda outputs: (outputs[0] * 5, *outputs[1:]))
    largest.grad_fn.register_hook(lambda inputs, outputs: seen.append(_shown(inputs)))
    largest.sum().backward()
    return [*seen, x.grad.tolist()]


def a_function_of_the_user(library: Library) -> Log:
    class Both(library.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a * b, a + b

        @staticmethod
        def backward(ctx: Any, product: Any, total: Any) -> Any:
            return product + total, total

    seen: Log = []
    x = library.ones(2, requires_grad=True)
    product, total = Both.apply(x, x * 2)
    product.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 7, inputs[1]))
    total.grad_fn.register_prehook(lambda outputs: seen.append(_shown(outputs)))
    (product.sum() + 3 * total.sum()).backward()
    return [*seen, x.grad.tolist()]


def asked_for(library: Library) -> Log:
    """The gradient of a tensor itself is taken before the hooks of its `grad_fn`."""
    x = library.ones(2, requires_grad=True)
    y = x * 2
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 2,))
    own = library.autograd.grad((y * 3).sum(), y, retain_graph=True)
    return _shown([*own, *library.autograd.grad((y * 3).sum(), x)])


@pytest.mark.parametrize(
    "program", [one_output, a_leaf, several_outputs, a_function_of_the_user, asked_for]
)
def test_hooks_see_and_replace_what_pytorchs_do(program: Callable[[Library], Log]) -> None:
    assert program(metaop) == program(torch)
