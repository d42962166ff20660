"""Names of backends and reductions, and arguments of messages, which need no other rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import metaop
from metaop import distributed
from metaop.distributed import Backend, P2POp, ReduceOp
from metaop.distributed.mailbox import check_tag
from metaop.distributed.reductions import operation
from metaop.errors import ArgumentError, DistributedError


def test_names_of_backends_are_texts_in_lower_case() -> None:
    assert Backend("NCCL") == Backend.NCCL == "nccl" and isinstance(Backend("gloo"), str)
    assert Backend("Mine") == "mine" and Backend.MPI in Backend.backend_list
    assert distributed.get_default_backend_for_device("cuda") == Backend.NCCL
    assert distributed.get_default_backend_for_device(metaop.device("cpu")) == Backend.GLOO


def test_what_is_available() -> None:
    has_mpi = distributed.is_available()
    assert distributed.is_backend_available("gloo") == distributed.is_gloo_available() == has_mpi
    both = distributed.is_nccl_available() and has_mpi
    assert distributed.is_backend_available("cpu:gloo,cuda:nccl") == both
    for name in ("ucc", "xccl", "fake", "smoke", "cpu:gloo,xpu:xccl"):
        assert not distributed.is_backend_available(name)


def test_the_number_on_the_host_comes_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert distributed.get_node_local_rank(fallback_rank=1) == 3
    monkeypatch.delenv("LOCAL_RANK")
    assert distributed.get_node_local_rank(fallback_rank=1) == 1
    with pytest.raises(DistributedError, match="LOCAL_RANK is not set"):
        distributed.get_node_local_rank()


def test_a_factor_does_not_change_the_name_of_a_reduction() -> None:
    assert ReduceOp.PREMUL_SUM(2.0) == ReduceOp.PREMUL_SUM(metaop.tensor(3.0)) == "premul_sum"
    assert ReduceOp.PREMUL_SUM(metaop.tensor(3.0)).factor == 3.0
    linear = [ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM]
    names = [name for name in vars(ReduceOp) if name.isupper()]
    able = [one for one in names if distributed.supports_complex(getattr(ReduceOp, one))]
    assert [getattr(ReduceOp, name) for name in able] == linear


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Backend(3), "a backend called 3"),
    (lambda: distributed.new_group(backend="smoke"), "backend is 'smoke'"),
    (lambda: distributed.new_group(pg_options={"a": 1}), "pg_options"),
    (lambda: distributed.new_group(use_local_synchronization=True), "use_local_synchronization"),
    (lambda: distributed.new_subgroups_by_enumeration([[0], [0, 1]]), "each in one group only"),
    (lambda: distributed.new_subgroups_by_enumeration([]), "name ranks"),
    (lambda: P2POp(distributed.send, metaop.ones(1), 0), "P2POp got 'send'"),
    (lambda: distributed.batch_isend_irecv([]), "needs a list of P2POp"),
    (lambda: distributed.batch_isend_irecv([distributed.isend]), "needs a list of P2POp"),
    (lambda: check_tag(-1), "the tag -1"),
    (lambda: check_tag(32003), "except 32001 to"),
    (lambda: operation("mean", metaop.ones(1)), "unknown reduction 'mean'"),
    (lambda: operation(ReduceOp.BXOR, metaop.ones(1)), "use a tensor of integers"),
    (lambda: operation(ReduceOp.PRODUCT, metaop.ones(1) * 1j), "the imaginary part"),
    (lambda: operation(ReduceOp.PREMUL_SUM, metaop.ones(1)), "name the factor"),
    (lambda: operation(ReduceOp.PREMUL_SUM(2), metaop.arange(2)), "use a tensor of floats"),
    (lambda: distributed.get_default_backend_for_device("meta"), "no backend carries tensors"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[name for _, name in REFUSED])
def test_what_cannot_be_meant_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
