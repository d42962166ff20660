"""`Function`: operators whose gradient the user writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any
from weakref import ref

from metaop.differentiation.entries import TapeEntry
from metaop.differentiation.saved_values import overwritten_error
from metaop.differentiation.tape import pass_through
from metaop.errors import ArgumentTypeError, GradientError
from metaop.operators.basic import constant_fill
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.history import own
from metaop.unified_graph.node import Shape
from metaop.unified_graph.recording import Call, modes, next_sequence, record


class Saved:
    """A saved tensor: its value and history, not the handle that may be changed in place."""

    __slots__ = ("call", "output")

    def __init__(self, call: Call, output: int | None) -> None:
        self.call = call
        self.output = output


class Packed:
    """What a hook made of a saved tensor, and the hook that makes a tensor of it again."""

    __slots__ = ("value", "unpack")

    def __init__(self, value: Any, unpack: Callable[[Any], Any]) -> None:
        self.value = value
        self.unpack = unpack


class SavedHooks(threading.local):
    """The pairs of hooks that saved tensors go through in this thread, the innermost last.

    `refusal` says why none may be added, or is None.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = []
        self.refusal: str | None = None


saved_hooks = SavedHooks()


class Context:
    """What `forward` leaves for `backward`; attributes may be added freely."""

    def __init__(self) -> None:
        self._to_save: tuple[Tensor | None, ...] = ()
        self._saved: tuple[Saved | Packed | None, ...] = ()
        self._unmarked: set[int] = set()
        self._dirty: tuple[Tensor, ...] = ()
        self._materialize = True
        self._sequence = 0
        self._released = False
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for `backward`, which finds them in `saved_tensors`."""
        self._to_save = tensors

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to `save_for_backward`.

        Raises GradientError when one was changed in place since, or after they were freed.
        """
        if self._released:
            raise GradientError(
                "Trying to backward through the graph a second time: the saved tensors were freed",
                fix="pass retain_graph=True to the first backward",
            )
        return tuple([self._unpack(saved) for saved in self._saved])

    def _unpack(self, saved: Saved | Packed | None) -> Tensor | None:
        if saved is None:
            return None
        if isinstance(saved, Packed):
            tensor = saved.unpack(saved.value)
            if not isinstance(tensor, Tensor):
                raise ArgumentTypeError(
                    "Output of saved tensor unpack_hook expected to be a Tensor but got result of "
                    f"type {type(tensor).__name__}"
                )
            return tensor
        call = saved.call
        if call.epoch is not None and call.epoch.ended_before(self._sequence):
            raise overwritten_error("a Function", call)
        if saved.output is None:
            return wrap(call)
        hub = self._hub()
        assert hub is not None
        return wrap(output_of(call, hub, saved.output))

    def _release(self) -> None:
        self._saved = ()
        self._released = True

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Outputs that carry no gradient."""
        self._unmarked = {id(tensor) for tensor in tensors}

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Inputs that `forward` changed in place."""
        self._dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing gradients reach `backward` as zeros (the default) or as None."""
        self._materialize = value

    _hub: Callable[[], Call | None]


def output_of(value: Call, hub: Call, index: int) -> Call:
    """`value` as output number `index` of a hub, whose tape computes its gradient."""
    call = own(value)
    call.requires_grad = True
    call.tape = TapeEntry(function=pass_through, sources=(hub,), index=index)
    call.epoch = value.epoch
    return call


class Function:
    """An operator with a gradient of one's own.

    Subclasses define static methods: `forward(ctx, *args)`, or `forward(*args)` with
    `setup_context(ctx, inputs, output)`, and `backward(ctx, *grad_outputs)` giving one gradient (or
    None) per argument, of its shape. Call it as `MyFunction.apply(*args)`.

    >>> class Rounded(metaop.autograd.Function):
    ...     forward = staticmethod(lambda ctx, x: x.round())
    ...     backward = staticmethod(lambda ctx, grad: grad)
    >>> x = metaop.tensor([0.4, 1.6], requires_grad=True)
    >>> Rounded.apply(x).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a Function defines forward")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        raise NotImplementedError("setup_context is only called when defined")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError("a Function defines backward (or vjp)")

    vjp = backward

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs `forward`, and remembers to run `backward` for its gradient."""
        ctx = Context()
        calls = [x.call if isinstance(x, Tensor) else None for x in args]
        tracked = modes.gradients and any(c is not None and c.requires_grad for c in calls)
        ctx.needs_input_grad = tuple([c is not None and c.requires_grad for c in calls])
        ctx._sequence = next_sequence()
        previous, modes.gradients = modes.gradients, False
        try:
            if cls.setup_context is not Function.setup_context:
                outputs = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, outputs)
            else:
                outputs = cls.forward(ctx, *args, **kwargs)
        finally:
            modes.gradients = previous
        single = not isinstance(outputs, (tuple, list))
        results = [outputs] if single else list(outputs)
        if not tracked or not any(isinstance(x, Tensor) for x in results):
            return outputs
        tracked_results = _track(cls, ctx, calls, results)
        return tracked_results[0] if single else tuple(tracked_results)


def _track(
    cls: type[Function], ctx: Context, sources: Sequence[Call | None], outputs: list[Any]
) -> list[Any]:
    """Ties the outputs to a hub that runs the user's `backward`."""
    types = [x.call.type if isinstance(x, Tensor) else None for x in outputs]
    first = next(kind for kind in types if kind is not None)
    hub = Call(None, (), first, True)
    ctx._hub = ref(hub)
    values = {id(x): (k, x.call) for k, x in enumerate(outputs) if isinstance(x, Tensor)}
    ctx._saved = tuple([_save(x, values) for x in ctx._to_save])
    ctx._to_save = ()

    def gradients(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
        arguments = []
        for kind, cotangent in zip(types, cotangents):
            if cotangent is None and ctx._materialize and kind is not None:
                cotangent = record(constant_fill, (), (0, kind.shape, kind.dtype))
            arguments.append(None if cotangent is None else wrap(cotangent))
        found = (cls.backward if cls.backward is not Function.backward else cls.vjp)(
            ctx, *arguments
        )
        listed = list(found) if isinstance(found, (tuple, list)) else [found]
        return _checked(cls, listed, sources)

    hub.tape = TapeEntry(
        function=gradients,
        sources=tuple(sources),
        outputs=len(outputs),
        name=f"{cls.__name__}Backward",
        freed=ctx._release,
    )
    results: list[Any] = []
    for k, x in enumerate(outputs):
        kind = types[k]
        if kind is None or not kind.differentiable or id(x) in ctx._unmarked:
            results.append(x)
            continue
        call = output_of(x.call, hub, k)
        if any(x is dirty for dirty in ctx._dirty):
            x._rebind(call, f"{cls.__name__}.apply", ctx._sequence)
            results.append(x)
        else:
            results.append(wrap(call))
    ctx._dirty = ()
    return results


def _save(tensor: Tensor | None, outputs: dict[int, tuple[int, Call]]) -> Saved | Packed | None:
    if tensor is None:
        return None
    if saved_hooks.pairs:
        pack, unpack = saved_hooks.pairs[-1]
        return Packed(pack(tensor), unpack)
    if id(tensor) in outputs and not tensor.requires_grad:
        index, call = outputs[id(tensor)]
        return Saved(call, index)
    return Saved(tensor.call, None)


def _checked(
    cls: type[Function], gradients: list[Any], sources: Sequence[Call | None]
) -> list[Call | None]:
    while len(gradients) > len(sources) and gradients[-1] is None:
        gradients.pop()
    if len(gradients) != len(sources):
        raise GradientError(
            f"function {cls.__name__}Backward returned an incorrect number of gradients (expected "
            f"{len(sources)}, got {len(gradients)})",
            fix="return one gradient, or None, per argument of forward",
        )
    calls: list[Call | None] = []
    for position, (gradient, source) in enumerate(zip(gradients, sources)):
        if gradient is None or source is None:
            calls.append(None)
            continue
        if gradient._shape != source.type.shape:
            gradient = _reduced(cls, gradient, source.type.shape, position)
        if gradient.dtype is not source.type.dtype:
            gradient = gradient.to(source.type.dtype)
        calls.append(gradient.call)
    return calls


def _reduced(cls: type[Function], gradient: Any, shape: Shape, position: int) -> Any:
    """A gradient of what was broadcast, summed over the copies."""
    found = gradient._shape
    pairs = zip(reversed(shape), reversed(found))
    if len(shape) <= len(found) and all(extent in (1, given) for extent, given in pairs):
        return gradient.sum_to_size(shape) if shape else gradient.sum()
    raise GradientError(
        f"Function {cls.__name__}Backward returned an invalid gradient at index {position} - got "
        f"{list(found)} but expected shape compatible with {list(shape)}"
    )


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `backward` whose result cannot be differentiated again.

    Trying raises GradientError.

    >>> from metaop.autograd.function import once_differentiable
    >>> class Doubled(metaop.autograd.Function):
    ...     forward = staticmethod(lambda ctx, x: x * 2)
    ...     backward = staticmethod(once_differentiable(lambda ctx, grad: grad * 2))
    >>> x = metaop.ones(1, requires_grad=True)
    >>> metaop.autograd.grad(Doubled.apply(x).sum(), x)
    (tensor([2.]),)
    """

    @wraps(backward)
    def run(ctx: Any, *cotangents: Any) -> Any:
        tracks = modes.gradients and any(
            isinstance(x, Tensor) and x.requires_grad for x in cotangents
        )
        previous, modes.gradients = modes.gradients, False
        try:
            found = backward(ctx, *cotangents)
        finally:
            modes.gradients = previous
        if not tracks:
            return found
        single = not isinstance(found, (tuple, list))
        guarded = [_guarded(x) for x in ([found] if single else found)]
        return guarded[0] if single else tuple(guarded)

    return run


def _guarded(gradient: Any) -> Any:
    if not isinstance(gradient, Tensor):
        return gradient

    def refuse(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
        raise GradientError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )

    call = own(gradient.call)
    call.requires_grad = True
    call.tape = TapeEntry(function=refuse, name="Error")
    return wrap(call)
