"""`DistributedDataParallel`: every rank trains on its own batch; gradients are averaged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from metaop.differentiation.tape import running
from metaop.dist.collectives import MPIWorld, everyone
from metaop.dist.memory import memory_of
from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.nn.parallel.devices import check_devices
from metaop.nn.parallel.reducer import GradientReducer
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor
from metaop.tensor.host.arrays import array_of, tensor_on
from metaop.tensor.sharded import data_parallel
from metaop.unified_graph.tensor_type import CPU


class DistributedDataParallel(Module):
    """Wraps `module` for data-parallel training on all ranks of the job.

    At construction all ranks receive the parameters and buffers of rank 0. After each backward pass
    that reaches a parameter, the gradients are averaged over the ranks in buckets of
    `bucket_cap_mb` MB, overlapped with the computation of later gradients; ranks on one host reduce
    in shared memory. A gradient that only some ranks have counts as zero on the others; one that no
    rank has stays None. With `broadcast_buffers` all ranks receive the buffers of rank 0 at every
    forward pass in training. With `gradient_as_bucket_view` gradients stay in the buckets, where
    the next backward pass overwrites them. Unused parameters and changing graphs always work,
    whatever `find_unused_parameters` and `static_graph` are.

    If parameters differ in name, shape or type between ranks, construction fails on all ranks.
    Raises ArgumentError for devices other than that of the module, and for a `dim` other than 0.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        super().__init__()
        data_parallel.refuse("DistributedDataParallel")
        check_devices(module, device_ids, output_device)
        if dim != 0 or check_reduction:
            raise ArgumentError(
                f"DistributedDataParallel got {dim=}, {check_reduction=}",
                fix="omit them: every rank passes its own batch to the module",
            )
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        self.require_backward_grad_sync = True
        self._world = MPIWorld(everyone()) if process_group is None else process_group.world
        self._check_equal_modules()
        if self._world.size == 1:
            return
        if init_sync:
            self._take_values_of_rank_0(list(module.state_dict().values()))
        parameters = [p for p in module.parameters() if p.requires_grad]
        size = 25 if bucket_cap_mb is None else bucket_cap_mb
        self._reducer = GradientReducer(
            self._world, parameters, size * 2**20, gradient_as_bucket_view
        )
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._reached)

    def _reached(self, parameter: Parameter) -> None:
        """Called when a parameter gets a gradient: averages all when the backward pass ends."""
        waiting = running.passes[0].at_end
        if self.require_backward_grad_sync and self._reducer.reduce not in waiting:
            waiting.append(self._reducer.reduce)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        shares = self.broadcast_buffers and self.require_backward_grad_sync and self.training
        if shares and self._world.size > 1:
            buffers = list(self.module.buffers())
            if buffers:
                self._world.agree("broadcast of buffers", "collectives")
                self._take_values_of_rank_0(buffers)
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Only accumulates gradients inside: for all but the last backward of a step."""
        previous, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = previous

    def _check_equal_modules(self) -> None:
        lines = [
            f"{name} {tensor.dtype.name}{list(tensor.shape)} on {tensor.device.type}"
            for name, tensor in self.module.state_dict().items()
        ]
        self._world.agree("\n".join(lines), "modules")

    def _take_values_of_rank_0(self, tensors: Sequence[Tensor]) -> None:
        """Broadcasts the tensors of rank 0, all those on one device as one message."""
        for device in dict.fromkeys(tensor.device for tensor in tensors):
            memory = memory_of(device)
            chosen = [tensor for tensor in tensors if tensor.device is device]
            with memory.active():
                arrays = [array_of(tensor.detach()) for tensor in chosen]
                message = np.concatenate([one.reshape(-1).view(np.uint8) for one in arrays])
                request = self._world.transport_at(memory).broadcast(message, 0)
                self._world.wait(request, "a broadcast of parameters and buffers")
                if self._world.rank:
                    self._put(chosen, arrays, message)

    def _put(self, tensors: Sequence[Tensor], arrays: Sequence[Any], message: Any) -> None:
        start = 0
        for tensor, array in zip(tensors, arrays):
            value = message[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            start += array.nbytes
            if tensor.device is CPU:
                array[...] = value
            else:
                # Initially equal values may share memory on a GPU.
                own = tensor_on(value.copy(), tensor.dtype, tensor.device)
                tensor.data.copy_(own)  # type: ignore[attr-defined]
