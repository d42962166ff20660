"""Sums and stacks of local tensors over ranks, with gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.differentiation.entries import TapeEntry
from metaop.dist.collectives import MPIWorld
from metaop.dist.memory import memory_of
from metaop.dist.packing import Packed
from metaop.nn.functional.vision import pad
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.host.arrays import array_of, tensor_on
from metaop.unified_graph.recording import Call, modes


def sum_over_ranks(input: Tensor, world: MPIWorld) -> Tensor:
    """Sums local tensors over all ranks; the gradient is summed over the ranks too.

    Every rank must call it, and run its backward if one does.
    """
    kind = f"{input.dtype.name}{list(input.shape)} on {input.device.type}"
    world.agree(f"sum of {kind}", "collectives")
    memory = memory_of(input.device)
    with memory.active():
        value = array_of(input.detach()).reshape(-1)
        total = np.empty_like(value)
        request = world.transport_at(memory).all_reduce(Packed.alone(value), total, "add")
        world.wait(request, f"sum of {kind}")
        result = tensor_on(total.reshape(tuple(input.shape)), input.dtype, input.device)
    if modes.gradients and input.requires_grad:

        def gradient(cotangents: Sequence[Call | None]) -> Sequence[Call | None]:
            (own,) = cotangents
            return [None if own is None else sum_over_ranks(wrap(own), world).call]

        result.call.requires_grad = True
        result.call.tape = TapeEntry(
            function=gradient, sources=(input.call,), name="SumOverRanksBackward"
        )
    return result


def stack_over_ranks(input: Tensor, world: MPIWorld) -> Tensor:
    """Stacks local tensors of one shape from all ranks along a new first dimension."""
    around = (0, 0) * input.ndim + (world.rank, world.size - 1 - world.rank)
    return sum_over_ranks(pad(input[None], around), world)  # type: ignore[index]
