"""Captured calls: the arguments of a program, bound to the sources of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from sys import getrefcount
from typing import Any, NamedTuple

from metaop.capture.guards import Guards
from metaop.capture.places import Arguments, Known, Place, sharing
from metaop.capture.results import Buffers
from metaop.capture.steady import HELD_ALONE, Steady, are_alone
from metaop.capture.step_graph import StepGraph
from metaop.codegen.backend import Preparable, Program
from metaop.codegen.llvm.run_ahead import are_private
from metaop.codegen.memory.buffers import Buffer
from metaop.execution.executor import realize
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.shared_storage import settle
from metaop.unified_graph.faults import Fault
from metaop.unified_graph.recording import Call, leaf
from metaop.unified_graph.tensor_type import TensorType
from metaop.unified_graph.tracing import HostStep, configuration


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


class _InPlace(NamedTuple):
    """A tensor whose new value may be written over its old one."""

    source: Source
    tensor: Tensor
    output: int


@dataclass
class Replay:
    """Everything that a captured call does, in order: check, host steps, bind, run, hand out.

    `arguments` holds the constants and, at its end, a place for numbers that nothing reads; `steps`
    pairs host steps with the slots of their numbers. `gradients_read` are owners whose gradient the
    call adds to (True) or expects to be absent; `touched` are tensors that existed before the call,
    `fresh` the outputs that become new tensors of the result. `aliases` tells which arguments are
    tensors that the function `reached` by itself, `sharing` which arguments and touched tensors
    share memory. If nothing else holds a target's old value, and its output may take over the
    memory, the target's value object stays while its memory changes. `graph` is what a loop over
    such calls runs. Asynchronous calls run their program on another thread where that is safe.
    """

    program: Program
    arguments: list[Any]
    steps: list[tuple[HostStep, tuple[int, ...]]]
    sources: list[Source]
    copied: tuple[int, ...]
    targets: list[Target]
    gradients: list[Gradient]
    gradients_read: list[tuple[Place, bool]]
    result: Callable[[Arguments, Buffers], Any]
    configuration: int
    guards: Guards
    touched: list[Tensor]
    fresh: set[int]
    aliases: list[Tensor | None]
    reached: set[Tensor]
    sharing: list[tuple[int, bool]]
    graph: StepGraph | None = None
    is_asynchronous: bool = False

    def __post_init__(self) -> None:
        in_place, known = [], []
        for source in self.sources:
            if isinstance(source.place, Known):
                target = self._donated(source.slot, source.place.tensor)
                if target is None:
                    known.append(source)
                else:
                    in_place.append(_InPlace(source, source.place.tensor, target.output))
        self._in_place = in_place
        written = {one.output for one in in_place}
        self._moved = [target for target in self.targets if target.output not in written]
        moving = {one.place.tensor for one in self._moved if isinstance(one.place, Known)}
        # Targets that every call replaces come last, before those whose tensor must be found anew.
        known.sort(key=lambda one: one.place.tensor in moving)  # type: ignore[union-attr]
        first = [one.source for one in in_place] + known
        self._tensors = [one.place.tensor for one in first]  # type: ignore[union-attr]
        self._staying = sum(tensor not in moving for tensor in self._tensors)
        self._types = [one.type for one in first]
        values = set(self._tensors)
        self._others = [tensor for tensor in self.touched if tensor not in values]
        self._tracked = [one.requires_grad for one in (*self._tensors, *self._others)]
        self._rest = [one for one in self.sources if not isinstance(one.place, Known)]
        self._slots = [one.slot for one in (*first, *self._rest)]
        self._owners = self._replaced_gradients()
        self._steady: Steady | None = None

    def _donated(self, slot: int, tensor: Tensor) -> Target | None:
        """The target that may take over the memory of a source, if both are the same tensor."""
        for target in self.targets:
            is_donor = self.program.donors.get(target.output) == slot
            if is_donor and isinstance(target.place, Known) and target.place.tensor is tensor:
                return None if target.output in self.copied else target
        return None

    def _replaced_gradients(self) -> list[Tensor]:
        """The tensors that get new gradients, if nothing else happens to gradients."""
        owners = [one.owner.tensor for one in self.gradients if isinstance(one.owner, Known)]
        computed = [one for one in self.gradients if one.output is not None]
        copied = any(one.output in self.copied for one in computed)
        plain = len(owners) == len(computed) == len(self.gradients)
        return owners if plain and not copied and not self.gradients_read else []

    def calls(self, tensors: Arguments) -> list[Call] | None:
        """The values of the sources, if the call would repeat what was traced; else None."""
        if self.configuration != configuration.number:
            return None
        if not self.guards.are_unchanged(tensors):
            return None
        if not all(map(is_, aliases_in(self.reached, tensors), self.aliases)):
            return None
        if sharing((*tensors, *self.touched)) != self.sharing:
            return None
        for owner, present in self.gradients_read:
            if (owner.find(tensors).grad is not None) is not present:  # type: ignore[union-attr]
                return None
        calls = [tensor.call for tensor in self._tensors]
        if [call.type for call in calls] != self._types:
            return None
        tracked = [call.requires_grad for call in calls]
        if tracked + [tensor.requires_grad for tensor in self._others] != self._tracked:
            return None
        for _, place, kind in self._rest:
            tensor = place.find(tensors)
            if tensor is None or tensor._call.type is not kind:
                return None
            calls.append(tensor.call)
        for step, _ in self.steps:
            if not step.check():
                return None
        return calls

    def run(self, tensors: Arguments, calls: list[Call]) -> Any:
        """Runs the call on the values of its sources; returns what the function returned."""
        arguments = list(self.arguments)
        for step, slots in self.steps:
            for slot, number in zip(slots, step.run()):
                arguments[slot] = number
        arguments.pop()
        try:
            steady = self._steady
            values = None if steady is None else steady.values(calls)
            if values is not None:
                runs_ahead = self.is_asynchronous and are_private(values)
                undo = self._undo(tensors) if runs_ahead else None
                for slot, value in zip(self._slots, values):
                    arguments[slot] = value
                if steady.takes(arguments):  # type: ignore[union-attr]
                    made = steady.run(arguments, undo)  # type: ignore[union-attr]
                    self._move(tensors, made)
                    return self.result(tensors, made)
            return self._run_anew(tensors, calls, arguments)
        except BaseException as error:
            for owner in self._owners:  # some are already written
                owner.grad = None
            if not isinstance(error, Fault):
                raise
            raise error.kind.error(
                str(error), fix="call the function without metaop.jit to see the operator"
            ) from None

    def _undo(self, tensors: Arguments) -> Callable[[], None]:
        """A function that restores the values of the targets if an asynchronous call fails."""
        targets = [target.place.find(tensors) for target in self._moved]
        before = [(target.call.type, target.call.buffer) for target in targets]  # type: ignore

        def undo() -> None:
            for target, (kind, buffer) in zip(targets, before):
                _ = target.call  # type: ignore[union-attr]
                target._assign(leaf(kind, buffer), "a failed captured call")  # type: ignore
            for owner in self._owners:
                owner.grad = None

        return undo

    def _run_anew(self, tensors: Arguments, calls: list[Call], arguments: list[Any]) -> Any:
        """Runs the call when values have been replaced, or when something else holds them."""
        values = [call.buffer if call.scalar is None else call.scalar for call in calls]
        if None in values:
            values = [self._computed(call) if v is None else v for call, v in zip(calls, values)]
        places = self._in_place_now(calls, values)
        for slot, value in zip(self._slots, values):
            arguments[slot] = value
        memory = {one.output: arguments[one.source.slot] for one in places}
        gradients = self._gradients_now()
        for one, tensor in zip(self.gradients, gradients):
            memory[one.output] = tensor._call.buffer  # type: ignore[index]
        buffers = self.program.run(arguments, memory)
        for number in self.copied:
            buffers[number] = buffers[number].copy()
        self._hand_out(tensors, buffers, places, gradients)
        self._steady = self._prepared(calls, arguments, memory)
        return self.result(tensors, buffers)

    def _prepared(
        self, calls: Sequence[Call], arguments: list[Any], memory: dict[int, Any]
    ) -> Steady | None:
        """Prepares the next call, in case all values and gradients are where they are now."""
        kept = len(self._in_place) + len(self.gradients)
        if len(memory) < kept or self.copied or not self.fresh.isdisjoint(memory):
            return None
        if not isinstance(self.program, Preparable):
            return None
        repeatable = self.program.prepared(arguments, memory, self._slots[self._staying :])
        if repeatable is None:
            return None
        written = [one.tensor for one in self._in_place]
        return Steady(repeatable, calls[: self._staying], written, self._owners)

    def _computed(self, call: Call) -> Any:
        """The memory of a source whose value was still pending."""
        realize(call)
        return call.buffer

    # --- memory reuse -----------------------------------------------------------------------------

    def _in_place_now(self, calls: list[Call], values: list[Any]) -> list[_InPlace]:
        """The targets whose value and memory only their tensor holds."""
        counts = zip(self._in_place, map(getrefcount, calls), map(getrefcount, values), values)
        return [
            one
            for one, of_call, of_value, value in counts
            if of_call == of_value == HELD_ALONE
            and isinstance(value, Buffer)
            and value.is_pooled
            and one.tensor._base is None
        ]

    def _gradients_now(self) -> list[Any]:
        """The old gradients, if all exist and have no other references, nor has their memory.

        The new gradients overwrite them.
        """
        found = [owner._grad for owner in self._owners]
        if not found or True in [gradient is None for gradient in found]:
            return []
        calls = [gradient.call for gradient in found]  # type: ignore[union-attr]
        values = [call.buffer for call in calls]
        if [call.type for call in calls] != [one.type for one in self.gradients]:
            return []
        if not (are_alone(found) and are_alone(calls) and are_alone(values)):
            return []
        pooled = [isinstance(value, Buffer) and value.is_pooled for value in values]
        return found if False not in pooled else []

    def _move(self, tensors: Arguments, buffers: Buffers) -> None:
        """Assigns the outputs that have memory of their own to their targets."""
        for number, place, kind in self._moved:
            place.find(tensors)._assign(leaf(kind, buffers[number]), "a captured call")  # type: ignore
        settle()

    def _hand_out(
        self,
        tensors: Arguments,
        buffers: Sequence[Buffer],
        places: list[_InPlace],
        gradients: list[Any],
    ) -> None:
        """Assigns outputs to targets and gradients, but not those in `places` and `gradients`."""
        for one in places:
            one.tensor._writes += 1
        if len(places) < len(self._in_place):
            for one in self._in_place:
                if one not in places:
                    value = leaf(one.source.type, buffers[one.output])
                    one.tensor._assign(value, "a captured call")
        self._move(tensors, buffers)
        for number, (output, owner, type_of_gradient) in enumerate(self.gradients):
            if gradients and gradients[number]._call.buffer is buffers[output]:  # type: ignore
                continue
            tensor = owner.find(tensors)
            assert tensor is not None
            if output is None or type_of_gradient is None:
                tensor.grad = None
            else:
                tensor.grad = wrap(leaf(type_of_gradient, buffers[output]))


def aliases_in(reached: set[Tensor], tensors: Arguments) -> list[Tensor | None]:
    """The arguments that a function also reaches by another name; None for the others."""
    return [tensor if tensor in reached else None for tensor in tensors]
