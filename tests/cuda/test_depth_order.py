"""The order of the depth of contractions on a GPU follows memory."""

from __future__ import annotations

from metaop.codegen.lowering.contractions.depth_order import depth_order
from metaop.fusion.recognise import Contraction, recognise
from metaop.reduce.meta_op import Reduce, reduce_axes
from metaop.reindex import views
from metaop.unified_graph.node import Input, Node, Shape, topological
from tests.codegen.lowering import test_lowering as shared
from tests.cuda.cases import tensor

CHANNELS, OUTPUTS = 20, 24


def contraction_of(output: Node) -> tuple[Contraction, Shape]:
    for node in topological([output]):
        found = recognise(node, lambda one: isinstance(one.op, (Input, Reduce)))
        if isinstance(node.op, Reduce) and found is not None:
            return found, node.inputs[0].shape
    raise AssertionError("no contraction")


def extents(output: Node) -> tuple[list[int], list[int]]:
    """Those of the depth as recorded, and in the order that is chosen."""
    found, shape = contraction_of(output)
    order = depth_order(found, shape)
    assert sorted(order) == sorted(found.depth)
    return [shape[k] for k in found.depth], [shape[k] for k in order]


def test_channels_are_outside_of_windows_if_a_weight_has_windows_inside() -> None:
    """As in the gradient of a convolution by its input, which sums over windows of channels."""
    box = CHANNELS, 40, 9, OUTPUTS
    weight = views.permute(tensor(0, OUTPUTS, CHANNELS, 9), (1, 2, 0))
    left = views.broadcast_to(views.reshape(weight, (CHANNELS, 1, 9, OUTPUTS)), box)
    image = views.permute(tensor(1, 9, OUTPUTS, 40), (2, 0, 1))
    right = views.broadcast_to(views.reshape(image, (1, 40, 9, OUTPUTS)), box)
    recorded, order = extents(reduce_axes("add", left * right, [2, 3]))
    assert (recorded, order) == ([9, OUTPUTS], [OUTPUTS, 9])


def test_a_convolution_keeps_its_order() -> None:
    image, weight = tensor(0, 2, CHANNELS, 16, 16), tensor(1, OUTPUTS, CHANNELS, 3, 3)
    recorded, order = extents(shared.conv(image, weight))
    assert order == recorded


def test_a_product_of_one_axis_keeps_it() -> None:
    recorded, order = extents(shared.matmul(tensor(0, 32, 40), tensor(1, 40, 48)))
    assert order == recorded == [40]
