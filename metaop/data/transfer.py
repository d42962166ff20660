"""Sending objects between processes, their arrays through shared memory.

Arrays are sent in an anonymous memory file whose descriptor is passed over the socket. The memory
has no name, so nothing leaks when a process is killed.
"""

from __future__ import annotations

import mmap
import os
import pickle
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

from metaop.codegen.memory.shared import has_memory_files

# Below this many bytes, copying through the socket is cheaper than mapping memory.
_SMALL = 16384
_ALIGNMENT = 64


def send(connection: Connection, value: Any) -> None:
    """Sends `value`; `receive` at the other end returns it. Both ends are sockets."""
    buffers: list[memoryview] = []

    def keep_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _SMALL or not has_memory_files():
            return True
        buffers.append(view)
        return False

    payload = pickle.dumps(value, protocol=5, buffer_callback=keep_in_pickle)
    spans, total = _lay_out([view.nbytes for view in buffers])
    connection.send((payload, spans, total))
    if spans:
        _send_memory(connection, buffers, spans, total)


def receive(connection: Connection) -> Any:
    """Receives the next object; raises EOFError if the other end is gone.

    Its arrays own their memory, which no other process uses.
    """
    payload, spans, total = connection.recv()
    if not spans:
        return pickle.loads(payload)
    descriptor = reduction.recv_handle(connection)
    try:
        memory = memoryview(mmap.mmap(descriptor, total))
    finally:
        os.close(descriptor)
    return pickle.loads(payload, buffers=[memory[start:end] for start, end in spans])


def _lay_out(sizes: list[int]) -> tuple[list[tuple[int, int]], int]:
    spans, position = [], 0
    for size in sizes:
        position += -position % _ALIGNMENT
        spans.append((position, position + size))
        position += size
    return spans, position


def _send_memory(
    connection: Connection, buffers: list[memoryview], spans: list[tuple[int, int]], total: int
) -> None:
    descriptor = os.memfd_create("metaop-batch")
    try:
        os.ftruncate(descriptor, total)
        with mmap.mmap(descriptor, total) as memory:
            for view, (start, end) in zip(buffers, spans):
                memory[start:end] = view
        reduction.send_handle(connection, descriptor, 0)
    finally:
        os.close(descriptor)
