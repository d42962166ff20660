"""Sums and collections over ranks of local tensors, with gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metaop.differentiation.tape import TapeEntry
from metaop.dist.collectives import MPIWorld
from metaop.nn.functional.vision import pad
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.unified_graph.recording import Call, modes


def sum_over_ranks(input: Tensor, world: MPIWorld) -> Tensor:
    """The sum of what the ranks hold, on all of them; its gradient is summed over the ranks too.

    Every rank has to call it, and to take the gradient when one does.
    """
    world.agree(f"sum of {input.dtype.name}{list(input.shape)}", "collectives")
    value = np.ascontiguousarray(input.detach()._array())
    total = np.empty_like(value)
    request = world.communicator.Iallreduce(value, total)
    world.watchdog.wait(request.Test, f"sum of {input.dtype.name}{list(input.shape)}")
    result = from_array(total, input.dtype)
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
    """What the ranks hold, of one shape, along a new first dimension."""
    around = (0, 0) * input.ndim + (world.rank, world.size - 1 - world.rank)
    return sum_over_ranks(pad(input[None], around), world)  # type: ignore[index]
