"""Loops: their blocks, their carried values, and vector loops with remainders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from metaop.codegen.llvm.emission.accumulators import Accumulators
from metaop.codegen.llvm.emission.code import Code
from metaop.codegen.llvm.emission.expression import ExpressionWriter
from metaop.codegen.llvm.emission.index import IndexWriter
from metaop.codegen.llvm.emission.lanes import NO_LANES, Lanes
from metaop.codegen.llvm.emission.memory import MemoryWriter
from metaop.codegen.llvm.emission.scalars import Coefficient
from metaop.codegen.llvm.emission.streams import StreamWriter
from metaop.codegen.llvm.emission.survey import Survey
from metaop.codegen.llvm.emission.tiles import Span, Tile, TileWriter
from metaop.codegen.llvm.instructions.value import Value
from metaop.codegen.llvm.target import Target
from metaop.codegen.nest.ir import Condition, For, InBounds, Load, Statement

Run = Callable[[Coefficient, list[Value]], list[Value]]
# The independent chains that hide the latency of an addition, and the most operations of a body in
# all copies.
_CHAINS = 4
_WORK_IN_COPIES = 72
# Bodies with at most this many operations are unrolled for every iteration of a tile.
_WORK_UNROLLED = 8
# Bodies with at most so much work, in loops of at least so many vectors, are written once more
# without the conditions that hold inside.
_WORK_INSIDE, _SHORTEST_INSIDE = 24, 6
# Loops of fewer iterations test conditions in each.
_LONG = 512


class _Tiled(NamedTuple):
    """A loop, the names that it accumulates, and its loads in tiles, each in every copy."""

    loop: For
    names: list[str]
    places: list[tuple[Load, int]]


class LoopWriter:
    """Writes loops; `write_body` writes the statements inside."""

    def __init__(
        self,
        code: Code,
        index: IndexWriter,
        memory: MemoryWriter,
        expressions: ExpressionWriter,
        streams: StreamWriter,
        target: Target,
        write_body: Callable[[Sequence[Statement]], None],
    ) -> None:
        self.code = code
        self.index = index
        self.memory = memory
        self.expressions = expressions
        self.streams = streams
        self.target = target
        self.write_body = write_body
        self.tiles = TileWriter(code, index, memory, self.loop)
        self.accumulators = Accumulators(code, index, memory, expressions)
        self._surveys: dict[int, Survey] = {}

    def write(self, loop: For) -> None:
        """Writes a loop and binds the results of its accumulators."""
        survey = self.survey(loop)
        known = self.accumulators.known
        known.update({accumulator.name: accumulator for accumulator in loop.accumulators})
        names = [name for name in known if name in survey.accumulated]
        names += [a.name for a in loop.accumulators if a.name not in names]
        own = {accumulator.name for accumulator in loop.accumulators}
        outer = dict(self.index.bindings)
        parallel = loop.kind == "parallel"
        start: Coefficient = "%begin" if parallel else 0
        stop: Coefficient = "%end" if parallel else self.index.extent(loop.extent)
        if loop.vector and self.index.lanes is NO_LANES:
            results = self._vector(loop, start, stop, names)
            for name in names:
                if name not in own:
                    results[name] = self.accumulators.combine(name, outer[name, 0], results[name])
            ended = {(name, 0): value for name, value in results.items()}
        else:
            for name in own:
                self.accumulators.start(name, self.index.lanes.count)
            if loop.kind == "unroll":
                self._unrolled(loop, stop)
            else:
                self._counted(loop, start, stop, names)
            copies = range(self.index.lanes.copies)
            ended = {(n, c): self.index.bindings[n, c] for n in names for c in copies}
        self.index.bindings.clear()
        self.index.bindings.update(outer)
        self.index.bindings.update(ended)
        for name in own:
            del known[name]

    def survey(self, loop: For) -> Survey:
        """The facts about the body of a loop."""
        found = self._surveys.get(id(loop))
        if found is None:
            found = self._surveys[id(loop)] = Survey(loop.body, self.memory.buffers)
        return found

    # --- the blocks of a loop ---------------------------------------------------------------

    def loop(
        self,
        start: Coefficient,
        stop: Coefficient,
        step: int,
        carried: list[Value],
        writes: frozenset[int],
        run: Run,
    ) -> list[Value]:
        """`for i in range(start, stop, step)`: `run(i, values)` returns the next carried values."""
        code = self.code
        certain = False
        if isinstance(start, int) and isinstance(stop, int):
            certain = True
            if start >= stop:
                return carried
            if start + step >= stop:
                return run(start, carried)
        before, prelude, body, done = code.block, *map(code.new_label, ("before", "loop", "done"))
        if certain:
            code.line(f"br label %{prelude}")
        else:
            some = code.emit(f"icmp slt i64 {start}, {stop}")
            code.line(f"br i1 {some}, label %{prelude}, label %{done}")
        scope = code.open(prelude, body, certain, writes)
        index = code.fresh("i")
        if isinstance(stop, int):
            self.index.limits[index] = stop - 1
        if isinstance(start, int):
            self.index.multiples[index] = math.gcd(start, step)
        values = [code.like(value, code.fresh("carried")) for value in carried]
        results = run(index, values)
        following = code.emit(f"add nuw nsw i64 {index}, {step}")
        again = code.emit(f"icmp slt i64 {following}, {stop}")
        code.line(f"br i1 {again}, label %{body}, label %{done}")
        latch, entry = scope.block, scope.prelude_block
        code.close()
        head = [f"  {index} = phi i64 [ {start}, %{entry} ], [ {following}, %{latch} ]"]
        for value, first, last in zip(values, carried, results):
            sources = f"[ {first.text}, %{entry} ], [ {last.text}, %{latch} ]"
            head.append(f"  {value.text} = phi {value.full_type} {sources}")
        code.lines += [f"{prelude}:", scope.prelude, f"  br label %{body}", f"{body}:", head]
        code.lines += [scope.lines, f"{done}:"]
        code.block = code.scopes[-1].block = done
        return self._after(carried, results, None if certain else before, latch)

    def _after(
        self, carried: list[Value], results: list[Value], before: str | None, latch: str
    ) -> list[Value]:
        ended = []
        for first, last in zip(carried, results):
            name = self.code.fresh("ended")
            skipped = f"[ {first.text}, %{before} ], " if before else ""
            sources = f"{skipped}[ {last.text}, %{latch} ]"
            self.code.lines.append(f"  {name} = phi {last.full_type} {sources}")
            ended.append(self.code.like(last, name))
        return ended

    def _counted(self, loop: For, start: Coefficient, stop: Coefficient, names: list[str]) -> None:
        """A serial loop, in the lanes of the enclosing vector loop."""
        loads = self.tiles.wanted(loop, self.survey(loop).written)
        if loads:
            start = self._in_tiles(loop, start, stop, names, loads)
            if start == stop:
                return
        self._iterations(loop, start, stop, 1, names, lambda _: self.write_body(loop.body))

    def _iterations(
        self,
        loop: For,
        start: Coefficient,
        stop: Coefficient,
        step: int,
        names: list[str],
        run: Callable[[Coefficient], None],
    ) -> None:
        """Writes a part of a loop that carries its accumulators."""
        bindings = self.index.bindings
        keys = [(name, copy) for name in names for copy in range(self.index.lanes.copies)]

        def once(index: Coefficient, values: list[Value]) -> list[Value]:
            self.index.enter(loop.axis, index, loop.extent)
            bindings.update(zip(keys, values))
            run(index)
            return [bindings[key] for key in keys]

        carried = [bindings[key] for key in keys]
        written = frozenset(self.survey(loop).written)
        bindings.update(zip(keys, self.loop(start, stop, step, carried, written, once)))

    def _in_tiles(
        self,
        loop: For,
        start: Coefficient,
        stop: Coefficient,
        names: list[str],
        loads: Sequence[Load],
    ) -> Coefficient:
        """Writes a loop with some loads read in tiles; returns the first remaining iteration."""
        count, binary = self.index.lanes.count, self.index.binary
        places = [(load, copy) for load in loads for copy in range(self.index.lanes.copies)]
        tiled = _Tiled(loop, names, places)
        length = binary("sub", stop, start)
        rounded = (
            length // count * count if isinstance(length, int) else binary("and", length, -count)
        )
        end = binary("add", start, rounded)
        is_small = self.survey(loop).work * len(places) <= _WORK_UNROLLED
        run = self._tile_unrolled if is_small else self._tile_kept
        if self.index.lanes.mask is None:
            self._iterations(
                loop, start, end, count, names, lambda first: run(tiled, first, Span(first, stop))
            )
        else:
            end = start
        if end != stop and all(self.memory.has_masks(load.dtype) for load in loads):
            last = None if self.index.lanes.mask else self._last_span(start, end, stop)
            self._iterations(
                loop, end, stop, count, names,
                lambda first: self._tile_kept(tiled, first, last or Span(first, stop, None)),
            )  # fmt: skip
            end = stop
        self._forget(tiled)
        return end

    def _last_span(self, start: Coefficient, end: Coefficient, stop: Coefficient) -> Span:
        """What the tile of the iterations from `end` to `stop` reads, of a loop from `start` on.

        It begins early enough to be whole if the loop is long enough.
        """
        binary = self.index.binary
        early = binary("sub", stop, self.index.lanes.count)
        if isinstance(start, int) and isinstance(early, int):
            return Span(early, stop) if early >= start else Span(end, stop, None)
        is_whole = self.code.pure(f"icmp sge i64 {early}, {start}", str(early), str(start))
        return Span(self.index.greater(early, start), stop, is_whole)

    def _tile_unrolled(self, tiled: _Tiled, first: Coefficient, span: Span) -> None:
        """The iterations of a whole tile, unrolled."""
        tiles = self._tiles(tiled, span)
        for number in range(self.index.lanes.count):
            self.index.loops[tiled.loop.axis] = self.index.binary("add", first, number)
            self._take(tiles, number)
            self.write_body(tiled.loop.body)

    def _tile_kept(self, tiled: _Tiled, first: Coefficient, span: Span) -> None:
        """A loop over the iterations of a tile from the first one on."""
        tiles = self._tiles(tiled, span)

        def once(index: Coefficient) -> None:
            self._take(tiles, self.index.binary("sub", index, span.start))
            self.write_body(tiled.loop.body)

        after = self.index.lesser(
            self.index.binary("add", first, self.index.lanes.count), span.stop
        )
        self._iterations(tiled.loop, first, after, 1, tiled.names, once)

    def _take(self, tiles: dict[tuple[int, int], Tile], number: Coefficient) -> None:
        """Gives loads their values in one iteration of the tiles."""
        for key, tile in tiles.items():
            self.memory.tiled[key] = self.tiles.column(tile, number)

    def _tiles(self, tiled: _Tiled, span: Span) -> dict[tuple[int, int], Tile]:
        """The tiles of some iterations, by load and copy."""
        self._forget(tiled)
        return {
            (id(load), copy): self.tiles.read(load, copy, tiled.loop.axis, span)
            for load, copy in tiled.places
        }

    def _forget(self, tiled: _Tiled) -> None:
        for load, copy in tiled.places:
            self.memory.tiled.pop((id(load), copy), None)

    def _unrolled(self, loop: For, extent: Coefficient) -> None:
        assert isinstance(extent, int)
        for iteration in range(extent):
            self.index.loops[loop.axis] = iteration
            self.write_body(loop.body)

    # --- vector loops -----------------------------------------------------------------------

    def _vector(
        self, loop: For, start: Coefficient, stop: Coefficient, names: list[str]
    ) -> dict[str, Value]:
        """A vector loop: several vectors at a time, single vectors, and the remainder."""
        count, copies = self._width(loop, start, stop)
        self.accumulators.running = frozenset(a.name for a in loop.accumulators if a.running)
        binary = self.index.binary
        partial = self.accumulators.identities(names, count)
        stores = [] if names and not self.target.has_avx512 else self.streams.stores(loop, count)
        if stores:
            aligned = self.streams.first_aligned(stores, loop, start, stop, count)
            partial = self._partly(loop, start, aligned, count, partial)
            start = aligned
            self.memory.streamed = frozenset(store.buffer for store in stores)
        certain, conditions = self._certain(loop, start, stop, names)
        if not names and copies == 1 < count and not self.memory.fast_masks:
            start = self._through_the_inside(loop, start, stop, count)
        self.index.assumed = conditions
        length = binary("sub", certain, start)
        for group in sorted({copies, 1}, reverse=True):
            if count == 1:
                break
            size = count * group
            rounded = (
                length // size * size if isinstance(length, int) else binary("and", length, -size)
            )
            end = binary("add", binary("sub", certain, length), rounded)
            partial = self._stage(loop, start, end, Lanes(loop.axis, 0, count, group), partial)
            start, length = end, binary("sub", length, rounded)
        self.memory.streamed, self.index.assumed = frozenset(), frozenset()
        if count > 1 and self.target.has_avx512 and length != 1:
            return self.accumulators.across(self._partly(loop, start, stop, count, partial))
        if not names:
            start = self._halved(loop, start, stop, count)
        return self._stage(loop, start, stop, NO_LANES, self.accumulators.across(partial))

    def _certain(
        self, loop: For, start: Coefficient, stop: Coefficient, names: list[str]
    ) -> tuple[Coefficient, frozenset[Condition]]:
        """Where some conditions of a loop that accumulates begin to fail, and these conditions.

        The last part of a long sum may be shorter than the others; only its end is tested.
        """
        survey, index = self.survey(loop), self.index
        is_short = isinstance(loop.extent, int) and loop.extent < _LONG
        if not names or is_short or survey.has_loops:
            return stop, frozenset()
        found: list[Condition] = []
        for condition in survey.conditions:
            if not isinstance(condition, InBounds):
                continue
            rest = index.rest_along(loop.axis, condition.index, is_natural=True)
            if rest is not None:
                end = index.binary("sub", index.integer(condition.extent), rest)
                stop = index.lesser(stop, end)
                found.append(condition)
        return (index.greater(start, stop) if found else stop), frozenset(found)

    def _body_of_one_quotient(self, loop: For) -> None:
        """Writes a body twice if its lanes mostly have one quotient: for these, and for others."""
        survey, index = self.survey(loop), self.index
        every = None
        known = set()
        if survey.work <= _WORK_INSIDE and not survey.has_loops:
            for factor in survey.divided:
                holds = index.has_one_quotient(factor)
                if holds is not None:
                    every = holds if every is None else index.both(every, holds, 1)
                    known.add((factor.dividend, factor.divisor))
        if every is None:
            self.write_body(loop.body)
            return

        def one() -> None:
            index.undivided = frozenset(known)
            self.write_body(loop.body)
            index.undivided = frozenset()

        self.code.either(every, one, lambda: self.write_body(loop.body))

    def _through_the_inside(
        self, loop: For, start: Coefficient, stop: Coefficient, count: int
    ) -> Coefficient:
        """Writes a vector loop up to where its conditions begin to fail again; returns the place.

        Between the vectors in which some fail, as at the borders of an image, none is tested.
        """
        survey, index, binary = self.survey(loop), self.index, self.index.binary
        length = binary("sub", stop, start)
        is_short = isinstance(loop.extent, int) and loop.extent < _SHORTEST_INSIDE * count
        if is_short or survey.has_loops or survey.work > _WORK_INSIDE:
            return start
        first, last = start, stop
        conditions = []
        for condition in survey.conditions:
            if isinstance(condition, InBounds):
                rest = index.rest_along(loop.axis, condition.index)
                if rest is not None:
                    begin = binary("sub", 0, rest)
                    first = index.greater(first, begin)
                    end = binary("add", begin, index.integer(condition.extent))
                    last = index.lesser(last, end)
                    conditions.append(condition)
        if not conditions:
            return start

        def up_to(place: Coefficient, more: int) -> Coefficient:
            """The end of the whole vectors before a place, or around it with `more` lanes."""
            whole = binary("and", binary("add", binary("sub", place, start), more), -count)
            return index.lesser(binary("add", start, whole), binary("add", start, fitting))

        fitting = binary("and", length, -count)
        first = up_to(first, count - 1)
        last = index.greater(first, up_to(last, 0))
        lanes = Lanes(loop.axis, 0, count)
        self._stage(loop, start, first, lanes, {})
        index.assumed = frozenset(conditions)
        self._stage(loop, first, last, lanes, {})
        return last

    def _halved(self, loop: For, start: Coefficient, stop: Coefficient, count: int) -> Coefficient:
        """Writes the remainder of a vector loop in ever shorter vectors; returns where they end."""
        while isinstance(start, int) and isinstance(stop, int) and stop - start > 1:
            count //= 2
            if count <= stop - start:
                self._stage(loop, start, start + count, Lanes(loop.axis, 0, count), {})
                start += count
        return start

    def _partly(
        self,
        loop: For,
        start: Coefficient,
        stop: Coefficient,
        count: int,
        partial: dict[str, Value],
    ) -> dict[str, Value]:
        """Writes a part of a vector loop that need not fill whole vectors."""
        if not self.target.has_avx512:
            return self._stage(loop, start, stop, NO_LANES, partial)
        return self._stage(loop, start, stop, Lanes(loop.axis, 0, count), partial, True)

    def _width(self, loop: For, start: Coefficient, stop: Coefficient) -> tuple[int, int]:
        """The number of lanes, and of vectors at a time."""
        survey = self.survey(loop)
        count = max(2, self.target.vector_bytes // survey.element_bytes)
        copies, runs_on = 1, any(one.running for one in loop.accumulators)
        sums = len(loop.accumulators) + survey.inner_accumulators
        several = survey.accumulated or survey.inner_accumulators
        if not runs_on and (several or survey.has_serial_functions):
            copies = _CHAINS
            most = self.target.vector_registers * 3 // 4
            while copies > 1 and (survey.work * copies > _WORK_IN_COPIES or sums * copies > most):
                copies //= 2
        extent = loop.extent
        if isinstance(extent, int):
            while count > 1 and count // 2 >= extent:
                count //= 2
            while copies > 1 and count * copies > extent:
                copies //= 2
        return count, copies

    def _stage(
        self,
        loop: For,
        start: Coefficient,
        stop: Coefficient,
        lanes: Lanes,
        partial: dict[str, Value],
        masked: bool = False,
    ) -> dict[str, Value]:
        """Writes a part of a vector loop with the given lanes; combines the copies at its end."""
        if isinstance(start, int) and isinstance(stop, int) and start >= stop:
            return partial
        bindings, index = self.index.bindings, self.index
        keys = [(name, copy) for name in partial for copy in range(lanes.copies)]
        first = self.accumulators.identities(list(partial), lanes.count)
        carried = [partial[name] if copy == 0 else first[name] for name, copy in keys]

        def run(base: Coefficient, values: list[Value]) -> list[Value]:
            index.enter(loop.axis, base, loop.extent)
            if lanes is not NO_LANES:
                mask = self.index.lanes_below(base, stop, lanes.count) if masked else None
                index.lanes = Lanes(loop.axis, base, lanes.count, lanes.copies, mask)
            bindings.update(zip(keys, values))
            if keys or lanes.count == 1 or masked or self.memory.fast_masks:
                self.write_body(loop.body)
            else:
                self._body_of_one_quotient(loop)
            return [bindings[key] for key in keys]

        step = lanes.count * lanes.copies
        written = frozenset(self.survey(loop).written)
        ended = dict(zip(keys, self.loop(start, stop, step, carried, written, run)))
        index.lanes = NO_LANES
        return {name: self.accumulators.tree(name, ended, lanes.copies) for name in partial}
