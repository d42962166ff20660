"""Conditionals and loops over graphs.

Steps that fit `metaop.scan` or `metaop.while_loop` become a loop of the program. Otherwise, if they
change the shapes of states for example, Python runs them, and reads the condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

import metaop
from metaop.errors import MetaopError, UnsupportedError
from metaop.onnx.operators.shaping import shape_of
from metaop.onnx.table import operator
from metaop.onnx.values import Host, has_tensor_type, to_host, to_tensor
from metaop.tensor.core import Tensor

# With fewer steps, a loop of the program does not pay.
_SHORTEST = 8
# Why a function does not fit a loop: it changes shapes, reads values, computes on the host.
_NO_LOOP = (MetaopError, TypeError, ValueError)


def _pays(steps: int | None) -> bool:
    """Whether to try a loop of the program; of no steps, only it knows the types of the stacks."""
    return not steps or steps >= _SHORTEST


def _can_be_carried(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.device.type == "cpu"
    return isinstance(value, np.ndarray) and has_tensor_type(value)


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


class _UndecidedError(Exception):
    """The number of steps depends on values."""


def _tensors(values: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(to_tensor(one) for one in values)


def _counted(steps: int, state: Sequence[Any], body: Any) -> Any:
    """The results of a fixed number of steps."""

    def step(states: Any, place: Tensor) -> Any:
        going, *made = body(place, np.array(True), *states)
        if isinstance(going, Tensor) or not _truth(going):
            raise _UndecidedError
        return _tensors(made[: len(state)]), _tensors(made[len(state) :])

    states, stacks = metaop.scan(step, _tensors(state), metaop.arange(steps))
    return (*states, *(stacks or ()))


def _conditional(most: int | None, condition: Any, state: Sequence[Any], body: Any) -> Any:
    """The states after steps that a value of the last one ends; they may stack nothing."""

    def goes_on(going: Tensor, count: Tensor, *states: Tensor) -> Tensor:
        return going if most is None else going & (count < most)

    def step(going: Tensor, count: Tensor, *states: Tensor) -> Any:
        going, *made = body(count, np.array(True), *states)
        if len(made) > len(state):
            raise UnsupportedError("no loop that its values end can stack outputs")
        return (to_tensor(going).reshape(()), count + 1, *_tensors(made))  # type: ignore

    first = metaop.tensor(True) if condition is None else to_tensor(condition).reshape(())  # type: ignore
    return metaop.while_loop(goes_on, step, (first, metaop.tensor(0), *_tensors(state)))[2:]


def _loop_of_program(most: int | None, condition: Any, state: Sequence[Any], body: Any) -> Any:
    """The results of a loop that the program runs; None if only Python can run it."""
    is_open = isinstance(condition, Tensor) or most is None
    try:
        if not is_open and (condition is None or _truth(condition)):
            assert most is not None
            return _counted(most, state, body)
    except _UndecidedError:
        is_open = True
    except _NO_LOOP:
        return None
    # No gradient flows through a loop whose length depends on values.
    if not is_open or metaop.is_grad_enabled():
        return None
    try:
        return _conditional(most, condition, state, body)
    except _NO_LOOP:
        return None


@operator("Loop")
def loop(limit: Host | None = None, condition: Any = None, *state: Any, body: Any) -> Any:
    """Runs a graph `limit` times, or while its condition holds: last states, stacked outputs."""
    most = None if limit is None else int(np.asarray(limit).reshape(-1)[0])
    if _pays(most) and all(map(_can_be_carried, state)):
        found = _loop_of_program(most, condition, state, body)
        if found is not None:
            return found
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
    if _pays(count) and all(map(_can_be_carried, values)):
        rows = [_moved(to_tensor(x), *how) for x, *how in zip(inputs, axes, repeat(0), turned)]
        found = _scanned(states, rows, body)
        if found is not None:
            ways = [scan_output_axes or repeat(0), scan_output_directions or repeat(0)]
            moved = [_moved(x, 0, *how) for x, *how in zip(found[kept:], *ways)]
            return (*found[:kept], *moved)
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


def _scanned(states: Sequence[Any], rows: Sequence[Tensor], body: Any) -> tuple[Any, ...] | None:
    """The last states and the stacks of a loop that the program runs; None if it cannot."""

    def step(carried: Any, parts: Any) -> Any:
        made = body(*carried, *parts)
        return _tensors(made[: len(states)]), _tensors(made[len(states) :])

    try:
        last, stacks = metaop.scan(step, _tensors(states), tuple(rows))
    except _NO_LOOP:
        return None
    return (*last, *(stacks or ()))


def _moved(x: Tensor, axis: int, place: int, is_reversed: Any) -> Tensor:
    """A tensor with an axis at another place, and its elements in the opposite order if asked."""
    moved: Any = x.movedim(axis, place)  # type: ignore[attr-defined]
    return moved.flip(place) if is_reversed else moved


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
