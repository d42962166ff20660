"""`Loop` and `Scan` of a file are loops of the program where their steps fit one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import metaop
import metaop.onnx
from metaop.unified_graph.recording import Call
from metaop.utils._pytree import tree_leaves
from tests.onnx.test_export import agree, run

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any]
) -> Any:
    made = [onnx.numpy_helper.from_array(np.array(x), name) for name, x in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def looped(step: Any, most: int | None, ends: bool, stacks: bool = True) -> Any:
    """x doubles or grows in every step; the loop ends where its sum passes 1000, if it ends."""
    condition = helper.make_node("Identity", ["going"], ["goes"])
    if ends:
        condition = helper.make_node("Less", ["total", "most"], ["goes"])
    nodes = [
        *step,
        helper.make_node("ReduceSum", ["after"], ["total"], keepdims=0),
        condition,
        helper.make_node("Identity", ["after"], ["kept"]),
    ]
    results = [info("goes", BOOL, None), info("after", FLOAT, None)]
    if stacks:
        results.append(info("kept", FLOAT, None))
    body = helper.make_graph(
        nodes, "b", [info("i", INT, []), info("going", BOOL, []), info("x", FLOAT, None)], results
    )
    limit = "" if most is None else "limit"
    names = ["last", "all"][: 1 + stacks]
    loop = helper.make_node("Loop", [limit, "first", "x0"], names, body=body)
    constants: dict[str, Any] = {"most": np.float32(1000), "first": np.array(True)}
    if most is not None:
        constants["limit"] = np.int64(most)
    outputs = [info(name, FLOAT, None) for name in names]
    return model([loop], [info("x0", FLOAT, ["n"])], outputs, constants)


DOUBLED = [helper.make_node("Add", ["x", "x"], ["after"])]
GROWN = [helper.make_node("Concat", ["x", "x"], ["after"], axis=0)]


def repeats(function: Any, x: metaop.Tensor) -> bool:
    """Whether the results of a function come from a loop of the program."""
    seen: set[Call] = set()
    stack = [one.call for one in tree_leaves(function(x))]
    while stack:
        call = stack.pop()
        if call not in seen:
            seen.add(call)
            stack += call.inputs
    return any(
        call.signature is not None and str(call.signature.composite) == "repeat" for call in seen
    )


@pytest.mark.parametrize(
    ("step", "most", "ends", "stacks", "is_loop"),
    [
        (DOUBLED, 20, False, True, True),
        (DOUBLED, 3, False, True, False),  # too few steps to pay
        (DOUBLED, 30, True, False, True),
        (DOUBLED, None, True, False, True),
        (DOUBLED, 30, True, True, False),  # how much it stacks depends on values
        (GROWN, 9, False, False, False),
        (GROWN, 12, True, False, False),
    ],
)
def test_loops(step: Any, most: int | None, ends: bool, stacks: bool, is_loop: bool) -> None:
    proto = looped(step, most, ends, stacks)
    net = metaop.onnx.load(proto)
    x = np.random.default_rng(0).random(4).astype(np.float32)
    with metaop.no_grad():
        assert repeats(net, metaop.tensor(x)) == is_loop
        found = tree_leaves(net(metaop.tensor(x)))
    agree([one.numpy() for one in found], run(proto, x))


def test_what_values_end_is_captured_and_trains_step_by_step() -> None:
    net = metaop.onnx.load(looped(DOUBLED, 40, True, stacks=False))
    x = metaop.rand(5)
    with metaop.no_grad():
        captured = metaop.jit(net)
        for scale in (1.0, 100.0, 0.001):
            assert metaop.equal(captured(x * scale), net(x * scale))
    x.requires_grad_()
    y = net(x)
    y.sum().backward()
    assert metaop.equal(x.grad * x, y)


@pytest.mark.parametrize("backwards", [0, 1])
def test_scans_along_any_axis_in_any_direction(backwards: int) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["total", "part"], ["after"]),
            helper.make_node("Mul", ["after", "part"], ["made"]),
        ],
        "b",
        [info("total", FLOAT, ["n"]), info("part", FLOAT, ["n"])],
        [info("after", FLOAT, ["n"]), info("made", FLOAT, ["n"])],
    )
    node = helper.make_node(
        "Scan",
        ["start", "x"],
        ["last", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[backwards],
        scan_output_axes=[1],
        scan_output_directions=[1 - backwards],
    )
    ports = [info("start", FLOAT, ["n"]), info("x", FLOAT, ["n", "t"])]
    outputs = [info("last", FLOAT, None), info("all", FLOAT, None)]
    proto = model([node], ports, outputs, {})
    net = metaop.onnx.load(proto)
    for steps in (1, 9, 20):
        given = [np.random.default_rng(k).random(s).astype(np.float32) for k, s in
                 enumerate([(3,), (3, steps)])]  # fmt: skip
        with metaop.no_grad():
            found = net(*map(metaop.tensor, given))
        agree([one.numpy() for one in found], run(proto, *given))
    with metaop.no_grad():
        last, empty = net(metaop.ones(3), metaop.ones(3, 0))
    assert last.tolist() == [1.0] * 3 and empty.shape == (3, 0)


def test_no_steps() -> None:
    """A trace knows the types of stacks (onnxruntime gives them one dimension)."""
    with metaop.no_grad():
        last, empty = metaop.onnx.load(looped(DOUBLED, 0, False))(metaop.ones(4))
    assert last.tolist() == [1.0] * 4 and empty.shape == (0, 4) and empty.dtype is metaop.float32
