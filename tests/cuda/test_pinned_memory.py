"""Memory that a GPU reads by itself, while the program goes on."""

from __future__ import annotations

import numpy as np
import pytest

import metaop
from tests.cuda import emulator


def check() -> None:
    """Pinned tensors, and batches of a DataLoader, on the current GPU."""
    values = np.arange(200_000, dtype=np.float32)
    plain = metaop.tensor(values)
    assert not plain.is_pinned()
    for number in range(4):
        # The source is gone, and its memory may be used again, before the GPU has read it.
        there = metaop.tensor(values + number).pin_memory().to("cuda", non_blocking=True)
        again = metaop.tensor(values * 0 - 1).pin_memory()
        np.testing.assert_array_equal(there.cpu().numpy(), values + number)
        assert again.is_pinned() and again.pin_memory() is again
    # Without non_blocking, the program may write at once.
    source = plain.pin_memory()
    there = source.to("cuda")
    source.numpy()[:] = 0
    np.testing.assert_array_equal(there.cpu().numpy(), values)
    with pytest.raises(metaop.errors.DeviceError, match="only dense CPU tensors can be pinned"):
        there.pin_memory()
    data = metaop.data.TensorDataset(metaop.arange(10), metaop.ones(10, 3))
    for workers in (0, 1):
        loader = metaop.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
        numbers = []
        for x, y in loader:
            assert x.is_pinned() and y.is_pinned()
            numbers += x.cuda(non_blocking=True).tolist()
        assert numbers == list(range(10))


@pytest.mark.skipif(not emulator.is_available(), reason="the emulator needs g++")
def test_on_an_emulated_gpu() -> None:
    emulator.output_on_stand_in("tests.cuda.test_pinned_memory:check")


@pytest.mark.cuda
@pytest.mark.skipif(not metaop.cuda.is_available(), reason="no GPU that cupy can use")
def test_on_a_gpu() -> None:
    check()


def test_without_a_gpu_nothing_is_pinned() -> None:
    x = metaop.ones(3)
    if not metaop.cuda.is_available():
        assert x.pin_memory() is x and not x.is_pinned()


def test_flags_of_to_by_position() -> None:
    x = metaop.ones(3)
    assert x.to("cpu", True) is x and x.to("cpu", True, False) is x
    assert x.to("cpu", False, True) is not x and x.to(metaop.float32, True, True) is not x
