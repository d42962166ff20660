"""`FullyShardedDataParallel`: parameters, gradients and optimizer states sharded over the ranks.

`fully_shard`, which does it in place and module by module, is in `fully_shard.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

from metaop.dist.collectives import everyone
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Sbp, Split
from metaop.distributed.fully_shard import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    UnshardHandle,
    as_floats,
    chosen_mesh,
    fully_shard,
    register_fsdp_forward_method,
    shard,
    summoned,
)
from metaop.distributed.process_group import ProcessGroup, check_whole_group
from metaop.distributed.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    numbered_state,
    taken,
)
from metaop.distributed.wrapping import Wrapper, wrap_inside
from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.nn.utils.clip_grad import clip_grad_norm_
from metaop.optim.optimizer import Optimizer
from metaop.tensor.core import Tensor
from metaop.tensor.sharded.device_mesh import DeviceMesh
from metaop.tensor.sharded.global_tensor import to_global, to_local
from metaop.trees import tree_map
from metaop.unified_graph.dtype import DType

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "CPUOffloadPolicy",
    "FSDPModule",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictType",
    "UnshardHandle",
    "fully_shard",
    "local_map",
    "register_fsdp_forward_method",
]


class ShardingStrategy:
    """What is sharded: everything (ZeRO stage 3), nothing, or everything within each replica.

    SHARD_GRAD_OP shards everything, too: gathered parameters stay for the backward pass anyway.
    """

    FULL_SHARD = "FULL_SHARD"
    SHARD_GRAD_OP = "SHARD_GRAD_OP"
    NO_SHARD = "NO_SHARD"
    HYBRID_SHARD = "HYBRID_SHARD"
    _HYBRID_SHARD_ZERO2 = "_HYBRID_SHARD_ZERO2"


class BackwardPrefetch(Enum):
    """When PyTorch gathers parameters ahead in the backward pass, which gathers nothing here."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class StateDictType(Enum):
    """What `state_dict()` has: whole local tensors, or global ones."""

    FULL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class FullStateDictConfig:
    """Whole tensors, in host memory with `offload_to_cpu`; with `rank0_only`, for rank 0 alone."""

    offload_to_cpu: bool = False
    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig:
    """Global tensors go to host memory with `offload_to_cpu`."""

    offload_to_cpu: bool = False


FullOptimStateDictConfig = FullStateDictConfig
ShardedOptimStateDictConfig = ShardedStateDictConfig
StateDictConfig = FullStateDictConfig | ShardedStateDictConfig


