"""Quantisation schemes, and the scale and zero point that follow from a range."""

from __future__ import annotations

from enum import Enum

from metaop.tensor.core import Tensor
from metaop.tensor.functions.pointwise import maximum, minimum, round
from metaop.tensor.functions.selection import clamp, where
from metaop.unified_graph.dtype import DType, float32, int32, uint8


class QScheme(Enum):
    """PyTorch's schemes: per tensor or per channel, symmetric or affine.

    With float parameters, zero points are floats, and zero need not be representable.
    """

    per_tensor_affine = "per_tensor_affine"
    per_tensor_symmetric = "per_tensor_symmetric"
    per_channel_affine = "per_channel_affine"
    per_channel_symmetric = "per_channel_symmetric"
    per_channel_affine_float_qparams = "per_channel_affine_float_qparams"

    @property
    def is_per_channel(self) -> bool:
        """Whether each channel has a scale and a zero point."""
        return self.value.startswith("per_channel")

    @property
    def is_symmetric(self) -> bool:
        """Whether ranges are centred on zero."""
        return self.value.endswith("symmetric")


per_tensor_affine = QScheme.per_tensor_affine
per_tensor_symmetric = QScheme.per_tensor_symmetric
per_channel_affine = QScheme.per_channel_affine
per_channel_symmetric = QScheme.per_channel_symmetric
per_channel_affine_float_qparams = QScheme.per_channel_affine_float_qparams


def parameters_of_range(
    least: Tensor,
    greatest: Tensor,
    limits: tuple[int, int],
    scheme: QScheme,
    dtype: DType,
    eps: Tensor | float,
    is_customised: bool = False,
) -> tuple[Tensor, Tensor]:
    """Scale and zero point for values from `least` to `greatest`, as PyTorch's observers choose.

    `limits` are the smallest and the largest quantised value; a scale is at least `eps`. An empty
    range, whose least is above its greatest, gets scale 1.
    """
    low, high = limits
    is_seen = least <= greatest
    below, above = clamp(least, max=0.0), clamp(greatest, min=0.0)
    if scheme is per_channel_affine_float_qparams:
        scale = (greatest - least) / float(high - low)
        scale = where(scale > eps, scale, 1.0)
        zero = -1 * least / scale
        return where(is_seen, scale, 1.0), where(is_seen, zero, 0.0)
    if scheme.is_symmetric:
        scale = maximum(-below, above) / (float(high - low) / 2)
        middle = 0
        if dtype is uint8:
            middle = (low + high) // 2 if is_customised else 128
        scale = where(is_seen, _at_least(scale, eps), 1.0)
        return scale, where(is_seen, middle, 0).expand(scale.shape).to(int32)
    scale = _at_least((above - below) / float(high - low), eps)
    zero = clamp(low - round(below / scale), low, high)
    return where(is_seen, scale, 1.0), where(is_seen, zero, 0.0).to(int32)


def _at_least(scale: Tensor, eps: Tensor | float) -> Tensor:
    return maximum(scale, eps) if isinstance(eps, Tensor) else clamp(scale, min=eps)


def dynamic_parameters(input: Tensor, limits: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """One scale and one zero point for a tensor, from the range of its values."""
    numbers = input.detach().to(float32)
    below, above = minimum(numbers.amin(), 0), maximum(numbers.amax(), 0)
    scale = (above - below) / float(limits[1] - limits[0])
    scale = where(scale == 0, 0.1, scale)
    return scale, clamp(round(limits[0] - below / scale), *limits).to(int32)
