"""`DistributedDataParallel`: every rank trains on its share of the batch; gradients are averaged.

Gradients are gathered in buckets and reduced when the backward pass has ended. On one host the
buckets lie in memory that all ranks share, and every rank adds up its own block of them in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from metaop.differentiation.tape import at_end
from metaop.dist.arena import GradientArena, gradient_arena
from metaop.dist.collectives import MPIWorld, mpi
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import from_array


class DistributedDataParallel(Module):
    """Wraps `module` for training on all ranks of the job, one share of the batch on each.

    At the start all ranks take the parameters and buffers of rank 0. When a backward pass that
    reached a parameter has ended, the gradients are averaged over the ranks; a parameter that a
    rank did not use counts as zero there. Ranks that differ in their parameters' names, shapes or
    types fail here, on all ranks.
    """

    def __init__(self, module: Module, device_ids: Sequence[Any] | None = None) -> None:
        super().__init__()
        self.module = module
        self._world = MPIWorld(mpi().COMM_WORLD)
        self._synchronises = True
        self._arena: GradientArena | None = None
        self._check_equal_modules()
        self._take_values_of_rank_0()
        if self._world.size > 1:
            for parameter in self._trained():
                parameter.register_post_accumulate_grad_hook(self._reached)

    def _trained(self) -> list[Parameter]:
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]

    def _reached(self, parameter: Any) -> None:
        """A parameter got a gradient: average all of them when this backward pass has ended."""
        if self._synchronises and self.synchronise not in at_end:
            at_end.append(self.synchronise)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients are only accumulated inside, as all but the last of several backwards want."""
        previous, self._synchronises = self._synchronises, False
        try:
            yield
        finally:
            self._synchronises = previous

    def synchronise(self) -> None:
        """Replaces every gradient by its mean over the ranks; all ranks have to call it."""
        parameters = self._trained()
        gradients = [_gradient(parameter) for parameter in parameters]
        sizes = [gradient.nbytes for gradient in gradients]
        if self._arena is None or self._arena.sizes != sizes:
            kinds = [(gradient.shape, gradient.dtype) for gradient in gradients]
            self._world.agree(repr(kinds), "gradients")
            self._arena = gradient_arena(self._world.communicator, kinds)
        for parameter, mean in zip(parameters, self._arena.mean(gradients)):
            parameter.grad = from_array(mean, parameter.dtype)

    def _check_equal_modules(self) -> None:
        lines = [
            f"{name} {tensor.dtype.name}{list(tensor.shape)}"
            for name, tensor in self.module.state_dict().items()
        ]
        self._world.agree("\n".join(lines), "modules")

    def _take_values_of_rank_0(self) -> None:
        for tensor in self.module.state_dict().values():
            raw = tensor.detach()._array()
            self._world.communicator.Bcast(raw.reshape(-1).view(np.uint8), 0)


def _gradient(parameter: Parameter) -> np.ndarray:
    """The gradient as an array; zeros for a parameter that this rank did not use."""
    if parameter.grad is None:
        return np.zeros(parameter.shape, parameter.dtype.numpy)
    return parameter.grad._array()
