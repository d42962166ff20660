"""The schedule of small windows: reductions of few elements, unrolled for neighbouring results.

Maps that alternate between neighbours are windows of one element.

Lanes run along the innermost kept axis. All elements of a window are unrolled in one body, where
its offsets are literals: elements that a guard excludes are not computed, and a second pass over a
window finds its elements in registers. Kept axes that determine, in guards, over which offsets to
sum are unrolled too. In the gradient of strided windows these are the remainders of a position, and
results of neighbouring remainders are stored together.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.lowering.base.loops import Loop, LoopPlan, plain_plan, written_out_plan
from metaop.codegen.lowering.reductions.rows import RowReduction
from metaop.codegen.machine import Thresholds
from metaop.codegen.nest import ir
from metaop.fusion.cases import residue_axes
from metaop.fusion.kernel import Indices, Kernel
from metaop.fusion.storage import Storage
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Axis, IndexExpr, Symbol
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of, is_symbolic

# The most elements of a window, points of a body, and nodes at all of these.
_LARGEST_WINDOW, _MOST_POINTS, _MOST_NODES = 31, 36, 600
# With at least this many planes, these are the tasks, and their rows a loop inside.
_ENOUGH_PLANES = 64
# The number of streams that a row reads; each is prefetched as far ahead as all of them move.
_STREAMS = 4


def windows_plan(
    kernel: Kernel, storage: Storage, uses: dict[Node, int], thresholds: Thresholds
) -> LoopPlan | None:
    """The loops around small windows, with the unrolled ones; None for other kernels."""
    reductions = [root for root in kernel.roots if isinstance(root.op, Reduce)]
    others = [root for root in kernel.roots if root not in reductions]
    window = math.prod(kernel.shape[k] for k in kernel.reduced)
    if (
        is_symbolic(window)
        or not 1 < window <= _LARGEST_WINDOW
        or any(root.shape == kernel.shape for root in others)
    ):
        return None
    sources = [root.inputs[0] for root in reductions]
    residues = residue_axes(sources, kernel.shape, kernel.reduced, storage.has_buffer)
    probe = RowReduction(kernel, storage, uses, plain_plan(kernel), thresholds)
    places, values = probe.places_in_box(), probe.values
    plan = written_out_plan(kernel, values.offsets, places, values.targets, residues)
    if plan is None:
        return None
    points = math.prod(loop.extent for loop in plan.unrolled)
    is_small = points <= _MOST_POINTS and points * _nodes(kernel, storage) <= _MOST_NODES
    return plan if is_small else None


def _nodes(kernel: Kernel, storage: Storage) -> int:
    """How many nodes are computed at each point."""
    seen: set[Node] = set()
    stack = [source for root in kernel.roots for source in root.inputs]
    while stack:
        node = stack.pop()
        if node not in seen and not storage.has_buffer(node):
            seen.add(node)
            stack.extend(node.inputs)
    return len(seen) + len(kernel.roots)


class Windows(RowReduction):
    """Loops around bodies in which whole windows are unrolled."""

    def lower(self) -> LoweredKernel:
        *outer, lane = self.plan.loops
        planes = math.prod(loop.extent for loop in outer[:-1])
        rows = outer[-1:] if hint_of(planes) >= _ENOUGH_PLANES else []
        values, kind = self.values, "serial" if outer else "parallel"
        with (
            self._tasks([loop for loop in outer if loop not in rows]) as tasks,
            contextlib.ExitStack() as inner,
        ):
            for loop in rows:
                inner.enter_context(values.loop(loop.name, loop.extent))
            with values.loop(lane.name, lane.extent, kind, vector=True, literal=True):
                self._written_out()
                if tasks is not None:
                    with values.before_loop():
                        self._ask_ahead(rows[0] if rows else tasks, lane)
        points = math.prod(loop.extent for loop in self.plan.unrolled)
        each = points * math.prod(loop.extent for loop in (*rows, lane)) if outer else points
        return self.finish("windows", values.body, each)

    def _ask_ahead(self, rows: Loop, lane: Loop) -> None:
        """Prefetches in each row as much as it advances, some rows ahead.

        Hardware prefetchers miss most of the reads, which are strided or masked.
        """
        first: dict[tuple[int, int], IndexExpr] = {}
        for number, place in self.values.reads:
            if any(isinstance(atom, Symbol) for atom in place.atoms()):
                continue  # looked up inside
            start = place.substitute(lambda atom: _at_start(atom, lane))
            step = start.coefficient(Axis(rows.name, rows.extent))
            known = first.setdefault((number, step), start)
            if start.constant < known.constant:
                first[number, step] = start
        sizes = {number: node.dtype.itemsize for node, number in self.buffers.items()}
        line_bytes, ahead_bytes = self.thresholds.line_bytes, _STREAMS * self.thresholds.ahead_bytes
        for (number, step), start in first.items():
            each, size = line_bytes // sizes[number], sizes[number]
            name, lines = self.values.fresh("l"), -(-abs(step) // each)
            if lines:
                with self.values.loop(name, lines, counted=is_symbolic(lines)) as line:
                    offset = self.values.sum(start + line * each + ahead_bytes // size)
                    self.values.emit(ir.Prefetch(number, offset))

    def _written_out(self) -> None:
        """The results at all residues, stored last, so that neighbours are stored together."""
        found: dict[Node, list[tuple[Indices, ir.Expr]]] = {}
        around = self.axes
        for at_residue in self._at_points([x for x in self.plan.unrolled if not x.reduced]):
            self.axes = at_residue
            for root, value in self._results():
                found.setdefault(root, []).append((self._indices(root), value))
        self.axes = around
        for root, results in found.items():
            if root not in self.kernel.private:
                for at, value in results:
                    self._store(root, at, value)

    def _results(self) -> Iterator[tuple[Node, ir.Expr]]:
        """The roots at one residue with their values, each after what it needs."""
        for stage in range(-1, max(self.stage_of.values()) + 1):
            members = [root for root in self.kernel.roots if self.stage_of[root] == stage]
            for root in sorted(members, key=lambda root: not isinstance(root.op, Reduce)):
                if isinstance(root.op, Reduce):
                    yield root, self._reduced(root, root.op)
                else:
                    yield root, self.values.value(root, self._indices(root))

    def _reduced(self, root: Node, op: Reduce) -> ir.Expr:
        """The reduction of a whole window, without terms that are the identity."""
        values, identity = self.values, op.reducer.identity(root.dtype)
        points = self._at_points([loop for loop in self.plan.unrolled if loop.reduced])
        elements = [values.value(root.inputs[0], at) for at in points]
        terms = [x for x in elements if not isinstance(x, ir.Number) or x.value != identity]
        name = values.fresh("a")
        total = _combined(op.reducer.combine, terms, root) or ir.Number(identity, root.dtype)
        values.emit(ir.Let(name, total))
        return values.bind_reduced(root, name)

    def _at_points(self, loops: Sequence[Loop]) -> Iterator[Indices]:
        """The axes of the box at every point of some loops."""
        axes = self.axes
        for point in itertools.product(*(range(loop.extent) for loop in loops)):
            fixed = {loop.name: index_expr.constant(x) for loop, x in zip(loops, point)}

            def replace(
                atom: index_expr.Atom, fixed: dict[str, IndexExpr] = fixed
            ) -> IndexExpr | None:
                return fixed.get(str(atom.name)) if isinstance(atom, Axis) else None

            yield tuple(axis.substitute(replace) for axis in axes)


def _at_start(atom: index_expr.Atom, loop: Loop) -> IndexExpr | None:
    is_loop = isinstance(atom, Axis) and atom.name == loop.name
    return index_expr.constant(0) if is_loop else None


def _combined(function: str, terms: Sequence[ir.Expr], root: Node) -> ir.Expr | None:
    """All terms combined as a tree; None if there are none."""
    if len(terms) < 2:
        return terms[0] if terms else None
    halves = terms[: len(terms) // 2], terms[len(terms) // 2 :]
    left, right = (_combined(function, half, root) for half in halves)
    assert left is not None and right is not None
    return ir.Apply(function, (left, right), root.dtype, root.dtype)
