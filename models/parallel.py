"""Parallel training by options alone: data, tensor and pipeline parallelism over ranks.

    metaop run -np 4 -m models gpt train --data-parallel 2 --tensor-parallel 2
    metaop run -np 2 -m models vit train --auto-parallel

A program for one device needs no change for data and tensor parallelism: see docs/distribution.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import metaop
from metaop import nn
from metaop.errors import ArgumentError, DistributedError

# Options of networks that `Trainer` trains; every demonstration has --data-parallel.
OPTIONS: dict[str, Any] = {"tensor_parallel": 1, "pipeline": 1, "auto_parallel": False}


@dataclass(frozen=True)
class Parallel:
    """The degrees of data, tensor and pipeline parallelism; `auto` searches for a sharding."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    auto: bool = False

    @classmethod
    def of(cls, options: argparse.Namespace) -> Parallel:
        """From the options of a command line."""
        chosen = {**OPTIONS, **vars(options)}
        return cls(options.data_parallel, *(chosen[name] for name in OPTIONS))

    def start(self) -> None:
        """Joins the ranks; raises DistributedError if the job has another number of ranks."""
        parts = self.data * self.tensor * self.pipeline
        if min(self.data, self.tensor, self.pipeline) < 1:
            raise ArgumentError(f"{self} has a degree below 1", fix="use 1 or more")
        if self.auto and parts > 1:
            raise ArgumentError(
                f"{self}: auto excludes other degrees", fix="omit --auto-parallel or the others"
            )
        if parts == 1 and not self.auto:
            return
        ranks = metaop.distributed.get_world_size()
        if not self.auto and parts != ranks:
            raise DistributedError(
                f"{self} needs {parts} ranks, and the job has {ranks}",
                fix=f"start it with metaop run -np {parts} -m models …",
            )
        if self.pipeline > 1:
            metaop.distributed.data_parallel.become_one()
        else:
            mesh = None if self.auto else (self.data, self.tensor)
            metaop.distributed.data_parallel.begin(mesh)

    def meshes(self) -> list[Any]:
        """A mesh of data × tensor ranks for each stage of the pipeline."""
        size = self.data * self.tensor
        ranks = np.arange(size * self.pipeline).reshape(self.pipeline, self.data, self.tensor)
        return [metaop.placement("cpu", stage.tolist()) for stage in ranks]

    def stages(self, model: nn.Module) -> Chain:
        """The stages of a network, split by its `in_order()`, on their meshes.

        Raises ArgumentError for a network without `in_order`, and for weights that stages share.
        """
        if not hasattr(model, "in_order"):
            raise ArgumentError(
                f"{type(model).__name__} has no in_order(), by which a pipeline is split",
                fix="omit --pipeline",
            )
        layers = model.in_order()
        bounds = np.linspace(0, len(layers), self.pipeline + 1).astype(int)
        stages = Chain(*(Chain(*layers[a:b]) for a, b in pairwise(bounds)))
        owners: dict[Any, int] = {}
        names = {parameter: name for name, parameter in model.named_parameters()}
        for number, stage in enumerate(stages):
            for parameter in stage.parameters():
                if owners.setdefault(parameter, number) != number:
                    raise ArgumentError(
                        f"stages {owners[parameter]} and {number} share {names[parameter]}",
                        fix="train with untied weights: --tied 0",
                    )
        for mesh, stage in zip(self.meshes(), stages):
            self.cut(stage, mesh, model)
        return stages

    def cut(self, module: nn.Module, mesh: Any, network: nn.Module) -> None:
        """Places a module of a network on a mesh, and splits its weights along the second axis.

        `columns` and `rows` of the network are suffixes of the names of weights to split by outputs
        and by inputs. Raises ArgumentError for a network without `columns`.
        """
        columns, rows = (getattr(network, kind, ()) for kind in ("columns", "rows"))
        if self.tensor > 1 and not columns:
            raise ArgumentError(
                f"{type(network).__name__} does not name the weights to split",
                fix="omit --tensor-parallel",
            )
        names = {parameter: name for name, parameter in network.named_parameters()}
        lies = {}
        for inner, parameter in module.named_parameters():
            name = names[parameter]
            if name.endswith((*columns, *rows)):
                lies[inner] = metaop.sbp.split(0 if name.endswith(tuple(columns)) else 1)
        whole = metaop.sbp.broadcast
        module.to_global(mesh, lambda name, *_: (whole, lies.get(name, whole)))


class Chain(nn.Sequential):
    """A sequence of modules that pass on a tensor, or a tuple of tensors."""

    def forward(self, *inputs: Any) -> Any:
        for module in self:
            found = module(*inputs)
            inputs = found if isinstance(found, tuple) else (found,)
        return inputs if len(inputs) > 1 else inputs[0]


class Part(nn.Module):
    """A function as a module, which owns the modules and parameters that it uses."""

    def __init__(self, function: Any, *used: Any) -> None:
        super().__init__()
        self.function = function
        for number, one in enumerate(used):
            setattr(self, f"used{number}", one)

    def forward(self, *inputs: metaop.Tensor) -> Any:
        return self.function(*inputs)


def placed(batch: Sequence[metaop.Tensor], inputs: int, meshes: Sequence[Any]) -> list[Any]:
    """A batch for a pipeline: inputs on the first mesh, targets on the last one."""
    lie = (metaop.sbp.split(0), metaop.sbp.broadcast)
    return [
        metaop.distributed.distribute_tensor(tensor, meshes[0 if k < inputs else -1], lie)
        for k, tensor in enumerate(batch)
    ]


def gather(model: nn.Module) -> None:
    """Gives every rank the whole network."""
    everywhere = metaop.placement.all("cpu")
    for parameter in model.parameters():
        moved = parameter.data.to_global(placement=everywhere, sbp=metaop.sbp.broadcast)
        parameter.data, parameter.grad = moved.to_local(), None
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_global:
                moved = buffer.to_global(placement=everywhere, sbp=metaop.sbp.broadcast)
                module._buffers[name] = moved.to_local()
