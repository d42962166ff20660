"""Random tensors: uniform, normal, integers, permutations, samples, and in-place forms."""

from __future__ import annotations

import math
from typing import Any

from metaop.elementwise.meta_op import broadcast_shapes
from metaop.errors import ArgumentError, ShapeError
from metaop.operators import random as operators
from metaop.operators.complex_numbers import numbers_of
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.generator import Generator, host_random, seed_call
from metaop.tensor.options import DeviceLike, device_of, shape_of
from metaop.tensor.promotion import Real, defaults
from metaop.tensor.sharded.placing import placeable, placeable_from_host
from metaop.tensor.surface import method, public
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.faults import TOO_FEW_WEIGHTS
from metaop.unified_graph.node import Shape
from metaop.unified_graph.recording import Call, record, scalar_leaf
from metaop.unified_graph.tensor_type import Device


def _draw(
    step: Composite,
    parameters: tuple[Call | None, ...],
    shape: Shape,
    dtype: DType,
    device: Device,
    generator: Generator | None,
    requires_grad: bool = False,
) -> Tensor:
    seed = seed_call(generator, device)
    if dtype.is_complex:
        if step is operators.normal:
            mean, deviation = parameters
            parameters = mean, _of_part(deviation, dtype, device)
        parts = record(step, (seed, *parameters), ((*shape, 2), dtype.part))
        result = wrap(record(numbers_of, (parts,)))
    else:
        result = wrap(record(step, (seed, *parameters), (shape, dtype)))
    return result.requires_grad_() if requires_grad else result


def _of_part(deviation: Call | None, dtype: DType, device: Device) -> Call:
    """The standard deviation of the real and the imaginary part, whose variances add up."""
    half = _number(math.sqrt(0.5), device, dtype.part)
    return half if deviation is None else (wrap(deviation) * wrap(half)).call


def _number(value: Real, device: Device, dtype: DType = dtypes.float64) -> Call:
    return scalar_leaf(value, dtype, device)


@public(out=True)
@placeable
def rand(
    *sizes: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1) in a tensor of the given shape: `rand(2, 3)` or `rand((2, 3))`.

    The seed and the position in the tensor determine each number, on every device.

    >>> x = metaop.rand(1000)
    >>> bool((x >= 0).all() and (x < 1).all())
    True
    """
    place, dtype = device_of(device), dtype or defaults.dtype
    shape = shape_of(sizes if size is None else (size,))
    return _draw(operators.uniform, (None, None), shape, dtype, place, generator, requires_grad)


@public(out=True)
@placeable
def randn(
    *sizes: Any,
    size: Any = None,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers of mean 0 and variance 1 in a tensor of the given shape.

    The seed and the position in the tensor determine each number, on every device.

    >>> x = metaop.randn(100, 100)
    >>> abs(x.mean().item()) < 0.1, abs(x.std().item() - 1) < 0.1
    (True, True)
    """
    place, dtype = device_of(device), dtype or defaults.dtype
    shape = shape_of(sizes if size is None else (size,))
    return _draw(operators.normal, (None, None), shape, dtype, place, generator, requires_grad)


@public()
@placeable
def rand_like(input: Tensor, **options: Any) -> Tensor:
    """Uniform numbers in [0, 1) with the shape, dtype and device of `input`.

    >>> metaop.rand_like(metaop.zeros(2, 3)).shape
    metaop.Size([2, 3])
    """
    return rand(input.shape, **_options(input, options))


@public()
@placeable
def randn_like(input: Tensor, **options: Any) -> Tensor:
    """Normal numbers of mean 0 and variance 1 with the shape, dtype and device of `input`.

    >>> metaop.randn_like(metaop.zeros(2, 3)).shape
    metaop.Size([2, 3])
    """
    return randn(input.shape, **_options(input, options))


