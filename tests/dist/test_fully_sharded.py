"""`fully_shard` on 2 and 4 processes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metaop
from metaop import nn
from metaop.distributed import init_device_mesh
from metaop.distributed.fsdp import fully_shard, register_fsdp_forward_method
from metaop.errors import ArgumentError, ArgumentTypeError
from tests.dist.jobs import check_done, needs_mpi, run_all

pytestmark = [pytest.mark.mpi, needs_mpi]


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.nightly), 4])
def test_sharded_modules_agree_with_one_process(ranks: int) -> None:
    check_done("fully_sharded", ranks, run_all(ranks, "fully_sharded"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fully_shard(fully_shard(nn.Linear(2, 2))), ArgumentError, "sharded already"),
        (lambda: fully_shard(nn.Linear(2, 2), mesh=(1,)), ArgumentTypeError, "init_device_mesh"),
        (
            lambda: fully_shard(nn.Linear(2, 2), mesh=init_device_mesh("cpu", (1, 1, 1))),
            ArgumentError,
            "one axis",
        ),
    ],
)
def test_what_is_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_one_process_needs_nobody() -> None:
    """Hints of when to gather change nothing; a module without parameters of its own is fine."""
    layer = nn.Sequential(fully_shard(nn.Linear(2, 2)))
    model = fully_shard(layer)
    handle = model.unshard(async_op=True)
    assert handle is not None
    handle.wait()
    model.set_modules_to_forward_prefetch([model[0]])
    model.set_gradient_divide_factor(4.0)
    model[0].set_gradient_divide_factor(4.0)
    model(metaop.ones(1, 2)).sum().backward()
    assert model[0].bias.grad.full_tensor().tolist() == [0.25, 0.25]
    plain = nn.Linear(2, 2)
    register_fsdp_forward_method(plain, "forward")
    assert plain.forward.__func__ is nn.Linear.forward
