"""What carries collectives between GPUs, on stand-ins for cupy and NCCL; placements on GPUs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.codegen.cuda.device import runtime
from metaop.dist import exchange, job
from metaop.dist.boxing import SimulatedWorld, shard
from metaop.dist.memory import GpuMemory
from metaop.dist.nccl import NcclTransport
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, PARTIAL, Partial, Sbp, Split
from metaop.distributed import distribute_tensor
from metaop.errors import DeviceError
from metaop.unified_graph import dtype as dtypes
from metaop.unified_graph.tensor_type import Device
from tests.cuda import emulator
from tests.cuda.emulator import cupy_stand_in, nccl_stand_in
from tests.cuda.emulator.nccl_stand_in import TYPES, Call

S0, S1 = Split(0), Split(1)
MOVES = [(PARTIAL, BROADCAST), (PARTIAL, S0), (PARTIAL, S1), (S0, BROADCAST), (S1, BROADCAST)]
MOVES += [(S0, S1), (S1, S0), (Partial("max"), BROADCAST), (Partial("mul"), S0)]


@pytest.fixture(autouse=True)
def without_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept with a communicator needs no key of MPI's here."""
    monkeypatch.setattr(job, "_keyval", lambda make: make)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(nccl_stand_in, "calls_made", [])
    with cupy_stand_in.installed(4) as module:
        yield module


class Ranks:
    """What NCCL needs of MPI: who one is, and a way to tell the others the identity."""

    def __init__(self, size: int, rank: int, identity: Any) -> None:
        self.size, self.rank, self.identity = size, rank, identity

    def bcast(self, value: Any, root: int) -> Any:
        return self.identity


def parts_of(value: np.ndarray, state: Sbp, ranks: int) -> list[np.ndarray]:
    if isinstance(state, Partial):
        return [(value + rank).astype(value.dtype) for rank in range(ranks)]
    return [shard(value, state, ranks, rank) for rank in range(ranks)]


def moved(
    cupy: ModuleType, value: np.ndarray, source: Sbp, target: Sbp, ranks: int
) -> tuple[list[int], list[Call]]:
    """Moves a value, of which it checks the parts; where these lay, and the calls of rank 1."""
    nccl_stand_in.calls_made.clear()
    identity, parts = cupy.cuda.nccl.get_unique_id(), parts_of(value, source, ranks)
    results: dict[int, np.ndarray] = {}
    sent, addresses = [0] * ranks, [0] * ranks

    def run(rank: int) -> None:
        memory = GpuMemory(cupy, rank)
        transport = NcclTransport(Ranks(ranks, rank, identity), memory)
        part = memory.put(parts[rank])
        with memory.active():
            started = exchange.start(transport, part, source, target, value.shape)
            started.request.wait(None, "a move of the test")  # type: ignore[arg-type]
            results[rank] = memory.get(started.result())
        sent[rank], addresses[rank] = started.sent, part.data.ptr

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    simulated = SimulatedWorld(ranks)
    expected = simulated.box(dict(enumerate(parts)), source, target, value.shape)
    assert sent == simulated.sent
    for rank in range(ranks):
        assert results[rank].dtype == value.dtype
        np.testing.assert_array_equal(
            results[rank].astype(np.float64), expected[rank].astype(np.float64)
        )
    return addresses, [call for rank, call in nccl_stand_in.calls_made if rank == 1]


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("shape", [(5, 7), (12, 24), (4, 6, 5)], ids=str)
@pytest.mark.parametrize(("source", "target"), MOVES, ids=str)
def test_every_move(
    cupy: ModuleType, source: Sbp, target: Sbp, shape: tuple[int, ...], ranks: int
) -> None:
    value = np.random.default_rng(0).integers(1, 5, shape).astype(np.float32)
    _, calls = moved(cupy, value, source, target, ranks)
    # On a stream of their own, which is not the default one.
    assert len({call.stream for call in calls}) == 1 and calls[0].stream


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
def test_types(cupy: ModuleType, dtype: dtypes.DType) -> None:
    value = np.random.default_rng(0).integers(0, 2, (6, 4)).astype(dtype.numpy)
    for source, target in ((S0, BROADCAST), (S1, S0)):
        _, calls = moved(cupy, value, source, target, 2)
        assert {call.kind for call in calls} == {TYPES["UINT8"][0]}
    name = {"bool": "uint8", "int16": "int32"}.get(dtype.name, dtype.name)
    for target in (BROADCAST, S0):
        for op in ("max", "min") if dtype is metaop.bool else ("add", "mul", "max"):
            _, (call,) = moved(cupy, value, Partial(op), target, 2)
            assert call.kind == TYPES[name.upper()][0]


