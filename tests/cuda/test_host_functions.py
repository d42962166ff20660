"""What computes on the host takes tensors of a GPU, and gives results there."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

import metaop
from metaop import nn
from tests.cuda import emulator


def packed() -> metaop.Tensor:
    steps = metaop.ones(4, 3, 2)
    given = nn.utils.rnn.pack_padded_sequence(steps, [2, 4, 3], enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(given)[0] * given.sorted_indices[:, None]


def collated() -> metaop.Tensor:
    samples = metaop.data.TensorDataset(metaop.ones(4, 2))
    return next(iter(metaop.data.DataLoader(samples, batch_size=2)))[0]


def messages() -> metaop.Tensor:
    graph = metaop.graph.graph((metaop.tensor([0, 1, 2]), metaop.tensor([1, 2, 0]))).to("cuda")
    graph.ndata["h"] = metaop.ones(3, 2)
    copied = metaop.graph.function.copy_u("h", "m")
    graph.update_all(copied, metaop.graph.function.sum("m", "o"))
    return graph.ndata["o"]


def saved() -> metaop.Tensor:
    file = io.BytesIO()
    image = metaop.ones(3, 2, 2)
    metaop.vision.utils.save_image(image, file, format="png")
    assert file.getvalue()[1:4] == b"PNG"
    return image


def checked() -> metaop.Tensor:
    x = metaop.ones(2, dtype=metaop.float64, requires_grad=True)
    assert metaop.autograd.gradcheck(lambda x: x * x, (x,))
    return x.detach()


def peaks() -> metaop.Tensor:
    if metaop.cuda.is_available():
        small = metaop.ones(10)
        metaop.cuda.synchronize()
        metaop.cuda.reset_peak_memory_stats()
        before = metaop.cuda.max_memory_allocated()
        large = metaop.ones(1 << 20, device="cuda") + 1
        metaop.cuda.synchronize()
        del large
        most = metaop.cuda.max_memory_allocated()
        assert most >= before + (4 << 20) and metaop.cuda.max_memory_reserved() >= most
        metaop.cuda.reset_peak_memory_stats()
        assert metaop.cuda.max_memory_allocated() < most
        return small
    return metaop.ones(10)


FUNCTIONS: dict[str, Callable[[], metaop.Tensor]] = {
    "orthogonal_": lambda: nn.init.orthogonal_(metaop.empty(4, 3)),
    "sparse_": lambda: nn.init.sparse_(metaop.empty(4, 3), 0.3),
    "repeat_interleave": lambda: metaop.repeat_interleave(
        metaop.arange(3), metaop.tensor([1, 2, 3])
    ),
    "pack_padded_sequence": packed,
    "default_collate": collated,
    "max_memory_allocated": peaks,
    "graph": messages,
    "save_image": saved,
    "gradcheck": checked,
    "eigvalsh": lambda: metaop.linalg.eigvalsh(metaop.eye(3)),
    "rfft": lambda: metaop.fft.rfft(metaop.ones(4)).abs(),
    "fill_diagonal_": lambda: metaop.zeros(3, 3).fill_diagonal_(2.0),
    "multinomial": lambda: metaop.multinomial(metaop.ones(4), 2),
}


def run_all() -> None:
    """Every function on the current GPU, beside itself on the CPU; prints those that differ."""
    random = {"orthogonal_", "sparse_", "multinomial"}
    for name, function in FUNCTIONS.items():
        metaop.set_default_device("cuda")
        try:
            found: Any = function()
            assert found.device.type == "cuda", f"the result is on {found.device}"
            metaop.set_default_device("cpu")
            if name not in {"graph"}:
                wanted = function()
                assert found.shape == wanted.shape
                assert name in random or metaop.allclose(found.cpu(), wanted)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")


@pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")
def test_on_an_emulated_gpu() -> None:
    assert emulator.output_on_stand_in("tests.cuda.test_host_functions:run_all") == ""


@pytest.mark.cuda
@pytest.mark.skipif(not metaop.cuda.is_available(), reason="no GPU that cupy can use")
def test_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        run_all()
    finally:
        metaop.set_default_device("cpu")
    assert capsys.readouterr().out == ""
