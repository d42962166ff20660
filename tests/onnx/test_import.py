"""Networks read from ONNX: values, gradients, captured calls, and files that are refused."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import metaop
import metaop.onnx
from metaop.errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    CheckpointError,
    MetaopError,
    ShapeError,
    UnsupportedError,
)
from metaop.nn import functional as F

RANDOM = np.random.default_rng(0)


def weight(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(RANDOM.normal(size=shape).astype(np.float32) * 0.3, name)


def integers(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model_of(
    nodes: list[Any],
    inputs: dict[str, Any],
    outputs: list[str],
    initializers: list[TensorProto] = [],  # noqa: B006
    version: int = 18,
    **options: Any,
) -> onnx.ModelProto:
    """A model; inputs are shapes of floats, or pairs of element type and shape."""
    ports = []
    for name, kind in inputs.items():
        element, shape = kind if isinstance(kind, tuple) else (TensorProto.FLOAT, kind)
        ports.append(helper.make_tensor_value_info(name, element, shape))
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "graph", ports, results, initializers)
    imports = [helper.make_opsetid("", version), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, **options)


def classifier() -> onnx.ModelProto:
    """A convolutional network that computes the shape of its last reshape."""
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["c", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["b"]
        ),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Shape", ["g"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "minus"], ["shape"], axis=0),
        helper.make_node("Reshape", ["g", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["y"], transB=1),
    ]
    initializers = [
        weight("conv.weight", 8, 3, 3, 3), weight("conv.bias", 8), weight("bn.weight", 8),
        weight("bn.bias", 8), weight("bn.mean", 8),
        numpy_helper.from_array(np.full(8, 1.5, np.float32), "bn.var"),
        integers("zero", 0), integers("minus", -1), weight("fc.weight", 5, 8), weight("fc.bias", 5),
    ]  # fmt: skip
    return model_of(nodes, {"x": ["N", 3, 8, 8]}, ["y"], initializers)


def test_a_network_is_a_module() -> None:
    model = classifier()
    net = metaop.onnx.load(model)
    x = RANDOM.normal(size=(4, 3, 8, 8)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = net(metaop.tensor(x))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(net(x=metaop.tensor(x)).detach().numpy(), found.detach().numpy())
    parameters = [name for name, _ in net.named_parameters()]
    assert parameters[:4] == ["conv.weight", "conv.bias", "bn.weight", "bn.bias"]
    assert [name for name, _ in net.named_buffers()] == ["bn.mean", "bn.var"]
    text = repr(net)
    assert "x: float32[N, 3, 8, 8]" in text and "opset_version=18" in text and "1 Conv" in text


def test_state_goes_from_one_network_to_another() -> None:
    model = classifier()
    first, second = metaop.onnx.load(model), metaop.onnx.load(model)
    with metaop.no_grad():
        for parameter in first.parameters():
            parameter.add_(0.1)
    second.load_state_dict(first.state_dict())
    x = metaop.randn(2, 3, 8, 8)
    np.testing.assert_array_equal(second(x).detach().numpy(), first(x).detach().numpy())


def test_a_captured_network_learns() -> None:
    net = metaop.onnx.load(classifier())
    optimizer = metaop.optim.SGD(net.parameters(), lr=0.5)

    @metaop.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = metaop.randn(4, 3, 8, 8), metaop.tensor([0, 1, 2, 3])
    with warnings.catch_warnings():
        # A function that cannot be captured warns.
        warnings.simplefilter("error")
        losses = [step(x, y).item() for _ in range(8)]
    assert losses[-1] < losses[0]


def test_gradients_are_those_of_torch() -> None:
    import torch

    net = metaop.onnx.load(classifier())
    x = RANDOM.normal(size=(2, 3, 8, 8)).astype(np.float32)
    mine = metaop.tensor(x, requires_grad=True)
    (net(mine) ** 2).sum().backward()
    state = {k: torch.tensor(np.array(v.numpy())) for k, v in net.state_dict().items()}
    theirs = torch.tensor(x, requires_grad=True)
    conv = state["conv.weight"].requires_grad_()
    y = torch.conv2d(theirs, conv, state["conv.bias"], padding=1)
    moments = state["bn.mean"], state["bn.var"]
    y = torch.nn.functional.batch_norm(y, *moments, state["bn.weight"], state["bn.bias"])
    y = torch.nn.functional.linear(y.relu().mean((2, 3)), state["fc.weight"], state["fc.bias"])
    (y**2).sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)
    own = dict(net.named_parameters())["conv.weight"].grad.numpy()
    np.testing.assert_allclose(own, conv.grad.numpy(), rtol=1e-4, atol=1e-4)


def branching() -> onnx.ModelProto:
    """Weights inside of the branches of an If."""
    branches = []
    for name, operator in (("then", "Add"), ("else", "Mul")):
        node = helper.make_node(operator, ["x", f"{name}_weight"], [f"{name}_y"])
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [4])
        branches.append(
            helper.make_graph([node], name, [], [output], [weight(f"{name}_weight", 4)])
        )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    return model_of([node], {"c": (TensorProto.BOOL, []), "x": [4]}, ["y"])


def test_branches_have_parameters_and_cannot_be_captured() -> None:
    net = metaop.onnx.load(branching())
    weights = dict(net.named_parameters())
    assert set(weights) == {"then_weight", "else_weight"}
    x = metaop.randn(4)
    added, multiplied = x + weights["then_weight"], x * weights["else_weight"]
    for truth, expected in ((True, added), (False, multiplied)):
        found = net(metaop.tensor(truth), x)
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
    with pytest.raises(CaptureError, match="reads a value"):
        metaop.jit(net)(metaop.tensor(True), x)
    # A plain number is known when the network is captured.
    captured = metaop.jit(net)
    with metaop.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for truth, expected in 4 * ((True, added), (False, multiplied)):
            found = captured(truth, x)
            np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-6)


def test_functions_of_a_file() -> None:
    """A function with an attribute, called with two values of it."""
    scaled = helper.make_node("LeakyRelu", ["a"], ["b"])
    reference = scaled.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", 1
    function = helper.make_function(
        "mine", "Leak", ["a"], ["b"], [scaled], [helper.make_opsetid("", 18)], ["slope"]
    )
    nodes = [
        helper.make_node("Leak", ["x"], ["h"], domain="mine", slope=0.5),
        helper.make_node("Leak", ["h"], ["y"], domain="mine", slope=0.1),
    ]
    net = metaop.onnx.load(model_of(nodes, {"x": [2]}, ["y"], functions=[function]))
    np.testing.assert_allclose(net(metaop.tensor([-2.0, 3.0])).numpy(), [-0.1, 3.0], rtol=1e-6)


def test_a_function_that_calls_itself_is_refused() -> None:
    node = helper.make_node("Again", ["a"], ["b"], domain="mine")
    function = helper.make_function(
        "mine", "Again", ["a"], ["b"], [node], [helper.make_opsetid("mine", 1)]
    )
    model = model_of(
        [helper.make_node("Again", ["x"], ["y"], domain="mine")], {"x": [2]}, ["y"],
        functions=[function],
    )  # fmt: skip
    with pytest.raises(CheckpointError, match="call themselves"):
        metaop.onnx.load(model)


def test_functions_that_double_each_time_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaop.onnx.graph._MOST_NODES", 500)
    functions = []
    for level in range(20):
        names = ["a", "h", "b"]
        nodes = [
            helper.make_node(f"F{level + 1}", [names[k]], [names[k + 1]], domain="mine")
            if level < 19
            else helper.make_node("Relu", [names[k]], [names[k + 1]])
            for k in range(2)
        ]
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
        functions.append(helper.make_function("mine", f"F{level}", ["a"], ["b"], nodes, imports))
    node = helper.make_node("F0", ["x"], ["y"], domain="mine")
    with pytest.raises(CheckpointError, match="more than 500 nodes"):
        metaop.onnx.load(model_of([node], {"x": [2]}, ["y"], functions=functions))


@pytest.mark.parametrize("version", [11, 13])
def test_what_was_an_attribute_and_is_an_input(version: int) -> None:
    axes = {"axes": [1]} if version == 11 else {}
    names = [] if version == 11 else ["axes"]
    nodes = [
        helper.make_node("ReduceSum", ["x", *names], ["s"], keepdims=1, **axes),
        helper.make_node("Squeeze", ["s", *names], ["y"], **axes),
    ]
    net = metaop.onnx.load(
        model_of(nodes, {"x": [2, 3]}, ["y"], [integers("axes", 1)] if names else [], version)
    )
    np.testing.assert_array_equal(net(metaop.ones(2, 3)).numpy(), [3, 3])


def test_numbers_and_texts_that_tensors_do_not_have() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=TensorProto.UINT16),
        helper.make_node("Add", ["n", "n"], ["y"]),
        helper.make_node("Cast", ["y"], ["t"], to=TensorProto.STRING),
    ]
    y, text = metaop.onnx.load(model_of(nodes, {"x": [2]}, ["y", "t"]))(
        metaop.tensor([1.0, 40000.0])
    )
    assert y.dtype == np.uint16 and y.tolist() == [2, 80000 - 65536]
    assert text.tolist() == ["2", "14464"]


def test_arguments_that_do_not_fit_are_refused() -> None:
    net = metaop.onnx.load(classifier())
    with pytest.raises(ShapeError, match=r"\[2, 3, 8, 9\], the network takes \[N, 3, 8, 8\]"):
        net(metaop.ones(2, 3, 8, 9))
    with pytest.raises(ArgumentTypeError, match="float64, the network takes float32"):
        net(metaop.ones(2, 3, 8, 8).double())
    with pytest.raises(ArgumentTypeError, match="'x' is missing"):
        net()
    with pytest.raises(ArgumentTypeError, match="takes x"):
        net(metaop.ones(2, 3, 8, 8), metaop.ones(1))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    content = classifier().SerializeToString()
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    x = metaop.ones(1, 3, 8, 8)
    expected = metaop.onnx.load(path)(x).detach().numpy()
    with path.open("rb") as file:
        np.testing.assert_array_equal(metaop.onnx.load(file)(x).detach().numpy(), expected)
    for count in range(0, len(content), 97):
        with pytest.raises(CheckpointError):
            metaop.onnx.load(content[:count])
    with pytest.raises(CheckpointError, match="not an ONNX model"):
        metaop.onnx.load(io.BytesIO(b"\x89PNG" + bytes(100)))
    with pytest.raises(FileNotFoundError):
        metaop.onnx.load(tmp_path / "other.onnx")


def test_random_damage_gives_clear_errors() -> None:
    """Whatever a byte is changed to: a network, or an error of metaop, and no other."""
    content = classifier().SerializeToString()
    for _ in range(200):
        damaged = bytearray(content)
        damaged[RANDOM.integers(len(content))] = RANDOM.integers(256)
        with suppress(MetaopError):
            metaop.onnx.load(bytes(damaged))


def refused(change: Any, error: Any, match: str) -> None:
    model = classifier()
    change(model)
    with pytest.raises(error, match=match):
        metaop.onnx.load(model)


def test_illegal_graphs_are_refused() -> None:
    def unknown(model: Any) -> None:
        model.graph.node[2].op_type = "Rule"

    def loose(model: Any) -> None:
        model.graph.node[2].input[0] = "nowhere"

    def twice(model: Any) -> None:
        model.graph.node[2].output[0] = "b"

    def odd(model: Any) -> None:
        model.graph.node[2].attribute.append(helper.make_attribute("colour", "red"))

    def newer(model: Any) -> None:
        model.opset_import[0].version = 1000

    def short(model: Any) -> None:
        model.graph.initializer[0].dims[0] = 9

    def negative(model: Any) -> None:
        model.graph.initializer[0].dims[0] = -8

    def foreign(model: Any) -> None:
        model.graph.initializer[0].data_type = 999

    def endless(model: Any) -> None:
        del model.graph.node[:]

    refused(unknown, UnsupportedError, "operator Rule of ai.onnx 18 .* is not in metaop")
    refused(loose, CheckpointError, "reads 'nowhere', which no earlier node makes")
    refused(twice, CheckpointError, "makes 'b' again")
    refused(odd, ArgumentError, "colour")
    refused(newer, UnsupportedError, "operator set 1000")
    refused(short, CheckpointError, "conv.weight: damaged tensor")
    refused(negative, CheckpointError, "illegal shape")
    refused(foreign, MetaopError, "999")
    refused(endless, CheckpointError, "results reads 'y'")


def test_external_data_stays_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    path = folder / "net.onnx"
    onnx.save_model(
        classifier(), path, save_as_external_data=True, location="values", size_threshold=64
    )
    x = metaop.ones(1, 3, 8, 8)
    assert metaop.onnx.load(path)(x).shape == (1, 5)
    with pytest.raises(CheckpointError, match="load the network from the path"):
        metaop.onnx.load(path.read_bytes())
    (folder / "values").rename(tmp_path / "secret")
    for place in ("../secret", str(tmp_path / "secret"), "values"):
        model = onnx.load_model(path, load_external_data=False)
        for one in model.graph.initializer:
            for entry in one.external_data:
                if entry.key == "location":
                    entry.value = place
        path.write_bytes(model.SerializeToString())
        with pytest.raises(CheckpointError, match="is not a file in the folder"):
            metaop.onnx.load(path)
    (folder / "values").symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match="is not a file in the folder"):
        metaop.onnx.load(path)
    (folder / "values").unlink()
    (folder / "values").write_bytes(bytes(10))
    with pytest.raises(CheckpointError, match="bytes expected"):
        metaop.onnx.load(path)


def test_without_the_package_the_message_is_clear() -> None:
    program = """
