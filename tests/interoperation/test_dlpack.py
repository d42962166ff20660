"""Memory shared with NumPy and PyTorch by DLPack, and how long it lives."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentTypeError
from metaop.utils import dlpack

TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def array_of(name: str) -> np.ndarray:
    return (np.arange(24) % 7).reshape(2, 3, 4).astype(name)


@pytest.mark.parametrize("name", TYPES)
def test_memory_is_shared_with_numpy(name: str) -> None:
    array = array_of(name)
    tensor = metaop.from_dlpack(array)
    assert tensor.dtype is getattr(metaop, name) and tensor.data_ptr() == array.ctypes.data
    back = np.from_dlpack(metaop.from_numpy(array) + 0)
    np.testing.assert_array_equal(back, array)
    computed = tensor.clone()
    shown = np.from_dlpack(computed)
    assert shown.ctypes.data == computed.data_ptr() and shown.flags.writeable


@pytest.mark.parametrize("name", [*TYPES, "bfloat16"])
def test_memory_is_shared_with_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, name))
    ours = metaop.from_dlpack(theirs)
    assert ours.dtype is getattr(metaop, name) and ours.data_ptr() == theirs.data_ptr()
    np.testing.assert_array_equal(ours.double().numpy(), theirs.double().numpy())
    computed = ours + ours
    again = torch.from_dlpack(computed)
    assert again.dtype is theirs.dtype and again.data_ptr() == computed.data_ptr()
    np.testing.assert_array_equal(again.double().numpy(), computed.double().numpy())


def test_capsules_are_exchanged_once() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.arange(6.0)
    capsule = torch.utils.dlpack.to_dlpack(theirs)
    ours = dlpack.from_dlpack(capsule)
    assert ours.data_ptr() == theirs.data_ptr()
    with pytest.raises(ArgumentTypeError, match="consumed once"):
        dlpack.from_dlpack(capsule)
    again = torch.utils.dlpack.from_dlpack(dlpack.to_dlpack(ours))
    assert again.data_ptr() == theirs.data_ptr()


def test_memory_lives_as_long_as_it_is_seen() -> None:
    torch = pytest.importorskip("torch")
    before = np.random.default_rng(0).standard_normal(100_000)
    theirs = torch.from_dlpack(metaop.from_numpy(before) * 2)
    ours = metaop.from_dlpack(torch.from_numpy(before) * 3)
    gc.collect()
    for _ in range(5):  # freed memory would be used again
        metaop.zeros(100_000, dtype=metaop.float64).numpy()
        torch.zeros(100_000, dtype=torch.float64)
    np.testing.assert_array_equal(theirs.numpy(), before * 2)
    np.testing.assert_array_equal(ours.numpy(), before * 3)


def test_what_others_see_is_not_overwritten() -> None:
    tensor = metaop.ones(1000) * 2
    seen = np.from_dlpack(tensor)
    for _ in range(3):
        tensor = tensor * 2 + 1
        tensor.numpy()
    np.testing.assert_array_equal(seen, np.full(1000, 2.0))


def test_memory_that_cannot_be_shared_is_copied() -> None:
    fixed = np.arange(4.0)
    fixed.flags.writeable = False
    for source in (np.arange(4.0)[::-1], np.arange(9, dtype=np.int8)[1:], fixed):
        tensor = metaop.from_dlpack(source)
        np.testing.assert_array_equal(tensor.numpy(), source)
        assert tensor.data_ptr() != source.ctypes.data
        with pytest.raises(BufferError, match="has to be copied"):
            metaop.from_dlpack(source, copy=False)
    source = np.arange(12.0).reshape(3, 4).T
    tensor = metaop.from_dlpack(source, copy=False)
    source += 1
    np.testing.assert_array_equal(tensor.numpy(), source)
    assert tensor.data_ptr() == source.ctypes.data
    array = np.arange(4.0)
    assert metaop.from_dlpack(array, copy=True).data_ptr() != array.ctypes.data


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers_are_exchanged(dtype: type) -> None:
    array = np.array([1 + 2j, -3j], dtype)
    tensor = metaop.from_dlpack(array)
    assert tensor.dtype.name == np.dtype(dtype).name
    np.testing.assert_array_equal(np.from_dlpack(tensor), array)


def test_what_cannot_be_exchanged_says_so() -> None:
    with pytest.raises(BufferError, match="require gradient"):
        np.from_dlpack(metaop.ones(3, requires_grad=True))
    with pytest.raises(BufferError, match="cannot be exported"):
        metaop.ones(3).__dlpack__(dl_device=(2, 0))
    with pytest.raises(ArgumentTypeError, match="uint32"):
        metaop.from_dlpack(np.zeros(3, np.uint32))
    with pytest.raises(ArgumentTypeError, match="no DLPack capsule"):
        metaop.from_dlpack([1, 2])
    assert metaop.ones(3).__dlpack_device__() == (1, 0)


def test_functions_of_numpy_give_tensors() -> None:
    values = np.linspace(0.1, 1, 5)
    found: Any = np.sqrt(metaop.from_numpy(values))
    assert isinstance(found, metaop.Tensor) and found.dtype is metaop.float64
    np.testing.assert_array_equal(found.numpy(), np.sqrt(values))
    np.testing.assert_array_equal(np.stack([metaop.ones(2)] * 2), np.ones((2, 2)))
