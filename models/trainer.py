"""A trainer: steps, a log, checkpoints, and parallel training.

The file of a network defines its batches and its loss; `Trainer` does the rest, on one device or
parallelised by the options `--data-parallel`, `--tensor-parallel`, `--pipeline` and
`--auto-parallel`. The losses equal those on one device.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import metaop
from metaop import nn
from metaop.errors import ArgumentError

from .demonstration import Checkpoint, train
from .parallel import Parallel, gather, placed

Values = dict[str, metaop.Tensor]


@dataclass
class Training:
    """How to train: the number of `steps`, and the norm `clip` of gradients (0: no clipping).

    `checkpoint` is a file or a folder, written after every `every` steps and resumed from; the file
    `log` gets a line of JSON for each step. A pipeline splits batches into `micro_batches`.
    """

    steps: int
    checkpoint: str = ""
    every: int = 100
    log: str = ""
    clip: float = 0.0
    micro_batches: int = 1
    parallel: Parallel = field(default_factory=Parallel)

    @classmethod
    def of(cls, options: argparse.Namespace, **further: Any) -> Training:
        """From the options of a demonstration, and `further` fields."""
        known = {"checkpoint": options.checkpoint, "log": getattr(options, "log", "")}
        return cls(options.steps, **known, parallel=Parallel.of(options), **further)


@dataclass
class Trainer:
    """Trains a network on batches.

    `batch(number)` returns the tensors of a step. `values(network, *batch)` returns scalars by
    name, of which "loss" is minimised; `network` is the model, or the stages of its pipeline. In a
    pipeline the first `inputs` tensors of a batch are inputs of the network, the others are
    targets. A step depends only on its number, the network, the optimizer and metaop's random
    state, so a training that resumes from a checkpoint, on any ranks, equals an uninterrupted one.

    Example:
        Trainer(model, optimizer, batch, values, Training(steps=100)).fit("MLP")
    """

    model: nn.Module
    optimizer: metaop.optim.Optimizer
    batch: Callable[[int], Sequence[metaop.Tensor]]
    values: Callable[..., Values]
    training: Training
    inputs: int = 1

    def fit(self, title: str) -> dict[str, list[float]]:
        """Takes the remaining steps; returns the values of all steps by name."""
        training = self.training
        step = self._step_in_parts() if self._is_cut else self._step
        checkpoint = Checkpoint(
            training.checkpoint, training.every, model=self.model, optimizer=self.optimizer
        )
        history = train(step, training.steps, title, checkpoint, training.log)
        if training.parallel.pipeline > 1:
            gather(self.model)
        return history

    @metaop.no_grad()
    def evaluate(self, batches: Iterable[Sequence[metaop.Tensor]]) -> dict[str, float]:
        """The means of `values` over batches, weighted by their lengths, in evaluation mode."""
        self.model.eval()
        sums: dict[str, float] = {}
        count = 0
        for batch in batches:
            size = len(batch[0])
            count += size
            for name, value in self.values(self.model, *batch).items():
                sums[name] = sums.get(name, 0.0) + size * value.item()
        self.model.train()
        return {name: total / count for name, total in sums.items()}

    @property
    def _is_cut(self) -> bool:
        parallel = self.training.parallel
        return parallel.auto or parallel.tensor > 1 or parallel.pipeline > 1

    def _step(self, number: int) -> Values:
        values = self.values(self.model, *self.batch(number))
        self.optimizer.zero_grad()
        values["loss"].backward()
        if self.training.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.training.clip)
        self.optimizer.step()
        return {name: value.detach() for name, value in values.items()}

    def _step_in_parts(self) -> Callable[[int], Values]:
        """The step of a network that is distributed over ranks."""
        parallel = self.training.parallel
        if parallel.pipeline == 1 and not parallel.auto:
            home = metaop.distributed.data_parallel.home_of(next(self.model.parameters()).device)
            parallel.cut(self.model, home.placement, self.model)
            return self._step
        if self.training.clip:
            raise ArgumentError(
                "gradients cannot be clipped in a pipeline or with auto parallel",
                fix="use --data-parallel or --tensor-parallel",
            )
        if parallel.auto:
            graph = _graph(self, self.model)
            graph.config.enable_auto_parallel()
            split = metaop.distributed.data_parallel.split_all
            return lambda number: graph(*split(list(self.batch(number))))
        stages, meshes = parallel.stages(self.model), parallel.meshes()
        graph = _graph(self, stages)
        for number, mesh in enumerate(meshes):
            graph.model[number].config.set_stage(number, mesh)
        graph.config.set_gradient_accumulation_steps(self.training.micro_batches)
        return lambda number: graph(*placed(self.batch(number), self.inputs, meshes))


def _graph(trainer: Trainer, network: nn.Module) -> Any:
    """A training step as an `nn.Graph`, which is planned as a whole."""

    class Step(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model: Any = network
            self.add_optimizer(trainer.optimizer)

        def build(self, *batch: metaop.Tensor) -> Values:
            values = trainer.values(self.model, *batch)
            values["loss"].backward()
            return values

    return Step()
