"""Files with some wrong bytes: they load as they were or are refused, and nothing else happens."""

from __future__ import annotations

import io
import json
import random
import shutil
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.distributed import checkpoint
from metaop.errors import CheckpointError
from metaop.serialization import load, save

VARIANTS = 80
# Far more than any of the files has.
BYTES = 1 << 22


def state() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    weight = metaop.tensor(generator.standard_normal((3, 4)).astype(np.float32))
    return {
        "weight": weight,
        "column": weight[:, 1],
        "counts": metaop.tensor(generator.integers(0, 9, (2, 3))),
        "empty": metaop.zeros(0, 2),
    }


def zip_file(compression: int = zipfile.ZIP_STORED) -> bytes:
    file, packed = io.BytesIO(), io.BytesIO()
    save({**state(), "step": 7, "names": ["a", "ü"]}, file)
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(packed, "w", compression) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return packed.getvalue()


def legacy_file() -> bytes:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    tensors = {name: torch.tensor(value.numpy()) for name, value in state().items()}
    torch.save(tensors, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def tar_file() -> bytes:
    torch = pytest.importorskip("torch")
    from tests.serialization.test_exchange import tar_checkpoint

    return tar_checkpoint({"weight": torch.ones(3, 4), "bias": torch.zeros(3)})


def safetensors_file(tmp_path: Path) -> bytes:
    save(state(), tmp_path / "whole.safetensors")
    return (tmp_path / "whole.safetensors").read_bytes()


def garbled(whole: bytes, chance: random.Random) -> bytes:
    """The file with flipped bits, cut short, with some bytes too many, too few or repeated."""
    found = bytearray(whole)
    kind = chance.randrange(5)
    at = chance.randrange(len(found))
    if kind == 0:
        for _ in range(chance.choice((1, 1, 4))):
            found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del found[at:]
    elif kind == 2:
        found[at:at] = chance.randbytes(chance.randrange(1, 9))
    elif kind == 3:
        del found[at : at + chance.randrange(1, 9)]
    else:
        found[at : at + 8] = chance.choice((b"\xff" * 8, b"\0" * 8, chance.randbytes(8)))
    return bytes(found)


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    if isinstance(left, metaop.Tensor):
        return left.dtype == right.dtype and np.array_equal(left.numpy(), right.numpy())
    return bool(left == right)


@pytest.mark.parametrize("kind", ["zip", "deflated", "legacy", "tar", "safetensors"])
@pytest.mark.parametrize("through", ["path", "object"])
def test_garbled_files_are_refused(kind: str, through: str, tmp_path: Path) -> None:
    wholes = {
        "zip": zip_file,
        "deflated": lambda: zip_file(zipfile.ZIP_DEFLATED),
        "legacy": legacy_file,
        "tar": tar_file,
        "safetensors": lambda: safetensors_file(tmp_path),
    }
    whole = wholes[kind]()
    wanted = load(io.BytesIO(whole))
    # The other formats have no check sums: changed numbers are numbers.
    has_check_sums = kind in ("zip", "deflated")
    chance = random.Random(f"{kind} {through}")
    path = tmp_path / "garbled"
    refused = 0
    tracemalloc.start()
    try:
        for number in range(VARIANTS):
            content = garbled(whole, chance)
            path.write_bytes(content)
            tracemalloc.reset_peak()
            try:
                found = load(path if through == "path" else io.BytesIO(content))
            except CheckpointError as error:
                refused += 1
                assert "cannot load" in str(error)
            else:
                assert not has_check_sums or equal(found, wanted), f"variant {number}"
            assert tracemalloc.get_traced_memory()[1] < BYTES, f"variant {number}"
    finally:
        tracemalloc.stop()
    assert refused > VARIANTS / 10


def test_garbled_files_of_a_sharded_checkpoint_are_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    checkpoint.save(state(), checkpoint_id=str(whole))
    chance = random.Random(0)
    for number in range(VARIANTS):
        folder = tmp_path / "garbled"
        shutil.copytree(whole, folder)
        victim = chance.choice(sorted(folder.iterdir()))
        victim.write_bytes(garbled(victim.read_bytes(), chance))
        try:
            found = load(folder)
        except CheckpointError as error:
            assert "cannot load" in str(error)
        else:
            assert found.keys() == state().keys(), f"variant {number}"
        shutil.rmtree(folder)


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "size", "message"),
    [
        ({"a": {**F32, "shape": [2.0]}}, 8, "impossible shape"),
        ({"a": {**F32, "shape": [1.9]}}, 8, "impossible shape"),
        ({"a": {**F32, "shape": [True, 2]}}, 8, "impossible shape"),
        ({"a": {**F32, "shape": ["2"]}}, 8, "impossible shape"),
        ({"a": {**F32, "shape": [-1, -2]}}, 8, "impossible shape"),
        ({"a": {**F32, "shape": 2}}, 8, "header is damaged"),
        ({"a": {**F32, "data_offsets": [0.0, 8.0]}}, 8, "impossible data_offsets"),
        ({"a": {**F32, "data_offsets": [-8, 0]}}, 8, "impossible data_offsets"),
        ({"a": {**F32, "data_offsets": [8, 0]}}, 8, "needs 8 bytes"),
        ({"a": {**F32, "data_offsets": [0, 4]}}, 8, "needs 8 bytes"),
        ({"a": {**F32, "dtype": "F64"}}, 8, "needs 16 bytes"),
        ({"a": {**F32, "dtype": "F31"}}, 8, "unknown type"),
        ({"a": {**F32, "dtype": ["F32"]}}, 8, "header is damaged"),
        ({"a": {**F32, "data_offsets": [8, 16]}}, 16, "begins at byte 8"),
        ({"a": F32}, 12, "have 8 bytes, but the file has 12"),
        ({"a": F32}, 4, "have 8 bytes, but the file has 4"),
        ({"a": F32, "b": {**F32, "data_offsets": [4, 12]}}, 12, "begins at byte 4"),
        ({"a": F32, "b": F32}, 8, "begins at byte 0"),
        ({"a": F32, "b": {**F32, "data_offsets": [12, 20]}}, 20, "begins at byte 12"),
        ({"a": 3}, 0, "header is damaged"),
        ([], 0, "not a checkpoint"),
    ],
)
def test_a_safetensors_header_must_fit(header: Any, size: int, message: str) -> None:
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text + b"\0" * size
    with pytest.raises(CheckpointError, match=message):
        load(io.BytesIO(content.ljust(16)))


def test_a_safetensors_header_has_no_name_twice() -> None:
    entry = json.dumps(F32)
    text = f'{{"a": {entry}, "a": {entry}}}'.encode()
    with pytest.raises(CheckpointError, match="a name twice"):
        load(io.BytesIO(len(text).to_bytes(8, "little") + text + b"\0" * 8))