@public()
@placeable
def randint_like(input: Tensor, low: int, high: int | None = None, **options: Any) -> Tensor:
    """Random integers in [low, high) with the shape, dtype and device of `input`.

    With one limit, they start at 0.

    >>> metaop.randint_like(metaop.zeros(2), 5, 6)
    tensor([5., 5.])
    """
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, input.shape, **_options(input, options))


def _options(input: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    options.pop("memory_format", None)
    return {"dtype": input.dtype, "device": input.device, **options}


@public(out=True)
@placeable
def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Random integers in [low, high); `randint(high, size)` starts at 0.

    `size` is the shape; the default `dtype` is int64.

    >>> metaop.randint(5, 6, (2, 2))
    tensor([[5, 5],
            [5, 5]])
    """
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    place = device_of(device)
    parameters = _span(low, high, place)
    dtype = dtype or dtypes.int64
    step = operators.integers
    return _draw(step, parameters, shape_of((size,)), dtype, place, generator, requires_grad)


def _span(low: int, high: int, device: Device) -> tuple[Call, Call]:
    if low >= high:
        raise ArgumentError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}",
            fix="pass low < high",
        )
    return (
        _number(low, device, dtypes.int64),
        _number(min(high - low, 2**63 - 1), device, dtypes.int64),
    )


@public(out=True)
@placeable_from_host
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A random permutation of 0 … n - 1: a tensor of length `n`.

    >>> metaop.randperm(5).sort().values
    tensor([0, 1, 2, 3, 4])
    """
    (n,) = shape_of((n,))
    seed = seed_call(generator, device_of(device))
    numbers = wrap(record(operators.permutation, (seed,), (n, dtype or dtypes.int64)))
    return numbers.requires_grad_() if requires_grad else numbers


@public(out=True)
@placeable
def normal(
    mean: Tensor | float = 0.0,
    std: Tensor | float = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normally distributed numbers; `mean` and `std` are numbers or tensors.

    Tensors broadcast to the shape of the result; with two numbers, `size` is the shape.

    >>> metaop.normal(metaop.tensor([1.0, 2.0]), 0.0)
    tensor([1., 2.])
    """
    _check_deviation("normal", std)
    tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
    place = tensors[0].device if tensors else device_of(device)
    if tensors:
        dtype = tensors[0].dtype
        shape: Shape = broadcast_shapes("normal", *(x.shape for x in tensors))
    else:
        dtype, shape = dtype or defaults.dtype, shape_of((size,))
    calls = tuple(
        x.call if isinstance(x, Tensor) else _number(float(x), place) for x in (mean, std)
    )
    return _draw(operators.normal, calls, shape, dtype, place, generator, requires_grad)


def _check_deviation(name: str, std: Any) -> None:
    """Refuses a negative deviation; does not check a tensor, because that would compute it."""
    if not isinstance(std, Tensor) and std < 0:
        raise ArgumentError(f"{name} expects std >= 0.0, but found std {std}", fix="negate it")


@public(method=True, out=True)
def bernoulli(
    input: Tensor, p: float | None = None, *, generator: Generator | None = None
) -> Tensor:
    """Ones with the probabilities in `input`, else zeros, with its shape and dtype.

    `p` replaces the probabilities of all elements.

    >>> metaop.bernoulli(metaop.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    probability = input.call if p is None else _number(p, input.device)
    shape, dtype = input.shape, input.dtype
    return _draw(operators.bernoulli, (probability,), shape, dtype, input.device, generator)


@public(method=True, out=True)
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Indices drawn with the weights of each row as probabilities, int64 (…, num_samples).

    The program raises, when it runs, ArgumentError for weights that are negative or not finite, and
    ShapeError for rows with fewer positive weights than samples without replacement.

    >>> metaop.multinomial(metaop.tensor([0.0, 3.0, 1.0]), 2).sort().values
    tensor([1, 2])
    """
    if num_samples <= 0:
        raise ArgumentError(
            f"multinomial: cannot sample n_sample <= 0 samples, got {num_samples}",
            fix="draw at least one",
        )
    if not 1 <= input.ndim <= 2 or not input.shape[-1]:
        raise ShapeError(
            f"multinomial: prob_dist must be 1 or 2 dim with categories, got {list(input.shape)}",
            fix="make each distribution a row",
        )
    if not replacement and num_samples > input.shape[-1]:
        raise TOO_FEW_WEIGHTS.error(TOO_FEW_WEIGHTS.message, fix=TOO_FEW_WEIGHTS.fix)
    seed = seed_call(generator, input.device)
    step = operators.multinomial if replacement else operators.multinomial_apart
    return wrap(record(step, (seed, input.call), (num_samples,)))


@public()
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson samples with the rates in `input`, with its shape and dtype.

    >>> metaop.poisson(metaop.full((10000,), 4.0)).mean().round()
    tensor(4.)
    """
    found = host_random(generator).poisson(input.detach()._array(), tuple(input.shape))
    return from_array(found.astype(input.dtype.numpy), input.dtype).to(device=input.device)


def _redrawn(
    input: Tensor, step: Composite, numbers: tuple[Real, ...], generator: Generator | None
) -> Tensor:
    kind = input.call.type
    calls = tuple(_number(number, kind.device) for number in numbers)
    return _draw(step, calls, kind.shape, kind.dtype, kind.device, generator)


@method()
def uniform_(
    input: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fills the tensor with uniform numbers between `low` and `high`."""
    if low > high:
        raise ArgumentError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}",
            fix="swap them",
        )
    return _write(input, "uniform_", _redrawn(input, operators.uniform, (low, high), generator))


@method()
def normal_(
    input: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fills the tensor with normally distributed numbers."""
    _check_deviation("normal_", std)
    return _write(input, "normal_", _redrawn(input, operators.normal, (mean, std), generator))


@method()
def log_normal_(
    input: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
) -> Tensor:
    """Fills the tensor with log-normally distributed numbers."""
    drawn = _redrawn(input, operators.normal, (mean, std), generator)
    return _write(input, "log_normal_", drawn.exp())


@method()
def bernoulli_(input: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with ones of probability `p` and zeros."""
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    kind = input.call.type
    probability = p.call if isinstance(p, Tensor) else _number(p, kind.device)
    attributes = (kind.shape, kind.dtype, kind.device, generator)
    return _write(input, "bernoulli_", _draw(operators.bernoulli, (probability,), *attributes))


@method()
def exponential_(
    input: Tensor, lambd: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fills the tensor with exponential numbers of rate `lambd`."""
    return _write(
        input, "exponential_", _redrawn(input, operators.exponential, (lambd,), generator)
    )


@method()
def cauchy_(
    input: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fills the tensor with Cauchy numbers."""
    return _write(input, "cauchy_", _redrawn(input, operators.cauchy, (median, sigma), generator))


@method()
def geometric_(input: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """Fills the tensor with the number of trials up to the first success."""
    return _write(input, "geometric_", _redrawn(input, operators.geometric, (p,), generator))


@method()
def random_(
    input: Tensor,
    low: int = 0,
    high: int | None = None,
    *,
    generator: Generator | None = None,
    to: int | None = None,
) -> Tensor:
    """Fills the tensor with integers: `random_()`, `random_(high)`, `random_(low, high)`."""
    kind = input.call.type
    high = to if high is None else high
    if high is None and low:
        low, high = 0, low
    if high is None:
        high = int(kind.dtype.highest) + 1 if kind.dtype.kind != "float" else 1 << 24
    parameters = _span(low, high, kind.device)
    attributes = (kind.shape, kind.dtype, kind.device, generator)
    return _write(input, "random_", _draw(operators.integers, parameters, *attributes))


def _write(input: Tensor, name: str, drawn: Tensor) -> Tensor:
    input._rebind(drawn.call, name)
    return input
