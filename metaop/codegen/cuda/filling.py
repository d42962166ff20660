"""Into how many parts reductions are cut, so that their launches fill a GPU.

The numbers follow from the multiprocessors, each of which runs several blocks, and from the length
of the reduction. A part must be long enough to pay for its block, and partial results must cost
less memory traffic than their operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from metaop.codegen.cuda.layout import BLOCK, rows_for
from metaop.codegen.lowering.base.loops import along_reduced, joined_plan, plain_plan
from metaop.codegen.lowering.contractions.axes import sum_type
from metaop.codegen.lowering.contractions.depth_order import depth_order
from metaop.codegen.lowering.contractions.shared_tiles import PIECE, Product, best_pieces
from metaop.codegen.lowering.reductions.rows import SHORT_LANES, RowReduction
from metaop.codegen.machine import PLAIN
from metaop.fusion.kernel import Kernel
from metaop.fusion.recognise import LEAST_WORK, Contraction
from metaop.fusion.storage import Storage
from metaop.fusion.triangles import Triangle
from metaop.fusion.two_stages import Cut, Source
from metaop.unified_graph.node import Node

# Blocks per multiprocessor: one reads while another computes.
_BLOCKS = 2
# A block that reads fewer elements finishes before another launch would begin.
_LEAST_WORK = 1 << 16
# The elements of a part per lane that shares it, and the fewest in a part.
_OF_LANE, _OF_THREAD = 4, 16
# Reductions of several passes read their rows again in each pass if they are computed separately.
# That pays if fewer than one in this many multiprocessors has a row.
_PASSES = 3
# With fewer results per multiprocessor than this, lanes share the parts of one.
_FEW_RESULTS = 64


def cut_to_fill(source: Source) -> Cut | None:
    """The cut of a reduction that would have too few blocks for the multiprocessors."""
    triangle, contraction = source.triangle, source.contraction
    if triangle is not None:
        return _cut_scan(source, triangle)
    if contraction is None:
        return _cut_rows(source)
    pieces = _pieces_of_depth(source.node, contraction, source.processors)
    if pieces < 2:
        return None
    order = depth_order(contraction, source.node.inputs[0].shape)
    return Cut((), order, pieces, True, True, PIECE)


def _cut_scan(source: Source, triangle: Triangle) -> Cut | None:
    """The blocks of long scans of which there are few: shared rows, or columns with a lane each."""
    node, (extent,) = source.node, source.extents
    shape = node.inputs[0].shape
    inner = math.prod(shape[max(triangle.kept, triangle.reduced) + 1 :])
    lanes, least = (BLOCK, _OF_LANE * BLOCK) if inner == 1 else (1, _OF_THREAD)
    tasks = -(-node.size // extent * lanes // BLOCK)
    blocks = min(-(-_BLOCKS * source.processors // tasks), extent // least)
    if tasks >= source.processors or blocks < 2:
        return None
    # Whole parts of a lane, wherever a block begins.
    return Cut((), block=-(-extent // (blocks * least)) * least)


def _cut_rows(source: Source) -> Cut | None:
    """The parts of a reduction that is not a contraction: shared rows, or columns with a lane each.

    The outer axes are cut, so that neighbours in memory stay neighbours.
    """
    node, processors = source.node, source.processors
    is_rows, inner = _innermost(source)
    tasks = node.size if is_rows else node.size // inner
    together = rows_for(inner)
    # The columns of a single row are tasks, until it is cut into parts.
    blocks = -(-tasks // together) if is_rows or tasks > 1 else -(-inner // BLOCK)
    lanes = BLOCK // together if is_rows else 1
    most = math.prod(source.extents) // max(_OF_LANE * lanes, _OF_THREAD)
    parts = min(-(-_BLOCKS * processors * together // tasks), most)
    is_idle = blocks * (_PASSES if is_rows else 1) < processors
    if not is_idle or parts < 2 or node.inputs[0].size < _LEAST_WORK * blocks:
        return None
    neighbours = node.size >= _FEW_RESULTS * processors
    return _cut_outside(source, parts)._replace(neighbours=neighbours)


def _innermost(source: Source) -> tuple[bool, int]:
    """Whether lanes share the rows of a kernel that computes nothing else, and their loop."""
    node = source.node
    kernel = Kernel(node.inputs[0].shape, frozenset(source.reduced), [node])
    stored = {x for x in _until(node, source.has_buffer) if source.has_buffer(x)}
    probe = RowReduction(kernel, Storage(stored), {}, plain_plan(kernel), PLAIN)
    places = probe.places_in_box()
    plan = joined_plan(kernel, probe.values.offsets, places)
    *outer, last = along_reduced(kernel, plan, places).loops
    inner = last.extent
    # Groups of lanes share the loop around.
    if last.reduced and outer and outer[-1].reduced:
        inner *= outer[-1].extent
    # Short loops over columns are fused.
    while not last.reduced and inner < SHORT_LANES and outer and not outer[-1].reduced:
        inner *= outer.pop().extent
    return last.reduced, inner


def _until(node: Node, is_end: Callable[[Node], bool]) -> set[Node]:
    """The nodes from which a node is computed, up to ends."""
    found, stack = set(), list(node.inputs)
    while stack:
        source = stack.pop()
        if source not in found:
            found.add(source)
            stack.extend(() if is_end(source) else source.inputs)
    return found


def _cut_outside(source: Source, parts: int) -> Cut:
    """At least a number of parts, each with one index of the outer axes and a piece of the next."""
    whole: list[int] = []
    for axis, extent in zip(source.reduced, source.extents):
        if extent > parts:
            even = (n for n in range(parts, 2 * parts) if extent % n == 0)
            return Cut(tuple(whole), (axis,), next(even, parts)) if parts > 1 else Cut(tuple(whole))
        whole.append(axis)
        parts = -(-parts // extent)
    return Cut(tuple(whole))


def _pieces_of_depth(node: Node, contraction: Contraction, processors: int) -> int:
    """The number of pieces into which the depth of a contraction is cut to be fastest."""
    shape = node.inputs[0].shape
    axes_of = (contraction.batch, contraction.rows, contraction.columns, contraction.depth)
    extents = [math.prod(shape[k] for k in axes) for axes in axes_of]
    product = Product.of(contraction, shape, extents, sum_type(node.dtype))
    # Parts stay contractions.
    most = product.rows * product.columns * product.depth // LEAST_WORK
    return best_pieces(product, processors, most).pieces
