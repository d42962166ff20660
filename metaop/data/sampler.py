"""Samplers: the order of samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Generic, TypeVar

import numpy as np

from metaop.dist.collectives import everyone, is_running
from metaop.errors import ArgumentError, ArgumentTypeError
from metaop.tensor.generator import Generator, host_random

Index = TypeVar("Index", covariant=True)


class Sampler(Generic[Index]):
    """An order of samples: a subclass defines `__iter__` and, if possible, `__len__`.

    Without a length of the sampler, the number of batches is unknown.

    >>> class Backwards(metaop.data.Sampler):
    ...     def __init__(self, samples):
    ...         self.samples = samples
    ...     def __iter__(self):
    ...         return iter(range(len(self.samples) - 1, -1, -1))
    >>> list(Backwards(["a", "b", "c"]))
    [2, 1, 0]
    """

    def __iter__(self) -> Iterator[Index]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, … in this order.

    Its length is the length of the data set.

    >>> list(metaop.data.SequentialSampler(["a", "b", "c"]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All samples in a new random order each time, or `num_samples` draws.

    Without replacement, further draws start a new order once all samples are used.

    Its length is the number of draws.

    >>> sorted(metaop.data.RandomSampler(["a", "b", "c"]))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise ArgumentTypeError(
                f"replacement should be a boolean value, but got replacement={replacement}"
            )
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _check_count(self.num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size, count = len(self.data_source), self.num_samples
        state = host_random(self.generator)
        if self.replacement:
            yield from state.integers(0, size, count).tolist()
            return
        while count > 0:
            order = state.permutation(size)[:count].tolist()
            yield from order
            count -= size

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in a new random order each time.

    Its length is the number of indices.

    >>> sorted(metaop.data.SubsetRandomSampler([4, 7]))
    [4, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for position in host_random(self.generator).permutation(len(self.indices)):
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` draws of 0 … len(weights) - 1 with probabilities proportional to `weights`.

    Its length is `num_samples`. Raises ArgumentError unless that is positive.

    >>> list(metaop.data.WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        _check_count(num_samples)
        self.weights = np.asarray(weights, np.float64)
        if self.weights.ndim != 1:
            raise ArgumentError(
                "weights should be a 1d sequence but given weights have shape "
                f"{list(self.weights.shape)}"
            )
        drawable = int(np.count_nonzero(self.weights))
        if not replacement and num_samples > drawable:
            raise ArgumentError(
                f"cannot draw {num_samples} samples without replacement from {drawable} samples "
                "of positive weight"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        probabilities = self.weights / self.weights.sum()
        state = host_random(self.generator)
        size = len(probabilities)
        drawn = state.choice(size, self.num_samples, self.replacement, probabilities)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; the last may be shorter.

    Its length is the number of batches. Raises ArgumentError unless the size is positive.

    >>> list(metaop.data.BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size <= 0:
            raise ArgumentError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        size = len(self.sampler)  # type: ignore[arg-type]
        return size // self.batch_size if self.drop_last else math.ceil(size / self.batch_size)


class DistributedSampler(Sampler[int]):
    """The samples of one rank: every `num_replicas`-th of an order common to all ranks.

    Without `drop_last` the order is padded by repeating its start, so that all ranks have the same
    number of samples. `set_epoch` changes the shuffled order, which depends only on `seed` and the
    epoch, not on a generator.

    Its length is the number of samples per rank. Raises ArgumentError for an invalid rank.

    >>> list(metaop.data.DistributedSampler(range(6), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 5]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            found = _ranks()
            rank = found[0] if rank is None else rank
            num_replicas = found[1] if num_replicas is None else num_replicas
        if not 0 <= rank < num_replicas:
            raise ArgumentError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    @property
    def num_samples(self) -> int:
        size = len(self.dataset)
        return size // self.num_replicas if self.drop_last else math.ceil(size / self.num_replicas)

    @property
    def total_size(self) -> int:
        return self.num_samples * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration use the order of this epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        size = len(self.dataset)
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(size)
        else:
            order = np.arange(size)
        filled = np.resize(order, self.total_size)
        return iter(filled[self.rank :: self.num_replicas].tolist())

    def __len__(self) -> int:
        return self.num_samples


def _ranks() -> tuple[int, int]:
    """This process's rank and the number of ranks."""
    if not is_running():
        return 0, 1
    world = everyone()
    return world.rank, world.size


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        raise ArgumentError(
            f"num_samples should be a positive integer value, but got num_samples={count}"
        )
