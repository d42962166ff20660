"""Optimizers whose state is sharded over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.dist.moves import shared_out
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, NdSbp
from metaop.distributed.process_group import ProcessGroup, check_whole_group, world_group
from metaop.errors import ArgumentError, DistributedError
from metaop.nn.parameter import Parameter
from metaop.optim.optimizer import Group, Optimizer
from metaop.optim.update import run_closure
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.grad_mode import no_grad
from metaop.tensor.sharded.global_tensor import full_tensor, spread, to_global

_SETTINGS_OF_ITS_OWN = ("params", "param_names")


class ZeroRedundancyOptimizer(Optimizer):
    """Shards any optimizer: each rank keeps the states of its block of every parameter.

    Blocks split dimension 0 along the mesh axes that replicate the parameter, and may be uneven; a
    parameter with fewer rows than ranks is not split. The optimizer itself needs no changes: the
    blocks form a global tensor, so its states have the same sharding, and its rule runs on them.
    After a step, the parameters are gathered.

    With local parameters, whose gradients `DistributedDataParallel` has averaged, this is ZeRO
    stage 1. With global parameters, gradients are reduced directly into the blocks: stage 2. Every
    rank must call every method; after `consolidate_state_dict(to)`, rank `to` alone may call
    `state_dict()`, which has whole states and can be loaded on another number of ranks.

    Example: `ZeroRedundancyOptimizer(model.parameters(), metaop.optim.Adam, lr=1e-3)`.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        *,
        stage: int = 2,
        **defaults: Any,
    ) -> None:
        refused = {"parameters_as_bucket_view": parameters_as_bucket_view}
        refused["overlap_with_ddp"] = overlap_with_ddp
        check_whole_group(process_group, "ZeroRedundancyOptimizer")
        if wrong := [name for name, value in refused.items() if value]:
            raise ArgumentError(
                f"ZeroRedundancyOptimizer got {' and '.join(wrong)}",
                fix="omit it: step() updates the parameters in place",
            )
        if stage not in (1, 2):
            raise ArgumentError(f"ZeroRedundancyOptimizer got {stage=}", fix="use 1 or 2")
        self._stage = stage
        self._blocks: dict[Tensor, Parameter] = {}
        self._shardings: dict[Tensor, NdSbp] = {}
        self._optimizer_class = optimizer_class
        self.optim: Optimizer | None = None
        # The rank that has consolidated states, and on that rank the states.
        self._holder: int | None = None
        self._consolidated: dict[str, Any] | None = None
        super().__init__(params, defaults)
        self.optim = optimizer_class([self._blocks_of(g) for g in self.param_groups], **defaults)
        # Settings for which the optimizer supplied defaults.
        self.defaults = self.optim.defaults
        for group, blocks in zip(self.param_groups, self.optim.param_groups):
            for name, value in blocks.items():
                group.setdefault(name, value)

    def add_param_group(self, param_group: Group) -> None:
        super().add_param_group(param_group)
        self._forget_consolidated()
        if self.optim is not None:
            self.optim.add_param_group(self._blocks_of(self.param_groups[-1]))

    def _blocks_of(self, group: Group) -> Group:
        """The group, with blocks in place of parameters."""
        for parameter in group["params"]:
            self._shardings[parameter] = self._sharding_of(parameter)
            self._blocks[parameter] = Parameter(self._shared_out(parameter, parameter.detach()))
        settings = {k: v for k, v in group.items() if k not in _SETTINGS_OF_ITS_OWN}
        return {**settings, "params": [self._blocks[p] for p in group["params"]]}

    def _sharding_of(self, parameter: Tensor) -> NdSbp:
        """The sharding of a parameter's blocks."""
        placement = _placement_of(parameter)
        buffer: Any = parameter.buffer()
        states = getattr(buffer, "states", (BROADCAST,) * placement.ranks.ndim)
        return shared_out(states, parameter.shape, placement.shape)

    def _shared_out(self, parameter: Tensor, value: Tensor) -> Tensor:
        """A value of a parameter's shape, sharded like the parameter's blocks."""
        return spread(value, _placement_of(value), self._shardings[parameter])

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the blocks that this rank keeps and gathers the parameters."""
        loss = None if closure is None else run_closure(closure)
        self._forget_consolidated()
        optim = self._with_settings()
        updated = [(p, block) for p, block in self._blocks.items() if p.grad is not None]
        for parameter, block in updated:
            # The parameter may have been written since the last step.
            block.data = self._shared_out(parameter, parameter.detach())
            block.grad = self._gradient(parameter)
        optim.step()
        for parameter, block in updated:
            if parameter.device.placement is None:
                # In place: programs may hold views of it.
                parameter.copy_(full_tensor(block.detach()))  # type: ignore[attr-defined]
            else:
                # It gets the sharding of the parameter.
                parameter._assign(block.detach().call, "step")
            block.grad = None
        return loss

    def _with_settings(self) -> Optimizer:
        """The optimizer of the blocks, with the settings that a schedule may have changed."""
        assert self.optim is not None
        for group, blocks in zip(self.param_groups, self.optim.param_groups):
            blocks.update((k, v) for k, v in group.items() if k not in _SETTINGS_OF_ITS_OWN)
        return self.optim

    def _gradient(self, parameter: Tensor) -> Tensor:
        gradient: Any = parameter.grad
        if self._stage == 1 and gradient.device.placement is not None:
            gradient = to_global(gradient, sbp=parameter.sbp)  # type: ignore[attr-defined]
        return self._shared_out(parameter, gradient.detach())

    def state_dict(self) -> dict[str, Any]:
        """Settings and whole states; every rank must call it, one may write it to a file.

        After `consolidate_state_dict(to)` rank `to` alone can call it, until the next step; other
        ranks raise DistributedError.
        """
        found = self._with_settings().state_dict()
        if self._holder is None:
            found["state"] = _gathered(found["state"])
        elif self._consolidated is not None:
            found["state"] = dict(self._consolidated)
        else:
            raise DistributedError(
                f"rank {self._holder} alone has the consolidated states",
                fix="call state_dict() on that rank, or on all ranks without "
                "consolidate_state_dict()",
            )
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` returned, possibly on another number of ranks; call it on all."""
        assert self.optim is not None
        self._forget_consolidated()
        self.optim.load_state_dict(state_dict)
        for group, blocks in zip(self.param_groups, self.optim.param_groups):
            group.update((k, v) for k, v in blocks.items() if k not in _SETTINGS_OF_ITS_OWN)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gathers the states, so that rank `to` can call `state_dict()` alone until the next step.

        Every rank must call it.
        """
        gathered = _gathered(self._with_settings().state_dict()["state"])
        self._holder = to
        self._consolidated = gathered if to == world_group().rank() else None

    def _forget_consolidated(self) -> None:
        """Forgets consolidated states, because they change."""
        self._holder = self._consolidated = None


def _placement_of(value: Tensor) -> Placement:
    """The placement of a tensor, or all ranks with devices of its type."""
    found: Placement | None = value.device.placement
    return found or Placement.all(value.device.type)


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Applies `function` to the tensors in a state."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {name: _mapped(inner, function) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(inner, function) for inner in value)
    return value


def _gathered(states: dict[Any, Any]) -> dict[Any, Any]:
    """States, of which every rank gives its block."""
    return {key: _mapped(value, _whole) for key, value in states.items()}


def _whole(value: Tensor) -> Tensor:
    """A sharded state, gathered into a local tensor."""
    return wrap(value.call) if value.device.placement is None else full_tensor(value)
