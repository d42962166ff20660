"""The DataLoader in this process, against PyTorch's."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import data
from metaop.errors import ArgumentError, ArgumentTypeError, ShapeError
from metaop.tensor.core import Tensor
from metaop.tensor.generator import Generator
from tests.data.test_datasets import Squares, Stream, tensor_of

Point = namedtuple("Point", "x y")


def plain(value: Any) -> Any:
    """Nested values with every tensor, of either framework, as (dtype, nested list)."""
    if hasattr(value, "dtype"):
        return str(value.dtype).split(".")[-1], value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(item) for item in value]
    return value


BATCHES = {
    "ints": [1, 2, 3],
    "floats": [1.5, 2.5],
    "bools": [True, False],
    "texts": ["a", "b"],
    "arrays": [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)],
    "array scalars": [np.float64(1), np.float64(2)],
    "pairs": [(1, "a"), (2, "b")],
    "named": [Point(1, 2.0), Point(3, 4.0)],
    "mappings": [{"a": 1, "b": [2, 3]}, {"a": 4, "b": [5, 6]}],
    "ordered": [OrderedDict(a=1), OrderedDict(a=2)],
}


@pytest.mark.parametrize("name", BATCHES)
def test_default_collate_like_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours = data.default_collate(BATCHES[name])
    theirs = torch.utils.data.default_collate(BATCHES[name])
    assert plain(ours) == plain(theirs)


@pytest.mark.parametrize("name", BATCHES)
def test_default_convert_like_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours = data.default_convert(BATCHES[name][0])
    assert plain(ours) == plain(torch.utils.data.default_convert(BATCHES[name][0]))


def test_tensors_are_stacked() -> None:
    parts = np.random.default_rng(0).normal(size=(4, 2, 3))
    batch = data.default_collate([tensor_of(part.copy()) for part in parts])
    np.testing.assert_array_equal(batch.numpy(), parts)


def test_types_of_programs_are_joined_in_their_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type comes before those above it, in nested samples as well."""
    from metaop.data import collate

    class Text(str):
        """A text that is joined."""

    def joined(batch: Any, *, collate_fn_map: Any = None) -> str:
        return "".join(batch)

    monkeypatch.setitem(collate.default_collate_fn_map, Text, joined)
    samples = [{"t": Text("a"), "s": "x", "n": (1, 2.0)}, {"t": Text("b"), "s": "y", "n": (3, 4.0)}]
    found = data.default_collate(samples)
    assert found["t"] == "ab" and found["s"] == ["x", "y"]
    assert plain(found["n"]) == ("list", [("int64", [1, 3]), ("float64", [2.0, 4.0])])
    with pytest.raises(ArgumentTypeError, match="batch must contain tensors"):
        collate.collate([1, 2])


