"""Loops whose iterations groups of lanes take in turn, because they do not depend on each other.

All lanes together run along the vector loop inside, or each group along that of an iteration of its
own. A lane of a smaller group has more elements of a vector loop, so it reads several at once.
"""

from __future__ import annotations

from metaop.codegen.cuda.hazards import accesses
from metaop.codegen.nest import ir


def is_shared_by_groups(loop: ir.For) -> bool:
    """Whether a serial loop is a map, or one reduction, over its iterations and a vector loop.

    What it accumulates are the results of the vector loop, each combined with its like, and it
    reads nothing that it writes.
    """
    inner = vector_loop_of(loop)
    if inner is None or loop.vector or any(one.running for one in inner.accumulators):
        return False
    reducers = {one.name: one.reducer for one in inner.accumulators}
    around = {one.name: one.reducer for one in loop.accumulators}
    position = loop.body.index(inner)
    combining = loop.body[position + 1 :]
    reads, writes = accesses(loop.body)
    return (
        all(isinstance(statement, ir.Let) for statement in loop.body[:position])
        and len(combining) == len(reducers)
        and all(
            isinstance(statement, ir.Accumulate)
            and isinstance(statement.value, ir.Name)
            and reducers.get(statement.value.name) == around.get(statement.name, "")
            for statement in combining
        )
        and not reads & writes
        and all(buffer >= 0 for buffer in writes)
    )


def vector_loop_of(loop: ir.For) -> ir.For | None:
    """The only loop inside a loop, if it is a vector loop."""
    inner = [statement for statement in loop.body if isinstance(statement, ir.For)]
    return inner[0] if len(inner) == 1 and inner[0].vector else None
