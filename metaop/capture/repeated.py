"""Captured calls as one loop: how the steps of `metaop.iterate` run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from metaop.capture.places import Given, GradientOf, Known, Place
from metaop.capture.replay import Replay
from metaop.capture.step_graph import StepGraph
from metaop.differentiation.tape import live_residuals
from metaop.execution.executor import realize, run
from metaop.nn.counter import count_of
from metaop.operators.basic import constant_fill
from metaop.operators.repetition import repeat
from metaop.operators.steps import FixedStep
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.shared_storage import settle
from metaop.trees import tree_unflatten
from metaop.unified_graph.cut import cut_at, recorder
from metaop.unified_graph.node import Node, input_node
from metaop.unified_graph.recording import Call, leaf, modes, record, results, scalar_leaf
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.tensor_type import TensorType


class NotRepeatableError(Exception):
    """Says why captured calls cannot be the steps of a loop; they then run one by one."""


class _Carried(NamedTuple):
    """What a step writes: the tensor at a place, or its gradient. `slots` are where it is read."""

    output: int
    place: Place
    is_gradient: bool
    slots: list[int]


class _Input(NamedTuple):
    """What a step reads: a value that all steps share, or one that differs for each step."""

    slot: int
    is_sliced: bool


class Repeated:
    """A loop over the calls of one replay. Raises NotRepeatableError if there is none."""

    def __init__(self, replay: Replay) -> None:
        graph = replay.graph
        assert graph is not None
        self.replay, self.graph = replay, graph
        self.places = {one.slot: one.place for one in replay.sources}
        self.carried = _carried(replay, graph, self.places)
        written = {slot for one in self.carried for slot in one.slots}
        count = len(graph.inputs)
        # Numbers known to the host, such as counters, may differ in every step.
        self.counters = {
            slot: place.tensor
            for slot, place in self.places.items()
            if isinstance(place, Known) and place.tensor.call.scalar is not None
        }
        self.numbers = {slot for _, slots in replay.steps for slot in slots if slot < count}
        self.numbers |= self.counters.keys()
        self.rest = [
            _Input(slot, slot in self.numbers or isinstance(self.places.get(slot), Given))
            for slot in range(count)
            if slot not in written
        ]
        if graph.results is None:
            raise NotRepeatableError("it returns what it does not compute")
        self.returned = list(dict.fromkeys(n for n in graph.results if n is not None))

    def may_go_on(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the next step would do what was traced, after the steps before it have run."""
        if not self.replay.guards.are_unchanged(tensors):
            return False
        return all(step.check() for step, _ in self.replay.steps)

    def draw(self) -> dict[int, Any]:
        """The numbers that the host produces for one step, by slot."""
        found: dict[int, Any] = {slot: count_of(one) for slot, one in self.counters.items()}
        for step, slots in self.replay.steps:
            found.update(zip(slots, step.run()))
        return found

    def run(self, stacks: Sequence[Tensor], drawn: Sequence[dict[int, Any]]) -> Any:
        """Runs one step per element of `drawn`, on the first elements of the stacked arguments.

        What the steps write is assigned after the last; returns their results, stacked.
        """
        with recorder.lock:
            before, modes.gradients = modes.gradients, False
            casts, modes.casts = modes.casts, None
            try:
                realize()
                flags = tuple(one.is_sliced for one in self.rest)
                inputs = [*self._first(), *self._rest(stacks, drawn)]
                attributes = (self._step, 1, flags, len(drawn), False, False, False)
                made = list(results(record(repeat, inputs, attributes)))
                del inputs
                run(cut_at(made, live_residuals), whole=True)
            finally:
                modes.gradients, modes.casts = before, casts
            self._hand_out(made)
        return self._results(made[len(self.carried) :])

    # --- the graph --------------------------------------------------------------------------------

    @cached_property
    def _step(self) -> FixedStep:
        """What a step makes: the carried values, then what it returns."""
        graph = self.graph
        carried = [graph.outputs[one.output] for one in self.carried]
        given = [graph.types[one.slot] for one in self.rest]
        kinds: list[Node | TensorType] = [*carried, *given]
        inputs = [input_node(k, kind.shape, kind.dtype) for k, kind in enumerate(kinds)]
        slots = [*(one.slots for one in self.carried), *([one.slot] for one in self.rest)]
        own = {graph.inputs[k]: node for known, node in zip(slots, inputs) for k in known}
        wanted = [*carried, *(graph.outputs[number] for number in self.returned)]
        return FixedStep(tuple(inputs), tuple(rebuild(wanted, own)))

    # --- its operands -----------------------------------------------------------------------------

    def _first(self) -> list[Call]:
        """The carried values before the first step."""
        found = []
        for one in self.carried:
            tensor = _tensor_at(one.place)
            if one.is_gradient and not one.slots:  # no step reads the old value
                node = self.graph.outputs[one.output]
                call = record(constant_fill, (), (0, node.shape, node.dtype))
                call.type = TensorType(node.shape, node.dtype, tensor.call.type.device)
            else:
                call = (_tensor_at(GradientOf(one.place)) if one.is_gradient else tensor).call
            found.append(call)
        return found

    def _rest(self, stacks: Sequence[Tensor], drawn: Sequence[dict[int, Any]]) -> list[Call]:
        found = []
        for slot, _ in self.rest:
            place, kind = self.places.get(slot), self.graph.types[slot]
            if slot in self.numbers:
                values = np.array([numbers[slot] for numbers in drawn], kind.dtype.numpy)
                found.append(from_array(values, kind.dtype, kind.device).call)
            elif isinstance(place, Given):
                stack = stacks[place.position]
                found.append((stack if len(stack) == len(drawn) else stack[: len(drawn)]).call)
            elif place is not None:
                found.append(_tensor_at(place).call)
            else:
                value = self.replay.arguments[slot]
                is_number = isinstance(value, int | float)
                make = (
                    scalar_leaf(value, kind.dtype, kind.device) if is_number else leaf(kind, value)
                )
                found.append(make)
        return found

    # --- its results ------------------------------------------------------------------------------

    def _hand_out(self, made: Sequence[Call]) -> None:
        """Assigns the carried values to the tensors that the steps write."""
        for one, call in zip(self.carried, made):
            tensor, value = _tensor_at(one.place), leaf(call.type, call.buffer)
            if one.is_gradient:
                tensor.grad = wrap(value)
            else:
                _ = tensor.call
                tensor._assign(value, "metaop.iterate")
        for gradient in self.replay.gradients:
            if gradient.output is None:
                _tensor_at(gradient.owner).grad = None
        settle()

    def _results(self, stacks: Sequence[Call]) -> Any:
        known = dict(zip(self.returned, stacks))
        assert self.graph.results is not None
        leaves = [
            None if number is None else wrap(leaf(known[number].type, known[number].buffer))
            for number in self.graph.results
        ]
        return tree_unflatten(leaves, self.graph.structure)


