"""Random numbers as a function of a seed and each element's index: a counter-based generator.

Computing them again gives the same numbers, so nothing random is ever stored for backward.
"""

from __future__ import annotations

import math

from metaop.elementwise.meta_op import apply, cast, where
from metaop.errors import DTypeError
from metaop.operators.ordering import first_along, order_along
from metaop.operators.scan import cumulative
from metaop.operators.searching import searchsorted
from metaop.reduce.meta_op import reduce_axes
from metaop.reindex import views
from metaop.reindex.views import broadcast_to
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph import index_expr
from metaop.unified_graph.access import IndexMap
from metaop.unified_graph.composite import composite
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.node import Node, Shape, constant, index_node

_LOW_WORD = (1 << 32) - 1
# Bits of a uniform number: as many as the significand holds, so that none rounds up to 1.
_BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


def random_bits(seed: Node, shape: Shape, stride: int = 1, offset: int = 0) -> Node:
    """64 random bits per element, as int64; element `k` uses counter `stride * k + offset`."""
    place = index_expr.linear_offset(IndexMap.axes(shape), shape) * stride + offset
    counter = index_node(place, shape)
    if place.high <= _LOW_WORD:
        # The mask changes nothing, but tells the compiler that the high half is zero.
        counter = apply("bitwise_and", counter, constant(_LOW_WORD, dtypes.int64))
    return apply("random_bits", broadcast_to(seed, shape), counter)


def fraction(bits: Node, first: int, count: int, dtype: DType) -> Node:
    """`count` bits from bit `first` on as a number in [0, 1)."""
    mask = constant((1 << count) - 1, dtypes.int64)
    shift = constant(first, dtypes.int64)
    whole = apply("bitwise_and", apply("right_shift", bits, shift), mask)
    return cast(whole, dtype) * 2.0**-count


def _check_float(dtype: DType) -> None:
    if dtype.kind != "float":
        raise DTypeError(
            f"random numbers of a continuous distribution cannot be {dtype.name}",
            fix="draw them in float32, or use randint",
        )


def unit_uniform(seed: Node, shape: Shape, dtype: DType) -> Node:
    """Uniform numbers in [0, 1), of the compute type of `dtype`."""
    _check_float(dtype)
    count = _BITS[dtype.name]
    return fraction(random_bits(seed, shape), 64 - count, count, dtype.compute)


def unit_normal(seed: Node, shape: Shape, dtype: DType) -> Node:
    """Normal numbers of mean 0 and variance 1 (Box and Muller), of the compute type of `dtype`."""
    _check_float(dtype)
    work = dtype.compute
    if work is dtypes.float64:
        first = fraction(random_bits(seed, shape, 2), 11, 53, work) + 2.0**-54
        second = fraction(random_bits(seed, shape, 2, 1), 11, 53, work)
    else:
        bits = random_bits(seed, shape)
        first = fraction(bits, 32, 32, work) + 2.0**-33
        second = fraction(bits, 8, 24, work)
    radius = apply("sqrt", apply("log", first) * -2.0)
    return radius * apply("cos", second * (2 * math.pi))


@composite(differentiable=False)
def uniform(seed: Node, low: Node | None, high: Node | None, shape: Shape, dtype: DType) -> Node:
    """Uniform numbers in [low, high); the defaults are 0 and 1."""
    numbers = unit_uniform(seed, shape, dtype)
    if low is not None and high is not None:
        low, high = cast(low, numbers.dtype), cast(high, numbers.dtype)
        numbers = low + numbers * (high - low)
    return cast(numbers, dtype)


@composite(differentiable=False)
def normal(seed: Node, mean: Node | None, std: Node | None, shape: Shape, dtype: DType) -> Node:
    """Normal numbers with mean (default 0) and standard deviation (default 1), also tensors."""
    numbers = unit_normal(seed, shape, dtype)
    if std is not None:
        numbers = numbers * cast(std, numbers.dtype)
    if mean is not None:
        numbers = numbers + cast(mean, numbers.dtype)
    return cast(numbers, dtype)


@composite(differentiable=False)
def bernoulli(seed: Node, probability: Node, shape: Shape, dtype: DType) -> Node:
    """Ones with the given probability, a number or a tensor, else zeros."""
    work = dtypes.float64 if probability.dtype is dtypes.float64 else dtypes.float32
    return cast(unit_uniform(seed, shape, work) < cast(probability, work), dtype)


