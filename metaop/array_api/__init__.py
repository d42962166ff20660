"""The array API standard, version 2024.12: what `tensor.__array_namespace__()` gives.

Tensors keep PyTorch's methods and operators: `x.size()` is a method (use `x.numel()`), `x1 + x2`
promotes with regard to dimensions. The functions here promote as the standard says. Of the
unsigned integers there is only uint8.
"""

from __future__ import annotations

import math

from metaop import (
    bool,
    complex64,
    complex128,
    float32,
    float64,
    from_dlpack,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from metaop.array_api import elementwise, linalg
from metaop.array_api.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from metaop.array_api.information import __array_namespace_info__
from metaop.array_api.linalg import matmul, tensordot, vecdot
from metaop.array_api.shaping import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    nonzero,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    take,
    take_along_axis,
    tile,
    unstack,
)
from metaop.array_api.statistics import (
    all,
    any,
    argmax,
    argmin,
    argsort,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    searchsorted,
    sort,
    std,
    sum,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    var,
)
from metaop.array_api.types import astype, can_cast, finfo, iinfo, isdtype, result_type

__array_api_version__ = "2024.12"

e, pi, inf, nan = math.e, math.pi, math.inf, math.nan
newaxis = None

globals().update({name: getattr(elementwise, name) for name in elementwise.NAMES})
