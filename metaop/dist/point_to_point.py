"""Transfers of arrays between the ranks of a pipeline, concurrent with kernels.

A message consists of a small header, which identifies the result and gives its shapes, and the
arrays. MPI makes progress only while it is called, so a thread calls it as long as the rank
computes. Arrays on a GPU go through NCCL if their edge has a link: the header announces them, and
kernels that read them wait, but the host does not. Otherwise they go through host memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from metaop.dist.collectives import MPIWorld, mpi
from metaop.dist.memory import HOST_MEMORY, Memory

# NumPy arrays in host memory, or cupy arrays on the GPU of this rank.
Arrays = list[Any]
# An edge between two actors: the other rank and the number of the edge.
Edge = tuple[int, int]

_PAUSE = 1e-4


@dataclass
class _Arriving:
    """A message whose header has arrived: `requests` fill its arrays in host memory.

    Arrays that come through a link must still be received: `due` has positions, shapes and types.
    """

    arrays: Arrays
    requests: list[Any]
    due: list[tuple[int, tuple[int, ...], np.dtype]]
    streamed: list[Any] = field(default_factory=list)


class PointToPoint:
    """Sends and receives for one rank, whose arrays are in `memory`; use it as a context manager.

    `links` has worlds of two GPUs, the first of which sends.
    """

    def __init__(
        self,
        communicator: Any,
        incoming: Sequence[Edge],
        links: Mapping[Edge, MPIWorld],
        memory: Memory = HOST_MEMORY,
    ) -> None:
        self.communicator = communicator
        self.incoming = list(incoming)
        self.links, self.memory = links, memory
        self._arrived: dict[tuple[Edge, int], _Arriving] = {}
        self._sent: list[tuple[Any, Any]] = []
        self._streamed: list[tuple[MPIWorld, Any]] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> PointToPoint:
        if mpi().Query_thread() >= mpi().THREAD_MULTIPLE:
            self._thread = threading.Thread(target=self._run, name="channel", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        while kind is None and self._sent:
            self.progress()
        while kind is None and self._streamed:
            # Later kernels may overwrite what is being sent.
            link, request = self._streamed.pop()
            link.wait(request, "a message to the next rank")

    def _run(self) -> None:
        while not self._stop.is_set():
            self.progress()
            time.sleep(_PAUSE)

    def send(self, edge: Edge, number: int, arrays: Sequence[Any]) -> None:
        """Starts to send result `number`; the arrays must not change."""
        rank, tag = edge[0], 2 * edge[1]
        link = self.links.get(edge)
        by_link = [link is not None and not isinstance(array, np.ndarray) for array in arrays]
        header = (number, [(a.shape, a.dtype, way) for a, way in zip(arrays, by_link)])
        with self._lock:
            self._sent.append((self.communicator.isend(header, rank, tag), header))
            for array, way in zip(arrays, by_link):
                if way:
                    assert link is not None
                    with self.memory.active():
                        request = link.transport.send(array.reshape(-1), 1)
                    self._streamed.append((link, request))
                    continue
                here = array if isinstance(array, np.ndarray) else self.memory.get(array)
                raw = np.ascontiguousarray(here).reshape(-1).view(np.uint8)
                self._sent.append((self.communicator.Isend(raw, rank, tag + 1), raw))

    def take(self, edge: Edge, number: int) -> Arrays | None:
        """Result `number` of an edge, or None if it has not arrived yet."""
        self.progress()
        with self._lock:
            self._ask()
            found = self._arrived.get((edge, number))
            if found is None or found.requests:
                return None
            del self._arrived[edge, number]
        for request in found.streamed:
            self.links[edge].wait(request, f"a message of rank {edge[0]}")
        return found.arrays

    def progress(self) -> None:
        """Makes progress on all messages."""
        with self._lock:
            for edge in self.incoming:
                self._accept(edge)
            for message in self._arrived.values():
                message.requests[:] = [one for one in message.requests if not one.Test()]
            self._sent = [item for item in self._sent if not item[0].Test()]

    def _accept(self, edge: Edge) -> None:
        rank, tag = edge[0], 2 * edge[1]
        while (message := self.communicator.improbe(rank, tag)) is not None:
            number, kinds = message.recv()
            arrays: Arrays = [
                None if way else np.empty(shape, dtype) for shape, dtype, way in kinds
            ]
            requests = [
                self.communicator.Irecv(array.reshape(-1).view(np.uint8), rank, tag + 1)
                for array in arrays
                if array is not None
            ]
            due = [(k, shape, dtype) for k, (shape, dtype, way) in enumerate(kinds) if way]
            self._arrived[edge, number] = _Arriving(arrays, requests, due)

    def _ask(self) -> None:
        """Posts receives for what comes through links, in the order of sending.

        Only the computing thread may call this: GPU memory is allocated in the order of its stream.
        """
        for (edge, _), message in self._arrived.items():
            while message.due:
                position, shape, dtype = message.due.pop(0)
                link = self.links[edge]
                with self.memory.active():
                    array = np.empty_like(self.memory.full((0,), 0, dtype), shape=shape)
                    request = link.transport.receive(array.reshape(-1), 0)
                message.arrays[position] = array
                message.streamed.append(request)
