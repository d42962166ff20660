"""`DistributedDataParallel`: every rank trains on its own batch; gradients are averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from metaop.differentiation.tape import running
from metaop.dist.collectives import MPIWorld, everyone
from metaop.dist.memory import memory_of
from metaop.errors import ArgumentError, DistributedError
from metaop.nn.module import Module
from metaop.nn.parallel.devices import check_devices
from metaop.nn.parallel.reducer import GradientReducer
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import is_grad_enabled
from metaop.tensor.host.arrays import array_of, tensor_on
from metaop.tensor.sharded import data_parallel
from metaop.unified_graph.tensor_type import CPU


class DistributedDataParallel(Module):
    """Wraps `module` for data-parallel training on all ranks of the job.

    At construction all ranks receive the parameters and buffers of rank 0. After each backward pass
    that reaches a parameter, the gradients are averaged over the ranks in buckets of
    `bucket_cap_mb` MB, overlapped with the computation of later gradients; ranks on one host reduce
    in shared memory. A gradient that only some ranks have counts as zero on the others; one that no
    rank has stays None. In training with `broadcast_buffers`, all ranks receive the buffers of rank
    0 before every forward pass and after every backward pass that averages. With
    `gradient_as_bucket_view` gradients stay in the buckets, where the next backward pass overwrites
    them. Unused parameters and changing graphs always work, whatever `find_unused_parameters` and
    `static_graph` are.

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
        # Whether the next backward pass averages: what its forward passes asked for, if any.
        self._averages: bool | None = None
        # The rank whose buffers all take, and what sums of gradients are divided by; `join` changes
        # them when ranks run out of batches.
        self._source = 0
        self._divisor: int | None = None
        self._joining: Callable[[], bool] | None = None
        self._world = MPIWorld(everyone()) if process_group is None else process_group.world
        self._check_equal_modules()
        if self._world.size == 1:
            return
        if init_sync:
            self._take_values(list(module.state_dict().values()))
        parameters = [p for p in module.parameters() if p.requires_grad]
        size = 25 if bucket_cap_mb is None else bucket_cap_mb
        self._reducer = GradientReducer(
            self._world, parameters, size * 2**20, gradient_as_bucket_view
        )
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._reached)

    def _reached(self, parameter: Parameter) -> None:
        """Called when a parameter gets a gradient: the pass is one of this module."""
        waiting = running.passes[0].at_end
        if self._end_pass not in waiting:
            waiting.append(self._end_pass)

    def _end_pass(self) -> None:
        """Averages the gradients of a backward pass; the ranks then take the buffers of rank 0."""
        asked, self._averages = self._averages, None
        if self.require_backward_grad_sync if asked is None else asked:
            self._reducer.reduce(self._divisor)
            # Now, when all ranks take part: one rank may evaluate or save the module alone.
            self._share_buffers()

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if is_grad_enabled():
            self._averages = self._averages or self.require_backward_grad_sync
        if self.require_backward_grad_sync:
            if self._joining is not None and is_grad_enabled():
                self._joining()
            self._share_buffers()
        return self.module(*inputs, **kwargs)

    def _share_buffers(self) -> None:
        """In training, gives all ranks the buffers of rank 0."""
        if self.broadcast_buffers and self.training and self._world.size > 1:
            buffers = list(self.module.buffers())
            if buffers:
                self._world.agree("broadcast of buffers", "collectives")
                self._take_values(buffers)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Only accumulates the gradients of forward passes inside: all but the last of a step.

        As in PyTorch, the forward pass decides, wherever its backward pass runs.
        """
        previous, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = previous

    @contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """Lets ranks have different numbers of batches: every rank runs its loop inside.

        A rank that has ended its loop gives zeros to the averages of the others, which are divided
        by all ranks, or without `divide_by_initial_world_size` by those that still train. In the
        end all ranks take the parameters and buffers of one that trained last. Every forward pass
        outside `no_sync` must have one backward pass. With `throw_on_early_termination`, all ranks
        raise DistributedError when the first one ends before the others.
        """
        if not enable or self._world.size == 1:
            yield
            return

        def meet(trains: bool) -> bool:
            """Learns which ranks still train; returns whether any does."""
            self._world.agree("a step of join", "collectives")
            mine = np.array([trains and k == self._world.rank for k in range(self._world.size)])
            training = np.flatnonzero(self._world.maximum(mine.astype(np.uint8)))
            if not len(training):
                return False
            if throw_on_early_termination and len(training) < self._world.size:
                raise DistributedError(
                    f"of {self._world.size} ranks only {training.tolist()} have another batch",
                    fix="omit throw_on_early_termination to let the others go on",
                )
            self._source = int(training[-1])
            self._divisor = None if divide_by_initial_world_size else len(training)
            return True

        self._joining = partial(meet, True)
        try:
            yield
            while meet(False):
                self._share_buffers()
                self._reducer.follow(self._divisor)
                self._share_buffers()
            self._world.agree("the end of join", "collectives")
            self._take_values(list(self.module.state_dict().values()))
        finally:
            self._joining, self._source, self._divisor = None, 0, None

    def _check_equal_modules(self) -> None:
        lines = [
            f"{name} {tensor.dtype.name}{list(tensor.shape)} on {tensor.device.type}"
            for name, tensor in self.module.state_dict().items()
        ]
        self._world.agree("\n".join(lines), "modules")

    def _take_values(self, tensors: Sequence[Tensor]) -> None:
        """Broadcasts the tensors of the source, all those on one device as one message."""
        for device in dict.fromkeys(tensor.device for tensor in tensors):
            memory = memory_of(device)
            chosen = [tensor for tensor in tensors if tensor.device is device]
            with memory.active():
                arrays = [array_of(tensor.detach()) for tensor in chosen]
                message = np.concatenate([one.reshape(-1).view(np.uint8) for one in arrays])
                request = self._world.transport_at(memory).broadcast(message, self._source)
                self._world.wait(request, "a broadcast of parameters and buffers")
                if self._world.rank != self._source:
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
