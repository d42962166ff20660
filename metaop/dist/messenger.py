"""Arrays between the ranks of a pipeline, on their way while kernels run.

A message is a small header, which says which result it is and of which shapes, and the arrays.
MPI only moves them on while somebody calls it, so a thread does that as long as the rank computes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from metaop.dist.collectives import mpi

Arrays = list[np.ndarray]
# An edge between two actors: the other rank and the number of the edge.
Edge = tuple[int, int]

_PAUSE = 1e-4


class Messenger:
    """Sends and receives for one rank; use it as a context."""

    def __init__(self, communicator: Any, incoming: Sequence[Edge]) -> None:
        self.communicator = communicator
        self.incoming = list(incoming)
        self._arrived: dict[tuple[Edge, int], tuple[Arrays, list[Any]]] = {}
        self._sent: list[tuple[Any, Any]] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Messenger:
        if mpi().Query_thread() >= mpi().THREAD_MULTIPLE:
            self._thread = threading.Thread(target=self._run, name="messenger", daemon=True)
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

    def _run(self) -> None:
        while not self._stop.is_set():
            self.progress()
            time.sleep(_PAUSE)

    def send(self, edge: Edge, number: int, arrays: Sequence[np.ndarray]) -> None:
        """Begins to send result `number`; the arrays must stay as they are."""
        rank, tag = edge[0], 2 * edge[1]
        header = (number, [(array.shape, array.dtype.str) for array in arrays])
        with self._lock:
            self._sent.append((self.communicator.isend(header, rank, tag), header))
            for array in arrays:
                raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                self._sent.append((self.communicator.Isend(raw, rank, tag + 1), raw))

    def take(self, edge: Edge, number: int) -> Arrays | None:
        """Result `number` of an edge, or None while it is not there."""
        self.progress()
        with self._lock:
            found = self._arrived.get((edge, number))
            if found is None or found[1]:
                return None
            del self._arrived[edge, number]
            return found[0]

    def progress(self) -> None:
        """Moves everything on that is on its way."""
        with self._lock:
            for edge in self.incoming:
                self._accept(edge)
            for _, requests in self._arrived.values():
                requests[:] = [request for request in requests if not request.Test()]
            self._sent = [item for item in self._sent if not item[0].Test()]

    def _accept(self, edge: Edge) -> None:
        rank, tag = edge[0], 2 * edge[1]
        while (message := self.communicator.improbe(rank, tag)) is not None:
            number, kinds = message.recv()
            arrays = [np.empty(shape, np.dtype(name)) for shape, name in kinds]
            requests = [
                self.communicator.Irecv(array.reshape(-1).view(np.uint8), rank, tag + 1)
                for array in arrays
            ]
            self._arrived[edge, number] = (arrays, requests)
