"""Averaging gradients over ranks, bucket by bucket, while backward computes the next ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from metaop.codegen.memory.buffers import allocate
from metaop.dist.collectives import MPIWorld
from metaop.dist.memory import memory_of
from metaop.dist.packing import Packed, Packing
from metaop.errors import UnsupportedError
from metaop.execution.executor import realize_and_watch
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.host.arrays import array_at, array_of, tensor_on
from metaop.unified_graph.dtype import DType
from metaop.unified_graph.recording import Call
from metaop.unified_graph.tensor_type import CPU, Device


class Bucket:
    """Parameters of one dtype and device whose gradients are averaged together.

    With `in_place` the means stay in the bucket's memory, where the next ones overwrite them.
    """

    def __init__(self, parameters: Sequence[Parameter], world: MPIWorld, in_place: bool) -> None:
        self.parameters = list(parameters)
        self.world = world
        self.dtype = np.dtype(parameters[0].dtype.numpy)
        self.device = parameters[0].device
        self.source = memory_of(self.device)
        self.packing = Packing([tuple(p.shape) for p in parameters], self.dtype)
        self.memory = self._new_memory() if in_place else None
        # The average in flight: the gradients' arrays, the means and the request.
        self.arrays: dict[Parameter, Any] = {}
        self.means: Any = None
        self.request: Any = None

    def _new_memory(self) -> Any:
        size = self.packing.size
        if self.device is CPU:
            return allocate(size * self.dtype.itemsize).view((size,), self.dtype)
        return self.source.full((size,), 0, self.dtype)

    @property
    def is_complete(self) -> bool:
        """Whether all gradients of the bucket are computed."""
        return len(self.arrays) == len(self.parameters)

    def start(self, ranks: int) -> None:
        """Starts to add the gradients, divided by a number of ranks."""
        arrays = [self.arrays[parameter] for parameter in self.parameters]
        self.means = self._new_memory() if self.memory is None else self.memory
        transport = self.world.transport_at(self.source)
        with self.source.active():
            packed = Packed(self.packing, arrays)
            self.request = transport.all_reduce(packed, self.means, "add", 1.0 / ranks)

    def finish(self, used: set[Parameter]) -> None:
        """Waits for the means and sets them as the gradients of parameters that a rank used."""
        self.world.wait(self.request, f"averaging of {self.means.nbytes} bytes of gradients")
        for parameter, mean in zip(self.parameters, self.packing.parts(self.means)):
            if parameter in used:
                self._set(parameter, tensor_on(mean, parameter.dtype, self.device))
        self.arrays, self.request = {}, None

    @no_grad()
    def _set(self, parameter: Parameter, mean: Tensor) -> None:
        """Sets a gradient; one that passes add to in place is written in place as well.

        Programs may hold such a tensor, or a flat buffer of which it is a view.
        """
        grad: Any = parameter.grad
        if self.memory is None and grad is not None and grad._version:
            grad.copy_(mean)
        else:
            parameter.grad = mean


class GradientReducer:
    """Averages the gradients of `parameters`, which are equal in number and shape on all ranks.

    A bucket is reduced while the gradients of later ones are computed.
    """

    def __init__(
        self,
        world: MPIWorld,
        parameters: Sequence[Parameter],
        bucket_bytes: float,
        in_place: bool = False,
    ) -> None:
        self.world = world
        self.parameters = list(parameters)
        self.buckets = [
            Bucket(chosen, world, in_place) for chosen in _packed(self.parameters, bucket_bytes)
        ]

    def reduce(self, ranks: int | None = None) -> None:
        """Replaces every gradient by its mean over the ranks; all ranks must call it.

        The sum is divided by `ranks`, by default all. A missing gradient counts as zero if another
        rank has one; if none has, it stays None.
        """
        if any(p.grad is not None and p.grad.is_sparse for p in self.parameters):
            raise UnsupportedError(
                "only dense gradients are averaged over ranks, got a sparse one",
                fix="omit sparse=True of the embedding",
            )
        given = {p: p.grad for p in self.parameters if p.grad is not None}
        self._average(given, ranks, self._used_somewhere)

    def follow(self, ranks: int | None = None) -> None:
        """Takes part in the `reduce` of other ranks with zeros, and keeps the gradients here."""

        def none_here(mine: Mapping[Parameter, Tensor]) -> set[Parameter]:
            self._used_somewhere(mine)
            return set()

        self._average({}, ranks, none_here)

    def _average(
        self,
        given: Mapping[Parameter, Tensor],
        ranks: int | None,
        used_of: Callable[[Mapping[Parameter, Tensor]], set[Parameter]],
    ) -> None:
        """Averages gradients, and sets those of the parameters that `used_of` names."""
        self.world.agree("averaging of gradients", "collectives")
        used = used_of(given)
        averaging = _Averaging(self.buckets, given, ranks or self.world.size)
        realize_and_watch([grad.call for grad in given.values()], averaging.progress)
        averaging.start_all()
        for bucket in self.buckets:
            bucket.finish(used)

    def _used_somewhere(self, given: Mapping[Parameter, Tensor]) -> set[Parameter]:
        mine = np.array([p in given for p in self.parameters], np.uint8)
        return {p for p, used in zip(self.parameters, self.world.maximum(mine)) if used}


class _Averaging:
    """The buckets of a backward pass, started in the same order on every rank."""

    def __init__(
        self, buckets: Sequence[Bucket], given: Mapping[Parameter, Tensor], ranks: int
    ) -> None:
        self.ranks = ranks
        self.waiting = list(reversed(buckets))
        self.under_way: list[Bucket] = []
        self.owners: dict[Call, list[tuple[Bucket, Parameter, Tensor]]] = {}
        for bucket in buckets:
            for parameter in bucket.parameters:
                grad = given.get(parameter)
                if grad is None:
                    zeros = bucket.source.full(parameter.shape, 0, bucket.dtype)
                    bucket.arrays[parameter] = zeros
                else:
                    self.owners.setdefault(grad.call, []).append((bucket, parameter, grad))

    def progress(self, call: Call | None, buffer: Any) -> None:
        """Accepts a computed gradient, and progresses the buckets in flight."""
        if call is not None:
            for bucket, parameter, _ in self.owners.pop(call, ()):
                bucket.arrays[parameter] = array_at(buffer, call.type)
        while self.waiting and self.waiting[-1].is_complete:
            self._start_next()
        for bucket in self.under_way:
            bucket.request.Test()

    def start_all(self) -> None:
        """Starts the remaining buckets, when all gradients are computed."""
        for owners in self.owners.values():
            for bucket, parameter, grad in owners:
                bucket.arrays[parameter] = array_of(grad.detach())
        while self.waiting:
            self._start_next()

    def _start_next(self) -> None:
        bucket = self.waiting.pop()
        bucket.start(self.ranks)
        self.under_way.append(bucket)


def _packed(parameters: Sequence[Parameter], limit: float) -> list[list[Parameter]]:
    """Packs the parameters, last first, into lists of one dtype and device.

    A list has at most `limit` bytes, or a single parameter.
    """
    buckets: list[list[Parameter]] = []
    room = 0.0
    for parameter in reversed(parameters):
        nbytes = parameter.call.type.nbytes
        if not buckets or nbytes > room or _kind(buckets[-1][0]) != _kind(parameter):
            buckets.append([])
            room = limit
        buckets[-1].append(parameter)
        room -= nbytes
    return buckets


def _kind(parameter: Parameter) -> tuple[DType, Device]:
    return parameter.dtype, parameter.device
