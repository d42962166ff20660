"""Hooks on what is saved for backward, and on several gradients (`torch.autograd.graph`)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from metaop.autograd.function import saved_hooks
from metaop.differentiation.entries import TapeEntry
from metaop.differentiation.tape import Pass, origin, running
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.grad_fn import GradFn as Node
from metaop.tensor.handles import RemovableHandle, SeveralHandles

__all__ = [
    "Node",
    "disable_saved_tensors_hooks",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class saved_tensors_hooks:
    """What `ctx.save_for_backward` saves inside goes through a pair of functions.

    `pack_hook(tensor)` runs once `forward` has returned, for each saved tensor in their order; its
    result is kept instead of the tensor. Each access of `ctx.saved_tensors` runs
    `unpack_hook(result)` for each of them, and it has to return a tensor. The innermost pair wins.
    What the gradients of metaop's own operators need is chosen when a program is compiled, and
    goes through no hook: a warning says so.
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        self._pair = (pack_hook, unpack_hook)

    def __enter__(self) -> None:
        if saved_hooks.refusal is not None:
            raise ArgumentError(saved_hooks.refusal)
        warnings.warn(
            "saved_tensors_hooks: only what ctx.save_for_backward saves goes through the hooks; "
            "what metaop's own operators keep for backward does not",
            UserWarning,
            stacklevel=2,
        )
        saved_hooks.pairs.append(self._pair)

    def __exit__(self, *exception: object) -> None:
        saved_hooks.pairs.pop()


@contextlib.contextmanager
def save_on_cpu(pin_memory: bool = False, device_type: str = "cuda") -> Iterator[None]:
    """Changes nothing: it saves memory of a GPU in PyTorch, and no result depends on it."""
    yield


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, `saved_tensors_hooks` raises ArgumentError with this message."""
    before, saved_hooks.refusal = saved_hooks.refusal, error_message
    try:
        yield
    finally:
        saved_hooks.refusal = before


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all"
) -> RemovableHandle:
    """Calls `fn(gradients)` in each backward pass that has computed those of `tensors`.

    A tensor that the pass does not visit has None. In mode "any", `fn(gradient)` gets the first
    gradient of the pass alone.

    >>> a, b = metaop.ones(1, requires_grad=True), metaop.ones(1, requires_grad=True)
    >>> handle = metaop.autograd.graph.register_multi_grad_hook((a, b), print)
    >>> (2 * a + b).backward()
    [tensor([2.]), tensor([1.])]
    """
    if mode not in ("all", "any"):
        raise ArgumentError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    arrivals = _FirstGradient(fn) if mode == "any" else _AllGradients(fn, len(tensors))
    hooked = [x for x in tensors if mode == "all" or x.requires_grad]
    handles = [x.register_hook(arrivals.hook_of(k)) for k, x in enumerate(hooked)]
    arrivals.entries = [origin(x.call).tape for x in hooked]
    return SeveralHandles(handles)


class _Arrivals:
    """The hooks of several tensors, which count what arrives in each backward pass.

    They know tensors by their entries of the tape: values that hooks held would live as long.
    """

    def __init__(self, fn: Callable[[Any], None]) -> None:
        self.fn = fn
        self.entries: list[TapeEntry | None] = []

    def hook_of(self, position: int) -> Callable[[Tensor], None]:
        """The hook of one of the tensors."""
        return lambda gradient: self.arrived(running.passes[-1], position, gradient)

    def arrived(self, during: Pass, position: int, gradient: Tensor) -> None:
        """A pass has computed one of the gradients."""
        raise NotImplementedError


@dataclass
class _Gathered:
    """The gradients that one pass has computed, and how many of them are still to come."""

    fn: Callable[[Any], None]
    gradients: list[Tensor | None]
    due: int

    def add(self, position: int, gradient: Tensor) -> None:
        self.gradients[position] = gradient
        self.due -= 1
        if self.due == 0:
            self.fn(self.gradients)

    def end(self) -> None:
        """Gradients in user code may be None, for which nothing comes."""
        if self.due:
            self.fn(self.gradients)


class _AllGradients(_Arrivals):
    def __init__(self, fn: Callable[[Any], None], count: int) -> None:
        super().__init__(fn)
        self._count = count
        self._gathered: WeakKeyDictionary[Pass, _Gathered] = WeakKeyDictionary()

    def arrived(self, during: Pass, position: int, gradient: Tensor) -> None:
        gathered = self._gathered.get(during)
        if gathered is None:
            visited = {call.tape for call in during.order if call.tape is not None}
            due = sum(entry in visited for entry in self.entries)
            gathered = self._gathered[during] = _Gathered(self.fn, [None] * self._count, due)
            during.at_end.append(gathered.end)
        gathered.add(position, gradient)


class _FirstGradient(_Arrivals):
    def __init__(self, fn: Callable[[Any], None]) -> None:
        super().__init__(fn)
        self._seen: WeakKeyDictionary[Pass, None] = WeakKeyDictionary()

    def arrived(self, during: Pass, position: int, gradient: Tensor) -> None:
        if during not in self._seen:
            self._seen[during] = None
            self.fn(gradient)
