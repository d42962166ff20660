"""What all schedules share: buffer numbers, their roles, and the values of nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from metaop.codegen.lowering.base.values import Values
from metaop.codegen.machine import OPERATIONS, Thresholds
from metaop.codegen.nest import ir
from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.inline import function_cost
from metaop.fusion.kernel import Indices, Kernel, box_axes
from metaop.fusion.storage import Storage
from metaop.fusion.work import operations_of_kernel
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import IndexExpr
from metaop.unified_graph.node import Node
from metaop.unified_graph.symbolic import hint_of

if TYPE_CHECKING:
    from metaop.codegen.lowering.repetition import Repetition

# Chunks of a vector loop have a multiple of this many elements: whole vectors of any type.
_WHOLE_VECTORS = 64


@dataclass(frozen=True)
class LoweredKernel:
    """A loop nest with the nodes of its buffer parameters, in order.

    `operations` is its arithmetic in terms of meta-operators, in multiplications. The nest of a
    `repetition` has no statements; it only says what is read and written. A rerun repeats an
    earlier launch on other buffers, so it refuses no value.
    """

    nest: ir.LoopNest
    buffers: tuple[Node, ...]
    operations: int = 0
    repetition: Repetition | None = None
    is_rerun: bool = False

    @property
    def read(self) -> list[Node]:
        """The nodes whose buffers it reads, in the order of its parameters."""
        return self._accessed("write")

    @property
    def written(self) -> list[Node]:
        """The nodes whose buffers it writes or updates, in the order of its parameters."""
        return self._accessed("read")

    def _accessed(self, but: str) -> list[Node]:
        return [node for node, one in zip(self.buffers, self.nest.parameters) if one.role != but]

    def in_chunks(self, thresholds: Thresholds) -> LoweredKernel:
        """The launch with enough tasks per chunk to be worth a thread, in whole vectors."""
        nest = self.nest
        grain = thresholds.tasks_in_chunk(nest.work)
        last = nest.body[-1] if nest.body else None
        is_vector = isinstance(last, ir.For) and last.vector and last.kind == "parallel"
        if nest.work and is_vector:
            grain = -(-grain // _WHOLE_VECTORS) * _WHOLE_VECTORS
        return replace(self, nest=nest._replace(grain=grain))


class Lowering:
    """What all schedules share: buffer numbers, roles and values."""

    def __init__(self, kernel: Kernel, storage: Storage, uses: dict[Node, int]) -> None:
        self.kernel = kernel
        self.storage = storage
        self.buffers: dict[Node, int] = {}
        self.roles: dict[Node, str] = {}
        self.waiting = set(kernel.roots)
        self.values = Values(self, uses)

    def is_read(self, node: Node) -> bool:
        """Whether a node is read from a buffer rather than computed here."""
        return node not in self.waiting and self.storage.has_buffer(node)

    def number_of(self, node: Node) -> int | None:
        """The number of the buffer from which a node is read; None if it is computed here."""
        if not self.is_read(node):
            return None
        at = box_axes(node.shape)
        return self.parameter(self.storage.places(node, at)[0][0], "read")

    def offset_of(self, node: Node, at: Indices) -> IndexExpr:
        """The offset of an element of a node in its buffer."""
        buffer, place = self.storage.places(node, at)[0]
        return index_expr.linear_offset(place, buffer.shape)

    def parameter(self, node: Node, role: str) -> int:
        """The number of a node's buffer, which becomes a parameter of the kernel."""
        if node not in self.buffers:
            self.buffers[node] = len(self.buffers)
            self.roles[node] = role
        elif self.roles[node] != role:
            self.roles[node] = "update"
        return self.buffers[node]

    def _store(
        self,
        node: Node,
        at: Indices,
        value: ir.Expr,
        conditions: tuple[ir.Condition, ...] = (),
    ) -> None:
        """Writes an element of a root to all buffers that have it."""
        read = value if isinstance(value, ir.Load) else None
        if isinstance(value, ir.Name):
            read = self.values.loaded.get(value.name)
        for buffer, place in self.storage.places(node, at):
            target = index_expr.linear_offset(place, buffer.shape)
            offset = self.values.sum(target)
            if read is not None and not read.conditions:
                # A value of another shape that another kernel wrote there stays.
                if (read.buffer, read.offset) == (self.buffers.get(buffer), offset):
                    continue
            number = self.parameter(buffer, "write")
            self.values.targets.append(target)
            self.values.emit(ir.Store(number, offset, value, conditions))
        self.waiting.discard(node)

    def work_of_element(self) -> int:
        """The operations per element; those of a cheap one are hidden by moving it."""
        applied = (node.op for node in self.computed() if isinstance(node.op, Elementwise))
        operations = sum(function_cost(op.function.name) for op in applied)
        return max(operations, OPERATIONS)

    def computed(self) -> list[Node]:
        """The nodes whose values are computed in the kernel."""
        return self.storage.computed(self.kernel.roots)

    def part_of_work(self) -> float:
        """The fraction of the kernel's work that this nest does."""
        return 1.0

    def finish(
        self,
        name: str,
        body: tuple[ir.Statement, ...],
        elements: int = 0,
        each: int = OPERATIONS,
        prepared: Node | None = None,
    ) -> LoweredKernel:
        """The kernel with these statements, or with what it has `prepared` for another one.

        A task is as much work as a map of some elements with `each` operations per element (none:
        every task is worth a thread).
        """
        parameters = tuple(ir.Parameter(n.dtype, self.roles[n]) for n in self.buffers)
        # The work only affects speed, so that of the hints suffices.
        work = hint_of(elements) * each
        nest = ir.LoopNest(f"{name}_{_work(self.kernel)}", parameters, (), body, work=work)
        roots = self.kernel.roots if prepared is None else [prepared]
        operations = round(self.part_of_work() * operations_of_kernel(roots, self.storage))
        return LoweredKernel(nest, tuple(self.buffers), operations)


def _work(kernel: Kernel) -> str:
    """A short description of a kernel: the operators of its last roots."""
    words = []
    for root in kernel.roots[-3:]:
        op = root.op
        if isinstance(op, Elementwise):
            words.append(op.function.name)
        else:
            words.append(op.reducer.name if isinstance(op, Reduce) else op.name)
    return "_".join(dict.fromkeys(words))
