"""Complex tensors beside PyTorch's: what programs do with them, and errors for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import metaop

torch = pytest.importorskip("torch")

NUMBERS = np.random.default_rng(0).standard_normal((2, 3, 4, 2)).astype(np.float32)
OTHERS = np.random.default_rng(1).standard_normal((2, 4, 5, 2)).astype(np.float32)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "product": lambda lib, z, w: (z @ w) * 2j,
    "quotient": lambda lib, z, w: (1 + z) / (z - 2j),
    "einsum": lambda lib, z, w: lib.einsum("bij,bjk->bki", z, w),
    "powers": lambda lib, z, w: z**3 + z**0.5 + 2.0**z,
    "functions": lambda lib, z, w: lib.exp(z) + lib.log(z) + lib.sqrt(z) + lib.sin(z) * lib.cos(z),
    "transposed": lambda lib, z, w: z[0].T @ z[0] + z[0].mH @ z[0] + lib.tanh(z[0].mT @ z[0]),
    "parts": lambda lib, z, w: lib.abs(z) + lib.angle(z) + z.real * z.imag,
    "conjugate": lambda lib, z, w: (z.conj() * z).real,
    "sums": lambda lib, z, w: z.sum(1) * z.mean((0, 1)),
    "shapes": lambda lib, z, w: (
        lib.cat([z.reshape(2, -1), z.flatten(1)], 1).unsqueeze(1).squeeze(1).transpose(0, -1)
    ),
    "more shapes": lambda lib, z, w: lib.stack([z, z.roll(1, -1)]).permute(3, 0, 1, 2).flip(0),
    "pieces": lambda lib, z, w: z[..., :2] * z[:, :, 2:] + z.narrow(-1, 1, 2) * z.split(2, -1)[0],
    "mixed": lambda lib, z, w: z.real * z + 1j * z.imag - z.abs(),
    "filled": lambda lib, z, w: z + lib.zeros_like(z) + lib.full((4,), 1 - 2j),
    "fft": lambda lib, z, w: lib.fft.ifft2(lib.fft.fft2(z) * 0.5j),
    "rotation": lambda lib, z, w: lib.view_as_real(z * lib.polar(z.real.abs(), z.imag)).flatten(-2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name: str) -> None:
    function = FUNCTIONS[name]
    mine = [metaop.tensor(x).requires_grad_() for x in (NUMBERS, OTHERS)]
    theirs = [torch.tensor(x).requires_grad_() for x in (NUMBERS, OTHERS)]
    got = function(metaop, *map(metaop.view_as_complex, mine))
    wanted = function(torch, *map(torch.view_as_complex, theirs))
    assert str(got.dtype).split(".")[1] == str(wanted.dtype).split(".")[1]
    assert got.shape == wanted.shape
    expected = wanted.detach().resolve_conj().numpy()
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-4, atol=1e-4)
    if got.is_complex():
        got, wanted = metaop.view_as_real(got), torch.view_as_real(wanted.resolve_conj())
    (got * got).sum().backward()
    (wanted * wanted).sum().backward()
    for one, other in zip(mine, theirs):
        if other.grad is not None:
            tolerance = 1e-4 * float(other.grad.abs().max())
            np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), 1e-3, tolerance)


def test_making_and_showing() -> None:
    z = metaop.tensor([1 + 2j, 3.0])
    assert z.dtype is metaop.complex64 and z.is_complex() and z.shape == (2,)
    assert z.tolist() == [1 + 2j, 3] and z[0].item() == 1 + 2j
    assert repr(z) == "tensor([1.+2.j, 3.+0.j])"
    assert metaop.from_numpy(np.ones(2, np.complex128)).dtype is metaop.complex128
    assert metaop.zeros(2, 3, dtype=metaop.cfloat).to(metaop.float64).dtype is metaop.float64
    assert metaop.ones(3).to(metaop.complex128).tolist() == [1, 1, 1]
    z[0] = 5j
    z.real[1] = 7.0
    assert z.tolist() == [5j, 7]
    pair = metaop.ones(3, 2)
    metaop.view_as_complex(pair).imag.zero_()
    assert pair.tolist() == [[1, 0]] * 3


def test_leaves() -> None:
    z = metaop.tensor([3 + 4j]).requires_grad_()
    metaop.abs(z).sum().backward()
    assert z.is_leaf and z.grad.dtype is metaop.complex64
    np.testing.assert_allclose(z.grad.numpy(), [0.6 + 0.8j], rtol=1e-6)


def test_what_is_not_there_is_an_error() -> None:
    z = metaop.ones(3).to(metaop.complex64)
    for function in (lambda: z.cumsum(0), lambda: metaop.acosh(z), lambda: z < z):
        with pytest.raises((RuntimeError, NotImplementedError), match="complex"):
            function()
    with pytest.raises((RuntimeError, TypeError)):
        metaop.view_as_real(metaop.ones(2))
    with pytest.raises((RuntimeError, TypeError)):
        metaop.view_as_complex(metaop.ones(3))
    with pytest.raises((RuntimeError, NotImplementedError)):
        metaop.randn(3, dtype=metaop.cfloat)


@pytest.mark.parametrize("options", [{}, {"normalized": True}, {"center": False}])
def test_a_spectrogram_and_back(options: dict) -> None:
    signal = np.random.default_rng(2).standard_normal((2, 400)).astype(np.float32)
    mine, theirs = metaop.tensor(signal), torch.tensor(signal)
    windows = (metaop.hamming_window(40), torch.hamming_window(40))
    got = metaop.stft(mine, 40, 10, window=windows[0], return_complex=True, **options)
    wanted = torch.stft(theirs, 40, 10, window=windows[1], return_complex=True, **options)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), atol=1e-4)
    again = metaop.istft(got, 40, 10, window=windows[0], **options)
    np.testing.assert_allclose(again.numpy(), signal[:, : again.shape[1]], atol=1e-4)
