"""Conditionals and loops over graphs; Python decides, so it reads the condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import metaop
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import operator
from metaop.onnx.values import Host, to_host, to_tensor


def _truth(value: Any) -> bool:
    return bool(np.asarray(to_host(value)).reshape(-1)[0])


@operator("If")
def branch(condition: Host, *, then_branch: Any, else_branch: Any) -> tuple[Any, ...]:
    """The results of one of two graphs."""
    return tuple((then_branch if _truth(condition) else else_branch)())


def _stacked(values: list[Any], dim: int = 0, reverse: bool = False) -> Any:
    if reverse:
        values = values[::-1]
    if values and all(isinstance(one, np.ndarray) for one in values):
        return np.stack(values, dim)
    return metaop.stack([to_tensor(one) for one in values], dim)


@operator("Loop")
def loop(limit: Host | None = None, condition: Any = None, *state: Any, body: Any) -> Any:
    """Runs a graph `limit` times, or while its condition holds: last states, stacked outputs."""
    most = None if limit is None else int(np.asarray(limit).reshape(-1)[0])
    going = condition is None or _truth(condition)
    states, count, collected = list(state), 0, []
    while going and (most is None or count < most):
        results = body(np.array(count, np.int64), np.array(True), *states)
        going = _truth(results[0])
        states = results[1 : 1 + len(state)]
        collected.append(results[1 + len(state) :])
        count += 1
    columns = (
        [_stacked([row[k] for row in collected]) for k in range(len(collected[0]))]
        if (collected)
        else []
    )
    return (*states, *columns)


@operator("Scan", since=9)
def scan(
    *values: Any,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> Any:
    """Runs a graph on slices of tensors: last states, stacked outputs."""
    kept = len(values) - num_scan_inputs
    states, inputs = list(values[:kept]), values[kept:]
    axes = scan_input_axes or [0] * num_scan_inputs
    turned = scan_input_directions or [0] * num_scan_inputs
    count = shape_of(inputs[0])[axes[0]]
    collected = []
    for step in range(count):
        places = [count - 1 - step if backwards else step for backwards in turned]
        parts = [_slice(x, axis, place) for x, axis, place in zip(inputs, axes, places)]
        results = body(*states, *parts)
        states = results[:kept]
        collected.append(results[kept:])
    width = len(collected[0]) if collected else 0
    out_axes = scan_output_axes or [0] * width
    backwards = scan_output_directions or [0] * width
    columns = [
        _stacked([row[k] for row in collected], out_axes[k], bool(backwards[k]))
        for k in range(width)
    ]
    return (*states, *columns)


def _slice(x: Any, axis: int, place: int) -> Any:
    return np.take(x, place, axis) if isinstance(x, np.ndarray) else x.select(axis, place)


@operator("Scan", since=8)
def scan_of_batches(
    lengths: Host | None, *values: Any, body: Any, num_scan_inputs: int, directions: Any = None
) -> Any:
    """Version 8: the first dimension is a batch, which is scanned sample by sample."""
    kept = len(values) - num_scan_inputs
    rows = []
    for sample in range(shape_of(values[kept])[0]):
        own = [_slice(value, 0, sample) for value in values]
        if lengths is not None:
            end = int(lengths[sample])
            own[kept:] = [value[:end] for value in own[kept:]]
        rows.append(
            scan(*own, body=body, num_scan_inputs=num_scan_inputs, scan_input_directions=directions)
        )
    return tuple(_stacked([row[k] for row in rows]) for k in range(len(rows[0])))
