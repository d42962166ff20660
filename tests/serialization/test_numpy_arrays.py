"""NumPy arrays in checkpoints: the state of NumPy's random numbers, say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import CheckpointError

torch = pytest.importorskip("torch")

ARRAYS: dict[str, Any] = {
    "plain": np.arange(6, dtype=np.int32).reshape(2, 3),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "strided": np.arange(10, dtype=np.float16)[::3],
    "swapped": np.arange(3, dtype=">u4"),
    "empty": np.zeros((0, 2), bool),
    "number": np.array(1 + 2j),
    "state": np.random.RandomState(3).get_state(),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("reader", ["metaop", "torch"])
def test_arrays_are_read_as_they_were(name: str, reader: str, tmp_path: Path) -> None:
    metaop.save({"value": ARRAYS[name], "beside": metaop.ones(2)}, tmp_path / "file")
    lib = {"metaop": metaop, "torch": torch}[reader]
    found = lib.load(tmp_path / "file", weights_only=False)["value"]
    assert type(found) is type(ARRAYS[name])
    wholes = (found, ARRAYS[name]) if name == "state" else ([found], [ARRAYS[name]])
    for ours, theirs in zip(*wholes, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if name != "state":
        # NumPy reads numbers in the order of bytes of the machine.
        assert found.dtype == ARRAYS[name].dtype.newbyteorder("=")
        assert found.shape == ARRAYS[name].shape


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.array(["2020"], "M8[Y]")])
def test_arrays_of_other_things_are_read_of_trusted_files(array: Any, tmp_path: Path) -> None:
    metaop.save(array, tmp_path / "file")
    for lib in (metaop, torch):
        found = lib.load(tmp_path / "file", weights_only=False)
        assert found.dtype == array.dtype and found.tolist() == array.tolist()
    with pytest.raises(CheckpointError, match=r"elements of type|numpy"):
        metaop.load(tmp_path / "file")


@pytest.mark.parametrize("weights_only", [True, False])
def test_types_of_arrays_are_values_too(weights_only: bool, tmp_path: Path) -> None:
    kinds = [np.dtype("f4"), np.dtype(">i2"), np.dtype("f4"), np.zeros(2, ">i2")]
    torch.save(kinds, tmp_path / "file")
    found = metaop.load(tmp_path / "file", weights_only=weights_only)
    assert found[:3] == kinds[:3] and found[3].tolist() == [0, 0]
