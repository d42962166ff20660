"""What arguments for several ranks cannot be followed are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metaop.distributed
import metaop.distributed.graph
import metaop.distributed.pipelining
import metaop.multiprocessing
import metaop.nn.parallel
from metaop import nn
from metaop.distributed import (
    FullyShardedDataParallel,
    ZeroRedundancyOptimizer,
)
from metaop.errors import ArgumentError


def model() -> nn.Module:
    return nn.Linear(2, 2)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: FullyShardedDataParallel(model(), auto_wrap_policy=3), "auto_wrap_policy"),
    (lambda: FullyShardedDataParallel(model(), param_init_fn=min), "param_init_fn"),
    (lambda: FullyShardedDataParallel(model(), use_orig_params=False), "use_orig_params"),
    (lambda: FullyShardedDataParallel(model(), None, "HYBRID_SHARD"), "HYBRID_SHARD"),
    (lambda: FullyShardedDataParallel(model(), anything=3), "anything=3"),
    (lambda: nn.parallel.DistributedDataParallel(model(), [0]), "is on cpu"),
    (lambda: nn.parallel.DistributedDataParallel(model(), output_device=1), "is on cpu"),
    (lambda: nn.parallel.DistributedDataParallel(model(), dim=1), "dim=1"),
    (lambda: nn.DataParallel(model(), [0, 1]), "run on cuda:0, cuda:1"),
    (lambda: nn.parallel.data_parallel(model(), metaop.ones(1, 2), [0]), "is on cpu"),
    (lambda: zero(overlap_with_ddp=True), "overlap_with_ddp"),
    (lambda: zero(parameters_as_bucket_view=True), "parameters_as_bucket_view"),
    (lambda: zero(stage=3), "stage=3"),
]


def zero(**settings: Any) -> Any:
    return ZeroRedundancyOptimizer(model().parameters(), metaop.optim.Adam, **settings)


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[name for _, name in REFUSED])
def test_what_cannot_be_done_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
