"""Convolutions against PyTorch: values, gradients, and second derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, DTypeError, ShapeError
from metaop.nn import functional as F
from tests.helpers import check
from tests.operators.against_torch import compare, compare_derivatives, draw

torch = pytest.importorskip("torch")

CONVOLUTIONS = [
    ("conv1d", (2, 3, 9), (4, 3, 3), {}),
    ("conv1d", (2, 4, 9), (6, 2, 2), {"stride": 2, "padding": 1, "dilation": 3, "groups": 2}),
    ("conv1d", (3, 9), (4, 3, 5), {"padding": "same"}),
    ("conv2d", (2, 3, 7, 6), (4, 3, 3, 3), {}),
    ("conv2d", (2, 3, 7, 6), (4, 3, 3, 2), {"stride": (2, 1), "padding": (1, 2)}),
    ("conv2d", (2, 3, 8, 8), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    ("conv2d", (2, 3, 8, 8), (4, 3, 1, 1), {}),
    ("conv2d", (2, 4, 7, 6), (6, 2, 3, 2), {"groups": 2, "dilation": (1, 2)}),
    ("conv2d", (2, 4, 7, 6), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    ("conv2d", (2, 4, 5, 5), (8, 1, 3, 3), {"groups": 4, "stride": 2}),
    ("conv2d", (3, 7, 6), (4, 3, 3, 5), {"padding": "same"}),
    ("conv2d", (2, 3, 7, 6), (4, 3, 2, 4), {"padding": "same", "dilation": 2}),
    (
        "conv2d",
        (1, 2, 22, 5),
        (2, 1, 5, 2),
        {"stride": 3, "padding": 3, "dilation": 2, "groups": 2},
    ),
    ("conv2d", (2, 3, 7, 6), (4, 3, 2, 4), {"padding": "valid"}),
    ("conv2d", (1, 1, 3, 3), (1, 1, 3, 3), {}),
    ("conv2d", (2, 3, 7, 6), (4, 3, 3, 2), {"stride": [2, 1], "padding": [1, 2]}),
    ("conv3d", (2, 2, 4, 5, 3), (3, 2, 2, 3, 2), {"stride": (1, 2, 1), "padding": (1, 0, 1)}),
    ("conv3d", (4, 4, 4, 3), (4, 1, 2, 2, 2), {"groups": 4}),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("name", "shape", "weight", "options"), CONVOLUTIONS)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_convolution(name, shape, weight, options, bias):
    parameters = (draw(weight[0]),) if bias else ()
    compare(name, draw(*shape), draw(*weight), *parameters, **options)


TRANSPOSED = [
    ("conv_transpose1d", (2, 3, 5), (3, 4, 3), {"stride": 2, "output_padding": 1}),
    ("conv_transpose1d", (4, 5), (4, 2, 2), {"groups": 2, "dilation": 2}),
    ("conv_transpose2d", (2, 3, 4, 5), (3, 4, 3, 2), {}),
    ("conv_transpose2d", (2, 3, 4, 5), (3, 4, 3, 3), {"stride": 2, "padding": 1}),
    ("conv_transpose2d", (2, 3, 4, 4), (3, 2, 4, 4), {"stride": 2, "padding": 1}),
    (
        "conv_transpose2d",
        (2, 4, 4, 3),
        (4, 3, 3, 2),
        {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2), "groups": 2},
    ),
    ("conv_transpose2d", (3, 4, 4), (3, 2, 2, 2), {"dilation": (1, 2), "padding": 1}),
    ("conv_transpose3d", (2, 2, 2, 3, 2), (2, 3, 2, 2, 3), {"stride": 2, "padding": (0, 1, 1)}),
]


@pytest.mark.parametrize(("name", "shape", "weight", "options"), TRANSPOSED)
def test_transposed_convolution(name, shape, weight, options):
    outputs = weight[1] * options.get("groups", 1)
    compare(name, draw(*shape), draw(*weight), draw(outputs), **options)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
    ("kernel", "inner"),
    [(2, {}), (3, {"stride": 2, "padding": 2, "dilation": 2}), (2, {"stride": 3, "padding": 1})],
)
@pytest.mark.parametrize("length", [8, 9, 14, 23])
def test_gradients_through_two(length, kernel, inner, stride):
    """The positions that a stride leaves out meet those of another."""

    def chain(lib):
        def run(x, weight, next_weight):
            y = lib.nn.functional.conv1d(x, weight, stride=stride)
            return lib.nn.functional.conv1d(y, next_weight, **inner)

        return run

    check((chain(metaop), chain(torch)), draw(2, 2, length), draw(3, 2, 5), draw(1, 3, kernel))


@pytest.mark.parametrize("size", [(1, 7), (7, 1), (4, 3)])
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("mode", ["zeros", "replicate", "reflect", "circular"])
def test_gradients_behind_padding(mode, outputs, size):
    """Taps that see what was padded count, as many times as it was repeated."""
    most = {"reflect": -1, "circular": 0}
    padding = [min(2, extent + most.get(mode, 2)) for extent in size]
    kernel = [min(3, extent + 2 * width) for extent, width in zip(size, padding)]
    found = []
    for lib in (metaop, torch):
        layer = lib.nn.Conv2d(64, outputs, kernel, 3, padding, bias=False, padding_mode=mode)
        with lib.no_grad():
            layer.weight.copy_(lib.tensor(draw(outputs, 64, *kernel, dtype="float32")))
        x = lib.tensor(draw(3, 64, *size, dtype="float32"))
        y = layer((x * x + 0.5).rsqrt())
        (y / (y.abs() + 1)).square().sum().backward()
        found.append(layer.weight.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("channels", [(64, 2), (2, 64), (40, 30)])
@pytest.mark.parametrize("stride, dilation, kernel", [(2, 1, 3), (2, 1, 4), (3, 1, 5), (2, 3, 3)])
def test_gradients_of_a_weight_used_twice(stride, dilation, kernel, channels, padding, transposed):
    """Two images in one program share what of the weight is brought into order for each residue."""
    many, few = channels
    arrays = [draw(2, many, 9, 8, dtype="float32", seed=k) for k in range(2)]
    weight = draw(*((many, few) if transposed else (few, many)), kernel, kernel, dtype="float32")

    def gradients(T):
        function = T.nn.functional.conv_transpose2d if transposed else T.nn.functional.conv2d
        w, *images = (T.tensor(array, requires_grad=True) for array in (weight, *arrays))
        for image in images:
            y = function(image.tanh(), w, None, stride, padding, dilation=dilation)
            (y * y).mean().backward()
        return [np.array(x.grad.tolist()) for x in (w, *images)]

    for found, wanted in zip(gradients(metaop), gradients(torch)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_types(dtype):
    shapes = ((2, 3, 6, 6), (4, 3, 3, 3), (4,))
    compare("conv2d", *(draw(*s, dtype=dtype) for s in shapes), tolerance=1e-2, padding=1)


@pytest.mark.parametrize(
    ("name", "shape", "weight", "options"),
    [
        ("conv2d", (2, 2, 5, 4), (3, 2, 3, 2), {"stride": 2, "padding": 1}),
        ("conv2d", (1, 2, 4, 4), (2, 1, 3, 3), {"groups": 2}),
        ("conv1d", (2, 2, 6), (2, 2, 3), {"dilation": 2}),
        ("conv_transpose2d", (2, 2, 3, 2), (2, 2, 3, 2), {"stride": 2, "padding": 1}),
    ],
)
def test_second_derivatives(name, shape, weight, options):
    compare_derivatives(name, draw(*shape), draw(*weight), **options)


WINDOWS = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
]


@pytest.mark.parametrize("options", WINDOWS)
@pytest.mark.parametrize("shape", [(2, 3, 7, 6), (3, 7, 6)])
def test_unfold_and_fold(options, shape):
    compare("unfold", draw(*shape), **options)
    columns = F.unfold(metaop.tensor(draw(*shape)), **options)
    compare("fold", draw(*columns.shape), output_size=(7, 6), **options)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (((2, 3, 5, 5), (4, 2, 3, 3)), {}, ShapeError, r"\[4, 2, 3, 3\].*\[2, 3, 5, 5\]"),
        (((2, 3, 5), (4, 3, 3, 3)), {"stride": 1}, ShapeError, "conv"),
        (((2, 3, 2, 2), (4, 3, 3, 3)), {}, ShapeError, "larger than the padded input"),
        (((2, 3, 5, 5), (4, 3, 3, 3)), {"padding": "same", "stride": 2}, ArgumentError, "strided"),
        (((2, 3, 5, 5), (4, 3, 3, 3)), {"padding": (1, 2, 3)}, ArgumentError, "padding"),
        (((2, 3, 5, 5), (4, 3, 3, 3)), {"stride": 0}, ArgumentError, "stride"),
        (((2, 3, 5, 5), (4, 3, 3, 3), (3,)), {}, ShapeError, "bias"),
    ],
)
def test_errors(arguments, options, error, text):
    with pytest.raises(error, match=text) as caught:
        F.conv2d(*(metaop.tensor(draw(*shape)) for shape in arguments), **options)
    assert "fix:" in str(caught.value)


def test_operands_of_two_types():
    weight = metaop.tensor(draw(4, 3, 3, 3, dtype="float32"))
    with pytest.raises(DTypeError, match="float64.*float32"):
        F.conv2d(metaop.tensor(draw(2, 3, 5, 5)), weight)


@pytest.mark.parametrize("shape", [(5,), (2, 5), (2, 3, 5)])
def test_linear(shape):
    compare("linear", draw(*shape), draw(4, 5), draw(4))
    compare("linear", draw(*shape), draw(4, 5))


@pytest.mark.parametrize("name", ["conv", "conv_transpose"])
@pytest.mark.parametrize(("weight", "groups"), [((0, 4), 1), ((0, 0), 1), ((2, 1), 4), ((4, 2), 5)])
def test_groups_without_channels(name: str, weight: tuple[int, int], groups: int) -> None:
    """No channels at all are fewer than the groups, too; the message is PyTorch's."""
    for spatial in (1, 2, 3):
        ones = (1,) * spatial

        def convolve(library, spatial=spatial, ones=ones):
            function = getattr(library.nn.functional, f"{name}{spatial}d")
            return function(library.ones(2, 4, *ones), library.ones(*weight, *ones), groups=groups)

        with pytest.raises(RuntimeError) as expected:
            convolve(torch)
        with pytest.raises(ShapeError) as found:
            convolve(metaop)
        assert str(expected.value) in str(found.value)


def test_bilinear():
    compare("bilinear", draw(2, 3, 4), draw(2, 3, 5), draw(6, 4, 5), draw(6))
    compare_derivatives("bilinear", draw(2, 2), draw(2, 3), draw(2, 2, 3))


def test_linear_with_wrong_shape():
    with pytest.raises(ShapeError, match=r"\[2, 3\].*\[4, 5\]"):
        F.linear(metaop.tensor(draw(2, 3)), metaop.tensor(draw(4, 5)))
