"""Operators that onnx's node tests leave out, and older forms of others, as in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import metaop
import metaop.onnx

RANDOM = np.random.default_rng(0)


def model_of(nodes: list[Any], given: dict[str, np.ndarray], version: int) -> onnx.ModelProto:
    """A model whose result is y; whole numbers that are given are constants of the file."""
    floats = {name: array for name, array in given.items() if array.dtype.kind == "f"}
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in floats.items()
    ]
    constants = [
        numpy_helper.from_array(array, name) for name, array in given.items() if name not in floats
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "graph", ports, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)


def compare(nodes: list[Any], version: int = 18, **given: np.ndarray) -> None:
    """Compares y of some nodes with onnxruntime."""
    model = model_of(nodes, given, version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    floats = {name: array for name, array in given.items() if array.dtype.kind == "f"}
    (expected,) = session.run(["y"], floats)
    found = metaop.onnx.load(model)(**{name: metaop.tensor(x) for name, x in floats.items()})
    assert tuple(found.shape) == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# An operator, a version in which it had another form, its inputs and attributes.
OLDER: list[tuple[str, int, dict[str, np.ndarray], dict[str, Any]]] = [
    ("Softmax", 11, {"x": floats(2, 3, 4)}, {"axis": 1}),
    ("LogSoftmax", 9, {"x": floats(2, 3, 4)}, {}),
    ("Hardmax", 11, {"x": floats(2, 3, 4)}, {"axis": 2}),
    ("Clip", 9, {"x": floats(3, 4)}, {"min": -0.5, "max": 0.25}),
    ("Clip", 9, {"x": floats(3, 4)}, {"max": 0.25}),
    ("Dropout", 9, {"x": floats(3, 4)}, {"ratio": 0.5}),
    ("Slice", 9, {"x": floats(4, 5)}, {"starts": [1, -3], "ends": [9, -1], "axes": [0, 1]}),
    ("Pad", 9, {"x": floats(2, 3)}, {"pads": [1, 0, 0, 2], "value": 1.5}),
    ("Pad", 9, {"x": floats(2, 3)}, {"pads": [1, 0, 0, 2], "mode": "reflect"}),
    ("Upsample", 9, {"x": floats(1, 2, 3, 4), "s": np.array([1, 1, 2, 3], np.float32)}, {}),
    (
        "Upsample",
        9,
        {"x": floats(1, 2, 3, 4), "s": np.array([1, 1, 2, 2], np.float32)},
        {"mode": "linear"},
    ),
    ("Resize", 10, {"x": floats(1, 2, 3, 4), "s": np.array([1, 1, 2, 0.5], np.float32)}, {}),
    ("ReduceMean", 11, {"x": floats(2, 3, 4)}, {"axes": [-1, 0], "keepdims": 0}),
    ("ReduceLogSumExp", 13, {"x": floats(2, 3, 4)}, {"axes": [1]}),
    ("Squeeze", 11, {"x": floats(2, 1, 3)}, {"axes": [1]}),
    ("Unsqueeze", 11, {"x": floats(2, 3)}, {"axes": [0, 3]}),
    ("Scatter", 9, {"x": floats(3, 3), "i": whole(2, 0).reshape(1, 2), "u": floats(1, 2)}, {}),
    ("GlobalLpPool", 9, {"x": floats(2, 3, 4, 5)}, {"p": 3}),
    (
        "MaxRoiPool",
        9,
        {"x": floats(1, 2, 6, 6), "r": np.array([[0, 0, 0, 3, 3], [0, 1, 2, 5, 4]], np.float32)},
        {"pooled_shape": [2, 2], "spatial_scale": 1.0},
    ),
    ("Gemm", 9, {"a": floats(2, 3), "b": floats(3, 4), "c": floats(1, 4)}, {"beta": 0.5}),
    ("MeanVarianceNormalization", 9, {"x": floats(2, 3, 4, 5)}, {}),
]


@pytest.mark.parametrize(
    ("operator", "version", "given", "attributes"), OLDER, ids=lambda value: str(value)[:24]
)
def test_older_forms(
    operator: str, version: int, given: dict[str, np.ndarray], attributes: dict[str, Any]
) -> None:
    compare([helper.make_node(operator, list(given), ["y"], **attributes)], version, **given)


@pytest.mark.parametrize("version", [9, 10, 11])
def test_the_largest_elements(version: int) -> None:
    names, attributes = (["x"], {"k": 2}) if version == 9 else (["x", "k"], {})
    given = {"x": floats(3, 5)} if version == 9 else {"x": floats(3, 5), "k": whole(2)}
    compare([helper.make_node("TopK", names, ["y", "places"], **attributes)], version, **given)


@pytest.mark.parametrize("new_axis", [0, 1])
def test_sequences_are_shortened_and_joined(new_axis: int) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b", "c"], ["s"]),
        helper.make_node("SequenceErase", ["s", "place"], ["t"]),
        helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=1, new_axis=new_axis),
    ]
    given = {name: floats(2, 3) for name in "abc"}
    compare(nodes, 13, **given, place=np.array(1, np.int64))


RANDOM_NODES = {
    "RandomUniform": {"shape": [4000], "low": 2.0, "high": 4.0},
    "RandomNormal": {"shape": [4000], "mean": 3.0, "scale": 0.5},
    "RandomUniformLike": {"low": 2.0, "high": 4.0},
    "RandomNormalLike": {"mean": 3.0, "scale": 0.5},
}


@pytest.mark.parametrize("operator", RANDOM_NODES)
def test_random_numbers_have_their_distribution(operator: str) -> None:
    names = ["x"] if operator.endswith("Like") else []
    node = helper.make_node(operator, names, ["y"], seed=5.0, **RANDOM_NODES[operator])
    net = metaop.onnx.load(model_of([node], {"x": floats(4000)} if names else {}, 15))
    inputs = [metaop.ones(4000)] if names else []
    found = net(*inputs).numpy()
    deviation = 2 / np.sqrt(12) if "Uniform" in operator else 0.5
    # Four standard errors of the mean of 4000 numbers.
    assert abs(found.mean() - 3) < 4 * deviation / np.sqrt(4000)
    assert abs(found.std() / deviation - 1) < 0.06
    if "Uniform" in operator:
        assert found.min() >= 2 and found.max() < 4
    np.testing.assert_array_equal(net(*inputs).numpy(), found)  # the seed is in the file


def test_classes_are_drawn_by_their_probabilities() -> None:
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=4000, seed=2.0)
    model = model_of([node], {"x": floats(1, 3)}, 15)
    shares = np.array([[0.2, 0.5, 0.3]], np.float32)
    found = metaop.onnx.load(model)(metaop.tensor(np.log(shares)))
    assert found.dtype is metaop.int32 and tuple(found.shape) == (1, 4000)
    counted = np.bincount(found.numpy()[0], minlength=3) / 4000
    np.testing.assert_allclose(counted, shares[0], atol=4 * 0.5 / np.sqrt(4000))
