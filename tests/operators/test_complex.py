"""Complex tensors beside PyTorch's: what programs do with them, and errors for the rest."""

from __future__ import annotations

import io
import pickle
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
    "chosen": lambda lib, z, w: z.where(z.real > 0, z * 2) + lib.where(z.imag > 0, z, z * 3),
    "parts": lambda lib, z, w: lib.abs(z) + lib.angle(z) + z.real * z.imag,
    "conjugate": lambda lib, z, w: (z.conj() * z).real,
    "real ones": lambda lib, z, w: lib.isreal(z - 1j * z.imag * (z.real > 0)) * z,
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
    for function in (lambda: z.floor(), lambda: metaop.erf(z), lambda: z < z, lambda: z.sort()):
        with pytest.raises((RuntimeError, NotImplementedError), match="complex"):
            function()
    with pytest.raises((RuntimeError, TypeError)):
        metaop.view_as_real(metaop.ones(2))
    with pytest.raises((RuntimeError, TypeError)):
        metaop.view_as_complex(metaop.ones(3))
    with pytest.raises(RuntimeError, match="real scalar outputs"):
        metaop.ones(3, dtype=metaop.cfloat, requires_grad=True).sum().backward()


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


def numbers(lib: Any) -> Any:
    return lib.tensor([[1 + 2j, 3 - 1j], [0.5j, -2]])


def saved(lib: Any) -> Any:
    file = io.BytesIO()
    z = numbers(lib).to(lib.complex128)
    lib.save({"number": lib.tensor(1 + 2j), "whole": z, "turned": z.T, "part": z[1]}, file)
    file.seek(0)
    return list(lib.load(file).values())


def buffered(lib: Any) -> Any:
    module = lib.nn.Module()
    module.register_buffer("z", numbers(lib))
    module.load_state_dict({"z": numbers(lib) * 2j})
    return module.z


def changed(lib: Any) -> Any:
    z = numbers(lib)
    same = z
    z += 1j
    z *= 2
    z.sub_(numbers(lib))
    return [same, same.fill_(3j).clone(), same.zero_()]


