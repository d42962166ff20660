"""The schedule of maps and row-staged reductions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

from metaop.codegen.lowering.base.blocks import exact_block
from metaop.codegen.lowering.base.kernel import LoweredKernel, Lowering
from metaop.codegen.lowering.base.loops import Loop, LoopPlan, split_index
from metaop.codegen.lowering.base.values import Carried
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import Guards
from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import is_expensive
from metaop.fusion.kernel import Indices, Kernel
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import divides, hint_of, surely_less

# Vector loops shorter than this waste most of their lanes, so two axes are joined.
SHORT_LANES = 8
# Reduced loops of this length are cut into blocks, so that partial sums stay short and exact.
_LONG_REDUCTION = 1 << 14
_BLOCK = 1 << 12
# The most bytes of a row, relative to the first-level cache, to keep expensive values in scratch
# memory between passes, and to stay in the caches together with the next row.
_CARRIED, _AHEAD = 2, 8
_ELEMENT_BYTES = 4
# Blocks of transpositions are as long as a vector if possible, and not much longer; several tasks
# share them.
_TILE, _VECTOR_BYTES, _LONGEST_BLOCK = 16, 64, 64
_FEWEST_TASKS = 8


class RowReduction(Lowering):
    """Maps and row-staged reductions: kept loops around the stages of a row.

    A stage is one pass over the reduced axes. It combines all reductions, and stores all
    element-level results, that depend on the same earlier stages.
    """

    # Whether lanes run inside a task, with its scratch memory; on a GPU, tasks are lanes too.
    TURNS = True
    # Whether a task prefetches its next row; on a GPU, other tasks run meanwhile.
    PREFETCHES = True

    def __init__(
        self,
        kernel: Kernel,
        storage: Storage,
        uses: dict[Node, int],
        plan: LoopPlan,
        thresholds: Thresholds,
    ) -> None:
        super().__init__(kernel, storage, uses)
        self.plan = plan
        self.thresholds = thresholds
        self.axes: Indices = plan.axes
        self.stage_of = _stages(kernel, storage)
        # The reads that are new in the last pass over a row, and those of earlier passes.
        self._fresh: list[tuple[int, IndexExpr]] = []
        self._seen: set[tuple[int, IndexExpr]] = set()

    def lower(self) -> LoweredKernel:
        kept, reduced = list(self.plan.kept()), list(self.plan.reduced())
        if self.plan.transposed is not None:
            self._transposed_loops(kept)
            return self.finish("map", self.values.body)
        last_is_kept = bool(self.plan.loops) and not self.plan.loops[-1].reduced
        per_row = hint_of(math.prod(loop.extent for loop in reduced))
        name = "rows" if reduced else "map"
        if not last_is_kept:
            # Lanes run along the innermost reduced loop; rows are the tasks.
            with self._tasks(kept):
                self._stages(reduced, vector=True)
            return self.finish(name, self.values.body, max(per_row, 1), self.work_of_element())
        self._lane_loops(kept, reduced)
        parallel = self.values.body[-1]
        assert isinstance(parallel, ir.For)
        total = hint_of(math.prod(loop.extent for loop in kept)) * per_row
        each = max(total // max(hint_of(parallel.extent), 1), 1)
        return self.finish(name, self.values.body, each, self.work_of_element())

    def _lane_loops(self, kept: list[Loop], reduced: list[Loop]) -> None:
        """Lanes run along the innermost kept loop; reduced loops are serial inside."""
        outer, lanes = kept[:-1], kept[-1:]
        while outer and math.prod(loop.extent for loop in lanes) < SHORT_LANES:
            lanes.insert(0, outer.pop())
        kind = "serial" if outer else "parallel"
        with self._tasks(outer):
            lane = lanes[0] if len(lanes) == 1 else self._joined(lanes, "l")
            with self.values.loop(lane.name, lane.extent, kind, vector=True):
                self._stages(reduced, vector=False)
                self._ask_lanes_ahead(lane)

    def _ask_lanes_ahead(self, lane: Loop) -> None:
        """Prefetches, in a map of serial functions, what later lanes read."""
        is_map = not self.plan.reduced() and self.PREFETCHES
        applied = (node.op for node in self.computed() if isinstance(node.op, Elementwise))
        if not is_map or not any(op.function.is_serial for op in applied):
            return
        axis = Axis(lane.name, lane.extent)
        sizes = {number: node.dtype.itemsize for node, number in self.buffers.items()}
        for number, place in dict.fromkeys(self.values.reads):
            if place.coefficient(axis) == 1:
                ahead = place + self.thresholds.ahead_bytes // sizes[number]
                self.values.emit(ir.Prefetch(number, self.values.sum(ahead)))

    def places_in_box(self) -> list[IndexExpr]:
        """Where a map reads buffers, as expressions of the axes of its box."""
        self._stages([], vector=False)
        return self.values.places

    def _transposed_loops(self, kept: list[Loop]) -> None:
        """Lanes run along the last loop and, inside, a serial loop along the transposed one.

        The loop nest's printer makes tiles of the two that are transposed in registers. Blocks
        of the transposed loop are tasks, unless there are too few: then the lanes are.
        """
        transposed = next(loop for loop in kept if loop.name == self.plan.transposed)
        size = max(_TILE, _VECTOR_BYTES // self.kernel.roots[0].dtype.itemsize)
        if transposed.extent % size:
            size = exact_block(transposed.extent, _LONGEST_BLOCK) or transposed.extent
        inner = Loop(f"{transposed.name}t", size, False)
        blocks = Loop(f"{transposed.name}o", transposed.extent // size, False)
        index = index_expr.axis(blocks.name, blocks.extent) * size
        self._replace({transposed.name: index + index_expr.axis(inner.name, size)})
        rest = [*(loop for loop in kept[:-1] if loop is not transposed), blocks]
        lanes = kept[-1]
        by_lanes = math.prod(loop.extent for loop in rest) < _FEWEST_TASKS
        around = self._joined(rest, "p")
        order = (lanes, around, inner) if by_lanes else (around, lanes, inner)
        with contextlib.ExitStack() as nest:
            for loop in order:
                kind = "parallel" if loop is order[0] else "serial"
                here = self.values.loop(loop.name, loop.extent, kind, vector=loop is lanes)
                nest.enter_context(here)
            self._stages([], vector=False)

    @contextlib.contextmanager
    def _tasks(self, loops: Sequence[Loop]) -> Iterator[Loop | None]:
        """The parallel loop that replaces several loops; yields it, or None if there are none."""
        if not loops:
            yield None
            return
        tasks = self._joined(loops, "p")
        with self.values.loop(tasks.name, tasks.extent, "parallel"):
            yield tasks

    def _joined(self, loops: Sequence[Loop], name: str) -> Loop:
        """Replaces several loops by one: from now on, the axes are expressions of its index."""
        _, parts = split_index(loops, name)
        self._replace(parts)
        return Loop(name, math.prod(loop.extent for loop in loops), False)

    def _replace(self, parts: dict[str, IndexExpr]) -> None:
        def replace(atom: index_expr.Atom) -> IndexExpr | None:
            return parts.get(str(atom.name)) if isinstance(atom, Axis) else None

        self.axes = tuple(axis.substitute(replace) for axis in self.axes)

    # --- stages of a row ----------------------------------------------------------------------

    def _stages(self, reduced: list[Loop], vector: bool) -> None:
        kernel = self.kernel
        loops = _blocked(reduced, self._replace)
        self.values.inner_loops = frozenset(loop.name for loop in loops)
        if vector:
            self._carry_expensive_values(loops)
        for stage in range(-1, max(self.stage_of.values()) + 1):
            members = [r for r in kernel.roots if self.stage_of[r] == stage]
            inside = [r for r in members if self._is_inside(r)]
            if inside and loops:
                self._loop_stage(inside, loops, vector)
            elif inside:
                self._compute_roots(inside)
            self._compute_roots([root for root in members if root not in inside])

    def _elements(self, caches: int) -> int:
        """The number of elements that fill a multiple of the first-level cache."""
        return caches * self.thresholds.first_bytes // _ELEMENT_BYTES

    def _carry_expensive_values(self, loops: list[Loop]) -> None:
        """Allocates scratch memory for expensive values that several passes over the row need."""
        length = math.prod(loop.extent for loop in loops)
        if hint_of(length) > self._elements(_CARRIED):
            return
        passes: dict[Node, set[int]] = {}
        for root in self.kernel.roots:
            if self._is_inside(root):
                for node in self._expensive_sources(root):
                    passes.setdefault(node, set()).add(self.stage_of[root])
        offset = index_expr.linear_offset(
            [index_expr.axis(loop.name, loop.extent) for loop in loops],
            [loop.extent for loop in loops],
        )
        repeated = [node for node, stages in passes.items() if len(stages) > 1]
        for number, node in enumerate(repeated, start=1):
            self.values.emit(ir.Alloc(-number, length, node.dtype))
            self.values.carried[node] = Carried(-number, self.axes, offset)

    def _expensive_sources(self, root: Node) -> list[Node]:
        """The expensive elementwise values at points of the box that a root is computed from."""
        found: list[Node] = []
        seen: set[Node] = set()
        stack = list(root.inputs)
        while stack:
            node = stack.pop()
            if node in seen or node in self.storage.stored or not isinstance(node.op, Elementwise):
                continue
            seen.add(node)
            if node.shape == self.kernel.shape and is_expensive(node):
                found.append(node)
            else:
                stack.extend(node.inputs)
        return found

    def _is_inside(self, root: Node) -> bool:
        """Whether a root is computed for every point of the reduced axes."""
        if isinstance(root.op, Reduce):
            return True
        return not self.kernel.reduced or root.shape == self.kernel.shape

    def _compute_roots(self, roots: list[Node], guards: Guards = ()) -> None:
        """Computes all roots before it stores any, so that a result may alias an operand.

        Points where `guards` do not hold have no results.
        """
        conditions = self.values.conditions(guards)
        results: list[tuple[Node, Indices, ir.Expr]] = []
        for root in roots:
            at = self._indices(root)
            if isinstance(root.op, Reduce):
                # Every reduced axis has extent 1: the reduction is its only element.
                name = self.values.fresh("a")
                self.values.emit(ir.Let(name, self.values.value(root.inputs[0], self.axes)))
                results.append((root, at, self.values.bind_reduced(root, name)))
            else:
                results.append((root, at, self.values.value(root, at, guards)))
        for root, at, value in results:
            if root not in self.kernel.private or not self._stays_known(root):
                self._store(root, at, value, conditions)

    def _stays_known(self, root: Node) -> bool:
        """Whether the value is bound outside the loops of the later stages that read it."""
        return not self._is_inside(root) or not self.values.inner_loops

    def _indices(self, root: Node) -> Indices:
        at = self.kernel.indices_of(root)
        assert at is not None

        def replace(atom: index_expr.Atom) -> IndexExpr | None:
            if isinstance(atom, Axis):
                return self.axes[int(str(atom.name)[1:])]
            return None

        return tuple(index.substitute(replace) for index in at)

    def _loop_stage(self, members: list[Node], loops: list[Loop], vector: bool) -> None:
        """One pass: the loops around the values of some roots."""
        values = self.values
        # The partial results of each reduction, one for each loop.
        partial = {
            root: [
                ir.Accumulator(values.fresh("a"), root.op.reducer.name, root.dtype) for _ in loops
            ]
            for root in members
            if isinstance(root.op, Reduce)
        }
        with contextlib.ExitStack() as nest:
            for depth, loop in enumerate(loops):
                if depth:
                    nest.callback(self._pass_on, partial, depth)
                sums = [one[depth] for one in partial.values()]
                is_lane = vector and loop is loops[-1]
                here = values.loop(loop.name, loop.extent, accumulators=sums, vector=is_lane)
                nest.enter_context(here)
            results = self._combine(members, partial)
            if vector and self.PREFETCHES:
                self._prefetch(loops)
            for root, at, value in results:
                if root not in self.kernel.private or self._is_read_later(root):
                    self._store(root, at, value)
        for root, one in partial.items():
            result = values.bind_reduced(root, one[0].name)
            if root in self.kernel.private:
                self.waiting.discard(root)
            else:
                self._store(root, self._indices(root), result)

    def _is_read_later(self, root: Node) -> bool:
        """Whether a later stage reads a root."""
        stage = self.stage_of[root]
        later = [other for other in self.kernel.roots if self.stage_of[other] > stage]
        return any(root in node.inputs for node in self.storage.computed(later))

    def _combine(
        self, members: list[Node], partial: dict[Node, list[ir.Accumulator]]
    ) -> list[tuple[Node, Indices, ir.Expr]]:
        """Accumulates a point of the box into all reductions; returns the values of other roots."""
        results = []
        for root in members:
            if root in partial:
                value = self.values.value(root.inputs[0], self.axes)
                self.values.emit(ir.Accumulate(partial[root][-1].name, value))
            else:
                at = self._indices(root)
                results.append((root, at, self.values.value(root, at)))
        return results

    def _pass_on(self, partial: dict[Node, list[ir.Accumulator]], depth: int) -> None:
        """Accumulates the results of a loop into those of the enclosing loop."""
        for around, inside in (one[depth - 1 : depth + 1] for one in partial.values()):
            result = ir.Name(inside.name, inside.dtype)
            self.values.emit(ir.Accumulate(around.name, result))

    def _prefetch(self, loops: list[Loop]) -> None:
        """Prefetches, in each pass, what the pass before was the first to read, for the next row.

        Otherwise memory would be idle while the processor computes, which would wait afterwards.
        """
        if hint_of(math.prod(loop.extent for loop in loops)) > self._elements(_AHEAD):
            return
        lane = Axis(loops[-1].name, loops[-1].extent)
        self.values.prefetch(
            (one for one in self._fresh if abs(one[1].coefficient(lane)) == 1), "p"
        )
        self._fresh = [one for one in dict.fromkeys(self.values.reads) if one not in self._seen]
        self._seen.update(self._fresh)


def _blocked(loops: list[Loop], replace: Callable[[dict[str, IndexExpr]], None]) -> list[Loop]:
    """Cuts very long reduced loops into blocks, so that partial sums stay short and exact."""
    result: list[Loop] = []
    for loop in loops:
        if surely_less(loop.extent, _LONG_REDUCTION) or not divides(_BLOCK, loop.extent):
            result.append(loop)
            continue
        outer = Loop(f"{loop.name}o", loop.extent // _BLOCK, True)
        inner = Loop(f"{loop.name}b", _BLOCK, True)
        joined = index_expr.axis(outer.name, outer.extent) * _BLOCK
        replace({loop.name: joined + index_expr.axis(inner.name, _BLOCK)})
        result += [outer, inner]
    return result


def _stages(kernel: Kernel, storage: Storage) -> dict[Node, int]:
    """The pass over the row in which each root is computed.

    Results of the reductions of pass `k` are known from pass `k + 1` on; row-level roots are
    computed after the pass whose results they need (-1: none).
    """
    members = set(kernel.roots)
    passes: dict[Node, int] = {}
    for root in kernel.roots:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in passes:
                stack.pop()
            elif node not in members and (node in storage.stored or not node.inputs):
                passes[node] = 0
            else:
                missing = [source for source in node.inputs if source not in passes]
                if missing:
                    stack.extend(missing)
                    continue
                reduces = node in members and isinstance(node.op, Reduce)
                passes[node] = max((passes[x] for x in node.inputs), default=0) + int(reduces)
    return {
        root: passes[root]
        if not kernel.reduced or (root.shape == kernel.shape and not isinstance(root.op, Reduce))
        else passes[root] - 1
        for root in kernel.roots
    }
