"""Discrete Fourier transforms, as in `torch.fft`; the host computes them (pocketfft in SciPy).

The gradient of a transform is the one with the opposite sign; of a real one, from half of a
spectrum, or to it.
"""

from metaop.tensor.functions.fourier import (
    fft,
    fft2,
    fftn,
    hfft,
    hfft2,
    hfftn,
    ifft,
    ifft2,
    ifftn,
    ihfft,
    ihfft2,
    ihfftn,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)
from metaop.tensor.functions.frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from metaop.tensor.out import offer

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

offer(globals(), (name for name in __all__ if not name.endswith("shift")))
