"""The Tensor and the functions on it, named as in PyTorch; they become its methods here."""

from metaop.tensor import (
    comparison,
    conversion,
    creation,
    gradients,
    indexing,
    joining,
    linear_algebra,
    pointwise,
    rearranging,
    reductions,
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
    shaping,
    rearranging,
    joining,
    indexing,
    gradients,
):
    bind(_module)
