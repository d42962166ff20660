"""Layers that infer their input size from their first input."""

from __future__ import annotations

import itertools
from typing import Any

from metaop.errors import ArgumentError, UnsupportedError
from metaop.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from metaop.nn.linear import Linear
from metaop.nn.module import Module
from metaop.nn.normalisation import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from metaop.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from metaop.nn.sizes import Size
from metaop.tensor.core import Tensor
from metaop.tensor.functions.creation import tensor
from metaop.tensor.grad_mode import no_grad
from metaop.unified_graph import dtype as dtypes


class LazyModuleMixin:
    """Creates the parameters at the first call and turns the module into `cls_to_become`.

    A subclass creates `UninitializedParameter`s and defines `initialize_parameters`, which gets
    the arguments of the first call and materialises them.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)  # type: ignore[attr-defined]
        self._initialize_hook = self.register_forward_pre_hook(  # type: ignore[attr-defined]
            self._infer_parameters, with_kwargs=True
        )

    def _lazy_load_hook(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Gives parameters the shapes of the values to be loaded."""
        for name, value in self._own_tensors():
            found = state_dict.get(prefix + name)
            if is_lazy(value) and found is not None and not is_lazy(found):
                with no_grad():
                    value.materialize(found.shape)

    def _own_tensors(self) -> Any:
        return itertools.chain(self._parameters.items(), self._buffers.items())  # type: ignore[attr-defined]

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialises the parameters for the arguments of the first call."""
        raise UnsupportedError(
            f"initialize_parameters is not implemented for {type(self).__name__}",
            fix="define it in the class",
        )

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this module has no shape yet."""
        return any(is_lazy(value) for _, value in self._own_tensors())

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise ArgumentError(f"module {type(self).__name__} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` that takes `in_features` from its first input.

    The input is (*, in_features). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> layer = nn.LazyLinear(2)
    >>> layer(metaop.randn(4, 3)).shape, layer.weight.shape
    (metaop.Size([4, 2]), metaop.Size([2, 3]))
    """

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if self.in_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:  # type: ignore[override]
        """Uses the last extent of the input."""
        if not self.has_uninitialized_params():
            return
        self.in_features = input.shape[-1]
        self.weight.materialize((self.out_features, self.in_features))  # type: ignore[attr-defined]
        if self.bias is not None:
            self.bias.materialize((self.out_features,))  # type: ignore[attr-defined]
        self.reset_parameters()


class _LazyConvolution(LazyModuleMixin):
    """A convolution that takes `in_channels` from its first input."""

    def _prepare(self: Any, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.out_channels = out_channels
        for name in ("weight", "bias") if bias else ("weight",):
            parameter = UninitializedParameter(device=device, dtype=dtype)
            self.register_parameter(name, parameter)

    def reset_parameters(self: Any) -> None:
        """Initialises like the convolution, once the parameters have shapes."""
        if self.in_channels != 0 and not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Uses the channels of an input with or without a batch dimension."""
        if not self.has_uninitialized_params():
            return
        if input.ndim not in (self.dimensions + 1, self.dimensions + 2):
            raise ArgumentError(
                f"{type(self).__name__}: expected {self.dimensions + 1}D (unbatched) or "
                f"{self.dimensions + 2}D (batched) input, but got {list(input.shape)}"
            )
        self.in_channels = input.shape[-self.dimensions - 1]
        self._check()
        ends = (self.out_channels, self.in_channels)
        ends = ends[::-1] if self.transposed else ends
        self.weight.materialize((ends[0], ends[1] // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyForward(_LazyConvolution):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (kernel_size, stride, padding, dilation, groups, False, padding_mode)
        super().__init__(0, 0, *settings)
        self._prepare(out_channels, bias, device, dtype)


class LazyConv1d(_LazyForward, Conv1d):
    """`Conv1d` that takes `in_channels` from its first input.

    The input is (N, C, L). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> layer = nn.LazyConv1d(2, 3)
    >>> layer(metaop.randn(4, 3, 5)).shape, layer.weight.shape
    (metaop.Size([4, 2, 3]), metaop.Size([2, 3, 3]))
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """`Conv2d` that takes `in_channels` from its first input.

    The input is (N, C, H, W). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> layer = nn.LazyConv2d(2, 3)
    >>> layer(metaop.randn(4, 3, 5, 5)).shape, layer.weight.shape
    (metaop.Size([4, 2, 3, 3]), metaop.Size([2, 3, 3, 3]))
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """`Conv3d` that takes `in_channels` from its first input.

    The input is (N, C, D, H, W). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> layer = nn.LazyConv3d(2, 3)
    >>> layer(metaop.randn(4, 3, 5, 5, 5)).shape, layer.weight.shape
    (metaop.Size([4, 2, 3, 3, 3]), metaop.Size([2, 3, 3, 3, 3]))
    """

    cls_to_become = Conv3d


class _LazyTransposed(_LazyConvolution):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (kernel_size, stride, padding, output_padding, groups, False, dilation)
        super().__init__(0, 0, *settings, padding_mode)
        self._prepare(out_channels, bias, device, dtype)


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """`ConvTranspose1d` that takes `in_channels` from its first input.

    The input is (N, C, L). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> layer = nn.LazyConvTranspose1d(2, 3)
    >>> layer(metaop.randn(4, 3, 5)).shape, layer.weight.shape
    (metaop.Size([4, 2, 7]), metaop.Size([3, 2, 3]))
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """`ConvTranspose2d` that takes `in_channels` from its first input.

    The input is (N, C, H, W). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> layer = nn.LazyConvTranspose2d(2, 3)
    >>> layer(metaop.randn(4, 3, 5, 5)).shape, layer.weight.shape
    (metaop.Size([4, 2, 7, 7]), metaop.Size([3, 2, 3, 3]))
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """`ConvTranspose3d` that takes `in_channels` from its first input.

    The input is (N, C, D, H, W). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> layer = nn.LazyConvTranspose3d(2, 3)
    >>> layer(metaop.randn(4, 3, 5, 5, 5)).shape, layer.weight.shape
    (metaop.Size([4, 2, 7, 7, 7]), metaop.Size([3, 2, 3, 3, 3]))
    """

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin):
    """A normalisation that takes `num_features` from dimension 1 of its first input."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, dtype=dtypes.int64, device=device)

    def reset_parameters(self: Any) -> None:
        """Initialises like the normalisation, once the parameters have shapes."""
        if self.num_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Tensor) -> None:  # type: ignore[override]
        """Uses the channels of the input."""
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for _, value in self._own_tensors():
            if is_lazy(value):
                value.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """`BatchNorm1d` that takes `num_features` from its first input.

    The input is (N, C, L), or (N, C). Until then its parameters have no shape, and reading it
    raises ArgumentError.

    >>> norm = nn.LazyBatchNorm1d()
    >>> norm(metaop.randn(4, 3, 5)).shape, norm.weight.shape
    (metaop.Size([4, 3, 5]), metaop.Size([3]))
    """

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """`BatchNorm2d` that takes `num_features` from its first input.

    The input is (N, C, H, W). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> norm = nn.LazyBatchNorm2d()
    >>> norm(metaop.randn(4, 3, 5, 5)).shape, norm.weight.shape
    (metaop.Size([4, 3, 5, 5]), metaop.Size([3]))
    """

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """`BatchNorm3d` that takes `num_features` from its first input.

    The input is (N, C, D, H, W). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> norm = nn.LazyBatchNorm3d()
    >>> norm(metaop.randn(4, 3, 5, 5, 5)).shape, norm.weight.shape
    (metaop.Size([4, 3, 5, 5, 5]), metaop.Size([3]))
    """

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """`InstanceNorm1d` that takes `num_features` from its first input.

    The input is (N, C, L). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> norm = nn.LazyInstanceNorm1d(affine=True)
    >>> norm(metaop.randn(4, 3, 5)).shape, norm.weight.shape
    (metaop.Size([4, 3, 5]), metaop.Size([3]))
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """`InstanceNorm2d` that takes `num_features` from its first input.

    The input is (N, C, H, W). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> norm = nn.LazyInstanceNorm2d(affine=True)
    >>> norm(metaop.randn(4, 3, 5, 5)).shape, norm.weight.shape
    (metaop.Size([4, 3, 5, 5]), metaop.Size([3]))
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """`InstanceNorm3d` that takes `num_features` from its first input.

    The input is (N, C, D, H, W). Until then its parameters have no shape, and reading it raises
    ArgumentError.

    >>> norm = nn.LazyInstanceNorm3d(affine=True)
    >>> norm(metaop.randn(4, 3, 5, 5, 5)).shape, norm.weight.shape
    (metaop.Size([4, 3, 5, 5, 5]), metaop.Size([3]))
    """

    cls_to_become = InstanceNorm3d
