"""Global tensors: one logical tensor over the ranks of a placement, with OneFlow's interface.

A global tensor is recorded, differentiated and updated like any other; how its value is sharded on
the ranks is decided when it is computed, by what its inputs are and by what has been asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from metaop.differentiation.entries import TapeEntry
from metaop.dist.boxing import Parts
from metaop.dist.mesh_world import mesh_shard, nothing_partial
from metaop.dist.moves import fits
from metaop.dist.placement import Placement
from metaop.dist.program import ShardedBuffer
from metaop.dist.sbp import BROADCAST, Broadcast, NdSbp, Partial, Sbp, Split, nd_text
from metaop.dist.transfer import transfer
from metaop.errors import ArgumentError, DistributedError
from metaop.execution.executor import realize
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.host.arrays import array_in, tensor_on
from metaop.tensor.sharded.mesh_placements import MeshPlacement, states_of
from metaop.tensor.surface import attribute, method
from metaop.unified_graph.recording import Call, leaf, modes, record
from metaop.unified_graph.reshard import reshard, reshard_gradient
from metaop.unified_graph.tensor_type import TensorType

SbpLike = Sbp | Sequence[Sbp]


@method()
def to_global(
    input: Tensor,
    placement: Placement | None = None,
    sbp: SbpLike | None = None,
    *,
    grad_sbp: SbpLike | None = None,
    check_meta: bool = True,
    copy: bool = False,
) -> Tensor:
    """The global tensor of which every rank gives its part, or a global one sharded as `sbp` says.

    Of ranks that have the same part, as with `broadcast`, the first one's is taken.

    Without `placement` a global tensor stays where it is; with another one, which may have any
    number of ranks, it moves there. The gradient goes the way back; `grad_sbp` says how it is
    sharded on arrival. Every rank of the placements has to call it.

    Raises ArgumentError for an `sbp` that does not suit the tensor or the mesh, and
    DistributedError, on all ranks, when they give parts that do not fit together (which is not
    looked at with `check_meta` False). `copy` is accepted: values are never shared.
    """
    device = input.device
    if device.placement is None:
        if placement is None or sbp is None:
            raise ArgumentError(
                "to_global() of a local tensor needs placement and sbp",
                fix='to_global(placement=placement.all("cpu"), sbp=sbp.broadcast)',
            )
        states = checked_states(sbp, input.ndim, placement)
        back = states if grad_sbp is None else checked_states(grad_sbp, input.ndim, placement)
        return _from_parts(input, placement, states, back, check_meta)
    here = device.placement
    if placement is not None and placement is not here:
        return _moved(input, here, placement, sbp, grad_sbp)
    result = input
    if grad_sbp is not None:
        states = checked_states(grad_sbp, input.ndim, here)
        result = wrap(record(reshard_gradient, (result.call,), (states,)))
    if sbp is not None:
        states = checked_states(sbp, input.ndim, here)
        result = wrap(record(reshard, (result.call,), (states,)))
    return result


def distribute_tensor(input: Tensor, placement: Placement, sbp: SbpLike) -> Tensor:
    """The global tensor whose value is the `input` of the placement's first rank.

    Every rank gives a tensor of the same shape and type, and keeps its part.

    >>> both = metaop.placement("cpu", ranks=[0, 1], simulate=True)
    >>> x = metaop.distributed.distribute_tensor(metaop.arange(4.0), both, metaop.sbp.split(0))
    >>> x.to_local(), x.shape
    (tensor([0., 1.]), metaop.Size([4]))
    """
    if input.device.placement is not None:
        return to_global(input, placement, sbp)
    states = checked_states(sbp, input.ndim, placement)
    value = placement.world.first(_own_value(input, placement))
    return _kept(input, value, placement, states)


def distribute_own(input: Tensor, placement: Placement, sbp: SbpLike) -> Tensor:
    """The global tensor of a local value that all ranks have alike; nothing is sent for it."""
    value = _own_value(input, placement)
    return _kept(input, value, placement, checked_states(sbp, input.ndim, placement))


def _own_value(input: Tensor, placement: Placement) -> Any:
    """A local value in the memory of a placement.

    What is pending is computed by all ranks, also those that have theirs: else they would compute
    global values that are pending at different times.
    """
    realize(input.call)
    return array_in(placement.memory, input)


def _kept(input: Tensor, value: Any, placement: Placement, states: NdSbp) -> Tensor:
    """The global tensor of a value that every rank has, by which `input` is meant."""
    world = placement.world
    with world.memory.active():
        parts = {
            k: mesh_shard(value, states, placement.shape, world.place(k)).copy()
            for k in world.owned
        }
    result = _global(parts, states, placement, value.shape, input)
    return _linked(result, input, lambda gradient: _beside(input, full_tensor(gradient)))


def spread_first(input: Tensor, placement: Placement, sbp: SbpLike) -> Tensor:
    """`spread`, of the value that the first rank has when the ranks have values of their own."""
    if input.device.placement is None:
        value = placement.world.first(_own_value(input, placement))
        input = tensor_on(value, input.dtype, placement.memory.device)
    return spread(input, placement, sbp)


def spread(input: Tensor, placement: Placement, sbp: SbpLike) -> Tensor:
    """The global tensor of a value that all ranks have alike, whole where it is too short to split.

    Nothing is sent for it.
    """
    states: NdSbp = ()
    for state, ranks in zip(_listed(sbp), placement.shape):
        rest = (BROADCAST,) * (placement.ranks.ndim - len(states) - 1)
        has = not isinstance(state, Split) or state.axis < input.ndim
        trial = (*states, state, *rest)
        possible = has and (ranks == 1 or fits(input.shape, trial, placement.shape))
        states = (*states, state if possible else BROADCAST)
    if input.device.placement is not None:
        return to_global(input, placement, states)
    value = array_in(placement.memory, input)
    return _kept(input, value, placement, checked_states(states, input.ndim, placement))


@method()
def to_local(
    input: Tensor,
    *,
    copy: bool = False,
    grad_sbp: SbpLike | None = None,
    grad_placements: Sequence[MeshPlacement] | None = None,
) -> Tensor:
    """What this rank holds of a global tensor, in memory of its own when `copy`.

    The ranks' gradients are the parts of one that is sharded as the tensor is, or as `grad_sbp`
    says (or `grad_placements`, in PyTorch's words): where every rank has the whole and makes
    something of its own of it, that is a partial sum. Raises DistributedError on a rank that is not
    in the tensor's placement.
    """
    placement, states = input.device.placement, _memory(input).states
    buffer = _memory(input)
    part = buffer.local()
    if copy:
        with placement.memory.active():
            part = part.copy()
    result = tensor_on(part, input.dtype, placement.memory.device)
    if grad_placements is not None:
        grad_sbp = states_of(grad_placements, placement.ranks.ndim)
    back = states if grad_sbp is None else checked_states(grad_sbp, input.ndim, placement)
    return _linked(result, input, lambda gradient: _from_parts(gradient, placement, back, back))


@method()
def full_tensor(input: Tensor, *, grad_placements: Sequence[MeshPlacement] | None = None) -> Tensor:
    """The whole value of a global tensor as a local one, on every rank and its device.

    Its gradient is that of the first rank; with `grad_placements`, the ranks' gradients are parts
    of one that lies so, such as summands if they are `Partial()`.
    """
    placement = _placement_of(input)
    with placement.memory.active():
        value = _memory(input).whole().copy()
    result = tensor_on(value, input.dtype, placement.memory.device)
    back = checked_states(states_of(grad_placements, placement.ranks.ndim), input.ndim, placement)
    if grad_placements is None:
        return _linked(result, input, lambda gradient: distribute_tensor(gradient, placement, back))
    return _linked(result, input, lambda gradient: _from_parts(gradient, placement, back, back))


@attribute("sbp")
def _sbp_of(input: Tensor) -> Sbp | NdSbp:
    """How a global tensor is sharded; it is computed now if it is not there yet.

    On a row of ranks one state, on a mesh of more axes a tuple of them, the outermost first.
    """
    states = _memory(input).states
    return states[0] if len(states) == 1 else states


def _memory(input: Tensor) -> ShardedBuffer:
    found = input.buffer()
    if not isinstance(found, ShardedBuffer):
        raise _no_global(input)
    return found


def _no_global(input: Tensor) -> ArgumentError:
    return ArgumentError(
        f"a tensor of shape {list(input.shape)} on {input.device} is not a global tensor",
        fix="make it one with to_global(placement=, sbp=)",
    )


def _listed(sbp: SbpLike) -> NdSbp:
    return (sbp,) if isinstance(sbp, (Split, Broadcast, Partial)) else tuple(sbp)


def checked_states(sbp: SbpLike, ndim: int, placement: Placement) -> NdSbp:
    """One state for each mesh axis; ArgumentError for anything else."""
    states = _listed(sbp)
    axes = placement.ranks.ndim
    known = all(isinstance(state, (Split, Partial, Broadcast)) for state in states)
    if len(states) != axes or not known:
        raise ArgumentError(
            f"sbp is {sbp!r} on a mesh of shape {list(placement.shape)}",
            fix=f"give {axes} of sbp.split(d), sbp.broadcast, sbp.partial_sum",
        )
    found: list[Sbp] = []
    for state in states:
        if isinstance(state, Split):
            if not -ndim <= state.axis < ndim:
                raise ArgumentError(
                    f"sbp is {nd_text(states)} for a tensor of {ndim} dimensions on {placement}",
                    fix=f"split one of the dimensions 0 to {ndim - 1}"
                    if ndim
                    else "a number cannot be split: use sbp.broadcast",
                )
            state = Split(state.axis % ndim)
        found.append(state)
    names = {state.op for state in found if isinstance(state, Partial)}
    if len(names) > 1:
        raise ArgumentError(f"sbp is {sbp!r}", fix="use one kind of partial values at a time")
    return tuple(found)


def _global(
    parts: Parts,
    states: NdSbp,
    placement: Placement,
    shape: Sequence[int],
    like: Tensor,
) -> Tensor:
    buffer = ShardedBuffer(parts, states, placement.world, shape, like.dtype.numpy)
    return _of_buffer(buffer, placement, like)


def _of_buffer(buffer: ShardedBuffer, placement: Placement, like: Tensor) -> Tensor:
    return wrap(leaf(TensorType(buffer.shape, like.dtype, placement.device), buffer))


def _from_parts(
    input: Tensor, placement: Placement, states: NdSbp, back: NdSbp, check: bool = True
) -> Tensor:
    world = placement.world
    if not world.owned:
        raise DistributedError(
            f"this rank gives a part of shape {list(input.shape)} to {placement}, of which it is "
            "none",
            fix="call it on the ranks of the placement, or distribute_tensor(whole, …) on all",
        )
    part = _own_value(input, placement)
    if check:
        cut = {state.axis for state in states if isinstance(state, Split)}
        known = ["*" if k in cut else extent for k, extent in enumerate(part.shape)]
        world.verify(f"to_global {input.dtype.name}{known} {nd_text(states)}".replace("'", ""))
    shape = world.whole_shape(part.shape, states)
    part = world.equal(part, states)
    with world.memory.active():
        parts = {rank: part.copy() for rank in world.owned}
    result = _global(parts, states, placement, shape, input)

    def own_part(gradient: Tensor) -> Tensor:
        return _beside(input, to_local(to_global(gradient, sbp=back)))

    return _linked(result, input, own_part)


def _beside(input: Tensor, gradient: Tensor) -> Tensor:
    """The gradient on the device of what it belongs to, which may not be that of the placement."""
    return gradient.to(input.device)


def _moved(
    input: Tensor,
    source: Placement,
    target: Placement,
    sbp: SbpLike | None,
    grad_sbp: SbpLike | None,
) -> Tensor:
    """The tensor on another placement, computed now; its gradient moves back."""
    buffer = _memory(input)
    wished = nothing_partial(buffer.states) if sbp is None else sbp
    states = checked_states(wished, input.ndim, target)
    result = _of_buffer(transfer(buffer, source, target, states), target, input)
    home = nothing_partial(buffer.states) if grad_sbp is None else grad_sbp
    return _linked(result, input, lambda gradient: to_global(gradient, source, home))


def _linked(result: Tensor, source: Tensor, back: Callable[[Tensor], Tensor]) -> Tensor:
    """`result` with a gradient that `back` takes to `source`."""
    if modes.gradients and source.requires_grad:

        def gradient(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
            return [None if one is None else back(wrap(one)).call for one in cotangents]

        result.call.requires_grad = True
        result.call.tape = TapeEntry(function=gradient, sources=(source.call,), name="to_global")
    return result


@attribute()
def is_global(input: Tensor) -> bool:
    """Whether the tensor lies on the ranks of a placement."""
    return input.device.placement is not None


@attribute()
def is_local(input: Tensor) -> bool:
    """Whether the tensor belongs to this process alone."""
    return input.device.placement is None


@attribute("placement")
def _placement_of(input: Tensor) -> Placement:
    """The ranks on which a global tensor lies."""
    if input.device.placement is None:
        raise _no_global(input)
    found: Placement = input.device.placement
    return found