import sys
sys.modules["onnx"] = None
import metaop
assert metaop.onnx.is_in_onnx_export() is False
try:
    metaop.onnx.load("net.onnx")
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert "pip install 'metaop[onnx]'" in done.stdout


CONTRIBUTED = {
    "Gelu": (1, {}), "FastGelu": (2, {}), "BiasGelu": (2, {}), "QuickGelu": (1, {"alpha": 1.5}),
    "SkipLayerNormalization": (4, {"epsilon": 1e-5}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRIBUTED)
def test_fused_operators_are_those_of_onnxruntime(name: str) -> None:
    count, options = CONTRIBUTED[name]
    names = ["x", "b", "c", "d"][:count]
    node = helper.make_node(name, names, ["y"], domain="com.microsoft", **options)
    shapes = [[2, 3, 4], [4], [4], [4]]
    if name == "SkipLayerNormalization":
        shapes[1] = [2, 3, 4]
    same_in_onnxruntime(node, dict(zip(names, shapes)))


@pytest.mark.parametrize("options", [{}, {"transA": 1, "alpha": 0.5}, {"transB": 1}])
def test_fused_products_are_those_of_onnxruntime(options: Any) -> None:
    a = [2, 4, 3] if "transA" in options else [2, 3, 4]
    b = [2, 5, 4] if "transB" in options else [2, 4, 5]
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", **options)
    same_in_onnxruntime(node, {"a": a, "b": b})


def test_linear_models_are_those_of_onnxruntime() -> None:
    domain = "ai.onnx.ml"
    scaler = helper.make_node(
        "Scaler", ["x"], ["y"], domain=domain, offset=[0.5, 1, 2], scale=[1, 2, 3.0]
    )
    regressor = helper.make_node(
        "LinearRegressor", ["x"], ["y"], domain=domain, coefficients=[1, 2, 3, 4, 5, 6.0],
        intercepts=[0.5, -0.5], targets=2,
    )  # fmt: skip
    for node in (scaler, regressor):
        same_in_onnxruntime(node, {"x": [4, 3]})


def same_in_onnxruntime(node: Any, shapes: dict[str, list[int]]) -> None:
    """Compares one node with onnxruntime, for random inputs."""
    model = model_of([node], shapes, ["y"])
    for domain in ("com.microsoft", "ai.onnx.ml"):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model.graph.output[0].CopyFrom(output)
    given = {k: RANDOM.normal(size=shape).astype(np.float32) for k, shape in shapes.items()}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    found = metaop.onnx.load(model)(**{k: metaop.tensor(v) for k, v in given.items()})
    np.testing.assert_allclose(found.numpy(), expected[0], rtol=1e-5, atol=1e-5)


def test_one_node_and_named_outputs() -> None:
    node = helper.make_node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2)
    found = metaop.onnx.backend.run_node(node, [np.arange(4.0, dtype=np.float32)])
    assert found["b"].tolist() == [2, 3] and metaop.onnx.backend.supports_device("CPU")
    assert not metaop.onnx.backend.supports_device("TPU")
