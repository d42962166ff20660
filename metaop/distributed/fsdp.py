"""`FullyShardedDataParallel`: parameters, gradients and optimizer states sharded over the ranks.

`fully_shard`, which does it in place and module by module, is in `fully_shard.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Sbp, Split
from metaop.distributed.fully_shard import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    UnshardHandle,
    as_floats,
    fully_shard,
    register_fsdp_forward_method,
)
from metaop.distributed.process_group import ProcessGroup, check_whole_group
from metaop.distributed.shares import Shares
from metaop.errors import ArgumentError
from metaop.nn.module import Module
from metaop.nn.utils.stateless import functional_call
from metaop.tensor.core import Tensor
from metaop.tensor.sharded.global_tensor import to_global, to_local
from metaop.trees import tree_leaves, tree_map
from metaop.unified_graph.dtype import DType

__all__ = [
    "CPUOffload",
    "CPUOffloadPolicy",
    "FSDPModule",
    "FullyShardedDataParallel",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "ShardingStrategy",
    "UnshardHandle",
    "fully_shard",
    "local_map",
    "register_fsdp_forward_method",
]


class ShardingStrategy:
    """What is sharded: everything (ZeRO stage 3), or only the optimizer states."""

    FULL_SHARD = "FULL_SHARD"
    SHARD_GRAD_OP = "SHARD_GRAD_OP"
    NO_SHARD = "NO_SHARD"


@dataclass(frozen=True)
class MixedPrecision:
    """The types in which `FullyShardedDataParallel` computes; the optimizer keeps full precision.

    Parameters are converted to `param_dtype` where they are used; with `cast_forward_inputs`, so
    are floating-point arguments. Buffers are kept as `buffer_dtype`.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    buffer_dtype: DType | None = None
    cast_forward_inputs: bool = True

    def __post_init__(self) -> None:
        if self.reduce_dtype not in (None, self.param_dtype):
            raise ArgumentError(
                f"MixedPrecision has reduce_dtype={self.reduce_dtype}",
                fix="omit it: gradients are reduced in the type in which they are computed",
            )


@dataclass(frozen=True)
class CPUOffload:
    """Where parameters are kept: in host memory, whatever `offload_params` says."""

    offload_params: bool = False


class FullyShardedDataParallel(Module):
    """Wraps `module` for training on all ranks, each with its share of the batch.

    With FULL_SHARD, each parameter is sharded as `split(0)`: a rank keeps its block of the
    parameter, its gradient and the optimizer states, and the parameter is gathered where it is
    used. With the other strategies, parameters are replicated; use `ZeroRedundancyOptimizer` to
    shard the rest. The gradient is the mean over the ranks' losses, as with
    `DistributedDataParallel`. Batch normalisation uses the whole batch, and random numbers are
    those of a single device. All ranks take the parameters of rank 0, whatever `sync_module_states`
    says.

    Tensor arguments are the rank's share along dimension 0; shares may differ in size and be empty.
    A result with one row, or a fixed number of rows, per row of an argument is returned as the
    rank's share; any other result is returned whole. Create the optimizer afterwards. Raises
    ArgumentError for arguments of PyTorch's class that are not supported.
    """

    def __init__(
        self,
        module: Module,
        process_group: ProcessGroup | None = None,
        sharding_strategy: str | None = None,
        cpu_offload: CPUOffload | bool | None = None,
        *,
        mixed_precision: MixedPrecision | None = None,
        sync_module_states: bool = False,
        use_orig_params: bool = True,
        **refused: Any,
    ) -> None:
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        _check_arguments(process_group, strategy, use_orig_params, refused)
        types = {value.device.type for value in (*module.parameters(), *module.buffers())}
        self.placement = Placement.all("cuda" if "cuda" in types else "cpu")
        state: Sbp = Split(0) if strategy == ShardingStrategy.FULL_SHARD else BROADCAST
        self.mixed_precision = mixed_precision or MixedPrecision()
        if self.mixed_precision.buffer_dtype is not None:
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.to(self.mixed_precision.buffer_dtype)
        self.module = module.to_global(self.placement, state)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        dtype = self.mixed_precision.param_dtype
        shares = Shares(self.placement, [x for x in tree_leaves((args, kwargs)) if _is_share(x)])

        def given(value: Any) -> Any:
            joined = shares.join(value) if _is_share(value) else value
            casts = dtype is not None and self.mixed_precision.cast_forward_inputs
            return as_floats(joined, dtype) if casts else joined

        args, kwargs = tree_map(given, (args, kwargs))
        if dtype is None:
            result = self.module(*args, **kwargs)
        else:
            weights = {name: as_floats(p, dtype) for name, p in self.module.named_parameters()}
            result = functional_call(self.module, weights, args, kwargs)
        return tree_map(shares.take, result)


def _check_arguments(
    group: ProcessGroup | None, strategy: str, use_orig_params: bool, refused: dict[str, Any]
) -> None:
    check_whole_group(group, "FullyShardedDataParallel")
    if strategy not in (
        ShardingStrategy.FULL_SHARD,
        ShardingStrategy.SHARD_GRAD_OP,
        ShardingStrategy.NO_SHARD,
    ):
        refused["sharding_strategy"] = strategy
    if not use_orig_params:
        refused["use_orig_params"] = use_orig_params
    if refused:
        given = ", ".join(f"{name}={value!r}" for name, value in refused.items())
        raise ArgumentError(
            f"FullyShardedDataParallel does not support {given}",
            fix="omit it: parameters are sharded one by one over all ranks, keep their names, "
            "and are gathered where they are used",
        )


def _is_share(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.device.placement is None


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
