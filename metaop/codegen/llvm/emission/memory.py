"""Loads and stores of elements: the address of an access, and the form that its lanes take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.lanes import Resolved, Segment
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.llvm.instructions.conversion import compute_type
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.llvm.target import Target
from metaop.codegen.nest.ir import LONGEST_STRIDE, Condition, Load, Sum
from metaop.unified_graph.dtype import DType

# With more runs of neighbours in a vector than this, or fewer with a stride, they are gathered:
# each vector that is read needs a mask, and there are eight mask registers.
_MOST_SEGMENTS, _MOST_MASKS = 4, 6
# The bytes that can be read if one of them can: no system has smaller pages.
_PAGE = 4096
_STORAGE_TYPES = {"bool": "i8", "float16": "i16", "bfloat16": "i16"}


def storage_type(dtype: DType) -> str:
    """The LLVM type of an element in memory."""
    return _STORAGE_TYPES.get(dtype.name) or compute_type(dtype)


class MemoryWriter:
    """Writes loads and stores.

    `buffers` holds the address and the element type of every buffer; those in `read_only` are
    never written by the kernel.
    """

    def __init__(self, code: Code, index: IndexWriter, target: Target) -> None:
        self.code = code
        # AVX has masks for elements of 4 and 8 bytes, AVX-512 for all.
        self.fast_masks, self.masks_of_words = target.has_avx512, target.vector_bytes >= 32
        self.index = index
        self.buffers: dict[int, tuple[str, DType]] = {}
        self.read_only: frozenset[int] = frozenset()
        # Eight zero bytes that a load reads, and bytes that a store may overwrite, in place of an
        # element that must not be accessed.
        self.nowhere, self.sink = "%nowhere", "%sink"
        # Buffers with nontemporal stores: whole vectors at aligned addresses.
        self.streamed: frozenset[int] = frozenset()
        self._loads: dict[int, list[str]] = {}
        # The values of loads that were read in tiles, by identity and copy.
        self.tiled: dict[tuple[int, int], Value] = {}

    # --- storage ----------------------------------------------------------------------------

    def widened(self, x: Value, dtype: DType) -> Value:
        """A stored element in the compute type."""
        if dtype.kind == "bool":
            return x.differs(0)
        if dtype.name == "float16":
            return self.code.widen_float16(x)
        return self.code.widen_bfloat16(x) if dtype.name == "bfloat16" else x

    def narrowed(self, x: Value, dtype: DType) -> Value:
        """A value of the compute type in storage form."""
        if dtype.kind == "bool":
            return self.code.to_type(x, "i8", signed=False)
        if dtype.name == "float16":
            return self.code.narrow_float16(x)
        return self.code.narrow_bfloat16(x) if dtype.name == "bfloat16" else x

    def constant(self, number: Any, dtype: DType, lanes: int = 1) -> Value:
        """A literal in the compute type."""
        return self.code.constant(number, compute_type(dtype), lanes, dtype.is_signed)

    # --- addresses --------------------------------------------------------------------------

    def address(self, buffer: int, index: Resolved) -> str:
        """The address of the uniform part of an index: outer terms first, the literal last."""
        pointer, dtype = self.buffers[buffer]
        element = storage_type(dtype)
        level_of = self.code.level_of
        for name, scale in sorted(index.scalars, key=lambda term: level_of.get(term[0], 0)):
            pointer = self._moved(pointer, element, self.index.binary("mul", name, scale))
        return self._moved(pointer, element, index.constant)

    def _moved(self, pointer: str, element: str, offset: Coefficient) -> str:
        if offset == 0:
            return pointer
        text = f"getelementptr {element}, ptr {pointer}, i64 {offset}"
        return self.code.pure(text, pointer, str(offset))

    def addresses(self, buffer: int, index: Resolved) -> str:
        """One address for each lane."""
        start, element = self.address(buffer, index.uniform), storage_type(self.buffers[buffer][1])
        count = self.index.lanes.count
        if self.index.bound(index) is None:
            steps, kind = self.index.vector(index, start=0), "i64"
        else:
            steps, kind = self.index.small_part(index), "i32"
        text = f"getelementptr {element}, ptr {start}, <{count} x {kind}> {steps}"
        return self.code.pure(text, start, steps)

    # --- masks ------------------------------------------------------------------------------

    def masks(self, conditions: tuple[Condition, ...], copy: int) -> tuple[str | None, str | None]:
        """Where conditions hold, as (i1, vector of i1), including the mask of active lanes."""
        scalar, lanes = self.index.conditions(conditions, copy)
        tail = self.index.lanes.mask
        if tail is not None:
            lanes = tail if lanes is None else self.index.both(tail, lanes, self.index.lanes.count)
        return (None if scalar == "true" else scalar), lanes

    def lane_mask(self, scalar: str | None, lanes: str | None) -> Value | None:
        """Both kinds of conditions as one mask."""
        count = self.index.lanes.count
        if scalar is not None:
            whole = "zeroinitializer" if scalar == "false" else self.index.splat(scalar, "i1")
            lanes = whole if lanes is None else self.index.both(lanes, whole, count)
        return None if lanes is None else self.code.value(lanes, "i1", count)

    # --- loads ------------------------------------------------------------------------------

    def load(self, load: Load, copy: int) -> Value:
        """The value of a load: a scalar if it is uniform, else a vector."""
        found = self.tiled.get((id(load), copy))
        if found is not None:
            return found
        index = self.index.resolve(load.offset, copy)
        scalar, lanes = self.index.conditions(load.conditions, copy)
        fill = self.constant(load.fill, load.dtype)
        if scalar == "false":
            return fill
        if not index.varies:
            value = self._load_scalar(load, index, None if scalar == "true" else scalar)
            if lanes is None:
                return value
            mask = self.code.value(lanes, "i1", self.index.lanes.count)
            with self.code.placed(self.code.level_among(mask.text, value.text)):
                return self.code.select(mask, value, fill)
        return self._load_lanes(load, index, self.lane_mask(*self.masks(load.conditions, copy)))

    def _load_scalar(self, load: Load, index: Resolved, condition: str | None) -> Value:
        code = self.code
        address = self.address(load.buffer, index)
        if condition is not None:
            text = f"select i1 {condition}, ptr {address}, ptr {self.nowhere}"
            address = code.pure(text, condition, address)
        value = self._read(load, address, code.level_among(address), 1, None, 1)
        if condition is None:
            return value
        with code.placed(code.level_among(condition, value.text)):
            fill = self.constant(load.fill, load.dtype)
            return code.select(code.value(condition, "i1"), value, fill)

    def _load_lanes(self, load: Load, index: Resolved, mask: Value | None) -> Value:
        count, code = self.index.lanes.count, self.code
        reverse = index.lane == -1 and not index.vectors
        contiguous = index.lane == 1 and not index.vectors
        segments = None if contiguous else self.segments(load.dtype, index)
        if segments is not None:
            return self._load_segments(load, index, segments, mask)
        if not (contiguous or reverse):
            addresses = self.addresses(load.buffer, index)
            level = code.level_among(addresses, mask.text if mask else "")
            value = self._read(load, addresses, level, count, mask, count)
            return self._filled(value, mask, load)
        first = index._replace(constant=index.constant - (count - 1 if reverse else 0))
        address = self.address(load.buffer, first.uniform)
        memory_mask = self.reversed(mask) if mask and reverse else mask
        level = code.level_among(address, memory_mask.text if memory_mask else "")
        value = self._read(load, address, level, 1, memory_mask, count)
        return self._filled(self.reversed(value) if reverse else value, mask, load)

    def has_masks(self, dtype: DType) -> bool:
        """Whether masked accesses to elements of a type are fast."""
        return self.fast_masks or (self.masks_of_words and dtype.itemsize >= 4)

    def is_near(self, stride: object) -> bool:
        """Whether elements at this distance are read as runs rather than gathered."""
        return isinstance(stride, int) and 1 <= stride <= LONGEST_STRIDE

    def segments(
        self, dtype: DType, index: Resolved, longest: int = LONGEST_STRIDE
    ) -> list[Segment] | None:
        """The runs of lanes at most `longest` apart, if masked accesses to them are fast."""
        stride = index.lane
        if not (isinstance(stride, int) and 1 <= stride <= longest and self.has_masks(dtype)):
            return None
        if not index.vectors:
            return [Segment("true", 0)]
        return self.index.segments(index, min(_MOST_SEGMENTS, _MOST_MASKS // stride))

    def _load_segments(
        self, load: Load, index: Resolved, segments: list[Segment], mask: Value | None
    ) -> Value:
        """A vector of several runs of evenly spaced lanes, each loaded in its lanes.

        With a stride, all elements from the first to the last are loaded under masks, and those of
        the lanes are selected.
        """
        code, count, stride = self.code, self.index.lanes.count, index.lane
        assert isinstance(stride, int)
        # Loads of the other lanes in between read the same vectors.
        residue = index.constant % stride
        is_shared = load.around[0] >= residue and load.around[1] >= stride - 1 - residue
        residue = residue if is_shared else 0
        index = index._replace(constant=index.constant - residue)
        result: Value | None = None
        for segment in segments:
            lanes = segment.mask
            if mask is not None:
                lanes = self.index.both(lanes, mask.text, count)
            wide = self._spread(lanes, stride, is_shared)
            address = self._segment_address(load.buffer, index, segment)
            level = code.level_among(address, wide.text, result.text if result else "")
            result = self._read_raw(load, address, level, 1, wide, wide.lanes, result or 0)
        assert result is not None
        with code.placed(code.level_among(result.text)):
            if stride > 1:
                result = code.shuffle(result, None, range(residue, count * stride, stride))
            result = self.widened(result, load.dtype)
        return self._filled(result, mask, load)

    def _spread(self, lanes: str, stride: int, whole: bool = False) -> Value:
        """A lane mask spread to elements: the first of every `stride`, or with `whole` all."""
        code, count = self.code, self.index.lanes.count
        if lanes == "true":
            last = count * stride if whole else (count - 1) * stride
            return code.vector_constant([k <= last for k in range(count * stride)], "i1")
        mask = code.value(lanes, "i1", count)
        if stride == 1:
            return mask
        order = [count if k % stride and not whole else k // stride for k in range(count * stride)]
        with code.placed(code.level_among(lanes)):
            if self.fast_masks and count * stride <= 64:
                return self._deposited(mask, stride, whole)
            return code.shuffle(mask, code.constant(0, "i1", count), order)

    def _deposited(self, mask: Value, stride: int, whole: bool) -> Value:
        """The same for AVX-512, whose masks are integers, by one instruction that spreads bits.

        With `whole`, each gap is filled with the bit before it.
        """
        code, count = self.code, mask.lanes
        code.declare("declare i64 @llvm.x86.bmi.pdep.64(i64, i64)")
        bits = code.emit(f"bitcast {mask.typed} to i{count}")
        bits = code.emit(f"zext i{count} {bits} to i64") if count < 64 else bits
        places = sum(1 << lane * stride for lane in range(count))
        bits = code.emit(f"call i64 @llvm.x86.bmi.pdep.64(i64 {bits}, i64 {places})")
        if whole:
            bits = code.emit(f"mul i64 {bits}, {(1 << stride) - 1}")
        wide = count * stride
        bits = code.emit(f"trunc i64 {bits} to i{wide}") if wide < 64 else bits
        return code.value(code.emit(f"bitcast i{wide} {bits} to <{wide} x i1>"), "i1", wide)

    def _segment_address(self, buffer: int, index: Resolved, segment: Segment) -> str:
        start = index.uniform
        if isinstance(segment.moved, int):
            start = start._replace(constant=start.constant + segment.moved)
        else:
            start = start._replace(scalars=(*start.scalars, (segment.moved, 1)))
        return self.address(buffer, start)

    def reversed(self, x: Value) -> Value:
        """The lanes in the opposite order."""
        with self.code.placed(self.code.level_among(x.text)):
            return self.code.shuffle(x, None, range(x.lanes - 1, -1, -1))

    def _filled(self, value: Value, mask: Value | None, load: Load) -> Value:
        # A masked load gives 0, but not -0.0, where nothing is read.
        is_zero = not load.fill and math.copysign(1, load.fill) > 0
        if mask is None or not load.conditions or is_zero:
            return value
        with self.code.placed(self.code.level_among(mask.text, value.text)):
            return self.code.select(mask, value, self.constant(load.fill, load.dtype))

    def _read(
        self, load: Load, address: str, level: int, addresses: int, mask: Value | None, count: int
    ) -> Value:
        """Reads and widens elements."""
        raw = self._read_raw(load, address, level, addresses, mask, count, 0)
        with self.code.placed(self.code.level_among(raw.text)):
            return self.widened(raw, load.dtype)

    def _read_raw(
        self,
        load: Load,
        address: str,
        level: int,
        addresses: int,
        mask: Value | None,
        count: int,
        fill: Value | int,
    ) -> Value:
        """Elements in storage form; records the load, which a store to the buffer makes stale."""
        code, buffer, dtype = self.code, load.buffer, load.dtype
        element, signed = storage_type(dtype), dtype.is_signed
        where = code.value(address, "ptr", addresses)
        with code.placed(code.load_level(level, buffer)):
            start = len(code.lines)
            if addresses > 1:
                every = mask or code.constant(1, "i1", count)
                raw = code.gather(where, every, element, signed=signed)
            elif mask is not None and count > 1:
                filling = code.splat(code.coerce(fill, element), count)
                key = f"{where.typed}, {mask.typed}, {filling.typed}"
                name = code.once(key, lambda: self._masked(where, mask, filling, signed))
                raw = code.value(name, element, count, signed)
                if buffer not in self.read_only:
                    self._loads.setdefault(buffer, []).append(key)
            else:
                raw = code.load(where, element, count, signed=signed)
            if buffer not in self.read_only:
                written = [line.split(" = ", 1)[1] for line in code.lines[start:] if " = " in line]
                self._loads.setdefault(buffer, []).extend(written)
            return raw

    def _masked(self, address: Value, mask: Value, fill: Value, signed: bool) -> Value:
        """The elements at an address where a mask holds, the fill elsewhere.

        Before AVX-512, a masked load is slow or, of small elements, a branch for each. So without
        an active lane nothing is loaded, and else the whole vector, unless it crosses a page: where
        one element can be read, the rest of its page can.
        """
        code, count = self.code, mask.lanes

        def masked() -> Value:
            return code.masked_load(address, mask, fill.type, fill, signed=signed)

        def whole() -> Value:
            found = code.load(address, fill.type, count, signed=signed)
            return code.select(mask, found, fill)

        def active() -> Value:
            place = code.emit(f"ptrtoint {address.typed} to i64")
            place = code.emit(f"and i64 {place}, {_PAGE - 1}")
            last = _PAGE - count * fill.bits // 8
            fits = code.value(code.emit(f"icmp ule i64 {place}, {last}"), "i1")
            return code.if_else(fits, whole, masked)

        # Only the last vector of a loop needs the mask of its lanes.
        if self.fast_masks or mask.text == self.index.lanes.mask:
            return masked()
        if mask.text.startswith("<"):
            return active()
        bits = code.pure(f"bitcast {mask.typed} to i{count}", mask.text)
        some = code.value(code.pure(f"icmp ne i{count} {bits}, 0", bits), "i1")
        return code.if_else(some, active, lambda: fill)

    def prefetch(self, buffer: int, offset: Sum, nearest: bool, copy: int) -> None:
        """Prefetches the cache line of the element of the first lane."""
        address = self.address(buffer, self.index.resolve(offset, copy).uniform)
        self.code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.code.line(
            f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 {2 + nearest}, i32 1)"
        )

    # --- stores -----------------------------------------------------------------------------

    def store(
        self, buffer: int, offset: Sum, value: Value, conditions: tuple[Condition, ...], copy: int
    ) -> None:
        """Writes a value of the compute type of the buffer."""
        code, count = self.code, self.index.lanes.count
        dtype = self.buffers[buffer][1]
        with code.placed(code.level_among(value.text)):
            value = self.narrowed(value, dtype)
        index = self.index.resolve(offset, copy)
        scalar, lanes = self.masks(conditions, copy)
        if scalar == "false":
            return
        if count == 1 or not (index.varies or value.lanes > 1 or lanes is not None):
            address = self.address(buffer, index)
            if scalar is not None:
                text = f"select i1 {scalar}, ptr {address}, ptr {self.sink}"
                address = code.pure(text, scalar, address)
            code.store(value, code.value(address, "ptr"))
        else:
            with code.placed(code.level_among(value.text)):
                value = code.splat(value, count)
            self._store_lanes(buffer, index, value, self.lane_mask(scalar, lanes))
        self.stale(buffer)

    def _store_lanes(self, buffer: int, index: Resolved, value: Value, mask: Value | None) -> None:
        code, count = self.code, self.index.lanes.count
        segments = self.segments(self.buffers[buffer][1], index)
        if segments is not None and (index.vectors or index.lane != 1):
            self._store_segments(buffer, index, segments, value, mask)
            return
        if index.lane not in (1, -1) or index.vectors:
            addresses = code.value(self.addresses(buffer, index), "ptr", count)
            code.scatter(value, addresses, mask or code.constant(1, "i1", count))
            return
        if index.lane == -1:
            index = index._replace(constant=index.constant - count + 1)
            value, mask = self.reversed(value), self.reversed(mask) if mask else None
        address = code.value(self.address(buffer, index.uniform), "ptr")
        if mask is not None:
            self._store_masked(value, [(address, mask)])
        elif buffer in self.streamed:
            code.store(value, address, value.lanes * value.bits // 8, nontemporal=True)
        else:
            code.store(value, address)

    def _store_segments(
        self,
        buffer: int,
        index: Resolved,
        segments: list[Segment],
        value: Value,
        mask: Value | None,
    ) -> None:
        """Writes several runs of evenly spaced lanes, each under a mask.

        With a stride, the lanes are first spread in a longer vector.
        """
        code, stride = self.code, index.lane
        assert isinstance(stride, int)
        if stride > 1:
            with code.placed(code.level_among(value.text)):
                order = [lane // stride for lane in range(value.lanes * stride)]
                value = code.shuffle(value, None, order)
        places = []
        for segment in segments:
            lanes = segment.mask
            if mask is not None:
                lanes = self.index.both(lanes, mask.text, mask.lanes)
            address = code.value(self._segment_address(buffer, index, segment), "ptr")
            places.append((address, self._every(lanes, stride)))
        self._store_masked(value, places)

    def _store_masked(self, value: Value, places: Sequence[tuple[Value, Value]]) -> None:
        """Writes a vector at addresses under masks, of which a lane is in at most one.

        Before AVX-512, some processors take a dozen clocks for a masked store. So lanes that are
        all at the first address are stored without a mask.
        """
        code, count = self.code, value.lanes
        address, mask = places[0]

        def one_by_one() -> None:
            for place, lanes in places:
                code.masked_store(value, place, lanes)

        if self.fast_masks or mask.text.startswith("<"):
            one_by_one()
            return
        bits = code.pure(f"bitcast {mask.typed} to i{count}", mask.text)
        whole = code.pure(f"icmp eq i{count} {bits}, -1", bits)
        code.either(whole, lambda: code.store(value, address), one_by_one)

    def _every(self, lanes: str, stride: int) -> Value:
        """A mask of lanes as one of elements, of which each lane has the first of `stride`."""
        count = self.index.lanes.count
        if lanes == "true":
            return self.code.vector_constant([k % stride == 0 for k in range(count * stride)], "i1")
        return self._spread(lanes, stride)

    def stale(self, buffer: int) -> None:
        """Forgets earlier loads of a buffer that was written."""
        self.code.forget(self._loads.pop(buffer, ()))
