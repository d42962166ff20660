"""Reuse and lifetime of host memory."""

from __future__ import annotations

import gc
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

from metaop.codegen.memory.buffers import ALIGNMENT, Allocator, Buffer, allocate

SIZES = (0, 1, 63, 64, 65, 1000, 1024, 1025, 4096, 5000, 123_457, 1 << 20, 10_000_001)


@pytest.fixture
def allocator() -> Allocator:
    return Allocator(limit=1 << 30)


@pytest.mark.parametrize("nbytes", SIZES)
def test_aligned_and_wholly_writable(nbytes: int, allocator: Allocator) -> None:
    buffers = [allocator.allocate(nbytes) for _ in range(3)]
    arrays = [buffer.view((nbytes,), np.uint8) for buffer in buffers]
    for number, array in enumerate(arrays):
        array[...] = number + 1
    for number, (buffer, array) in enumerate(zip(buffers, arrays, strict=True)):
        assert buffer.address % (4096 if nbytes > 1 << 16 else ALIGNMENT) == 0 < buffer.address
        assert buffer.nbytes == array.nbytes == nbytes
        assert nbytes == 0 or array.ctypes.data == buffer.address
        assert (array == number + 1).all()
    assert 3 * nbytes <= allocator.used <= 3 * (max(nbytes, 1024) * 1.125 + ALIGNMENT)


def test_freed_memory_is_reused(allocator: Allocator) -> None:
    buffer = allocator.allocate(100_000)
    address, size = buffer.address, allocator.used
    del buffer
    assert (allocator.used, allocator.cached, allocator.peak) == (0, size, size)
    again = allocator.allocate(99_999)
    assert again.address == address
    assert (allocator.used, allocator.cached) == (size, 0)
    other = allocator.allocate(100_000)
    assert other.address != address
    assert allocator.peak == 2 * size


def test_random_traffic(allocator: Allocator) -> None:
    """Live buffers never overlap, whatever the order of requests and releases."""
    generator = np.random.default_rng(0)
    live: list[tuple[Buffer, int]] = []
    for step in range(3000):
        if live and generator.random() < 0.5:
            buffer, mark = live.pop(int(generator.integers(len(live))))
            assert (buffer.view((buffer.nbytes // 4,), np.int32) == mark).all()
        else:
            buffer = allocator.allocate(int(generator.choice(SIZES[:-2])))
            buffer.view((buffer.nbytes // 4,), np.int32)[...] = step
            live.append((buffer, step))
    del buffer
    live.clear()
    assert allocator.used == 0 and allocator.cached > 0


def test_view_keeps_the_memory(allocator: Allocator) -> None:
    view = allocator.allocate(4000).view((10, 100), np.float32)
    view[...] = 3
    part = view[2:4, ::2]
    del view
    gc.collect()
    assert allocator.used > 0
    allocator.allocate(4000).view((1000,), np.float32)[...] = 5
    assert (part == 3).all()
    del part
    assert allocator.used == 0


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.float16, ml_dtypes.bfloat16, np.float64, np.complex64]
)
def test_view_of_every_type(dtype: type, allocator: Allocator) -> None:
    values = np.random.default_rng(0).integers(0, 2, (3, 2, 4)).astype(dtype)
    buffer = allocator.allocate(values.nbytes + 10)
    buffer.view(values.shape, dtype)[...] = values
    again = buffer.view(values.shape, dtype)
    assert again.dtype == np.dtype(dtype) and again.flags.c_contiguous
    np.testing.assert_array_equal(again, values)
    assert buffer.view((), dtype).shape == () and buffer.view((2, 0), dtype).shape == (2, 0)


def test_view_must_fit(allocator: Allocator) -> None:
    with pytest.raises(ValueError, match=r"\(5, 5\).*100 bytes.*has 99"):
        allocator.allocate(99).view((5, 5), np.float32)


def test_from_numpy_shares() -> None:
    array = np.arange(100, dtype=np.float32)
    buffer = Buffer.from_numpy(array)
    assert buffer.address == array.ctypes.data and buffer.nbytes == 400
    buffer.view((100,), np.float32)[7] = -1
    assert array[7] == -1
    alive = weakref.ref(array)
    view = buffer.view((4,), np.float32)
    del array, buffer
    assert alive() is not None
    np.testing.assert_array_equal(view, [0, 1, 2, 3])
    del view
    assert alive() is None


def misaligned() -> np.ndarray:
    raw = np.zeros(100, np.uint8)
    start = -raw.ctypes.data % 16 + 4
    return raw[start : start + 64].view(np.float32)


def read_only() -> np.ndarray:
    array = np.arange(12.0)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(24)[::2],
        np.broadcast_to(np.float32(3), (4, 5)),
        np.zeros((3, 0)),
        np.arange(5).astype(ml_dtypes.bfloat16)[::-1],
        misaligned(),
        read_only(),
    ],
    ids=["transposed", "strided", "broadcast", "empty", "bfloat16", "misaligned", "read-only"],
)
def test_from_numpy_copies(array: np.ndarray) -> None:
    buffer = Buffer.from_numpy(array)
    assert buffer.address % 16 == 0 and buffer.nbytes == array.nbytes
    before = array.copy()
    view = buffer.view(array.shape, array.dtype)
    np.testing.assert_array_equal(view, before)
    view[...] = 77
    np.testing.assert_array_equal(array, before)


def test_limit_and_release() -> None:
    allocator = Allocator(limit=3000)
    buffers = [allocator.allocate(1024) for _ in range(5)]
    del buffers
    assert allocator.used == 0 and allocator.cached == 2048
    assert allocator.release_cached() == 2048
    assert allocator.cached == 0
    assert allocator.allocate(1024).nbytes == 1024


@pytest.mark.parametrize("nbytes", [2**50, 2**62, 2**63, 2**80])
def test_impossible_sizes(nbytes: int, allocator: Allocator) -> None:
    with pytest.raises(MemoryError, match=str(nbytes)):
        allocator.allocate(nbytes)
    assert allocator.used == 0
    allocator.allocate(10)
    with pytest.raises(ValueError, match="-5"):
        allocator.allocate(-5)


def test_threads(allocator: Allocator) -> None:
    def traffic(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(2000):
            buffer = allocator.allocate(int(generator.integers(1, 5)) * 256)
            view = buffer.view((buffer.nbytes,), np.uint8)
            view[...] = seed
            if not (view == seed).all():
                failures.append(seed)

    failures: list[int] = []
    threads = [threading.Thread(target=traffic, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and allocator.used == 0
    # each thread holds two at a time: the new one is made before the old one is let go
    assert allocator.cached <= 2 * 4 * (256 + 512 + 768 + 1024)


def test_default_allocator() -> None:
    buffer = allocate(300)
    assert np.asarray(buffer).shape == (300,)
