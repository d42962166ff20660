"""Running a recorded step in micro-batches: one after another, or through a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from metaop.dist.actor import pipeline
from metaop.dist.actor import run as simulate
from metaop.dist.collectives import MPIWorld, everyone
from metaop.dist.follow import Follower, Home
from metaop.dist.placement import Placement
from metaop.dist.program import ShardedBuffer
from metaop.dist.sbp import Split
from metaop.distributed.crossings import MicroBatch
from metaop.errors import ArgumentError, UnsupportedError
from metaop.execution.executor import realize, realize_in_turns
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor, from_array, wrap
from metaop.tensor.functions.joining import cat, tensor_split
from metaop.tensor.grad_mode import no_grad
from metaop.trees import tree_flatten, tree_map, tree_unflatten
from metaop.unified_graph.cut import recorder
from metaop.unified_graph.recording import Call, leaf
from metaop.unified_graph.tensor_type import TensorType

Outputs = Any
Stages = Sequence[tuple[Placement, Module]]


class _Recorded:
    """The micro-batches of a step: their shares of the batch, outputs and gradients."""

    def __init__(self, args: Any, kwargs: Any, count: int, parameters: Sequence[Parameter]) -> None:
        leaves = [x for x in tree_flatten((args, kwargs))[0] if _is_batch(x)]
        self.count = count
        self.parameters = [p for p in parameters if p.requires_grad]
        self.shares = [_share(args, kwargs, count, number) for number in range(count)]
        sizes = [1.0] * count
        if leaves:
            sizes = [
                float(next(x for x in tree_flatten(share)[0] if _is_batch(x)).shape[0])
                for share in self.shares
            ]
        self.weights = [size / sum(sizes) for size in sizes]
        self.outputs: list[Any] = []
        self.totals: dict[Parameter, Tensor] = {}

    def build(self, function: Callable[..., Any], number: int) -> list[Tensor]:
        """Records a micro-batch; returns its gradients added to the previous ones."""
        for parameter in self.parameters:
            parameter.grad = None
        args, kwargs = self.shares[number]
        # Its outputs must not keep the tape of the micro-batch alive.
        self.outputs.append(tree_map(_detached, function(*args, **kwargs)))
        added = []
        with no_grad():
            for parameter in self.parameters:
                if parameter.grad is None:
                    continue
                own: Any = parameter.grad
                if self.count > 1:
                    own = own * self.weights[number]
                before: Any = self.totals.get(parameter)
                self.totals[parameter] = own if before is None else before + own
                added.append(self.totals[parameter])
        return added

    def finish(self) -> None:
        """Assigns the sums to the gradients of the parameters."""
        for parameter in self.parameters:
            parameter.grad = self.totals.get(parameter)


def run_in_turns(
    build: Callable[..., Any],
    args: Any,
    kwargs: Any,
    count: int,
    parameters: Sequence[Parameter],
    stages: Stages,
) -> Outputs:
    """Runs one micro-batch after another, without a pipeline."""
    recorded = _Recorded(args, kwargs, count, parameters)
    for number in range(count):
        recorded.build(build, number)
        if count > 1:
            realize()
    recorded.finish()
    return _together(recorded)


def run_pipeline(
    build: Callable[..., Any],
    args: Any,
    kwargs: Any,
    count: int,
    parameters: Sequence[Parameter],
    stages: Stages,
) -> Outputs:
    """Runs the micro-batches through the stages in the order of the actors' schedule (1F1B)."""
    placements = [placement for placement, _ in stages]
    mine = _own_stage(placements)
    recorded = _Recorded(args, kwargs, count, parameters)
    batches = [MicroBatch(placements) for _ in range(count)]
    ends: list[list[Call]] = []
    with nothing_computed():
        for number, batch in enumerate(batches):
            with _boundaries(stages, batch):
                added = recorded.build(build, number)
            device = placements[mine].device
            ends.append([total.call for total in added if total.device is device])
    last = placements[-1].device
    results = [
        [x.call for x in tree_flatten(output)[0] if isinstance(x, Tensor) and x.device is last]
        for output in recorded.outputs
    ]
    _follow(mine, placements, batches, ends, results)
    recorded.finish()
    for parameter in recorded.parameters:
        if parameter.device is not placements[mine].device:
            parameter.grad = None
    return _for_everyone(recorded, placements[-1])


def _own_stage(placements: Sequence[Placement]) -> int:
    ranks = np.concatenate([placement.ranks.ravel() for placement in placements])
    shapes = {placement.shape for placement in placements}
    if len(shapes) > 1 or np.unique(ranks).size != ranks.size:
        raise ArgumentError(
            f"pipeline stages on {', '.join(map(str, placements))}",
            fix="give the stages placements of one shape without a rank in common",
        )
    found = [k for k, placement in enumerate(placements) if placement.world.owned]
    if not found:
        raise ArgumentError(
            f"rank {everyone().rank} has no pipeline stage", fix="use as many ranks as stages have"
        )
    return found[0]


