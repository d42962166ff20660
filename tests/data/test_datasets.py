"""Data sets and samplers against PyTorch's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from metaop import data
from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.generator import Generator
from metaop.unified_graph.dtype import from_numpy_dtype


def tensor_of(array: np.ndarray) -> Tensor:
    dtype = from_numpy_dtype(array.dtype)
    assert dtype is not None
    return from_array(array, dtype)


class Squares(data.Dataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(index)
        return index * index


class Stream(data.IterableDataset):
    def __init__(self, *values: int) -> None:
        self.values = values

    def __iter__(self) -> Any:
        return iter(self.values)


def test_tensor_dataset_gives_the_elements_of_each_tensor() -> None:
    images = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    labels = np.arange(5)
    dataset = data.TensorDataset(tensor_of(images), tensor_of(labels))
    assert len(dataset) == 5
    for index in (0, 4, -1, np.int64(3)):
        image, label = dataset[index]
        np.testing.assert_array_equal(image.numpy(), images[index])
        assert label.item() == labels[index] and label.ndim == 0
    np.testing.assert_array_equal(dataset[1:3][0].numpy(), images[1:3])
    with pytest.raises(IndexError):
        dataset[5]


def test_tensors_of_different_lengths_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"Size mismatch.*\[\[2\], \[3\]\]"):
        data.TensorDataset(tensor_of(np.zeros(2)), tensor_of(np.zeros(3)))


def test_concatenated_datasets() -> None:
    both = Squares(3) + Squares(4)
    assert [both[k] for k in range(-7, 7)] == [0, 1, 4, 0, 1, 4, 9] * 2
    with pytest.raises(IndexError):
        both[7]
    with pytest.raises(ArgumentTypeError, match="ChainDataset"):
        data.ConcatDataset([Stream(1)])
    with pytest.raises(ArgumentError):
        data.ConcatDataset([])


def test_chained_streams() -> None:
    assert list(Stream(1, 2) + Stream(3)) == [1, 2, 3]


@pytest.mark.parametrize("lengths", [[3, 7], [0.25, 0.75], [0.3, 0.3, 0.4], [1.0], [0.5, 0.5]])
@pytest.mark.parametrize("size", [10, 11])
def test_random_split_has_the_lengths_of_pytorch(lengths: list[float], size: int) -> None:
    torch = pytest.importorskip("torch")
    if sum(lengths) == 10 and size != 10:
        with pytest.raises(ArgumentError, match="10.*11"):
            data.random_split(Squares(size), lengths)
        return
    parts = data.random_split(Squares(size), lengths, Generator().manual_seed(3))
    expected = torch.utils.data.random_split(range(size), lengths)
    assert [len(part) for part in parts] == [len(part) for part in expected]
    everything = sorted(value for part in parts for value in part)
    assert everything == [k * k for k in range(size)]


def test_subset_takes_lists_of_indices() -> None:
    values = np.arange(10.0)
    subset = data.Subset(values, [7, 2, 5])  # type: ignore[arg-type]
    np.testing.assert_array_equal(subset[[0, 2]], [7.0, 5.0])


def test_random_sampler_is_a_permutation_and_follows_its_generator() -> None:
    orders = []
    for _ in range(2):
        sampler = data.RandomSampler(range(50), generator=Generator().manual_seed(5))
        orders.append([list(sampler), list(sampler)])
    assert orders[0] == orders[1]
    first, second = orders[0]
    assert sorted(first) == list(range(50)) and first != second and first != sorted(first)


def test_random_sampler_draws_as_many_as_asked() -> None:
    drawn = list(data.RandomSampler(range(4), num_samples=10))
    assert Counter(drawn[:8]) == dict.fromkeys(range(4), 2) and len(drawn) == 10
    with_replacement = list(data.RandomSampler(range(4), replacement=True, num_samples=400))
    assert set(with_replacement) == {0, 1, 2, 3} and len(with_replacement) == 400
    with pytest.raises(ArgumentError):
        data.RandomSampler(range(4), num_samples=0)


def test_weighted_sampler_follows_the_weights() -> None:
    weights = [0.0, 1.0, 3.0]
    sampler = data.WeightedRandomSampler(weights, 20000, generator=Generator().manual_seed(1))
    counts = Counter(sampler)
    assert counts[0] == 0
    assert abs(counts[2] / 20000 - 0.75) < 0.02
    assert sorted(data.WeightedRandomSampler(weights, 2, replacement=False)) == [1, 2]
    with pytest.raises(ArgumentError, match="without replacement"):
        data.WeightedRandomSampler(weights, 3, replacement=False)


@pytest.mark.parametrize("size", [0, 1, 9, 10])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batch_sampler_like_pytorch(size: int, drop_last: bool) -> None:
    torch = pytest.importorskip("torch")
    ours = data.BatchSampler(range(size), 3, drop_last)
    theirs = torch.utils.data.BatchSampler(range(size), 3, drop_last)
    assert list(ours) == list(theirs)
    assert len(ours) == len(theirs)


@pytest.mark.parametrize("size, ranks", [(10, 3), (2, 4), (12, 4), (7, 1)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_sampler_like_pytorch(size: int, ranks: int, drop_last: bool) -> None:
    torch = pytest.importorskip("torch")
    dataset = Squares(size)
    for rank in range(ranks):
        arguments = dict(num_replicas=ranks, rank=rank, shuffle=False, drop_last=drop_last)
        ours = data.DistributedSampler(dataset, **arguments)
        theirs = torch.utils.data.DistributedSampler(dataset, **arguments)
        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)


def test_distributed_shuffling_agrees_between_ranks_and_changes_with_the_epoch() -> None:
    def epoch(number: int) -> list[int]:
        order: list[int] = []
        for rank in range(3):
            sampler = data.DistributedSampler(Squares(12), 3, rank, seed=7)
            sampler.set_epoch(number)
            order += list(sampler)
        return order

    assert sorted(epoch(0)) == list(range(12))
    assert epoch(0) == epoch(0) != epoch(1)
    with pytest.raises(ArgumentError, match="Invalid rank 3"):
        data.DistributedSampler(Squares(12), 3, 3)


def test_data_sets_side_by_side() -> None:
    torch_data = pytest.importorskip("torch").utils.data

    class Several(Squares):
        def __getitem__(self, index: int) -> int:
            return index * index

        def __getitems__(self, indices: list[int]) -> list[int]:
            return [index * index for index in indices]

    class Wrong(Several):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [0]

    parts = [Several(4), list("abcd")]
    for library in (data, torch_data):
        stack = library.StackDataset
        rows, named = stack(*parts), stack(x=parts[0], y=parts[1])
        assert len(rows) == len(named) == 4
        assert rows[2] == (4, "c") and named[3] == {"x": 9, "y": "d"}
        assert rows.__getitems__([3, 1]) == [(9, "d"), (1, "b")]
        assert named.__getitems__([0]) == [{"x": 0, "y": "a"}]
        assert [len(batch) for batch in library.DataLoader(rows, 3)] == [2, 2]
        for given, keywords in (
            ((), {}),
            (([1],), {"x": [2]}),
            (([1], [1, 2]), {}),
            ((), {"x": [1], "y": [1, 2]}),
        ):
            with pytest.raises(ValueError):
                stack(*given, **keywords)
        with pytest.raises(ValueError, match="size mismatch"):
            stack(Wrong(4)).__getitems__([0, 1])
