"""`Graph`: a training step with OneFlow's configuration calls, exported as `metaop.nn.Graph`.

class Step(nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = model
        self.model.blocks[0].config.set_stage(0, placement("cpu", [0, 1]))
        self.model.blocks[1].config.set_stage(1, placement("cpu", [2, 3]))
        self.config.set_gradient_accumulation_steps(8)
        self.add_optimizer(optimizer)

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss

loss = Step()(x, y)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from metaop.amp.autocast import autocast
from metaop.dist.collectives import everyone, is_running
from metaop.dist.moves import shared_out
from metaop.dist.placement import Placement
from metaop.dist.search import explain_plan
from metaop.dist.sharding_search import Plan
from metaop.distributed.graph_config import GraphConfig, ModuleConfig
from metaop.distributed.graph_layout import common_placement, lay_out, made_global
from metaop.distributed.graph_report import GraphReport
from metaop.distributed.graph_run import Outputs, micro_batch, run_in_turns, run_pipeline
from metaop.distributed.optim import ZeroRedundancyOptimizer
from metaop.errors import ArgumentError, CheckpointError, UnsupportedError
from metaop.nn.module import Module
from metaop.optim.optimizer import Optimizer
from metaop.tensor.core import Tensor
from metaop.utils.checkpoint import checkpoint


class _Block:
    """A module inside a graph: the module itself, with a `config`."""

    def __init__(self, module: Module, configs: dict[Module, ModuleConfig]) -> None:
        self.__dict__.update(_module=module, _configs=configs)

    @property
    def config(self) -> ModuleConfig:
        """What the graph does with this module."""
        found: ModuleConfig = self._configs.setdefault(self._module, ModuleConfig())
        return found

    def _opened(self, value: Any) -> Any:
        return _Block(value, self._configs) if isinstance(value, Module) else value

    def __getattr__(self, name: str) -> Any:
        return self._opened(getattr(self._module, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._opened(self._module[key])

    def __iter__(self) -> Iterator[Any]:
        return (self._opened(value) for value in self._module)

    def __len__(self) -> int:
        return len(self._module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._module(*args, **kwargs)

    def set_stage(self, stage_id: int, placement: Placement | None = None) -> None:
        """`config.set_stage`."""
        self.config.set_stage(stage_id, placement)


class Graph:
    """A training step: a subclass defines `build`, and calling the graph runs it.

    With an optimizer, `build` calls `backward()` and the graph does the rest: it clears old
    gradients, averages those of the micro-batches and steps the optimizer. Scalars that `build`
    returns are averaged over the micro-batches; other tensors are concatenated along dimension 0.

    Stages on different placements run as a pipeline (1F1B: one forward, one backward in turn);
    then `build` may return only scalars, which become local tensors on all ranks. Every rank
    calls the graph with the same arguments: the inputs are on the first stage, and the targets of
    the loss on the last one (`distribute_tensor(labels, last, sbp.split(0))`).
    """

    def __init__(self, *, debug_v_level: int = -1) -> None:
        self._modules: dict[str, Module] = {}
        self._configs: dict[Module, ModuleConfig] = {}
        self._optimizers: list[tuple[Optimizer, Any]] = []
        self._scaler: Any = None
        self._debug: tuple[int, Sequence[int]] = (-1, [-1])
        self.debug(debug_v_level)
        self._is_ready = False
        self._plan: Plan | None = None
        self.config = GraphConfig()

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module):
            self._modules[name] = value
            value = _Block(value, self._configs)
        object.__setattr__(self, name, value)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """What one step computes; subclasses define it."""
        raise UnsupportedError(f"{type(self).__name__} has no build()", fix="define it")

    def add_optimizer(self, optim: Optimizer, *, lr_sch: Any = None) -> None:
        """Adds an optimizer, which steps after `build`, and a schedule, which steps after that."""
        self._optimizers.append((optim, lr_sch))

    def set_grad_scaler(self, grad_scaler: Any = None) -> None:
        """Steps the optimizers through a scaler; `build` calls `scaler.scale(loss).backward()`."""
        self._scaler = grad_scaler

    def debug(self, v_level: int = 0, *, ranks: int | Sequence[int] | None = 0) -> None:
        """Prints the next step to standard error, on some ranks (None or -1: on all).

        Level 0 prints how the graph runs, when building starts and how many seconds it took. 1 adds
        each module with its inputs and outputs: shape, dtype, device and, for global tensors, their
        sharding (SBP). 2 adds each operator of each program with its operands and result. 3 adds
        what each rank runs: its kernels, its bytes of temporaries and, for global tensors, the
        plan, with the collectives and how many bytes they send. -1 prints nothing.

        Raises ArgumentError for another level and for a rank below -1.

        Example:

            >>> class Sums(nn.Graph):
            ...     def build(self, x):
            ...         return x.sum()
            >>> graph = Sums()
            >>> graph.debug(1)
            >>> graph(metaop.ones(3)).item()
            3.0
        """
        if v_level not in (-1, 0, 1, 2, 3):
            raise ArgumentError(f"debug level {v_level}", fix="use 0, 1, 2 or 3, or -1 for none")
        chosen = [-1] if ranks is None else [ranks] if isinstance(ranks, int) else list(ranks)
        if min(chosen, default=0) < -1:
            raise ArgumentError(f"debug on ranks {chosen}", fix="use ranks from 0, or -1 for all")
        self._debug = v_level, chosen

    def state_dict(self) -> dict[str, Any]:
        """The states of the modules by name, and those of the optimizers."""
        found: dict[str, Any] = {k: v.state_dict() for k, v in self._modules.items()}
        found["optimizers"] = [optimizer.state_dict() for optimizer, _ in self._optimizers]
        return found

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Loads what `state_dict` returned for the same number of modules and optimizers.

        Raises CheckpointError for names that only one side has, unless `strict` is False.
        """
        states = state_dict.get("optimizers", [])
        names = sorted(state_dict.keys() - {"optimizers"})
        if strict and (names != sorted(self._modules) or len(states) != len(self._optimizers)):
            raise CheckpointError(
                f"{type(self).__name__} has the modules {sorted(self._modules)} and "
                f"{len(self._optimizers)} optimizers, and the state {names} and {len(states)}",
                fix="load the state of a graph that is built in the same way, or pass strict=False",
            )
        for name, module in self._modules.items():
            module.load_state_dict(state_dict.get(name, {}), strict)
        self._make_ready()
        for (optimizer, _), state in zip(self._optimizers, states):
            optimizer.load_state_dict(state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        (level, ranks), self._debug = self._debug, (-1, [-1])
        rank = everyone().rank if is_running() else 0
        if level < 0 or not (rank in ranks or -1 in ranks):
            return self._step(self.build, args, kwargs)
        report = GraphReport(type(self).__name__, level, self._modules)
        with report.of_step(self.describe):
            return self._step(report.watched(self.build), args, kwargs)

    def _step(self, build: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.config.auto_parallel:
            args, kwargs = self._laid_out(args, kwargs)
        self._make_ready()
        parameters = [p for module in self._modules.values() for p in module.parameters()]
        optimizers = [optimizer for optimizer, _ in self._optimizers]
        for optimizer in optimizers:
            optimizer.zero_grad()
        stages = self._stages()
        run: Callable[..., Outputs] = run_pipeline if len(stages) > 1 else run_in_turns
        with self._configured():
            result = run(build, args, kwargs, self.config.accumulation, parameters, stages)
        for optimizer, schedule in self._optimizers:
            if self._scaler is None:
                optimizer.step()
            else:
                self._scaler.step(optimizer)
            if schedule is not None:
                schedule.step()
        if self._scaler is not None:
            self._scaler.update()
        return result

    # --- applying the configuration ---------------------------------------------------------

    def _laid_out(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments as global tensors; the first call also shards the parameters."""
        modules = list(self._modules.values())
        placement = common_placement(modules, (args, kwargs))
        given: tuple[Any, Any] = made_global((args, kwargs), placement)
        if self._plan is None:
            share = micro_batch(*given, self.config.accumulation)

            def step() -> Any:
                with self._configured():
                    return self.build(*share[0], **share[1])

            self._plan = lay_out(modules, step, placement, self.config)
        return given

    def _make_ready(self) -> None:
        """Shards parameters and optimizers for ZeRO, once."""
        if self._is_ready:
            return
        self._is_ready = True
        stage = self.config.zero_stage
        if stage == 3:
            for module in self._modules.values():
                for child in module.modules():
                    _split_parameters(child)
        elif stage:
            self._optimizers = [(_shared_out(o, stage), s) for o, s in self._optimizers]

    def describe(self) -> str:
        """Describes how the graph runs."""
        lines = [
            f"{type(self).__name__}: {self.config.accumulation} micro-batches, "
            f"ZeRO stage {self.config.zero_stage}, amp {self.config.amp}"
        ]
        for number, (placement, module) in enumerate(self._stages()):
            lines.append(f"  stage {number} {type(module).__name__} on {placement}")
        if self._plan is not None:
            lines += [f"  {line}" for line in explain_plan(self._plan).splitlines()]
        return "\n".join(lines)

    __repr__ = describe

    def _stages(self) -> list[tuple[Placement, Module]]:
        """The placements of the pipeline stages and their modules, in order."""
        found: dict[int, tuple[Placement, Module]] = {}
        for module, config in self._configs.items():
            if config.stage_id is None:
                continue
            placement = config.placement
            if placement is None:
                placement = next(module.parameters()).device.placement
            if placement is not None:
                found[config.stage_id] = (placement, module)
        return [found[number] for number in sorted(found)]

    @contextmanager
    def _configured(self) -> Iterator[None]:
        """Applies casts and checkpoints inside the context."""
        casts = self._casts() if self.config.amp else nullcontext()
        with ExitStack() as stack:
            stack.enter_context(casts)
            for module, config in self._configs.items():
                if config.activation_checkpointing:
                    stack.enter_context(_checkpointed(module))
            yield

    def _casts(self) -> autocast:
        """Low precision on the device of the modules."""
        values = (p for module in self._modules.values() for p in module.parameters())
        types = sorted({value.device.type for value in values}) or ["cpu"]
        if len(types) > 1:
            raise ArgumentError(
                f"amp for modules on {' and '.join(types)}",
                fix="put all modules on one kind of device",
            )
        return autocast(types[0], self.config.amp_dtype)


@contextmanager
def _checkpointed(module: Module) -> Iterator[None]:
    """Makes the module recompute its activations in backward."""
    forward = module.forward

    def again(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, **kwargs)

    module.__dict__["forward"] = again
    try:
        yield
    finally:
        del module.__dict__["forward"]


def _split_parameters(module: Module) -> None:
    """Splits the parameters along the mesh axes that replicate them."""
    for parameter in module._parameters.values():
        if parameter is None or parameter.device.placement is None:
            continue
        placement = parameter.device.placement
        buffer: Any = parameter.buffer()
        states = shared_out(buffer.states, parameter.shape, placement.shape)
        if states != buffer.states and placement.world.owned:
            data: Tensor = parameter.data
            parameter.data = data.to_global(sbp=states)  # type: ignore[attr-defined]


def _shared_out(optimizer: Optimizer, stage: int) -> Optimizer:
    """The same optimizer with its states sharded over the ranks."""
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        return optimizer
    known = inspect.signature(type(optimizer).__init__).parameters
    defaults = {k: v for k, v in optimizer.defaults.items() if k in known}
    # The group objects are reused, because learning rate schedules hold references to them.
    groups, kind = optimizer.param_groups, type(optimizer)
    optimizer._opt_called = True  # type: ignore[attr-defined]
    return ZeroRedundancyOptimizer(groups, kind, stage=stage, **defaults)