@composite(differentiable=False)
def exponential(seed: Node, rate: Node, shape: Shape, dtype: DType) -> Node:
    """Exponential numbers of the given rate."""
    _check_float(dtype)
    numbers = unit_uniform(seed, shape, dtypes.promote(dtype, dtypes.float32))
    return cast(-apply("log1p", -numbers) / cast(rate, numbers.dtype), dtype)


@composite(differentiable=False)
def cauchy(seed: Node, median: Node, scale: Node, shape: Shape, dtype: DType) -> Node:
    """Cauchy numbers around `median`."""
    _check_float(dtype)
    numbers = unit_uniform(seed, shape, dtypes.promote(dtype, dtypes.float32))
    angle = (numbers - 0.5) * math.pi
    return cast(cast(median, angle.dtype) + cast(scale, angle.dtype) * apply("tan", angle), dtype)


@composite(differentiable=False)
def geometric(seed: Node, probability: Node, shape: Shape, dtype: DType) -> Node:
    """The number of trials up to the first success."""
    numbers = apply("log1p", -unit_uniform(seed, shape, dtypes.float32))
    failure = apply("log1p", -cast(probability, dtypes.float32))
    return cast(apply("floor", numbers / failure) + 1.0, dtype)


@composite(differentiable=False)
def integers(seed: Node, low: Node, count: Node, shape: Shape, dtype: DType) -> Node:
    """Integers low, …, low + count - 1, all equally likely."""
    positive = apply("bitwise_and", random_bits(seed, shape), constant(2**63 - 1, dtypes.int64))
    return cast(low + apply("remainder", positive, count), dtype)


@composite(differentiable=False)
def permutation(seed: Node, length: int, dtype: DType) -> Node:
    """A random permutation of 0 … length - 1, in the order of random 48-bit keys.

    Equal keys, whose numbers stay in order, are rare: about one pair among 16 million numbers.
    """
    bits = random_bits(seed, (length,))
    if length <= 1:
        return cast(order_along(bits, 0), dtype)
    first = order_along(cast(bits, dtypes.int16), 0)
    later = cast(apply("right_shift", bits, 32), dtypes.int32)
    return cast(views.gather(first, 0, order_along(views.gather(later, 0, first), 0)), dtype)


@composite(differentiable=False)
def multinomial(seed: Node, weights: Node, count: int) -> Node:
    """Indices drawn with replacement, with probabilities proportional to each row's weights."""
    dim = weights.ndim - 1
    bounds = cumulative(_weights_of(weights), "add", dim, dtypes.float64)
    total = views.slice_dimension(bounds, dim, weights.shape[dim] - 1, 1)
    drawn = unit_uniform(seed, (*weights.shape[:dim], count), dtypes.float64)
    is_legal = broadcast_to(apply("has_total_weight", total > 0.0), drawn.shape)
    found = searchsorted(bounds, where(is_legal, drawn * total, 0.0), True)
    # A product may round up to the total, which would select an index after the last weight.
    return apply("minimum", found, searchsorted(bounds, total, False))


@composite(differentiable=False)
def multinomial_apart(seed: Node, weights: Node, count: int) -> Node:
    """Indices drawn without replacement, with probabilities proportional to each row's weights.

    They are those of the smallest exponential samples whose rates are the weights (P. Efraimidis
    and P. Spirakis, "Weighted random sampling with a reservoir", 2006).
    """
    dim = weights.ndim - 1
    rates = _weights_of(weights)
    has_weight = rates > 0.0
    weighted = reduce_axes("add", cast(has_weight, dtypes.int64), (dim,), True)
    is_legal = broadcast_to(apply("has_enough_weights", weighted >= count), weights.shape)
    waiting = -apply("log1p", -unit_uniform(seed, weights.shape, dtypes.float64)) / rates
    return first_along(where(is_legal & has_weight, waiting, math.nan), count, dim, False)


def _weights_of(weights: Node) -> Node:
    return apply("weight", cast(weights, dtypes.float64))


@composite(differentiable=False)
def seeds(seed: Node, count: int) -> Node:
    """`count` different seeds, one for each element of a batch."""
    return random_bits(seed, (count,))
