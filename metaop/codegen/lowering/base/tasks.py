"""The blocks that a task owns, derived from its number.

The number of the first tile of a block is bound to a name. Expressions of it then have the same
form for any number and size of blocks, including a single one, so that a changed batch size finds
its kernel. It also shows that a block starts with a whole tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from metaop.codegen.lowering.base.values import Values
from metaop.codegen.nest import ir
from metaop.unified_graph.index_expr import IndexExpr

# The axes of the parallel loop, and of the loop over blocks of the depth of a contraction.
TASK = "p"
DEPTH_BLOCK = "kb"
_THIS = ir.Sum(((ir.LoopIndex(TASK), 1),), 0)


class Blocks(NamedTuple):
    """A number of blocks of equally many tiles along a direction of the result.

    With a `total`, they have that many tiles together, and some blocks have one fewer than `tiles`.
    """

    name: str
    blocks: int
    tiles: int
    total: int | None = None


def bind_tiles(
    values: Values, directions: Sequence[Blocks], task: ir.Sum = _THIS
) -> list[IndexExpr]:
    """The first tile of a task's block in each direction; the first varies fastest."""
    found = []
    for name, blocks, tiles, total in directions:
        number = ir.RemainderIndex(task, blocks)
        first, high = ir.Sum(((number, tiles),), 0), (blocks - 1) * tiles
        if total is not None:
            first, high = _shared(number, blocks, total, 0), total - 1
            behind = _shared(number, blocks, total, total)
            count = ir.Sum((*behind.terms, (first.terms[0][0], -1)), 0)
            values.emit(ir.Let(count_name(name), ir.IndexValue(count)))
        found.append(values.bind_index(name, first, high))
        task = ir.Sum(((ir.QuotientIndex(task, blocks), 1),), 0)
    return found


@contextmanager
def task_loop(values: Values, directions: Sequence[Blocks]) -> Iterator[list[IndexExpr]]:
    """The parallel loop over the blocks of all directions, the first of which varies fastest.

    Yields the first tile of a task's block in each direction.
    """
    with values.loop(TASK, math.prod(one.blocks for one in directions), "parallel", counted=True):
        yield bind_tiles(values, directions)


def count_name(direction: str) -> str:
    """The name of the number of tiles of a task's block, if blocks differ."""
    return f"{direction}_count"


def _shared(number: ir.RemainderIndex, blocks: int, total: int, more: int) -> ir.Sum:
    """`(number * total + more) // blocks`: where a block begins, or with `total` more, ends."""
    return ir.Sum(((ir.QuotientIndex(ir.Sum(((number, total),), more), blocks), 1),), 0)
