"""Data sets: samples by index or as a stream."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np

from metaop.errors import ArgumentError, ArgumentTypeError, DimensionError
from metaop.tensor.core import Tensor, from_array
from metaop.tensor.exposed import borrow
from metaop.tensor.generator import Generator, host_random
from metaop.unified_graph.tensor_type import CPU

Sample = TypeVar("Sample", covariant=True)

# Samples smaller than this are copies of their rows.
_FEW_BYTES = 256


class Dataset(Generic[Sample]):
    """Samples by index: a subclass defines `__getitem__(index)` and, for most samplers, `__len__`.

    A subclass may also define `__getitems__(indices)`, which returns a list of samples at once.

    An index out of range raises IndexError.

    >>> class Squares(metaop.data.Dataset):
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, index):
    ...         return index * index
    >>> [int(batch) for batch in metaop.data.DataLoader(Squares())]
    [0, 1, 4]
    """

    def __getitem__(self, index: Any) -> Sample:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[Sample]):
    """Samples as a stream: a subclass defines `__iter__`.

    Every worker process iterates its own copy; use `get_worker_info()` to select its part.

    It has no length unless the subclass defines `__len__`; a `sampler` raises ArgumentError.

    >>> class Count(metaop.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> [batch.tolist() for batch in metaop.data.DataLoader(Count(), batch_size=2)]
    [[0, 1], [2]]
    """

    def __iter__(self) -> Iterator[Sample]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> ChainDataset[Any]:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Tensors with the same first dimension; sample `i` is the tuple of their elements `i`.

    Example: `TensorDataset(images, labels)[0]` is `(images[0], labels[0])`.

    Raises ArgumentError when the first dimensions differ.

    >>> metaop.data.TensorDataset(metaop.arange(3), metaop.ones(3))[2]
    (tensor(2), tensor(1.))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if any(
            len(tensor.shape) == 0 or tensor.shape[0] != tensors[0].shape[0] for tensor in tensors
        ):
            raise ArgumentError(
                "Size mismatch between tensors: TensorDataset got the shapes "
                f"{[list(tensor.shape) for tensor in tensors]}",
                fix="give every tensor the same first dimension",
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(_element(tensor, index) for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


def _element(tensor: Tensor, index: Any) -> Tensor:
    # Samples of computed host tensors are NumPy views: no kernel runs, even in worker processes.
    if tensor.requires_grad or tensor.device.type != "cpu":
        return cast(Any, tensor)[index]
    if isinstance(index, (int, np.integer, slice)):
        array = tensor._array()[index, ...]
        # A copy of a few elements at an odd address is cheaper than a view.
        if array.nbytes < _FEW_BYTES:
            return from_array(array.copy(), tensor.dtype)
        return borrow(tensor.numpy()[index, ...], tensor.dtype)
    return cast(Any, tensor)[index]


class StackDataset(Dataset[Any]):
    """Data sets side by side: sample `i` is the tuple of their samples `i`.

    With keyword arguments, samples are dictionaries. Raises ArgumentError if lengths differ, for
    no data sets, and for positional and keyword arguments together.

    >>> pairs = metaop.data.StackDataset(image=[1, 2], label=["a", "b"])
    >>> len(pairs), pairs[1]
    (2, {'image': 2, 'label': 'b'})
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ArgumentError(
                "Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like "
                "input/output, but both types are given."
                if args
                else "At least one dataset should be passed",
                fix="pass data sets either by position or by keyword",
            )
        self.datasets = args or kwargs
        lengths = [len(one) for one in self._parts()]
        if len(set(lengths)) > 1:
            raise ArgumentError(
                f"Size mismatch between datasets: lengths {lengths}",
                fix="pass data sets of equal length",
            )
        self._length = lengths[0]

    def _parts(self) -> list[Any]:
        given = self.datasets
        return list(given.values() if isinstance(given, dict) else given)

    def _together(self, parts: Sequence[Any]) -> Any:
        given = self.datasets
        return dict(zip(given, parts)) if isinstance(given, dict) else tuple(parts)

    def __getitem__(self, index: Any) -> Any:
        return self._together([one[index] for one in self._parts()])

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Several samples at once, with `__getitems__` of the data sets that define it."""
        columns = []
        for one in self._parts():
            at_once = getattr(one, "__getitems__", None)
            column = at_once(indices) if callable(at_once) else [one[index] for index in indices]
            if len(column) != len(indices):
                raise ArgumentError(
                    "Nested dataset's output size mismatch. "
                    f"Expected {len(indices)}, got {len(column)}",
                    fix="return one sample per index from __getitems__",
                )
            columns.append(column)
        return [self._together(sample) for sample in zip(*columns)]

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[Sample]):
    """Concatenates several data sets.

    Its length is the sum of theirs. Raises ArgumentError for no data sets, and ArgumentTypeError
    for iterable ones.

    >>> both = metaop.data.ConcatDataset([[1, 2], [3]])
    >>> len(both), both[2]
    (3, 3)
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ArgumentTypeError(
                "ConcatDataset does not support IterableDataset", fix="use ChainDataset"
            )
        self.cumulative_sizes = list(itertools.accumulate(map(_length, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Sample:
        size = len(self)
        if not -size <= index < size:
            raise DimensionError(
                f"absolute value of index should not exceed dataset length: index {index} is out "
                f"of range for {size} samples"
            )
        index %= size
        which = bisect.bisect_right(self.cumulative_sizes, index)
        start = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - start]


class ChainDataset(IterableDataset[Sample]):
    """Chains several iterable data sets.

    Its length is the sum of theirs, if each has one.

    >>> class Count(metaop.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(metaop.data.ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Sample]:
        for dataset in self.datasets:
            yield from cast(Iterable[Sample], dataset)

    def __len__(self) -> int:
        return sum(map(_length, self.datasets))


class Subset(Dataset[Sample]):
    """The samples of `dataset` at `indices`, in that order.

    Its length is that of `indices`; an index out of range of `dataset` raises its IndexError.

    >>> list(metaop.data.Subset(["a", "b", "c"], [2, 0]))
    ['c', 'a']
    """

    def __init__(self, dataset: Dataset[Sample], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Sample:
        if isinstance(index, list):
            return self.dataset[[self.indices[k] for k in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        chosen = [self.indices[index] for index in indices]
        several = getattr(self.dataset, "__getitems__", None)
        return [self.dataset[index] for index in chosen] if several is None else several(chosen)

    def __len__(self) -> int:
        return len(self.indices)


def batches_of(dataset: Any) -> Callable[[Sequence[int]], list[Tensor]] | None:
    """What makes batches of a data set of tensors in host memory, or of a part of one.

    They are what `default_collate` makes of the samples, without making the samples. None for other
    data sets, and for classes whose samples are their own.
    """
    kind = type(dataset)
    if kind is Subset:
        whole = batches_of(dataset.dataset)
        return whole and (lambda indices: whole([dataset.indices[k] for k in indices]))
    own_samples = getattr(kind, "__getitem__", None) is not TensorDataset.__getitem__
    if own_samples or hasattr(kind, "__getitems__"):
        return None
    plain = (type(x) is Tensor and x.device is CPU for x in dataset.tensors)
    if not all(plain) or any(x.requires_grad for x in dataset.tensors):
        return None

    def batch(indices: Sequence[int]) -> list[Tensor]:
        rows = np.asarray(indices, np.int64)
        return [from_array(x._array()[rows], x.dtype) for x in dataset.tensors]

    return batch


def random_split(
    dataset: Dataset[Sample],
    lengths: Sequence[int | float],
    generator: Generator | None = None,
) -> list[Subset[Sample]]:
    """Random disjoint subsets of the given lengths, or of the given fractions (which sum to 1).

    Samples left over after rounding fractions go to the first subsets, one each.
    Raises ArgumentError when the lengths do not add up to the number of samples.

    >>> train, test = metaop.data.random_split(range(10), [0.8, 0.2])
    >>> len(train), len(test)
    (8, 2)
    """
    size = _length(dataset)
    counts = _counts_of_fractions(size, lengths) if _are_fractions(lengths) else list(lengths)
    if sum(counts) != size:
        raise ArgumentError(
            "Sum of input lengths does not equal the length of the input dataset: "
            f"{list(lengths)} sum to {sum(counts)}, the data set has {size} samples"
        )
    order = host_random(generator).permutation(size).tolist()
    ends = list(itertools.accumulate(int(count) for count in counts))
    return [Subset(dataset, order[end - int(count) : end]) for end, count in zip(ends, counts)]


def _are_fractions(lengths: Sequence[int | float]) -> bool:
    return math.isclose(sum(lengths), 1) and sum(lengths) <= 1


def _counts_of_fractions(size: int, fractions: Sequence[int | float]) -> list[int]:
    for position, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ArgumentError(f"Fraction at index {position} is not between 0 and 1")
    counts = [math.floor(size * fraction) for fraction in fractions]
    for k in range(size - sum(counts)):
        counts[k % len(counts)] += 1
    return counts


def _length(dataset: Any) -> int:
    return len(dataset)
