"""Gradients as users ask for them: `backward`, `requires_grad_`, hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from metaop.differentiation import tape
from metaop.differentiation.entries import Cotangent, TapeEntry
from metaop.differentiation.tape import origin
from metaop.errors import GradientError, ShapeError
from metaop.operators.basic import constant_fill, filled
from metaop.tensor import history
from metaop.tensor.core import Tensor
from metaop.tensor.grad_fn import GradFn
from metaop.tensor.handles import HandleInList, RemovableHandle
from metaop.tensor.sparse.tensors import cotangent_of_gradient, wrap_gradient
from metaop.tensor.surface import attribute, method, public
from metaop.unified_graph.cut import recorder
from metaop.unified_graph.recording import Call, meeting, modes, record, scalar_leaf
from metaop.unified_graph.tensor_type import CPU


def ones_like_call(call: Call) -> Call:
    """A recorded tensor of ones of the type of `call`."""
    kind = call.type
    if kind.device is not CPU:
        one = scalar_leaf(1, kind.dtype, kind.device)
        return record(filled, (one,), (kind.shape, kind.dtype))
    return record(constant_fill, (), (1, kind.shape, kind.dtype))


def cotangent_of(output: Tensor, gradient: Tensor | None) -> Call:
    """The gradient to start from: given, or 1 for a tensor with one element."""
    call = output.call
    if gradient is None:
        if call.type.size != 1:
            raise GradientError(
                f"grad can be implicitly created only for scalar outputs, not for shape "
                f"{list(call.type.shape)}",
                fix="reduce with .sum() or .mean(), or pass gradient=",
            )
        if call.type.dtype.is_complex:
            raise GradientError(
                "grad can be implicitly created only for real scalar outputs but got "
                f"{call.type.dtype.name}",
                fix="take .real or .abs(), or pass gradient=",
            )
        return ones_like_call(call)
    if gradient._shape != call.type.shape:
        raise ShapeError(
            f"Mismatch in shape: grad_output[0] has a shape of {list(gradient._shape)} and "
            f"output[0] has a shape of {list(call.type.shape)}"
        )
    return gradient.call


def start_of(outputs: Sequence[Tensor], gradients: Sequence[Any]) -> list[tuple[Call, Call]]:
    """Calls to differentiate with the cotangents to start from."""
    roots = []
    for output, gradient in zip(outputs, gradients):
        call = output.call
        if not call.requires_grad:
            raise GradientError(
                "element 0 of tensors does not require grad and does not have a grad_fn",
                fix="set requires_grad on a leaf, and compute outside no_grad()",
            )
        roots.append((call, cotangent_of(output, gradient)))
    return roots


@method()
def requires_grad_(input: Tensor, requires_grad: bool = True) -> Tensor:
    """Makes a leaf track gradients, or stop doing so; returns the tensor."""
    call = input.call
    if call.requires_grad == requires_grad:
        return input
    if not input.is_leaf:
        raise GradientError(
            "you can only change requires_grad flags of leaf variables",
            fix="use .detach() for a tensor that does not require grad",
        )
    if requires_grad and not call.type.differentiable:
        raise GradientError(
            f"only floating point tensors can require gradients, not {call.type.dtype.name}",
            fix="convert with .float() first",
        )
    epoch, call = call.epoch, history.own(call)
    if requires_grad and meeting.trained is not None:
        call = meeting.trained(call)
    call.epoch = epoch
    call.requires_grad = requires_grad
    if requires_grad:
        call.tape = input._frozen_tape or TapeEntry(accumulate=history.accumulator(input))
    else:
        input._frozen_tape = input._call.tape
    input._call = call
    if call.buffer is None:
        recorder.watch(input)
    return input


@attribute()
def is_leaf(input: Tensor) -> bool:
    """Whether nothing that tracks gradients computed this tensor."""
    call = input.call
    return not call.requires_grad or history.is_leaf_call(call)


@method()
def _accumulate_grad(input: Tensor, gradient: Cotangent) -> None:
    """Adds a gradient to `.grad`."""
    # A trace notes reads of a leaf's `grad`; reading that of any other tensor warns the user.
    found = input.grad if input.is_leaf else input._grad
    added = wrap_gradient(gradient)
    if found is None:
        input.grad = added
    elif added.is_sparse or found.is_sparse or modes.gradients:
        input.grad = found + added
    else:
        found.add_(added)


@method()
def backward(
    input: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Adds the gradients of this tensor to `.grad` of every leaf that it depends on.

    `gradient` is the cotangent (1 for a tensor with one element). The recorded history is freed
    unless `retain_graph` (default: `create_graph`); `inputs` restricts the leaves.
    """
    roots = start_of((input,), (gradient,))
    run_backward(roots, retain_graph, create_graph, inputs)


