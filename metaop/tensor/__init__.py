"""The Tensor and the functions on it, named as in PyTorch; each declares itself (`surface.py`)."""

# ruff: noqa: I001
# fmt: off
from metaop.tensor import (
    fetching, grad_mode, gradients, legacy, promotion, reading, resizing, sharing,
    special_methods, storage,
)
from metaop.tensor.functions import (
    activations, comparison, complex_numbers, conversion, counting, creation,
    finite_differences, indexing, joining, memory, ordering, places, pointwise, random, ranges,
    rearranging, reductions, scans, scattering, segment_reduction, selection, shaping,
    special_functions, spectrograms, strided_views, windows,
)
from metaop.tensor.host import dlpack, element_calls, host_pointwise
from metaop.tensor.linear_algebra import (
    contractions, decompositions, determinants, householder, products, low_rank,
    lu, matrix_functions, norms, solutions,
)
from metaop.tensor.sharded import global_tensor, mesh_tensor
from metaop.tensor.sparse import forms, making, moves
from metaop.tensor import overrides
