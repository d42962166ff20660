"""Layers and blocks of image networks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import metaop
from metaop import Tensor, nn
from metaop.errors import ArgumentError
from metaop.nn import functional as F


class FrozenBatchNorm2d(nn.Module):
    """Batch normalisation whose statistics and parameters are constants (buffers) of shape (C).

    Images are (N, C, H, W).

    >>> layer = metaop.vision.ops.FrozenBatchNorm2d(2, eps=0.0)
    >>> layer(metaop.full((1, 2, 1, 1), 5.0)).flatten(), list(layer.parameters())
    (tensor([5., 5.]), [])
    """

    weight: Any
    bias: Any
    running_mean: Any
    running_var: Any

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", metaop.ones(num_features))
        self.register_buffer("bias", metaop.zeros(num_features))
        self.register_buffer("running_mean", metaop.zeros(num_features))
        self.register_buffer("running_var", metaop.ones(num_features))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Weights of ordinary batch normalisation can be loaded too.
        state_dict.pop(prefix + "num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)  # type: ignore[operator]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, eps={self.eps})"


class Permute(nn.Module):
    """`permute` as a module: reorders the dimensions.

    >>> metaop.vision.ops.Permute([0, 2, 1])(metaop.ones(1, 2, 3)).shape
    metaop.Size([1, 3, 2])
    """

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return metaop.permute(x, self.dims)


class MLP(nn.Sequential):
    """Linear layers; each but the last is followed by normalisation, activation and dropout.

    The shape (…, in_channels) becomes (…, hidden_channels[-1]).

    >>> metaop.vision.ops.MLP(4, [8, 2])(metaop.ones(3, 4)).shape
    metaop.Size([3, 2])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: Sequence[int],
        norm_layer: Callable[..., nn.Module] | None = None,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        inplace: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[nn.Module] = []
        for width in hidden_channels[:-1]:
            layers.append(nn.Linear(in_channels, width, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(width))
            if activation_layer is not None:
                layers.append(activation_layer(**options))
            layers.append(nn.Dropout(dropout, **options))
            in_channels = width
        layers.append(nn.Linear(in_channels, hidden_channels[-1], bias=bias))
        layers.append(nn.Dropout(dropout, **options))
        super().__init__(*layers)


class Conv2dNormActivation(nn.Sequential):
    """A convolution, by default padded to keep the size at stride 1, normalisation and activation.

    Images are (N, C, H, W).

    >>> layer = metaop.vision.ops.Conv2dNormActivation(3, 8, stride=2)
    >>> layer(metaop.ones(1, 3, 8, 8)).shape
    metaop.Size([1, 8, 4, 4])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        stride: int = 1,
        padding: int | str | None = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Module] | None = nn.BatchNorm2d,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        dilation: int = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
    ) -> None:
        if padding is None:
            padding = (kernel_size - 1) // 2 * dilation
        if bias is None:
            bias = norm_layer is None
        convolution = nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding,
                                dilation, groups, bias)  # fmt: skip
        layers: list[nn.Module] = [convolution]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


class SqueezeExcitation(nn.Module):
    """Scales channels by weights that a small network computes from their means.

    The shape (N, C, H, W) is unchanged. J. Hu and others, "Squeeze-and-excitation networks", 2017.

    >>> metaop.vision.ops.SqueezeExcitation(4, 2)(metaop.zeros(1, 4, 2, 2)).shape
    metaop.Size([1, 4, 2, 2])
    """

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Callable[..., nn.Module] = nn.ReLU,
        scale_activation: Callable[..., nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation = activation()
        self.scale_activation = scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        scale = self.fc2(self.activation(self.fc1(self.avgpool(input))))
        return self.scale_activation(scale) * input


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Drops the whole batch ("batch") or single samples ("row") with probability `p`.

    The shape is unchanged. The rest is divided by 1 - p. G. Huang and others, "Deep networks
    with stochastic depth", 2016.

    >>> kept = metaop.vision.ops.stochastic_depth(metaop.ones(100, 2), 0.5, "row")
    >>> metaop.unique(kept)
    tensor([0., 2.])
    """
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ArgumentError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    count = input.shape[0] if mode == "row" else 1
    noise = metaop.empty(count, *(1,) * (input.ndim - 1), dtype=input.dtype, device=input.device)
    noise = noise.bernoulli_(1.0 - p)
    return input * (noise / (1.0 - p) if p < 1.0 else noise)  # type: ignore[operator]


class StochasticDepth(nn.Module):
    """`stochastic_depth` as a module; keeps the shape, and is the identity in evaluation.

    >>> metaop.vision.ops.StochasticDepth(0.5, "row").eval()(metaop.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p = p
        self.mode = mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"


class FeaturePyramidNetwork(nn.Module):
    """Adds the upsampled coarser feature maps to each finer one.

    Takes and returns an ordered mapping of names to maps; all results have `out_channels` channels.
    T. Lin and others, "Feature pyramid networks for object detection", 2016.

    >>> pyramid = metaop.vision.ops.FeaturePyramidNetwork([4, 8], 6)
    >>> maps = pyramid({"large": metaop.ones(1, 4, 8, 8), "small": metaop.ones(1, 8, 4, 4)})
    >>> {name: one.shape for name, one in maps.items()}
    {'large': metaop.Size([1, 6, 8, 8]), 'small': metaop.Size([1, 6, 4, 4])}
    """

    def __init__(
        self,
        in_channels_list: Sequence[int],
        out_channels: int,
        extra_blocks: Callable[..., Any] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()

        def block(inputs: int, size: int) -> nn.Module:
            return Conv2dNormActivation(
                inputs, out_channels, size, norm_layer=norm_layer, activation_layer=None
            )

        self.inner_blocks = nn.ModuleList([block(count, 1) for count in in_channels_list])
        self.layer_blocks = nn.ModuleList([block(out_channels, 3) for _ in in_channels_list])
        self.extra_blocks = extra_blocks
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        names, maps = list(x), list(x.values())
        last = self.inner_blocks[-1](maps[-1])
        results = [self.layer_blocks[-1](last)]
        for number in range(len(maps) - 2, -1, -1):
            own = self.inner_blocks[number](maps[number])
            last = own + F.interpolate(last, size=tuple(own.shape[-2:]), mode="nearest")
            results.insert(0, self.layer_blocks[number](last))
        if self.extra_blocks is not None:
            results, names = self.extra_blocks(results, maps, names)
        return OrderedDict(zip(names, results))
