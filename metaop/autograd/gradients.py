"""`grad` and `backward` of several tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from metaop.autograd.mapping import vmap
from metaop.differentiation import tape
from metaop.errors import ArgumentError, GradientError
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import zeros_like
from metaop.tensor.gradients import run_backward, start_of
from metaop.tensor.sparse.tensors import wrap_gradient

Tensors = Tensor | Sequence[Tensor]


def listed(tensors: Any) -> list[Any]:
    """One tensor, several, or None as a list."""
    if tensors is None:
        return []
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _starts(outputs: list[Tensor], given: Any) -> list[Any]:
    gradients = [None] * len(outputs) if given is None else listed(given)
    if len(gradients) != len(outputs):
        raise ArgumentError(f"got {len(outputs)} tensors and {len(gradients)} gradients")
    return start_of(outputs, gradients)


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Adds the gradients of the sum of `tensors`, weighted by `grad_tensors`, to the leaves.

    A weight has the shape of its tensor, and may be left out where that is one number. Without
    `retain_graph` what backward needs is let go.

    >>> x = metaop.tensor([1.0, 2.0], requires_grad=True)
    >>> metaop.autograd.backward([x**2], [metaop.ones(2)])
    >>> x.grad
    tensor([2., 4.])
    """
    roots = _starts(listed(tensors), grad_tensors)
    run_backward(roots, retain_graph, create_graph, inputs)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of `outputs` (weighted by `grad_outputs`) by `inputs`.

    Nothing is accumulated in `.grad`. Inputs that the outputs do not depend on are an error
    unless `allow_unused` (None for them) or `materialize_grads` (zeros). With `is_grads_batched`
    the first dimension of `grad_outputs` counts separate gradients. `only_inputs=False` is ignored
    with a warning, as in PyTorch.

    >>> x = metaop.tensor(3.0, requires_grad=True)
    >>> (slope,) = metaop.autograd.grad(x**2, x, create_graph=True)
    >>> slope.item(), metaop.autograd.grad(slope, x)[0].item()
    (6.0, 2.0)
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs=False is ignored: use autograd.backward to accumulate other gradients",
            FutureWarning,
            stacklevel=2,
        )
    results, sources = listed(outputs), listed(inputs)
    retain = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched(results, sources, listed(grad_outputs), retain, create_graph, allow_unused)
    for source in sources:
        if not source.requires_grad:
            raise GradientError(
                "One of the differentiated Tensors does not require grad",
                fix="call requires_grad_() on it before the computation",
            )
    roots = _starts(results, grad_outputs)
    calls = [source.call for source in sources]
    found = tape.backward(
        roots, retain_graph=retain, create_graph=create_graph, targets=calls, accumulate=False
    )
    gradients = [wrap_gradient(found[call]) if call in found else None for call in calls]
    if materialize_grads:
        return tuple([zeros_like(x) if g is None else g for x, g in zip(sources, gradients)])
    if not allow_unused and any(gradient is None for gradient in gradients):
        raise GradientError(
            "One of the differentiated Tensors appears to not have been used in the graph",
            fix="set allow_unused=True if this is the desired behavior",
        )
    return tuple(gradients)


def _batched(
    outputs: list[Tensor],
    inputs: list[Tensor],
    weights: list[Tensor],
    retain: bool,
    create_graph: bool,
    allow_unused: bool | None,
) -> tuple[Tensor | None, ...]:
    used: list[bool] = []

    def one(*row: Tensor) -> list[Tensor]:
        options = {"create_graph": create_graph, "allow_unused": allow_unused}
        found = grad(outputs, inputs, row, True, **options)  # type: ignore[arg-type]
        used[:] = [gradient is not None for gradient in found]
        return [gradient for gradient in found if gradient is not None]

    found = iter(vmap(one, randomness="different")(*weights))
    if not retain:
        # Recorded and never computed: it frees what the graph has saved.
        grad(outputs, inputs, [weight[0] for weight in weights], False, allow_unused=True)
    return tuple([next(found) if there else None for there in used])
