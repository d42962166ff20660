"""Switches of CUDA libraries that metaop does not use; they change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

# Products are computed in full float32 whatever is set here.
matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=False,
    allow_bf16_reduced_precision_reduction=False,
)


def is_built() -> bool:
    """Whether the CUDA backend is part of metaop: it always is."""
    return True


def flash_sdp_enabled() -> bool:
    """Whether attention may use FlashAttention: attention is compiled like everything else."""
    return False


mem_efficient_sdp_enabled = cudnn_sdp_enabled = flash_sdp_enabled


def math_sdp_enabled() -> bool:
    """Whether attention is computed from its formula: always."""
    return True


def enable_flash_sdp(enabled: bool) -> None:
    """Accepted; there is one implementation of attention."""


enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """Accepted; there is one implementation of attention."""
    yield
