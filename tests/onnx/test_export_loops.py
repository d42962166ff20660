"""Loops and choices of exported networks stay loops and choices, for all lengths and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import metaop
import metaop.onnx
from metaop import nn
from tests.export.test_loops import FORMS
from tests.helpers import tensors_in
from tests.onnx.test_export import agree, run


def operators(graph: onnx.GraphProto) -> list[str]:
    """The operators of a graph, and of the graphs within it."""
    found = []
    for node in graph.node:
        found.append(node.op_type)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += operators(attribute.g)
    return found


def results(function: Any, x: np.ndarray) -> list[np.ndarray]:
    with metaop.no_grad():
        return [one.numpy() for one in tensors_in(function(metaop.tensor(x)))]


@pytest.mark.parametrize("name", FORMS)
def test_any_length_and_size(name: str) -> None:
    """onnxruntime and metaop compute from the file what the function does."""
    metaop.manual_seed(0)
    function, example, axes = FORMS[name](), metaop.randn(6, 3, 4), {0: "length", 1: "rows"}
    if name == "cond":
        example, axes = example[0], {0: "rows"}
    program = metaop.onnx.export(
        function, example, input_names=["x"], dynamic_axes={"x": axes}
    ).model_proto
    again = metaop.onnx.load(program)
    written = operators(program.graph)
    assert {"cond": "If", "lstm": "LSTM", "gru": "GRU"}.get(name, "Loop") in written
    for shape in ((6, 3, 4), (20, 2, 4), (9, 7, 4), (1, 5, 4), (7, 1, 4)):
        if name == "scan" and shape[0] == 1:
            continue  # it reads position 1 of its stack
        x = np.random.default_rng(0).standard_normal(shape[-example.ndim :]).astype(np.float32)
        for given in (x, -x):
            wanted = results(function, given)
            agree(run(program, given), wanted)
            agree(results(again, given), wanted)


def test_the_file_does_not_grow_with_the_length() -> None:
    function = FORMS["map"]()
    sizes = [
        len(metaop.onnx.export(function, metaop.rand(length, 3, 4)).model_proto.graph.node)
        for length in (5, 500)
    ]
    assert sizes[0] == sizes[1]


def test_choices_between_layers_run_one_of_them() -> None:
    """Parameters are constants around both graphs, and sizes are computed around them."""

    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(4, 8)

        def forward(self, x: metaop.Tensor) -> Any:
            def one(x: metaop.Tensor) -> Any:
                return self.first(x) / x.shape[0], (x > 0).sum()

            def other(x: metaop.Tensor) -> Any:
                return self.second(x).cumsum(0), metaop.tensor(x.shape[0])

            found, count = metaop.cond(x.mean() > 0, one, other, (x,))
            return found.reshape(x.shape[0] * 2, 4), count

    net = Chosen().eval()
    program = metaop.onnx.export(
        net, metaop.rand(3, 4), input_names=["x"], dynamic_axes={"x": {0: "n"}}
    ).model_proto
    assert {one.name for one in program.graph.initializer} >= {"first.weight", "second.bias"}
    for count in (1, 3, 8):
        x = np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)
        for given in (abs(x), -abs(x)):
            agree(run(program, given), results(net, given))


def test_parts_of_stacks_and_states_of_several_types() -> None:
    """Slices that begin behind the first element, a reversed scan, bools and integers."""

    def function(x: metaop.Tensor) -> Any:
        def step(state: Any, row: metaop.Tensor) -> Any:
            total, seen, count = state
            total = metaop.where(seen, total + row, total - row)
            return (total, ~seen, count + (row > 0).sum()), (total * 2, count)

        start = (x[0] * 0, metaop.tensor(True), metaop.tensor(0))
        last, (doubled, counts) = metaop.scan(step, start, x[2:], reverse=True)
        return last[0], last[2], doubled, counts

    program = metaop.onnx.export(
        function, metaop.rand(7, 3), input_names=["x"], dynamic_axes={"x": {0: "n"}}
    ).model_proto
    for length in (3, 4, 11):
        x = np.random.default_rng(length).standard_normal((length, 3)).astype(np.float32)
        agree(run(program, x), results(function, x))
