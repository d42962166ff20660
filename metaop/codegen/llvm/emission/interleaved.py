"""Interleaved stores, written as whole vectors."""

from __future__ import annotations

from collections.abc import Sequence

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.memory import MemoryWriter
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.nest.ir import Store


def store_interleaved(
    memory: MemoryWriter, group: Sequence[Store], values: list[Value], copies: range
) -> bool:
    """Writes 2 or 4 stores whose lanes interleave as whole vectors.

    Returns False, and writes nothing, if they do not.
    """
    width, lanes, code = len(group), memory.index.lanes, memory.code
    buffer = group[0].buffer
    if width not in (2, 4) or lanes.count == 1 or (lanes.mask and not memory.fast_masks):
        return False
    if any(store.buffer != buffer or store.conditions for store in group):
        return False
    places = [memory.index.resolve(group[0].offset, copy) for copy in copies]
    for copy, place in zip(copies, places):
        for number, store in enumerate(group):
            moved = place._replace(constant=place.constant + number)
            if place.vectors or place.lane != width:
                return False
            if memory.index.resolve(store.offset, copy) != moved:
                return False
    masks = [None] * width if lanes.mask is None else _interleaved_mask(memory, width)
    for copy, place in zip(copies, places):
        parts = [_whole(memory, value, buffer) for value in values[copy :: len(copies)]]
        for number, (part, mask) in enumerate(zip(_interleaved(code, parts), masks)):
            start = place._replace(constant=place.constant + number * lanes.count)
            address = code.value(memory.address(buffer, start.uniform), "ptr")
            if mask is None:
                code.store(part, address)
            else:
                code.masked_store(part, address, mask)
    memory.stale(buffer)
    return True


def _interleaved_mask(memory: MemoryWriter, width: int) -> list[Value | None]:
    """The lane mask of each vector that is written."""
    lanes, code = memory.index.lanes, memory.code
    assert lanes.mask is not None
    exists = code.value(lanes.mask, "i1", lanes.count)
    with code.placed(code.level_among(lanes.mask)):
        return [
            code.shuffle(
                exists, None, [place // width for place in range(start, start + lanes.count)]
            )
            for start in range(0, width * lanes.count, lanes.count)
        ]


def _whole(memory: MemoryWriter, value: Value, buffer: int) -> Value:
    """A value in storage form, splatted if it is uniform."""
    code = memory.code
    with code.placed(code.level_among(value.text)):
        stored = memory.narrowed(value, memory.buffers[buffer][1])
        return code.splat(stored, memory.index.lanes.count)


def _interleaved(code: Code, parts: list[Value]) -> list[Value]:
    """Vectors with the first lanes of all parts, then the second ones, and so on."""
    if len(parts) == 1:
        return parts
    evens, odds = _interleaved(code, parts[0::2]), _interleaved(code, parts[1::2])
    count = parts[0].lanes
    first = [lane // 2 + lane % 2 * count for lane in range(count)]
    second = [place + count // 2 for place in first]
    result = []
    for even, odd in zip(evens, odds):
        with code.placed(code.level_among(even.text, odd.text)):
            result += [code.shuffle(even, odd, order) for order in (first, second)]
    return result
