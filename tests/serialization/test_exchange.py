"""Files written by PyTorch and read here, and the other way round."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.serialization import load, save
from metaop.serialization.files import placement_of
from metaop.tensor.size import Size
from metaop.unified_graph.tensor_type import Device

torch = pytest.importorskip("torch")

DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
]  # fmt: skip


def random_torch(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 100, shape, generator=generator)
    return values.to(getattr(torch, dtype))


def assert_same(ours: Any, theirs: Any) -> None:
    """The same nested values, tensors of both frameworks compared by type and content."""
    if isinstance(theirs, torch.Tensor):
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.requires_grad == theirs.requires_grad
        assert ours.tolist() == theirs.tolist()
    elif isinstance(theirs, dict):
        assert type(ours) is type(theirs) and list(ours) == list(theirs)
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            assert_same(one, other)
    else:
        assert ours == theirs and type(ours) is type(theirs)


def through_torch(value: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4), (3, 0, 2)])
def test_tensors_of_every_type(new: bool, dtype: str, shape: tuple[int, ...]) -> None:
    theirs = random_torch(dtype, shape)
    file = through_torch(theirs, _use_new_zipfile_serialization=new)
    ours = load(file)
    assert_same(ours, theirs)
    back = io.BytesIO()
    save(ours, back)
    back.seek(0)
    assert_same(torch.load(back), theirs)


@pytest.mark.parametrize("new", [True, False])
def test_state_dicts_of_modules_and_optimizers(new: bool, tmp_path: Path) -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 2),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(2, 1, 4, 4)).sum().backward()
    optimizer.step()
    value = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    torch.save(value, tmp_path / "a.pth", _use_new_zipfile_serialization=new)
    ours = load(tmp_path / "a.pth")
    assert_same(ours, value)
    assert isinstance(ours["model"], OrderedDict) and "_metadata" in vars(ours["model"])
    save(ours, tmp_path / "b.pth")
    again = torch.load(tmp_path / "b.pth")
    model.load_state_dict(again["model"])
    optimizer.load_state_dict(again["optimizer"])
    assert again["model"]._metadata == value["model"]._metadata  # type: ignore[attr-defined]


VALUES = {
    "numbers": {"a": 1, "b": -2.5, "c": True, "d": None, "e": 10**30, "f": float("inf")},
    "texts": ["", "ä≠", b"\x00\xff", b""],
    "containers": [(), (1,), [[], {}], {1, 2}, {(1, 2): "tuple key"}],
    "ordered": OrderedDict([("b", 1), ("a", OrderedDict())]),
}


@pytest.mark.parametrize("name", VALUES)
def test_plain_values_both_ways(name: str) -> None:
    value = VALUES[name]
    assert_same(load(through_torch(value)), value)
    file = io.BytesIO()
    save(value, file)
    for read in (load, lambda f: torch.load(f, weights_only=False)):
        file.seek(0)
        assert_same(read(file), value)


def test_types_of_the_frameworks_are_translated() -> None:
    value = [torch.float32, torch.bfloat16, torch.Size([2, 3]), torch.device("cuda:1")]
    ours = load(through_torch(value))
    assert ours == [metaop.float32, metaop.bfloat16, Size([2, 3]), Device("cuda", 1)]
    file = io.BytesIO()
    save(ours, file)
    file.seek(0)
    assert torch.load(file) == value


def test_parameters_stay_parameters() -> None:
    theirs = torch.nn.Parameter(torch.randn(3, 2))
    frozen = torch.nn.Parameter(torch.randn(2), requires_grad=False)
    ours = load(through_torch({"a": theirs, "b": frozen}))
    assert all(isinstance(value, metaop.nn.Parameter) for value in ours.values())
    assert_same(ours, {"a": theirs, "b": frozen})
    file = io.BytesIO()
    save(ours, file)
    file.seek(0)
    again = torch.load(file)
    assert isinstance(again["a"], torch.nn.Parameter) and not again["b"].requires_grad
    torch.testing.assert_close(again["a"], theirs)


@pytest.mark.parametrize("new", [True, False])
def test_strided_tensors_are_read(new: bool) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    for view in (base.transpose(0, 2), base[:, 1:, ::2], base[1], base[0, 0, :1].expand(3, 1)):
        assert_same(load(through_torch(view, _use_new_zipfile_serialization=new)), view)


@pytest.mark.parametrize("new", [True, False])
def test_shared_storage_is_shared_again(new: bool) -> None:
    base = torch.zeros(6)
    value = {"whole": base, "twin": base.detach(), "part": base[2:4], "same": base}
    ours = load(through_torch(value, _use_new_zipfile_serialization=new))
    assert ours["same"] is ours["whole"] and ours["twin"] is not ours["whole"]
    ours["part"][0] = 5
    assert ours["whole"].tolist() == ours["twin"].tolist() == [0, 0, 5, 0, 0, 0]


def test_shared_storage_is_written_once_and_stays_shared() -> None:
    base = metaop.zeros(1000)
    value = {"whole": base, "detached": base.detach(), "view": base.reshape(10, 100)[3]}
    file = io.BytesIO()
    save(value, file)
    assert len(file.getvalue()) < 6000
    for framework in (metaop, torch):
        file.seek(0)
        again = framework.load(file)
        again["view"][0] = 7
        assert again["whole"][300] == 7 and again["detached"][300] == 7


def test_tensors_that_share_nothing_have_storages_of_their_own() -> None:
    tensors = [metaop.full((count,), float(count)) for count in range(1, 60)]
    views = [metaop.arange(9.0)[count:] for count in range(9)]
    file = io.BytesIO()
    save([*tensors, *views], file)
    file.seek(0)
    expected = [tensor.tolist() for tensor in (*tensors, *views)]
    assert [tensor.tolist() for tensor in torch.load(file)] == expected


def test_tied_weights_of_a_module_are_written_once() -> None:
    first = metaop.nn.Linear(50, 50)
    second = metaop.nn.Linear(50, 50)
    second.weight = first.weight
    state = metaop.nn.Sequential(first, second).state_dict()
    file = io.BytesIO()
    save(state, file)
    assert len(file.getvalue()) < 2 * 50 * 50 * 4
    file.seek(0)
    again = torch.load(file)
    assert again["0.weight"].data_ptr() == again["1.weight"].data_ptr()


def test_numpy_values_inside_a_checkpoint() -> None:
    value = {
        "scalar": np.float64(2.5),
        "count": np.int32(4),
        "array": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big": np.arange(3, dtype=">i4"),
    }
    ours = load(through_torch(value))
    assert ours["scalar"] == 2.5 and ours["count"] == 4
    for name in ("array", "fortran", "big"):
        np.testing.assert_array_equal(ours[name], value[name])
    with pytest.raises(metaop.errors.CheckpointError, match="elements of type object"):
        load(through_torch(np.array([print], dtype=object)))


def tar_checkpoint(tensors: dict[str, Any]) -> bytes:
    """A checkpoint as the first PyTorch releases wrote it."""
    storages, descriptions = io.BytesIO(), io.BytesIO()
    pickle.dump(len(tensors), storages, 2)
    pickle.dump(len(tensors), descriptions, 2)
    for number, tensor in enumerate(tensors.values()):
        pickle.dump((number, "cpu", torch.FloatStorage), storages, 2)
        flat = tensor.contiguous().numpy().tobytes()
        storages.write(struct.pack("<q", len(flat) // 4) + flat)
        pickle.dump((100 + number, number, torch.FloatTensor), descriptions, 2)
        layout = (tensor.dim(), 0, *tensor.shape, *tensor.contiguous().stride(), 0)
        descriptions.write(struct.pack(f"<ii{2 * tensor.dim()}qq", *layout))
    pickle.dump([], storages, 2)

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            for number, tensor in enumerate(tensors.values()):
                if obj is tensor:
                    return str(100 + number)
            return None

    content = io.BytesIO()
    Pickler(content, 2).dump(tensors)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name, part in zip(("storages", "tensors", "pickle"), (storages, descriptions, content)):
            info = tarfile.TarInfo(name)
            info.size = len(part.getvalue())
            part.seek(0)
            archive.addfile(info, part)
    return file.getvalue()


def test_the_oldest_format(tmp_path: Path) -> None:
    value = {"a": torch.randn(2, 3), "b": torch.randn(4)}
    path = tmp_path / "old.pth"
    path.write_bytes(tar_checkpoint(value))
    assert_same(load(path), value)
    with open(path, "rb") as file:  # and PyTorch agrees that this is the format
        assert_same(torch.load(file, weights_only=False), value)


def test_map_location() -> None:
    content = io.BytesIO()
    save({"x": metaop.ones(2)}, content)
    saved_on_gpu = io.BytesIO()
    with zipfile.ZipFile(content) as source, zipfile.ZipFile(saved_on_gpu, "w") as target:
        for name in source.namelist():
            record = source.read(name).replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:3")
            target.writestr(name, record)
    seen = []

    def to_cpu(storage: Any, location: str) -> Any:
        seen.append(location)
        return storage

    for where in ("cpu", Device("cpu"), {"cuda:3": "cpu"}, to_cpu, lambda storage, location: "cpu"):
        saved_on_gpu.seek(0)
        assert load(saved_on_gpu, where)["x"].device == "cpu"
    assert seen == ["cuda:3"]
    assert placement_of(lambda storage, location: storage.cuda(1))("cpu") == "cuda:1"