def test_what_cannot_be_collated_is_named() -> None:
    with pytest.raises(ShapeError, match=r"\[\[2\], \[3\]\]"):
        data.default_collate([np.zeros(2), np.zeros(3)])
    with pytest.raises(ShapeError, match=r"lengths \[1, 2\]"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(ArgumentTypeError, match="object"):
        data.default_collate([object()])
    with pytest.raises(ArgumentTypeError, match="<U1"):
        data.default_collate([np.array("a")])


@pytest.mark.parametrize("batch_size", [1, 3, None])
@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_like_pytorch(batch_size: int | None, size: int, drop_last: bool) -> None:
    torch = pytest.importorskip("torch")
    arguments = dict(batch_size=batch_size, drop_last=drop_last and batch_size is not None)
    ours = data.DataLoader(Squares(size), **arguments)
    theirs = torch.utils.data.DataLoader(Squares(size), **arguments)
    assert len(ours) == len(theirs)
    assert list(map(plain, ours)) == list(map(plain, theirs))


def test_streams() -> None:
    assert [b.tolist() for b in data.DataLoader(Stream(1, 2, 3), batch_size=2)] == [[1, 2], [3]]
    dropped = data.DataLoader(Stream(1, 2, 3), batch_size=2, drop_last=True)
    assert [batch.tolist() for batch in dropped] == [[1, 2]]
    assert list(data.DataLoader(Stream(1, 2), batch_size=None)) == [1, 2]
    with pytest.raises(TypeError):
        len(dropped)


def test_shuffling_sees_every_sample_once_in_changing_orders() -> None:
    loader = data.DataLoader(
        Squares(40), batch_size=8, shuffle=True, generator=Generator().manual_seed(0)
    )
    first, second = ([x for batch in loader for x in batch.tolist()] for _ in range(2))
    assert sorted(first) == sorted(second) == [k * k for k in range(40)]
    assert first != second


def test_datasets_that_fetch_several_samples_at_once() -> None:
    class Fast(Squares):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [-index for index in indices]

    assert [b.tolist() for b in data.DataLoader(Fast(3), batch_size=2)] == [[0, -1], [-2]]


def test_own_collation_and_batches() -> None:
    loader = data.DataLoader(Squares(4), batch_sampler=[[3, 1], [2]], collate_fn=sum)
    assert list(loader) == [10, 4]
    assert len(loader) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        dict(shuffle=True, sampler=[0]),
        dict(batch_sampler=[[0]], batch_size=2),
        dict(batch_size=None, drop_last=True),
        dict(batch_size=0),
        dict(num_workers=-1),
        dict(timeout=-1),
        dict(prefetch_factor=2),
        dict(persistent_workers=True),
    ],
)
def test_contradicting_arguments_are_refused_as_in_pytorch(arguments: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError):
        torch.utils.data.DataLoader(Squares(2), **arguments)
    with pytest.raises(ArgumentError):
        data.DataLoader(Squares(2), **arguments)


def test_a_stream_has_no_order_to_choose() -> None:
    with pytest.raises(ArgumentError, match="shuffle"):
        data.DataLoader(Stream(1), shuffle=True)


def test_the_pytorch_name_is_the_same_module() -> None:
    from metaop.utils.data import DataLoader, TensorDataset

    assert metaop.utils.data.DataLoader is data.DataLoader is DataLoader
    assert TensorDataset is data.TensorDataset
    assert isinstance(next(iter(DataLoader(Squares(1)))), Tensor)


def test_texts_of_numpy_stay_texts() -> None:
    """As Hugging Face's data sets give them with_format("numpy")."""
    batch = [{"x": np.float32(k), "text": np.str_(f"row {k}")} for k in range(3)]
    found = next(iter(data.DataLoader(batch, batch_size=3)))
    assert found["x"].tolist() == [0, 1, 2] and list(found["text"]) == ["row 0", "row 1", "row 2"]


class Doubled(data.TensorDataset):
    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(2 * one for one in super().__getitem__(index))


def test_batches_of_tensors_are_those_of_their_samples() -> None:
    values = np.random.default_rng(0).standard_normal((10, 2, 3))
    tensors = [
        metaop.tensor(values),
        metaop.arange(10),
        metaop.tensor(values[:, 0, 0] > 0),
        metaop.tensor(values).bfloat16(),
        metaop.arange(20.0).view(2, 10).t(),
    ]
    whole = data.TensorDataset(*tensors)
    part = data.Subset(data.Subset(whole, [9, 0, 3, 3, 5, 1]), range(4))
    tracked = data.TensorDataset(metaop.ones(4, 2, requires_grad=True))
    for dataset in (whole, part, Doubled(*tensors), data.Subset(Doubled(*tensors), [2]), tracked):
        batches = list(data.DataLoader(dataset, batch_size=3))
        one_by_one = data.DataLoader(
            dataset, batch_size=3, collate_fn=lambda x: data.default_collate(x)
        )
        for found, wanted in zip(batches, one_by_one, strict=True):
            assert [x.dtype for x in found] == [x.dtype for x in wanted]
            assert [x.tolist() for x in found] == [x.tolist() for x in wanted]
    tensors[1][0] = 7
    assert next(iter(data.DataLoader(whole)))[1].tolist() == [7]
    with pytest.raises(IndexError):
        next(iter(data.DataLoader(whole, batch_sampler=[[10]])))
