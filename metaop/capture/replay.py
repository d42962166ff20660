"""Captured calls: the arguments of a program bound to where their values come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from metaop.codegen.backend import IndexFault, Program
from metaop.codegen.memory import Buffer
from metaop.errors import DimensionError
from metaop.tensor.core import Tensor, wrap
from metaop.unified_graph.recording import leaf
from metaop.unified_graph.tensor_type import TensorType
from metaop.unified_graph.tracing import HostStep

Arguments = Sequence[Tensor]
# Finds a tensor anew in every call, given the tensor arguments.
Place = Callable[[Arguments], "Tensor | None"]


class Source(NamedTuple):
    """A tensor whose value is an argument of the program."""

    slot: int
    place: Place
    type: TensorType


class Target(NamedTuple):
    """A tensor that gets the value of an output."""

    output: int
    place: Place
    type: TensorType


class Gradient(NamedTuple):
    """A tensor that gets an output (or, for None, nothing) as its gradient."""

    output: int | None
    owner: Place
    type: TensorType | None


class Fresh(NamedTuple):
    """A result that is a new tensor."""

    output: int
    type: TensorType
    requires_grad: bool


@dataclass
class Replay:
    """All that a captured call does, in order: check, host steps, bind, run, hand out.

    `arguments` holds the constants and, at its end, a place for numbers that nothing
    reads; `steps` pairs host steps with the slots of their numbers.
    `gradients_read` are owners whose gradient the call adds to (True) or expects absent.
    """

    program: Program
    arguments: list[Any]
    steps: list[tuple[HostStep, tuple[int, ...]]]
    sources: list[Source]
    copied: tuple[int, ...]
    targets: list[Target]
    gradients: list[Gradient]
    gradients_read: list[tuple[Place, bool]]
    result: Callable[[Arguments, Sequence[Buffer]], Any]
    configuration: int

    def still_holds(self, tensors: Arguments) -> bool:
        """Whether the call would do again what was traced."""
        for place, present in self.gradients_read:
            if (place(tensors).grad is not None) is not present:  # type: ignore[union-attr]
                return False
        for _, place, kind in self.sources:
            tensor = place(tensors)
            if tensor is None or tensor._call.type is not kind:
                return False
        return all(step.check() for step, _ in self.steps)

    def run(self, tensors: Arguments) -> Any:
        """Does the call; returns what the function returned."""
        arguments = list(self.arguments)
        for step, slots in self.steps:
            for slot, number in zip(slots, step.run()):
                arguments[slot] = number
        for slot, place, _ in self.sources:
            tensor = place(tensors)
            call = tensor.call  # type: ignore[union-attr]
            if call.scalar is not None:
                arguments[slot] = call.scalar
            else:
                buffer = call.buffer
                arguments[slot] = tensor.buffer() if buffer is None else buffer  # type: ignore
        arguments.pop()
        try:
            buffers = self.program.run(arguments)
        except IndexFault as fault:
            raise DimensionError(
                str(fault), fix="call the function without metaop.jit to see the operator"
            ) from None
        for number in self.copied:
            buffers[number] = buffers[number].copy()
        for number, place, kind in self.targets:
            place(tensors)._assign(leaf(kind, buffers[number]), "a captured call")  # type: ignore
        for output, owner, type_of_gradient in self.gradients:
            tensor = owner(tensors)
            assert tensor is not None
            if output is None or type_of_gradient is None:
                tensor.grad = None
            else:
                tensor.grad = wrap(leaf(type_of_gradient, buffers[output]))
        return self.result(tensors, buffers)


def fresh_tensor(form: Fresh, buffers: Sequence[Buffer]) -> Tensor:
    """A result of the call; the tape that led to it was released in the call."""
    call = leaf(form.type, buffers[form.output])
    call.requires_grad = call.released = form.requires_grad
    return wrap(call)
