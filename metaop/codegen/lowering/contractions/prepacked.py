"""Factors that a separate launch reorders before contractions read them.

The panels of a contraction read the same rows of the left factor once per block of columns. If
these are not contiguous along the depth, as in the gradient of a convolution with respect to its
input, a launch gathers them once before. A right factor that several contractions read in the same
way, such as the weight of a recurrent network, is packed once for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from metaop.codegen.lowering.base.kernel import LoweredKernel
from metaop.codegen.nest import ir
from metaop.fusion.recognise import Contraction
from metaop.unified_graph import index_expr
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import MetaOp, Node, Shape
from metaop.unified_graph.symbolic import divides

if TYPE_CHECKING:
    from metaop.codegen.lowering.contractions.packed_gemm import PackedGemm
    from metaop.codegen.lowering.contractions.tiling import Tiling


# The 16-bit floats that a GPU moves together.
NEIGHBOURS = 8


@dataclass(frozen=True)
class Prepacked(MetaOp):
    """A factor in the order that a schedule needs; such nodes exist only between launches.

    `order` distinguishes different preparations of the same factor.
    """

    order: tuple[object, ...]
    name: ClassVar[str] = "prepared"


def relaid(contract: Tiling, shape: Shape) -> Node:
    """The left factor as (batch, rows, depth), padded with zeros after rows and depth.

    Contractions that divide the depth into the same windows and channels share it.
    """
    contraction = contract.contraction
    parts = (contraction.batch, contraction.rows, contraction.depth)
    order = (*parts, contract.inner, *_case_of(contract))
    return Node(Prepacked(order), (contraction.left,), shape, contract.in_place)


def narrowed(
    contract: Tiling, factor: Node, axes: tuple[int, ...], along: bool, dtype: DType
) -> Node:
    """A factor with outer `axes` as (batch, lines, neighbours), in a narrow dtype.

    Lines run `along` the depth or across it. They are padded with zeros to whole parts.
    """
    contraction = contract.contraction
    outer, depth = (
        math.prod(contract.kernel.shape[k] for k in ks) for ks in (axes, contraction.depth)
    )
    lines, length = (outer, depth) if along else (depth, outer)
    order = ("narrowed", contraction.batch, axes, contraction.depth, along, *_case_of(contract))
    shape = (math.prod(contract.batch), lines, -(-length // NEIGHBOURS) * NEIGHBOURS)
    return Node(Prepacked(order), (factor,), shape, dtype)


def _case_of(contract: Tiling) -> tuple[object, ...]:
    """The current case of the contraction; other cases read other elements of a factor."""
    case = contract.case
    return (*sorted(case.fixed.items()), *sorted(case.ranges.items()))


def lower_relayout(contract: PackedGemm) -> LoweredKernel:
    """Writes the prepared left factor of a contraction made only for this purpose.

    A task is a row. Lanes run along the channels, and read all offsets of the window in turn.
    """
    node, values = contract.prepared, contract.values
    assert node is not None
    batch, height, padded = node.shape
    rows, depth = math.prod(contract.rows), math.prod(contract.depth)
    inner = contract.inner if divides(contract.inner, padded) else padded
    with values.loop("p", batch * height, "parallel") as task:
        indices = index_expr.unravel(task // height, contract.batch)
        contract.place = dict(zip(contract.contraction.batch, indices))
        with (
            values.loop("c", inner, vector=True) as channel,
            values.loop("w", padded // inner) as offset,
        ):
            step = offset * inner + channel
            outer = (contract.contraction.rows, contract.rows, task % height, rows)
            value = contract.factor(contract.contraction.left, outer, (step, depth))
            if node.dtype is not contract.scalar:
                value = ir.Apply("cast", (value,), node.dtype, contract.scalar)
            number = contract.parameter(node, "write")
            values.emit(ir.Store(number, values.sum(task * padded + step), value))
    return contract.finish("order", values.body, padded, prepared=node)


def right_as_read(contraction: Contraction) -> Node:
    """A key of the right factor, equal for all contractions that can share its strips."""
    order = _order_of_right(contraction)
    return Node(Prepacked(order), (contraction.right,), (), contraction.right.dtype)


def _order_of_right(contraction: Contraction) -> tuple[object, ...]:
    return "strips", contraction.batch, contraction.columns, contraction.depth


def packed(contract: Tiling, strips: int) -> Node:
    """The right factor as (batch, strips, depth, columns of a strip), padded with zeros.

    It has as many strips as all blocks together. Contractions that divide the depth into the same
    windows and channels share it.
    """
    contraction, block = contract.contraction, contract.block_depth
    steps = -(-math.prod(contract.depth) // block) * block // contract.together
    shape = (math.prod(contract.batch), strips, steps, contract.tile_columns)
    cuts = contract.inner, contract.offsets_inside
    order = (*_order_of_right(contraction), *cuts, *_case_of(contract))
    return Node(Prepacked(order), (contraction.right,), shape, contract.panel)


def lower_packing(contract: PackedGemm) -> LoweredKernel:
    """Writes the packed right factor of a contraction made only for this purpose.

    A task is a strip.
    """
    node, values, contraction = contract.packed, contract.values, contract.contraction
    assert node is not None
    batch, strips, steps, width = node.shape
    contract.block_depth = steps * contract.together
    size = steps * width
    with values.loop("p", batch * strips, "parallel") as task:
        indices = index_expr.unravel(task // strips, contract.batch)
        contract.place = dict(zip(contraction.batch, indices))
        with values.loop("l", width, vector=True) as lane:
            column = task % strips * width + lane
            contract.pack(
                contraction.right,
                contract.parameter(node, "write"),
                (contraction.columns, contract.columns, column, math.prod(contract.columns)),
                (index_expr.constant(0), math.prod(contract.depth)),
                task * size + lane,
                width,
            )
    return contract.finish("strips", values.body, size, prepared=node)
