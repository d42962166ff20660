"""Normalisation with running statistics: over batches and instances."""

from __future__ import annotations

from typing import Any, ClassVar

from metaop.errors import ArgumentError
from metaop.nn import functional as F
from metaop.nn import init
from metaop.nn.counter import increased
from metaop.nn.module import Module
from metaop.nn.parameter import Parameter
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import empty, ones, tensor, zeros
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.tracing import refuse


class _RunningNorm(Module):
    """The base of batch and instance normalisation: scale, shift and running statistics."""

    _version = 2
    # The allowed numbers of dimensions, and their text in errors.
    ranks: ClassVar[tuple[int, ...]] = ()
    ranks_text: ClassVar[str] = ""

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            value = Parameter(empty(num_features, **options)) if wanted else None
            self.register_parameter(name, value)
        if track_running_stats:
            self.register_buffer("running_mean", zeros(num_features, **options))
            self.register_buffer("running_var", ones(num_features, **options))
            counter = tensor(0, dtype=dtypes.int64, device=device)
            self.register_buffer("num_batches_tracked", counter)
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Sets means to 0, variances to 1 and the number of batches to 0."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Sets scale to 1 and shift to 0, and resets the statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self.ranks:
            raise ArgumentError(
                f"{type(self).__name__}: expected {self.ranks_text} input "
                f"(got {input.ndim}D input)",
                fix="use the class for this number of dimensions, or unsqueeze",
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        *lists: Any,
    ) -> None:
        version = local_metadata.get("version")
        if (version is None or version < 2) and self.track_running_stats:
            # Checkpoints from before the counter existed.
            key = prefix + "num_batches_tracked"
            state_dict.setdefault(key, tensor(0, dtype=dtypes.int64))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *lists)


class _BatchNorm(_RunningNorm):
    """Normalises each channel over the batch (Ioffe & Szegedy 2015).

    Training uses the batch statistics and mixes them into the running ones with weight `momentum`
    (None: the mean over all batches); evaluation uses the running ones.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        keeps = self.training and self.track_running_stats
        if keeps and self.num_batches_tracked is not None:
            count = increased(self.num_batches_tracked)
            if self.momentum is None:
                momentum = 1.0 / count
                refuse("batch norm with momentum=None averages over the number of batches")
        mean, variance = self.running_mean, self.running_var
        uses_batch = self.training or (mean is None and variance is None)
        used = not self.training or self.track_running_stats
        return self._normalised(
            input, mean if used else None, variance if used else None, uses_batch, momentum
        )

    def _normalised(
        self,
        input: Tensor,
        mean: Tensor | None,
        variance: Tensor | None,
        uses_batch: bool,
        momentum: float,
    ) -> Tensor:
        """`input` normalised by its own statistics, or by the given running ones."""
        return F.batch_norm(
            input, mean, variance, self.weight, self.bias, uses_batch, momentum, self.eps
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L).

    In training each channel gets mean 0 and variance 1 over the batch; after `eval()` the running
    mean and variance are used. The result has the shape of the input.

    >>> nn.BatchNorm1d(1, affine=False)(metaop.tensor([[1.0], [3.0]])).round().tolist()
    [[-1.0], [1.0]]
    """

    ranks = (2, 3)
    ranks_text = "2D or 3D"


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W).

    In training each channel gets mean 0 and variance 1 over batch and pixels; after `eval()` the
    running mean and variance are used. The result has the shape of the input.

    >>> nn.BatchNorm2d(4)(metaop.randn(2, 4, 8, 8)).shape
    metaop.Size([2, 4, 8, 8])
    """

    ranks = (4,)
    ranks_text = "4D"


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W).

    Like `BatchNorm2d`, over batch and voxels. The result has the shape of the input.

    >>> nn.BatchNorm3d(4)(metaop.randn(2, 4, 3, 8, 8)).shape
    metaop.Size([2, 4, 3, 8, 8])
    """

    ranks = (5,)
    ranks_text = "5D"


class _InstanceNorm(_RunningNorm):
    """Normalises each channel of each sample on its own."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if input.ndim == min(self.ranks):
            return self._normalised(input.unsqueeze(0)).squeeze(0)
        return self._normalised(input)

    def _normalised(self, input: Tensor) -> Tensor:
        if input.shape[1] != self.num_features and self.affine:
            raise ArgumentError(
                f"{type(self).__name__}: expected input's size at dim=1 to match num_features "
                f"({self.num_features}), but got: {input.shape[1]}",
                fix="build the layer for this number of channels",
            )
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L).

    Each channel of each sample gets mean 0 and variance 1, over L. The result has the shape of the
    input; weight and bias are (C), only with `affine`.

    >>> round(nn.InstanceNorm1d(3)(metaop.randn(2, 3, 50)).std(correction=0).item(), 2)
    1.0
    """

    ranks = (2, 3)
    ranks_text = "2D or 3D"


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W).

    Each channel of each sample gets mean 0 and variance 1, over H and W. The result has the shape
    of the input; weight and bias are (C), only with `affine`.

    >>> nn.InstanceNorm2d(3, affine=True)(metaop.randn(2, 3, 4, 4)).shape
    metaop.Size([2, 3, 4, 4])
    """

    ranks = (3, 4)
    ranks_text = "3D or 4D"


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W).

    Each channel of each sample gets mean 0 and variance 1, over D, H and W. The result has the
    shape of the input; weight and bias are (C), only with `affine`.

    >>> nn.InstanceNorm3d(3)(metaop.randn(2, 3, 4, 4, 4)).shape
    metaop.Size([2, 3, 4, 4, 4])
    """

    ranks = (4, 5)
    ranks_text = "4D or 5D"
