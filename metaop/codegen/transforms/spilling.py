"""Spilling: a value is copied to a file, and back just before a launch reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metaop.codegen.lowering import LoweredKernel
from metaop.codegen.machine import OPERATIONS
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import NestBuilder
from metaop.unified_graph.access import Access, IndexMap
from metaop.unified_graph.node import MetaOp, Node


@dataclass(frozen=True)
class Spilled(MetaOp):
    """The same value in a file; such nodes exist between launches only."""

    name: ClassVar[str] = "spilled"

    def access(self, node: Node) -> Access:
        identity = IndexMap.identity(node.shape)
        return Access(node.shape, (identity,), identity)


def is_spilled(node: Node) -> bool:
    """Whether the buffer of a node is in a file."""
    return isinstance(node.op, Spilled)


def in_file(node: Node) -> Node:
    """The buffer of a value in a file."""
    return Node(Spilled(), (node,), node.shape, node.dtype)


def copied(source: Node, target: Node) -> LoweredKernel:
    """The launch that copies a buffer to another one."""
    builder, at = NestBuilder(), ir.Sum(((ir.LoopIndex("i0"), 1),), 0)
    with builder.loop("i0", source.size, "parallel", vector=True, counted=True):
        builder.emit(ir.Store(1, at, ir.Load(0, at, source.dtype)))
    roles = (ir.Parameter(source.dtype, "read"), ir.Parameter(source.dtype, "write"))
    name = "spill" if is_spilled(target) else "fetch"
    nest = ir.LoopNest(name, roles, (), builder.body, work=OPERATIONS)
    return LoweredKernel(nest, (source, target), is_rerun=True)
