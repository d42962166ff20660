"""The schedule of maps and row-staged reductions."""

from __future__ import annotations

import math
from collections.abc import Callable

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.base import LoweredKernel, Lowering
from metaop.codegen.lowering.blocks import exact_block
from metaop.codegen.lowering.loops import Loop, LoopPlan, split_index
from metaop.codegen.lowering.values import Carried
from metaop.codegen.machine import Thresholds
from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import is_expensive
from metaop.fusion.kernel import Indices, Kernel
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Axis, IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of

# Vector loops shorter than this waste most of their lanes; two axes run side by side then.
_SHORT = 8
# Reduced loops of this length are cut into blocks, so that partial sums stay short and exact.
_LONG_REDUCTION = 1 << 14
_BLOCK = 1 << 12
# Rows of so many bytes, for each of the first level of cache, keep expensive values in scratch
# memory between passes; and stay in the caches together with the next row.
_CARRIED, _AHEAD = 2, 8
_ELEMENT_BYTES = 4
# Blocks of transpositions are as long as a vector if possible, and not much longer; they are
# divided into several tasks.
_TILE, _VECTOR_BYTES, _LONGEST_BLOCK = 16, 64, 64
_FEWEST_TASKS = 8


class RowReduction(Lowering):
    """Maps and row-staged reductions: kept loops around the stages of a row.

    A stage is one pass over the reduced axes. It combines all reductions, and stores all
    element-level results, that depend on the same earlier stages.
    """

    # Whether lanes and registers transpose; threads of a GPU read apart as well.
    TURNS = True
    # Whether a task asks for its next row before it is done with one; others run on a GPU then.
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
        # What the last pass over a row was the first to read, and what others read before.
        self._fresh: list[tuple[int, IndexExpr]] = []
        self._seen: set[tuple[int, IndexExpr]] = set()

    def lower(self) -> LoweredKernel:
        kept, reduced = list(self.plan.kept()), list(self.plan.reduced())
        if self.plan.transposed is not None:
            return self.finish("map", self._transposed_loops(kept))
        last_is_kept = bool(self.plan.loops) and not self.plan.loops[-1].reduced
        per_row = hint_of(math.prod(loop.extent for loop in reduced))
        name = "rows" if reduced else "map"
        if not last_is_kept:
            body = self._row_loops(kept, reduced)
            return self.finish(name, body, max(per_row, 1), self.work_of_element())
        body = self._lane_loops(kept, reduced)
        parallel = body[-1]
        assert isinstance(parallel, ir.For)
        total = hint_of(math.prod(loop.extent for loop in kept)) * per_row
        each = max(total // max(hint_of(parallel.extent), 1), 1)
        return self.finish(name, body, each, self.work_of_element())

    def _row_loops(self, kept: list[Loop], reduced: list[Loop]) -> tuple[ir.Statement, ...]:
        """Lanes run along the innermost reduced loop; rows are the tasks."""
        if not kept:
            self._stages(reduced, vector=True)
            return self.values.close()
        with_rows = self._parallel(kept)
        self._stages(reduced, vector=True)
        return self._outermost(ir.For("p", with_rows, "parallel", self.values.close()))

    def _lane_loops(self, kept: list[Loop], reduced: list[Loop]) -> tuple[ir.Statement, ...]:
        """Lanes run along the innermost kept loop; reduced loops are serial inside."""
        outer, lanes = kept[:-1], kept[-1:]
        while outer and math.prod(loop.extent for loop in lanes) < _SHORT:
            lanes.insert(0, outer.pop())
        if not outer:
            extent = self._open_joined(lanes, "l")
            self._stages(reduced, vector=False)
            name = self._lane_name(lanes, "l")
            self._ask_lanes_ahead(name, extent)
            body = self.values.close()
            return self._outermost(ir.For(name, extent, "parallel", body, (), True))
        rows = self._parallel(outer)
        extent, name = self._open_joined(lanes, "l"), self._lane_name(lanes, "l")
        self._stages(reduced, vector=False)
        self._ask_lanes_ahead(name, extent)
        inner = ir.For(name, extent, "serial", self.values.close(), (), True)
        self.values.emit(inner)
        return self._outermost(ir.For("p", rows, "parallel", self.values.close()))

    def _ask_lanes_ahead(self, lane: str, extent: int) -> None:
        """Asks, in a map of serial functions, for what later lanes read."""
        is_map = not self.plan.reduced() and self.PREFETCHES
        applied = (node.op for node in self.computed() if isinstance(node.op, Elementwise))
        if not is_map or not any(op.function.is_serial for op in applied):
            return
        axis = Axis(lane, extent)
        sizes = {number: node.dtype.itemsize for node, number in self.buffers.items()}
        for number, place in dict.fromkeys(self.values.reads):
            if place.coefficient(axis) == 1:
                ahead = place + self.thresholds.ahead_bytes // sizes[number]
                self.values.emit(ir.Prefetch(number, self.values.sum(ahead)))

    def places_in_box(self) -> list[IndexExpr]:
        """Where a map reads buffers, as expressions of the axes of its box."""
        self._stages([], vector=False)
        return self.values.places

    def _transposed_loops(self, kept: list[Loop]) -> tuple[ir.Statement, ...]:
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
        _, parts = split_index(rest, "p")
        self._replace(parts)
        around = Loop("p", math.prod(loop.extent for loop in rest), False)
        order = (lanes, around, inner) if by_lanes else (around, lanes, inner)
        for loop in order:
            self.values.open(loop.name)
        self._stages([], vector=False)
        for loop in reversed(order):
            kind = "parallel" if loop is order[0] else "serial"
            body = self.values.close()
            self.values.emit(ir.For(loop.name, loop.extent, kind, body, (), loop is lanes))
        return self.values.close()

    def _outermost(self, loop: ir.For) -> tuple[ir.Statement, ...]:
        """The whole body: the loop behind what does not change in it."""
        self.values.emit(loop)
        return self.values.close()

    def _parallel(self, loops: list[Loop]) -> int:
        """Opens the parallel loop over the product of `loops`."""
        _, parts = split_index(loops, "p")
        self.values.open("p")
        self._replace(parts)
        return math.prod(loop.extent for loop in loops)

    def _open_joined(self, loops: list[Loop], name: str) -> int:
        if len(loops) == 1:
            self.values.open(loops[0].name)
            return loops[0].extent
        _, parts = split_index(loops, name)
        self.values.open(name)
        self._replace(parts)
        return math.prod(loop.extent for loop in loops)

    @staticmethod
    def _lane_name(loops: list[Loop], name: str) -> str:
        return loops[0].name if len(loops) == 1 else name

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
        """How many elements fill the first level of cache so many times."""
        return caches * self.thresholds.first_bytes // _ELEMENT_BYTES

    def _carry_expensive_values(self, loops: list[Loop]) -> None:
        """Gives scratch memory to expensive values that more than one pass over the row needs."""
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

    def _compute_roots(self, roots: list[Node]) -> None:
        """Computes all before it stores any, so that a result may lie where an operand was."""
        results: list[tuple[Node, Indices, ir.Expr]] = []
        for root in roots:
            at = self._indices(root)
            if isinstance(root.op, Reduce):
                # Every reduced axis has extent 1: the reduction is its only element.
                name = self.values.fresh("a")
                self.values.emit(ir.Let(name, self.values.value(root.inputs[0], self.axes)))
                results.append((root, at, self.values.bind_reduced(root, name)))
            else:
                results.append((root, at, self.values.value(root, at)))
        for root, at, value in results:
            if root not in self.kernel.private or not self._stays_known(root):
                self._store(root, at, value)

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
        values = self.values
        reductions = [root for root in members if isinstance(root.op, Reduce)]
        names = [[values.fresh("a") for _ in loops] for _ in reductions]
        for loop in loops:
            values.open(loop.name)
        results = []
        for root in members:
            if isinstance(root.op, Reduce):
                value = values.value(root.inputs[0], self.axes)
                name = names[reductions.index(root)][-1]
                values.emit(ir.Accumulate(name, value))
            else:
                at = self._indices(root)
                results.append((root, at, values.value(root, at)))
        if vector and self.PREFETCHES:
            self._prefetch(loops)
        for root, at, value in results:
            self._store(root, at, value)
        for depth in reversed(range(len(loops))):
            loop = loops[depth]
            carried = tuple(
                ir.Accumulator(names[k][depth], root.op.reducer.name, root.dtype)  # type: ignore
                for k, root in enumerate(reductions)
            )
            is_vector = vector and depth == len(loops) - 1
            body = values.close()
            values.emit(ir.For(loop.name, loop.extent, "serial", body, carried, is_vector))
            if depth:
                for k, root in enumerate(reductions):
                    result = ir.Name(names[k][depth], root.dtype)
                    values.emit(ir.Accumulate(names[k][depth - 1], result))
        for k, root in enumerate(reductions):
            result = values.bind_reduced(root, names[k][0])
            if root in self.kernel.private:
                self.waiting.discard(root)
            else:
                self._store(root, self._indices(root), result)

    def _prefetch(self, loops: list[Loop]) -> None:
        """Asks, in each pass, for what the pass before was the first to read, of the next row.

        Without it, the processor would compute while nothing is read, and wait afterwards.
        """
        if math.prod(loop.extent for loop in loops) > self._elements(_AHEAD):
            return
        lane = Axis(loops[-1].name, loops[-1].extent)
        self.values.prefetch(
            (one for one in self._fresh if abs(one[1].coefficient(lane)) == 1), "p"
        )
        self._fresh = [one for one in dict.fromkeys(self.values.reads) if one not in self._seen]
        self._seen.update(self._fresh)


def _blocked(loops: list[Loop], replace: Callable[[dict[str, IndexExpr]], None]) -> list[Loop]:
    """Very long reduced loops cut in blocks, so that partial sums stay short and exact."""
    result: list[Loop] = []
    for loop in loops:
        if loop.extent < _LONG_REDUCTION or loop.extent % _BLOCK:
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
    computed behind the pass whose results they need (-1: none).
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
