"""The composites that have an operator in ONNX: one function for each, by the composite."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from metaop.elementwise.functions import FUNCTIONS
from metaop.onnx.exporting import scalars
from metaop.onnx.exporting.recordings import Typed
from metaop.onnx.exporting.writer import Writer
from metaop.operators import (
    activations,
    attention,
    basic,
    convolution,
    embedding,
    indexing,
    interpolation,
    linear,
    linear_algebra,
    normalisation,
    ordering,
    padding,
    pointwise,
    pooling,
    recurrent,
    reduction,
    sampling,
    scan,
    shaping,
)
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.composite import Composite
from metaop.unified_graph.dtype import DType, promote


class Operands(NamedTuple):
    """A call as a row sees it: names and types of the operands, None where one is absent."""

    w: Writer
    names: list[str | None]
    types: list[Typed | None]
    attributes: tuple[Any, ...]
    results: list[Typed]

    def name(self, position: int) -> str:
        """The name of an operand that is there."""
        found = self.names[position]
        assert found is not None
        return found

    def type(self, position: int) -> Typed:
        """The type of an operand that is there."""
        found = self.types[position]
        assert found is not None
        return found

    @property
    def ndim(self) -> int:
        """The dimensions of the first operand."""
        return len(self.type(0).shape)


# The names of the results; None where the call has to be expanded after all.
Row = Callable[[Operands], "str | list[str] | None"]
ROWS: dict[Composite, Row] = {}


def row(*composites: Composite) -> Callable[[Row], Row]:
    """Enters a function for composites."""

    def enter(function: Row) -> Row:
        for composite in composites:
            ROWS[composite] = function
        return function

    return enter


def _scalar(name: str) -> Row:
    function = FUNCTIONS[name]

    def write(o: Operands) -> str:
        dtype, number = (*o.attributes, None, None)[:2]
        common: DType | None = dtype
        if common is None:
            for one in o.types:
                if one is not None:
                    common = one.dtype if common is None else promote(common, one.dtype)
            assert common is not None
            if isinstance(number, float) and common.kind != "float":
                common = dtypes.float32
            elif type(number) is int and common.kind == "bool":
                common = dtypes.int64
        common = function.operand(common)
        operands = []
        for position in range(function.arity):
            given = o.names[position] if position < len(o.names) else None
            if given is None:
                operands.append(o.w.number(number, common))
            else:
                operands.append(o.w.cast(given, o.type(position).dtype, common))
        return scalars.written(o.w, name, common, operands)

    return write


for _name, _composite in pointwise.POINTWISE.items():
    ROWS[_composite] = _scalar(_name)


@row(basic.alias, basic.clone)
def _same(o: Operands) -> str:
    return o.name(0)


@row(basic.overwrite)
def _second(o: Operands) -> str:
    return o.name(1)


@row(basic.convert)
def _convert(o: Operands) -> str:
    return o.w.cast(o.name(0), o.type(0).dtype, o.attributes[0])


@row(basic.expand)
def _expand(o: Operands) -> str:
    # Dimensions that stay as they are need not be known.
    old, new = o.type(0).shape, o.attributes[0]
    lead = len(new) - len(old)
    sizes = [1 if k >= lead and old[k - lead] == n else n for k, n in enumerate(new)]
    if all(n == 1 for n in sizes) and not lead:
        return o.name(0)
    return o.w.node("Expand", o.name(0), o.w.integers(sizes))


@row(basic.filled)
def _filled(o: Operands) -> str:
    shape, dtype = o.attributes
    name = o.w.cast(o.name(0), o.type(0).dtype, dtype)
    return o.w.node("Expand", name, o.w.integers(list(shape))) if shape else name


@row(basic.constant_fill)
def _constant_fill(o: Operands) -> str:
    value, shape, dtype = o.attributes
    name = o.w.number(value, dtype)
    return o.w.node("Expand", name, o.w.integers(list(shape))) if shape else name


@row(shaping.reshape)
def _reshape(o: Operands) -> str:
    return o.w.reshape(o.name(0), o.attributes[0])


@row(shaping.permute)
def _permute(o: Operands) -> str:
    order = list(o.attributes[0])
    return o.w.node("Transpose", o.name(0), perm=order) if order != sorted(order) else o.name(0)


@row(shaping.index)
def _index(o: Operands) -> str | None:
    axes, starts, ends, steps = [], [], [], []
    dropped, added, dim, place = [], [], 0, 0
    for item in o.attributes[0]:
        if item is None:
            added.append(place)
            place += 1
            continue
        extent = o.type(0).shape[dim]
        if isinstance(item, tuple):
            start, length, step = item
            if not isinstance(start, int) or not isinstance(step, int):
                return None
            if (start, length, step) != (0, extent, 1):
                axes.append(dim)
                starts.append(start)
                if isinstance(length, int):
                    last = start + step * length
                    ends.append(last if last >= 0 else -(1 << 62))
                elif step > 0:
                    # All that is left: a length that depends on an axis reaches the end.
                    ends.append(1 << 62)
                    if not _reaches_the_end(o, extent, item):
                        return None
                else:
                    ends.append(-(1 << 62))
                steps.append(step)
            place += 1
        else:
            if not isinstance(item, int):
                return None
            axes.append(dim)
            starts.append(item)
            ends.append(item + 1)
            steps.append(1)
            dropped.append(dim)
        dim += 1
    name = o.w.slices(o.name(0), axes, starts, ends, steps)
    return o.w.unsqueeze(o.w.squeeze(name, dropped), added)


def _reaches_the_end(o: Operands, extent: Any, item: tuple[Any, ...]) -> bool:
    start, length, step = item
    if isinstance(extent, int) or step != 1:
        return False
    return extent.plus(-start) == length


@row(shaping.narrow)
def _narrow(o: Operands) -> str | None:
    dim, start, length = o.attributes
    if not isinstance(start, int):
        return None
    extent = o.type(0).shape[dim]
    if isinstance(length, int):
        return o.w.slices(o.name(0), [dim], [start], [start + length])
    if not _reaches_the_end(o, extent, (start, length, 1)):
        return None
    return o.w.slices(o.name(0), [dim], [start], [1 << 62])


@row(shaping.select)
def _select(o: Operands) -> str | None:
    dim, position = o.attributes
    if not isinstance(position, int):
        return None
    return o.w.node("Gather", o.name(0), o.w.array(np.array(position, np.int64)), axis=dim)


@row(shaping.concatenate)
def _concatenate(o: Operands) -> str:
    dim, dtype = o.attributes
    parts = [o.w.cast(o.name(k), o.type(k).dtype, dtype) for k in range(len(o.names))]
    return o.w.node("Concat", *parts, axis=dim)


@row(shaping.stack)
def _stack(o: Operands) -> str:
    dim, dtype = o.attributes
    parts = [
        o.w.unsqueeze(o.w.cast(o.name(k), o.type(k).dtype, dtype), [dim])
        for k in range(len(o.names))
    ]
    return o.w.node("Concat", *parts, axis=dim)


@row(shaping.repeat)
def _repeat(o: Operands) -> str:
    counts = o.attributes[0]
    lead = len(counts) - o.ndim
    name = o.w.unsqueeze(o.name(0), range(lead))
    return o.w.node("Tile", name, o.w.integers(list(counts)))


@row(shaping.flip)
def _flip(o: Operands) -> str:
    dims = list(o.attributes[0])
    count = len(dims)
    least = [-(1 << 62)] * count
    return o.w.slices(o.name(0), dims, [-1] * count, least, [-1] * count)


@row(shaping.roll)
def _roll(o: Operands) -> str | None:
    name = o.name(0)
    for shift, dim in zip(*o.attributes):
        if not isinstance(shift, int):
            return None
        extent = o.type(0).shape[dim]
        cut = -shift % extent if isinstance(extent, int) and extent else -shift
        if cut == 0:
            continue
        end = o.w.slices(name, [dim], [cut], [1 << 62])
        name = o.w.node("Concat", end, o.w.slices(name, [dim], [0], [cut]), axis=dim)
    return name


@row(shaping.triangle)
def _triangle(o: Operands) -> str | None:
    diagonal, upper = o.attributes
    if o.type(0).dtype.kind == "bool":
        return None
    where = o.w.array(np.array(diagonal, np.int64))
    return o.w.node("Trilu", o.name(0), where, upper=int(upper))


@row(shaping.pad)
def _pad_constant(o: Operands) -> str:
    before, after, fill = o.attributes
    return _padded(o, before, after, "constant", fill)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@row(padding.pad)
def _pad(o: Operands) -> str | None:
    before, after, mode, value = o.attributes
    return None if mode == "circular" else _padded(o, before, after, _MODES[mode], value)


def _padded(o: Operands, before: Sequence[Any], after: Sequence[Any], mode: str, fill: Any) -> str:
    widths = o.w.integers([*before, *after])
    value = o.w.number(fill, o.type(0).dtype) if mode == "constant" else None
    return o.w.node("Pad", o.name(0), widths, value, mode=mode)


@row(pointwise.select)
def _where(o: Operands) -> str:
    dtype = o.results[0].dtype
    left, right = (o.w.cast(o.name(k), o.type(k).dtype, dtype) for k in (1, 2))
    condition = o.w.cast(o.name(0), o.type(0).dtype, dtypes.bool_)
    return scalars.written(o.w, "where", dtype, [condition, left, right])


# --- sums and their like ------------------------------------------------------------------------


def _reduction(operator: str) -> Row:
    def write(o: Operands) -> str:
        dims, keep, dtype = o.attributes
        name = o.w.cast(o.name(0), o.type(0).dtype, dtype)
        return o.w.reduce(operator, name, dims, keep)

    return write


ROWS[reduction.sum] = _reduction("ReduceSum")
ROWS[reduction.mean] = _reduction("ReduceMean")
ROWS[reduction.prod] = _reduction("ReduceProd")


@row(reduction.extreme)
def _extreme(o: Operands) -> str:
    reducer, dims, keep = o.attributes
    return o.w.reduce("ReduceMax" if "max" in reducer else "ReduceMin", o.name(0), dims, keep)


@row(reduction.extreme_with_index)
def _extreme_with_index(o: Operands) -> list[str] | None:
    reducer, dim, keep = o.attributes
    if not o.ndim:
        return None
    kind = "Max" if "max" in reducer else "Min"
    values = o.w.reduce(f"Reduce{kind}", o.name(0), [dim], keep)
    return [values, o.w.node(f"Arg{kind}", o.name(0), axis=dim, keepdims=int(keep))]


@row(reduction.extreme_index)
def _extreme_index(o: Operands) -> str | None:
    reducer, dim, keep = o.attributes
    kind = "ArgMax" if "max" in reducer else "ArgMin"
    if dim is None:
        if keep:
            return None
        flat = o.w.node("Reshape", o.name(0), o.w.integers([-1]))
        return o.w.node(kind, flat, axis=0, keepdims=0)
    return o.w.node(kind, o.name(0), axis=dim, keepdims=int(keep)) if o.ndim else None


@row(reduction.logsumexp)
def _logsumexp(o: Operands) -> str:
    dims, keep = o.attributes
    return o.w.reduce("ReduceLogSumExp", o.name(0), dims, keep)


@row(scan.cumulative)
def _cumulative(o: Operands) -> str | None:
    function, dim, dtype = o.attributes
    if function != "add" or not o.ndim:
        return None
    name = o.w.cast(o.name(0), o.type(0).dtype, dtype)
    return o.w.node("CumSum", name, o.w.array(np.array(dim, np.int64)))


@row(ordering.topk)
def _topk(o: Operands) -> list[str] | None:
    count, dim, largest = o.attributes
    if not o.ndim:
        return None
    return o.w.several(
        "TopK", 2, o.name(0), o.w.integers([count]), axis=dim, largest=int(largest), sorted=1
    )


@row(ordering.sort)
def _sort(o: Operands) -> list[str] | None:
    dim, descending = o.attributes
    if not o.ndim:
        return None
    count = o.w.integers([o.type(0).shape[dim]])
    return o.w.several("TopK", 2, o.name(0), count, axis=dim, largest=int(descending), sorted=1)


# --- products -----------------------------------------------------------------------------------


@row(linear_algebra.matmul)
def _matmul(o: Operands) -> str:
    return o.w.node("MatMul", o.name(0), o.name(1))


@row(linear.linear)
def _linear(o: Operands) -> str | None:
    weight = o.type(1)
    if len(weight.shape) != 2:
        return None
    if o.ndim == 2:
        return o.w.node("Gemm", o.name(0), o.name(1), o.names[2], transB=1)
    product = o.w.node("MatMul", o.name(0), o.w.node("Transpose", o.name(1), perm=[1, 0]))
    bias = o.names[2]
    return product if bias is None else o.w.node("Add", product, bias)


def _with_batch(o: Operands, spatial: int) -> str:
    return o.name(0) if o.ndim == spatial + 2 else o.w.unsqueeze(o.name(0), [0])


def _without_batch(o: Operands, name: str, spatial: int) -> str:
    return name if o.ndim == spatial + 2 else o.w.squeeze(name, [0])


@row(convolution.convolution)
def _convolution(o: Operands) -> str:
    stride, before, after, dilation, groups = o.attributes
    spatial = len(stride)
    name = o.w.node(
        "Conv", _with_batch(o, spatial), o.name(1), o.names[2], dilations=list(dilation),
        group=groups, kernel_shape=list(o.type(1).shape[2:]), pads=[*before, *after],
        strides=list(stride),
    )  # fmt: skip
    return _without_batch(o, name, spatial)


@row(convolution.transposed_convolution)
def _transposed_convolution(o: Operands) -> str:
    stride, pads, extra, dilation, groups = o.attributes
    spatial = len(stride)
    name = o.w.node(
        "ConvTranspose", _with_batch(o, spatial), o.name(1), o.names[2], dilations=list(dilation),
        group=groups, kernel_shape=list(o.type(1).shape[2:]), output_padding=list(extra),
        pads=[*pads, *pads], strides=list(stride),
    )  # fmt: skip
    return _without_batch(o, name, spatial)


@row(attention.attention)
def _attention(o: Operands) -> str | None:
    _, causal, scale, grouped = o.attributes
    if causal or grouped or o.names[4] is not None:
        return None
    return _mixed(o, scale)[0]


@row(attention.attention_with_weights)
def _attention_with_weights(o: Operands) -> list[str] | None:
    return None if o.names[4] is not None else _mixed(o, None)


def _mixed(o: Operands, scale: float | None) -> list[str]:
    w, query = o.w, o.type(0)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    ndim = len(o.type(1).shape)
    order = [*range(ndim - 2), ndim - 1, ndim - 2]
    turned = w.node("Transpose", o.name(1), perm=order)
    scores = w.node("MatMul", o.name(0), turned)
    scores = w.node("Mul", scores, w.number(factor, query.dtype))
    mask = o.names[3]
    excluded = None
    if mask is not None and o.type(3).dtype.kind == "bool":
        excluded = w.node("Not", mask)
        scores = w.node("Where", mask, scores, w.number(-math.inf, query.dtype))
    elif mask is not None:
        scores = w.node("Add", scores, w.cast(mask, o.type(3).dtype, query.dtype))
    weights = w.node("Softmax", scores, axis=len(query.shape) - 1)
    if excluded is not None or mask is not None:
        # Rows that may attend to nothing give zeros.
        nothing = w.node("IsNaN", weights)
        weights = w.node("Where", nothing, w.number(0, query.dtype), weights)
    return [w.node("MatMul", weights, o.name(2)), weights]


# --- windows ------------------------------------------------------------------------------------


@row(pooling.max_pool)
def _max_pool(o: Operands) -> str:
    kernel, stride, pads, dilation, ceil_mode = o.attributes
    spatial = len(kernel)
    name = o.w.node(
        "MaxPool", _with_batch(o, spatial), kernel_shape=list(kernel), strides=list(stride),
        pads=[*pads, *pads], dilations=list(dilation), ceil_mode=int(ceil_mode),
    )  # fmt: skip
    return _without_batch(o, name, spatial)


@row(pooling.average_pool)
def _average_pool(o: Operands) -> str | None:
    kernel, stride, pads, ceil_mode, include, divisor = o.attributes
    spatial = len(kernel)
    # What a last partial window counts differs between runtimes.
    if divisor is not None or (ceil_mode and include and any(pads)):
        return None
    name = o.w.node(
        "AveragePool", _with_batch(o, spatial), kernel_shape=list(kernel), strides=list(stride),
        pads=[*pads, *pads], ceil_mode=int(ceil_mode), count_include_pad=int(include),
    )  # fmt: skip
    return _without_batch(o, name, spatial)


@row(pooling.adaptive_average_pool)
def _adaptive_average_pool(o: Operands) -> str | None:
    output = o.attributes[0]
    spatial = len(output)
    if all(one == 1 for one in output):
        axes = list(range(o.ndim - spatial, o.ndim))
        return o.w.reduce("ReduceMean", o.name(0), axes, True)
    extents = o.type(0).shape[-spatial:]
    if not all(isinstance(n, int) and n % out == 0 for n, out in zip(extents, output)):
        return None
    size = [n // out for n, out in zip(extents, output)]
    name = o.w.node("AveragePool", _with_batch(o, spatial), kernel_shape=size, strides=size)
    return _without_batch(o, name, spatial)


@row(interpolation.nearest)
def _nearest(o: Operands) -> str | None:
    output, _, exact = o.attributes
    return None if exact else _resized(o, output, "nearest", "asymmetric", nearest_mode="floor")


@row(interpolation.interpolate)
def _interpolate(o: Operands) -> str | None:
    output, scales, corners, kind, antialias = o.attributes
    extents = o.type(0).shape[-len(output) :]
    if antialias or kind != "linear":
        return None
    # A factor that is given may differ from that of the sizes.
    for extent, size, scale in zip(extents, output, scales):
        if isinstance(extent, int) and isinstance(size, int) and isinstance(scale, float):
            wanted = (extent - 1) / (size - 1) if corners and size > 1 else extent / size
            if not corners and abs(scale - wanted) > 1e-6:
                return None
    mode = "align_corners" if corners else "half_pixel"
    return _resized(o, output, "linear", mode)


def _resized(
    o: Operands, output: Sequence[Any], mode: str, coordinates: str, **options: Any
) -> str:
    lead = list(o.type(0).shape[: o.ndim - len(output)])
    return o.w.node(
        "Resize", o.name(0), None, None, o.w.integers([*lead, *output]), mode=mode,
        coordinate_transformation_mode=coordinates, **options,
    )  # fmt: skip


@row(sampling.pixel_shuffle)
def _pixel_shuffle(o: Operands) -> str | None:
    if o.ndim != 4:
        return None
    return o.w.node("DepthToSpace", o.name(0), blocksize=o.attributes[0], mode="CRD")


# --- normalisations and activations -------------------------------------------------------------


@row(normalisation.batch_norm_evaluation)
def _batch_norm(o: Operands) -> str:
    w, channels, dtype = o.w, o.type(0).shape[1], o.type(0).dtype
    weight = o.names[1] or w.array(np.ones(channels, dtype.numpy))
    bias = o.names[2] or w.array(np.zeros(channels, dtype.numpy))
    return w.node(
        "BatchNormalization", o.name(0), weight, bias, o.name(3), o.name(4),
        epsilon=float(o.attributes[0]),
    )  # fmt: skip


@row(normalisation.layer_norm)
def _layer_norm(o: Operands) -> str:
    shape, eps = o.attributes
    weight = o.names[1] or o.w.array(np.ones(shape, o.type(0).dtype.numpy), "ones")
    return o.w.node(
        "LayerNormalization", o.name(0), weight, o.names[2], axis=-len(shape), epsilon=float(eps)
    )


@row(normalisation.group_norm)
def _group_norm(o: Operands) -> str:
    groups, eps = o.attributes
    w, shape, dtype = o.w, o.type(0).shape, o.type(0).dtype
    rows = w.node("Reshape", o.name(0), w.integers([0, groups, -1]))
    ones, zeros = w.array(np.ones(groups, dtype.numpy)), w.array(np.zeros(groups, dtype.numpy))
    name = w.node("InstanceNormalization", rows, ones, zeros, epsilon=float(eps))
    name = w.node("Reshape", name, w.node("Shape", o.name(0)))
    for operator, operand in (("Mul", o.names[1]), ("Add", o.names[2])):
        if operand is not None:
            each = w.reshape(operand, [shape[1], *[1] * (len(shape) - 2)])
            name = w.node(operator, name, each)
    return name


@row(activations.softmax)
def _softmax(o: Operands) -> str:
    return _along(o, "Softmax")


@row(activations.log_softmax)
def _log_softmax(o: Operands) -> str:
    return _along(o, "LogSoftmax")


def _along(o: Operands, operator: str) -> str:
    name = o.w.cast(o.name(0), o.type(0).dtype, o.results[0].dtype)
    return o.w.node(operator, name, axis=o.attributes[0])


def _activation(operator: str, *keys: str) -> Row:
    def write(o: Operands) -> str:
        attributes = dict(zip(keys, map(float, o.attributes)))
        return o.w.node(operator, o.name(0), **attributes)

    return write


ROWS[activations.leaky_relu] = _activation("LeakyRelu", "alpha")
ROWS[activations.elu] = _activation("Elu", "alpha")
ROWS[activations.celu] = _activation("Celu", "alpha")
ROWS[activations.selu] = _activation("Selu")
ROWS[activations.softsign] = _activation("Softsign")
ROWS[activations.hardswish] = _activation("HardSwish")


@row(activations.hardsigmoid)
def _hardsigmoid(o: Operands) -> str:
    return o.w.node("HardSigmoid", o.name(0), alpha=1 / 6, beta=0.5)


@row(activations.hardtanh)
def _hardtanh(o: Operands) -> str:
    low, high = (o.w.number(one, o.type(0).dtype) for one in o.attributes)
    return o.w.node("Clip", o.name(0), low, high)


@row(activations.silu)
def _silu(o: Operands) -> str:
    return o.w.node("Mul", o.name(0), o.w.node("Sigmoid", o.name(0)))


@row(activations.gelu)
def _gelu(o: Operands) -> str | None:
    if o.w.version < 20:
        return None
    return o.w.node("Gelu", o.name(0), approximate=o.attributes[0])


# --- tables and sequences -----------------------------------------------------------------------


@row(embedding.embedding)
def _embedding(o: Operands) -> str:
    return o.w.node("Gather", o.name(1), o.name(0), axis=0)


@row(indexing.index_tensors)
def _index_tensors(o: Operands) -> str | None:
    dims = o.attributes[0]
    if len(dims) != 1:
        return None
    return o.w.node("Gather", o.name(0), o.name(1), axis=dims[0])


@row(indexing.take)
def _take(o: Operands) -> str:
    return o.w.node("Gather", o.name(0), o.name(1), axis=o.attributes[0])


@row(indexing.gather)
def _gather(o: Operands) -> str | None:
    if not o.ndim:
        return None
    return o.w.node("GatherElements", o.name(0), o.name(1), axis=o.attributes[0])


_RECURRENT = {"lstm": ("LSTM", (0, 3, 1, 2)), "gru": ("GRU", (1, 0, 2))}


@row(recurrent.recurrent_layer)
def _recurrent_layer(o: Operands) -> list[str] | None:
    kind, reverse = o.attributes
    w, weights = o.w, o.names[4:8]
    if o.names[8] is not None or (weights[2] is None) != (weights[3] is None):
        return None
    operator, order = _RECURRENT.get(kind, ("RNN", (0,)))
    hidden = o.type(2).shape[-1]

    def sorted_rows(name: str) -> str:
        parts = w.several("Split", len(order), name, w.integers([hidden] * len(order)), axis=0)
        found = w.node("Concat", *(parts[k] for k in order), axis=0) if len(order) > 1 else parts[0]
        return found

    of_input, of_hidden = (w.unsqueeze(sorted_rows(one), [0]) for one in weights[:2] if one)
    bias = None
    if weights[2] is not None and weights[3] is not None:
        both = [sorted_rows(weights[2]), sorted_rows(weights[3])]
        bias = w.unsqueeze(w.node("Concat", *both, axis=0), [0])
    lengths = None
    if o.names[1] is not None:
        lengths = w.cast(o.names[1], o.type(1).dtype, dtypes.int32)
    starts = [w.unsqueeze(one, [0]) for one in o.names[2:4] if one is not None]
    options: dict[str, Any] = {"hidden_size": hidden}
    options["direction"] = "reverse" if reverse else "forward"
    if operator == "GRU":
        options["linear_before_reset"] = 1
    if kind == "rnn_relu":
        options["activations"] = ["Relu"]
    found = w.several(
        operator, 1 + len(starts), o.name(0), of_input, of_hidden, bias, lengths, *starts,
        **options,
    )  # fmt: skip
    return [w.squeeze(found[0], [1]), *(w.squeeze(one, [0]) for one in found[1:])]
