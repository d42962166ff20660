"""The DataLoader: batches of a data set, in this process or in workers."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from metaop.data.collate import default_collate, default_convert
from metaop.data.dataset import IterableDataset
from metaop.data.fetch import fetcher
from metaop.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from metaop.data.worker import Plan
from metaop.data.worker_pool import WorkerPool
from metaop.errors import ArgumentError
from metaop.tensor.core import Tensor
from metaop.tensor.devices import pinned
from metaop.tensor.generator import Generator, default_generator
from metaop.trees import tree_map_only

# The order of samples depends on these, so they cannot change after construction.
_FIXED = frozenset(
    ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
)


# Observers, called for every batch with the loader's number of workers and the seconds that the
# program waited.
watchers: list[Callable[[int, float], None]] = []


class DataLoader:
    """Iterates over a data set in batches.

    The arguments are PyTorch's. With `num_workers > 0`, processes fetch and collate batches in
    advance, `prefetch_factor` each; batches arrive in order through shared memory.
    `pin_memory` puts the tensors of a batch in memory that GPUs read by themselves.
    An exception in a worker is raised here with the worker's traceback. A worker that dies, or
    takes more than `timeout` seconds for a batch, raises RuntimeError.

    Example: `for images, labels in DataLoader(dataset, batch_size=64, shuffle=True): …`

    Its length is the number of batches, if the data set has a length.

    >>> loader = metaop.data.DataLoader(range(5), batch_size=2)
    >>> len(loader), [batch.tolist() for batch in loader]
    (3, [[0, 1], [2, 3], [4]])
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        self.__check_workers()
        self._streams = isinstance(dataset, IterableDataset)
        if self._streams:
            self.__check_stream(shuffle, sampler, batch_sampler)
        self.__choose_batches(batch_size, shuffle, sampler, batch_sampler, drop_last)
        batched = self.batch_sampler is not None or (self._streams and batch_size is not None)
        self._batched = batched
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self._pool: WorkerPool | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_pool" in self.__dict__:
            raise ArgumentError(
                f"{name} attribute should not be set after DataLoader is initialized",
                fix="create another DataLoader",
            )
        object.__setattr__(self, name, value)

    def __check_workers(self) -> None:
        if self.num_workers < 0:
            raise ArgumentError(
                f"num_workers option should be non-negative, not {self.num_workers}",
                fix="use num_workers=0 to disable multiprocessing",
            )
        if self.timeout < 0:
            raise ArgumentError(f"timeout option should be non-negative, not {self.timeout}")
        if self.num_workers == 0 and (self.prefetch_factor is not None or self.persistent_workers):
            option = "persistent_workers" if self.persistent_workers else "prefetch_factor"
            raise ArgumentError(f"{option} option needs num_workers > 0")
        if self.prefetch_factor is not None and self.prefetch_factor < 1:
            raise ArgumentError(f"prefetch_factor should be positive, not {self.prefetch_factor}")

    @staticmethod
    def __check_stream(shuffle: bool | None, sampler: Any, batch_sampler: Any) -> None:
        given = {"shuffle": shuffle, "sampler": sampler, "batch_sampler": batch_sampler}
        for option, value in given.items():
            if value:
                raise ArgumentError(
                    f"DataLoader with IterableDataset: expected unspecified {option} option, "
                    f"but got {option}={value}",
                    fix="let the data set decide the order of its samples",
                )

    def __choose_batches(
        self,
        batch_size: int | None,
        shuffle: bool | None,
        sampler: Any,
        batch_sampler: Any,
        drop_last: bool,
    ) -> None:
        if sampler is not None and shuffle:
            raise ArgumentError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ArgumentError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, "
                    "sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ArgumentError(
                "batch_size=None option disables auto-batching and is mutually "
                "exclusive with drop_last"
            )
        if sampler is None and not self._streams:
            sampler = (
                RandomSampler(self.dataset, generator=self.generator)
                if shuffle
                else SequentialSampler(self.dataset)
            )
        if batch_size is not None and not self._streams:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        """The number of batches; TypeError if the data set or the sampler has no length."""
        if not self._streams:
            return len(self.__orders())  # type: ignore[arg-type]
        size = len(self.dataset)
        if self.batch_size is None:
            return size
        return size // self.batch_size if self.drop_last else math.ceil(size / self.batch_size)

    def __orders(self) -> Iterable[Any]:
        """The fetch requests in order: lists of indices, single indices, or None for streams."""
        if self._streams:
            return itertools.repeat(None)
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __iter__(self) -> Iterator[Any]:
        batches = self.__iterate_here() if self.num_workers == 0 else self.__iterate_with_workers()
        if self.pin_memory:
            batches = (tree_map_only(Tensor, pinned, batch) for batch in batches)
        return self.__watched(batches) if watchers else batches

    def __watched(self, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            start = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            for watcher in tuple(watchers):
                watcher(self.num_workers, time.perf_counter() - start)
            yield batch

    def __iterate_here(self) -> Iterator[Any]:
        fetch = fetcher(
            self.dataset,
            self.collate_fn,
            self._batched,
            self._streams,
            self.batch_size,
            self.drop_last,
        )
        for indices in self.__orders():
            try:
                batch = fetch(indices)
            except StopIteration:
                return
            yield batch

    def __iterate_with_workers(self) -> Iterator[Any]:
        pool = self._pool
        if pool is None or not pool.is_alive:
            pool = self.__start_pool()
        if self.persistent_workers:
            self._pool = pool
        try:
            yield from pool.epoch(iter(self.__orders()), self.prefetch_factor or 2)
        finally:
            if not self.persistent_workers:
                pool.shutdown()

    def __start_pool(self) -> WorkerPool:
        plan = Plan(
            self.dataset,
            self.collate_fn,
            self._batched,
            self._streams,
            self.batch_size,
            self.drop_last,
            self.worker_init_fn,
            (self.generator or default_generator).draw(),
            self.num_workers,
        )
        return WorkerPool(plan, self.multiprocessing_context, self.timeout)