def run_backward(
    roots: Sequence[tuple[Call, Call]],
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """`backward` from several calls with their cotangents."""
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        tape.backward(roots, retain_graph=retain, create_graph=create_graph)
        return
    listed = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    calls = [tensor.call for tensor in listed]
    # What hooks of these tensors want done at the end waits until all have their gradients.
    with tape.passing(()):
        found = tape.backward(
            roots, retain_graph=retain, create_graph=create_graph, targets=calls, accumulate=False
        )
        previous, modes.gradients = modes.gradients, create_graph
        try:
            for tensor, call in zip(listed, calls):
                if call in found:
                    tensor._accumulate_grad(found[call])
                    if call.tape is not None:
                        call.tape.has_accumulated(found[call])
        finally:
            modes.gradients = previous


class _Hooks(list[Callable[[Any], Any]]):
    """The hooks of a tensor, called one after the other with its gradient.

    All get the same object until one replaces it, so a hook finds what another one has set as an
    attribute or written in place.
    """

    def __call__(self, gradient: Cotangent) -> Cotangent:
        tensor: Any = wrap_gradient(gradient)
        for hook in tuple(self):
            replaced = hook(tensor)
            tensor = tensor if replaced is None else replaced
        return cotangent_of_gradient(tensor)


def _entry(input: Tensor, purpose: str) -> TapeEntry:
    call = origin(input.call)
    if not call.requires_grad:
        raise GradientError(
            f"cannot {purpose} a tensor that doesn't require gradient",
            fix="call requires_grad_() on a leaf first",
        )
    if call.tape is None:
        call.tape = TapeEntry()
    return call.tape


@method()
def register_hook(input: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Calls `hook(gradient)` when the gradient of this tensor is known.

    What the hook returns replaces the gradient, and so does what it writes into it.
    """
    entry = _entry(input, "register a hook on")
    if not isinstance(entry.hooks, _Hooks):
        entry.hooks = _Hooks()
    entry.hooks.append(hook)
    return HandleInList(entry.hooks, hook)


@method()
def register_post_accumulate_grad_hook(
    input: Tensor, hook: Callable[[Any], None]
) -> RemovableHandle:
    """Calls `hook(tensor)` after a backward pass has added to the `.grad` of a leaf."""
    if not input.is_leaf or not input.requires_grad:
        raise GradientError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    entry = input.call.tape
    owner = ref(input)

    def after(gradient: Cotangent) -> None:
        tensor = owner()
        if tensor is not None:
            hook(tensor)

    entry.after.append(after)
    return HandleInList(entry.after, after)


@method()
def retain_grad(input: Tensor) -> None:
    """Keeps the gradient of a tensor that is not a leaf in its `.grad`."""
    entry = _entry(input, "retain_grad on")
    if entry.accumulate is not None or input.retains_grad:
        return
    entry.retains.append(history.accumulator(input))


@attribute()
def retains_grad(input: Tensor) -> bool:
    """Whether `retain_grad()` was called on this tensor."""
    entry = origin(input.call).tape
    return entry is not None and bool(entry.retains)


@attribute()
def grad_fn(input: Tensor) -> GradFn | None:
    """What computed this tensor, as seen by gradients; None for leaves."""
    call = input.call
    return None if not call.requires_grad or input.is_leaf else GradFn(call)


@public()
def detach(input: Tensor) -> Tensor:
    """The same value in the same memory and shape, without its history.

    >>> metaop.detach(metaop.ones(1, requires_grad=True)).requires_grad
    False
    """
    return input.detach()


@public(method=True)
def detach_(input: Tensor) -> Tensor:
    """Cuts this tensor off from its history, in place; its value and shape stay.

    Raises GradientError for views.

    >>> x = metaop.ones(1, requires_grad=True) * 2
    >>> metaop.detach_(x).requires_grad
    False
    """
    if input._base is not None:
        raise GradientError(
            "Can't detach views in-place", fix="use detach() instead, which gives a new tensor"
        )
    call = input.call
    if call.requires_grad:
        input._call = input.detach()._call
    return input
