"""The Tensor and the functions on it, named as in PyTorch; they become its methods here."""

from metaop.tensor import (
    comparison,
    contractions,
    conversion,
    counting,
    creation,
    gradients,
    indexing,
    joining,
    linear_algebra,
    norms,
    ordering,
    pointwise,
    random,
    rearranging,
    reductions,
    scattering,
    scans,
    selection,
    shaping,
    special_methods,
)
from metaop.tensor.binding import bind

for _module in (
    pointwise,
    comparison,
    selection,
    creation,
    conversion,
    reductions,
    linear_algebra,
    contractions,
    norms,
    scans,
    ordering,
    counting,
    random,
    shaping,
    rearranging,
    joining,
    indexing,
    scattering,
    gradients,
):
    bind(_module)
