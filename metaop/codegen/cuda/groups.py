"""Loops whose iterations groups of lanes take in turn, because they do not depend on each other.

All lanes together run along the vector loop inside, or each group along that of an iteration of its
own. A lane of a smaller group has more elements of a vector loop, so it reads several at once.
"""

from __future__ import annotations

from metaop.codegen.cuda.hazards import accesses
from metaop.codegen.nest import ir


def is_shared_by_groups(loop: ir.For) -> bool:
    """Whether a serial loop is one reduction, or a map, over its iterations and a vector loop."""
    return not loop.vector and (is_one_reduction(loop) or _is_map(loop))


def is_one_reduction(loop: ir.For) -> bool:
    """Whether a loop only combines the results of one vector loop, each with its like."""
    if not loop.body or not isinstance(loop.body[0], ir.For) or not loop.body[0].vector:
        return False
    inner = {one.name: one.reducer for one in loop.body[0].accumulators}
    outer = {one.name: one.reducer for one in loop.accumulators}
    return (
        bool(inner)
        and not accesses(loop.body)[1]
        and all(
            isinstance(statement, ir.Accumulate)
            and isinstance(statement.value, ir.Name)
            and inner.get(statement.value.name) == outer[statement.name]
            for statement in loop.body[1:]
        )
    )


def _is_map(loop: ir.For) -> bool:
    """Whether a loop only writes results in one vector loop."""
    *before, last = loop.body or [None]
    if not isinstance(last, ir.For) or not last.vector or last.accumulators or loop.accumulators:
        return False
    reads, writes = accesses(loop.body)
    return (
        all(isinstance(statement, ir.Let) for statement in before)
        and all(buffer >= 0 for buffer in writes)
        and not reads & writes
    )
