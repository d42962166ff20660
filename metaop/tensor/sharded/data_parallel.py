"""A program for one device, run by several ranks: what a data-parallel program does with tensors.

Every rank runs the whole program. What is trained (parameters, buffers, whatever requires
gradients) becomes a global tensor, whole on every rank. A local tensor that meets a global one in
an operation is data: it becomes global too, split along its first dimension, so that each rank
computes with its share of a batch. Global tensors have the values of one device, so losses,
gradients, statistics and decisions are those of one process.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, NdSbp, Sbp, Split
from metaop.errors import ArgumentError
from metaop.execution.executor import realize_alone
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.host.arrays import array_of
from metaop.tensor.sharded.global_tensor import distribute_tensor, spread
from metaop.unified_graph.recording import Call, meeting
from metaop.unified_graph.tensor_type import META, Device

# So many elements of a value are looked at to see that the ranks have the same one.
_LOOKED_AT = 4096


class _Program:
    """The ranks that train, as a mesh; None outside of a data-parallel program."""

    ranks: list[Any] | None = None


_program = _Program()


def begin(mesh: Sequence[int]) -> None:
    """Makes this program data-parallel from here on.

    Data are split along the first axis of a mesh of ranks; along others they are whole, and so is
    what is trained, unless `to_global` shards it otherwise.
    """
    ranks: Any = np.arange(prod(mesh)).reshape(mesh).tolist()
    _program.ranks = ranks
    meeting.joined, meeting.trained = _joined, _trained


def is_on() -> bool:
    """Whether this program is data-parallel."""
    return _program.ranks is not None


def refuse(what: str) -> None:
    """ArgumentError in a data-parallel program, for what distributes by itself."""
    if is_on():
        raise ArgumentError(
            f"{what} in a program that runs with --data-parallel",
            fix="leave --data-parallel out: the program distributes its work itself",
        )


def home_of(device: Device) -> Device:
    """The device of global tensors whose parts lie on devices of this kind."""
    if device.placement is not None or device is META:
        return device
    assert _program.ranks is not None
    home: Device = Placement(device.type, _program.ranks).device
    return home


def uniform_sharding(placement: Placement, first: Sbp) -> NdSbp:
    """A state along the first axis of a placement, whole values along the others."""
    return (first, *(BROADCAST,) * (len(placement.shape) - 1))


def _trained(call: Call) -> Call:
    """The value that rank 0 has, whole on every rank."""
    home = home_of(call.type.device)
    if home is call.type.device:
        return call
    return distribute_tensor(
        wrap(call), home.placement, uniform_sharding(home.placement, BROADCAST)
    ).call


def _joined(inputs: Sequence[Call | None]) -> Sequence[Call | None]:
    """The operands of a call; where one is global, all are."""
    return joined_by(_split, inputs)


def joined_by(
    place: Callable[[Tensor, Placement], Call], inputs: Sequence[Call | None]
) -> Sequence[Call | None]:
    """The operands of a call; where one is global, `place` makes the local ones so."""
    present = [call for call in inputs if call is not None]
    home = next((c.type.device for c in present if c.type.device.placement is not None), None)
    if home is None:
        return inputs
    return [
        call if call is None or call.scalar is not None or call.type.device is home
        else place(wrap(call), home.placement)
        for call in inputs
    ]  # fmt: skip


def split_all(value: Any) -> Any:
    """A nest of tuples, lists and dicts whose local tensors are made global, split as data."""
    if isinstance(value, Tensor):
        home = home_of(value.device)
        return value if home is value.device else wrap(_split(value, home.placement))
    if type(value) in (tuple, list):
        return type(value)(split_all(part) for part in value)
    if type(value) is dict:
        return {name: split_all(part) for name, part in value.items()}
    return value


def _split(data: Tensor, placement: Placement) -> Call:
    """Data that all ranks have alike, of which each takes its share of the first dimension."""
    if data.device.placement is None:
        realize_alone(data.call)
        value = array_of(data)
        kind = f"{data.dtype.name}{list(value.shape)}"
        placement.world.verify(
            f"data {kind} with checksum {_checksum(value)}; all ranks have to read or draw the same"
        )
    state = BROADCAST if data.requires_grad else Split(0)
    return spread(data, placement, uniform_sharding(placement, state)).call


def _checksum(value: Any) -> int:
    """A number by which values that differ are told apart, from some of their elements."""
    flat = value.reshape(-1)
    some = flat[:: max(1, flat.size // _LOOKED_AT)]
    return zlib.crc32((some.get() if hasattr(some, "get") else some).tobytes())
