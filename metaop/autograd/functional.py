"""Derivatives of functions: `jacobian`, `hessian`, and products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.autograd.gradients import grad, listed
from metaop.autograd.mapping import vmap
from metaop.errors import ArgumentError, GradientError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.complex_numbers import inner_product
from metaop.tensor.functions.creation import ones_like, zeros_like
from metaop.tensor.functions.ranges import eye
from metaop.tensor.grad_mode import enable_grad

Result = Any


def _leaves(inputs: Any, create_graph: bool) -> list[Tensor]:
    """The inputs as tensors of their own that track gradients."""
    if create_graph:
        return [
            x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in listed(inputs)
        ]
    return [x.detach().clone().requires_grad_() for x in listed(inputs)]


def _run(func: Callable[..., Any], inputs: Any, create_graph: bool) -> tuple[list, list, bool]:
    leaves = _leaves(inputs, create_graph)
    outputs = func(*leaves)
    return leaves, listed(outputs), isinstance(outputs, Tensor)


def _gradient(
    output: Tensor, leaves: list[Tensor], weight: Tensor, create_graph: bool, strict: bool
) -> list[Tensor]:
    """One gradient per leaf; zeros where nothing flows, which is an error when `strict`."""
    if not output.requires_grad:
        if strict:
            raise GradientError("the output of the function is independent of the inputs")
        return [zeros_like(x) for x in leaves]
    found = grad(output, leaves, weight, True, create_graph, allow_unused=True)
    if strict and any(gradient is None for gradient in found):
        raise GradientError("the output of the function is independent of one of the inputs")
    return [zeros_like(x) if g is None else g for g, x in zip(found, leaves)]


def _as_given(values: list[Any], single: bool) -> Any:
    return values[0] if single else tuple(values)


def _check_strategy(strategy: str, vectorize: bool) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ArgumentError(
            f"there is no strategy {strategy!r}", fix='use "reverse-mode" or "forward-mode"'
        )
    if strategy == "forward-mode" and not vectorize:
        raise ArgumentError("forward-mode without vectorize=True", fix="pass vectorize=True")


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Result:
    """The derivative of every output element by every input element: (*output, *input) each.

    Nested tuples (outputs, then inputs) when there are several. `vectorize` and `strategy` say how
    PyTorch finds the same numbers. Raises ArgumentError for a strategy that there is not.
    """
    _check_strategy(strategy, vectorize)
    with enable_grad():
        leaves, outputs, single = _run(func, inputs, create_graph)
        rows = [_jacobian_of(y, leaves, create_graph, strict) for y in outputs]
    one_input = isinstance(inputs, Tensor)
    return _as_given([_as_given(row, one_input) for row in rows], single)


def _jacobian_of(
    output: Tensor, leaves: list[Tensor], create_graph: bool, strict: bool
) -> list[Tensor]:
    flat = output.reshape(-1)

    def row(weight: Tensor) -> list[Tensor]:
        return _gradient(flat, leaves, weight, create_graph, strict)

    rows = vmap(row)(eye(flat.shape[0], dtype=flat.dtype, device=flat.device))
    return [found.reshape((*output.shape, *leaf.shape)) for found, leaf in zip(rows, leaves)]


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Result:
    """The second derivatives of a function with one output element.

    Raises ArgumentError for an `outer_jacobian_strategy` that there is not.
    """
    _check_strategy(outer_jacobian_strategy, vectorize)
    one_input = isinstance(inputs, Tensor)

    def slope(*leaves: Tensor) -> tuple[Tensor, ...]:
        output = func(*leaves)
        if output.numel() != 1:
            raise GradientError("hessian takes a function with a single element as output")
        value = output.reshape(())
        return tuple(_gradient(value, list(leaves), ones_like(value), True, strict))

    rows = jacobian(slope, tuple(listed(inputs)), create_graph, strict)
    return rows[0][0] if one_input else rows


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs, and the gradients of the inputs for cotangents `v` of the outputs."""
    with enable_grad():
        leaves, outputs, single = _run(func, inputs, create_graph)
        weights = [ones_like(y) for y in outputs] if v is None else listed(v)
        total = [zeros_like(x) for x in leaves]
        for y, weight in zip(outputs, weights):
            found = _gradient(y, leaves, weight, create_graph, strict)
            total = [a + b for a, b in zip(total, found)]
    values = outputs if create_graph else [y.detach() for y in outputs]
    return _as_given(values, single), _as_given(total, isinstance(inputs, Tensor))


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs, and their derivatives along the direction `v` in the inputs.

    Computed as the gradient, by the cotangent, of the reverse product: that is linear in it.
    """
    with enable_grad():
        leaves, outputs, single = _run(func, inputs, create_graph)
        directions = [ones_like(x) for x in leaves] if v is None else listed(v)
        results = []
        for y in outputs:
            weight = zeros_like(y).requires_grad_()
            slopes = _gradient(y, leaves, weight, True, strict)
            total = inner_product(zip(slopes, directions))
            results.append(_gradient(total, [weight], ones_like(total), create_graph, strict)[0])
    values = outputs if create_graph else [y.detach() for y in outputs]
    return _as_given(values, single), _as_given(results, single)


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The output, and the product of a vector with the hessian of a single-element function."""
    with enable_grad():
        leaves, outputs, _ = _run(func, inputs, create_graph)
        slopes = _gradient(outputs[0], leaves, ones_like(outputs[0]), True, strict)
        directions = [ones_like(x) for x in leaves] if v is None else listed(v)
        total = inner_product(zip(slopes, directions))
        found = _gradient(total, leaves, ones_like(total), create_graph, strict)
    value = outputs[0] if create_graph else outputs[0].detach()
    return value, _as_given(found, isinstance(inputs, Tensor))


hvp = vhp
