"""Pipeline parallelism under PyTorch's names: one stage per rank.

Example, on rank `rank` of `ranks`:

    stage = PipelineStage(blocks[rank], rank, ranks)
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=nn.functional.cross_entropy)
    schedule.step(images)          # on the first rank
    schedule.step(target=labels)   # on the last one; schedule.step() on the others
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from metaop.differentiation import tape
from metaop.dist.actor import Action, pipeline, run
from metaop.dist.collectives import MPIWorld, everyone
from metaop.dist.follow import Follower, Home
from metaop.dist.memory import memory_of
from metaop.errors import ArgumentError
from metaop.execution.executor import realize
from metaop.nn.module import Module
from metaop.nn.parallel.devices import check_devices
from metaop.nn.parallel.distributed import DistributedDataParallel
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.devices import moved
from metaop.tensor.functions.joining import cat, tensor_split
from metaop.tensor.host.arrays import array_of, tensor_on
from metaop.tensor.options import device_of
from metaop.unified_graph.dtype import from_numpy_dtype
from metaop.unified_graph.tensor_type import Device

# In host memory, or on the GPU of the stage.
Arrays = Sequence[Any]


class PipelineStage:
    """The part of a network that one rank runs: stage `stage_index` of `num_stages`.

    `group` has one rank for each stage, in order (default: all ranks of the job). The module takes
    what the previous stage's module returns: a tensor or a tuple of tensors. Shapes are sent with
    the tensors, so `input_args` and `output_args` are not needed. `device` is the module's device.
    Values go through NCCL between stages that have a GPU each, otherwise through host memory.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any = None,
        input_args: Any = None,
        output_args: Any = None,
        group: Any = None,
    ) -> None:
        self.world = MPIWorld(everyone()) if group is None else group.world
        if self.world.size != num_stages or self.world.rank != stage_index:
            raise ArgumentError(
                f"rank {self.world.rank} of {self.world.size} has stage {stage_index} of "
                f"{num_stages}",
                fix="give every rank of the group its own stage, in the order of the ranks",
            )
        check_devices(submodule, None, device)
        values = (*submodule.parameters(), *submodule.buffers())
        self.device = values[0].device if values else device_of(device)
        self.submodule = submodule
        self.index, self.count = stage_index, num_stages

    @cached_property
    def homes(self) -> list[Home]:
        """The ranks of all stages and their memories; every rank must call this."""
        mine = Home(everyone().rank, self.device.type)
        found: list[Home] = self.world.communicator.allgather(mine)
        return found

    @property
    def is_first(self) -> bool:
        """Whether this stage takes the input of the network."""
        return self.index == 0

    @property
    def is_last(self) -> bool:
        """Whether this stage computes the loss."""
        return self.index == self.count - 1