CONVOLUTIONS = {
    "conv1d": ((1, 2, 5), (3, 2, 2)),
    "conv2d": ((1, 2, 4, 4), (3, 2, 2, 2)),
    "conv3d": ((1, 1, 3, 3, 3), (3, 1, 2, 2, 2)),
    "conv_transpose1d": ((1, 2, 5), (2, 3, 2)),
    "conv_transpose2d": ((1, 2, 3, 3), (2, 3, 2, 2)),
    "linear": ((2, 4), (3, 4)),
}
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "conversions": lambda lib: [
        complex(lib.tensor(1 + 2j)),
        complex(lib.tensor([1 + 2j])),
        complex(lib.tensor(2.0)),
        lib.tensor(1 + 2j).item(),
        lib.tensor(1 + 2j).tolist(),
        float(lib.tensor(2 + 0j)),
        int(lib.tensor(2 + 0j)),
        bool(lib.tensor(1j)),
        bool(lib.tensor(0j)),
        f"{lib.tensor(1 + 2j)} {lib.tensor(1 + 2j)!r}",
    ],
    "no float": lambda lib: float(lib.tensor(1 + 2j)),
    "no truth": lambda lib: bool(numbers(lib)),
    "no item": lambda lib: numbers(lib).item(),
    "without dimensions": lambda lib: [
        f(lib.tensor(1 + 2j))
        for f in (
            *(lambda z: z.sum(), lambda z: z.mean(), lambda z: z.prod(), lambda z: z.flatten()),
            *(lambda z: z.sum(0), lambda z: z.abs(), lambda z: z.conj(), lambda z: z**2),
            *(lambda z: z.reshape(1, 1), lambda z: z.to(lib.complex128), lambda z: 1 / z),
            *(lambda z: z.expand(2, 2), lambda z: lib.stack([z, z]), lambda z: z.unsqueeze(0)),
        )
    ],
    "products": lambda lib: [
        numbers(lib).prod(),
        numbers(lib).prod(0),
        lib.prod(numbers(lib), 1, keepdim=True),
        lib.zeros(0, dtype=lib.complex64).prod(),
        lib.tensor([1j, 2, 3 - 1j, 1 + 1j, 2j]).prod(),
        lib.dot(numbers(lib)[0], numbers(lib)[1]),
        lib.vdot(numbers(lib)[0], numbers(lib)[1]),
        numbers(lib).norm(),
    ],
    "more shapes": lambda lib: [
        *(numbers(lib).roll(1), numbers(lib).repeat(2, 1), *numbers(lib).chunk(2)),
        *(numbers(lib).diagonal(), numbers(lib).trace(), numbers(lib).cumsum(0)),
        *(numbers(lib).index_select(0, lib.tensor([1])), numbers(lib).nonzero()),
        *(lib.where(lib.tensor([True, False]), numbers(lib), 0), lib.eye(2, dtype=lib.complex64)),
        *(lib.linspace(0, 1, 3, dtype=lib.complex64), lib.equal(numbers(lib), numbers(lib))),
    ],
    "saved": saved,
    "pickled": lambda lib: pickle.loads(pickle.dumps(numbers(lib))),
    "loaded": buffered,
    "in place": changed,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_pytorch(name: str) -> None:
    program = PROGRAMS[name]
    try:
        expected = program(torch)
    except (RuntimeError, TypeError, ValueError):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            program(metaop)
        return
    found, expected = (x if isinstance(x, list) else [x] for x in (program(metaop), expected))
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        if isinstance(other, torch.Tensor):
            assert str(one.dtype).split(".")[1] == str(other.dtype).split(".")[1]
            assert tuple(one.shape) == tuple(other.shape)
            array = other.resolve_conj().numpy()
            np.testing.assert_allclose(one.numpy(), array, rtol=1e-5, atol=1e-6)
        else:
            assert one == other and type(one) is type(other)


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_what_is_linear_in_both_factors(name: str, bias: bool) -> None:
    draw = np.random.default_rng(5).standard_normal
    shapes = (*CONVOLUTIONS[name], *([(3,)] if bias else []))
    arrays = [draw(shape) + 1j * draw(shape) for shape in shapes]
    results = []
    for lib in (metaop, torch):
        tensors = [lib.tensor(array, requires_grad=True) for array in arrays]
        found = getattr(lib.nn.functional, name)(*tensors)
        found.abs().sum().backward()
        results.append([found.detach().numpy(), *(one.grad.numpy() for one in tensors)])
    for one, other in zip(*results):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_products_of_matrices_are_contractions_in_both_parts() -> None:
    one, other = (
        metaop.tensor(np.random.default_rng(seed).standard_normal((96, 96, 2)).astype(np.float32))
        for seed in (0, 1)
    )
    product = metaop.view_as_complex(one) @ metaop.view_as_complex(other)
    lines = metaop.inspect.kernels(product).splitlines()
    names = [line.split("(")[0] for line in lines if line.startswith("kernel ")]
    assert names.count("kernel contraction_add") >= 2 and "kernel rows_add" not in names


def test_files_are_pytorchs() -> None:
    """A file of either library is one of the other, views of one storage too."""
    for writer, reader in ((metaop, torch), (torch, metaop)):
        file = io.BytesIO()
        z = writer.tensor([[1 + 2j, 3], [4j, 5]])
        writer.save([z, z.T, z[1], writer.tensor(1j)], file)
        file.seek(0)
        whole, turned, row, number = reader.load(file)
        assert whole.tolist() == [[1 + 2j, 3], [4j, 5]] and turned.tolist() == whole.T.tolist()
        assert row.tolist() == [4j, 5] and number.item() == 1j
        row[0] = 7j
        assert whole[1, 0].item() == turned[0, 1].item() == 7j


