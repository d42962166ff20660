"""Averaging gradients over ranks, bucket by bucket, in the order in which backward has them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from metaop.dist.arena import GradientArena, gradient_arena, is_one_host
from metaop.dist.collectives import MPIWorld
from metaop.executor import realize_in_turns
from metaop.nn.parameter import Parameter
from metaop.tensor.core import from_array

Means = list[np.ndarray]


class Bucket:
    """Some parameters and the memory in which their gradients are averaged."""

    def __init__(self, parameters: Sequence[Parameter], world: MPIWorld, in_place: bool) -> None:
        self.parameters = list(parameters)
        kinds = [(tuple(p.shape), np.dtype(p.dtype.numpy)) for p in parameters]
        self.arena: GradientArena = gradient_arena(world.communicator, kinds, in_place)

    def gradients(self) -> list[np.ndarray]:
        """The gradients as arrays; zeros for a parameter that this rank did not use."""
        return [
            np.zeros(p.shape, p.dtype.numpy) if p.grad is None else p.grad.detach()._array()
            for p in self.parameters
        ]

    def put(self, means: Sequence[np.ndarray], used: set[Parameter]) -> None:
        """Makes the means the gradients of the parameters that some rank used."""
        for parameter, mean in zip(self.parameters, means):
            if parameter in used:
                parameter.grad = from_array(mean, parameter.dtype)


class GradientReducer:
    """Averages the gradients of `parameters`, which are equal in number and shape on all ranks.

    With `overlap` a bucket travels while the gradients of the next ones are computed: worth it
    where ranks are on several hosts, which is the default. Within a host it would only cut the
    backward pass into more programs.
    """

    def __init__(
        self,
        world: MPIWorld,
        parameters: Sequence[Parameter],
        bucket_bytes: float,
        in_place: bool = False,
        overlap: bool | None = None,
    ) -> None:
        self.world = world
        self.parameters = list(parameters)
        self.buckets = [
            Bucket(chosen, world, in_place) for chosen in _packed(self.parameters, bucket_bytes)
        ]
        self.overlap = not is_one_host(world.communicator) if overlap is None else overlap

    def reduce(self) -> None:
        """Replaces every gradient by its mean over the ranks; all ranks have to call it.

        A parameter without a gradient counts as zero where another rank has one, and stays without
        where none has.
        """
        self.world.agree("averaging of gradients", "collectives")
        used = self._used_somewhere()
        if not self.overlap:
            for bucket in self.buckets:
                bucket.put(bucket.arena.mean(bucket.gradients()), used)
            return
        groups = [
            [p.grad.call for p in bucket.parameters if p.grad is not None]
            for bucket in self.buckets
        ]
        under_way: list[Future[Means]] = []
        with ThreadPoolExecutor(1, "gradients") as sender:
            for bucket, _ in zip(self.buckets, realize_in_turns(groups)):
                under_way.append(sender.submit(bucket.arena.mean, bucket.gradients()))
            for bucket, means in zip(self.buckets, under_way):
                bucket.put(means.result(), used)

    def _used_somewhere(self) -> set[Parameter]:
        mine = np.array([p.grad is not None for p in self.parameters], np.uint8)
        return {p for p, used in zip(self.parameters, self.world.maximum(mine)) if used}


def _packed(parameters: Sequence[Parameter], limit: float) -> list[list[Parameter]]:
    """The parameters, last first, in lists of at most `limit` bytes or one parameter."""
    buckets: list[list[Parameter]] = []
    room = 0.0
    for parameter in reversed(parameters):
        nbytes = parameter.call.type.nbytes
        if not buckets or nbytes > room:
            buckets.append([])
            room = limit
        buckets[-1].append(parameter)
        room -= nbytes
    return buckets
