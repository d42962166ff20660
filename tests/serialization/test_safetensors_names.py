"""The names of the package safetensors, beside the original with PyTorch's tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import metaop
from metaop.errors import ArgumentError
from metaop.serialization import safetensors as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("safetensors.torch")

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool"]


def originals() -> dict[str, Any]:
    """A tensor of each type, one without elements, and one without axes."""
    torch.manual_seed(0)
    made = {name: (torch.randn(3, 4) * 3).to(getattr(torch, name)) for name in DTYPES}
    return {**made, "none": torch.empty(0, 2), "one": torch.tensor(2.5)}


def assert_same(found: Any, expected: Any) -> None:
    assert str(found.dtype).partition(".")[2] == str(expected.dtype).partition(".")[2]
    assert tuple(found.shape) == tuple(expected.shape)
    np.testing.assert_array_equal(found.double().numpy(), expected.double().numpy())


def test_files_of_the_original_are_read(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    theirs.save_file(originals(), path, {"format": "pt"})
    for found in (ours.load_file(path), ours.load(path.read_bytes())):
        assert found.keys() == originals().keys()
        for name, expected in originals().items():
            assert_same(found[name], expected)


def test_the_original_reads_our_files(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    theirs.save_file(originals(), path)
    ours.save_file(ours.load_file(path), path, metadata={"format": "pt"})
    assert path.read_bytes() == ours.save(ours.load_file(path), {"format": "pt"})
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
        for name, expected in originals().items():
            assert_same(file.get_tensor(name), expected)


@pytest.mark.parametrize("index", [..., 1, slice(1, None), (slice(None), slice(0, 2))])
def test_an_open_file_tells_the_same(tmp_path: Path, index: Any) -> None:
    path = tmp_path / "weights.safetensors"
    theirs.save_file(originals(), path, {"format": "pt"})
    left = safetensors.safe_open(path, framework="pt", device="cpu")
    with ours.safe_open(path, framework="pt", device="cpu", backend="mmap") as right:
        assert right.metadata() == left.metadata()
        assert sorted(right.keys()) == sorted(left.keys())
        assert right.offset_keys() == left.offset_keys()
        for name in DTYPES:
            ours_slice, theirs_slice = right.get_slice(name), left.get_slice(name)
            assert ours_slice.get_shape() == theirs_slice.get_shape()
            assert ours_slice.get_dtype() == theirs_slice.get_dtype()
            assert_same(ours_slice[index], theirs_slice[index])
        with pytest.raises(ours.SafetensorError, match="does not contain tensor other"):
            right.get_tensor("other")


def test_tensors_of_an_open_file_can_be_written_to(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    theirs.save_file(originals(), path)
    before = path.read_bytes()
    ours.safe_open(path, "pt").get_tensor("float32").zero_().numpy()
    assert path.read_bytes() == before


def test_other_frameworks_and_names_are_the_original_s(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    theirs.save_file({"one": torch.ones(2)}, path)
    assert isinstance(ours.safe_open(path, "np").get_tensor("one"), np.ndarray)
    assert ours.__version__ == safetensors.__version__
    with pytest.raises(ArgumentError, match="speed"):
        ours.safe_open(path, "pt", speed=2)
    with pytest.raises(FileNotFoundError):
        ours.safe_open(tmp_path / "other", "pt")


def test_damaged_files_are_refused_as_by_the_original(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(theirs.save(originals())[:-1])
    for library in (ours, safetensors):
        with pytest.raises(safetensors.SafetensorError):
            library.safe_open(path, "pt")
    with pytest.raises(safetensors.SafetensorError):
        ours.load(path.read_bytes())


class Tied:
    """A network with one weight under two names, made by either library."""

    def __new__(cls, library: Any, width: int = 3) -> Any:
        model = library.nn.Sequential(library.nn.Linear(width, 3), library.nn.Linear(3, 3))
        if width == 3:
            model[1].weight = model[0].weight
        return model


def test_modules_with_tied_weights_go_both_ways(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    original, found = Tied(torch), Tied(metaop)
    theirs.save_model(original, path)
    assert ours.load_model(found, path) == theirs.load_model(original, path)
    for left, right in zip(original.parameters(), found.parameters()):
        assert_same(right.detach(), left.detach())
    ours.save_model(found, path, {"made": "here"})
    assert theirs.load_model(Tied(torch), path) == (set(), [])
    with pytest.raises(RuntimeError, match="does not match"):
        ours.load_model(metaop.nn.Sequential(metaop.nn.Linear(3, 3)), path)
    assert ours.load_model(metaop.nn.Linear(3, 3), path, strict=False)[0] == {"weight", "bias"}
