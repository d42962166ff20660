"""Into how many parts reductions are cut, so that their launches fill a GPU.

Numbers follow from the multiprocessors, which have some blocks each, and from the length of what is
reduced: a part is long enough to repay its block, and partial results cost less memory traffic than
what they are computed from.
"""

from __future__ import annotations

import math

from metaop.codegen.lowering.shared_gemm import tiles_of
from metaop.fusion.recognise import LEAST_WORK, Contraction
from metaop.fusion.two_stages import Cut, Source, cut_long_rows
from metaop.reindex.meta_op import Reindex
from metaop.unified_graph.node import Node

# Blocks of a contraction for each multiprocessor: one loads its panels while another multiplies.
_BLOCKS = 2
# A part of a contraction has at least so many steps of the depth.
_FEWEST_STEPS = 8
# The busiest multiprocessor does at most so many times the work of the average one.
_IMBALANCE = 1.1


def cut_to_fill(source: Source, processors: int) -> Cut | None:
    """The cut of a reduction that would have too few blocks for the multiprocessors."""
    contraction = source.contraction
    if contraction is None:
        return cut_long_rows(source, processors)
    pieces = _pieces_of_depth(source.node, contraction, processors)
    return None if pieces < 2 else Cut((), source.reduced, pieces, True, True)


def _pieces_of_depth(node: Node, contraction: Contraction, processors: int) -> int:
    """Into how many pieces the depth of a contraction is cut.

    The largest tile that fills the multiprocessors is best: larger tiles read less. If none does,
    the smallest one gets as many pieces as there may be.
    """
    shape = node.inputs[0].shape
    batch, rows, columns, depth = (
        math.prod(shape[k] for k in axes)
        for axes in (contraction.batch, contraction.rows, contraction.columns, contraction.depth)
    )
    # Partial results are written and read once, which takes at most half of what factors take.
    factors = _bytes_read(contraction.left) + _bytes_read(contraction.right)
    affordable = factors // (4 * node.size * node.dtype.compute.itemsize)
    # Parts stay contractions.
    affordable = min(affordable, rows * columns * depth // LEAST_WORK)
    most = 1
    for tile in tiles_of(node.dtype, rows, columns):
        blocks = batch * -(-rows // tile.side) * -(-columns // tile.side)
        if blocks >= processors:
            return 1
        most = max(min(depth // (_FEWEST_STEPS * tile.depth), affordable), 1)
        found = next((n for n in range(2, most + 1) if _fills(blocks * n, processors)), None)
        if found is not None:
            return found
    return most


def _fills(blocks: int, processors: int) -> bool:
    """Whether so many blocks of one size keep all multiprocessors busy to the end."""
    each = max(-(-blocks // processors), _BLOCKS)
    return blocks * _IMBALANCE >= each * processors


def _bytes_read(factor: Node) -> int:
    """The bytes of what a factor views."""
    while isinstance(factor.op, Reindex):
        factor = factor.inputs[0]
    return factor.nbytes
