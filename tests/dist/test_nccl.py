"""Placements on GPUs: NCCL's calls with a stand-in for it, programs on an emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metaop
from metaop import nn
from metaop.codegen.cuda import backend
from metaop.codegen.cuda import device as devices
from metaop.dist import job
from metaop.dist import placement as placements
from metaop.dist.boxing import SimulatedWorld, assemble, shard
from metaop.dist.nccl import NcclWorld
from metaop.dist.placement import Placement
from metaop.dist.sbp import BROADCAST, PARTIAL, Partial, Sbp, Split
from metaop.distributed import distribute_tensor
from metaop.errors import DeviceError, UnsupportedError
from metaop.executor import clear_programs
from tests.cuda import emulator
from tests.cuda.emulator.runtime import EmulatedRuntime
from tests.dist.fake_nccl import TYPES, Call, FakeGpu, FakeRanks

S0, S1 = Split(0), Split(1)
MOVES = [(PARTIAL, BROADCAST), (PARTIAL, S0), (PARTIAL, S1), (S0, BROADCAST), (S1, BROADCAST)]
MOVES += [(S0, S1), (S1, S0), (Partial("max"), BROADCAST), (Partial("mul"), S0)]


@pytest.fixture(autouse=True)
def without_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept with a communicator needs no key of MPI's here."""
    monkeypatch.setattr(job, "_keyval", lambda make: make)


def worlds(ranks: int) -> tuple[FakeGpu, list[NcclWorld]]:
    gpu, board = FakeGpu(), []
    return gpu, [NcclWorld(FakeRanks(ranks, k, board), gpu) for k in range(ranks)]


def parts_of(value: np.ndarray, state: Sbp, ranks: int) -> list[np.ndarray]:
    if isinstance(state, Partial):
        return [value + rank for rank in range(ranks)]
    return [shard(value, state, ranks, rank) for rank in range(ranks)]


def moved(value: np.ndarray, source: Sbp, target: Sbp, ranks: int) -> tuple[Any, list[Call]]:
    """What the ranks have afterwards, and the calls of rank 1."""
    gpu, members = worlds(ranks)
    parts = parts_of(value, source, ranks)
    started = [
        world.start({k: parts[k]}, source, target, value.shape) for k, world in enumerate(members)
    ]
    calls = [call for group in gpu.nccl.made[1].groups for call in group]
    gpu.nccl.run()
    simulated = SimulatedWorld(ranks)
    simulated.box(dict(enumerate(parts)), source, target, value.shape)
    assert [world.sent for world in members] == simulated.sent
    whole = assemble(parts, source)
    for rank, one in enumerate(started):
        assert one.is_done()
        np.testing.assert_array_equal(one.result(), shard(whole, target, ranks, rank))
    return parts, calls


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("shape", [(5, 7), (12, 24), (4, 6, 5)], ids=str)
@pytest.mark.parametrize(("source", "target"), MOVES, ids=str)
def test_every_move(source: Sbp, target: Sbp, shape: tuple[int, ...], ranks: int) -> None:
    value = np.random.default_rng(0).integers(1, 5, shape).astype(np.float32)
    _, calls = moved(value, source, target, ranks)
    assert all(call.stream == 4242 for call in calls)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float64"])
def test_types(dtype: str) -> None:
    value = (np.random.default_rng(0).integers(0, 2, (6, 4))).astype(dtype)
    for source, target in ((S0, BROADCAST), (S1, S0)):
        _, calls = moved(value, source, target, 2)
        assert {call.kind for call in calls} == {TYPES["UINT8"]}
    if dtype == "int16":
        with pytest.raises(UnsupportedError, match="does not combine int16"):
            moved(value, PARTIAL, BROADCAST, 2)
    elif dtype != "bool":
        _, (call,) = moved(value, PARTIAL, BROADCAST, 2)
        assert call.kind == TYPES[dtype.upper()] and call.count == value.size


def test_equal_blocks_are_one_call_and_others_a_group() -> None:
    even, uneven = np.ones((6, 4), np.float32), np.ones((5, 4), np.float32)
    parts, (call,) = moved(even, PARTIAL, S0, 3)
    assert (call.name, call.count, call.send) == ("reduceScatter", 8, parts[1].ctypes.data)
    _, calls = moved(uneven, PARTIAL, S0, 3)
    assert [(c.name, c.count, c.peer) for c in calls] == [
        ("reduce", 8, 0),
        ("reduce", 8, 1),
        ("reduce", 4, 2),
    ]
    assert calls[1].send - calls[0].send == 8 * 4
    parts, (call,) = moved(even, S0, BROADCAST, 3)
    assert (call.name, call.count, call.send) == ("allGather", 32, parts[1].ctypes.data)
    _, calls = moved(uneven, S0, BROADCAST, 3)
    assert [(c.name, c.count, c.peer) for c in calls] == [
        ("broadcast", 32, 0),
        ("broadcast", 32, 1),
        ("broadcast", 16, 2),
    ]
    assert calls[2].receive - calls[0].receive == 64
    _, calls = moved(uneven, S0, S1, 2)
    assert [(c.name, c.count, c.peer) for c in calls] == [
        ("send", 16, 0),
        ("recv", 24, 0),
        ("send", 16, 1),
        ("recv", 16, 1),
    ]


def test_what_no_rank_needs_from_others_is_no_call() -> None:
    gpu, members = worlds(2)
    value = np.ones((5, 4), np.float32)
    for rank, world in enumerate(members):
        part = world.box({rank: value}, BROADCAST, S0, value.shape)[rank]
        np.testing.assert_array_equal(part, shard(value, S0, 2, rank))
        whole = world.box({rank: part}, S0, PARTIAL, value.shape)[rank]
        assert whole.shape == value.shape and whole.sum() == part.size
    assert not gpu.nccl.made[0].groups


def test_a_placement_needs_a_gpu() -> None:
    if metaop.cuda.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(DeviceError, match=r'placement\("cuda"\) needs cupy and a GPU'):
        Placement("cuda", [0, 1])


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """Two ranks on an emulated GPU."""
    if not emulator.is_available():
        pytest.skip("the emulator needs g++")
    runtime = EmulatedRuntime(tmp_path)
    for module in (devices, backend):
        monkeypatch.setattr(module, "runtime", lambda index: runtime)
    monkeypatch.setattr(placements, "gpu_memory", FakeGpu)
    monkeypatch.setattr(Placement, "_table", {})
    clear_programs()
    yield Placement("cuda", [0, 1], simulate=True)
    clear_programs()


def test_training_on_an_emulated_gpu(row: Placement) -> None:
    def losses(placement: Placement | None) -> list[float]:
        metaop.manual_seed(0)
        model: nn.Module = nn.Linear(6, 4)
        x, y = metaop.randn(5, 6), metaop.tensor([0, 1, 2, 3, 0])
        if placement is not None:
            model.to_global(placement, {"weight": Split(1)})
            x, y = (distribute_tensor(value, placement, S0) for value in (x, y))
            assert x.device.type == "cuda" and x.sbp == S0
        optimizer = metaop.optim.SGD(model.parameters(), lr=0.5)
        found = []
        for _ in range(2):
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
