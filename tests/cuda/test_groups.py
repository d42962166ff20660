"""Groups of lanes take the iterations of outer loops in turn."""

from __future__ import annotations

import pytest

from metaop.codegen.cuda.layout import layout_of
from metaop.codegen.cuda.schedules import CUDA
from metaop.compiler import schedule
from metaop.elementwise import apply
from metaop.reduce import reduce_axes
from metaop.reindex import views
from metaop.unified_graph.node import Node
from tests.codegen.lowering.test_lowering import batch_norm, softmax
from tests.cuda.cases import CASES, inputs_of, tensor


def _windows() -> Node:
    """The gradient of the weight of a convolution whose channels do not meet."""
    box = (16, 300, 6, 6, 3, 3)
    image = views.pad(tensor(0, 16, 300, 6, 6), (0, 0, 1, 1), (0, 0, 1, 1))
    back = views.broadcast_to(views.reshape(tensor(1, 16, 300, 6, 6), (*box[:4], 1, 1)), box)
    windows = views.windows(image, (3, 3), (1, 1), (0, 0), (1, 1))
    return reduce_axes("add", windows * back, [0, 2, 3])


GROUPS: dict[str, tuple[Node, int]] = {
    # Of 784 parts of an image, warps take 25 at a time, in four rounds of images.
    "many images": (batch_norm(tensor(0, 64, 256, 56, 56)), 16),
    # 196 parts go once over 256 lanes, and seven times over a warp.
    "fewer images than warps": (batch_norm(tensor(0, 2, 256, 28, 28)), 2),
    "one loop": (softmax(tensor(0, 40, 9000), 1), 1),
    "an iteration for each warp": (reduce_axes("add", tensor(0, 6, 300, 100), [0, 2]), 8),
    # Nine parts need 16 lanes, half a warp.
    "parts of warps": (batch_norm(tensor(0, 16, 300, 6, 6)), 16),
    # Loops that cannot be joined, because a window is cut off at the edges, are one by division.
    "a loop by division": (_windows(), 1),
}


@pytest.mark.parametrize("name", GROUPS)
def test_as_many_as_need_the_fewest_turns(name: str) -> None:
    output, groups = GROUPS[name]
    (launch,) = schedule(inputs_of([output]), [output], CUDA).launches
    assert layout_of(launch.nest).groups == groups


def test_cases_have_some() -> None:
    """What the emulator and NVRTC check."""
    found = set()
    for name in ("channels of many images", "channels of many large images"):
        outputs = CASES[name]()
        for launch in schedule(inputs_of(outputs), outputs, CUDA).launches:
            found.add(layout_of(launch.nest).groups)
    assert len(found) > 1


def test_blocks_of_large_launches_are_short() -> None:
    """Long ones would leave multiprocessors idle at the end, while the last blocks run."""
    for extent, most, blocks in ((1 << 27, 4224, 32768), (1 << 22, 4224, 4096), (70, 4224, 1)):
        outputs = [apply("exp", tensor(0, extent))]
        (launch,) = schedule(inputs_of(outputs), outputs, CUDA).launches
        assert layout_of(launch.nest).blocks(launch.nest, most) == blocks


@pytest.mark.parametrize("rows, lanes, width", [(32, 256, 1), (330, 128, 4), (2000, 128, 4)])
def test_few_elements_have_a_lane_each(rows: int, lanes: int, width: int) -> None:
    columns = 256 if rows == 32 else 400
    shape = rows, columns
    outputs = [tensor(0, *shape) * views.broadcast_to(tensor(1, rows, 1), shape)]
    (launch,) = schedule(inputs_of(outputs), outputs, CUDA).launches
    layout = layout_of(launch.nest)
    assert (layout.lanes, layout.parts.width) == (lanes, width)