def test_equal_blocks_are_one_call_and_others_a_group(cupy: ModuleType) -> None:
    even, uneven = np.ones((6, 4), np.float32), np.ones((5, 4), np.float32)
    parts, (call,) = moved(cupy, even, PARTIAL, S0, 3)
    assert (call.name, call.count, call.send) == ("reduceScatter", 8, parts[1])
    _, calls = moved(cupy, uneven, PARTIAL, S0, 3)
    assert [(c.name, c.count, c.peer) for c in calls] == [
        ("reduce", 8, 0),
        ("reduce", 8, 1),
        ("reduce", 4, 2),
    ]
    assert calls[1].send - calls[0].send == 8 * 4
    parts, (call,) = moved(cupy, even, S0, BROADCAST, 3)
    assert (call.name, call.count, call.send) == ("allGather", 32, parts[1])
    _, calls = moved(cupy, uneven, S0, BROADCAST, 3)
    assert [(c.name, c.count, c.peer) for c in calls] == [
        ("broadcast", 32, 0),
        ("broadcast", 32, 1),
        ("broadcast", 16, 2),
    ]
    assert calls[2].receive - calls[0].receive == 64
    _, calls = moved(cupy, uneven, S0, S1, 2)
    assert [(c.name, c.count, c.peer) for c in calls] == [
        ("send", 16, 0),
        ("recv", 24, 0),
        ("send", 16, 1),
        ("recv", 16, 1),
    ]


def test_ranks_without_a_part_make_no_empty_calls(cupy: ModuleType) -> None:
    value = np.ones((2, 4), np.float32)
    for source, target in ((S0, BROADCAST), (PARTIAL, S0), (S0, S1)):
        moved(cupy, value, source, target, 3)
        assert all(call.count for _, call in nccl_stand_in.calls_made)


def test_a_placement_needs_a_gpu() -> None:
    if metaop.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(DeviceError, match=r'placement\("cuda"\) needs cupy and a GPU'):
        Placement("cuda", [0, 1])


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch, cupy: ModuleType) -> Placement:
    """Two ranks on an emulated GPU."""
    if not emulator.is_available():
        pytest.skip("the emulator needs g++")
    monkeypatch.setattr(Placement, "_table", {})
    return Placement("cuda", [0, 1], simulate=True)


def test_training_on_an_emulated_gpu(row: Placement) -> None:
    def losses(placement: Placement | None) -> list[float]:
        metaop.manual_seed(0)
        model: nn.Module = nn.Sequential(nn.Linear(6, 7), nn.LayerNorm(7), nn.Linear(7, 4))
        x, y = metaop.randn(5, 6), metaop.tensor([0, 1, 2, 3, 0])
        if placement is not None:
            model.to_global(placement, {"*.weight": S0, "2.weight": S1})
            x, y = (distribute_tensor(value, placement, S0) for value in (x, y))
            assert x.device.type == "cuda" and x.sbp == S0
        optimizer = metaop.optim.AdamW(model.parameters(), lr=0.1)
        found = []
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    np.testing.assert_allclose(losses(row), losses(None), rtol=1e-5)
    made = metaop.arange(6, placement=row, sbp=S0)
    np.testing.assert_array_equal(made.cpu().numpy(), np.arange(6))
    np.testing.assert_array_equal(made.to_global(sbp=BROADCAST).cpu().numpy(), np.arange(6))
    assert made.full_tensor().device == made.to_local().device == "cuda:0"


def test_the_current_gpu(cupy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "current", None)
    assert metaop.cuda.current_device() == 0 and metaop.zeros(2, device="cuda").device == "cuda:0"
    metaop.cuda.set_device(2)
    assert metaop.cuda.current_device() == 2
    assert metaop.zeros(2).cuda().device == metaop.device("cuda") == metaop.device("cuda:2")
    with metaop.cuda.device("cuda:1"):
        assert metaop.zeros(2, device="cuda").device == "cuda:1"
    with metaop.accelerator.device_index(3):
        assert metaop.cuda.current_device() == 3
    metaop.cuda.set_device(-1)
    assert metaop.cuda.current_device() == 2
    with pytest.raises(DeviceError, match="cuda:7 is not available"):
        metaop.cuda.set_device(7)
    monkeypatch.setattr(Placement, "_table", {})
    assert Placement("cuda", [0], simulate=True).memory.device == "cuda:2"


def test_a_gradient_goes_back_to_the_device_that_a_part_came_from(row: Placement) -> None:
    x = metaop.ones(4, 3, requires_grad=True)
    (distribute_tensor(x, row, S0) * 3).sum().backward()
    assert x.grad is not None and x.grad.device == "cpu"
    np.testing.assert_array_equal(x.grad.numpy(), np.full((4, 3), 3))


def test_a_part_of_an_array_is_where_kernels_can_read_several_elements(cupy: ModuleType) -> None:
    device = runtime(0)
    whole = cupy.asarray(np.arange(9, dtype=np.float32))
    for start, is_same in ((0, True), (4, True), (1, False), (3, False)):
        buffer = device.buffer_of(whole[start:])
        assert buffer.address % 16 == 0 and (buffer.address == whole[start:].data.ptr) == is_same
        np.testing.assert_array_equal(buffer.view((9 - start,), np.float32), np.arange(start, 9))
