"""Gradient clipping."""

from __future__ import annotations

import math
from typing import Any

from metaop.elementwise.meta_op import apply, cast
from metaop.errors import ArgumentError, GradientError, UnsupportedError
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex.views import reshape
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.creation import tensor
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.sharded.global_tensor import full_tensor
from metaop.tensor.shared_storage import settle
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import promote
from metaop.unified_graph.node import Node
from metaop.unified_graph.recording import part, record, scalar_leaf
from metaop.unified_graph.tensor_type import Device


def _norm(values: list[Node], norm_type: float) -> Node:
    """The norm over all elements of several tensors."""
    parts = []
    for value in values:
        size = apply("abs", cast(value, value.dtype.compute))
        if norm_type == 2:
            size = size * size
        elif norm_type == 0:
            size = cast(size.differs(0), size.dtype)
        elif not math.isinf(norm_type):
            size = size**norm_type
        parts.append(size)
    reducer = "add" if not math.isinf(norm_type) else "max" if norm_type > 0 else "min"
    combine = {"add": "add", "max": "maximum", "min": "minimum"}[reducer]
    total = reduce_axes(reducer, reshape(parts[0], (parts[0].size,)), (0,))
    for size in parts[1:]:
        total = apply(combine, total, reduce_axes(reducer, reshape(size, (size.size,)), (0,)))
    if norm_type == 2:
        return apply("sqrt", total)
    return total if norm_type == 0 or math.isinf(norm_type) else total ** (1.0 / norm_type)


@composite(variadic=True)
def total_norm(inputs: tuple[Node, ...], norm_type: float) -> Node:
    """The norm of several tensors as if they were one vector."""
    return _norm(list(inputs), norm_type)


@composite(variadic=True, differentiable=False)
def scale_to_norm(inputs: tuple[Node, ...]) -> tuple[Node, ...]:
    """Scales gradients to a norm; inputs are the gradients, their norm and the maximum norm."""
    *gradients, norm, limit = inputs
    factor = apply("clamp_max", limit / (norm + 1e-6), 1.0)
    kinds = [promote(g.dtype, factor.dtype) for g in gradients]
    return tuple(cast(cast(g, kind) * factor, g.dtype) for g, kind in zip(gradients, kinds))


def _gradients(parameters: Any) -> list[Tensor]:
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    found = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if any(gradient.is_sparse for gradient in found):
        raise UnsupportedError(
            "gradient clipping needs dense gradients, got a sparse one",
            fix="exclude the parameters of embeddings with sparse=True",
        )
    return found


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of several tensors as if they were one vector; their shapes may differ.

    Of tensors on several devices, or meshes, it is a local number in host memory. Raises
    GradientError for a norm that is not finite, if `error_if_nonfinite`.

    >>> nn.utils.get_total_norm([metaop.tensor([3.0]), metaop.tensor([[4.0]])])
    tensor(5.)
    """
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return tensor(0.0)
    if norm_type < 0 and not math.isinf(norm_type):
        raise ArgumentError(f"norm_type {norm_type} must not be negative", fix="use 2 or inf")
    norms = [
        wrap(record(total_norm, [one.call for one in group], (float(norm_type),)))
        for group in _by_device(tensors)
    ]
    norm = norms[0] if len(norms) == 1 else _joined(norms, float(norm_type))
    if error_if_nonfinite and not math.isfinite(norm.item()):
        raise GradientError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            "so it cannot be clipped.",
            fix="pass error_if_nonfinite=False to scale the gradients by it anyway",
        )
    return norm


def _by_device(tensors: list[Tensor]) -> list[list[Tensor]]:
    groups: dict[Device, list[Tensor]] = {}
    for one in tensors:
        groups.setdefault(one.device, []).append(one)
    return list(groups.values())


def _joined(norms: list[Tensor], norm_type: float) -> Tensor:
    """The norm of vectors of which these are the norms, on several devices."""
    local = [one if one.device.placement is None else full_tensor(one) for one in norms]
    # Of order 0 they are counts, which are added.
    return wrap(record(total_norm, [one.cpu().call for one in local], (norm_type or 1.0,)))


@no_grad()
def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales gradients by max_norm / total_norm when that is below 1; shapes are unchanged.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> layer.weight.grad = metaop.tensor([[3.0, 4.0]])
    >>> nn.utils.clip_grads_with_norm_(layer.parameters(), 2.5, metaop.tensor(5.0))
    >>> layer.weight.grad
    tensor([[1.5000, 2.0000]])
    """
    gradients = _gradients(parameters)
    if not gradients:
        return
    for group in _by_device(gradients):
        device, norm = group[0].device, total_norm.call
        if total_norm.device is not device:
            norm = scalar_leaf(total_norm.item(), total_norm.dtype, device)
        limit = scalar_leaf(float(max_norm), total_norm.dtype, device)
        scaled = record(scale_to_norm, [*(one.call for one in group), norm, limit])
        for position, gradient in enumerate(group):
            gradient._assign(part(scaled, position), "clip_grad_norm_")
    settle()


@no_grad()
def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales all gradients together so that their norm is at most `max_norm`; shapes are unchanged.

    Returns the norm before scaling.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> layer.weight.grad = metaop.tensor([[3.0, 4.0]])
    >>> nn.utils.clip_grad_norm_(layer.parameters(), 2.5)
    tensor(5.)
    >>> layer.weight.grad
    tensor([[1.5000, 2.0000]])
    """
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    norm = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


clip_grad_norm = clip_grad_norm_


@no_grad()
def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Clamps every gradient element to [-clip_value, clip_value]; shapes are unchanged.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> layer.weight.grad = metaop.tensor([[3.0, -4.0]])
    >>> nn.utils.clip_grad_value_(layer.parameters(), 1.0)
    >>> layer.weight.grad
    tensor([[ 1., -1.]])
    """
    for gradient in _gradients(parameters):
        gradient.clamp_(-float(clip_value), float(clip_value))
