"""`FullyShardedDataParallel`: parameters, gradients and optimizer states cut up among the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, Sbp, Split
from metaop.nn.module import Module
from metaop.tensor.core import Tensor
from metaop.tensor.global_tensor import to_global, to_local
from metaop.utils._pytree import tree_map


class ShardingStrategy:
    """What is cut up: everything (ZeRO stage 3), or nothing but what the optimizer keeps."""

    FULL_SHARD = "FULL_SHARD"
    SHARD_GRAD_OP = "SHARD_GRAD_OP"
    NO_SHARD = "NO_SHARD"


class FullyShardedDataParallel(Module):
    """Wraps `module` for training on all ranks, one share of the batch on each.

    With FULL_SHARD each parameter lies as `split(0)`: a rank keeps its block of it, of its gradient
    and of the optimizer's states, and the whole is gathered where it is used. With the other
    strategies parameters are whole on every rank; use `ZeroRedundancyOptimizer` to cut up the rest.
    The gradient is the mean over the ranks' losses, as with `DistributedDataParallel`. Batch
    normalisation is over the whole batch, and random numbers are those of a single device.

    Tensors among the arguments are the rank's share along dimension 0 (balanced, as `split(0)`);
    those in the result are the rank's share too. Make the optimizer afterwards.
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: str | None = None,
        **ignored: Any,
    ) -> None:
        super().__init__()
        self.placement = Placement.all("cpu")
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        state: Sbp = Split(0) if strategy == ShardingStrategy.FULL_SHARD else BROADCAST
        self.module = module.to_global(self.placement, state)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given, named = tree_map(self._joined, (args, kwargs))
        return tree_map(self._share, self.module(*given, **named))

    def _joined(self, value: Any) -> Any:
        """The global tensor of which every rank gives its share."""
        if not isinstance(value, Tensor) or not value.ndim or value.device.placement is not None:
            return value
        return to_global(value, self.placement, Split(0))

    def _share(self, value: Any) -> Any:
        """This rank's share of a result; its gradient counts for one of `ranks` losses."""
        if not isinstance(value, Tensor) or value.device.placement is None:
            return value
        share = to_local(to_global(value, sbp=Split(0) if value.ndim else BROADCAST))
        if share.requires_grad:
            ranks = self.placement.world.size
            share.register_hook(lambda gradient: gradient / ranks)  # type: ignore[attr-defined]
        return share


def local_map(function: Callable[..., Any], sbp: Sbp = Split(0)) -> Callable[..., Any]:  # noqa: B008
    """`function` run by every rank on its own part of global tensors that lie as `sbp`.

    What it returns are the parts of global tensors that lie so too. So a batch normalisation uses
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
