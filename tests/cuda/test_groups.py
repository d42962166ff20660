"""Groups of lanes take the iterations of outer loops in turn."""

from __future__ import annotations

import pytest

from metaop.codegen.cuda.layout import layout_of
from metaop.codegen.cuda.schedules import CUDA
from metaop.compiler import schedule
from metaop.reduce import reduce_axes
from metaop.unified_graph.node import Node
from tests.codegen.test_lowering import batch_norm, softmax
from tests.cuda.cases import CASES, inputs_of, tensor

GROUPS: dict[str, tuple[Node, int]] = {
    # Of 784 parts of an image, warps take 25 at a time, in four rounds of images.
    "many images": (batch_norm(tensor(0, 64, 256, 56, 56)), 16),
    # 196 parts go once over 256 lanes, and seven times over a warp.
    "fewer images than warps": (batch_norm(tensor(0, 2, 256, 28, 28)), 2),
    "one loop": (softmax(tensor(0, 40, 9000), 1), 1),
    "whole warps": (reduce_axes("add", tensor(0, 6, 300, 100), [0, 2]), 1),
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
