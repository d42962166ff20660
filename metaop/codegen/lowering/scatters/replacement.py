"""The launches of a `Replacement`: the table is copied, then rows are written."""

from __future__ import annotations

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.machine import OPERATIONS
from metaop.codegen.nest import ir
from metaop.codegen.nest.builder import NestBuilder
from metaop.reduce.replacement import row_count, row_length
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.faults import INDEX_OUT_OF_RANGE
from metaop.unified_graph.node import Node


def lower_replacement(root: Node) -> list[LoweredKernel]:
    """The launches that compute a table with replaced rows.

    The copy is exact, so the result may take the memory of a table that nothing else needs; then
    the copy does nothing.
    """
    base, rows, values = root.inputs
    return [
        LoweredKernel(_copy(root), (root, base)),
        LoweredKernel(_write(root), (root, rows, values)),
    ]


def _copy(root: Node) -> ir.LoopNest:
    at = ir.Sum(((ir.LoopIndex("i0"), 1),), 0)
    nest = NestBuilder()
    with nest.loop("i0", root.size, "parallel", vector=True, counted=True):
        nest.emit(ir.Store(0, at, ir.Load(1, at, root.dtype)))
    parameters = ir.Parameter(root.dtype, "write"), ir.Parameter(root.dtype, "read")
    return ir.LoopNest("copy", parameters, (), nest.body, work=OPERATIONS)


def _write(root: Node) -> ir.LoopNest:
    """Writes row after row, with lanes along their elements."""
    length, nest = row_length(root), NestBuilder()
    column, row = ir.LoopIndex("j"), ir.LoopIndex("i")
    index = ir.Load(1, ir.Sum(((row, 1),), 0), dtypes.int64)
    value = ir.Load(2, ir.Sum(((row, length), (column, 1)), 0), root.dtype)
    place = ir.Sum(((ir.ValueIndex("place"), length), (column, 1)), 0)
    with (
        nest.loop("j", length, "parallel", vector=True, counted=True),
        nest.loop("i", root.inputs[1].size, counted=True),
    ):
        nest.emit(ir.CheckedIndex("place", index, row_count(root), INDEX_OUT_OF_RANGE.number))
        nest.emit(ir.Store(0, place, value))
    parameters = (
        ir.Parameter(root.dtype, "update"),
        ir.Parameter(dtypes.int64, "read"),
        ir.Parameter(root.dtype, "read"),
    )
    return ir.LoopNest("replace", parameters, (), nest.body, work=OPERATIONS)
