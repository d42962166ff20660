"""A stand-in for `cupy.cuda.nccl` in host memory: it notes calls, and carries them out together.

All ranks are in one process and make their calls one after another, so nothing can be done before
the last of them: `run` then matches the calls of the ranks and moves the memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

TYPES = {"INT8": 0, "UINT8": 1, "INT32": 2, "INT64": 4}
TYPES |= {"FLOAT16": 6, "FLOAT32": 7, "FLOAT64": 8}
_DTYPES = {number: np.dtype(name.lower()) for name, number in TYPES.items()}
OPERATIONS = {"SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3}
_COMBINE = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum}


class Call(NamedTuple):
    """A call of a communicator: addresses, number of elements, and further arguments."""

    name: str
    send: int
    receive: int
    count: int
    kind: int
    operation: int
    peer: int
    stream: int


def memory(address: int, count: int, kind: int) -> np.ndarray:
    """The elements at an address."""
    raw = (ctypes.c_uint8 * (count * _DTYPES[kind].itemsize)).from_address(address)
    return np.frombuffer(raw, _DTYPES[kind])


class FakeNccl:
    """The module: its numbers, groups, and the communicators that were made."""

    def __init__(self) -> None:
        for name, number in TYPES.items():
            setattr(self, f"NCCL_{name}", number)
        for name, number in OPERATIONS.items():
            setattr(self, f"NCCL_{name}", number)
        self.made: dict[int, FakeCommunicator] = {}
        self.depth = 0
        self.identities = 0

    def get_unique_id(self) -> tuple[int, ...]:
        self.identities += 1
        return (self.identities,) * 128

    def NcclCommunicator(self, size: int, identity: tuple[int, ...], rank: int) -> Any:
        assert len(identity) == 128 and 0 <= rank < size and rank not in self.made
        self.made[rank] = FakeCommunicator(self, size, rank)
        return self.made[rank]

    def groupStart(self) -> None:
        assert self.depth == 0
        self.depth += 1
        self._begin()

    def groupEnd(self) -> None:
        self.depth -= 1
        assert self.depth == 0

    def _begin(self) -> None:
        for one in self.made.values():
            one.groups.append([])

    def note(self, rank: int, call: Call) -> None:
        if not self.depth:
            self._begin()
        self.made[rank].groups[-1].append(call)

    def run(self) -> None:
        """Carries out what all ranks have put on their streams, group by group."""
        assert self.depth == 0
        ranks = [self.made[rank] for rank in sorted(self.made)]
        for one in ranks:
            one.groups[:] = [group for group in one.groups if group]
        assert len({len(one.groups) for one in ranks}) == 1
        for groups in zip(*(one.groups for one in ranks)):
            _carry_out(groups)
        for one in ranks:
            one.groups.clear()


class FakeCommunicator:
    """The calls of one rank, in groups."""

    def __init__(self, library: FakeNccl, size: int, rank: int) -> None:
        self.library, self.size, self.rank = library, size, rank
        self.groups: list[list[Call]] = []

    def _note(self, *arguments: Any) -> None:
        call = Call(*arguments)
        assert call.count > 0 and call.kind in _DTYPES and call.peer < self.size
        self.library.note(self.rank, call)

    def allReduce(
        self, send: int, receive: int, count: int, kind: int, op: int, stream: int
    ) -> None:
        self._note("allReduce", send, receive, count, kind, op, -1, stream)

    def reduceScatter(
        self, send: int, receive: int, count: int, kind: int, op: int, stream: int
    ) -> None:
        self._note("reduceScatter", send, receive, count, kind, op, -1, stream)

    def reduce(
        self, send: int, receive: int, count: int, kind: int, op: int, root: int, stream: int
    ) -> None:
        self._note("reduce", send, receive, count, kind, op, root, stream)

    def allGather(self, send: int, receive: int, count: int, kind: int, stream: int) -> None:
        self._note("allGather", send, receive, count, kind, -1, -1, stream)

    def broadcast(
        self, send: int, receive: int, count: int, kind: int, root: int, stream: int
    ) -> None:
        self._note("broadcast", send, receive, count, kind, -1, root, stream)

    def send(self, send: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._note("send", send, 0, count, kind, -1, peer, stream)

    def recv(self, receive: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._note("recv", 0, receive, count, kind, -1, peer, stream)


def _carry_out(groups: Sequence[Sequence[Call]]) -> None:
    """One group of every rank."""
    if groups[0][0].name in ("send", "recv"):
        _messages(groups)
        return
    assert len({len(group) for group in groups}) == 1
    for calls in zip(*groups):
        # Every rank has to say the same.
        assert len({(c.name, c.count, c.kind, c.operation, c.peer) for c in calls}) == 1
        _collective(calls)


def _collective(calls: Sequence[Call]) -> None:
    first, ranks = calls[0], len(calls)
    length = first.count * (ranks if first.name == "reduceScatter" else 1)
    roots = [first.peer] if first.name == "broadcast" else range(ranks)
    given = [memory(calls[rank].send, length, first.kind).copy() for rank in roots]
    if first.operation >= 0:
        total = given[0]
        for one in given[1:]:
            total = _COMBINE[first.operation](total, one)
    else:
        total = np.concatenate(given)
    for rank, call in enumerate(calls):
        if first.name == "reduceScatter":
            part = total[rank * first.count : (rank + 1) * first.count]
        elif first.name == "reduce" and rank != first.peer:
            continue
        else:
            part = total
        memory(call.receive, part.size, first.kind)[...] = part


def _messages(groups: Sequence[Sequence[Call]]) -> None:
    sent = {(k, c.peer): c for k, group in enumerate(groups) for c in group if c.name == "send"}
    taken = {(c.peer, k): c for k, group in enumerate(groups) for c in group if c.name == "recv"}
    assert sent.keys() == taken.keys()
    for way, call in sent.items():
        other = taken[way]
        assert (call.count, call.kind) == (other.count, other.kind)
        memory(other.receive, other.count, other.kind)[...] = memory(
            call.send, call.count, call.kind
        )


class FakeGpu:
    """Host memory that passes for a GPU's."""

    index = 0
    device = nullcontext()

    def __init__(self) -> None:
        self.nccl = FakeNccl()

    def stream(self) -> int:
        return 4242

    def put(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def get(self, array: np.ndarray) -> np.ndarray:
        return array.copy()


class FakeRanks:
    """What NCCL needs of MPI: who one is, and a way to tell the others the identity."""

    def __init__(self, size: int, rank: int, board: list[Any]) -> None:
        self.size, self.rank, self.board = size, rank, board
        self.attributes: dict[Any, Any] = {}

    def Get_attr(self, keyval: Any) -> Any:
        return self.attributes.get(keyval)

    def Set_attr(self, keyval: Any, value: Any) -> None:
        self.attributes[keyval] = value

    def bcast(self, value: Any, root: int) -> Any:
        if self.rank == root:
            self.board.append(value)
        return self.board[-1]
