"""Hostile, damaged and foreign files: never code, always an error that names the file."""

from __future__ import annotations

import io
import os
import pickle
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import metaop
from metaop.errors import CheckpointError
from metaop.serialization import load, save

marks: list[str] = []


def leave_mark(*arguments: Any) -> str:
    marks.append("code has run")
    return "harmless"


class Hostile:
    def __reduce__(self) -> Any:
        return leave_mark, ("argument",)


class State:
    """Would be restored by setting attributes."""


def as_zip(pickled: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


def state_of(target: bytes, state: bytes) -> bytes:
    """A pickle that sets attributes of a global: PROTO 2, the global, the state, BUILD."""
    return b"\x80\x02" + target + state + b"b."


HOSTILE: dict[str, bytes] = {
    "function": pickle.dumps(Hostile(), 2),
    "system": b"cos\nsystem\n(S'touch mark'\ntR.",
    "protocol 4": pickle.dumps({"a": Hostile()}, 4),
    "eval": b"c__builtin__\neval\n(S'1'\ntR.",
    "getattr": b"c__builtin__\ngetattr\n(S'1'\ntR.",
    "class": pickle.dumps(State(), 2),
    "old instance": b"(ios\nsystem\n.",
    "old object": b"(cos\nsystem\no.",
    "new object": b"\x80\x02ccollections\nOrderedDict\n)\x81.",
    "set attribute of a type": state_of(b"ctorch\nfloat32\n", b"N}X\x08\0\0\0itemsizeK\x63s\x86"),
    "set attribute of a function": state_of(b"ctorch\nSize\n", b"}X\x09\0\0\0_functionNs"),
    "extension": b"\x80\x02\x82\x01.",
    "dotted name": b"\x80\x04\x8c\x0bcollections\x8c\x18OrderedDict.__init__.x\x93.",
    "number of a type by name": b"cnumpy._core.multiarray\nscalar\n(S'f4'\nS'abcd'\ntR.",
    "call of a value": b"\x80\x02K\x01)R.",
}


@pytest.mark.parametrize("wrap", [as_zip, lambda pickled: pickled], ids=["zip", "legacy"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_pickle_runs_code(name: str, wrap: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "hostile.pth"
    path.write_bytes(wrap(HOSTILE[name]))
    for weights_only in (None, True):
        with pytest.raises(CheckpointError, match=r"hostile\.pth: it"):
            load(path, weights_only=weights_only)
    assert not marks and not os.path.exists("mark")
    assert metaop.float32.itemsize == 4


def test_the_refused_name_is_in_the_message() -> None:
    with pytest.raises(CheckpointError, match=r"names os\.system, which is not on the list"):
        load(io.BytesIO(as_zip(HOSTILE["system"])))
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(torch.nn.Linear(1, 1), file)
    file.seek(0)
    with pytest.raises(
        CheckpointError, match=r"torch\.nn\.modules\.linear\.Linear.*\n.*\n.*state_dict"
    ):
        load(file)


def saved(value: Any) -> bytes:
    file = io.BytesIO()
    save(value, file)
    return file.getvalue()


def test_truncated_files_are_named(tmp_path: Path) -> None:
    whole = saved({"x": metaop.ones(100), "y": 1})
    path = tmp_path / "short.pth"
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"cannot load .*short\.pth: it"):
            load(path)


def test_truncated_legacy_files_are_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save({"x": torch.ones(9)}, file, _use_new_zipfile_serialization=False)
    whole = file.getvalue()
    path = tmp_path / "short.pth"
    for length in range(1, len(whole), 11):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"short\.pth: it"):
            load(path)


def test_flipped_bits_are_found(tmp_path: Path) -> None:
    whole = bytearray(saved({"x": metaop.ones(1000)}))
    at = whole.index(b"\0\0\x80\x3f" * 10) + 20
    whole[at] ^= 1
    path = tmp_path / "flipped.pth"
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match=r"flipped\.pth.*CRC"):
        load(path)


@pytest.mark.parametrize("content", [b"hello world", b"\0" * 600, b"PK\x05\x06" + b"\0" * 18])
def test_other_files_are_no_checkpoints(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "foreign.bin"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"foreign\.bin: it"):
        load(path)


def test_a_tensor_cannot_reach_outside_its_storage() -> None:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(torch.zeros(5), file)
    with zipfile.ZipFile(file) as source:
        records = {name: source.read(name) for name in source.namelist()}
    records["archive/data.pkl"] = records["archive/data.pkl"].replace(b"K\x05\x85", b"K\x77\x85")
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w") as target:
        for name, record in records.items():
            target.writestr(name, record)
    changed.seek(0)
    with pytest.raises(CheckpointError, match=r"size \[119\] needs 476 bytes.*has 20"):
        load(changed)


def test_a_missing_storage_is_named() -> None:
    file = io.BytesIO()
    source = zipfile.ZipFile(io.BytesIO(saved({"x": metaop.ones(3)})))
    with source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            if "data/0" not in name:
                target.writestr(name, source.read(name))
    file.seek(0)
    with pytest.raises(CheckpointError, match="lacks the storage archive/data/0"):
        load(file)


def test_missing_files_are_the_usual_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.pth")


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
def test_a_failed_save_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    save({"x": metaop.ones(2)}, path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"lock|builtin"):
        save({"x": metaop.ones(2), "y": threading.Lock()}, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_what_cannot_be_saved_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"_thread\.lock.*\n.*\n.*state_dict"):
        save({"a": [threading.Lock()]}, io.BytesIO())
