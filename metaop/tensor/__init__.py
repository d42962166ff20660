"""The Tensor and the functions on it, named as in PyTorch; they become its methods here."""

from metaop.tensor import (
    comparison,
    conversion,
    creation,
    linear_algebra,
    pointwise,
    reductions,
    selection,
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
):
    bind(_module)