WINDOWS: list[dict[str, Any]] = [
    {"window": window, "center": center, "normalized": normalized, "onesided": onesided}
    for window in (None, "hann", "complex")
    for center in (True, False)
    for normalized in (True, False)
    for onesided in (None, True, False)
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("signal", ["real", "complex", "matrix", "cube", "whole numbers"])
def test_short_time_transforms(signal: str) -> None:
    """Spectra, and signals from spectra with and without a length: PyTorch's, or both refuse."""
    draw = np.random.default_rng(6).standard_normal
    shape = {"matrix": (2, 40), "cube": (2, 2, 40)}.get(signal, (40,))
    values = draw(shape) + 1j * draw(shape) if signal == "complex" else draw(shape)
    values = values.astype(np.int64) if signal == "whole numbers" else values

    def outcome(lib: Any, options: dict[str, Any], length: int | None) -> Any:
        window = options["window"]
        if window is not None:
            window = lib.hann_window(8, dtype=lib.float64) * (1j if window == "complex" else 1)
        options = {**options, "window": window, "hop_length": 2}
        try:
            spectra = lib.stft(lib.tensor(values), 8, return_complex=True, **options)
        except (RuntimeError, ValueError):
            return None
        shown = (spectra if lib is metaop else spectra.resolve_conj()).numpy()
        try:
            found = lib.istft(spectra, 8, length=length, **options).numpy()
        except (RuntimeError, ValueError, NotImplementedError):
            found = None
        return shown, found

    for options in WINDOWS:
        for length in (None, 30, 44):
            found, expected = (outcome(lib, options, length) for lib in (metaop, torch))
            assert (found is None) == (expected is None), options
            for one, other in zip(found or (), expected or ()):
                assert (one is None) == (other is None), (options, length)
                if other is not None:
                    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "real": lambda lib, z: z.real,
    "transposed": lambda lib, z: z.T,
    "imaginary parts of a transpose": lambda lib, z: z.T[1:].imag,
    "pairs": lambda lib, z: lib.view_as_real(z)[1:, ::2],
    "numbers again": lambda lib, z: lib.view_as_complex(lib.view_as_real(z)[:, 2:]),
    "parts of a column": lambda lib, z: z[:, 1].real[::2],
    "parts in a row": lambda lib, z: lib.view_as_real(z).reshape(-1)[3::5],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_lie_where_those_of_pytorch_do(name: str) -> None:
    draw = np.random.default_rng(3).standard_normal
    values = draw((4, 6)) + 1j * draw((4, 6))
    bases = metaop.tensor(values), torch.tensor(values)
    mine, theirs = (VIEWS[name](lib, base) for lib, base in zip((metaop, torch), bases))
    assert mine.stride() == theirs.stride()
    assert mine.storage_offset() == theirs.storage_offset()
    assert mine.is_contiguous() == theirs.is_contiguous()
    assert mine.data_ptr() - bases[0].data_ptr() == theirs.data_ptr() - bases[1].data_ptr()
    for view in (mine, theirs):
        view.mul_(3)
        view[0] = 7
    np.testing.assert_allclose(bases[0].numpy(), bases[1].numpy())
    file = io.BytesIO()
    metaop.save(mine, file)
    file.seek(0)
    np.testing.assert_allclose(torch.load(file).numpy(), theirs.numpy())


def test_maps_over_batches_and_tangents() -> None:
    draw = np.random.default_rng(5).standard_normal
    batch, other = (metaop.tensor(draw((5, 3)) + 1j * draw((5, 3))) for _ in range(2))

    def loss(x: Any, y: Any) -> Any:
        return (x.exp() * y.conj()).abs().sum()

    gradients = metaop.vmap(metaop.func.grad(loss))(batch, other)
    for k in range(5):
        one = metaop.func.grad(loss)(batch[k], other[k])
        np.testing.assert_allclose(gradients[k].numpy(), one.numpy(), 1e-10)
    leaf = batch[0].clone().requires_grad_()
    assert metaop.autograd.gradcheck(lambda x: (x * other[0]).sin() / x.conj(), (leaf,))
    value, tangent = metaop.func.jvp(lambda x: x.exp(), (batch[0],), (other[0],))
    np.testing.assert_allclose(tangent.numpy(), (value * other[0]).numpy(), 1e-10)


def test_parts_are_written() -> None:
    def written(lib: Any) -> list[Any]:
        z = lib.tensor(NUMBERS[0, 0, :, 0].tolist()) + 0j
        z.requires_grad_()
        w = z * 2
        w.imag = lib.tensor([1.0, 2.0, 3.0, 4.0])
        w.real += 0.5
        w[1:].real = 3
        real = lib.ones(2)
        real.real = lib.zeros(2)
        w.abs().sum().backward()
        return [w.detach().numpy(), z.grad.numpy(), real.numpy()]

    for mine, theirs in zip(written(metaop), written(torch), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.parametrize("lib", [metaop, torch])
def test_what_cannot_be_a_part(lib: Any) -> None:
    z = lib.ones(2) + 0j
    with pytest.raises(TypeError):
        z.real = [1.0, 2.0]
    with pytest.raises(RuntimeError):
        z.imag = lib.ones(3)
    with pytest.raises(RuntimeError):
        lib.ones(2).imag = 1
    with pytest.raises(RuntimeError):
        z.requires_grad_().real = 0
