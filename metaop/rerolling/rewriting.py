"""From a subgraph with written-out loops to one with calls of `repeat`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from metaop.differentiation.tape import add_cotangents
from metaop.operators import shaping
from metaop.operators.basic import clone, constant_fill
from metaop.operators.repetition import repeat
from metaop.operators.steps import Origin, Outputs, RecordedCall, RecordedStep, Wires
from metaop.operators.view_write import view_write
from metaop.rerolling.elements import Element, Stacked, Value, Whole
from metaop.rerolling.loop import Carried, Delayed, Gathered, Loop, Own, Singles, Slices, Source
from metaop.rerolling.loops import Loops
from metaop.rerolling.needs import Needs, RefusedError
from metaop.rerolling.periods import FEWEST_COPIES, periodic_runs
from metaop.rerolling.program import Argument, Numbers, Parts, Rerolled
from metaop.rerolling.recorded import Recorded
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.cut import Subgraph, assemble
from metaop.unified_graph.recording import Call, leaf, part
from metaop.unified_graph.tensor_type import CPU, TensorType

# Smaller subgraphs are quick to compile.
_FEWEST_CALLS = 32
# The calls that must go, as a share.
_LEAST_GAIN = 0.3


def rerolled(subgraph: Subgraph, whole: bool = False) -> Rerolled | None:
    """A subgraph with its copies of steps as loops; None if that makes it hardly shorter.

    With `whole`, no output is an element of another one.
    """
    if len(subgraph.order) < _FEWEST_CALLS or subgraph.outputs[0].type.device is not CPU:
        return None
    recorded = Recorded(subgraph)
    loops = Loops(recorded, periodic_runs(recorded.tokens))
    if not loops.found:
        return None
    try:
        made = _Rewriting(loops).run(whole)
    except RefusedError:
        return None
    gain = 1 - len(made.subgraph.order) / len(subgraph.order)
    return made if gain >= _LEAST_GAIN else None


class _Rewriting:
    """Makes the calls that are needed, in the order of those that they replace."""

    def __init__(self, loops: Loops) -> None:
        self.loops, self.recorded = loops, loops.recorded
        self.needs = Needs(loops)
        self.order: list[Call] = []
        self.made: dict[Call, Call] = {}  # by the old call
        self.results: dict[int, Call] = {}  # the calls of `repeat` by the number of the loop
        self.totals: dict[Call, Call] = {}  # what is gathered, by the old call of the last step
        self.parts: dict[tuple[Call, int], Call] = {}
        self.carried: dict[int, list[Carried | Delayed]] = {}  # by the number of the loop
        self.packed: dict[Call, tuple[Call, ...]] = {}  # leaves of numbers, one for each step
        self.aligned: dict[tuple[Slices, bool], Call] = {}
        self.wholes: dict[Whole, Call] = {}

    def run(self, whole: bool) -> Rerolled:
        """The subgraph of what is needed."""
        first_calls = {loop.copies[0][0]: loop for loop in self.loops.found}
        for call in self.recorded.calls:
            if call in first_calls:
                self._emit_loop(first_calls[call])
            # What takes elements may be read by a loop that it is in, so it is made on demand.
            if call in self.needs.calls and call not in self.recorded.takes:
                self._emit_call(call)
        outputs, found = self._outputs(whole)
        slots = {one: slot for slot, one in enumerate(self.recorded.subgraph.leaves)}
        joint: dict[Call, Argument] = {
            call: Numbers(tuple(slots[number] for number in numbers), call.type.dtype)
            for call, numbers in self.packed.items()
        }
        for call, parts in self.recorded.stacks.items():
            elements, positions = zip(*parts)
            joint[call] = Parts(
                tuple(slots[one] for one in elements), positions, call.type.shape[0]
            )
        read = {source for call in self.order for source in call.inputs}
        arguments = {call: place for call, place in {**slots, **joint}.items() if call in read}
        subgraph = assemble(self.order, outputs, {}, list(arguments))
        return Rerolled(subgraph, list(arguments.values()), found)

    def _outputs(self, whole: bool) -> tuple[list[Call], list[tuple[int, int | None]]]:
        """The calls to return, and what each output is of them.

        Outputs that are most elements of something are returned as one stack, except if each is
        wanted as a `whole`.
        """
        elements = [None if whole else self._in_stack(value) for value in self.recorded.outputs]
        uses = Counter(one[:2] for one in elements if one is not None)
        stacks = {one: self._as_stack(*one, count) for one, count in uses.items()}
        outputs: dict[Call, int] = {}
        found: list[tuple[int, int | None]] = []
        for value, element in zip(self.recorded.outputs, elements):
            stack = None if element is None else stacks[element[:2]]
            made = self._one(value) if stack is None else stack
            position = None if stack is None or element is None else element.at
            found.append((outputs.setdefault(made, len(outputs)), position))
        return list(outputs), found

    def _in_stack(self, value: Value) -> Element | None:
        """An output as an element; the results of a last step are there on their own."""
        loop, copy, _ = self.loops.home.get(value[0], (None, 0, 0))
        if loop is not None and copy == len(loop.copies) - 1:
            return None
        return self.loops.element(value)

    def _as_stack(self, whole: Whole, dim: int, count: int) -> Call | None:
        """All elements of a whole, one after another; None if only few of them are needed."""
        if count < FEWEST_COPIES - 1:
            return None
        found = self._whole(whole)
        extent = found.type.shape[dim]
        if 2 * count < extent:
            return None
        found = self._slices(Slices(whole, dim, 0, 1, extent))
        return None if self.recorded.is_leaf((found, 0)) else found

    # --- emission -----------------------------------------------------------------------------

    def _call(
        self, composite: Composite, inputs: Sequence[Call], attributes: tuple[Any, ...] = ()
    ) -> Call:
        signature = composite.signature(tuple(x.type for x in inputs), attributes)
        call = Call(signature, tuple(inputs), signature.types[0], False)
        self.order.append(call)
        return call

    def _part(self, call: Call, number: int) -> Call:
        if not number:
            return call
        if (call, number) not in self.parts:
            self.parts[call, number] = part(call, number)
            self.order.append(self.parts[call, number])
        return self.parts[call, number]

    def _emit_call(self, call: Call) -> None:
        signature = call.signature
        assert signature is not None
        if call in self.needs.joins:
            self.made[call] = self._joined(call, self.needs.joins[call])
            return
        inputs = tuple(map(self._one, self.recorded.operands[call]))
        found = Call(signature, inputs, call.type, False)
        found.location = call.location
        self.order.append(found)
        self.made[call] = found

    def _one(self, value: Value) -> Call:
        """A value on its own."""
        call, output = value
        if self.recorded.is_leaf(value):
            return call
        if call in self.made:
            return self._part(self.made[call], output)
        if call in self.totals:
            return self.totals[call]
        place = self.loops.home.get(call)
        if place is not None and place[2] in place[0].sources:
            loop, copy, number = place
            own = Own(number, output)
            if copy == len(loop.copies) - 1:
                finals = [one[:2] for one in self._carried(loop)]
                return self._part(self.results[loop.number], finals.index(own))
            stacked = self._part(self.results[loop.number], self._stack_number(loop, own))
            return self._call(shaping.select, [stacked], (0, loop.position(copy)))
        element = self.loops.gradient_part(value)
        if element is None:
            self._emit_call(call)
            return self._part(self.made[call], output)
        whole, dim, index = element
        return self._call(shaping.select, [self._whole(whole)], (dim, index))

    def _whole(self, whole: Whole) -> Call:
        """What elements are taken from."""
        if whole not in self.wholes:
            source = whole.source
            if isinstance(source, Stacked):
                loop, *own = source
                number = self._stack_number(self.loops.found[loop], Own(*own))
                found = self._part(self.results[loop], number)
            else:
                found = self._one(source)
            if whole.items is not None:
                found = self._call(shaping.index, [found], (whole.items,))
            if whole.shape is not None:
                found = self._shaped(found, whole.shape)
            self.wholes[whole] = found
        return self.wholes[whole]

    def _slices(self, slices: Slices, flipped: bool = False) -> Call:
        """The elements along a first dimension, in their order or in reverse."""
        key = slices, flipped
        if key in self.aligned:
            return self.aligned[key]
        whole, dim, start, stride, count = slices
        found = self._whole(whole)
        backwards = (stride < 0) != flipped
        least, step = min(start, start + stride * (count - 1)), abs(stride)
        if (least, count, step) != (0, found.type.shape[dim], 1):
            items = [(0, extent, 1) for extent in found.type.shape]
            items[dim] = (least, count, step)
            found = self._call(shaping.index, [found], (tuple(items),))
        if backwards:
            found = self._call(shaping.flip, [found], ((dim,),))
        found = self._moved(found, dim, 0)
        self.aligned[key] = found
        return found

    def _moved(self, call: Call, source: int, target: int) -> Call:
        """Dimension `source` as dimension `target`."""
        if source == target:
            return call
        order = [k for k in range(len(call.type.shape)) if k != source]
        order.insert(target, source)
        return self._call(shaping.permute, [call], (tuple(order),))

    def _joined(self, call: Call, join: list[Slices | Value]) -> Call:
        assert call.signature is not None
        is_stack = call.signature.composite is shaping.stack
        dim, dtype = call.signature.attributes
        pieces = []
        for piece in join:
            if isinstance(piece, Slices):
                one = self._moved(self._slices(piece), 0, dim)
                shape = one.type.shape
                if not is_stack:
                    one = self._merged(one, dim, shape[dim] * shape[dim + 1])
                    shape = one.type.shape
            else:
                one = self._one(piece)
                shape = one.type.shape
                if is_stack:
                    shape = (*shape[:dim], 1, *shape[dim:])
            pieces.append(self._shaped(one, shape))
        if len(pieces) == 1:
            (one,) = pieces
            # A joined value has memory of its own, also if it is all of an argument.
            return self._call(clone, [one]) if self.recorded.is_leaf((one, 0)) else one
        return self._call(shaping.concatenate, pieces, (dim, dtype))

    # --- loops --------------------------------------------------------------------------------

    def _carried(self, loop: Loop) -> list[Carried | Delayed]:
        """The carried values, each once for every value that it begins with."""
        if loop.number not in self.carried:
            read = list(loop.read())
            found = dict.fromkeys(one for one in read if isinstance(one, Carried))
            delayed = dict.fromkeys(one for one in read if isinstance(one, Delayed))
            found.update((one.carried, None) for one in delayed)
            known = {one[:2] for one in found}
            found.update((Carried(*own, None), None) for own in loop.finals if own not in known)
            self.carried[loop.number] = [*found, *delayed]
        return self.carried[loop.number]

    def _stack_number(self, loop: Loop, own: Own) -> int:
        return len(self._carried(loop)) + list(loop.stacks).index(own)

    def _emit_loop(self, loop: Loop) -> None:
        if loop.number in self.needs.running:
            self._emit_repeat(loop)
        for gathered in loop.gathered:
            if gathered.call in self.needs.gathering[loop.number]:
                self.totals[loop.copies[-1][gathered.call]] = self._total(loop, gathered)

    def _emit_repeat(self, loop: Loop) -> None:
        calls = loop.copies[0]
        carried = self._carried(loop)
        rest: dict[Source, Call] = {}
        for source in loop.read():
            if not isinstance(source, Own | Carried | Delayed) and source not in rest:
                rest[source] = self._operand(loop, source)
        first = [self._first(loop, one) for one in carried]
        places: dict[Source, int] = {one: number for number, one in enumerate([*carried, *rest])}
        count, made = len(places), []
        for number, sources in loop.sources.items():
            signature = calls[number].signature
            assert signature is not None
            present = iter(places[source] for source in sources)
            wires = tuple(None if kind is None else next(present) for kind in signature.input_types)
            outputs = len(signature.types)
            made.append(RecordedCall(Origin.of(signature), Wires(wires), Outputs(outputs)))
            for output in range(outputs):
                places[Own(number, output)] = count + output
            count += outputs
        # What is carried twice is at first what was carried once.
        results: list[Source] = [
            one.carried if isinstance(one, Delayed) else Own(one.call, one.output)
            for one in carried
        ]
        results += loop.stacks
        step = RecordedStep(tuple(made), Wires(tuple(places[one] for one in results)))
        flags = tuple(isinstance(source, Slices | Singles) for source in rest)
        attributes = (step, 1, flags, len(loop.copies), loop.reverse, False, False)
        self.results[loop.number] = self._call(repeat, [*first, *rest.values()], attributes)

    def _operand(self, loop: Loop, source: Source) -> Call:
        """What steps read, by position if it differs from step to step."""
        if isinstance(source, Slices):
            return self._slices(source, loop.reverse)
        if isinstance(source, Singles):
            numbers = tuple(number for number, _ in source.values)
            numbers = numbers[::-1] if loop.reverse else numbers
            packed = leaf(TensorType((len(numbers),), numbers[0].type.dtype), None)
            self.packed[packed] = numbers
            return packed
        assert not isinstance(source, Own | Carried | Delayed)
        return self._one(source)

    def _first(self, loop: Loop, carried: Carried | Delayed) -> Call:
        if carried.first is not None:
            return self._one(carried.first)
        assert isinstance(carried, Carried)
        kind = loop.copies[0][carried.call].signature.types[carried.output]  # type: ignore
        zero = False if kind.dtype.kind == "bool" else 0
        return self._call(constant_fill, (), (zero, kind.shape, kind.dtype))

    def _total(self, loop: Loop, gathered: Gathered) -> Call:
        """What a tensor is after all steps have put their elements into it."""
        (shape, dim, least, length), count = gathered.placed, len(loop.copies)
        element, stride = gathered.element, gathered.stride
        if stride < 0:
            least += stride * (count - 1)
        slices = loop.stack_of(element) if isinstance(element, Own) else element
        found = self._slices(slices, stride < 0)
        kept = (length,) if length else ()
        found = self._shaped(found, (count, *shape[:dim], *kept, *shape[dim + 1 :]))
        found = self._moved(found, 0, dim)
        size, step = max(length, 1), abs(stride)
        if length:
            found = self._merged(found, dim, count * size)
        if not gathered.adds:
            items = [(0, extent, 1) for extent in shape]
            items[dim] = (least * size, count * size, step)
            place = (shaping.index, (tuple(items),))
            return self._call(view_write, [self._one(gathered.first), found], ((place,),))
        if step > 1:
            found = self._spread(found, dim, step)
        before, after = [0] * len(shape), [0] * len(shape)
        before[dim], after[dim] = least * size, shape[dim] - (least + count * step) * size
        if before[dim] or after[dim]:
            found = self._call(shaping.pad, [found], (tuple(before), tuple(after), 0))
        return self._call(add_cotangents, [self._one(gathered.first), found])

    def _spread(self, call: Call, dim: int, step: int) -> Call:
        """Single elements of a dimension, each followed by zeros so that they are `step` apart."""
        shape = call.type.shape
        apart = (*shape[: dim + 1], 1, *shape[dim + 1 :])
        found = self._shaped(call, apart)
        after = tuple(step - 1 if k == dim + 1 else 0 for k in range(len(apart)))
        found = self._call(shaping.pad, [found], ((0,) * len(apart), after, 0))
        return self._merged(found, dim, shape[dim] * step)

    def _merged(self, call: Call, dim: int, extent: int) -> Call:
        """Two dimensions from `dim` on as one."""
        shape = call.type.shape
        return self._shaped(call, (*shape[:dim], extent, *shape[dim + 2 :]))

    def _shaped(self, call: Call, shape: tuple[int, ...]) -> Call:
        same = shape == call.type.shape
        return call if same else self._call(shaping.reshape, [call], (shape,))
