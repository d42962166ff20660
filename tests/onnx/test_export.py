"""Exported networks: checked by onnx, run by onnxruntime, read again."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import metaop
import metaop.onnx
from metaop import nn
from metaop.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from metaop.nn import functional as F
from tests.helpers import tensors_in
from tests.onnx.networks import NETWORKS, network

# What a plain run takes; METAOP_ONNX_NETWORKS=all runs every network of models/.
FEW = (
    *("mlp", "lenet", "bert", "llama", "mixture", "lstm", "gru", "point_cloud", "knowledge"),
    *("transformer", "whisper", "ebgan"),
)
CHOSEN = NETWORKS if os.environ.get("METAOP_ONNX_NETWORKS") == "all" else FEW


def run(model: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    """What onnxruntime makes of a model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {port.name: x for port, x in zip(session.get_inputs(), inputs)})


def flat(value: Any) -> list[Any]:
    """The tensors of nested results, those of dicts too."""
    return tensors_in(list(value.values()) if isinstance(value, dict) else value) or [value]


def agree(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 1e-4) -> None:
    """Asserts that outputs are the same, in units of their largest number."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.shape == other.shape and one.dtype == other.dtype
        assert np.isfinite(other).all()
        scale = max(float(np.abs(other).max(initial=0)), 1e-30)
        np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=tolerance)


def exported(function: Any, *inputs: Any, axes: Any = None, **options: Any) -> Any:
    """The model that a function becomes, with the first axis of every input dynamic."""
    names = [f"x{k}" for k in range(len(inputs))]
    dynamic = {name: {0: "batch"} for name in names} if axes is None else axes
    program = metaop.onnx.export(
        function, inputs, input_names=names, dynamic_axes=dynamic, **options
    )
    return program.model_proto


def compare(function: Any, *inputs: Any, batch: int = 5, **options: Any) -> Any:
    """Exports a function, and compares what onnxruntime computes for two sizes of the batch."""
    model = exported(function, *inputs, **options)
    for count in (None, batch):
        arrays = [
            x.numpy() if count is None else np.resize(x.numpy(), (count, *x.shape[1:]))
            for x in inputs
        ]
        with metaop.no_grad():
            expected = [one.numpy() for one in flat(function(*map(metaop.tensor, arrays)))]
        agree(run(model, *arrays), expected)
    return model


@pytest.mark.parametrize("name", CHOSEN)
def test_networks_are_the_same_in_onnxruntime(name: str) -> None:
    model, inputs = network(name)
    compare(model, *inputs)


def test_names_of_the_few_are_names_of_networks() -> None:
    assert set(FEW) <= set(NETWORKS)


def convolutions(x: Any) -> Any:
    y = F.interpolate(F.max_pool2d(x, 3, 2, 1), scale_factor=2.0, mode="bilinear")
    return F.interpolate(F.avg_pool2d(y, 2), size=(5, 7)), F.pad(y, (1, 2, 0, 1), "reflect")


def norms(x: Any) -> Any:
    y = F.group_norm(x, 2)
    return F.instance_norm(y), F.layer_norm(y, (8, 8)), F.normalize(x, dim=1), y.std(1), y.var(0)


def activations(x: Any) -> Any:
    names = "gelu silu mish softplus softsign hardswish hardsigmoid elu celu selu relu6 leaky_relu"
    return [getattr(F, name)(x) for name in names.split()] + [F.glu(x, 1), F.softmax(x, 1)]


def scalars(x: Any) -> Any:
    y = x.abs() + 0.5
    found = [y.log2(), y.log1p(), y.expm1(), y.rsqrt(), x.trunc(), x.frac(), x // 0.3, x % 0.3]
    return [*found, x.round(), y.logaddexp(x), x.clamp(-0.2, 0.3), (x > 0) & (y < 0.7), x.fmod(0.3)]


def shapes(x: Any) -> Any:
    n, c, h, w = x.shape
    y = x.reshape(n * h, c, w).flatten(1).view(n, -1).unflatten(1, (c, h, w))
    found = [y[:, 1:, ::2], y[..., -1], y.flip(2), y.roll(3, 1), y.repeat(1, 2, 1, 1), y.tril()]
    return [*found, y.permute(3, 0, 1, 2), metaop.stack([y, x], 1), y.chunk(2, 1)[1], x[:, None]]


def sums(x: Any) -> Any:
    found = [x.sum(), x.mean((2, 3)), x.amax(1), x.max(1)[0], x.max(1)[1], x.argmin(), x.prod(2)]
    return [*found, x.logsumexp(1), x.cumsum(1), x.topk(2, 1)[0], x.sort(1)[1], x.norm(dim=1)]


def chosen(x: Any) -> Any:
    index = metaop.tensor([2, 0, 1])
    places = x.argsort(1)
    picked = metaop.take_along_dim(x, places, 1)
    written = metaop.zeros_like(x).scatter(1, places, x)
    return x[:, index], picked, written, metaop.where(x > 0, x, 0.0), x.index_select(1, index)


def computed(x: Any) -> Any:
    """What only meta-operators can say."""
    windows = x.unfold(3, 3, 2)
    return windows, x.diagonal(0, 2, 3), F.unfold(x, 3), metaop.einsum("nchw,nkhw->nck", x, x)


def sizes(x: Any) -> Any:
    """Numbers that follow from the batch."""
    count = x.shape[0]
    return (
        x / count,
        metaop.arange(count) * 2,
        metaop.zeros(count, 3) + count,
        x.sum(0) / (count + 1),
    )


@pytest.mark.parametrize(
    "function",
    [convolutions, norms, activations, scalars, shapes, sums, chosen, computed, sizes],
)
def test_functions_are_the_same_in_onnxruntime(function: Any) -> None:
    metaop.manual_seed(1)
    compare(function, metaop.randn(2, 4, 8, 8))


@pytest.mark.parametrize("version", [17, 20, 23])
def test_older_and_newer_operator_sets(version: int) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4), nn.LayerNorm(4)).eval()
    model = compare(lambda x: net(x).amax(1), metaop.randn(3, 4), opset_version=version)
    assert model.opset_import[0].version == version


def test_several_dynamic_axes() -> None:
    """Products and sums of two sizes."""

    def mixed(x: Any) -> Any:
        n, length, width = x.shape
        rows = x.reshape(n * length, width) @ metaop.ones(width, 2)
        return rows.view(n, length, 2), metaop.cat([x, x[:, :1]], 1).flatten(0, 1)

    model = exported(mixed, metaop.randn(2, 3, 4), axes={"x0": {0: "n", 1: "length"}})
    for shape in ((2, 3, 4), (5, 7, 4), (1, 1, 4)):
        x = metaop.randn(*shape)
        agree(run(model, x.numpy()), [one.numpy() for one in mixed(x)])
    assert [one.dim_param for one in model.graph.input[0].type.tensor_type.shape.dim] == [
        *("n", "length"), ""
    ]  # fmt: skip


def test_lengths_up_to_a_context_and_sizes_of_images() -> None:
    """Tokens in rows of any length that the network takes, and images of any size."""
    model, inputs = network("bert")
    axes = {0: "n", 1: "length"}
    written = exported(model, *inputs, axes={"x0": axes, "x1": axes})
    for shape in ((1, 3), (3, 8)):
        given = metaop.randint(0, 13, shape), metaop.ones(shape, dtype=metaop.int64)
        agree(run(written, *(x.numpy() for x in given)), [model(*given).detach().numpy()])
    model, images = network("fcn")
    written = exported(model, *images, axes={"x0": {0: "n", 2: "height", 3: "width"}})
    x = metaop.rand(1, 3, 48, 40)
    agree(run(written, x.numpy()), [one.detach().numpy() for one in flat(model(x))])


def test_files_have_the_names_of_the_module(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.Dropout(), nn.Linear(5, 2))
    net.train()
    path = tmp_path / "net.onnx"
    metaop.onnx.export(
        net, metaop.ones(1, 3), path, input_names=["x"], output_names=["y"], dynamic_axes={"x": [0]}
    )
    assert net.training and net[1].training
    again = metaop.onnx.load(path)
    assert set(again.state_dict()) == set(net.state_dict())
    x = metaop.randn(4, 3)
    np.testing.assert_allclose(
        again(x).detach().numpy(), net.eval()(x).detach().numpy(), rtol=1e-5, atol=1e-6
    )
    stream = io.BytesIO()
    metaop.onnx.export(net, (metaop.ones(1, 3),), stream)
    assert metaop.onnx.load(stream.getvalue()).inputs[0].name == "input"


def test_parameters_beside_the_file(tmp_path: Path) -> None:
    net = nn.Linear(40, 40).eval()
    path = tmp_path / "net.onnx"
    metaop.onnx.export(net, metaop.ones(1, 40), path, external_data=True)
    assert (tmp_path / "net.onnx.data").stat().st_size >= 4 * 40 * 40
    x = metaop.randn(1, 40)
    found = metaop.onnx.load(path)(x)
    np.testing.assert_allclose(found.detach().numpy(), net(x).detach().numpy(), rtol=1e-6)


def test_keyword_arguments_become_inputs() -> None:
    def scaled(x: Any, *, factor: Any) -> Any:
        return {"whole": x * factor, "parts": (x, factor)}

    x, factor = metaop.randn(2, 3), metaop.randn(3)
    for arguments, options in (
        ((x, {"factor": factor}), {}),
        ((x,), {"kwargs": {"factor": factor}}),
    ):
        model = metaop.onnx.export(scaled, arguments, **options).model_proto
        agree(run(model, x.numpy(), factor.numpy())[:1], [(x * factor).numpy()])


def test_inputs_may_be_detached_and_returned() -> None:
    compare(lambda x: (x.detach() * x, x, x.data + x.view(-1, 3)), metaop.randn(2, 3))


def test_a_network_knows_that_it_is_exported() -> None:
    said = []

    def asked(x: Any) -> Any:
        said.append(metaop.onnx.is_in_onnx_export())
        return x + 1

    metaop.onnx.export(asked, metaop.ones(2))
    assert said == [True] and not metaop.onnx.is_in_onnx_export()


def test_small_constants_may_hold_sizes() -> None:
    def sizes(x: metaop.Tensor) -> Any:
        return x + x.shape[0], metaop.tensor(x.shape), metaop.tensor([[x.shape[0] * 2, 7]])

    compare(sizes, metaop.rand(3, 4))


def test_what_depends_on_values_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="reads a value"):
        metaop.onnx.export(lambda x: x if x.sum() > 0 else -x, metaop.ones(2))
    for read in (lambda x: x * x[0].item(), lambda x: x.numpy(), lambda x: -x if x else x):
        with pytest.raises(UnsupportedError, match="reads a value"):
            metaop.onnx.export(read, metaop.ones(1))
    with pytest.raises(UnsupportedError, match="depending on the sizes"):
        exported(lambda x: sum(x[k] for k in range(x.shape[0])), metaop.ones(2, 3))
    with pytest.raises(UnsupportedError, match="no operator for the function lgamma"):
        metaop.onnx.export(lambda x: x.lgamma(), metaop.ones(2))


def test_options_that_would_do_nothing_are_refused() -> None:
    x = metaop.ones(2)
    mode = metaop.onnx.TrainingMode
    for options in (
        {"training": mode.TRAINING}, {"export_params": False}, {"opset_version": 9},
        {"keep_initializers_as_inputs": True}, {"custom_opsets": {"a": 1}},
        {"dynamic_shapes": ({0: "n"},)},
    ):  # fmt: skip
        with pytest.raises(UnsupportedError):
            metaop.onnx.export(metaop.exp, x, **options)
    with pytest.raises(ArgumentTypeError, match="unexpected"):
        metaop.onnx.export(metaop.exp, x, colour="red")
    with pytest.raises(ArgumentError, match="not an input or output"):
        metaop.onnx.export(metaop.exp, x, dynamic_axes={"y": {0: "n"}})
    with pytest.raises(UnsupportedError, match="symbolic"):
        metaop.onnx.register_custom_op_symbolic("mine::op", print, 9)
    metaop.onnx.export(metaop.exp, x, training=mode.EVAL, dynamo=False, do_constant_folding=True)
