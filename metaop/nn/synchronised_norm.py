"""Batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any

from metaop.dist.collectives import MPIWorld, everyone, is_running
from metaop.errors import ArgumentError
from metaop.nn.functional.over_ranks import stack_over_ranks
from metaop.nn.module import Module
from metaop.nn.normalisation import _BatchNorm
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import tensor
from metaop.tensor.functions.joining import cat
from metaop.tensor.grad_mode import no_grad


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation with statistics over the local batches of all ranks.

    Local batches may differ in size. Every rank must run it, and its backward. Global tensors do
    not need this class: batch normalisation of a global tensor always uses the whole batch. For
    per-rank statistics of a global tensor use `metaop.distributed.local_map`.

    The result has the shape (N, C, *) of the input; weight and bias are (C).

    >>> norm = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3))
    >>> type(norm).__name__, norm(metaop.randn(2, 3, 4, 4)).shape
    ('SyncBatchNorm', metaop.Size([2, 3, 4, 4]))
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = process_group

    def _normalised(
        self,
        input: Tensor,
        mean: Tensor | None,
        variance: Tensor | None,
        uses_batch: bool,
        momentum: float,
    ) -> Tensor:
        if not uses_batch or input.device.placement is not None or not is_running():
            return super()._normalised(input, mean, variance, uses_batch, momentum)
        group = self.process_group
        world = MPIWorld(everyone()) if group is None else group.world
        count, center, squares = _statistics(input, world)
        if mean is not None and variance is not None:
            with no_grad():
                mean.lerp_(center, momentum)  # type: ignore[attr-defined]
                unbiased = squares / (count - 1)
                variance.lerp_(unbiased, momentum)  # type: ignore[attr-defined]
        shape = (1, -1, *(1 for _ in range(input.ndim - 2)))
        scale = (squares / count + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shifted = (input - center.reshape(shape)) * scale.reshape(shape)
        return shifted if self.bias is None else shifted + self.bias.reshape(shape)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ArgumentError(
                f"expected at least 2D input (got {input.ndim}D input)", fix="add a batch dimension"
            )

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replaces every batch normalisation in `module` by a synchronised one."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            synchronised = cls.__new__(cls)
            synchronised.__dict__.update(module.__dict__, process_group=process_group)
            return synchronised
        for name, child in module.named_children():
            setattr(module, name, cls.convert_sync_batchnorm(child, process_group))
        return module


def _statistics(input: Tensor, world: MPIWorld) -> tuple[Any, Any, Any]:
    """Count, mean and sum of squared deviations per channel, over all ranks.

    The ranks' statistics are merged without cancellation (Chan et al. 1979).
    """
    channels = input.shape[1]
    rows = input.transpose(0, 1).reshape(channels, -1)  # type: ignore[attr-defined]
    own = rows.mean(1)
    squares = ((rows - own[:, None]) ** 2).sum(1)
    count = tensor([float(rows.shape[1])], dtype=input.dtype, device=input.device)
    all_of_them = stack_over_ranks(cat((own, squares, count)), world)
    means, spreads = all_of_them[:, :channels], all_of_them[:, channels:-1]
    counts = all_of_them[:, -1:].detach()
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    spread = (spreads + counts * (means - mean) ** 2).sum(0)
    return total, mean, spread
