"""Launches of kernels and loops of launches, as LLVM IR of a library's function.

A loop keeps the addresses that its steps read in a table of slots, `%slots`, and the number of its
step in `%steps`; both are made where the function begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from metaop.codegen.llvm.rows import Steps
from metaop.export.integers import IntegerWriter


class Place(NamedTuple):
    """The location of a buffer: a parameter, or a global beginning with @, plus a byte offset."""

    base: str
    offset: Any = 0


class Slot(NamedTuple):
    """The location of a buffer of which a loop keeps the address."""

    number: int


class Launch(NamedTuple):
    """One launch of a kernel over all its tasks."""

    kernel: str
    buffers: Sequence[Place | Slot]
    arguments: Sequence[Any]
    tasks: Any


class Repeat(NamedTuple):
    """Loop `number` of the function: launches that run `once`, and `every` time.

    `bases` are slots to be filled before, with the places of what lies around the loop.
    """

    number: int
    steps: Steps
    bases: Sequence[tuple[int, Place]]
    once: Sequence[Launch | Repeat]
    every: Sequence[Launch | Repeat]

    def numbers(self) -> Iterator[Any]:
        """All numbers that the loop computes with."""
        steps = self.steps
        yield steps.body.length
        yield steps.position[1]
        for _, place in self.bases:
            yield place.offset
        for *_, number in (*steps.fixed, *steps.between, *steps.after):
            yield number
        for _, _, start, stride, *_ in steps.moving:
            yield from (start, stride)
        for one in (*self.once, *self.every):
            yield from one.numbers() if isinstance(one, Repeat) else (*one.arguments, one.tasks)


def every_launch(launches: Sequence[Launch | Repeat]) -> Iterator[Launch]:
    """The launches, with those of its steps in place of a loop."""
    for one in launches:
        if isinstance(one, Repeat):
            yield from every_launch((*one.once, *one.every))
        else:
            yield one


def go_on(writer: IntegerWriter, condition: str, otherwise: str) -> None:
    """Continues if a condition holds."""
    label = f"on{len(writer.lines)}"
    writer.lines += [f"  br i1 {condition}, label %{label}, label %{otherwise}", f"{label}:"]


def address(writer: IntegerWriter, place: Place | Slot) -> str:
    """The operand that holds the address of a buffer."""
    if isinstance(place, Slot):
        return writer.fresh(f"load ptr, ptr {_slot(writer, place.number)}")
    base = place.base if place.base.startswith("@") else f"%{place.base}"
    return _moved(writer, base, writer.integer(place.offset))


def copy(writer: IntegerWriter, target: Place | Slot, source: Place | Slot, nbytes: Any) -> None:
    """Writes the copy of some bytes."""
    to, origin = address(writer, target), address(writer, source)
    operands = f"ptr {to}, ptr {origin}, i64 {writer.integer(nbytes)}, i1 false"
    writer.lines.append(f"  call void @llvm.memcpy.p0.p0.i64({operands})")


def write(launches: Sequence[Launch | Repeat], writer: IntegerWriter) -> None:
    """Writes launches in order; the function goes to `failed` where one reports an error."""
    for one in launches:
        if isinstance(one, Repeat):
            _repeat(one, writer)
        else:
            _launch(one, writer)


def _launch(launch: Launch, writer: IntegerWriter) -> None:
    for number, place in enumerate(launch.buffers):
        found = address(writer, place)
        at = writer.fresh(f"getelementptr ptr, ptr %buffers, i64 {number}")
        writer.lines.append(f"  store ptr {found}, ptr {at}")
    for number, argument in enumerate(launch.arguments):
        value = writer.integer(argument)
        at = writer.fresh(f"getelementptr i64, ptr %scalars, i64 {number}")
        writer.lines.append(f"  store i64 {value}, ptr {at}")
    tasks = writer.integer(launch.tasks)
    writer.lines.append(
        f"  call void @{launch.kernel}(ptr %buffers, ptr %scalars, i64 0, i64 {tasks}, ptr %error)"
    )
    code = writer.fresh("load i64, ptr %error")
    go_on(writer, writer.fresh(f"icmp eq i64 {code}, 0"), "failed")


def _repeat(repeat: Repeat, writer: IntegerWriter) -> None:
    steps, lines = repeat.steps, writer.lines
    for value in repeat.numbers():
        # Computed here, so that it is known within the loop and behind it.
        writer.integer(value)
    for slot, place in repeat.bases:
        _set(writer, slot, address(writer, place))
    for slot, base, offset in steps.fixed:
        start = address(writer, Slot(base))
        _set(writer, slot, _moved(writer, start, writer.integer(offset)))
    counter = writer.fresh(f"getelementptr i64, ptr %steps, i64 {repeat.number}")
    lines.append(f"  store i64 0, ptr {counter}")
    _move_along(steps, writer, "0")
    step, end = f"step{repeat.number}", f"end{repeat.number}"
    go_on(writer, _holds(steps, writer), end)
    write(repeat.once, writer)
    lines += [f"  br label %{step}", f"{step}:"]
    number = writer.fresh(f"load i64, ptr {counter}")
    slot, first, stride = steps.position
    way = writer.fresh(f"mul i64 {number}, {stride}")
    position = writer.fresh(f"add i64 {writer.integer(first)}, {way}")
    lines.append(f"  store i64 {position}, ptr {address(writer, Slot(slot))}")
    write(repeat.every, writer)
    for target, source, nbytes in steps.between:
        copy(writer, Slot(target), Slot(source), nbytes)
    following = writer.fresh(f"add i64 {number}, 1")
    lines.append(f"  store i64 {following}, ptr {counter}")
    _move_along(steps, writer, following)
    is_open = writer.fresh(f"icmp ne i64 {following}, {writer.integer(steps.body.length)}")
    again = writer.fresh(f"and i1 {is_open}, {_holds(steps, writer)}")
    lines += [f"  br i1 {again}, label %{step}, label %{end}", f"{end}:"]
    for target, source, nbytes in steps.after:
        copy(writer, Slot(target), Slot(source), nbytes)


def _move_along(steps: Steps, writer: IntegerWriter, step: str) -> None:
    """Sets the addresses that move to those of a step, the first one of which may be another."""
    for slot, base, start, stride, mask, first in steps.moving:
        if step == "0" and first >= 0:
            _set(writer, slot, address(writer, Slot(first)))
            continue
        turn = step if mask < 0 else writer.fresh(f"and i64 {step}, {mask}")
        way = writer.fresh(f"mul i64 {turn}, {writer.integer(stride)}")
        offset = writer.fresh(f"add i64 {writer.integer(start)}, {way}")
        _set(writer, slot, _moved(writer, address(writer, Slot(base)), offset))


def _holds(steps: Steps, writer: IntegerWriter) -> str:
    """Whether the flag of a loop lets it go on."""
    if steps.guard is None:
        return "true"
    flag = writer.fresh(f"load i8, ptr {address(writer, Slot(steps.guard))}")
    return writer.fresh(f"icmp ne i8 {flag}, 0")


def _slot(writer: IntegerWriter, number: int) -> str:
    return writer.fresh(f"getelementptr ptr, ptr %slots, i64 {number}")


def _set(writer: IntegerWriter, slot: int, value: str) -> None:
    writer.lines.append(f"  store ptr {value}, ptr {_slot(writer, slot)}")


def _moved(writer: IntegerWriter, base: str, offset: str) -> str:
    if offset == "0":
        return base
    return writer.fresh(f"getelementptr i8, ptr {base}, i64 {offset}")
