"""Gradients as users ask for them: `backward`, hooks, and the modes of tracking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any
from weakref import ref

from metaop.differentiation import tape
from metaop.differentiation.tape import Cotangent, TapeEntry, origin
from metaop.errors import GradientError, ShapeError, UnsupportedError
from metaop.operators.basic import constant_fill, filled
from metaop.tensor.core import Tensor
from metaop.tensor.grad_fn import GradFn
from metaop.tensor.sparse.tensors import wrap_gradient
from metaop.tensor.surface import attribute, method, public
from metaop.unified_graph.recording import Call, modes, record, scalar_leaf
from metaop.unified_graph.tensor_type import CPU


def _check_tangents(mode: _GradientMode) -> None:
    """Refuses that the user stops gradients where tangents are computed with their help."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    if modes.duals and not mode.mode and not name.startswith("metaop."):
        raise UnsupportedError(
            f"{type(mode).__name__} inside of forward_ad.dual_level would stop tangents too",
            fix="leave it away: unpack_dual gives values without history",
        )


class _GradientMode:
    """Sets gradient tracking: a context manager, and a decorator of functions and classes."""

    mode = True

    def __init__(self, function: Callable[..., Any] | None = None) -> None:
        self._previous: list[bool] = []

    def __new__(cls, function: Any = None, *args: Any) -> Any:
        self = object.__new__(cls)
        if callable(function):
            self.__init__()  # type: ignore[misc]
            return self(function)
        return self

    def _fresh(self) -> _GradientMode:
        return type(self)()

    def __enter__(self) -> None:
        _check_tangents(self)
        self._previous.append(modes.gradients)
        modes.gradients = self.mode

    def __exit__(self, *exception: object) -> None:
        modes.gradients = self._previous.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import inspect

        if inspect.isgeneratorfunction(function):
            return self._generator(function)

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return function(*args, **kwargs)

        return run

    def _generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            try:
                with self._fresh():
                    item = next(generator)
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        generator.close()
                        raise
                    except BaseException as error:
                        with self._fresh():
                            item = generator.throw(error)
                    else:
                        with self._fresh():
                            item = generator.send(sent)
            except StopIteration as stop:
                return stop.value

        return run


class no_grad(_GradientMode):
    """Nothing recorded inside tracks gradients: `with no_grad():`, `@no_grad()`, `@no_grad`.

    Raises UnsupportedError inside of `forward_ad.dual_level`.

    >>> x = metaop.ones(1, requires_grad=True)
    >>> with metaop.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    mode = False


class enable_grad(_GradientMode):
    """Gradients are tracked inside, also within `no_grad`.

    Unlike the modes that switch tracking off, it raises no UnsupportedError inside of
    `forward_ad.dual_level`.

    >>> x = metaop.ones(1, requires_grad=True)
    >>> with metaop.no_grad(), metaop.enable_grad():
    ...     (x * 2).requires_grad
    True
    """

    mode = True


class inference_mode(_GradientMode):
    """`no_grad` under the name for evaluation; `inference_mode(False)` changes nothing.

    Tensors that are made inside may be used everywhere. Raises UnsupportedError inside of
    `forward_ad.dual_level`.

    >>> with metaop.inference_mode():
    ...     metaop.is_grad_enabled()
    False
    """

    mode = False

    def __new__(cls, mode: Any = True) -> Any:
        return _GradientMode.__new__(cls, mode)

    def __init__(self, mode: Any = True) -> None:
        super().__init__()
        self.mode = modes.gradients if mode is False else False

    def _fresh(self) -> _GradientMode:
        return type(self)(self.mode is False)


class set_grad_enabled(_GradientMode):
    """Switches tracking on or off: at once as a function, until the end as a context manager.

    Switching it off raises UnsupportedError inside of `forward_ad.dual_level`.

    >>> with metaop.set_grad_enabled(False):
    ...     metaop.is_grad_enabled()
    False
    """

    def __new__(cls, mode: bool) -> Any:
        return object.__new__(cls)

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        _check_tangents(self)
        self._previous = [modes.gradients]
        modes.gradients = self.mode

    def __enter__(self) -> None:
        modes.gradients = self.mode

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        modes.gradients = self._previous[-1]
        return super().__call__(function)

    def _fresh(self) -> _GradientMode:
        return set_grad_enabled(self.mode)


def is_grad_enabled() -> bool:
    """Whether gradients are tracked now.

    >>> metaop.is_grad_enabled()
    True
    """
    return modes.gradients


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


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away; also a context manager."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


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
    """Calls `hook(gradient)` when the gradient of this tensor is known; it may replace it."""
    entry = _entry(input, "register a hook on")

    def on_call(gradient: Cotangent) -> Cotangent | None:
        replaced: Any = hook(wrap_gradient(gradient))
        if replaced is None:
            return None
        return replaced.as_unsummed() if replaced.is_sparse else replaced.call

    entry.hooks.append(on_call)
    return RemovableHandle(entry.hooks, on_call)


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
    return RemovableHandle(entry.after, after)


@method()
def retain_grad(input: Tensor) -> None:
    """Keeps the gradient of a tensor that is no leaf in its `.grad`."""
    entry = _entry(input, "retain_grad on")
    if entry.accumulate is not None or input.retains_grad:
        return
    owner = ref(input)

    def keep(gradient: Cotangent) -> None:
        tensor = owner()
        if tensor is not None:
            tensor._accumulate_grad(gradient)

    entry.retains.append(keep)


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
