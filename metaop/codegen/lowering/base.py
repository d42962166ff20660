"""What all schedules share: buffer numbers, their roles, and the values of nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.values import Values
from metaop.elementwise.meta_op import Elementwise
from metaop.fusion.kernel import Indices, Kernel
from metaop.reduce.meta_op import Reduce
from metaop.unified_graph import index_expr
from metaop.unified_graph.node import Input, Node

# Work worth handing to another thread, in elements.
GRAIN = 16384


@dataclass(frozen=True)
class LoweredKernel:
    """A loop nest with the nodes behind its buffer parameters, in order."""

    nest: ir.LoopNest
    buffers: tuple[Node, ...]


class Lowering:
    """What all schedules share: buffer numbers, roles and values."""

    def __init__(
        self, kernel: Kernel, is_stored: Callable[[Node], bool], uses: dict[Node, int]
    ) -> None:
        self.kernel = kernel
        self.is_stored = is_stored
        self.buffers: dict[Node, int] = {}
        self.roles: dict[Node, str] = {}
        self.waiting = set(kernel.roots)
        if kernel.part_of is not None:
            # A piece may be nothing but another buffer, which is read then.
            self.waiting = {r for r in kernel.roots if not self._has_buffer(r)}
        self.values = Values(self._number_of, uses)

    def _number_of(self, node: Node) -> int | None:
        if node in self.waiting:
            return None
        if self._has_buffer(node):
            if self.roles.get(node) == "write":
                self.roles[node] = "update"
            return self._parameter(node, "read")
        return None

    def _has_buffer(self, node: Node) -> bool:
        return isinstance(node.op, Input) or self.is_stored(node)

    def _parameter(self, node: Node, role: str) -> int:
        if node not in self.buffers:
            self.buffers[node] = len(self.buffers)
            self.roles[node] = role
        return self.buffers[node]

    def _store(self, node: Node, at: Indices, value: ir.Expr) -> None:
        if self.kernel.part_of is not None:
            node, dim, start = self.kernel.part_of
            at = (*at[:dim], at[dim] + start, *at[dim + 1 :])
        number = self._parameter(node, "write")
        offset = self.values.sum(index_expr.linear_offset(at, node.shape))
        self.values.emit(ir.Store(number, offset, value))
        self.waiting.discard(node)

    def _finish(self, name: str, body: tuple[ir.Statement, ...], grain: int) -> LoweredKernel:
        parameters = tuple(ir.Parameter(n.dtype, self.roles[n]) for n in self.buffers)
        nest = ir.LoopNest(f"{name}_{_work(self.kernel)}", parameters, (), body, max(grain, 1))
        return LoweredKernel(nest, tuple(self.buffers))


def _work(kernel: Kernel) -> str:
    """What a kernel does, in a few words: the operators of its last roots."""
    words = []
    for root in kernel.roots[-3:]:
        op = root.op
        if isinstance(op, Elementwise):
            words.append(op.function.name)
        else:
            words.append(op.reducer.name if isinstance(op, Reduce) else op.name)
    return "_".join(dict.fromkeys(words))
