"""Switches of the libraries behind PyTorch; metaop keeps them so that programs can set them.

Generated code uses none of these libraries. What a switch says about precision or determinism
holds anyway: CPU kernels are deterministic, and float32 products are computed in float32.
"""

from metaop.backends import (
    cuda,
    cudnn,
    dynamo,
    inductor,
    mha,
    mkl,
    mkldnn,
    mps,
    nnpack,
    openmp,
    opt_einsum,
)

__all__ = [
    "cuda",
    "cudnn",
    "dynamo",
    "inductor",
    "mha",
    "mkl",
    "mkldnn",
    "mps",
    "nnpack",
    "openmp",
    "opt_einsum",
]
