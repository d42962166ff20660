"""safetensors files, against the library's own readers and writers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import metaop
from metaop.errors import CheckpointError
from metaop.serialization import load, save


def test_numpy_arrays_written_by_the_library(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    kinds = (np.float32, np.float64, np.float16, np.int64, np.int8, np.uint8, np.bool_)
    arrays = {
        f"{np.dtype(kind).name} {shape}": generator.integers(0, 2, shape).astype(kind)
        for kind in kinds
        for shape in ((), (0, 3), (2, 3))
    }
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file(arrays, path)
    loaded = load(path)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name].numpy(), array, strict=True)
    save(loaded, path)
    for name, array in safetensors.numpy.load_file(path).items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)


def test_bfloat16_both_ways_with_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    value = torch.randn(3, 5).to(torch.bfloat16)
    save_file({"x": value, "y": value.float()}, tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors")
    assert loaded["x"].dtype is metaop.bfloat16 and loaded["x"].tolist() == value.tolist()
    save(loaded, tmp_path / "b.safetensors")
    again = load_file(tmp_path / "b.safetensors")
    assert torch.equal(again["x"], value) and torch.equal(again["y"], value.float())


def test_views_and_parameters_are_written_as_they_look(tmp_path: Path) -> None:
    values = metaop.tensor(np.arange(6.0).reshape(2, 3))
    save({"t": values.t(), "p": values.detach().requires_grad_()}, tmp_path / "a.safetensors")
    found = safetensors.numpy.load_file(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(found["t"], np.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(found["p"], np.arange(6.0).reshape(2, 3))


def test_only_flat_mappings_of_tensors(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for value in ([metaop.ones(1)], {"a": {"b": metaop.ones(1)}}, {1: metaop.ones(1)}):
        with pytest.raises(CheckpointError, match=r"holds tensors by name"):
            save(value, path)
    assert not path.exists() and not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["cut header", "cut data", "dtype", "offsets"])
def test_damaged_files_are_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "damaged.safetensors"
    content = safetensors.numpy.save({"x": np.ones(10)})
    damaged = {
        "cut header": content[:20],
        "cut data": content[:-8],
        "dtype": content.replace(b"F64", b"F99"),
        "offsets": content.replace(b"[0,80]", b"[8,88]"),
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"damaged\.safetensors: its (header|tensor)"):
        load(path)
