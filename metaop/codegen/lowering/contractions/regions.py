"""Which steps of the depth matter to a tile, under masks that compare two positions.

Outside the regions of a contraction, factors are zero, or nobody needs the result: see
`fusion/masks.py`. A region is the difference of two axes of the box; it holds from 0 on.
"""

from __future__ import annotations

from metaop.codegen.lowering.base.values import Values
from metaop.fusion.recognise import Contraction
from metaop.unified_graph import index_expr
from metaop.unified_graph.index_expr import Axis, IndexExpr

# Where a side of a tile begins, and its length.
Side = tuple[IndexExpr, int]


def steps_that_matter(
    values: Values,
    contraction: Contraction,
    sides: tuple[Side, Side],
    block: tuple[IndexExpr, int],
) -> tuple[IndexExpr, IndexExpr]:
    """How many steps of a block a tile skips, and how many it takes then.

    `sides` are the rows and the columns of the tile; `block` is where its steps begin, and their
    number. Regions of axes that share a side, or the depth, with others skip nothing.
    """
    start, steps = block
    groups = contraction.rows, contraction.columns, contraction.depth
    known = {axes[0]: side for axes, side in zip(groups, (*sides, None)) if len(axes) == 1}
    least, most = [], []
    for region in contraction.regions:
        axes = {step: int(atom.name) for atom, step in region.terms if isinstance(atom, Axis)}
        if not known.keys() >= set(axes.values()):
            continue
        greater, less = known[axes[1]], known[axes[-1]]
        if greater is None and less is not None:
            least.append(less[0] - region.constant - start)
        elif greater is not None and less is None:
            most.append(greater[0] + (greater[1] + region.constant) - start)
        elif greater is not None and less is not None:
            # All steps if an element of the tile matters, else none.
            furthest = greater[0] + (greater[1] - 1 + region.constant) - less[0]
            reach = max(furthest.high, -furthest.low) + 1
            most.append((furthest + reach) // reach * steps)
    skipped, stop, ends = index_expr.constant(0), index_expr.constant(steps), (0, steps)
    if least:
        skipped = values.bind_between(values.fresh("skipped"), least, ends, "maximum")
    if most:
        stop = values.bind_between(values.fresh("stop"), most, ends, "minimum")
    if not least or not most:
        return skipped, stop - skipped
    return skipped, values.bind_between(values.fresh("taken"), [stop - skipped], ends)
