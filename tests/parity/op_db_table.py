"""Entries of PyTorch's operator database that metaop does not match, each with the reason.

An entry that works has to leave this table: the tests say so.
"""

from __future__ import annotations

_NAMES: dict[str, tuple[str, ...]] = {
    "complex numbers are not supported": (
        "cdouble",
        "cfloat",
        "chalf",
        "complex",
        "fft.fft",
        "fft.fft2",
        "fft.fftn",
        "fft.fftshift",
        "fft.hfft",
        "fft.hfft2",
        "fft.hfftn",
        "fft.ifft",
        "fft.ifft2",
        "fft.ifftn",
        "fft.ifftshift",
        "fft.ihfft",
        "fft.ihfft2",
        "fft.ihfftn",
        "fft.irfft",
        "fft.irfft2",
        "fft.irfftn",
        "fft.rfft",
        "fft.rfft2",
        "fft.rfftn",
        "imag",
        "istft",
        "linalg.eig",
        "linalg.eigvals",
        "polar",
        "stft",
        "view_as_complex",
        "view_as_real",
        "nn.functional.silu/complex",
    ),
    "sparse layouts are not supported": (
        "sparse.mm/reduce",
        "sparse.sampled_addmm",
        "to_sparse",
    ),
    "of a leaf that is a view reads a base without a gradient": ("as_strided/partial_views",),
    "its samples are for CUDA": ("nn.functional.batch_norm/without_cudnn",),
    "PyTorch's gradient of the input is that of other elements": ("as_strided_scatter",),
}

FAILURES: dict[str, str] = {name: reason for reason, names in _NAMES.items() for name in names}
