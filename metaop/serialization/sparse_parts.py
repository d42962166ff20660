"""Sparse tensors in checkpoints: a layout, and the tensors that hold what is stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaop.serialization.damage import Damage
from metaop.tensor.sparse.layouts import SPARSE_LAYOUTS, layout, sparse_coo, sparse_csr
from metaop.tensor.sparse.making import sparse_compressed_tensor, sparse_coo_tensor
from metaop.tensor.sparse.tensors import SparseTensor


def parts_of(tensor: SparseTensor) -> tuple[Any, ...]:
    """What `rebuilt` takes beside the layout: indices, values, the size, and whether sorted."""
    size = tensor.size()
    if tensor.layout is sparse_coo:
        return tensor._indices(), tensor._values(), size, tensor.is_coalesced()
    if tensor.layout is sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values(), size
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values(), size


def rebuilt(kind: layout, parts: tuple[Any, ...]) -> SparseTensor:
    """The sparse tensor of a layout that has these parts."""
    if kind is sparse_coo:
        indices, values, size, *rest = parts
        found = sparse_coo_tensor(indices, values, size)
        # The word of the file is not enough: what is sorted is read in other ways.
        is_sorted = rest == [True] and bool((np.diff(found._linear()) > 0).all())
        return sparse_coo_tensor(indices, values, size, is_coalesced=is_sorted)
    compressed, plain, values, size = parts
    return sparse_compressed_tensor(compressed, plain, values, size, layout=kind)


def layout_named(name: str) -> layout:
    """The layout that PyTorch calls by a name such as `torch.sparse_coo`."""
    for kind in SPARSE_LAYOUTS:
        if name == f"torch.{kind._name}":
            return kind
    raise Damage(f"it has a tensor with the layout {name}")
