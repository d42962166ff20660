"""Turns indices into collated batches, in the main process or in a worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from metaop.data.collate import collate_tensor_fn, default_collate, default_collate_fn_map
from metaop.data.dataset import batches_of
from metaop.tensor.core import Tensor

# Maps the indices of a batch (one index when not batched, None for a stream) to the collated
# batch; raises StopIteration when a stream is exhausted.
Fetch = Callable[[Any], Any]


def fetcher(
    dataset: Any,
    collate: Callable[[Any], Any],
    batched: bool,
    streams: bool,
    batch_size: int | None,
    drop_last: bool,
) -> Fetch:
    """The function that fetches one batch of `dataset` and collates it."""
    if not streams:
        return _by_index(dataset, collate, batched)
    samples = iter(dataset)
    if not batched:
        return lambda _: collate(next(samples))

    def next_batch(_: Any) -> Any:
        batch = list(itertools.islice(samples, batch_size))
        if not batch or (drop_last and len(batch) < (batch_size or 0)):
            raise StopIteration
        return collate(batch)

    return next_batch


def _by_index(dataset: Any, collate: Callable[[Any], Any], batched: bool) -> Fetch:
    if not batched:
        return lambda index: collate(dataset[index])
    whole = batches_of(dataset) if collate is default_collate else None
    if whole is not None and default_collate_fn_map[Tensor] is collate_tensor_fn:
        return whole
    several = getattr(dataset, "__getitems__", None)
    if several is not None:
        return lambda indices: collate(several(indices))
    return lambda indices: collate([dataset[index] for index in indices])