class _MicroBatches:
    """The acts of one stage in one step, and the values it keeps from a forward to its backward."""

    def __init__(self, stage: PipelineStage, loss: Callable[..., Any] | None, count: int) -> None:
        self.stage = stage
        self.loss = loss
        self.count = count
        self.inputs: list[tuple[Tensor, ...]] = []
        self.targets: Sequence[Tensor] = ()
        self.weights: list[float] = []
        self.stash: dict[int, tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = {}
        self.outputs: list[Tensor] = []
        self.losses: list[Tensor] = []

    def forward(self, number: int, inputs: Mapping[str, Arrays]) -> Arrays:
        """Runs the module on a micro-batch; the last stage also computes the loss."""
        given = self.inputs[number] if self.stage.is_first else self._received(inputs)
        results = self.stage.submodule(*given)
        values = results if isinstance(results, tuple) else (results,)
        if self.stage.is_last:
            if self.loss is None:
                self.outputs.append(values[0].detach())
            else:
                loss = self.loss(values[0], self.targets[number])
                self.outputs.append(values[0].detach())
                self.losses.append(loss.detach())
                values = (loss * self.weights[number],)
        self.stash[number] = given, values
        realize(*(value.call for value in values))
        return [] if self.stage.is_last else [array_of(value.detach()) for value in values]

    def backward(self, number: int, inputs: Mapping[str, Arrays]) -> Arrays:
        """Computes the gradient of a micro-batch, which the parameters accumulate."""
        given, values = self.stash.pop(number)
        if self.stage.is_last:
            roots = list(zip(values, [np.ones((), values[0].dtype.numpy)]))
        else:
            cotangents = next(arrays for name, arrays in inputs.items() if "backward" in name)
            tracked = [value for value in values if value.requires_grad]
            roots = list(zip(tracked, cotangents))
        pairs = [(value.call, _tensor(cotangent, value.device).call) for value, cotangent in roots]
        module = self.stage.submodule
        waits = isinstance(module, DistributedDataParallel) and number + 1 < self.count
        with module.no_sync() if waits else nullcontext():
            tape.backward(pairs, retain_graph=False, create_graph=False)
        realize()
        if self.stage.is_first:
            return []
        return [
            np.zeros(x.shape, x.dtype.numpy) if x.grad is None else array_of(x.grad.detach())
            for x in given
            if x.requires_grad
        ]

    def _received(self, inputs: Mapping[str, Arrays]) -> tuple[Tensor, ...]:
        """What the previous stage sent, as leaves that require a gradient, on this device."""
        (arrays,) = inputs.values()
        tensors = [_tensor(array, self.stage.device) for array in arrays]
        return tuple(
            tensor.requires_grad_() if tensor.dtype.is_floating_point else tensor
            for tensor in tensors
        )


def _tensor(array: Any, device: Device) -> Tensor:
    """The value on a device, in place or copied from the host."""
    dtype = from_numpy_dtype(array.dtype)
    assert dtype is not None
    if isinstance(array, np.ndarray):
        return moved(from_array(array, dtype), device)
    return tensor_on(array, dtype, device)


class _Schedule:
    """Splits a batch into micro-batches and runs a training step of a pipeline."""

    all_forwards_first: ClassVar[bool]

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Any] | None = None,
        **ignored: Any,
    ) -> None:
        self.stage = stage
        self.count = n_microbatches
        self.loss = loss_fn
        actors = pipeline(stage.count, n_microbatches, 1.0, 2.0, self.all_forwards_first)
        if loss_fn is None:
            actors = actors[: stage.count]
            for actor in actors:
                actor.consumers = [other for other in actor.consumers if other in actors]
                actor.returned = {other.name: 0 for other in actor.consumers}
        self.schedule = run(actors)
        self.actors = actors
        self.done: list[Action] = []

    def step(self, *args: Tensor, target: Tensor | None = None, losses: Any = None) -> Any:
        """Runs a forward pass and, with a loss, a backward pass of a whole batch.

        On the first stage, pass the inputs; on the last one, `target`. The last stage returns the
        outputs and appends the losses of the micro-batches to the list `losses`. If `loss_fn` is a
        mean over its micro-batch, gradients are those of the mean over the batch, even if
        micro-batches are uneven.
        """
        acts = _MicroBatches(self.stage, self.loss, self.count)
        if self.stage.is_first:
            acts.inputs = list(zip(*(self._cut(argument) for argument in args)))
        if self.stage.is_last and target is not None:
            acts.targets = self._cut(target)
            acts.weights = [len(part) / len(target) for part in acts.targets]
        name = self.stage.index
        work = {f"forward {name}": acts.forward, f"backward {name}": acts.backward}
        stages, memory = range(self.stage.count), memory_of(self.stage.device)
        homes = self.stage.homes
        follower = Follower(self.actors, stages, self.stage.world, memory, homes)
        self.done = follower.run(self.schedule, work)
        if losses is not None:
            losses[:] = acts.losses
        return cat(acts.outputs) if acts.outputs else None

    def _cut(self, value: Tensor) -> Sequence[Tensor]:
        if len(value) < self.count:
            raise ArgumentError(
                f"a batch of {len(value)} in {self.count} micro-batches",
                fix="use fewer micro-batches or a larger batch",
            )
        return tensor_split(value, self.count)


class Schedule1F1B(_Schedule):
    """One forward, one backward: stage `s` of `S` keeps `S - s` micro-batches at most."""

    all_forwards_first = False


class ScheduleGPipe(_Schedule):
    """All forwards, then all backwards: every stage keeps all micro-batches."""

    all_forwards_first = True
