"""Workloads that move memory more than they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.frameworks import Framework
from benchmarks.workload import Prepared, workload

_FLOAT = 4
_ELEMENTS = 1 << 23
_ROWS, _COLUMNS = 8192, 1024
_SIDE = 4096
_ACTIVATIONS = (32, 64, 56, 56)
_ACTIVATION_COUNT = 32 * 64 * 56 * 56
_VOCABULARY = 32_768
_TOKENS, _WIDTH = 8192, 256


def _memory_bound(name: str, elements: float, tolerance: float = 1e-4) -> Callable[..., Any]:
    """Registers a workload that moves at least so many float32 elements."""
    return workload("memory-bound", name, nbytes=_FLOAT * elements, tolerance=tolerance)


def _with_gradient(
    f: Framework, function: Callable[..., Any], *inputs: Any
) -> Callable[[], list[Any]]:
    """Runs a function forward and backward, from a gradient of its own."""
    gradients: list[Any] = []

    def run() -> list[Any]:
        result = function(*inputs)
        if not gradients:
            gradients.append(f.normal(*result.shape, seed=9))
        return [result, *f.library.autograd.grad(result, inputs, gradients[0])]

    return run


@_memory_bound("elementwise chain gelu(a*x+b)*x", 2 * _ELEMENTS)
def chain(f: Framework) -> Any:
    x = f.normal(_ELEMENTS)
    function = f.function(lambda x: f.functional.gelu(x * 1.5 + 0.25) * x)
    return lambda: function(x)


@_memory_bound("add", 3 * _ELEMENTS)
def add(f: Framework) -> Any:
    x, y = f.normal(_ELEMENTS), f.normal(_ELEMENTS, seed=1)
    return lambda: x + y


@_memory_bound("gelu", 2 * _ELEMENTS)
def gelu(f: Framework) -> Any:
    x = f.normal(_ELEMENTS)
    function = f.function(f.functional.gelu)
    return lambda: function(x)


@_memory_bound("gelu forward+backward", 4 * _ELEMENTS)
def gelu_gradient(f: Framework) -> Any:
    x = f.normal(_ELEMENTS, requires_grad=True)
    return _with_gradient(f, f.function(f.functional.gelu), x)


@_memory_bound("softmax", 2 * _ROWS * _COLUMNS)
def softmax(f: Framework) -> Any:
    x = f.normal(_ROWS, _COLUMNS)
    function = f.function(lambda x: f.functional.softmax(x, 1))
    return lambda: function(x)


@_memory_bound("softmax forward+backward", 4 * _ROWS * _COLUMNS)
def softmax_gradient(f: Framework) -> Any:
    x = f.normal(_ROWS, _COLUMNS, requires_grad=True)
    return _with_gradient(f, f.function(lambda x: f.functional.softmax(x, 1)), x)


def _layer_norm(f: Framework, requires_grad: bool) -> tuple[Callable[..., Any], list[Any]]:
    parameters = [f.normal(_COLUMNS, seed=seed, requires_grad=requires_grad) for seed in (1, 2)]
    inputs = [f.normal(_ROWS, _COLUMNS, requires_grad=requires_grad), *parameters]
    return f.function(lambda x, w, b: f.functional.layer_norm(x, (_COLUMNS,), w, b)), inputs


@_memory_bound("layer_norm", 2 * _ROWS * _COLUMNS)
def layer_norm(f: Framework) -> Any:
    function, inputs = _layer_norm(f, False)
    return lambda: function(*inputs)


@_memory_bound("layer_norm forward+backward", 4 * _ROWS * _COLUMNS)
def layer_norm_gradient(f: Framework) -> Any:
    function, inputs = _layer_norm(f, True)
    return _with_gradient(f, function, *inputs)


def _batch_norm(f: Framework, requires_grad: bool) -> tuple[Callable[..., Any], list[Any]]:
    channels = _ACTIVATIONS[1]
    mean, variance = f.tensor(np.zeros(channels, np.float32)), f.tensor(np.ones(channels, "f4"))
    parameters = [f.normal(channels, seed=seed, requires_grad=requires_grad) for seed in (1, 2)]
    inputs = [f.normal(*_ACTIVATIONS, requires_grad=requires_grad), *parameters]

    def function(x: Any, w: Any, b: Any) -> Any:
        y = f.functional.batch_norm(x, mean, variance, w, b, training=True)
        return f.functional.relu(y)

    return f.function(function), inputs


# The statistics need the whole batch before the first result: the input is read twice.
@_memory_bound("batch_norm training + relu", 3 * _ACTIVATION_COUNT)
def batch_norm(f: Framework) -> Any:
    function, inputs = _batch_norm(f, False)
    return lambda: function(*inputs)


@_memory_bound("batch_norm training + relu forward+backward", 8 * _ACTIVATION_COUNT, 1e-3)
def batch_norm_gradient(f: Framework) -> Any:
    function, inputs = _batch_norm(f, True)
    return _with_gradient(f, function, *inputs)


def _classes(f: Framework, requires_grad: bool) -> tuple[Any, Any]:
    return f.normal(512, _VOCABULARY, requires_grad=requires_grad), f.integers(_VOCABULARY, 512)


@_memory_bound("cross_entropy of 32k classes", 512 * _VOCABULARY)
def cross_entropy(f: Framework) -> Any:
    x, labels = _classes(f, False)
    function = f.function(f.functional.cross_entropy)
    return lambda: function(x, labels)


@_memory_bound("cross_entropy of 32k classes forward+backward", 3 * 512 * _VOCABULARY)
def cross_entropy_gradient(f: Framework) -> Any:
    x, labels = _classes(f, True)
    function = f.function(f.functional.cross_entropy)

    def run() -> Any:
        loss = function(x, labels)
        return loss, f.library.autograd.grad(loss, x)[0]

    return run


# The numbers are drawn differently: what is compared is how many stay, and what becomes of them.
@_memory_bound("dropout", 2 * _ELEMENTS, 2e-3)
def dropout(f: Framework) -> Any:
    x = f.tensor(np.ones(_ELEMENTS, np.float32))
    function = f.function(lambda x: f.functional.dropout(x, 0.25))

    def observe() -> list[Any]:
        result = function(x)
        return [(result > 0).float().mean(), result.max(), result.min()]

    return Prepared(lambda: function(x), observe)


def _pooling(name: str, pool: Callable[..., Any], size: int, stride: int, padding: int) -> None:
    """Registers a pooling forward and forward+backward."""
    results = _ACTIVATION_COUNT / stride**2

    def function(f: Framework) -> Callable[[Any], Any]:
        return f.function(lambda x: pool(f)(x, size, stride, padding))

    @_memory_bound(name, _ACTIVATION_COUNT + results)
    def forward(f: Framework) -> Any:
        x, whole = f.normal(*_ACTIVATIONS), function(f)
        return lambda: whole(x)

    @_memory_bound(f"{name} forward+backward", 2 * (_ACTIVATION_COUNT + results))
    def gradient(f: Framework) -> Any:
        return _with_gradient(f, function(f), f.normal(*_ACTIVATIONS, requires_grad=True))


_pooling("max_pool 3/2", lambda f: f.functional.max_pool2d, 3, 2, 1)
_pooling("max_pool 2/2", lambda f: f.functional.max_pool2d, 2, 2, 0)
_pooling("avg_pool 2/2", lambda f: f.functional.avg_pool2d, 2, 2, 0)


@_memory_bound("embedding gradient", _TOKENS * _WIDTH + _VOCABULARY * _WIDTH)
def embedding_gradient(f: Framework) -> Any:
    table = f.normal(_VOCABULARY, _WIDTH, requires_grad=True)
    tokens, gradient = f.integers(_VOCABULARY, _TOKENS), f.normal(_TOKENS, _WIDTH)
    function = f.function(f.functional.embedding)

    def run() -> Any:
        return f.library.autograd.grad(function(tokens, table), table, gradient)[0]

    return run


def _of_square(name: str, elements: float, call: Callable[[Framework, Any], Any]) -> None:
    """Registers a function of a square matrix."""

    @_memory_bound(name, elements)
    def prepare(f: Framework) -> Any:
        x = f.normal(_SIDE, _SIDE)
        function = f.function(lambda x: call(f, x))
        return lambda: function(x)


_of_square("transpose", 2 * _SIDE**2, lambda f, x: x.t().contiguous())
_of_square("sum of all", _SIDE**2, lambda f, x: x.abs().sum())
_of_square("sum over rows", _SIDE**2, lambda f, x: x.sum(0))
_of_square("sum over columns", _SIDE**2, lambda f, x: x.sum(1))
_of_square("max over rows", _SIDE**2, lambda f, x: x.amax(0))
_of_square("argmax over columns", _SIDE**2, lambda f, x: x.argmax(1))
_of_square("argmax over rows", _SIDE**2, lambda f, x: x.argmax(0))
_of_square("cumsum along rows", 2 * _SIDE**2, lambda f, x: x.cumsum(1))
_of_square("cumsum along columns", 2 * _SIDE**2, lambda f, x: x.cumsum(0))


@_memory_bound("sum over a middle axis", _ACTIVATION_COUNT)
def sum_middle(f: Framework) -> Any:
    x = f.normal(*_ACTIVATIONS)
    return lambda: x.sum(1)


@_memory_bound("sum over all but channels", _ACTIVATION_COUNT)
def sum_channels(f: Framework) -> Any:
    x = f.normal(*_ACTIVATIONS)
    return lambda: x.sum((0, 2, 3))


@_memory_bound("interpolate bilinear", 5 * _ACTIVATION_COUNT / 4)
def interpolate(f: Framework) -> Any:
    x = f.normal(8, *_ACTIVATIONS[1:])
    function = f.function(lambda x: f.functional.interpolate(x, scale_factor=2, mode="bilinear"))
    return lambda: function(x)


@_memory_bound("concatenate and split", 4 * _ELEMENTS)
def concatenate(f: Framework) -> Any:
    x, y = f.normal(64, 131_072), f.normal(64, 131_072, seed=1)
    return lambda: f.library.cat([x, y], 1)


def resnet18_shapes() -> list[tuple[int, ...]]:
    """The shapes of the 62 parameters of a ResNet-18 for 10 classes."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            inner = before if block == 0 else width
            shapes += [(width, inner, 3, 3), (width,), (width,)]
            shapes += [(width, width, 3, 3), (width,), (width,)]
            if inner != width:
                shapes += [(width, inner, 1, 1), (width,), (width,)]
        before = width
    return [*shapes, (10, 512), (10,)]


_PARAMETER_COUNT = sum(int(np.prod(shape)) for shape in resnet18_shapes())


# Reads parameter, gradient and both moments, writes all but the gradient.
@_memory_bound("Adam step of ResNet-18's parameters", 7 * _PARAMETER_COUNT)
def adam(f: Framework) -> Any:
    parameters = [
        f.normal(*shape, seed=seed, requires_grad=True)
        for seed, shape in enumerate(resnet18_shapes())
    ]
    for seed, parameter in enumerate(parameters):
        parameter.grad = f.normal(*parameter.shape, seed=100 + seed)
    optimizer = f.optimizer("Adam", parameters, lr=1e-3)
    return Prepared(f.function(optimizer.step), lambda: parameters)
