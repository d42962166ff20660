"""What captured calls return: new tensors, and those that share memory with others."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

from metaop.capture.guards import PLAIN
from metaop.capture.places import Arguments, Place
from metaop.nn.module import Module
from metaop.tensor.core import Tensor, view, wrap
from metaop.tensor.history import Cell, own
from metaop.tensor.size import Size
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import Call, leaf, share_epoch
from metaop.unified_graph.tensor_type import Device, TensorType

# The outputs by number; in a steady call, only those in new memory.
Buffers = Any
# Makes a tensor from the arguments, the outputs and the tensors made before it.
Maker = Callable[[Arguments, Buffers, list[Tensor]], Tensor]
# Results that every call returns unchanged.
_CONSTANT = (
    *PLAIN, complex, DType, Device, Size, type, range, slice, enum.Enum, Module, FunctionType,
    BuiltinFunctionType,
)  # fmt: skip


class Refusal(Exception):
    """Says why a traced call is not valid for later ones; its values were computed all the same."""


class Fresh(NamedTuple):
    """The value of a result that the call computed."""

    output: int
    type: TensorType
    requires_grad: bool

    def value(self, buffers: Buffers) -> Call:
        """The value; the call has released the tape that led to it."""
        call = leaf(self.type, buffers[self.output])
        call.requires_grad = call.released = self.requires_grad
        return call


class Before(NamedTuple):
    """What is known about the tensors that existed before a traced call."""

    tensors: Mapping[Tensor, Call]
    arguments: Sequence[Tensor]
    hidden: set[Tensor]
    place: Callable[[Tensor], Place]
    owner_of_gradient: Callable[[Tensor], Tensor | None]


class Results:
    """How later calls rebuild the results of a traced call.

    `numbers` maps values to outputs of the program. `kept` collects the tensors that results hold,
    `fresh` the outputs that become new tensors.
    """

    def __init__(self, before: Before, numbers: dict[Call, int]) -> None:
        self.before = before
        self.numbers = numbers
        self.kept: set[int] = set()
        self.fresh: set[int] = set()
        self._makers: list[Maker] = []
        self._positions: dict[Tensor, int] = {}

    def making(self, result: Any) -> Callable[[Arguments, Buffers], Any]:
        """The function that returns, in later calls, what the traced call returned."""
        assemble = self._part(result)
        makers = self._makers

        def make(tensors: Arguments, buffers: Buffers) -> Any:
            made: list[Tensor] = []
            for maker in makers:
                made.append(maker(tensors, buffers, made))
            return assemble(made)

        return make

    def _part(self, result: Any) -> Callable[[list[Tensor]], Any]:
        if isinstance(result, Tensor):
            return itemgetter(self._tensor(result))
        kind: Any = type(result)
        if isinstance(result, _CONSTANT):
            return lambda made: result
        if kind in (tuple, list) or hasattr(kind, "_make"):
            parts = [self._part(part) for part in result]
            form = getattr(kind, "_make", kind)
            return lambda made: form([part(made) for part in parts])
        if kind in (dict, OrderedDict):
            named = [(name, self._part(part)) for name, part in result.items()]
            return lambda made: kind([(name, part(made)) for name, part in named])
        raise Refusal(f"it returns a {kind.__name__}, which every call would have to create again")

    def _tensor(self, tensor: Tensor) -> int:
        """The position of a tensor among those that are made."""
        if tensor not in self._positions:
            self.kept.add(id(tensor))
            maker = self._maker(tensor)
            self._positions[tensor] = len(self._makers)
            self._makers.append(maker)
        return self._positions[tensor]

    def _maker(self, tensor: Tensor) -> Maker:
        call = tensor.call
        if tensor in self.before.tensors:
            place = self.before.place(tensor)
            return lambda tensors, buffers, made: place.find(tensors)  # type: ignore
        owner = self.before.owner_of_gradient(tensor)
        if owner is not None:
            holder = self.before.place(owner)
            return lambda tensors, buffers, made: holder.find(tensors).grad  # type: ignore
        if tensor._base is not None:
            return self._view(tensor, call)
        if tensor._cell is not None:
            peers = (*self.before.tensors, *self._positions)
            peer = next((one for one in peers if one._cell is tensor._cell), None)
            if peer is not None:
                return self._peer(tensor, call, peer)
        form = self._form(call)
        if form is None:
            raise Refusal("it returns a tensor that it did not compute")
        return lambda tensors, buffers, made: wrap(form.value(buffers))

    def _form(self, call: Call) -> Fresh | None:
        number = self.numbers.get(call)
        if number is None:
            return None
        self.fresh.add(number)
        return Fresh(number, call.type, call.requires_grad)

    def _view(self, tensor: Tensor, call: Call) -> Maker:
        source, steps = tensor._base, tensor._steps
        assert source is not None
        if source in self.before.hidden:
            source = self._argument_under(tensor)
            steps = steps[len(source._steps) :]
        position, form = self._tensor(source), self._form(call)

        def make(tensors: Arguments, buffers: Buffers, made: list[Tensor]) -> Tensor:
            shown = made[position]
            if form is not None:
                return _view_with(shown, steps, form.value(buffers))
            for step, attributes in steps:
                shown = view(shown, step, attributes)
            return shown

        return make

    def _argument_under(self, tensor: Tensor) -> Tensor:
        """The argument that a result is a view of, if both are views of an unnamed tensor."""
        for one in self.before.arguments:
            if one._base is tensor._base and one._steps == tensor._steps[: len(one._steps)]:
                return one
        raise Refusal("it returns a view of an argument's base")

    def _peer(self, tensor: Tensor, call: Call, peer: Tensor) -> Maker:
        position, form = self._tensor(peer), self._form(call)
        if form is None and call.requires_grad:
            raise Refusal("it returns a tensor that it did not compute")
        is_linked = call is peer._call or (
            call.epoch is not None and call.epoch is peer._call.epoch
        )

        def make(tensors: Arguments, buffers: Buffers, made: list[Tensor]) -> Tensor:
            other = made[position]
            return _peer_with(other, own(other.call) if form is None else form.value(buffers))

        def linked(tensors: Arguments, buffers: Buffers, made: list[Tensor]) -> Tensor:
            found = make(tensors, buffers, made)
            share_epoch(made[position]._call, found._call)
            return found

        return linked if is_linked else make


def _view_with(source: Tensor, steps: tuple[Any, ...], value: Call) -> Tensor:
    """The view of a tensor that `steps` make, with a known value."""
    share_epoch(source.call, value)
    tensor = wrap(value)
    if source._base is None:
        tensor._base, tensor._steps = source, steps
    else:
        tensor._base, tensor._steps = source._base, (*source._steps, *steps)
    tensor._seen = tensor._base._writes
    return tensor


def _peer_with(other: Tensor, value: Call) -> Tensor:
    """A tensor with this value that shares the storage of another tensor."""
    if other._cell is None:
        other._cell, other._seen = Cell(other.call), 0
    tensor = wrap(value)
    tensor._cell, tensor._seen, tensor._writes = other._cell, other._cell.writes, other._writes
    return tensor
