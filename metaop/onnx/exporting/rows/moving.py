"""Scalar functions, and operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metaop.elementwise.functions import FUNCTIONS
from metaop.onnx.exporting import scalars
from metaop.onnx.exporting.rows.base import ROWS, Operands, Row, row
from metaop.operators import (
    basic,
    padding,
    pointwise,
    shaping,
)
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.dtype import DType, promote


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
    # Unchanged dimensions need not be known.
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
                    # A length that depends on an axis means everything up to the end.
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
