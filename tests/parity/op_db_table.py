"""Entries of PyTorch's operator database that metaop does not match, each with the reason.

An entry that works has to leave this table: the tests say so.
"""

from __future__ import annotations

_NAMES: dict[str, tuple[str, ...]] = {
    "its operands are sparse, see tests/operators/test_sparse.py": (
        "sparse.mm/reduce",
        "sparse.sampled_addmm",
    ),
    "complex numbers of half precision are not supported": ("chalf",),
    "of a leaf that is a view reads a base without a gradient": ("as_strided/partial_views",),
    "its samples are for CUDA": ("nn.functional.batch_norm/without_cudnn",),
    "PyTorch's gradient of the input is that of other elements": ("as_strided_scatter",),
}

# Entries that differ for complex numbers alone.
OF_COMPLEX = {
    "istft": "PyTorch gives a complex window no gradient",
    "to_sparse": "PyTorch differentiates no sparse tensor of complex numbers",
}

FAILURES: dict[str, str] = {name: reason for reason, names in _NAMES.items() for name in names}
