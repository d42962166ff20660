"""A stand-in for `cupy.cuda.nccl` between processes (or threads), which meet in a folder.

It follows NCCL's documentation: calls are put on a stream and happen when all ranks have come to
them; calls of one communicator happen in the order in which they were made; calls of a group
happen together; a message waits for whoever takes it. Where NCCL would hang or compute nonsense
(ranks that do different things, sizes that differ, buffers that overlap, memory of another GPU)
this raises an NcclError, on whichever stream finds it. No elements are an error: the callers leave
such calls out.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pickle
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tests.cuda.emulator.arrays import check_range, values_at
from tests.cuda.emulator.streams import StandInError, Stream, current_device

TYPES = {
    **{"INT8": (0, np.int8), "CHAR": (0, np.int8), "UINT8": (1, np.uint8)},
    **{"INT32": (2, np.int32), "INT": (2, np.int32), "UINT32": (3, np.uint32)},
    **{"INT64": (4, np.int64), "UINT64": (5, np.uint64)},
    **{"FLOAT16": (6, np.float16), "HALF": (6, np.float16)},
    **{"FLOAT32": (7, np.float32), "FLOAT": (7, np.float32)},
    **{"FLOAT64": (8, np.float64), "DOUBLE": (8, np.float64)},
    "BFLOAT16": (9, ml_dtypes.bfloat16),
}
OPERATIONS = {"SUM": 0, "PROD": 1, "MAX": 2, "MIN": 3, "AVG": 4}
_DTYPES = {number: np.dtype(kind) for number, kind in TYPES.values()}
_COMBINE = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum}
_SYSTEM, _ARGUMENT, _USAGE = 2, 4, 5
_ID_BYTES = 128
# Seconds after which who does not come will not come.
patience = 100.0

available = True
_groups = threading.local()
# The folders that this process made. The ranks wait for each other at the end of a job; that is
# registered later and so comes before they are removed.
_made: list[str] = []
atexit.register(lambda: [shutil.rmtree(name, ignore_errors=True) for name in _made])
# The calls that were made, each with the rank.
calls_made: list[tuple[int, Call]] = []


class NcclError(RuntimeError):
    """An error of NCCL: its number and what it means."""

    _names = {_SYSTEM: "SYSTEM_ERROR", _ARGUMENT: "INVALID_ARGUMENT", _USAGE: "INVALID_USAGE"}

    def __init__(self, status: int, why: str = "") -> None:
        self.status = status
        super().__init__(f"NCCL_ERROR_{self._names[status]}: {why}")


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

    @property
    def said(self) -> tuple[Any, ...]:
        """What all ranks have to say alike."""
        return self.name, self.count, self.kind, self.operation, self.peer


class NcclConfig:
    """How a communicator is split."""

    def __init__(self, split_share: int = 0) -> None:
        self.split_share = split_share


def check_status(status: int) -> None:
    """Raises what a number means."""
    if status:
        raise NcclError(status)


def get_version() -> int:
    """The version of the library."""
    return 22707


get_build_version = get_version


def get_unique_id() -> tuple[int, ...]:
    """128 signed numbers: the name of a new folder, which goes with this process."""
    name = tempfile.mkdtemp(prefix="nccl-")
    _made.append(name)
    padded = name.encode().ljust(_ID_BYTES, b"\0")
    return tuple(np.frombuffer(padded, np.int8).tolist())


def groupStart() -> None:
    """Calls until `groupEnd` are one; groups may be nested."""
    _opened().append([])


def groupEnd() -> None:
    """Makes the calls of the group."""
    groups = _opened()
    if not groups:
        raise NcclError(_USAGE, "groupEnd without groupStart")
    made = groups.pop()
    if groups:
        groups[-1].extend(made)
        return
    for one in dict.fromkeys(communicator for communicator, _ in made):
        one._begin([call for communicator, call in made if communicator is one])


def _opened() -> list[list[tuple[NcclCommunicator, Call]]]:
    if not hasattr(_groups, "opened"):
        _groups.opened = []
    found: list[list[tuple[NcclCommunicator, Call]]] = _groups.opened
    return found


class NcclCommunicator:
    """One GPU among others; it is made when all of them ask for it."""

    def __init__(self, ndev: int, commId: tuple[int, ...], rank: int) -> None:
        if not (len(commId) == _ID_BYTES and 0 <= rank < ndev):
            raise NcclError(_ARGUMENT, f"rank {rank} of {ndev}")
        name = np.array(commId, np.int8).tobytes().rstrip(b"\0").decode()
        self._size, self._rank, self._folder = ndev, rank, Path(name)
        self._device = current_device()
        self._collectives = 0
        self._messages: dict[tuple[str, int, int], itertools.count[int]] = {}
        self._last = threading.Event()
        self._last.set()
        self._tell(f"join.{rank}", (ndev, self._device))
        joined = [self._hear(f"join.{k}", f"rank {k} to join") for k in range(ndev)]
        if len({size for size, _ in joined}) > 1:
            raise NcclError(_ARGUMENT, f"the ranks say {[size for size, _ in joined]}")
        if len({device for _, device in joined}) < ndev:
            raise NcclError(_USAGE, "Duplicate GPU detected")

    def destroy(self) -> None:
        """Ends the communicator."""

    abort = destroy

    @property
    def comm(self) -> int:
        """The address of NCCL's own."""
        return id(self)

    def device_id(self) -> int:
        """The number of the GPU."""
        return self._device

    def rank_id(self) -> int:
        """The number among the ranks."""
        return self._rank

    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    def check_async_error(self) -> None:
        """Raises what has gone wrong since."""

    def allReduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ) -> None:
        self._note("allReduce", sendbuf, recvbuf, count, datatype, op, -1, stream)

    def reduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int
    ) -> None:
        self._note("reduce", sendbuf, recvbuf, count, datatype, op, root, stream)

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        self._note("broadcast", sendbuff, recvbuff, count, datatype, -1, root, stream)

    def bcast(self, buff: int, count: int, datatype: int, root: int, stream: int) -> None:
        self._note("broadcast", buff, buff, count, datatype, -1, root, stream)

    def reduceScatter(
        self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int
    ) -> None:
        self._note("reduceScatter", sendbuf, recvbuf, recvcount, datatype, op, -1, stream)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        self._note("allGather", sendbuf, recvbuf, count, datatype, -1, -1, stream)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._note("send", sendbuf, 0, count, datatype, -1, peer, stream)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        self._note("recv", 0, recvbuf, count, datatype, -1, peer, stream)

    # --- making calls -----------------------------------------------------------------------

    def _note(self, *arguments: Any) -> None:
        if any(type(one) is not int for one in arguments[1:]):
            raise TypeError(f"NCCL takes integers, not {arguments[1:]}")
        call = Call(*arguments)
        self._check(call)
        calls_made.append((self._rank, call))
        groups = _opened()
        if groups:
            groups[-1].append((self, call))
        else:
            self._begin([call])

    def _check(self, call: Call) -> None:
        """What NCCL checks, and what it asks of its callers."""
        known = call.kind in _DTYPES and call.operation in (-1, *OPERATIONS.values())
        if not known or call.count <= 0 or not -1 <= call.peer < self._size:
            raise NcclError(_ARGUMENT, f"{call}")
        given, taken = self._bytes(call)
        for address, size in ((call.send, given), (call.receive, taken)):
            try:
                if size:
                    check_range(address, size, self._device)
            except StandInError as error:
                raise NcclError(_ARGUMENT, f"{call}: {error}") from None
        low, high = max(call.send, call.receive), min(call.send + given, call.receive + taken)
        if given and taken and low < high and call.receive - call.send != self._offset(call):
            raise NcclError(_ARGUMENT, f"{call}: the buffers overlap")

    def _bytes(self, call: Call) -> tuple[int, int]:
        """How much a call reads and writes."""
        size = call.count * _DTYPES[call.kind].itemsize
        given = size * (self._size if call.name == "reduceScatter" else 1)
        taken = size * (self._size if call.name == "allGather" else 1)
        reads = call.name != "recv" and (call.name != "broadcast" or call.peer == self._rank)
        writes = call.name != "send" and (call.name != "reduce" or call.peer == self._rank)
        return given if reads else 0, taken if writes else 0

    def _offset(self, call: Call) -> int:
        """Where results may lie over operands: NCCL's in-place form."""
        size = call.count * _DTYPES[call.kind].itemsize
        return {"reduceScatter": size, "allGather": -size}.get(call.name, 0) * self._rank

    def _begin(self, calls: list[Call]) -> None:
        """Puts a group on its stream, to happen after the group before it."""
        numbered = [(call, self._number(call)) for call in calls]
        if len({call.stream for call in calls}) > 1:
            raise NcclError(_USAGE, "the stand-in wants one stream for a group")
        before, done = self._last, threading.Event()
        self._last = done

        def run() -> None:
            before.wait()
            try:
                self._run(numbered)
            except BaseException as error:
                self._tell(f"failed.{self._rank}", f"rank {self._rank}: {error}")
                raise
            finally:
                done.set()

        Stream.at(self._device, calls[0].stream).put(run)

    def _number(self, call: Call) -> str:
        """The name of what the call is a part of."""
        if call.name not in ("send", "recv"):
            self._collectives += 1
            return f"collective.{self._collectives}"
        ends = (self._rank, call.peer) if call.name == "send" else (call.peer, self._rank)
        number = next(self._messages.setdefault((call.name, *ends), itertools.count()))
        return f"message.{ends[0]}-{ends[1]}.{number}"

    # --- carrying them out ------------------------------------------------------------------

    def _run(self, calls: list[tuple[Call, str]]) -> None:
        for call, name in calls:
            given, _ = self._bytes(call)
            data = values_at(call.send, (given,), np.uint8).tobytes() if given else b""
            side = "taken" if call.name == "recv" else "given"
            if call.name in ("send", "recv"):
                self._tell(f"{name}.{side}", (call.count, call.kind, data))
            else:
                self._tell(f"{name}.{self._rank}", (call.said, data))
        for call, name in calls:
            what = f"{call.name} of {call.count}"
            if call.name == "send":
                other = self._hear(f"{name}.taken", f"rank {call.peer} to take a {what}")
                self._compare([(call.count, call.kind), other[:2]], name)
            elif call.name == "recv":
                *said, data = self._hear(f"{name}.given", f"rank {call.peer} to give a {what}")
                self._compare([(call.count, call.kind), tuple(said)], name)
                self._write(call, np.frombuffer(data, _DTYPES[call.kind]))
            else:
                heard = [
                    self._hear(f"{name}.{k}", f"rank {k} in {name}, a {what}")
                    for k in range(self._size)
                ]
                self._compare([said for said, _ in heard], name)
                self._collect(call, [data for _, data in heard])

    def _collect(self, call: Call, data: list[bytes]) -> None:
        values = [np.frombuffer(one, _DTYPES[call.kind]) for one in data]
        if call.name == "broadcast":
            self._write(call, values[call.peer])
        elif call.name == "allGather":
            self._write(call, np.concatenate(values))
        else:
            total = _combined(values, call.operation)
            if call.name == "reduceScatter":
                total = total[self._rank * call.count : (self._rank + 1) * call.count]
            if call.name != "reduce" or call.peer == self._rank:
                self._write(call, total)

    def _write(self, call: Call, values: np.ndarray) -> None:
        values_at(call.receive, values.shape, values.dtype)[...] = values

    def _compare(self, said: list[Any], name: str) -> None:
        if len(set(said)) > 1:
            raise NcclError(_USAGE, f"{name}: the ranks differ: {said}")

    # --- between ranks ----------------------------------------------------------------------

    def _tell(self, name: str, value: Any) -> None:
        path = self._folder / f"{name}.{os.getpid()}.{self._rank}.new"
        path.write_bytes(pickle.dumps(value))
        path.replace(self._folder / name)

    def _hear(self, name: str, what: str) -> Any:
        path, end = self._folder / name, time.monotonic() + patience
        while not path.exists():
            for failed in self._folder.glob("failed.*"):
                if not failed.name.endswith(".new"):
                    raise NcclError(_SYSTEM, pickle.loads(failed.read_bytes()))
            if time.monotonic() > end:
                raise NcclError(_SYSTEM, f"rank {self._rank} waits for {what}")
            time.sleep(2e-4)
        return pickle.loads(path.read_bytes())


def _combined(values: list[np.ndarray], operation: int) -> np.ndarray:
    """Rank by rank, in the type of the values, as NCCL does."""
    total = values[0]
    for one in values[1:]:
        total = _COMBINE.get(operation, np.add)(total, one)
    if operation == OPERATIONS["AVG"]:
        mean = total / len(values)
        total = (np.trunc(mean) if total.dtype.kind in "iu" else mean).astype(total.dtype)
    return total


def module() -> ModuleType:
    """This stand-in under the names of the library."""
    made = ModuleType("cupy.cuda.nccl")
    for name, (number, _) in TYPES.items():
        setattr(made, f"NCCL_{name}", number)
    for name, number in OPERATIONS.items():
        setattr(made, f"NCCL_{name}", number)
    own = (NcclCommunicator, NcclConfig, NcclError, check_status, get_build_version, get_unique_id)
    for one in (*own, get_version, groupEnd, groupStart):
        setattr(made, one.__name__, one)
    made.__dict__.update(available=True, get_build_version=get_version)
    return made
