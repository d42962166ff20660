"""Symbolic tracing: the nodes, the code and the results of PyTorch's tracer."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import math
import re
import types
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.fx.interception import watching

torch = pytest.importorskip("torch")
importlib.import_module("torch.fx")
LIBRARIES = pytest.mark.parametrize("lib", [metaop, torch], ids=["metaop", "torch"])
MODELS = Path(__file__).parents[2] / "models"
Pair = namedtuple("Pair", "left right")
CONSTANTS: dict[Any, Any] = {lib: lib.tensor([1.0, 2.0, 3.0]) for lib in (metaop, torch)}


def nodes(graph: Any) -> list[tuple[Any, ...]]:
    """Operations, names and targets, with functions by their names."""
    return [
        (n.op, n.name, n.target if isinstance(n.target, str) else n.target.__name__, len(n.users))
        for n in graph.nodes
    ]


def code_of(traced: Any) -> str:
    return traced.code.replace("metaop.", "torch.")


# Functions of a library and two tensors: both libraries record the same code.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "operators": lambda lib, x, y: (-x + y * 2 - 1 / x) @ (y // 3) ** 2 % 5,
    "comparisons": lambda lib, x, y: ((x > y) & (x <= 3)) | ~(x == y),
    "methods": lambda lib, x, y: x.relu().sum(dim=(0, 1), keepdim=True).to(lib.float32),
    "attributes": lambda lib, x, y: x.shape[0] + y.T + x.size(-1),
    "indices": lambda lib, x, y: x[..., 0, 1:2] + x[:, None][0, [1, 2]] + x[y],
    "functions": lambda lib, x, y: lib.cat([lib.relu(x), lib.softmax(y, 1)], dim=0),
    "made from sizes": lambda lib, x, y: lib.zeros(x.size(0)) + lib.arange(0, y.size(1)),
    "unpacking": lambda lib, x, y: sum_of(*unpacked(x.split(2))),
    "nested results": lambda lib, x, y: {"a": x, "b": [y, (x, None, 3.5)], "c": (x,)},
    "types and devices": lambda lib, x, y: x.to(device=lib.device("cpu"), dtype=lib.int64),
    "abs": lambda lib, x, y: abs(x) + lib.abs(y),
    "infinite": lambda lib, x, y: x.clamp(-math.inf, math.inf) + math.nan,
    "writes": lambda lib, x, y: written(x, y),
    "unused": lambda lib, x, y: (x + 1, y)[1],
    "constants": lambda lib, x, y: CONSTANTS[lib] + x - CONSTANTS[lib] / y + (CONSTANTS[lib] > x),
    "constant methods": lambda lib, x, y: CONSTANTS[lib].add(x) + x.add(CONSTANTS[lib]),
    "named tuples": lambda lib, x, y: lib.relu(Pair(x, y).left) + y,
    "questions": lambda lib, x, y: x if lib.is_tensor(x) else y,
    "asserts": lambda lib, x, y: (lib._assert(x, "never"), y)[1],
}


def sum_of(a: Any, b: Any) -> Any:
    return a + b


def unpacked(pieces: Any) -> Any:
    first, second = pieces
    return second, first


def written(x: Any, y: Any) -> Any:
    x += y.add_(1)
    return x.mul_(2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_the_code_of_pytorch(name: str) -> None:
    def traced(lib: Any) -> Any:
        def function(x: Any, y: Any = 3) -> Any:
            return FUNCTIONS[name](lib, x, y)

        return lib.fx.symbolic_trace(function)

    ours, theirs = traced(metaop), traced(torch)
    assert code_of(ours) == theirs.code
    assert nodes(ours.graph) == nodes(theirs.graph)
    assert str(ours.graph).replace("metaop.", "torch.") == str(theirs.graph)
    ours.graph.lint()


@LIBRARIES
def test_references_of_every_kind_are_recorded(lib: Any) -> None:
    """Functions are held in attributes, tables, closures, defaults and partial functions."""
    functional = lib.nn.functional
    held, table = functional.relu, {"tanh": lib.tanh}
    leaky = functools.partial(functional.leaky_relu, negative_slope=0.1)

    class Net(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.act = functional.gelu

        def forward(self, x: Any, last: Any = lib.sigmoid) -> Any:
            return last(leaky(table["tanh"](held(self.act(x)))))

    class Kept(Net):
        def forward(self, x: Any) -> Any:  # type: ignore[override]
            return super().forward(x)

    graph = lib.fx.Tracer().trace(Kept())
    names = [node.name for node in graph.nodes]
    assert names == ["x", "gelu", "relu", "tanh", "leaky_relu", "sigmoid", "output"]


def test_functions_are_as_before_when_the_proxies_are_gone() -> None:
    gc.collect()  # proxies that the error of an earlier test still holds
    code, method = metaop.relu.__code__, metaop.Tensor.__add__.__code__
    graph = metaop.fx.Graph()
    proxy: Any = metaop.fx.Proxy(graph.placeholder("x"))
    assert metaop.relu.__code__ is not code
    assert metaop.relu(metaop.tensor([-1.0, 2.0])).tolist() == [0, 2]
    with pytest.raises(metaop.errors.ShapeError):
        metaop.ones(2) + metaop.ones(3)
    assert str(metaop.tanh(proxy)) == "Proxy(tanh)"
    del proxy
    assert metaop.relu.__code__ is code and metaop.Tensor.__add__.__code__ is method
    with contextlib.suppress(metaop.errors.TraceError):
        metaop.fx.symbolic_trace(lambda x: x if x > 0 else -x)
    gc.collect()
    assert metaop.relu.__code__ is code and watching._count == 0


def substituted(name: str) -> types.ModuleType:
    """A model of `models/` as a program for PyTorch."""
    text = re.sub(r"\bmetaop\b", "torch", (MODELS / f"{name}.py").read_text())
    module = types.ModuleType(f"models.{name}_for_torch")
    module.__package__ = "models"
    exec(compile(text, name, "exec", dont_inherit=True), vars(module))
    return module


@pytest.mark.parametrize(
    ("name", "network", "arguments", "shape"),
    [
        ("lenet", "LeNet", (), (2, 1, 28, 28)),
        ("mlp", "MLP", (6, 8, 3), (2, 6)),
        ("", "", (), (4, 3)),
    ],
    ids=["lenet", "mlp", "rays"],
)
def test_networks_compute_what_pytorch_does(
    name: str, network: str, arguments: Any, shape: Any
) -> None:
    if name:
        ours = getattr(importlib.import_module(f"models.{name}"), network)(*arguments).eval()
        theirs = getattr(substituted(name), network)(*arguments).eval()
    else:
        ours, theirs = rays(metaop), rays(torch)
    values = {k: np.array(v.detach().numpy()) for k, v in theirs.state_dict().items()}
    ours.load_state_dict({k: metaop.from_numpy(v) for k, v in values.items()})
    traced, expected = metaop.fx.symbolic_trace(ours), torch.fx.symbolic_trace(theirs)
    assert nodes(traced.graph) == nodes(expected.graph)
    assert list(dict(traced.named_parameters())) == list(dict(expected.named_parameters()))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found, wanted = traced(metaop.from_numpy(x)), expected(torch.from_numpy(x))
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), atol=1e-5)
    found.square().sum().backward()
    wanted.square().sum().backward()
    for (key, one), other in zip(traced.named_parameters(), expected.parameters()):
        scale = float(other.grad.abs().max()) + 1e-6
        np.testing.assert_allclose(
            one.grad.numpy() / scale, other.grad.numpy() / scale, atol=2e-5, err_msg=key
        )


def rays(lib: Any) -> Any:
    """A network with buffers, parameters of its own, shared layers, and blocks of blocks."""

    class Block(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = lib.nn.Linear(6, 6)
            self.scale = lib.nn.Parameter(lib.ones(6))

        def forward(self, x: Any) -> Any:
            return lib.nn.functional.relu(self.linear(x)) * self.scale

    class Rays(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("bands", lib.tensor([1.0, 2.0]))
            self.blocks = lib.nn.Sequential(Block(), lib.nn.Dropout(0.5).eval(), Block())
            self.offset = lib.tensor([0.5])

        def forward(self, x: Any, scale: float = 2.0) -> Any:
            waves = lib.sin((x[:, None] * self.bands[:, None]).flatten(1)) + self.offset
            return self.blocks(self.blocks[0](waves)) * scale + x.sum()

    return Rays()


@LIBRARIES
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x if x > 0 else -x, "cannot be used as inputs to control flow"),
        (lambda x: [one + 1 for one in x], "cannot be iterated"),
        (lambda x: len(x), "'len' is not supported"),
        (lambda x: x.sum() and x, "cannot be used as inputs to control flow"),
    ],
)
def test_control_flow_raises(lib: Any, function: Any, message: str) -> None:
    error = RuntimeError if "len" in message else lib.fx.proxy.TraceError
    with pytest.raises(error, match=message):
        lib.fx.symbolic_trace(function)


@LIBRARIES
def test_values_that_are_given_for_good(lib: Any) -> None:
    def function(x: Any, y: Any, flag: bool) -> Any:
        return x + 1 if flag else y

    traced = lib.fx.symbolic_trace(function, concrete_args={"flag": True})
    names = [node.name for node in traced.graph.nodes]
    assert names == ["x", "y", "flag_1", "eq", "_assert", "add", "output"]
    assert traced(lib.ones(2), 0, True).tolist() == [2, 2]
    with pytest.raises(AssertionError, match="flag has been specialized"):
        traced(lib.ones(2), 0, False)
    by_place = lib.fx.symbolic_trace(function, concrete_args=(lib.fx.PH, lib.fx.PH, None))
    assert by_place(1, lib.ones(2), None).tolist() == [1, 1]
    with pytest.raises(AssertionError, match="specialized to have value None"):
        by_place(1, lib.ones(2), 3)


@LIBRARIES
def test_arguments_of_any_number(lib: Any) -> None:
    def function(x: Any, *args: Any, scale: Any = 2, **named: Any) -> Any:
        return x * scale + args[0] + named["last"]

    traced = lib.fx.symbolic_trace(function)
    targets = [node.target for node in traced.graph.nodes if node.op == "placeholder"]
    assert targets == ["x", "scale", "*args", "**named"]


@LIBRARIES
def test_tracers_choose_leaves_and_wrapped_functions(lib: Any) -> None:
    class Inner(lib.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x.relu()

    class Outer(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.linear = Inner(), lib.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.linear(self.inner(x)) * math.sqrt(x.size(0))

    class Own(lib.fx.Tracer):  # type: ignore[misc,name-defined]
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return module_qualified_name == "inner"

    net = Outer()
    graph = Own().trace(net)
    names = [(node.op, node.name) for node in graph.nodes]
    assert names[1] == ("call_module", "inner")
    assert [name for _, name in names[2:5]] == ["linear_weight", "linear_bias", "linear"]
    assert ("call_function", "sqrt") in names
    module = lib.fx.GraphModule(net, graph)
    x = lib.ones(4, 2)
    assert module(x).tolist() == net(x).tolist()


def test_wrapped_functions_are_one_node() -> None:
    for lib in (metaop, torch):
        program = """
            @lib.fx.wrap
            def largest(x, n):
                return x.sort().values[-n:] if len(x) > n else x
            lib.fx.wrap("len")
            def function(x):
                return largest(x, 2) * len(x)
            traced = lib.fx.symbolic_trace(function)
        """
        values: dict[str, Any] = {"lib": lib, "__name__": "program"}
        exec("\n".join(line[12:] for line in program.split("\n")), values)
        assert [node.name for node in values["traced"].graph.nodes] == [
            "x", "largest", "len_1", "mul", "output",
        ]  # fmt: skip
        assert values["traced"](lib.tensor([3, 1, 2])).tolist() == [6, 9]
        assert values["largest"].__name__ == "largest" and "len" not in values
        again = lib.fx.symbolic_trace(values["traced"])
        assert [node.name for node in again.graph.nodes][1:3] == ["largest", "len_1"]

    with pytest.raises(NotImplementedError, match="top level"):
        metaop.fx.wrap("len")


@LIBRARIES
def test_parameters_tell_their_sizes(lib: Any) -> None:
    class Net(lib.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = lib.nn.Parameter(lib.ones(3))

        def forward(self, x: Any) -> Any:
            return x + self.weight if self.weight.shape[0] > 2 else x

    with pytest.raises(lib.fx.proxy.TraceError):
        lib.fx.Tracer().trace(Net())
    graph = lib.fx.Tracer(param_shapes_constant=True).trace(Net())
    assert [node.name for node in graph.nodes] == ["x", "weight", "add", "output"]