def _tensor_at(place: Place) -> Tensor:
    """The tensor at a place that does not depend on the arguments."""
    tensor = place.find(())
    assert tensor is not None
    return tensor


def _named(place: Place) -> tuple[Any, ...]:
    """The place as a dictionary key; tensors themselves compare their elements."""
    if isinstance(place, GradientOf):
        return (GradientOf, *_named(place.owner))
    return (Known, id(place.tensor)) if isinstance(place, Known) else (Given, place.position)


def _carried(replay: Replay, graph: StepGraph, places: dict[int, Place]) -> list[_Carried]:
    """What the steps write, and where they read what the previous step wrote."""
    if replay.sharing:
        raise NotRepeatableError("tensors that it uses share memory")
    slots: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for slot, place in places.items():
        slots[_named(place)].append(slot)
    found = [
        _Carried(target.output, target.place, False, slots[_named(target.place)])
        for target in replay.targets
    ]
    after = {}
    for output, owner, _ in replay.gradients:
        after[_named(owner)] = output is not None
        if output is not None:
            found.append(_Carried(output, owner, True, slots[_named(GradientOf(owner))]))
    for owner, is_present in replay.gradients_read:
        if after.get(_named(owner), is_present) is not is_present:
            raise NotRepeatableError("its first step finds a different gradient from the next one")
    for one in found:
        if Given in _named(one.place):
            raise NotRepeatableError("it writes an argument, or the gradient of one")
        node = graph.outputs[one.output]
        kinds = [graph.types[slot] for slot in one.slots]
        if any((kind.shape, kind.dtype) != (node.shape, node.dtype) for kind in kinds):
            raise NotRepeatableError("it changes the shape or type of what it writes")
    return found