def _follow(
    mine: int,
    placements: Sequence[Placement],
    batches: Sequence[MicroBatch],
    ends: Sequence[Sequence[Call]],
    results: Sequence[Sequence[Call]],
) -> None:
    """Computes the parts of this rank's stage in the order of the schedule."""
    actors = pipeline(len(placements), len(batches))
    schedule = simulate(actors)
    place = placements[mine].world.owned[0]
    ranks = [int(placement.ranks.ravel()[place]) for placement in placements]
    is_last = mine == len(placements) - 1
    forward, backward = f"forward {mine}", f"backward {mine}"

    def pieces(name: str, number: int) -> list[Call]:
        batch = batches[number]
        if name == forward:
            return [*batch.forward[mine].sources, *(results[number] if is_last else ())]
        return [*batch.backward[mine].sources, *ends[number]]

    groups = [pieces(a.actor, a.number) for a in schedule if a.device == mine]
    turns = realize_in_turns(groups)

    def act_forward(number: int, inputs: Any) -> Sequence[Any]:
        for arrays in inputs.values():
            batches[number].forward[mine - 1].fill(arrays)
        next(turns)
        return batches[number].forward[mine].packed()

    def act_backward(number: int, inputs: Any) -> Sequence[Any]:
        for name, arrays in inputs.items():
            if name != forward:
                batches[number].backward[mine + 1].fill(arrays)
        next(turns)
        return batches[number].backward[mine].packed()

    homes = [Home(rank, placement.type) for rank, placement in zip(ranks, placements)]
    follower = Follower(actors, ranks, MPIWorld(everyone()), placements[mine].memory, homes)
    follower.run(schedule, {forward: act_forward, backward: act_backward})
    next(turns, None)


@contextmanager
def nothing_computed() -> Iterator[None]:
    """Keeps everything that is recorded inside pending."""
    recorder.own.paused = True
    try:
        yield
    finally:
        recorder.own.paused = False


@contextmanager
def _boundaries(stages: Stages, batch: MicroBatch) -> Iterator[None]:
    """Makes the inputs of a stage's module come from the previous stage through a register."""
    with ExitStack() as stack:
        for placement, module in stages:

            def enter(_: Module, args: Any, kwargs: Any, target: Placement = placement) -> Any:
                def brought(value: Any) -> Any:
                    return batch.bring(value, target) if isinstance(value, Tensor) else value

                return tree_map(brought, (args, kwargs))

            handle = module.register_forward_pre_hook(enter, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def micro_batch(args: Any, kwargs: Any, count: int) -> tuple[Any, Any]:
    """The arguments of the first of `count` micro-batches."""
    return _share(args, kwargs, count, 0)


# --- splitting a batch and concatenating results ------------------------------------------------


def _is_batch(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _share(args: Any, kwargs: Any, count: int, number: int) -> tuple[Any, Any]:
    """The arguments of one micro-batch."""
    if count == 1:
        return args, kwargs

    def part(value: Any) -> Any:
        if not _is_batch(value):
            return value
        if value.shape[0] < count:
            raise ArgumentError(
                f"a batch of {value.shape[0]} in {count} micro-batches",
                fix="use fewer gradient accumulation steps or a larger batch",
            )
        placed = value.device.placement is not None
        return _local_part(value, count, number) if placed else tensor_split(value, count)[number]

    cut: tuple[Any, Any] = tree_map(part, (args, kwargs))
    return cut


def _local_part(value: Tensor, count: int, number: int) -> Tensor:
    """A micro-batch of a global tensor: every rank cuts its own part, so nothing is sent."""
    whole: Any = value.buffer()
    with whole.world.memory.active():
        cut = {k: np.array_split(part, count)[number] for k, part in whole.parts.items()}
        parts = {k: part.copy() for k, part in cut.items()}
    axes = [k for k, state in enumerate(whole.states) if state == Split(0)]
    total = _micro_rows(value.shape[0], [whole.world.mesh[k] for k in axes], count, number)
    shape = (total, *value.shape[1:])
    buffer = ShardedBuffer(parts, whole.states, whole.world, shape, value.dtype.numpy)
    return wrap(leaf(TensorType(shape, value.dtype, value.device), buffer))


def _micro_rows(rows: int, extents: Sequence[int], count: int, number: int) -> int:
    """The number of rows that all ranks together contribute to a micro-batch."""
    blocks = [rows]
    for ranks in extents:
        blocks = [len(part) for block in blocks for part in np.array_split(range(block), ranks)]
    return sum(len(np.array_split(range(block), count)[number]) for block in blocks)


def _together(recorded: _Recorded) -> Outputs:
    """Averages scalars over the micro-batches and concatenates other tensors."""
    if recorded.count == 1:
        return recorded.outputs[0]
    flat = [tree_flatten(output) for output in recorded.outputs]
    columns = zip(*(leaves for leaves, _ in flat))
    return tree_unflatten([_joined(column, recorded.weights) for column in columns], flat[0][1])


def _joined(values: Sequence[Any], weights: Sequence[float]) -> Any:
    if not isinstance(values[0], Tensor):
        return values[0]
    if values[0].ndim and values[0].device.placement is not None:
        raise UnsupportedError(
            f"concatenating global tensors of shape {list(values[0].shape)} of micro-batches",
            fix="return scalars, or use one gradient accumulation step",
        )
    if values[0].ndim:
        return cat(values)
    total: Any = 0.0
    for value, weight in zip(values, weights):
        total = total + value * weight  # type: ignore[operator]
    return total


def _for_everyone(recorded: _Recorded, last: Placement) -> Outputs:
    """The scalars of the last stage as local tensors on all ranks."""
    result = _together(recorded)
    root = int(last.ranks.ravel()[0])

    def local(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.ndim or value.device.placement is not last:
            raise ArgumentError(
                f"a pipeline returns a tensor of shape {list(value.shape)} on {value.device}",
                fix="return scalars of the last stage",
            )
        found = value._array().copy() if last.world.owned else None
        return from_array(everyone().bcast(found, root), value.dtype)

    return tree_map(local, result)
