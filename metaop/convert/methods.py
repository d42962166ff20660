"""Attributes of PyTorch's tensors that metaop lacks, recognised by unambiguous names."""

from __future__ import annotations

from collections.abc import Container
from functools import cache

import libcst as cst

# The receiver's type is not known, so only names that hardly any other class has.
_TELLING_NAMES = (
    *("apply_", "as_strided_", "cholesky_inverse", "cholesky_solve", "coalesce", "dequantize"),
    *("fill_diagonal_", "geqrf", "int_repr", "is_coalesced", "is_quantized", "is_shared"),
    *("istft", "lu_solve", "map2_", "map_", "matrix_exp", "matrix_power", "mvlgamma", "new"),
    *("new_tensor", "ormqr", "orgqr", "pinverse", "put_", "q_per_channel_scales", "q_scale"),
    *("q_zero_point", "qscheme", "record_stream", "refine_names", "rename_", "resize_"),
    *("resize_as_", "set_", "share_memory_", "smm", "sparse_mask", "sparse_resize_"),
    *("sspaddmm", "stft", "symeig", "to_dense", "to_mkldnn", "to_sparse", "to_sparse_csr"),
    *("grad_dtype", "output_nr", "unsafe_split_with_sizes", "volatile"),
    *("triangular_solve", "unfold", "unsafe_chunk", "unsafe_split", "untyped_storage"),
)


@cache
def _missing_names() -> frozenset[str]:
    import metaop

    kinds = (metaop.Tensor, metaop.sparse.SparseTensor)
    owners = (*kinds, metaop.nn.Module, metaop.optim.Optimizer)
    return frozenset(
        name for name in _TELLING_NAMES if not any(hasattr(owner, name) for owner in owners)
    )


def missing_attribute(node: cst.Attribute, own: Container[str]) -> str:
    """The name of a tensor attribute that metaop lacks, or an empty string.

    Names in `own`, which the program itself defines, are excluded.
    """
    name = node.attr.value
    return name if name in _missing_names() and name not in own else ""