@dataclass(frozen=True)
class MixedPrecision:
    """The types in which `FullyShardedDataParallel` computes; the optimizer keeps full precision.

    Parameters are converted to `param_dtype` where they are used; with `cast_forward_inputs`, so
    are floating-point arguments. Gradients are averaged as `reduce_dtype`, and buffers are kept as
    `buffer_dtype`.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    buffer_dtype: DType | None = None
    cast_forward_inputs: bool = True


@dataclass(frozen=True)
class CPUOffload:
    """Where parameters are kept: in host memory, whatever `offload_params` says."""

    offload_params: bool = False


class FullyShardedDataParallel(Wrapper):
    """Wraps `module` for training on all ranks, each with its share of the batch.

    It shards the module as `fully_shard` does: the optimizer, made afterwards, gets global tensors.
    With NO_SHARD they are replicated; with HYBRID_SHARD, `device_mesh` has the axes of replicas and
    of shards. `auto_wrap_policy` (see `metaop.distributed.wrapping`) chooses inner modules that are
    wrapped first and gather their parameters by themselves. All ranks take the parameters of rank
    0, whatever `sync_module_states` says. Gathering follows the program, so `backward_prefetch`,
    `forward_prefetch` and `limit_all_gathers` change nothing.

    State dicts have the names of the wrapped module, and global tensors unless `state_dict_type`
    asks for whole ones. Raises ArgumentError for arguments of PyTorch's class that are not
    supported.
    """

    WRAPPED = "_fsdp_wrapped_module"

    def __init__(
        self,
        module: Module,
        process_group: ProcessGroup | None = None,
        sharding_strategy: str | None = None,
        cpu_offload: CPUOffload | bool | None = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        *,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = True,
        ignored_states: Iterable[Tensor | Module] | None = None,
        device_mesh: DeviceMesh | None = None,
        **refused: Any,
    ) -> None:
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        _check_arguments(process_group, strategy, use_orig_params, device_mesh, refused)
        super().__init__(module)
        ignored = _parameters_of([*(ignored_modules or ()), *(ignored_states or ())])
        mesh = chosen_mesh(device_mesh, [module])
        if auto_wrap_policy is not None:
            inner = partial(
                FullyShardedDataParallel,
                sharding_strategy=strategy,
                mixed_precision=mixed_precision,
                ignored_states=ignored,
                device_mesh=mesh,
            )
            wrap_inside(module, inner, auto_wrap_policy)
        self.mixed_precision = mixed_precision or MixedPrecision()
        if self.mixed_precision.buffer_dtype is not None:
            for buffer in module.buffers():
                buffer.data = as_floats(buffer, self.mixed_precision.buffer_dtype)
        types = self.mixed_precision
        policy = MixedPrecisionPolicy(
            types.param_dtype, types.reduce_dtype, None, types.cast_forward_inputs
        )
        state = BROADCAST if strategy == ShardingStrategy.NO_SHARD else Split(0)
        shard(module, mesh, policy, lambda parameter: state, set(ignored))
        self._state_dict_config: StateDictConfig = ShardedStateDictConfig()

    @property
    def module(self) -> Any:
        """The wrapped module."""
        return self.wrapped

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.wrapped(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside keep gradients for the next one outside, which averages them."""
        self.wrapped.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.wrapped.set_requires_gradient_sync(True)

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Has whole parameters on every rank until the block is left: those of all inner modules.

        Without `recurse` only the module's own are whole. What is written into them stays, unless
        `writeback` is false. They are in the memory of the rank's device, also on other ranks than
        0. Raises ArgumentError for `rank0_only` together with `writeback`, and for `with_grads`.
        """
        if rank0_only and writeback:
            raise ArgumentError(
                "writeback=True and rank0_only=True is not supported",
                fix="give writeback=False, or omit rank0_only",
            )
        if with_grads:
            raise ArgumentError(
                "summon_full_params does not support with_grads=True",
                fix="call full_tensor() of the gradients before",
            )
        with summoned(module, recurse, writeback):
            yield

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales all gradients so that their norm is at most `max_norm`; returns it."""
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The values of the wrapped module, by its names; see `state_dict_type`."""
        state = super().state_dict(*args, **kwargs)
        is_inner = bool(args) or kwargs.get("destination") is not None
        return state if is_inner else _configured(state, self._state_dict_config)

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: StateDictConfig | None = None,
    ) -> Iterator[None]:
        """Has the wrappers in a module give states of a type until the block is left."""
        wrappers = [one for one in module.modules() if isinstance(one, FullyShardedDataParallel)]
        before = [(one, one._state_dict_config, one._optim_config) for one in wrappers]
        FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for one, values, moments in before:
                one._state_dict_config, one._optim_config = values, moments

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: StateDictConfig | None = None,
    ) -> None:
        """Has the wrappers in a module give states of a type from now on."""
        is_full = state_dict_type is StateDictType.FULL_STATE_DICT
        usual = FullStateDictConfig if is_full else ShardedStateDictConfig
        for one in module.modules():
            if isinstance(one, FullyShardedDataParallel):
                one._state_dict_config = state_dict_config or usual()
                one._optim_config = optim_state_dict_config or usual()

    @staticmethod
    def optim_state_dict(model: Module, optim: Optimizer) -> dict[str, Any]:
        """The state of an optimizer with the names of parameters, of the type that is set."""
        state = get_optimizer_state_dict(model, optim)
        return _configured(state, getattr(model, "_optim_config", ShardedStateDictConfig()))

    @staticmethod
    def optim_state_dict_to_load(
        model: Module, optim: Optimizer, optim_state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """What `optim.load_state_dict` takes, of a state with the names of parameters."""
        return numbered_state(model, optim, optim_state_dict)

    _optim_config: StateDictConfig = ShardedStateDictConfig()


def _configured(state: dict[str, Any], config: StateDictConfig) -> dict[str, Any]:
    options = StateDictOptions(
        full_state_dict=isinstance(config, FullStateDictConfig), cpu_offload=config.offload_to_cpu
    )
    found = tree_map(lambda value: taken(value, options), state)
    is_empty = isinstance(config, FullStateDictConfig) and config.rank0_only and everyone().rank
    return {} if is_empty else found  # type: ignore[no-any-return]


def _parameters_of(states: Iterable[Tensor | Module]) -> list[Tensor]:
    found: list[Tensor] = []
    for one in states:
        found += one.parameters() if isinstance(one, Module) else [one]
    return found


def _check_arguments(
    group: ProcessGroup | None,
    strategy: str,
    use_orig_params: bool,
    mesh: DeviceMesh | None,
    refused: dict[str, Any],
) -> None:
    check_whole_group(group, "FullyShardedDataParallel")
    is_hybrid = strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
    if is_hybrid and (mesh is None or mesh.ndim != 2):
        raise ArgumentError(
            f"FullyShardedDataParallel got {strategy} with device_mesh={mesh}",
            fix='pass init_device_mesh("cpu", (replicas, shards)) as device_mesh',
        )
    if strategy not in vars(ShardingStrategy).values():
        refused["sharding_strategy"] = strategy
    if not use_orig_params:
        refused["use_orig_params"] = use_orig_params
    if refused:
        given = ", ".join(f"{name}={value!r}" for name, value in refused.items())
        raise ArgumentError(
            f"FullyShardedDataParallel does not support {given}",
            fix="omit it: parameters are sharded one by one, keep their names, "
            "and are gathered where they are used",
        )


def local_map(function: Callable[..., Any], sbp: Sbp = Split(0)) -> Callable[..., Any]:  # noqa: B008
    """Makes every rank run `function` on its own part of global tensors sharded as `sbp`.

    The results are parts of global tensors with the same sharding. So a batch normalisation uses
    the statistics of each rank's share: `local_map(norm)(x)`, with `norm` on local tensors.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        placements: list[Placement] = []

        def part(value: Any) -> Any:
            if not isinstance(value, Tensor) or value.device.placement is None:
                return value
            placements.append(value.device.placement)
            return to_local(to_global(value, sbp=sbp))

        given, named = tree_map(part, (args, kwargs))
        results = function(*given, **named)

        def joined(value: Any) -> Any:
            if not isinstance(value, Tensor) or not placements:
                return value
            return to_global(value, placements[0], sbp)

        return tree_map(joined, results)

    return run
