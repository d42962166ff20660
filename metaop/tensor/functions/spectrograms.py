"""Short-time Fourier transforms and their inverse."""

from __future__ import annotations

from metaop.errors import ArgumentError, ShapeError, UnsupportedError
from metaop.operators import padding
from metaop.tensor.casting import in_float32
from metaop.tensor.core import Tensor, wrap
from metaop.tensor.functions.complex_numbers import view_as_real
from metaop.tensor.functions.fourier import fft, ifft, irfft, rfft
from metaop.tensor.functions.ranges import arange
from metaop.tensor.surface import public
from metaop.unified_graph.recording import record


def _window(window: Tensor | None, length: int | None, n_fft: int, like: Tensor) -> Tensor:
    """The window, by default ones, centred in `n_fft` elements."""
    length = n_fft if length is None else length
    if not 0 < length <= n_fft:
        raise ArgumentError(f"expected 0 < win_length <= n_fft, but got win_length={length}")
    if window is None:
        window = like.new_ones(length)
    if window.shape != (length,):
        raise ShapeError(f"expected a 1D window of size {length}, but got {list(window.shape)}")
    before = (n_fft - length) // 2
    return _padded(window, before, n_fft - length - before, "constant")


def _padded(x: Tensor, before: int, after: int, mode: str) -> Tensor:
    rest = (0,) * (x.ndim - 1)
    return wrap(record(padding.pad, (x.call,), ((*rest, before), (*rest, after), mode, 0)))


@public(method=True, precision=in_float32)
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The spectra of overlapping frames of a signal: (…, L) -> (…, frequencies, frames).

    Frames have `n_fft` samples, start `hop_length` (default n_fft // 4) apart, and are multiplied
    by `window`. With `center`, frame `t` is centred at sample `t * hop_length`. `onesided` omits
    the redundant conjugates.

    The window has `win_length` samples. Raises ArgumentError for sizes that do not fit.

    >>> signal = metaop.tensor([1.0, 0.0, -1.0, 0.0] * 4)
    >>> metaop.stft(signal, 4, center=False, return_complex=True).abs()[:, 0]
    tensor([0., 2., 0.])
    """
    if align_to_window and not center:
        raise UnsupportedError(
            "stft: frames aligned to the window (align_to_window=True)",
            fix="leave align_to_window out and pad the signal",
        )
    if align_to_window is not None and center:
        raise ArgumentError(
            "stft: align_to_window is only for center=False", fix="leave align_to_window out"
        )
    if return_complex is None:
        raise ArgumentError(
            "stft requires the return_complex parameter be given for real inputs",
            fix="pass return_complex=True",
        )
    is_real = not any(x is not None and x.dtype.is_complex for x in (input, window))
    if onesided and not is_real:
        raise ArgumentError(
            "Cannot have onesided output if window or input is complex", fix="pass onesided=False"
        )
    if input.ndim not in (1, 2) or not input.dtype.is_differentiable:
        raise ShapeError(
            "stft: expected a 1D or 2D tensor of floating values, got "
            f"{input.dtype.name} {list(input.shape)}",
            fix="flatten the dimensions before the last one, convert with .float()",
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    signal = input if input.ndim == 2 else input.unsqueeze(0)
    if center:
        signal = _padded(signal, n_fft // 2, n_fft // 2, pad_mode)
    if not 0 < n_fft <= signal.shape[-1] or hop <= 0:
        raise ArgumentError(
            f"stft: n_fft={n_fft} and hop_length={hop} do not fit {signal.shape[-1]} samples"
        )
    pieces = signal.unfold(-1, n_fft, hop) * _window(window, win_length, n_fft, input)
    norm = "ortho" if normalized else None
    transform = rfft if is_real and onesided is not False else fft
    spectra = transform(pieces, norm=norm).transpose(1, 2)
    spectra = spectra if input.ndim == 2 else spectra.squeeze(0)
    return spectra if return_complex else view_as_real(spectra)


@public(method=True)
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose `stft` is closest to the given spectra: (…, frequencies, frames) -> (…, L).

    `length` trims or pads the result. Of two-sided spectra, only the first half is read, unless
    `return_complex` requests a complex signal.

    >>> window = metaop.hann_window(4)
    >>> spectra = metaop.stft(metaop.arange(8.0), 4, window=window, return_complex=True)
    >>> metaop.istft(spectra, 4, window=window).round().abs()
    tensor([0., 1., 2., 3., 4., 5., 6., 7.])
    """
    if not input.dtype.is_complex:
        raise ArgumentError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            f"return_complex=True, got {input.dtype.name} {list(input.shape)}",
            fix="use view_as_complex for pairs",
        )
    if not return_complex and window is not None and window.dtype.is_complex:
        raise ArgumentError(
            "Complex windows are incompatible with return_complex=False",
            fix="pass return_complex=True",
        )
    counts = {None: (n_fft, n_fft // 2 + 1), True: (n_fft // 2 + 1,), False: (n_fft,)}[onesided]
    if input.ndim not in (2, 3) or input.shape[-2] not in counts:
        raise ShapeError(
            f"istft: expected {' or '.join(map(str, counts))} frequencies for n_fft={n_fft} and "
            f"onesided={onesided}, got {list(input.shape)}",
            fix="pass the n_fft and onesided of the stft",
        )
    hop = n_fft // 4 if hop_length is None else hop_length
    spectra = (input if input.ndim == 3 else input.unsqueeze(0)).transpose(1, 2)
    norm = "ortho" if normalized else None
    pieces = ifft(spectra, norm=norm) if return_complex else irfft(spectra, n_fft, norm=norm)
    shape = _window(window, win_length, n_fft, spectra.real)
    count = pieces.shape[1]
    extent = n_fft + hop * (count - 1)
    places = (arange(count).unsqueeze(1) * hop + arange(n_fft)).flatten().to(device=input.device)

    def added(parts: Tensor) -> Tensor:
        flat = parts.reshape(parts.shape[0], -1)
        return flat.new_zeros((flat.shape[0], extent)).index_add(1, places, flat)

    weights = added((shape * shape).expand(1, count, n_fft))
    start = n_fft // 2 if center else 0
    stop = extent - start if length is None else min(start + length, extent)
    weights = weights[:, start:stop]
    if bool((weights.abs() < 1e-11).any()):
        raise ArgumentError("window overlap add min: 1", fix="use a window without zeros inside")
    return _shown(added(pieces * shape)[:, start:stop] / weights, input.ndim, length)


def _shown(signal: Tensor, ndim: int, length: int | None) -> Tensor:
    if length is not None and signal.shape[1] < length:
        signal = _padded(signal, 0, length - signal.shape[1], "constant")
    return signal if ndim == 3 else signal.squeeze(0)
