"""The Tensor and the functions on it, named as in PyTorch; each declares itself (`surface.py`)."""

# ruff: noqa: I001
# fmt: off
from metaop.tensor import (
    activations, comparison, complex_tensor, contractions, conversion, counting, creation,
    decompositions, determinants, dlpack, fetching, finite_differences, global_tensor, gradients,
    host_pointwise, householder, indexing, joining, legacy, linear_algebra, low_rank, lu,
    matrix_functions, norms, ordering, places, pointwise, promotion, random, ranges, rearranging,
    reductions, resizing, scans, scattering, selection, shaping, sharing, solutions,
    sparse_creation, special_functions, special_methods, spectrograms, storage, windows,
)
