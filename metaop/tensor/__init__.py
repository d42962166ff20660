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
    rearranging,
    reductions,
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
    shaping,
    rearranging,
    joining,
    indexing,
    gradients,
):
    bind(_module)
