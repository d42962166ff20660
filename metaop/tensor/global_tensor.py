"""Global tensors: one logical tensor over the ranks of a placement, with OneFlow's interface.

A global tensor is recorded, differentiated and updated like any other; how its value lies on the
ranks is decided when it is computed, by what its inputs are and by what has been asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from metaop.differentiation.tape import TapeEntry
from metaop.dist.boxing import shard
from metaop.dist.placement import Placement
from metaop.dist.program import ShardedBuffer
from metaop.dist.sbp import BROADCAST, Partial, Sbp, Split
from metaop.errors import ArgumentError, UnsupportedError
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.unified_graph.recording import Call, leaf, modes, record
from metaop.unified_graph.reshard import reshard
from metaop.unified_graph.tensor_type import TensorType

SbpLike = Sbp | Sequence[Sbp]


def to_global(
    input: Tensor, placement: Placement | None = None, sbp: SbpLike | None = None
) -> Tensor:
    """The global tensor of which every rank gives its part, or a global one lying as `sbp` says.

    Without `placement` a global tensor stays where it is. The gradient goes the way back.
    """
    device = input.device
    if device.placement is None:
        if placement is None or sbp is None:
            raise ArgumentError(
                "to_global() of a local tensor needs placement and sbp",
                fix='to_global(placement=placement.all("cpu"), sbp=sbp.broadcast)',
            )
        return _from_parts(input, placement, _state(sbp, input.ndim))
    if placement is not None and placement is not device.placement:
        raise UnsupportedError(
            f"moving from {device.placement} to {placement}",
            fix="use to_global(sbp=sbp.broadcast).to_local() and to_global on the other ranks",
        )
    if sbp is None:
        return input
    return wrap(record(reshard, (input.call,), (_state(sbp, input.ndim),)))


def distribute_tensor(input: Tensor, placement: Placement, sbp: SbpLike) -> Tensor:
    """The global tensor whose value is `input`, which every rank has: each keeps its part."""
    state = _state(sbp, input.ndim)
    value = input._array()
    ranks = placement.world.size
    parts = {k: shard(value, state, ranks, k).copy() for k in placement.world.owned}
    result = _global(parts, state, placement, value.shape, input)
    return _linked(result, input, lambda gradient: full_tensor(gradient))


def spread(input: Tensor, placement: Placement, sbp: Sbp) -> Tensor:
    """`distribute_tensor`, or the whole on every rank where the dimension is too short to split."""
    if isinstance(sbp, Split):
        ranks = placement.world.size
        if sbp.axis >= input.ndim or input._shape[sbp.axis] < ranks:
            sbp = BROADCAST
    if input.device.placement is not None:
        return to_global(input, placement, sbp)
    return distribute_tensor(input, placement, sbp)


def to_local(input: Tensor) -> Tensor:
    """What this rank holds of a global tensor."""
    placement, state = input.device.placement, _sbp_of(input)
    result = from_array(_memory(input).local(), input.dtype)
    return _linked(result, input, lambda gradient: _from_parts(gradient, placement, state))


def full_tensor(input: Tensor) -> Tensor:
    """The whole value of a global tensor as a local one, on every rank."""
    placement = input.device.placement
    result = from_array(input._array().copy(), input.dtype)
    return _linked(
        result, input, lambda gradient: distribute_tensor(gradient, placement, BROADCAST)
    )


def _sbp_of(input: Tensor) -> Sbp:
    """How a global tensor lies; it is computed now if it is not there yet."""
    return _memory(input).sbp


def _memory(input: Tensor) -> ShardedBuffer:
    found = input.buffer()
    if not isinstance(found, ShardedBuffer):
        raise ArgumentError(
            f"a tensor of shape {list(input.shape)} on {input.device} is no global tensor",
            fix="make it one with to_global(placement=, sbp=)",
        )
    return found


def _state(sbp: SbpLike, ndim: int) -> Sbp:
    states = list(sbp) if isinstance(sbp, (list, tuple)) else [sbp]
    if len(states) != 1 or not isinstance(states[0], (Split, Partial, type(BROADCAST))):
        raise ArgumentError(
            f"sbp is {sbp!r}", fix="give one of sbp.split(d), sbp.broadcast, sbp.partial_sum"
        )
    state = states[0]
    if isinstance(state, Split):
        if not -ndim <= state.axis < ndim:
            raise ArgumentError(f"{state!r} of a tensor of {ndim} dimensions", fix="0 … ndim-1")
        return Split(state.axis % ndim)
    return state


def _global(
    parts: dict[int, np.ndarray],
    state: Sbp,
    placement: Placement,
    shape: Sequence[int],
    like: Tensor,
) -> Tensor:
    kind = TensorType(tuple(shape), like.dtype, placement.device)
    return wrap(leaf(kind, ShardedBuffer(parts, state, placement.world, shape)))


def _from_parts(input: Tensor, placement: Placement, state: Sbp) -> Tensor:
    world = placement.world
    part = input._array()
    shape = list(part.shape)
    if isinstance(state, Split):
        shape[state.axis] = world.total(part.shape[state.axis])
    world.verify(f"to_global {input.dtype.name}{shape} {state!r}")
    parts = {rank: part.copy() for rank in world.owned}
    result = _global(parts, state, placement, shape, input)
    return _linked(result, input, lambda gradient: to_local(to_global(gradient, sbp=state)))


def _linked(result: Tensor, source: Tensor, back: Callable[[Tensor], Tensor]) -> Tensor:
    """`result` with a gradient that `back` takes to `source`."""
    if modes.gradients and source.requires_grad:

        def gradient(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
            return [None if one is None else back(wrap(one)).call for one in cotangents]

        result.call.requires_grad = True
        result.call.tape = TapeEntry(function=gradient, sources=(source.call,), name="to_global")
    return result


def is_global(input: Tensor) -> bool:
    """Whether the tensor lies on the ranks of a placement."""
    return input.device.placement is not None


def _placement_of(input: Tensor) -> Placement:
    """The ranks on which a global tensor lies."""
    found: Placement = input.device.placement
    return found


placement, sbp = _placement_of, _sbp_of

METHODS = ("to_global", "to_local", "full_tensor")
PROPERTIES = ("is_global", "placement", "sbp")
