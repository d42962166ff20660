"""The blocks that a task owns, told from its number.

The number of the first tile of a block is bound to a name. What is computed from it then has the
same form whatever the number and the size of the blocks are, a single one included, so that a
changed batch size finds its kernel; and it is known that a block starts with a whole tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metaop.codegen import loop_nest as ir
from metaop.codegen.lowering.values import Values
from metaop.unified_graph.index_expr import Axis, IndexExpr, of

# The axes of the parallel loop, and of the loop over blocks of the depth of a contraction.
TASK = "p"
DEPTH_BLOCK = "kb"
_THIS = ir.Sum(((ir.LoopIndex(TASK), 1),), 0)


class Blocks(NamedTuple):
    """So many blocks of so many tiles each along a direction of the result."""

    name: str
    blocks: int
    tiles: int


def bind_tiles(
    values: Values, directions: Sequence[Blocks], task: ir.Sum = _THIS
) -> list[IndexExpr]:
    """The first tile of a task's block in each direction; the first varies fastest."""
    found = []
    for name, blocks, tiles in directions:
        first = ir.Sum(((ir.RemainderIndex(task, blocks), tiles),), 0)
        found.append(values.bind_index(name, first, (blocks - 1) * tiles))
        task = ir.Sum(((ir.QuotientIndex(task, blocks), 1),), 0)
    return found


def counted(name: str, extent: int) -> IndexExpr:
    """The index of a loop over tiles: it has a place in every sum, even for a single tile."""
    return of(Axis(name, extent))
